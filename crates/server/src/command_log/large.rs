//! Requests and replies that COMMANDLOG keeps because they are large.
//!
//! A connection's requests are looked at where it finds them, in the bytes that came; replies where they are written.
//! Data commands of memcached, and what a script calls, are no requests here. Nothing here is on the batch path
//! unless a value is too long for it.

use darter_wire::Args;

use crate::command_log;
use crate::command_log::slots;
use crate::registry::CommandEntry;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::Live;
use darter_config::Measure;

/// From how many bytes on; `usize::MAX`: never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Large {
    /// A request.
    pub request: usize,
    /// A reply that is looked at: a large one, or any while somebody wants to know which keys or slots take most.
    pub reply: usize,
    large_reply: usize,
}

/// Replies that the batch path puts together beside the output are shorter than this.
const UNSTAGED_BYTES: usize = darter_wire::ReplyBuffer::REPLY_MAX;

impl Large {
    /// What the settings say.
    pub fn new(live: &Live) -> Large {
        let bytes = |limit: u64| usize::try_from(limit).unwrap_or(usize::MAX);
        let (request, reply) = (live.slowlog.large_request_bytes, live.slowlog.large_reply_bytes);
        Large { request: bytes(request), reply: bytes(reply), large_reply: bytes(reply) }
    }

    /// Looks at every reply, for `hot_keys` and `slots`.
    pub fn look_at_all(&mut self) {
        self.reply = 0;
    }

    /// Looks at large ones only.
    pub fn look_at_large(&mut self) {
        self.reply = self.large_reply;
    }

    /// Whether replies count that the batch path does not look at.
    pub fn counts_short_replies(self) -> bool {
        self.reply <= UNSTAGED_BYTES
    }
}

/// Notes a request of `bytes` that `client` sent.
#[inline]
pub fn note_request(local: &ThreadState, client: u64, entry: &CommandEntry, args: Args<'_>, bytes: usize) {
    if bytes >= local.large.request {
        keep(local, client, entry, args, Measure::Request, bytes);
    }
}

/// Notes a reply of `bytes` that `client` gets.
#[inline]
pub fn note_reply(local: &ThreadState, client: u64, entry: &CommandEntry, args: Args<'_>, bytes: usize) {
    if bytes >= local.large.reply {
        look(local, client, entry, args, bytes);
    }
}

#[cold]
fn look(local: &ThreadState, client: u64, entry: &CommandEntry, args: Args<'_>, bytes: usize) {
    local.shared.hot_keys.note_bytes(local.thread, entry, args, bytes);
    slots::note_bytes(local, entry, args, bytes);
    if bytes >= local.large.large_reply {
        keep(local, client, entry, args, Measure::Reply, bytes);
    }
}

#[cold]
fn keep(
    local: &ThreadState,
    client: u64,
    entry: &CommandEntry,
    args: Args<'_>,
    measure: Measure,
    bytes: usize,
) {
    let info = lock(&local.shared.clients).get(&client).cloned();
    if let Some(info) = info {
        command_log::keep(local, &info, entry, args, measure, bytes as u64);
    }
}
