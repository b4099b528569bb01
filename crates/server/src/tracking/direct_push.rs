//! A way to a caching client past its thread: while that sleeps, and nothing else is on its way to the client, who changes
//! a key sends the message itself. To wake a thread on another processor takes longer than all else about it.
//!
//! A message sent so overtakes nothing: a thread sleeps only after it has handed over what it had for its clients, messages
//! it has not read keep it from being passed by, and what the kernel did not take is left here for it. Its thread holds
//! the lock while it sends to the client.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use darter_reactor::Socket;

use super::message;
use crate::conn::Conn;
use crate::shared::ThreadHandle;
use crate::sync::lock;

/// So many clients, by their numbers, have one: it takes a descriptor.
const SPOUTS_MAX: u32 = 256;

/// What a client's thread shares with those of its writers.
#[derive(Debug, Default)]
pub struct DirectPush {
    way: Mutex<PushWay>,
    // bytes sent by others and not told to the client's thread yet
    sent_bytes: AtomicU64,
}

/// What was made of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToldClient {
    /// It is with the kernel.
    Sent,
    /// The client's thread must be woken to send the rest.
    InPart,
    /// It is to go by mail.
    NotNow,
}

/// The way itself, held while something is sent.
#[derive(Debug, Default)]
pub struct PushWay {
    // of the client's socket; none until it was asked for, and when it is closed
    end: Option<File>,
    is_open: bool,
    // of a message that the kernel has taken in part
    rest: Vec<u8>,
}

impl PartialEq for DirectPush {
    fn eq(&self, other: &DirectPush) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for DirectPush {}

impl DirectPush {
    /// Sends a client the message that `keys` have changed, if its thread, behind `handle`, sleeps and nothing else is on its
    /// way to it. Cost: two loads where it does not; else a system call.
    pub fn tell(&self, handle: &ThreadHandle, keys: &[u8]) -> ToldClient {
        if !handle.is_asleep() {
            return ToldClient::NotNow;
        }
        let Ok(mut way) = self.way.try_lock() else { return ToldClient::NotNow };
        let PushWay { end: Some(end), is_open: true, .. } = &mut *way else { return ToldClient::NotNow };
        let mut bytes = Vec::new();
        message::push(&mut bytes, keys);
        let took = match end.write(&bytes) {
            Ok(took) => took,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                // Its thread will find that out, too.
                way.is_open = false;
                return ToldClient::NotNow;
            }
        };
        self.sent_bytes.fetch_add(took as u64, Relaxed);
        if took == bytes.len() {
            return ToldClient::Sent;
        }
        way.is_open = false;
        way.rest = bytes.split_off(took);
        ToldClient::InPart
    }

    /// Bytes that others have sent since this was last asked.
    pub fn take_sent(&self) -> u64 {
        if self.sent_bytes.load(Relaxed) == 0 { 0 } else { self.sent_bytes.swap(0, Relaxed) }
    }

    /// Keeps others from sending; the client's thread calls this around what it sends.
    pub fn hold(&self) -> MutexGuard<'_, PushWay> {
        lock(&self.way)
    }

    /// Nothing goes this way until it is settled again.
    pub fn close(&self) {
        self.hold().is_open = false;
    }

    /// Nothing more goes this way: the client has gone.
    pub fn shut(&self) {
        *self.hold() = PushWay::default();
    }
}

impl PushWay {
    /// Takes the bytes that must be sent before anything else.
    pub fn take_rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.rest)
    }

    /// Opens the way if all that its thread had for the client is sent, and nothing in between has to see it.
    pub fn settle(&mut self, conn: &Conn, socket: Option<&Socket>) {
        let session = &conn.session;
        self.is_open = false;
        let Some(own) = session.tracking.as_ref().filter(|own| own.reader < SPOUTS_MAX) else { return };
        // The reply of a command that waits may be on its way, with a value that is told to be old next.
        let is_idle =
            conn.output.is_empty() && !conn.awaits_writable && !conn.is_stalled && session.reading.is_none();
        let is_plain = conn.channel.is_none() && conn.http.is_none() && session.copy.is_none();
        self.is_open = is_idle && is_plain && session.resp3 && own.redirect.is_none() && !session.is_closing;
        if self.is_open && self.end.is_none() {
            let end = socket.and_then(|socket| socket.as_fd().try_clone_to_owned().ok());
            self.end = end.map(File::from);
        }
    }
}

#[cfg(test)]
mod tests;
