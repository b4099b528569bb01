//! One side of the comparison: a server process started here, or one that runs already.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection::Connection;

/// A server to compare.
pub struct Server {
    binary: Option<PathBuf>,
    flags: Vec<String>,
    child: Option<Child>,
    address: SocketAddr,
    dir: PathBuf,
    name: String,
}

impl Server {
    /// Starts the program `target`, or connects to it when it reads `HOST:PORT`. `side` names its directory.
    /// Errors: it cannot be started, or does not answer within 10 s; the text holds the end of its log.
    pub fn start(target: &str, flags: &[String], side: &str) -> io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("darter-compat-{}-{side}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let is_address = !target.contains('/') && target.contains(':');
        let mut server = Self {
            binary: (!is_address).then(|| std::path::absolute(target)).transpose()?,
            flags: flags.to_vec(),
            child: None,
            address: loopback,
            dir,
            name: target.rsplit('/').next().unwrap_or(target).to_owned(),
        };
        if is_address {
            server.address =
                target.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("no such address"))?;
        } else {
            server.spawn()?;
        }
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The program's name, for reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Starts it again when it has ended; true when it had. The log of the ended one is kept as `log.ended`.
    pub fn revive(&mut self) -> io::Result<bool> {
        let ended = match &mut self.child {
            Some(child) => child.try_wait()?.is_some(),
            None => false,
        };
        if ended {
            fs::rename(self.dir.join("log"), self.dir.join("log.ended"))?;
            self.spawn()?;
        }
        Ok(ended)
    }

    /// The end of its log, up to 8 KiB.
    pub fn log_tail(&self) -> String {
        self.tail_of("log")
    }

    /// How it ended the last time: the beginning of the last panic in its log, else its end.
    pub fn last_words(&self) -> String {
        let log = self.tail_of("log.ended");
        let from = log.rfind("panicked at").unwrap_or(0);
        log[from..].lines().take(12).collect::<Vec<_>>().join("\n")
    }

    fn tail_of(&self, name: &str) -> String {
        let log = fs::read(self.dir.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(TAIL)..]).into_owned()
    }

    fn spawn(&mut self) -> io::Result<()> {
        let Some(binary) = &self.binary else { return Err(io::Error::other("not started here")) };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        self.address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let log = File::create(self.dir.join("log"))?;
        let port = port.to_string();
        let is_redis = ["redis", "valkey"].iter().any(|name| self.name.contains(name));
        let flags: &[&str] = if is_redis {
            &["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]
        } else {
            &["--proactor_threads", "2", "--dbfilename", ""]
        };
        let child = Command::new(binary)
            .args(["--port", &port, "--bind", "127.0.0.1"])
            .args(flags)
            .args(&self.flags)
            .current_dir(&self.dir)
            // SORT ALPHA compares by the locale.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", binary.display())))?;
        self.child = Some(child);
        self.wait_until_it_answers()
    }

    fn wait_until_it_answers(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(60) {
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                return Err(io::Error::other(format!(
                    "{} ended with {status}: {}",
                    self.name,
                    self.log_tail()
                )));
            }
            let ping = || Connection::open(self.address)?.ask(&["PING"]);
            if ping().is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other(format!("{} does not answer: {}", self.name, self.log_tail())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Killing our own child can only fail when it is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Bytes of a log that are shown; a backtrace can be long.
const TAIL: usize = 8192;
