//! Ending operations early: closing, ending listening, and the end of the driver itself.
//!
//! A cancel is a request like any other: the kernel has released an operation only after its last completion.

use std::io;
use std::time::Duration;

use super::{Receiving, Uring, adopt};
use crate::token::{TokenKind, split_kind};
use crate::{ListenerId, Token};

impl Uring {
    pub(crate) fn stop_listening(&mut self, id: ListenerId) {
        if self.listeners.get(id.0).is_some_and(|listening| listening.accepting) {
            self.ring.cancel_accept(id.0);
            // Waiting frees the port before this returns; on a fault of the ring the slot stays until it is dropped.
            let waited = self.await_end_of_accept(id);
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

    /// A cancel misses an operation that the kernel is about to try again. Operations that ended before the cancel
    /// have completed before it. Fewer cancelled than running ones therefore mean that one was missed: repeat.
    pub(super) fn retry_cancel(&mut self, token: Token, result: i32) {
        let Some(connection) = self.connections.get(token.0) else { return };
        if connection.closing && result < connection.operations_len() {
            self.ring.cancel_all(connection.socket.raw_fd(), token.0);
        } else if (connection.paused || connection.by_hand)
            && connection.receiving == Receiving::Lent
            && result < 0
        {
            self.ring.cancel_receive(token.0);
        }
    }

    fn retry_cancel_accept(&mut self, id: ListenerId, result: i32) {
        if result < 0 && self.listeners.get(id.0).is_some_and(|listening| listening.accepting) {
            self.ring.cancel_accept(id.0);
        }
    }

    /// Waits for the last completion of a listener; those of others are set aside for `deliver`.
    fn await_end_of_accept(&mut self, id: ListenerId) -> io::Result<()> {
        let mut older = std::mem::take(&mut self.stash);
        loop {
            while let Some(completion) = older.pop_front().or_else(|| self.ring.next()) {
                match split_kind(completion.data) {
                    Some((TokenKind::Accept, name)) if name == id.0 => {
                        drop(adopt(completion.result));
                        if let Some(listening) = self.listeners.get_mut(name).filter(|_| !completion.more) {
                            listening.accepting = false;
                        }
                    }
                    Some((TokenKind::CancelAccept, name)) if name == id.0 => {
                        self.retry_cancel_accept(id, completion.result)
                    }
                    _ => self.stash.push_back(completion),
                }
            }
            if self.listeners.get(id.0).is_none_or(|listening| !listening.accepting) {
                return Ok(());
            }
            self.ring.wait(None)?;
        }
    }

    /// Cancels every operation and takes their last completions, so that ports and paths are free afterwards; returns
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
                if kind == Some(TokenKind::Accept) {
                    drop(adopt(completion.result));
                }
                // A poll without `more` was its only completion, like every other operation's last one.
                if !matches!(kind, Some(TokenKind::Cancel | TokenKind::CancelAccept)) && !completion.more {
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
            // The kernel may still write into them: a leak is better than overwritten memory.
            std::mem::forget(self.buffers.take());
        }
    }
}

const DRAIN_WAITS: u32 = 20;
const DRAIN_WAIT: Duration = Duration::from_millis(50);
