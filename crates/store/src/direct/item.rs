//! The same for memcached: reading an item, and storing one over another of its shape.
//!
//! They do the same as [`crate::Keyed`], which handles the cases that these refuse.

use darter_slab::Handle;

use super::{Key, Shard};
use crate::change::Event;
use crate::extras::Extras;
use crate::record::{self, ItemAt, ItemMatch, Record};

impl Shard {
    /// Passes client flags and value of a string from its record to `serve`; counts a hit and notes the access.
    ///
    /// Returns true if there was one. Otherwise nothing is counted, and a string that is stored in another way may
    /// still exist.
    #[inline]
    pub fn read_item(
        &mut self,
        db: usize,
        key: Key<'_>,
        now_ms: u64,
        serve: impl FnOnce(u32, &[u8]),
    ) -> bool {
        let Some((handle, at)) = self.find_item(db, key) else { return false };
        let tail = self.arena.tail(handle);
        if at.has_deadline && (Record { tail }).is_expired(now_ms) {
            return false;
        }
        let Some(value) = tail.get(at.start..at.end) else { return false };
        let flags = tail.get(at.extras_at..).filter(|_| at.extras_at > 0).map_or(0, Extras::flags_of);
        serve(flags, value);
        self.note_hit(db, key.hash, handle);
        if at.extras_at > 0 {
            Extras::touch(record::extras_mut(self.arena.tail_mut(handle)), (now_ms / 1000) as u32);
        }
        true
    }

    /// Overwrites an item that has no deadline and no token by another of its length, with a client's flags, and
    /// reports `event`. Returns true if it did. Otherwise nothing has changed.
    #[inline]
    pub fn replace_item(
        &mut self,
        db: usize,
        key: Key<'_>,
        (flags, value): (u32, &[u8]),
        now_ms: u64,
        event: Event,
    ) -> bool {
        let Some((handle, at)) = self.find_item(db, key) else { return false };
        let extras = Extras { flags, access_s: Some((now_ms / 1000) as u32), ..Extras::default() };
        let is_same = !at.has_deadline
            && at.extras_at > 0
            && at.end - at.start == value.len()
            && self.arena.tail(handle).get(at.extras_at).is_some_and(|&first| extras.has_fields_of(first))
            && !self.is_unfit(handle, value);
        if !is_same {
            return false;
        }
        self.write_first(db, key.hash);
        let block = self.arena.tail_mut(handle);
        extras.encode(record::extras_mut(block));
        let Some(old) = block.get_mut(at.start..at.end) else { return false };
        old.copy_from_slice(value);
        if self.counts_uses {
            self.note_use(db, key.hash, handle);
        }
        self.changes.push(db, key.bytes, event);
        true
    }

    /// The text at a key, dead or not.
    #[inline(always)]
    fn find_item(&self, db: usize, key: Key<'_>) -> Option<(Handle, ItemAt)> {
        let mut probe = self.dbs.get(db)?.index.probe(key.hash)?;
        for handle in probe.by_ref() {
            match record::match_item(self.arena.tail(handle), key.bytes) {
                ItemMatch::Other => {}
                ItemMatch::Key => return None,
                ItemMatch::Item(at) => return Some((handle, at)),
            }
        }
        if !probe.overflows() {
            return None;
        }
        let look = self.look_away(db, key.hash, key.bytes);
        if look.handle.is_none() {
            return None;
        }
        match record::match_item(self.arena.tail(look.handle), key.bytes) {
            ItemMatch::Item(at) => Some((look.handle, at)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
