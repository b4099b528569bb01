//! A real etcd in a folder of its own.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::harness::folder::Folder;
use crate::harness::wait_until;
use crate::nodes::signal;

/// See above.
pub struct Etcd {
    process: Child,
    /// The port of its clients.
    pub port: u16,
    _folder: Folder,
}

impl Etcd {
    /// Starts an etcd; `None`: the program is not installed.
    pub fn start() -> Option<Etcd> {
        let free = crate::harness::free_port;
        let (port, peers) = (free(), free());
        let folder = Folder::in_memory(&format!("group-etcd-{port}"));
        let (url, peer_url) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let process = Command::new("etcd")
            .args(["--data-dir", folder.text()])
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
        Some(Etcd { process, port, _folder: folder })
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
    }
}
