//! A folder of a test, which goes with it unless the test fails.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What must be free for a folder in memory: an etcd has 128 MB ahead, and several tests run at a time.
const ROOM_KB: u64 = 4 << 20;
const MEMORY: &str = "/dev/shm";

/// A new empty folder.
pub struct Folder(PathBuf);

impl Folder {
    /// The folder of the test called `name`.
    pub fn new(name: &str) -> Folder {
        Folder::at(&std::env::temp_dir(), name)
    }

    /// The same in memory, where there is room for that: a sync of what lies there waits for no disk that others use.
    pub fn in_memory(name: &str) -> Folder {
        let place = Path::new(MEMORY);
        let room = Command::new("df").args(["--output=avail", "-k"]).arg(place).output();
        let room = room.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
        let kb = room.lines().nth(1).and_then(|line| line.trim().parse().ok()).unwrap_or(0_u64);
        if kb < ROOM_KB { Folder::new(name) } else { Folder::at(place, name) }
    }

    fn at(place: &Path, name: &str) -> Folder {
        let path = place.join(format!("darter-{name}-{}", std::process::id()));
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
        if !std::thread::panicking() || self.0.starts_with(MEMORY) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
