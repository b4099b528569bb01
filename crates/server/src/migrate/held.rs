//! What MIGRATE does with its shards held: reading values, and deleting what has been sent.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use darter_command::keys::dump;
use darter_latch::Grant;
use darter_store::Keyed;
use darter_store::change::Listeners;
use darter_txn::LockSet;
use darter_txn::watch::WatchFlag;
use darter_wire::OwnedArgs;

use super::MigrateOrder;
use crate::engine::commit;
use crate::engine::origin::{ChangedBy, Origin};
use crate::exec;
use crate::job::{Job, JobBody, Shards};
use crate::shared::Shared;
use crate::thread_state::ThreadState;

/// A key on its way.
pub struct HeldItem {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its value as DUMP returns it.
    pub payload: Vec<u8>,
    /// Words of RESTORE for what the payload has no place for.
    pub marks: Vec<Vec<u8>>,
    /// Milliseconds it has still to live; 0: for ever.
    pub ttl_ms: u64,
    flag: WatchFlag,
}

/// What became of keys that the other server has.
#[derive(Default)]
pub struct Settled {
    /// They were changed meanwhile: to be sent again.
    pub changed: Vec<HeldItem>,
    /// They were deleted meanwhile.
    pub vanished: Vec<Box<[u8]>>,
    /// This server follows a master by now, whose the keys are: they stay.
    pub is_void: bool,
}

/// Reads the values of those of `names` that are there, and watches them unless they stay anyway. Waits for the shards.
pub fn read(
    shared: &'static Shared,
    order: &Arc<MigrateOrder>,
    names: Vec<Box<[u8]>>,
) -> Option<Vec<HeldItem>> {
    let known = order.clone();
    let wanted = locks(shared, names.iter());
    hold(shared, order, wanted, move |local, grant| {
        names.into_iter().filter_map(|name| look(local, grant, &known, name)).collect()
    })
}

/// Deletes those of `items` that are as they were sent. Waits for the shards.
pub fn settle(shared: &'static Shared, order: &Arc<MigrateOrder>, items: Vec<HeldItem>) -> Option<Settled> {
    if items.is_empty() {
        return None;
    }
    let known = order.clone();
    let wanted = locks(shared, items.iter().map(|item| &item.name));
    hold(shared, order, wanted, move |local, grant| settle_held(local, grant, &known, items))
}

/// Answers no more for keys that were deleted here and there. Waits for the shards.
pub fn let_go(shared: &'static Shared, order: &Arc<MigrateOrder>, names: Vec<Box<[u8]>>) {
    if names.is_empty() || !order.is_node {
        return;
    }
    let known = order.clone();
    let wanted = locks(shared, names.iter());
    hold(shared, order, wanted, move |local, _| {
        names.iter().for_each(|name| local.shared.migrations.end_custody(&known, name));
    });
}

/// Watches `items` no more: they stay. Waits for the shards.
pub fn forget(shared: &'static Shared, order: &Arc<MigrateOrder>, items: Vec<HeldItem>) {
    if items.is_empty() || order.copies {
        return;
    }
    let known = order.clone();
    let wanted = locks(shared, items.iter().map(|item| &item.name));
    hold(shared, order, wanted, move |local, grant| {
        items.iter().for_each(|item| unwatch(local, grant, &known, item));
    });
}

fn settle_held(
    local: &mut ThreadState,
    grant: &mut Shards,
    order: &MigrateOrder,
    items: Vec<HeldItem>,
) -> Settled {
    let router = &local.shared.router;
    for item in &items {
        let key = router.key(&item.name);
        if let Some(part) = grant.get_mut(router.shard_of(key.hash)) {
            // Those whose time is up go now, and are told of.
            Keyed::find(&mut part.shard, order.db, key, local.now_ms);
        }
    }
    commit::changes(local, grant, ChangedBy::SERVER);
    let mut settled = Settled::default();
    if local.shared.replication.is_replica() {
        items.iter().for_each(|item| unwatch(local, grant, order, item));
        return Settled { is_void: true, ..settled };
    }
    let mut del = OwnedArgs::from_slices(&[b"DEL"]);
    for item in items {
        unwatch(local, grant, order, &item);
        if !item.flag.is_dirty() {
            del.push(&item.name);
            continue;
        }
        let name = item.name.clone();
        match look(local, grant, order, item.name) {
            Some(item) => settled.changed.push(item),
            None => {
                // Its copy is there still: until that is deleted, a key of this name is made here.
                local.shared.migrations.begin_custody(order, &name);
                settled.vanished.push(name);
            }
        }
    }
    if del.args().len() > 1
        && let Some(entry) = local.shared.registry.row("del")
    {
        let (to, acl_version) = (order.asking, local.shared.acl.version());
        let origin = Origin {
            token: to.token,
            client: to.client,
            db: order.db,
            acl_version,
            ..Origin::nobody(to.thread)
        };
        exec::run_granted(local, grant, origin, entry, del.args(), &mut Vec::new());
    }
    settled
}

fn look(local: &ThreadState, grant: &mut Shards, order: &MigrateOrder, name: Box<[u8]>) -> Option<HeldItem> {
    let router = &local.shared.router;
    let key = router.key(&name);
    let part = grant.get_mut(router.shard_of(key.hash))?;
    let place = Keyed::find(&mut part.shard, order.db, key, local.now_ms);
    let payload = dump::payload(&place)?;
    let marks = dump::marks(&place);
    let ttl_ms = place.deadline_ms().map_or(0, |at| at.saturating_sub(local.now_ms).max(1));
    let flag = WatchFlag::default();
    local.shared.migrations.begin_custody(order, &name);
    if !order.copies {
        part.watches.add(order.db, &name, &flag);
        part.shard.changes.listen(Listeners::WATCH, true);
    }
    Some(HeldItem { name, payload, marks, ttl_ms, flag })
}

fn unwatch(local: &ThreadState, grant: &mut Shards, order: &MigrateOrder, item: &HeldItem) {
    let router = &local.shared.router;
    local.shared.migrations.end_custody(order, &item.name);
    if let Some(part) = grant.get_mut(router.shard_of(router.key(&item.name).hash)) {
        part.watches.remove(order.db, &item.name, &item.flag);
        part.shard.changes.listen(Listeners::WATCH, !part.watches.is_empty());
    }
}

fn locks<'a>(shared: &Shared, names: impl Iterator<Item = &'a Box<[u8]>>) -> LockSet {
    let mut set = LockSet::new();
    names.for_each(|name| set.add(shared.router.shard_of(shared.router.key(name).hash)));
    set.seal();
    set
}

/// Runs `act` with the shards held, on whichever thread that is; `None` when the server ends before.
fn hold<T: Send + 'static>(
    shared: &'static Shared,
    order: &MigrateOrder,
    wanted: LockSet,
    act: impl FnOnce(&mut ThreadState, &mut Shards) -> T + Send + 'static,
) -> Option<T> {
    let (tell, hear) = sync_channel(1);
    let call = move |local: &mut ThreadState, grant: &mut Shards| {
        let _ = tell.send(act(local, grant));
    };
    let body = JobBody::Call(Some(Box::new(call)));
    Job::new(Origin::nobody(order.asking.thread), body, wanted, Grant::empty()).enqueue_from_outside(shared);
    hear.recv().ok()
}
