//! The type of a value, as records keep it and `TYPE` answers it.
//!
//! Called by records and by collections; never knows either.

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
    /// A JSON document.
    Json = 6,
    /// A Bloom filter.
    Bloom = 7,
    /// A cuckoo filter.
    Cuckoo = 8,
    /// A count-min sketch.
    CountMin = 9,
    /// The items that occur most often.
    TopK = 10,
    /// A t-digest.
    Digest = 11,
    /// A time series.
    Series = 12,
    /// A sparse array.
    Array = 13,
}

impl Type {
    /// All types, in the order of their numbers.
    pub const ALL: [Type; 14] = [
        Type::String,
        Type::List,
        Type::Set,
        Type::Zset,
        Type::Hash,
        Type::Stream,
        Type::Json,
        Type::Bloom,
        Type::Cuckoo,
        Type::CountMin,
        Type::TopK,
        Type::Digest,
        Type::Series,
        Type::Array,
    ];

    /// The name `TYPE` answers.
    pub const fn name(self) -> &'static str {
        match self {
            Type::String => "string",
            Type::List => "list",
            Type::Set => "set",
            Type::Zset => "zset",
            Type::Hash => "hash",
            Type::Stream => "stream",
            Type::Json => "ReJSON-RL",
            Type::Bloom => "MBbloom--",
            Type::Cuckoo => "MBbloomCF",
            Type::CountMin => "CMSk-TYPE",
            Type::TopK => "TopK-TYPE",
            Type::Digest => "TDIS-TYPE",
            Type::Series => "TSDB-TYPE",
            Type::Array => "array",
        }
    }

    pub(crate) fn from_byte(byte: u8) -> Type {
        Type::ALL[byte as usize]
    }
}
