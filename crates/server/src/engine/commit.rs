//! Commit: what follows the body of a command while its shards are still held.
//!
//! The order is the same for every way in: the journal, then memory, then listeners (WATCH, notifications, clients'
//! caches), then clients that wait, each served as a run of its own with its own origin. Called by every stage that has
//! run a body; nothing else publishes changes. It never takes a shard for a caller.

use darter_latch::Held;
use darter_store::change::{Change, Class, Listeners};
use darter_txn::{Part, ShardSet};

use super::lease;
use super::origin::ChangedBy;
use crate::core::Core;
use crate::exec;
use crate::job::{Job, Shards};
use crate::journal::note as journal;
use crate::limit::relief;
use crate::pubsub;
use crate::registry::Entry;
use crate::snapshot;
use crate::tracking;
use crate::waiting;

/// Commits a command of `by` that has run over granted shards.
pub fn command(core: &mut Core, grant: &mut Shards, by: ChangedBy, ran: journal::Ran<'_>) {
    journal::note_grant(core, grant, Some(ran));
    growth(core, grant, by);
}

/// Commits a command about one key, and releases its shard.
#[inline(never)]
pub fn single(core: &mut Core, mut held: Held<Part, Job>, by: ChangedBy, ran: journal::Ran<'_>) {
    if held.shard.changes.is_journalled() {
        let id = held.id();
        journal::note(core, ShardSet::one(&core.shared.router, id, &mut held), Some(ran));
    }
    if held.shard.is_pressed() {
        let id = held.id();
        relief::settle(core, &mut held, id);
    }
    if !held.shard.changes.has_pending() {
        lease::release_one(core, held);
        return;
    }
    let mut grant = Shards::from(held);
    changes(core, &mut grant, by);
    lease::release(core, grant);
}

/// Commits keys that were changed by a command which is none of Redis': the journal gets their values.
pub fn values<'k>(
    core: &mut Core,
    grant: &mut Shards,
    by: ChangedBy,
    db: usize,
    names: impl Iterator<Item = &'k [u8]>,
) {
    // Before room is made: what is evicted then is noted on its own.
    journal::note_values(core, grant, db, names);
    growth(core, grant, by);
}

/// Makes room for what has grown, and publishes what has changed.
pub fn growth(core: &mut Core, grant: &mut Shards, by: ChangedBy) {
    relief::settle_all(core, grant);
    if grant.iter_mut().any(|held| held.shard.changes.has_pending()) {
        changes(core, grant, by);
    }
}

/// Follows the body of a command that may have changed every key at once. The changes of single keys follow later inside
/// EXEC and scripts.
#[inline]
pub fn body(core: &Core, grant: &mut Shards, entry: &Entry) {
    snapshot::note_run(core.shared, entry);
    if exec::flushes(entry) && core.shared.tracking.is_in_use() {
        tracking::invalidate_all(core, grant);
    }
}

/// Publishes what just changed in shards that are still held. Serving a waiting client may change more, so this repeats
/// until nothing is left.
#[cold]
pub fn changes(core: &mut Core, grant: &mut Shards, by: ChangedBy) {
    loop {
        journal::note_grant(core, grant, None);
        let mut changes: Vec<Change> = Vec::new();
        for part in grant.iter_mut() {
            if part.shard.changes.has_pending() {
                changes.extend(touch_watches(part));
            }
        }
        if changes.is_empty() {
            core.told_before = 0;
            return;
        }
        // Shards come in the order of their numbers, changes in the order they happened.
        changes.sort_unstable_by_key(|change| change.order);
        pubsub::notify(core, &changes);
        let told = changes.partition_point(|change| change.order < core.told_before);
        tracking::invalidate(core, grant, changes.get(told..).unwrap_or_default(), by);
        // Nobody waits for a read that misses, and looking again could miss again without end.
        for change in changes.iter().filter(|change| change.event.class != Class::KEY_MISS) {
            waiting::serve(core, grant, change.db, &change.key);
        }
    }
}

/// Sends clients' caches the changes so far of `by`, which has more to do with its shards held: an EXEC, a script, or
/// a client that is served before others. Called before a read of a client that tracks: the value it reads is newer than
/// these changes, and must not be invalidated by them later.
#[cold]
pub fn caches(core: &mut Core, grant: &mut Shards, by: ChangedBy) {
    if !core.shared.tracking.is_in_use() {
        return;
    }
    let mut changes: Vec<Change> = Vec::new();
    for part in grant.iter_mut() {
        let new = part.shard.changes.pending().iter().filter(|change| change.order >= core.told_before);
        changes.extend(new.cloned());
    }
    changes.sort_unstable_by_key(|change| change.order);
    if let Some(last) = changes.last() {
        tracking::invalidate(core, grant, &changes, by);
        core.told_before = last.order + 1;
    }
}

fn touch_watches(part: &mut Part) -> Vec<Change> {
    let changes = part.shard.changes.take();
    // A read that misses is published, but it changes nothing.
    for change in changes.iter().filter(|change| change.event.class != Class::KEY_MISS) {
        part.watches.touch(change.db, &change.key);
    }
    if part.watches.is_empty() {
        part.shard.changes.listen(Listeners::WATCH, false);
    }
    changes
}
