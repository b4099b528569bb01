//! `darter --check FILE|FOLDER` and `darter --convert IN OUT`: files without a server.
//!
//! Called by `main` before flags are read. Exit code 0 when the file is good, 1 when it is damaged or cannot be
//! read, 2 for a wrong call.

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use darter_persist::check::check;
use darter_persist::convert::convert;
use darter_persist::file::FileOptions;
use darter_persist::files::Disk;
use darter_persist::journal::check as journal;
use darter_persist::journal::manifest::TAKEN_OVER;
use darter_persist::journal::redis_check as redis;
use darter_persist::storage::name::NameFormat;
use darter_persist::storage::{Local, StorageDirectory};

const USAGE: u8 = 2;

/// Does what the arguments ask for if they ask for work on files; `None` when they do not.
pub fn run(args: &[OsString]) -> Option<ExitCode> {
    let words: Vec<&OsString> = args.iter().skip(1).collect();
    match words.as_slice() {
        [verb, file] if *verb == "--check" => Some(check_file(Path::new(file))),
        [verb, from, to] if *verb == "--convert" => Some(convert_file(Path::new(from), Path::new(to))),
        [verb, ..] if *verb == "--check" || *verb == "--convert" => {
            eprintln!("usage: darter --check FILE|FOLDER\n       darter --convert IN OUT.rdb|OUT.darter");
            Some(ExitCode::from(USAGE))
        }
        _ => None,
    }
}

fn check_file(path: &Path) -> ExitCode {
    if path.is_dir() {
        return check_folder(path);
    }
    if path.extension().is_some_and(|end| end == "manifest") {
        return check_redis(path, redis::check_manifest(path));
    }
    if path.extension().is_some_and(|end| end == "aof") {
        return match path.try_exists() {
            Ok(true) => check_redis(path, Ok(redis::check_single(path))),
            Ok(false) => failed(path, &std::io::Error::from(std::io::ErrorKind::NotFound)),
            Err(error) => failed(path, &error),
        };
    }
    if path.extension().is_some_and(|end| end == "seg") {
        return check_segment(path);
    }
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) => return failed(path, &error),
    };
    let report = check(&file);
    // whoever reads may stop early, as `head` does
    let _ = write!(std::io::stdout(), "file       {}\n{report}", path.display());
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks what a folder holds: the append-only journal of this server, or the append-only files of Redis or Valkey.
fn check_folder(dir: &Path) -> ExitCode {
    let found = redis::manifest_in(dir);
    let checked = match (journal::check_dir(&Disk, dir), found) {
        (Ok(Some(checked)), _) => checked,
        (Ok(None), Some(manifest)) => return check_redis(dir, redis::check_manifest(&manifest)),
        (Ok(None), None) => {
            return failed(dir, &"there is no journal of Darter, and no manifest of Redis, in this folder");
        }
        (Err(fault), _) => return failed(dir, &fault),
    };
    let _ = write!(std::io::stdout(), "folder     {}\n{checked}", dir.display());
    // The files of Redis are for its own programs to check.
    let base = checked.manifest.base.as_ref().filter(|base| base.as_str() != TAKEN_OVER);
    let base = base.map_or(ExitCode::SUCCESS, |base| check_file(&dir.join(base)));
    if checked.is_sound() { base } else { ExitCode::FAILURE }
}

/// Prints what was found in append-only files of Redis. Exit code 1: they are cut off or damaged.
fn check_redis(path: &Path, found: Result<redis::CheckedFiles, String>) -> ExitCode {
    let checked = match found {
        Ok(checked) => checked,
        Err(why) => return failed(path, &why),
    };
    let _ = write!(std::io::stdout(), "append-only files of Redis: {}\n{checked}", path.display());
    match checked.verdict() {
        redis::CheckVerdict::Good => ExitCode::SUCCESS,
        redis::CheckVerdict::CutOff | redis::CheckVerdict::Damaged => ExitCode::FAILURE,
    }
}

/// Checks one segment of a journal.
fn check_segment(path: &Path) -> ExitCode {
    match journal::check_segment(&Disk, path) {
        Ok((head, counts)) => {
            let (thread, generation) = (head.thread, head.generation);
            let place = path.display();
            let _ = writeln!(
                std::io::stdout(),
                "segment    {place}: thread {thread}, generation {generation}\n{counts}"
            );
            ExitCode::SUCCESS
        }
        Err(fault) => failed(path, &fault),
    }
}

fn convert_file(from: &Path, to: &Path) -> ExitCode {
    let name = to.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some(format) = NameFormat::of_name(&name) else {
        eprintln!("darter: {}: the name must end in .rdb or .darter", to.display());
        return ExitCode::from(USAGE);
    };
    let source = match std::fs::File::open(from) {
        Ok(file) => file,
        Err(error) => return failed(from, &error),
    };
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let id = now_ms.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id());
    let options = FileOptions { format, packs: true, has_checksum: true, now_ms, id };
    let directory = Local::new(to.parent().unwrap_or(Path::new("")));
    let out = match directory.create(&name) {
        Ok(out) => out,
        Err(fault) => return failed(to, &fault),
    };
    let (out, converted) = match convert(source, out, options) {
        Ok(done) => done,
        Err(error) => return failed(from, &error),
    };
    if let Err(fault) = out.finish() {
        return failed(to, &fault);
    }
    for skipped in &converted.skipped {
        eprintln!("darter: passed over {skipped}");
    }
    let _ =
        writeln!(std::io::stdout(), "{}: {} keys, {} bytes", to.display(), converted.keys, converted.bytes);
    ExitCode::SUCCESS
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> ExitCode {
    let text = error.to_string();
    let place = path.display().to_string();
    if text.starts_with(&place) {
        eprintln!("darter: {text}");
    } else {
        eprintln!("darter: {place}: {text}");
    }
    ExitCode::FAILURE
}
