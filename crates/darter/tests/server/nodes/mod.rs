//! Masters and replicas of either kind: processes, what they hold, and a stream of random commands.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use darter_base::rng::Rng;

use crate::harness::{Client, PATIENCE, Server, Value, wait_until};

/// A server of either kind, which ends with the test.
pub enum Node {
    /// One of ours.
    Ours(Server),
    /// A Redis.
    Redis(Redis),
}

impl Node {
    /// One of ours with two threads.
    pub fn ours(flags: &[&str]) -> Node {
        Node::Ours(Server::start(&[&["--proactor_threads", "2"], flags].concat()))
    }

    /// A Redis without persistence; `None` where none is installed.
    pub fn redis(flags: &[&str]) -> Option<Node> {
        Redis::start(flags).map(Node::Redis)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        match self {
            Node::Ours(server) => server.port(),
            Node::Redis(redis) => redis.port,
        }
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.port())
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        match self {
            Node::Ours(server) => server.pid(),
            Node::Redis(redis) => redis.process.id(),
        }
    }
}

/// A Redis in a folder of its own.
pub struct Redis {
    process: Child,
    /// Its port.
    pub port: u16,
    folder: PathBuf,
}

/// The server that stands for Redis: `DARTER_PARTNER` names a newer one, or one of Valkey.
pub fn partner() -> String {
    std::env::var("DARTER_PARTNER").unwrap_or_else(|_| "redis-server".to_owned())
}

impl Redis {
    /// Starts one; `None` where none is installed.
    pub fn start(flags: &[&str]) -> Option<Redis> {
        let version = Command::new(partner()).arg("--version").output();
        let text = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
        if !text.starts_with("Redis server v=") && !text.starts_with("Valkey server v=") {
            eprintln!("SKIPPED: redis-server is not installed, or is none of Redis: {text}");
            return None;
        }
        let port = crate::harness::free_port();
        let folder = std::env::temp_dir().join(format!("darter-nodes-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let process = Command::new(partner())
            .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
            .args(["--repl-diskless-sync-delay", "0", "--logfile", "log"])
            .args(flags)
            .current_dir(&folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < PATIENCE, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Redis { process, port, folder })
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sends a signal to a process of ours. After STOP all its threads stand still: until one of them has taken the signal, which
/// needs a core, the others go on.
pub fn signal(pid: u32, name: &str) {
    let done =
        Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().expect("kill runs");
    assert!(done.success());
    if name == "STOP" {
        wait_until("every thread stands still", || stands_still(pid).unwrap_or(true));
    }
}

/// Whether every thread of a process is stopped; `None` if it has ended.
fn stands_still(pid: u32) -> Option<bool> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let stats = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    // Its state comes behind its name, which is in brackets.
    let states =
        stats.map(|stat| stat.rsplit_once(") ").map_or(' ', |(_, rest)| rest.chars().next().unwrap_or(' ')));
    Some(states.into_iter().all(|state| matches!(state, 'T' | 't' | 'Z' | 'X')))
}

/// A field of INFO replication as text.
pub fn field(client: &mut Client, name: &str) -> String {
    client.info("replication", name)
}

/// Has a node follow another, and waits until it does.
pub fn follow(replica: &mut Client, port: u16) {
    let said = replica.call(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
    assert!(matches!(said, Value::Status(_)), "{said:?}");
    wait_until("the link is up", || {
        field(replica, "role") == "slave"
            && field(replica, "master_port") == port.to_string()
            && field(replica, "master_link_status") == "up"
    });
}

/// Waits until a replica has everything that its master has.
pub fn catch_up(master: &mut Client, replica: &mut Client) {
    wait_until("the replica catches up", || {
        let end = field(master, "master_repl_offset");
        field(replica, "master_link_status") == "up" && field(replica, "master_repl_offset") == end
    });
}

/// Everything a node holds, key by key, in an order of its own.
pub fn contents(client: &mut Client) -> Vec<String> {
    let mut all = Vec::new();
    for db in 0..DBS {
        client.call(&["SELECT", &db.to_string()]);
        let Value::Array(keys) = client.call(&["KEYS", "*"]) else { panic!("keys") };
        let keys: Vec<String> = keys
            .into_iter()
            .map(|key| match key {
                Value::Text(key) => key,
                other => panic!("no key: {other:?}"),
            })
            .collect();
        // Many at a time: keys die while others are asked for, and both nodes are to be looked at between two ends.
        for some in keys.chunks(200) {
            let types: Vec<[&str; 2]> = some.iter().map(|key| ["TYPE", key]).collect();
            client.send_all(&types.iter().map(|words| &words[..]).collect::<Vec<_>>());
            let kinds: Vec<Value> = some.iter().map(|_| client.read()).collect();
            let (texts, others): (Vec<_>, Vec<_>) =
                some.iter().zip(kinds).partition(|(_, kind)| *kind == Value::Status("string".to_owned()));
            let asked: Vec<[&str; 2]> =
                texts.iter().flat_map(|(key, _)| [["GET", key.as_str()], ["PEXPIRETIME", key]]).collect();
            client.send_all(&asked.iter().map(|words| &words[..]).collect::<Vec<_>>());
            for (key, _) in texts {
                let (value, deadline) = (client.read(), client.read());
                // It may have died meanwhile.
                if value != Value::Null {
                    all.push(format!("{db} {key} string {value:?} {deadline:?}"));
                }
            }
            for (key, _) in others {
                if let Some(line) = describe(client, key) {
                    all.push(format!("{db} {key} {line}"));
                }
            }
        }
    }
    client.call(&["SELECT", "0"]);
    all.sort();
    all
}

fn describe(client: &mut Client, key: &str) -> Option<String> {
    let Value::Status(kind) = client.call(&["TYPE", key]) else { panic!("a type") };
    let mut value = match kind.as_str() {
        "string" => client.call(&["GET", key]),
        "list" => client.call(&["LRANGE", key, "0", "-1"]),
        "set" => client.call(&["SMEMBERS", key]),
        "zset" => client.call(&["ZRANGE", key, "0", "-1", "WITHSCORES"]),
        "hash" => client.call(&["HGETALL", key]),
        "stream" => return Some(format!("{kind} {}", stream(client, key))),
        "none" => return None,
        other => panic!("{other}"),
    };
    if let (Value::Array(items), "set") = (&mut value, kind.as_str()) {
        items.sort_by_key(|item| format!("{item:?}"));
    }
    if let (Value::Array(items), "hash") = (&mut value, kind.as_str()) {
        let mut pairs: Vec<String> = items.chunks(2).map(|pair| format!("{pair:?}")).collect();
        pairs.sort();
        value = Value::Text(pairs.join(" "));
    }
    // Versions of Redis print doubles differently.
    if let (Value::Array(items), "zset") = (&mut value, kind.as_str()) {
        for item in items {
            if let Value::Text(text) = item
                && let Ok(score) = text.parse::<f64>()
            {
                *text = format!("{score:?}");
            }
        }
    }
    let deadline = client.call(&["PEXPIRETIME", key]);
    (value != Value::Null).then(|| format!("{kind} {value:?} {deadline:?}"))
}

/// Entries, groups and pending entries of a stream, without times that pass and without `entries-read`, which Redis does
/// not tell its replicas.
fn stream(client: &mut Client, key: &str) -> String {
    let entries = client.call(&["XRANGE", key, "-", "+"]);
    let mut out = format!("{entries:?}");
    let Value::Array(groups) = client.call(&["XINFO", "GROUPS", key]) else { panic!("groups") };
    for group in groups {
        let Value::Array(facts) = group else { panic!("a group") };
        let fact = |name: &str| {
            let at = facts.iter().position(|fact| *fact == Value::Text(name.to_owned()));
            at.and_then(|at| facts.get(at + 1)).cloned().unwrap_or(Value::Null)
        };
        let Value::Text(name) = fact("name") else { panic!("a name") };
        let Value::Array(pending) = client.call(&["XPENDING", key, &name, "-", "+", "10000"]) else {
            panic!("pending")
        };
        let pending = pending.into_iter().map(|one| match one {
            Value::Array(fields) => format!("{:?} {:?} {:?}", fields[0], fields[1], fields[3]),
            other => panic!("{other:?}"),
        });
        let pending: Vec<String> = pending.collect();
        out += &format!(" {name} {:?} {pending:?}", fact("last-delivered-id"));
    }
    out
}

/// Databases that random commands use.
pub const DBS: usize = 3;

/// Random commands that change data, in words that Redis 7.0 knows.
pub struct Writer {
    rng: Rng,
}

impl Writer {
    /// Those of a seed.
    pub fn new(seed: u64) -> Writer {
        Writer { rng: Rng::new(seed) }
    }

    fn key(&mut self, kind: &str) -> String {
        format!("{kind}{}", self.rng.below(12))
    }

    fn word(&mut self) -> String {
        format!("w{}", self.rng.below(40))
    }

    fn number(&mut self, below: u64) -> String {
        self.rng.below(below).to_string()
    }

    /// The next command.
    pub fn next(&mut self) -> Vec<String> {
        const KINDS: &[fn(&mut Writer) -> Vec<String>] = &[
            Writer::text,
            Writer::text,
            Writer::list,
            Writer::hash,
            Writer::set,
            Writer::zset,
            Writer::stream,
            Writer::any,
        ];
        let at = self.rng.below(KINDS.len() as u64) as usize;
        KINDS[at](self)
    }

    fn choose(&mut self, choices: &[String]) -> Vec<String> {
        let at = self.rng.below(choices.len() as u64) as usize;
        choices[at].split(' ').map(str::to_owned).collect()
    }

    fn text(&mut self) -> Vec<String> {
        let (k, o, w, n) = (self.key("t"), self.key("t"), self.word(), self.number(5000));
        self.choose(&[
            format!("SET {k} {w}"),
            format!("SET {k} {w} EX 1000"),
            format!("SET {k} {w} NX GET"),
            format!("SET {k} {w} PX 30"),
            format!("SET {k} {w} KEEPTTL"),
            format!("SETEX {k} 500 {w}"),
            format!("APPEND {k} {w}"),
            format!("INCR c{n}"),
            format!("INCRBYFLOAT f{} 1.25", &n[..1]),
            format!("SETRANGE {k} 3 {w}"),
            format!("SETBIT {k} {n} 1"),
            format!("GETDEL {k}"),
            format!("GETEX {k} PX 100000"),
            format!("GETSET {k} {w}"),
            format!("MSET {k} {w} {o} {w}"),
            format!("BITOP XOR {o} {k} {k}"),
            format!("PFADD p{} {w}", &n[..1]),
        ])
    }

    fn list(&mut self) -> Vec<String> {
        let (k, o, w, n) = (self.key("l"), self.key("l"), self.word(), self.number(6));
        self.choose(&[
            format!("RPUSH {k} {w} {n} {w}"),
            format!("LPUSH {k} {w}"),
            format!("LPOP {k} 2"),
            format!("RPOPLPUSH {k} {o}"),
            format!("LMOVE {k} {o} LEFT RIGHT"),
            format!("LMPOP 2 {k} {o} LEFT COUNT 2"),
            format!("BLPOP {k} {o} 0.001"),
            format!("LTRIM {k} 0 20"),
            format!("LREM {k} 1 {w}"),
            format!("LINSERT {k} BEFORE {w} x"),
            format!("SORT {k} ALPHA STORE {o}"),
        ])
    }

    fn hash(&mut self) -> Vec<String> {
        let (k, w, n) = (self.key("h"), self.word(), self.number(100));
        self.choose(&[
            format!("HSET {k} {w} {n}"),
            format!("HSETNX {k} {w} {n}"),
            format!("HDEL {k} {w}"),
            format!("HINCRBY {k} n{n} 3"),
            format!("HINCRBYFLOAT {k} d{n} 0.5"),
        ])
    }

    fn set(&mut self) -> Vec<String> {
        let (k, o, w, n) = (self.key("s"), self.key("s"), self.word(), self.number(100));
        self.choose(&[
            format!("SADD {k} {w} {n}"),
            format!("SREM {k} {w}"),
            format!("SPOP {k} 2"),
            format!("SPOP {k}"),
            format!("SMOVE {k} {o} {w}"),
            format!("SUNIONSTORE {o} {k} {o}"),
            format!("SINTERSTORE {o} {k} {o}"),
        ])
    }

    fn zset(&mut self) -> Vec<String> {
        let (k, o, w, n) = (self.key("z"), self.key("z"), self.word(), self.number(1000));
        self.choose(&[
            format!("ZADD {k} {n} {w}"),
            format!("ZADD {k} GT INCR {n} {w}"),
            format!("ZINCRBY {k} 1.5 {w}"),
            format!("ZREM {k} {w}"),
            format!("ZPOPMIN {k} 2"),
            format!("ZREMRANGEBYSCORE {k} 0 {n}"),
            format!("ZUNIONSTORE {o} 2 {k} {o} WEIGHTS 1 0.5"),
            format!("ZRANGESTORE {o} {k} 0 3"),
            format!("GEOADD {k} 13.361389 38.{n} {w}"),
        ])
    }

    fn stream(&mut self) -> Vec<String> {
        let (k, w, n) = (format!("x{}", self.rng.below(3)), self.word(), self.number(3));
        self.choose(&[
            format!("XADD {k} * f {w}"),
            format!("XADD {k} * f {w}"),
            format!("XADD {k} * f {w}"),
            format!("XADD {k} MAXLEN ~ 60 * f {w}"),
            format!("XGROUP CREATE {k} g{n} 0"),
            format!("XREADGROUP GROUP g{n} c{n} COUNT 3 STREAMS {k} >"),
            format!("XREADGROUP GROUP g{n} c1 COUNT 1 NOACK STREAMS {k} >"),
            format!("XAUTOCLAIM {k} g{n} other 0 0 COUNT 2"),
            format!("XTRIM {k} MAXLEN 50"),
        ])
    }

    fn any(&mut self) -> Vec<String> {
        let kinds = ["t", "l", "h", "s", "z"];
        let kind = kinds[self.rng.below(5) as usize];
        let (k, o, n) = (self.key(kind), self.key(kind), self.number(100_000));
        let db = self.rng.below(DBS as u64);
        self.choose(&[
            format!("DEL {k} {o}"),
            format!("UNLINK {k}"),
            format!("PEXPIRE {k} {n}"),
            format!("EXPIRE {k} 1000 NX"),
            format!("PERSIST {k}"),
            format!("RENAME {k} {o}"),
            format!("COPY {k} {o} REPLACE"),
            format!("MOVE {k} {db}"),
            format!("SELECT {db}"),
            format!("SELECT {db}"),
        ])
    }

    /// Sends `count` commands, some of them in transactions and scripts.
    pub fn write(&mut self, client: &mut Client, count: usize) {
        let mut left = count;
        while left > 0 {
            let len = left.min(1 + self.rng.below(40) as usize);
            left -= len;
            let mut lines: Vec<Vec<String>> = (0..len).map(|_| self.next()).collect();
            let is_transaction = self.rng.below(4) == 0;
            if is_transaction {
                lines.insert(0, vec!["MULTI".to_owned()]);
                lines.push(vec!["EXEC".to_owned()]);
            }
            let n = self.rng.below(50);
            let script = "redis.call('set', KEYS[1], ARGV[1]) redis.call('rpush', KEYS[2], ARGV[1]) return 1";
            lines.push(
                ["EVAL", script, "2", &format!("e{n}"), &format!("el{n}"), "v"].map(str::to_owned).to_vec(),
            );
            let words: Vec<Vec<&str>> =
                lines.iter().map(|line| line.iter().map(String::as_str).collect()).collect();
            let commands: Vec<&[&str]> = words.iter().map(Vec::as_slice).collect();
            client.send_all(&commands);
            for _ in &commands {
                client.read();
            }
        }
        client.call(&["SELECT", "0"]);
    }
}

/// Compares two nodes after every key that is about to expire has.
pub fn assert_equal(master: &mut Client, replica: &mut Client) {
    let began = Instant::now();
    loop {
        catch_up(master, replica);
        let (ours, theirs) = (contents(master), contents(replica));
        if ours == theirs {
            assert!(ours.len() > 10, "there is something to compare");
            return;
        }
        // A key may die between the two looks, and on a busy machine a look takes long.
        if began.elapsed() > PATIENCE {
            let differs =
                ours.iter().filter(|line| !theirs.contains(line)).map(|line| format!("master  {line}"));
            let others =
                theirs.iter().filter(|line| !ours.contains(line)).map(|line| format!("replica {line}"));
            let shown: Vec<String> = differs.chain(others).take(8).collect();
            panic!("they differ:\n{}", shown.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
