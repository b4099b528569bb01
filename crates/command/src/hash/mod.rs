//! Hashes: fields with values, each of which may expire on its own.

pub mod count;
pub mod expire;
pub mod field;
pub mod getex;
pub mod import;
pub mod random;
pub mod read;
pub mod scan;
pub mod setex;
#[cfg(test)]
mod tests;
pub mod ttl;
pub mod write;

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::{EntryRef, FieldExpiry, PackKind, Table};
use darter_store::change::Class;
use darter_store::{Arena, Event, KeyView, Keyed};
use darter_wire::Args;

use crate::ctx::AHEAD;
use crate::{Ctx, DataCommand, Env, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    write::HSET,
    write::HMSET,
    write::HSETNX,
    write::HDEL,
    read::HGET,
    read::HMGET,
    read::HGETALL,
    read::HKEYS,
    read::HVALS,
    read::HLEN,
    read::HEXISTS,
    read::HSTRLEN,
    count::HINCRBY,
    count::HINCRBYFLOAT,
    scan::HSCAN,
    random::HRANDFIELD,
    expire::HEXPIRE,
    expire::HPEXPIRE,
    expire::HEXPIREAT,
    expire::HPEXPIREAT,
    expire::HPERSIST,
    ttl::HTTL,
    ttl::HPTTL,
    ttl::HEXPIRETIME,
    ttl::HPEXPIRETIME,
    getex::HGETEX,
    getex::HGETDEL,
    setex::HSETEX,
    field::FIELDEXPIRE,
    field::FIELDTTL,
    import::SET,
];

const fn event(name: &'static str) -> Event {
    Event::new(Class::HASH, name)
}

const HSET_EVENT: Event = event("hset");
const HDEL_EVENT: Event = event("hdel");
const HEXPIRE_EVENT: Event = event("hexpire");

/// Packs of which one command frees the expired fields; the others stay hidden.
pub(crate) const PACKS_AT_ONCE: usize = 16;

/// The hash at `name`, to read. Expired fields are removed, or hidden by the functions below.
fn read<'k>(ctx: &'k mut Ctx<'_>, name: &'k [u8]) -> Keyed<'k> {
    let mut place = ctx.read(name);
    place.expire_members(PACKS_AT_ONCE);
    place
}

/// The hash at `name`, to change; as [`read`].
fn at<'k>(ctx: &'k mut Ctx<'_>, name: &'k [u8]) -> Keyed<'k> {
    let mut place = ctx.at(name);
    place.expire_members(PACKS_AT_ONCE);
    place
}

/// A hash without fields.
const fn new_hash() -> Table {
    Table::new(PackKind::KeysAndValues)
}

fn is_alive(entry: &EntryRef<'_>, now_ms: u64) -> bool {
    entry.expiry_ms().is_none_or(|ms| ms > now_ms)
}

/// The field, unless its time is up.
#[inline]
fn find<'a>(hash: KeyView<'a, Table>, field: &[u8], now_ms: u64) -> Option<EntryRef<'a>> {
    let entry = hash.root.get(hash.arena, hash.hasher.hash(field), field)?;
    is_alive(&entry, now_ms).then_some(entry)
}

/// Prefetches the memory of the next fields; every `step`th word is a field.
#[cold]
#[inline(never)]
fn look_ahead(table: &Table, arena: &Arena, hasher: KeyHasher, words: Args<'_>, step: usize) {
    let fields = words.iter().take(AHEAD).step_by(step);
    fields.for_each(|field| table.prefetch(arena, hasher.hash(field)));
}

/// All fields that have not expired.
fn alive<'a>(hash: KeyView<'a, Table>, now_ms: u64) -> impl Iterator<Item = EntryRef<'a>> {
    hash.root.iter(hash.arena).filter(move |entry| is_alive(entry, now_ms))
}

/// The reply of HLEN: as [`alive_len`], but large hashes count expired fields that wait for removal, as in Redis.
fn shown_len(hash: KeyView<'_, Table>, now_ms: u64) -> usize {
    if hash.root.len() <= COUNTED_LEN_MAX { alive_len(hash, now_ms) } else { hash.root.len() }
}

/// Largest collection whose members are counted one by one if some have expired.
pub(crate) const COUNTED_LEN_MAX: usize = 4096;

/// Number of fields that [`alive`] returns. Cost: none, unless expired fields wait for removal; then a walk over all.
fn alive_len(hash: KeyView<'_, Table>, now_ms: u64) -> usize {
    match hash.root.min_expiry_ms() {
        Some(ms) if ms <= now_ms => alive(hash, now_ms).count(),
        _ => hash.root.len(),
    }
}

/// A hash while it is changed.
struct Edit<'a> {
    table: &'a mut Table,
    arena: &'a mut Arena,
    hasher: KeyHasher,
    now_ms: u64,
}

impl Edit<'_> {
    /// Writes a field with `expiry`; returns whether it is new.
    #[inline(always)]
    fn put(&mut self, field: &[u8], value: Item<'_>, expiry: FieldExpiry) -> Result<bool, Fault> {
        let hash = self.hasher.hash(field);
        if self.table.min_expiry_ms().is_none() && !matches!(expiry, FieldExpiry::At(_)) {
            return self.insert(hash, field, value, FieldExpiry::Keep);
        }
        if self.table.get(self.arena, hash, field).is_some_and(|entry| !is_alive(&entry, self.now_ms)) {
            self.table.remove(self.arena, hash, field);
        }
        self.insert(hash, field, value, expiry)
    }

    #[inline]
    fn insert(
        &mut self,
        hash: u64,
        field: &[u8],
        value: Item<'_>,
        expiry: FieldExpiry,
    ) -> Result<bool, Fault> {
        let hasher = self.hasher;
        let inserted =
            self.table.insert(self.arena, hash, field, value, expiry, &|key: &[u8]| hasher.hash(key))?;
        Ok(inserted == darter_pack::table::Inserted::New)
    }

    /// Replaces the integer of a field by the result of `change`. Returns false, with nothing changed, if a field of
    /// the hash can expire or the length in bytes would change.
    #[inline]
    fn replace_int(&mut self, field: &[u8], change: impl FnOnce(i64) -> Option<i64>) -> bool {
        self.table.min_expiry_ms().is_none()
            && self.table.replace_int(self.arena, self.hasher.hash(field), field, |old| change(old.int()?))
    }

    /// The field, unless its time is up.
    #[inline]
    fn get(&self, field: &[u8]) -> Option<EntryRef<'_>> {
        let entry = self.table.get(self.arena, self.hasher.hash(field), field)?;
        is_alive(&entry, self.now_ms).then_some(entry)
    }

    /// Removes a field; returns whether it was there.
    fn take(&mut self, field: &[u8]) -> bool {
        self.get(field).is_some() && self.table.remove(self.arena, self.hasher.hash(field), field)
    }

    /// Sets or clears the expiry of an existing field.
    fn set_expiry(&mut self, field: &[u8], expiry_ms: Option<u64>) -> Result<(), Fault> {
        self.table.set_expiry(self.arena, self.hasher.hash(field), field, expiry_ms)?;
        Ok(())
    }
}

/// The name OBJECT ENCODING gives a hash: Redis' rule for when a listpack is enough.
pub fn encoding(hash: KeyView<'_, Table>, env: &Env) -> &'static str {
    let value_max = env.hash_max_listpack_value as usize;
    let is_small = hash.root.len() as u64 <= env.hash_max_listpack_entries
        && hash.root.iter(hash.arena).all(|e| e.key().len() <= value_max && e.value().len() <= value_max);
    match (is_small, hash.root.min_expiry_ms()) {
        (false, _) => "hashtable",
        (true, None) => "listpack",
        (true, Some(_)) => "listpackex",
    }
}
