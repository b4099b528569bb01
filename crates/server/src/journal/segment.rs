//! The file a thread appends its records to, and the ring in memory through which most of them go there.
//!
//! Where the file system allows it, records are copied into a mapped ring (`darter_reactor::ring`): they are the kernel's
//! then, as if they were written, at the price of a copy. The journal's thread takes them from there to the segment, a
//! mebibyte at a time and past the kernel's memory, and what a sync has to cover before that. When the ring is full,
//! the thread that appends makes room itself, through the kernel's memory. Blocks are had ahead, so that what was answered
//! always has room; where there are none left, or records are too large, the rest of a segment is written as it comes.
//!
//! With `always` they are gathered for the next sync, which writes them itself (`direct`).

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};

use darter_persist::journal::segment::FileHead;
use darter_persist::journal::{folder, tail};
use darter_reactor::ring::{self, Pusher, Taker};

use super::direct::Direct;
use super::{Journal, NONE};
use crate::config::Fsync;
use crate::core::unix_ms;
use crate::worker::lock;

/// The side of the thread that appends.
pub struct Segment {
    /// Which segments it belongs to.
    pub generation: u64,
    file: Arc<SegmentFile>,
    path: PathBuf,
    pusher: Option<Pusher>,
    direct: Option<Arc<Direct>>,
    // Of a file without a ring.
    len: u64,
}

/// How records come into a new segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Each is given to the kernel by itself.
    Plain,
    /// Copied into a ring, where there may be one.
    Mapped,
    /// Gathered for a sync, where a file can be written past the kernel's memory.
    Direct,
}

/// The side of whoever syncs.
pub struct SegmentFile {
    file: File,
    tail: Mutex<Option<Tail>>,
    direct: Mutex<Option<Arc<Direct>>>,
}

/// What is not in the file yet.
struct Tail {
    taker: Taker,
    direct: File,
    path: PathBuf,
    // Bytes of the segment that are in the file or the kernel's memory for it.
    saved: u64,
    // Bytes for which the file has blocks.
    reserved: u64,
    // There are no more.
    is_short: bool,
}

/// Bytes of a ring,
const RING_BYTES: usize = 4 << 20;
/// of what is taken from it at once,
const WINDOW_BYTES: usize = 1 << 20;
/// and for which blocks are had at once.
pub(super) const RESERVE_BYTES: u64 = 16 << 20;
const _: () = assert!(RING_BYTES.is_multiple_of(WINDOW_BYTES) && RING_BYTES <= tail::CAPACITY_MAX);

impl Way {
    /// How records come into new segments with this setting.
    pub fn of(fsync: Fsync) -> Way {
        if fsync == Fsync::Always { Way::Direct } else { Way::Mapped }
    }
}

impl Segment {
    /// The segment of a thread for a generation: the one that was made ahead, or a new one.
    ///
    /// Errors: of the files.
    pub fn open(journal: &Journal, slot: u16, generation: u64, way: Way) -> io::Result<Segment> {
        let place = &journal.slots[usize::from(slot)];
        let mut ahead = lock(&place.ahead);
        if let Some(made) = ahead.as_mut().filter(|made| made.gathers() && way != Way::Direct) {
            made.finish(journal)?;
        }
        let segment = match ahead.take_if(|made| made.generation == generation) {
            Some(made) => made,
            None => Segment::make(journal, slot, generation, way)?,
        };
        drop(ahead);
        lock(&place.files).push(segment.file.clone());
        journal.bytes.fetch_add(segment.len, Relaxed);
        Ok(segment)
    }

    /// Makes the segment of a thread for a generation; where the file system does not allow the `way`, a plain one.
    ///
    /// Errors: of the files.
    pub(super) fn make(journal: &Journal, slot: u16, generation: u64, way: Way) -> io::Result<Segment> {
        let dir = journal.dir().ok_or(io::ErrorKind::NotFound)?;
        let path = dir.join(folder::segment_name(generation, slot));
        let file = OpenOptions::new().create_new(true).write(true).open(&path)?;
        let since = Some(journal.since.load(SeqCst)).filter(|since| *since != NONE);
        let head = FileHead { thread: slot, generation, since, made_ms: unix_ms() }.to_bytes();
        let made = || {
            file.write_all_at(&head, 0)?;
            folder::sync_dir(&dir)
        };
        if let Err(error) = made() {
            // So that the next attempt can make it.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        // Where a file's blocks are not given anew with each change.
        let suits = ring::suits(&file);
        if !suits && way == Way::Direct {
            journal.tell_plain(&"the file system is neither ext4 nor XFS");
        }
        let way = if suits { way } else { Way::Plain };
        let mapped = (way == Way::Mapped).then(|| Tail::open(&file, &path, (generation, slot), &head));
        let (pusher, tail) = mapped.flatten().unzip();
        let direct = (way == Way::Direct).then(|| Direct::open(&file, &path, &head));
        let direct = direct.and_then(|made| made.inspect_err(|error| journal.tell_plain(error)).ok());
        let direct = direct.map(Arc::new);
        let len = head.len() as u64;
        let file = SegmentFile { file, tail: Mutex::new(tail), direct: Mutex::new(direct.clone()) };
        let file = Arc::new(file);
        Ok(Segment { generation, file, path, pusher, direct, len })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether to append is to copy.
    pub fn is_copied(&self) -> bool {
        self.pusher.is_some() || self.direct.is_some()
    }

    /// Whether records are with the kernel only when they are synced.
    pub fn gathers(&self) -> bool {
        self.direct.is_some()
    }

    /// Appends whole records. What was written in part is cut off again when it fails.
    ///
    /// Errors: nothing was appended.
    pub fn append(&mut self, journal: &Journal, records: &[u8]) -> io::Result<()> {
        if let Some(pusher) = &mut self.pusher {
            let before = pusher.end();
            let is_done = pusher.push(records) || self.file.make_room()? && pusher.push(records);
            if is_done {
                if before / WINDOW_BYTES as u64 != pusher.end() / WINDOW_BYTES as u64 {
                    journal.ask_for_room();
                }
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
        let written = self.file.file.write_all_at(records, self.len);
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
    pub fn finish(&mut self, journal: &Journal) -> io::Result<()> {
        if let Some(direct) = &self.direct {
            // Where a write has failed there is nothing to be saved: a new base is on its way.
            if !direct.is_broken() {
                direct.write(&self.file.file).inspect_err(|error| journal.note_failed_sync(error))?;
                self.file.file.set_len(self.len)?;
            }
            lock(&self.file.direct).take();
            self.direct = None;
        }
        if let Some(pusher) = &self.pusher {
            self.len = pusher.end();
            self.file.finish()?;
            self.pusher = None;
        }
        Ok(())
    }
}

impl SegmentFile {
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
        self.file.sync_data()
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

    /// Has all in the file, and no ring beside it; to be called when nobody appends any more.
    ///
    /// Errors: of the file.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut place = lock(&self.tail);
        if let Some(tail) = place.as_mut() {
            tail.save(&self.file)?;
            // Without the blocks it had ahead.
            self.file.set_len(tail.taker.end())?;
            let _ = std::fs::remove_file(&tail.path);
            *place = None;
        }
        Ok(())
    }

    /// A file that is written as it comes.
    #[cfg(test)]
    pub(super) fn plain(file: File) -> SegmentFile {
        SegmentFile { file, tail: Mutex::default(), direct: Mutex::default() }
    }
}

impl Tail {
    /// Makes a ring for a segment that has nothing but its head; `None` where there can be none.
    fn open(file: &File, path: &Path, (generation, slot): (u64, u16), head: &[u8]) -> Option<(Pusher, Tail)> {
        if !ring::suits(file) {
            return None;
        }
        let direct = ring::open_direct(path).ok()?;
        ring::reserve(file, 0, RESERVE_BYTES).ok()?;
        let path = tail::path_of(path);
        let mapped = File::options().read(true).write(true).create(true).truncate(true).open(&path).ok()?;
        let layout = ring::Layout {
            end_at: tail::END_AT,
            taken_at: tail::TAKEN_AT,
            data_at: tail::DATA_AT,
            capacity: RING_BYTES,
        };
        let made = ring::create(&mapped, &tail::head(generation, slot, RING_BYTES as u32), layout);
        let Ok((mut pusher, taker)) = made else {
            let _ = std::fs::remove_file(&path);
            return None;
        };
        pusher.push(head);
        let saved = head.len() as u64;
        Some((pusher, Tail { taker, direct, path, saved, reserved: RESERVE_BYTES, is_short: false }))
    }

    /// Writes what is not in the file.
    fn save(&mut self, file: &File) -> io::Result<()> {
        loop {
            let piece = self.taker.look(self.saved, usize::MAX);
            if piece.is_empty() {
                return Ok(());
            }
            file.write_all_at(piece, self.saved)?;
            self.saved += piece.len() as u64;
        }
    }

    /// Moves one window, past the kernel's memory or into it; false when none is full, or no more may be taken.
    fn move_window(&mut self, file: &File, is_direct: bool) -> io::Result<bool> {
        let begin = self.taker.taken();
        let end = begin + WINDOW_BYTES as u64;
        if self.taker.end() < end || self.is_short {
            return Ok(false);
        }
        // What the ring can hold after this has blocks, or this is not taken.
        if self.reserved < end + RING_BYTES as u64 {
            if ring::reserve(file, self.reserved, RESERVE_BYTES).is_err() {
                self.is_short = true;
                return Ok(false);
            }
            self.reserved += RESERVE_BYTES;
        }
        if self.saved < end {
            let piece = self.taker.look(begin, WINDOW_BYTES);
            let done = is_direct && self.direct.write_all_at(piece, begin).is_ok();
            if !done {
                file.write_all_at(piece, begin)?;
            }
            self.saved = end;
        }
        self.taker.take(end);
        Ok(true)
    }
}

impl Journal {
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
