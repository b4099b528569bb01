//! Segments made ahead: the files, their blocks and the pages of their rings, for which no turn has to wait then, and which
//! the manifest names before there is a record in them.
//!
//! Those of the first generation are made at start. `rewrite` asks for those behind a base a second before one that follows
//! growth, the journal's thread makes them, and each thread takes its own with its first record behind the cut. What nobody
//! takes is closed at a clean stop, and removed when a later base is there.

use std::io;
use std::sync::atomic::Ordering::SeqCst;

use darter_persist::files::Files;

use super::segment::{DiskSegment, WriteMode};
use super::{Fsync, Journal, JournalSlot, lock};

impl<F: Files> Journal<F> {
    /// Makes those of `generation`, which a base is about to begin.
    pub(super) fn make_next(&self, generation: u64, fsync: Fsync) {
        // Not while the journal is switched to another folder. Serving threads take `switch` once a second, so it
        // must not be held while files are made.
        let has_ended = lock(&self.making);
        if !*has_ended
            && self.is_on()
            && self.generation.load(SeqCst) < generation
            && let Err(error) = self.make_ahead(generation, fsync)
        {
            tracing::error!("the journal's next segments cannot be made: {error}");
        }
        self.has_made.store(true, SeqCst);
    }

    /// Whether those of `generation` are there, of all threads that serve.
    pub(super) fn is_made(&self, generation: u64) -> bool {
        let serving = self.slots.split_last().map_or(&[][..], |(_, serving)| serving);
        serving.iter().all(|slot| lock(&slot.ahead).iter().any(|ahead| ahead.generation == generation))
    }

    /// Makes those of `generation` for all threads, if they are not there; nobody else does so meanwhile.
    ///
    /// Errors: of the files. What was not made is made when it is needed.
    pub(super) fn make_ahead(&self, generation: u64, fsync: Fsync) -> io::Result<()> {
        let mut made = Vec::new();
        let done = self.make_missing(generation, WriteMode::of(fsync), &mut made);
        if done.is_err() {
            // So that the next attempt can make them.
            made.iter().for_each(|(_, segment)| segment.remove());
            return done;
        }
        for (slot, segment) in made {
            lock(&self.slots[usize::from(slot)].ahead).push(segment);
        }
        Ok(())
    }

    fn make_missing(
        &self,
        generation: u64,
        way: WriteMode,
        made: &mut Vec<(u16, DiskSegment<F>)>,
    ) -> io::Result<()> {
        let dir = self.dir().ok_or(io::ErrorKind::NotFound)?;
        let foreign = self.slots.len() - 1;
        for (slot, place) in (0..).zip(&self.slots) {
            // Work on threads that serve nobody is rare.
            let is_wanted = usize::from(slot) < foreign || !lock(&place.files).is_empty();
            let is_there = || lock(&place.ahead).iter().any(|ahead| ahead.generation == generation);
            if is_wanted && !is_there() {
                made.push((slot, DiskSegment::make(self, slot, generation, way)?));
            }
        }
        if made.is_empty() {
            return Ok(());
        }
        self.files.sync_dir(&dir)?;
        let names: Vec<(u64, u16)> = made.iter().map(|(slot, _)| (generation, *slot)).collect();
        self.list(&names)
    }

    /// Makes none any more, and closes those that were made while the threads that serve ended.
    pub(super) fn end_making(&self) {
        let mut has_ended = lock(&self.making);
        *has_ended = true;
        self.close_ahead();
    }

    /// Those that nobody has taken are not wanted any more.
    pub(super) fn close_ahead(&self) {
        self.slots.iter().for_each(JournalSlot::close_ahead);
    }
}

impl<F: Files> JournalSlot<F> {
    /// The same for one thread. The files stay, for the manifest names them.
    pub(super) fn close_ahead(&self) {
        for mut unused in std::mem::take(&mut *lock(&self.ahead)) {
            if let Err(error) = unused.close() {
                tracing::warn!("an unused segment of the journal cannot be closed: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use darter_persist::files::Disk;

    use super::*;

    /// The journal's thread may be amid its work when the threads that serve end: it left a ring that nobody had written to.
    #[test]
    fn a_clean_stop_leaves_no_ring_of_segments_that_were_made_meanwhile() {
        let dir = std::env::temp_dir().join(format!("darter-ahead-{}", std::process::id()));
        let journal = Journal::new(Disk, 1);
        journal.switch_on(dir.clone(), Fsync::No, 1).expect("a folder");
        let generation = journal.generation.load(SeqCst);
        let files = || {
            let names = std::fs::read_dir(&dir).expect("the folder").flatten();
            names.filter_map(|file| file.file_name().into_string().ok()).collect::<Vec<_>>()
        };
        journal.slots[0].close_ahead();
        journal.make_next(generation + 1, Fsync::No);
        let made = files();
        journal.end_last();
        journal.make_next(generation + 2, Fsync::No);
        let left = files();
        std::fs::remove_dir_all(&dir).expect("it is there");
        assert!(made.contains(&format!("journal.{}.0.seg", generation + 1)), "{made:?}");
        assert!(!left.iter().any(|name| name.ends_with(".tail")), "{left:?}");
        assert!(!left.contains(&format!("journal.{}.0.seg", generation + 2)), "{left:?}");
    }
}
