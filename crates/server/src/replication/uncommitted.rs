//! Records that a member of a group has received and not applied: whether they are committed it is not told yet.
//!
//! `follow` keeps them here before it acknowledges them and applies them when they are committed. A member that comes to
//! lead applies all of them, whatever it was told: an acknowledgement is a promise. They outlive the connection, and end
//! with the history they are of.

use std::collections::VecDeque;

use darter_replica::history::Id;
use darter_replica::merge::{BadRecord, Merger};
use darter_replica::shared_bytes::SharedBytes;

/// See above.
#[derive(Debug, Default)]
pub struct Uncommitted {
    history: Option<Id>,
    chunks: VecDeque<UncommittedChunk>,
    // every record from the first chunk's first on is here, below this sequence
    end: u64,
}

#[derive(Debug)]
struct UncommittedChunk {
    first: u64,
    last: u64,
    bytes: SharedBytes,
}

/// Bytes that are looked at for one batch.
const BATCH_BYTES: usize = 256 << 10;

impl Uncommitted {
    /// Takes the records that are next in `merger`, of a history; all before `applied` are applied. Returns the sequence behind
    /// them. What is here already is not taken twice.
    ///
    /// Errors: of the merger.
    pub fn take(&mut self, history: Id, merger: &mut Merger, applied: u64) -> Result<u64, BadRecord> {
        if self.history != Some(history) {
            *self = Uncommitted { history: Some(history), ..Uncommitted::default() };
        }
        while self.chunks.front().is_some_and(|chunk| chunk.last < applied) {
            self.chunks.pop_front();
        }
        if self.chunks.is_empty() {
            self.end = merger.next_sequence();
        }
        let (end, mut bytes, mut first, mut last) = (self.end, Vec::new(), None, 0);
        merger.drain_while(|record| {
            let sequence = record.head.sequence;
            if sequence >= end {
                first.get_or_insert(sequence);
                last = sequence;
                bytes.extend_from_slice(record.bytes);
            }
            true
        })?;
        if let Some(first) = first {
            self.chunks.push_back(UncommittedChunk { first, last, bytes: bytes.into() });
            self.end = last + 1;
        }
        Ok(self.end)
    }

    /// The records of a history from `applied` on and below `limit`, or the first of them; `None`: there are none.
    pub fn reader(&self, history: Id, applied: u64, limit: u64) -> Option<Merger> {
        let limit = limit.min(self.end);
        if self.history != Some(history) || applied >= limit {
            return None;
        }
        let mut merger = Merger::new(1, applied).below(limit);
        let chunks = self.chunks.iter().skip_while(|chunk| chunk.last < applied);
        for chunk in chunks.take_while(|chunk| chunk.first < limit) {
            merger.push(0, chunk.bytes.clone());
            if merger.waiting_bytes() >= BATCH_BYTES {
                break;
            }
        }
        Some(merger)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Uncommitted::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_persist::journal::record::Draft;

    fn id(digit: char) -> Id {
        Id::parse(digit.to_string().repeat(40).as_bytes()).expect("forty digits")
    }

    fn merger(next: u64, sequences: std::ops::Range<u64>) -> Merger {
        let (mut merger, mut out) = (Merger::new(1, next), Vec::new());
        for sequence in sequences {
            let draft = Draft::begin(&mut out);
            out.push(7);
            draft.finish(&mut out, sequence, 5);
        }
        merger.push(0, out.into());
        merger
    }

    fn read(kept: &Uncommitted, applied: u64, limit: u64) -> Vec<u64> {
        let mut all = Vec::new();
        if let Some(mut reader) = kept.reader(id('a'), applied, limit) {
            reader.drain(|head, _| all.push(head.sequence)).expect("whole records");
        }
        all
    }

    #[test]
    fn what_was_acknowledged_stays_until_it_is_applied() {
        let mut kept = Uncommitted::default();
        assert_eq!(kept.take(id('a'), &mut merger(5, 5..8), 5), Ok(8));
        assert_eq!(kept.take(id('a'), &mut merger(8, 8..10), 5), Ok(10));
        assert_eq!(read(&kept, 5, 7), [5, 6]);
        assert_eq!(read(&kept, 7, u64::MAX), [7, 8, 9]);
        // The connection has ended, and the next one begins with what is not applied.
        assert_eq!(kept.take(id('a'), &mut merger(7, 7..9), 7), Ok(10), "nothing is taken back");
        assert_eq!(kept.take(id('a'), &mut merger(7, 7..12), 7), Ok(12));
        assert_eq!(read(&kept, 7, u64::MAX), [7, 8, 9, 10, 11]);
        assert_eq!(kept.take(id('a'), &mut merger(12, 12..12), 12), Ok(12));
        assert!(read(&kept, 12, u64::MAX).is_empty() && kept.chunks.is_empty());
        // Another history has nothing of this one.
        assert_eq!(kept.take(id('b'), &mut merger(3, 3..4), 3), Ok(4));
        assert!(kept.reader(id('a'), 3, 9).is_none());
    }

    #[test]
    fn a_record_behind_a_gap_is_not_taken() {
        let mut kept = Uncommitted::default();
        let mut behind = merger(5, 6..8);
        assert_eq!(kept.take(id('a'), &mut behind, 5), Ok(5));
        behind.push(0, SharedBytes::default());
        assert!(read(&kept, 5, u64::MAX).is_empty());
    }
}
