//! Removal of the hidden keys of a migration that has ended: at the target if it failed, at the source if it succeeded. Also
//! before one begins again.
//!
//! Begun by `outgoing::attend` on a thread of its own, and again after a restart. DEL removes the keys, some index lines at a
//! time, so the journal and replicas get each. The map is changed when no key is left.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use darter_base::slot::slot_of;
use darter_cluster::{MigrationChange, MigrationState, SlotMigration};
use darter_latch::Grant;
use darter_store::ScanPosition;
use darter_txn::LockSet;
use darter_wire::OwnedArgs;

use super::outgoing::{self, ChangeFault};
use crate::engine::origin::Origin;
use crate::exec;
use crate::job::{Job, JobBody, Shards};
use crate::shared::Shared;
use crate::thread_state::ThreadState;

/// Replicas know that a slot has left before its keys are removed.
const GRACE: Duration = Duration::from_secs(1);
/// Index lines that are looked at with a shard held.
const LINES_AT_ONCE: usize = 64;
/// Between attempts to tell the store, and between rounds.
const PAUSE: Duration = Duration::from_millis(200);

/// Removes what is left of a migration, and notes it in the map. Ends early if this node is no master any more.
pub fn remove(shared: &'static Shared, one: &SlotMigration) {
    if one.state == MigrationState::Done {
        thread::sleep(GRACE);
    }
    while shared.snapshots.loading.is_on() {
        thread::sleep(PAUSE);
    }
    loop {
        let slots = || one.slots.iter().flat_map(|range| range.start..=range.end);
        let mut shards: Vec<u16> = slots().filter_map(|slot| shared.router.shard_of_slot(slot)).collect();
        shards.sort_unstable();
        shards.dedup();
        let mut found = 0;
        for shard in shards {
            let (mut db, mut at) = (0, ScanPosition::START);
            while let Some((removed, next)) = step(shared, one, shard, (db, at)) {
                found += removed;
                (db, at) = next;
            }
        }
        if !is_due(shared, one) {
            return;
        }
        if found == 0 {
            break;
        }
    }
    match outgoing::change(shared, MigrationChange::Swept(one.id.clone(), one.attempt)) {
        Ok(_) | Err(ChangeFault::Refused) => {}
        Err(ChangeFault::Unknown(_)) => thread::sleep(PAUSE),
    }
}

/// Returns true if this node still has to remove the keys.
fn is_due(shared: &Shared, one: &SlotMigration) -> bool {
    let map = shared.cluster.map();
    let own = map.own_group().map(|group| group.id.as_str());
    // Of one that has begun again what arrives is wanted.
    let found = map.migration(&one.id).filter(|found| !found.is_active() && found.attempt == one.attempt);
    own.is_some() && found.and_then(SlotMigration::hider) == own && !shared.replication.is_replica()
}

/// Where a round through a shard is: the database, and the place in it.
type SweepPlace = (usize, ScanPosition);

/// Removes keys in the next lines of a shard; returns how many, and where to go on. `None`: there are no more lines.
fn step(
    shared: &'static Shared,
    one: &SlotMigration,
    shard: u16,
    place: SweepPlace,
) -> Option<(usize, SweepPlace)> {
    let (tell, hear) = sync_channel(1);
    let wanted = one.clone();
    let call = move |local: &mut ThreadState, grant: &mut Shards| {
        let _ = tell.send(step_held(local, grant, &wanted, shard, place));
    };
    let body = JobBody::Call(Some(Box::new(call)));
    let origin = Origin::nobody(shared.home_of(shard));
    Job::new(origin, body, LockSet::one(shard), Grant::empty()).enqueue_from_outside(shared);
    hear.recv().ok().flatten()
}

fn step_held(
    local: &mut ThreadState,
    grant: &mut Shards,
    one: &SlotMigration,
    shard: u16,
    (db, at): SweepPlace,
) -> Option<(usize, SweepPlace)> {
    let shared = local.shared;
    let part = grant.get_mut(shard).filter(|part| db < part.shard.dbs_len() && is_due(shared, one))?;
    let hidden = shared.router.hidden();
    let mut del = OwnedArgs::from_slices(&[b"DEL"]);
    let mut next = Some(at);
    for _ in 0..LINES_AT_ONCE {
        let Some(at) = next else { break };
        next = part.shard.scan_all(db, at, |record| {
            let slot = slot_of(record.key());
            if one.has(slot) && hidden.has(slot) {
                del.push(record.key());
            }
        });
    }
    let keys = del.args().len() - 1;
    if keys > 0
        && let Some(entry) = shared.registry.row("del")
    {
        let origin = Origin { db, acl_version: shared.acl.version(), ..Origin::nobody(local.thread) };
        exec::run_granted(local, grant, origin, entry, del.args(), &mut Vec::new());
    }
    Some((keys, next.map_or((db + 1, ScanPosition::START), |at| (db, at))))
}
