//! The system's files: the one place that calls the kernel for the journal.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use darter_reactor::ring::{self, Pushed, Pusher, RingLayout, Taker};

use super::{FileFacts, FileSizes, Files, OpenFile, OpenMode, RingPusher, RingTaker};

/// The files of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Disk;

const _: () = assert!(Disk::SIZES.are_sound());

impl Files for Disk {
    type File = File;
    type Pusher = Pusher;
    type Taker = Taker;

    const SIZES: FileSizes = FileSizes {
        ring: 4 << 20,
        window: 1 << 20,
        reserve: 16 << 20,
        longer: 128 << 10,
        gathered_max: 4 << 20,
        syncs_together: 4,
    };

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<File> {
        let mut options = File::options();
        match mode {
            OpenMode::Read => options.read(true),
            OpenMode::Write => options.write(true),
            OpenMode::New => options.write(true).create_new(true),
            OpenMode::Emptied => options.read(true).write(true).create(true).truncate(true),
            OpenMode::Direct => options.write(true).custom_flags(libc::O_DIRECT),
            OpenMode::EmptiedDirect => {
                options.write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT)
            }
        };
        options.open(path)
    }

    fn facts(&self, path: &Path) -> io::Result<FileFacts> {
        let found = fs::metadata(path)?;
        let modified = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ms = modified.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Ok(FileFacts { len: found.len(), modified_ms, is_file: found.is_file() })
    }

    fn names(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn ring(&self, file: &File, head: &[u8], layout: RingLayout) -> io::Result<(Pusher, Taker)> {
        ring::create(file, head, layout)
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        let digits =
            text.trim().bytes().filter(|byte| *byte != b'-').map(|byte| char::from(byte).to_digit(16));
        let digits: Vec<u8> =
            digits.map(|digit| digit.and_then(|digit| u8::try_from(digit).ok())).collect::<Option<_>>()?;
        let bytes: Vec<u8> =
            digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
        bytes.try_into().ok()
    }

    fn clock_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

impl OpenFile for File {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn reserve(&self, from: u64, len: u64) -> io::Result<()> {
        ring::reserve(self, from, len)
    }

    fn keeps_blocks(&self) -> bool {
        ring::suits(self)
    }
}

impl RingPusher for Pusher {
    #[inline]
    fn push(&mut self, bytes: &[u8]) -> Pushed {
        Pusher::push(self, bytes)
    }

    #[inline]
    fn announce(&self, word: u64) {
        Pusher::announce(self, word);
    }

    #[inline]
    fn end(&self) -> u64 {
        Pusher::end(self)
    }
}

impl RingTaker<Pusher> for Taker {
    fn end(&self) -> u64 {
        Taker::end(self)
    }

    fn taken(&self) -> u64 {
        Taker::taken(self)
    }

    fn look(&mut self, from: u64, len: usize) -> &[u8] {
        Taker::look(self, from, len)
    }

    fn skip(&mut self, pusher: &mut Pusher, bytes: u64) -> bool {
        Taker::skip(self, pusher, bytes)
    }

    fn take(&mut self, to: u64) {
        Taker::take(self, to);
    }
}
