//! A JSON document as one run of bytes, or in pieces of an arena: parsed, printed, searched by path and changed.
//!
//! Called by `store`, which keeps the bytes, and by the JSON commands. The crate knows no key and no reply.
#![forbid(unsafe_code)]

pub mod cbor;
pub mod compare;
mod dictionary;
pub mod doc;
pub mod edit;
mod escape;
mod floats;
pub mod form;
mod merge;
pub mod number;
pub mod parse;
pub mod parsing;
pub mod path;
#[cfg(test)]
mod pieces_tests;
mod places;
pub mod precision;
pub mod print;
pub mod printing;
pub mod rewrite;
pub mod stage;
pub mod storing;
#[cfg(test)]
mod tests;
pub mod tree;

pub use dictionary::{alone, renamed};
pub use doc::{Doc, DocNode};
pub use floats::{BadRuns, FloatRuns};
pub use form::FormView;
pub use parse::{Invalid, parse, parse_for, parse_into};
pub use parsing::{Parsed, Parsing};
pub use path::{JsonPath, PathSearch, Trace};
pub use print::PrintStyle;
pub use printing::{NodeWalk, Printing};
pub use rewrite::{DocChange, Rewritten, remove, rewrite, rewrite_scalar};
pub use storing::Storing;
pub use tree::NodePlace;

/// The deepest nesting of a document. It is the default limit of serde_json.
pub const DEPTH_MAX: usize = 127;
