//! The way of a command without sockets, for `valgrind --tool=callgrind`: parse, dispatch, run, reply.
//!
//! `dispatch OPS get|set [DEPTH]`: OPS commands in pipelines of DEPTH (30) over 10,000 keys of 16 bytes with values of
//! 32 bytes. Instructions per command are the difference between two runs; `darter-bench instructions` takes it.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use darter_reactor::{Config, DriverChoice, Reactor, Socket};
use darter_server::clients::ClientCard;
use darter_server::config::{Settings, Startup};
use darter_server::conn::{Conn, Window};
use darter_server::core::Core;
use darter_server::session::Session;
use darter_server::start;

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
    let card = Arc::new(ClientCard::new(1, (0, token, 0), String::new(), String::new(), false, 0));
    let mut conn = Conn::new(token, Session::new(1, false), card);
    let mut window = Window::default();

    let pipelines = |verb: &str| -> Vec<Vec<u8>> {
        let mut key = 0;
        (0..KEYS / depth)
            .map(|_| {
                let mut bytes = Vec::new();
                for _ in 0..depth {
                    key = (key + 7919) % KEYS;
                    match verb {
                        "set" => bytes.extend_from_slice(
                            format!("*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n$32\r\n{key:032}\r\n")
                                .as_bytes(),
                        ),
                        _ => bytes.extend_from_slice(
                            format!("*2\r\n$3\r\nGET\r\n$16\r\nkey:{key:012}\r\n").as_bytes(),
                        ),
                    }
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
    run(&pipelines("set"), KEYS);
    println!("{} bytes of replies", run(&pipelines(&verb), ops));
}
