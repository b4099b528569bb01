//! The events of a turn.

use std::io;

use crate::{ListenerId, Socket, Token};

/// One thing that happened. `Data` lends its bytes for the call only.
#[derive(Debug)]
pub enum ReactorEvent<'a> {
    /// A client connected. Register the socket here, or hand it to another thread's reactor; dropping it closes it.
    Accepted {
        /// The listener.
        listener: ListenerId,
        /// The connection, non-blocking.
        socket: Socket,
    },
    /// Bytes arrived, never none. A connection may have several of these in one turn, in order.
    Data {
        /// The connection.
        token: Token,
        /// In a buffer of the reactor, gone after the call.
        bytes: &'a [u8],
    },
    /// The peer will send no more. The connection stays until `close(token)`, so that replies to its last bytes can
    /// still be sent; no further `Data` comes.
    Closed {
        /// The connection.
        token: Token,
        /// Politely or not.
        reason: CloseReason,
    },
    /// Bytes, or the end of the stream, can be taken by [`crate::Reactor::receive`], which must be called, or no more events
    /// come. Only for connections after [`crate::Reactor::receive_by_hand`].
    Readable {
        /// The connection.
        token: Token,
    },
    /// A send may get further now; comes once per `want_writable`.
    Writable {
        /// The connection.
        token: Token,
    },
}

/// The reason why a connection gives no more bytes.
#[derive(Debug)]
pub enum CloseReason {
    /// The peer finished writing (it may still read).
    Eof,
    /// Reset, timed out, or refused by the kernel; sends will fail too.
    Error(io::Error),
}
