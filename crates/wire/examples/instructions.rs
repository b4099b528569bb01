//! One hot path a run, for `valgrind --tool=callgrind`: `instructions parse-get|parse-set|reply-bulk|reply-int|hash
//! N`.
//!
//! Two runs with N and 2 N give the instructions an operation takes. `loop` is the cost of the measurement itself.

use std::hint::black_box;

use darter_base::hash::KeyHasher;
use darter_wire::parser::{Parser, ParserLimits, ParserStep};
use darter_wire::reply::Reply;

fn main() {
    let mut words = std::env::args().skip(1);
    let what = words.next().unwrap_or_default();
    let rounds: usize = words.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let done = match what.as_str() {
        "parse-get" => parse(b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n", rounds),
        "parse-set" => parse(
            b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$32\r\n01234567890123456789012345678901\r\n",
            rounds,
        ),
        "parse-set-256" => {
            let value = "x".repeat(256);
            parse(
                format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$256\r\n{value}\r\n").as_bytes(),
                rounds,
            )
        }
        "parse-mget-20" => {
            let keys = "$16\r\nkey:000000000042\r\n".repeat(20);
            parse(format!("*21\r\n$4\r\nMGET\r\n{keys}").as_bytes(), rounds)
        }
        "parse-ping" => parse(b"PING\r\n", rounds),
        "reply-bulk" => reply(rounds, |r| r.bulk(black_box(b"01234567890123456789012345678901"))),
        "reply-bulk-256" => reply(rounds, |r| r.bulk(black_box(&[7; 256]))),
        "reply-int" => reply(rounds, |r| r.int(black_box(12345))),
        "reply-ok" => reply(rounds, |r| r.ok()),
        "hash-8" => hash(b"key:0042", rounds),
        "hash-16" => hash(b"key:000000000042", rounds),
        "hash-40" => hash(b"key:000000000042:000000000042:0000000042", rounds),
        "loop" => (0..rounds).map(black_box).count(),
        other => panic!("no path is called {other:?}"),
    };
    println!("{what} {done}");
}

/// Parses windows of 32 commands, as the server does.
fn parse(command: &[u8], rounds: usize) -> usize {
    let window = command.repeat(32);
    let (mut parser, limits, mut spans) = (Parser::new(), ParserLimits::default(), Vec::with_capacity(1024));
    let mut seen = 0;
    for _ in 0..rounds.div_ceil(32) {
        spans.clear();
        let mut at = 0;
        while let Some(rest) = window.get(at..)
            && let ParserStep::Command { consumed } = parser.next(rest, at as u32, &limits, &mut spans)
        {
            at += consumed;
            seen += 1;
        }
        black_box(&spans);
    }
    seen
}

fn reply(rounds: usize, write: impl Fn(&mut Reply<'_>)) -> usize {
    let mut out = Vec::with_capacity(1 << 16);
    let mut bytes = 0;
    for _ in 0..rounds.div_ceil(32) {
        out.clear();
        let mut reply = Reply::new(&mut out, false);
        for _ in 0..32 {
            write(&mut reply);
        }
        bytes += black_box(&out).len();
    }
    bytes
}

fn hash(key: &[u8], rounds: usize) -> usize {
    let hasher = KeyHasher::new(1);
    (0..rounds).fold(0, |sum, _| sum ^ hasher.hash(black_box(key)) as usize)
}
