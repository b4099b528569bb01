//! What other threads see of a connection: its info, as it is before its replies go out and when they are sent.
//!
//! The thread's output calls it, twice for each connection that has something to send.

use std::sync::atomic::Ordering::Relaxed;

use darter_wire::parser::ParserProgress;
use darter_wire::{Parser, ParserLimits, ParserStep};

use super::Conn;
use crate::conn::traffic;
use crate::protocol::Protocol;
use crate::thread_state::ThreadState;

impl Conn {
    /// Whether it is subscribed to anything, which puts its output into another class.
    pub fn is_subscriber(&self) -> bool {
        self.session.subscriptions.is_some()
    }

    /// Books that it takes `bytes` of memory now; 0 when it goes.
    pub fn count_bytes(&mut self, local: &ThreadState, bytes: usize) {
        let before = self.info.memory_bytes.swap(bytes, Relaxed);
        local.stats().client_bytes.add((bytes as u64).wrapping_sub(before as u64));
    }

    /// Shows other threads what the commands so far have made of it. Called before their replies go out:
    /// who has read a reply finds in CLIENT LIST what it says.
    pub fn show_session(&mut self, local: &ThreadState) {
        if let Some(direct_push) = &self.session.direct_push {
            let sent = direct_push.take_sent();
            self.session.usage.output_bytes += sent;
            self.was_active |= sent > 0;
        }
        if std::mem::take(&mut self.was_active) {
            self.info.active_ms.store(local.now_ms, Relaxed);
        }
        self.output_peak = self.output_peak.max(self.output.len() - self.sent);
        self.info.update(&self.session);
    }

    /// Shows other threads what its buffers hold, as it is once its replies are sent.
    pub fn show_buffers(&mut self, local: &ThreadState) {
        let info = &*self.info;
        let waiting = if self.is_stalled { self.waiting_args } else { 0 };
        let ahead = if self.input.is_empty() { ParserProgress::default() } else { self.understood() };
        let sent = self.session.usage.output_bytes;
        let sent_before = info.output_bytes.swap(sent, Relaxed);
        if info.is_replica.load(Relaxed) {
            local.shared.replication.counts.sent_bytes.fetch_add(sent - sent_before, Relaxed);
        }
        info.arg_bytes.store(waiting + ahead.args_bytes, Relaxed);
        info.query_bytes.store(self.input.len().saturating_sub(ahead.bytes), Relaxed);
        info.query_free.store(self.input.capacity() - self.input.len(), Relaxed);
        info.pending_bytes.store(self.unsent_bytes(), Relaxed);
        info.output_room.store(self.output.capacity(), Relaxed);
        info.output_peak.store(self.output_peak, Relaxed);
        info.awaits_writable.store(self.awaits_writable, Relaxed);
        let aside = waiting
            + self.parser.heap_bytes()
            + self.session.own_messages.capacity()
            + self.session.reading.as_ref().map_or(0, |reading| reading.aside_bytes())
            + traffic::count_bytes(self.channel.as_deref());
        info.buffer_bytes.store(self.input.capacity() + self.output.capacity() + aside, Relaxed);
        let bytes = info.total_bytes();
        self.count_bytes(local, bytes);
    }

    /// How far the input that is kept is understood.
    #[cold]
    fn understood(&self) -> ParserProgress {
        if self.session.protocol != Protocol::Resp {
            return ParserProgress::default();
        }
        if !(self.is_postponed || self.is_due) {
            return self.parser.progress(&self.input);
        }
        // Its first command is whole, and is read again when it runs.
        let mut spans = Vec::new();
        match Parser::new().next(&self.input, 0, &ParserLimits::default(), &mut spans) {
            ParserStep::Command { consumed } => ParserProgress {
                args_bytes: spans.iter().map(|span| span.len as usize).sum(),
                bytes: consumed,
            },
            ParserStep::Quoted { consumed, args } => {
                ParserProgress { args_bytes: args.args().bytes_len(), bytes: consumed }
            }
            _ => ParserProgress::default(),
        }
    }
}
