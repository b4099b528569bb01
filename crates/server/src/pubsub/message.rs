//! A published message, encoded once for all who receive it.

use std::sync::Arc;

use darter_wire::Reply;

use super::Kind;

/// A message on its way to the subscribers of one or more threads.
#[derive(Debug)]
pub struct Message {
    kind: Kind,
    channel: Box<[u8]>,
    // channel and payload as bulk strings
    tail: Box<[u8]>,
    seq: u64,
    except: Option<u64>,
    patterns: Vec<Arc<[u8]>>,
}

impl Message {
    /// A message number `seq` to `channel`, which `patterns` match; `except` is a client that has its copy already.
    pub fn new(
        kind: Kind,
        channel: &[u8],
        payload: &[u8],
        seq: u64,
        except: Option<u64>,
        patterns: Vec<Arc<[u8]>>,
    ) -> Message {
        let mut tail = Vec::with_capacity(channel.len() + payload.len() + 32);
        let mut reply = Reply::new(&mut tail, false);
        reply.bulk(channel);
        reply.bulk(payload);
        Message { kind, channel: channel.into(), tail: tail.into(), seq, except, patterns }
    }

    /// What kind of channel it was sent to.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The channel.
    pub fn channel(&self) -> &[u8] {
        &self.channel
    }

    /// Its number: subscriptions that began later do not get it.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether `client` gets it from here.
    pub fn is_for(&self, client: u64) -> bool {
        self.except != Some(client)
    }

    /// The patterns that match the channel and have subscribers.
    pub fn patterns(&self) -> &[Arc<[u8]>] {
        &self.patterns
    }

    /// Appends it as a subscriber of the channel sees it, or a subscriber of `pattern`.
    pub fn write_to(&self, out: &mut Vec<u8>, pattern: Option<&[u8]>, resp3: bool) {
        let mut reply = Reply::new(out, resp3);
        match (pattern, self.kind) {
            (Some(pattern), _) => {
                reply.push(4);
                reply.raw(b"$8\r\npmessage\r\n");
                reply.bulk(pattern);
            }
            (None, Kind::Shard) => {
                reply.push(3);
                reply.raw(b"$8\r\nsmessage\r\n");
            }
            (None, _) => {
                reply.push(3);
                reply.raw(b"$7\r\nmessage\r\n");
            }
        }
        reply.raw(&self.tail);
    }
}
