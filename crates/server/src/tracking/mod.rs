//! Caches on the client's side (CLIENT TRACKING): who has read which key, and telling them when it changes.
//!
//! The executor calls it with shards held: before a read of a tracking client, and after changes. What a client is
//! told goes by mail through its own thread, which alone knows how it wants to be told.

mod direct_push;
mod message;
mod numbers;
mod table;

pub use direct_push::{DirectPush, ToldClient};
pub use message::{Invalidation, deliver, redirected};
pub use table::TrackingTable;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::{Flags, Marks};
use darter_reactor::Token;
use darter_store::Key;
use darter_store::change::{Change, Class};
use darter_txn::{Reader, Readers};
use darter_wire::{Args, Reply};

use crate::engine::origin::ChangedBy;
use crate::job::Shards;
use crate::registry::CommandEntry;
use crate::session::{Gate, Session};
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// How a connection tracks.
#[derive(Clone, Debug, Default)]
pub struct ClientTracking {
    /// Its number in the tables of the shards.
    pub reader: Reader,
    /// The client that gets the messages; none is itself.
    pub redirect: Option<u64>,
    /// What it tracks without being asked.
    pub mode: TrackingMode,
    /// Its own changes are not told.
    pub noloop: bool,
    /// What CLIENT CACHING asked for.
    pub caching: Caching,
    /// The client that is to get the messages has gone.
    pub is_broken: bool,
    /// In broadcast mode: beginnings of the keys it wants to hear of.
    pub prefixes: Vec<Box<[u8]>>,
    /// Bytes of the prefixes, here and in the table.
    pub prefix_bytes: usize,
}

/// Which keys a client hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TrackingMode {
    /// Those it has read.
    #[default]
    All,
    /// Those it has read right after CLIENT CACHING YES.
    OptIn,
    /// Those it has read, but not right after CLIENT CACHING NO.
    OptOut,
    /// Those with its prefixes, read or not.
    Broadcast,
}

/// For which commands CLIENT CACHING YES or NO holds. A command that waits for its shards still finds the state in
/// which it began: only the next command changes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Caching {
    /// For none.
    #[default]
    Unasked,
    /// For the next command that is not one of CLIENT.
    Next,
    /// For the command that runs now, up to EXEC inside MULTI.
    Now,
}

impl Caching {
    /// Whether CLIENT CACHING holds for the command that runs now.
    pub fn holds(self) -> bool {
        self != Caching::Unasked
    }
}

impl ClientTracking {
    /// Whether the keys of the command that runs now are remembered.
    fn remembers(&self) -> bool {
        match self.mode {
            TrackingMode::All => true,
            TrackingMode::OptIn => self.caching.holds(),
            TrackingMode::OptOut => !self.caching.holds(),
            TrackingMode::Broadcast => false,
        }
    }

    /// Notes that a command begins outside MULTI.
    pub fn begin_command(&mut self, entry: &CommandEntry) {
        let is_client = entry.spec.has(Marks::KEEPS_CACHING);
        self.caching = match (self.caching, is_client) {
            (Caching::Next, true) => Caching::Next,
            (Caching::Next, false) => Caching::Now,
            (Caching::Now | Caching::Unasked, _) => Caching::Unasked,
        };
    }
}

/// A client that tracks, as other threads see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tracker {
    /// Its thread.
    pub thread: u16,
    /// Its connection there.
    pub token: Token,
    /// Its id.
    pub client: u64,
    /// Its number in the tables of the shards.
    pub reader: Reader,
    /// The client that gets its messages; none is itself.
    pub redirect: Option<u64>,
    /// Its own changes are not told.
    pub noloop: bool,
    /// It hears of prefixes, not of what it has read.
    pub is_broadcast: bool,
    /// The way to it past its thread.
    pub direct_push: Arc<DirectPush>,
}

/// As whom the client of `session` is remembered with the keys of `entry`, run now; `None`: it is not.
#[inline]
pub fn reader_of(session: &Session, entry: &CommandEntry) -> Option<Reader> {
    let own = session.tracking.as_ref().filter(|own| own.remembers())?;
    entry.spec.flags.any(Flags::READONLY).then_some(own.reader)
}

/// Remembers that `reader` reads the keys of a command. Their shards are in `grant`, so that no change comes between
/// this and the read.
pub fn remember(
    local: &ThreadState,
    grant: &mut Shards,
    reader: Reader,
    entry: &CommandEntry,
    args: Args<'_>,
) {
    let router = &local.shared.router;
    entry.spec.each_key(args, &mut |at| {
        let key = router.key(args.at(at));
        // Without its shard there will be no read.
        if let Some(part) = grant.get_mut(router.shard_of(key.hash)) {
            remember_key(local, &mut part.readers, reader, key);
        }
    });
}

/// As [`remember`], for one key, whose shard has the table `readers`. Cost: some 20 ns where the key is known.
#[inline(always)]
pub fn remember_key(local: &ThreadState, readers: &mut Readers, reader: Reader, key: Key<'_>) {
    if !readers.note(key, reader) {
        add(local, readers, reader, key);
    }
}

/// Remembers a key that is new, or all that is not plain. With too many keys another one of the shard is given up; the
/// key itself stays, as its value is on its way to the client.
#[inline(never)]
fn add(local: &ThreadState, readers: &mut Readers, reader: Reader, key: Key<'_>) {
    let table = &local.shared.tracking;
    if readers.add(key, reader)
        && table.count_in(local.live.tracking_table_max_keys)
        && let Some((other, gone)) = readers.give_up(Some(key.bytes))
    {
        table.count_out(1);
        tell(local.shared, &gone, &other, ChangedBy::SERVER);
    }
}

/// Tells all who have read a key, or want to hear of its prefix, that it has changed. Called with the shards of the
/// keys in `grant`; `by` made the changes.
pub fn invalidate(local: &ThreadState, grant: &mut Shards, changes: &[Change], by: ChangedBy) {
    let table = &local.shared.tracking;
    if !table.is_in_use() {
        return;
    }
    // What expires or is evicted is nobody's own change, whoever met it.
    let is_loss = |change: &Change| change.event.class.0 & (Class::EXPIRED.0 | Class::EVICTED.0) != 0;
    invalidate_by(local, grant, changes.iter().filter(|change| !is_loss(change)), by);
    invalidate_by(local, grant, changes.iter().filter(|change| is_loss(change)), ChangedBy::SERVER);
}

fn invalidate_by<'a>(
    local: &ThreadState,
    grant: &mut Shards,
    changes: impl Iterator<Item = &'a Change>,
    by: ChangedBy,
) {
    let (table, router) = (&local.shared.tracking, &local.shared.router);
    let mut keys: Vec<&[u8]> = Vec::new();
    let is_change =
        |change: &&Change| change.event.class != Class::KEY_MISS && change.event.class != Class::NEW;
    for change in changes.filter(is_change) {
        if keys.last() != Some(&&*change.key) {
            keys.push(&change.key);
        }
    }
    if keys.is_empty() {
        return;
    }
    for key in &keys {
        if table.keys_len() == 0 {
            break;
        }
        let key_hashed = router.key(key);
        let part = grant.get_mut(router.shard_of(key_hashed.hash));
        let readers = part.map_or(Vec::new(), |part| part.readers.forget(key_hashed));
        if !readers.is_empty() {
            table.count_out(1);
            tell(local.shared, &readers, key, by);
        }
    }
    for hit in table.prefixed(&keys) {
        send(local.shared, &hit.trackers, &array_of(&hit.keys), by);
    }
}

/// Looks after the table of one shard, a stretch at a time: gives keys up while all tables together hold more than
/// `tracking-table-max-keys`, and forgets clients that have gone. `swept` is the last round of sweeping that this shard
/// is through with. Returns whether there is more to sweep.
pub fn keep(local: &ThreadState, readers: &mut Readers, swept: &mut u64) -> bool {
    let (table, keys_max) = (&local.shared.tracking, local.live.tracking_table_max_keys);
    if keys_max > 0 {
        for _ in 0..KEYS_GIVEN_UP_MAX {
            let is_over = table.keys_len() as u64 > keys_max;
            let Some((key, gone)) = is_over.then(|| readers.give_up(None)).flatten() else { break };
            table.count_out(1);
            tell(local.shared, &gone, &key, ChangedBy::SERVER);
        }
    }
    if let Some((round, gone)) = table.numbers.sweep().filter(|(round, _)| round != swept) {
        let stretch = readers.sweep(round, &gone, PLACES_SWEPT_MAX);
        table.count_out(stretch.keys);
        if stretch.is_done {
            *swept = round;
            table.numbers.end_shard();
        }
        return !stretch.is_done;
    }
    false
}

/// Begins to forget clients that have gone, when they are enough.
pub fn begin_sweep(shared: &Shared) {
    let table = &shared.tracking;
    table.numbers.begin_sweep(shared.cells.len(), !table.is_any());
}

/// Keys of a shard given up in one round of housekeeping.
const KEYS_GIVEN_UP_MAX: usize = 1000;
/// Places looked at in one visit of housekeeping to a shard.
const PLACES_SWEPT_MAX: usize = 8192;

/// Tells all tracking clients that every key may have changed; all shards are in `grant`.
pub fn invalidate_all(local: &ThreadState, grant: &mut Shards) {
    let table = &local.shared.tracking;
    if table.is_in_use() {
        let keys = grant.iter_mut().map(|part| part.readers.clear()).sum();
        table.count_out(keys);
        send(local.shared, &table.all_trackers(), &[], ChangedBy::SERVER);
    }
}

fn tell(shared: &Shared, readers: &[Reader], key: &[u8], by: ChangedBy) {
    let mut trackers = shared.tracking.trackers(readers);
    trackers.retain(|tracker| !tracker.is_broadcast);
    send(shared, &trackers, &array_of(&[key]), by);
}

/// Tells `trackers` that `keys`, an array of strings, have changed; nothing means all keys. Who is to be told by another
/// client is told there at once: the message must be on its way before the writer is answered.
fn send(shared: &Shared, trackers: &[Tracker], keys: &[u8], by: ChangedBy) {
    let keys: Arc<[u8]> = keys.into();
    for tracker in trackers.iter().filter(|tracker| !(tracker.noloop && ChangedBy(tracker.client) == by)) {
        let other = tracker.redirect.and_then(|id| lock(&shared.clients).get(&id).cloned());
        match other {
            Some(info) => {
                let mail =
                    ThreadMessage::Redirected { token: info.token, client: info.id, keys: keys.clone() };
                shared.handle(info.thread).send(mail);
            }
            None => tell_itself(shared, tracker, &keys),
        }
    }
}

/// Tells a client that gets its messages itself, or whose other one has gone: at once where nothing is in between.
fn tell_itself(shared: &Shared, tracker: &Tracker, keys: &Arc<[u8]>) {
    let handle = shared.handle(tracker.thread);
    // What is not committed yet is held back with all other output.
    let is_held = shared.group.as_ref().is_some_and(|group| group.commit.is_on());
    let goes_directly = tracker.redirect.is_none() && !is_held;
    let told = if goes_directly { tracker.direct_push.tell(handle, keys) } else { ToldClient::NotNow };
    match told {
        ToldClient::Sent => {}
        // There is nothing to add to what it finds with the client.
        ToldClient::InPart => {
            let (token, client) = (tracker.token, tracker.client);
            handle.send(ThreadMessage::Push { token, client, bytes: Arc::default() });
        }
        ToldClient::NotNow => {
            let message = Invalidation { to: tracker.clone(), keys: keys.clone() };
            handle.send(ThreadMessage::Invalidate(Box::new(message)));
        }
    }
}

/// Keys as an array of strings.
fn array_of(keys: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, false);
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    out
}

/// Starts tracking, or changes how.
pub fn begin(local: &mut ThreadState, session: &mut Session, token: Token, wanted: ClientTracking) {
    end(local, session);
    let numbers = &local.shared.tracking.numbers;
    let reader = *session.reader.get_or_insert_with(|| numbers.take());
    let (redirect, noloop) = (wanted.redirect, wanted.noloop);
    if let Some(listener) = redirect.and_then(|id| lock(&local.shared.clients).get(&id).cloned()) {
        listener.is_redirected_to.store(true, Relaxed);
    }
    let is_broadcast = wanted.mode == TrackingMode::Broadcast;
    let (thread, client) = (local.thread, session.id);
    let direct_push = session.direct_push.get_or_insert_default().clone();
    let tracker = Tracker { thread, token, client, reader, redirect, noloop, is_broadcast, direct_push };
    local.shared.tracking.add(tracker, &wanted.prefixes);
    session.gate.set(Gate::TRACKING, wanted.mode != TrackingMode::Broadcast);
    session.tracking = Some(Box::new(ClientTracking { reader, ..wanted }));
    crate::pubsub::listen(local);
}

/// Ends tracking. The keys it has read are forgotten when they change, unless it tracks again before.
pub fn end(local: &ThreadState, session: &mut Session) {
    if let Some(own) = session.tracking.take() {
        if let Some(direct_push) = &session.direct_push {
            direct_push.close();
        }
        local.shared.tracking.remove(own.reader, session.id, &own.prefixes);
        session.gate.set(Gate::TRACKING, false);
    }
}

/// Ends tracking for a client that leaves.
pub fn leave(local: &ThreadState, session: &mut Session) {
    end(local, session);
    if let Some(direct_push) = session.direct_push.take() {
        direct_push.shut();
    }
    if let Some(reader) = session.reader.take() {
        local.shared.tracking.numbers.give_back(reader);
    }
}

#[cfg(test)]
mod tests;
