//! Caches on the client's side (CLIENT TRACKING): who has read which key, and telling them when it changes.
//!
//! The executor calls it with shards held: before a read of a tracking client, and after changes. What a client is
//! told goes by mail through its own thread, which alone knows how it wants to be told.

mod message;
mod readers;
mod table;

pub use message::{Invalidation, deliver, redirected};
pub use table::Table;

use std::sync::Arc;

use darter_command::Flags;
use darter_reactor::Token;
use darter_store::Key;
use darter_store::change::{Change, Class};
use darter_wire::{Args, Reply};

use crate::core::Core;
use crate::registry::Entry;
use crate::session::{Gate, Session};
use crate::shared::{Mail, Shared};
use crate::worker::lock;
use readers::Reader;

/// How a connection tracks.
#[derive(Clone, Debug, Default)]
pub struct Tracking {
    /// The client that gets the messages; none is itself.
    pub redirect: Option<u64>,
    /// What it tracks without being asked.
    pub mode: Mode,
    /// Its own changes are not told.
    pub noloop: bool,
    /// CLIENT CACHING came before this command.
    pub caching: bool,
    /// The client that is to get the messages has gone.
    pub is_broken: bool,
    /// In broadcast mode: beginnings of the keys it wants to hear of.
    pub prefixes: Vec<Box<[u8]>>,
    /// Bytes of the prefixes, here and in the table.
    pub prefix_bytes: usize,
}

/// Which keys a client hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
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

impl Tracking {
    /// Whether the keys of the command that runs now are to be remembered.
    fn remembers(&self) -> bool {
        match self.mode {
            Mode::All => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        }
    }
}

/// A client that tracks, as other threads see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tracker {
    /// Its thread.
    pub thread: u16,
    /// Its connection there.
    pub token: Token,
    /// Its id.
    pub client: u64,
    /// The client that gets its messages; none is itself.
    pub redirect: Option<u64>,
    /// Its own changes are not told.
    pub noloop: bool,
    /// It hears of prefixes, not of what it has read.
    pub is_broadcast: bool,
}

/// Whether the keys of `entry`, run now by the client of `session`, are to be remembered.
pub fn applies(session: &Session, entry: &Entry) -> bool {
    entry.spec.flags.any(Flags::READONLY) && session.tracking.as_ref().is_some_and(|own| own.remembers())
}

/// Remembers that `client` reads the keys of a command. The shards of the keys are held, so that no change comes
/// between this and the read.
pub fn remember(core: &Core, client: u64, entry: &Entry, args: Args<'_>) {
    let router = &core.shared.router;
    entry.spec.each_key(args, &mut |at| remember_key(core, client, router.key(args.at(at))));
}

/// As [`remember`], for one key.
#[inline]
pub fn remember_key(core: &Core, client: u64, key: Key<'_>) {
    let keys_max = core.live.tracking_table_max_keys;
    for (key, gone) in core.shared.tracking.remember(key, client as Reader, keys_max) {
        tell(core.shared, &gone, &key, 0);
    }
}

/// Tells all who have read a key, or want to hear of its prefix, that it has changed. Called with the shards held;
/// the client that made the changes is `core.writer`.
pub fn invalidate(core: &Core, changes: &[Change]) {
    let table = &core.shared.tracking;
    if !table.is_in_use() {
        return;
    }
    // What expires or is evicted is nobody's own change, whoever met it.
    let is_loss = |change: &Change| change.event.class.0 & (Class::EXPIRED.0 | Class::EVICTED.0) != 0;
    invalidate_by(core, changes.iter().filter(|change| !is_loss(change)), core.writer);
    invalidate_by(core, changes.iter().filter(|change| is_loss(change)), 0);
}

fn invalidate_by<'a>(core: &Core, changes: impl Iterator<Item = &'a Change>, writer: u64) {
    let table = &core.shared.tracking;
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
        let readers = table.forget(key);
        if !readers.is_empty() {
            tell(core.shared, &readers, key, writer);
        }
    }
    for hit in table.prefixed(&keys) {
        send(core.shared, &hit.trackers, &array_of(&hit.keys), writer);
    }
}

/// Gives keys up while the table is larger than `tracking-table-max-keys`, some at a time.
pub fn keep_limit(core: &Core) {
    let (table, keys_max) = (&core.shared.tracking, core.live.tracking_table_max_keys);
    for _ in 0..KEYS_GIVEN_UP_MAX {
        let Some((key, readers)) = table.give_up(keys_max, None) else { return };
        tell(core.shared, &readers, &key, 0);
    }
}

/// Keys given up in one round of housekeeping.
const KEYS_GIVEN_UP_MAX: usize = 1000;

/// Tells all tracking clients that every key may have changed.
pub fn invalidate_all(core: &Core) {
    let table = &core.shared.tracking;
    if table.is_in_use() {
        let trackers = table.forget_all();
        send(core.shared, &trackers, &[], 0);
    }
}

fn tell(shared: &Shared, readers: &[Reader], key: &[u8], writer: u64) {
    let mut trackers = shared.tracking.trackers(readers);
    trackers.retain(|tracker| !tracker.is_broadcast);
    send(shared, &trackers, &array_of(&[key]), writer);
}

/// Tells `trackers` that `keys`, an array of strings, have changed; nothing means all keys. Who is to be told by another
/// client is told there at once: the message must be on its way before the writer is answered.
fn send(shared: &Shared, trackers: &[Tracker], keys: &[u8], writer: u64) {
    let keys: Arc<[u8]> = keys.into();
    for tracker in trackers.iter().filter(|tracker| !(tracker.noloop && tracker.client == writer)) {
        let other = tracker.redirect.and_then(|id| lock(&shared.clients).get(&id).cloned());
        match other {
            Some(card) => {
                let mail = Mail::Redirected { token: card.token, client: card.id, keys: keys.clone() };
                shared.door(card.thread).send(mail);
            }
            None => {
                let message = Invalidation { to: *tracker, keys: keys.clone() };
                shared.door(tracker.thread).send(Mail::Invalidate(Box::new(message)));
            }
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
pub fn begin(core: &mut Core, session: &mut Session, token: Token, wanted: Tracking) {
    end(core, session);
    let (redirect, noloop) = (wanted.redirect, wanted.noloop);
    let is_broadcast = wanted.mode == Mode::Broadcast;
    let tracker = Tracker { thread: core.thread, token, client: session.id, redirect, noloop, is_broadcast };
    core.shared.tracking.add(tracker, &wanted.prefixes);
    session.gate.set(Gate::TRACKING, wanted.mode != Mode::Broadcast);
    session.tracking = Some(Box::new(wanted));
    crate::pubsub::listen(core, token);
}

/// Ends tracking. The keys it has read are forgotten when they change.
pub fn end(core: &Core, session: &mut Session) {
    if let Some(own) = session.tracking.take() {
        core.shared.tracking.remove(session.id, &own.prefixes);
        session.gate.set(Gate::TRACKING, false);
    }
}

#[cfg(test)]
mod tests;
