//! The way of a command without sockets, for `valgrind --tool=callgrind`: parse, dispatch, run, reply.
//!
//! `dispatch OPS get|set|setex|incr|expire|ttl|exists|append|mget|mset [DEPTH [near|far]]`: OPS commands in pipelines of DEPTH (30)
//! over 10,000 keys of 16 bytes with values of 32 bytes; MGET and MSET take ten keys each. With `far`
//! the server looks ahead as it does when the data is more than the processor's cache holds. Instructions per command are the difference between two runs; `darter-bench instructions` takes it.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use darter_reactor::{Config, DriverChoice, Reactor, Socket};
use darter_server::clients::ClientCard;
use darter_server::config::{Settings, Startup};
use darter_server::conn::Conn;
use darter_server::core::Core;
use darter_server::listening::ListenerKind;
use darter_server::session::Session;
use darter_server::start;
use darter_server::window::Window;

const KEYS: u32 = 10_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let ops: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(300_000);
    let verb = args.next().unwrap_or_else(|| "get".into());
    let depth: u32 = args.next().and_then(|n| n.parse().ok()).unwrap_or(30);

    let flags = ["dispatch", "--proactor_threads=1"].map(OsString::from);
    let Ok(Startup::Serve { settings, .. }) = Settings::parse(flags, []) else {
        panic!("the settings are valid")
    };
    let live = settings.live();
    let shared = start::build(Arc::new(*settings), &live, 1).expect("address space");
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    let (end, _other) = UnixStream::pair().expect("a socket pair");
    let token =
        reactor.register(Socket::from_unix(end).expect("non-blocking")).expect("room for a connection");
    let mut core = Core::new(shared, 0);
    core.looks_ahead = args.next().is_some_and(|distance| distance == "far");
    let card = Arc::new(ClientCard::new(1, (0, token, 0), String::new(), String::new(), false, 0));
    let mut conn =
        Conn::new(token, Session::new(1, ListenerKind::Main, false, shared.acl.default_user()), card);
    let mut window = Window::default();

    let pipelines = |verb: &str| -> Vec<Vec<u8>> {
        let mut key = 0;
        (0..KEYS / depth)
            .map(|_| {
                let mut bytes = Vec::new();
                for _ in 0..depth {
                    key = (key + 7919) % KEYS;
                    write_command(&mut bytes, verb, key);
                }
                bytes
            })
            .collect()
    };
    let mut run = |pipelines: &[Vec<u8>], ops: u32| {
        let mut replies = 0;
        for n in 0..ops / depth {
            conn.receive(&mut core, &mut window, &pipelines[n as usize % pipelines.len()]);
            replies += conn.output.len();
            conn.output.clear();
        }
        replies
    };
    run(&pipelines(if verb == "incr" { "zero" } else { "set" }), KEYS);
    println!("{} bytes of replies", run(&pipelines(&verb), ops));
}

/// Appends one command of the verb's kind about `key`.
fn write_command(bytes: &mut Vec<u8>, verb: &str, key: u32) {
    let name = |n: u32| format!("key:{:012}", n % KEYS);
    let value = format!("{key:032}");
    let ten = || (0..10).map(|n| name(key + 997 * n));
    let words: Vec<String> = match verb {
        "zero" => vec!["SET".into(), name(key), "1000000".into()],
        "set" => vec!["SET".into(), name(key), value],
        "setex" => vec!["SET".into(), name(key), value, "EX".into(), "100".into()],
        "incr" => vec!["INCR".into(), name(key)],
        "expire" => vec!["EXPIRE".into(), name(key), "100".into()],
        "ttl" => vec!["TTL".into(), name(key)],
        "exists" => vec!["EXISTS".into(), name(key)],
        "append" => vec!["APPEND".into(), name(key), "x".into()],
        "mget" => std::iter::once("MGET".into()).chain(ten()).collect(),
        "mset" => std::iter::once("MSET".into()).chain(ten().flat_map(|n| [n, value.clone()])).collect(),
        _ => vec!["GET".into(), name(key)],
    };
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}
