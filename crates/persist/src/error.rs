//! Errors of files, in words that name the offset.

use std::fmt;
use std::io;

use crate::cursor::{CursorFault, CursorStop};

/// Why a file could not be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum PersistError {
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

impl PersistError {
    /// The file is damaged at byte `offset`.
    pub fn corrupt(offset: u64, what: impl Into<String>) -> PersistError {
        PersistError::Corrupt { offset, what: what.into() }
    }

    /// The error for a fault in an item that began at byte `offset`.
    pub(crate) fn of_fault(offset: u64, fault: CursorFault) -> PersistError {
        PersistError::corrupt(offset.saturating_add(fault.at as u64), fault.what)
    }

    /// The error for a reader that stopped in an item that began at byte `offset`.
    pub(crate) fn of_stop(offset: u64, stop: CursorStop, whole: &'static str) -> PersistError {
        match stop {
            CursorStop::Bad(fault) => PersistError::of_fault(offset, fault),
            CursorStop::More => PersistError::corrupt(offset, whole),
        }
    }
}

impl fmt::Display for PersistError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PersistError::Io(error) => write!(out, "{error}"),
            PersistError::Corrupt { offset, what } => write!(out, "damaged at byte {offset}: {what}"),
            PersistError::CutOff { len, what } => {
                write!(out, "cut off after {len} bytes: {what} is not all there")
            }
            PersistError::Unknown { offset, what } => write!(out, "at byte {offset}: {what}"),
        }
    }
}

impl std::error::Error for PersistError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PersistError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for PersistError {
    fn from(error: io::Error) -> PersistError {
        PersistError::Io(error)
    }
}
