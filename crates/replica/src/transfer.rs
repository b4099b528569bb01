//! A snapshot on its way from a master: how its end is found.

use darter_base::number;

/// Bytes of the mark that ends a snapshot of unknown length.
const MARK_BYTES: usize = 40;

/// Where a snapshot ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    end: TransferEnd,
    /// Bytes received.
    pub received: u64,
    // the last bytes, which may be the mark
    tail: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum TransferEnd {
    After(u64),
    Mark(Vec<u8>),
}

/// What to do with received bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakenFrame {
    /// Bytes of the snapshot.
    pub bytes: Vec<u8>,
    /// How many of the received bytes are part of the transfer.
    pub used: usize,
    /// Nothing of the snapshot is missing.
    pub is_whole: bool,
}

impl Transfer {
    /// Reads the line that announces a snapshot, without its end.
    pub fn parse(line: &[u8]) -> Option<Transfer> {
        let text = line.strip_prefix(b"$")?;
        let end = match text.strip_prefix(b"EOF:") {
            Some(mark) if mark.len() == MARK_BYTES => TransferEnd::Mark(mark.to_vec()),
            Some(_) => return None,
            None => TransferEnd::After(u64::try_from(number::parse_i64(text)?).ok()?),
        };
        Some(Transfer { end, received: 0, tail: Vec::new() })
    }

    /// The length, if it is known.
    pub fn len(&self) -> Option<u64> {
        match self.end {
            TransferEnd::After(len) => Some(len),
            TransferEnd::Mark(_) => None,
        }
    }

    /// Whether the snapshot has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Takes bytes as they were received.
    pub fn take(&mut self, bytes: &[u8]) -> TakenFrame {
        match &self.end {
            TransferEnd::After(len) => {
                let left = usize::try_from(len.saturating_sub(self.received)).unwrap_or(usize::MAX);
                let used = left.min(bytes.len());
                self.received += used as u64;
                let own = bytes.get(..used).unwrap_or_default().to_vec();
                TakenFrame { bytes: own, used, is_whole: used == left }
            }
            TransferEnd::Mark(mark) => {
                // Nothing follows the mark until it is acknowledged.
                let mut all = std::mem::take(&mut self.tail);
                all.extend_from_slice(bytes);
                let is_whole = all.ends_with(mark);
                let keep = if is_whole { 0 } else { all.len().min(MARK_BYTES) };
                self.tail = all.split_off(all.len() - keep);
                if is_whole {
                    all.truncate(all.len() - MARK_BYTES);
                }
                self.received += all.len() as u64;
                TakenFrame { bytes: all, used: bytes.len(), is_whole }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(mut transfer: Transfer, bytes: &[u8], step: usize) -> (Vec<u8>, usize, bool) {
        let (mut own, mut used) = (Vec::new(), 0);
        for piece in bytes.chunks(step) {
            let taken = transfer.take(piece);
            own.extend_from_slice(&taken.bytes);
            used += taken.used;
            if taken.is_whole {
                return (own, used, true);
            }
        }
        (own, used, false)
    }

    #[test]
    fn a_length_ends_a_snapshot() {
        let transfer = Transfer::parse(b"$5").expect("a length");
        assert_eq!(transfer.len(), Some(5));
        for step in 1..8 {
            assert_eq!(received(transfer.clone(), b"REDIS*1", step), (b"REDIS".to_vec(), 5, true));
        }
    }

    #[test]
    fn a_mark_ends_a_snapshot_however_it_is_cut() {
        let mark = [b'm'; 40];
        let line = [b"$EOF:".as_slice(), &mark].concat();
        let transfer = Transfer::parse(&line).expect("a mark");
        let bytes = [b"REDIS0011mmm, and more".as_slice(), &mark].concat();
        for step in 1..bytes.len() + 1 {
            let (own, used, is_whole) = received(transfer.clone(), &bytes, step);
            assert_eq!((own.as_slice(), used, is_whole), (&b"REDIS0011mmm, and more"[..], bytes.len(), true));
        }
    }

    #[test]
    fn other_lines_announce_nothing() {
        for line in [b"$".as_slice(), b"$-1", b"$EOF:short", b"+OK", b"", b"$12x"] {
            assert_eq!(Transfer::parse(line), None, "{}", line.escape_ascii());
        }
    }
}
