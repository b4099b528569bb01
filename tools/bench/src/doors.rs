//! The rows of the doors: users, encryption, connections, metrics.
//!
//! Where a row has Darter `off` and `on`, what the row is about is the difference.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::connections::{FLOOD_RATE, Guest, Storm, Visit};
use crate::cores;
use crate::fanout::request;
use crate::flood::{Door, Flood};
use crate::messages::{BOTH, Contender, Contest, OFF_AND_ON, Row, row};
use crate::replies::Protocol;
use crate::sealing;
use crate::usage::{Cpu, thread_times};
use crate::workload::Workload;

/// All rows.
pub fn rows() -> Vec<Row> {
    const OP: &str = "µs of CPU/op";
    const ALONE: &[Contender] = &[Contender::Darter];
    const USERS: &str = "1.03 × off";
    const TLS: &str = "1.3 × off";
    const EACH: &str = "µs of CPU each";
    vec![
        row("GET by one of 100 users, `~*`, pipeline 30", OP, USERS, OFF_AND_ON, |c| {
            c.by_user("get", 30, "~*")
        }),
        row("GET by one of 100 users, `~key:*`, pipeline 30", OP, USERS, OFF_AND_ON, |c| {
            c.by_user("get", 30, "~key:*")
        }),
        row("SET by one of 100 users, `~*`, pipeline 30", OP, USERS, OFF_AND_ON, |c| {
            c.by_user("set", 30, "~*")
        }),
        row("SET by one of 100 users, `~key:*`, pipeline 30", OP, USERS, OFF_AND_ON, |c| {
            c.by_user("set", 30, "~key:*")
        }),
        row("GET by one of 100 users, `~key:*`, one at a time", OP, USERS, OFF_AND_ON, |c| {
            c.by_user("get", 1, "~key:*")
        }),
        row("SET by one of 100 users, `~key:*`, one at a time", OP, USERS, OFF_AND_ON, |c| {
            c.by_user("set", 1, "~key:*")
        }),
        row("GET over TLS 1.3, pipeline 30", OP, TLS, OFF_AND_ON, |c| c.encrypted("get", 30)),
        row("SET over TLS 1.3, pipeline 30", OP, "-", OFF_AND_ON, |c| c.encrypted("set", 30)),
        row("GET over TLS 1.3, one at a time", OP, "-", OFF_AND_ON, |c| c.encrypted("get", 1)),
        row("what rustls alone takes for that GET, pipeline 30", OP, "-", ALONE, |_| encryption_alone()),
        row("one of 10,000 idle connections", "resident bytes", "2,048", BOTH, |c| {
            c.let_in()?;
            c.visit().idle_bytes(10_000)
        }),
        row("clients that come and go", "a second", "50,000", BOTH, |c| {
            Ok(c.storm(Guest::ComesAndGoes)?.per_second())
        }),
        row("clients that come and go", EACH, "20", BOTH, |c| {
            Ok(c.storm(Guest::ComesAndGoes)?.cpu_us_each())
        }),
        row("clients that come, say PING and go", EACH, "-", BOTH, |c| {
            Ok(c.storm(Guest::IsAnswered)?.cpu_us_each())
        }),
        row("50,000 clients come each second: come", "a second", "50,000", BOTH, |c| {
            c.flood(&Door::Tcp).map(|flood| flood.per_second(flood.offered))
        }),
        row("50,000 clients come each second: accepted", "a second", "-", BOTH, |c| {
            c.flood(&Door::Tcp).map(|flood| flood.per_second(flood.accepted))
        }),
        row("50,000 clients come each second: another one's GET, p99", "µs", "-", BOTH, |c| {
            c.flood(&Door::Tcp).map(|flood| flood.latency.quantile(0.99).as_secs_f64() * 1e6)
        }),
        row("50,000 clients come each second: kept of them", "resident KiB", "-", BOTH, |c| {
            c.flood(&Door::Tcp).map(|flood| (flood.grown_bytes >> 10) as f64)
        }),
        row("50,000 come by a Unix socket each second: accepted", "a second", "50,000", BOTH, |c| {
            let door = Door::Unix(c.server.unix_door());
            c.flood(&door).map(|flood| flood.per_second(flood.accepted))
        }),
        row("/metrics, 1,000 clients and 1M keys", "µs of CPU a scrape", "5,000", ALONE, |c| c.scraped()),
        row("the same, longest of a thread", "µs of CPU", "1,000", ALONE, |c| c.longest_scrape()),
    ]
}

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 256;
/// The bytes of thirty of redis-benchmark's GETs, and of the replies.
const GETS: (usize, usize) = (30 * 36, 30 * (VALUE_BYTES + 8));
const STORM: Duration = Duration::from_secs(2);
/// Scrapes of `/metrics` in a round.
const SCRAPES: u32 = 200;

/// Microseconds a command of a pipeline that a server spends on encryption if it does nothing else.
fn encryption_alone() -> io::Result<f64> {
    let folder = Folder::new()?;
    let (certificate, key) = folder.certificate()?;
    let took = sealing::time(&certificate, &key, GETS.0, GETS.1, 100)?;
    Ok(took.as_secs_f64() * 1e6 / 30.0)
}

impl Contest<'_> {
    /// `off`: the user `default` of a server without others. `on`: the last of a hundred that may touch `keys`.
    fn by_user(&self, workload: &str, pipeline: usize, keys: &str) -> io::Result<f64> {
        self.fill(KEYS, VALUE_BYTES)?;
        let workload =
            Workload::by_name(workload, Protocol::Resp, KEYS, VALUE_BYTES).map_err(io::Error::other)?;
        let mut greeting = Vec::new();
        if self.is_on() {
            let mut stream = TcpStream::connect(self.server.address())?;
            for n in 0..100 {
                let name = format!("user{n}");
                stream.write_all(&request(&["ACL", "SETUSER", &name, "on", ">secret", keys, "+@all"]))?;
                let mut answer = [0; 5];
                stream.read_exact(&mut answer)?;
                if &answer != b"+OK\r\n" {
                    return Err(io::Error::other("a user was refused"));
                }
            }
            greeting = request(&["AUTH", "user99", "secret"]);
        }
        let ops = if pipeline == 1 { 200_000 } else { 3_000_000 };
        self.cpu_per_op(&workload, ops, pipeline, greeting)
    }

    /// `off`: redis-benchmark in the clear. `on`: with `--tls`.
    fn encrypted(&self, workload: &str, pipeline: u32) -> io::Result<f64> {
        self.fill(KEYS, VALUE_BYTES)?;
        let folder = Folder::new()?;
        if self.is_on() {
            let (certificate, key) = folder.certificate()?;
            let answer = self.server.ask(&[
                "CONFIG",
                "SET",
                "tls-cert-file",
                &certificate,
                "tls-key-file",
                &key,
                "tls",
                "yes",
            ])?;
            if answer != "+OK\r\n" {
                return Err(io::Error::other(answer));
            }
        }
        let ops = self.setting.scaled(if pipeline == 1 { 200_000 } else { 3_000_000 });
        let mut line: Vec<String> = format!(
            "-h 127.0.0.1 -p {} -t {workload} -d {VALUE_BYTES} -r {KEYS} -P {pipeline} -c 20 -n {ops} -q",
            self.server.address().port()
        )
        .split(' ')
        .map(str::to_owned)
        .collect();
        if self.is_on() {
            line.extend(["--tls".to_owned(), "--insecure".to_owned()]);
        }
        let before = Cpu::of(self.server.pid())?;
        let mut client = cores::bound_to(&self.setting.client_cores, || {
            Command::new(self.setting.redis_path.with_file_name("redis-benchmark"))
                .args(line)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        })?;
        let status = client.wait()?;
        let used = Cpu::of(self.server.pid())?.since(&before).total;
        if !status.success() {
            return Err(io::Error::other(format!("redis-benchmark ended with {status}")));
        }
        Ok(used.as_secs_f64() * 1e6 / ops as f64)
    }

    /// Raises the limit of connections where it is lower than a row needs.
    fn let_in(&self) -> io::Result<()> {
        let answer = self.server.ask(&["CONFIG", "SET", "maxclients", "12000"])?;
        if answer == "+OK\r\n" { Ok(()) } else { Err(io::Error::other(answer)) }
    }

    fn visit(&self) -> Visit {
        Visit {
            address: self.server.address(),
            pid: self.server.pid(),
            // A thread alone makes fewer connections than a server can take: most of the work is the kernel's, on its core.
            threads: 2,
            cores: self.setting.all_cores.clone(),
        }
    }

    /// A storm in which nobody is refused.
    fn storm(&self, guest: Guest) -> io::Result<Storm> {
        let storm = self.visit().survived(guest, STORM)?;
        match storm.failed {
            0 => Ok(storm),
            failed => Err(io::Error::other(format!("{failed} of {} were refused", storm.made + failed))),
        }
    }

    fn flood(&self, door: &Door) -> io::Result<Flood> {
        self.let_in()?;
        self.visit().flooded(door, FLOOD_RATE, STORM)
    }

    /// A connection for scrapes, of a server that has much to tell.
    fn scraper(&self) -> io::Result<Scraper> {
        self.fill(((1_000_000.0 * self.setting.scale) as u64).max(1000), 32)?;
        let open = || TcpStream::connect(self.server.address());
        let guests = (0..1000).map(|_| open()).collect::<io::Result<_>>()?;
        let mut scraper = Scraper { stream: open()?, _guests: guests };
        scraper.stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        scraper.scrape()?;
        Ok(scraper)
    }

    /// Processor time of a scrape, in microseconds.
    fn scraped(&self) -> io::Result<f64> {
        let mut scraper = self.scraper()?;
        let before = Cpu::of(self.server.pid())?;
        (0..SCRAPES).try_for_each(|_| scraper.scrape())?;
        let used = Cpu::of(self.server.pid())?.since(&before).total;
        Ok(used.as_secs_f64() * 1e6 / f64::from(SCRAPES))
    }

    /// The most processor time that one thread spent between a moment before a scrape and one after it, in microseconds.
    fn longest_scrape(&self) -> io::Result<f64> {
        let (mut scraper, pid) = (self.scraper()?, self.server.pid());
        let mut longest = Duration::ZERO;
        for _ in 0..SCRAPES {
            let before = thread_times(pid)?;
            scraper.scrape()?;
            // The kernel notes what a thread used when it goes to sleep.
            std::thread::sleep(Duration::from_millis(1));
            for (thread, after) in thread_times(pid)? {
                let used = after.saturating_sub(before.get(&thread).copied().unwrap_or_default());
                longest = longest.max(used);
            }
        }
        Ok(longest.as_secs_f64() * 1e6)
    }
}

/// Asks for `/metrics` again and again, while other clients are there.
struct Scraper {
    stream: TcpStream,
    _guests: Vec<TcpStream>,
}

impl Scraper {
    fn scrape(&mut self) -> io::Result<()> {
        self.stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")?;
        let (mut answer, mut chunk) = (Vec::new(), [0; 16 << 10]);
        loop {
            let len = self.stream.read(&mut chunk)?;
            answer.extend_from_slice(&chunk[..len]);
            if whole_answer(&answer) == Some(true) {
                return Ok(());
            }
            if len == 0 || answer.len() > 1 << 20 {
                return Err(io::Error::other("/metrics was not answered"));
            }
        }
    }
}

/// Whether a body is there as long as its head says; `None` without a whole head of a good answer.
fn whole_answer(answer: &[u8]) -> Option<bool> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let len = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let is_good = head.starts_with("HTTP/1.1 200 ");
    len.filter(|_| is_good).map(|len: usize| body.len() >= len)
}

/// A folder for a certificate, which goes with it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("darter-bench-tls-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }

    /// A certificate that signs itself, and its key; made by `openssl`.
    pub fn certificate(&self) -> io::Result<(String, String)> {
        let [certificate, key] = ["crt", "key"].map(|name| self.0.join(name).to_string_lossy().into_owned());
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ])
            .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"])
            .args(["-subj", "/CN=localhost", "-keyout", &key, "-out", &certificate])
            .output()?;
        if made.status.success() {
            Ok((certificate, key))
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()))
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder that stays behind is only untidy.
        let _ = fs::remove_dir_all(&self.0);
    }
}
