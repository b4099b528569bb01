//! Damage of the journal's files after a kill: each is named, kept aside, told of by `--check`, and refused if
//! `aof-load-truncated` is no. The files of a kill without damage are read without a word.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::harness::journal::{Dir, wait_for_base};
use crate::harness::{Server, Value};

/// Keys written before the kill, by eight clients; half of them are in the base.
const KEYS: usize = 1000;

/// The folder of a server with two threads that was killed, before a sync of a second that has begun had some of the tails in
/// the segments, too.
fn killed(name: &str) -> Dir {
    killed_with(name, "no")
}

fn killed_with(name: &str, fsync: &str) -> Dir {
    let dir = Dir::new(name);
    let server = dir.start(&["--appendfsync", fsync, "--proactor_threads", "2"]);
    let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
    for n in 0..KEYS {
        let reply = clients[n % 8].call(&["SET", &format!("k{n}"), &"v".repeat(n % 90 + 10)]);
        assert_eq!(reply, Value::ok());
        if n == KEYS / 2 {
            clients[0].call(&["BGREWRITEAOF"]);
            wait_for_base(&server);
        }
    }
    drop(server);
    dir
}

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_darter")).args(args).output().expect("it runs")
}

fn text_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A server on these files that ends with an error; what it says.
fn refused(dir: &Dir, flags: &[&str]) -> String {
    let own = ["--port", "0", "--appendonly", "yes", "--dbfilename", "", "--dir", dir.text()];
    let output = run(&[&own, flags].concat());
    assert!(!output.status.success(), "it starts");
    text_of(&output)
}

/// A server on these files, and the keys it has; its log.
fn started(dir: &Dir) -> (Server, usize, String) {
    let log = dir.path().join("log");
    let _ = fs::remove_file(&log);
    let server = dir.start(&["--logfile", log.to_str().expect("a plain name"), "--proactor_threads", "2"]);
    let Value::Int(keys) = server.client().call(&["DBSIZE"]) else { panic!("a number") };
    (server, keys as usize, fs::read_to_string(&log).expect("a log"))
}

/// The file among those with this ending that has the most records.
fn largest(dir: &Dir, ending: &str) -> PathBuf {
    let weight = |tail: &Path| {
        let mut word = [0; 8];
        File::open(tail).expect("a tail").read_exact_at(&mut word, 1024).expect("a word");
        u64::from_le_bytes(word)
    };
    let tails = dir.segments().into_iter().map(|path| path.with_extension("tail"));
    let found = tails.filter(|tail| tail.exists()).max_by_key(|tail| weight(tail)).expect("a tail");
    found.with_extension(ending)
}

fn overwrite(path: &Path, at: u64, change: impl FnOnce(&mut [u8; 4096])) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut page = [0; 4096];
    let len = file.read_at(&mut page, at).expect("readable");
    change(&mut page);
    file.write_all_at(&page[..len], at).expect("writable");
}

/// Whether the log has a warning beside the one about the limit of open files, which is the machine's.
fn warns(log: &str) -> bool {
    log.lines().any(|line| line.contains("WARN") && !line.contains("maxclients"))
}

/// Damages the files of a kill in one way; finds it named wherever it is asked for.
fn check_named(name: &str, damage: impl FnOnce(&Dir) -> PathBuf) {
    let dir = killed(name);
    let sound = run(&["--check", dir.journal().to_str().expect("a plain name")]);
    assert!(sound.status.success(), "{name}: {}", text_of(&sound));
    let damaged = damage(&dir);
    let file = damaged.file_name().and_then(|name| name.to_str()).expect("a plain name");
    let (is_there, before) = (damaged.exists(), fs::read(&damaged).unwrap_or_default());
    let told = run(&["--check", dir.journal().to_str().expect("a plain name")]);
    assert_eq!(told.status.code(), Some(1), "{name}: {}", text_of(&told));
    assert!(text_of(&told).contains(file), "{name}: {}", text_of(&told));
    let told = refused(&dir, &["--aof-load-truncated", "no"]);
    assert!(told.contains(file) && told.contains("aof-load-truncated is no"), "{name}: {told}");
    assert_eq!(
        fs::read(&damaged).unwrap_or_default(),
        before,
        "{name}: a start that is refused changes nothing"
    );
    let (server, keys, log) = started(&dir);
    assert!((KEYS / 2..KEYS).contains(&keys), "{name}: {keys} keys");
    assert!(log.contains(file), "{name}: {log}");
    if is_there {
        let aside: Vec<_> =
            fs::read_dir(dir.journal()).expect("a folder").flatten().map(|file| file.path()).collect();
        let kept = aside.iter().find(|path| {
            let own = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
            own.starts_with(file) && own.len() > file.len()
        });
        let kept = kept.unwrap_or_else(|| panic!("{name}: nothing is kept of {file} in {aside:?}"));
        assert_eq!(fs::read(kept).expect("a copy").len(), before.len(), "{name}: {kept:?}");
    }
    // It is told once: what is written from now on is found without a word.
    server.client().call(&["SET", "after", "1"]);
    wait_for_base(&server);
    drop(server);
    let (server, later, log) = started(&dir);
    assert_eq!(later, keys + 1, "{name}");
    assert!(!warns(&log), "{name}: {log}");
    drop(server);
}

#[test]
fn a_kill_without_damage_is_read_without_a_word() {
    for fsync in ["everysec", "no"] {
        let dir = killed_with(&format!("sound-{fsync}"), fsync);
        let (server, keys, log) = started(&dir);
        assert_eq!(keys, KEYS);
        assert!(!warns(&log), "{log}");
        drop(server);
        drop(dir.start(&["--aof-load-truncated", "no"]));
        let (_, keys, log) = started(&dir);
        assert!(keys == KEYS && !warns(&log), "{log}");
    }
}

#[test]
fn a_tail_that_is_one_byte_short_is_named() {
    check_named("damage-short", |dir| {
        let tail = largest(dir, "tail");
        let file = OpenOptions::new().write(true).open(&tail).expect("a tail");
        file.set_len(file.metadata().expect("a tail").len() - 1).expect("it is cut");
        tail
    });
}

#[test]
fn a_bit_that_is_flipped_in_a_tail_is_named() {
    check_named("damage-bit", |dir| {
        let tail = largest(dir, "tail");
        overwrite(&tail, 8192, |page| page[100] ^= 4);
        tail
    });
}

#[test]
fn a_page_of_zeros_in_a_tail_is_named() {
    check_named("damage-page", |dir| {
        let tail = largest(dir, "tail");
        overwrite(&tail, 8192, |page| page.fill(0));
        tail
    });
}

#[test]
fn a_head_of_zeros_in_a_tail_is_named() {
    check_named("damage-head", |dir| {
        let tail = largest(dir, "tail");
        overwrite(&tail, 0, |page| page.fill(0));
        tail
    });
}

#[test]
fn a_tail_with_a_wrong_magic_is_named() {
    check_named("damage-magic", |dir| {
        let tail = largest(dir, "tail");
        overwrite(&tail, 0, |page| page[0] = b'X');
        tail
    });
}

#[test]
fn a_tail_that_is_missing_is_named() {
    check_named("damage-tail", |dir| {
        let tail = largest(dir, "tail");
        fs::remove_file(&tail).expect("it is there");
        tail
    });
}

#[test]
fn a_segment_that_is_missing_is_named() {
    check_named("damage-segment", |dir| {
        let segment = largest(dir, "seg");
        fs::remove_file(&segment).expect("it is there");
        segment
    });
}

#[test]
fn a_segment_that_is_missing_with_its_tail_is_named() {
    check_named("damage-both", |dir| {
        let segment = largest(dir, "seg");
        fs::remove_file(&segment).expect("it is there");
        fs::remove_file(segment.with_extension("tail")).expect("it is there");
        segment
    });
}

#[test]
fn a_segment_with_a_damaged_head_is_named() {
    check_named("damage-segment-head", |dir| {
        let segment = largest(dir, "seg");
        overwrite(&segment, 0, |page| page[20] ^= 1);
        // The tail has the head, too, while nothing was moved out of it.
        overwrite(&segment.with_extension("tail"), 4096, |page| page[20] ^= 1);
        segment
    });
}

#[test]
fn a_head_that_its_tail_has_is_made_anew() {
    let dir = killed("damage-repaired");
    let segment = largest(&dir, "seg");
    overwrite(&segment, 0, |page| page[20] ^= 1);
    let (_, keys, _) = started(&dir);
    assert_eq!(keys, KEYS);
    let checked = run(&["--check", dir.journal().to_str().expect("a plain name")]);
    assert!(checked.status.success(), "{}", text_of(&checked));
}

#[test]
fn a_segment_that_was_closed_and_is_cut_between_two_records_is_named() {
    let dir = Dir::new("damage-closed");
    let server = dir.start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    for n in 0..100 {
        assert_eq!(client.call(&["RPUSH", "l", &format!("{n:04}")]), Value::Int(n + 1));
    }
    assert_eq!(client.try_call(&["SHUTDOWN"]), None);
    assert!(server.wait_for_end());
    let segment = dir.segments().remove(0);
    let len = fs::metadata(&segment).expect("a segment").len();
    // All records are equally long.
    let record = (len - 64) / 100;
    assert_eq!(len, 64 + 100 * record);
    OpenOptions::new()
        .write(true)
        .open(&segment)
        .and_then(|file| file.set_len(len - record))
        .expect("it is cut");
    let told = run(&["--check", dir.journal().to_str().expect("a plain name")]);
    assert_eq!(told.status.code(), Some(1), "{}", text_of(&told));
    assert!(text_of(&told).contains("before the length it was closed with"), "{}", text_of(&told));
    let told = refused(&dir, &["--aof-load-truncated", "no"]);
    assert!(told.contains("before the length it was closed with"), "{told}");
    let (server, _, log) = started(&dir);
    assert_eq!(server.client().call(&["LLEN", "l"]), Value::Int(99));
    assert!(log.contains("before the length it was closed with"), "{log}");
    wait_for_base(&server);
    drop(server);
    drop(dir.start(&["--aof-load-truncated", "no"]));
}

#[test]
fn a_journal_whose_manifest_is_missing_or_damaged_is_refused() {
    let dir = killed("damage-manifest");
    let manifest = dir.journal().join("darter.manifest");
    let text = fs::read(&manifest).expect("a manifest");
    let journal = dir.journal();
    let journal = journal.to_str().expect("a plain name");
    fs::remove_file(&manifest).expect("it is there");
    let told = run(&["--check", journal]);
    assert_eq!(told.status.code(), Some(1), "{}", text_of(&told));
    assert!(text_of(&told).contains("the manifest is missing"), "{}", text_of(&told));
    for flags in [&[][..], &["--aof-load-truncated", "no"]] {
        let told = refused(&dir, flags);
        assert!(told.contains("darter.manifest") && told.contains("the manifest is missing"), "{told}");
    }
    for at in [0, 20, text.len() - 3] {
        let mut damaged = text.clone();
        damaged[at] ^= 1;
        fs::write(&manifest, &damaged).expect("writable");
        let told = run(&["--check", journal]);
        assert_eq!(told.status.code(), Some(1), "{}", text_of(&told));
        assert!(refused(&dir, &[]).contains("darter.manifest"));
    }
    fs::write(&manifest, &text).expect("writable");
    let (_, keys, log) = started(&dir);
    assert!(keys == KEYS && !warns(&log), "{log}");
}

#[test]
fn a_base_that_is_missing_or_that_no_manifest_names_is_told() {
    let dir = killed("damage-base");
    let files = || fs::read_dir(dir.journal()).expect("a folder").flatten().map(|file| file.path());
    let is_base = |path: &PathBuf| path.to_string_lossy().contains("/base.");
    let base = files().find(is_base).expect("a base");
    let away = dir.path().join("away");
    fs::rename(&base, &away).expect("it is moved");
    let journal = dir.journal();
    let journal = journal.to_str().expect("a plain name");
    assert_eq!(run(&["--check", journal]).status.code(), Some(1));
    assert!(refused(&dir, &[]).contains("base."));
    fs::rename(&away, &base).expect("it is moved");
    // The base alone, as if there had been no records.
    for path in files().filter(|path| *path != base) {
        fs::remove_file(path).expect("it is there");
    }
    let told = run(&["--check", journal]);
    assert!(told.status.code() == Some(1) && text_of(&told).contains("base."), "{}", text_of(&told));
    assert!(refused(&dir, &["--aof-load-truncated", "no"]).contains("no manifest names"));
    let (_, keys, log) = started(&dir);
    assert!(keys == 0 && log.contains("no manifest names") && log.contains(".damaged"), "{log}");
}
