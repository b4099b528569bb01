//! Races between a registration and a change or a disconnect, against a real server with several threads.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::journal::setting;
use crate::harness::{Client, Server, Value, wait_until};

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

fn invalidation(key: &str) -> Value {
    Value::Array(vec![text("invalidate"), Value::Array(vec![text(key)])])
}

/// How a caching client asks to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Default,
    OptIn,
    OptOut,
    Broadcast,
    NoLoop,
    Redirect,
}

/// How it reads a key.
#[derive(Clone, Copy, Debug)]
enum Read {
    Get,
    Mget,
    Pipeline,
    Exec,
    Eval,
    EvalOther,
    Function,
}

const MODES: [Mode; 6] =
    [Mode::Default, Mode::OptIn, Mode::OptOut, Mode::Broadcast, Mode::NoLoop, Mode::Redirect];
const READS: [Read; 7] =
    [Read::Get, Read::Mget, Read::Pipeline, Read::Exec, Read::Eval, Read::EvalOther, Read::Function];
const READERS: usize = 10;

/// A caching client: the connection that reads, and the one that hears, if that is another one.
struct Cache {
    mode: Mode,
    reader: Client,
    listener: Option<Client>,
    value: Option<i64>,
}

impl Cache {
    fn new(server: &Server, mode: Mode) -> Cache {
        let mut reader = server.client();
        reader.call(&["HELLO", "3"]);
        let mut listener = None;
        let words: &[&str] = match mode {
            Mode::Default => &[],
            Mode::OptIn => &["OPTIN"],
            Mode::OptOut => &["OPTOUT"],
            Mode::Broadcast => &["BCAST"],
            Mode::NoLoop => &["NOLOOP"],
            Mode::Redirect => {
                let mut client = server.client();
                client.call(&["HELLO", "3"]);
                let Value::Int(id) = client.call(&["CLIENT", "ID"]) else { panic!("no id") };
                listener = Some(client);
                &["REDIRECT", &id.to_string()]
            }
        };
        let command = [&["CLIENT", "TRACKING", "ON"], words].concat();
        assert_eq!(reader.call(&command), Value::ok());
        Cache { mode, reader, listener, value: None }
    }

    /// The next reply to the reader; invalidations before it empty the cache.
    fn reply(&mut self) -> Value {
        loop {
            let value = self.reader.read();
            if value != invalidation("k") {
                return value;
            }
            self.value = None;
        }
    }

    /// Reads the key and keeps its value.
    fn read(&mut self, how: Read) {
        let mut commands: Vec<&[&str]> = Vec::new();
        if self.mode == Mode::OptIn {
            commands.push(&["CLIENT", "CACHING", "YES"]);
        }
        match how {
            Read::Get => commands.push(&["GET", "k"]),
            Read::Mget => commands.push(&["MGET", "other", "k"]),
            Read::Pipeline => commands.extend::<[&[&str]; 2]>([&["GET", "k"], &["PING"]]),
            Read::Exec => {
                commands.extend::<[&[&str]; 4]>([&["MULTI"], &["PTTL", "k"], &["GET", "k"], &["EXEC"]])
            }
            Read::Eval => commands.push(&["EVAL", "return redis.call('get', KEYS[1])", "1", "k"]),
            Read::EvalOther => commands.push(&["EVAL", "return redis.call('get', 'k')", "0"]),
            Read::Function => commands.push(&["FCALL", "look", "1", "k"]),
        }
        self.reader.send_all(&commands);
        let mut replies: Vec<Value> = Vec::new();
        self.value = None;
        for _ in &commands {
            let value = self.reply();
            // An invalidation that comes with the reply is older than the value that it brings.
            replies.push(value);
        }
        let at = if matches!(how, Read::Pipeline) { replies.len() - 2 } else { replies.len() - 1 };
        let value = match replies.swap_remove(at) {
            Value::Array(mut items) => items.pop().expect("an item"),
            value => value,
        };
        self.value = match value {
            Value::Text(digits) => Some(digits.parse().expect("a counter")),
            Value::Null => Some(0),
            other => panic!("{other:?}"),
        };
    }

    /// What the cache holds once everything that was sent to it has been read.
    fn settled(&mut self) -> Option<i64> {
        self.reader.send_all(&[&["PING"]]);
        assert_eq!(self.reply(), Value::Status("PONG".to_owned()));
        if let Some(listener) = &mut self.listener {
            listener.send_all(&[&["PING"]]);
            while listener.read() == invalidation("k") {
                self.value = None;
            }
        }
        self.value
    }
}

/// Ten readers and a writer meet at one key, again and again: a cache that was not emptied holds the value of the write.
/// `DARTER_CACHE_ROUNDS` sets the rounds of each of 84 settings; 1,200 are a million reads.
#[test]
fn no_read_of_any_mode_misses_its_invalidation() {
    let rounds = setting("DARTER_CACHE_ROUNDS", 40);
    for threads in ["--proactor_threads=2", "--proactor_threads=8"] {
        let server = Server::start(&[threads]);
        let library = "#!lua name=l\nredis.register_function('look', function(keys) return redis.call('get', keys[1]) end)";
        assert_eq!(server.client().call(&["FUNCTION", "LOAD", library]), text("l"));
        for mode in MODES {
            for how in READS {
                let stale = stale_reads(&server, mode, how, rounds);
                assert_eq!(stale, 0, "{threads}: {mode:?} by {how:?}, of {} reads", rounds * READERS);
            }
        }
    }
}

fn stale_reads(server: &Server, mode: Mode, how: Read, rounds: usize) -> usize {
    let (begin, end) = (Barrier::new(READERS + 1), Barrier::new(READERS + 1));
    let written = AtomicI64::new(0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| {
                let (begin, end, written) = (&begin, &end, &written);
                scope.spawn(move || {
                    let mut cache = Cache::new(server, mode);
                    let mut stale = 0;
                    for _ in 0..rounds {
                        begin.wait();
                        cache.read(how);
                        end.wait();
                        let last = written.load(Ordering::Acquire);
                        stale += usize::from(cache.settled().is_some_and(|value| value != last));
                    }
                    stale
                })
            })
            .collect();
        let mut writer = server.client();
        for _ in 0..rounds {
            begin.wait();
            for _ in 0..3 {
                let Value::Int(value) = writer.call(&["INCR", "k"]) else { panic!("no counter") };
                written.store(value, Ordering::Release);
            }
            end.wait();
        }
        readers.into_iter().map(|reader| reader.join().expect("a reader ends")).sum()
    })
}

/// A read that waited is remembered when it is served, and the changes of a served client are its own.
#[test]
fn served_clients_are_readers_and_writers_of_their_own() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut cache, mut other) = (server.client(), server.client());
    cache.call(&["HELLO", "3"]);
    cache.call(&["CLIENT", "TRACKING", "ON"]);
    cache.send_all(&[&["XREAD", "BLOCK", "0", "STREAMS", "s", "$"]]);
    wait_for_blocked(&mut other, 1);
    other.call(&["XADD", "s", "1-1", "f", "v"]);
    // The first look at the stream was a read too.
    let mut reply = cache.read();
    if reply == invalidation("s") {
        reply = cache.read();
    }
    assert!(matches!(reply, Value::Array(_)) && reply != invalidation("s"), "{reply:?}");
    other.call(&["XADD", "s", "1-2", "f", "v"]);
    assert_eq!(cache.call(&["PING"]), invalidation("s"));
    assert_eq!(cache.read(), Value::Status("PONG".to_owned()));

    for words in [&["NOLOOP"][..], &["NOLOOP", "BCAST"]] {
        let (mut pusher, mut taker) = (server.client(), server.client());
        pusher.call(&["HELLO", "3"]);
        pusher.call(&[&["CLIENT", "TRACKING", "ON"], words].concat());
        let waits: [(&[&str], &[&str], &str); 4] = [
            (&["BLMOVE", "l", "to", "LEFT", "RIGHT", "0"], &["RPUSH", "l", "v"], "to"),
            (&["BRPOPLPUSH", "l", "to2", "0"], &["RPUSH", "l", "v"], "to2"),
            (&["BZPOPMIN", "z", "0"], &["ZADD", "z", "1", "m"], "z"),
            (&["BLMPOP", "0", "1", "l", "LEFT"], &["RPUSH", "l", "v"], "l"),
        ];
        // The pusher's own change of `z` and `l` has ended what it knew of them.
        let waits_len = if words.contains(&"BCAST") { waits.len() } else { 2 };
        for (wait, push, changed) in waits.into_iter().take(waits_len) {
            pusher.call(&["EXISTS", "to", "to2", "l", "z"]);
            pusher.call(&["LRANGE", "to", "0", "-1"]);
            taker.send_all(&[wait]);
            wait_for_blocked(&mut other, 1);
            let mut heard = Vec::new();
            for command in [push, &["PING"]] {
                pusher.send_all(&[command]);
                // An array is a message: no reply is one.
                while let Value::Array(message) = pusher.read() {
                    heard.push(message);
                }
            }
            taker.read();
            let names = |message: &Vec<Value>| matches!(message.last(), Some(Value::Array(keys)) if keys.contains(&text(changed)));
            assert!(heard.iter().any(names), "{words:?} {wait:?}: {heard:?}, not {changed}");
        }
    }
}

fn wait_for_blocked(client: &mut Client, count: u64) {
    wait_until("blocked clients", || client.info::<u64>("clients", "blocked_clients") == count);
}

const WAITS: [&[&str]; 5] = [
    &["BLPOP", "list", "0"],
    &["BLMOVE", "list", "moved", "LEFT", "RIGHT", "0"],
    &["BZPOPMIN", "zset", "other", "0"],
    &["XREAD", "BLOCK", "0", "STREAMS", "stream", "$"],
    &["XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "grouped", ">"],
];

/// Clients close at any microsecond while their blocking command is being registered: nothing of them is left, and no
/// element of a later push is lost to them. `DARTER_STORM_CONNECTIONS` sets how many (the usual test makes 6,000).
#[test]
fn whoever_closes_while_it_begins_to_wait_is_gone() {
    let connections = setting("DARTER_STORM_CONNECTIONS", 6_000);
    for threads in ["--proactor_threads=2", "--proactor_threads=8"] {
        let server = Server::start(&[threads]);
        let mut client = server.client();
        client.call(&["XGROUP", "CREATE", "grouped", "g", "$", "MKSTREAM"]);
        let sockets_before = sockets_of(&server);
        let accepted = |client: &mut Client| client.info::<u64>("stats", "total_connections_received");
        let before = accepted(&mut client);
        let made: u64 = std::thread::scope(|scope| {
            let port = server.port();
            let storms = (0..8).map(|seed| scope.spawn(move || storm(port, seed, connections / 2 / 8)));
            let storms: Vec<_> = storms.collect();
            storms.into_iter().map(|storm| storm.join().expect("it ends")).sum()
        });
        // Some may wait for the server to let them in when their clients have gone.
        wait_until("all are let in", || accepted(&mut client) == before + made);
        wait_until("clients remain", || client.info::<u64>("clients", "connected_clients") == 1);
        wait_until("clients wait", || client.info::<u64>("clients", "blocked_clients") == 0);
        wait_until("sockets remain", || sockets_of(&server) <= sockets_before);
        client.call(&["RPUSH", "list", "a", "b", "c"]);
        client.call(&["ZADD", "zset", "1", "a", "2", "b"]);
        client.call(&["XADD", "grouped", "1-1", "f", "v"]);
        assert_eq!(client.call(&["LLEN", "list"]), Value::Int(3), "{threads}");
        assert_eq!(client.call(&["EXISTS", "moved"]), Value::Int(0), "{threads}");
        assert_eq!(client.call(&["ZCARD", "zset"]), Value::Int(2), "{threads}");
        assert_eq!(
            client.call(&["XPENDING", "grouped", "g"]),
            Value::Array(vec![Value::Int(0), Value::Null, Value::Null, Value::Null]),
            "{threads}"
        );
    }
}

fn sockets_of(server: &Server) -> usize {
    let Ok(files) = std::fs::read_dir(format!("/proc/{}/fd", server.pid())) else { return 0 };
    let targets = files.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Returns how many connections there were.
fn storm(port: u16, seed: u64, connections: usize) -> u64 {
    let (mut state, mut made) = (seed * 2 + 1, 0);
    for n in 0..connections {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        made += 1;
        let wait = WAITS[n % WAITS.len()];
        let mut bytes = Vec::new();
        write!(bytes, "*{}\r\n", wait.len()).expect("memory");
        for word in wait {
            write!(bytes, "${}\r\n{word}\r\n", word.len()).expect("memory");
        }
        let _ = stream.write_all(&bytes);
        let until = Instant::now() + Duration::from_micros(state >> 33 & 0xff);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        if n % 2 == 0 {
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
    made
}
