//! Answers to a memcached client for a line that is not a valid command.

/// A line that was refused, or a fault the server itself reports with the same words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemcacheError {
    /// No such command, or words are missing.
    Unknown,
    /// A word has a wrong form.
    BadFormat,
    /// A value is not followed by CR LF.
    BadDataChunk,
    /// A time is no number.
    InvalidExptime,
    /// The amount to add is not a number.
    InvalidDelta,
    /// `delete` with a time.
    DeleteUsage,
    /// The stored value to count with is not a number.
    NonNumeric,
    /// A meta flag that does not exist.
    InvalidFlag,
    /// A meta flag twice.
    DuplicateFlag,
    /// A meta flag's number has a wrong form.
    BadToken,
    /// A key is not base64 though it is said to be.
    KeyDecoding,
    /// An opaque token of more than 32 bytes.
    OpaqueTooLong,
    /// A flag of `ma` that is unknown, repeated or of a wrong form, or its key is not base64.
    InvalidCountFlag,
    /// An unknown mode of `ms`.
    InvalidStoreMode,
    /// An unknown mode of `ma`.
    InvalidCountMode,
    /// A mode of more or less than one letter.
    ModeLength,
    /// A value past `item_bytes_max`.
    TooLarge,
    /// No memory for a value.
    OutOfMemory,
    /// A client that must log in and has not.
    Unauthenticated,
    /// A wrong name or password.
    AuthenticationFailure,
}

impl MemcacheError {
    /// The line to answer, without its end.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "ERROR",
            Self::BadFormat => "CLIENT_ERROR bad command line format",
            Self::BadDataChunk => "CLIENT_ERROR bad data chunk",
            Self::InvalidExptime => "CLIENT_ERROR invalid exptime argument",
            Self::InvalidDelta => "CLIENT_ERROR invalid numeric delta argument",
            Self::DeleteUsage => "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
            Self::NonNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value",
            Self::InvalidFlag => "CLIENT_ERROR invalid flag",
            Self::DuplicateFlag => "CLIENT_ERROR duplicate flag",
            Self::BadToken => "CLIENT_ERROR bad token in command line format",
            Self::KeyDecoding => "CLIENT_ERROR error decoding key",
            Self::OpaqueTooLong => "CLIENT_ERROR opaque token too long",
            Self::InvalidCountFlag => "CLIENT_ERROR invalid or duplicate flag",
            Self::InvalidStoreMode => "CLIENT_ERROR invalid mode for ms M token",
            Self::InvalidCountMode => "CLIENT_ERROR invalid mode for ma M token",
            Self::ModeLength => "CLIENT_ERROR incorrect length for M token",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::OutOfMemory => "SERVER_ERROR out of memory storing object",
            Self::Unauthenticated => "CLIENT_ERROR unauthenticated",
            Self::AuthenticationFailure => "CLIENT_ERROR authentication failure",
        }
    }
}
