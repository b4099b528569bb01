//! The log of changes to keys, for those that listen.
//!
//! Every mutation reports one [`Event`]. Without listeners this costs a counter and a branch. Otherwise the shard
//! keeps the change until the command ends. The executor then passes it to watchers, blocked clients, client caches
//! and notifications before it releases the shard.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of the next change that is kept.
static ORDER: AtomicU64 = AtomicU64::new(0);

/// The number of the next change that is kept: those until now have smaller ones.
pub fn next_order() -> u64 {
    ORDER.load(Ordering::Relaxed)
}

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
    /// The letter of `notify-keyspace-events` that enables it.
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
    /// A key was created.
    pub const NEW: Event = Event::new(Class::NEW, "new");
}

/// One change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Database number.
    pub db: usize,
    /// The key.
    pub key: Box<[u8]>,
    /// The event.
    pub event: Event,
    /// Later changes have larger numbers, over all shards.
    pub order: u64,
}

/// The listeners to a shard's changes, one bit each.
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
    /// The journal's records go to replicas too.
    pub const REPLICAS: Listeners = Listeners(32);

    /// Keys of the shard are on their way to another node, and what commands do to them follows.
    pub const LEAVING: Listeners = Listeners(64);

    /// Those that want to know what commands have done, as the journal does.
    const EFFECTS: Listeners = Listeners(Self::JOURNAL.0 | Self::LEAVING.0);
    /// Those that want it in words that do the same at any time, elsewhere too.
    const PLAIN: Listeners = Listeners(Self::REPLICAS.0 | Self::LEAVING.0);
    /// Those that are told of each change by the command that ran, and need no list of changes.
    const BY_COMMAND: Listeners = Listeners(Self::JOURNAL.0 | Self::REPLICAS.0);

    /// Returns true if any of `other`'s bits is set.
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

/// What the journal writes beside the command that runs, or in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalNote {
    /// Database number.
    pub db: usize,
    /// The key.
    pub key: Box<[u8]>,
    /// What happened to it.
    pub what: Noted,
}

/// What happened to the key of a [`JournalNote`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Noted {
    /// The server removed it by itself: the command that ran does not say so.
    Lost(Loss),
    /// The server removed dead members of it by itself, or all of it with the last of them.
    LostMembers,
    /// The command removed it: this is written in the command's place.
    Removed,
    /// The command did what these words do at any time: they are written in the command's place.
    Said(JournalWords, Vocabulary),
}

/// Why a key has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Its time was up.
    Expired,
    /// It made room for others.
    Evicted,
    /// Somebody removed it, here or by moving it to another server.
    Removed,
}

impl Loss {
    /// What listeners are told.
    pub fn event(self) -> Event {
        match self {
            Loss::Expired => Event::EXPIRED,
            Loss::Evicted => Event::EVICTED,
            Loss::Removed => Event::DEL,
        }
    }
}

impl Noted {
    /// Whether it is written in the place of the command that ran.
    pub fn replaces_command(&self) -> bool {
        matches!(self, Noted::Removed | Noted::Said(..))
    }
}

/// The readers of the journal's records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JournalReaders {
    /// Nobody: there is no journal.
    None,
    /// This server alone, with the clock that a record has.
    Files,
    /// Replicas of any version since Redis 7.0 too, whose clocks differ.
    Replicas,
}

/// Which servers know the words of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vocabulary {
    /// Redis 7.0 and later: replicas get the words.
    Old,
    /// Some later server: replicas get the value that the command has left.
    New,
}

/// The words of a command, one behind the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalWords {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl JournalWords {
    /// Appends a word.
    pub fn push(&mut self, word: &[u8]) {
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len());
    }

    /// Number of words.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no word.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The words in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| self.bytes.get(*start..*end).unwrap_or_default())
    }
}

impl<'a> FromIterator<&'a [u8]> for JournalWords {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(words: I) -> JournalWords {
        let mut all = JournalWords::default();
        words.into_iter().for_each(|word| all.push(word));
        all
    }
}

/// The changes of the command that runs, and how many there ever were.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ChangeLog {
    total: u64,
    listeners: Listeners,
    // there are changes to pass on; implied by `pending` and `notes`
    is_touched: bool,
    // for the journal: something changed since it last asked
    is_changed: bool,
    pending: Vec<Change>,
    notes: Vec<JournalNote>,
}

impl ChangeLog {
    /// Bytes from its beginning that a change without listeners writes.
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
        if self.listeners.any(Listeners::EFFECTS) {
            self.is_changed = true;
            self.is_touched = true;
            if event.class.0 & Class::EXPIRED.0 != 0 {
                self.note(db, key, Noted::Lost(Loss::Expired));
            } else if event.class.0 & Class::EVICTED.0 != 0 {
                self.note(db, key, Noted::Lost(Loss::Evicted));
            }
        }
        if self.listeners.0 & !Listeners::BY_COMMAND.0 != 0 {
            self.keep(db, key, event);
        }
    }

    /// Notes that dead members of the collection at `key` were removed, for the journal.
    pub fn lost_members(&mut self, db: usize, key: &[u8]) {
        if self.listeners.any(Listeners::EFFECTS) {
            self.note(db, key, Noted::LostMembers);
        }
    }

    fn note(&mut self, db: usize, key: &[u8], what: Noted) {
        self.notes.push(JournalNote { db, key: key.into(), what });
    }

    /// Returns the readers of the journal. A body asks before it makes words for [`ChangeLog::say`].
    #[inline]
    pub fn journal_readers(&self) -> JournalReaders {
        match self.listeners {
            listeners if !listeners.any(Listeners::EFFECTS) => JournalReaders::None,
            listeners if listeners.any(Listeners::PLAIN) => JournalReaders::Replicas,
            _ => JournalReaders::Files,
        }
    }

    /// Has the journal write `what` of `key` in the place of the command that runs, if it has reported a change.
    #[cold]
    pub fn say(&mut self, db: usize, key: &[u8], what: Noted) {
        if self.is_changed {
            self.note(db, key, what);
        }
    }

    /// Notes that `key` was removed by a command that the journal does not write: it writes the removal.
    pub fn push_loss(&mut self, db: usize, key: &[u8], event: Event) {
        self.total += 1;
        if self.listeners.any(Listeners::EFFECTS) {
            self.is_changed = true;
            self.is_touched = true;
            self.note(db, key, Noted::Lost(Loss::Removed));
        }
        if self.listeners.0 & !Listeners::BY_COMMAND.0 != 0 {
            self.keep(db, key, event);
        }
    }

    /// Notes an event that changes nothing a snapshot would hold (a miss, say).
    pub fn push_uncounted(&mut self, db: usize, key: &[u8], event: Event) {
        if self.listeners.0 & !Listeners::BY_COMMAND.0 != 0 {
            self.keep(db, key, event);
        }
    }

    #[cold]
    fn keep(&mut self, db: usize, key: &[u8], event: Event) {
        // Only changes with listeners are numbered, so that shards without listeners share no counter.
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
        if self.listeners.any(Listeners::EFFECTS) {
            self.is_changed = true;
            self.is_touched = true;
        }
    }

    /// Returns true if changes wait to be passed on, even if only to the journal.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.is_touched
    }

    /// The changes that wait to be passed on.
    pub fn pending(&self) -> &[Change] {
        &self.pending
    }

    /// Takes the waiting changes. The journal's own notes stay until it asks for them.
    pub fn take(&mut self) -> Vec<Change> {
        self.is_touched = false;
        std::mem::take(&mut self.pending)
    }

    /// Returns true if something changed that the journal has not asked for yet.
    #[inline]
    pub fn is_journalled(&self) -> bool {
        self.is_changed
    }

    /// Returns true, and clears the note, if only the journal listens and needs nothing but the command itself.
    #[inline]
    pub fn take_plain(&mut self) -> bool {
        let is_plain = self.is_changed && self.notes.is_empty() && self.pending.is_empty();
        if is_plain {
            self.is_changed = false;
            self.is_touched = false;
        }
        is_plain
    }

    /// Takes what is to be written beside the command, or in its place, since the journal last asked. With that the
    /// journal knows of all changes.
    pub fn take_notes(&mut self) -> Vec<JournalNote> {
        self.is_changed = false;
        self.is_touched = !self.pending.is_empty();
        std::mem::take(&mut self.notes)
    }

    /// Starts or stops keeping changes for `which`.
    pub fn listen(&mut self, which: Listeners, on: bool) {
        self.listeners.set(which, on);
        if !self.listeners.any(Listeners::EFFECTS) {
            self.is_changed = false;
            self.notes.clear();
        }
    }
}
