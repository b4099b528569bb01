//! The files of a killed process, written by the real writer, mutated one at a time: what is read is all that was
//! acknowledged, or the damage is named.
//!
//! `DARTER_MUTATIONS=100000` for the full number.

use std::path::Path;

use darter_base::rng::Rng;
use darter_persist::check::check;
use darter_persist::file::{FileOptions, FileWriter};
use darter_persist::files::{OpenFile, OpenMode};
use darter_persist::journal::folder::{self, FolderFault};
use darter_persist::journal::manifest::{self, Manifest};
use darter_persist::storage::name::NameFormat;

use super::crash::files::FOLDER;
use super::crash::machine::Machine;
use super::scenario::{ScenarioWriting, word_of};
use super::*;

const BASE: &str = "base.1.darter";

/// Files by name, and the words that a start has to find, with their sequences.
struct Set {
    files: Vec<(String, Vec<u8>)>,
    words: Vec<(u64, Vec<u8>)>,
}

/// Makes a file with these bytes.
fn put(files: &Machine, name: &str, bytes: &[u8]) {
    let file = files.open(&Path::new(FOLDER).join(name), OpenMode::Emptied).expect("a file");
    file.write_at(0, bytes).and_then(|()| file.sync()).expect("room");
}

fn names(files: &Machine) -> Vec<String> {
    let names = files.names(Path::new(FOLDER)).expect("a folder");
    names.into_iter().map(|name| name.into_string().expect("text")).collect()
}

fn base() -> Vec<u8> {
    let options =
        FileOptions { format: NameFormat::Native, packs: true, has_checksum: true, now_ms: 7, id: 5 };
    let mut writer = FileWriter::new(Vec::new(), options).expect("memory");
    writer.entries(0, 0, 1, b"\0\x03key\x05value").expect("entries");
    writer.finish().expect("memory").0
}

/// The files of three lives, in the last of which a new generation has begun; two threads end amid a record.
fn set(seed: u64) -> Set {
    let (files, dir) = (Machine::new(seed), Path::new(FOLDER));
    files.create_dir(dir).expect("a folder");
    let mut rng = Rng::new(seed);
    put(&files, BASE, &base());
    let segments = Some(Vec::new());
    let first = Manifest {
        base: Some(BASE.to_owned()),
        generation: 1,
        sequence: 5,
        clock_ms: 5,
        segments,
        gaps: Vec::new(),
    };
    first.store(&files, dir).expect("a manifest");
    for life in 0..3 {
        let (mut writing, is_sound) = ScenarioWriting::start(&files, dir);
        assert!(is_sound);
        writing.write(250, &mut rng);
        if life == 2 {
            let next = writing.journal.generation.load(Ordering::SeqCst) + 1;
            writing.begin(next);
        }
        writing.write(250, &mut rng);
        writing.logs[1].die_in_append(&writing.journal);
        writing.write_but(&[1], 40, &mut rng);
        writing.logs[0].die_in_append(&writing.journal);
        writing.write_but(&[0, 1], 10, &mut rng);
    }
    let ReadResult::All(words) = read(&files) else { panic!("nothing is damaged") };
    let files = names(&files).into_iter().map(|name| {
        let bytes = files.read(&dir.join(&name)).expect("readable");
        (name, bytes)
    });
    let files = files.collect();
    assert_eq!(words.len(), 3 * 550);
    Set { files, words }
}

enum ReadResult {
    All(Vec<(u64, Vec<u8>)>),
    Named(String),
}

/// What a start finds.
fn read(files: &Machine) -> ReadResult {
    let dir = Path::new(FOLDER);
    let mut journal = match folder::open(files, dir) {
        Ok(Some(journal)) => journal,
        Ok(None) => {
            let orphans = folder::orphaned_bases(files, dir).expect("readable");
            return if orphans.is_empty() {
                ReadResult::All(Vec::new())
            } else {
                ReadResult::Named("no manifest".to_owned())
            };
        }
        Err(FolderFault::Io(path, error)) => panic!("{}: {error}", path.display()),
        Err(fault) => return ReadResult::Named(fault.to_string()),
    };
    let base = journal.manifest.base.clone().expect("a base");
    match files.open(&dir.join(base), OpenMode::Read).map(|file| check(&file).is_good()) {
        Ok(true) => {}
        _ => return ReadResult::Named("the base".to_owned()),
    }
    let mut words = Vec::new();
    while let Some((head, body)) = journal.next_record().expect("readable") {
        words.push((head.sequence, word_of(body)));
    }
    let ending = journal.end().expect("readable");
    if ending.is_sound() {
        ReadResult::All(words)
    } else {
        ReadResult::Named(format!("{:?} {:?}", ending.broken, ending.torn))
    }
}

/// Where something of a file stands: heads, counters, records, the end.
fn place(name: &str, len: usize, rng: &mut Rng) -> usize {
    let any = rng.below(len.max(1) as u64) as usize;
    let at = match rng.below(8) {
        0 => rng.below(64) as usize,
        1 if name.ends_with(".tail") => [1024, 1032, 2048][rng.below(3) as usize] + rng.below(8) as usize,
        2 if name.ends_with(".tail") => 4096 + rng.below(16_384) as usize,
        3 => len.saturating_sub(1 + rng.below(100) as usize),
        _ => any,
    };
    at.min(len.saturating_sub(1))
}

/// Changes one file; `None` is one that is missing.
fn mutate(name: &str, set: &Set, bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    let at = place(name, bytes.len(), rng);
    match rng.below(8) {
        0 if rng.below(4) == 0 => return None,
        0 | 1 => bytes.truncate(at),
        2 => {
            let page = at / 4096 * 4096;
            let end = bytes.len().min(page + 4096);
            bytes[page..end].fill(0);
        }
        3 => {
            let end = (at + 1 + rng.below(64) as usize).min(bytes.len());
            bytes[at..end].iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
        }
        4 => drop(bytes.drain(at..(at + 1 + rng.below(30) as usize).min(bytes.len()))),
        5 => {
            // Another file of the same kind.
            let kind = name.rsplit('.').next().expect("an ending");
            let others: Vec<_> = set.files.iter().filter(|(other, _)| other.ends_with(kind)).collect();
            bytes = others[rng.below(others.len() as u64) as usize].1.clone();
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
    }
    Some(bytes)
}

#[test]
fn whatever_is_mutated_all_is_read_or_the_damage_is_named() {
    let rounds: u64 =
        std::env::var("DARTER_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let mut rng = Rng::new(11);
    let dir = Path::new(FOLDER);
    let (mut named, mut seen) = (0, 0);
    for seed in 0..4 {
        let set = set(seed);
        assert!(set.files.iter().any(|(name, _)| name == manifest::NAME));
        let files = Machine::new(seed);
        files.create_dir(dir).expect("a folder");
        set.files.iter().for_each(|(name, bytes)| put(&files, name, bytes));
        for round in 0..rounds / 4 {
            let (name, bytes) = &set.files[rng.below(set.files.len() as u64) as usize];
            let mutated = mutate(name, &set, bytes, &mut rng);
            if mutated.as_ref() == Some(bytes) {
                continue;
            }
            seen += 1;
            match &mutated {
                Some(mutated) => put(&files, name, mutated),
                None => files.remove(&dir.join(name)).expect("it is there"),
            }
            match read(&files) {
                ReadResult::Named(why) => {
                    assert!(!why.is_empty());
                    named += 1;
                }
                ReadResult::All(words) => {
                    let there = words.len();
                    let first = words.iter().zip(&set.words).position(|(read, wanted)| read != wanted);
                    assert!(
                        words == set.words,
                        "set {seed}, round {round}, {name}: {there} of {} without a word, first {first:?}",
                        set.words.len()
                    );
                }
            }
            put(&files, name, bytes);
        }
    }
    eprintln!("{seen} mutations, {named} named");
    assert!(named > seen / 4, "{named} of {seen} named");
}
