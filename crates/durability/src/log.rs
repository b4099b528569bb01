//! A thread's side of the journal: each record gets its place in the order, and then goes into the ring of the thread's
//! segment, with the shards of the command still held: nothing that was answered is lost with the process.
//!
//! Where there is no ring, records are gathered in a buffer that is written once a turn. With `always` replies wait for its
//! sync; else for the write, if other threads have older records in theirs.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use darter_persist::files::{Disk, Files};
use darter_persist::journal::part;
use darter_persist::journal::record::{self, HEAD_BYTES, RecordDraft, RecordHead};
use darter_persist::journal::tail::STUCK;

use super::intake::NotedRecords;
use super::segment::{DiskSegment, WriteMode};
use super::{Fsync, Journal, JournalHost, NONE, lock};

/// A thread's records that are not in its file yet, and that file.
pub struct ThreadLog<F: Files = Disk> {
    slot: u16,
    /// Where the buffer's records belong.
    generation: u64,
    buffer: Vec<u8>,
    /// Records of earlier generations, oldest first.
    older: VecDeque<(u64, Vec<u8>)>,
    /// The slot says that there may be records which are not written; none is where it does not.
    is_open: bool,
    /// Nothing is gathered, and the segment is a ring of this generation.
    is_quick: bool,
    /// Bytes copied since the journal's were last counted.
    copied: u64,
    /// Sequence of the last record.
    last: u64,
    /// No record since it was opened has a smaller sequence.
    begun: u64,
    segment: Option<DiskSegment<F>>,
    /// The body of a transaction or script that is running: one record.
    group: Option<Vec<u8>>,
    is_spoiled: bool,
    /// Replies are held back until what they tell of is synced.
    pub holds: bool,
    /// What has been executed when the last turn ended: replies of that turn wait for all below.
    pub mark: u64,
    /// Below, all was durable then, and with the servers that have to have it.
    pub durable: u64,
    /// Below, all was durable then, whoever else has it.
    own: u64,
    /// More has become durable since replies that were held back were last looked at.
    pub frees: bool,
    /// Something was noted, or answered by another thread, since replies last went out.
    pub has_news: bool,
    /// Something was written that no sync was asked for.
    has_written: bool,
    /// How records are to come into new segments.
    way: WriteMode,
    retry_at: Option<Instant>,
    /// Records that replication has not been given yet, and the sequence of the last.
    fed: Vec<u8>,
    fed_last: u64,
    should_rest: bool,
}

/// Buffers up to this size are kept for reuse.
const BUFFER_KEEP_BYTES: usize = 1 << 20;
/// A turn that has gathered so much writes it before it goes on: a call into the kernel for each is dear,
const EARLY_BYTES: usize = 64 << 10;
/// a copy is not, while what is copied is in the processor's cache.
const EARLY_BYTES_COPIED: usize = 12 << 10;
/// Time between two attempts to write what could not be written.
const RETRY: Duration = Duration::from_millis(100);

impl<F: Files> ThreadLog<F> {
    /// The log of the thread with this slot.
    pub fn new(slot: u16) -> ThreadLog<F> {
        ThreadLog {
            slot,
            generation: 0,
            buffer: Vec::new(),
            older: VecDeque::new(),
            is_open: false,
            is_quick: false,
            copied: 0,
            last: 0,
            begun: 0,
            segment: None,
            group: None,
            is_spoiled: false,
            holds: false,
            mark: 0,
            durable: 0,
            own: 0,
            frees: false,
            has_news: false,
            has_written: false,
            // Until a turn has told.
            way: WriteMode::Direct,
            retry_at: None,
            fed: Vec::new(),
            fed_last: 0,
            should_rest: false,
        }
    }

    /// Whether no record is in memory of the process alone.
    fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.older.is_empty()
    }

    /// Begins what is to be one record; false when it has begun already.
    pub fn begin_group(&mut self) -> bool {
        let begins = self.group.is_none();
        self.group.get_or_insert_with(Vec::new);
        begins
    }

    /// Sets the open record aside: the next change is no part of it.
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
    pub fn end_group(&mut self, journal: &Journal<F>, clock_ms: u64) -> bool {
        let is_spoiled = std::mem::take(&mut self.is_spoiled);
        if let Some(body) = self.group.take()
            && !body.is_empty()
            && !is_spoiled
        {
            self.append(journal, clock_ms, |out| out.extend_from_slice(&body));
        }
        !is_spoiled
    }

    /// Adds to the open record, or makes a record. The caller holds the shards of the change, so that the sequences of
    /// records about one key have the order of its changes.
    pub fn append(&mut self, journal: &Journal<F>, clock_ms: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.append_counted(journal, clock_ms, 0, write);
    }

    /// [`ThreadLog::append`] of a `SET` without options.
    pub fn append_set(
        &mut self,
        journal: &Journal<F>,
        clock_ms: u64,
        db: usize,
        (key, value): (&[u8], &[u8]),
    ) {
        let resp_bytes = if journal.intake.is_on() && db == 0 { resp_len(&[b"set", key, value]) } else { 0 };
        self.append_counted(journal, clock_ms, resp_bytes, |out| part::write_set(out, db, key, value));
    }

    /// Adds to the open record, or makes a record whose RESP form has so many bytes; 0: that is not known.
    #[inline]
    fn append_counted(
        &mut self,
        journal: &Journal<F>,
        clock_ms: u64,
        resp_bytes: u64,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Some(body) = &mut self.group {
            return write(body);
        }
        // When the journal is switched off, shards stop reporting changes one after the other. What some of them still
        // report may be half of a transaction.
        if !journal.is_noting() {
            return;
        }
        if !journal.is_on() {
            // For replicas alone, who need no checksum.
            let draft = RecordDraft::begin(&mut self.fed);
            write(&mut self.fed);
            let sequence = journal.next.fetch_add(1, SeqCst);
            self.fed_last = sequence;
            return draft.end_counted(&mut self.fed, (sequence, clock_ms), resp_bytes);
        }
        if !self.is_open || journal.generation.load(SeqCst) != self.generation {
            self.open_current(journal);
        }
        let begin = self.buffer.len();
        let draft = RecordDraft::begin(&mut self.buffer);
        write(&mut self.buffer);
        let sequence = journal.next.fetch_add(1, SeqCst);
        #[cfg(test)]
        crate::crash::machine::took(sequence);
        draft.finish(&mut self.buffer, sequence, clock_ms);
        if journal.intake.is_on() {
            self.fed_last = sequence;
            let fed = self.fed.len();
            self.fed.extend_from_slice(self.buffer.get(begin..).unwrap_or_default());
            record::count(self.fed.get_mut(fed..).unwrap_or_default(), resp_bytes);
        }
        // Asked for last, so that whatever has its place behind the cut of a base is in no segment that goes when the base
        // is there, should its caller hold no shard. What has it before the cut does no harm behind it.
        let generation = journal.generation.load(SeqCst);
        if generation != self.generation {
            self.turn_over(generation, begin);
        }
        self.last = sequence;
        self.has_news = true;
        self.hand_over(journal);
    }

    /// Notes a message to subscribers, for those of replicas. Files have its place in the order and no more of it, but
    /// where it is part of a transaction.
    pub fn append_message(&mut self, journal: &Journal<F>, clock_ms: u64, args: &[&[u8]]) {
        if !journal.intake.is_on() {
            return;
        }
        if let Some(body) = &mut self.group {
            return part::write_message(body, args);
        }
        let begin = self.fed.len();
        let resp_bytes = resp_len(args);
        self.append_counted(journal, clock_ms, resp_bytes, |out| part::write_message_len(out, resp_bytes));
        let Some((head, _)) = self.fed.get(begin..).and_then(<[u8]>::split_first_chunk::<HEAD_BYTES>) else {
            return;
        };
        let head = RecordHead::read(head);
        self.fed.truncate(begin);
        let draft = RecordDraft::begin(&mut self.fed);
        part::write_message(&mut self.fed, args);
        draft.end_counted(&mut self.fed, (head.sequence, head.clock_ms), resp_bytes);
    }

    /// Copies what is in the buffer into the ring, if there is one.
    #[inline]
    fn hand_over(&mut self, journal: &Journal<F>) {
        if self.is_quick
            && let Some(segment) = &mut self.segment
            && segment.push(journal, &self.buffer)
        {
            self.copied += self.buffer.len() as u64;
            self.buffer.clear();
        } else {
            self.hand_over_slowly(journal);
        }
    }

    /// Writes what is in the buffer, unless it is gathered until the turn ends.
    #[cold]
    fn hand_over_slowly(&mut self, journal: &Journal<F>) {
        self.is_quick = false;
        if self.segment.as_ref().is_some_and(DiskSegment::is_ringed) {
            self.try_write(journal);
            if !self.is_open {
                self.open(journal);
            }
        }
    }

    /// Says in the segment of the current generation that records will be there. If a generation has begun amid a turn, the
    /// files that say so for the last one go with the next base, so this comes before a sequence is taken.
    #[cold]
    fn open_current(&mut self, journal: &Journal<F>) {
        self.try_write(journal);
        if !self.is_open {
            self.open(journal);
        }
    }

    /// Says that records will be there which are not written, and has the segment for them.
    #[cold]
    fn open(&mut self, journal: &Journal<F>) {
        debug_assert!(self.is_empty());
        self.is_open = true;
        let generation = journal.generation.load(SeqCst);
        if self.segment.as_ref().is_none_or(|segment| segment.generation != generation)
            && self.retry_at.is_none()
        {
            // What cannot be made now is tried again when the turn ends, which says why. Until then records wait in memory.
            if self.segment_of(journal, generation, None).is_err() {
                self.note_ways(journal, Ways { gathers: false, is_plain: true });
            }
        }
        if self.way != WriteMode::Direct {
            self.give_to_kernel(journal);
        }
        let unwritten = &journal.slots[usize::from(self.slot)].unwritten;
        // As large as it can be: a sequence before it that is missing is another thread's.
        self.begun = journal.next.load(SeqCst);
        unwritten.store(self.begun, SeqCst);
        if let Some(segment) = &self.segment {
            segment.announce(self.begun);
            self.is_quick = segment.is_ringed() && segment.generation == generation;
            self.generation = generation;
            // Other threads know by now that this one gathers.
            if let Err(error) = segment.say_waits_from(self.begun) {
                journal.note_failed_sync(&error);
            }
        }
    }

    /// Gives replication what was noted for it.
    #[inline]
    fn feed(&mut self, journal: &Journal<F>) {
        if !self.fed.is_empty() {
            // As much as this turn has noted the next one may; the record that fills a piece goes beyond it.
            let next = Vec::with_capacity((self.fed.len() + self.fed.len() / 8).min(EARLY_BYTES / 8 * 9));
            let bytes = std::mem::replace(&mut self.fed, next);
            let records = NotedRecords { slot: self.slot, bytes, last: self.fed_last };
            self.should_rest |= journal.intake.give(records);
        }
    }

    /// Rests if replication takes less than this thread has brought. No shard is held.
    #[inline]
    fn rest(&mut self, journal: &Journal<F>) {
        if std::mem::take(&mut self.should_rest) {
            journal.intake.rest();
        }
    }

    /// Has the buffer from `begin` on belong to this generation.
    #[cold]
    fn turn_over(&mut self, generation: u64, begin: usize) {
        self.is_quick = false;
        let newer = self.buffer.split_off(begin);
        let older = std::mem::replace(&mut self.buffer, newer);
        if !older.is_empty() {
            self.older.push_back((self.generation, older));
        }
        self.generation = generation;
    }

    /// Writes all records to their files.
    fn write_out(&mut self, journal: &Journal<F>) -> io::Result<()> {
        let slot = &journal.slots[usize::from(self.slot)];
        while let Some((generation, records)) = self.older.pop_front() {
            // What a complete base holds need not be written any more.
            let is_needed = generation >= journal.base_generation.load(SeqCst);
            if is_needed && let Err(error) = self.write(journal, generation, &records) {
                self.older.push_front((generation, records));
                return Err(error);
            }
        }
        if !self.buffer.is_empty() {
            let mut records = std::mem::take(&mut self.buffer);
            let written = self.write(journal, self.generation, &records);
            if written.is_ok() {
                records.clear();
            }
            self.buffer = records;
            written?;
        }
        self.buffer.shrink_to(BUFFER_KEEP_BYTES);
        slot.recorded.fetch_add(std::mem::take(&mut self.copied), Relaxed);
        slot.written.store(self.last, SeqCst);
        slot.unwritten.store(NONE, SeqCst);
        (self.is_open, self.is_quick) = (false, false);
        if let Some(segment) = &self.segment {
            segment.announce(0);
        }
        Ok(())
    }

    /// Appends to the segment of a generation, which is made if need be.
    fn write(&mut self, journal: &Journal<F>, generation: u64, records: &[u8]) -> io::Result<()> {
        let first = records.first_chunk().map_or(self.begun, |head| RecordHead::read(head).sequence);
        let written = self.segment_of(journal, generation, Some(first))?.append(journal, records);
        self.note_way(journal);
        written?;
        journal.slots[usize::from(self.slot)].recorded.fetch_add(records.len() as u64, Relaxed);
        Ok(())
    }

    /// The segment of a generation, which takes the place of the one before; `first` is the sequence of the first record
    /// that waits for it.
    fn segment_of(
        &mut self,
        journal: &Journal<F>,
        generation: u64,
        first: Option<u64>,
    ) -> io::Result<&mut DiskSegment<F>> {
        if self.segment.as_ref().is_none_or(|segment| segment.generation != generation) {
            // What is in a ring moves to its file with the next sync.
            if let Some(old) = self.segment.as_mut().filter(|old| old.gathers()) {
                old.finish(journal)?;
            }
            let new = DiskSegment::open(journal, self.slot, generation, self.way)?;
            if self.is_open {
                // Not behind the last record, which may be on its way into this segment.
                new.announce(self.begun);
            }
            let said = first.map_or(Ok(()), |first| new.say_waits_from(first));
            let said = said.and(self.segment.replace(new).map_or(Ok(()), |old| {
                old.announce(0);
                old.say_complete()
            }));
            if let Err(error) = said {
                journal.note_failed_sync(&error);
            }
            self.note_way(journal);
        }
        self.segment.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Says whether records are in memory of the process alone until a turn ends.
    fn note_way(&self, journal: &Journal<F>) {
        let gathers = self.segment.as_ref().is_some_and(DiskSegment::gathers);
        let is_plain = self.segment.as_ref().is_some_and(|segment| !segment.is_ringed());
        self.note_ways(journal, Ways { gathers, is_plain });
    }

    fn note_ways(&self, journal: &Journal<F>, Ways { gathers, is_plain }: Ways) {
        let slot = &journal.slots[usize::from(self.slot)];
        if !slot.is_used.load(SeqCst) && !slot.is_used.swap(true, SeqCst) {
            journal.used_threads.fetch_add(1, SeqCst);
        }
        slot.gathers.store(gathers, SeqCst);
        match slot.is_plain.swap(is_plain, SeqCst) {
            was if was == is_plain => {}
            true => drop(journal.plain_threads.fetch_sub(1, SeqCst)),
            false => drop(journal.plain_threads.fetch_add(1, SeqCst)),
        }
    }

    /// Replies wait for no sync any more: what was gathered for one is to survive a kill.
    fn give_to_kernel(&mut self, journal: &Journal<F>) {
        let Some(segment) = self.segment.as_mut().filter(|segment| segment.gathers()) else { return };
        if let Err(error) = segment.finish(journal) {
            tracing::error!("the journal cannot be written: {error}");
        }
        self.note_way(journal);
    }

    /// Leaves the segment as a file that is all there is of it.
    fn close(&mut self, journal: &Journal<F>) {
        // After a sync that failed nothing here counts as written.
        if let Some(segment) = self.segment.as_mut().filter(|_| !journal.has_failed_sync())
            && let Err(error) = segment.close()
        {
            tracing::error!("the end of the journal stays in a file of its own: {error}");
            journal.note_failed_sync(&error);
        }
    }
}

impl<F: Files> ThreadLog<F> {
    /// Writes what was noted after the replies had gone out, so that no other thread waits for it while this one sleeps.
    pub fn settle(&mut self, journal: &Journal<F>, fsync: Fsync, host: &impl JournalHost) {
        self.feed(journal);
        if self.is_open {
            self.commit(journal, fsync, host);
        }
    }

    /// Ends a turn: writes what was noted, before any reply of the turn goes out.
    pub fn commit(&mut self, journal: &Journal<F>, fsync: Fsync, host: &impl JournalHost) {
        self.feed(journal);
        self.rest(journal);
        let wait = SyncWait::of(journal, fsync);
        self.way = WriteMode::of(fsync);
        if (self.holds || self.is_open) && wait != SyncWait::Sync {
            self.give_to_kernel(journal);
        }
        let waits_for_others = host.committed_before().is_some();
        self.holds = wait != SyncWait::Nothing || waits_for_others;
        self.frees |= !self.holds;
        if !self.is_open && !self.holds {
            self.has_written = false;
            return;
        }
        self.mark = journal.next.load(SeqCst);
        self.try_write(journal);
        let slot = &journal.slots[usize::from(self.slot)];
        if std::mem::take(&mut self.has_written) {
            match wait {
                SyncWait::Sync => journal.sync_for_replies(host, slot),
                // Looked at again: another thread may have begun to wait for this one since.
                SyncWait::Write | SyncWait::Nothing if journal.plain_threads.load(SeqCst) > 0 => {
                    journal.announce(host)
                }
                SyncWait::Write | SyncWait::Nothing => {}
            }
        }
        if self.holds {
            // Members wait for the disk alone: they are sent what they are to acknowledge before others have it.
            let (before, own_before) = (self.durable, self.own);
            self.look(journal, wait, host);
            if self.durable < self.mark {
                slot.is_holding.store(true, SeqCst);
                self.look(journal, wait, host);
            }
            self.frees |= self.durable > before || self.own > own_before;
        }
    }

    /// Asks how far the disk is, and how far others are.
    fn look(&mut self, journal: &Journal<F>, wait: SyncWait, host: &impl JournalHost) {
        self.own = wait.is_over_before(journal);
        self.durable = self.own.min(host.committed_before().unwrap_or(NONE));
    }

    /// Ends the last turn: as [`ThreadLog::commit`], but what replies wait for is synced before it returns.
    pub fn commit_last(&mut self, journal: &Journal<F>, fsync: Fsync, host: &impl JournalHost) {
        self.commit(journal, fsync, host);
        if self.holds {
            journal.sync_all();
            self.own = journal.durable_before();
            self.durable = self.own.min(host.committed_before().unwrap_or(NONE));
        }
        self.close(journal);
        journal.slots[usize::from(self.slot)].close_ahead();
    }
}

/// What replies wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SyncWait {
    Nothing,
    /// Until all older records are with the kernel: some thread gathers its own, and after a kill a record that is missing
    /// may be one of these.
    Write,
    /// Until all older records are on disk.
    Sync,
}

impl SyncWait {
    #[inline]
    fn of<F: Files>(journal: &Journal<F>, fsync: Fsync) -> SyncWait {
        match fsync {
            _ if !journal.is_on() => SyncWait::Nothing,
            Fsync::Always => SyncWait::Sync,
            _ if journal.plain_threads.load(SeqCst) > 0 && journal.used_threads.load(SeqCst) > 1 => {
                SyncWait::Write
            }
            _ => SyncWait::Nothing,
        }
    }

    /// For records with smaller sequences nobody waits any more.
    fn is_over_before<F: Files>(self, journal: &Journal<F>) -> u64 {
        match self {
            SyncWait::Nothing => NONE,
            SyncWait::Write => journal.written_before(),
            SyncWait::Sync => journal.durable_before(),
        }
    }
}

impl<F: Files> Journal<F> {
    /// Ends the work of threads that serve nobody, when all others have ended.
    pub fn end_last(&self) {
        self.sync_all();
        lock(&self.foreign).close(self);
        self.end_making();
    }
}

impl<F: Files> ThreadLog<F> {
    /// Notes a change on a thread that has no turns, and writes it.
    pub fn append_now(
        &mut self,
        journal: &Journal<F>,
        (clock_ms, fsync): (u64, Fsync),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.way = WriteMode::of(fsync);
        self.append(journal, clock_ms, write);
        self.write_now(journal, fsync);
    }

    /// The same for a message to subscribers.
    pub fn append_message_now(
        &mut self,
        journal: &Journal<F>,
        (clock_ms, fsync): (u64, Fsync),
        args: &[&[u8]],
    ) {
        self.way = WriteMode::of(fsync);
        self.append_message(journal, clock_ms, args);
        self.write_now(journal, fsync);
    }

    fn write_now(&mut self, journal: &Journal<F>, fsync: Fsync) {
        self.feed(journal);
        self.try_write(journal);
        if fsync == Fsync::Always {
            journal.sync_slot(&journal.slots[usize::from(self.slot)]);
        }
    }

    /// Writes what a turn has noted so far if that is much, while it is in the processor's cache.
    #[inline]
    pub fn write_early(&mut self, journal: &Journal<F>) {
        if self.fed.len() >= EARLY_BYTES {
            self.feed(journal);
        }
        let is_copied = self.segment.as_ref().is_some_and(DiskSegment::is_copied);
        if self.buffer.len() >= if is_copied { EARLY_BYTES_COPIED } else { EARLY_BYTES } {
            self.try_write(journal);
        }
    }

    fn try_write(&mut self, journal: &Journal<F>) {
        if !self.is_open {
            return;
        }
        let now = journal.files.now();
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
                // Their commands end now: if the process is killed, a record that is missing may be one of these.
                if let Some(segment) = &self.segment {
                    segment.announce(STUCK);
                    let _ = segment.say_waits_from(self.begun);
                }
            }
        }
    }

    /// How many bytes of a connection's output may go out now. `held` is what waits there, see [`HeldLog`].
    pub fn may_send(&self, held: &mut HeldLog, output_len: usize, is_failing: bool, wait: HeldFor) -> usize {
        let durable = match wait {
            HeldFor::All => self.durable,
            HeldFor::Own => self.own,
        };
        if held.before != 0 && durable >= held.before {
            *held = HeldLog { before: 0, end: 0, free: held.end };
        }
        if held.before == 0 && output_len > held.free {
            // While nothing can be written, writes are refused: what is said now tells of nothing that waits.
            let waits_for_nothing = is_failing && !self.has_news && durable == self.own;
            if durable >= self.mark || waits_for_nothing {
                held.free = output_len;
            } else {
                *held = HeldLog { before: self.mark, end: output_len, free: held.free };
            }
        }
        held.free.min(output_len)
    }
}

/// How a thread's records come into files, as other threads have to know it.
#[derive(Clone, Copy, Debug)]
struct Ways {
    gathers: bool,
    is_plain: bool,
}

/// The wait of a connection's output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeldFor {
    /// The journal here, and the servers that have to have a change.
    All,
    /// The journal here: the connection is one of those servers, or shows no data.
    Own,
}

/// Which part of a connection's output waits for the journal.
#[derive(Clone, Copy, Default, Debug)]
pub struct HeldLog {
    // 0: nothing waits; else the bytes free..end wait for all records with smaller sequences
    before: u64,
    end: usize,
    free: usize,
}

impl HeldLog {
    /// Returns true if a reply waits.
    pub fn is_waiting(self) -> bool {
        self.before != 0
    }

    /// The first `bytes` of the output, all of them sent, are gone.
    pub fn move_down(&mut self, bytes: usize) {
        self.end = self.end.saturating_sub(bytes);
        self.free = self.free.saturating_sub(bytes);
    }
}

/// Bytes of a command as RESP.
fn resp_len(args: &[&[u8]]) -> u64 {
    let line = |n: usize| 3 + n.checked_ilog10().map_or(1, |tens| u64::from(tens) + 1);
    line(args.len()) + args.iter().map(|arg| line(arg.len()) + arg.len() as u64 + 2).sum::<u64>()
}

/// What the system says, as Redis prints it: without the number.
pub(super) fn cause_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
impl<F: Files> ThreadLog<F> {
    /// Ends a turn, but for replies.
    pub(super) fn end_turn(&mut self, journal: &Journal<F>) {
        self.try_write(journal);
    }

    /// Does what [`ThreadLog::append`] does up to the moment in which the record has its sequence, and no more.
    pub(super) fn die_in_append(&mut self, journal: &Journal<F>) {
        if !self.is_open || journal.generation.load(SeqCst) != self.generation {
            self.open_current(journal);
        }
        journal.next.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD_BYTES: usize = darter_persist::journal::record::HEAD_BYTES + 1;

    fn switched_on() -> Journal {
        let journal = Journal::new(Disk, 1);
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
