//! The two hottest operations, each in one function: reading a string, and setting one without conditions.
//!
//! They do the same as [`crate::Keyed`], with one lookup in the index and without its generality.

mod collection;
mod item;

use darter_base::short;
use darter_slab::{Arena, Handle, streaming};

use crate::change::{Class, Event};
use crate::error::{ShardFull, WrongType};
use crate::record::{self, Expiry, Record, RecordMatch};
use crate::shard::{GIANT_BYTES, Key, Shard};
use crate::text::Text;

impl Shard {
    /// Passes the value of a plainly stored string to `serve`, for a reading command. Counts a hit if `serve` returns
    /// true.
    ///
    /// If `serve` refuses it or was not called, returns the lookup. The key may still have a string, and nothing is
    /// counted: see [`Shard::read_found`] and [`Shard::read_looked`].
    #[inline(always)]
    pub fn read_plain(
        &mut self,
        db: usize,
        key: Key<'_>,
        mut serve: impl FnMut(&[u8]) -> bool,
    ) -> Option<Look> {
        let Some(mut probe) = self.dbs.get(db).and_then(|db| db.index.probe(key.hash)) else {
            return Some(Look::NOTHING);
        };
        for handle in probe.by_ref() {
            let tail = self.arena.tail(handle);
            match record::match_key(tail, key.bytes) {
                RecordMatch::Other => {}
                RecordMatch::Plain(start, end) => {
                    if !tail.get(start..end).is_some_and(&mut serve) {
                        return Some(Look { handle, start, end });
                    }
                    self.counters.hits += 1;
                    // The count of a frequently read key is full.
                    if self.counts_uses && !probe.is_hit_often() {
                        self.note_use(db, key.hash, handle);
                    }
                    return None;
                }
                RecordMatch::Key => return Some(Look { handle, ..Look::NOTHING }),
            }
        }
        if !probe.overflows() {
            return Some(Look::NOTHING);
        }
        // A plain string away from home is read by the general way.
        let look = self.look_away(db, key.hash, key.bytes);
        if !self.plain_at(look).is_some_and(serve) {
            return Some(look);
        }
        self.note_hit(db, key.hash, look.handle);
        None
    }

    /// The value of a string that [`Shard::read_plain`] found but `serve` refused; counts a hit. `None`: it is not
    /// stored plainly.
    pub fn read_found(&mut self, db: usize, key: Key<'_>, look: Look) -> Option<&[u8]> {
        self.plain_at(look)?;
        self.note_hit(db, key.hash, look.handle);
        self.plain_at(look)
    }

    #[inline(always)]
    fn plain_at(&self, look: Look) -> Option<&[u8]> {
        if look.end == 0 { None } else { self.arena.tail(look.handle).get(look.start..look.end) }
    }

    #[inline(always)]
    fn note_hit(&mut self, db: usize, hash: u64, handle: Handle) {
        self.counters.hits += 1;
        if self.counts_uses {
            self.note_use(db, hash, handle);
        }
    }

    /// Counts a use of the key whose record is at `handle`, for eviction. Cost: its line once more, not the record.
    #[inline(never)]
    fn note_use(&mut self, db: usize, hash: u64, handle: Handle) {
        let Some(db) = self.dbs.get_mut(db) else { return };
        if let Some(slot) = db.index.find(hash, |other| other == handle) {
            db.index.touch(slot);
        }
    }

    /// Finds a key for one of the operations below, which must follow immediately. Counts nothing, and also finds an
    /// expired key.
    #[inline(always)]
    pub fn look(&self, db: usize, key: Key<'_>) -> Look {
        let Some(mut probe) = self.dbs.get(db).and_then(|db| db.index.probe(key.hash)) else {
            return Look::NOTHING;
        };
        for handle in probe.by_ref() {
            if let Some(look) = self.look_at(handle, key.bytes) {
                return look;
            }
        }
        if probe.overflows() { self.look_away(db, key.hash, key.bytes) } else { Look::NOTHING }
    }

    /// The record at `handle`, if its key is `name`.
    #[inline(always)]
    fn look_at(&self, handle: Handle, name: &[u8]) -> Option<Look> {
        match record::match_key(self.arena.tail(handle), name) {
            RecordMatch::Other => None,
            RecordMatch::Plain(start, end) => Some(Look { handle, start, end }),
            RecordMatch::Key => Some(Look { handle, ..Look::NOTHING }),
        }
    }

    /// [`Shard::look`] past the key's home line.
    #[inline(never)]
    fn look_away(&self, db: usize, hash: u64, name: &[u8]) -> Look {
        let Some(db) = self.dbs.get(db) else { return Look::NOTHING };
        // One in seven keys is away from its home line in a usually filled index, nearly all of them in the next
        // line.
        for handle in db.index.probe_next(hash).into_iter().flatten() {
            if let Some(look) = self.look_at(handle, name) {
                return look;
            }
        }
        let mut found = None;
        db.index.find_away(hash, |handle| {
            found = self.look_at(handle, name);
            found.is_some()
        });
        found.unwrap_or(Look::NOTHING)
    }

    /// Overwrites a string that is stored plainly by another plain one of its length, and reports `event`. Returns
    /// true if it did. Otherwise nothing has changed: see [`Shard::set_looked`].
    #[inline(always)]
    pub fn overwrite_plain(
        &mut self,
        db: usize,
        key: Key<'_>,
        look: Look,
        value: &[u8],
        event: Event,
    ) -> bool {
        if look.end == 0 || look.end - look.start != value.len() || self.is_unfit(look.handle, value) {
            return false;
        }
        self.write_first(db, key.hash);
        let Some(old) = self.arena.tail_mut(look.handle).get_mut(look.start..look.end) else { return false };
        short::copy(old, value);
        if self.counts_uses {
            self.note_use(db, key.hash, look.handle);
        }
        self.changes.push(db, key.bytes, event);
        true
    }

    /// Passes the value of a plainly stored string to `change`, which may change it in place. Reports `event` and
    /// returns true if `change` returns true. Otherwise, or without such a string, nothing has changed.
    #[inline(always)]
    pub fn change_plain(
        &mut self,
        db: usize,
        key: Key<'_>,
        event: Event,
        change: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let look = self.look(db, key);
        if look.end == 0 {
            return false;
        }
        self.write_first(db, key.hash);
        let Some(value) = self.arena.tail_mut(look.handle).get_mut(look.start..look.end) else {
            return false;
        };
        if value.len() >= record::PACK_BYTES_MIN || !change(value) {
            return false;
        }
        if self.counts_uses {
            self.note_use(db, key.hash, look.handle);
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
        if look.handle.is_none() || !self.shows(Record { tail: self.arena.tail(look.handle) }, now_ms) {
            self.miss(db, key, now_ms);
            return Ok(None);
        }
        self.note_hit(db, key.hash, look.handle);
        self.keep_use(look.handle, now_ms);
        Record { tail: self.arena.tail(look.handle) }.text().map(Some).ok_or(WrongType)
    }

    /// Returns true if the found value is a string of more than `bytes`.
    pub fn is_longer(&self, look: Look, bytes: usize) -> bool {
        if look.end != 0 || look.handle.is_none() {
            return look.end - look.start > bytes;
        }
        Record { tail: self.arena.tail(look.handle) }.text().is_some_and(|text| text.len() > bytes)
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
    ) -> Result<(), ShardFull> {
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
    ) -> Result<(), ShardFull> {
        if !self.overwrite_plain(db, key, look, value, event) {
            self.write_first(db, key.hash);
            if look.end == 0 || !self.overwrite_in_block(look.handle, value) {
                // `put_text` counts the use itself.
                crate::Keyed::find(self, db, key, now_ms).put_text(value, Expiry::None)?;
            } else if self.counts_uses {
                self.note_use(db, key.hash, look.handle);
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
        if wanted > size
            || Arena::fits(wanted) != size
            || value.len() >= record::PACK_BYTES_MIN && self.is_unfit_long(handle, value)
        {
            return false;
        }
        record::overwrite_text(self.arena.tail_mut(handle), at, value);
        true
    }

    /// Returns true if a value must not be written over the plain string at `handle`: it would be packed, the old one
    /// has a stepwise reader, or it is long enough to be written in slices or past the cache. Cost: one comparison for a short value.
    #[inline(always)]
    fn is_unfit(&self, handle: Handle, value: &[u8]) -> bool {
        value.len() >= record::PACK_BYTES_MIN
            && (value.len() >= streaming::PAST_CACHE_BYTES_MIN || self.is_unfit_long(handle, value))
    }

    /// The rest of [`Shard::is_unfit`], not inlined, for long values that are not written past the cache.
    #[inline(never)]
    fn is_unfit_long(&self, handle: Handle, value: &[u8]) -> bool {
        value.len() >= GIANT_BYTES || record::is_worth_packing(value) || self.is_read_in_place(handle, value)
    }
}

/// The position of a found key.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    // `NONE`: it is not there.
    handle: Handle,
    // Offset of the value in the record of a plain string; `end` is 0 for all others.
    start: usize,
    end: usize,
}

impl Look {
    /// The key is not there.
    const NOTHING: Look = Look { handle: Handle::NONE, start: 0, end: 0 };
}
