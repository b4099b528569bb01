//! A server under test as a child process: started on a free loopback port, pinned, stopped when dropped.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cores;
use crate::replies::Protocol;

/// Which program is started, and how.
#[derive(Clone, Debug)]
pub enum Program {
    /// Debian's redis-server without persistence, unless flags say otherwise.
    Redis {
        /// The binary.
        path: PathBuf,
        /// Further flags.
        flags: Vec<String>,
    },
    /// Debian's memcached with room for everything.
    Memcached {
        /// The binary.
        path: PathBuf,
        /// `-t`.
        threads: usize,
    },
    /// Darter.
    Darter {
        /// The binary.
        path: PathBuf,
        /// `--proactor_threads`.
        threads: usize,
        /// Further flags.
        flags: Vec<String>,
        /// Which of its doors is used.
        protocol: Protocol,
    },
    /// The reactor with a fixed reply: the least an answer can cost here.
    EchoFloor {
        /// The binary.
        path: PathBuf,
        /// Bytes of a request.
        request_bytes: usize,
        /// Bytes of a reply.
        reply_bytes: usize,
        /// `epoll` or `uring` or `auto`.
        driver: String,
    },
}

impl Program {
    /// The name in tables.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Redis { .. } => "redis",
            Self::Memcached { .. } => "memcached",
            Self::Darter { .. } => "darter",
            Self::EchoFloor { .. } => "echo floor",
        }
    }

    /// The same with more flags.
    pub fn with_flags(mut self, more: &[&str]) -> Self {
        if let Self::Redis { flags, .. } | Self::Darter { flags, .. } = &mut self {
            flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        }
        self
    }

    /// What it speaks.
    pub fn protocol(&self) -> Protocol {
        match self {
            Self::Memcached { .. } => Protocol::Memcached,
            Self::Darter { protocol, .. } => *protocol,
            _ => Protocol::Resp,
        }
    }

    /// The binary.
    pub fn path(&self) -> &Path {
        match self {
            Self::Redis { path, .. }
            | Self::Memcached { path, .. }
            | Self::Darter { path, .. }
            | Self::EchoFloor { path, .. } => path,
        }
    }

    fn arguments(&self, port: u16, dir: &Path) -> Vec<String> {
        let line = match self {
            Self::Redis { flags, .. } => {
                let dir = dir.display();
                return [
                    "--port",
                    &port.to_string(),
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                ]
                .into_iter()
                .chain(["--io-threads", "1", "--dir", &dir.to_string(), "--protected-mode", "no"])
                .chain(["--unixsocket", UNIX_DOOR])
                .map(str::to_owned)
                .chain(flags.iter().cloned())
                .collect();
            }
            Self::Memcached { threads, .. } => {
                format!("-l 127.0.0.1 -p {port} -U 0 -t {threads} -m 8192 -c 4096 -u root")
            }
            Self::Darter { threads, flags, protocol, .. } => {
                let door = match protocol {
                    Protocol::Resp => format!("--port {port}"),
                    Protocol::Memcached => format!("--port 0 --memcached_port {port}"),
                };
                let mut line: Vec<String> = format!("{door} --proactor_threads {threads} --bind 127.0.0.1")
                    .split(' ')
                    .map(str::to_owned)
                    .collect();
                line.extend(["--dbfilename", "", "--unixsocket", UNIX_DOOR].map(str::to_owned));
                line.extend(flags.iter().cloned());
                return line;
            }
            Self::EchoFloor { request_bytes, reply_bytes, driver, .. } => {
                format!("{port} {driver} {request_bytes} {reply_bytes}")
            }
        };
        line.split(' ').map(str::to_owned).collect()
    }
}

/// Its name in the server's folder.
const UNIX_DOOR: &str = "door";

/// A running server.
pub struct Server {
    child: Child,
    address: SocketAddr,
    dir: PathBuf,
    start_time: Duration,
}

impl Server {
    /// Starts `program` bound to `cores` and waits (10 s at most) until it answers.
    /// Errors: it cannot be started, or it ended or stayed silent; the text holds the end of its log.
    pub fn start(program: &Program, cores: &[usize]) -> io::Result<Self> {
        let port = free_port()?;
        let dir = fresh_dir()?;
        let log = File::create(dir.join("log"))?;
        let begin = Instant::now();
        let child = cores::bound_to(cores, || {
            Command::new(program.path())
                .args(program.arguments(port, &dir))
                .current_dir(&dir)
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn()
                .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", program.path().display())))
        })
        .inspect_err(|_| drop(fs::remove_dir_all(&dir)))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Self { child, address, dir, start_time: Duration::ZERO };
        server.wait_until_it_answers(program, begin)?;
        server.start_time = begin.elapsed();
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The Unix socket of Redis and of Darter.
    pub fn unix_door(&self) -> PathBuf {
        self.dir.join(UNIX_DOOR)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From the start of the process to its first answer.
    pub fn start_time(&self) -> Duration {
        self.start_time
    }

    /// Sends one RESP request and returns the raw reply: what comes within 60 s until a fifth of a second's silence.
    pub fn ask(&self, args: &[&str]) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        stream.write_all(request.as_bytes())?;
        let mut reply = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(len) => reply.extend_from_slice(&chunk[..len]),
                Err(error) if reply.is_empty() => return Err(error),
                Err(_) => break,
            }
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        }
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    /// Asks for an integer.  Errors: any other reply.
    pub fn ask_count(&self, args: &[&str]) -> io::Result<u64> {
        let reply = self.ask(args)?;
        let number = reply.trim().strip_prefix(':').and_then(|digits| digits.parse().ok());
        number.ok_or_else(|| io::Error::other(format!("{args:?} was answered {:?}", reply.trim())))
    }

    fn wait_until_it_answers(&mut self, program: &Program, begin: Instant) -> io::Result<()> {
        let ping: &[u8] = match program {
            Program::EchoFloor { request_bytes, .. } => &vec![b'x'; *request_bytes],
            _ if program.protocol() == Protocol::Memcached => b"version\r\n",
            _ => b"*1\r\n$4\r\nPING\r\n",
        };
        while begin.elapsed() < Duration::from_secs(10) {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("it ended with {status}: {}", self.log_tail())));
            }
            if answers(self.address, ping) {
                return Ok(());
            }
            thread::sleep(Duration::from_micros(300));
        }
        Err(io::Error::other(format!("no answer within 10 s: {}", self.log_tail())))
    }

    fn log_tail(&self) -> String {
        let log = fs::read(self.dir.join("log")).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(600)..];
        String::from_utf8_lossy(tail).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Killing our own child can only fail when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn answers(address: SocketAddr, ping: &[u8]) -> bool {
    let attempt = || -> io::Result<usize> {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(ping)?;
        stream.read(&mut [0; 64])
    };
    attempt().is_ok_and(|len| len > 0)
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn fresh_dir() -> io::Result<PathBuf> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("darter-bench-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
