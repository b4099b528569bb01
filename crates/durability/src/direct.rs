//! Records that replies wait for: gathered in memory, written past the kernel's a group at a time, and synced.
//!
//! Used by `segment` with `always`. Nobody is answered before his record is synced, so the kernel need not have it
//! earlier. A file system syncs its own journal when a file grows: a group that makes it longer has zeros behind it, over
//! which those that follow are written. Here no lock is held during a write that the thread which appends would wait for.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use darter_persist::files::{Files, OpenFile, OpenMode, PAGE_BYTES as PAGE};

use super::lock;

/// A file that is written in whole pages past the kernel's memory.
pub struct Direct<F: Files> {
    file: F::File,
    // Bytes for which the file has blocks.
    reserved: AtomicU64,
    // What no write has begun with.
    gathered: Mutex<Pages>,
    // Taken before `gathered`, and held while a group is on its way.
    writer: Mutex<DirectWriter>,
}

struct DirectWriter {
    spare: Pages,
    // The file is so long.
    end: u64,
    // A write has failed, and what it had is lost: nothing here counts as written any more.
    is_broken: bool,
}

/// Bytes for a group, and of those that are gathered at most.
type Limits = (usize, usize);

impl<F: Files> Direct<F> {
    const LIMITS: Limits = (F::SIZES.longer, F::SIZES.gathered_max);

    /// The file at `path`, which is also open as `file`, and begins with `head`.
    ///
    /// Errors: its file system knows no such writes, or has no room.
    pub fn open(files: &F, file: &F::File, path: &Path, head: &[u8]) -> io::Result<Direct<F>> {
        let direct = files.open(path, OpenMode::Direct)?;
        file.reserve(0, F::SIZES.reserve)?;
        let mut gathered = Pages::new(F::SIZES.longer);
        gathered.push(head, Self::LIMITS);
        Ok(Direct {
            file: direct,
            reserved: AtomicU64::new(F::SIZES.reserve),
            gathered: Mutex::new(gathered),
            writer: Mutex::new(DirectWriter { spare: Pages::new(F::SIZES.longer), end: 0, is_broken: false }),
        })
    }

    /// Whether there are blocks for all up to `end`, which are had now if need be.
    pub fn has_room(&self, file: &F::File, end: u64) -> bool {
        let end = end + F::SIZES.longer as u64;
        end <= self.reserved.load(Relaxed) || {
            let _writer = lock(&self.writer);
            self.reserve_to(file, end).is_ok()
        }
    }

    // `writer` is held.
    fn reserve_to(&self, file: &F::File, end: u64) -> io::Result<()> {
        let reserved = self.reserved.load(Relaxed);
        if reserved < end {
            let more = (end - reserved).next_multiple_of(F::SIZES.reserve);
            file.reserve(reserved, more)?;
            self.reserved.store(reserved + more, Relaxed);
        }
        Ok(())
    }

    /// Appends records; what is more than may be gathered is written.
    ///
    /// Errors: of a write; what it had is lost.
    pub fn push(&self, file: &F::File, mut records: &[u8]) -> io::Result<()> {
        loop {
            let taken = lock(&self.gathered).push(records, Self::LIMITS);
            records = records.split_off(taken..).unwrap_or_default();
            if records.is_empty() {
                return Ok(());
            }
            self.write(file)?;
        }
    }

    /// Has the file begin with `head` from the next write on, if its first page is still at hand.
    pub fn change_head(&self, head: &[u8]) {
        let _writer = lock(&self.writer);
        lock(&self.gathered).change_head(head);
    }

    /// Where the records end that were appended so far.
    pub fn end(&self) -> u64 {
        lock(&self.gathered).end()
    }

    /// Whether a write has failed.
    pub fn is_broken(&self) -> bool {
        lock(&self.writer).is_broken
    }

    /// Has all that was appended before on the disk.
    ///
    /// Errors: of the file, now or before; what was gathered is lost.
    pub fn write(&self, file: &F::File) -> io::Result<()> {
        let mut writer = lock(&self.writer);
        // Told by the lock and not by who failed: another may ask before he has said so.
        if writer.is_broken {
            return Err(io::Error::other("a write to this segment failed before"));
        }
        let mut group = {
            let mut gathered = lock(&self.gathered);
            if gathered.has_nothing_new() {
                return Ok(());
            }
            let next = gathered.next(std::mem::take(&mut writer.spare), F::SIZES.longer);
            std::mem::replace(&mut *gathered, next)
        };
        let (records_end, is_longer) = (group.end(), group.end() > writer.end);
        let pages = group.fill_up(if is_longer { F::SIZES.longer } else { 0 });
        let end = group.at + pages as u64;
        let written = match self.file.write_at(group.at, group.bytes(pages)) {
            // Its pages are larger.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                file.write_at(group.at, group.bytes(pages))
            }
            written => written,
        };
        let written = written.and_then(|()| file.sync_data());
        writer.is_broken = written.is_err();
        writer.end = writer.end.max(end);
        writer.spare = group;
        // Where there are none left, who appends will meet the error.
        let _ = self.reserve_to(file, records_end + F::SIZES.reserve / 2);
        written
    }
}

/// Bytes of a file from a page on.
#[derive(Default)]
struct Pages {
    // Its length is its capacity, with one page more than needed, so that an aligned address is in it.
    room: Vec<u8>,
    // Index of the first aligned byte.
    begin: usize,
    // Bytes from there on that are filled.
    len: usize,
    // 0 <= carried <= len: those of them that the file had before.
    carried: usize,
    /// Their place in the file.
    at: u64,
}

impl Pages {
    fn new(capacity: usize) -> Pages {
        let room = vec![0; capacity + PAGE];
        let begin = room.as_ptr().align_offset(PAGE).min(PAGE);
        Pages { room, begin, len: 0, carried: 0, at: 0 }
    }

    fn capacity(&self) -> usize {
        self.room.len().saturating_sub(PAGE)
    }

    fn end(&self) -> u64 {
        self.at + self.len as u64
    }

    fn has_nothing_new(&self) -> bool {
        self.len == self.carried
    }

    fn bytes(&self, len: usize) -> &[u8] {
        &self.room[self.begin..self.begin + len]
    }

    /// Takes as many bytes as it may hold; returns how many.
    fn push(&mut self, bytes: &[u8], (least, most): Limits) -> usize {
        let wanted = self.len + bytes.len();
        if wanted > self.capacity() && self.capacity() < most {
            let mut larger = Pages::new(wanted.next_power_of_two().clamp(least, most));
            larger.put(self.bytes(self.len));
            *self = Pages { carried: self.carried, at: self.at, ..larger };
        }
        let taken = bytes.len().min(self.capacity() - self.len);
        self.put(&bytes[..taken]);
        taken
    }

    fn change_head(&mut self, head: &[u8]) {
        if self.at == 0 && self.len >= head.len() {
            self.room[self.begin..self.begin + head.len()].copy_from_slice(head);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let begin = self.begin + self.len;
        self.room[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Puts zeros behind the bytes to the end of a page, and to `len_min` if there is room; returns where these end.
    fn fill_up(&mut self, len_min: usize) -> usize {
        let end = self.len.next_multiple_of(PAGE).max(len_min);
        self.room[self.begin + self.len..self.begin + end].fill(0);
        end
    }

    /// What comes after: begins with the page that is not full. `room` is for use again.
    fn next(&self, room: Pages, least: usize) -> Pages {
        let whole = self.len - self.len % PAGE;
        let room = if room.capacity() == 0 { Pages::new(least) } else { room };
        let mut next = Pages { len: 0, at: self.at + whole as u64, ..room };
        next.put(&self.bytes(self.len)[whole..]);
        next.carried = next.len;
        next
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use darter_persist::files::Disk;

    use super::*;

    const LONGER_BYTES: usize = Disk::SIZES.longer;
    const GATHERED_MAX: usize = Disk::SIZES.gathered_max;
    const RESERVE_BYTES: u64 = Disk::SIZES.reserve;

    /// A file on whatever the tests run on; one without such writes takes the ordinary ones.
    fn file(name: &str) -> Option<(File, Direct<Disk>)> {
        let path = std::env::temp_dir().join(format!("darter-direct-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        let direct = Direct::open(&Disk, &file, &path, b"head");
        std::fs::remove_file(&path).expect("it is there");
        let direct = direct.inspect_err(|error| eprintln!("no such writes here, not tested: {error}"));
        Some((file, direct.ok()?))
    }

    fn content(file: &File) -> Vec<u8> {
        let len = file.metadata().expect("a file").len() as usize;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).expect("it is as long");
        bytes
    }

    #[test]
    fn what_is_pushed_in_any_pieces_is_in_the_file() {
        let Some((file, direct)) = file("pieces") else { return };
        let mut all = b"head".to_vec();
        for step in (0..).map(|n: usize| n * 977 % 70_001).take(200) {
            let piece: Vec<u8> = (0..step).map(|n| (n * 7 + step) as u8 | 1).collect();
            assert!(direct.has_room(&file, (all.len() + piece.len()) as u64));
            direct.push(&file, &piece).expect("room");
            all.extend_from_slice(&piece);
            if step % 3 != 0 {
                direct.write(&file).expect("a write");
                let there = content(&file);
                assert!(there.starts_with(&all), "after {} bytes", all.len());
                let zeros = &there[all.len()..];
                assert!(zeros.len() <= LONGER_BYTES && zeros.iter().all(|byte| *byte == 0));
            }
        }
        assert!(all.len() as u64 > RESERVE_BYTES / 4);
    }

    #[test]
    fn nothing_counts_as_written_after_a_write_that_failed() {
        let Some((_, mut direct)) = file("broken") else { return };
        let path = std::env::temp_dir().join(format!("darter-direct-read-{}", std::process::id()));
        std::fs::write(&path, b"").expect("a file");
        let unwritable = File::open(&path).expect("a file");
        std::fs::remove_file(&path).expect("it is there");
        direct.file = unwritable.try_clone().expect("a file");
        direct.push(&unwritable, b"lost").expect("it is only gathered");
        assert!(!direct.is_broken() && direct.write(&unwritable).is_err());
        assert!(
            direct.is_broken() && direct.write(&unwritable).is_err(),
            "nothing is left to write, and it is lost"
        );
    }

    #[test]
    fn small_groups_make_the_file_longer_now_and_then() {
        let Some((file, direct)) = file("longer") else { return };
        let mut lengths = std::collections::BTreeSet::new();
        for _ in 0..100 {
            direct.push(&file, &[7; 3000]).expect("room");
            direct.write(&file).expect("a write");
            lengths.insert(content(&file).len());
        }
        assert!((2..=4).contains(&lengths.len()), "{lengths:?}");
    }

    #[test]
    fn more_than_may_be_gathered_is_written_at_once() {
        let Some((file, direct)) = file("much") else { return };
        let much: Vec<u8> = (0..3 * GATHERED_MAX + 5000).map(|n| (n % 251) as u8 + 1).collect();
        assert!(direct.has_room(&file, RESERVE_BYTES + much.len() as u64));
        direct.push(&file, &much).expect("room");
        direct.write(&file).expect("a write");
        let there = content(&file);
        assert!(there[4..].starts_with(&much));
        assert!(lock(&direct.gathered).capacity() <= GATHERED_MAX);
    }

    #[test]
    fn what_is_appended_during_writes_is_in_a_later_one() {
        let Some((file, direct)) = file("threads") else { return };
        const WORDS: u64 = 200_000;
        let pushed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=WORDS {
                    assert!(direct.has_room(&file, 4 + n * 8));
                    direct.push(&file, &n.to_le_bytes()).expect("room");
                    pushed.store(n, Relaxed);
                }
            });
            let mut covered = 0;
            while covered < WORDS {
                let before = pushed.load(Relaxed);
                direct.write(&file).expect("a write");
                let there = content(&file);
                let words =
                    there[4..].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8")));
                let whole = words.zip(1..).take_while(|(word, n)| word == n).count() as u64;
                assert!(whole >= before, "{whole} of {before} are there");
                covered = whole;
            }
        });
    }
}
