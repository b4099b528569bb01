//! The backlog: the last bytes of the stream, for replicas that come back and for those that are slow.

use std::collections::VecDeque;

/// Bytes that are kept together.
const CHUNK_BYTES: usize = 64 << 10;

/// The end of a stream of bytes. Offsets count the bytes of the stream from its beginning.
#[derive(Debug, Default)]
pub struct Backlog {
    chunks: VecDeque<Vec<u8>>,
    first: u64,
    end: u64,
}

impl Backlog {
    /// An empty backlog of a stream that has had `offset` bytes.
    pub fn new(offset: u64) -> Backlog {
        Backlog { chunks: VecDeque::new(), first: offset, end: offset }
    }

    /// The offset of the first byte that is kept.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes that are kept.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Appends bytes of the stream.
    pub fn append(&mut self, mut bytes: &[u8]) {
        self.end = self.end.saturating_add(bytes.len() as u64);
        while !bytes.is_empty() {
            let room = self.chunks.back().map_or(0, |last| CHUNK_BYTES.saturating_sub(last.len()));
            if room == 0 {
                self.chunks.push_back(Vec::with_capacity(CHUNK_BYTES));
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(last) = self.chunks.back_mut() {
                last.extend_from_slice(now);
            }
            bytes = later;
        }
    }

    /// Counts `len` bytes that are not kept; what was kept before them goes.
    pub fn skip(&mut self, len: u64) {
        if len > 0 {
            self.chunks.clear();
            self.end = self.end.saturating_add(len);
            self.first = self.end;
        }
    }

    /// Forgets whole chunks, as far as `len_max` bytes stay and nothing from offset `needed` on is lost.
    pub fn trim(&mut self, len_max: u64, needed: u64) {
        while let Some(chunk) = self.chunks.front() {
            let after = self.first.saturating_add(chunk.len() as u64);
            if self.end.saturating_sub(after) < len_max || after > needed || after == self.end {
                return;
            }
            self.first = after;
            self.chunks.pop_front();
        }
    }

    /// Whether the bytes from `offset` on are kept, or `offset` is the end.
    pub fn has(&self, offset: u64) -> bool {
        (self.first..=self.end).contains(&offset)
    }

    /// Copies up to `len_max` bytes from `offset` on; empty when they are gone or not there yet.
    pub fn read(&self, offset: u64, len_max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut at = self.first;
        for chunk in &self.chunks {
            let after = at.saturating_add(chunk.len() as u64);
            if offset >= self.first && after > offset && out.len() < len_max {
                let skipped = usize::try_from(offset.saturating_sub(at)).unwrap_or(usize::MAX);
                let part = chunk.get(skipped..).unwrap_or_default();
                out.extend_from_slice(part.get(..len_max.saturating_sub(out.len())).unwrap_or(part));
            }
            at = after;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(from: u64, len: usize) -> Vec<u8> {
        (from..).take(len).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn bytes_come_back_from_any_offset_that_is_kept() {
        let mut backlog = Backlog::new(1000);
        let mut end = 1000;
        for len in (0..200).map(|n| n * 37 % 3001) {
            backlog.append(&stream(end, len));
            end += len as u64;
        }
        assert_eq!((backlog.first(), backlog.end(), backlog.len()), (1000, end, end - 1000));
        for offset in [1000, 1001, 70_000, end - 1, end] {
            assert!(backlog.has(offset));
            let len = (end - offset).min(100_000) as usize;
            assert_eq!(backlog.read(offset, 100_000), stream(offset, len), "from {offset}");
        }
        assert!(backlog.read(999, 10).is_empty() && backlog.read(end + 1, 10).is_empty());
        assert!(!backlog.has(999) && !backlog.has(end + 1));
    }

    #[test]
    fn what_a_slow_reader_needs_stays() {
        let mut backlog = Backlog::new(0);
        backlog.append(&stream(0, 10 * CHUNK_BYTES));
        backlog.trim(1, 3 * CHUNK_BYTES as u64 + 5);
        assert_eq!(backlog.first(), 3 * CHUNK_BYTES as u64);
        backlog.trim(2 * CHUNK_BYTES as u64, u64::MAX);
        assert_eq!(backlog.len(), 2 * CHUNK_BYTES as u64);
        assert_eq!(backlog.read(backlog.first(), 7), stream(backlog.first(), 7));
        backlog.trim(0, u64::MAX);
        assert!(backlog.has(backlog.end()));
        let end = backlog.end();
        backlog.skip(0);
        assert!(!backlog.is_empty());
        backlog.skip(7);
        assert_eq!((backlog.first(), backlog.end(), backlog.is_empty()), (end + 7, end + 7, true));
    }
}
