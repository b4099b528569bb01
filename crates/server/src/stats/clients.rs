//! Totals of clients: of one thread, or of all of them.
//!
//! Called by `cron`, which counts the clients of its thread, and by `report`, which adds threads up.

use std::sync::atomic::Ordering::Relaxed;

use crate::clients::ClientInfo;

/// Totals of all clients.
#[derive(Clone, Debug, Default)]
pub struct ClientTotals {
    /// Connected.
    pub connected: usize,
    /// Waiting for a key or for time to pass.
    pub blocked: usize,
    /// Subscribed to something.
    pub subscribed: usize,
    /// Watching a key.
    pub watching: usize,
    /// Seeing every command.
    pub monitors: usize,
    /// Keys watched, counted once a client.
    pub watched_keys: u64,
    /// Bytes of unread input kept.
    pub input_bytes: usize,
    /// The most of one client.
    pub input_bytes_max: usize,
    /// Bytes of unsent output.
    pub output_bytes: usize,
    /// The most of one client.
    pub output_bytes_max: usize,
}

impl ClientTotals {
    /// Adds a client.
    pub fn count(&mut self, info: &ClientInfo) {
        let (input, output) = (info.query_bytes.load(Relaxed), info.pending_bytes.load(Relaxed));
        let watched = info.watched.load(Relaxed);
        let waits = info.is_blocked.load(Relaxed) || info.is_postponed.load(Relaxed);
        // As in Redis, where replicas are counted apart.
        self.connected += usize::from(!info.is_replica.load(Relaxed));
        self.blocked += usize::from(waits);
        self.subscribed += usize::from(info.subscriptions.iter().any(|n| n.load(Relaxed) > 0));
        self.watching += usize::from(watched > 0);
        self.monitors += usize::from(info.is_monitor.load(Relaxed));
        self.watched_keys += u64::from(watched);
        self.input_bytes += input;
        self.output_bytes += output;
        self.input_bytes_max = self.input_bytes_max.max(input);
        self.output_bytes_max = self.output_bytes_max.max(output);
    }
}
