//! A directory of this machine.

use std::fs;
use std::io::{self, Write};
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
        let file = fs::File::create(&unfinished).map_err(at(&unfinished))?;
        Ok(Box::new(Unfinished {
            file,
            path: unfinished,
            final_path: path,
            directory: self.path.clone(),
            unsynced: 0,
            is_whole: false,
        }))
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
#[derive(Debug)]
struct Unfinished {
    file: fs::File,
    path: PathBuf,
    final_path: PathBuf,
    directory: PathBuf,
    // bytes written since the disk last had all
    unsynced: usize,
    is_whole: bool,
}

/// The disk is given this much at a time, so that the end of a long file need not wait for all of it.
const SYNC_BYTES: usize = 32 << 20;

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.unsynced += written;
        if self.unsynced >= SYNC_BYTES {
            self.unsynced = 0;
            self.file.sync_data()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for Unfinished {
    fn finish(mut self: Box<Self>) -> Result<(), Fault> {
        self.file.sync_all().map_err(at(&self.path))?;
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
