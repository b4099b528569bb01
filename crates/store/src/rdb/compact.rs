//! Collections that Redis saves in its own compact forms. Only read: we write no such form.

use darter_base::hash::KeyHasher;
use darter_base::number;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, PackKind, Table};
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{List, Zset};
use darter_slab::Arena;

use super::object::filled;
use super::packed::{self, PackedForm};
use super::{Corrupt, RdbSource};
use crate::object::Object;
use crate::set_value::SetValue;

/// A sorted set with scores as text, as Redis before 4 saves it.
const TYPE_ZSET_OLD: u8 = 3;
const TYPE_HASH_ZIPMAP: u8 = 9;
const TYPE_LIST_ZIPLIST: u8 = 10;
const TYPE_SET_INTSET: u8 = 11;
const TYPE_ZSET_ZIPLIST: u8 = 12;
const TYPE_HASH_ZIPLIST: u8 = 13;
const TYPE_LIST_QUICKLIST: u8 = 14;
const TYPE_HASH_LISTPACK: u8 = 16;
const TYPE_ZSET_LISTPACK: u8 = 17;
const TYPE_LIST_QUICKLIST_2: u8 = 18;
const TYPE_SET_LISTPACK: u8 = 20;
/// A small hash with a deadline per field, before Redis 7.4 was released.
const TYPE_HASH_LISTPACK_WITH_FULL_TTL: u8 = 23;
/// The same as Redis 7.4 saves it.
const TYPE_HASH_LISTPACK_WITH_TTL: u8 = 25;

/// The collection of type byte `kind` that `source` holds in a compact form.
///
/// Errors: no such type, damaged or empty, or no room in the arena; nothing is left behind there.
pub fn read(
    kind: u8,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<Object, Corrupt> {
    match kind {
        TYPE_LIST_ZIPLIST => filled(List::new(), arena, |list, arena| {
            read_list_node(list, &source.text()?, PackedForm::Ziplist, arena)
        }),
        TYPE_LIST_QUICKLIST => filled(List::new(), arena, |list, arena| {
            (0..source.count()?)
                .try_for_each(|_| read_list_node(list, &source.text()?, PackedForm::Ziplist, arena))
        }),
        TYPE_LIST_QUICKLIST_2 => filled(List::new(), arena, |list, arena| {
            (0..source.count()?).try_for_each(|_| match source.count()? {
                NODE_PLAIN => list.push(arena, ListEnd::Back, Item::of(&source.text()?)).map_err(|_| Corrupt),
                NODE_PACKED => read_list_node(list, &source.text()?, PackedForm::Listpack, arena),
                _ => Err(Corrupt),
            })
        }),
        TYPE_SET_INTSET => filled(SetValue::new(), arena, |set, arena| {
            read_set(set, &source.text()?, PackedForm::Intset, arena, hasher)
        }),
        TYPE_SET_LISTPACK => filled(SetValue::new(), arena, |set, arena| {
            read_set(set, &source.text()?, PackedForm::Listpack, arena, hasher)
        }),
        TYPE_ZSET_OLD => filled(Zset::new(), arena, |zset, arena| {
            (0..source.count()?).try_for_each(|_| {
                let (member, score) = (source.text()?, old_score(source)?);
                add_to_zset(zset, &member, score, arena, hasher)
            })
        }),
        TYPE_ZSET_ZIPLIST => filled(Zset::new(), arena, |zset, arena| {
            read_zset(zset, &source.text()?, PackedForm::Ziplist, arena, hasher)
        }),
        TYPE_ZSET_LISTPACK => filled(Zset::new(), arena, |zset, arena| {
            read_zset(zset, &source.text()?, PackedForm::Listpack, arena, hasher)
        }),
        TYPE_HASH_ZIPLIST => filled(Table::new(PackKind::KeysAndValues), arena, |table, arena| {
            read_hash(table, &source.text()?, PackedForm::Ziplist, arena, hasher)
        }),
        TYPE_HASH_LISTPACK_WITH_TTL => filled(Table::new(PackKind::KeysAndValues), arena, |table, arena| {
            // the earliest deadline; the fields say theirs in full
            source.array::<8>()?;
            read_timed_hash(table, &source.text()?, arena, hasher)
        }),
        TYPE_HASH_LISTPACK_WITH_FULL_TTL => {
            filled(Table::new(PackKind::KeysAndValues), arena, |table, arena| {
                read_timed_hash(table, &source.text()?, arena, hasher)
            })
        }
        TYPE_HASH_ZIPMAP => filled(Table::new(PackKind::KeysAndValues), arena, |table, arena| {
            read_hash(table, &source.text()?, PackedForm::Zipmap, arena, hasher)
        }),
        TYPE_HASH_LISTPACK => filled(Table::new(PackKind::KeysAndValues), arena, |table, arena| {
            read_hash(table, &source.text()?, PackedForm::Listpack, arena, hasher)
        }),
        _ => Err(Corrupt),
    }
}

/// A quicklist's node that is one long element, and one that is a listpack.
const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;

fn read_list_node(list: &mut List, bytes: &[u8], form: PackedForm, arena: &mut Arena) -> Result<(), Corrupt> {
    packed::each(form, bytes, &mut |item| list.push(arena, ListEnd::Back, item).map_err(|_| Corrupt))
}

fn read_set(
    set: &mut SetValue,
    bytes: &[u8],
    form: PackedForm,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    packed::each(form, bytes, &mut |item| {
        set.insert(arena, hasher, item, FieldExpiry::Clear).map(drop).map_err(|_| Corrupt)
    })
}

fn read_zset(
    zset: &mut Zset,
    bytes: &[u8],
    form: PackedForm,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    each_group(form, bytes, |[member], score| {
        let score = match score {
            Item::Int(score) => score as f64,
            Item::Bytes(text) => number::parse_f64(text).ok_or(Corrupt)?,
        };
        add_to_zset(zset, member, score, arena, hasher)
    })
}

fn add_to_zset(
    zset: &mut Zset,
    member: &[u8],
    score: f64,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    zset.insert(arena, &hasher, Item::of(member), score).map(drop).map_err(|_| Corrupt)
}

/// A score as a short text, or one of three marks for values without digits.
fn old_score(source: &mut RdbSource<'_>) -> Result<f64, Corrupt> {
    match source.byte()? {
        253 => Err(Corrupt),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => number::parse_f64(source.take(usize::from(len))?).ok_or(Corrupt),
    }
}

fn read_timed_hash(
    table: &mut Table,
    bytes: &[u8],
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    each_group(PackedForm::Listpack, bytes, |[field, value], deadline| {
        let expiry = match deadline.int().and_then(|ms| u64::try_from(ms).ok()) {
            None => return Err(Corrupt),
            Some(0) => FieldExpiry::Clear,
            Some(ms) => FieldExpiry::At(ms),
        };
        add_to_hash(table, field, Item::of(value), expiry, arena, hasher)
    })
}

fn read_hash(
    table: &mut Table,
    bytes: &[u8],
    form: PackedForm,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    each_group(form, bytes, |[field], value| {
        add_to_hash(table, field, value, FieldExpiry::Clear, arena, hasher)
    })
}

fn add_to_hash(
    table: &mut Table,
    field: &[u8],
    value: Item<'_>,
    expiry: FieldExpiry,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    let hash_of = |key: &[u8]| hasher.hash(key);
    let inserted = table.insert(arena, hasher.hash(field), field, value, expiry, &hash_of);
    inserted.map(drop).map_err(|_| Corrupt)
}

/// Visits elements in groups of `N` and one more.
fn each_group<const N: usize>(
    form: PackedForm,
    bytes: &[u8],
    mut visit: impl FnMut([&[u8]; N], Item<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let mut group: [Vec<u8>; N] = [const { Vec::new() }; N];
    let mut filled = 0;
    packed::each(form, bytes, &mut |item| match group.get_mut(filled) {
        Some(place) => {
            place.clear();
            item.write_to(place);
            filled += 1;
            Ok(())
        }
        None => {
            filled = 0;
            visit(group.each_ref().map(Vec::as_slice), item)
        }
    })?;
    if filled == 0 { Ok(()) } else { Err(Corrupt) }
}
