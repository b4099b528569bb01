//! Sparse arrays: texts at places from 0 to 2^64 - 2, appended at a cursor, searched and counted by ranges.

mod change;
mod grep;
mod insert;
mod long_read;
mod op;
mod read;
mod ringing;
#[cfg(test)]
mod tests;

use darter_base::number;
use darter_store::array::PLACE_MAX;
use darter_store::change::Class;
use darter_store::{Array, Edited, Event, Keyed};
use darter_wire::Reply;

use crate::spec::{Group, Keys, Spec};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    change::ARSET,
    change::ARMSET,
    change::ARDEL,
    change::ARDELRANGE,
    insert::ARINSERT,
    insert::ARRING,
    insert::ARSEEK,
    insert::ARNEXT,
    read::ARGET,
    read::ARMGET,
    read::ARGETRANGE,
    read::ARSCAN,
    read::ARLASTITEMS,
    read::ARCOUNT,
    read::ARLEN,
    read::ARINFO,
    grep::ARGREP,
    op::AROP,
];

const BAD_INDEX: Fault = Fault::text("ERR invalid array index");

const fn spec(spec: Spec, syntax: &'static str, summary: &'static str) -> Spec {
    spec.doc(Group::Array, "8.8.0", syntax, summary)
}

const fn read(name: &'static str, arity: i16) -> Spec {
    Spec::read(name, arity, Keys::ONE)
}

const fn event(name: &'static str) -> Event {
    Event::new(Class::GENERIC, name)
}

/// A place as clients give it.
fn place(arg: &[u8]) -> Result<u64, Fault> {
    number::parse_u64(arg).filter(|&place| place <= PLACE_MAX).ok_or(BAD_INDEX)
}

/// The places of a range from the lower to the higher, and whether they were given the other way round.
fn range(start: &[u8], end: &[u8]) -> Result<((u64, u64), bool), Fault> {
    let (start, end) = (place(start)?, place(end)?);
    Ok(((start.min(end), start.max(end)), start > end))
}

/// A number that may be above those that are signed.
fn reply_number(reply: &mut Reply<'_>, number: u64) {
    match i64::try_from(number) {
        Ok(number) => reply.int(number),
        // Redis still writes it as an integer.
        Err(_) => reply.raw(format!(":{number}\r\n").as_bytes()),
    }
}

/// Reports the removal from an array, and of the key with the last text.
fn report_removal(place: &mut Keyed<'_>, edited: Edited<(u64, bool)>, event: Event) -> u64 {
    let (removed, is_empty) = edited.result;
    if removed > 0 {
        place.changed(event);
        if is_empty {
            place.remove();
            place.told(Event::DEL);
        }
    }
    removed
}

/// An array that has not been made yet.
fn new_array() -> Array {
    Array::default()
}
