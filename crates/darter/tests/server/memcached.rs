//! The memcached door of a real server: commands, what both protocols see of one key, login, and bad input.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value, wait_until};

/// A client that speaks memcached.
struct Speaker(TcpStream);

impl Speaker {
    /// A connection to `port` that has said nothing.
    fn connect(port: u16) -> Speaker {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Speaker(stream)
    }

    /// A connection to the main port, recognised by its first line.
    fn new(server: &Server) -> Speaker {
        let mut speaker = Speaker::connect(server.port());
        assert!(speaker.ask("version\r\n").starts_with("VERSION 1."));
        speaker
    }

    /// Sends bytes followed by `mn` and returns what is answered before its `MN`.
    fn ask_bytes(&mut self, bytes: &[u8]) -> String {
        self.0.write_all(&[bytes, b"mn\r\n"].concat()).expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"MN\r\n") {
            let mut part = [0; 4096];
            let len = self.0.read(&mut part).expect("an answer in time");
            assert!(len > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&part[..len]);
        }
        answer.truncate(answer.len() - 4);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn ask(&mut self, text: &str) -> String {
        self.ask_bytes(text.as_bytes())
    }

    /// Asks one after the other and compares.
    fn check(&mut self, talk: &[(&str, &str)]) {
        for (ask, answer) in talk {
            assert_eq!(self.ask(ask), *answer, "{ask:?}");
        }
    }

    /// What the server says before it closes the connection.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("not closed: {error}"),
            _ => rest,
        }
    }

    /// The CAS token of a key.
    fn cas(&mut self, key: &str) -> u64 {
        let answer = self.ask(&format!("mg {key} c\r\n"));
        let token = answer.trim_end().strip_prefix("HD c").expect("a token");
        token.parse().expect("a number")
    }
}

/// A debug build stops at a count below zero.
#[test]
fn an_item_that_a_read_makes_is_no_use_of_another() {
    let server = Server::start(&["--proactor_threads=1"]);
    Speaker::new(&server).check(&[
        ("mg made N30\r\n", "HD W\r\n"),
        ("mg made v\r\n", "VA 0 Z\r\n\r\n"),
        ("mn\r\n", "MN\r\n"),
    ]);
}

#[test]
fn classic_commands() {
    let server = Server::start(&[]);
    Speaker::new(&server).check(&[
        ("get k\r\n", "END\r\n"),
        ("set k 7 0 5\r\nhello\r\n", "STORED\r\n"),
        ("get k\r\n", "VALUE k 7 5\r\nhello\r\nEND\r\n"),
        ("get k nokey k\r\n", "VALUE k 7 5\r\nhello\r\nVALUE k 7 5\r\nhello\r\nEND\r\n"),
        ("add k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("add k2 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("replace nokey 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
        ("replace k2 1 0 1\r\ny\r\n", "STORED\r\n"),
        ("append k 9 0 1\r\n!\r\n", "STORED\r\n"),
        ("prepend k 9 0 2\r\n, \r\n", "STORED\r\n"),
        ("append nokey 0 0 1\r\n!\r\n", "NOT_STORED\r\n"),
        ("get k\r\n", "VALUE k 7 8\r\n, hello!\r\nEND\r\n"),
        ("set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 6\r\n", "STORED\r\n15\r\n9\r\n"),
        ("get n\r\n", "VALUE n 0 2\r\n9 \r\nEND\r\n"),
        ("decr n 100\r\nincr n 18446744073709551615\r\nincr n 1\r\n", "0\r\n18446744073709551615\r\n0\r\n"),
        ("incr nokey 1\r\n", "NOT_FOUND\r\n"),
        ("incr k 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("incr n x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        // In one piece, so that both are run in one turn, by one reading of the clock.
        ("touch k 100\r\nmg k t\r\ntouch nokey 100\r\n", "TOUCHED\r\nHD t100\r\nNOT_FOUND\r\n"),
        ("gat 0 k2\r\n", "VALUE k2 1 1\r\ny\r\nEND\r\n"),
        ("delete k\r\ndelete k\r\n", "DELETED\r\nNOT_FOUND\r\n"),
        ("set q 0 0 1 noreply\r\nq\r\ndelete q noreply\r\nget q\r\n", "END\r\n"),
        ("set gone 0 -1 1\r\nx\r\nget gone\r\n", "STORED\r\nEND\r\n"),
        ("verbosity 1\r\n", "OK\r\n"),
        ("stats nosuch\r\n", "ERROR\r\n"),
        ("nosuch\r\n", "ERROR\r\n"),
    ]);
}

#[test]
fn tokens_are_real() {
    let server = Server::start(&[]);
    let (mut speaker, mut redis) = (Speaker::new(&server), server.client());
    speaker.check(&[("cas k 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"), ("set k 0 0 1\r\na\r\n", "STORED\r\n")]);
    let first = speaker.cas("k");
    assert_eq!(speaker.ask("gets k\r\n"), format!("VALUE k 0 1 {first}\r\na\r\nEND\r\n"));
    assert_eq!(speaker.ask(&format!("cas k 0 0 1 {first}\r\nb\r\n")), "STORED\r\n");
    assert_eq!(speaker.ask(&format!("cas k 0 0 1 {first}\r\nc\r\n")), "EXISTS\r\n");
    // each of these changes makes the token another one
    for command in [
        &["SET", "k", "1"] as &[&str],
        &["APPEND", "k", "2"],
        &["APPEND", "k", "3"],
        &["INCR", "k"],
        &["SETRANGE", "k", "0", "9"],
        &["INCRBYFLOAT", "k", "1"],
        &["GETSET", "k", "5"],
        &["MSET", "k", "7"],
        &["SETBIT", "k", "3", "1"],
    ] {
        let token = speaker.cas("k");
        redis.call(command);
        assert_eq!(speaker.ask(&format!("cas k 0 0 1 {token}\r\nz\r\n")), "EXISTS\r\n", "{command:?}");
    }
    // a deadline is not a change of the value
    let token = speaker.cas("k");
    redis.call(&["EXPIRE", "k", "100"]);
    assert_eq!(speaker.cas("k"), token);
    assert_eq!(speaker.ask("touch k 50\r\n"), "TOUCHED\r\n");
    assert_eq!(speaker.ask(&format!("cas k 0 0 1 {token}\r\nz\r\n")), "STORED\r\n");
    let token = speaker.cas("k");
    redis.call(&["DEL", "k"]);
    assert_eq!(speaker.ask(&format!("cas k 0 0 1 {token}\r\nz\r\n")), "NOT_FOUND\r\n");
    redis.call(&["SET", "k", "new"]);
    assert!(speaker.cas("k") > token);
    // no two keys have the same one, whichever shards they are in
    let tokens: std::collections::HashSet<u64> = (0..200)
        .map(|n| {
            assert_eq!(speaker.ask(&format!("set other:{n} 0 0 1\r\nx\r\n")), "STORED\r\n");
            speaker.cas(&format!("other:{n}"))
        })
        .collect();
    assert_eq!(tokens.len(), 200);
}

#[test]
fn two_protocols_one_keyspace() {
    let server = Server::start(&[]);
    let (mut speaker, mut redis) = (Speaker::new(&server), server.client());
    redis.call(&["SET", "r", "from redis", "EX", "100000"]);
    speaker.check(&[
        ("get r\r\n", "VALUE r 0 10\r\nfrom redis\r\nEND\r\n"),
        ("mg r f s\r\n", "HD f0 s10\r\n"),
        ("set m 42 600000 4\r\nmemc\r\n", "STORED\r\n"),
    ]);
    let left = speaker.ask("mg r t\r\n");
    let left = left.trim_end().strip_prefix("HD t").and_then(|seconds| seconds.parse::<i64>().ok());
    assert!(left.is_some_and(|seconds| (99_900..=100_000).contains(&seconds)), "{left:?}");
    assert_eq!(redis.call(&["GET", "m"]), Value::Text("memc".into()));
    assert!(matches!(redis.call(&["TTL", "m"]), Value::Int(599_900..=600_000)));
    assert_eq!(redis.call(&["STRLEN", "m"]), Value::Int(4));
    // what is long and plain is packed by the store
    let long = "long ".repeat(400);
    redis.call(&["SET", "long", &long]);
    assert_eq!(speaker.ask("get long\r\n"), format!("VALUE long 0 2000\r\n{long}\r\nEND\r\n"));
    assert_eq!(speaker.ask(&format!("set long2 1 0 2000\r\n{long}\r\n")), "STORED\r\n");
    assert_eq!(redis.call(&["GET", "long2"]), Value::Text(long.clone()));
    assert_eq!(speaker.ask("get long2\r\n"), format!("VALUE long2 1 2000\r\n{long}\r\nEND\r\n"));
    // other databases are not seen
    redis.call(&["SELECT", "1"]);
    redis.call(&["SET", "elsewhere", "x"]);
    redis.call(&["SELECT", "0"]);
    speaker.check(&[("get elsewhere\r\n", "END\r\n")]);
    // collections are a miss, or no number, and can be replaced or deleted
    for key in ["list", "list2", "list3"] {
        redis.call(&["RPUSH", key, "a"]);
    }
    speaker.check(&[
        ("get list\r\ngets list\r\nmg list v\r\n", "END\r\nEND\r\nEN\r\n"),
        ("incr list 1\r\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"),
        ("append list 0 0 1\r\nx\r\nadd list 0 0 1\r\nx\r\n", "NOT_STORED\r\nNOT_STORED\r\n"),
        ("touch list 100\r\n", "TOUCHED\r\n"),
        ("set list 3 0 1\r\nx\r\nget list\r\n", "STORED\r\nVALUE list 3 1\r\nx\r\nEND\r\n"),
        ("replace list2 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("delete list3\r\n", "DELETED\r\n"),
    ]);
    assert_eq!(redis.call(&["TYPE", "list"]), Value::Status("string".into()));
    // a copy keeps the client's flags
    redis.call(&["RENAME", "list", "renamed"]);
    speaker.check(&[("get renamed\r\n", "VALUE renamed 3 1\r\nx\r\nEND\r\n"), ("flush_all\r\n", "OK\r\n")]);
    assert_eq!(redis.call(&["DBSIZE"]), Value::Int(0));
    redis.call(&["SELECT", "1"]);
    assert_eq!(redis.call(&["DBSIZE"]), Value::Int(1));
}

#[test]
fn changes_are_told_to_everybody() {
    let server = Server::start(&["--notify-keyspace-events", "KEA"]);
    let (mut speaker, mut redis, mut listener) = (Speaker::new(&server), server.client(), server.client());
    listener.call(&["PSUBSCRIBE", "__keyevent@0__:*"]);
    redis.call(&["WATCH", "k"]);
    speaker.ask("set k 0 0 1\r\n1\r\n");
    redis.call(&["MULTI"]);
    redis.call(&["PING"]);
    assert_eq!(redis.call(&["EXEC"]), Value::Null);
    speaker.ask("incr k 1\r\nappend k 0 0 1\r\n0\r\ntouch k 100\r\ntouch k 0\r\ndelete k\r\n");
    for event in ["set", "incrby", "append", "expire", "persist", "del"] {
        let wanted =
            ["pmessage", "__keyevent@0__:*", &format!("__keyevent@0__:{event}"), "k"].map(str::to_owned);
        assert_eq!(listener.read(), Value::Array(wanted.map(Value::Text).to_vec()));
    }
    // caches on the client's side, and clients that wait for a key
    redis.call(&["HELLO", "3"]);
    redis.call(&["CLIENT", "TRACKING", "ON"]);
    redis.call(&["GET", "k"]);
    speaker.ask("set k 0 0 1\r\n1\r\n");
    assert_eq!(
        redis.read(),
        Value::Array(vec![Value::Text("invalidate".into()), Value::Array(vec![Value::Text("k".into())])])
    );
}

#[test]
fn stale_items_are_fetched_anew_by_one() {
    let server = Server::start(&[]);
    let mut speaker = Speaker::new(&server);
    speaker.check(&[
        // Commands between which no second may pass come in one piece: they are run in one turn.
        ("mg new v N30 t\r\nmg new v N30 t\r\n", "VA 0 t30 W\r\n\r\nVA 0 t30 Z\r\n\r\n"),
        ("ms new 2\r\nhi\r\n", "HD\r\n"),
        ("mg new v\r\n", "VA 2\r\nhi\r\n"),
        (
            "md new I T20\r\nmg new v t\r\nmg new v t\r\n",
            "HD\r\nVA 2 t20 X W\r\nhi\r\nVA 2 t20 Z X\r\nhi\r\n",
        ),
        (
            "ms new 3 T10\r\nnew\r\nmg new v R30\r\nmg new v R30\r\n",
            "HD\r\nVA 3 W\r\nnew\r\nVA 3 Z\r\nnew\r\n",
        ),
        ("ms old 1 E100 c\r\na\r\n", "HD c100\r\n"),
        ("ms old 1 C99 I\r\nb\r\n", "HD\r\n"),
        ("mg old v\r\n", "VA 1 X W\r\nb\r\n"),
        ("ms old 1 E50\r\na\r\nms old 1 C51 I\r\nb\r\n", "HD\r\nEX\r\n"),
        ("ms old 1 C50 E7 c\r\nb\r\nmg old c\r\n", "HD c7\r\nHD c7\r\n"),
        ("mg old v C7\r\nmg old v C8\r\n", "HD\r\nVA 1\r\nb\r\n"),
        ("md old x F3\r\nmg old v f c\r\n", "HD\r\nVA 0 f3 c7\r\n\r\n"),
        ("md old C9\r\nmd old C7 q\r\nmd old q\r\n", "EX\r\nNF\r\n"),
        (
            "ma ctr\r\nma ctr N0 J5 v\r\nma ctr D3 v\r\nma ctr MD D100 v\r\n",
            "NF\r\nVA 1\r\n5\r\nVA 1\r\n8\r\nVA 1\r\n0\r\n",
        ),
        (
            "ms list 1 MA\r\na\r\nms list 1 MA N60\r\na\r\nms list 1 MA N60 s\r\nb\r\nmg list v t\r\n",
            "NS\r\nHD\r\nHD s2\r\nVA 2 t60\r\nab\r\n",
        ),
        ("mg a k Oxyz v q\r\nmg a k Oxyz v\r\n", "EN ka Oxyz\r\n"),
        ("ms a 1 q\r\n1\r\nms a 1 ME q\r\n1\r\nma a q\r\nmg a v q\r\n", "NS\r\nVA 1\r\n2\r\n"),
        ("ms Zm9v 3 b\r\nbar\r\nmg foo v\r\nmg Zm9v b k\r\n", "HD\r\nVA 3\r\nbar\r\nHD kZm9v b\r\n"),
        ("ms h 1\r\nx\r\nmg h h l u\r\nmg h h\r\nmg h h\r\n", "HD\r\nHD h0 l0\r\nHD h0\r\nHD h1\r\n"),
    ]);
}

#[test]
fn a_flush_may_come_later() {
    let server = Server::start(&[]);
    let mut speaker = Speaker::new(&server);
    let began = Instant::now();
    speaker.check(&[
        ("set k 0 0 1\r\nx\r\n", "STORED\r\n"),
        // In one turn: whoever asks later may come after the three seconds.
        ("flush_all 3\r\nget k\r\n", "OK\r\nVALUE k 0 1\r\nx\r\nEND\r\n"),
    ]);
    while speaker.ask("get k\r\n") != "END\r\n" {
        assert!(began.elapsed() < crate::harness::PATIENCE, "not flushed");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Less than the three: seconds of memcached's protocol are whole ones.
    assert!(began.elapsed() > Duration::from_millis(1500));
    speaker.check(&[("flush_all 0 noreply\r\nflush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n")]);
}

#[test]
fn every_thread_sees_every_key() {
    let server = Server::start(&["--proactor_threads", "4"]);
    let mut speaker = Speaker::new(&server);
    for key in 0..40 {
        assert_eq!(speaker.ask(&format!("add n{key} 0 0 1\r\n0\r\n")), "STORED\r\n");
    }
    let threads: Vec<_> = (0..6)
        .map(|id| {
            let mut speaker = Speaker::new(&server);
            std::thread::spawn(move || {
                for round in 0..200 {
                    let mut batch = String::new();
                    for key in 0..40 {
                        batch += &format!("incr n{key} 1\r\nms own{id}:{key} 2 q\r\n{:02}\r\n", round % 100);
                    }
                    batch += "get ";
                    batch += &(0..40).map(|key| format!("own{id}:{key}")).collect::<Vec<_>>().join(" ");
                    let answer = speaker.ask(&(batch + "\r\n"));
                    let wanted: String = (0..40)
                        .map(|key| format!("VALUE own{id}:{key} 0 2\r\n{:02}\r\n", round % 100))
                        .collect();
                    assert!(answer.ends_with(&(wanted + "END\r\n")), "{answer}");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("its answers"));
    let counts: Vec<u64> = (0..40)
        .map(|key| {
            let answer = speaker.ask(&format!("mg n{key} v\r\n"));
            answer.lines().nth(1).expect("a value").parse().expect("a number")
        })
        .collect();
    assert!(counts.iter().all(|count| *count == 6 * 200), "{counts:?}");
}

#[test]
fn its_own_port_takes_what_the_main_port_does_not() {
    let port = crate::harness::free_port();
    let server = Server::start(&["--memcached_port", &port.to_string()]);
    let mut speaker = Speaker::connect(port);
    speaker.check(&[("get k\r\n", "END\r\n"), ("touch k 1\r\n", "NOT_FOUND\r\n")]);
    // on the main port the same line is a command of Redis
    let mut plain = Speaker::connect(server.port());
    plain.0.write_all(b"get k\r\n").expect("sent");
    let mut answer = [0; 5];
    plain.0.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"$-1\r\n");
}

#[test]
fn bad_input_is_an_error_or_the_end() {
    let server = Server::start(&["--client-query-buffer-limit", "8mb"]);
    let mut speaker = Speaker::new(&server);
    let long = "k".repeat(251);
    speaker.check(&[
        (&format!("get {long}\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        (&format!("get ok {long}\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        (&format!("set {long} 0 0 3\r\nabc\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        (&format!("mg {long} v\r\n"), "CLIENT_ERROR bad command line format\r\n"),
        ("set k 0 0 3\r\nabcdef\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
        ("set k 0 0 -1\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("set k 0 0 x\r\n", "CLIENT_ERROR bad command line format\r\n"),
        ("set k\r\nget\r\nincr k\r\nmg\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n"),
        ("mg k v v\r\n", "CLIENT_ERROR duplicate flag\r\n"),
        ("mg k !\r\n", "CLIENT_ERROR invalid flag\r\n"),
        ("ms k 2 T\r\nhi\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
        (
            "ma k Dx\r\nma k Jx\r\n",
            "CLIENT_ERROR invalid or duplicate flag\r\nCLIENT_ERROR invalid or duplicate flag\r\n",
        ),
        (&format!("mg k O{}\r\n", "o".repeat(32)), "CLIENT_ERROR opaque token too long\r\n"),
        ("set k 0 0 1\r\nx\r\n", "STORED\r\n"),
    ]);
    // a value past the limit takes the old one with it
    let big = format!("set k 0 0 2000000\r\n{}\r\n", "x".repeat(2_000_000));
    assert_eq!(speaker.ask(&big), "SERVER_ERROR object too large for cache\r\n");
    speaker.check(&[("get k\r\n", "END\r\n")]);
    // a line without an end
    let mut endless = Speaker::new(&server);
    let _ = endless.0.write_all(&[b'x'; 70_000]);
    assert_eq!(endless.rest(), b"");
    let mut quitting = Speaker::new(&server);
    quitting.0.write_all(b"quit\r\nget k\r\n").expect("sent");
    assert_eq!(quitting.rest(), b"");
    speaker.check(&[("version\r\n", "VERSION 1.6.38 darter-0.1.0\r\n")]);
}

#[test]
fn a_login_comes_first_where_there_is_a_password() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut speaker = Speaker::connect(server.port());
    let mut ask = |text: &str, lines: usize| {
        speaker.0.write_all(text.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        while answer.iter().filter(|&&byte| byte == b'\n').count() < lines {
            let mut part = [0; 512];
            let len = speaker.0.read(&mut part).expect("an answer");
            assert!(len > 0, "closed");
            answer.extend_from_slice(&part[..len]);
        }
        String::from_utf8(answer).expect("text")
    };
    assert_eq!(ask("gets k\r\n", 1), "CLIENT_ERROR unauthenticated\r\n");
    assert_eq!(ask("set auth 0 0 14\r\ndefault secre!\r\n", 1), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(
        ask("set auth 0 0 3\r\nabcdef\r\n", 2),
        "CLIENT_ERROR bad termination\r\nCLIENT_ERROR unauthenticated\r\n"
    );
    assert_eq!(ask("set auth 0 0 14\r\ndefault secret\r\nget k\r\n", 2), "STORED\r\nEND\r\n");
    assert_eq!(ask("set k 0 0 1\r\nx\r\nget k\r\n", 4), "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    // a stranger makes the server keep next to nothing
    let mut stranger = Speaker::connect(server.port());
    let _ = stranger.0.write_all(&[&b"version\r\nset auth 0 0 1000000\r\n"[..], &[b'x'; 100_000]].concat());
    let rest = stranger.rest();
    assert!(rest.starts_with(b"CLIENT_ERROR unauthenticated\r\n"));
}

#[test]
fn numbers_tell_what_happened() {
    let server = Server::start(&[]);
    let (mut speaker, mut redis) = (Speaker::new(&server), server.client());
    speaker.ask("set k 0 0 1\r\n1\r\nget k\r\nget nokey\r\nincr k 1\r\ntouch k 0\r\ndelete nokey\r\ncas k 0 0 1 1\r\nx\r\n");
    let stat = |speaker: &mut Speaker, name: &str| {
        let stats = speaker.ask("stats\r\n");
        assert!(stats.ends_with("END\r\n"));
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("no {name}"))
    };
    for (name, value) in [
        ("cmd_get", "2"),
        ("cmd_set", "2"),
        ("get_hits", "1"),
        ("get_misses", "1"),
        ("incr_hits", "1"),
        ("touch_hits", "1"),
        ("delete_misses", "1"),
        ("cas_badval", "1"),
        ("total_items", "1"),
        ("pointer_size", "64"),
    ] {
        assert_eq!(stat(&mut speaker, name), value, "{name}");
    }
    // Of a shard that housekeeping has just now, the number before is told.
    wait_until("the item is counted", || stat(&mut speaker, "curr_items") == "1");
    assert!(speaker.ask("stats settings\r\n").contains("STAT item_size_max 1048576\r\n"));
    assert!(speaker.ask("stats items\r\n").contains("STAT items:1:number 1\r\n"));
    assert!(speaker.ask("stats slabs\r\n").contains("STAT active_slabs 1\r\n"));
    assert!(speaker.ask("stats conns\r\n").contains(":addr tcp:127.0.0.1:"));
    // the same commands count as those of Redis that stand for them
    let Value::Text(info) = redis.call(&["INFO", "commandstats"]) else { panic!("no text") };
    assert!(info.contains("cmdstat_set:calls=2,") && info.contains("cmdstat_get:calls=2,"), "{info}");
    assert_eq!(speaker.ask("stats reset\r\n"), "RESET\r\n");
    assert_eq!(stat(&mut speaker, "cmd_get"), "0");
}

#[test]
fn prefixes_are_counted_while_somebody_wants_it() {
    let server = Server::start(&[]);
    let mut speaker = Speaker::new(&server);
    let usage = "CLIENT_ERROR usage: stats detail on|off|dump\r\n";
    speaker.check(&[
        ("set a:1 0 0 1\r\nx\r\n", "STORED\r\n"),
        ("stats detail dump\r\n", "END\r\n"),
        ("stats detail\r\n", usage),
        ("stats detail never\r\n", usage),
        ("stats detail on\r\n", "OK\r\n"),
        ("get a:1 a:2 b\r\n", "VALUE a:1 0 1\r\nx\r\nEND\r\n"),
        ("get a:1\r\nget a:2\r\n", "VALUE a:1 0 1\r\nx\r\nEND\r\nEND\r\n"),
        ("gat 0 a:1\r\n", "VALUE a:1 0 1\r\nx\r\nEND\r\n"),
        ("set a:1 0 0 1\r\ny\r\nadd a:1 0 0 1\r\ny\r\n", "STORED\r\nNOT_STORED\r\n"),
        ("delete c:1\r\n", "NOT_FOUND\r\n"),
        ("mg a:1\r\n", "HD\r\n"),
        (
            "stats detail dump\r\n",
            "PREFIX a get 5 hit 3 set 2 del 0\r\nPREFIX c get 0 hit 0 set 0 del 1\r\nEND\r\n",
        ),
        ("stats detail off\r\nget a:1\r\n", "OK\r\nVALUE a:1 0 1\r\ny\r\nEND\r\n"),
        ("stats reset\r\nstats detail dump\r\n", "RESET\r\nEND\r\n"),
    ]);
}

#[test]
fn items_survive_a_restart() {
    let dir = std::env::temp_dir().join(format!("darter-memcached-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.to_str().expect("text").to_owned();
    let flags = ["--dir", &path, "--appendonly", "yes", "--appendfsync", "always", "--proactor_threads", "2"];
    let server = Server::start(&flags);
    let mut speaker = Speaker::new(&server);
    speaker.check(&[
        ("set k 4294967295 5000 3\r\nabc\r\nappend k 0 0 1\r\n!\r\n", "STORED\r\nSTORED\r\n"),
        (
            "set n 0 0 2\r\n99\r\nincr n 1\r\nset gone 0 0 1\r\nx\r\ndelete gone\r\n",
            "STORED\r\n100\r\nSTORED\r\nDELETED\r\n",
        ),
        (
            "ms old 3\r\nold\r\nmd old I\r\nset late 1 0 1\r\nx\r\ngat 1 late\r\n",
            "HD\r\nHD\r\nSTORED\r\nVALUE late 1 1\r\nx\r\nEND\r\n",
        ),
        ("ms c 1 E1234\r\nx\r\nms c 1 C1234 E99\r\ny\r\n", "HD\r\nHD\r\n"),
    ]);
    let token = speaker.cas("n");
    drop(server);
    std::thread::sleep(Duration::from_millis(1100));
    let server = Server::start(&flags);
    drop(server.client().loaded());
    let mut speaker = Speaker::new(&server);
    speaker.check(&[
        (
            "get k\r\nget n gone late\r\n",
            "VALUE k 4294967295 4\r\nabc!\r\nEND\r\nVALUE n 0 3\r\n100\r\nEND\r\n",
        ),
        ("mg old v\r\nmg c v c\r\n", "VA 3 X W\r\nold\r\nVA 1 c99\r\ny\r\n"),
    ]);
    assert!(speaker.cas("n") > token, "tokens go on after a restart");
    drop(server);
    let _ = std::fs::remove_dir_all(&dir);
}

/// While a large journal is loaded, a refused command says why, and `mn` is answered.
#[test]
fn a_client_that_comes_while_data_is_loaded_is_told_so() {
    let dir = crate::harness::journal::Dir::new("memcached-loading");
    let server = dir.start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["DEBUG", "POPULATE", "1000"]), Value::ok());
    assert!(matches!(client.call(&["BGREWRITEAOF"]), Value::Status(_)));
    crate::harness::journal::wait_for_base(&server);
    drop(server);
    let server = dir.start_loading(&["--key-load-delay", "60000000"]);
    let mut speaker = Speaker::connect(server.port());
    // A first line that is no inline command of Redis.
    assert_eq!(speaker.ask("version\r\n"), "SERVER_ERROR loading data\r\n");
    assert_eq!(server.client().call(&["CONFIG", "SET", "key-load-delay", "0"]), Value::ok());
    wait_until("it is loaded", || speaker.ask("get key:7\r\n") == "VALUE key:7 0 7\r\nvalue:7\r\nEND\r\n");
}

#[test]
fn settings_tell_of_the_limit_and_of_eviction_as_they_are() {
    let stat = |server: &Server, name: &str| {
        let settings = Speaker::new(server).ask("stats settings\r\n");
        let line = settings.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name));
        line.map(|value| value.trim().to_owned()).expect(name)
    };
    let server = Server::start(&[]);
    // A limit is there though none was asked for, as INFO says.
    assert_ne!(stat(&server, "maxbytes"), "0");
    assert_eq!(stat(&server, "evictions"), "off");
    server.client().call(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]);
    assert_eq!(
        (stat(&server, "maxbytes").as_str(), stat(&server, "evictions").as_str()),
        ("104857600", "on")
    );
    let server = Server::start(&["--cache_mode", "--maxmemory", "64mb"]);
    assert_eq!((stat(&server, "maxbytes").as_str(), stat(&server, "evictions").as_str()), ("67108864", "on"));
}

#[test]
fn the_limit_of_memory_can_be_set() {
    let server = Server::start(&[]);
    let (mut speaker, mut redis) = (Speaker::new(&server), server.client());
    speaker.check(&[
        ("refresh_certs\r\n", "ERROR\r\n"),
        ("cache_memlimit\r\n", "ERROR\r\n"),
        ("cache_memlimit 7\r\n", "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"),
        ("cache_memlimit 5000000000\r\n", "ERROR\r\n"),
        ("cache_memlimit 1000000001\r\n", "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"),
        ("cache_memlimit 64\r\n", "OK\r\n"),
    ]);
    let limit = redis.call(&["CONFIG", "GET", "maxmemory"]);
    assert!(format!("{limit:?}").contains("67108864"), "{limit:?}");
    assert!(speaker.ask("stats settings\r\n").contains("STAT maxbytes 67108864\r\n"));
    // Who may not do it by CONFIG SET may not do it here.
    assert_eq!(redis.call(&["ACL", "SETUSER", "default", "-config"]), Value::ok());
    let refused = "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n";
    speaker.check(&[("cache_memlimit 128\r\n", refused)]);
    assert!(speaker.ask("stats settings\r\n").contains("STAT maxbytes 67108864\r\n"));
}

#[test]
fn a_pause_and_a_memory_limit_hold_for_all() {
    let server = Server::start(&[]);
    let (mut speaker, mut redis) = (Speaker::new(&server), server.client());
    redis.call(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    speaker.check(&[("get k\r\n", "END\r\n")]);
    // By the server's clock: a read does not wait for the end of the pause.
    assert!(redis.info::<u64>("clients", "paused_timeout_milliseconds") > 0);
    speaker.0.write_all(b"set k 0 0 1\r\nx\r\nget k\r\n").expect("sent");
    wait_until("it waits", || redis.info::<u64>("clients", "blocked_clients") == 1);
    assert_eq!(redis.call(&["CLIENT", "UNPAUSE"]), Value::ok());
    assert_eq!(speaker.ask(""), "STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    let began = Instant::now();
    redis.call(&["CLIENT", "PAUSE", "600", "WRITE"]);
    speaker.check(&[("set k 0 0 1\r\nx\r\n", "STORED\r\n")]);
    // Half of it: the deadline counts from the millisecond in which the server's turn began.
    assert!(began.elapsed() > Duration::from_millis(300));
    let mut monitor: Client = server.client();
    assert_eq!(monitor.call(&["MONITOR"]), Value::ok());
    speaker.check(&[("get k\r\n", "VALUE k 0 1\r\nx\r\nEND\r\n")]);
    let line = monitor.read_line();
    assert!(line.ends_with(r#""get" "k""#), "{line}");
}

#[test]
fn all_items_are_listed_while_others_are_served() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut speaker, mut other) = (Speaker::new(&server), Speaker::new(&server));
    let mut client = server.client();
    assert_eq!(speaker.ask("lru_crawler metadump all\r\n"), "OK\r\nEND\r\n");
    speaker.check(&[
        ("set key 5 0 3\r\nabc\r\nget key\r\n", "STORED\r\nVALUE key 5 3\r\nabc\r\nEND\r\n"),
        ("ms YSBi 1 b T100\r\nx\r\n", "HD\r\n"),
    ]);
    client.call(&["RPUSH", "list", "no item"]);
    client.call(&["SET", "gone", "x", "PX", "1"]);
    std::thread::sleep(Duration::from_millis(50));
    let listed = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let facts = listed(speaker.ask("lru_crawler metadump all\r\n"));
    assert_eq!(facts.len(), 4, "{facts:?}");
    let [end, ok, spaced, plain] = &facts[..] else { panic!("{facts:?}") };
    assert_eq!((&**end, &**ok), ("END", "OK"));
    assert!(spaced.starts_with("key=a%20b exp=") && !spaced.contains("exp=-1"), "{spaced}");
    assert!(plain.starts_with("key=key exp=-1 la=") && plain.ends_with(" flags=5"), "{plain}");
    assert!(plain.contains(" fetch=yes cls=1 size="), "{plain}");
    assert_eq!(listed(speaker.ask("lru_crawler mgdump hash\r\n")), ["EN", "OK", "mg YSBi b", "mg key"]);
    speaker.check(&[
        ("lru_crawler metadump 2,3\r\n", "OK\r\nEND\r\n"),
        ("lru_crawler metadump x\r\n", "BADCLASS invalid class id\r\n"),
        ("lru_crawler mgdump\r\n", "ERROR\r\n"),
    ]);
    // A client that does not read is waited for, and holds little.
    client.call(&["DEBUG", "POPULATE", "200000", "a-rather-long-name-of-a-key", "10"]);
    speaker.0.write_all(b"lru_crawler metadump hash\r\n").expect("sent");
    for _ in 0..200 {
        assert_eq!(other.ask("get key\r\n"), "VALUE key 5 3\r\nabc\r\nEND\r\n");
    }
    let list = text_of(client.call(&["CLIENT", "LIST"]));
    let held = list
        .lines()
        .filter_map(|line| line.split("omem=").nth(1)?.split(' ').next()?.parse::<u64>().ok())
        .max();
    assert!(held.expect("clients") < 4 << 20, "{list}");
    assert_eq!(speaker.ask("").lines().filter(|line| line.starts_with("key=")).count(), 200_002);
}

fn text_of(value: Value) -> String {
    match value {
        Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn what_mg_tells_is_how_it_was_before() {
    let server = Server::start(&[]);
    let mut speaker = Speaker::new(&server);
    speaker.check(&[("set k 0 0 1\r\nx\r\n", "STORED\r\n")]);
    std::thread::sleep(Duration::from_millis(2100));
    // `u` leaves no trace of the read: neither in what `l` and `h` tell, nor in what `me` does.
    let idle = |speaker: &mut Speaker, command: &str, name: &str| -> u64 {
        let said = speaker.ask(command);
        let word = said.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok());
        word.unwrap_or_else(|| panic!("no {name} in {said}"))
    };
    for _ in 0..2 {
        let said = speaker.ask("mg k u h v\r\n");
        assert_eq!(said, "VA 1 h0\r\nx\r\n");
        assert!(idle(&mut speaker, "mg k u l\r\n", "l") >= 2);
        assert!(idle(&mut speaker, "me k\r\n", "la=") >= 2);
    }
    // The first read without it is told how long the item was left alone.
    assert!(idle(&mut speaker, "mg k l\r\n", "l") >= 2);
    // In one piece, so that no time passes in between.
    assert!(idle(&mut speaker, "mg k h\r\nmg k u l\r\n", "l") < 2);
    speaker.check(&[("mg k u h\r\n", "HD h1\r\n")]);
}

#[test]
fn an_item_counts_its_key_and_head() {
    let server = Server::start(&["--memcached_item_size_max", "2000"]);
    let mut speaker = Speaker::new(&server);
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    // As memcached 1.6 with -I 2000 counts: 56 bytes of head, key and zero, four bytes for flags, value and line end.
    for (key, flags, fits) in [("k", 0, 1940), ("k", 7, 1936), ("a-longer-key", 0, 1929)] {
        for (len, wanted) in [(fits, "STORED\r\n"), (fits + 1, too_large)] {
            let value = "v".repeat(len);
            speaker.check(&[(&format!("set {key} {flags} 0 {len}\r\n{value}\r\n"), wanted)]);
        }
    }
    speaker.check(&[("set j 0 0 1\r\nx\r\n", "STORED\r\n")]);
    let more = "v".repeat(1939);
    speaker.check(&[(&format!("append j 0 0 1939\r\n{more}\r\n"), "STORED\r\n")]);
    speaker.check(&[("append j 0 0 1\r\nx\r\n", "NOT_STORED\r\n")]);
}
