//! A segment cut at every place with a tail of every age beside it: whole records in order come out, and the right ones.

use darter_base::rng::Rng;

use super::*;
use crate::journal::part;
use crate::journal::record::Draft;
use crate::journal::segment::FileHead;

const CAPACITY: usize = 8192;

struct Stream {
    bytes: Vec<u8>,
    // where each record ends
    ends: Vec<usize>,
}

fn stream(records: u64, seed: u64) -> Stream {
    let mut rng = Rng::new(seed);
    let mut bytes = FileHead { thread: 2, generation: 5, since: None, made_ms: 7 }.to_bytes().to_vec();
    let mut ends = Vec::new();
    for sequence in 1..=records {
        let draft = Draft::begin(&mut bytes);
        let word = vec![b'x'; rng.below(700) as usize];
        part::write_command(&mut bytes, 0, 2, [b"set".as_slice(), &word].into_iter());
        draft.finish(&mut bytes, sequence, 10);
        ends.push(bytes.len());
    }
    Stream { bytes, ends }
}

/// The file of a ring that holds bytes up to `end` and says that those up to `taken` are in the segment.
fn ring(bytes: &[u8], end: usize, taken: usize) -> Vec<u8> {
    let mut file = head(5, 2, CAPACITY as u32);
    file.resize(DATA_AT + CAPACITY, 0);
    file[END_AT..END_AT + 8].copy_from_slice(&(end as u64).to_le_bytes());
    file[TAKEN_AT..TAKEN_AT + 8].copy_from_slice(&(taken as u64).to_le_bytes());
    for (at, byte) in bytes[..end].iter().enumerate().skip(end.saturating_sub(CAPACITY)) {
        file[DATA_AT + at % CAPACITY] = *byte;
    }
    file
}

struct Files {
    dir: PathBuf,
    segment: PathBuf,
}

impl Files {
    fn new(name: &str) -> Files {
        let dir = std::env::temp_dir().join(format!("darter-tail-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let segment = dir.join(folder::segment_name(5, 2));
        Files { dir, segment }
    }

    fn write(&self, segment: &[u8], tail: &[u8]) {
        fs::write(&self.segment, segment).expect("a segment");
        fs::write(path_of(&self.segment), tail).expect("a tail");
    }

    /// What reading gives, and what is there after the tail was settled: the same.
    fn read(&self) -> u64 {
        let (_, opened) = folder::open_segment(&self.segment).expect("readable");
        let mut records = 0;
        if let Ok(mut opened) = opened {
            while let Next::Record(head) = *opened.next() {
                records += 1;
                assert_eq!(head.sequence, records);
                opened.advance().expect("readable");
            }
        }
        settle(&self.dir).expect("writable");
        assert!(!path_of(&self.segment).exists());
        let whole = whole_of(&self.segment).expect("readable").1.unwrap_or(0);
        assert_eq!(whole, records, "settled and read alike");
        records
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn after_a_kill_the_segment_and_its_tail_are_all_there_was() {
    let (files, stream) = (Files::new("kill"), stream(60, 1));
    let all = stream.bytes.len();
    for taken in (0..=all).step_by(4096) {
        for (record, end) in (1..).zip(stream.ends.iter().copied()).filter(|(_, end)| *end >= taken) {
            if end - taken > CAPACITY {
                break;
            }
            // A sync, or a window that was being moved, may have brought more into the file than is told.
            for in_file in [taken, (taken + end) / 2, end] {
                files.write(&stream.bytes[..in_file.max(36)], &ring(&stream.bytes, end, taken));
                assert_eq!(files.read(), record, "taken {taken}, end {end}, in the file {in_file}");
                assert_eq!(fs::read(&files.segment).expect("it is there"), stream.bytes[..end]);
            }
        }
    }
}

#[test]
fn after_a_loss_of_power_there_is_a_prefix_with_all_that_the_segment_has() {
    let (files, stream, mut rng) = (Files::new("power"), stream(80, 2), Rng::new(3));
    let all = stream.bytes.len() as u64;
    for _ in 0..2_000 {
        // Segment, counters and each page of the ring are of different times.
        let (now, then) = (rng.below(all + 1) as usize, rng.below(all + 1) as usize);
        let taken = then / 4096 * 4096;
        let mut tail = ring(&stream.bytes, then, taken.max(then.saturating_sub(CAPACITY)));
        let other = ring(&stream.bytes, rng.below(all + 1) as usize, 0);
        for page in (DATA_AT..tail.len()).step_by(4096).filter(|_| rng.below(3) == 0) {
            tail[page..page + 4096].copy_from_slice(&other[page..page + 4096]);
        }
        files.write(&stream.bytes[..now], &tail);
        let whole = stream.ends.iter().filter(|end| **end <= now).count() as u64;
        assert!(files.read() >= whole, "records of the segment are gone");
    }
}

#[test]
fn a_damaged_tail_has_nothing_and_makes_no_harm() {
    let (files, stream, mut rng) = (Files::new("damage"), stream(20, 4), Rng::new(5));
    let (end, taken) = (stream.bytes.len(), 4096);
    assert!(end - taken < CAPACITY);
    let tail = ring(&stream.bytes, end, taken);
    let whole = stream.ends.iter().filter(|end| **end <= taken).count() as u64;
    for _ in 0..2_000 {
        let mut tail = tail.clone();
        match rng.below(4) {
            0 => tail.truncate(rng.below(tail.len() as u64) as usize),
            1 => tail[rng.below(36) as usize] ^= 1 << rng.below(8),
            2 => tail[[END_AT, TAKEN_AT][rng.below(2) as usize] + rng.below(8) as usize] ^= 1 << rng.below(8),
            _ => tail[DATA_AT + rng.below(CAPACITY as u64) as usize] ^= 1 << rng.below(8),
        }
        files.write(&stream.bytes[..taken], &tail);
        assert!((whole..=20).contains(&files.read()));
    }
    // Another thread's, under this one's name.
    files.write(&stream.bytes[..taken], &head(5, 3, CAPACITY as u32));
    assert_eq!(files.read(), whole);
}

#[test]
fn damage_in_the_middle_of_a_segment_is_not_covered_by_its_tail() {
    let (files, stream) = (Files::new("middle"), stream(80, 6));
    let (end, taken) = (stream.bytes.len(), stream.bytes.len() / 4096 * 4096);
    let mut segment = stream.bytes[..taken].to_vec();
    segment[stream.ends[3] + 40] ^= 1;
    files.write(&segment, &ring(&stream.bytes, end, taken));
    assert_eq!(files.read(), 4);
    assert_eq!(fs::metadata(&files.segment).expect("it is there").len(), taken as u64, "it was cut");
}
