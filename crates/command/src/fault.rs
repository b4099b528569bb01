//! The reasons for refusing a command, and the only place that turns them into reply text.

use std::borrow::Cow;

use darter_store::error::{RefusedWrite, ShardFull, WrongType};
use darter_wire::Args;

/// Bytes of a subcommand's name that an error repeats.
const SUB_BYTES_MAX: usize = 128;

/// The reason for refusing a command. Its text is Redis' own, byte for byte.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The value has another type.
    WrongType,
    /// An argument or value is not a 64-bit integer.
    NotInteger,
    /// An argument or value is not a floating point number.
    NotFloat,
    /// The options do not make sense.
    Syntax,
    /// Counting would leave the 64-bit range.
    Overflow,
    /// A number is outside its range.
    OutOfRange,
    /// A key that must exist does not.
    NoSuchKey,
    /// A string would grow past `proto-max-bulk-len`.
    TooLong,
    /// The deadline is invalid; the command's name follows.
    InvalidExpire(&'static str),
    /// The number of arguments of a subcommand is wrong; its name follows.
    Arity(String),
    /// Memory is used up.
    OutOfMemory,
    /// Any other: the whole text, code first.
    Text(Cow<'static, str>),
}

impl Fault {
    /// A fixed text, code first: `ERR no such thing`.
    pub const fn text(text: &'static str) -> Fault {
        Fault::Text(Cow::Borrowed(text))
    }

    /// The subcommand exists, but not with these arguments. The first two are its container and its name.
    pub fn wrong_form(args: Args<'_>) -> Fault {
        let (container, sub) = (args.at(0).to_ascii_uppercase(), args.at(1));
        let sub = String::from_utf8_lossy(sub.get(..SUB_BYTES_MAX).unwrap_or(sub));
        let container = String::from_utf8_lossy(&container);
        let text =
            format!("ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {container} HELP.");
        Fault::Text(text.into())
    }

    /// The error line, without the leading `-` and the line end.
    pub fn line(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Fault::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Fault::NotInteger => "ERR value is not an integer or out of range",
            Fault::NotFloat => "ERR value is not a valid float",
            Fault::Syntax => "ERR syntax error",
            Fault::Overflow => "ERR increment or decrement would overflow",
            Fault::OutOfRange => "ERR value is out of range",
            Fault::NoSuchKey => "ERR no such key",
            Fault::TooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Fault::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Fault::InvalidExpire(name) => {
                return Cow::Owned(format!("ERR invalid expire time in '{name}' command"));
            }
            Fault::Arity(name) => {
                return Cow::Owned(format!("ERR wrong number of arguments for '{name}' command"));
            }
            Fault::Text(text) => return text.clone(),
        })
    }
}

impl From<WrongType> for Fault {
    fn from(_: WrongType) -> Fault {
        Fault::WrongType
    }
}

impl From<ShardFull> for Fault {
    fn from(_: ShardFull) -> Fault {
        Fault::OutOfMemory
    }
}

impl From<RefusedWrite> for Fault {
    fn from(refused: RefusedWrite) -> Fault {
        match refused {
            RefusedWrite::WrongType => Fault::WrongType,
            RefusedWrite::Full => Fault::OutOfMemory,
        }
    }
}

impl From<darter_pack::table::PackFull> for Fault {
    fn from(_: darter_pack::table::PackFull) -> Fault {
        Fault::OutOfMemory
    }
}

impl From<darter_pack::tree::TreeFull> for Fault {
    fn from(_: darter_pack::tree::TreeFull) -> Fault {
        Fault::OutOfMemory
    }
}
