//! A directory of this machine.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{Directory, Facts, Fault, NewFile, UNFINISHED, check_name};
use crate::read_at::ReadAt;

/// A directory of this machine; it need not exist until it is used.
#[derive(Clone, Debug)]
pub struct Local {
    path: PathBuf,
}

impl Local {
    /// The directory at `path`; empty for the current one.
    pub fn new(path: impl Into<PathBuf>) -> Local {
        let path = path.into();
        Local { path: if path.as_os_str().is_empty() { PathBuf::from(".") } else { path } }
    }

    fn place(&self, name: &str) -> Result<PathBuf, Fault> {
        check_name(name)?;
        Ok(self.path.join(name))
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> Fault + '_ {
    |cause| Fault::new(path.display().to_string(), cause)
}

impl Directory for Local {
    fn create(&self, name: &str) -> Result<Box<dyn NewFile>, Fault> {
        let path = self.place(name)?;
        let unfinished = self.path.join(format!("{name}{UNFINISHED}"));
        let made = Unfinished::new(unfinished.clone(), path, self.path.clone());
        Ok(Box::new(made.map_err(at(&unfinished))?))
    }

    fn open(&self, name: &str) -> Result<Box<dyn ReadAt>, Fault> {
        let path = self.place(name)?;
        let file = fs::File::open(&path).map_err(at(&path))?;
        if file.metadata().map_err(at(&path))?.is_dir() {
            return Err(Fault::new(path.display().to_string(), io::ErrorKind::IsADirectory.into()));
        }
        Ok(Box::new(file))
    }

    fn list(&self) -> Result<Vec<Facts>, Fault> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(at(&self.path))? {
            let entry = entry.map_err(at(&self.path))?;
            // A file that goes while we look is not there; a name that is no text is none of ours.
            let (Ok(facts), Ok(name)) = (fs::metadata(entry.path()), entry.file_name().into_string()) else {
                continue;
            };
            if facts.is_file() && !name.ends_with(UNFINISHED) {
                let modified = facts.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let modified_ms = modified.map_or(0, |since| since.as_millis() as u64);
                all.push(Facts { name, len: facts.len(), modified_ms });
            }
        }
        Ok(all)
    }

    fn remove(&self, name: &str) -> Result<(), Fault> {
        let path = self.place(name)?;
        fs::remove_file(&path).map_err(at(&path))
    }

    fn sweep(&self) -> Result<usize, Fault> {
        let mut swept = 0;
        for entry in fs::read_dir(&self.path).map_err(at(&self.path))? {
            let path = entry.map_err(at(&self.path))?.path();
            if path.as_os_str().as_encoded_bytes().ends_with(UNFINISHED.as_bytes()) {
                fs::remove_file(&path).map_err(at(&path))?;
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// A file under the name of one that is not whole.
///
/// It goes to the disk past the kernel's memory where the disk allows that, a megabyte at a time: the one who writes is
/// held up by the time of that, and not, once in a while, until all that had piled up is written.
#[derive(Debug)]
struct Unfinished {
    file: fs::File,
    // Whether writes must begin and end, in memory and in the file, at multiples of `ALIGNMENT`.
    is_direct: bool,
    // Not written yet; what counts begins at `start` in it.
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
/// What every disk is content with.
const ALIGNMENT: usize = 4096;

impl Unfinished {
    fn new(path: PathBuf, final_path: PathBuf, directory: PathBuf) -> io::Result<Unfinished> {
        let open = |flags| {
            let mut options = fs::File::options();
            options.write(true).create(true).truncate(true).custom_flags(flags).open(&path)
        };
        let (file, is_direct) = match open(libc::O_DIRECT) {
            Ok(file) => (file, true),
            // There are file systems that know no such thing.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => (open(0)?, false),
            Err(error) => return Err(error),
        };
        let mut buffer: Vec<u8> = Vec::with_capacity(BUFFER_BYTES + ALIGNMENT);
        let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        buffer.resize(start, 0);
        Ok(Unfinished {
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

    /// Writes what is in the buffer; a piece that is no multiple of the alignment is the last one.
    fn flush_buffer(&mut self) -> io::Result<()> {
        let len = self.buffer.len() - self.start;
        if self.is_direct {
            self.buffer.resize(self.start + len.next_multiple_of(ALIGNMENT), 0);
        }
        self.file.write_all(self.buffer.get(self.start..).unwrap_or_default())?;
        self.buffer.truncate(self.start);
        self.written += len as u64;
        Ok(())
    }
}

impl Write for Unfinished {
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

impl NewFile for Unfinished {
    fn finish(mut self: Box<Self>) -> Result<(), Fault> {
        let end = |this: &mut Unfinished| {
            this.flush_buffer()?;
            this.file.set_len(this.written)?;
            this.file.sync_all()
        };
        end(&mut self).map_err(at(&self.path))?;
        fs::rename(&self.path, &self.final_path).map_err(at(&self.final_path))?;
        self.is_whole = true;
        // the name is durable when the directory is
        fs::File::open(&self.directory)
            .and_then(|directory| directory.sync_all())
            .map_err(at(&self.directory))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_whole {
            // Nobody can be told; the next `sweep` tries again.
            let _ = fs::remove_file(&self.path);
        }
    }
}
