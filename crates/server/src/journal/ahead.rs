//! Segments made ahead of a base: the files, their blocks and the pages of their rings, for which no turn has to wait then.
//!
//! `rewrite` asks for them a second before a base that follows growth, the journal's thread makes them, and each thread
//! takes its own with its first record behind the cut. What nobody takes goes when a later base is there, or at a clean stop.

use std::sync::atomic::Ordering::SeqCst;

use darter_persist::journal::tail;

use super::segment::{Segment, Way};
use super::{Journal, Slot};
use crate::config::Fsync;
use crate::worker::lock;

impl Journal {
    /// Makes those of `generation` for all threads that write. What cannot be made is made when it is needed.
    pub(super) fn make_ahead(&self, generation: u64, fsync: Fsync) {
        // Not while it is switched to another folder.
        let _switch = lock(&self.switch);
        for (slot, place) in (0..).zip(&self.slots) {
            let writes = self.is_on() && !lock(&place.files).is_empty();
            let mut ahead = lock(&place.ahead);
            if writes && self.generation.load(SeqCst) < generation {
                *ahead = Segment::make(self, slot, generation, Way::of(fsync)).ok();
            }
        }
    }

    /// Those that nobody has taken are not wanted any more.
    pub(super) fn drop_ahead(&self) {
        self.slots.iter().for_each(Slot::drop_ahead);
    }
}

impl Slot {
    /// The same for one thread.
    pub(super) fn drop_ahead(&self) {
        if let Some(unused) = lock(&self.ahead).take() {
            let path = unused.path();
            let _ = std::fs::remove_file(tail::path_of(path));
            let _ = std::fs::remove_file(path);
        }
    }
}
