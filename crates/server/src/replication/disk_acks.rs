//! Acknowledgements of disks (`replica_ack disk`): a member notes in its journal what it has received, and acknowledges it
//! when the journal says that it is on disk.
//!
//! The thread of a link asks here what it may acknowledge (`follow`). All that was received in one go is one record of the
//! journal, so one sync serves all of it. The journal decides when something is on disk; nothing here syncs by itself.

use std::collections::VecDeque;

use super::Replication;
use super::link::LinkCard;
use crate::shared::Shared;
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// What a member may acknowledge.
pub struct DiskAcks {
    is_on: bool,
    // a sequence of the stream, and the end of the journal that has all below
    waiting: VecDeque<(u64, u64)>,
    synced: u64,
}

impl DiskAcks {
    /// Those of a link that goes on at `next`: everything before is applied, and noted.
    pub fn new(shared: &Shared, next: u64) -> DiskAcks {
        let is_on = shared.group.as_ref().is_some_and(|group| group.acks_disk());
        let waiting = if is_on { VecDeque::from([(next, shared.journal.end())]) } else { VecDeque::new() };
        DiskAcks { is_on, waiting, synced: 0 }
    }

    /// Returns true if acknowledgements are of the disk.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns true if something is noted that is not known to be on disk.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Every record below is on disk; 0: nothing is said of that.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Everything below `dense` is here; `note` puts it into the journal and returns the journal's end then.
    pub fn note(&mut self, dense: u64, note: impl FnOnce() -> Option<u64>) {
        if self.is_on
            && let Some(end) = note()
        {
            self.waiting.push_back((dense, end));
        }
    }

    /// Asks the journal; returns whether more may be acknowledged.
    pub fn look(&mut self, shared: &Shared) -> bool {
        // The base of what a full sync has brought is awaited: until then the files lead to something else.
        if !self.is_on || self.waiting.is_empty() || !shared.replication.is_journal_whole(shared) {
            return false;
        }
        self.take(shared.journal.durable_before())
    }

    /// Takes what is on disk once all records of the journal below `durable` are.
    fn take(&mut self, durable: u64) -> bool {
        let before = self.synced;
        while let Some((dense, _)) = self.waiting.pop_front_if(|(_, end)| *end <= durable) {
            self.synced = self.synced.max(dense);
        }
        self.synced > before
    }
}

impl Replication {
    /// Notes in the journal what was received and is not there; returns the journal's end then, `None` if the link was ended:
    /// whoever leads now makes a stream of what the journal gets.
    pub fn note_received(&self, shared: &Shared, info: &LinkCard) -> Option<u64> {
        let applied = self.applied();
        let mut kept = lock(&self.uncommitted);
        if info.is_stopped() {
            return None;
        }
        let mut body = Vec::new();
        if kept.write_news(&mut body, applied) {
            let fsync = shared.settings.live().persistence.appendfsync;
            shared.journal.note_alone(fsync, |out| out.extend_from_slice(&body));
        }
        let end = shared.journal.end();
        drop(kept);
        // Others may wait for a sync that has covered theirs.
        shared.journal.release(shared);
        Some(end)
    }

    /// Notes once more what was received and is not applied: a new generation of the journal begins. All shards are held.
    pub fn note_uncommitted(&self, local: &ThreadState) {
        let shared = local.shared;
        if !shared.group.as_ref().is_some_and(|group| group.acks_disk()) || !self.is_replica() {
            return;
        }
        let applied = self.applied();
        let (kept, mut body) = (lock(&self.uncommitted), Vec::new());
        if kept.write_all(&mut body, applied) {
            let fsync = local.live.persistence.appendfsync;
            shared.journal.note_at(local.now_ms, fsync, |out| out.extend_from_slice(&body));
        }
    }

    /// Bytes and sequence of the stream that are applied.
    fn applied(&self) -> (u64, u64) {
        let state = self.state();
        (state.offset(), state.records.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_acknowledged_before_the_journal_has_synced_it() {
        let mut acks = DiskAcks { is_on: true, waiting: VecDeque::from([(5, 100)]), synced: 0 };
        assert!(!acks.take(99) && acks.synced() == 0, "what was applied before counts too");
        acks.note(9, || Some(104));
        acks.note(12, || Some(107));
        assert!(acks.take(106));
        assert_eq!((acks.synced(), acks.is_waiting()), (9, true));
        acks.note(20, || None);
        assert!(acks.take(u64::MAX));
        assert_eq!(
            (acks.synced(), acks.is_waiting()),
            (12, false),
            "what could not be noted is not acknowledged"
        );
    }
}
