//! What a server of a test writes: kept in a file without a name, shown if the test fails. Called by the
//! harness's `Server` and by groups.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lines that are shown at most, the last ones.
const LINES_MAX: usize = 60;

/// Both outputs of one process.
pub struct Log(File);

impl Log {
    /// An empty one.
    pub fn new() -> Log {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("darter-test-{}-{}.log", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path).expect("a file");
        std::fs::remove_file(&path).expect("its name goes");
        Log(file)
    }

    /// Where a process writes to.
    pub fn output(&self) -> Stdio {
        Stdio::from(self.0.try_clone().expect("a descriptor"))
    }

    /// All of it until now.
    pub fn text(&self) -> String {
        // Without a seek: the place in the file is the process's, too.
        let len = self.0.metadata().map_or(0, |file| file.len());
        let mut bytes = vec![0; len as usize];
        let _ = self.0.read_exact_at(&mut bytes, 0);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Prints the last lines; the test's own output is the place.
    pub fn show(&self, port: u16) {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LINES_MAX)..];
        println!("== the server on port {port} wrote:\n{}", shown.join("\n"));
    }
}
