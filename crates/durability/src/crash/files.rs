//! The files of a simulated machine.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use darter_persist::ReadAt;
use darter_persist::files::{
    FileFacts, FileSizes, Files, OpenFile, OpenMode, PAGE_BYTES, Pushed, RingLayout, RingPusher, RingTaker,
};

use super::machine::{Machine, MachineState, Mutant, OperationFate};

/// What says that a sync has failed.
pub const UNSYNCED: &str = "darter.unsynced";

/// The folder of the journal.
pub const FOLDER: &str = "/simulated/journal";

fn name_of(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned()
}

fn full() -> io::Error {
    io::Error::from(io::ErrorKind::StorageFull)
}

impl Files for Machine {
    type File = SimulatedFile;
    type Pusher = SimulatedPusher;
    type Taker = SimulatedTaker;

    const SIZES: FileSizes = FileSizes {
        ring: 4 * PAGE_BYTES,
        window: PAGE_BYTES,
        reserve: 8 * PAGE_BYTES as u64,
        longer: 2 * PAGE_BYTES,
        gathered_max: 8 * PAGE_BYTES,
        syncs_together: 1,
    };

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<SimulatedFile> {
        let name = name_of(path);
        let is_read = mode == OpenMode::Read;
        let opens = |state: &mut MachineState, _| {
            let found = state.disk.names.get(&name).copied();
            let inode = match (mode, found) {
                _ if !state.disk.has_folder => return Err(io::ErrorKind::NotFound.into()),
                (OpenMode::New, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
                (OpenMode::New | OpenMode::Emptied | OpenMode::EmptiedDirect, None) => {
                    state.has_failed &= name != UNSYNCED;
                    state.disk.create(&name)
                }
                (_, None) => return Err(io::ErrorKind::NotFound.into()),
                (OpenMode::Emptied | OpenMode::EmptiedDirect, Some(inode)) => {
                    state.disk.give_room(inode, 0);
                    state.disk.inodes[inode].set_len(0);
                    inode
                }
                (_, Some(inode)) => inode,
            };
            Ok(SimulatedFile { machine: self.clone(), inode, name: name.clone() })
        };
        if is_read {
            return opens(&mut self.state(), OperationFate::Whole);
        }
        self.operate(|| format!("open {name} {mode:?}"), opens)
    }

    fn facts(&self, path: &Path) -> io::Result<FileFacts> {
        let state = self.state();
        if path == Path::new(FOLDER) && state.disk.has_folder {
            return Ok(FileFacts { len: 0, modified_ms: 0, is_file: false });
        }
        let inode = state.disk.names.get(&name_of(path)).ok_or(io::ErrorKind::NotFound)?;
        Ok(FileFacts { len: state.disk.inodes[*inode].content.len() as u64, modified_ms: 0, is_file: true })
    }

    fn names(&self, _: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        if !state.disk.has_folder {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(state.disk.names.keys().map(OsString::from).collect())
    }

    fn create_dir(&self, _: &Path) -> io::Result<()> {
        self.operate(|| "make the folder".to_owned(), |state, _| state.disk.has_folder = true);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (name_of(from), name_of(to));
        self.operate(
            || format!("rename {from} {to}"),
            |state, _| match state.disk.names.contains_key(&from) {
                true => {
                    state.disk.rename(&from, &to);
                    Ok(())
                }
                false => Err(io::ErrorKind::NotFound.into()),
            },
        )
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let name = name_of(path);
        if !self.state().disk.names.contains_key(&name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.operate(|| format!("remove {name}"), |state, _| state.disk.remove(&name));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let is_parent = dir != Path::new(FOLDER);
        self.operate(
            || format!("sync the folder{}", if is_parent { " above" } else { "" }),
            |state, _| {
                state.fails_sync()?;
                match (state.mutant, is_parent) {
                    (Mutant::FolderSync, _) => {}
                    (_, true) => state.disk.sync_folder(),
                    (_, false) => state.disk.sync_names(),
                }
                Ok(())
            },
        )
    }

    fn ring(
        &self,
        file: &SimulatedFile,
        head: &[u8],
        layout: RingLayout,
    ) -> io::Result<(SimulatedPusher, SimulatedTaker)> {
        let len = (layout.data_at + layout.capacity) as u64;
        file.reserve(0, len)?;
        file.set_len(len)?;
        file.write_at(0, head)?;
        file.sync()?;
        let ring = Arc::new(SimulatedRing {
            file: file.clone(),
            layout,
            end: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        });
        Ok((SimulatedPusher(ring.clone()), SimulatedTaker { ring, piece: Vec::new() }))
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        Some([self.state().boot; 16])
    }

    fn clock_ms(&self) -> u64 {
        self.state().clock_ms
    }

    fn now(&self) -> Instant {
        static BEGAN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        *BEGAN + Duration::from_millis(self.state().clock_ms)
    }
}

impl MachineState {
    /// A sync that fails.
    fn fails_sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if self.failing_syncs == 0 {
            return Ok(());
        }
        self.failing_syncs -= 1;
        self.tell(|| "  that sync fails".to_owned());
        if self.mutant == Mutant::SyncError { Ok(()) } else { Err(io::Error::other("the disk failed")) }
    }
}

/// An open file.
#[derive(Clone, Debug)]
pub struct SimulatedFile {
    machine: Machine,
    inode: usize,
    name: String,
}

impl SimulatedFile {
    fn is_unsynced_by(&self, state: &MachineState) -> bool {
        let ends = |end: &str| self.name.ends_with(end);
        match state.mutant {
            Mutant::SegmentSync => ends(".seg"),
            Mutant::ManifestSync => ends(".manifest.tmp"),
            Mutant::BaseSync => ends(".darter-tmp"),
            Mutant::TailSync => ends(".tail"),
            Mutant::ThirdSync => state.syncs.is_multiple_of(3),
            _ => false,
        }
    }
}

impl ReadAt for SimulatedFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.machine.state().disk.inodes[self.inode].content.as_slice().read_at(offset, out)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.machine.state().disk.inodes[self.inode].content.len() as u64)
    }
}

impl OpenFile for SimulatedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.machine.operate(
            || format!("write {} {offset}+{}", self.name, bytes.len()),
            |state, fate| {
                let offset = offset as usize;
                let has_room = state.disk.take_room(self.inode, offset + bytes.len());
                let bytes = match fate {
                    // The kernel copies a page at a time, and looks for kills in between.
                    OperationFate::Part => {
                        let end = offset + state.rng.below(bytes.len() as u64 + 1) as usize;
                        let end = end - end % PAGE_BYTES;
                        &bytes[..end.saturating_sub(offset)]
                    }
                    OperationFate::Whole if has_room => bytes,
                    // What there are blocks for is written.
                    OperationFate::Whole => {
                        let whole = state.disk.inodes[self.inode].blocks.saturating_sub(offset);
                        &bytes[..whole.min(bytes.len())]
                    }
                };
                state.disk.inodes[self.inode].write(offset, bytes);
                state.was_full |= !has_room;
                if has_room { Ok(()) } else { Err(full()) }
            },
        )
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.machine.operate(
            || format!("cut {} to {len}", self.name),
            |state, _| {
                state.disk.give_room(self.inode, len as usize);
                state.disk.inodes[self.inode].set_len(len as usize);
            },
        );
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.machine.operate(
            || format!("sync {}", self.name),
            |state, _| {
                if state.failing_syncs > 0 {
                    state.disk.inodes[self.inode].fail_sync(&mut state.rng);
                    state.has_failed |= self.name.ends_with(".seg");
                }
                state.fails_sync()?;
                if !self.is_unsynced_by(state) {
                    state.disk.inodes[self.inode].sync();
                }
                Ok(())
            },
        )
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn reserve(&self, from: u64, len: u64) -> io::Result<()> {
        self.machine.operate(
            || format!("reserve {} {from}+{len}", self.name),
            |state, _| match state.disk.take_room(self.inode, (from + len) as usize) {
                true => Ok(()),
                false => {
                    state.was_full = true;
                    Err(full())
                }
            },
        )
    }

    fn keeps_blocks(&self) -> bool {
        self.machine.state().keeps_blocks
    }
}

struct SimulatedRing {
    file: SimulatedFile,
    layout: RingLayout,
    end: AtomicU64,
    taken: AtomicU64,
}

/// The side of a simulated ring that pushes.
pub struct SimulatedPusher(Arc<SimulatedRing>);

/// The side that takes.
pub struct SimulatedTaker {
    ring: Arc<SimulatedRing>,
    piece: Vec<u8>,
}

impl SimulatedRing {
    /// Stores bytes in the mapped file.
    fn store(&self, what: &str, stores: Vec<(usize, &[u8])>) {
        let SimulatedRing { file, .. } = self;
        file.machine.operate(
            || format!("{what} {}", file.name),
            |state, fate| {
                if state.mutant == Mutant::MappedStores {
                    return;
                }
                for (at, bytes) in stores {
                    let bytes = match fate {
                        OperationFate::Whole => bytes,
                        OperationFate::Part => &bytes[..state.rng.below(bytes.len() as u64 + 1) as usize],
                    };
                    state.disk.inodes[file.inode].write(at, bytes);
                }
            },
        );
    }

    /// Stores a word, which is there as a whole or not at all.
    fn note(&self, what: &str, at: usize, word: u64) {
        let SimulatedRing { file, .. } = self;
        file.machine.operate(
            || format!("{what} {} {word}", file.name),
            |state, fate| {
                if fate == OperationFate::Whole && state.mutant != Mutant::MappedStores {
                    state.disk.inodes[file.inode].write(at, &word.to_le_bytes());
                }
            },
        );
    }
}

impl RingPusher for SimulatedPusher {
    fn push(&mut self, bytes: &[u8]) -> Pushed {
        let SimulatedRing { layout, end, taken, .. } = &*self.0;
        let (begin, capacity) = (end.load(SeqCst), layout.capacity);
        let to = begin + bytes.len() as u64;
        if to > taken.load(SeqCst) + capacity as u64 {
            return Pushed::Nothing;
        }
        let at = (begin % capacity as u64) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(capacity - at));
        self.0.store("push", vec![(layout.data_at + at, first), (layout.data_at, second)]);
        self.0.note("end", layout.end_at, to);
        end.store(to, SeqCst);
        let quarter = (capacity / 4) as u64;
        if begin / quarter == to / quarter { Pushed::All } else { Pushed::Quarter }
    }

    fn announce(&self, word: u64) {
        self.0.note("announce", self.0.layout.begun_at, word);
    }

    fn end(&self) -> u64 {
        self.0.end.load(SeqCst)
    }
}

impl RingTaker<SimulatedPusher> for SimulatedTaker {
    fn end(&self) -> u64 {
        self.ring.end.load(SeqCst)
    }

    fn taken(&self) -> u64 {
        self.ring.taken.load(SeqCst)
    }

    fn look(&mut self, from: u64, len: usize) -> &[u8] {
        let (taken, end) = (self.taken(), self.end());
        if from < taken || from >= end {
            return &[];
        }
        let SimulatedRing { layout, file, .. } = &*self.ring;
        let at = (from % layout.capacity as u64) as usize;
        let len = len.min(layout.capacity - at).min((end - from) as usize);
        self.piece.resize(len, 0);
        file.read_at((layout.data_at + at) as u64, &mut self.piece).expect("it is as long");
        &self.piece
    }

    fn skip(&mut self, pusher: &mut SimulatedPusher, bytes: u64) -> bool {
        if !Arc::ptr_eq(&self.ring, &pusher.0) || self.taken() != self.end() {
            return false;
        }
        let to = self.end() + bytes;
        self.ring.note("end", self.ring.layout.end_at, to);
        self.ring.end.store(to, SeqCst);
        self.ring.note("taken", self.ring.layout.taken_at, to);
        self.ring.taken.store(to, SeqCst);
        true
    }

    fn take(&mut self, to: u64) {
        let to = to.clamp(self.taken(), self.end());
        self.ring.note("taken", self.ring.layout.taken_at, to);
        self.ring.taken.store(to, SeqCst);
    }
}
