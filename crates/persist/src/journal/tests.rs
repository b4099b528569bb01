//! Round trips, damage of every kind, and the merge against a list that is kept beside it.

use std::fs;
use std::path::PathBuf;

use darter_base::rng::Rng;
use darter_store::change::Loss;

use super::check::{check_dir, check_segment};
use super::folder::{self, segment_name};
use super::manifest::Manifest;
use super::merge::Merge;
use super::part::{self, Parts, RecordPart, UncommittedPart};
use super::record::{self, RecordDraft};
use super::redis::{Commands, Role, parse_manifest};
use super::segment::{FILE_HEAD_BYTES, FileHead, NextRecordAt, SegmentReader};
use crate::files::Disk;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("darter-journal-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Dir(path)
    }

    fn store(&self, manifest: &Manifest) {
        manifest.store(&Disk, &self.0).expect("a manifest");
    }

    fn write(&self, generation: u64, thread: u16, bytes: &[u8]) {
        fs::write(self.0.join(segment_name(generation, thread)), bytes).expect("a segment");
    }

    /// The words that a replay would see, and the sequence it ends at.
    fn replay(&self) -> (Vec<Vec<u8>>, u64) {
        let mut journal = folder::open(&Disk, &self.0).expect("readable").expect("a journal");
        let mut words = Vec::new();
        while let Some((head, body)) = journal.next_record().expect("readable") {
            assert_eq!(head.clock_ms, head.sequence * 10);
            let Ok(Some(RecordPart::Command { args, .. })) = Parts::new(body).try_next() else {
                panic!("a command")
            };
            words.push(args.iter().nth(1).expect("a word").to_vec());
        }
        (words, journal.sequence())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn head(generation: u64, thread: u16) -> Vec<u8> {
    FileHead { thread, generation, since: None, made_ms: 7, ..FileHead::default() }.to_bytes().to_vec()
}

fn push(out: &mut Vec<u8>, sequence: u64, word: &[u8]) {
    let draft = RecordDraft::begin(out);
    part::write_command(out, 0, 2, [b"set".as_slice(), word].into_iter());
    draft.finish(out, sequence, sequence * 10);
}

/// `records` records dealt out to `threads` segments; the words in order.
fn deal(dir: &Dir, records: u64, threads: u16, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut files: Vec<Vec<u8>> = (0..threads).map(|thread| head(1, thread)).collect();
    let words: Vec<Vec<u8>> = (0..records)
        .map(|n| format!("word{n}:{}", "x".repeat(rng.below(40) as usize)).into_bytes())
        .collect();
    for (word, sequence) in words.iter().zip(1..) {
        push(&mut files[rng.below(u64::from(threads)) as usize], sequence, word);
    }
    files.iter().zip(0..).for_each(|(bytes, thread)| dir.write(1, thread, bytes));
    dir.store(&Manifest { base: None, generation: 1, sequence: 1, clock_ms: 5, ..Manifest::default() });
    words
}

#[test]
fn segments_that_were_begun_before_there_was_a_base_continue_no_older_one() {
    for (generation, since) in [(7, None), (7, Some(7)), (9, Some(7)), (7, Some(0))] {
        let head = FileHead { thread: 3, generation, since, made_ms: 7, ..FileHead::default() };
        assert_eq!(FileHead::read(&head.to_bytes()), Ok((head, FILE_HEAD_BYTES)));
    }
    let dir = Dir::new("baseless");
    let mut first = head(1, 0);
    push(&mut first, 1, b"a");
    dir.write(1, 0, &first);
    // Switched on with generation 3; the first base, of which generation 4 is, was not complete.
    for generation in [3, 4] {
        let since = FileHead { thread: 0, generation, since: Some(3), made_ms: 7, ..FileHead::default() };
        let mut bytes = since.to_bytes().to_vec();
        push(&mut bytes, 1000 + generation, b"b");
        dir.write(generation, 0, &bytes);
    }
    let manifest = |generation, sequence| Manifest {
        base: None,
        generation,
        sequence,
        clock_ms: 5,
        ..Manifest::default()
    };
    dir.store(&manifest(1, 1));
    assert_eq!(dir.replay(), (vec![b"a".to_vec()], 2));
    let checked = check_dir(&Disk, &dir.0).expect("readable").expect("a journal");
    assert!(checked.is_sound() && checked.baseless.len() == 2, "{checked}");
    assert_eq!(folder::open(&Disk, &dir.0).expect("readable").expect("a journal").generation_max, 4);
    // Once it is complete, it is what they continue.
    dir.store(&manifest(4, 1004));
    assert_eq!(dir.replay(), (vec![b"b".to_vec()], 1005));
}

#[test]
fn parts_are_read_as_they_were_written() {
    let mut body = Vec::new();
    part::write_command(&mut body, 3, 3, [b"set".as_slice(), b"", &[0xff; 300]].into_iter());
    part::write_served(&mut body, 0, b"key", 2, [b"blpop".as_slice(), b"key"].into_iter());
    part::write_gone(&mut body, 1, b"gone", Loss::Evicted);
    part::write_members(&mut body, 2, b"members");
    part::write_uncommitted(&mut body, b"id", (300, 7), [b"one".as_slice(), b"two"].into_iter());
    let mut parts = Parts::new(&body);
    let Ok(Some(RecordPart::Command { db: 3, only_key: None, args })) = parts.try_next() else { panic!() };
    assert_eq!(
        (args.len(), args.iter().collect::<Vec<_>>()),
        (3, vec![b"set".as_slice(), b"", &[0xff; 300]])
    );
    let Ok(Some(RecordPart::Command { db: 0, only_key: Some(b"key"), args })) = parts.try_next() else {
        panic!()
    };
    assert_eq!(args.len(), 2);
    assert_eq!(parts.try_next(), Ok(Some(RecordPart::Gone { db: 1, key: b"gone", loss: Loss::Evicted })));
    assert_eq!(parts.try_next(), Ok(Some(RecordPart::Members { db: 2, key: b"members" })));
    let received = UncommittedPart { id: b"id", offset: 300, applied: 7, records: b"onetwo" };
    assert_eq!(parts.try_next(), Ok(Some(RecordPart::Uncommitted(received))));
    assert_eq!(parts.try_next(), Ok(None));
    for len in 1..body.len() {
        let mut parts = Parts::new(&body[..len]);
        while let Ok(Some(_)) = parts.try_next() {}
    }
    assert!(Parts::new(&[9]).try_next().is_err());
    // a number of arguments that nothing could hold
    assert!(Parts::new(&[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).try_next().is_err());
}

#[test]
fn segments_are_merged_by_sequence() {
    let dir = Dir::new("merged");
    let words = deal(&dir, 500, 4, &mut Rng::new(1));
    assert_eq!(dir.replay(), (words, 501));
    let checked = check_dir(&Disk, &dir.0).expect("readable").expect("a journal");
    assert!(checked.is_sound() && checked.counts.records == 500 && checked.counts.last == 500);
}

#[test]
fn what_a_segment_has_from_before_the_base_is_not_read() {
    let dir = Dir::new("before");
    let (mut early, mut other) = (head(2, 0), head(2, 1));
    [3, 4, 7].into_iter().for_each(|n| push(&mut early, n, format!("{n}").as_bytes()));
    [5, 6].into_iter().for_each(|n| push(&mut other, n, format!("{n}").as_bytes()));
    dir.write(2, 0, &early);
    dir.write(2, 1, &other);
    dir.store(&Manifest { base: None, generation: 2, sequence: 5, clock_ms: 5, ..Manifest::default() });
    assert_eq!(dir.replay(), (["5", "6", "7"].map(|word| word.as_bytes().to_vec()).to_vec(), 8));
    let checked = check_dir(&Disk, &dir.0).expect("readable").expect("a journal");
    assert!(checked.is_sound() && checked.counts.records == 3, "{checked}");
}

#[test]
fn generations_before_the_base_are_not_read() {
    let dir = Dir::new("generations");
    let (mut old, mut new) = (head(1, 0), head(2, 0));
    (1..10).for_each(|n| push(&mut old, n, b"old"));
    (10..15).for_each(|n| push(&mut new, n, b"new"));
    dir.write(1, 0, &old);
    dir.write(2, 0, &new);
    dir.store(&Manifest {
        base: Some("base.2.rdb".to_owned()),
        generation: 2,
        sequence: 10,
        clock_ms: 5,
        ..Manifest::default()
    });
    assert_eq!(dir.replay(), (vec![b"new".to_vec(); 5], 15));
    let checked = check_dir(&Disk, &dir.0).expect("readable").expect("a journal");
    assert_eq!(checked.left_over.len(), 1);
}

#[test]
fn a_torn_end_is_set_aside_and_the_rest_goes_on() {
    let dir = Dir::new("torn");
    let words = deal(&dir, 300, 3, &mut Rng::new(2));
    let path = dir.0.join(segment_name(1, 1));
    let bytes = fs::read(&path).expect("a segment");
    fs::write(&path, &bytes[..bytes.len() - 5]).expect("a segment");
    let (read, sequence) = dir.replay();
    assert!(read.len() < 300 && words.starts_with(&read));
    let mut journal = folder::open(&Disk, &dir.0).expect("readable").expect("a journal");
    while journal.next_record().expect("readable").is_some() {}
    let ending = journal.end().expect("readable");
    let torn = &ending.torn;
    assert!(!torn.is_empty() && torn.iter().any(|torn| torn.damage.is_some()));
    let aside = ending.settle().expect("room");
    assert_eq!(aside.len(), torn.len());
    for (torn, (what, place)) in torn.iter().zip(aside) {
        assert_eq!(what, torn.path);
        assert_eq!(fs::metadata(place).expect("a copy").len(), torn.bytes);
    }
    assert_eq!(dir.replay(), (read, sequence));
    assert!(check_dir(&Disk, &dir.0).expect("readable").expect("a journal").is_sound());
}

#[test]
fn zeros_behind_the_last_record_are_nothing() {
    let dir = Dir::new("zeros");
    let words = deal(&dir, 40, 1, &mut Rng::new(5));
    let path = dir.0.join(segment_name(1, 0));
    let bytes = fs::read(&path).expect("a segment");
    for zeros in [1, 27, 28, 29, 4096, 300_000] {
        let mut longer = bytes.clone();
        longer.resize(bytes.len() + zeros, 0);
        fs::write(&path, &longer).expect("a segment");
        assert_eq!(dir.replay(), (words.clone(), 41), "{zeros}");
        let checked = check_dir(&Disk, &dir.0).expect("readable").expect("a journal");
        assert!(checked.is_sound() && checked.counts.records == 40, "{zeros}");
        check_segment(&Disk, &path).expect("sound");
        // Other bytes among them, or the missing end of a record, are reported.
        for (at, byte) in [(longer.len() - 1, 1), (bytes.len() - 1, !bytes[bytes.len() - 1])] {
            let mut other = longer.clone();
            other[at] = byte;
            fs::write(&path, &other).expect("a segment");
            let checked = check_dir(&Disk, &dir.0).expect("readable").expect("a journal");
            assert!(!checked.is_sound() && checked.torn[0].damage.is_some(), "{zeros}, {at}");
        }
    }
}

/// Whatever happens to the bytes, a prefix of what was written is read, and missing records are reported.
#[test]
fn ten_thousand_mutations_of_segments_give_a_prefix_and_a_report() {
    let rounds = std::env::var("DARTER_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000);
    let dir = Dir::new("mutations");
    let mut rng = Rng::new(3);
    let words = deal(&dir, 60, 2, &mut rng);
    let files: Vec<Vec<u8>> =
        (0..2).map(|thread| fs::read(dir.0.join(segment_name(1, thread))).expect("a segment")).collect();
    for round in 0..rounds {
        let which = rng.below(2) as u16;
        let mut bytes = files[usize::from(which)].clone();
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(4) {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 1 << rng.below(8),
            2 => {
                let end = (at + 1 + rng.below(64) as usize).min(bytes.len());
                bytes[at..end].iter_mut().for_each(|byte| *byte = rng.below(256) as u8);
            }
            _ => {
                bytes.drain(at..(at + 1 + rng.below(20) as usize).min(bytes.len()));
            }
        }
        if bytes == files[usize::from(which)] {
            continue;
        }
        let mut both = files.clone();
        both[usize::from(which)] = bytes;
        let (read, is_told) = merged(&both);
        assert!(words.starts_with(&read), "round {round}");
        assert!(read.len() < words.len(), "round {round}: damage was not seen");
        // a cut between two records at the very end leaves nothing that could tell
        let is_clean_cut = files[usize::from(which)].starts_with(&both[usize::from(which)]);
        assert!(is_told || is_clean_cut, "round {round}: damage was not told");
        if round % 100 == 0 {
            dir.write(1, which, &both[usize::from(which)]);
            assert_eq!(dir.replay().0, read);
            let checked = check_dir(&Disk, &dir.0).expect("readable").expect("a journal");
            assert_eq!(checked.is_sound(), !is_told);
            let _ = check_segment(&Disk, &dir.0.join(segment_name(1, which)));
            dir.write(1, which, &files[usize::from(which)]);
        }
    }
}

/// The words of segments in memory, and whether anything is left out.
fn merged(files: &[Vec<u8>]) -> (Vec<Vec<u8>>, bool) {
    let opened: Vec<_> = files
        .iter()
        .map(|bytes| SegmentReader::open(bytes.as_slice(), bytes.len() as u64).expect("memory"))
        .collect();
    let is_headless = files.iter().zip(&opened).any(|(bytes, segment)| !bytes.is_empty() && segment.is_err());
    let mut merge = Merge::new(opened.into_iter().flatten().collect(), 1).expect("memory");
    let mut words = Vec::new();
    while let Some((_, body)) = merge.next_record().expect("memory") {
        let Ok(Some(RecordPart::Command { args, .. })) = Parts::new(body).try_next() else {
            panic!("a command")
        };
        words.push(args.iter().nth(1).expect("a word").to_vec());
    }
    (words, is_headless || merge.segments().iter().any(|segment| *segment.next() != NextRecordAt::End))
}

#[test]
fn a_manifest_is_whole_or_refused() {
    let manifest = Manifest {
        base: Some("base.3.darter".to_owned()),
        generation: 3,
        sequence: u64::MAX,
        clock_ms: 5,
        ..Manifest::default()
    };
    let text = manifest.to_text();
    assert_eq!(Manifest::parse(text.as_bytes()), Ok(manifest));
    for len in 0..text.len() {
        assert!(Manifest::parse(&text.as_bytes()[..len]).is_err(), "{len} bytes");
    }
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            assert!(Manifest::parse(&bytes).is_err(), "byte {at}, bit {bit}");
        }
    }
    for name in ["../x", "a/b", "", "a b", ".x"] {
        let manifest = Manifest {
            base: Some(name.to_owned()),
            generation: 1,
            sequence: 1,
            clock_ms: 5,
            ..Manifest::default()
        };
        assert!(Manifest::parse(manifest.to_text().as_bytes()).is_err(), "{name:?}");
    }
}

#[test]
fn manifests_of_redis_are_read_in_the_order_of_loading() {
    let text =
        b"file a.2.incr.aof seq 2 type i\nfile a.1.base.rdb seq 1 type b\nfile a.1.incr.aof seq 1 type i\n\
                 file a.0.incr.aof seq 0 type h\n";
    let files = parse_manifest(text).expect("a manifest");
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["a.1.base.rdb", "a.1.incr.aof", "a.2.incr.aof"]);
    assert_eq!(files[0].role, Role::Base);
    for wrong in ["file ../x seq 1 type b", "file x seq y type b", "file x seq 1", "file x seq 1 type q"] {
        assert!(parse_manifest(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn commands_of_redis_are_read_one_by_one() {
    let text = b"#TS:1700000000\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$0\r\n\r\n";
    let mut commands = Commands::new(text.as_slice(), text.len() as u64, 0);
    let first = commands.next_command().expect("memory").expect("a command").expect("sound");
    assert_eq!(first, [b"SELECT".to_vec(), b"0".to_vec()]);
    let second = commands.next_command().expect("memory").expect("a command").expect("sound");
    assert_eq!(second.len(), 3);
    assert!(commands.next_command().expect("memory").is_none());
    let mut rng = Rng::new(4);
    for _ in 0..5_000 {
        let mut bytes = text.to_vec();
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.below(3) {
            0 => bytes.truncate(at),
            1 => bytes[at] = rng.below(256) as u8,
            _ => bytes[at] ^= 1 << rng.below(8),
        }
        let mut commands = Commands::new(bytes.as_slice(), bytes.len() as u64, 0);
        let mut seen = 0;
        while let Some(Ok(args)) = commands.next_command().expect("memory") {
            seen += args.len();
        }
        assert!(seen <= 5);
    }
    for wrong in
        ["*99999999999\r\n", "*1\r\n$99999999\r\na\r\n", "PING\r\n", "*0\r\n", "*-1\r\n", "*1\r\n$1\r\naXX"]
    {
        let mut commands = Commands::new(wrong.as_bytes(), wrong.len() as u64, 0);
        assert!(matches!(commands.next_command(), Ok(Some(Err(_)))), "{wrong:?}");
    }
}

#[test]
fn records_may_be_sealed_together() {
    let (mut each, mut all) = (Vec::new(), Vec::new());
    for (sequence, len) in (1..).zip([0, 1, 255, 70_000, 3]) {
        let body = vec![sequence as u8; len];
        let draft = RecordDraft::begin(&mut each);
        each.extend_from_slice(&body);
        draft.finish(&mut each, sequence, 7);
        let draft = RecordDraft::begin(&mut all);
        all.extend_from_slice(&body);
        draft.end(&mut all, sequence, 7);
    }
    assert!(each != all);
    for _ in 0..2 {
        record::seal(&mut all);
        assert!(each == all);
    }
    // What is cut off has no checksum to be given.
    let cut = all.len() - 1;
    record::seal(&mut all[..cut]);
    assert!(each == all);
}

#[test]
fn a_set_is_written_as_any_other_command() {
    for (db, key_len, value_len) in [(0, 1, 0), (3, 127, 128), (300, 128, 70_000), (0, 20_000, 3)] {
        let (key, value) = (vec![b'k'; key_len], vec![b'v'; value_len]);
        let (mut short, mut long) = (vec![9], vec![9]);
        part::write_set(&mut short, db, &key, &value);
        part::write_command(&mut long, db, 3, [b"set".as_slice(), &key, &value].into_iter());
        assert!(short == long, "{db} {key_len} {value_len}");
    }
}

#[test]
fn a_segment_that_has_only_zeros_is_no_journal() {
    let dir = Dir::new("only-zeros");
    dir.write(1, 0, &[0; 64]);
    assert!(folder::open(&Disk, &dir.0).expect("readable").is_none(), "the power went while it was made");
    dir.write(1, 0, &[0, 0, 7, 0]);
    assert!(folder::open(&Disk, &dir.0).is_err(), "something was there");
}
