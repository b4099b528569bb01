//! Errors of a client below the level of commands. Each closes the connection.

use std::borrow::Cow;

/// A request that breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The number after `*` is not a number, or too large.
    MultibulkLength,
    /// More arguments than allowed before login.
    UnauthenticatedMultibulkLength,
    /// The line after `*` has no end.
    MultibulkLineTooLong,
    /// The number after `$` is not a number, negative, or too large.
    BulkLength,
    /// A longer argument than allowed before login.
    UnauthenticatedBulkLength,
    /// The line after `$` has no end.
    BulkLineTooLong,
    /// An argument starts with this byte and not with `$`.
    ExpectedDollar(u8),
    /// An argument is not followed by CR LF, or a carriage return ends a length without a line feed.
    MissingCrlf,
    /// A line of text has no end.
    InlineTooLong,
    /// A line of text with a quote that is not closed, or closed in the middle of a word.
    UnbalancedQuotes,
    /// The whole command passes 4 GiB.
    RequestTooLong,
}

impl ProtocolError {
    /// The error reply, with its code and without the leading `-`, in Redis' words, or Valkey's if Redis has none.
    pub fn text(&self) -> Cow<'static, [u8]> {
        let text = match self {
            Self::MultibulkLength => "ERR Protocol error: invalid multibulk length",
            Self::UnauthenticatedMultibulkLength => "ERR Protocol error: unauthenticated multibulk length",
            Self::MultibulkLineTooLong => "ERR Protocol error: too big mbulk count string",
            Self::BulkLength => "ERR Protocol error: invalid bulk length",
            Self::UnauthenticatedBulkLength => "ERR Protocol error: unauthenticated bulk length",
            Self::BulkLineTooLong => "ERR Protocol error: too big bulk count string",
            Self::ExpectedDollar(byte) => {
                return Cow::Owned(
                    [&b"ERR Protocol error: expected '$', got '"[..], &[*byte], b"'"].concat(),
                );
            }
            Self::MissingCrlf => "ERR Protocol error: invalid CRLF in request",
            Self::InlineTooLong => "ERR Protocol error: too big inline request",
            Self::UnbalancedQuotes => "ERR Protocol error: unbalanced quotes in request",
            Self::RequestTooLong => "ERR Protocol error: too big request",
        };
        Cow::Borrowed(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unexpected_byte_is_quoted() {
        assert_eq!(
            &*ProtocolError::ExpectedDollar(b'x').text(),
            b"ERR Protocol error: expected '$', got 'x'"
        );
    }
}
