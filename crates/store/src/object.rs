//! Values that are not strings: what a record of kind `Object` points to.

use darter_slab::Arena;

/// The type of a value, as `TYPE` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Type {
    /// A string.
    String = 0,
    /// A list.
    List = 1,
    /// A set.
    Set = 2,
    /// A sorted set.
    Zset = 3,
    /// A hash.
    Hash = 4,
    /// A stream.
    Stream = 5,
}

impl Type {
    /// All types, in the order of their numbers.
    pub const ALL: [Type; 6] =
        [Type::String, Type::List, Type::Set, Type::Zset, Type::Hash, Type::Stream];

    /// The name `TYPE` answers.
    pub const fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::Set => "set",
            Type::Zset => "zset",
            Type::Hash => "hash",
            Type::Stream => "stream",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Type {
        Type::ALL[byte as usize]
    }
}

/// A collection. Its small root lives here, its packs in the shard's arena.
#[derive(Debug)]
pub enum Object {}

impl Object {
    /// The type of the value.
    pub fn kind(&self) -> Type {
        match *self {}
    }

    /// Gives every block back to `arena`.
    pub fn clear(&mut self, _arena: &mut Arena) {
        match *self {}
    }
}
