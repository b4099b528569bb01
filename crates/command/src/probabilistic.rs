//! Common parts of the families of filters and sketches: arguments as their modules read them, and changes without
//! events.

use darter_base::number;
use darter_store::Event;
use darter_store::change::Class;

use crate::Fault;
use crate::reader::is;

/// A change that is counted, journalled and watched, but causes no keyspace event.
pub(crate) const SILENT: Event = Event::new(Class(0), "");

/// Largest chunk of SCANDUMP, in bytes.
pub(crate) const CHUNK_BYTES_MAX: u64 = 16 << 20;

/// `arg` as an integer, or the error of that text.
pub(crate) fn int(arg: &[u8], otherwise: &'static str) -> Result<i64, Fault> {
    number::parse_i64(arg).ok_or(Fault::text(otherwise))
}

/// `arg` as a number that is not NaN, or the error of that text.
pub(crate) fn float(arg: &[u8], otherwise: &'static str) -> Result<f64, Fault> {
    number::parse_f64(arg).filter(|value| !value.is_nan()).ok_or(Fault::text(otherwise))
}

/// The place of `word` among `args` from `from` on, in any case.
pub(crate) fn find_word(args: darter_wire::Args<'_>, from: usize, word: &str) -> Option<usize> {
    (from..args.len()).find(|&at| is(args.at(at), word))
}

/// The error of a call with too many or too few arguments.
pub(crate) fn arity(name: &str) -> Fault {
    Fault::Arity(name.to_owned())
}
