//! A journal's folder: the names of its files, opening it to be read, setting torn ends aside.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Damage;
use super::manifest::Manifest;
use super::merge::Merge;
use super::record::Head;
use super::segment::{Next, Segment};
use super::tail;

/// Bytes of a segment that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Why a journal cannot be read at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The system refuses.
    Io(PathBuf, io::Error),
    /// The file is not what it should be.
    Damaged(PathBuf, Damage),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Fault::Damaged(path, damage) => write!(f, "{}: {damage}", path.display()),
        }
    }
}

impl std::error::Error for Fault {}

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
pub struct Found {
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
pub fn segments(dir: &Path) -> io::Result<Vec<Found>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if let Some((generation, thread)) = path.file_name().and_then(parse_name) {
            found.push(Found { generation, thread, path });
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

/// Makes what was created, renamed or removed in `dir` last.
///
/// Errors: of the folder.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// A journal opened to be read.
pub struct Journal {
    /// What it continues.
    pub manifest: Manifest,
    /// The largest generation of which there is a segment, or the manifest's.
    pub generation_max: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Segments of no base: the journal was switched on while the server ran, and none was complete. They are not read.
    pub baseless: Vec<PathBuf>,
    merge: Merge<Source>,
    // each with its length
    paths: Vec<(PathBuf, u64)>,
    headless: Vec<(PathBuf, Damage)>,
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
    /// What is wrong where whole records end, if anything is.
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

/// Opens the journal in `dir`; `None` when there is none.
///
/// Errors: the manifest or a file cannot be read. A segment that is damaged is no error: the row of records ends there.
pub fn open(dir: &Path) -> Result<Option<Journal>, Fault> {
    let in_dir = |error| Fault::Io(dir.to_owned(), error);
    let manifest = match Manifest::load(dir).map_err(in_dir)? {
        None => return Ok(None),
        Some(manifest) => {
            manifest.map_err(|damage| Fault::Damaged(dir.join(super::manifest::NAME), damage))?
        }
    };
    let found = segments(dir).map_err(in_dir)?;
    let generation_max = found.iter().map(|found| found.generation).fold(manifest.generation, u64::max);
    let (mut opened, mut paths, mut headless, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let mut baseless = Vec::new();
    for Found { path, .. } in found.into_iter().filter(|found| found.generation >= manifest.generation) {
        match open_segment(&path).map_err(|error| Fault::Io(path.clone(), error))? {
            (_, Ok(segment)) if !segment.head.continues(manifest.generation) => baseless.push(path),
            (len, Ok(segment)) => {
                bytes += len;
                opened.push(segment);
                paths.push((path, len));
            }
            // One that was made and never written to, when the power went.
            (0, Err(_)) => {}
            (_, Err(damage)) => headless.push((path, damage)),
        }
    }
    let merge = Merge::new(opened, manifest.sequence).map_err(in_dir)?;
    Ok(Some(Journal { manifest, generation_max, bytes, baseless, merge, paths, headless }))
}

/// What a segment is read from: its file, and what of its tail continues that.
type Source = io::Chain<io::Take<BufReader<File>>, io::Cursor<Vec<u8>>>;

/// A segment of a folder.
pub type SegmentFile = Segment<Source>;

/// Opens one segment, with its tail where it has one; its length comes first.
///
/// Errors: of the files; a damaged head is an `Err` inside.
pub fn open_segment(path: &Path) -> io::Result<(u64, Result<SegmentFile, Damage>)> {
    open_with(path, tail::rest_of(path)?)
}

/// The same without its tail.
///
/// Errors: as [`open_segment`].
pub(super) fn open_alone(path: &Path) -> io::Result<(u64, Result<SegmentFile, Damage>)> {
    open_with(path, None)
}

fn open_with(path: &Path, rest: Option<tail::Rest>) -> io::Result<(u64, Result<SegmentFile, Damage>)> {
    let file = File::open(path)?;
    let (own, rest) = match rest {
        Some(tail::Rest { offset, bytes }) => (offset, bytes),
        None => (file.metadata()?.len(), Vec::new()),
    };
    let len = own + rest.len() as u64;
    let source = BufReader::with_capacity(READ_BYTES, file).take(own).chain(io::Cursor::new(rest));
    Ok((len, Segment::open(source, len)?))
}

impl Journal {
    /// The next record and its body; `None` at the end of the row.
    ///
    /// Errors: a file cannot be read.
    pub fn next_record(&mut self) -> io::Result<Option<(Head, &[u8])>> {
        self.merge.next_record()
    }

    /// The sequence that the next record would have.
    pub fn sequence(&self) -> u64 {
        self.merge.expected()
    }

    /// Bytes of segments that have been read so far.
    pub fn bytes_read(&self) -> u64 {
        self.merge.segments().iter().map(Segment::offset).sum()
    }

    /// What the row of records leaves out; nothing after a clean stop. Reads the rest of the segments.
    ///
    /// Errors: a file cannot be read.
    pub fn torn(self) -> io::Result<Vec<Torn>> {
        let mut torn = Vec::new();
        for (mut segment, (path, len)) in self.merge.into_segments().into_iter().zip(self.paths) {
            let offset = segment.offset();
            let (mut records, mut clock_max_ms) = (0, 0);
            while let Next::Record(head) = *segment.next() {
                records += 1;
                clock_max_ms = clock_max_ms.max(head.clock_ms);
                segment.advance()?;
            }
            let damage = match segment.next() {
                Next::Damaged(damage) => Some(damage.clone()),
                _ => None,
            };
            let bytes = len.saturating_sub(offset);
            // Zeros behind the last record are nothing.
            if records > 0 || damage.is_some() {
                torn.push(Torn { path, offset, bytes, records, clock_max_ms, damage });
            }
        }
        for (path, damage) in self.headless {
            let bytes = fs::metadata(&path)?.len();
            torn.push(Torn { path, offset: 0, bytes, records: 0, clock_max_ms: 0, damage: Some(damage) });
        }
        Ok(torn)
    }
}

impl Torn {
    /// Copies the part that is left out to a file beside the segment, then cuts it off; returns the copy's path.
    ///
    /// Errors: of the files; the segment is cut only after the copy is safe.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let mut source = File::open(&self.path)?;
        source.seek(SeekFrom::Start(self.offset))?;
        let (aside, mut copy) = (0..)
            .find_map(|n: u32| {
                let mut name = self.path.clone().into_os_string();
                name.push(if n == 0 { ".torn".to_owned() } else { format!(".torn{n}") });
                let made = OpenOptions::new().write(true).create_new(true).open(&name);
                match made {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < u32::MAX => None,
                    made => Some(made.map(|file| (PathBuf::from(name), file))),
                }
            })
            .ok_or(io::ErrorKind::AlreadyExists)??;
        io::copy(&mut source.take(self.bytes), &mut copy)?;
        copy.flush()?;
        copy.sync_all()?;
        if let Some(dir) = self.path.parent() {
            sync_dir(dir)?;
        }
        if self.offset == 0 {
            fs::remove_file(&self.path)?;
        } else {
            let segment = OpenOptions::new().write(true).open(&self.path)?;
            segment.set_len(self.offset)?;
            segment.sync_all()?;
        }
        Ok(aside)
    }
}
