//! The manifest: which base snapshot a journal continues, and from where.
//!
//! A small text file, replaced as a whole:
//!
//! ```text
//! darter-journal 1
//! base base.3.darter
//! generation 3
//! sequence 1234
//! clock 1700000000000
//! check 5b6f0c1e
//! ```
//!
//! Segments of this generation and later ones belong to the journal; the first record has this sequence. `base -`
//! means that it began with no data, `base redis` that it goes on from what Redis left, as of the clock. Other base names are
//! plain file names in the folder of the manifest.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use darter_base::crc::crc32c;

use super::Damage;

/// The manifest's name in the journal's folder.
pub const NAME: &str = "darter.manifest";
/// As a base: the append-only files of a Redis that ran there before, which stay as they are.
pub const TAKEN_OVER: &str = "redis";
const FIRST_LINE: &str = "darter-journal 1";
/// No manifest is longer.
const BYTES_MAX: u64 = 4096;

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
}

impl Manifest {
    /// The manifest as text.
    pub fn to_text(&self) -> String {
        let base = self.base.as_deref().unwrap_or("-");
        let body = format!(
            "{FIRST_LINE}\nbase {base}\ngeneration {}\nsequence {}\nclock {}\n",
            self.generation, self.sequence, self.clock_ms
        );
        let check = crc32c(body.as_bytes());
        format!("{body}check {check:08x}\n")
    }

    /// Reads a manifest.
    ///
    /// Errors: a line is missing, unknown or wrong; its offset is told.
    pub fn parse(text: &[u8]) -> Result<Manifest, Damage> {
        let damage = |offset: usize, what| Damage { offset: offset as u64, what };
        let text = std::str::from_utf8(text).map_err(|_| damage(0, "the manifest is no text"))?;
        let mut offset = 0;
        let mut fields = Vec::new();
        for (line, name) in
            text.split_inclusive('\n').zip(["", "base ", "generation ", "sequence ", "clock ", "check "])
        {
            let value = line.strip_suffix('\n').and_then(|line| line.strip_prefix(name));
            let value = value.ok_or(damage(offset, "a line of the manifest is not what it should be"))?;
            fields.push((offset, value));
            offset += line.len();
        }
        let [
            (_, first),
            (base_at, base),
            (generation_at, generation),
            (sequence_at, sequence),
            (clock_at, clock),
            (check_at, check),
        ] = fields[..]
        else {
            return Err(damage(offset, "the manifest is cut off"));
        };
        if first != FIRST_LINE {
            return Err(damage(0, "this is no manifest of a journal, or one of a later version"));
        }
        let crc = crc32c(text.get(..check_at).unwrap_or_default().as_bytes());
        if format!("{crc:08x}") != check || offset != text.len() {
            return Err(damage(check_at, "the manifest is damaged"));
        }
        let number =
            |text: &str, at| text.parse::<u64>().map_err(|_| damage(at, "a number of the manifest is wrong"));
        let base = match base {
            "-" => None,
            name if is_plain(name) => Some(name.to_owned()),
            _ => return Err(damage(base_at, "the base is no plain file name")),
        };
        let (generation, sequence) = (number(generation, generation_at)?, number(sequence, sequence_at)?);
        Ok(Manifest { base, generation, sequence, clock_ms: number(clock, clock_at)? })
    }

    /// The manifest of the journal in `dir`; `None` when there is no journal.
    ///
    /// Errors: of the file; a damaged manifest is an `Err` inside.
    pub fn load(dir: &Path) -> io::Result<Option<Result<Manifest, Damage>>> {
        let path = dir.join(NAME);
        let len = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if len > BYTES_MAX {
            return Ok(Some(Err(Damage { offset: BYTES_MAX, what: "the manifest is too long" })));
        }
        Ok(Some(Manifest::parse(&fs::read(path)?)))
    }

    /// Makes this the manifest of `dir`: either the old one or this one is there after a crash.
    ///
    /// Errors: of the files; the old manifest stays.  Cost: two syncs.
    pub fn store(&self, dir: &Path) -> io::Result<()> {
        let part = dir.join("darter.manifest.tmp");
        let mut file = File::create(&part)?;
        file.write_all(self.to_text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, dir.join(NAME))?;
        super::folder::sync_dir(dir)
    }
}

/// Whether a name cannot lead out of the folder.
pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\', '\0', '\n', ' ']) && !name.starts_with('.') && name != "-"
}
