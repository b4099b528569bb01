//! A key as a memcached item: a string with extras.
//!
//! Called by the server's memcached commands. A change of the value by another protocol replaces its CAS token, or
//! forgets it, which has the same effect: the next request creates a new one.

use darter_slab::Arena;

use crate::error::ShardFull;
use crate::extras::{Extras, RecordMarks};
use crate::keyed::Keyed;
use crate::record::{self, Expiry, Record, RecordKind, RecordMeta, RecordPayload};
use crate::shard::deadline_after;

impl Keyed<'_> {
    /// Memcached's part of the key; `None` if no memcached client has set or marked it.
    pub fn extras(&self) -> Option<Extras> {
        self.record().and_then(Record::extras)
    }

    /// Writes a string with memcached's extras, whatever was there before: in place when the record keeps its shape.
    ///
    /// Errors: no room; the old value stays.
    pub fn put_item(&mut self, value: &[u8], expiry: Expiry, extras: Extras) -> Result<(), ShardFull> {
        let payload = RecordPayload::of_text(value);
        let Some(record) = self.record() else {
            let deadline_ms = if let Expiry::At(ms) = expiry { Some(ms) } else { None };
            return self.put_payload(
                &RecordMeta { deadline_ms, extras: Some(extras), ..RecordMeta::default() },
                &payload,
            );
        };
        let meta = RecordMeta {
            deadline_ms: deadline_after(record, expiry),
            extras: Some(extras),
            sticky: record.is_sticky(),
        };
        if !self.overwrite_item(value, &meta, &payload) {
            self.put_payload(&meta, &payload)?;
        }
        Ok(())
    }

    /// [`Keyed::put_item`] over a record of the same shape, whose block is the right one for the new value.
    fn overwrite_item(&mut self, value: &[u8], meta: &RecordMeta, payload: &RecordPayload<'_>) -> bool {
        let (Some(slot), Some(extras)) = (self.slot, meta.extras) else { return false };
        let handle = self.shard.dbs[self.db].index.handle(slot);
        let record = Record { tail: self.shard.arena.tail(handle) };
        let at = record.payload_at();
        let (size, wanted) = (self.shard.arena.size(handle), at + record::text_bytes(value));
        let old_deadline = record.deadline_ms();
        let is_same = matches!((record.kind(), payload), (RecordKind::Text, RecordPayload::Text(_)))
            && record.extras_len() == extras.encoded_len()
            && old_deadline.is_some() == meta.deadline_ms.is_some()
            && wanted <= size
            && Arena::fits(wanted) == size
            && !self.shard.is_read_in_place(handle, value);
        if !is_same {
            return false;
        }
        self.write_first();
        let block = self.shard.arena.tail_mut(handle);
        if let Some(ms) = meta.deadline_ms {
            if !record::overwrite_deadline(block, ms) {
                return false;
            }
            self.shard.dbs[self.db].index.note_expiry(slot, ms, self.now_ms);
        }
        extras.encode(record::extras_mut(block));
        record::overwrite_text(block, at, value);
        true
    }

    /// Changes the extras of an existing key; does nothing if the key is missing.
    ///
    /// Errors: no room for the longer record; nothing changed.
    pub fn set_extras(&mut self, extras: Extras) -> Result<(), ShardFull> {
        let (Some(slot), Some(record)) = (self.slot, self.record()) else { return Ok(()) };
        if record.extras_len() == extras.encoded_len() {
            self.write_first();
            let handle = self.shard.dbs[self.db].index.handle(slot);
            extras.encode(record::extras_mut(self.shard.arena.tail_mut(handle)));
            return Ok(());
        }
        let meta = RecordMeta { extras: Some(extras), ..record.meta() };
        self.reshape(slot, meta)
    }

    /// Notes that a memcached client has read the item, if it keeps that: items stored by such a client do.
    #[inline]
    pub fn note_access(&mut self, now_s: u32) {
        let Some(slot) = self.slot else { return };
        let handle = self.shard.dbs[self.db].index.handle(slot);
        let block = self.shard.arena.tail_mut(handle);
        if (Record { tail: block }).extras_len() > 0 {
            Extras::touch(record::extras_mut(block), now_s);
        }
    }

    /// The CAS token of the key; creates one if it has none. `None` if the key is missing.
    ///
    /// Errors: no room for the longer record.
    pub fn cas(&mut self) -> Result<Option<u64>, ShardFull> {
        if self.slot.is_none() {
            return Ok(None);
        }
        let extras = self.extras().unwrap_or_default();
        if extras.cas.is_some() {
            return Ok(extras.cas);
        }
        let cas = Some(self.next_cas());
        self.set_extras(Extras { cas, ..extras })?;
        Ok(cas)
    }

    /// Keys of this shard that have expired so far. A lookup that finds an expired key increases the number.
    pub fn expired_count(&self) -> u64 {
        self.shard.counters.expired
    }

    /// Sets or clears marks of an existing key.
    ///
    /// Errors: no room for the longer record.
    pub fn mark(&mut self, which: RecordMarks, on: bool) -> Result<(), ShardFull> {
        let mut extras = self.extras().unwrap_or_default();
        extras.marks.set(which, on);
        self.set_extras(extras)
    }
}

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;

    use super::*;
    use crate::shard::{Key, Shard};

    const NOW: u64 = 1_700_000_000_000;

    fn with_item(test: impl FnOnce(&mut dyn FnMut(&mut dyn FnMut(Keyed<'_>)))) {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 0, hasher).expect("address space");
        let key = Key { bytes: b"k", hash: hasher.hash(b"k") };
        test(&mut |act| act(Keyed::find(&mut shard, 0, key, NOW)));
    }

    fn item(flags: u32, cas: Option<u64>) -> Extras {
        Extras { flags, cas, access_s: Some(7), ..Extras::default() }
    }

    #[test]
    fn items_read_back_over_any_other() {
        let hasher = KeyHasher::new(3);
        let mut shard = Shard::new(1, 0, hasher).expect("address space");
        let key = Key { bytes: b"k", hash: hasher.hash(b"k") };
        let mut rng = darter_base::rng::Rng::new(5);
        for n in 0..20_000u64 {
            let mut place = Keyed::find(&mut shard, 0, key, NOW);
            let value = vec![b'a' + (n % 26) as u8; (rng.next_u64() % 700) as usize];
            let expiry = match rng.next_u64() % 3 {
                0 => Expiry::None,
                1 => Expiry::Keep,
                _ => Expiry::At(NOW + 1 + rng.next_u64() % 1000),
            };
            let before = place.deadline_ms();
            let extras = item((rng.next_u64() % 2) as u32, (rng.next_u64().is_multiple_of(2)).then_some(n));
            match rng.next_u64() % 4 {
                0 => place.put_text(&value, expiry).expect("room"),
                _ => {
                    place.put_item(&value, expiry, extras).expect("room");
                    assert_eq!(place.extras(), Some(extras));
                }
            }
            assert!(place.text().expect("a string").expect("there").equals(&value));
            let wanted = match expiry {
                Expiry::None => None,
                Expiry::Keep => before,
                Expiry::At(ms) => Some(ms),
            };
            assert_eq!(place.deadline_ms(), wanted);
            if rng.next_u64().is_multiple_of(5) {
                place.set_extras(item(9, None)).expect("room");
                assert_eq!(place.extras().map(|extras| extras.flags), Some(9));
                assert!(place.text().expect("a string").expect("there").equals(&value));
            }
        }
    }

    #[test]
    fn a_token_is_given_once_and_changes_with_the_value() {
        with_item(|on| {
            let mut seen = Vec::new();
            let mut look = |place: &mut Keyed<'_>| {
                let cas = place.cas().expect("room").expect("there");
                assert_eq!(place.cas(), Ok(Some(cas)));
                assert!(!seen.contains(&cas), "{cas} again");
                seen.push(cas);
            };
            on(&mut |mut place| {
                assert_eq!(place.cas(), Ok(None));
                place.put_text(b"by RESP", Expiry::None).expect("room");
                look(&mut place);
                place.put_text(b"again", Expiry::None).expect("room");
                look(&mut place);
                place.edit_text(9).expect("room")[8] = b'!';
                look(&mut place);
                // in place now, as the record has room for edits
                place.edit_text(9).expect("room")[8] = b'?';
                look(&mut place);
                place.put_float(b"1.5").expect("room");
                look(&mut place);
                let copy = place.copy().expect("there");
                place.put_copy(&copy).expect("room");
                look(&mut place);
                place.set_deadline(Some(NOW + 5)).expect("room");
            });
            on(&mut |mut place| {
                let last = seen.last().copied();
                assert_eq!(place.cas(), Ok(last), "a deadline is not the value");
            });
        });
    }

    #[test]
    fn reads_are_noted_where_an_item_was_stored() {
        with_item(|on| {
            on(&mut |mut place| {
                place.put_text(b"v", Expiry::None).expect("room");
                place.note_access(9);
                assert_eq!(place.extras(), None);
                place.put_item(b"v", Expiry::None, item(3, None)).expect("room");
                place.note_access(9);
                let extras = place.extras().expect("an item");
                assert_eq!((extras.access_s, extras.marks, extras.flags), (Some(9), RecordMarks::FETCHED, 3));
                place.mark(RecordMarks::STALE, true).expect("room");
                place.mark(RecordMarks::FETCHED, false).expect("room");
                assert_eq!(place.extras().map(|extras| extras.marks), Some(RecordMarks::STALE));
            });
        });
    }
}
