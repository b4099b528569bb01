//! Ending operations before their time: closing, taking, no longer listening, and the end of the driver itself.
//!
//! A cancel is a request like any other: only an operation's last completion says that the kernel let go of it.

use std::io;
use std::time::Duration;

use super::ring::Completion;
use super::{Uring, adopt, append};
use crate::token::{Kind, split_kind};
use crate::{ListenerId, Socket, Token};

impl Uring {
    pub(crate) fn stop_listening(&mut self, id: ListenerId) {
        if self.listeners.get(id.0).is_some_and(|listening| listening.accepting) {
            self.ring.cancel_accept(id.0);
            // Waiting frees the port before this returns; on a fault of the ring the slot stays until it is dropped.
            let waited = self.await_completions(id.0, &OF_LISTENERS, |driver, kind, completion| {
                match kind {
                    Kind::Accept => drop(adopt(completion.result)),
                    Kind::CancelAccept => driver.retry_cancel_accept(id, completion.result),
                    _ => {}
                }
                let Some(listening) = driver.listeners.get_mut(id.0) else { return true };
                if kind == Kind::Accept && !completion.more {
                    listening.accepting = false;
                }
                !listening.accepting
            });
            if waited.is_err() {
                return;
            }
        }
        self.listeners.remove(id.0);
    }

    pub(crate) fn close(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        if connection.is_busy() {
            connection.closing = true;
            let raw_fd = connection.socket.raw_fd();
            self.closing_len += 1;
            self.ring.cancel_all(raw_fd, token.0);
        } else {
            self.connections.remove(token.0);
        }
    }

    pub(crate) fn take(&mut self, token: Token) -> Option<Socket> {
        let connection = self.open(token)?;
        if connection.is_busy() {
            // Ends the retries of `receive_on`, and no event of it is told any more.
            connection.closing = true;
            let raw_fd = connection.socket.raw_fd();
            self.closing_len += 1;
            self.ring.cancel_all(raw_fd, token.0);
            let mut rest = Vec::new();
            let waited = self.await_completions(token.0, &OF_CONNECTIONS, |driver, kind, completion| {
                driver.collect(token, kind, completion, &mut rest)
            });
            if waited.is_err() {
                return None; // still closing: its last completion frees it
            }
            self.closing_len -= 1;
            let mut socket = self.connections.remove(token.0)?.socket;
            append(&mut socket.unread, &rest);
            return Some(socket);
        }
        self.connections.remove(token.0).map(|connection| connection.socket)
    }

    /// A cancel misses an operation that the kernel is just about to try again. Operations that ended before the
    /// cancel have told so before it did, so fewer cancelled than still run means one was missed: repeat.
    pub(super) fn retry_cancel(&mut self, token: Token, result: i32) {
        let Some(connection) = self.connections.get(token.0) else { return };
        if connection.closing && result < connection.operations_len() {
            self.ring.cancel_all(connection.socket.raw_fd(), token.0);
        } else if connection.paused && connection.receiving && result < 0 {
            self.ring.cancel_receive(token.0);
        }
    }

    fn retry_cancel_accept(&mut self, id: ListenerId, result: i32) {
        if result < 0 && self.listeners.get(id.0).is_some_and(|listening| listening.accepting) {
            self.ring.cancel_accept(id.0);
        }
    }

    /// Feeds `each` the completions of these kinds and this name, in order, until it says true; all others are set
    /// aside for `deliver`.
    fn await_completions(
        &mut self,
        name: u64,
        kinds: &[Kind],
        mut each: impl FnMut(&mut Uring, Kind, Completion) -> bool,
    ) -> io::Result<()> {
        let mut done = false;
        let mut older = std::mem::take(&mut self.stash);
        loop {
            while let Some(completion) = older.pop_front().or_else(|| self.ring.next()) {
                match split_kind(completion.data) {
                    Some((kind, owner)) if owner == name && kinds.contains(&kind) => {
                        done |= each(self, kind, completion)
                    }
                    _ => self.stash.push_back(completion),
                }
            }
            if done {
                return Ok(());
            }
            self.ring.wait(None)?;
        }
    }

    /// One completion of a connection being taken; true when none is left in flight.
    fn collect(&mut self, token: Token, kind: Kind, completion: Completion, rest: &mut Vec<u8>) -> bool {
        match kind {
            Kind::Receive => {
                if let (Some(id), Some(buffers)) = (completion.buffer, &self.buffers)
                    && let Ok(n) = usize::try_from(completion.result)
                {
                    rest.extend_from_slice(buffers.bytes(id, n).unwrap_or_default());
                }
                self.give_back(completion);
            }
            Kind::Cancel => self.retry_cancel(token, completion.result),
            _ => {}
        }
        let Some(connection) = self.connections.get_mut(token.0) else { return true };
        match kind {
            Kind::Receive => connection.receiving = completion.more,
            Kind::Poll => connection.polling = false,
            _ => {}
        }
        !connection.is_busy()
    }

    /// Cancels every operation and takes their last completions, so that ports and paths are free when we are gone;
    /// false if some did not come.
    fn drain(&mut self) -> bool {
        let connections = self.connections.names().filter_map(|name| self.connections.get(name));
        let operations = connections.map(|connection| connection.operations_len() as usize).sum::<usize>();
        let listeners = self.listeners.names().filter_map(|name| self.listeners.get(name));
        let accepts = listeners.filter(|listening| listening.accepting).count();
        let mut in_flight = operations + accepts + usize::from(self.watching);
        if !self.ring.is_enabled() {
            return true;
        }
        self.ring.cancel_everything();
        for _ in 0..DRAIN_WAITS {
            while let Some(completion) = self.stash.pop_front().or_else(|| self.ring.next()) {
                let kind = split_kind(completion.data).map(|(kind, _)| kind);
                if kind == Some(Kind::Accept) {
                    drop(adopt(completion.result));
                }
                // A poll without `more` was its only completion, like every other operation's last one.
                if !matches!(kind, Some(Kind::Cancel | Kind::CancelAccept)) && !completion.more {
                    in_flight = in_flight.saturating_sub(1);
                }
            }
            if in_flight == 0 {
                return true;
            }
            if self.ring.wait(Some(DRAIN_WAIT)).is_err() {
                return false;
            }
        }
        false
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.drain() {
            // The kernel may still write into them: better lost than written over.
            std::mem::forget(self.buffers.take());
        }
    }
}

const OF_LISTENERS: [Kind; 2] = [Kind::Accept, Kind::CancelAccept];
const OF_CONNECTIONS: [Kind; 3] = [Kind::Receive, Kind::Poll, Kind::Cancel];
const DRAIN_WAITS: u32 = 20;
const DRAIN_WAIT: Duration = Duration::from_millis(50);
