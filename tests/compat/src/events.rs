//! Keyspace events of one server: what is published while a batch of commands runs, in its order.
//!
//! Called by `pair` after each batch of commands when `--events` names the classes to listen to.

use std::io;
use std::net::SocketAddr;

use crate::connection::Connection;
use crate::reply::Reply;

/// Ends a batch; no key of the grammar publishes there.
const END: &str = "end-of-batch";

/// Events that are not compared: dead keys are found at different moments, and since Redis 7.2 who claims or reads
/// becomes a consumer, who can be deleted, even if there is nothing to get.
const FREE: [&str; 3] = ["expired", "xgroup-createconsumer", "xgroup-delconsumer"];

/// A subscriber of all events, and a connection that marks the end of a batch.
pub struct Events {
    subscriber: Connection,
    marker: Connection,
}

impl Events {
    /// Sets `notify-keyspace-events` of the server at `address` to `classes` and subscribes.
    /// Errors: the server refuses either.
    pub fn open(address: SocketAddr, classes: &str) -> io::Result<Self> {
        let (mut subscriber, mut marker) = (Connection::open(address)?, Connection::open(address)?);
        let answer = marker.ask(&["CONFIG", "SET", "notify-keyspace-events", classes])?;
        if answer.is_error() {
            return Err(io::Error::other(format!("notify-keyspace-events {classes}: {answer}")));
        }
        subscriber.ask(&["PSUBSCRIBE", "__key*__:*"])?;
        subscriber.ask(&["SUBSCRIBE", END])?;
        Ok(Self { subscriber, marker })
    }

    /// The messages since the last call, each as `channel payload`.  Errors: the server is gone.
    pub fn take(&mut self) -> io::Result<Vec<String>> {
        self.marker.ask(&["PUBLISH", END, ""])?;
        let mut all = Vec::new();
        loop {
            let message = self.subscriber.next()?;
            let parts: Vec<&[u8]> =
                message.items().unwrap_or_default().iter().filter_map(Reply::bytes).collect();
            let [kind, .., channel, payload] = parts[..] else {
                return Err(io::Error::other(format!("no message: {message}")));
            };
            if kind == b"message" {
                return Ok(all);
            }
            let is_free = |name: &&str| payload == name.as_bytes() || channel.ends_with(name.as_bytes());
            if !FREE.iter().any(is_free) {
                all.push(format!("{} {}", channel.escape_ascii(), payload.escape_ascii()));
            }
        }
    }
}
