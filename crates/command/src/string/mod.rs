//! Strings: values of up to `proto-max-bulk-len` bytes.

pub mod compare;
pub mod count;
pub mod get;
pub mod increx;
pub mod kernel;
pub mod lcs;
pub mod many;
pub mod range;
pub mod set;
#[cfg(test)]
mod tests;
pub mod throttle;

use crate::DataCommand;
use darter_store::change::Class;
use darter_store::error::ShardFull;
use darter_store::{Event, Expiry, Keyed};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    range::APPEND,
    range::PREPEND,
    count::DECR,
    count::DECRBY,
    compare::DELEX,
    compare::DELIFEQ,
    compare::DIGEST,
    get::GET,
    get::GETDEL,
    get::GETEX,
    range::GETRANGE,
    set::GETSET,
    count::INCR,
    count::INCRBY,
    count::INCRBYFLOAT,
    increx::INCREX,
    lcs::LCS,
    many::MGET,
    many::MSET,
    many::MSETEX,
    many::MSETNX,
    set::PSETEX,
    set::SET,
    set::SETEX,
    set::SETNX,
    range::SETRANGE,
    range::STRLEN,
    range::SUBSTR,
    throttle::THROTTLE,
];

pub(crate) const SET_EVENT: Event = Event::new(Class::STRING, "set");
pub(crate) const EXPIRE_EVENT: Event = Event::new(Class::GENERIC, "expire");
pub(crate) const PERSIST_EVENT: Event = Event::new(Class::GENERIC, "persist");

/// Writes a string that commands will change in place, which OBJECT ENCODING calls `raw`.
///
/// Errors: no room; an old value of another type is removed then.
pub(crate) fn put_raw(place: &mut Keyed<'_>, value: &[u8], expiry: Expiry) -> Result<(), ShardFull> {
    if expiry != Expiry::Keep || place.text().is_err() {
        place.put_text(&[], expiry)?;
    }
    place.edit_text(value.len())?.copy_from_slice(value);
    Ok(())
}
