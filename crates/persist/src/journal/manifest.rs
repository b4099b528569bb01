//! The manifest: which base snapshot a journal continues, from where, and which segments belong to it.
//!
//! A small text file, replaced as a whole:
//!
//! ```text
//! darter-journal 2
//! base base.3.darter
//! generation 3
//! sequence 1234
//! clock 1700000000000
//! segments 3 0,1,4
//! gap 1300 1
//! check 5b6f0c1e
//! ```
//!
//! Segments of this generation and later ones belong to the journal; the first record has this sequence. `base -`
//! means that it began with no data, `base redis` that it goes on from what Redis left, as of the clock. Other base names
//! are plain file names in the folder of the manifest. A `segments` line names the threads that have a segment of a
//! generation; the files were on disk before the line was. A `gap` line names sequences that belong to no record: a
//! process was killed before it had finished them, and nothing after them depends on them. Version 1 has neither line.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use darter_base::crc::crc32c;

use super::Damage;
use crate::files::{Files, OpenFile, OpenMode};

/// The manifest's name in the journal's folder.
pub const NAME: &str = "darter.manifest";
/// As a base: the append-only files of a Redis that ran there before, which stay as they are.
pub const TAKEN_OVER: &str = "redis";
const FIRST_LINE: &str = "darter-journal 2";
const FIRST_LINE_1: &str = "darter-journal 1";
/// No manifest is longer.
const BYTES_MAX: u64 = 4 << 20;

/// What a journal continues.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Manifest {
    /// File name of the base snapshot; none when the journal began with no data.
    pub base: Option<String>,
    /// Generation of the first segments after the base.
    pub generation: u64,
    /// Sequence of the first record after the base.
    pub sequence: u64,
    /// When the base was what it shows, Unix milliseconds: what was alive then is alive in it.
    pub clock_ms: u64,
    /// The threads that have a segment, by generation, oldest first; `None` in a manifest that does not say.
    pub segments: Option<Vec<(u64, Vec<u16>)>>,
    /// Sequences that no record has, as first and number, in order.
    pub gaps: Vec<(u64, u64)>,
}

impl Manifest {
    /// The manifest as text.
    pub fn to_text(&self) -> String {
        let base = self.base.as_deref().unwrap_or("-");
        let first = if self.segments.is_some() { FIRST_LINE } else { FIRST_LINE_1 };
        let mut body = format!(
            "{first}\nbase {base}\ngeneration {}\nsequence {}\nclock {}\n",
            self.generation, self.sequence, self.clock_ms
        );
        for (generation, threads) in self.segments.iter().flatten() {
            let threads: Vec<String> = threads.iter().map(u16::to_string).collect();
            let _ = writeln!(body, "segments {generation} {}", threads.join(","));
        }
        for (first, len) in self.gaps.iter().filter(|_| self.segments.is_some()) {
            let _ = writeln!(body, "gap {first} {len}");
        }
        let check = crc32c(body.as_bytes());
        format!("{body}check {check:08x}\n")
    }

    /// Reads a manifest.
    ///
    /// Errors: a line is missing, unknown or wrong; the error has its offset.
    pub fn parse(text: &[u8]) -> Result<Manifest, Damage> {
        let damage = |offset: usize, what| Damage { offset: offset as u64, what };
        let text = std::str::from_utf8(text).map_err(|_| damage(0, "the manifest is no text"))?;
        let mut lines = Lines { text, offset: 0 };
        let first = lines.value("")?;
        if first != FIRST_LINE && first != FIRST_LINE_1 {
            return Err(damage(0, "this is no manifest of a journal, or one of a later version"));
        }
        let base_at = lines.offset;
        let base = match lines.value("base ")? {
            "-" => None,
            name if is_plain(name) => Some(name.to_owned()),
            _ => return Err(damage(base_at, "the base is no plain file name")),
        };
        let (generation, sequence) = (lines.number("generation ")?, lines.number("sequence ")?);
        let mut manifest =
            Manifest { base, generation, sequence, clock_ms: lines.number("clock ")?, ..Manifest::default() };
        if first == FIRST_LINE {
            manifest.segments = Some(lines.lists("segments ", parse_threads)?);
            manifest.gaps = lines.lists("gap ", |len| len.parse().ok())?;
        }
        let check_at = lines.offset;
        let check = lines.value("check ")?;
        let crc = crc32c(text.get(..check_at).unwrap_or_default().as_bytes());
        if format!("{crc:08x}") != check || lines.offset != text.len() {
            return Err(damage(check_at, "the manifest is damaged"));
        }
        Ok(manifest)
    }

    /// Notes that a thread has a segment of `generation`.
    pub fn list(&mut self, generation: u64, thread: u16) {
        let listed = self.segments.get_or_insert_default();
        match listed.iter_mut().find(|(of, _)| *of == generation) {
            Some((_, threads)) if threads.contains(&thread) => {}
            Some((_, threads)) => threads.push(thread),
            None => listed.push((generation, vec![thread])),
        }
    }

    /// Generation and thread of all segments that belong to the journal, as far as the manifest says.
    pub fn listed(&self) -> impl Iterator<Item = (u64, u16)> + '_ {
        let listed = self.segments.iter().flatten().filter(|(generation, _)| *generation >= self.generation);
        listed.flat_map(|(generation, threads)| threads.iter().map(|thread| (*generation, *thread)))
    }

    /// Whether a thread has a segment of `generation`, as far as the manifest says.
    pub fn lists(&self, generation: u64, thread: u16) -> bool {
        self.segments.iter().flatten().any(|(of, threads)| *of == generation && threads.contains(&thread))
    }

    /// The manifest of the journal in `dir`; `None` when there is no journal.
    ///
    /// Errors: of the file; a damaged manifest is an `Err` inside.
    pub fn load(files: &impl Files, dir: &Path) -> io::Result<Option<Result<Manifest, Damage>>> {
        let path = dir.join(NAME);
        let len = match files.facts(&path) {
            Ok(facts) => facts.len,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if len > BYTES_MAX {
            return Ok(Some(Err(Damage { offset: BYTES_MAX, what: "the manifest is too long" })));
        }
        Ok(Some(Manifest::parse(&files.read(&path)?)))
    }

    /// Makes this the manifest of `dir`: either the old one or this one is there after a crash.
    ///
    /// Errors: of the files; the old manifest stays.  Cost: two syncs.
    pub fn store(&self, files: &impl Files, dir: &Path) -> io::Result<()> {
        let part = dir.join("darter.manifest.tmp");
        let file = files.open(&part, OpenMode::Emptied)?;
        file.write_at(0, self.to_text().as_bytes())?;
        file.sync()?;
        files.rename(&part, &dir.join(NAME))?;
        files.sync_dir(dir)
    }
}

/// The lines of a manifest, from an offset on.
struct Lines<'t> {
    text: &'t str,
    offset: usize,
}

impl<'t> Lines<'t> {
    /// What stands behind `name` in the next line.
    fn value(&mut self, name: &str) -> Result<&'t str, Damage> {
        let damage = |what| Damage { offset: self.offset as u64, what };
        let rest = self.text.get(self.offset..).unwrap_or_default();
        let line = rest.split_inclusive('\n').next().ok_or(damage("the manifest is cut off"))?;
        let value = line.strip_suffix('\n').and_then(|line| line.strip_prefix(name));
        let value = value.ok_or(damage("a line of the manifest is not what it should be"))?;
        self.offset += line.len();
        Ok(value)
    }

    fn number(&mut self, name: &str) -> Result<u64, Damage> {
        let offset = self.offset as u64;
        let wrong = Damage { offset, what: "a number of the manifest is wrong" };
        self.value(name)?.parse().map_err(|_| wrong)
    }

    /// All lines with this name that come next: a number, and what `parse` makes of the rest.
    fn lists<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<(u64, T)>, Damage> {
        let mut list = Vec::new();
        while self.text.get(self.offset..).is_some_and(|rest| rest.starts_with(name)) {
            let offset = self.offset as u64;
            let (number, rest) = self.value(name)?.split_once(' ').unwrap_or_default();
            let wrong = Damage { offset, what: "a line of the manifest is not what it should be" };
            match (number.parse(), parse(rest)) {
                (Ok(number), Some(rest)) => list.push((number, rest)),
                _ => return Err(wrong),
            }
        }
        Ok(list)
    }
}

/// Thread numbers with commas between them.
fn parse_threads(text: &str) -> Option<Vec<u16>> {
    text.split(',').map(|thread| thread.parse().ok()).collect()
}

/// Whether a name cannot lead out of the folder.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0', '\n', ' ']) && !name.starts_with('.') && name != "-"
}
