//! The journal's thread: it moves the content of rings to segments and syncs the segments.
//!
//! It syncs once a second, when a caller waits for a sync, and for groups of replies (`always`). The server starts it.
//! It never serves a client.
//!
//! Records that come during a sync gather for the next one. A sync costs as much processor time as dozens of commands,
//! so the next one waits for the clients that the last one released, as long as their commands keep coming. Where a
//! sync is quick and all clients are back, the turn that sees this syncs at once, even if the thread was asked to: no
//! client is left that could be served meanwhile.

use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use darter_persist::files::Files;

use super::segment::SegmentFile;
use super::{Fsync, Journal, JournalHost, JournalSlot, lock};

/// What the thread is asked for.
#[derive(Default)]
pub struct Wishes {
    runs: bool,
    /// A caller waits for a sync.
    pub(super) now: bool,
    /// Rings have whole windows to be moved to the disk.
    room: bool,
    /// Segments of this generation must be made: a base is about to begin it.
    ahead: Option<u64>,
    /// Replies wait for a sync (`always`).
    replies: bool,
    /// A sync for other replies is under way.
    is_under_way: bool,
    /// When this sequence is the next, all clients that the last sync released are back.
    enough: u64,
}

/// The time between two syncs.
const PERIOD: Duration = Duration::from_secs(1);
/// The time between two syncs while a caller waits.
const SOON: Duration = Duration::from_millis(5);

impl<F: Files> Journal<F> {
    /// Whether the caller must start the journal's thread. From then on the thread counts as started.
    pub fn lacks_thread(&self) -> bool {
        !std::mem::replace(&mut lock(&self.wishes).runs, true)
    }

    /// The loop of the journal's thread.
    pub fn run(&self, host: &impl JournalHost) -> ! {
        loop {
            let began = Instant::now();
            // The last sync may have begun before the writes that a caller waits for were there.
            let is_awaited = host.has_waiting();
            let period = if is_awaited { SOON } else { PERIOD };
            let mut wishes = lock(&self.wishes);
            loop {
                wishes = self.do_chores(host, wishes);
                if wishes.now || wishes.replies || began.elapsed() >= period {
                    break;
                }
                if !wishes.room && wishes.ahead.is_none() {
                    wishes = self.rest(wishes, period.saturating_sub(began.elapsed()));
                }
            }
            if wishes.replies {
                wishes = self.gather(wishes);
            }
            wishes.now |= is_awaited;
            self.sync_as_asked(host, wishes);
        }
    }

    /// Makes room in rings, and makes segments.
    pub(super) fn do_chores<'a>(
        &'a self,
        host: &impl JournalHost,
        mut wishes: MutexGuard<'a, Wishes>,
    ) -> MutexGuard<'a, Wishes> {
        if std::mem::take(&mut wishes.room) {
            drop(wishes);
            self.move_windows();
            wishes = lock(&self.wishes);
        }
        if let Some(generation) = wishes.ahead.take() {
            drop(wishes);
            self.make_next(generation, host.fsync());
            host.wake_cron();
            wishes = lock(&self.wishes);
        }
        wishes
    }

    /// Syncs what replies wait for, or all files.
    pub(super) fn sync_as_asked(&self, host: &impl JournalHost, mut wishes: MutexGuard<'_, Wishes>) {
        let is_asked = std::mem::take(&mut wishes.now);
        let is_group = std::mem::take(&mut wishes.replies);
        wishes.is_under_way = is_group;
        drop(wishes);
        if is_group {
            return self.release_after(host, Journal::sync_together);
        }
        if is_asked || host.fsync() == Fsync::EverySecond && !host.rests() {
            self.sync_all();
            self.announce(host);
        } else {
            for slot in &self.slots {
                let files = lock(&slot.files).clone();
                self.finish_old(&files);
            }
        }
    }
}

/// The turn that needs a sync may do it itself if syncs take at most this long.
const QUICK_NS: u64 = 250_000;
/// The thread waits for records in steps; a step is a sync's time divided by this. It ends with a step without records.
const GATHERING_STEP: u64 = 4;
/// The thread waits for at most this many steps.
const GATHERING_STEPS: u32 = 4;

/// What syncs the records that a turn has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SyncRequests {
    /// The turn syncs its own file: no other turn waits.
    Alone,
    /// The turn syncs all files: it is the last one that the others wait for.
    Last,
    /// The thread syncs; the caller wakes it.
    Thread,
    /// The thread syncs later; it waits for more records.
    Later,
}

impl Wishes {
    /// Decides for a turn that has written what replies wait for; `next` is the next sequence.
    fn ask(&mut self, next: u64, is_quick: bool) -> SyncRequests {
        let are_back = next >= self.enough;
        if are_back && is_quick && !self.is_under_way {
            return if std::mem::take(&mut self.replies) { SyncRequests::Last } else { SyncRequests::Alone };
        }
        let is_first = !std::mem::replace(&mut self.replies, true);
        if are_back || is_first { SyncRequests::Thread } else { SyncRequests::Later }
    }

    /// Notes that a sync has covered these sequences; `next` is the next one. The clients of the covered records send
    /// their next commands now, so the same number of records is expected.
    fn release(&mut self, covered: Range<u64>, next: u64) {
        self.enough = next + covered.end.saturating_sub(covered.start);
        self.is_under_way = false;
    }
}

impl<F: Files> Journal<F> {
    /// Asks for a sync now.
    pub fn ask_for_sync(&self) {
        lock(&self.wishes).now = true;
        self.wake.notify_one();
    }

    /// Asks for room in a ring that fills up.
    pub(super) fn ask_for_room(&self) {
        lock(&self.wishes).room = true;
        self.wake.notify_one();
    }

    /// Asks for segments of `generation`.
    pub(super) fn ask_for_segments(&self, generation: u64) {
        lock(&self.wishes).ahead = Some(generation);
        self.wake.notify_one();
    }

    /// Syncs what a turn has just written to its file, now or together with what other turns write meanwhile.
    pub(super) fn sync_for_replies(&self, host: &impl JournalHost, slot: &JournalSlot<F>) {
        let is_quick = self.sync_ns.load(Relaxed) <= QUICK_NS;
        let asked = lock(&self.wishes).ask(self.next.load(SeqCst), is_quick);
        match asked {
            SyncRequests::Alone => self.release_after(host, |journal| journal.sync_slot(slot)),
            SyncRequests::Last => self.release_after(host, Journal::sync_together),
            SyncRequests::Thread => self.wake.notify_one(),
            SyncRequests::Later => {}
        }
    }

    /// Runs `sync`, then sends the replies that waited for it.
    fn release_after(&self, host: &impl JournalHost, sync: impl FnOnce(&Journal<F>)) {
        let covered = self.durable_before()..self.next.load(SeqCst);
        sync(self);
        lock(&self.wishes).release(covered, self.next.load(SeqCst));
        self.announce(host);
    }

    fn rest<'a>(&self, wishes: MutexGuard<'a, Wishes>, time: Duration) -> MutexGuard<'a, Wishes> {
        self.wake.wait_timeout(wishes, time).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    /// Waits while records keep coming from clients that the last sync released: a record that just misses a sync
    /// waits for two. A turn that sees the last of these clients come back may sync itself; then no reply waits.
    fn gather<'a>(&self, mut wishes: MutexGuard<'a, Wishes>) -> MutexGuard<'a, Wishes> {
        let sync_ns = self.sync_ns.load(Relaxed);
        let step = Duration::from_nanos(sync_ns / GATHERING_STEP);
        let began = Instant::now();
        let mut seen = self.next.load(SeqCst);
        while wishes.replies
            && !wishes.now
            && seen < wishes.enough
            && began.elapsed() < step * GATHERING_STEPS
        {
            wishes = self.rest(wishes, step);
            let next = self.next.load(SeqCst);
            if next == seen {
                break;
            }
            seen = next;
        }
        wishes
    }

    /// Syncs the files of all threads, one after the other.
    pub fn sync_all(&self) {
        let began = Instant::now();
        self.pending_syncs.fetch_add(1, Relaxed);
        self.slots.iter().for_each(|slot| self.sync_slot(slot));
        self.pending_syncs.fetch_sub(1, Relaxed);
        if began.elapsed() > PERIOD {
            self.delayed_syncs.fetch_add(1, Relaxed);
        }
    }

    /// Syncs the files of all threads, several at a time.
    fn sync_together(&self) {
        let due: Vec<&JournalSlot<F>> = self.slots.iter().filter(|slot| slot.is_unsynced()).collect();
        let mut parts = due.chunks(due.len().div_ceil(F::SIZES.syncs_together).max(1));
        let own = parts.next().unwrap_or_default();
        std::thread::scope(|scope| {
            for part in parts {
                let sync = || part.iter().for_each(|slot| self.sync_slot(slot));
                if std::thread::Builder::new().spawn_scoped(scope, sync).is_err() {
                    sync();
                }
            }
            own.iter().for_each(|slot| self.sync_slot(slot));
        });
    }

    /// Syncs the files of one thread. It does nothing if the thread has not written since its last sync.
    pub(super) fn sync_slot(&self, slot: &JournalSlot<F>) {
        let written = slot.written.load(SeqCst);
        // A sync that failed is not tried again: the next one would succeed without what the first has lost.
        if !slot.is_unsynced() || self.has_failed_sync() {
            return;
        }
        let files = lock(&slot.files).clone();
        let began = self.files.now();
        for file in &files {
            if let Err(error) = file.sync() {
                return self.note_failed_sync(&error);
            }
        }
        let took = self.files.now().saturating_duration_since(began);
        self.syncs.fetch_add(files.len() as u64, Relaxed);
        self.sync_us.fetch_add(took.as_micros() as u64, Relaxed);
        self.sync_ns.store((3 * self.sync_ns.load(Relaxed) + took.as_nanos() as u64) / 4, Relaxed);
        slot.synced.fetch_max(written, SeqCst);
        if let Some((_, old)) = files.split_last()
            && !old.is_empty()
        {
            self.finish_old(&files);
            // The last one may still be appended to.
            lock(&slot.files).retain(|file| !old.iter().any(|synced| Arc::ptr_eq(synced, file)));
        }
    }

    /// Closes those segments of a thread that no record is appended to any more: all but the last.
    fn finish_old(&self, files: &[Arc<SegmentFile<F>>]) {
        if self.has_failed_sync() {
            return;
        }
        let old = files.split_last().map_or(&[][..], |(_, old)| old);
        if let Some(error) = old.iter().find_map(|old| old.close().err()) {
            self.note_failed_sync(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use darter_persist::files::Disk;

    use super::*;

    /// A journal whose last sync took `sync` and let `released` records' clients go on.
    fn journal(threads: usize, sync: Duration, released: u64) -> Journal {
        let journal = Journal::new(Disk, threads);
        journal.sync_ns.store(sync.as_nanos() as u64, Relaxed);
        let next = journal.next.load(SeqCst);
        *lock(&journal.wishes) = Wishes { replies: true, enough: next + released, ..Wishes::default() };
        journal
    }

    #[test]
    fn a_sync_begins_when_all_are_back() {
        let journal = journal(1, Duration::from_secs(800), 1);
        let began = Instant::now();
        std::thread::scope(|scope| {
            let wishes = lock(&journal.wishes);
            scope.spawn(|| {
                drop(lock(&journal.wishes));
                journal.next.fetch_add(1, SeqCst);
                journal.wake.notify_one();
            });
            drop(journal.gather(wishes));
        });
        assert!(began.elapsed() < Duration::from_secs(60), "a step was waited out");
    }

    #[test]
    fn those_that_a_sync_released_are_waited_for() {
        let mut wishes = Wishes { is_under_way: true, ..Wishes::default() };
        wishes.release(4..11, 15);
        assert_eq!((wishes.enough, wishes.is_under_way), (22, false));
    }

    #[test]
    fn the_turn_that_sees_the_last_one_come_syncs_for_all() {
        let mut wishes = Wishes { enough: 12, ..Wishes::default() };
        assert_eq!(wishes.ask(10, true), SyncRequests::Thread);
        assert_eq!(wishes.ask(11, true), SyncRequests::Later);
        assert_eq!((wishes.ask(12, true), wishes.replies), (SyncRequests::Last, false));
        assert_eq!(wishes.ask(13, true), SyncRequests::Alone);
        assert_eq!(
            (wishes.ask(14, false), wishes.replies),
            (SyncRequests::Thread, true),
            "a slow disk is the thread's"
        );
        wishes.is_under_way = true;
        assert_eq!(wishes.ask(15, true), SyncRequests::Thread);
    }

    #[test]
    fn a_sync_waits_one_step_for_those_who_do_not_come() {
        let journal = journal(1, Duration::from_millis(80), 1);
        let began = Instant::now();
        drop(journal.gather(lock(&journal.wishes)));
        assert!(began.elapsed() >= Duration::from_millis(10));
        let journal = self::journal(1, Duration::from_secs(800), 0);
        let began = Instant::now();
        drop(journal.gather(lock(&journal.wishes)));
        assert!(began.elapsed() < Duration::from_secs(60), "nobody was expected");
    }

    /// A journal whose slots have written to one file what is not synced.
    fn unsynced(threads: usize, name: &str) -> Journal {
        let journal = Journal::new(Disk, threads);
        let path = std::env::temp_dir().join(format!("darter-sync-{name}-{}", std::process::id()));
        let file = Arc::new(SegmentFile::plain(Disk, std::fs::File::create(&path).expect("a file")));
        std::fs::remove_file(&path).expect("it is there");
        for (at, slot) in journal.slots.iter().enumerate() {
            lock(&slot.files).push(file.clone());
            slot.written.store(at as u64 + 1, SeqCst);
        }
        journal.next.store(20, SeqCst);
        assert_eq!(journal.durable_before(), 1);
        journal
    }

    #[test]
    fn a_sync_that_failed_is_not_tried_again() {
        let journal = unsynced(1, "failed");
        journal.note_trouble(|trouble| trouble.syncing = Some("a fault".to_owned()));
        journal.sync_together();
        journal.sync_all();
        assert_eq!((journal.syncs.load(Relaxed), journal.durable_before()), (0, 1));
        // A new base is there.
        journal.note_trouble(|trouble| trouble.syncing = None);
        journal.sync_all();
        assert_eq!((journal.syncs.load(Relaxed), journal.durable_before()), (2, 20));
    }

    #[test]
    fn files_of_many_threads_are_synced_together() {
        let journal = unsynced(9, "together");
        journal.sync_together();
        assert_eq!(journal.syncs.load(Relaxed), 10);
        assert_eq!(journal.durable_before(), 20);
        assert!(journal.sync_ns.load(Relaxed) > 0);
        // Nothing is left to do.
        journal.sync_together();
        assert_eq!(journal.syncs.load(Relaxed), 10);
    }
}
