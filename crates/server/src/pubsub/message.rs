//! A published message, encoded once for all who receive it.

use std::sync::Arc;

use darter_wire::Reply;

use super::SubscriptionKind;

/// A message on its way to the subscribers of one or more threads.
#[derive(Debug)]
pub struct Message {
    kind: SubscriptionKind,
    channel: Box<[u8]>,
    // as a RESP2 subscriber of the channel sees it; in RESP3 the first byte is another
    frame: Box<[u8]>,
    // where channel and payload begin in it
    tail_at: usize,
    seq: u64,
    except: Option<u64>,
    patterns: Vec<Arc<[u8]>>,
}

impl Message {
    /// A message number `seq` to `channel`, which `patterns` match; `except` is a client that has its copy already.
    pub fn new(
        kind: SubscriptionKind,
        channel: &[u8],
        payload: &[u8],
        seq: u64,
        except: Option<u64>,
        patterns: Vec<Arc<[u8]>>,
    ) -> Message {
        let mut frame = Vec::with_capacity(channel.len() + payload.len() + 48);
        let mut reply = Reply::new(&mut frame, false);
        reply.push(3);
        reply.bulk(if kind == SubscriptionKind::Shard { b"smessage" } else { b"message" });
        let tail_at = reply.len();
        reply.bulk(channel);
        reply.bulk(payload);
        Message { kind, channel: channel.into(), frame: frame.into(), tail_at, seq, except, patterns }
    }

    /// What kind of channel it was sent to.
    pub fn kind(&self) -> SubscriptionKind {
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

    /// Bytes of it.
    pub fn frame_len(&self) -> usize {
        self.frame.len()
    }

    /// Whether it may be written together with `other`, which comes right before it: both are for the subscribers of one
    /// channel and for nobody else.
    pub fn follows(&self, other: &Message) -> bool {
        let is_plain = |message: &Message| message.patterns.is_empty() && message.except.is_none();
        self.kind == other.kind && self.channel == other.channel && is_plain(self) && is_plain(other)
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
        let Some(pattern) = pattern else {
            let begin = out.len();
            out.extend_from_slice(&self.frame);
            if let (true, Some(first)) = (resp3, out.get_mut(begin)) {
                *first = b'>';
            }
            return;
        };
        let mut reply = Reply::new(out, resp3);
        reply.push(4);
        reply.raw(b"$8\r\npmessage\r\n");
        reply.bulk(pattern);
        reply.raw(self.frame.get(self.tail_at..).unwrap_or_default());
    }
}
