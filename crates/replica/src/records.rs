//! The last records of the stream, as they were noted, for replicas of ours: by lane, and with the offsets that belong to
//! sequences.
//!
//! A lane is a thread of the master, whose records have ascending sequences. `server` appends what it feeds or applies and
//! reads from a sequence on; nothing here does I/O.

use std::collections::VecDeque;
use std::sync::OnceLock;

use darter_persist::journal::record::{HEAD_BYTES, RecordHead};

use crate::form::Former;
use crate::frame::BodySum;
use crate::merge::Merger;
use crate::shared_bytes::SharedBytes;

/// Records of one lane, one behind the other, shared by all who send them.
#[derive(Clone, Debug)]
pub struct RecordChunk {
    /// The records.
    pub bytes: SharedBytes,
    /// Sequence of the last record.
    pub last: u64,
    // once somebody has asked for it
    sum: OnceLock<BodySum>,
}

impl RecordChunk {
    /// Records, the last of which has the sequence `last`.
    pub fn new(bytes: SharedBytes, last: u64) -> RecordChunk {
        RecordChunk { bytes, last, sum: OnceLock::new() }
    }

    /// Checksum of the bytes. Cost: reads them, once for all who ask.
    pub fn sum(&self) -> &BodySum {
        self.sum.get_or_init(|| BodySum::of(&self.bytes))
    }
}

#[derive(Debug, Default)]
struct Lane {
    chunks: VecDeque<RecordChunk>,
    // how many chunks went from the front
    gone: u64,
}

/// The records that are kept.
#[derive(Debug, Default)]
pub struct Records {
    lanes: Vec<Lane>,
    // every record with this sequence or a later one is here
    first: u64,
    // one more than the last sequence for which this is so without a gap
    next: u64,
    bytes: u64,
    // (sequence, offset before it), ascending in both
    marks: VecDeque<(u64, u64)>,
    begin_offset: u64,
    // the offset before `next`
    end_offset: u64,
}

/// Bytes of the stream between two marks.
const MARKS_APART: u64 = 64 << 10;

impl Records {
    /// Nothing yet; the next record has this sequence, with so many bytes of the RESP stream before it.
    pub fn new(next: u64, offset: u64) -> Records {
        let marks = VecDeque::from([(next, offset)]);
        Records {
            lanes: Vec::new(),
            first: next,
            next,
            bytes: 0,
            marks,
            begin_offset: offset,
            end_offset: offset,
        }
    }

    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes.len().max(1)
    }

    /// Has so many lanes, or as many as there are.
    pub fn widen(&mut self, lanes: usize) {
        let lanes = lanes.max(self.lanes.len());
        self.lanes.resize_with(lanes, Lane::default);
    }

    /// The sequence of the next record.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The first sequence from which on all records are kept.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The offset before the first record that was ever here.
    pub fn begin_offset(&self) -> u64 {
        self.begin_offset
    }

    /// The first offset from which on the stream can be made of what is kept.
    pub fn first_offset(&self) -> u64 {
        let mark = self.marks.iter().find(|(sequence, _)| *sequence >= self.first);
        mark.or(self.marks.back()).map_or(0, |(_, offset)| *offset)
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends records of a lane.
    pub fn push(&mut self, lane: usize, chunk: RecordChunk) {
        self.widen(lane + 1);
        self.bytes += chunk.bytes.len() as u64;
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.chunks.push_back(chunk);
        }
    }

    /// Notes that all records below `next` are here, and the offset there.
    pub fn settle(&mut self, next: u64, offset: u64) {
        (self.next, self.end_offset) = (next, offset);
        if self.marks.back().is_none_or(|(_, last)| offset.saturating_sub(*last) >= MARKS_APART) {
            self.marks.push_back((next, offset));
        }
    }

    /// Forgets the oldest chunks until `bytes_max` are left; what `needed` says of a lane, and what follows, stays.
    pub fn trim(&mut self, bytes_max: u64, needed: impl Fn(usize) -> u64) {
        while self.bytes > bytes_max {
            let fronts = self.lanes.iter().enumerate();
            let oldest = fronts.filter_map(|(at, lane)| Some((lane.chunks.front()?.last, at))).min();
            let Some((last, at)) = oldest else { return };
            let Some(lane) = self.lanes.get_mut(at).filter(|lane| lane.gone < needed(at)) else { return };
            if last >= self.next {
                return;
            }
            let bytes = lane.chunks.pop_front().map_or(0, |chunk| chunk.bytes.len());
            lane.gone += 1;
            self.bytes = self.bytes.saturating_sub(bytes as u64);
            self.first = self.first.max(last + 1);
        }
        while self.marks.get(1).is_some_and(|(sequence, _)| *sequence <= self.first) {
            self.marks.pop_front();
        }
        if self.first == self.next && self.marks.back().is_none_or(|(sequence, _)| *sequence < self.next) {
            // Nothing is kept. A replica that lacks nothing continues here all the same.
            self.marks.push_back((self.next, self.end_offset));
        }
    }

    /// Whether every record from `sequence` on is kept.
    pub fn has(&self, sequence: u64) -> bool {
        (self.first..=self.next).contains(&sequence)
    }

    /// Where a reader begins that has all below `sequence`: for each lane the number of a chunk.
    pub fn cursors(&self, sequence: u64) -> Vec<u64> {
        let of_lane = |lane: &Lane| {
            lane.gone + lane.chunks.iter().take_while(|chunk| chunk.last < sequence).count() as u64
        };
        let mut cursors: Vec<u64> = self.lanes.iter().map(of_lane).collect();
        cursors.resize(self.lanes(), 0);
        cursors
    }

    /// Where a reader begins that needs nothing of what is here.
    pub fn ends(&self) -> Vec<u64> {
        let mut ends: Vec<u64> = self.lanes.iter().map(|lane| lane.gone + lane.chunks.len() as u64).collect();
        ends.resize(self.lanes(), 0);
        ends
    }

    /// A chunk of a lane by its number; `None` if it is gone or not there yet.
    pub fn chunk(&self, lane: usize, number: u64) -> Option<&RecordChunk> {
        let lane = self.lanes.get(lane)?;
        lane.chunks.get(usize::try_from(number.checked_sub(lane.gone)?).ok()?)
    }

    /// Bytes from these chunks on.
    pub fn bytes_from(&self, cursors: &[u64]) -> u64 {
        let each = self.lanes.iter().zip(cursors).map(|(lane, cursor)| {
            let skipped = usize::try_from(cursor.saturating_sub(lane.gone)).unwrap_or(usize::MAX);
            lane.chunks.iter().skip(skipped).map(|chunk| chunk.bytes.len() as u64).sum::<u64>()
        });
        each.sum()
    }

    /// The offset before the record with this sequence, if it is kept. Cost: forms what lies between two marks.
    pub fn offset_at(&self, sequence: u64) -> Option<u64> {
        if sequence == self.next {
            return Some(self.end_offset);
        }
        let mut found = None;
        self.form_from(
            |mark, _| mark <= sequence,
            |at, offset, _| {
                if at == sequence {
                    found = Some(offset);
                }
                at < sequence
            },
        );
        found
    }

    /// The sequence before which the stream has `offset` bytes, if a record begins there. Cost: as [`Records::offset_at`].
    pub fn sequence_at(&self, offset: u64) -> Option<u64> {
        if offset == self.end_offset {
            return Some(self.next);
        }
        let mut found = None;
        self.form_from(
            |_, mark| mark <= offset,
            |sequence, at, _| {
                // Of several records without bytes the last.
                if at == offset {
                    found = Some(sequence);
                }
                at <= offset
            },
        );
        found
    }

    /// The RESP stream from some offset up to `offset` on: where it begins, and its bytes up to `next`.
    pub fn stream_from(&self, offset: u64) -> Option<(u64, Vec<u8>)> {
        let (mut begin, mut out) = (None, Vec::new());
        self.form_from(
            |_, mark| mark <= offset,
            |_, at, bytes| {
                begin.get_or_insert(at);
                out.extend_from_slice(bytes);
                true
            },
        );
        Some((begin?, out))
    }

    /// Calls `each` with sequence, offset and RESP form of the records from the last mark that `is_before` accepts, and a last
    /// time with what is next, until it says false.
    fn form_from(&self, is_before: impl Fn(u64, u64) -> bool, mut each: impl FnMut(u64, u64, &[u8]) -> bool) {
        let mark = self.marks.iter().rev().find(|mark| mark.0 >= self.first && is_before(mark.0, mark.1));
        let Some(&(sequence, mut offset)) = mark else { return };
        let mut merger = Merger::new(self.lanes(), sequence);
        let mut at = self.cursors(sequence);
        let (mut former, mut bytes, mut goes_on) = (Former::default(), Vec::new(), true);
        while goes_on && merger.next_sequence() < self.next {
            let mut moved = false;
            for (lane, at) in at.iter_mut().enumerate() {
                if let Some(chunk) = self.chunk(lane, *at).filter(|_| merger.wants(lane)) {
                    merger.push(lane, chunk.bytes.clone());
                    *at += 1;
                    moved = true;
                }
            }
            if !moved {
                return;
            }
            let drained = merger.drain(|head, body| {
                bytes.clear();
                // A record that has no form has no bytes here and everywhere.
                let _ = former.write(body, head.clock_ms, &mut bytes);
                goes_on = goes_on && head.sequence < self.next && each(head.sequence, offset, &bytes);
                offset += bytes.len() as u64;
            });
            if drained.is_err() {
                return;
            }
        }
        if goes_on {
            each(self.next, offset, &[]);
        }
    }
}

/// Sequences of the stream by those of a journal: the stream has no gaps where the journal jumps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamNumbers {
    shift: u64,
    // sequences of the journal that nobody was given: from, to
    jumps: Vec<(u64, u64)>,
}

impl StreamNumbers {
    /// From now on: the record that is number `journal` there is number `stream` here.
    pub fn new(journal: u64, stream: u64) -> StreamNumbers {
        StreamNumbers { shift: stream.wrapping_sub(journal), jumps: Vec::new() }
    }

    /// Notes that the journal gives nobody a sequence in `from..to`.
    pub fn jump(&mut self, from: u64, to: u64) {
        if from < to {
            self.jumps.push((from, to));
        }
    }

    /// Returns true if all sequences are the same in both.
    pub fn are_those_of_journal(&self) -> bool {
        self.shift == 0 && self.jumps.is_empty()
    }

    /// The sequence in the stream of one of the journal.
    pub fn stream_of(&self, journal: u64) -> u64 {
        let jumped = self.jumps.iter().map(|(from, to)| journal.min(*to).saturating_sub(*from));
        journal.wrapping_add(self.shift).wrapping_sub(jumped.sum())
    }

    /// The sequence in the journal of one of the stream.
    pub fn journal_of(&self, stream: u64) -> u64 {
        let jumps = self.jumps.iter();
        jumps.fold(
            stream.wrapping_sub(self.shift),
            |at, (from, to)| if at >= *from { at + (to - from) } else { at },
        )
    }
}

/// Gives records, one behind the other, the sequences that `number` returns for theirs; returns the last one.
pub fn renumber(mut records: &mut [u8], number: impl Fn(u64) -> u64) -> u64 {
    let mut last = 0;
    while let Some(head) = records.first_chunk::<HEAD_BYTES>() {
        let head = RecordHead::read(head);
        last = number(head.sequence);
        if let Some(place) = records.get_mut(SEQUENCE_AT..SEQUENCE_AT + 8) {
            place.copy_from_slice(&last.to_le_bytes());
        }
        let len = usize::try_from(head.body_len).unwrap_or(usize::MAX).saturating_add(HEAD_BYTES);
        let Some(rest) = records.get_mut(len..) else { break };
        records = rest;
    }
    last
}

/// Where the sequence stands in the head of a record.
const SEQUENCE_AT: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use darter_persist::journal::part;
    use darter_persist::journal::record::RecordDraft;

    fn records(sequences: &[u64]) -> (SharedBytes, u64) {
        let mut out = Vec::new();
        for sequence in sequences {
            let draft = RecordDraft::begin(&mut out);
            part::write_set(&mut out, 0, b"k", sequence.to_string().as_bytes());
            draft.finish(&mut out, *sequence, 5);
        }
        (out.into(), *sequences.last().expect("one"))
    }

    fn add(log: &mut Records, lane: usize, sequences: &[u64]) {
        let (bytes, last) = records(sequences);
        log.push(lane, RecordChunk::new(bytes, last));
    }

    /// Bytes of `SET k <two digits>`.
    const SET: u64 = 4 + 9 + 7 + 8;

    #[test]
    fn sequences_and_offsets_are_found_in_each_other() {
        let mut log = Records::new(10, 1000);
        add(&mut log, 0, &[10, 12, 15]);
        add(&mut log, 2, &[11, 13, 14]);
        log.settle(16, 1000 + 6 * SET);
        assert_eq!((log.lanes(), log.first(), log.next()), (3, 10, 16));
        for n in 0..=6 {
            assert_eq!(log.offset_at(10 + n), Some(1000 + n * SET));
            assert_eq!(log.sequence_at(1000 + n * SET), Some(10 + n));
        }
        assert_eq!((log.sequence_at(1001), log.sequence_at(999), log.offset_at(17)), (None, None, None));
        let (begin, bytes) = log.stream_from(1000 + SET).expect("kept");
        assert_eq!((begin, bytes.len() as u64), (1000, 6 * SET));
        assert!(bytes.ends_with(b"$1\r\nk\r\n$2\r\n15\r\n"));
    }

    #[test]
    fn what_a_reader_needs_stays_and_the_oldest_goes_first() {
        let mut log = Records::new(1, 0);
        for n in 0..10 {
            add(&mut log, (n % 2) as usize, &[1 + n]);
        }
        log.settle(11, 10 * SET);
        assert_eq!(log.cursors(5), [2, 2]);
        assert_eq!(log.ends(), [5, 5]);
        log.trim(0, |lane| [2, 2][lane]);
        assert_eq!(
            (log.first(), log.has(4), log.has(5), log.has(11), log.has(12)),
            (5, false, true, true, false)
        );
        assert!(log.chunk(0, 1).is_none() && log.chunk(0, 2).is_some() && log.chunk(0, 5).is_none());
        assert!(log.bytes_from(&[5, 5]) == 0 && log.bytes_from(&[2, 2]) == log.bytes());
        log.trim(0, |_| u64::MAX);
        assert_eq!((log.first(), log.bytes(), log.has(11)), (11, 0, true));
    }

    #[test]
    fn who_lacks_nothing_goes_on_although_nothing_is_kept() {
        let mut log = Records::new(1, 0);
        add(&mut log, 0, &[1, 2, 3]);
        log.settle(4, 3 * SET);
        log.trim(0, |_| u64::MAX);
        assert_eq!((log.first(), log.next()), (4, 4));
        assert_eq!((log.sequence_at(3 * SET), log.offset_at(4)), (Some(4), Some(3 * SET)));
        assert_eq!(log.sequence_at(2 * SET), None);
        add(&mut log, 0, &[4]);
        log.settle(5, 4 * SET);
        assert_eq!(log.sequence_at(3 * SET), Some(4));
    }

    #[test]
    fn jumps_of_the_journal_leave_no_gap() {
        let mut numbers = StreamNumbers::new(100, 7);
        assert_eq!((numbers.stream_of(100), numbers.stream_of(105), numbers.journal_of(12)), (7, 12, 105));
        numbers.jump(103, 1000);
        numbers.jump(1002, 5000);
        numbers.jump(9, 9);
        for (journal, stream) in [(100, 7), (102, 9), (1000, 10), (1001, 11), (5000, 12), (5005, 17)] {
            assert_eq!((numbers.stream_of(journal), numbers.journal_of(stream)), (stream, journal));
        }
        assert_eq!((numbers.stream_of(103), numbers.stream_of(1002)), (10, 12), "the end before a jump");
    }

    #[test]
    fn records_get_other_numbers() {
        let (bytes, _) = records(&[3, 4, 9]);
        let mut bytes = bytes.to_vec();
        assert_eq!(renumber(&mut bytes, |sequence| sequence + 100), 109);
        let mut merger = Merger::new(1, 103);
        merger.push(0, SharedBytes::from(bytes));
        let mut seen = Vec::new();
        merger.drain(|head, _| seen.push(head.sequence)).expect("whole records");
        assert_eq!(seen, [103, 104]);
    }
}
