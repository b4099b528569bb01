//! The two hottest operations in one piece each: reading a string, and setting one without conditions.
//!
//! They do what [`crate::Keyed`] does, with one look at the index and without its generality.

use darter_slab::{Arena, Handle};

use crate::change::{Class, Event};
use crate::db::Db;
use crate::keyed::WrongType;
use crate::record::{self, Expiry, Match, Record};
use crate::shard::{Full, Key, Shard};
use crate::text::Text;

impl Shard {
    /// The value of a string that is stored plainly, as nearly all are, for a command that reads: counts a hit.
    ///
    /// Errors: what was found else, which does not say that there is no string; see [`Shard::read_looked`]. Nothing is
    /// counted then.
    #[inline(always)]
    pub fn read_plain(&mut self, db: usize, key: Key<'_>) -> Result<&[u8], Look> {
        let Shard { dbs, arena, counters, counts_uses, .. } = self;
        let arena = &*arena;
        let Some(db) = dbs.get_mut(db) else { return Err(Look::NOTHING) };
        let Some(mut probe) = db.index.probe(key.hash) else { return Err(Look::NOTHING) };
        for handle in probe.by_ref() {
            let tail = arena.tail(handle);
            match record::match_key(tail, key.bytes) {
                Match::Other => {}
                Match::Plain(start, end) => {
                    let Some(value) = tail.get(start..end) else { break };
                    counters.hits += 1;
                    if *counts_uses {
                        note_use(db, key.hash, handle);
                    }
                    return Ok(value);
                }
                Match::Key => return Err(Look { handle, ..Look::NOTHING }),
            }
        }
        // A plain one found elsewhere is as well read as any other.
        Err(if probe.overflows() { look_away(db, arena, key) } else { Look::NOTHING })
    }

    /// Finds a key for one of the operations below, which must follow at once. Nothing is counted, and a key whose time
    /// is up is found too.
    #[inline(always)]
    pub fn look(&self, db: usize, key: Key<'_>) -> Look {
        look_in(&self.dbs, &self.arena, db, key)
    }

    /// Overwrites a string that is stored plainly by another of its length that would be too, and reports `event`;
    /// returns whether it did. If not, nothing has changed: see [`Shard::set_looked`].
    #[inline(always)]
    pub fn overwrite_plain(
        &mut self,
        db: usize,
        key: Key<'_>,
        look: Look,
        value: &[u8],
        event: Event,
    ) -> bool {
        if look.end == 0 || look.end - look.start != value.len() || record::is_worth_packing(value) {
            return false;
        }
        self.write_first(db, key.hash);
        let Some(old) = self.arena.tail_mut(look.handle).get_mut(look.start..look.end) else { return false };
        old.copy_from_slice(value);
        if self.counts_uses {
            note_use(&mut self.dbs[db], key.hash, look.handle);
        }
        self.changes.push(db, key.bytes, event);
        true
    }

    /// The string at a key, for a command that reads: counts a hit or a miss, removes a dead key.
    ///
    /// Errors: the value has another type.
    #[inline]
    pub fn read_text(&mut self, db: usize, key: Key<'_>, now_ms: u64) -> Result<Option<Text<'_>>, WrongType> {
        let look = self.look(db, key);
        self.read_looked(db, key, look, now_ms)
    }

    /// [`Shard::read_text`] of a key that has been looked for.
    #[inline(never)]
    pub fn read_looked(
        &mut self,
        db: usize,
        key: Key<'_>,
        look: Look,
        now_ms: u64,
    ) -> Result<Option<Text<'_>>, WrongType> {
        if look.handle.is_none() || (Record { tail: self.arena.tail(look.handle) }).is_expired(now_ms) {
            self.miss(db, key, now_ms);
            return Ok(None);
        }
        self.counters.hits += 1;
        if self.counts_uses {
            note_use(&mut self.dbs[db], key.hash, look.handle);
        }
        Record { tail: self.arena.tail(look.handle) }.text().map(Some).ok_or(WrongType)
    }

    #[cold]
    fn miss(&mut self, db: usize, key: Key<'_>, now_ms: u64) {
        const MISS: Event = Event::new(Class::KEY_MISS, "keymiss");
        self.find(db, key, now_ms);
        self.counters.misses += 1;
        self.changes.push_uncounted(db, key.bytes, MISS);
    }

    /// Sets a string without a deadline, whatever was there before, and reports `event`.
    ///
    /// Errors: no room; the old value stays.
    #[inline]
    pub fn set_text(
        &mut self,
        db: usize,
        key: Key<'_>,
        value: &[u8],
        now_ms: u64,
        event: Event,
    ) -> Result<(), Full> {
        let look = self.look(db, key);
        self.set_looked(db, key, look, value, now_ms, event)
    }

    /// [`Shard::set_text`] of a key that has been looked for.
    ///
    /// Errors: no room; the old value stays.
    #[inline(never)]
    pub fn set_looked(
        &mut self,
        db: usize,
        key: Key<'_>,
        look: Look,
        value: &[u8],
        now_ms: u64,
        event: Event,
    ) -> Result<(), Full> {
        if !self.overwrite_plain(db, key, look, value, event) {
            self.write_first(db, key.hash);
            if look.end == 0 || !self.overwrite_in_block(look.handle, value) {
                // It counts the use itself.
                crate::Keyed::find(self, db, key, now_ms).put_text(value, Expiry::None)?;
            } else if self.counts_uses {
                note_use(&mut self.dbs[db], key.hash, look.handle);
            }
            self.changes.push(db, key.bytes, event);
        }
        Ok(())
    }

    /// Overwrites a plain string in place when its block is the right one for the new value.
    fn overwrite_in_block(&mut self, handle: Handle, value: &[u8]) -> bool {
        let Some(at) = record::plain_payload_at(self.arena.tail(handle)) else { return false };
        let wanted = at + record::text_bytes(value);
        let size = self.arena.size(handle);
        if wanted > size || Arena::fits(wanted) != size || record::is_worth_packing(value) {
            return false;
        }
        record::overwrite_text(self.arena.tail_mut(handle), at, value);
        true
    }
}

/// Counts a use of the key whose record is at `handle`, for eviction. Cost: its line once more, not the record.
#[inline(never)]
fn note_use(db: &mut Db, hash: u64, handle: Handle) {
    if let Some(slot) = db.index.find(hash, |other| other == handle) {
        db.index.touch(slot);
    }
}

/// Looks in the home line of the key first, with its comparison inlined.
#[inline(always)]
fn look_in(dbs: &[Db], arena: &Arena, db: usize, key: Key<'_>) -> Look {
    let Some(db) = dbs.get(db) else { return Look::NOTHING };
    let Some(mut probe) = db.index.probe(key.hash) else { return Look::NOTHING };
    for handle in probe.by_ref() {
        match record::match_key(arena.tail(handle), key.bytes) {
            Match::Other => {}
            Match::Plain(start, end) => return Look { handle, start, end },
            Match::Key => return Look { handle, ..Look::NOTHING },
        }
    }
    if probe.overflows() { look_away(db, arena, key) } else { Look::NOTHING }
}

#[inline(never)]
fn look_away(db: &Db, arena: &Arena, key: Key<'_>) -> Look {
    let mut look = Look::NOTHING;
    db.index.find(key.hash, |handle| match record::match_key(arena.tail(handle), key.bytes) {
        Match::Other => false,
        Match::Plain(start, end) => {
            look = Look { handle, start, end };
            true
        }
        Match::Key => {
            look.handle = handle;
            true
        }
    });
    look
}

/// Where a key was found.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    // `NONE`: it is not there.
    handle: Handle,
    // Of the value in the record, where it is a plain string; `end` is 0 where it is not.
    start: usize,
    end: usize,
}

impl Look {
    /// The key is not there.
    const NOTHING: Look = Look { handle: Handle::NONE, start: 0, end: 0 };
}
