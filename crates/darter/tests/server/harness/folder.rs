//! A folder of a test, which goes with it unless the test fails.

use std::path::{Path, PathBuf};

/// A new empty folder.
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of the test called `name`.
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("darter-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The same as a text.
    pub fn text(&self) -> &str {
        self.0.to_str().expect("a text")
    }

    /// Files in it, by name.
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.0)
            .expect("readable")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("a text"))
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
