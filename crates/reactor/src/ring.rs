//! A ring of bytes in a file that is mapped into memory. Pushed bytes belong to the kernel immediately, without a
//! system call, and survive a kill of the process.
//!
//! Used by the server's journal. One side pushes; the other takes bytes after it has stored them elsewhere. Both may
//! run at the same time. The ring never reads its file: a later process finds the counters through the layout.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Offsets in the file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingLayout {
    /// A word of eight bytes: the total of bytes pushed.
    pub end_at: usize,
    /// Another: what of it was taken.
    pub taken_at: usize,
    /// A second word: the last announcement of the pushing side.
    pub begun_at: usize,
    /// The bytes begin here; byte `n` of all lies at `n % capacity` behind it.
    pub data_at: usize,
    /// The size of the ring in bytes.
    pub capacity: usize,
}

/// The side that pushes.
pub struct Pusher {
    map: Arc<Map>,
    // The total of bytes pushed, and its place in the ring.
    end: u64,
    at: usize,
    // Bytes up to this number have room, are contiguous with the next, and end before the next quarter of the ring
    // does.
    quick_end: u64,
}

/// The result of a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// All of them.
    All,
    /// All of them, and a quarter of the ring ended with them.
    Quarter,
    /// None: there is no room.
    Nothing,
}

/// The side that takes.
pub struct Taker {
    map: Arc<Map>,
}

struct Map {
    base: NonNull<u8>,
    bytes: usize,
    layout: RingLayout,
    // taken <= end <= taken + capacity; the words in the file follow these, and are never read back
    end: AtomicU64,
    taken: AtomicU64,
}

// SAFETY: the mapping belongs to the value as an allocation would. Bytes `taken..end` are never written. The others
// are written only by the one `Pusher`, which is neither cloned nor used by two threads at once.
unsafe impl Send for Map {}
// SAFETY: as above; the counters are atomic.
unsafe impl Sync for Map {}

/// Makes `file` a ring that begins with `head`, with all its blocks and pages: writes to it never need more room. The
/// head is on disk when this returns. Cost: a sync, and a write of all of it, about a millisecond for 4 MiB.
///
/// Shape: `data_at` and `capacity` in pages of 4 KiB, the words aligned, behind the head and before `data_at`.
/// Errors: another shape; the system has no room or cannot map files.
pub fn create(file: &File, head: &[u8], layout: RingLayout) -> io::Result<(Pusher, Taker)> {
    let RingLayout { end_at, taken_at, begun_at, data_at, capacity } = layout;
    let has_room = |at: usize| at.is_multiple_of(8) && at >= head.len() && at + 8 <= data_at;
    let is_paged = data_at.is_multiple_of(PAGE) && capacity.is_multiple_of(PAGE) && capacity > 0;
    let words = [end_at, taken_at, begun_at];
    let are_apart = end_at != taken_at && end_at != begun_at && taken_at != begun_at;
    if !is_paged || !words.into_iter().all(has_room) || !are_apart {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = data_at + capacity;
    reserve(file, 0, bytes as u64)?;
    file.set_len(bytes as u64)?;
    file.write_all_at(head, 0)?;
    // Before the zeros are written: after a loss of power the file has its head and its length, and nothing else is needed.
    file.sync_all()?;
    // Pages from long writes are contiguous in memory: writing them to a disk takes the kernel a quarter of the time.
    let zeros = vec![0; bytes.min(FILL_BYTES)];
    for at in (data_at..bytes).step_by(FILL_BYTES) {
        file.write_all_at(&zeros[..zeros.len().min(bytes - at)], at as u64)?;
    }
    // SAFETY: a new mapping at a place of the kernel's choice; the file is open and as long as the mapping.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let base = NonNull::<u8>::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
    // If the kernel cannot map the pages ahead, each is mapped at its first write. SAFETY: all of a mapping that was
    // just made, whose contents this does not change.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
    let map = Arc::new(Map { base, bytes, layout, end: AtomicU64::new(0), taken: AtomicU64::new(0) });
    Ok((Pusher { map: map.clone(), end: 0, at: 0, quick_end: 0 }, Taker { map }))
}

const PAGE: usize = 4096;
/// The pages of a new ring are allocated this many bytes at a time.
const FILL_BYTES: usize = 2 << 20;

/// Gives `file` the blocks of a stretch without making it longer.
///
/// Errors: there is no room, or the file system cannot.
pub fn reserve(file: &File, from: u64, len: u64) -> io::Result<()> {
    let (from, len) = (offset(from)?, offset(len)?);
    // SAFETY: the file is open; no memory of ours is concerned.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, from, len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn offset(bytes: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Opens a file for direct writes: whole pages, from whole pages.
///
/// Errors: it is missing, or its file system does not support such writes.
pub fn open_direct(path: &Path) -> io::Result<File> {
    File::options().write(true).custom_flags(libc::O_DIRECT).open(path)
}

/// Returns true if a mapped file is safe on this file system: if blocks are allocated once (ext4, XFS). If each
/// change takes new blocks, a full disk would end the process in the middle of a copy.
pub fn suits(file: &File) -> bool {
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the file is open, and there is room for the answer, which is read only if there is one.
    let kind = unsafe {
        if libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) != 0 {
            return false;
        }
        found.assume_init().f_type
    };
    [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC].contains(&kind)
}

/// Bytes of a line of the processor's cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Copies bytes that the processor will not read again. Whole lines bypass its cache, so that no line is fetched or
/// evicted for them. A thread that sees a later store sees the copy.
///
/// # Safety
///
/// `to` is valid for writes of as many bytes, and none of these is among `bytes`.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_away(bytes: &[u8], to: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let (before, rest) = bytes.split_at(to.align_offset(LINE).min(bytes.len()));
    let (lines, after) = rest.as_chunks::<LINE>();
    // SAFETY: the three parts are contiguous in `to`, whose middle is aligned by the choice of the first. Loads need
    // no alignment, and each stays in its line.
    unsafe {
        std::ptr::copy_nonoverlapping(before.as_ptr(), to, before.len());
        let mut place = to.add(before.len());
        for line in lines {
            for at in (0..LINE).step_by(size_of::<__m128i>()) {
                let word = _mm_loadu_si128(line.as_ptr().add(at).cast());
                _mm_stream_si128(place.add(at).cast(), word);
            }
            place = place.add(LINE);
        }
        std::ptr::copy_nonoverlapping(after.as_ptr(), place, after.len());
        // Such stores are unordered with others.
        _mm_sfence();
    }
}

/// Copies bytes.
///
/// # Safety
///
/// `to` is valid for writes of as many bytes, and none of these is among `bytes`.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_away(bytes: &[u8], to: *mut u8) {
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

impl Pusher {
    /// Appends all of `bytes`, or nothing. A process that is killed has done all or nothing, too.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Pushed {
        let end = self.end + bytes.len() as u64;
        if end > self.quick_end || bytes.len() >= LONG_BYTES {
            return self.push_over(bytes);
        }
        let map = &*self.map;
        // SAFETY: `at + bytes.len()` is at most `capacity`, and there is room for that many: `push_over` has checked
        // both up to `quick_end`. Bytes between `end` and `taken + capacity` are never read, and only this side
        // writes.
        unsafe {
            let to = map.base.as_ptr().add(map.layout.data_at + self.at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.at += bytes.len();
        self.end = end;
        map.note(map.layout.end_at, &map.end, end);
        Pushed::All
    }

    /// The same at any place.
    #[cold]
    fn push_over(&mut self, bytes: &[u8]) -> Pushed {
        let map = &*self.map;
        let (begin, end) = (self.end, self.end + bytes.len() as u64);
        let capacity = map.layout.capacity;
        let room_end = map.taken.load(Ordering::Acquire) + capacity as u64;
        if end > room_end {
            return Pushed::Nothing;
        }
        let at = (begin % capacity as u64) as usize;
        let (first, second) = bytes.split_at(bytes.len().min(capacity - at));
        // SAFETY: `at < capacity` and neither part passes the end of the mapping. Bytes between `end` and `taken +
        // capacity` are never read, and only this side writes.
        unsafe {
            let data = map.base.as_ptr().add(map.layout.data_at);
            copy_away(first, data.add(at));
            copy_away(second, data);
        }
        self.end = end;
        map.note(map.layout.end_at, &map.end, end);
        self.at = (end % capacity as u64) as usize;
        let quarter = (capacity / 4) as u64;
        // A quarter ends no later than a lap of the ring.
        self.quick_end = room_end.min((end / quarter + 1) * quarter - 1);
        if begin / quarter == end / quarter { Pushed::All } else { Pushed::Quarter }
    }

    /// Stores a word in the file, before any later store of this thread that others can see.
    #[inline]
    pub fn announce(&self, word: u64) {
        let at = self.map.layout.begun_at;
        // SAFETY: `create` has seen to it that an aligned word of the mapping is there, which nothing but this writes.
        let place = unsafe { AtomicU64::from_ptr(self.map.base.as_ptr().add(at).cast()) };
        place.store(word.to_le(), Ordering::Release);
    }

    /// All that was ever pushed, in bytes.
    pub fn end(&self) -> u64 {
        self.end
    }
}

/// From this length on, bytes are copied past the processor's cache.
const LONG_BYTES: usize = 1024;

impl Taker {
    /// All that was ever pushed, in bytes.
    pub fn end(&self) -> u64 {
        self.map.end.load(Ordering::Acquire)
    }

    /// The total of bytes taken.
    pub fn taken(&self) -> u64 {
        self.map.taken.load(Ordering::Relaxed)
    }

    /// The bytes from number `from` on, at most `len`, and only while contiguous; empty if `from` was taken or not
    /// pushed.
    pub fn look(&self, from: u64, len: usize) -> &[u8] {
        let (taken, end) = (self.taken(), self.end());
        if from < taken || from >= end {
            return &[];
        }
        let capacity = self.map.layout.capacity;
        let at = (from % capacity as u64) as usize;
        let len = len.min(capacity - at).min((end - from) as usize);
        // SAFETY: `at + len <= capacity`. Bytes from `taken` to `end` were written before `end` was stored. They are
        // not written again before they are taken, which requires an exclusive borrow of this value.
        unsafe {
            let data = self.map.base.as_ptr().add(self.map.layout.data_at);
            std::slice::from_raw_parts(data.add(at), len)
        }
    }

    /// Counts `bytes` that were stored elsewhere as pushed and taken. Returns false unless all before them is taken,
    /// and `pusher` is this ring's.
    pub fn skip(&mut self, pusher: &mut Pusher, bytes: u64) -> bool {
        let map = &*self.map;
        if !Arc::ptr_eq(&self.map, &pusher.map) || self.taken() != pusher.end {
            return false;
        }
        let to = pusher.end + bytes;
        map.note(map.layout.end_at, &map.end, to);
        map.note(map.layout.taken_at, &map.taken, to);
        pusher.end = to;
        // The next push finds its place.
        pusher.quick_end = 0;
        true
    }

    /// Frees the room of all bytes before number `to`.
    pub fn take(&mut self, to: u64) {
        let (taken, end) = (self.taken(), self.end());
        self.map.note(self.map.layout.taken_at, &self.map.taken, to.clamp(taken, end));
    }
}

impl Map {
    /// Stores a counter, in the file too.
    fn note(&self, at: usize, counter: &AtomicU64, value: u64) {
        // SAFETY: `create` has seen to it that an aligned word of the mapping is there, which nothing but this writes.
        let word = unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) };
        word.store(value.to_le(), Ordering::Release);
        counter.store(value, Ordering::Release);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made for it, and no reference into it exists any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: RingLayout =
        RingLayout { end_at: 64, taken_at: 128, begun_at: 72, data_at: PAGE, capacity: 2 * PAGE };

    fn file(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("darter-ring-{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("it is there");
        file
    }

    fn is_pushed(pusher: &mut Pusher, bytes: &[u8]) -> bool {
        pusher.push(bytes) != Pushed::Nothing
    }

    #[test]
    fn the_end_of_each_quarter_is_told_once() {
        let (mut pusher, mut taker) = create(&file("quarters"), b"", LAYOUT).expect("a ring");
        let (mut told, quarter) = (0, LAYOUT.capacity as u64 / 4);
        for _ in 0..10_000 {
            match pusher.push(&[1; 37]) {
                Pushed::Quarter => told += 1,
                Pushed::All => {}
                Pushed::Nothing => panic!("there is room"),
            }
            assert_eq!(told, pusher.end() / quarter);
            taker.take(pusher.end());
        }
    }

    fn word(file: &File, at: usize) -> u64 {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at as u64).expect("it is as long");
        u64::from_le_bytes(word)
    }

    #[test]
    fn what_is_pushed_comes_out_and_is_in_the_file() {
        let file = file("comes_out");
        let (mut pusher, mut taker) = create(&file, b"head", LAYOUT).expect("a ring");
        let all: Vec<u8> = (0..100_000u32).map(|n| (n * 7 / 3) as u8).collect();
        let (mut pushed, mut seen) = (0, Vec::new());
        for step in (1..).map(|n: usize| n * 37 % 5000 + 1) {
            let piece = &all[pushed..all.len().min(pushed + step)];
            if pusher.push(piece) != Pushed::Nothing {
                pushed += piece.len();
            }
            assert_eq!((word(&file, 64), word(&file, 128)), (pushed as u64, seen.len() as u64));
            if pushed == all.len() || step % 3 == 0 {
                let piece = taker.look(taker.taken(), step).to_vec();
                assert!(!piece.is_empty() || seen.len() == pushed);
                let mut there = vec![0; piece.len()];
                let at = PAGE + seen.len() % LAYOUT.capacity;
                file.read_exact_at(&mut there, at as u64).expect("it is as long");
                assert_eq!(there, piece, "the file differs");
                seen.extend_from_slice(&piece);
                taker.take(seen.len() as u64);
            }
            if seen.len() == all.len() {
                break;
            }
        }
        assert!(seen == all);
        assert_eq!((pusher.end(), taker.taken()), (100_000, 100_000));
    }

    #[test]
    fn every_place_and_length_is_copied() {
        let bytes: Vec<u8> = (0..400u32).map(|n| (n % 251) as u8 + 1).collect();
        for at in 0..130 {
            for len in (0..200).chain([255, 256, 257, 270]) {
                let mut room = vec![0; 400];
                // SAFETY: both have 400 bytes.
                unsafe { copy_away(&bytes[..len], room.as_mut_ptr().add(at)) };
                assert_eq!(room[at..at + len], bytes[..len], "{at} {len}");
                assert!(room[..at].iter().chain(&room[at + len..]).all(|byte| *byte == 0), "{at} {len}");
            }
        }
    }

    #[test]
    fn nothing_is_pushed_over_what_was_not_taken() {
        let (mut pusher, mut taker) = create(&file("over"), b"", LAYOUT).expect("a ring");
        assert!(is_pushed(&mut pusher, &[1; 2 * PAGE]) && !is_pushed(&mut pusher, &[2]));
        assert_eq!(taker.look(0, usize::MAX), [1; 2 * PAGE]);
        taker.take(1);
        assert!(!is_pushed(&mut pusher, &[2, 2]) && is_pushed(&mut pusher, &[2]));
        assert!(taker.look(0, 1).is_empty(), "it was taken");
        assert_eq!((taker.look(2 * PAGE as u64, 9), taker.look(2 * PAGE as u64 + 1, 9)), (&[2][..], &[][..]));
        // Not more than there is, and never back.
        taker.take(u64::MAX);
        taker.take(0);
        assert_eq!(taker.taken(), 2 * PAGE as u64 + 1);
    }

    #[test]
    fn what_is_put_elsewhere_is_skipped() {
        let file = file("skipped");
        let (mut pusher, mut taker) = create(&file, b"", LAYOUT).expect("a ring");
        assert!(is_pushed(&mut pusher, b"before") && !taker.skip(&mut pusher, 100_001), "it was not taken");
        taker.take(6);
        assert!(taker.skip(&mut pusher, 100_001));
        assert_eq!((word(&file, 64), word(&file, 128)), (100_007, 100_007));
        assert!(is_pushed(&mut pusher, &[7; 2 * PAGE]) && !is_pushed(&mut pusher, b"x"));
        let first = taker.look(100_007, usize::MAX).len();
        assert_eq!(first, 2 * PAGE - 100_007 % (2 * PAGE));
        assert!(taker.look(100_007, usize::MAX).iter().all(|byte| *byte == 7));
        assert!(taker.look(100_007 + first as u64, usize::MAX).iter().all(|byte| *byte == 7));
        pusher.announce(99);
        assert_eq!(word(&file, 72), 99);
        let (mut other, _) = create(&self::file("skipped-other"), b"", LAYOUT).expect("a ring");
        assert!(!taker.skip(&mut other, 1), "another ring's");
    }

    #[test]
    fn two_threads_push_and_take() {
        let (mut pusher, mut taker) = create(&file("threads"), b"", LAYOUT).expect("a ring");
        const ALL: u64 = 300_000;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut next = 0u64;
                while next < ALL {
                    if is_pushed(&mut pusher, &next.to_le_bytes()) {
                        next += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < ALL {
                let from = taker.taken();
                let mut words = 0;
                for word in taker.look(from, 4096).chunks_exact(8) {
                    assert_eq!(word, expected.to_le_bytes());
                    (expected, words) = (expected + 1, words + 8);
                }
                taker.take(from + words);
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn other_shapes_are_refused() {
        for (end_at, taken_at, data_at, capacity) in [
            (8, 64, 100, PAGE),
            (8, 64, PAGE, 0),
            (0, 64, PAGE, PAGE),
            (8, 8, PAGE, PAGE),
            (8, 4092, PAGE, PAGE),
            (8, 512, PAGE, PAGE),
        ] {
            let layout = RingLayout { end_at, taken_at, begun_at: 512, data_at, capacity };
            assert!(create(&file("shapes"), b"head", layout).is_err(), "{layout:?}");
        }
    }
}
