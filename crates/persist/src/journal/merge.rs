//! All segments of a journal as one row of records, by sequence.
//!
//! The row ends at the first sequence that no segment has and [`Gaps`] do not explain: what comes after it happened later
//! than something that is lost, so it is not shown. What comes before the row is in the base: a segment may begin with some of it, as a thread
//! that is about to write while a base begins may find the segment of the base before its place in the order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read};

use super::record::RecordHead;
use super::segment::{NextRecordAt, SegmentReader};

/// The segments of a journal, read together.
pub struct Merge<R> {
    segments: Vec<SegmentReader<R>>,
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    at_hand: Option<usize>,
    expected: u64,
    gaps: Gaps,
}

/// Sequences that no record has because a process was killed before it had finished the record. Its shards were held, and
/// nobody was answered: nothing that came later depends on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gaps {
    /// Those that are known, as first and number, in order.
    pub known: Vec<(u64, u64)>,
    /// For each thread that was about to take a sequence when its process was killed, the smallest that this can be.
    pub begun: Vec<u64>,
    /// From this sequence on `begun` explains nothing: a thread may have kept records in memory of the process, and their
    /// commands had ended. Replies to what came later waited for them.
    pub waits_from: Option<u64>,
}

impl Gaps {
    /// Whether all sequences of a range are explained; what was only begun is known then.
    fn explain(&mut self, from: u64, to: u64) -> bool {
        let (mut begun, mut found, mut at) = (self.begun.clone(), Vec::new(), from);
        while at < to {
            let known = self.known.iter().find(|(first, len)| at >= *first && at - first < *len);
            if let Some((first, len)) = known {
                at = first.saturating_add(*len);
                continue;
            }
            if self.waits_from.is_some_and(|first| first <= at) {
                return false;
            }
            let Some(thread) = begun.iter().position(|least| *least <= at) else { return false };
            begun.swap_remove(thread);
            found.push((at, 1));
            at += 1;
        }
        self.begun = begun;
        self.known.append(&mut found);
        self.known.sort_unstable();
        at == to
    }
}

impl<R: Read> Merge<R> {
    /// Begins at `first`, the sequence of the first record after the base.
    ///
    /// Errors: of the input.
    pub fn new(mut segments: Vec<SegmentReader<R>>, first: u64) -> io::Result<Merge<R>> {
        for segment in &mut segments {
            while matches!(segment.next(), NextRecordAt::Record(head) if head.sequence < first) {
                segment.advance()?;
            }
        }
        let heads = segments
            .iter()
            .enumerate()
            .filter_map(|(at, segment)| match segment.next() {
                NextRecordAt::Record(head) => Some(Reverse((head.sequence, at))),
                _ => None,
            })
            .collect();
        Ok(Merge { segments, heads, at_hand: None, expected: first, gaps: Gaps::default() })
    }

    /// The same with gaps that do not end the row.
    #[must_use]
    pub fn with_gaps(self, gaps: Gaps) -> Merge<R> {
        Merge { gaps, ..self }
    }

    /// The next record and its body; `None` when no segment has the one that is next.
    ///
    /// Errors: of the input.
    pub fn next_record(&mut self) -> io::Result<Option<(RecordHead, &[u8])>> {
        if let Some(at) = self.at_hand.take()
            && let Some(segment) = self.segments.get_mut(at)
        {
            segment.advance()?;
            if let NextRecordAt::Record(head) = segment.next() {
                self.heads.push(Reverse((head.sequence, at)));
            }
        }
        let Some(Reverse((sequence, at))) = self.heads.peek().copied() else { return Ok(None) };
        if sequence != self.expected && !self.is_explained(sequence) {
            return Ok(None);
        }
        self.heads.pop();
        self.at_hand = Some(at);
        self.expected = sequence.saturating_add(1);
        let Some(segment) = self.segments.get(at) else { return Ok(None) };
        let NextRecordAt::Record(head) = *segment.next() else { return Ok(None) };
        Ok(Some((head, segment.body())))
    }

    #[cold]
    fn is_explained(&mut self, sequence: u64) -> bool {
        // A damaged segment may have what is missing.
        if self.segments.iter().any(|segment| matches!(segment.next(), NextRecordAt::Damaged(_))) {
            self.gaps.begun.clear();
        }
        sequence > self.expected && self.gaps.explain(self.expected, sequence)
    }

    /// The gaps that are known by now.
    pub fn gaps(&self) -> &[(u64, u64)] {
        &self.gaps.known
    }

    /// The sequence of the record that would be next.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// The segments, to be asked where they stand once the row has ended.
    pub fn segments(&self) -> &[SegmentReader<R>] {
        &self.segments
    }
}

impl<R> Merge<R> {
    /// The segments, each where the row of records left it.
    pub fn into_segments(self) -> Vec<SegmentReader<R>> {
        self.segments
    }
}
