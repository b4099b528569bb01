//! What INFO tells of the journal.

use std::sync::atomic::Ordering::Relaxed;

use darter_persist::files::Files;

use super::{Journal, lock};

/// The journal in numbers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Figures {
    /// It is written.
    pub is_on: bool,
    /// A new base is being written.
    pub is_rewriting: bool,
    /// Seconds since that began.
    pub rewriting_s: Option<u64>,
    /// Seconds the last one took.
    pub rewrite_took_s: Option<u64>,
    /// How many failed since the last that succeeded.
    pub rewrite_failures: u64,
    /// One is to begin as soon as it can.
    pub is_rewrite_due: bool,
    /// Rewrites since start.
    pub rewrites: u64,
    /// All that is to be written can be.
    pub is_write_ok: bool,
    /// Bytes of base and segments.
    pub bytes: u64,
    /// The same when the last base was written.
    pub base_bytes: u64,
    /// Syncs that go on.
    pub pending_syncs: u64,
    /// Syncs that took more than a second.
    pub delayed_syncs: u64,
    /// Syncs of files since the start.
    pub syncs: u64,
    /// Microseconds they took together.
    pub sync_us: u64,
}

impl<F: Files> Journal<F> {
    /// How it stands.
    pub fn figures(&self) -> Figures {
        let rewrite = lock(&self.rewrite);
        Figures {
            is_on: self.is_on(),
            is_rewriting: rewrite.since.is_some(),
            rewriting_s: rewrite.since.map(|since| since.elapsed().as_secs()),
            rewrite_took_s: rewrite.took_s,
            rewrite_failures: rewrite.failures,
            is_rewrite_due: rewrite.is_due,
            rewrites: rewrite.count,
            is_write_ok: !self.is_failing(),
            bytes: self.bytes(),
            base_bytes: self.base_bytes.load(Relaxed),
            pending_syncs: self.pending_syncs.load(Relaxed),
            delayed_syncs: self.delayed_syncs.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            sync_us: self.sync_us.load(Relaxed),
        }
    }
}
