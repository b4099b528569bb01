//! The file a thread appends its records to, and the ring in memory through which most of them go there.
//!
//! Where the file system allows it, records are copied into a mapped ring (`darter_reactor::ring`): they are the kernel's
//! then, as if they were written, at the price of a copy. The journal's thread takes them from there to the segment, a
//! mebibyte at a time and past the kernel's memory, and what a sync has to cover before that. When the ring is full,
//! the thread that appends makes room itself, through the kernel's memory, and writes a record there that no ring can hold.
//! Blocks are had ahead, so that what was answered always has room; where there are none left the rest of a segment is
//! written as it comes.
//!
//! With `always` they are gathered for the next sync, which writes them itself (`direct`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use darter_persist::ReadAt;
use darter_persist::files::{Files, OpenFile, OpenMode, Pushed, RingLayout, RingPusher, RingTaker};
use darter_persist::journal::ending::close_segment;
use darter_persist::journal::segment::{FileHead, SegmentKind};
use darter_persist::journal::{folder, tail};

use super::direct::Direct;
use super::{Fsync, Journal, NONE, lock};

/// The side of the thread that appends.
pub struct DiskSegment<F: Files> {
    /// Which segments it belongs to.
    pub generation: u64,
    file: Arc<SegmentFile<F>>,
    path: PathBuf,
    pusher: Option<F::Pusher>,
    direct: Option<Arc<Direct<F>>>,
    // Of a file without a ring.
    len: u64,
}

/// How records come into a new segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteMode {
    /// Each is given to the kernel by itself.
    Plain,
    /// Copied into a ring, where there may be one.
    Mapped,
    /// Gathered for a sync, where a file can be written past the kernel's memory.
    Direct,
}

/// The side of whoever syncs.
pub struct SegmentFile<F: Files> {
    files: F,
    file: F::File,
    // As it is in the file, but for its kind when it is written as it comes, and for `waits_from`.
    head: FileHead,
    // The smallest sequence that the head says may wait in memory; 0 if it says none.
    waits_from: AtomicU64,
    // It is written as it comes, whatever it was made for.
    is_plain: AtomicBool,
    is_closed: AtomicBool,
    // A sync of the file has failed. Held during each: another one would succeed without what the first has lost.
    has_failed: Mutex<bool>,
    tail: Mutex<Option<Tail<F>>>,
    direct: Mutex<Option<Arc<Direct<F>>>>,
}

/// Records that are not in the file yet.
struct Tail<F: Files> {
    taker: F::Taker,
    direct: F::File,
    path: PathBuf,
    // Bytes of the segment that are in the file or the kernel's memory for it.
    saved: u64,
    // Bytes for which the file has blocks.
    reserved: u64,
    // There are no more.
    is_short: bool,
}

impl WriteMode {
    /// How records come into new segments with this setting.
    pub fn of(fsync: Fsync) -> WriteMode {
        if fsync == Fsync::Always { WriteMode::Direct } else { WriteMode::Mapped }
    }
}

impl<F: Files> DiskSegment<F> {
    /// The segment of a thread for a generation: the one that was made ahead, or a new one.
    ///
    /// Errors: of the files.
    pub fn open(
        journal: &Journal<F>,
        slot: u16,
        generation: u64,
        way: WriteMode,
    ) -> io::Result<DiskSegment<F>> {
        let place = &journal.slots[usize::from(slot)];
        let found = {
            let mut ahead = lock(&place.ahead);
            let at = ahead.iter().position(|made| made.generation == generation);
            at.map(|at| ahead.swap_remove(at))
        };
        let segment = match found {
            Some(made) => made,
            None => DiskSegment::make_late(journal, slot, generation, way)?,
        };
        lock(&place.files).push(segment.file.clone());
        journal.bytes.fetch_add(segment.len, Relaxed);
        Ok(segment)
    }

    /// Makes a segment that is needed now.
    #[cold]
    fn make_late(
        journal: &Journal<F>,
        slot: u16,
        generation: u64,
        way: WriteMode,
    ) -> io::Result<DiskSegment<F>> {
        let dir = journal.dir().ok_or(io::ErrorKind::NotFound)?;
        let segment = DiskSegment::make(journal, slot, generation, way)?;
        let listed = journal.files.sync_dir(&dir).and_then(|()| journal.list(&[(generation, slot)]));
        listed.inspect_err(|_| segment.remove())?;
        Ok(segment)
    }

    /// Makes the segment of a thread for a generation; where the file system does not allow the `way`, a plain one. The
    /// caller has the folder synced and the manifest name it before it is used.
    ///
    /// Errors: of the files.
    pub(super) fn make(
        journal: &Journal<F>,
        slot: u16,
        generation: u64,
        way: WriteMode,
    ) -> io::Result<DiskSegment<F>> {
        let dir = journal.dir().ok_or(io::ErrorKind::NotFound)?;
        let path = dir.join(folder::segment_name(generation, slot));
        let files = &journal.files;
        let file = files.open(&path, OpenMode::New)?;
        // Only on file systems that do not move a file's blocks with each change.
        let suits = file.keeps_blocks();
        if !suits && way == WriteMode::Direct {
            journal.tell_plain(&"the file system is neither ext4 nor XFS");
        }
        let way = if suits { way } else { WriteMode::Plain };
        let since = Some(journal.since.load(SeqCst)).filter(|since| *since != NONE);
        let mut head =
            FileHead { thread: slot, generation, since, made_ms: files.clock_ms(), ..FileHead::default() };
        head.kind = SegmentKind::Ringed;
        let mapped = (way == WriteMode::Mapped).then(|| Tail::open(files, &file, &path, &head)).flatten();
        if mapped.is_none() {
            // Without the blocks of an attempt that ran out of room.
            let _ = file.set_len(0);
        }
        let (pusher, tail) = mapped.unzip();
        head.kind = SegmentKind::Direct;
        let direct = (way == WriteMode::Direct).then(|| Direct::open(files, &file, &path, &head.to_bytes()));
        let direct = direct.and_then(|made| made.inspect_err(|error| journal.tell_plain(error)).ok());
        if way == WriteMode::Direct && direct.is_none() {
            let _ = file.set_len(0);
        }
        let direct = direct.map(Arc::new);
        head.kind = match () {
            () if pusher.is_some() => SegmentKind::Ringed,
            () if direct.is_some() => SegmentKind::Direct,
            () => SegmentKind::Plain,
        };
        let bytes = head.to_bytes();
        let len = bytes.len() as u64;
        let (tail, direct_side) = (Mutex::new(tail), Mutex::new(direct.clone()));
        let file = SegmentFile {
            files: files.clone(),
            file,
            head,
            waits_from: AtomicU64::new(0),
            is_plain: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_failed: Mutex::default(),
            tail,
            direct: direct_side,
        };
        let segment = DiskSegment { generation, file: Arc::new(file), path, pusher, direct, len };
        let written = segment.file.file.write_at(0, &bytes).and_then(|()| segment.file.file.sync());
        // So that the next attempt can make it.
        written.inspect_err(|_| segment.remove())?;
        Ok(segment)
    }

    /// Removes its files, which nobody has written to and the manifest does not name.
    pub(super) fn remove(&self) {
        let files = &self.file.files;
        let _ = files.remove(&tail::path_of(&self.path));
        let _ = files.remove(&self.path);
    }

    /// Whether records are copied into a ring: they survive a kill of the process from then on.
    #[inline]
    pub fn is_ringed(&self) -> bool {
        self.pusher.is_some()
    }

    /// Whether to append is to copy.
    pub fn is_copied(&self) -> bool {
        self.pusher.is_some() || self.direct.is_some()
    }

    /// Says in the ring's file that the thread takes sequences from now on, none smaller than this; 0 says that it takes
    /// none. If it is killed in between, the next start knows that a sequence without a record is nobody's loss.
    pub fn announce(&self, sequence: u64) {
        if let Some(pusher) = &self.pusher {
            pusher.announce(sequence);
        }
    }

    /// Has the head say that records from this sequence on may wait in memory. Does nothing if it has said so, or if
    /// there is a ring.
    ///
    /// Errors: of the file.
    pub fn say_waits_from(&self, sequence: u64) -> io::Result<()> {
        if self.is_ringed() || self.file.waits_from.load(Relaxed) != 0 {
            return Ok(());
        }
        self.file.waits_from.store(sequence, Relaxed);
        let head = self.file.head_now().to_bytes();
        if let Some(direct) = &self.direct {
            direct.change_head(&head);
        }
        let said = self.file.file.write_at(0, &head);
        said.inspect_err(|_| self.file.waits_from.store(0, Relaxed))
    }

    /// Has the head say that no record waits in memory any more: all of the thread's are in here or in a later segment.
    ///
    /// Errors: of the file.
    pub fn say_complete(&self) -> io::Result<()> {
        if self.file.is_closed.load(Relaxed) || self.file.waits_from.swap(0, Relaxed) == 0 {
            return Ok(());
        }
        self.file.file.write_at(0, &self.file.head_now().to_bytes())
    }

    /// Copies whole records into the ring; false if there is none, or it is full.
    #[inline]
    pub fn push(&mut self, journal: &Journal<F>, records: &[u8]) -> bool {
        let Some(pusher) = &mut self.pusher else { return false };
        match pusher.push(records) {
            Pushed::All => true,
            Pushed::Quarter => {
                journal.ask_for_room();
                true
            }
            Pushed::Nothing => false,
        }
    }

    /// Whether records are with the kernel only when they are synced.
    pub fn gathers(&self) -> bool {
        self.direct.is_some()
    }

    /// Appends whole records. What was written in part is cut off again when it fails.
    ///
    /// Errors: nothing was appended.
    pub fn append(&mut self, journal: &Journal<F>, records: &[u8]) -> io::Result<()> {
        if self.push(journal, records) {
            return Ok(());
        }
        if let Some(pusher) = &mut self.pusher {
            let has_room = self.file.make_room()?;
            if has_room && (pusher.push(records) != Pushed::Nothing || self.file.spill(pusher, records)?) {
                return Ok(());
            }
            self.finish(journal)?;
        }
        let end = self.len + records.len() as u64;
        if let Some(direct) = &self.direct {
            if direct.has_room(&self.file.file, end) {
                self.len = end;
                if let Err(error) = direct.push(&self.file.file, records) {
                    journal.note_failed_sync(&error);
                }
                return Ok(());
            }
            self.finish(journal)?;
        }
        let written = self.file.file.write_at(self.len, records);
        match &written {
            Ok(()) => self.len = end,
            Err(error) => {
                // A torn record in the middle would hide all that follow it.
                if self.file.file.set_len(self.len).is_err() {
                    journal.note_failed_sync(error);
                }
            }
        }
        written
    }

    /// Each record is given to the kernel by itself from now on: all is in the file, and nothing else.
    ///
    /// Errors: of the file; nothing changes.
    pub fn finish(&mut self, journal: &Journal<F>) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            // Where a write has failed there is nothing to be saved: a new base is on its way.
            if !direct.is_broken() {
                direct.write(&self.file.file).inspect_err(|error| journal.note_failed_sync(error))?;
                self.file.file.set_len(self.len)?;
                self.file.say_plain(journal)?;
            } else if !journal.has_failed_sync() {
                // The thread that met the error has not said so yet, and replies of this one are about to go out.
                journal.note_failed_sync(&io::Error::other("a write to this segment failed"));
            }
            lock(&self.file.direct).take();
            self.direct = None;
        }
        if let Some(pusher) = &self.pusher {
            self.len = pusher.end();
            self.file.leave_ring(journal)?;
            self.pusher = None;
        }
        Ok(())
    }

    /// Ends it: its head says how long it is, and there is no ring beside it. Nothing is appended any more.
    ///
    /// Errors: of the file.
    pub(super) fn close(&mut self) -> io::Result<()> {
        if self.file.close()? {
            (self.pusher, self.direct) = (None, None);
            self.len = self.file.file.len()?;
        }
        Ok(())
    }
}

impl<F: Files> SegmentFile<F> {
    /// Has all that was appended before on the disk.
    ///
    /// Errors: of the file.
    pub fn sync(&self) -> io::Result<()> {
        let direct = lock(&self.direct).clone();
        if let Some(direct) = direct {
            return direct.write(&self.file);
        }
        if let Some(tail) = &mut *lock(&self.tail) {
            tail.save(&self.file)?;
        }
        self.sync_file()
    }

    fn sync_file(&self) -> io::Result<()> {
        self.sync_with(|| self.file.sync_data())
    }

    fn sync_with(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut has_failed = lock(&self.has_failed);
        if *has_failed {
            return Err(io::Error::other("a sync of this segment failed before"));
        }
        let synced = sync();
        *has_failed = synced.is_err();
        synced
    }

    /// Moves what fills whole windows from the ring to the disk.
    ///
    /// Errors: of the file; what is not moved stays in the ring.
    pub fn move_windows(&self) -> io::Result<()> {
        // Let go in between, for the thread that appends may wait for room.
        while lock(&self.tail).as_mut().map_or(Ok(false), |tail| tail.move_window(&self.file, true))? {}
        Ok(())
    }

    /// Makes room in the ring; false when there should be none any more.
    fn make_room(&self) -> io::Result<bool> {
        let mut tail = lock(&self.tail);
        let Some(tail) = tail.as_mut() else { return Ok(false) };
        while tail.move_window(&self.file, false)? {}
        Ok(!tail.is_short)
    }

    /// Writes records to the file that no ring can hold, behind what the ring has; false if there is no room for the blocks.
    fn spill(&self, pusher: &mut F::Pusher, records: &[u8]) -> io::Result<bool> {
        match &mut *lock(&self.tail) {
            Some(tail) => tail.spill(&self.file, pusher, records),
            None => Ok(false),
        }
    }

    /// Has all in the file, and no ring beside it; whoever appends writes from now on.
    fn leave_ring(&self, journal: &Journal<F>) -> io::Result<()> {
        let mut place = lock(&self.tail);
        if let Some(tail) = place.as_mut() {
            tail.save(&self.file)?;
            // Without the blocks it had ahead.
            self.file.set_len(tail.taker.end())?;
            // The file may not lack what the ring has when the head says that there is none.
            self.sync_file().inspect_err(|error| journal.note_failed_sync(error))?;
            self.say_plain(journal)?;
            let _ = self.files.remove(&tail.path);
            *place = None;
        }
        Ok(())
    }

    /// Its head as it should be in the file now.
    fn head_now(&self) -> FileHead {
        let kind = if self.is_plain.load(Relaxed) { SegmentKind::Plain } else { self.head.kind };
        let waits_from = Some(self.waits_from.load(Relaxed)).filter(|sequence| *sequence != 0);
        FileHead { kind, waits_from, ..self.head }
    }

    /// Has its head say that it is written as it comes.
    fn say_plain(&self, journal: &Journal<F>) -> io::Result<()> {
        self.is_plain.store(true, Relaxed);
        self.file.write_at(0, &self.head_now().to_bytes())?;
        self.sync_file().inspect_err(|error| journal.note_failed_sync(error))
    }

    /// Has all in the file, and its head say so; to be called when nobody appends any more. False if a write has failed
    /// before: a new base is on its way.
    ///
    /// Errors: of the file.
    pub(super) fn close(&self) -> io::Result<bool> {
        if self.is_closed.load(Relaxed) {
            return Ok(true);
        }
        let mut place = lock(&self.tail);
        let len = match place.as_mut() {
            Some(tail) => {
                tail.save(&self.file)?;
                tail.taker.end()
            }
            None => match lock(&self.direct).take() {
                Some(direct) if direct.is_broken() => return Ok(false),
                Some(direct) => {
                    direct.write(&self.file)?;
                    direct.end()
                }
                None => self.file.len()?,
            },
        };
        self.sync_with(|| close_segment(&self.file, self.head, len))?;
        if let Some(tail) = place.take() {
            let _ = self.files.remove(&tail.path);
        }
        self.is_closed.store(true, Relaxed);
        Ok(true)
    }

    /// A file that is written as it comes.
    #[cfg(test)]
    pub(super) fn plain(files: F, file: F::File) -> SegmentFile<F> {
        SegmentFile {
            files,
            file,
            head: FileHead::default(),
            waits_from: AtomicU64::new(0),
            is_plain: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            has_failed: Mutex::default(),
            tail: Mutex::default(),
            direct: Mutex::default(),
        }
    }
}

impl<F: Files> Tail<F> {
    /// Makes a ring for a segment that is to have nothing but its head; `None` where there can be none.
    fn open(files: &F, file: &F::File, path: &Path, head: &FileHead) -> Option<(F::Pusher, Tail<F>)> {
        let direct = files.open(path, OpenMode::Direct).ok()?;
        file.reserve(0, F::SIZES.reserve).ok()?;
        let path = tail::path_of(path);
        let mapped = files.open(&path, OpenMode::Emptied).ok()?;
        let layout = RingLayout {
            end_at: tail::END_AT,
            taken_at: tail::TAKEN_AT,
            begun_at: tail::BEGUN_AT,
            data_at: tail::DATA_AT,
            capacity: F::SIZES.ring,
        };
        let tail_head = tail::head(head.generation, head.thread, F::SIZES.ring as u32, files.boot_id());
        let made = files.ring(&mapped, &tail_head, layout);
        let Ok((mut pusher, taker)) = made else {
            let _ = files.remove(&path);
            return None;
        };
        let bytes = head.to_bytes();
        pusher.push(&bytes);
        let saved = bytes.len() as u64;
        Some((pusher, Tail { taker, direct, path, saved, reserved: F::SIZES.reserve, is_short: false }))
    }

    /// Writes what is not in the file.
    fn save(&mut self, file: &F::File) -> io::Result<()> {
        loop {
            let piece = self.taker.look(self.saved, usize::MAX);
            if piece.is_empty() {
                return Ok(());
            }
            file.write_at(self.saved, piece)?;
            self.saved += piece.len() as u64;
        }
    }

    /// Writes records behind what the ring has, and counts them as taken from it; false if there is no room for the blocks.
    fn spill(&mut self, file: &F::File, pusher: &mut F::Pusher, records: &[u8]) -> io::Result<bool> {
        self.save(file)?;
        let (begin, len) = (self.taker.end(), records.len() as u64);
        if self.is_short || !self.reserve_to(file, begin + len + F::SIZES.ring as u64) {
            return Ok(false);
        }
        // Until they are counted, half of them is nothing to the next start.
        file.write_at(begin, records)?;
        self.taker.take(begin);
        self.saved = begin + len;
        Ok(self.taker.skip(pusher, len))
    }

    /// Whether the file has blocks up to `end`, which are had now if need be.
    fn reserve_to(&mut self, file: &F::File, end: u64) -> bool {
        if self.reserved < end {
            let more = (end - self.reserved).next_multiple_of(F::SIZES.reserve);
            if file.reserve(self.reserved, more).is_err() {
                self.is_short = true;
                return false;
            }
            self.reserved += more;
        }
        true
    }

    /// Moves one window, past the kernel's memory or into it; false when none is full, or no more may be taken.
    fn move_window(&mut self, file: &F::File, is_direct: bool) -> io::Result<bool> {
        let begin = self.taker.taken();
        // Behind a record that was spilled the first window is shorter.
        let end = begin - begin % F::SIZES.window as u64 + F::SIZES.window as u64;
        if self.taker.end() < end || self.is_short {
            return Ok(false);
        }
        // What the ring can hold after this has blocks, or this is not taken.
        if !self.reserve_to(file, end + F::SIZES.ring as u64) {
            return Ok(false);
        }
        if self.saved < end {
            let piece = self.taker.look(begin, (end - begin) as usize);
            let is_direct = is_direct && piece.len() == F::SIZES.window;
            let done = is_direct && self.direct.write_at(begin, piece).is_ok();
            if !done {
                file.write_at(begin, piece)?;
            }
            self.saved = end;
        }
        self.taker.take(end);
        Ok(true)
    }
}

impl<F: Files> Journal<F> {
    /// Says once why records that replies wait for do not go past the kernel's memory.
    fn tell_plain(&self, why: &dyn fmt::Display) {
        self.told_plain.call_once(|| {
            tracing::warn!(
                "appendfsync always: each turn's records are written and synced by themselves: {why}"
            );
        });
    }

    /// Moves what fills whole windows of all threads' rings.
    pub(super) fn move_windows(&self) {
        for slot in &self.slots {
            let last = lock(&slot.files).last().cloned();
            // What cannot be moved stays; the thread that appends will meet the error when it needs the room.
            if let Some(Err(error)) = last.map(|file| file.move_windows()) {
                tracing::error!("the journal cannot be written: {error}");
            }
        }
    }
}
