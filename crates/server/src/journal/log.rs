//! A thread's side of the journal: records gathered in a buffer, written to its segment once a turn.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use darter_persist::journal::record::{self, Draft};

use super::segment::{Segment, Way};
use super::{Journal, NONE};
use crate::config::Fsync;
use crate::core::Core;

/// A thread's records that are not in its file yet, and that file.
pub struct ThreadLog {
    slot: u16,
    /// Where the buffer's records belong.
    generation: u64,
    buffer: Vec<u8>,
    /// Records of earlier generations, oldest first.
    older: VecDeque<(u64, Vec<u8>)>,
    /// Sequence of the last record.
    last: u64,
    segment: Option<Segment>,
    /// The body of a transaction or script that is running: one record.
    group: Option<Vec<u8>>,
    is_spoiled: bool,
    /// Replies are held back until what they tell of is synced.
    pub holds: bool,
    /// What has been executed when the last turn ended: replies of that turn wait for all below.
    pub mark: u64,
    /// What was durable then.
    pub durable: u64,
    /// More has become durable since replies that were held back were last looked at.
    pub frees: bool,
    /// Something was noted, or answered by another thread, since replies last went out.
    pub has_news: bool,
    /// Something was written that no sync was asked for.
    has_written: bool,
    /// How records are to come into new segments.
    way: Way,
    retry_at: Option<Instant>,
}

/// Buffers up to this size are kept for reuse.
const BUFFER_KEEP_BYTES: usize = 1 << 20;
/// A turn that has noted so much writes it before it goes on: a call into the kernel for each is dear,
const EARLY_BYTES: usize = 64 << 10;
/// a copy is not, while what is copied is in the processor's cache.
const EARLY_BYTES_COPIED: usize = 12 << 10;
/// Time between two attempts to write what could not be written.
const RETRY: Duration = Duration::from_millis(100);

impl ThreadLog {
    /// The log of the thread with this slot.
    pub fn new(slot: u16) -> ThreadLog {
        ThreadLog {
            slot,
            generation: 0,
            buffer: Vec::new(),
            older: VecDeque::new(),
            last: 0,
            segment: None,
            group: None,
            is_spoiled: false,
            holds: false,
            mark: 0,
            durable: 0,
            frees: false,
            has_news: false,
            has_written: false,
            way: Way::Plain,
            retry_at: None,
        }
    }

    fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.older.is_empty()
    }

    /// Begins what is to be one record; false when it has begun already.
    pub fn begin_group(&mut self) -> bool {
        let begins = self.group.is_none();
        self.group.get_or_insert_with(Vec::new);
        begins
    }

    /// What is noted next is no part of the open record, if one is open.
    pub fn set_group_aside(&mut self) -> Option<Vec<u8>> {
        self.group.take()
    }

    /// Goes on with the record that was set aside.
    pub fn resume_group(&mut self, group: Option<Vec<u8>>) {
        self.group = group;
    }

    /// The open record will not be written: what it tells was broken off.
    pub fn spoil_group(&mut self) {
        self.is_spoiled = self.group.is_some();
    }

    /// Ends it; false when it was broken off. The shards of all its commands are still held.
    pub fn end_group(&mut self, journal: &Journal, clock_ms: u64) -> bool {
        let is_spoiled = std::mem::take(&mut self.is_spoiled);
        if let Some(body) = self.group.take()
            && !body.is_empty()
            && !is_spoiled
        {
            self.append(journal, clock_ms, |out| out.extend_from_slice(&body));
        }
        !is_spoiled
    }

    /// Adds to the record that is open, or makes one. The shards of what is told are held, so that records about the
    /// same keys have sequences in the order of what they tell.
    pub fn append(&mut self, journal: &Journal, clock_ms: u64, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(body) = &mut self.group {
            return write(body);
        }
        // Shards stop telling of changes one after the other when it is switched off: what some of them still tell of
        // is perhaps half of a transaction.
        if !journal.is_on() {
            return;
        }
        if self.is_empty() {
            let unwritten = &journal.slots[usize::from(self.slot)].unwritten;
            unwritten.store(journal.next.load(SeqCst), SeqCst);
        }
        let begin = self.buffer.len();
        let draft = Draft::begin(&mut self.buffer);
        write(&mut self.buffer);
        let sequence = journal.next.fetch_add(1, SeqCst);
        draft.end(&mut self.buffer, sequence, clock_ms);
        // Asked for last, so that whatever has its place behind the cut of a base is in no segment that goes when the base
        // is there, should its caller hold no shard. What has it before the cut does no harm behind it.
        let generation = journal.generation.load(SeqCst);
        if generation != self.generation {
            self.turn_over(generation, begin);
        }
        self.last = sequence;
        self.has_news = true;
    }

    /// What is in the buffer from `begin` on is of this generation.
    #[cold]
    fn turn_over(&mut self, generation: u64, begin: usize) {
        let newer = self.buffer.split_off(begin);
        let older = std::mem::replace(&mut self.buffer, newer);
        if !older.is_empty() {
            self.older.push_back((self.generation, older));
        }
        self.generation = generation;
    }

    /// Writes all records to their files.
    fn write_out(&mut self, journal: &Journal) -> io::Result<()> {
        let slot = &journal.slots[usize::from(self.slot)];
        while let Some((generation, mut records)) = self.older.pop_front() {
            record::seal(&mut records);
            // What a complete base holds need not be written any more.
            let is_needed = generation >= journal.base_generation.load(SeqCst);
            if is_needed && let Err(error) = self.write(journal, generation, &records) {
                self.older.push_front((generation, records));
                return Err(error);
            }
        }
        if !self.buffer.is_empty() {
            let mut records = std::mem::take(&mut self.buffer);
            record::seal(&mut records);
            let written = self.write(journal, self.generation, &records);
            if written.is_ok() {
                records.clear();
                records.shrink_to(BUFFER_KEEP_BYTES);
            }
            self.buffer = records;
            written?;
        }
        slot.written.store(self.last, SeqCst);
        slot.unwritten.store(NONE, SeqCst);
        Ok(())
    }

    /// Appends to the segment of a generation, which is made if need be.
    fn write(&mut self, journal: &Journal, generation: u64, records: &[u8]) -> io::Result<()> {
        let segment = match &mut self.segment {
            Some(segment) if segment.generation == generation => segment,
            other => {
                // What is in a ring moves to its file with the next sync.
                if let Some(old) = other.as_mut().filter(|old| old.gathers()) {
                    old.finish(journal)?;
                }
                let new = Segment::open(journal, self.slot, generation, self.way)?;
                other.insert(new)
            }
        };
        segment.append(journal, records)?;
        journal.bytes.fetch_add(records.len() as u64, Relaxed);
        Ok(())
    }

    /// Replies wait for no sync any more: what was gathered for one is to survive a kill.
    #[cold]
    fn give_to_kernel(&mut self, journal: &Journal) {
        if self.segment.as_ref().is_some_and(Segment::gathers) {
            self.finish(journal);
        }
    }

    /// Leaves the segment as a file that is all there is of it.
    fn finish(&mut self, journal: &Journal) {
        if let Some(segment) = &mut self.segment
            && let Err(error) = segment.finish(journal)
        {
            tracing::error!("the end of the journal stays in a file of its own: {error}");
        }
    }
}

/// Writes what was noted after the replies had gone out, so that no other thread waits for it while this one sleeps.
pub fn settle(core: &mut Core) {
    if !core.journal.is_empty() {
        commit(core);
    }
}

/// Ends a turn: writes what was noted, before any reply of the turn goes out.
pub fn commit(core: &mut Core) {
    let journal = &core.shared.journal;
    let fsync = core.live.persistence.appendfsync;
    let log = &mut core.journal;
    let holds = fsync == Fsync::Always && journal.is_on();
    if std::mem::replace(&mut log.holds, holds) && !holds {
        log.give_to_kernel(journal);
    }
    log.way = Way::of(fsync);
    log.frees |= !log.holds;
    if log.is_empty() && !log.holds {
        log.has_written = false;
        return;
    }
    log.mark = journal.next.load(SeqCst);
    log.try_write(journal);
    if std::mem::take(&mut log.has_written) && log.holds {
        journal.sync_for_replies(core.shared, &journal.slots[usize::from(log.slot)]);
    }
    if log.holds {
        let before = std::mem::replace(&mut log.durable, journal.durable_before());
        if log.durable < log.mark {
            journal.slots[usize::from(log.slot)].is_holding.store(true, SeqCst);
            log.durable = journal.durable_before();
        }
        log.frees |= log.durable > before;
    }
}

/// Ends the last turn: as [`commit`], but what replies wait for is synced before it returns.
pub fn commit_last(core: &mut Core) {
    commit(core);
    if core.journal.holds {
        core.shared.journal.sync_all();
        core.journal.durable = core.shared.journal.durable_before();
    }
    core.journal.finish(&core.shared.journal);
    core.shared.journal.slots[usize::from(core.journal.slot)].drop_ahead();
}

impl ThreadLog {
    /// Writes what was noted on a thread that has no turns.
    pub fn write_now(&mut self, journal: &Journal, fsync: Fsync) {
        self.try_write(journal);
        if fsync == Fsync::Always {
            journal.sync_slot(&journal.slots[usize::from(self.slot)]);
        }
    }

    /// Writes what a turn has noted so far if that is much, while it is in the processor's cache.
    #[inline]
    pub fn write_early(&mut self, journal: &Journal) {
        let is_copied = self.segment.as_ref().is_some_and(Segment::is_copied);
        if self.buffer.len() >= if is_copied { EARLY_BYTES_COPIED } else { EARLY_BYTES } {
            self.try_write(journal);
        }
    }

    fn try_write(&mut self, journal: &Journal) {
        if self.is_empty() {
            return;
        }
        let now = Instant::now();
        if self.retry_at.is_some_and(|at| now < at) {
            return;
        }
        let slot = usize::from(self.slot);
        match self.write_out(journal) {
            Ok(()) if self.retry_at.is_none() => self.has_written = true,
            Ok(()) => {
                self.has_written = true;
                self.retry_at = None;
                journal.note_trouble(|trouble| trouble.writing.retain(|(at, _)| *at != slot));
                tracing::warn!("the journal can be written again");
            }
            Err(error) => {
                if self.retry_at.is_none() {
                    tracing::error!(
                        "the journal cannot be written: {error}; writes are refused until it can"
                    );
                    journal.note_trouble(|trouble| trouble.writing.push((slot, cause_of(&error))));
                }
                self.retry_at = Some(now + RETRY);
            }
        }
    }

    /// How many bytes of a connection's output may go out now. `held` is what waits there, see [`Held`].
    pub fn may_send(&self, held: &mut Held, output_len: usize, is_failing: bool) -> usize {
        if held.before != 0 && self.durable >= held.before {
            *held = Held { before: 0, end: 0, free: held.end };
        }
        if held.before == 0 && output_len > held.free {
            // While nothing can be written, writes are refused: what is said now tells of nothing that waits.
            let waits_for_nothing = is_failing && !self.has_news;
            if self.durable >= self.mark || waits_for_nothing {
                held.free = output_len;
            } else {
                *held = Held { before: self.mark, end: output_len, free: held.free };
            }
        }
        held.free.min(output_len)
    }
}

/// Which part of a connection's output waits for the journal.
#[derive(Clone, Copy, Default, Debug)]
pub struct Held {
    // 0: nothing waits; else the bytes free..end wait for all records with smaller sequences
    before: u64,
    end: usize,
    free: usize,
}

impl Held {
    /// Whether something waits.
    pub fn is_waiting(self) -> bool {
        self.before != 0
    }
}

/// What the system says, as Redis prints it: without the number.
pub(super) fn cause_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD_BYTES: usize = record::HEAD_BYTES + 1;

    fn switched_on() -> Journal {
        let journal = Journal::new(1);
        journal.generation.store(1, SeqCst);
        journal.is_on.store(true, SeqCst);
        journal
    }

    #[test]
    fn a_record_whose_place_is_behind_a_cut_is_of_the_generation_that_begins_there() {
        let (journal, mut log) = (switched_on(), ThreadLog::new(0));
        log.append(&journal, 1, |out| out.push(1));
        // As if no shard were held.
        log.append(&journal, 1, |out| {
            out.push(2);
            journal.generation.store(2, SeqCst);
        });
        let older: Vec<_> =
            log.older.iter().map(|(generation, records)| (*generation, records.len())).collect();
        assert_eq!((older, log.generation, log.buffer.len()), (vec![(1, RECORD_BYTES)], 2, RECORD_BYTES));
    }

    #[test]
    fn half_a_transaction_is_not_noted_when_it_is_switched_off_meanwhile() {
        let (journal, mut log) = (switched_on(), ThreadLog::new(0));
        log.begin_group();
        log.append(&journal, 1, |out| out.push(1));
        journal.is_on.store(false, SeqCst);
        log.end_group(&journal, 1);
        assert!(log.is_empty() && log.group.is_none());
        assert_eq!(journal.end(), 1, "it has no place that nothing fills");
    }
}
