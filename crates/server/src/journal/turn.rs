//! What a thread's turn does for the journal: its records are written before its replies go out.

use crate::thread_state::ThreadState;

/// Writes what was noted after the replies had gone out, so that no other thread waits for it while this one sleeps.
pub fn settle(local: &mut ThreadState) {
    let (shared, fsync) = (local.shared, local.live.persistence.appendfsync);
    local.journal.settle(&shared.journal, fsync, shared);
}

/// Ends a turn: writes what was noted, before any reply of the turn goes out.
pub fn commit(local: &mut ThreadState) {
    let (shared, fsync) = (local.shared, local.live.persistence.appendfsync);
    local.journal.commit(&shared.journal, fsync, shared);
}

/// Ends the last turn: what replies wait for is synced when it returns.
pub fn commit_last(local: &mut ThreadState) {
    let (shared, fsync) = (local.shared, local.live.persistence.appendfsync);
    local.journal.commit_last(&shared.journal, fsync, shared);
}
