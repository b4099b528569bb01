//! Commit: what follows the body of a command while its shards are still held.
//!
//! The order is the same for every way in: the journal, then memory, then listeners (WATCH, notifications, clients'
//! caches), then clients that wait, each served as a run of its own with its own origin. Called by every stage that has
//! run a body; nothing else publishes changes. It never takes a shard for a caller.

use darter_latch::{Grant, Held};
use darter_store::change::{Change, Class, Listeners};
use darter_txn::{Router, ShardPart, ShardSet};
use darter_wire::Args;

use crate::lease::{self, Thread};
use crate::plan::set_of;

/// The client that makes a change: it hears nothing of it under NOLOOP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangedBy(pub u64);

impl ChangedBy {
    /// The server itself: expiry, eviction, housekeeping.
    pub const SERVER: ChangedBy = ChangedBy(0);
}

/// A command that has just run; `E` is its row.
#[derive(Clone, Copy)]
pub struct RanCommand<'a, E> {
    /// Which.
    pub entry: E,
    /// With which arguments.
    pub args: Args<'a>,
    /// In which database.
    pub db: usize,
    /// A waiting client's command that looked at this key only, or at all of its keys.
    pub served: Option<Option<&'a [u8]>>,
    /// Its reply.
    pub reply: &'a [u8],
}

/// The listeners of a command: the journal, the limit of memory, subscribers, clients' caches, clients that wait.
pub trait Sinks: Thread {
    /// A command's row.
    type Entry: Copy;

    /// Which key is in which shard.
    fn router(&self) -> &'static Router;

    /// The journal: what a command did, and what the server took away by itself. `None`: the latter alone.
    fn note(&mut self, set: ShardSet<'_>, ran: Option<RanCommand<'_, Self::Entry>>);

    /// The journal: keys of `names` as they are now.
    fn note_values<'k>(
        &mut self,
        grant: &mut Grant<ShardPart, Self::Job>,
        db: usize,
        names: impl Iterator<Item = &'k [u8]>,
    );

    /// Memory: makes room for what the shard has grown by, beyond its quota.
    fn make_room(&mut self, held: &mut Held<ShardPart, Self::Job>);

    /// Memory: the same for all shards of a grant.
    fn make_room_in(&mut self, grant: &mut Grant<ShardPart, Self::Job>);

    /// Subscribers of keyspace events.
    fn publish(&mut self, changes: &[Change]);

    /// Whether clients cache keys.
    fn has_caches(&self) -> bool;

    /// Clients' caches.
    fn invalidate(&mut self, grant: &mut Grant<ShardPart, Self::Job>, changes: &[Change], by: ChangedBy);

    /// Changes with a smaller number have been sent to clients' caches, in the middle of an EXEC or a script.
    fn sent_before(&mut self) -> &mut u64;

    /// Serves the clients that wait for a key.
    fn serve(&mut self, grant: &mut Grant<ShardPart, Self::Job>, db: usize, key: &[u8]);
}

/// Commits a command of `by` that has run over granted shards.
pub fn command<S: Sinks>(
    local: &mut S,
    grant: &mut Grant<ShardPart, S::Job>,
    by: ChangedBy,
    ran: RanCommand<'_, S::Entry>,
) {
    note(local, grant, Some(ran));
    growth(local, grant, by);
}

/// Has the journal note what happened in shards that are held, if it listens to one of them.
pub fn note<S: Sinks>(
    local: &mut S,
    grant: &mut Grant<ShardPart, S::Job>,
    ran: Option<RanCommand<'_, S::Entry>>,
) {
    if grant.iter_mut().any(|held| held.shard.changes.is_journalled()) {
        local.note(set_of(local.router(), grant), ran);
    }
}

/// Commits a command about one key, and releases its shard.
#[inline(never)]
pub fn single<S: Sinks>(
    local: &mut S,
    mut held: Held<ShardPart, S::Job>,
    by: ChangedBy,
    ran: RanCommand<'_, S::Entry>,
) {
    if held.shard.changes.is_journalled() {
        let id = held.id();
        local.note(ShardSet::one(local.router(), id, &mut held), Some(ran));
    }
    if held.shard.is_over_quota() {
        local.make_room(&mut held);
    }
    if !held.shard.changes.has_pending() {
        lease::release_one(local, held);
        return;
    }
    let mut grant = Grant::from(held);
    changes(local, &mut grant, by);
    lease::release(local, grant);
}

/// Commits keys that were changed by a command that Redis lacks: the journal gets their values.
pub fn values<'k, S: Sinks>(
    local: &mut S,
    grant: &mut Grant<ShardPart, S::Job>,
    by: ChangedBy,
    db: usize,
    names: impl Iterator<Item = &'k [u8]>,
) {
    // Before room is made: what is evicted then is noted on its own.
    local.note_values(grant, db, names);
    growth(local, grant, by);
}

/// Makes room for what has grown, and publishes what has changed.
pub fn growth<S: Sinks>(local: &mut S, grant: &mut Grant<ShardPart, S::Job>, by: ChangedBy) {
    local.make_room_in(grant);
    if grant.iter_mut().any(|held| held.shard.changes.has_pending()) {
        changes(local, grant, by);
    }
}

/// Publishes what just changed in shards that are still held. Serving a waiting client may change more, so this repeats
/// until nothing is left.
#[cold]
pub fn changes<S: Sinks>(local: &mut S, grant: &mut Grant<ShardPart, S::Job>, by: ChangedBy) {
    loop {
        note(local, grant, None);
        let mut changes: Vec<Change> = Vec::new();
        for part in grant.iter_mut() {
            if part.shard.changes.has_pending() {
                changes.extend(touch_watches(part));
            }
        }
        if changes.is_empty() {
            *local.sent_before() = 0;
            return;
        }
        // Shards come in the order of their numbers, changes in the order they happened.
        changes.sort_unstable_by_key(|change| change.order);
        local.publish(&changes);
        let before = *local.sent_before();
        let sent = changes.partition_point(|change| change.order < before);
        local.invalidate(grant, changes.get(sent..).unwrap_or_default(), by);
        // Nobody waits for a read that misses, and looking again could miss again without end.
        for change in changes.iter().filter(|change| change.event.class != Class::KEY_MISS) {
            local.serve(grant, change.db, &change.key);
        }
    }
}

/// Sends clients' caches the changes so far of `by`, which has more to do with its shards held: an EXEC, a script, or
/// a client that is served before others. Called before a read of a client that tracks: the value it reads is newer than
/// these changes, and must not be invalidated by them later.
#[cold]
pub fn caches<S: Sinks>(local: &mut S, grant: &mut Grant<ShardPart, S::Job>, by: ChangedBy) {
    if !local.has_caches() {
        return;
    }
    let before = *local.sent_before();
    let mut changes: Vec<Change> = Vec::new();
    for part in grant.iter_mut() {
        let new = part.shard.changes.pending().iter().filter(|change| change.order >= before);
        changes.extend(new.cloned());
    }
    changes.sort_unstable_by_key(|change| change.order);
    if let Some(last) = changes.last() {
        local.invalidate(grant, &changes, by);
        *local.sent_before() = last.order + 1;
    }
}

fn touch_watches(part: &mut ShardPart) -> Vec<Change> {
    let changes = part.shard.changes.take();
    // A read that misses is published, but it changes nothing.
    for change in changes.iter().filter(|change| change.event.class != Class::KEY_MISS) {
        part.watches.touch(change.db, &change.key);
        for leaving in &part.leaving {
            leaving.touch(change.db, &change.key, change.order);
        }
    }
    if part.watches.is_empty() {
        part.shard.changes.listen(Listeners::WATCH, false);
    }
    changes
}

#[cfg(test)]
mod tests {
    use darter_store::change::Event;
    use darter_txn::LockSet;
    use darter_txn::watch::WatchFlag;
    use darter_wire::OwnedArgs;

    use super::*;
    use crate::testing::{Engine, cells};

    const SET: Event = Event::new(Class::STRING, "set");

    fn engine() -> (Engine, Grant<ShardPart, crate::testing::Task>) {
        let engine = Engine::new(cells(2));
        let mut grant = lease::take(&engine, &LockSet::all(2)).unwrap_or_else(|_| panic!("free"));
        for held in grant.iter_mut() {
            held.shard.changes.listen(Listeners::JOURNAL, true);
            held.shard.changes.listen(Listeners::NOTIFY, true);
        }
        (engine, grant)
    }

    fn change(grant: &mut Grant<ShardPart, crate::testing::Task>, id: u16, key: &str) {
        let part = grant.get_mut(id).expect("it is held");
        part.shard.changes.push(0, key.as_bytes(), SET);
    }

    fn commit(engine: &mut Engine, grant: &mut Grant<ShardPart, crate::testing::Task>) {
        let args = OwnedArgs::from_slices(&[b"mset"]);
        let ran = RanCommand { entry: "mset", args: args.args(), db: 0, served: None, reply: b"+OK\r\n" };
        command(engine, grant, ChangedBy(7), ran);
    }

    #[test]
    fn the_journal_comes_first_and_waiting_clients_last() {
        let (mut engine, mut grant) = engine();
        // In the order they happened, not in that of the shards.
        change(&mut grant, 1, "b");
        change(&mut grant, 0, "a");
        commit(&mut engine, &mut grant);
        let order = ["journal mset", "room", "publish b a", "invalidate b a by 7", "serve b", "serve a"];
        assert_eq!(engine.log, order);
        engine.log.clear();
        commit(&mut engine, &mut grant);
        assert_eq!(engine.log, ["room"], "nothing has changed");
        lease::release(&mut engine, grant);
    }

    #[test]
    fn what_a_served_client_changes_is_committed_before_the_shards_are_released() {
        let (mut engine, mut grant) = engine();
        engine.serves = vec![("a", 1, "served")];
        change(&mut grant, 0, "a");
        commit(&mut engine, &mut grant);
        let order = [
            "journal mset",
            "room",
            "publish a",
            "invalidate a by 7",
            "serve a",
            "journal -",
            "publish served",
            "invalidate served by 7",
            "serve served",
        ];
        assert_eq!(engine.log, order);
        lease::release(&mut engine, grant);
    }

    #[test]
    fn watched_keys_are_touched_and_a_miss_touches_and_serves_nobody() {
        let (mut engine, mut grant) = engine();
        let flag = WatchFlag::default();
        let part = grant.get_mut(0).expect("it is held");
        part.watches.add(0, b"a", &flag);
        part.shard.changes.push_uncounted(0, b"a", Event::new(Class::KEY_MISS, "keymiss"));
        growth(&mut engine, &mut grant, ChangedBy::SERVER);
        assert!(!flag.is_dirty());
        assert_eq!(engine.log, ["room", "publish a", "invalidate a by 0"]);
        change(&mut grant, 0, "a");
        growth(&mut engine, &mut grant, ChangedBy::SERVER);
        assert!(flag.is_dirty());
        lease::release(&mut engine, grant);
    }

    #[test]
    fn caches_hear_of_a_change_once_though_its_script_goes_on() {
        let (mut engine, mut grant) = engine();
        change(&mut grant, 0, "a");
        caches(&mut engine, &mut grant, ChangedBy(7));
        change(&mut grant, 0, "b");
        changes(&mut engine, &mut grant, ChangedBy(7));
        let caches = engine.log.iter().filter(|line| line.starts_with("invalidate")).collect::<Vec<_>>();
        assert_eq!(caches, ["invalidate a by 7", "invalidate b by 7"]);
        assert!(engine.log.iter().any(|line| line == "publish a b"), "subscribers hear of both, at the end");
        lease::release(&mut engine, grant);
    }
}
