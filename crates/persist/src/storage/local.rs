//! A directory of this machine.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{NewFile, StorageDirectory, StorageFacts, StorageFault, UNFINISHED, check_name};
use crate::files::{Disk, Files, OpenFile, OpenMode, PAGE_BYTES};
use crate::read_at::ReadAt;

/// A directory of this machine; it need not exist until it is used.
#[derive(Clone, Debug)]
pub struct Local<F = Disk> {
    files: F,
    path: PathBuf,
}

impl Local {
    /// The directory at `path`; empty for the current one.
    pub fn new(path: impl Into<PathBuf>) -> Local {
        Local::of(Disk, path)
    }
}

impl<F: Files> Local<F> {
    /// The same among other files than the system's.
    pub fn of(files: F, path: impl Into<PathBuf>) -> Local<F> {
        let path = path.into();
        Local { files, path: if path.as_os_str().is_empty() { PathBuf::from(".") } else { path } }
    }

    fn place(&self, name: &str) -> Result<PathBuf, StorageFault> {
        check_name(name)?;
        Ok(self.path.join(name))
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> StorageFault + '_ {
    |cause| StorageFault::new(path.display().to_string(), cause)
}

impl<F: Files> StorageDirectory for Local<F> {
    fn create(&self, name: &str) -> Result<Box<dyn NewFile>, StorageFault> {
        let path = self.place(name)?;
        let unfinished = self.path.join(format!("{name}{UNFINISHED}"));
        let made = Unfinished::new(self.files.clone(), unfinished.clone(), path, self.path.clone());
        Ok(Box::new(made.map_err(at(&unfinished))?))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadAt>, StorageFault> {
        let path = self.place(name)?;
        let file = self.files.open(&path, OpenMode::Read).map_err(at(&path))?;
        if !self.files.facts(&path).map_err(at(&path))?.is_file {
            return Err(StorageFault::new(path.display().to_string(), io::ErrorKind::IsADirectory.into()));
        }
        Ok(Box::new(file))
    }

    fn list(&self) -> Result<Vec<StorageFacts>, StorageFault> {
        let mut all = Vec::new();
        for name in self.files.names(&self.path).map_err(at(&self.path))? {
            // A file removed meanwhile counts as missing; a name that is not text is not ours.
            let (Ok(facts), Ok(name)) = (self.files.facts(&self.path.join(&name)), name.into_string()) else {
                continue;
            };
            if facts.is_file && !name.ends_with(UNFINISHED) {
                all.push(StorageFacts { name, len: facts.len, modified_ms: facts.modified_ms });
            }
        }
        Ok(all)
    }

    fn remove(&self, name: &str) -> Result<(), StorageFault> {
        let path = self.place(name)?;
        self.files.remove(&path).map_err(at(&path))
    }

    fn sweep(&self) -> Result<usize, StorageFault> {
        let mut swept = 0;
        for name in self.files.names(&self.path).map_err(at(&self.path))? {
            if name.as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
                let path = self.path.join(&name);
                self.files.remove(&path).map_err(at(&path))?;
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// A file under the name of an unfinished one.
///
/// Writes bypass the kernel's memory if the disk allows that, a mebibyte at a time. The writer is then delayed a
/// little by each write, instead of occasionally until the whole backlog is written.
#[derive(Debug)]
struct Unfinished<F: Files> {
    files: F,
    file: F::File,
    // True if writes must begin and end, in memory and in the file, at multiples of `ALIGNMENT`.
    is_direct: bool,
    // Not written yet; the data begin at `start` in it.
    buffer: Vec<u8>,
    start: usize,
    // Bytes that are in the file.
    written: u64,
    path: PathBuf,
    final_path: PathBuf,
    directory: PathBuf,
    is_whole: bool,
}

/// Bytes written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// An alignment that every disk accepts.
const ALIGNMENT: usize = PAGE_BYTES;

impl<F: Files> Unfinished<F> {
    fn new(files: F, path: PathBuf, final_path: PathBuf, directory: PathBuf) -> io::Result<Unfinished<F>> {
        let (file, is_direct) = match files.open(&path, OpenMode::EmptiedDirect) {
            Ok(file) => (file, true),
            // Some file systems do not support it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                (files.open(&path, OpenMode::Emptied)?, false)
            }
            Err(error) => return Err(error),
        };
        let mut buffer: Vec<u8> = Vec::with_capacity(BUFFER_BYTES + ALIGNMENT);
        let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        buffer.resize(start, 0);
        Ok(Unfinished {
            files,
            file,
            is_direct,
            buffer,
            start,
            written: 0,
            path,
            final_path,
            directory,
            is_whole: false,
        })
    }

    /// Writes the buffer; a piece that is not a multiple of the alignment is the last one.
    fn flush_buffer(&mut self) -> io::Result<()> {
        let len = self.buffer.len() - self.start;
        if self.is_direct {
            self.buffer.resize(self.start + len.next_multiple_of(ALIGNMENT), 0);
        }
        self.file.write_at(self.written, self.buffer.get(self.start..).unwrap_or_default())?;
        self.buffer.truncate(self.start);
        self.written += len as u64;
        Ok(())
    }
}

impl<F: Files> Write for Unfinished<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = BUFFER_BYTES + self.start - self.buffer.len();
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        if taken.len() == room {
            self.flush_buffer()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: Files> NewFile for Unfinished<F> {
    fn finish(mut self: Box<Self>) -> Result<(), StorageFault> {
        let end = |this: &mut Unfinished<F>| {
            this.flush_buffer()?;
            this.file.set_len(this.written)?;
            this.file.sync()
        };
        end(&mut self).map_err(at(&self.path))?;
        self.files.rename(&self.path, &self.final_path).map_err(at(&self.final_path))?;
        self.is_whole = true;
        // the name is durable once the directory is
        self.files.sync_dir(&self.directory).map_err(at(&self.directory))
    }
}

impl<F: Files> Drop for Unfinished<F> {
    fn drop(&mut self) {
        if !self.is_whole {
            // The error cannot be reported; the next `sweep` tries again.
            let _ = self.files.remove(&self.path);
        }
    }
}
