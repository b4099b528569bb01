//! A real server process on a loopback port, and a client that reads both protocols.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a test waits for takes no longer, even where other processes have the cores.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub mod browser;
pub mod folder;
pub mod journal;
pub mod log;
pub mod raw;
pub mod strace;

/// A server that ends with the test.
pub struct Server {
    process: Child,
    port: u16,
    log: log::Log,
}

impl Server {
    /// Starts a server with `flags` and waits until it listens, and has loaded what its folder holds.
    pub fn start(flags: &[&str]) -> Server {
        let server = Server::start_loading(flags);
        if flags.contains(&"--dir") {
            drop(server.client().loaded());
        }
        server
    }

    /// As [`Server::start`], but it may still be loading.
    pub fn start_loading(flags: &[&str]) -> Server {
        Server::start_with_file(None, flags)
    }

    /// As [`Server::start`], with a configuration file.
    pub fn start_with_file(file: Option<&str>, flags: &[&str]) -> Server {
        Server::launch(file, &[], flags)
    }

    /// As [`Server::start`], with more in its environment.
    pub fn start_with_env(env: &[(&str, &str)], flags: &[&str]) -> Server {
        Server::launch(None, env, flags)
    }

    fn launch(file: Option<&str>, env: &[(&str, &str)], flags: &[&str]) -> Server {
        for _ in 0..5 {
            let (port, log) = (free_port(), log::Log::new());
            let mut process = Command::new(env!("CARGO_BIN_EXE_darter"))
                .args(file)
                .args(["--bind", "127.0.0.1", "--save", "", "--dbfilename", "", "--port", &port.to_string()])
                .args(flags)
                .envs(env.iter().copied())
                .stdout(log.output())
                .stderr(log.output())
                .spawn()
                .expect("the server starts");
            let began = Instant::now();
            while began.elapsed() < PATIENCE {
                if listens(process.id(), port) {
                    return Server { process, port, log };
                }
                if process.try_wait().expect("its state").is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        panic!("the server does not listen");
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until it has ended by itself; returns whether it says that all is well.
    pub fn wait_for_end(mut self) -> bool {
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("its state") {
                return status.success();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it, and waits until the kernel has taken back what it had.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Waits until the server's log has `what` at least `times` times.
    pub fn wait_until_it_says(&self, what: &str, times: usize) {
        wait_until(&format!("it says '{what}' {times} times"), || self.says(what) >= times);
    }

    /// How often its log has `what`.
    pub fn says(&self, what: &str) -> usize {
        self.log.text().matches(what).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            self.log.show(self.port);
        }
    }
}

/// Whether this very process listens on the port: a neighbour's test may have been given the same one.
pub fn listens(pid: u32, port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let local = format!("0100007F:{port:04X}");
    let inodes: Vec<&str> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(1) == Some(&local.as_str()) && words.get(3) == Some(&"0A"))
        .filter_map(|words| words.get(9).copied())
        .collect();
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        inodes.iter().any(|inode| target == format!("socket:[{inode}]"))
    })
}

/// Waits until `is_so`; `what` says what was waited for.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A port on which nobody listens, another one each time. Below those that the kernel gives to whoever connects: between the
/// choice and the start of a server one of these would be taken by a neighbour's test.
///
/// Another process that runs tests neither gives it nor tries whether it is free: ports come in blocks, and who gives those
/// of a block listens on its first one for as long as it lives.
pub fn free_port() -> u16 {
    const FIRST: u16 = 10_000;
    const BLOCK: u16 = 100;
    const BLOCKS: u16 = 220;
    static OWN: Mutex<(Vec<TcpListener>, Range<u16>)> = Mutex::new((Vec::new(), 0..0));
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    let (blocks, left) = &mut *own;
    let listen = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
    loop {
        if let Some(port) = left.find(|&port| listen(port).is_some()) {
            return port;
        }
        let mut firsts = (0..BLOCKS).map(|block| FIRST + block * BLOCK);
        let found = firsts.find_map(|first| Some((listen(first)?, first)));
        let (listener, first) = found.expect("a block of ports");
        blocks.push(listener);
        *left = first + 1..first + BLOCK;
    }
}

/// A reply of either protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// A status line.
    Status(String),
    /// An error line.
    Error(String),
    /// An integer.
    Int(i64),
    /// A string.
    Text(String),
    /// No value.
    Null,
    /// An array, set, push, or a map as pairs.
    Array(Vec<Value>),
}

impl Value {
    /// `+OK`.
    pub fn ok() -> Value {
        Value::Status("OK".to_owned())
    }

    /// An error line.
    pub fn error(line: &str) -> Value {
        Value::Error(line.to_owned())
    }

    /// An array of strings; one that starts with `:` is an integer.
    pub fn array(items: &[&str]) -> Value {
        let value = |item: &&str| match item.strip_prefix(':') {
            Some(digits) => Value::Int(digits.parse().expect("an integer")),
            None => Value::Text((*item).to_owned()),
        };
        Value::Array(items.iter().map(value).collect())
    }
}

/// A connection to the server, by default a plain one.
pub struct Client<S = TcpStream> {
    reader: BufReader<S>,
}

impl Client {
    /// A connection to a server on `port`.
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Client::over(stream)
    }

    /// Waits until the server has loaded what it begins with.
    pub fn loaded(mut self) -> Client {
        let began = Instant::now();
        while matches!(self.call(&["PING"]), Value::Error(line) if line.starts_with("LOADING ")) {
            assert!(began.elapsed() < PATIENCE, "still loading");
            std::thread::sleep(Duration::from_millis(5));
        }
        self
    }

    /// Returns true if something to read has come; it does not wait.
    pub fn has_reply(&mut self) -> bool {
        if !self.reader.buffer().is_empty() {
            return true;
        }
        let stream = self.stream();
        stream.set_nonblocking(true).expect("an option");
        let has_come = stream.peek(&mut [0]).is_ok();
        stream.set_nonblocking(false).expect("an option");
        has_come
    }

    /// Its own address.
    pub fn local(&self) -> String {
        self.reader.get_ref().local_addr().expect("an address").to_string()
    }
}

impl<S: Read + Write> Client<S> {
    /// A client over a stream that is connected.
    pub fn over(stream: S) -> Client<S> {
        Client { reader: BufReader::new(stream) }
    }

    /// The stream, to write to it.
    pub fn stream(&mut self) -> &mut S {
        self.reader.get_mut()
    }

    /// Sends commands at once.
    pub fn send_all(&mut self, commands: &[&[&str]]) {
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for arg in *command {
                bytes.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
            }
        }
        self.stream().write_all(&bytes).expect("sent");
    }

    /// Runs a command for all of `0..count`, 500 at a time: `head`, then what `args` appends for each.
    pub fn call_for_each(&mut self, head: &[&str], count: u64, args: impl Fn(u64, &mut Vec<String>)) {
        for first in (0..count).step_by(500) {
            let mut words: Vec<String> = head.iter().map(|word| (*word).to_owned()).collect();
            (first..count.min(first + 500)).for_each(|n| args(n, &mut words));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert!(!matches!(self.call(&words), Value::Error(_)));
        }
    }

    /// A field of a section of INFO.
    pub fn info<T: std::str::FromStr>(&mut self, section: &str, name: &str) -> T {
        let Value::Text(text) = self.call(&["INFO", section]) else { panic!("no text") };
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in {text}"))
    }

    /// Sends a command and reads its reply.
    pub fn call(&mut self, command: &[&str]) -> Value {
        self.send_all(&[command]);
        self.read()
    }

    /// Sends a command to a server that may have gone; false: it has.
    pub fn try_send(&mut self, command: &[&str]) -> bool {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for arg in command {
            bytes.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
        }
        self.stream().write_all(&bytes).is_ok()
    }

    /// Reads one reply, however it comes; `None`: the connection ends before it is whole, or the time is up.
    pub fn try_read(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).ok()?;
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r\n")?).into_owned();
        let (kind, rest) = line.split_at(1);
        Some(match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(rest.parse().ok()?),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().ok()? + 2];
                self.reader.read_exact(&mut bytes).ok()?;
                Value::Text(String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned())
            }
            "*" => {
                let len: usize = rest.parse().ok()?;
                Value::Array((0..len).map(|_| self.try_read()).collect::<Option<_>>()?)
            }
            _ => panic!("no reply: {line:?}"),
        })
    }

    /// As [`Client::call`], for a server that may close the connection.
    pub fn try_call(&mut self, command: &[&str]) -> Option<Value> {
        let line = command.join(" ") + "\r\n";
        self.stream().write_all(line.as_bytes()).ok()?;
        self.reader.fill_buf().ok().filter(|bytes| !bytes.is_empty())?;
        Some(self.read())
    }

    /// Reads a line without its end.
    pub fn read_line(&mut self) -> String {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line).expect("a line in time");
        let line = line.strip_suffix(b"\r\n").expect("a whole line");
        String::from_utf8_lossy(line).into_owned()
    }

    /// Reads `len` bytes.
    pub fn read_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.reader.read_exact(&mut bytes).expect("bytes in time");
        bytes
    }

    /// Reads one reply.
    pub fn read(&mut self) -> Value {
        let line = self.read_line();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().expect("a number");
        match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(number()),
            "_" => Value::Null,
            "," | "#" | "(" => Value::Text(rest.to_owned()),
            "$" | "=" => {
                let Ok(len) = usize::try_from(number()) else { return Value::Null };
                let mut bytes = vec![0; len + 2];
                self.reader.read_exact(&mut bytes).expect("a string in time");
                let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
                Value::Text(if kind == "=" { text[4..].to_owned() } else { text })
            }
            "*" | "~" | ">" | "%" => {
                let Ok(len) = usize::try_from(number()) else { return Value::Null };
                let len = if kind == "%" { len * 2 } else { len };
                Value::Array((0..len).map(|_| self.read()).collect())
            }
            _ => panic!("no reply: {line:?}"),
        }
    }

    /// Whether the server closes the connection without saying more; waits for it.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
