//! The same question through the wire: a read-through load (GET, on a miss SET) against real servers with equal memory.
//! Where objects expire they are set with the time they have left, and requests come at a rate, so that servers may use it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::trace::Trace;

/// A server with its flags; `{port}` and `{mb}` stand for what they say.
pub struct Contender {
    /// What it is called in the table.
    pub name: &'static str,
    program: &'static str,
    flags: &'static str,
    is_memcached: bool,
}

/// The contenders. Darter's binary is given by the caller.
pub const CONTENDERS: &[Contender] = &[
    Contender {
        name: "Darter --cache_mode",
        program: "",
        flags: "--bind 127.0.0.1 --port {port} --dbfilename= --cache_mode --maxmemory {mb}mb",
        is_memcached: false,
    },
    Contender {
        name: "Redis allkeys-lru",
        program: "redis-server",
        flags: "--bind 127.0.0.1 --port {port} --save  --maxmemory {mb}mb --maxmemory-policy allkeys-lru",
        is_memcached: false,
    },
    Contender {
        name: "Redis allkeys-lfu",
        program: "redis-server",
        flags: "--bind 127.0.0.1 --port {port} --save  --maxmemory {mb}mb --maxmemory-policy allkeys-lfu",
        is_memcached: false,
    },
    Contender {
        name: "memcached",
        program: "memcached",
        flags: "-l 127.0.0.1 -p {port} -U 0 -u root -m {mb}",
        is_memcached: true,
    },
];

/// What a server came to.
pub struct Measured {
    /// Requests that missed, of all after the first third.
    pub misses: f64,
    /// Resident megabytes at the end.
    pub rss_mb: f64,
}

/// Requests a second where objects expire.
const RATE: f64 = 25_000.0;
/// A client that is later than this cannot keep the pace, and would see objects expire before their next request.
const LATE_MAX: Duration = Duration::from_secs(1);
/// Commands on their way together.
const BATCH: usize = 64;

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a trace against a server of its own.
///
/// Errors: it does not start, answers what it must not, or does not keep pace.
pub fn measure(contender: &Contender, darter: &str, trace: &Trace, mb: u64) -> io::Result<Measured> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let flags = contender.flags.replace("{port}", &port.to_string()).replace("{mb}", &mb.to_string());
    let program = if contender.program.is_empty() { darter } else { contender.program };
    let mut command = Command::new(program);
    command.args(flags.split(' ')).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let process = Process(command.spawn()?);
    let began = Instant::now();
    let stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) if began.elapsed() > Duration::from_secs(20) => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    stream.set_nodelay(true)?;
    let mut client =
        Client { reader: BufReader::with_capacity(1 << 20, stream), is_memcached: contender.is_memcached };
    let (warm, mut at, mut misses) = (trace.requests.len() / 3, 0, 0usize);
    let expires = trace.deadlines.iter().any(|&deadline| deadline > 0);
    let began = Instant::now();
    for batch in trace.requests.chunks(BATCH) {
        if expires {
            let due = time_of(at);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
            if began.elapsed() > due + LATE_MAX {
                return Err(io::Error::other(format!("{} requests a second are too many", RATE)));
            }
        }
        let mut missed = client.get(batch)?;
        if at >= warm {
            misses += missed.len();
        }
        at += batch.len();
        missed.sort_unstable();
        missed.dedup();
        client.set(&missed, trace, began.elapsed())?;
    }
    let counted = trace.requests.len() - warm.next_multiple_of(BATCH);
    Ok(Measured { misses: misses as f64 / counted as f64, rss_mb: rss_mb(process.0.id()) })
}

struct Client {
    reader: BufReader<TcpStream>,
    is_memcached: bool,
}

impl Client {
    /// Asks for objects; returns those that were not there.
    fn get(&mut self, ids: &[u32]) -> io::Result<Vec<u32>> {
        let mut bytes = Vec::new();
        for &id in ids {
            let key = key_of(id);
            if self.is_memcached {
                write!(bytes, "get {key}\r\n")?;
            } else {
                write!(bytes, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len())?;
            }
        }
        self.reader.get_mut().write_all(&bytes)?;
        let mut missed = Vec::new();
        for &id in ids {
            let line = self.line()?;
            let value = match line.strip_prefix('$') {
                Some("-1") => None,
                Some(len) => Some(len.to_owned()),
                None if line.starts_with("VALUE ") => line.rsplit(' ').next().map(str::to_owned),
                None if line == "END" => None,
                None => return Err(io::Error::other(format!("to GET: {line}"))),
            };
            match value {
                None => missed.push(id),
                Some(len) => {
                    let len: usize = len.parse().map_err(|_| io::Error::other("no length"))?;
                    let mut value = vec![0; len + 2];
                    self.reader.read_exact(&mut value)?;
                    if self.is_memcached {
                        self.line()?;
                    }
                }
            }
        }
        Ok(missed)
    }

    /// Sets objects when `elapsed` of the trace is over.
    fn set(&mut self, ids: &[u32], trace: &Trace, elapsed: Duration) -> io::Result<()> {
        let mut bytes = Vec::new();
        for &id in ids {
            let (key, len) = (key_of(id), trace.sizes[id as usize].max(MIN_BYTES) as usize);
            let deadline = trace.deadlines.get(id as usize).copied().filter(|&deadline| deadline > 0);
            let left_ms = deadline.map(|at| time_of(at as usize).saturating_sub(elapsed).as_millis().max(1));
            if self.is_memcached {
                // It counts whole seconds.
                let left_s = left_ms.map_or(0, |ms| ms.div_ceil(1000));
                write!(bytes, "set {key} 0 {left_s} {len}\r\n")?;
            } else {
                let words = if left_ms.is_some() { 5 } else { 3 };
                write!(bytes, "*{words}\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${len}\r\n", key.len())?;
            }
            // Not text, so that nobody packs it.
            bytes.resize(bytes.len() + len, 0xe5 ^ id as u8);
            bytes.extend_from_slice(b"\r\n");
            if let Some(ms) = left_ms.filter(|_| !self.is_memcached) {
                let ms = ms.to_string();
                write!(bytes, "$2\r\nPX\r\n${}\r\n{ms}\r\n", ms.len())?;
            }
        }
        self.reader.get_mut().write_all(&bytes)?;
        for _ in ids {
            let line = self.line()?;
            if line != "+OK" && line != "STORED" {
                return Err(io::Error::other(format!("to SET: {line}")));
            }
        }
        Ok(())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

/// When a request is due, where objects expire.
fn time_of(request: usize) -> Duration {
    Duration::from_secs_f64(request as f64 / RATE)
}

/// Bytes of a value where objects are only counted.
const MIN_BYTES: u32 = 400;

fn key_of(id: u32) -> String {
    format!("object:{id:09}")
}

fn rss_mb(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}
