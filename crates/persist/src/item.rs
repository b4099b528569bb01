//! What files hold besides entries, and entries in chunks.

use crate::entry::Chunk;

/// What comes next in the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A fact about whoever wrote it.
    Aux {
        /// Its name.
        name: Vec<u8>,
        /// Its text.
        value: Vec<u8>,
    },
    /// The code of a library of functions.
    Function(Vec<u8>),
    /// How many keys a database has.
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
    /// A key, or what a module said about itself, that is not kept.
    Skipped {
        /// The database.
        db: u32,
        /// The key; `None` for what belongs to no key.
        key: Option<Vec<u8>>,
        /// What it is, as part of a sentence.
        what: String,
    },
    /// The end.
    End,
}
