//! A real etcd in a folder of its own.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::harness::wait_until;
use crate::nodes::signal;

/// See above.
pub struct Etcd {
    process: Child,
    /// The port of its clients.
    pub port: u16,
    folder: PathBuf,
}

impl Etcd {
    /// Starts an etcd; `None`: the program is not installed.
    pub fn start() -> Option<Etcd> {
        let free = crate::harness::free_port;
        let (port, peers) = (free(), free());
        let folder = std::env::temp_dir().join(format!("darter-group-etcd-{}-{port}", std::process::id()));
        let (url, peer_url) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(&folder)
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("default={peer_url}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => panic!("{error}"),
        };
        wait_until("etcd listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Etcd { process, port, folder })
    }
}

impl Etcd {
    /// Stops it, or has it go on.
    pub fn signal(&self, name: &str) {
        signal(self.process.id(), name);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
