//! What CLIENT LIST shows of a connection, state by state: the numbers are those of Redis 7.0.15 where both have them.

use std::io::Write;
use std::time::Instant;

use crate::clients::text;
use crate::harness::{Client, PATIENCE, Server, Value, wait_until};

/// The value of a field of a line.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let found = line.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    found.unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn number(line: &str, name: &str) -> usize {
    field(line, name).parse().unwrap_or_else(|_| panic!("{name} is no number in {line}"))
}

/// Somebody who looks at others.
struct Watcher(Client);

impl Watcher {
    /// The line of the client called `name`, once `is_so` says that it is as it should be: what the client has sent may
    /// be on its way still.
    fn line(&mut self, name: &str, is_so: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let list = text(self.0.call(&["CLIENT", "LIST"]));
            let line = list.lines().find(|line| field(line, "name") == name).expect("it is listed");
            if is_so(line) {
                return line.to_owned();
            }
            assert!(began.elapsed() < PATIENCE, "{line}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits until the client called `name` has all the `fields`, written as in the list.
    fn sees(&mut self, name: &str, fields: &str) -> String {
        self.line(name, |line| fields.split(' ').all(|wanted| line.split(' ').any(|field| field == wanted)))
    }
}

fn named(server: &Server, name: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.call(&["CLIENT", "SETNAME", name]), Value::ok());
    client
}

fn send(client: &mut Client, bytes: &str) {
    client.stream().write_all(bytes.as_bytes()).expect("sent");
}

#[test]
fn a_half_read_command_is_counted_as_far_as_it_is_understood() {
    let server = Server::start(&[]);
    let mut watcher = Watcher(server.client());
    for (name, bytes, fields) in [
        ("header", "*3\r", "qbuf=3 argv-mem=0"),
        ("name", "*3\r\n$3\r\nSE", "qbuf=2 argv-mem=0"),
        ("length", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1", "qbuf=2 argv-mem=4"),
        ("key", "*3\r\n$3\r\nSET\r\n$1\r\nk", "qbuf=1 argv-mem=3"),
        ("value", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10\r\nabc", "qbuf=3 argv-mem=4"),
        ("line", "SET a", "qbuf=5 argv-mem=0"),
    ] {
        let mut client = named(&server, name);
        send(&mut client, bytes);
        let line = watcher.sees(name, fields);
        // All that was sent is kept in one piece.
        let room = number(&line, "qbuf") + number(&line, "qbuf-free");
        assert!(room <= 128 && number(&line, "tot-mem") >= bytes.len(), "{line}");
    }
    let mut client = named(&server, "cut");
    send(&mut client, "*3\r\n$3\r\nSET\r\n$1");
    watcher.sees("cut", "qbuf=2 argv-mem=3");
    send(&mut client, "\r\nk\r\n$10\r\nabc");
    watcher.sees("cut", "qbuf=3 argv-mem=4");
    send(&mut client, "defghij\r\n");
    assert_eq!(client.read(), Value::ok());
    watcher.sees("cut", "qbuf=0 argv-mem=0 cmd=set");
    let mut client = named(&server, "large");
    send(&mut client, &format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$200000\r\n{}", "x".repeat(100_000)));
    let line = watcher.sees("large", "qbuf=100000 argv-mem=4");
    assert!(number(&line, "tot-mem") > 100_000, "{line}");
}

#[test]
fn a_waiting_command_is_counted_by_its_arguments() {
    let server = Server::start(&[]);
    let mut watcher = Watcher(server.client());
    let mut pop = named(&server, "pop");
    pop.send_all(&[&["BLPOP", "kk", "0"], &["SET", "a", "b"]]);
    watcher.sees("pop", "flags=b cmd=blpop argv-mem=8 qbuf=27 events=r");
    assert_eq!(watcher.0.call(&["RPUSH", "kk", "1"]), Value::Int(1));
    assert_eq!((pop.read(), pop.read()), (Value::array(&["kk", "1"]), Value::ok()));
    watcher.sees("pop", "flags=N cmd=set argv-mem=0 qbuf=0");
    let mut wait = named(&server, "wait");
    wait.send_all(&[&["WAIT", "1", "0"]]);
    watcher.sees("wait", "flags=b argv-mem=6 cmd=wait");

    let mut paused = named(&server, "paused");
    assert_eq!(watcher.0.call(&["CLIENT", "PAUSE", "100000", "WRITE"]), Value::ok());
    paused.send_all(&[&["SET", "paused", "1"], &["GET", "p"]]);
    watcher.sees("paused", "flags=b argv-mem=10 qbuf=20");
    assert_eq!(watcher.0.call(&["CLIENT", "UNPAUSE"]), Value::ok());
    assert_eq!((paused.read(), paused.read()), (Value::ok(), Value::Null));
    watcher.sees("paused", "flags=N argv-mem=0 qbuf=0 cmd=get");
}

#[test]
fn who_asks_is_shown_as_it_asks() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let own = text(client.call(&["CLIENT", "INFO"]));
    assert_eq!((field(&own, "argv-mem"), field(&own, "obl"), field(&own, "qbuf")), ("10", "0", "0"), "{own}");
    let own = text(client.call(&["CLIENT", "LIST", "SKIPME", "no"]));
    assert_eq!(number(&own, "argv-mem"), "CLIENTLISTSKIPMEno".len(), "{own}");
    client.send_all(&[&["PING"], &["CLIENT", "INFO"]]);
    assert_eq!(client.read(), Value::Status("PONG".to_owned()));
    let own = text(client.read());
    assert_eq!(number(&own, "obl"), "+PONG\r\n".len(), "{own}");
    // EXEC has not ended yet.
    for command in [&["MULTI"] as &[&str], &["CLIENT", "INFO"], &["SET", "a", "b"]] {
        client.call(command);
    }
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("no array") };
    let own = text(replies[0].clone());
    assert_eq!((field(&own, "flags"), field(&own, "multi")), ("x", "2"), "{own}");
    assert!(number(&own, "multi-mem") > 0, "{own}");
    let own = text(client.call(&["CLIENT", "INFO"]));
    assert_eq!(
        (field(&own, "flags"), field(&own, "multi"), field(&own, "multi-mem")),
        ("N", "-1", "0"),
        "{own}"
    );
}

#[test]
fn what_others_change_of_a_client_is_shown() {
    let server = Server::start(&[]);
    let mut watcher = Watcher(server.client());
    let mut client = named(&server, "watch");
    assert_eq!(client.call(&["WATCH", "w1", "w2"]), Value::ok());
    watcher.sees("watch", "flags=N watch=2");
    assert_eq!(watcher.0.call(&["SET", "w2", "1"]), Value::ok());
    // The key was marked before the writer was answered.
    let list = text(watcher.0.call(&["CLIENT", "LIST", "NAME", "watch", "FLAGS", "d"]));
    assert_eq!(list.lines().map(|line| field(line, "flags")).collect::<Vec<_>>(), ["d"]);
    client.send_all(&[&["UNWATCH"], &["WATCH", "w1"]]);
    assert_eq!((client.read(), client.read()), (Value::ok(), Value::ok()));
    watcher.sees("watch", "flags=N watch=1");

    let mut reader = named(&server, "reader");
    let mut other = server.client();
    let Value::Int(id) = other.call(&["CLIENT", "ID"]) else { panic!("no id") };
    let id = id.to_string();
    assert_eq!(reader.call(&["CLIENT", "TRACKING", "ON", "REDIRECT", &id]), Value::ok());
    assert_eq!(reader.call(&["GET", "w2"]), Value::Text("1".to_owned()));
    watcher.line("reader", |line| field(line, "redir") == id);
    drop(other);
    // The other one is gone when nobody is listed by its id any more.
    let began = Instant::now();
    while !text(watcher.0.call(&["CLIENT", "LIST", "ID", &id])).is_empty() {
        assert!(began.elapsed() < PATIENCE);
    }
    assert_eq!(watcher.0.call(&["SET", "w2", "2"]), Value::ok());
    watcher.sees("reader", "flags=tR");
}

#[test]
fn output_is_counted_until_it_is_taken() {
    let server = Server::start(&[]);
    let mut watcher = Watcher(server.client());
    assert_eq!(watcher.0.call(&["SETRANGE", "big", "7999999", "x"]), Value::Int(8_000_000));
    let mut client = named(&server, "slow");
    client.send_all(&[&["GET", "big"], &["GET", "big"], &["GET", "big"]]);
    // Once the kernel takes no more of it: of a long string so much waits, and the rest stays where it is.
    let line = watcher.line("slow", |line| number(line, "omem") > 200_000 && field(line, "events") == "rw");
    let pending = number(&line, "obl") + number(&line, "omem");
    assert!(number(&line, "rbp") >= pending && number(&line, "rbs") >= pending, "{line}");
    assert!(number(&line, "tot-mem") > pending && number(&line, "oll") > 1, "{line}");
    let wanted = "\0".repeat(7_999_999) + "x";
    (0..3).for_each(|_| assert!(client.read() == Value::Text(wanted.clone())));
    watcher.sees("slow", "obl=0 oll=0 omem=0 events=r");

    let mut multi = named(&server, "multi");
    multi.call(&["MULTI"]);
    multi.call(&["SET", "aa", &"x".repeat(100_000)]);
    let line = watcher.sees("multi", "flags=x multi=1");
    assert!(number(&line, "multi-mem") > 100_000 && number(&line, "tot-mem") > 100_000, "{line}");
}

#[test]
fn who_is_sent_something_is_not_idle() {
    let server = Server::start(&[]);
    let mut watcher = Watcher(server.client());
    let mut subscriber = named(&server, "subscriber");
    subscriber.send_all(&[&["SUBSCRIBE", "news"]]);
    subscriber.read();
    watcher.line("subscriber", |line| number(line, "idle") >= 2);
    let mut line = String::new();
    // Sent again, where the look at it has come late.
    wait_until("it is not idle", || {
        assert_eq!(watcher.0.call(&["PUBLISH", "news", "x"]), Value::Int(1));
        subscriber.read();
        line = watcher.line("subscriber", |_| true);
        number(&line, "idle") < 2
    });
    assert!(number(&line, "age") >= 2, "{line}");
}
