//! The error texts of the family, as in RedisJSON.

use darter_document::Invalid;
use darter_document::number::NoResult;
use darter_document::path::BadPath;
use darter_document::precision::Unfit;

use crate::Fault;

/// The key must exist.
pub(super) const MISSING_KEY: Fault =
    Fault::text("ERR could not perform this operation on a key that doesn't exist");
/// The key holds something else.
pub(super) const BAD_KEY: Fault = Fault::text("Existing key has wrong Redis type");
/// A legacy path leads nowhere.
pub(super) const NO_PATH: Fault = Fault::text("ERR Path does not exist");
/// A document begins with its root.
pub(super) const NOT_ROOT: Fault = Fault::text("ERR new objects must be created at the root");
/// More levels than a document may have.
pub(super) const TOO_DEEP: Fault = Fault::text("ERR recursion limit exceeded");
/// The requested form of reply is unknown.
pub(super) const BAD_FORMAT: Fault = Fault::text("ERR wrong reply format");
/// Forms of answers need RESP3.
pub(super) const NO_FORMAT: Fault = Fault::text("ERR FORMAT argument is not supported on RESP2");

/// A legacy path leads to no value, or to none that fits.
pub(super) fn no_path_or(reason: &str) -> Fault {
    Fault::Text(format!("ERR Path does not exist or {reason}").into())
}

/// A value is not of the type that is expected.
pub(super) fn expected(kind: &str) -> Fault {
    Fault::Text(format!("WRONGTYPE wrong type of path value - expected {kind}").into())
}

/// A text is no JSON.
pub(super) fn invalid(invalid: Invalid) -> Fault {
    Fault::Text(invalid.reason.into())
}

/// Floats do not fit the requested precision.
pub(super) fn unfit(unfit: Unfit) -> Fault {
    match unfit {
        Unfit::Invalid(reason) => invalid(reason),
        Unfit::OutOfRange => Fault::text("ERR value out of range"),
    }
}

/// A path is wrong.
pub(super) fn bad_path(bad: BadPath) -> Fault {
    Fault::Text(bad.text.into())
}

/// Two numbers have no sum or product.
pub(super) fn no_result(reason: NoResult) -> Fault {
    match reason {
        NoResult::NotFinite => Fault::text("ERR result is not a number"),
        NoResult::Overflow => Fault::text("ERR numeric overflow"),
    }
}
