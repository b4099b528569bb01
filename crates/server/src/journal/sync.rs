//! The journal's thread, and what the journal asks of the process around it.

use std::io;

use super::{Fsync, JournalHost};
use crate::shared::{Shared, ThreadMessage};

/// Starts the thread, unless it runs.
///
/// Errors: the system refuses a thread.
pub fn start(shared: &'static Shared) -> io::Result<()> {
    if !shared.journal.lacks_thread() {
        return Ok(());
    }
    let run = move || shared.journal.run(shared);
    std::thread::Builder::new().name("darter-journal".into()).spawn(run).map(drop)
}

impl JournalHost for Shared {
    fn fsync(&self) -> Fsync {
        self.settings.live().persistence.appendfsync
    }

    fn rests(&self) -> bool {
        self.settings.live().persistence.no_appendfsync_on_rewrite && self.journal.is_rewriting()
    }

    fn wake(&self, slot: usize) {
        if let Some(handle) = self.handles.get(slot) {
            handle.send(ThreadMessage::Durable);
        }
    }

    fn wake_cron(&self) {
        if let Some(first) = self.handles.first() {
            first.send(ThreadMessage::Unpaused);
        }
    }

    fn answer_waiting(&self) {
        self.sync_waiters.answer(self);
        if let Some(group) = &self.group {
            group.note_synced(self);
        }
    }

    fn has_waiting(&self) -> bool {
        self.sync_waiters.has_any()
    }

    fn committed_before(&self) -> Option<u64> {
        self.group.as_ref().and_then(|group| group.commit.committed_before())
    }

    fn has_base(&self) {
        self.snapshots.hold_until_base(false);
    }
}
