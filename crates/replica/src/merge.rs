//! Journal records of all threads in one order: that of their sequences.

use std::collections::VecDeque;
use std::fmt;

use darter_persist::journal::record::{HEAD_BYTES, RecordHead};

use crate::shared_bytes::SharedBytes;

/// Brings the records of several lanes into the order of their sequences. Each lane has its own in that order.
#[derive(Debug)]
pub struct Merger {
    next: u64,
    // records from here on stay where they are
    limit: u64,
    lanes: Vec<VecDeque<PendingChunk>>,
    // what the chunks take
    bytes: usize,
}

/// Why bytes of a lane are no records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRecord {
    /// The lane.
    pub lane: usize,
    /// The sequence that was wanted next.
    pub next: u64,
    /// The damage.
    pub what: &'static str,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "flow {} is garbled before record {}: {}", self.lane, self.next, self.what)
    }
}

/// A record that is next.
#[derive(Clone, Copy, Debug)]
pub struct NextRecord<'a> {
    /// Its head.
    pub head: RecordHead,
    /// All of its bytes, the head included.
    pub bytes: &'a [u8],
    /// The records among which it came.
    pub chunk: &'a SharedBytes,
    /// Where it begins among them.
    pub at: usize,
}

/// Records one behind the other, of which those before `at` are taken.
#[derive(Debug)]
struct PendingChunk {
    bytes: SharedBytes,
    at: usize,
}

impl Merger {
    /// Merges `lanes` lanes; `next` is the first sequence that is wanted.
    pub fn new(lanes: usize, next: u64) -> Merger {
        Merger { next, limit: u64::MAX, lanes: (0..lanes).map(|_| VecDeque::new()).collect(), bytes: 0 }
    }

    /// The same merger, which leaves records with the sequence `limit` and later ones where they are.
    pub fn below(self, limit: u64) -> Merger {
        Merger { limit, ..self }
    }

    /// The sequence of the next record.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Bytes that wait for older records.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes
    }

    /// Takes records of a lane.
    pub fn push(&mut self, lane: usize, bytes: SharedBytes) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            self.bytes += bytes.len();
            lane.push_back(PendingChunk { bytes, at: 0 });
        }
    }

    /// Whether a lane has nothing that waits.
    pub fn wants(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(VecDeque::is_empty)
    }

    /// Calls `each` with the head and the body of every record that is next, up to the first gap.
    ///
    /// Errors: a chunk holds something else than whole records; it stays where it is.
    pub fn drain(&mut self, mut each: impl FnMut(RecordHead, &[u8])) -> Result<(), BadRecord> {
        self.drain_while(|record| {
            each(record.head, record.bytes.get(HEAD_BYTES..).unwrap_or_default());
            true
        })
    }

    /// Calls `each` with every record that is next, up to the first gap, or until it says false: that record is the last then.
    ///
    /// Errors: as [`Merger::drain`].
    pub fn drain_while(&mut self, mut each: impl FnMut(NextRecord<'_>) -> bool) -> Result<(), BadRecord> {
        while self.next < self.limit {
            let mut moved = false;
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                match drain_lane(lane, (&mut self.next, self.limit), &mut self.bytes, &mut each) {
                    Ok(Drained::Nothing) => {}
                    Ok(Drained::Some) => moved = true,
                    Ok(Drained::Enough) => return Ok(()),
                    Err(what) => return Err(BadRecord { lane: number, next: self.next, what }),
                }
            }
            if !moved {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Bytes of a lane that wait.
    pub fn lane_bytes(&self, lane: usize) -> usize {
        let chunks = self.lanes.get(lane).into_iter().flatten();
        chunks.map(|chunk| chunk.bytes.len().saturating_sub(chunk.at)).sum()
    }
}

/// What was taken from a lane.
enum Drained {
    Nothing,
    Some,
    /// No more is wanted.
    Enough,
}

/// Takes records from the front of a lane while they are next; older ones are dropped. Returns whether any was taken.
fn drain_lane(
    lane: &mut VecDeque<PendingChunk>,
    (next, limit): (&mut u64, u64),
    waiting: &mut usize,
    each: &mut impl FnMut(NextRecord<'_>) -> bool,
) -> Result<Drained, &'static str> {
    let mut moved = Drained::Nothing;
    let mut pop = |lane: &mut VecDeque<PendingChunk>| {
        let bytes = lane.pop_front().map_or(0, |chunk| chunk.bytes.len());
        *waiting = waiting.saturating_sub(bytes);
    };
    while let Some(chunk) = lane.front_mut() {
        let rest = chunk.bytes.get(chunk.at..).unwrap_or_default();
        if rest.is_empty() {
            pop(lane);
            continue;
        }
        let Some((bytes, after)) = rest.split_first_chunk::<HEAD_BYTES>() else {
            return Err("a record is cut off");
        };
        let head = RecordHead::read(bytes);
        let len = usize::try_from(head.body_len).unwrap_or(usize::MAX);
        if after.len() < len {
            return Err("a record is longer than what holds it");
        }
        if head.sequence > *next || *next >= limit {
            return Ok(moved);
        }
        let bytes = rest.get(..HEAD_BYTES + len).unwrap_or_default();
        let record = NextRecord { head, bytes, chunk: &chunk.bytes, at: chunk.at };
        let goes_on = head.sequence < *next || each(record);
        chunk.at += HEAD_BYTES + len;
        if head.sequence == *next {
            *next += 1;
            moved = Drained::Some;
        }
        if !goes_on {
            return Ok(Drained::Enough);
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_persist::journal::record::RecordDraft;

    fn records(sequences: &[u64]) -> SharedBytes {
        let mut out = Vec::new();
        for sequence in sequences {
            let draft = RecordDraft::begin(&mut out);
            out.extend_from_slice(sequence.to_string().as_bytes());
            draft.finish(&mut out, *sequence, 5);
        }
        out.into()
    }

    fn drained(merger: &mut Merger) -> Vec<u64> {
        let mut seen = Vec::new();
        merger
            .drain(|head, body| {
                assert_eq!(body, head.sequence.to_string().as_bytes());
                seen.push(head.sequence);
            })
            .expect("whole records");
        seen
    }

    #[test]
    fn a_record_of_an_impossible_length_is_named() {
        for (at, value) in [(4, 2), (4, 250), (11, 255)] {
            let mut merger = Merger::new(2, 4);
            let mut bytes = records(&[4, 5]).to_vec();
            bytes[at] = value;
            merger.push(1, bytes.into());
            let bad = merger.drain(|_, _| {}).expect_err("what follows is no record");
            assert_eq!((bad.lane, bad.next <= 5), (1, true), "{bad}");
            assert!(merger.drain(|_, _| {}).is_err(), "nothing behind it is taken");
        }
        let mut merger = Merger::new(1, 4);
        merger.push(0, records(&[4, 5]).part(0..HEAD_BYTES * 2));
        assert_eq!(merger.drain(|_, _| {}).expect_err("half a record").what, "a record is cut off");
    }

    #[test]
    fn records_of_all_lanes_come_in_the_order_of_their_sequences() {
        let mut merger = Merger::new(3, 4);
        merger.push(0, records(&[1, 3, 4, 8]));
        merger.push(1, records(&[2, 5, 6]));
        assert_eq!(drained(&mut merger), [4, 5, 6]);
        merger.push(1, records(&[9]));
        assert!(drained(&mut merger).is_empty(), "7 is missing");
        assert!(merger.waiting_bytes() > 0);
        merger.push(2, records(&[7]));
        assert_eq!(drained(&mut merger), [7, 8, 9]);
        assert_eq!((merger.next_sequence(), merger.waiting_bytes()), (10, 0));
    }

    #[test]
    fn no_more_is_taken_than_is_wanted() {
        let mut merger = Merger::new(2, 1);
        merger.push(0, records(&[1, 2, 4]));
        merger.push(1, records(&[3, 5]));
        let mut seen = Vec::new();
        for _ in 0..3 {
            merger
                .drain_while(|record| {
                    assert_eq!(record.bytes, &record.chunk[record.at..record.at + HEAD_BYTES + 1]);
                    seen.push(record.head.sequence);
                    !seen.len().is_multiple_of(2)
                })
                .expect("whole records");
            seen.extend([0]);
        }
        assert_eq!(seen, [1, 2, 0, 3, 0, 4, 0], "a marker counts too");
        assert_eq!(merger.lane_bytes(1), HEAD_BYTES + 1);
    }
}
