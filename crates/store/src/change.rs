//! What a command did to which key, for those who asked to know.
//!
//! Every mutation reports one [`Event`]. With nobody listening that costs a counter and a branch;
//! otherwise the shard keeps the change until the command ends, and the executor passes it to
//! watchers, blocked clients, client caches and notifications before the shard is let go.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next change that is kept.
static ORDER: AtomicU64 = AtomicU64::new(0);

/// The class letter of a keyspace event, one bit each, as in `notify-keyspace-events`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(pub u32);

impl Class {
    /// `g`: commands that are not about one type.
    pub const GENERIC: Class = Class(1 << 0);
    /// `$`: strings.
    pub const STRING: Class = Class(1 << 1);
    /// `l`: lists.
    pub const LIST: Class = Class(1 << 2);
    /// `s`: sets.
    pub const SET: Class = Class(1 << 3);
    /// `h`: hashes.
    pub const HASH: Class = Class(1 << 4);
    /// `z`: sorted sets.
    pub const ZSET: Class = Class(1 << 5);
    /// `x`: expired keys.
    pub const EXPIRED: Class = Class(1 << 6);
    /// `e`: evicted keys.
    pub const EVICTED: Class = Class(1 << 7);
    /// `t`: streams.
    pub const STREAM: Class = Class(1 << 8);
    /// `m`: misses on reads.
    pub const KEY_MISS: Class = Class(1 << 9);
    /// `d`: module types.
    pub const MODULE: Class = Class(1 << 10);
    /// `n`: keys that are new.
    pub const NEW: Class = Class(1 << 11);
}

/// An event: its class and the name Redis publishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Which letter of `notify-keyspace-events` lets it through.
    pub class: Class,
    /// The published name, such as `set` or `expire`.
    pub name: &'static str,
}

impl Event {
    /// An event of `class` called `name`.
    pub const fn new(class: Class, name: &'static str) -> Event {
        Event { class, name }
    }

    /// A key's time was up.
    pub const EXPIRED: Event = Event::new(Class::EXPIRED, "expired");
    /// A key made room for others.
    pub const EVICTED: Event = Event::new(Class::EVICTED, "evicted");
    /// A key was deleted.
    pub const DEL: Event = Event::new(Class::GENERIC, "del");
    /// A key appeared that was not there.
    pub const NEW: Event = Event::new(Class::NEW, "new");
}

/// One change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Database number.
    pub db: usize,
    /// The key.
    pub key: Box<[u8]>,
    /// What happened.
    pub event: Event,
    /// Later changes have larger numbers, over all shards.
    pub order: u64,
}

/// Who listens to a shard's changes, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Listeners(pub u8);

impl Listeners {
    /// Keyspace notifications are configured.
    pub const NOTIFY: Listeners = Listeners(1);
    /// Some connection watches a key of this shard.
    pub const WATCH: Listeners = Listeners(2);
    /// Some client waits for a key of this shard.
    pub const WAITERS: Listeners = Listeners(4);
    /// Some client caches a key of this shard.
    pub const TRACKING: Listeners = Listeners(8);
    /// Every change is journalled.
    pub const JOURNAL: Listeners = Listeners(16);

    /// Whether any of `other`'s bits is set.
    pub fn any(self, other: Listeners) -> bool {
        self.0 & other.0 != 0
    }

    /// Sets or clears `which`.
    pub fn set(&mut self, which: Listeners, on: bool) {
        if on {
            self.0 |= which.0;
        } else {
            self.0 &= !which.0;
        }
    }
}

/// What the server itself took away: the journal cannot see it in the command that was running.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// Database number.
    pub db: usize,
    /// The key.
    pub key: Box<[u8]>,
    /// Only dead members of its collection went, or all of it with the last of them.
    pub is_members: bool,
}

/// The changes of the command that runs, and how many there ever were.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ChangeLog {
    total: u64,
    listeners: Listeners,
    // there is something to pass on; implied by `pending` and `losses`
    is_touched: bool,
    // for the journal: something changed since it last asked
    is_changed: bool,
    pending: Vec<Change>,
    losses: Vec<Loss>,
}

impl ChangeLog {
    /// Bytes from its beginning that a change writes which nobody listens to.
    pub(crate) const HOT_BYTES: usize = std::mem::offset_of!(ChangeLog, pending);

    /// Notes that `event` happened to `key`.
    #[inline]
    pub fn push(&mut self, db: usize, key: &[u8], event: Event) {
        self.total += 1;
        if self.listeners.0 != 0 {
            self.hear(db, key, event);
        }
    }

    #[inline(never)]
    fn hear(&mut self, db: usize, key: &[u8], event: Event) {
        if self.listeners.any(Listeners::JOURNAL) {
            self.is_changed = true;
            self.is_touched = true;
            if event.class.0 & (Class::EXPIRED.0 | Class::EVICTED.0) != 0 {
                self.losses.push(Loss { db, key: key.into(), is_members: false });
            }
        }
        if self.listeners.0 & !Listeners::JOURNAL.0 != 0 {
            self.keep(db, key, event);
        }
    }

    /// Notes that dead members of the collection at `key` were removed, for the journal.
    pub fn lost_members(&mut self, db: usize, key: &[u8]) {
        if self.listeners.any(Listeners::JOURNAL) {
            self.losses.push(Loss { db, key: key.into(), is_members: true });
        }
    }

    /// Notes that `key` was removed by a command that the journal does not write: it writes the removal.
    pub fn push_loss(&mut self, db: usize, key: &[u8], event: Event) {
        self.total += 1;
        if self.listeners.any(Listeners::JOURNAL) {
            self.is_changed = true;
            self.is_touched = true;
            self.losses.push(Loss { db, key: key.into(), is_members: false });
        }
        if self.listeners.0 & !Listeners::JOURNAL.0 != 0 {
            self.keep(db, key, event);
        }
    }

    /// Notes an event that changes nothing a snapshot would hold (a miss, say).
    pub fn push_uncounted(&mut self, db: usize, key: &[u8], event: Event) {
        if self.listeners.0 & !Listeners::JOURNAL.0 != 0 {
            self.keep(db, key, event);
        }
    }

    #[cold]
    fn keep(&mut self, db: usize, key: &[u8], event: Event) {
        // Only what is listened to is numbered, so that shards nobody watches share nothing.
        let order = ORDER.fetch_add(1, Ordering::Relaxed);
        self.pending.push(Change { db, key: key.into(), event, order });
        self.is_touched = true;
    }

    /// Number of changes since start, as `rdb_changes_since_last_save` counts them.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Adds changes that have no key of their own (a flush of `n` keys).
    pub fn count(&mut self, n: u64) {
        self.total += n;
        if self.listeners.any(Listeners::JOURNAL) {
            self.is_changed = true;
            self.is_touched = true;
        }
    }

    /// Whether changes wait to be passed on, be it to the journal alone.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.is_touched
    }

    /// What waits to be passed on.
    pub fn pending(&self) -> &[Change] {
        &self.pending
    }

    /// Takes what waits; what the journal has not asked for yet stays with it.
    pub fn take(&mut self) -> Vec<Change> {
        self.is_touched = false;
        std::mem::take(&mut self.pending)
    }

    /// Whether something changed that the journal has not asked for yet.
    #[inline]
    pub fn is_journalled(&self) -> bool {
        self.is_changed
    }

    /// Whether the journal alone listens and has nothing to hear of but the command itself; takes that.
    #[inline]
    pub fn take_plain(&mut self) -> bool {
        let is_plain = self.is_changed && self.losses.is_empty() && self.pending.is_empty();
        if is_plain {
            self.is_changed = false;
            self.is_touched = false;
        }
        is_plain
    }

    /// Takes what the server itself took away since the journal last asked. With that the journal knows of all changes.
    pub fn take_losses(&mut self) -> Vec<Loss> {
        self.is_changed = false;
        self.is_touched = !self.pending.is_empty();
        std::mem::take(&mut self.losses)
    }

    /// Starts or stops keeping changes for `which`.
    pub fn listen(&mut self, which: Listeners, on: bool) {
        self.listeners.set(which, on);
        if !self.listeners.any(Listeners::JOURNAL) {
            self.is_changed = false;
            self.losses.clear();
        }
    }
}
