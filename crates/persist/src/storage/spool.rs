//! A file without a name, which disappears with its last handle, however the process ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{NewFile, StorageFault, UNFINISHED};

/// A new file that is read while it is written, and never gets a name.
#[derive(Debug)]
pub struct Spool {
    file: File,
}

impl Spool {
    /// A file on the disk of `folder`, and a handle to read it by.
    ///
    /// Errors: nothing can be written there.
    pub fn new(folder: &Path) -> Result<(Spool, File), StorageFault> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Under a name that the next start removes, in case the process ends before the next line.
        let path = folder.join(format!("spool-{}-{number}{UNFINISHED}", std::process::id()));
        let at = |cause| StorageFault::new(path.display().to_string(), cause);
        let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(at)?;
        fs::remove_file(&path).map_err(at)?;
        let reader = file.try_clone().map_err(at)?;
        Ok((Spool { file }, reader))
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for Spool {
    /// Nothing is synced: the file does not outlive the process.
    fn finish(self: Box<Self>) -> Result<(), StorageFault> {
        Ok(())
    }
}
