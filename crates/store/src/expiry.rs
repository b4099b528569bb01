//! The active side of expiry: a sweep that opens only index lines whose bound has passed. It removes keys, and
//! expired members of collections.

use darter_index::ScanPosition;

use crate::change::{Class, Event};
use crate::keyed::Keyed;
use crate::record::{Record, RecordValue};
use crate::shard::{Key, Shard};
use crate::value_type::Type;

/// The position of a shard's sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpirySweep {
    db: usize,
    at: ScanPosition,
}

/// The result of one step of a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SweptKeys {
    /// Index lines looked at.
    pub lines: usize,
    /// Keys and members removed because they had expired.
    pub expired: usize,
    /// The keys among them.
    pub keys: usize,
}

impl Shard {
    /// Examines up to `lines_max` index lines from `sweep` on and removes keys that are dead at `now_ms`.
    ///
    /// Cost: a few nanoseconds a line, plus the removal of each dead key.
    pub fn sweep(&mut self, sweep: &mut ExpirySweep, now_ms: u64, lines_max: usize) -> SweptKeys {
        let mut swept = SweptKeys::default();
        let mut skipped = 0;
        while !self.may_expire_in(sweep.db) {
            *sweep = self.next_db(sweep.db);
            skipped += 1;
            if skipped > self.dbs.len() {
                return swept;
            }
        }
        let mut due = Vec::new();
        let (arena, objects) = (&self.arena, &self.objects);
        let (next, lines) = self.dbs[sweep.db].index.sweep(
            sweep.at,
            now_ms,
            lines_max,
            |handle| {
                let record = Record { tail: arena.tail(handle) };
                match (record.deadline_ms(), record.value()) {
                    (deadline, RecordValue::Object(_, id)) => {
                        earlier(deadline, objects.get(id).next_expiry_ms())
                    }
                    (deadline, _) => deadline,
                }
            },
            |handle| due.push(handle),
        );
        swept.lines = lines;
        let db = sweep.db;
        for handle in due {
            let name = Record { tail: self.arena.tail(handle) }.key().to_vec();
            if self.hidden.hides(&name) {
                continue;
            }
            let key = Key { bytes: &name, hash: self.hasher.hash_key(&name) };
            let Some(slot) = self.locate(db, key) else { continue };
            if self.record_at(db, slot).is_expired(now_ms) {
                self.expire(db, key, slot);
                swept.expired += 1;
                swept.keys += 1;
            } else {
                swept.expired += Keyed::find(self, db, key, now_ms).expire_many();
            }
        }
        *sweep =
            if next == ScanPosition::default() { self.next_db(db) } else { ExpirySweep { db, at: next } };
        swept
    }

    /// Has the next sweep look at every key that expires: the index noted when by a clock other than `now_ms`, or no sweep
    /// has come for hours. Cost: a line of memory for some ten keys, of databases in which any key expires.
    pub fn distrust_bounds(&mut self, now_ms: u64) {
        for db in 0..self.dbs.len() {
            if self.may_expire_in(db) {
                self.dbs[db].index.distrust_bounds(now_ms);
            }
        }
    }

    fn next_db(&self, db: usize) -> ExpirySweep {
        ExpirySweep { db: (db + 1) % self.dbs.len(), at: ScanPosition::default() }
    }

    fn may_expire_in(&self, db: usize) -> bool {
        self.dbs[db].expiring > 0 || self.timed > 0 && !self.dbs[db].is_empty()
    }

    /// Returns true if a sweep could find anything, now or later.
    pub fn may_expire(&self) -> bool {
        self.timed > 0 || self.expiring() > 0
    }

    /// Returns true if a collection here has members that expire.
    #[inline]
    pub fn has_timed(&self) -> bool {
        self.timed > 0
    }

    /// Number of keys with a deadline, over all databases.
    pub fn expiring(&self) -> usize {
        self.filled_dbs().iter().map(|db| db.expiring).sum()
    }
}

impl Keyed<'_> {
    /// Removes expired members of the collection, examining at most `packs_max` packs, and the key with the last of
    /// them. Reports the events and returns the number of removed members.
    ///
    /// Cost: one comparison while no collection of the shard has members that expire.
    #[inline]
    pub fn expire_members(&mut self, packs_max: usize) -> usize {
        if self.shard.timed == 0 { 0 } else { self.expire_members_of(packs_max) }
    }

    /// Like [`Keyed::expire_members`], over many packs, until enough members were removed for one visit.
    fn expire_many(&mut self) -> usize {
        let mut removed = 0;
        for _ in 0..PACKS_PER_KEY / PACKS_PER_STEP {
            removed += self.expire_members(PACKS_PER_STEP);
            if removed > REMOVED_PER_KEY {
                break;
            }
        }
        removed
    }

    #[inline(never)]
    fn expire_members_of(&mut self, packs_max: usize) -> usize {
        let Some(RecordValue::Object(kind, id)) = self.record().map(Record::value) else { return 0 };
        let before = self.shard.objects.get(id).next_expiry_ms();
        if before.is_none_or(|ms| ms > self.now_ms) {
            return 0;
        }
        self.write_first();
        let (shard, now_ms) = (&mut *self.shard, self.now_ms);
        let is_kept = shard.begin_change(id);
        let object = shard.objects.get_mut(id);
        let removed = object.expire_step(&mut shard.arena, shard.hasher, now_ms, packs_max);
        let (after, is_gone) = (object.next_expiry_ms(), object.has_no_member());
        if is_kept {
            shard.end_change(id);
        }
        shard.counters.expired_members += removed as u64;
        self.note_members(before, after);
        if removed > 0 {
            self.shard.changes.lost_members(self.db, self.name());
            self.changed(match kind {
                Type::Hash => HASH_EXPIRED,
                Type::Zset => ZSET_EXPIRED,
                _ => SET_EXPIRED,
            });
        }
        if is_gone {
            self.remove();
            self.changed(Event::DEL);
        }
        removed
    }

    /// Records that the earliest expiry of the collection's members changed from `before` to `after`.
    #[cold]
    pub(crate) fn note_members(&mut self, before: Option<u64>, after: Option<u64>) {
        for timed in [&mut self.shard.timed, &mut self.shard.dbs[self.db].timed] {
            *timed += usize::from(after.is_some());
            *timed -= usize::from(before.is_some());
        }
        self.note_next_expiry(after);
    }

    /// Tells the index when the collection must be examined.
    pub(crate) fn note_next_expiry(&mut self, at_ms: Option<u64>) {
        if let (Some(slot), Some(ms)) = (self.slot, at_ms) {
            self.shard.dbs[self.db].index.note_expiry(slot, ms, self.now_ms);
        }
    }
}

fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}

/// Packs of one collection that a sweep examines before it continues with other keys, and members it removes: some
/// tens of microseconds.
const PACKS_PER_KEY: usize = 1024;
const PACKS_PER_STEP: usize = 16;
const REMOVED_PER_KEY: usize = 256;
const HASH_EXPIRED: Event = Event::new(Class::HASH, "hexpired");
const SET_EXPIRED: Event = Event::new(Class::SET, "sexpired");
const ZSET_EXPIRED: Event = Event::new(Class::ZSET, "zexpired");

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;
    use darter_pack::entry::Item;
    use darter_pack::table::{self, PackKind, Table};

    use super::*;
    use crate::change::Listeners;
    use crate::object::Collection;
    use crate::record::Expiry;

    const NOW: u64 = 1_700_000_000_000;

    fn put_hash(shard: &mut Shard, name: &[u8], fields: &[(&str, Option<u64>)]) {
        let hasher = shard.hasher;
        let mut place = Keyed::find(shard, 0, Key { bytes: name, hash: hasher.hash(name) }, NOW);
        let of_key = |key: &[u8]| hasher.hash(key);
        let make = || Table::new(PackKind::KeysAndValues);
        let edited = place.edit_or_create(make, |table: &mut Table, arena, _| {
            for (field, expiry) in fields {
                let (field, expiry) =
                    (field.as_bytes(), expiry.map_or(table::FieldExpiry::Keep, table::FieldExpiry::At));
                table.insert(arena, of_key(field), field, Item::Int(1), expiry, &of_key).expect("room");
            }
        });
        edited.expect("a hash");
    }

    fn fields_of(shard: &mut Shard, name: &[u8]) -> Option<usize> {
        let key = Key { bytes: name, hash: shard.hasher.hash(name) };
        let place = Keyed::find(shard, 0, key, NOW);
        place.view::<Table>().expect("a hash").map(|view| view.root.len())
    }

    fn sweep_all(shard: &mut Shard, now_ms: u64) -> usize {
        let mut sweep = ExpirySweep::default();
        (0..40).map(|_| shard.sweep(&mut sweep, now_ms, 4096).expired).sum()
    }

    #[test]
    fn a_sweep_removes_fields_and_then_their_hash() {
        let mut shard = Shard::new(2, 1, KeyHasher::new(9)).expect("address space");
        shard.changes.listen(Listeners::NOTIFY, true);
        put_hash(&mut shard, b"h", &[("a", Some(NOW + 1000)), ("b", Some(NOW + 60_000)), ("c", None)]);
        put_hash(&mut shard, b"gone", &[("a", Some(NOW + 1000)), ("b", Some(NOW + 1000))]);
        put_hash(&mut shard, b"plain", &[("a", None)]);
        shard.changes.take();
        assert_eq!(shard.timed, 2);
        assert_eq!(sweep_all(&mut shard, NOW + 999), 0);
        // bounds are coarse: the sweep may be late, never early
        assert_eq!(sweep_all(&mut shard, NOW + 10_000), 3);
        let sizes = [&b"h"[..], b"gone", b"plain"].map(|name| fields_of(&mut shard, name));
        assert_eq!(sizes, [Some(2), None, Some(1)]);
        assert_eq!((shard.timed, shard.counters.expired_members), (1, 3));
        let mut events: Vec<_> = shard.changes.take().into_iter().map(|c| (c.key, c.event.name)).collect();
        events.sort();
        let wanted = [(&b"gone"[..], "del"), (b"gone", "hexpired"), (b"h", "hexpired")];
        assert!(events.iter().map(|(key, name)| (&key[..], *name)).eq(wanted), "{events:?}");
        assert_eq!(sweep_all(&mut shard, NOW + 90_000), 1);
        assert_eq!((shard.timed, fields_of(&mut shard, b"h")), (0, Some(1)));
        assert!(!shard.may_expire());
    }

    #[test]
    fn fields_expire_where_their_hash_was_moved_or_copied_to() {
        let hasher = KeyHasher::new(9);
        let mut shard = Shard::new(2, 1, hasher).expect("address space");
        let key = |bytes| Key { bytes, hash: hasher.hash(bytes) };
        put_hash(&mut shard, b"h", &[("a", Some(NOW + 1000)), ("b", None)]);
        let copy = Keyed::find(&mut shard, 0, key(b"h"), NOW).copy().expect("there");
        Keyed::find(&mut shard, 0, key(b"copy"), NOW).put_copy(&copy).expect("room");
        assert!(shard.rename((0, key(b"h")), (1, key(b"moved")), NOW).expect("room"));
        let timed_in = |shard: &Shard| [0, 1].map(|db| shard.db(db).expiring_in_part());
        assert_eq!((shard.timed, timed_in(&shard)), (2, [1, 1]));
        assert_eq!(sweep_all(&mut shard, NOW + 10_000), 2);
        assert_eq!((shard.timed, fields_of(&mut shard, b"copy")), (0, Some(1)));
        assert_eq!(timed_in(&shard), [0, 0]);
        put_hash(&mut shard, b"h", &[("a", Some(NOW + 1000))]);
        put_hash(&mut shard, b"i", &[("a", Some(NOW + 1000))]);
        Keyed::find(&mut shard, 0, key(b"h"), NOW).remove();
        assert_eq!(timed_in(&shard), [1, 0]);
        Keyed::find(&mut shard, 0, key(b"i"), NOW).put_text(b"x", Expiry::None).expect("room");
        assert_eq!((shard.timed, timed_in(&shard)), (0, [0, 0]));
        put_hash(&mut shard, b"h", &[("a", Some(NOW + 1000))]);
        shard.flush_db(0);
        while !shard.free_some(100) {}
        assert_eq!((shard.timed, timed_in(&shard)), (0, [0, 0]));
        let set = crate::SetValue::new();
        assert_eq!(Collection::next_expiry_ms(&set), None);
    }
}
