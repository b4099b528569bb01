//! Records that a member of a group has received and not applied: whether they are committed it is not told yet.
//!
//! `follow` keeps them here before it acknowledges them and applies them when they are committed. A member that comes to
//! lead applies all of them, whatever it was told: an acknowledgement is a promise. They outlive the connection, and end
//! with the history they are of.
//!
//! Where acknowledgements are of disks they are noted in the journal first, and once more in each new base's first segment.
//! [`UncommittedTrack`] finds them there at a start.

use std::collections::VecDeque;

use darter_persist::journal::part::{self, UncommittedPart};
use darter_persist::journal::record::{HEAD_BYTES, RecordHead};
use darter_replica::form::Former;
use darter_replica::history::ReplId;
use darter_replica::merge::{BadRecord, Merger};
use darter_replica::shared_bytes::SharedBytes;

use super::position::StreamPosition;

/// See above.
#[derive(Debug, Default)]
pub struct Uncommitted {
    history: Option<ReplId>,
    chunks: VecDeque<UncommittedChunk>,
    // every record from the first chunk's first on is here, below this sequence
    end: u64,
    // the journal has those that begin below
    noted: u64,
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
    pub fn take(&mut self, history: ReplId, merger: &mut Merger, applied: u64) -> Result<u64, BadRecord> {
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

    /// Appends a journal part of those that the journal lacks; false: it lacks none. Bytes and sequence `applied` are applied.
    pub fn write_news(&mut self, out: &mut Vec<u8>, applied: (u64, u64)) -> bool {
        let from = self.noted;
        self.noted = self.end;
        self.write_from(out, applied, from)
    }

    /// Appends a journal part of those that are not applied; false: there are none.
    pub fn write_all(&self, out: &mut Vec<u8>, applied: (u64, u64)) -> bool {
        self.write_from(out, applied, 0)
    }

    fn write_from(&self, out: &mut Vec<u8>, applied: (u64, u64), from: u64) -> bool {
        let chunks = self.chunks.iter().filter(|chunk| chunk.last >= applied.1 && chunk.first >= from);
        let Some(history) = self.history.filter(|_| chunks.clone().next().is_some()) else { return false };
        part::write_uncommitted(out, history.as_str().as_bytes(), applied, chunks.map(|chunk| &*chunk.bytes));
        true
    }

    /// The records of a history from `applied` on and below `limit`, or the first of them; `None`: there are none.
    pub fn reader(&self, history: ReplId, applied: u64, limit: u64) -> Option<Merger> {
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

/// What a journal tells of records that were received and not applied, found while it is replayed.
#[derive(Debug, Default)]
pub struct UncommittedTrack {
    kept: Uncommitted,
    // what was applied when the last of them were noted: bytes and sequence
    applied: (u64, u64),
}

impl UncommittedTrack {
    /// Takes what the journal says next. Those that a new base was given once more are here perhaps.
    pub fn note(&mut self, part: UncommittedPart<'_>) {
        let head = part.records.first_chunk::<HEAD_BYTES>().map(RecordHead::read);
        let (Some(history), Some(first)) = (ReplId::parse(part.id), head.map(|head| head.sequence)) else {
            return;
        };
        if first > self.kept.end {
            self.kept.clear();
        }
        let mut merger = Merger::new(1, first);
        merger.push(0, part.records.to_vec().into());
        match self.kept.take(history, &mut merger, part.applied) {
            Ok(_) => self.applied = (part.offset, part.applied),
            Err(bad) => tracing::error!("records in the journal that a leader sent are damaged: {bad}"),
        }
    }

    /// The sequence of the stream's next record where the data stands at `position`, and what was received from there on;
    /// `None`: nothing is known of that.
    pub fn behind(self, position: &StreamPosition) -> Option<(u64, Uncommitted)> {
        let UncommittedTrack { mut kept, applied: (mut offset, mut next) } = self;
        if kept.history != Some(position.id) {
            return None;
        }
        let (mut former, mut merger) = (Former::default(), Merger::new(1, next));
        kept.chunks.iter().for_each(|chunk| merger.push(0, chunk.bytes.clone()));
        let drained = merger.drain(|head, body| {
            if offset < position.offset {
                offset += former.commands(body, head.clock_ms, |_| {}).unwrap_or(u64::MAX / 2);
                next = head.sequence + 1;
            }
        });
        drained.ok()?;
        kept.end = kept.end.max(next);
        kept.noted = kept.end;
        (offset == position.offset).then_some((next, kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_persist::journal::record::RecordDraft;

    fn id(digit: char) -> ReplId {
        ReplId::parse(digit.to_string().repeat(40).as_bytes()).expect("forty digits")
    }

    fn merger(next: u64, sequences: std::ops::Range<u64>) -> Merger {
        let (mut merger, mut out) = (Merger::new(1, next), Vec::new());
        for sequence in sequences {
            let draft = RecordDraft::begin(&mut out);
            out.push(7);
            draft.finish(&mut out, sequence, 5);
        }
        merger.push(0, out.into());
        merger
    }

    fn read(kept: &Uncommitted, applied: u64, limit: u64) -> Vec<u64> {
        read_of(id('a'), kept, applied, limit)
    }

    fn read_of(history: ReplId, kept: &Uncommitted, applied: u64, limit: u64) -> Vec<u64> {
        let mut all = Vec::new();
        if let Some(mut reader) = kept.reader(history, applied, limit) {
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

    /// What the journal is given of all news; bytes and sequence `applied` are applied.
    fn noted(kept: &mut Uncommitted, applied: (u64, u64)) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        kept.write_news(&mut out, applied).then_some(out)
    }

    fn sets(sequences: std::ops::Range<u64>) -> Merger {
        let (mut merger, mut out) = (Merger::new(1, sequences.start), Vec::new());
        for sequence in sequences {
            let draft = RecordDraft::begin(&mut out);
            part::write_set(&mut out, 0, b"k", b"1");
            draft.finish(&mut out, sequence, 5);
        }
        merger.push(0, out.into());
        merger
    }

    /// Bytes of `SET k 1`.
    const SET: u64 = 27;

    fn after(bodies: &[Vec<u8>], id: ReplId, offset: u64) -> Option<(u64, Vec<u64>)> {
        let mut track = UncommittedTrack::default();
        bodies.iter().for_each(|body| track.note(part::uncommitted(body).expect("a part")));
        let (next, kept) = track.behind(&StreamPosition { id, offset, db: 0 })?;
        Some((next, read_of(id, &kept, next, u64::MAX)))
    }

    #[test]
    fn a_start_finds_what_was_received_behind_what_was_applied() {
        let mut kept = Uncommitted::default();
        kept.take(id('a'), &mut sets(5..8), 5).expect("whole records");
        let first = noted(&mut kept, (1000, 5)).expect("news");
        assert_eq!(noted(&mut kept, (1000, 5)), None, "they are noted once");
        kept.take(id('a'), &mut sets(8..10), 6).expect("whole records");
        let second = noted(&mut kept, (1000 + SET, 6)).expect("news");
        let both = [first.clone(), second.clone()];
        assert_eq!(after(&both, id('a'), 1000 + SET), Some((6, vec![6, 7, 8, 9])));
        assert_eq!(after(&both, id('a'), 1000 + 4 * SET), Some((9, vec![9])));
        assert_eq!(after(&both, id('a'), 1000 + 5 * SET), Some((10, vec![])));
        assert_eq!(after(&both[..1], id('a'), 1000), Some((5, vec![5, 6, 7])));
        // A place between two records is none, and another history has nothing of this one.
        assert_eq!(after(&both, id('a'), 1001 + SET), None);
        assert_eq!(after(&both, id('b'), 1000 + SET), None);
        // A base that was begun meanwhile: all that is not applied is noted again.
        let mut again = Vec::new();
        assert!(kept.write_all(&mut again, (1000 + SET, 6)));
        assert_eq!(after(&[first, second, again.clone()], id('a'), 1000 + SET), Some((6, vec![6, 7, 8, 9])));
        assert_eq!(after(&[again], id('a'), 1000 + 2 * SET), Some((7, vec![7, 8, 9])));
        // The next term's records take the place of those.
        let mut next = Uncommitted::default();
        next.take(id('b'), &mut sets(6..7), 6).expect("whole records");
        let next = noted(&mut next, (1000 + SET, 6)).expect("news");
        assert_eq!(after(&[both[0].clone(), both[1].clone(), next], id('b'), 1000 + SET), Some((6, vec![6])));
    }
}
