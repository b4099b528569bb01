//! Bytes that can be read from any place, by several readers at once.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// A file to read, here or elsewhere.
#[allow(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait ReadAt: Send + Sync {
    /// Fills `out` with the bytes from `offset` on.
    ///
    /// Errors: the source failed, or ends earlier.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Its length in bytes.
    fn len(&self) -> io::Result<u64>;
}

impl ReadAt for File {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.metadata().map(|facts| facts.len())
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(<[u8]>::len(self) as u64)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, out)
    }

    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Box<T> {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, out)
    }

    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }
}

/// Reads a source from front to back.
#[derive(Debug)]
pub struct Front<R> {
    source: R,
    at: u64,
    len: u64,
}

impl<R: ReadAt> Front<R> {
    /// Starts at the front.
    ///
    /// Errors: its length cannot be learned.
    pub fn new(source: R) -> io::Result<Front<R>> {
        let len = source.len()?;
        Ok(Front { source, at: 0, len })
    }
}

impl<R: ReadAt> Read for Front<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len - self.at).unwrap_or(usize::MAX);
        let len = out.len().min(left);
        let place = out.get_mut(..len).unwrap_or_default();
        self.source.read_at(self.at, place)?;
        self.at += len as u64;
        Ok(len)
    }
}
