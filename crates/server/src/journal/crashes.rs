//! A crash simulator: the real writer and the real reader, and between them kills and losses of power from a seed.
//!
//! A kill leaves the files as they are. A loss of power leaves each page of a file as it was at one of the moments since it
//! was last synced, and each file as long as it was then or later: writes are lost, torn and out of order, and what was
//! removed may be back. What is checked after each crash: the start is not refused; after a kill all is there, and nothing is
//! named; after a loss of power there is a prefix with all that was synced, and the start after that names nothing more.
//!
//! `DARTER_CRASHES=100000` for the full number.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use darter_base::rng::Rng;
use darter_persist::journal::manifest::{self, Manifest};

use super::scenario::Writing;
use super::*;

/// What a loss of power may leave of a file: it as it was last synced, and as it was at moments since.
type Versions = BTreeMap<String, Vec<Vec<u8>>>;

const PAGE: usize = 4096;
/// Lives of a process over one folder, each ended by a crash.
const LIVES: u64 = 5;

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(dir).expect("a folder").flatten();
    let named = entries.map(|entry| (entry.file_name().into_string().expect("text"), entry.path()));
    let journal = named.filter(|(name, _)| !name.contains(".torn") && !name.contains(".damaged"));
    let mut found: Vec<_> = journal.map(|(name, path)| (name, fs::read(path).expect("readable"))).collect();
    found.sort();
    found
}

/// Notes how files are now; those in `synced` are on disk that way, and files that are new as well. Of a tail only its making
/// is synced.
fn look(dir: &Path, versions: &mut Versions, is_synced: impl Fn(&str) -> bool) {
    for (name, bytes) in files(dir) {
        let known = versions.entry(name.clone()).or_default();
        if name.ends_with(".tail") {
            if known.is_empty() {
                let mut made = bytes.clone();
                made.iter_mut().skip(52).for_each(|byte| *byte = 0);
                known.push(made);
            }
        } else if is_synced(&name) {
            known.clear();
        }
        known.push(bytes);
    }
}

/// The machine loses its power.
fn lose_power(dir: &Path, versions: &Versions, rng: &mut Rng) {
    for (name, now) in files(dir) {
        let known = versions.get(&name).expect("it was seen when it was made");
        let any = |rng: &mut Rng| match rng.below(known.len() as u64 + 1) as usize {
            at if at == known.len() => now.clone(),
            at => known[at].clone(),
        };
        let mut left = any(rng);
        let pages = left.len().div_ceil(PAGE);
        // Some pages of another moment, or most.
        let share = rng.below(8);
        for page in (0..pages).filter(|_| share > 0) {
            let (begin, end) = (page * PAGE, left.len().min(page * PAGE + PAGE));
            let other = any(rng);
            // What that version does not have was never written: zeros, if the file is longer by now.
            if rng.below(8) < share {
                let len = other.len().clamp(begin, end) - begin;
                left[begin..begin + len].copy_from_slice(&other[begin..begin + len]);
                if known[0].len() <= begin {
                    left[begin + len..end].fill(0);
                }
            }
        }
        if name.ends_with(".tail") {
            move_to_another_boot(&mut left);
        }
        fs::write(dir.join(&name), left).expect("writable");
    }
}

/// After a loss of power the machine has another boot id.
fn move_to_another_boot(tail: &mut [u8]) {
    if let Some(head) = tail.get_mut(..52) {
        head[32..48].fill(7);
        let crc = darter_base::crc::crc32c(&head[..48]);
        head[48..52].copy_from_slice(&crc.to_le_bytes());
    }
}

/// What was removed may be there again.
fn bring_back(dir: &Path, versions: &Versions, rng: &mut Rng) {
    for (name, known) in versions.iter().filter(|(name, _)| name.ends_with(".tail")) {
        let path = dir.join(name);
        if !path.exists() && rng.below(2) == 0 {
            fs::write(path, &known[rng.below(known.len() as u64) as usize]).expect("writable");
        }
    }
}

/// A few lives of a process over one folder.
fn campaign(dir: &Path, seed: u64) -> (u64, u64) {
    let mut rng = Rng::new(seed);
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).expect("a folder");
    let segments = Some(Vec::new());
    Manifest { generation: 1, sequence: 1, segments, ..Manifest::default() }.store(dir).expect("a manifest");
    // What was written, how much of it has to be there, and whether nothing may be named.
    let (mut written, mut safe, mut was_killed) = (Vec::new(), 0, true);
    let (mut kills, mut losses) = (0, 0);
    for life in 0..LIVES {
        let (mut writing, is_sound) = Writing::start(dir);
        let there = writing.words.len();
        assert!(written.starts_with(&writing.words), "seed {seed}, life {life}: no prefix");
        assert!(there >= safe, "seed {seed}, life {life}: {there} of {safe} that are safe");
        if was_killed {
            assert_eq!(there, written.len(), "seed {seed}, life {life}: a kill loses nothing");
            assert!(is_sound, "seed {seed}, life {life}: a kill is no damage");
        }
        let mut versions = Versions::new();
        look(dir, &mut versions, |_| true);
        safe = there;
        for _ in 0..rng.below(12) {
            match rng.below(8) {
                0 => {
                    writing.sync();
                    safe = writing.words.len();
                    look(dir, &mut versions, |name| name.ends_with(".seg"));
                }
                1 => {
                    writing.journal.move_windows();
                    look(dir, &mut versions, |_| false);
                }
                2 if rng.below(2) == 0 => {
                    let next = writing.journal.generation.load(Ordering::SeqCst) + 1;
                    writing.begin(next);
                    look(dir, &mut versions, |name| name == manifest::NAME);
                }
                3 => look(dir, &mut versions, |_| false),
                _ => {
                    let records = 1 + rng.below(60) as usize;
                    writing.write_quietly(records, &mut rng);
                }
            }
        }
        was_killed = rng.below(2) == 0;
        if was_killed {
            kills += 1;
            let dead = rng.below(2) as usize;
            if rng.below(2) == 0 {
                writing.logs[dead].die_in_append(&writing.journal);
                writing.write_but(&[dead], rng.below(20) as usize, &mut rng);
            }
            safe = writing.words.len();
        }
        written = std::mem::take(&mut writing.words);
        drop(writing);
        if !was_killed {
            losses += 1;
            bring_back(dir, &versions, &mut rng);
            lose_power(dir, &versions, &mut rng);
        }
    }
    (kills, losses)
}

#[test]
fn nothing_that_is_safe_is_lost_by_kills_and_losses_of_power() {
    let crashes: u64 = std::env::var("DARTER_CRASHES").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let first: u64 = std::env::var("DARTER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let dir = std::env::temp_dir().join(format!("darter-crashes-{}", std::process::id()));
    let (mut kills, mut losses) = (0, 0);
    for seed in (first..).take_while(|seed| (seed - first) * (LIVES - 1) < crashes) {
        let (more_kills, more_losses) = campaign(&dir, seed);
        kills += more_kills;
        losses += more_losses;
    }
    let _ = fs::remove_dir_all(&dir);
    eprintln!("{kills} kills, {losses} losses of power");
    assert!(crashes < 100 || kills > 0 && losses > 0);
}
