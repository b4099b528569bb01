//! A journal's folder: the names of its files, opening it to be read, and what is missing or damaged in it.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Damage;
use super::ending::{Ending, Unsettled};
use super::manifest::{self, Manifest};
use super::merge::{Gaps, Merge};
use super::record::RecordHead;
use super::segment::{FileHead, NextRecordAt, SegmentKind, SegmentReader};
use super::tail::{self, Mark, TailReading};
use crate::files::{FileReader, Files, OpenMode};
use crate::read_at::ReadAt;

/// Bytes of a segment that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Why a journal cannot be read at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum FolderFault {
    /// The system refuses.
    Io(PathBuf, io::Error),
    /// The file is not what it should be.
    Damaged(PathBuf, Damage),
}

impl fmt::Display for FolderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FolderFault::Io(path, error) => write!(f, "{}: {error}", path.display()),
            FolderFault::Damaged(path, damage) => write!(f, "{}: {damage}", path.display()),
        }
    }
}

impl std::error::Error for FolderFault {}

/// The file name of a thread's segment.
pub fn segment_name(generation: u64, thread: u16) -> String {
    format!("journal.{generation}.{thread}.seg")
}

/// The file name of the base with which `generation` begins; `suffix` tells its format.
pub fn base_name(generation: u64, suffix: &str) -> String {
    format!("base.{generation}.{suffix}")
}

/// The generation that begins with the base of this file name; `None` when it is no base's.
pub fn generation_of_base(name: &str) -> Option<u64> {
    name.strip_prefix("base.")?.split('.').next()?.parse().ok()
}

/// A segment in a folder.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FoundFiles {
    /// Its generation, by its name.
    pub generation: u64,
    /// Its thread, by its name.
    pub thread: u16,
    /// Where it is.
    pub path: PathBuf,
}

/// The segments in `dir`, oldest first; an empty list when there is no such folder.
///
/// Errors: of the folder.
pub fn segments(files: &impl Files, dir: &Path) -> io::Result<Vec<FoundFiles>> {
    let names = match files.names(dir) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for name in names {
        if let Some((generation, thread)) = parse_name(&name) {
            found.push(FoundFiles { generation, thread, path: dir.join(name) });
        }
    }
    found.sort();
    Ok(found)
}

/// Generation and thread in the file name of a segment.
pub(super) fn parse_name(name: &OsStr) -> Option<(u64, u16)> {
    let (generation, thread) =
        name.to_str()?.strip_prefix("journal.")?.strip_suffix(".seg")?.split_once('.')?;
    let (generation, thread) = (generation.parse().ok()?, thread.parse().ok()?);
    (name == OsStr::new(&segment_name(generation, thread))).then_some((generation, thread))
}

/// A journal opened to be read.
pub struct JournalFolder<F: Files> {
    /// What it continues.
    pub manifest: Manifest,
    /// The largest generation of which there is a segment, or the manifest's.
    pub generation_max: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Segments of no base: the journal was switched on while the server ran, and none was complete. They are not read.
    pub baseless: Vec<PathBuf>,
    /// Files that are missing, or damaged tails.
    pub broken: Vec<BrokenFile>,
    files: F,
    merge: Merge<Source<F>>,
    // as the segments of `merge`
    unsettled: Vec<Unsettled>,
    headless: Vec<(PathBuf, Damage)>,
}

/// A file of a journal that is missing, or that has not what it should.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokenFile {
    /// The file.
    pub path: PathBuf,
    /// Its damage; `None` if the file is missing.
    pub damage: Option<Damage>,
}

impl fmt::Display for BrokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.damage {
            Some(damage) => write!(f, "{}: {damage}", self.path.display()),
            None => write!(f, "{} is missing", self.path.display()),
        }
    }
}

/// Opens the journal in `dir`; `None` when there is none.
///
/// Errors: the manifest or a file cannot be read; segments hold records and the manifest is missing. A segment that is
/// damaged is no error: the row of records ends there.
pub fn open<F: Files>(files: &F, dir: &Path) -> Result<Option<JournalFolder<F>>, FolderFault> {
    let in_dir = |error| FolderFault::Io(dir.to_owned(), error);
    let manifest_path = dir.join(manifest::NAME);
    let found = segments(files, dir).map_err(in_dir)?;
    let manifest = match Manifest::load(files, dir).map_err(in_dir)? {
        None if has_records(files, &found)? => {
            let what = "the manifest is missing, and there are segments with records";
            return Err(FolderFault::Damaged(manifest_path, Damage { offset: 0, what }));
        }
        None => return Ok(None),
        Some(manifest) => manifest.map_err(|damage| FolderFault::Damaged(manifest_path, damage))?,
    };
    let generation_max = found.iter().map(|found| found.generation).fold(manifest.generation, u64::max);
    let mut opening = Opening::new(files.clone());
    for (generation, thread) in manifest.listed() {
        let path = dir.join(segment_name(generation, thread));
        if !found.iter().any(|found| found.path == path) {
            let tail = tail::path_of(&path);
            opening.broken.push(BrokenFile { path, damage: None });
            if files.has(&tail) {
                let damage = Damage { offset: 0, what: "the segment of this tail is missing" };
                opening.broken.push(BrokenFile { path: tail, damage: Some(damage) });
            }
        }
    }
    for found in found.into_iter().filter(|found| found.generation >= manifest.generation) {
        let path = found.path.clone();
        opening.add(&manifest, found).map_err(|error| FolderFault::Io(path, error))?;
    }
    let gaps =
        Gaps { known: manifest.gaps.clone(), begun: opening.begun(), waits_from: opening.waits_from() };
    let Opening { segments, unsettled, headless, baseless, broken, .. } = opening;
    let bytes = unsettled.iter().map(|file| file.len).sum();
    let merge = Merge::new(segments, manifest.sequence).map_err(in_dir)?.with_gaps(gaps);
    Ok(Some(JournalFolder {
        manifest,
        generation_max,
        bytes,
        baseless,
        broken,
        files: files.clone(),
        merge,
        unsettled,
        headless,
    }))
}

/// Records of a journal that may be written meanwhile.
pub struct RecordsFrom<F: Files> {
    merge: Merge<Source<F>>,
}

impl<F: Files> RecordsFrom<F> {
    /// The next record and its body; `None`: the files have no more that follows, or had not when they were opened.
    ///
    /// Errors: a file cannot be read.
    pub fn next_record(&mut self) -> io::Result<Option<(RecordHead, &[u8])>> {
        self.merge.next_record()
    }
}

/// Opens the files in `dir` at the record with sequence `first`, those that a base has made superfluous too. Cost: reads
/// the segments with that record from their beginning, and the tails.
///
/// Errors: a file cannot be read. One that was removed meanwhile is no error.
pub fn records_from<F: Files>(files: &F, dir: &Path, first: u64) -> io::Result<RecordsFrom<F>> {
    let known = Manifest::load(files, dir)?.and_then(Result::ok).map_or_else(Vec::new, |one| one.gaps);
    let mut chosen: Vec<(u16, SegmentFile<F>)> = Vec::new();
    for FoundFiles { generation, thread, path } in segments(files, dir)? {
        let segment = match open_segment(files, &path) {
            Ok((_, Ok(segment))) if segment.head.generation == generation => segment,
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if matches!(segment.next(), NextRecordAt::Record(head) if head.sequence <= first) {
            // Nothing in its older ones is wanted.
            chosen.retain(|(of, _)| *of != thread);
        }
        chosen.push((thread, segment));
    }
    let segments = chosen.into_iter().map(|(_, segment)| segment).collect();
    let merge = Merge::new(segments, first)?.with_gaps(Gaps { known, begun: Vec::new(), waits_from: None });
    Ok(RecordsFrom { merge })
}

/// Whether a segment that continues any base has a record, or is damaged.
fn has_records(files: &impl Files, found: &[FoundFiles]) -> Result<bool, FolderFault> {
    for FoundFiles { path, .. } in found {
        let (len, opened) =
            open_segment(files, path).map_err(|error| FolderFault::Io(path.clone(), error))?;
        match opened {
            Ok(segment) if segment.head.since.is_none() && *segment.next() != NextRecordAt::End => {
                return Ok(true);
            }
            // One that was being made when the power went may have its length and nothing else.
            Err(_)
                if len > 0
                    && !is_zero(files, path).map_err(|error| FolderFault::Io(path.clone(), error))? =>
            {
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Whether a file has nothing but zeros.
fn is_zero(files: &impl Files, path: &Path) -> io::Result<bool> {
    let mut reader = BufReader::new(FileReader::new(files.open(path, OpenMode::Read)?)?);
    loop {
        let piece = reader.fill_buf()?;
        if piece.is_empty() || piece.iter().any(|byte| *byte != 0) {
            return Ok(piece.is_empty());
        }
        let len = piece.len();
        reader.consume(len);
    }
}

/// Bases in `dir` when no manifest names one. Either the manifest was lost, or the process ended in the moment in which a
/// first base was complete and had no manifest yet.
///
/// Errors: of the folder.
pub fn orphaned_bases(files: &impl Files, dir: &Path) -> io::Result<Vec<PathBuf>> {
    if Manifest::load(files, dir)?.is_some() || !files.has(dir) {
        return Ok(Vec::new());
    }
    let paths = files.names(dir)?.into_iter().map(|name| dir.join(name));
    let paths = paths.filter(|path| files.facts(path).is_ok_and(|facts| facts.is_file));
    let is_base = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| generation_of_base(name).is_some() && name.ends_with(".darter"))
    };
    Ok(paths.filter(is_base).collect())
}

/// The segments of a journal that is being opened.
struct Opening<F: Files> {
    files: F,
    boot: Option<[u8; 16]>,
    segments: Vec<SegmentFile<F>>,
    // as the segments
    unsettled: Vec<Unsettled>,
    headless: Vec<(PathBuf, Damage)>,
    baseless: Vec<PathBuf>,
    broken: Vec<BrokenFile>,
    // how far threads were that were killed
    marks: Vec<(u16, Mark)>,
}

impl<F: Files> Opening<F> {
    fn new(files: F) -> Opening<F> {
        Opening {
            boot: files.boot_id(),
            files,
            segments: Vec::new(),
            unsettled: Vec::new(),
            headless: Vec::new(),
            baseless: Vec::new(),
            broken: Vec::new(),
            marks: Vec::new(),
        }
    }

    fn add(&mut self, manifest: &Manifest, found: FoundFiles) -> io::Result<()> {
        let FoundFiles { generation, thread, path } = found;
        let head = head_of(&self.files, &path)?;
        let reading = tail::read(&self.files, &path, head.as_ref().ok(), self.boot)?;
        let (len, opened) = open_with(&self.files, &path, &reading)?;
        let is_listed = manifest.segments.is_none() || manifest.lists(generation, thread);
        let segment = match opened {
            Ok(segment) if !segment.head.continues(manifest.generation) => {
                self.baseless.push(path);
                return Ok(());
            }
            Ok(segment) if (segment.head.generation, segment.head.thread) != (generation, thread) => {
                let what = "the segment was made for another name";
                self.headless.push((path, Damage { offset: 0, what }));
                return Ok(());
            }
            // It was made ahead, and the process ended before the manifest named it.
            Ok(segment) if !is_listed && *segment.next() == NextRecordAt::End => return Ok(()),
            Err(_) if !is_listed => return Ok(()),
            Ok(segment) => segment,
            // One that was made and never written to, when the power went.
            Err(_) if len == 0 && manifest.segments.is_none() => return Ok(()),
            Err(damage) => {
                self.headless.push((path, damage));
                return Ok(());
            }
        };
        if !is_listed {
            let what = "the manifest does not name this segment, which has records";
            self.broken.push(BrokenFile { path: path.clone(), damage: Some(Damage { offset: 0, what }) });
        }
        self.broken.extend(what_is_broken(&path, &segment.head, &reading));
        self.marks.extend(reading.mark.map(|mark| (thread, mark)));
        self.unsettled.push(Unsettled { path, len, head: segment.head, rest: reading.rest });
        self.segments.push(segment);
        Ok(())
    }

    /// The smallest sequence that each thread may have taken for a record which it had not finished; no thread if
    /// anything is broken, for then it may have been finished.
    fn begun(&self) -> Vec<u64> {
        if !self.broken.is_empty() || !self.headless.is_empty() {
            return Vec::new();
        }
        let mut threads: Vec<(u16, Mark)> = Vec::new();
        for (thread, mark) in &self.marks {
            match threads.iter_mut().find(|(of, _)| of == thread) {
                Some((_, all)) => {
                    *all = Mark { begun: all.begun.max(mark.begun), last: all.last.max(mark.last) };
                }
                None => threads.push((*thread, *mark)),
            }
        }
        threads
            .into_iter()
            .filter(|(_, mark)| mark.begun > 0)
            .map(|(_, mark)| mark.begun.max(mark.last + 1))
            .collect()
    }

    /// The smallest sequence of a record that was perhaps in memory of the killed process alone.
    fn waits_from(&self) -> Option<u64> {
        let heads = self.segments.iter().map(|segment| segment.head).filter(|head| head.closed.is_none());
        let stuck = self.marks.iter().filter(|(_, mark)| mark.begun == tail::STUCK);
        heads.filter_map(|head| head.waits_from).chain(stuck.map(|(_, mark)| mark.last + 1)).min()
    }
}

/// The tail of a segment if it is missing or damaged.
///
/// Errors: a file cannot be read.
pub fn broken_tail(files: &impl Files, path: &Path, head: &FileHead) -> io::Result<Option<BrokenFile>> {
    Ok(what_is_broken(path, head, &tail::read(files, path, Some(head), files.boot_id())?))
}

fn what_is_broken(path: &Path, head: &FileHead, reading: &TailReading) -> Option<BrokenFile> {
    let is_missing = head.kind == SegmentKind::Ringed && head.closed.is_none() && !reading.is_there;
    let broken = |damage| BrokenFile { path: tail::path_of(path), damage };
    reading.damage.clone().map(|damage| broken(Some(damage))).or(is_missing.then(|| broken(None)))
}

/// What a segment is read from: its file, and what of its tail continues that.
type Source<F> = io::Chain<io::Take<BufReader<FileReader<<F as Files>::File>>>, io::Cursor<Arc<[u8]>>>;

/// A segment of a folder.
pub type SegmentFile<F> = SegmentReader<Source<F>>;

/// The length of a segment, and the segment; a damaged head is an `Err`.
type Opened<F> = (u64, Result<SegmentFile<F>, Damage>);

/// Opens one segment, with its tail where it has one; its length comes first.
///
/// Errors: of the files; a damaged head is an `Err` inside.
pub fn open_segment<F: Files>(files: &F, path: &Path) -> io::Result<Opened<F>> {
    let head = head_of(files, path)?;
    open_with(files, path, &tail::read(files, path, head.as_ref().ok(), files.boot_id())?)
}

/// The same without its tail.
///
/// Errors: as [`open_segment`].
pub(super) fn open_alone<F: Files>(files: &F, path: &Path) -> io::Result<Opened<F>> {
    open_with(files, path, &TailReading::default())
}

/// The head of a segment by itself.
pub(super) fn head_of(files: &impl Files, path: &Path) -> io::Result<Result<FileHead, Damage>> {
    let mut bytes = Vec::new();
    FileReader::new(files.open(path, OpenMode::Read)?)?
        .take(super::segment::FILE_HEAD_BYTES as u64)
        .read_to_end(&mut bytes)?;
    Ok(FileHead::read(&bytes).map(|(head, _)| head))
}

fn open_with<F: Files>(files: &F, path: &Path, reading: &TailReading) -> io::Result<Opened<F>> {
    let file = files.open(path, OpenMode::Read)?;
    let (own, rest) = match &reading.rest {
        Some(tail::TailRest { offset, bytes }) => (*offset, bytes.clone()),
        None => (file.len()?, Arc::default()),
    };
    let len = own + rest.len() as u64;
    let source =
        BufReader::with_capacity(READ_BYTES, FileReader::new(file)?).take(own).chain(io::Cursor::new(rest));
    Ok((len, SegmentReader::open(source, len)?))
}

impl<F: Files> JournalFolder<F> {
    /// The next record and its body; `None` at the end of the row.
    ///
    /// Errors: a file cannot be read.
    pub fn next_record(&mut self) -> io::Result<Option<(RecordHead, &[u8])>> {
        self.merge.next_record()
    }

    /// The sequence that the next record would have.
    pub fn sequence(&self) -> u64 {
        self.merge.expected()
    }

    /// Bytes of segments that have been read so far.
    pub fn bytes_read(&self) -> u64 {
        self.merge.segments().iter().map(SegmentReader::offset).sum()
    }

    /// What the row of records leaves out, and what is to be done before a server may go on from here. Reads the rest of
    /// the segments.
    ///
    /// Errors: a file cannot be read.
    pub fn end(self) -> io::Result<Ending<F>> {
        let JournalFolder { manifest, mut broken, files, merge, unsettled, headless, .. } = self;
        let sequence = merge.expected();
        // An earlier start may have read further, and the power was lost before that was on disk. The sequences from here on
        // are taken again, by records that must not be missing.
        let gaps = merge.gaps().iter().copied().filter(|(first, _)| *first < sequence).collect();
        let mut ending = Ending::new(files, manifest, sequence);
        ending.manifest.gaps = gaps;
        ending.broken.append(&mut broken);
        for (segment, file) in merge.into_segments().into_iter().zip(unsettled) {
            ending.add(segment, file)?;
        }
        for (path, damage) in headless {
            ending.add_headless(path, damage)?;
        }
        Ok(ending)
    }
}
