//! How a journal ended: what its row of records leaves out, and making its files whole before a server goes on from there.
//!
//! Nothing is changed before [`Ending::settle`], so that a start which is refused or killed finds the same again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::Damage;
use super::folder::{BrokenFile, SegmentFile};
use super::manifest::Manifest;
use super::segment::{FileHead, NextRecordAt, SegmentKind};
use super::tail::{self, TailRest};
use crate::files::{Files, OpenFile, OpenMode};
use crate::read_at::ReadAt;

/// How a journal ended.
#[derive(Debug)]
pub struct Ending<F: Files> {
    fs: F,
    /// The manifest, with all gaps that are known now and without the segments that are missing.
    pub manifest: Manifest,
    /// The sequence that the next record would have.
    pub sequence: u64,
    /// Ends of segments that do not belong to the row of records; none after a clean stop.
    pub torn: Vec<Torn>,
    /// Files that are missing or damaged beside these.
    pub broken: Vec<BrokenFile>,
    pub(super) files: Vec<(Unsettled, u64)>,
}

/// A segment that may have more beside it.
#[derive(Debug)]
pub(super) struct Unsettled {
    pub path: PathBuf,
    /// Bytes, with what its tail adds.
    pub len: u64,
    pub head: FileHead,
    pub rest: Option<TailRest>,
}

/// The end of a segment that does not belong to the row of records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// The segment.
    pub path: PathBuf,
    /// Where the part begins that is left out.
    pub offset: u64,
    /// Bytes left out.
    pub bytes: u64,
    /// Whole records among them.
    pub records: u64,
    /// The last clock of these, Unix milliseconds; 0 without any.
    pub clock_max_ms: u64,
    /// Damage where whole records end, if there is any.
    pub damage: Option<Damage>,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torn { path, offset, bytes, records, .. } = self;
        write!(f, "{}: {bytes} bytes from offset {offset} on ({records} whole records)", path.display())?;
        match &self.damage {
            Some(damage) => write!(f, "; {damage}"),
            None => Ok(()),
        }
    }
}

impl<F: Files> Ending<F> {
    pub(super) fn new(fs: F, manifest: Manifest, sequence: u64) -> Ending<F> {
        Ending { fs, manifest, sequence, torn: Vec::new(), broken: Vec::new(), files: Vec::new() }
    }

    /// Whether nothing is missing, damaged or left out.
    pub fn is_sound(&self) -> bool {
        self.torn.is_empty() && self.broken.is_empty()
    }

    /// Adds a segment as the row of records left it.
    pub(super) fn add(&mut self, mut segment: SegmentFile<F>, file: Unsettled) -> io::Result<()> {
        let offset = segment.offset();
        let (mut records, mut clock_max_ms) = (0, 0);
        while let NextRecordAt::Record(head) = *segment.next() {
            records += 1;
            clock_max_ms = clock_max_ms.max(head.clock_ms);
            segment.advance()?;
        }
        let damage = match segment.next() {
            NextRecordAt::Damaged(damage) => Some(damage.clone()),
            _ => None,
        };
        let (path, bytes) = (file.path.clone(), file.len.saturating_sub(offset));
        // Zeros behind the last record are nothing.
        let is_torn = records > 0 || damage.is_some();
        self.files.push((file, if is_torn { offset } else { segment.offset() }));
        if is_torn {
            self.torn.push(Torn { path, offset, bytes, records, clock_max_ms, damage });
        }
        Ok(())
    }

    /// Adds a segment whose head is damaged.
    pub(super) fn add_headless(&mut self, path: PathBuf, damage: Damage) -> io::Result<()> {
        let bytes = self.fs.facts(&path)?.len;
        self.torn.push(Torn { path, offset: 0, bytes, records: 0, clock_max_ms: 0, damage: Some(damage) });
        Ok(())
    }

    /// The manifest without segments that are missing or have no head: what a server that goes on from here stores first.
    pub fn manifest_after(&self) -> Manifest {
        let mut manifest = self.manifest.clone();
        let is_kept = |generation: u64, thread: u16| {
            let name = super::folder::segment_name(generation, thread);
            self.files.iter().any(|(file, _)| file.path.file_name().is_some_and(|own| *own == *name))
        };
        // A manifest of the first version names none: those that are there are all there ever will be.
        let found = self.files.iter().map(|(file, _)| (file.head.generation, file.head.thread));
        found.for_each(|(generation, thread)| manifest.list(generation, thread));
        for (generation, threads) in manifest.segments.iter_mut().flatten() {
            threads.retain(|thread| is_kept(*generation, *thread));
        }
        manifest.segments.iter_mut().for_each(|listed| {
            listed.retain(|(_, threads)| !threads.is_empty());
            listed.sort();
        });
        manifest
    }

    /// Moves what only tails have into the segments, sets aside what is left out or damaged, and closes the segments;
    /// returns what was set aside as what it was and where it is now. To be called when no server writes there, and
    /// after the manifest with the gaps is stored.
    ///
    /// Errors: of the files; what was done stays done, and a further call finds the rest.
    pub fn settle(&self) -> io::Result<Vec<(PathBuf, PathBuf)>> {
        let folder = self.files.first().and_then(|(file, _)| file.path.parent());
        let settled = self.settle_files(folder);
        if let (Err(_), Some(folder)) = (&settled, folder) {
            note_unsynced(&self.fs, folder);
        }
        settled
    }

    fn settle_files(&self, folder: Option<&Path>) -> io::Result<Vec<(PathBuf, PathBuf)>> {
        let mut aside = Vec::new();
        let unsynced = folder.map(|folder| folder.join(UNSYNCED)).filter(|path| self.fs.has(path));
        for (file, _) in &self.files {
            file.unite(&self.fs)?;
            if unsynced.is_some() {
                file.write_again(&self.fs)?;
            }
        }
        for torn in &self.torn {
            aside.push((torn.path.clone(), torn.set_aside(&self.fs)?));
        }
        for broken in self.broken.iter().filter(|broken| broken.damage.is_some()) {
            if tail::path_of(&broken.path) == broken.path {
                aside.push((broken.path.clone(), rename_aside(&self.fs, &broken.path, "damaged")?));
            }
        }
        for (file, len) in &self.files {
            file.close(&self.fs, *len)?;
        }
        // Without its segment a tail is of no use to anybody but who looks for what was lost.
        for torn in self.torn.iter().filter(|torn| torn.offset == 0) {
            let tail = tail::path_of(&torn.path);
            if tail.exists() {
                aside.push((tail.clone(), rename_aside(&self.fs, &tail, "damaged")?));
            }
        }
        if let Some(unsynced) = unsynced {
            self.fs.remove(&unsynced)?;
        }
        if let Some(dir) = folder {
            self.fs.sync_dir(dir)?;
        }
        Ok(aside)
    }
}

impl Unsettled {
    /// Moves what only the tail has into the segment.
    fn unite(&self, files: &impl Files) -> io::Result<()> {
        let Some(TailRest { offset, bytes }) = &self.rest else { return Ok(()) };
        let segment = files.open(&self.path, OpenMode::Write)?;
        segment.write_at(*offset, bytes)?;
        segment.set_len(offset + bytes.len() as u64)?;
        segment.sync()
    }

    /// Writes all of the segment again, so that the next sync covers it.
    fn write_again(&self, files: &impl Files) -> io::Result<()> {
        let (source, segment) =
            (files.open(&self.path, OpenMode::Read)?, files.open(&self.path, OpenMode::Write)?);
        copy_range(&source, 0, &segment)?;
        segment.sync()
    }

    /// Says in the segment that it has `len` bytes and no tail.
    fn close(&self, files: &impl Files, len: u64) -> io::Result<()> {
        if self.head.kind != SegmentKind::Unknown && self.head.closed != Some(len) && files.has(&self.path) {
            let segment = files.open(&self.path, OpenMode::Write)?;
            close_segment(&segment, self.head, len)?;
        }
        match files.remove(&tail::path_of(&self.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A file that says that a sync has failed: what segments hold may be in the kernel's memory alone, though it counts as
/// written there. It need not survive a loss of power, for then that memory is gone, too.
const UNSYNCED: &str = "darter.unsynced";

/// Notes that a sync has failed: the next start writes all segments again.
pub fn note_unsynced(files: &impl Files, dir: &Path) {
    if let Err(error) = files.open(&dir.join(UNSYNCED), OpenMode::Emptied) {
        // The same disk has just failed, and its log says so.
        drop(error);
    }
}

/// Ends what [`note_unsynced`] has begun: a base holds all that the segments did.
pub fn forget_unsynced(files: &impl Files, dir: &Path) {
    let path = dir.join(UNSYNCED);
    if files.has(&path) {
        let _ = files.remove(&path);
    }
}

/// Makes `len` bytes all there is of a segment, and says so in its head.
///
/// Errors: of the file.  Cost: two syncs.
pub fn close_segment(segment: &impl OpenFile, head: FileHead, len: u64) -> io::Result<()> {
    segment.set_len(len)?;
    // The head may not be on disk before what it says is there.
    segment.sync()?;
    segment.write_at(0, &FileHead { closed: Some(len), ..head }.to_bytes())?;
    segment.sync()
}

/// A file that is not there yet: `path` with an ending.
fn beside<F: Files>(files: &F, path: &Path, ending: &str) -> io::Result<(PathBuf, F::File)> {
    for n in 0..u32::MAX {
        let mut name = path.to_owned().into_os_string();
        name.push(if n == 0 { format!(".{ending}") } else { format!(".{ending}{n}") });
        let name = PathBuf::from(name);
        match files.open(&name, OpenMode::New) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|made| (name, made)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Gives a file another name with this ending; returns the name.
///
/// Errors: of the files.
pub fn rename_aside(files: &impl Files, path: &Path, ending: &str) -> io::Result<PathBuf> {
    let (aside, _) = beside(files, path, ending)?;
    files.rename(path, &aside)?;
    Ok(aside)
}

impl Torn {
    /// Copies the part that is left out to a file beside the segment, then cuts it off; returns the copy's path.
    ///
    /// Errors: of the files; the segment is cut only after the copy is safe.
    fn set_aside(&self, files: &impl Files) -> io::Result<PathBuf> {
        let source = files.open(&self.path, OpenMode::Read)?;
        let (aside, copy) = beside(files, &self.path, "torn")?;
        copy_range(&source, self.offset, &copy)?;
        copy.sync()?;
        if let Some(dir) = self.path.parent() {
            files.sync_dir(dir)?;
        }
        if self.offset == 0 {
            files.remove(&self.path)?;
        } else {
            let segment = files.open(&self.path, OpenMode::Write)?;
            segment.set_len(self.offset)?;
            segment.sync()?;
        }
        Ok(aside)
    }
}

/// Copies what a file has from `offset` on to the start of another.
fn copy_range(source: &impl ReadAt, offset: u64, copy: &impl OpenFile) -> io::Result<()> {
    let (len, mut at) = (source.len()?, offset);
    let mut piece = vec![0; COPY_BYTES];
    while at < len {
        let here = usize::try_from(len - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let Some(bytes) = piece.get_mut(..here) else { break };
        source.read_at(at, bytes)?;
        copy.write_at(at - offset, bytes)?;
        at += here as u64;
    }
    Ok(())
}

/// Bytes that are copied at once.
const COPY_BYTES: usize = 64 << 10;
