//! Sequences of commands that follow from the rows (`Spec::syntax`), run by two ways on a live server: one after the
//! other, and in one transaction or by scripts. Both must give the same replies and leave the same data behind.
//! `tests/server/equivalence` of the binary is the form without a fuzzer, with more ways and more that is compared.
#![no_main]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use darter_command::Spec;
use darter_config::{Settings, Startup};

#[path = "../../crates/darter/tests/server/equivalence/draw.rs"]
#[allow(dead_code)]
mod draw;

use draw::Choices;

/// Commands of one sequence.
const COMMANDS_MAX: usize = 24;

/// The fuzzer's bytes decide; behind their end everything is the first choice.
struct Bytes<'b>(&'b [u8]);

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return bound - 1 };
        self.0 = rest;
        usize::from(*first) % bound
    }
}

/// The port of the server, which is started once and lives as long as the fuzzer.
fn port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr()).expect("a port").port();
        let flags = [
            "fuzz".to_owned(),
            format!("--port={port}"),
            "--bind=127.0.0.1".to_owned(),
            "--proactor_threads=2".to_owned(),
            "--dbfilename=".to_owned(),
            "--enable-debug-command=yes".to_owned(),
        ];
        let Ok(Startup::Serve { settings, .. }) =
            Settings::parse(flags.map(std::ffi::OsString::from), std::iter::empty())
        else {
            panic!("the flags are good")
        };
        std::thread::spawn(move || darter_server::start::serve(Arc::new(*settings)).expect("it serves"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "it does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        port
    })
}

/// A connection.
struct Link(BufReader<TcpStream>);

impl Link {
    fn open() -> Link {
        let stream = TcpStream::connect(("127.0.0.1", port())).expect("it accepts");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
        stream.set_nodelay(true).expect("an option");
        Link(BufReader::new(stream))
    }

    fn send(&mut self, args: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).expect("sent");
    }

    /// The bytes of one reply of RESP2.
    fn read(&mut self) -> Vec<u8> {
        let mut reply = Vec::new();
        self.0.read_until(b'\n', &mut reply).expect("an answer in time");
        let length = |line: &[u8]| std::str::from_utf8(&line[1..]).ok()?.trim_end().parse::<usize>().ok();
        match (reply.first(), length(&reply)) {
            (Some(b'$'), Some(len)) => {
                let head = reply.len();
                reply.resize(head + len + 2, 0);
                self.0.read_exact(&mut reply[head..]).expect("an answer in time");
            }
            (Some(b'*'), Some(len)) => (0..len).for_each(|_| reply.extend(self.read())),
            _ => {}
        }
        reply
    }

    fn call(&mut self, args: &[&[u8]]) -> Vec<u8> {
        self.send(args);
        self.read()
    }
}

/// The replies to `commands`, each sent alone.
fn alone(link: &mut Link, commands: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    commands.iter().map(|args| link.call(&words(args))).collect()
}

/// The same in one transaction.
fn together(link: &mut Link, commands: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    link.call(&[b"MULTI"]);
    commands.iter().for_each(|args| drop(link.call(&words(args))));
    link.send(&[b"EXEC"]);
    let mut head = Vec::new();
    link.0.read_until(b'\n', &mut head).expect("an answer in time");
    assert_eq!(head, format!("*{}\r\n", commands.len()).into_bytes());
    commands.iter().map(|_| link.read()).collect()
}

/// The same by a script each.
fn scripted(link: &mut Link, commands: &[Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let head: [&[u8]; 3] = [b"EVAL", b"return redis.pcall(unpack(ARGV))", b"0"];
    commands.iter().map(|args| link.call(&[&head[..], &words(args)].concat())).collect()
}

fn words(args: &[Vec<u8>]) -> Vec<&[u8]> {
    args.iter().map(Vec::as_slice).collect()
}

/// A reply as ways may differ in it: the kind of a null, the words of an error, and an integer that no double holds.
fn plain(reply: &[u8]) -> Vec<u8> {
    const DIGITS_MAX: usize = 15;
    let line = |line: &[u8]| match line.first() {
        Some(b'-') => b"-".to_vec(),
        Some(b':') if line.len() > DIGITS_MAX => b":long".to_vec(),
        Some(b'*') if line == b"*-1\r" => b"$-1\r".to_vec(),
        _ => line.to_vec(),
    };
    reply.split(|byte| *byte == b'\n').map(line).collect::<Vec<_>>().join(&b'\n')
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static FAMILIES: OnceLock<Vec<Vec<&'static Spec>>> = OnceLock::new();
    let families = FAMILIES.get_or_init(|| draw::families().map(|(_, rows)| rows).collect());
    let mut choices = Bytes(bytes);
    let way = choices.below(2);
    let rows = &families[choices.below(families.len())];
    let mut commands = Vec::new();
    let mut free = Vec::new();
    while commands.len() < COMMANDS_MAX && !choices.0.is_empty() {
        let spec = rows[choices.below(rows.len())];
        let args = draw::command(spec, &mut choices);
        // MULTI would refuse to queue it.
        if spec.accepts(args.len()) {
            commands.push(args);
            free.push(spec.tips.contains(&"nondeterministic_output"));
        }
    }
    let mut link = Link::open();
    let mut run = |by: fn(&mut Link, &[Vec<Vec<u8>>]) -> Vec<Vec<u8>>| {
        link.call(&[b"FLUSHALL"]);
        let replies = by(&mut link, &commands);
        (replies, link.call(&[b"DBSIZE"]))
    };
    let (left, right) = (run(alone), run(if way == 0 { together } else { scripted }));
    for (at, (mine, theirs)) in left.0.iter().zip(&right.0).enumerate() {
        let (mine, theirs) = (plain(mine), plain(theirs));
        let is_same = if free[at] { mine.first() == theirs.first() } else { mine == theirs };
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        assert!(
            is_same,
            "{}: {} and {}",
            shown(&commands[at].join(&b' ')),
            shown(&mine),
            shown(&theirs)
        );
    }
    assert_eq!(left.1, right.1);
});
