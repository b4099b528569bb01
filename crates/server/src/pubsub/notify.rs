//! Keyspace notifications: changes of keys as messages, as far as `notify-keyspace-events` lets them.

use darter_latch::Grant;
use darter_store::change::{Change, Class, Listeners};
use darter_txn::{LockSet, ShardPart};

use crate::engine::lease;
use crate::engine::origin::Origin;
use crate::job::{Job, JobBody};
use crate::thread_state::ThreadState;
use darter_config::Events;

/// Publishes `changes` to `__keyspace@db__:key` and `__keyevent@db__:event`. Called with their shard held.
#[cold]
pub fn notify(local: &mut ThreadState, changes: &[Change]) {
    local.refresh_settings();
    let on = local.live.notify_keyspace_events;
    if on == Events::NONE || !local.shared.pubsub.hears_keys() {
        return;
    }
    for change in changes {
        let is_hidden = local.shared.router.hidden().hides(&change.key);
        if is_hidden || !on.publishes(class_of(change.event.class)) {
            continue;
        }
        let event = change.event.name.as_bytes();
        let publish = |kind: &str, subject: &[u8], payload: &[u8]| {
            let mut channel = format!("__{kind}@{}__:", change.db).into_bytes();
            channel.extend_from_slice(subject);
            super::publish(local.shared, &channel, payload);
        };
        if on.contains(Events::KEYSPACE) {
            publish("keyspace", &change.key, event);
        }
        if on.contains(Events::KEYEVENT) {
            publish("keyevent", event, &change.key);
        }
    }
}

fn class_of(class: Class) -> Events {
    const PAIRS: [(Class, Events); 12] = [
        (Class::GENERIC, Events::GENERIC),
        (Class::STRING, Events::STRING),
        (Class::LIST, Events::LIST),
        (Class::SET, Events::SET),
        (Class::HASH, Events::HASH),
        (Class::ZSET, Events::ZSET),
        (Class::EXPIRED, Events::EXPIRED),
        (Class::EVICTED, Events::EVICTED),
        (Class::STREAM, Events::STREAM),
        (Class::KEY_MISS, Events::MISS),
        (Class::MODULE, Events::MODULE),
        (Class::NEW, Events::NEW),
    ];
    PAIRS.iter().find(|(own, _)| *own == class).map_or(Events::NONE, |(_, event)| *event)
}

/// Makes every shard keep its changes, or stop it, as `notify-keyspace-events` with those who are subscribed to it, the
/// clients that track keys and the journal want it now; to be called when these have changed.
///
/// A shard that is busy gets a job into its queue. Every command that comes to it later waits behind that job, so the
/// change is in force for all commands that are sent after this returns.
pub fn listen(local: &mut ThreadState) {
    local.refresh_settings();
    for id in 0..local.shared.router.shards_len() {
        let job = Job::new(Origin::nobody(local.thread), JobBody::Listen, LockSet::one(id), Grant::empty());
        if let Some(mut ready) = lease::queue(local.shared, job) {
            let mut grant = std::mem::take(&mut ready.grant);
            grant.iter_mut().for_each(|part| settle(local, part));
            lease::release(local, grant);
        }
    }
}

/// Brings a part that is held in line with the setting.
pub fn settle(local: &mut ThreadState, part: &mut ShardPart) {
    local.refresh_settings();
    let is_on = local.live.notify_keyspace_events != Events::NONE && local.shared.pubsub.hears_keys();
    part.shard.changes.listen(Listeners::NOTIFY, is_on);
    part.shard.changes.listen(Listeners::TRACKING, local.shared.tracking.is_any());
    part.shard.changes.listen(Listeners::JOURNAL, local.shared.journal.is_noting());
    part.shard.changes.listen(Listeners::REPLICAS, local.shared.journal.intake.is_on());
    let leaves_dead = local.shared.replication.leaves_dead(&local.live);
    let keeps_dead = local.shared.replication.keeps_dead();
    let was_writable = part.own_deadlines.is_some() && !keeps_dead;
    if was_writable || part.shard.keeps_dead() && !leaves_dead {
        // No sweep has come while this server followed another.
        part.shard.distrust_bounds(local.now_ms);
    }
    if keeps_dead && !leaves_dead {
        part.own_deadlines.get_or_insert_default();
    } else {
        part.own_deadlines = None;
    }
    part.shard.keep_dead(leaves_dead);
}
