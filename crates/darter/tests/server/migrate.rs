//! MIGRATE between real servers: two of ours, ours and Redis both ways, and a false one that answers when it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::raw::memcached;
use crate::harness::{Client, Server, Value};
use crate::nodes::Redis;

/// Milliseconds that no MIGRATE takes which comes to its end.
const LONG: &str = "50000";

fn migrate(client: &mut Client, port: u16, rest: &[&str]) -> Value {
    client.call(&[&["MIGRATE", "127.0.0.1", &port.to_string()], rest].concat())
}

fn error(text: &str) -> Value {
    Value::Error(text.to_owned())
}

fn nokey() -> Value {
    Value::Status("NOKEY".to_owned())
}

/// What each kind of value is made with, and how it is read.
const VALUES: &[(&[&str], &[&str])] = &[
    (&["SET", "s", "text"], &["GET", "s"]),
    (&["RPUSH", "l", "a", "b", "c"], &["LRANGE", "l", "0", "-1"]),
    (&["SADD", "i", "1", "2", "3"], &["SMEMBERS", "i"]),
    (&["HSET", "h", "f", "v", "g", "w"], &["HGETALL", "h"]),
    (&["ZADD", "z", "1.5", "m", "2", "n"], &["ZRANGE", "z", "0", "-1", "WITHSCORES"]),
    (&["XADD", "x", "5-1", "f", "v"], &["XRANGE", "x", "-", "+"]),
];

fn values_travel(from: &mut Client, to: &mut Client, to_port: u16) {
    for (make, read) in VALUES {
        from.call(make);
        let before = from.call(read);
        assert_eq!(migrate(from, to_port, &[make[1], "3", LONG]), Value::ok(), "{make:?}");
        assert_eq!(from.call(&["EXISTS", make[1]]), Value::Int(0));
        to.call(&["SELECT", "3"]);
        assert_eq!(to.call(read), before);
    }
    from.call(&["SET", "ttl", "v", "PX", "1000000"]);
    assert_eq!(migrate(from, to_port, &["ttl", "3", LONG]), Value::ok());
    let Value::Int(left) = to.call(&["PTTL", "ttl"]) else { panic!("an integer") };
    assert!((900_000..=1_000_000).contains(&left), "{left}");
    // There is one of that name by now.
    from.call(&["SET", "s", "other"]);
    assert_eq!(
        migrate(from, to_port, &["s", "3", LONG]),
        error("ERR Target instance replied with error: BUSYKEY Target key name already exists.")
    );
    assert_eq!(from.call(&["GET", "s"]), Value::Text("other".to_owned()));
    assert_eq!(migrate(from, to_port, &["s", "3", LONG, "COPY", "REPLACE"]), Value::ok());
    assert_eq!(from.call(&["EXISTS", "s"]), Value::Int(1));
    assert_eq!(to.call(&["GET", "s"]), Value::Text("other".to_owned()));
}

#[test]
fn values_go_from_one_of_ours_to_another() {
    let (here, there) = (Server::start(&["--proactor_threads", "2"]), Server::start(&[]));
    let mut client = here.client();
    values_travel(&mut client, &mut there.client(), there.port());
    let large = "x".repeat(3 << 20);
    client.call(&["SET", "large", &large]);
    assert_eq!(migrate(&mut client, there.port(), &["large", "0", LONG]), Value::ok());
    assert_eq!(there.client().call(&["GET", "large"]), Value::Text(large));
}

#[test]
fn several_keys_go_at_once() {
    let (here, there) = (Server::start(&["--proactor_threads", "2"]), Server::start(&[]));
    let (mut client, mut other) = (here.client(), there.client());
    client.call(&["MSET", "a", "1", "b", "2", "c", "3"]);
    let port = there.port();
    assert_eq!(migrate(&mut client, port, &["", "0", LONG, "KEYS", "a", "no", "b", "a"]), Value::ok());
    assert_eq!(other.call(&["MGET", "a", "b"]), Value::array(&["1", "2"]));
    assert_eq!(client.call(&["EXISTS", "a", "b", "c"]), Value::Int(1));
    assert_eq!(migrate(&mut client, port, &["", "0", LONG, "KEYS", "no", "none"]), nokey());
    assert_eq!(migrate(&mut client, port, &["no", "0", LONG]), nokey());
    // Only what the other server has taken goes here.
    client.call(&["MSET", "a", "again", "d", "4"]);
    let reply = migrate(&mut client, port, &["", "0", LONG, "KEYS", "d", "a", "c"]);
    assert!(matches!(reply, Value::Error(line) if line.contains("BUSYKEY")));
    assert_eq!(client.call(&["MGET", "a", "c", "d"]), {
        Value::Array(vec![Value::Text("again".to_owned()), Value::Null, Value::Null])
    });
    assert_eq!(other.call(&["MGET", "a", "c", "d"]), Value::array(&["1", "3", "4"]));
    let Value::Text(info) = client.call(&["INFO", "stats"]) else { panic!("a text") };
    assert!(info.contains("migrate_cached_sockets:1"));
}

#[test]
fn it_logs_in_at_the_other_server() {
    let here = Server::start(&[]);
    let there = Server::start(&["--requirepass", "secret"]);
    let (mut client, port) = (here.client(), there.port());
    client.call(&["SET", "k", "v"]);
    let refused = |reply: Value, why: &str| {
        assert!(matches!(&reply, Value::Error(line) if line.contains(why)), "{reply:?}");
    };
    refused(migrate(&mut client, port, &["k", "0", LONG]), "NOAUTH");
    refused(migrate(&mut client, port, &["k", "0", LONG, "AUTH", "wrong"]), "WRONGPASS");
    refused(migrate(&mut client, port, &["k", "0", LONG, "AUTH2", "nobody", "secret"]), "WRONGPASS");
    assert_eq!(client.call(&["EXISTS", "k"]), Value::Int(1));
    assert_eq!(migrate(&mut client, port, &["k", "0", LONG, "AUTH2", "default", "secret"]), Value::ok());
    client.call(&["SET", "k", "w"]);
    assert_eq!(migrate(&mut client, port, &["k", "0", LONG, "REPLACE", "AUTH", "secret"]), Value::ok());
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    // Nobody listens on it, nor may a neighbour's test.
    let closed = 1;
    for (rest, wanted) in [
        (&["k", "0", "1000"] as &[&str], "IOERR error or timeout writing to target instance"),
        (&["k", "0", "1000", "SOON"], "ERR syntax error"),
        (&["k", "0", "1000", "AUTH"], "ERR syntax error"),
        (&["k", "0", "1000", "AUTH2", "user"], "ERR syntax error"),
        (&["k", "x", "1000"], "ERR value is not an integer or out of range"),
        (&["k", "0", "x"], "ERR value is not an integer or out of range"),
        (
            &["k", "0", "1000", "KEYS", "a"],
            "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
        ),
        (&["k", "0"], "ERR wrong number of arguments for 'migrate' command"),
    ] {
        assert_eq!(migrate(&mut client, closed, rest), error(wanted), "{rest:?}");
    }
    for (host, port, wanted) in [
        ("127.0.0.1", "99999", "IOERR error or timeout writing to target instance"),
        ("127.0.0.1", "none", "IOERR error or timeout writing to target instance"),
        ("no-such-host.invalid", "6379", "IOERR error or timeout connecting to the client"),
    ] {
        assert_eq!(client.call(&["MIGRATE", host, port, "k", "0", "1000"]), error(wanted), "{host}:{port}");
    }
    client.call(&["MULTI"]);
    assert!(matches!(migrate(&mut client, closed, &["k", "0", "1000"]), Value::Error(_)));
    client.call(&["DISCARD"]);
    assert_eq!(client.call(&["GET", "k"]), Value::Text("v".to_owned()));
    assert_eq!(
        client.call(&[
            "COMMAND", "GETKEYS", "MIGRATE", "h", "1", "", "0", "9", "AUTH", "keys", "KEYS", "a", "b"
        ]),
        Value::array(&["a", "b"])
    );
}

/// A server that reads commands and answers what the test says.
struct False {
    listener: TcpListener,
}

impl False {
    fn new() -> False {
        False { listener: TcpListener::bind("127.0.0.1:0").expect("a port") }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().expect("an address").port()
    }

    fn accept(&self) -> BufReader<TcpStream> {
        let (stream, _) = self.listener.accept().expect("a connection");
        stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
        BufReader::new(stream)
    }
}

/// Reads one command; the words of it. None where the connection ends.
fn command(from: &mut BufReader<TcpStream>) -> Vec<String> {
    if from.fill_buf().is_ok_and(<[u8]>::is_empty) {
        return Vec::new();
    }
    let number = |from: &mut BufReader<TcpStream>| {
        let mut line = String::new();
        from.read_line(&mut line).expect("a line");
        line[1..].trim().parse::<usize>().expect("a number")
    };
    let words = number(from);
    let word = |from: &mut BufReader<TcpStream>| {
        let mut bytes = vec![0; number(from) + 2];
        from.read_exact(&mut bytes).expect("a word");
        String::from_utf8_lossy(&bytes[..bytes.len() - 2]).into_owned()
    };
    (0..words).map(|_| word(from)).collect()
}

fn answer(to: &mut BufReader<TcpStream>, line: &str) {
    to.get_mut().write_all(format!("{line}\r\n").as_bytes()).expect("sent");
}

#[test]
fn a_key_that_changes_on_the_way_is_sent_again() {
    let (server, other) = (Server::start(&["--proactor_threads", "2"]), False::new());
    let (mut client, mut writer) = (server.client(), server.client());
    client.call(&["MSET", "k", "old", "gone", "1"]);
    let port = other.port().to_string();
    client.send_all(&[&["MIGRATE", "127.0.0.1", &port, "", "0", LONG, "KEYS", "k", "gone"]]);
    let mut link = other.accept();
    assert_eq!(command(&mut link), ["SELECT", "0"]);
    answer(&mut link, "+OK");
    assert_eq!(command(&mut link)[..2], ["RESTORE", "k"]);
    assert_eq!(command(&mut link)[..2], ["RESTORE", "gone"]);
    // Nobody waits for the network.
    writer.call(&["SET", "k", "new"]);
    writer.call(&["DEL", "gone"]);
    answer(&mut link, "+OK\r\n+OK");
    assert_eq!(command(&mut link), ["DEL", "gone"]);
    answer(&mut link, ":1");
    let again = command(&mut link);
    assert_eq!((&*again[0], &*again[1], &*again[4]), ("RESTORE", "k", "REPLACE"));
    assert!(again[3].contains("new"));
    assert_eq!(writer.call(&["GET", "k"]), Value::Text("new".to_owned()));
    answer(&mut link, "+OK");
    assert_eq!(client.read(), Value::ok());
    assert_eq!(writer.call(&["EXISTS", "k"]), Value::Int(0));
}

/// Sends two keys to a server that takes one and falls silent; returns the one that it took. `None`: its own answers came
/// when the time of `ms` was over.
fn takes_one(client: &mut Client, ms: &str) -> Option<String> {
    let other = False::new();
    client.call(&["MSET", "a", "1", "b", "2"]);
    let port = other.port().to_string();
    client.send_all(&[&["MIGRATE", "127.0.0.1", &port, "", "0", ms, "KEYS", "a", "b"]]);
    let sent = Instant::now();
    let mut link = other.accept();
    command(&mut link);
    let _ = link.get_mut().write_all(b"+OK\r\n");
    let first = command(&mut link).into_iter().nth(1);
    let _ = link.get_mut().write_all(b"+OK\r\n");
    let is_late = sent.elapsed() > Duration::from_millis(ms.parse::<u64>().expect("a number") / 2);
    let said = client.read();
    if is_late {
        return None;
    }
    assert_eq!(said, error("IOERR error or timeout reading to target instance"));
    first
}

#[test]
fn a_key_whose_fate_is_unknown_stays() {
    let (server, other) = (Server::start(&[]), False::new());
    let mut client = server.client();
    let port = other.port().to_string();
    let first = ["300", "3000", "30000"].iter().find_map(|ms| takes_one(&mut client, ms)).expect("in time");
    assert_eq!(client.call(&["EXISTS", &first]), Value::Int(0));
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(1));
    // It closes a connection that was kept: another one is tried.
    for closes in [false, true] {
        client.call(&["SET", "k", "v"]);
        client.send_all(&[&["MIGRATE", "127.0.0.1", &port, "k", "0", LONG]]);
        let mut link = other.accept();
        for _ in 0..2 {
            command(&mut link);
            answer(&mut link, "+OK");
        }
        assert_eq!(client.read(), Value::ok(), "{closes}");
    }
}

#[test]
fn a_key_stays_where_the_other_side_is_no_such_server() {
    let (server, other) = (Server::start(&[]), False::new());
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    client.send_all(&[&["MIGRATE", "127.0.0.1", &other.port().to_string(), "k", "0", LONG]]);
    let mut link = other.accept();
    command(&mut link);
    answer(&mut link, "HTTP/1.1 400 Bad Request");
    drop(link);
    // It is tried once more, in case the connection was an old one.
    drop(other);
    let said = client.read();
    assert!(matches!(&said, Value::Error(text) if text.starts_with("IOERR")), "{said:?}");
    assert_eq!(client.call(&["GET", "k"]), Value::Text("v".into()));
}

/// Makes a key with memcached's flags, one with a token and a sticky one; returns what memcached's clients see of the first two.
fn make_marked(client: &mut Client, port: u16) -> String {
    assert_eq!(memcached(port, "set {m}flagged 77 0 1\r\nx\r\n", "\r\n"), "STORED\r\n");
    assert_eq!(memcached(port, "set {m}token 0 0 1\r\ny\r\n", "\r\n"), "STORED\r\n");
    assert_eq!(client.call(&["SET", "{m}kept", "z"]), Value::ok());
    assert_eq!(client.call(&["STICK", "{m}kept"]), Value::Int(1));
    let seen = memcached(port, "gets {m}flagged {m}token\r\n", "END\r\n");
    assert!(seen.starts_with("VALUE {m}flagged 77 1 ") && seen.contains("\r\nVALUE {m}token 0 1 "), "{seen}");
    seen
}

const MARKED: [&str; 8] = ["", "0", LONG, "KEYS", "{m}flagged", "{m}plain", "{m}token", "{m}kept"];

#[test]
fn what_memcached_has_stored_and_the_sticky_mark_go_along() {
    let (here, there) = (Server::start(&["--proactor_threads", "2"]), Server::start(&[]));
    let mut client = here.client();
    let before = make_marked(&mut client, here.port());
    client.call(&["SET", "{m}plain", "p"]);
    assert_eq!(migrate(&mut client, there.port(), &MARKED), Value::ok());
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(0));
    assert_eq!(memcached(there.port(), "gets {m}flagged {m}token\r\n", "END\r\n"), before);
    let mut other = there.client();
    assert_eq!(other.call(&["STICK", "{m}kept", "{m}plain"]), Value::Int(1), "one of the two is sticky");
    assert_eq!(other.call(&["STICK", "{m}plain"]), Value::Int(0), "it was the other one");
}

#[test]
fn redis_gets_the_values_without_the_marks() {
    let Some(redis) = Redis::start(&[]) else { return };
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut theirs) = (server.client(), Client::connect(redis.port));
    // A new connection, and one that is known by then.
    for _ in 0..2 {
        make_marked(&mut client, server.port());
        client.call(&["SET", "{m}plain", "p"]);
        theirs.call(&["SET", "{m}token", "theirs"]);
        let said = migrate(&mut client, redis.port, &MARKED);
        assert_eq!(
            said,
            error("ERR Target instance replied with error: BUSYKEY Target key name already exists.")
        );
        assert_eq!(theirs.call(&["MGET", "{m}flagged", "{m}token", "{m}kept", "{m}plain"]), {
            Value::array(&["x", "theirs", "z", "p"])
        });
        assert_eq!(client.call(&["KEYS", "*"]), Value::array(&["{m}token"]));
        assert_eq!(migrate(&mut client, redis.port, &["{m}token", "0", LONG, "REPLACE"]), Value::ok());
        assert_eq!(theirs.call(&["GET", "{m}token"]), Value::Text("y".to_owned()));
        theirs.call(&["FLUSHALL"]);
    }
}

#[test]
fn values_go_to_redis_and_come_from_it() {
    let Some(redis) = Redis::start(&[]) else { return };
    let server = Server::start(&[]);
    let (mut ours, mut theirs) = (server.client(), Client::connect(redis.port));
    values_travel(&mut ours, &mut theirs, redis.port);
    theirs.call(&["FLUSHALL"]);
    theirs.call(&["SELECT", "0"]);
    ours.call(&["FLUSHALL"]);
    values_travel(&mut theirs, &mut ours, server.port());
}
