//! The thread that syncs segments once a second, or when somebody waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use super::{Journal, Slot};
use crate::config::Fsync;
use crate::shared::Shared;
use crate::worker::lock;

/// What the thread is asked for.
#[derive(Default)]
pub struct Wishes {
    runs: bool,
    /// Somebody waits for a sync.
    now: bool,
}

/// The time between two syncs.
const PERIOD: Duration = Duration::from_secs(1);
/// The same while somebody waits.
const SOON: Duration = Duration::from_millis(5);

/// Starts the thread, unless it runs.
///
/// Errors: the system refuses a thread.
pub fn start(shared: &'static Shared) -> std::io::Result<()> {
    if std::mem::replace(&mut lock(&shared.journal.wishes).runs, true) {
        return Ok(());
    }
    std::thread::Builder::new().name("darter-journal".into()).spawn(move || run(shared)).map(drop)
}

fn run(shared: &'static Shared) {
    let journal = &shared.journal;
    loop {
        let began = Instant::now();
        // Writes that somebody waits for may have been on their way when the last sync began.
        let is_awaited = journal.has_waiting();
        let period = if is_awaited { SOON } else { PERIOD };
        let mut wishes = lock(&journal.wishes);
        while !wishes.now && began.elapsed() < period {
            let left = period.saturating_sub(began.elapsed());
            wishes =
                journal.wake.wait_timeout(wishes, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        let is_asked = std::mem::take(&mut wishes.now) || is_awaited;
        drop(wishes);
        let live = shared.settings.live();
        let rests = live.persistence.no_appendfsync_on_rewrite && journal.is_rewriting();
        if is_asked || live.persistence.appendfsync == Fsync::EverySecond && !rests {
            journal.sync_all();
            journal.announce(shared);
        }
    }
}

impl Journal {
    /// Asks for a sync now.
    pub fn ask_for_sync(&self) {
        lock(&self.wishes).now = true;
        self.wake.notify_one();
    }

    /// Syncs the files of all threads.
    pub fn sync_all(&self) {
        let began = Instant::now();
        self.pending_syncs.fetch_add(1, Relaxed);
        self.slots.iter().for_each(|slot| self.sync_slot(slot));
        self.pending_syncs.fetch_sub(1, Relaxed);
        if began.elapsed() > PERIOD {
            self.delayed_syncs.fetch_add(1, Relaxed);
        }
    }

    /// Syncs the files of one thread; nothing to do when that has been done since it last wrote.
    pub(super) fn sync_slot(&self, slot: &Slot) {
        let written = slot.written.load(SeqCst);
        if written <= slot.synced.load(SeqCst) {
            return;
        }
        let files = lock(&slot.files).clone();
        let began = Instant::now();
        for file in &files {
            if let Err(error) = file.sync_data() {
                tracing::error!(
                    "the journal cannot be synced: {error}; writes are refused until a new base is there"
                );
                self.note_trouble(|trouble| trouble.syncing = Some(error.to_string()));
                return;
            }
        }
        self.syncs.fetch_add(files.len() as u64, Relaxed);
        self.sync_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        slot.synced.fetch_max(written, SeqCst);
        if let Some((_, old)) = files.split_last()
            && !old.is_empty()
        {
            // The last one may still be appended to.
            lock(&slot.files).retain(|file| !old.iter().any(|synced| Arc::ptr_eq(synced, file)));
        }
    }
}
