//! The items of files besides entries, and entries in chunks.

use crate::entry::Chunk;

/// The next item of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RdbItem {
    /// A fact about whoever wrote it.
    Aux {
        /// Its name.
        name: Vec<u8>,
        /// Its text.
        value: Vec<u8>,
    },
    /// The code of a library of functions.
    Function(Vec<u8>),
    /// The number of keys of a database.
    Sizes {
        /// The database.
        db: u32,
        /// Its keys.
        keys: u64,
        /// Keys with a deadline.
        expiring: u64,
    },
    /// Some keys.
    Entries(Chunk),
    /// A key, or a fact of a module, that is not kept.
    Skipped {
        /// The database.
        db: u32,
        /// The key; `None` if it belongs to no key.
        key: Option<Vec<u8>>,
        /// The kind of item, as part of a sentence.
        what: String,
    },
    /// The end.
    End,
}
