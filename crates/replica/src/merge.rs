//! Journal records of all threads in one order: that of their sequences.

use std::collections::VecDeque;

use darter_persist::journal::record::{HEAD_BYTES, Head};

/// Brings the records of several lanes into the order of their sequences. Each lane has its own in that order.
#[derive(Debug)]
pub struct Merger {
    next: u64,
    lanes: Vec<VecDeque<Chunk>>,
    // what the chunks take
    bytes: usize,
    // Sequences that nobody was given: from, to
    jumps: Vec<(u64, u64)>,
}

/// Records one behind the other, of which those before `at` are taken.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    at: usize,
}

impl Merger {
    /// Merges `lanes` lanes; `next` is the first sequence that is wanted.
    pub fn new(lanes: usize, next: u64) -> Merger {
        Merger { next, lanes: (0..lanes).map(|_| VecDeque::new()).collect(), bytes: 0, jumps: Vec::new() }
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
    pub fn push(&mut self, lane: usize, bytes: Vec<u8>) {
        if let Some(lane) = self.lanes.get_mut(lane) {
            self.bytes += bytes.capacity();
            lane.push_back(Chunk { bytes, at: 0 });
        }
    }

    /// Notes that no record has a sequence in `from..to`.
    pub fn jump(&mut self, from: u64, to: u64) {
        if from < to {
            self.jumps.push((from, to));
        }
    }

    /// Calls `each` with the head and the body of every record that is next, up to the first gap.
    pub fn drain(&mut self, mut each: impl FnMut(Head, &[u8])) {
        loop {
            self.skip_jumps();
            let mut moved = false;
            for lane in &mut self.lanes {
                moved |= drain_lane(lane, &mut self.next, &mut self.bytes, &mut each);
            }
            if !moved {
                return;
            }
        }
    }

    fn skip_jumps(&mut self) {
        while let Some(&(_, to)) = self.jumps.iter().find(|(from, to)| (*from..*to).contains(&self.next)) {
            self.next = to;
        }
        let next = self.next;
        self.jumps.retain(|(_, to)| *to > next);
    }
}

/// Takes records from the front of a lane while they are next; older ones are dropped. Returns whether any was taken.
fn drain_lane(
    lane: &mut VecDeque<Chunk>,
    next: &mut u64,
    waiting: &mut usize,
    each: &mut impl FnMut(Head, &[u8]),
) -> bool {
    let mut moved = false;
    let mut pop = |lane: &mut VecDeque<Chunk>| {
        let bytes = lane.pop_front().map_or(0, |chunk| chunk.bytes.capacity());
        *waiting = waiting.saturating_sub(bytes);
    };
    while let Some(chunk) = lane.front_mut() {
        let rest = chunk.bytes.get(chunk.at..).unwrap_or_default();
        let Some((bytes, after)) = rest.split_first_chunk::<HEAD_BYTES>() else {
            pop(lane);
            continue;
        };
        let head = Head::read(bytes);
        if head.sequence > *next {
            return moved;
        }
        let len = usize::try_from(head.body_len).unwrap_or(usize::MAX);
        let Some(body) = after.get(..len) else {
            // The executor writes whole records only.
            pop(lane);
            continue;
        };
        chunk.at += HEAD_BYTES + len;
        if head.sequence == *next {
            each(head, body);
            *next += 1;
            moved = true;
        }
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_persist::journal::record::Draft;

    fn records(sequences: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        for sequence in sequences {
            let draft = Draft::begin(&mut out);
            out.extend_from_slice(sequence.to_string().as_bytes());
            draft.finish(&mut out, *sequence, 5);
        }
        out
    }

    fn drained(merger: &mut Merger) -> Vec<u64> {
        let mut seen = Vec::new();
        merger.drain(|head, body| {
            assert_eq!(body, head.sequence.to_string().as_bytes());
            seen.push(head.sequence);
        });
        seen
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
    fn sequences_that_nobody_was_given_are_passed_over() {
        let mut merger = Merger::new(1, 1);
        merger.push(0, records(&[1, 100]));
        assert_eq!(drained(&mut merger), [1]);
        merger.jump(2, 100);
        assert_eq!(drained(&mut merger), [100]);
        merger.jump(300, 300);
        assert!(drained(&mut merger).is_empty());
    }
}
