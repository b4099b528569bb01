//! A segment cut at every place with a tail of every age beside it: whole records in order come out, and the right ones.

use std::fs;

use darter_base::rng::Rng;

use super::*;
use crate::files::Disk;
use crate::journal::manifest::Manifest;
use crate::journal::part;
use crate::journal::record::RecordDraft;
use crate::journal::segment::{FileHead, SegmentKind};

const CAPACITY: usize = 8192;
const HEAD: usize = crate::journal::segment::FILE_HEAD_BYTES;

struct Stream {
    bytes: Vec<u8>,
    // where each record ends
    ends: Vec<usize>,
}

fn stream(records: u64, seed: u64) -> Stream {
    let mut rng = Rng::new(seed);
    let mut bytes = FileHead {
        thread: 2,
        generation: 5,
        since: None,
        made_ms: 7,
        kind: SegmentKind::Ringed,
        ..FileHead::default()
    }
    .to_bytes()
    .to_vec();
    let mut ends = Vec::new();
    for sequence in 1..=records {
        let draft = RecordDraft::begin(&mut bytes);
        let word = vec![b'x'; rng.below(700) as usize];
        part::write_command(&mut bytes, 0, 2, [b"set".as_slice(), &word].into_iter());
        draft.finish(&mut bytes, sequence, 10);
        ends.push(bytes.len());
    }
    Stream { bytes, ends }
}

/// The file of a ring that holds bytes up to `end` and says that those up to `taken` are in the segment.
fn ring(bytes: &[u8], end: usize, taken: usize) -> Vec<u8> {
    ring_of(Disk.boot_id(), bytes, end, taken)
}

/// The same, of another boot.
fn ring_before_boot(bytes: &[u8], end: usize, taken: usize) -> Vec<u8> {
    ring_of(Some([7; 16]), bytes, end, taken)
}

fn ring_of(boot: Option<[u8; 16]>, bytes: &[u8], end: usize, taken: usize) -> Vec<u8> {
    let mut file = head(5, 2, CAPACITY as u32, boot);
    file.resize(DATA_AT + CAPACITY, 0);
    file[END_AT..END_AT + 8].copy_from_slice(&(end as u64).to_le_bytes());
    file[TAKEN_AT..TAKEN_AT + 8].copy_from_slice(&(taken as u64).to_le_bytes());
    for (at, byte) in bytes[..end].iter().enumerate().skip(end.saturating_sub(CAPACITY)) {
        file[DATA_AT + at % CAPACITY] = *byte;
    }
    file
}

struct SegmentAndTail {
    dir: PathBuf,
    segment: PathBuf,
}

impl SegmentAndTail {
    fn new(name: &str) -> SegmentAndTail {
        // In memory where that is a folder: settling syncs each file.
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let dir = parent.join(format!("darter-tail-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let segment = dir.join(folder::segment_name(5, 2));
        SegmentAndTail { dir, segment }
    }

    fn write(&self, segment: &[u8], tail: &[u8]) {
        fs::write(&self.segment, segment).expect("a segment");
        fs::write(path_of(&self.segment), tail).expect("a tail");
    }

    /// What reading gives, and whether anything is named; what is there after the tail was settled is the same, and is
    /// named no more.
    fn read(&self) -> (u64, bool) {
        let manifest = Manifest { generation: 5, sequence: 1, ..Manifest::default() };
        manifest.store(&Disk, &self.dir).expect("a manifest");
        let before = self.read_folder();
        let journal = folder::open(&Disk, &self.dir).expect("readable").expect("a journal");
        let mut journal = journal;
        while journal.next_record().expect("readable").is_some() {}
        let ending = journal.end().expect("readable");
        ending.settle().expect("writable");
        assert!(!path_of(&self.segment).exists());
        if self.segment.exists() {
            assert_eq!(self.read_folder(), (before.0, false), "settled and read alike");
        }
        for entry in fs::read_dir(&self.dir).expect("a folder").flatten() {
            let name = entry.file_name().into_string().expect("text");
            if name.contains(".torn") || name.contains(".damaged") {
                fs::remove_file(entry.path()).expect("removable");
            }
        }
        before
    }

    fn read_folder(&self) -> (u64, bool) {
        let mut journal = folder::open(&Disk, &self.dir).expect("readable").expect("a journal");
        let mut records = 0;
        while let Some((head, _)) = journal.next_record().expect("readable") {
            records += 1;
            assert_eq!(head.sequence, records);
        }
        (records, !journal.end().expect("readable").is_sound())
    }
}

impl Drop for SegmentAndTail {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn after_a_kill_the_segment_and_its_tail_are_all_there_was() {
    let (files, stream) = (SegmentAndTail::new("kill"), stream(60, 1));
    let all = stream.bytes.len();
    for taken in (0..=all).step_by(4096) {
        for (record, end) in (1..).zip(stream.ends.iter().copied()).filter(|(_, end)| *end >= taken) {
            if end - taken > CAPACITY {
                break;
            }
            // A sync, or the move of a window, may have brought more into the file than the tail says.
            for in_file in [taken, (taken + end) / 2, end] {
                files.write(&stream.bytes[..in_file.max(HEAD)], &ring(&stream.bytes, end, taken));
                assert_eq!(files.read(), (record, false), "taken {taken}, end {end}, in the file {in_file}");
                let settled = fs::read(&files.segment).expect("it is there");
                assert_eq!(settled[HEAD..], stream.bytes[HEAD..end]);
                let (head, _) = FileHead::read(&settled).expect("a head");
                assert_eq!(head.closed, Some(end as u64));
            }
        }
    }
}

#[test]
fn after_a_loss_of_power_there_is_a_prefix_with_all_that_the_segment_has() {
    let (files, stream, mut rng) = (SegmentAndTail::new("power"), stream(80, 2), Rng::new(3));
    let all = stream.bytes.len() as u64;
    for _ in 0..2_000 {
        // Segment, counters and each page of the ring are of different times.
        let (now, then) = (rng.below(all + 1) as usize, rng.below(all + 1) as usize);
        let taken = then / 4096 * 4096;
        let mut tail = ring_before_boot(&stream.bytes, then, taken.max(then.saturating_sub(CAPACITY)));
        let other = ring_before_boot(&stream.bytes, rng.below(all + 1) as usize, 0);
        for page in (DATA_AT..tail.len()).step_by(4096).filter(|_| rng.below(3) == 0) {
            tail[page..page + 4096].copy_from_slice(&other[page..page + 4096]);
        }
        files.write(&stream.bytes[..now], &tail);
        let whole = stream.ends.iter().filter(|end| **end <= now).count() as u64;
        assert!(files.read().0 >= whole, "records of the segment are gone");
    }
}

#[test]
fn a_damaged_tail_is_named_or_harms_nothing() {
    let (files, stream, mut rng) = (SegmentAndTail::new("damage"), stream(20, 4), Rng::new(5));
    let (end, taken) = (stream.bytes.len(), 4096);
    assert!(end - taken < CAPACITY);
    let tail = ring(&stream.bytes, end, taken);
    let whole = stream.ends.iter().filter(|end| **end <= taken).count() as u64;
    for _ in 0..2_000 {
        let mut tail = tail.clone();
        match rng.below(4) {
            0 => tail.truncate(rng.below(tail.len() as u64) as usize),
            1 => tail[rng.below(52) as usize] ^= 1 << rng.below(8),
            2 => tail[[END_AT, TAKEN_AT][rng.below(2) as usize] + rng.below(8) as usize] ^= 1 << rng.below(8),
            _ => tail[DATA_AT + rng.below(CAPACITY as u64) as usize] ^= 1 << rng.below(8),
        }
        files.write(&stream.bytes[..taken], &tail);
        let (records, is_named) = files.read();
        assert!((whole..=20).contains(&records) && (records == 20 || is_named), "{records} {is_named}");
    }
    // Another thread's, under this one's name.
    files.write(&stream.bytes[..taken], &head(5, 3, CAPACITY as u32, Disk.boot_id()));
    assert_eq!(files.read(), (whole, true));
    // None at all.
    fs::write(&files.segment, &stream.bytes[..stream.ends[3]]).expect("a segment");
    assert_eq!(files.read(), (4, true));
}

#[test]
fn damage_in_the_middle_of_a_segment_is_not_covered_by_its_tail() {
    let (files, stream) = (SegmentAndTail::new("middle"), stream(80, 6));
    let (end, taken) = (stream.bytes.len(), stream.bytes.len() / 4096 * 4096);
    let mut segment = stream.bytes[..taken].to_vec();
    segment[stream.ends[3] + 40] ^= 1;
    files.write(&segment, &ring(&stream.bytes, end, taken));
    assert_eq!(files.read(), (4, true));
}

#[test]
fn what_a_killed_process_had_not_counted_is_nothing() {
    // Half of a record that no ring can hold: behind the end that the ring knows.
    let (files, stream) = (SegmentAndTail::new("uncounted"), stream(60, 7));
    let (end, record) = (stream.ends[39], 40);
    for in_file in [end, end + 20, stream.ends[40] - 1] {
        files.write(&stream.bytes[..in_file], &ring(&stream.bytes, end, end));
        assert_eq!(files.read(), (record, false));
    }
    // After a loss of power nobody knows.
    files.write(&stream.bytes[..end + 20], &ring_before_boot(&stream.bytes, end, end));
    assert_eq!(files.read(), (record, true));
    files.write(&stream.bytes[..stream.ends[40]], &ring(&stream.bytes, end, end));
    assert_eq!(files.read(), (record + 1, false));
}

#[test]
fn tails_of_the_first_version_are_read() {
    let (files, mut stream) = (SegmentAndTail::new("first"), stream(20, 8));
    let (end, taken) = (stream.bytes.len(), 4096);
    // The head of version 1 is shorter.
    let mut first = b"DARTJRNL\x01\0\x02\0\0\0\0\0\x05\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0".to_vec();
    first.extend_from_slice(&crc32c(&first).to_le_bytes());
    stream.bytes.splice(..HEAD, first);
    let (end, shorter) = (end - HEAD + 36, HEAD - 36);
    let mut tail = ring(&stream.bytes, end, taken);
    tail[..64].fill(0);
    let head = with_crc(fields(1, 5, 2, CAPACITY as u32));
    tail[..head.len()].copy_from_slice(&head);
    files.write(&stream.bytes[..taken], &tail);
    assert_eq!(files.read(), (20, false));
    tail.truncate(DATA_AT + 100);
    files.write(&stream.bytes[..taken], &tail);
    let whole = stream.ends.iter().filter(|end| **end - shorter <= taken).count() as u64;
    assert_eq!(files.read(), (whole, true));
    // No tail, no word: it did not say whether there was one.
    fs::write(&files.segment, &stream.bytes[..stream.ends[3] - shorter]).expect("a segment");
    assert_eq!(files.read(), (4, false));
}
