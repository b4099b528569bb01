//! A pipeline of GETs and SETs of keys that are there allocates nothing: not for a command, not for a window.

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use darter_config::{Settings, Startup};
use darter_reactor::{Config, DriverChoice, Reactor, Socket};
use darter_server::clients::ClientInfo;
use darter_server::conn::Conn;
use darter_server::conn::window::ConnWindow;
use darter_server::protocol::ListenerKind;
use darter_server::protocol::Protocol;
use darter_server::session::Session;
use darter_server::start;
use darter_server::thread_state::ThreadState;
use darter_slab::counting::{Counting, made};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const KEYS: u32 = 1000;

/// A pipeline of one command for each key.
fn pipeline(verb: &str, value: Option<&str>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..KEYS {
        let mut words = vec![verb.to_owned(), format!("key:{n:012}")];
        words.extend(value.map(str::to_owned));
        bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }
    bytes
}

#[test]
fn reading_and_overwriting_what_is_there_allocates_nothing() {
    let flags = ["allocations", "--proactor_threads=1"].map(OsString::from);
    let Ok(Startup::Serve { settings, .. }) = Settings::parse(flags, []) else {
        panic!("the settings are valid")
    };
    let live = settings.live();
    let shared = start::build(Arc::new(*settings), &live, 1).expect("address space");
    let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
    let (end, _other) = UnixStream::pair().expect("a socket pair");
    let token = reactor.register(Socket::from_unix(end).expect("non-blocking")).expect("room");
    let mut local = ThreadState::new(shared, 0);
    let info = Arc::new(ClientInfo::new(1, (0, token, 0), String::new(), String::new(), false, 0));
    let mut session = Session::new(1, ListenerKind::Main, false, shared.acl.default_user());
    session.protocol = Protocol::Resp;
    let mut conn = Conn::new(token, session, info);
    let mut window = ConnWindow::default();

    let value = "v".repeat(32);
    let other = "w".repeat(30);
    let runs = [
        ("SET", pipeline("SET", Some(&value)), KEYS as usize * 5),
        ("GET", pipeline("GET", None), KEYS as usize * (32 + 7)),
        ("SET of another length", pipeline("SET", Some(&other)), KEYS as usize * 5),
        ("STRLEN", pipeline("STRLEN", None), KEYS as usize * 5),
    ];
    for looks_ahead in [false, true] {
        local.looks_ahead = looks_ahead;
        for (name, bytes, replies_bytes) in &runs {
            // The first time makes keys, buffers and the histograms of what is timed.
            for is_counted in [false, true] {
                conn.output.clear();
                let before = made();
                conn.receive(&mut local, &mut window, bytes);
                let allocations = made() - before;
                assert_eq!(conn.output.len(), *replies_bytes, "{name}");
                if is_counted {
                    assert_eq!(allocations, 0, "{name}, looking ahead: {looks_ahead}");
                } else if *name == "SET" && !looks_ahead {
                    assert!(allocations > 0, "the allocator counts");
                }
            }
        }
    }
}
