//! Two threads by turns, each with keys of shards that the other never touches: what both of them touch, and one writes,
//! is what a command costs more the more threads there are.
//!
//! `sharing VERB[+journal] [DEPTH]`, run by `cargo xtask sharing` under valgrind, which lists every address. It prints
//! where the marks lie and waits for a line; the marks then say who runs. Without sockets, as `dispatch`.

mod in_process;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};

use darter_reactor::{Config, DriverChoice, Reactor, Socket};
use darter_server::clients::ClientInfo;
use darter_server::conn::Conn;
use darter_server::conn::window::ConnWindow;
use darter_server::journal::turn;
use darter_server::protocol::ListenerKind;
use darter_server::session::Session;
use darter_server::shared::Shared;
use darter_server::thread_state::ThreadState;
use in_process::InProcess;

/// A line of its own for each mark: thread 0 begins, thread 1 begins, a batch begins, nobody counts.
#[repr(align(64))]
struct Mark(AtomicU64);

static MARKS: [Mark; 4] = [const { Mark(AtomicU64::new(0)) }; 4];
const BATCH: usize = 2;
const NOBODY: usize = 3;

fn mark(which: usize) {
    MARKS[which].0.store(1, SeqCst);
}

/// Keys of each thread.
const KEYS: usize = 512;
/// Turns of each thread, and batches in one.
const TURNS: usize = 8;
const BATCHES: usize = 8;

fn main() {
    let mut args = std::env::args().skip(1);
    let verb = args.next().unwrap_or_else(|| "get".into());
    let depth: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(16);
    let (verb, how) = verb.split_once('+').map_or((verb.as_str(), ""), |(verb, how)| (verb, how));
    let (verb, is_journalled) = (verb.to_owned(), how == "journal");
    let server = InProcess::start("sharing", 2, how);
    let shared = server.shared;
    let ready = Arc::new(Barrier::new(3));
    let (to_first, first) = channel();
    let (to_second, second) = channel();
    let threads = [(0, first, to_second), (1, second, to_first.clone())].map(|(at, from, to)| {
        let (verb, ready) = (verb.clone(), ready.clone());
        std::thread::spawn(move || {
            let mut one = One::new(shared, at, is_journalled);
            one.fill(&verb);
            let batches = one.batches(&verb, depth);
            one.run(&batches, false);
            ready.wait();
            one.take_turns(&batches, &from, &to);
        })
    });
    ready.wait();
    let places = MARKS.each_ref().map(|mark| format!("{:x}", std::ptr::from_ref(mark).addr()));
    println!("{}", places.join(" "));
    std::io::stdout().flush().expect("somebody listens");
    std::io::stdin().read_line(&mut String::new()).expect("a line");
    to_first.send(()).expect("the first thread waits");
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// A thread with one connection.
struct One {
    thread: usize,
    local: ThreadState,
    conn: Conn,
    window: ConnWindow,
    names: Vec<String>,
    is_journalled: bool,
    _ends: (Reactor, UnixStream),
}

impl One {
    fn new(shared: &'static Shared, thread: usize, is_journalled: bool) -> One {
        let at = u16::try_from(thread).expect("two threads");
        let mut reactor = Reactor::new(DriverChoice::Epoll, &Config::default()).expect("epoll");
        let (end, other) = UnixStream::pair().expect("a socket pair");
        let token = reactor.register(Socket::from_unix(end).expect("non-blocking")).expect("room");
        let local = ThreadState::new(shared, at);
        let name = String::new;
        let info = Arc::new(ClientInfo::new(1, (at, token, 0), name(), name(), false, 0));
        let session = Session::new(1, ListenerKind::Main, false, shared.acl.default_user());
        let conn = Conn::new(token, session, info);
        let is_own = |name: &String| {
            let hash = shared.router.key(name.as_bytes()).hash;
            usize::from(shared.router.shard_of(hash)) % 2 == thread
        };
        let names = (0..).map(|n| format!("key:{n:012}")).filter(is_own).take(KEYS).collect();
        let window = ConnWindow::default();
        One { thread, local, conn, window, names, is_journalled, _ends: (reactor, other) }
    }

    fn fill(&mut self, verb: &str) {
        let kind = if verb == "hset" { "hset" } else { "set" };
        let batches = self.batches(kind, 1);
        self.run(&batches, false);
    }

    fn batches(&self, verb: &str, depth: usize) -> Vec<Vec<u8>> {
        let value = "a value of thirty-two bytes here";
        let command = |name: &String| match verb {
            "get" => format!("*2\r\n$3\r\nGET\r\n$16\r\n{name}\r\n"),
            "set" => format!("*3\r\n$3\r\nSET\r\n$16\r\n{name}\r\n$32\r\n{value}\r\n"),
            "hset" => format!("*4\r\n$4\r\nHSET\r\n$16\r\n{name}\r\n$1\r\nf\r\n$32\r\n{value}\r\n"),
            _ => panic!("no such verb: {verb}"),
        };
        self.names
            .chunks(depth)
            .map(|names| names.iter().map(command).collect::<String>().into_bytes())
            .collect()
    }

    fn run(&mut self, batches: &[Vec<u8>], is_marked: bool) {
        for bytes in batches {
            if is_marked {
                mark(BATCH);
            }
            self.conn.receive(&mut self.local, &mut self.window, bytes);
            if self.is_journalled {
                turn::commit(&mut self.local);
            }
            assert!(!self.conn.output.starts_with(b"-"), "{}", String::from_utf8_lossy(&self.conn.output));
            self.conn.output.clear();
        }
    }

    fn take_turns(&mut self, batches: &[Vec<u8>], from: &Receiver<()>, to: &Sender<()>) {
        for turn in 0..TURNS {
            from.recv().expect("the other thread goes on");
            let start = turn * BATCHES % (batches.len() - BATCHES + 1);
            mark(self.thread);
            self.run(&batches[start..start + BATCHES], true);
            mark(NOBODY);
            // The other thread may have ended.
            let _ = to.send(());
        }
    }
}
