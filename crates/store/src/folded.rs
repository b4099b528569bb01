//! Small collections without a root: a record holds the handle of their only block, and the root is rebuilt for each
//! use.
//!
//! For a change it is built on the stack. For readers, which hold it as long as the shard, it is built in
//! [`FoldScratch`].

use std::cell::{Cell, OnceCell};
use std::mem;

use darter_pack::table::{PackKind, Table};
use darter_slab::{Arena, Handle};

use crate::module;
use crate::object::{Collection, Object};
use crate::record::RecordPayload;
use crate::set_value::SetValue;
use crate::value_type::Type;

impl Object {
    /// The payload that fully describes this collection, if it is small enough.
    #[inline]
    pub(crate) fn fold(&self, arena: &Arena) -> Option<RecordPayload<'static>> {
        let block = match self {
            Object::Hash(table) => Collection::fold(table, arena),
            Object::Set(set) => Collection::fold(set, arena),
            Object::Module(value) => value.fold(arena),
            _ => None,
        };
        block.map(|block| RecordPayload::Folded(self.kind(), block.raw()))
    }

    /// The collection whose payload is `Folded(kind, block)`.
    #[inline]
    pub(crate) fn unfold(kind: Type, block: u32, arena: &Arena) -> Object {
        let block = Handle::from_raw(block);
        match kind {
            Type::Set => Object::Set(SetValue::unfold(block, arena)),
            Type::Hash => Object::Hash(Table::unfold(PackKind::KeysAndValues, block, arena)),
            kind => match module::unfold(kind, block, arena) {
                Some(value) => Object::Module(value),
                None => unreachable!("a type whose values always have a root"),
            },
        }
    }
}

/// Roots built for readers: they stay until the next lookup in the shard.
#[derive(Debug, Default)]
pub(crate) struct FoldScratch {
    len: Cell<usize>,
    // Nearly always the only one.
    first: OnceCell<Object>,
    // Row n holds 2^n further ones.
    rows: [OnceCell<Box<[OnceCell<Object>]>>; ROWS],
}

/// Rows for 2^24 roots: more than the arguments of any command.
const ROWS: usize = 24;

impl FoldScratch {
    /// Keeps a root; `None` if there are far too many.
    #[inline]
    pub fn put(&self, object: Object) -> Option<&Object> {
        let n = self.len.get();
        self.len.set(n + 1);
        if n == 0 {
            return Some(self.first.get_or_init(|| object));
        }
        let row = n.ilog2() as usize;
        let cells = self.rows.get(row)?.get_or_init(|| (0..1usize << row).map(|_| OnceCell::new()).collect());
        Some(cells.get(n - (1 << row))?.get_or_init(|| object))
    }

    /// Drops all; their blocks belong to the records.
    #[inline]
    pub fn clear(&mut self) {
        if self.len.get() > 0 {
            match self.first.take() {
                // Unfolded, they own nothing: dropping them would look for it in vain.
                Some(bare @ (Object::Hash(_) | Object::Set(_))) => mem::forget(bare),
                rest => drop(rest),
            }
            if self.len.get() > 1 {
                self.clear_rows();
            }
            self.len.set(0);
        }
    }

    #[inline(never)]
    fn clear_rows(&mut self) {
        let used = (self.len.get() - 1).ilog2() as usize + 1;
        self.rows.iter_mut().take(used).for_each(|row| *row = OnceCell::new());
    }
}

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;
    use darter_pack::entry::Item;
    use darter_pack::table::FieldExpiry;

    use super::*;
    use crate::record::Expiry;
    use crate::{Key, Keyed, Shard};

    const NOW: u64 = 1_700_000_000_000;

    fn place<'a>(shard: &'a mut Shard, name: &'a str) -> Keyed<'a> {
        let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
        Keyed::find(shard, 0, key, NOW)
    }

    fn put(shard: &mut Shard, name: &str, field: &str, expiry: FieldExpiry) {
        let make = || Table::new(PackKind::KeysAndValues);
        let done = place(shard, name).edit_or_create(make, |table: &mut Table, arena, hasher| {
            let hash = hasher.hash(field.as_bytes());
            table.insert(arena, hash, field.as_bytes(), Item::Int(7), expiry, &|key: &[u8]| hasher.hash(key))
        });
        done.expect("a hash").result.expect("room");
    }

    fn take(shard: &mut Shard, name: &str, field: &str) -> bool {
        let edited = place(shard, name).edit(|table: &mut Table, arena, hasher| {
            assert!(table.remove(arena, hasher.hash(field.as_bytes()), field.as_bytes()));
        });
        edited.expect("a hash").expect("there").is_gone
    }

    fn add(shard: &mut Shard, name: &str, member: &str) {
        let done = place(shard, name).edit_or_create(SetValue::new, |set: &mut SetValue, arena, hasher| {
            set.insert(arena, hasher, Item::of(member.as_bytes()), FieldExpiry::Keep)
        });
        done.expect("a set").result.expect("room");
    }

    #[test]
    fn a_hash_has_a_root_only_while_it_is_large_or_timed() {
        let mut shard = Shard::new(1, 1, KeyHasher::new(5)).expect("address space");
        let fields: Vec<String> = (0..500).map(|n| format!("field:{n}")).collect();
        put(&mut shard, "h", "a", FieldExpiry::Keep);
        assert_eq!(shard.objects.len(), 0);
        fields.iter().for_each(|field| put(&mut shard, "h", field, FieldExpiry::Keep));
        assert_eq!(shard.objects.len(), 1);
        fields.iter().for_each(|field| assert!(!take(&mut shard, "h", field)));
        assert_eq!(shard.objects.len(), 0);
        put(&mut shard, "h", "b", FieldExpiry::At(NOW + 1000));
        assert_eq!((shard.objects.len(), shard.timed), (1, 1));
        assert!(!take(&mut shard, "h", "b"));
        let long = "x".repeat(2000);
        put(&mut shard, "long", &long, FieldExpiry::Keep);
        assert!(take(&mut shard, "long", &long));
        assert!(take(&mut shard, "h", "a"));
        assert_eq!((shard.objects.len(), shard.timed, shard.arena.used_bytes()), (0, 0, 0));
    }

    #[test]
    fn folded_values_are_moved_copied_replaced_and_removed() {
        let mut shard = Shard::new(1, 1, KeyHasher::new(5)).expect("address space");
        let hasher = shard.hasher;
        let key = |bytes: &'static [u8]| Key { bytes, hash: hasher.hash(bytes) };
        put(&mut shard, "h", "a", FieldExpiry::Keep);
        add(&mut shard, "s", "text");
        let copy = place(&mut shard, "h").copy().expect("there");
        place(&mut shard, "copy").put_copy(&copy).expect("room");
        assert!(shard.rename((0, key(b"s")), (0, key(b"h")), NOW).expect("room"));
        assert_eq!(place(&mut shard, "h").kind(), Some(Type::Set));
        assert!(place(&mut shard, "h").set_deadline(Some(NOW + 5)).expect("room"));
        let view = place(&mut shard, "h").view::<SetValue>().expect("a set").map(|set| set.root.len());
        assert_eq!(view, Some(1));
        assert!(place(&mut shard, "h").view::<Table>().is_err());
        assert!(place(&mut shard, "h").edit(|_: &mut Table, _, _| ()).is_err());
        assert!(place(&mut shard, "copy").memory_bytes().expect("there") > 16);
        place(&mut shard, "h").put_text(b"x", Expiry::None).expect("room");
        assert!(place(&mut shard, "copy").remove() && place(&mut shard, "h").remove());
        assert_eq!((shard.objects.len(), shard.arena.used_bytes()), (0, 0));
    }

    #[test]
    fn any_number_of_readers_look_at_once() {
        let mut shard = Shard::new(1, 1, KeyHasher::new(5)).expect("address space");
        let names: Vec<String> = (0..1000).map(|n| format!("set:{n}")).collect();
        names.iter().for_each(|name| add(&mut shard, name, &format!("of {name}")));
        let views: Vec<_> = names
            .iter()
            .map(|name| {
                let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
                let record = shard.peek(0, key, NOW).expect("there");
                shard.view_of::<SetValue>(record).expect("a set")
            })
            .collect();
        for (view, name) in views.iter().zip(&names) {
            let members: Vec<_> = view.root.iter(view.arena, NOW).map(Item::to_vec).collect();
            assert_eq!(members, [format!("of {name}").into_bytes()]);
        }
        assert_eq!(shard.scratch.len.get(), 1000);
        assert!(place(&mut shard, "set:5").exists());
        assert_eq!(shard.scratch.len.get(), 0);
    }
}
