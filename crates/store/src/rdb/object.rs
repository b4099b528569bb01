//! Collections in the value format: one element after another, which every version of Redis reads.

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, PackKind, Table};
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::window::SeenLeaf;
use darter_pack::tree::{Direction, List, Zset};
use darter_slab::Arena;

use super::{Corrupt, RdbSource, compact, stream, text};
use crate::array::Array;
use crate::module::{self, TYPE_ARRAY, TYPE_MODULE};
use crate::object::{Collection, Object};
use crate::set_value::SetValue;
use crate::stream_value::StreamValue;
use crate::value_type::Type;

/// A list.
pub const TYPE_LIST: u8 = 1;
const TYPE_SET: u8 = 2;
/// A hash.
pub const TYPE_HASH: u8 = 4;
/// A sorted set with scores as eight bytes each.
const TYPE_ZSET: u8 = 5;
/// A hash with a deadline per field, as Redis 7.4 writes it.
pub const TYPE_HASH_WITH_TTL: u8 = 24;
/// The same before Redis 7.4 was released: deadlines in full, the earliest not in front.
const TYPE_HASH_WITH_FULL_TTL: u8 = 22;
/// A set with a deadline per member: ours alone, after Dragonfly's number for one.
pub(super) const TYPE_SET_WITH_TTL: u8 = 32;
/// A sorted set with a deadline per member: ours alone.
pub const TYPE_ZSET_WITH_TTL: u8 = 48;
/// A hash with a deadline behind each field, as Valkey 9 saves it. Redis uses Valkey's number for another type, so
/// readers of files map it to this one.
pub const TYPE_VALKEY_HASH: u8 = 200;

/// The type byte that [`write_object`] writes a value under.
pub fn type_of(object: &Object) -> u8 {
    match object {
        Object::List(_) => TYPE_LIST,
        Object::Set(set) if set.next_expiry_ms().is_some() => TYPE_SET_WITH_TTL,
        Object::Set(_) => TYPE_SET,
        Object::Zset(zset) if zset.next_expiry().is_some() => TYPE_ZSET_WITH_TTL,
        Object::Zset(_) => TYPE_ZSET,
        Object::Hash(table) if table.min_expiry_ms().is_some() => TYPE_HASH_WITH_TTL,
        Object::Hash(_) => TYPE_HASH,
        Object::Stream(stream) => stream::type_of(stream),
        Object::Module(value) if value.kind() == Type::Array => TYPE_ARRAY,
        Object::Module(_) => TYPE_MODULE,
    }
}

/// Appends a collection's elements, without the type byte.
pub fn write_object(object: &Object, arena: &Arena, out: &mut Vec<u8>) {
    match object {
        Object::List(list) => {
            text::write_length(out, list.len());
            list.iter(arena, 0, ListEnd::Back).for_each(|item| write_item(out, item));
        }
        Object::Set(set) => write_set(set, arena, out),
        Object::Zset(zset) => {
            let is_timed = zset.next_expiry().is_some();
            text::write_length(out, zset.len());
            for (member, score) in zset.iter(arena, 0, Direction::Up) {
                write_item(out, member);
                out.extend_from_slice(&score.to_le_bytes());
                if is_timed {
                    text::write_length(out, zset.expiry(member).unwrap_or(0));
                }
            }
        }
        Object::Hash(table) => write_hash(table, arena, out),
        Object::Stream(stream) => stream::write(stream, arena, out),
        Object::Module(value) => match Array::of(object) {
            Some(array) => module::array::write(array, arena, out),
            None => module::write(&**value, arena, out),
        },
    }
}

/// The collection of type byte `kind` that `source` holds; `hasher` is that of its shard.
///
/// Errors: an unknown type, damaged or empty, or no room in the arena; nothing is left behind there.
pub fn read_object(
    kind: u8,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<Object, Corrupt> {
    match kind {
        TYPE_LIST => filled(List::new(), arena, |list, arena| read_list(list, source, arena)),
        TYPE_SET | TYPE_SET_WITH_TTL => {
            filled(SetValue::new(), arena, |set, arena| read_set(kind, set, source, arena, hasher))
        }
        TYPE_ZSET | TYPE_ZSET_WITH_TTL => {
            filled(Zset::new(), arena, |zset, arena| read_zset(kind, zset, source, arena, hasher))
        }
        TYPE_HASH | TYPE_HASH_WITH_TTL | TYPE_HASH_WITH_FULL_TTL | TYPE_VALKEY_HASH => {
            filled(Table::new(PackKind::KeysAndValues), arena, |table, arena| {
                read_hash(kind, table, source, arena, hasher)
            })
        }
        stream::TYPE_STREAM
        | stream::TYPE_STREAM_2
        | stream::TYPE_STREAM_3
        | stream::TYPE_STREAM_4
        | stream::TYPE_STREAM_5 => stream::read(kind, source, arena),
        TYPE_MODULE => Ok(Object::Module(module::read(source, arena)?)),
        TYPE_ARRAY => Ok(module::array::read(source, arena)?.wrap()),
        _ => compact::read(kind, source, arena, hasher),
    }
}

impl Object {
    /// Adds a piece, as a snapshot has it, to a module's value.
    ///
    /// Errors: the value is another, or the piece is damaged.
    pub fn read_piece(&mut self, source: &mut RdbSource<'_>, arena: &mut Arena) -> Result<(), Corrupt> {
        match self {
            Object::Module(value) => module::read_more(&mut **value, source, arena),
            _ => Err(Corrupt),
        }
    }
}

/// A collection that can be read in pieces, each as [`write_object`] would write it alone.
pub trait ObjectPieces: Collection {
    /// Adds the elements that `source` holds under type byte `kind`; `hasher` is that of the shard.
    ///
    /// Errors: damaged, of another type, a repeated member of a sorted set, or no room. Elements read before the
    /// fault stay in the collection.
    fn read_more(
        &mut self,
        kind: u8,
        source: &mut RdbSource<'_>,
        arena: &mut Arena,
        hasher: KeyHasher,
    ) -> Result<(), Corrupt>;
}

macro_rules! pieces {
    ($($name:ty: $kinds:pat => |$it:ident, $kind:ident, $source:ident, $arena:ident, $hasher:ident| $read:expr;)*) => {
        $(impl ObjectPieces for $name {
            fn read_more(
                &mut self,
                $kind: u8,
                $source: &mut RdbSource<'_>,
                $arena: &mut Arena,
                $hasher: KeyHasher,
            ) -> Result<(), Corrupt> {
                let $it = self;
                if matches!($kind, $kinds) { $read } else { Err(Corrupt) }
            }
        })*
    };
}

pieces! {
    List: TYPE_LIST => |list, kind, source, arena, _hasher| read_list(list, source, arena);
    SetValue: TYPE_SET | TYPE_SET_WITH_TTL =>
        |set, kind, source, arena, hasher| read_set(kind, set, source, arena, hasher);
    Zset: TYPE_ZSET | TYPE_ZSET_WITH_TTL =>
        |zset, kind, source, arena, hasher| read_zset(kind, zset, source, arena, hasher);
    StreamValue: stream::TYPE_STREAM_5 =>
        |log, kind, source, arena, _hasher| stream::read_more(kind, log, source, arena);
    Table: TYPE_HASH | TYPE_HASH_WITH_TTL =>
        |table, kind, source, arena, hasher| read_hash(kind, table, source, arena, hasher);
}

/// `collection` after `fill`; when that fails or leaves it empty, its blocks are given back.
pub(super) fn filled<T: Collection>(
    mut collection: T,
    arena: &mut Arena,
    fill: impl FnOnce(&mut T, &mut Arena) -> Result<(), Corrupt>,
) -> Result<Object, Corrupt> {
    let done = fill(&mut collection, arena);
    let is_empty = collection.has_no_member();
    let mut object = collection.wrap();
    if done.is_err() || is_empty {
        object.clear(arena);
        return Err(Corrupt);
    }
    Ok(object)
}

/// Appends a member of a collection without expiring members, as [`write_object`] does after [`write_members_head`].
pub fn write_seen(seen: &SeenLeaf<'_>, out: &mut Vec<u8>) {
    match *seen {
        SeenLeaf::Item(item) => write_item(out, item),
        SeenLeaf::Field(field, value) => {
            write_item(out, field);
            write_item(out, value);
        }
        SeenLeaf::Scored(member, score) => {
            write_item(out, member);
            out.extend_from_slice(&score.to_le_bytes());
        }
        SeenLeaf::Logged(_) => debug_assert!(false, "streams have a form of their own"),
    }
}

fn write_item(out: &mut Vec<u8>, item: Item<'_>) {
    text::write_text(out, item.text(&mut darter_pack::decimal::Digits::new()));
}

/// Appends the part before `count` members of a hash or a set of type byte `kind`. `earliest_ms`: no member expires
/// before.
pub fn write_members_head(kind: u8, earliest_ms: Option<u64>, count: u64, out: &mut Vec<u8>) {
    if kind == TYPE_HASH_WITH_TTL {
        out.extend_from_slice(&earliest_ms.unwrap_or(0).to_le_bytes());
    }
    text::write_length(out, count);
}

/// Appends one member of a hash or a set, with the value if it is a field, and when it expires.
pub fn write_member(
    kind: u8,
    earliest_ms: Option<u64>,
    key: Item<'_>,
    value: Option<Item<'_>>,
    expiry_ms: Option<u64>,
    out: &mut Vec<u8>,
) {
    if kind == TYPE_HASH_WITH_TTL {
        // 0: never expires; else one more than the distance to the earliest
        let ttl = expiry_ms.map_or(0, |ms| ms.saturating_sub(earliest_ms.unwrap_or(0)) + 1);
        text::write_length(out, ttl);
    }
    write_item(out, key);
    if let Some(value) = value {
        write_item(out, value);
    }
    if kind == TYPE_SET_WITH_TTL {
        text::write_length(out, expiry_ms.unwrap_or(0));
    }
}

fn write_set(set: &SetValue, arena: &Arena, out: &mut Vec<u8>) {
    let earliest_ms = set.next_expiry_ms();
    let kind = if earliest_ms.is_some() { TYPE_SET_WITH_TTL } else { TYPE_SET };
    write_members_head(kind, earliest_ms, set.len(), out);
    let ints = set.ints().map(|ints| ints.iter(arena, 0, Direction::Up));
    for value in ints.into_iter().flatten() {
        write_member(kind, earliest_ms, Item::Int(value), None, None, out);
    }
    for entry in set.texts().map(|texts| texts.iter(arena)).into_iter().flatten() {
        write_member(kind, earliest_ms, entry.key(), None, entry.expiry_ms(), out);
    }
}

fn read_list(list: &mut List, source: &mut RdbSource<'_>, arena: &mut Arena) -> Result<(), Corrupt> {
    for _ in 0..source.count()? {
        list.push(arena, ListEnd::Back, Item::of(&source.text()?)).map_err(|_| Corrupt)?;
    }
    Ok(())
}

fn read_set(
    kind: u8,
    set: &mut SetValue,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    for _ in 0..source.count()? {
        let member = source.text()?;
        let expiry = match if kind == TYPE_SET_WITH_TTL { source.count()? } else { 0 } {
            0 => FieldExpiry::Keep,
            ms => FieldExpiry::At(ms),
        };
        set.insert(arena, hasher, Item::of(&member), expiry).map_err(|_| Corrupt)?;
    }
    Ok(())
}

fn write_hash(table: &Table, arena: &Arena, out: &mut Vec<u8>) {
    let earliest_ms = table.min_expiry_ms();
    let kind = if earliest_ms.is_some() { TYPE_HASH_WITH_TTL } else { TYPE_HASH };
    write_members_head(kind, earliest_ms, table.len() as u64, out);
    for entry in table.iter(arena) {
        write_member(kind, earliest_ms, entry.key(), Some(entry.value()), entry.expiry_ms(), out);
    }
}

fn read_hash(
    kind: u8,
    table: &mut Table,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    let earliest = if kind == TYPE_HASH_WITH_TTL { u64::from_le_bytes(source.array()?) } else { 0 };
    let fields = source.count()?;
    for _ in 0..fields {
        let in_front = match kind {
            TYPE_HASH_WITH_TTL => match source.count()?.checked_sub(1) {
                Some(after) => earliest.checked_add(after).ok_or(Corrupt)?,
                None => 0,
            },
            TYPE_HASH_WITH_FULL_TTL => source.count()?,
            _ => 0,
        };
        let (field, value) = (source.text()?, source.text()?);
        let deadline = match kind {
            // -1: never expires
            TYPE_VALKEY_HASH => u64::try_from(i64::from_le_bytes(source.array()?)).unwrap_or(0),
            _ => in_front,
        };
        let expiry = if deadline == 0 { FieldExpiry::Clear } else { FieldExpiry::At(deadline) };
        let hash = hasher.hash(&field);
        table
            .insert(arena, hash, &field, Item::of(&value), expiry, &|key: &[u8]| hasher.hash(key))
            .map_err(|_| Corrupt)?;
    }
    Ok(())
}

fn read_zset(
    kind: u8,
    zset: &mut Zset,
    source: &mut RdbSource<'_>,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    for _ in 0..source.count()? {
        let (member, score) = (source.text()?, source.double()?);
        // NaN has no place in the order, and a member has one place.
        if score.is_nan() || !zset.insert(arena, &hasher, Item::of(&member), score).map_err(|_| Corrupt)? {
            return Err(Corrupt);
        }
        if kind == TYPE_ZSET_WITH_TTL
            && let ms @ 1.. = source.count()?
        {
            zset.set_expiry(arena, &hasher, Item::of(&member), Some(ms));
        }
    }
    Ok(())
}
