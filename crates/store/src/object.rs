//! Values that are not strings: the targets of records of kind `Object`.
//!
//! The small root of a collection lives here, its packs in the shard's arena. Commands reach a collection by type
//! through [`Collection`]; no other code needs to know that [`Object`] is an enum.

use std::any::Any;

use darter_base::hash::KeyHasher;
use darter_pack::table::{PackKind, Table};
use darter_pack::tree::{List, Zset};
use darter_slab::{Arena, Handle};

use crate::module::{ModuleType, ModuleValue};
use crate::set_value::SetValue;
use crate::stream_value::StreamValue;
use crate::value_type::Type;

/// A collection to read: its root, and the arguments of the root's methods.
pub struct KeyView<'a, T> {
    /// The collection.
    pub root: &'a T,
    /// The arena of its packs.
    pub arena: &'a Arena,
    /// Hashes members and fields.
    pub hasher: KeyHasher,
}

impl<T> Clone for KeyView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

// Not derived: that would ask for `T: Copy`.
impl<T> Copy for KeyView<'_, T> {}

/// A kind of collection that a key can hold.
pub trait Collection: Sized {
    /// Its type.
    const TYPE: Type;
    /// Wraps it as the value of a key.
    fn wrap(self) -> Object;
    /// The collection in `object`, if it is of this kind.
    fn of(object: &Object) -> Option<&Self>;
    /// The same, to change.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
    /// Returns true if there is no member, so that the key must be removed.
    fn has_no_member(&self) -> bool;
    /// Bytes in the arena and on the heap, without the root.
    fn memory_bytes(&self) -> usize;
    /// Frees up to about `blocks_max` blocks; returns true if none is left.
    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool;
    /// No member expires before this, Unix milliseconds; `None` when none expires.
    fn next_expiry_ms(&self) -> Option<u64> {
        None
    }
    /// Returns true if it holds blocks of removed members, which [`Shard::free_some`](crate::Shard::free_some) must
    /// free.
    fn is_unswept(&self) -> bool {
        false
    }
    /// The block that fully describes this collection, if its record may keep that in place of a root. The root holds
    /// nothing else then and may be forgotten.
    fn fold(&self, _arena: &Arena) -> Option<Handle> {
        None
    }
    /// The collection that [`Collection::fold`] gave `block` for; `None` if this kind always has a root.
    fn unfold(_block: Handle, _arena: &Arena) -> Option<Self> {
        None
    }
    /// Moves blocks of up to about `packs_max` packs out of pages that the arena wants to empty, from `cursor` on.
    /// Returns the next cursor, 0 at the end. Blocks that cannot be moved stay.
    fn compact_step(&mut self, _arena: &mut Arena, _cursor: u64, _packs_max: usize) -> u64 {
        0
    }
    /// Removes members that have expired at `now_ms`, examining at most `packs_max` packs; returns their number.
    /// `hasher` is that of the shard.
    fn expire_step(
        &mut self,
        _arena: &mut Arena,
        _hasher: KeyHasher,
        _now_ms: u64,
        _packs_max: usize,
    ) -> usize {
        0
    }
}

macro_rules! objects {
    ($($(#[doc = $doc:literal])* $name:ident($kind:ty);)*) => {
        /// A collection.
        #[derive(Debug)]
        pub enum Object {
            $($(#[doc = $doc])* $name($kind),)*
            /// A value of a family that Redis keeps in a module.
            Module(Box<dyn ModuleValue>),
        }

        impl Object {
            /// The type of the value.
            pub fn kind(&self) -> Type {
                match self {
                    $(Object::$name(_) => Type::$name,)*
                    Object::Module(value) => value.kind(),
                }
            }

            /// Bytes in the arena and on the heap, without the root.
            pub fn memory_bytes(&self) -> usize {
                match self {
                    $(Object::$name(value) => value.memory_bytes(),)*
                    Object::Module(value) => value.memory_bytes(),
                }
            }

            /// Frees up to about `blocks_max` blocks; returns true if none is left, and the rest may be dropped.
            pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
                match self {
                    $(Object::$name(value) => value.free_step(arena, blocks_max),)*
                    Object::Module(value) => value.free_step(arena, blocks_max),
                }
            }

            /// No member expires before this, Unix milliseconds; `None` when none expires.
            pub fn next_expiry_ms(&self) -> Option<u64> {
                match self {
                    $(Object::$name(value) => value.next_expiry_ms(),)*
                    Object::Module(_) => None,
                }
            }

            /// Removes members that have expired at `now_ms`, examining at most `packs_max` packs; returns their
            /// number.
            pub fn expire_step(
                &mut self,
                arena: &mut Arena,
                hasher: KeyHasher,
                now_ms: u64,
                packs_max: usize,
            ) -> usize {
                match self {
                    $(Object::$name(value) => value.expire_step(arena, hasher, now_ms, packs_max),)*
                    Object::Module(_) => 0,
                }
            }

            /// Moves blocks of up to about `packs_max` packs out of pages that the arena wants to empty, from
            /// `cursor` on. Returns the next cursor, 0 at the end.
            pub fn compact_step(&mut self, arena: &mut Arena, cursor: u64, packs_max: usize) -> u64 {
                match self {
                    $(Object::$name(value) => value.compact_step(arena, cursor, packs_max),)*
                    Object::Module(value) => value.compact_step(arena, cursor, packs_max),
                }
            }

            /// Returns true if there is no member left.
            pub fn has_no_member(&self) -> bool {
                match self {
                    $(Object::$name(value) => value.has_no_member(),)*
                    Object::Module(_) => false,
                }
            }

            /// Gives every block back to `arena`.
            pub fn clear(&mut self, arena: &mut Arena) {
                while !self.free_step(arena, usize::MAX) {}
            }
        }
    };
}

objects! {
    /// A list.
    List(List);
    /// A set.
    Set(SetValue);
    /// A sorted set, boxed because its root is larger than the others.
    Zset(Box<Zset>);
    /// A hash: fields and values.
    Hash(Table);
    /// A stream.
    Stream(StreamValue);
}

impl Collection for List {
    const TYPE: Type = Type::List;

    fn wrap(self) -> Object {
        Object::List(self)
    }

    fn of(object: &Object) -> Option<&List> {
        match object {
            Object::List(list) => Some(list),
            _ => None,
        }
    }

    fn of_mut(object: &mut Object) -> Option<&mut List> {
        match object {
            Object::List(list) => Some(list),
            _ => None,
        }
    }

    fn has_no_member(&self) -> bool {
        self.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        self.bytes() + self.spilled_bytes()
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        List::free_step(self, arena, blocks_max)
    }
}

impl Collection for Table {
    const TYPE: Type = Type::Hash;

    fn wrap(self) -> Object {
        Object::Hash(self)
    }

    fn of(object: &Object) -> Option<&Table> {
        match object {
            Object::Hash(table) => Some(table),
            _ => None,
        }
    }

    fn of_mut(object: &mut Object) -> Option<&mut Table> {
        match object {
            Object::Hash(table) => Some(table),
            _ => None,
        }
    }

    fn has_no_member(&self) -> bool {
        self.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        self.bytes()
    }

    fn free_step(&mut self, arena: &mut Arena, packs_max: usize) -> bool {
        Table::free_step(self, arena, packs_max)
    }

    #[inline]
    fn fold(&self, arena: &Arena) -> Option<Handle> {
        Table::fold(self, arena)
    }

    #[inline]
    fn unfold(block: Handle, arena: &Arena) -> Option<Table> {
        Some(Table::unfold(PackKind::KeysAndValues, block, arena))
    }

    fn compact_step(&mut self, arena: &mut Arena, cursor: u64, packs_max: usize) -> u64 {
        Table::compact_step(self, arena, cursor, packs_max)
    }

    #[inline]
    fn next_expiry_ms(&self) -> Option<u64> {
        self.min_expiry_ms()
    }

    fn expire_step(&mut self, arena: &mut Arena, _: KeyHasher, now_ms: u64, packs_max: usize) -> usize {
        self.expire_due(arena, now_ms, packs_max, |_| {}).removed
    }
}

impl Collection for SetValue {
    const TYPE: Type = Type::Set;

    fn wrap(self) -> Object {
        Object::Set(self)
    }

    fn of(object: &Object) -> Option<&SetValue> {
        match object {
            Object::Set(set) => Some(set),
            _ => None,
        }
    }

    fn of_mut(object: &mut Object) -> Option<&mut SetValue> {
        match object {
            Object::Set(set) => Some(set),
            _ => None,
        }
    }

    fn has_no_member(&self) -> bool {
        self.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        self.bytes()
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        SetValue::free_step(self, arena, blocks_max)
    }

    #[inline]
    fn fold(&self, arena: &Arena) -> Option<Handle> {
        SetValue::fold(self, arena)
    }

    #[inline]
    fn unfold(block: Handle, arena: &Arena) -> Option<SetValue> {
        Some(SetValue::unfold(block, arena))
    }

    fn compact_step(&mut self, arena: &mut Arena, cursor: u64, packs_max: usize) -> u64 {
        self.compact_texts(arena, cursor, packs_max)
    }

    #[inline]
    fn next_expiry_ms(&self) -> Option<u64> {
        SetValue::next_expiry_ms(self)
    }

    fn expire_step(&mut self, arena: &mut Arena, _: KeyHasher, now_ms: u64, packs_max: usize) -> usize {
        SetValue::expire_due(self, arena, now_ms, packs_max)
    }
}

/// Members of a sorted set that take as long to remove as a search in a pack of a table.
const MEMBERS_PER_PACK: usize = 4;

impl Collection for Zset {
    const TYPE: Type = Type::Zset;

    fn wrap(self) -> Object {
        Object::Zset(Box::new(self))
    }

    fn of(object: &Object) -> Option<&Zset> {
        match object {
            Object::Zset(zset) => Some(zset),
            _ => None,
        }
    }

    fn of_mut(object: &mut Object) -> Option<&mut Zset> {
        match object {
            Object::Zset(zset) => Some(zset),
            _ => None,
        }
    }

    fn has_no_member(&self) -> bool {
        self.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Zset>() + self.bytes() + self.spilled_bytes() + self.expiry_bytes()
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        Zset::free_step(self, arena, blocks_max)
    }

    #[inline]
    fn next_expiry_ms(&self) -> Option<u64> {
        self.next_expiry()
    }

    fn expire_step(&mut self, arena: &mut Arena, hasher: KeyHasher, now_ms: u64, packs_max: usize) -> usize {
        self.expire_due(arena, &hasher, now_ms, packs_max.saturating_mul(MEMBERS_PER_PACK), |_| {})
    }
}

impl Collection for StreamValue {
    const TYPE: Type = Type::Stream;

    fn wrap(self) -> Object {
        Object::Stream(self)
    }

    fn of(object: &Object) -> Option<&StreamValue> {
        match object {
            Object::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    fn of_mut(object: &mut Object) -> Option<&mut StreamValue> {
        match object {
            Object::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    // A stream outlives its entries: it remembers ids and groups.
    fn has_no_member(&self) -> bool {
        false
    }

    fn is_unswept(&self) -> bool {
        StreamValue::is_unswept(self)
    }

    fn memory_bytes(&self) -> usize {
        self.bytes()
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        StreamValue::free_step(self, arena, blocks_max)
    }
}

impl<T: ModuleType> Collection for T {
    const TYPE: Type = T::KIND;

    fn wrap(self) -> Object {
        Object::Module(Box::new(self))
    }

    fn of(object: &Object) -> Option<&T> {
        let Object::Module(value) = object else { return None };
        let value: &dyn Any = &**value;
        value.downcast_ref()
    }

    fn of_mut(object: &mut Object) -> Option<&mut T> {
        let Object::Module(value) = object else { return None };
        let value: &mut dyn Any = &mut **value;
        value.downcast_mut()
    }

    /// Never: an empty value keeps its key.
    fn has_no_member(&self) -> bool {
        false
    }

    fn memory_bytes(&self) -> usize {
        ModuleValue::memory_bytes(self)
    }

    fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        ModuleValue::free_step(self, arena, blocks_max)
    }

    fn is_unswept(&self) -> bool {
        ModuleValue::is_unswept(self)
    }

    fn fold(&self, arena: &Arena) -> Option<Handle> {
        ModuleValue::fold(self, arena)
    }

    fn unfold(block: Handle, arena: &Arena) -> Option<T> {
        ModuleType::unfold(block, arena)
    }

    fn compact_step(&mut self, arena: &mut Arena, cursor: u64, packs_max: usize) -> u64 {
        ModuleValue::compact_step(self, arena, cursor, packs_max)
    }
}
