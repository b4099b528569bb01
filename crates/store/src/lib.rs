//! The keyspace of one shard: records, values, databases, expiry, and the log of what changed.
//!
//! Called by `command` (one command body at a time, with the shard held) and by the server's
//! housekeeping. Never knows sockets, threads, clocks or replicas: time and hashes are arguments.
#![forbid(unsafe_code)]

pub mod array;
pub mod ascii7;
mod aside;
pub mod change;
pub mod cut;
pub mod db;
mod direct;
pub mod draft;
pub mod evict;
pub mod expiry;
pub mod extras;
mod folded;
pub mod hidden;
mod idle;
mod item;
pub mod keyed;
pub mod labels;
pub mod links;
pub mod module;
pub mod moving;
pub mod object;
pub mod rdb;
pub mod reads;
pub mod record;
pub mod set_value;
pub mod shard;
pub mod slots;
pub mod stream_value;
pub mod text;
pub mod tidy;
pub mod walk;

pub use array::Array;
pub use change::{Change, Event};
pub use darter_index::ScanPosition;
pub use darter_slab::Arena;
pub use darter_slab::global::{give_back, purge};
pub use darter_slab::touched;
pub use direct::Look;
pub use extras::{Extras, RecordMarks};
pub use hidden::HiddenSlots;
pub use keyed::{Edited, KeyView, Keyed};
pub use links::Links;
pub use module::Json;
pub use object::{Collection, Object, Type};
pub use record::{Expiry, Record};
pub use set_value::SetValue;
pub use shard::{HOT_BYTES, Key, Shard};
pub use stream_value::StreamValue;
pub use text::Text;
