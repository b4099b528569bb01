//! Removal of keys whose slots another group owns: some index lines at a time, a job for each step.
//!
//! Begun when all threads route by a new map, and once what is on disk is loaded. Every key is removed by a DEL, so the
//! journal and replicas hear of it. A replica removes nothing: its master does. A node that the map does not name removes
//! nothing either, because a mistyped id must not cost its data. Keys of slots that move as a whole are hidden, and stay
//! until a configuration no longer has that move.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_cluster::{NodeRole, SlotMap};
use darter_latch::Grant;
use darter_store::ScanPosition;
use darter_txn::LockSet;
use darter_wire::OwnedArgs;

use crate::engine::origin::Origin;
use crate::exec;
use crate::job::{Job, JobBody, Shards};
use crate::shared::Shared;
use crate::thread_state::ThreadState;

/// Index lines that a step looks at.
const LINES_AT_ONCE: usize = 64;

/// Removes the keys that are not this node's under the map of `revision`, unless a later map comes in between.
pub fn begin(shared: &'static Shared, revision: u64) {
    // By a store's map an owner gives a slot up when it has no key of it left: what else is found there is no surplus.
    if shared.cluster.shared_store().is_some() {
        return;
    }
    let map = shared.cluster.map();
    if map.revision() != revision || !matches!(map.place(), NodeRole::Master(_)) || map.bound_len() == 0 {
        return;
    }
    let is_whole = map.own_group().is_some_and(|group| group.slots_len() == map.owners().len());
    if is_whole || shared.replication.is_replica() {
        return;
    }
    for cell in shared.cells {
        SweepStep { map: map.clone(), shard: cell.id(), db: 0, at: ScanPosition::START }.enqueue(shared);
    }
}

/// Removes the keys of other groups' slots that were on disk, as soon as all is loaded; to be called once.
///
/// Errors: there can be no more threads.
pub fn start_after_load(shared: &'static Shared) -> std::io::Result<()> {
    if !shared.cluster.is_on() || !shared.cluster.is_configured() {
        return Ok(());
    }
    let revision = shared.cluster.map().revision();
    let body = move || {
        while shared.snapshots.loading.is_on() {
            thread::sleep(LOOK);
        }
        begin(shared, revision);
    };
    thread::Builder::new().name("darter-slots".to_owned()).spawn(body).map(drop)
}

const LOOK: Duration = Duration::from_millis(10);

/// Where a sweep of one shard is.
struct SweepStep {
    map: Arc<SlotMap>,
    shard: u16,
    db: usize,
    at: ScanPosition,
}

impl SweepStep {
    fn enqueue(self, shared: &'static Shared) {
        let shard = self.shard;
        let call = move |local: &mut ThreadState, grant: &mut Shards| self.run(local, grant);
        let origin = Origin::nobody(shared.home_of(shard));
        let body = JobBody::Call(Some(Box::new(call)));
        Job::new(origin, body, LockSet::one(shard), Grant::empty()).enqueue_from_outside(shared);
    }

    fn run(mut self, local: &mut ThreadState, grant: &mut Shards) {
        let shared = local.shared;
        if shared.cluster.map().revision() != self.map.revision() || shared.replication.is_replica() {
            return;
        }
        let Some(part) = grant.get_mut(self.shard) else { return };
        if self.db >= part.shard.dbs_len() {
            return;
        }
        let shard = &mut part.shard;
        let is_surplus = |slot: u16| {
            shard.has_slot(slot)
                && shard.slot_keys(self.db, slot).is_some_and(|keys| keys > 0)
                && !self.map.is_own(slot)
        };
        if self.at == ScanPosition::START && !(0..SLOTS_LEN).any(is_surplus) {
            self.db += 1;
            return self.enqueue(shared);
        }
        let mut del = OwnedArgs::from_slices(&[b"DEL"]);
        let mut next = Some(self.at);
        for _ in 0..LINES_AT_ONCE {
            let Some(at) = next else { break };
            next = part.shard.scan(self.db, at, |record| {
                if !self.map.is_own(key_slot(record.key())) {
                    del.push(record.key());
                }
            });
        }
        if del.args().len() > 1
            && let Some(entry) = shared.registry.row("del")
        {
            let origin =
                Origin { db: self.db, acl_version: shared.acl.version(), ..Origin::nobody(local.thread) };
            exec::run_granted(local, grant, origin, entry, del.args(), &mut Vec::new());
        }
        match next {
            Some(at) => self.at = at,
            None => (self.db, self.at) = (self.db + 1, ScanPosition::START),
        }
        self.enqueue(shared);
    }
}
