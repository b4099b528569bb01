//! The errors of the keyspace: no room, another type.
//!
//! Made by collections, by the shard and by its keys; commands turn them into replies. Never a text for clients.

/// The arena has no room for a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardFull;

/// The value is not of the type the command works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

/// Why a collection could not be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedWrite {
    /// The value has another type.
    WrongType,
    /// There is no room.
    Full,
}

impl From<WrongType> for RefusedWrite {
    fn from(_: WrongType) -> RefusedWrite {
        RefusedWrite::WrongType
    }
}

impl From<ShardFull> for RefusedWrite {
    fn from(_: ShardFull) -> RefusedWrite {
        RefusedWrite::Full
    }
}
