//! Errors of files, in words that name the offset.

use std::fmt;
use std::io;

use crate::cursor::{Fault, Stop};

/// Why a file could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The disk or the network failed.
    Io(io::Error),
    /// The file is damaged.
    Corrupt {
        /// Bytes from the start of the file.
        offset: u64,
        /// The fault.
        what: String,
    },
    /// The file ends too early.
    CutOff {
        /// Its length in bytes.
        len: u64,
        /// The incomplete part.
        what: String,
    },
    /// The file holds something that this version does not know.
    Unknown {
        /// Bytes from the start of the file.
        offset: u64,
        /// The unknown part.
        what: String,
    },
}

impl Error {
    /// The file is damaged at byte `offset`.
    pub fn corrupt(offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { offset, what: what.into() }
    }

    /// The error for a fault in an item that began at byte `offset`.
    pub(crate) fn of_fault(offset: u64, fault: Fault) -> Error {
        Error::corrupt(offset.saturating_add(fault.at as u64), fault.what)
    }

    /// The error for a reader that stopped in an item that began at byte `offset`.
    pub(crate) fn of_stop(offset: u64, stop: Stop, whole: &'static str) -> Error {
        match stop {
            Stop::Bad(fault) => Error::of_fault(offset, fault),
            Stop::More => Error::corrupt(offset, whole),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(out, "{error}"),
            Error::Corrupt { offset, what } => write!(out, "damaged at byte {offset}: {what}"),
            Error::CutOff { len, what } => write!(out, "cut off after {len} bytes: {what} is not all there"),
            Error::Unknown { offset, what } => write!(out, "at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}
