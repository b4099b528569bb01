//! A folder with a journal in it, and the servers that write and read it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::{Server, Value};

/// A folder of snapshots with the folder of a journal in it.
pub struct Dir(Folder);

impl Dir {
    /// The folder of the test called `name`.
    pub fn new(name: &str) -> Dir {
        Dir(Folder::new(&format!("aof-{name}")))
    }

    /// A server with its journal here, when it has read it back.
    pub fn start(&self, flags: &[&str]) -> Server {
        let own = ["--dir", self.text(), "--appendonly", "yes", "--enable-debug-command", "yes"];
        Server::start(&[&own, flags].concat())
    }

    /// A server that perhaps still reads it.
    pub fn start_loading(&self, flags: &[&str]) -> Server {
        let own = ["--dir", self.text(), "--appendonly", "yes", "--enable-debug-command", "yes"];
        Server::start_loading(&[&own, flags].concat())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The same as a text.
    pub fn text(&self) -> &str {
        self.0.text()
    }

    /// The folder of the journal.
    pub fn journal(&self) -> PathBuf {
        self.path().join("appendonlydir")
    }

    /// Its segments, by name.
    pub fn segments(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.journal()).expect("a folder").flatten().map(|file| file.path());
        let mut found: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|end| end == "seg")).collect();
        found.sort();
        found
    }

    /// The same after a loss of power: what only the tails had is lost, which are as they were made.
    pub fn lose_tails(&self) -> Vec<PathBuf> {
        let found = self.segments();
        for segment in &found {
            let path = segment.with_extension("tail");
            let Ok(mut tail) = std::fs::read(&path) else { continue };
            // Of a boot before this one; no counter was written back.
            tail[32..48].fill(7);
            let crc = crc32c(&tail[..48]);
            tail[48..52].copy_from_slice(&crc.to_le_bytes());
            tail[52..].fill(0);
            std::fs::write(&path, tail).expect("a tail");
        }
        found
    }
}

/// The checksum of the journal's heads, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Waits until the journal says that no base is being written or due.
pub fn wait_for_base(server: &Server) {
    let began = Instant::now();
    let mut client = server.client();
    loop {
        let Value::Text(info) = client.call(&["INFO", "persistence"]) else { panic!("a text") };
        let is_idle = info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0");
        if is_idle && info.contains("aof_enabled:1") && info.contains("aof_last_bgrewrite_status:ok") {
            return;
        }
        assert!(began.elapsed() < super::PATIENCE, "{info}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A number from the environment, for campaigns that are longer than what every run does.
pub fn setting(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
