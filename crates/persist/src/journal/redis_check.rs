//! Verifying append-only files of Redis and Valkey without loading them, for `darter --check`: a folder with a manifest, or
//! one file of versions before 7.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::redis::{Commands, ListedFile, Role, parse_manifest};
use crate::check::{CheckReport, check_at};

/// How files are, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CheckVerdict {
    /// All of it can be loaded.
    Good,
    /// The end of the last file is cut off, as a crash leaves it: it loads without that (`aof-load-truncated`).
    CutOff,
    /// It cannot be loaded.
    Damaged,
}

impl CheckVerdict {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            CheckVerdict::Good => "good",
            CheckVerdict::CutOff => "cut off",
            CheckVerdict::Damaged => "damaged",
        }
    }
}

/// Contents of one file.
#[derive(Debug)]
pub struct CheckedFile {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The RDB file that it is or begins with.
    pub snapshot: Option<CheckReport>,
    /// Commands in it.
    pub commands: u64,
    /// Transactions among them.
    pub transactions: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The damage and its place.
    pub damage: Option<String>,
    // Damage at its end, behind this byte.
    cut_at: Option<u64>,
}

/// What was found in a folder.
#[derive(Debug)]
pub struct CheckedFiles {
    /// Its files, in the order in which they are loaded.
    pub files: Vec<CheckedFile>,
}

impl CheckedFiles {
    /// How they are together.
    pub fn verdict(&self) -> CheckVerdict {
        let last = self.files.len().saturating_sub(1);
        let of = |(at, file): (usize, &CheckedFile)| match (&file.damage, file.cut_at) {
            (None, _) => CheckVerdict::Good,
            (Some(_), Some(_)) if at == last => CheckVerdict::CutOff,
            (Some(_), _) => CheckVerdict::Damaged,
        };
        self.files.iter().enumerate().map(of).max().unwrap_or(CheckVerdict::Damaged)
    }
}

/// The manifest in a folder, if Redis or Valkey has left one there.
pub fn manifest_in(dir: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "manifest"))
        .filter(|path| begins_with(path, b"file ").unwrap_or(false))
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Checks the files that a manifest names.
///
/// Errors: the manifest cannot be read, or is none; in words.
pub fn check_manifest(path: &Path) -> Result<CheckedFiles, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut text).map_err(|error| error.to_string())?;
    let listed = parse_manifest(&text).map_err(|damage| damage.to_string())?;
    if !listed.iter().any(|file| file.role == Role::Base) && listed.is_empty() {
        return Err("the manifest names no file".to_owned());
    }
    let dir = path.parent().unwrap_or(Path::new(""));
    let files =
        listed.into_iter().map(|ListedFile { name, role, .. }| check_one(dir.join(&name), name, role));
    Ok(CheckedFiles { files: files.collect() })
}

/// Checks the one file of a version before 7.
pub fn check_single(path: &Path) -> CheckedFiles {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    CheckedFiles { files: vec![check_one(path.to_owned(), name, Role::Base)] }
}

fn check_one(path: PathBuf, name: String, role: Role) -> CheckedFile {
    let (snapshot, commands, transactions, bytes) = Default::default();
    let mut checked =
        CheckedFile { name, role, snapshot, commands, transactions, bytes, damage: None, cut_at: None };
    if let Err(error) = read(&path, &mut checked) {
        checked.damage = Some(error.to_string());
    }
    checked
}

fn begins_with(path: &Path, magic: &[u8]) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(magic.len() as u64).read_to_end(&mut start)?;
    Ok(start == magic)
}

fn read(path: &Path, checked: &mut CheckedFile) -> io::Result<()> {
    let mut file = File::open(path)?;
    checked.bytes = file.metadata()?.len();
    let mut offset = 0;
    if begins_with(path, b"REDIS")? || begins_with(path, b"VALKEY")? {
        let (report, end) = check_at(&file);
        checked.damage = report.damage.first().cloned();
        let is_good = report.is_good();
        checked.snapshot = Some(report);
        if !is_good {
            return Ok(());
        }
        offset = end;
    }
    if offset >= checked.bytes {
        return Ok(());
    }
    file.seek(SeekFrom::Start(offset))?;
    let input = BufReader::with_capacity(256 << 10, file);
    commands(Commands::new(input, checked.bytes - offset, offset), offset, checked)
}

/// Reads commands to the end, or to what is none.
fn commands<R: io::BufRead>(
    mut commands: Commands<R>,
    offset: u64,
    checked: &mut CheckedFile,
) -> io::Result<()> {
    // A transaction counts when it is whole, and one that is cut off goes with all of its commands.
    let (mut whole, mut open) = (offset, None);
    let is = |args: &[Vec<u8>], word: &str| {
        args.first().is_some_and(|name| name.eq_ignore_ascii_case(word.as_bytes()))
    };
    let what = loop {
        match commands.next_command()? {
            None if open.is_none() => return Ok(()),
            None => break "a transaction is cut off".to_owned(),
            Some(Err(damage)) => break damage.to_string(),
            Some(Ok(args)) => {
                let nested = is(&args, "multi") && open.is_some();
                let stray = is(&args, "exec") && open.is_none();
                if nested || stray {
                    checked.damage =
                        Some(format!("near byte {}: MULTI and EXEC do not match", commands.offset()));
                    return Ok(());
                }
                if is(&args, "multi") {
                    open = Some(0);
                } else if is(&args, "exec") {
                    checked.commands += open.take().unwrap_or(0);
                    checked.transactions += 1;
                } else {
                    match &mut open {
                        Some(count) => *count += 1,
                        None => checked.commands += 1,
                    }
                }
                if open.is_none() {
                    whole = commands.offset();
                }
            }
        }
    };
    if commands.is_at_end() {
        checked.cut_at = Some(whole);
    }
    checked.damage = Some(what);
    Ok(())
}

impl fmt::Display for CheckedFiles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for file in &self.files {
            let role = match file.role {
                Role::Base => "base",
                Role::Increment => "increment",
                Role::History => "history",
            };
            writeln!(out, "{role:<10} {}: {} bytes", file.name, file.bytes)?;
            if let Some(report) = &file.snapshot {
                let keys: u64 = report.keys.values().sum();
                writeln!(
                    out,
                    "  snapshot {}: {keys} keys, {} with a deadline",
                    report.format, report.expiring
                )?;
                for skipped in &report.skipped {
                    writeln!(out, "  passed over {skipped}")?;
                }
            }
            if file.commands > 0 || file.snapshot.is_none() {
                writeln!(out, "  commands {}, {} transactions", file.commands, file.transactions)?;
            }
            match (&file.damage, file.cut_at) {
                (Some(damage), Some(at)) => {
                    writeln!(
                        out,
                        "  CUT OFF  {damage}; whole up to byte {at}, {} bytes are left over",
                        file.bytes - at
                    )?;
                }
                (Some(damage), None) => writeln!(out, "  DAMAGE   {damage}")?,
                (None, _) => {}
            }
        }
        let verdict = self.verdict();
        write!(out, "result     {}", verdict.name())?;
        match verdict {
            CheckVerdict::CutOff => {
                writeln!(out, ": loads without its end, with aof-load-truncated yes (the default)")
            }
            _ => writeln!(out),
        }
    }
}

/// No manifest of Redis is longer.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::name::NameFormat;
    use crate::testing;

    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";
    const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
    const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

    fn folder(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("darter-redis-check-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a folder");
        dir
    }

    fn checked(name: &str, parts: &[&[u8]]) -> CheckedFiles {
        let dir = folder(name);
        let file = dir.join("appendonly.aof");
        std::fs::write(&file, parts.concat()).expect("a file");
        let found = check_single(&file);
        std::fs::remove_dir_all(&dir).expect("removed");
        found
    }

    #[test]
    fn a_file_of_commands_is_good_cut_off_or_damaged() {
        let good = checked("good", &[SET, MULTI, SET, SET, EXEC, b"#TS:1\r\n", SET]);
        assert_eq!(
            (good.verdict(), good.files[0].commands, good.files[0].transactions),
            (CheckVerdict::Good, 4, 1)
        );
        for (parts, verdict, whole) in [
            (&[SET, &SET[..20]][..], CheckVerdict::CutOff, Some(SET.len() as u64)),
            (&[SET, MULTI, SET], CheckVerdict::CutOff, Some(SET.len() as u64)),
            (&[SET, b"garbage\r\n", SET], CheckVerdict::Damaged, None),
            (&[SET, EXEC], CheckVerdict::Damaged, None),
            (&[MULTI, MULTI, EXEC], CheckVerdict::Damaged, None),
        ] {
            let found = checked("bad", parts);
            assert_eq!((found.verdict(), found.files[0].cut_at), (verdict, whole), "{found}");
        }
    }

    #[test]
    fn a_snapshot_may_stand_before_commands() {
        let rdb = testing::file_of(&testing::sample(3, &[1, 5]), NameFormat::Rdb);
        let found = checked("preamble", &[&rdb, SET, SET]);
        assert_eq!((found.verdict(), found.files[0].commands), (CheckVerdict::Good, 2), "{found}");
        assert!(found.files[0].snapshot.is_some());
        let cut = checked("preamble-cut", &[&rdb[..rdb.len() - 20]]);
        assert_eq!(cut.verdict(), CheckVerdict::Damaged, "{cut}");
    }

    #[test]
    fn a_folder_is_what_its_manifest_says() {
        let dir = folder("manifest");
        let manifest = dir.join("a.manifest");
        std::fs::write(&manifest, "file b seq 1 type b\nfile i1 seq 1 type i\nfile i2 seq 2 type i\n")
            .expect("written");
        std::fs::write(dir.join("b"), testing::file_of(&testing::sample(3, &[1]), NameFormat::Rdb))
            .expect("written");
        std::fs::write(dir.join("i1"), SET).expect("written");
        std::fs::write(dir.join("i2"), &SET[..9]).expect("written");
        assert_eq!(manifest_in(&dir).as_deref(), Some(&*manifest));
        let verdict = || check_manifest(&manifest).expect("a manifest").verdict();
        assert_eq!(verdict(), CheckVerdict::CutOff);
        std::fs::write(dir.join("i2"), b"").expect("written");
        assert_eq!(verdict(), CheckVerdict::Good);
        // Only the last file may be cut off, and none may be missing.
        std::fs::write(dir.join("i1"), &SET[..9]).expect("written");
        assert_eq!(verdict(), CheckVerdict::Damaged);
        std::fs::remove_file(dir.join("i1")).expect("removed");
        assert_eq!(verdict(), CheckVerdict::Damaged);
        std::fs::write(&manifest, "file b seq one type b\n").expect("written");
        assert!(check_manifest(&manifest).is_err());
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
