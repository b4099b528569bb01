//! Collections that Redis saves in its own compact forms. Only read: what we write needs no such form.

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_pack::table::{Expiry, Kind, Table};
use darter_pack::tree::List;
use darter_pack::tree::list::End;
use darter_slab::Arena;

use super::object::filled;
use super::packed::{self, Form};
use super::{Corrupt, Source};
use crate::object::Object;
use crate::set_value::SetValue;

const TYPE_LIST_ZIPLIST: u8 = 10;
const TYPE_SET_INTSET: u8 = 11;
const TYPE_HASH_ZIPLIST: u8 = 13;
const TYPE_LIST_QUICKLIST: u8 = 14;
const TYPE_HASH_LISTPACK: u8 = 16;
const TYPE_LIST_QUICKLIST_2: u8 = 18;
const TYPE_SET_LISTPACK: u8 = 20;

/// The collection of type byte `kind` that `source` holds in a compact form.
///
/// Errors: no such type, damaged or empty, or no room in the arena; nothing is left behind there.
pub fn read(
    kind: u8,
    source: &mut Source<'_>,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<Object, Corrupt> {
    match kind {
        TYPE_LIST_ZIPLIST => filled(List::new(), arena, |list, arena| {
            read_list_node(list, &source.text()?, Form::Ziplist, arena)
        }),
        TYPE_LIST_QUICKLIST => filled(List::new(), arena, |list, arena| {
            (0..source.count()?).try_for_each(|_| read_list_node(list, &source.text()?, Form::Ziplist, arena))
        }),
        TYPE_LIST_QUICKLIST_2 => filled(List::new(), arena, |list, arena| {
            (0..source.count()?).try_for_each(|_| match source.count()? {
                NODE_PLAIN => list.push(arena, End::Back, Item::of(&source.text()?)).map_err(|_| Corrupt),
                NODE_PACKED => read_list_node(list, &source.text()?, Form::Listpack, arena),
                _ => Err(Corrupt),
            })
        }),
        TYPE_SET_INTSET => filled(SetValue::new(), arena, |set, arena| {
            read_set(set, &source.text()?, Form::Intset, arena, hasher)
        }),
        TYPE_SET_LISTPACK => filled(SetValue::new(), arena, |set, arena| {
            read_set(set, &source.text()?, Form::Listpack, arena, hasher)
        }),
        TYPE_HASH_ZIPLIST => filled(Table::new(Kind::KeysAndValues), arena, |table, arena| {
            read_hash(table, &source.text()?, Form::Ziplist, arena, hasher)
        }),
        TYPE_HASH_LISTPACK => filled(Table::new(Kind::KeysAndValues), arena, |table, arena| {
            read_hash(table, &source.text()?, Form::Listpack, arena, hasher)
        }),
        _ => Err(Corrupt),
    }
}

/// A quicklist's node that is one long element, and one that is a listpack.
const NODE_PLAIN: u64 = 1;
const NODE_PACKED: u64 = 2;

fn read_list_node(list: &mut List, bytes: &[u8], form: Form, arena: &mut Arena) -> Result<(), Corrupt> {
    packed::each(form, bytes, &mut |item| list.push(arena, End::Back, item).map_err(|_| Corrupt))
}

fn read_set(
    set: &mut SetValue,
    bytes: &[u8],
    form: Form,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    packed::each(form, bytes, &mut |item| {
        set.insert(arena, hasher, item, Expiry::Clear).map(drop).map_err(|_| Corrupt)
    })
}

fn read_hash(
    table: &mut Table,
    bytes: &[u8],
    form: Form,
    arena: &mut Arena,
    hasher: KeyHasher,
) -> Result<(), Corrupt> {
    each_pair(form, bytes, |field, value| {
        let hash_of = |key: &[u8]| hasher.hash(key);
        let inserted = table.insert(arena, hasher.hash(field), field, value, Expiry::Clear, &hash_of);
        inserted.map(drop).map_err(|_| Corrupt)
    })
}

/// Visits elements two by two.
fn each_pair(
    form: Form,
    bytes: &[u8],
    mut visit: impl FnMut(&[u8], Item<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let mut first: Option<Vec<u8>> = None;
    packed::each(form, bytes, &mut |item| match first.take() {
        Some(first) => visit(&first, item),
        None => {
            first = Some(item.to_vec());
            Ok(())
        }
    })?;
    if first.is_none() { Ok(()) } else { Err(Corrupt) }
}
