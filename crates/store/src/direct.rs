//! The two hottest operations in one piece each: reading a string, and setting one without conditions.
//!
//! They do what [`crate::Keyed`] does, with one look at the index and without its generality.

use darter_slab::{Arena, Handle};

use crate::change::{Class, Event};
use crate::keyed::WrongType;
use crate::record::{self, Expiry, Record};
use crate::shard::{Full, Key, Shard};
use crate::text::Text;

impl Shard {
    /// The string at a key, for a command that reads: counts a hit or a miss, removes a dead key.
    ///
    /// Errors: the value has another type.
    #[inline]
    pub fn read_text(&mut self, db: usize, key: Key<'_>, now_ms: u64) -> Result<Option<Text<'_>>, WrongType> {
        let arena = &self.arena;
        let mut handle = Handle::NONE;
        let found = self.dbs[db].index.find(key.hash, |h| {
            handle = h;
            record::is_of(arena.tail(h), key.bytes)
        });
        let is_dead = match found {
            Some(_) => (Record { tail: self.arena.tail(handle) }).is_expired(now_ms),
            None => true,
        };
        if is_dead {
            self.miss(db, key, now_ms);
            return Ok(None);
        }
        self.counters.hits += 1;
        if let Some(slot) = found
            && self.counts_uses
        {
            self.dbs[db].index.touch(slot);
        }
        Record { tail: self.arena.tail(handle) }.text().map(Some).ok_or(WrongType)
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
        self.write_first(db, key.hash);
        let arena = &self.arena;
        let mut handle = Handle::NONE;
        let found = self.dbs[db].index.find(key.hash, |h| {
            handle = h;
            record::is_of(arena.tail(h), key.bytes)
        });
        if let Some(slot) = found
            && self.counts_uses
        {
            self.dbs[db].index.touch(slot);
        }
        match found {
            Some(_) if self.overwrite_plain(handle, value) => {}
            _ => self.set_text_slow(db, key, value, now_ms)?,
        }
        self.changes.push(db, key.bytes, event);
        Ok(())
    }

    /// Overwrites a plain string in place when its block is the right one for the new value.
    #[inline]
    fn overwrite_plain(&mut self, handle: Handle, value: &[u8]) -> bool {
        let Some(at) = record::plain_payload_at(self.arena.tail(handle)) else { return false };
        let wanted = at + record::text_bytes(value);
        let size = self.arena.size(handle);
        if wanted > size || Arena::fits(wanted) != size || record::is_worth_packing(value) {
            return false;
        }
        record::overwrite_text(self.arena.tail_mut(handle), at, value);
        true
    }

    #[inline(never)]
    fn set_text_slow(&mut self, db: usize, key: Key<'_>, value: &[u8], now_ms: u64) -> Result<(), Full> {
        crate::Keyed::find(self, db, key, now_ms).put_text(value, Expiry::None)
    }
}
