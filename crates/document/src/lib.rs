//! A JSON document as one run of bytes, smaller than its text: parsed, printed, searched by path and changed.
//!
//! Called by `store`, which keeps the bytes, and by the JSON commands. The crate knows no key, no arena and no reply.
#![forbid(unsafe_code)]

pub mod cbor;
pub mod compare;
mod dictionary;
pub mod doc;
pub mod edit;
pub mod form;
pub mod merge;
pub mod number;
pub mod parse;
pub mod path;
pub mod precision;
pub mod print;
pub mod rewrite;
#[cfg(test)]
mod tests;

pub use doc::{Doc, Node};
pub use form::View;
pub use parse::{Invalid, parse, parse_into};
pub use path::Path;
pub use print::Style;
pub use rewrite::{Change, Rewritten, rewrite};

/// The deepest nesting of a document. It is the default limit of serde_json.
pub const DEPTH_MAX: usize = 127;
