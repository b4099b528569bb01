//! Files as the journal needs them: the trait [`Files`], and [`Disk`], the system's own.
//!
//! `journal` and `storage` here and the crate `durability` use nothing else to change files, so that a test can put simulated
//! files in their place, which lose what was not synced. The compiler makes one copy of the code for each kind of files:
//! nothing is looked up while the server runs.

mod disk;

use std::ffi::OsString;
use std::fmt::Debug;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

pub use darter_reactor::ring::{Pushed, RingLayout};
pub use disk::Disk;

use crate::read_at::ReadAt;

/// Where files are.
pub trait Files: Clone + Debug + Send + Sync + 'static {
    /// An open file.
    type File: OpenFile;
    /// The side of a ring that pushes.
    type Pusher: RingPusher;
    /// The side of a ring that takes.
    type Taker: RingTaker<Self::Pusher>;

    /// How long things are.
    const SIZES: FileSizes;

    /// Opens a file.
    ///
    /// Errors: of the system; [`OpenMode::Direct`] may be unknown to the file system.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Self::File>;

    /// Returns the facts of a file without opening it.
    ///
    /// Errors: it is not there.
    fn facts(&self, path: &Path) -> io::Result<FileFacts>;

    /// The names in a folder, in no order.
    ///
    /// Errors: of the folder.
    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Makes a folder, and those above it, unless it is there.
    ///
    /// Errors: of the system.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Gives a file another name, in place of a file that has it.
    ///
    /// Errors: of the system; nothing has changed.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// Errors: of the system; the file is still there.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes durable what was created, renamed and removed in a folder.
    ///
    /// Errors: of the folder.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes an open file a ring that begins with `head`, with all its blocks. The head is on disk when this returns.
    ///
    /// Errors: there is no room, or the system cannot map files.
    fn ring(
        &self,
        file: &Self::File,
        head: &[u8],
        layout: RingLayout,
    ) -> io::Result<(Self::Pusher, Self::Taker)>;

    /// The id of the machine's boot: with the same one, what a killed process left in memory is in its files. `None` if the
    /// system does not say.
    fn boot_id(&self) -> Option<[u8; 16]>;

    /// The wall clock, Unix milliseconds.
    fn clock_ms(&self) -> u64;

    /// The clock that only goes forward.
    fn now(&self) -> Instant;

    /// Whether a file of this name is there.
    fn has(&self, path: &Path) -> bool {
        self.facts(path).is_ok()
    }

    /// All bytes of a file.
    ///
    /// Errors: of the file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        FileReader::new(self.open(path, OpenMode::Read)?)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// To be read; it has to be there.
    Read,
    /// To be written; it has to be there.
    Write,
    /// To be written; it must not be there.
    New,
    /// To be read and written, and empty.
    Emptied,
    /// To be written past the kernel's memory in whole pages; it has to be there.
    Direct,
    /// The same, and empty; it is made if need be.
    EmptiedDirect,
}

/// An open file.
pub trait OpenFile: ReadAt + Debug + 'static {
    /// Writes all of `bytes` from `offset` on.
    ///
    /// Errors: some of the bytes may be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file off, or makes it longer with zeros.
    ///
    /// Errors: of the file.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes its bytes and its length durable.
    ///
    /// Errors: what was written since the last sync may be lost, and a later sync says nothing of that.
    fn sync(&self) -> io::Result<()>;

    /// The same, without the times at which the file was used.
    ///
    /// Errors: as [`OpenFile::sync`].
    fn sync_data(&self) -> io::Result<()>;

    /// Gives the file the blocks of a range without making it longer.
    ///
    /// Errors: there is no room, or the file system cannot.
    fn reserve(&self, from: u64, len: u64) -> io::Result<()>;

    /// Whether a mapped file is as good as a written one there: blocks are given once, and not anew with each change.
    fn keeps_blocks(&self) -> bool;
}

/// The side of a ring that pushes. A ring is a file that is mapped into memory; see `darter_reactor::ring`.
pub trait RingPusher: Send + 'static {
    /// Appends all of `bytes`, or nothing. A process that is killed has done all or nothing, too.
    fn push(&mut self, bytes: &[u8]) -> Pushed;

    /// Stores the word [`RingLayout::begun_at`] in the file.
    fn announce(&self, word: u64);

    /// All that was ever pushed, in bytes.
    fn end(&self) -> u64;
}

/// The side of a ring that takes.
pub trait RingTaker<P>: Send + 'static {
    /// All that was ever pushed, in bytes.
    fn end(&self) -> u64;

    /// Bytes of these that were taken.
    fn taken(&self) -> u64;

    /// Bytes from number `from` on, at most `len`, in one piece; empty if they were taken or not pushed.
    fn look(&mut self, from: u64, len: usize) -> &[u8];

    /// Counts `bytes` as pushed and taken that were put elsewhere; false unless all before them is taken.
    fn skip(&mut self, pusher: &mut P, bytes: u64) -> bool;

    /// Gives the room of all bytes before number `to` back.
    fn take(&mut self, to: u64);
}

/// Facts of a file that are known without opening it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileFacts {
    /// Bytes.
    pub len: u64,
    /// When it was last written, Unix milliseconds; 0 if the system does not say.
    pub modified_ms: u64,
    /// It is a file, and no folder.
    pub is_file: bool,
}

/// How long things are, in bytes unless it says otherwise.
#[derive(Clone, Copy, Debug)]
pub struct FileSizes {
    /// A ring.
    pub ring: usize,
    /// Bytes that are moved from a ring to its segment at once: a quarter of it.
    pub window: usize,
    /// Blocks that a segment is given at once.
    pub reserve: u64,
    /// A group of records that makes a file longer is at least so long.
    pub longer: usize,
    /// More than this is not gathered for a sync.
    pub gathered_max: usize,
    /// Files that are synced at the same time: disks make one of such syncs.
    pub syncs_together: usize,
}

impl FileSizes {
    /// Whether they fit each other, in a constant.
    pub const fn are_sound(&self) -> bool {
        self.ring == 4 * self.window
            && self.ring <= crate::journal::tail::CAPACITY_MAX
            && self.window.is_multiple_of(PAGE_BYTES)
            && self.longer.is_multiple_of(PAGE_BYTES)
            && self.gathered_max.is_multiple_of(self.longer)
            && self.syncs_together > 0
    }
}

/// Direct writes begin and end at multiples of this, in memory and in the file.
pub const PAGE_BYTES: usize = 4096;

/// A file read from its beginning, as long as it was when reading began.
#[derive(Debug)]
pub struct FileReader<T> {
    file: T,
    at: u64,
    len: u64,
}

impl<T: ReadAt> FileReader<T> {
    /// Begins to read.
    ///
    /// Errors: the file does not say how long it is.
    pub fn new(file: T) -> io::Result<FileReader<T>> {
        let len = file.len()?;
        Ok(FileReader { file, at: 0, len })
    }
}

impl<T: ReadAt> Read for FileReader<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let len = out.len().min(left);
        let Some(out) = out.get_mut(..len) else { return Ok(0) };
        self.file.read_at(self.at, out)?;
        self.at += len as u64;
        Ok(len)
    }
}
