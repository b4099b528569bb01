//! Verifying a journal without loading it, for `darter --check`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::Damage;
use super::ending::{Ending, Torn};
use super::folder::{self, BrokenFile, FolderFault};
use super::manifest::Manifest;
use super::part::{Parts, RecordPart};
use super::segment::{FileHead, NextRecordAt};
use crate::files::Files;

/// What a journal or a segment holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckCounts {
    /// Records.
    pub records: u64,
    /// Commands in them.
    pub commands: u64,
    /// Keys that expired or were evicted.
    pub gone: u64,
    /// Bytes of records read.
    pub bytes: u64,
    /// Sequence of the first record; 0 without any.
    pub first: u64,
    /// Sequence of the last record.
    pub last: u64,
}

/// The result of checking a folder.
#[derive(Debug)]
pub struct Checked {
    /// What the manifest says.
    pub manifest: Manifest,
    /// What can be replayed.
    pub counts: CheckCounts,
    /// What cannot.
    pub torn: Vec<Torn>,
    /// Files that are missing or damaged beside these.
    pub broken: Vec<BrokenFile>,
    /// Records whose body makes no sense, by sequence.
    pub senseless: Vec<(u64, Damage)>,
    /// Old segments that nothing refers to.
    pub left_over: Vec<PathBuf>,
    /// Segments of a base that is not there: written since the journal was switched on.
    pub baseless: Vec<PathBuf>,
}

impl Checked {
    /// Whether everything can be replayed.
    pub fn is_sound(&self) -> bool {
        self.torn.is_empty() && self.broken.is_empty() && self.senseless.is_empty()
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifest { base, generation, sequence, .. } = &self.manifest;
        let base = base.as_deref().unwrap_or("none");
        writeln!(f, "journal: base {base}, generation {generation}, first sequence {sequence}")?;
        writeln!(f, "{}", self.counts)?;
        for torn in &self.torn {
            writeln!(f, "left out: {torn}")?;
        }
        for broken in &self.broken {
            writeln!(f, "damaged: {broken}")?;
        }
        for (first, len) in &self.manifest.gaps {
            writeln!(f, "never finished by a killed process: {len} records from {first} on")?;
        }
        for (sequence, damage) in &self.senseless {
            writeln!(f, "record {sequence}: {damage}")?;
        }
        for path in &self.left_over {
            writeln!(f, "no longer needed: {}", path.display())?;
        }
        for path in &self.baseless {
            writeln!(f, "its base was never complete: {}", path.display())?;
        }
        Ok(())
    }
}

impl fmt::Display for CheckCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CheckCounts { records, commands, gone, bytes, first, last } = self;
        write!(
            f,
            "{records} records ({first}..{last}), {commands} commands, {gone} keys expired or evicted, {bytes} bytes"
        )
    }
}

/// At most this many senseless records are listed.
const LISTED_MAX: usize = 100;

impl CheckCounts {
    fn add(&mut self, sequence: u64, body: &[u8]) -> Result<(), Damage> {
        if self.records == 0 {
            self.first = sequence;
        }
        self.records += 1;
        self.last = sequence;
        self.bytes += body.len() as u64;
        let mut parts = Parts::new(body);
        while let Some(part) = parts.try_next()? {
            match part {
                RecordPart::Command { .. } | RecordPart::Value { .. } => self.commands += 1,
                RecordPart::Gone { .. } | RecordPart::Members { .. } => self.gone += 1,
                RecordPart::Message { .. }
                | RecordPart::Position { .. }
                | RecordPart::Stream(_)
                | RecordPart::Uncommitted(_) => {}
            }
        }
        Ok(())
    }
}

/// Reads the whole journal in `dir`; `None` when there is none.
///
/// Errors: the manifest or a file cannot be read.
pub fn check_dir(files: &impl Files, dir: &Path) -> Result<Option<Checked>, FolderFault> {
    let at_dir = |error: io::Error| FolderFault::Io(dir.to_owned(), error);
    let Some(mut journal) = folder::open(files, dir)? else {
        if let Some(base) = folder::orphaned_bases(files, dir).map_err(at_dir)?.pop() {
            return Err(FolderFault::Damaged(
                base,
                Damage { offset: 0, what: "no manifest names this base" },
            ));
        }
        return Ok(None);
    };
    let (mut counts, mut senseless) = (CheckCounts::default(), Vec::new());
    while let Some((head, body)) = journal.next_record().map_err(at_dir)? {
        if let Err(damage) = counts.add(head.sequence, body)
            && senseless.len() < LISTED_MAX
        {
            senseless.push((head.sequence, damage));
        }
    }
    let baseless = std::mem::take(&mut journal.baseless);
    let Ending { manifest, torn, broken, .. } = journal.end().map_err(at_dir)?;
    let old = folder::segments(files, dir).map_err(at_dir)?;
    let left_over = old
        .into_iter()
        .filter(|found| found.generation < manifest.generation)
        .map(|found| found.path)
        .collect();
    Ok(Some(Checked { manifest, counts, torn, broken, senseless, left_over, baseless }))
}

/// Reads one segment to its end.
///
/// Errors: the file cannot be read or a record is damaged; the place is named.
pub fn check_segment(files: &impl Files, path: &Path) -> Result<(FileHead, CheckCounts), FolderFault> {
    let at_path = |error: io::Error| FolderFault::Io(path.to_owned(), error);
    let damaged = |damage: Damage| FolderFault::Damaged(path.to_owned(), damage);
    let (_, opened) = folder::open_segment(files, path).map_err(at_path)?;
    let mut segment = opened.map_err(damaged)?;
    if let Some(broken) = folder::broken_tail(files, path, &segment.head).map_err(at_path)? {
        let missing = Damage { offset: 0, what: "the tail is missing" };
        return Err(FolderFault::Damaged(broken.path, broken.damage.unwrap_or(missing)));
    }
    let mut counts = CheckCounts::default();
    loop {
        match segment.next() {
            NextRecordAt::Record(head) => counts.add(head.sequence, segment.body()).map_err(damaged)?,
            NextRecordAt::End => return Ok((segment.head, counts)),
            NextRecordAt::Damaged(damage) => return Err(damaged(damage.clone())),
        }
        segment.advance().map_err(at_path)?;
    }
}
