//! The memcached family: the same random commands to Debian's memcached and to Darter, classic and meta.
//!
//! Tokens are numbers of each server's own choice, so they are compared by the order in which they appear; times are
//! compared with some seconds of tolerance, as memcached's clock ticks once a second.

mod answer;
mod draw;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use self::answer::Word;
use self::draw::Part;
pub use self::draw::{Draw, Op};

/// How many commands, from which seed.
pub struct Settings {
    /// The stream follows from it.
    pub seed: u64,
    /// Commands.
    pub ops: usize,
    /// memcached's binary.
    pub reference: String,
    /// Darter's binary.
    pub peer: String,
}

/// Compares; returns the number of differences, 0 or 1.  Errors: a server cannot be started.
pub fn compare(settings: &Settings) -> io::Result<usize> {
    // Its own threads take references now and then, which shows in how numbers are padded.
    let still = ["-o", "no_lru_crawler,no_lru_maintainer"];
    let mut left = Side::start(Command::new(&settings.reference).args(still).args([
        "-u",
        "nobody",
        "-l",
        "127.0.0.1",
        "-p",
    ]))?;
    let peer_flags = ["--bind", "127.0.0.1", "--proactor_threads", "2", "--dbfilename", "", "--port", "0"];
    let mut right = Side::start(Command::new(&settings.peer).args(peer_flags).arg("--memcached_port"))?;
    let began = Instant::now();
    let mut draw = Draw::new(settings.seed);
    let ops: Vec<Op> = (0..settings.ops).map(|_| draw.next()).collect();
    let Some(at) = first_difference(&mut left, &mut right, &ops)? else {
        let rate = ops.len() as f64 / began.elapsed().as_secs_f64();
        println!("memcached: {} ops the same ({rate:.0}/s)", ops.len());
        return Ok(0);
    };
    let short = shorten(&mut left, &mut right, &ops[..=at])?;
    println!("\nDIFFERENCE in memcached, seed {}, {} ops:", settings.seed, short.len());
    for side in [&mut left, &mut right] {
        side.reset()?;
    }
    for op in &short {
        let answers = [left.ask(std::slice::from_ref(op))?, right.ask(std::slice::from_ref(op))?];
        println!(
            "  {op}\n     memcached: {}\n        darter: {}",
            show(&answers[0][0]),
            show(&answers[1][0])
        );
    }
    println!("  again: darter-compat --family memcached --seed {} --ops {}\n", settings.seed, settings.ops);
    Ok(1)
}

fn show(answer: &[Word]) -> String {
    answer.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Commands sent in one write.
const BATCH: usize = 16;

fn first_difference(left: &mut Side, right: &mut Side, ops: &[Op]) -> io::Result<Option<usize>> {
    left.reset()?;
    right.reset()?;
    let mut from = 0;
    while from < ops.len() {
        let rest = &ops[from..ops.len().min(from + BATCH)];
        let len = rest.iter().skip(1).position(|op| op.counts).map_or(rest.len(), |at| at + 1);
        let (here, there) = (left.ask(&rest[..len])?, right.ask(&rest[..len])?);
        if let Some(at) = here.iter().zip(&there).position(|(here, there)| !answer::is_same(here, there)) {
            return Ok(Some(from + at));
        }
        from += len;
    }
    Ok(None)
}

/// Drops commands as long as the last one is still answered differently.
fn shorten(left: &mut Side, right: &mut Side, ops: &[Op]) -> io::Result<Vec<Op>> {
    let (mut best, began) = (ops.to_vec(), Instant::now());
    let mut step = best.len().div_ceil(2);
    while step > 0 && began.elapsed() < Duration::from_secs(20) {
        let mut from = 0;
        while from + 1 < best.len() && began.elapsed() < Duration::from_secs(20) {
            let to = (from + step).min(best.len() - 1);
            let fewer: Vec<Op> = best[..from].iter().chain(&best[to..]).cloned().collect();
            match first_difference(left, right, &fewer)? {
                Some(at) => best = fewer[..=at].to_vec(),
                None => from = to,
            }
        }
        step /= 2;
    }
    Ok(best)
}

/// One of the two servers.
struct Side {
    process: Child,
    address: SocketAddr,
    stream: TcpStream,
    // The tokens of each key, in the order they appeared.
    tokens: HashMap<Vec<u8>, Vec<u64>>,
}

impl Side {
    /// Starts a program whose last argument is to be its port.
    fn start(command: &mut Command) -> io::Result<Side> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let process = command.arg(port.to_string()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut guard = Ending(Some(process));
        let began = Instant::now();
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > Duration::from_secs(60) => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        let process = guard.0.take().ok_or_else(|| io::Error::other("no process"))?;
        Ok(Side { process, address, stream, tokens: HashMap::new() })
    }

    fn reset(&mut self) -> io::Result<()> {
        self.stream = TcpStream::connect(self.address)?;
        self.stream.set_nodelay(true)?;
        self.stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        self.tokens.clear();
        self.exchange(b"flush_all\r\nmn\r\n", 1).map(|_| ())
    }

    /// Sends commands in one write and reads their answers.
    fn ask(&mut self, ops: &[Op]) -> io::Result<Vec<Vec<Word>>> {
        let mut bytes = Vec::new();
        for op in ops {
            for part in &op.parts {
                match part {
                    Part::Bytes(part) => bytes.extend_from_slice(part),
                    Part::Token(back) => {
                        bytes.extend_from_slice(self.token(&op.key, *back).to_string().as_bytes())
                    }
                }
            }
            bytes.extend_from_slice(b"mn\r\n");
        }
        let answers = self.exchange(&bytes, ops.len())?;
        Ok(ops.iter().zip(answers).map(|(op, text)| answer::words(op, &text, &mut self.tokens)).collect())
    }

    /// The token that appeared for a key `back` tokens ago.
    fn token(&self, key: &[u8], back: usize) -> u64 {
        let seen = self.tokens.get(key).map_or(&[][..], Vec::as_slice);
        seen.iter().rev().nth(back.min(seen.len().saturating_sub(1))).copied().unwrap_or(1)
    }

    /// Sends bytes and reads what comes before each of `count` MN lines.
    fn exchange(&mut self, bytes: &[u8], count: usize) -> io::Result<Vec<Vec<u8>>> {
        self.stream.write_all(bytes)?;
        let (mut inbox, mut answers) = (Vec::new(), Vec::new());
        loop {
            let mut part = [0; 16 << 10];
            let len = self.stream.read(&mut part)?;
            if len == 0 {
                return Err(io::Error::other("the server closed the connection"));
            }
            inbox.extend_from_slice(&part[..len]);
            while let Some(end) = answer::end_of(&inbox) {
                answers.push(inbox[..end].to_vec());
                inbox.drain(..end + 4);
            }
            if answers.len() >= count {
                return Ok(answers);
            }
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // Killing our own child can only fail when it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A process that ends with a failed start.
struct Ending(Option<Child>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
