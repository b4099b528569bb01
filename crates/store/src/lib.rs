//! The keyspace of one shard: records, values, databases, expiry, and the log of what changed.
//!
//! Called by `command` (one command body at a time, with the shard held) and by the server's
//! housekeeping. Never knows sockets, threads, clocks or replicas: time and hashes are arguments.
//!
//! The layers, from below; a module names none of a layer above its own:
//!
//! 1. `error`, `value_type`, `rdb_primitives`, `text`, `extras`, `labels`, `change` and others: small types.
//! 2. `array`, `set_value`, `stream_value`, `module`: values in an arena; `record`: the bytes of one key.
//! 3. `object`: a value of any type; `folded` and `rdb`: its two other forms.
//! 4. `shard`, and its behaviour by parts: `cut`, `draft`, `evict`, `reads`, `tidy`, `uses`, `series`, `walk`,
//!    `direct`, `aside`.
//! 5. `keyed`: one key of a shard; `expiry`, `idle`, `item`, `moving`: what happens to a key.
#![forbid(unsafe_code)]

pub mod array;
pub mod ascii7;
mod aside;
pub mod change;
pub mod cut;
pub mod db;
mod direct;
pub mod draft;
pub mod error;
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
mod rdb_primitives;
pub mod reads;
pub mod record;
mod series;
pub mod set_value;
pub mod shard;
pub mod slots;
pub mod stream_value;
pub mod text;
pub mod tidy;
mod uses;
mod value_type;
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
pub use keyed::{Edited, Keyed};
pub use links::Links;
pub use module::Json;
pub use object::{Collection, KeyView, Object};
pub use record::{Expiry, Record};
pub use set_value::SetValue;
pub use shard::{HOT_BYTES, Key, Shard};
pub use stream_value::StreamValue;
pub use text::Text;
pub use value_type::Type;
