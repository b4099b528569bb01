//! The same commands to a cluster of three Redis 7.0 and to one of three Darter: the same answers, but addresses and ids.

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::harness::folder::Folder;
use crate::harness::{Client, PATIENCE, Server, Value, free_port};

/// Slots of the three nodes, as `redis-cli --cluster create` gives them.
const SLOTS: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, 16383)];

/// A cluster of three, of either kind: ports and ids in the order of the slots.
struct Trio {
    ports: Vec<u16>,
    ids: Vec<String>,
}

impl Trio {
    fn of(ports: Vec<u16>) -> Trio {
        let id = |port: &u16| match Client::connect(*port).call(&["CLUSTER", "MYID"]) {
            Value::Text(id) => id,
            other => panic!("no id: {other:?}"),
        };
        let ids = ports.iter().map(id).collect();
        Trio { ports, ids }
    }

    /// An answer with addresses and ids that both kinds have.
    fn plain(&self, value: Value) -> Value {
        match value {
            Value::Error(text) => Value::Error(self.plain_text(text)),
            Value::Text(text) => Value::Text(self.plain_text(text)),
            Value::Int(number) => {
                let at = self.ports.iter().position(|port| i64::from(*port) == number);
                at.map_or(Value::Int(number), |at| Value::Text(format!("PORT{at}")))
            }
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.plain(item)).collect()),
            other => other,
        }
    }

    fn plain_text(&self, mut text: String) -> String {
        for (at, (port, id)) in self.ports.iter().zip(&self.ids).enumerate() {
            text = text.replace(&format!(":{port}"), &format!(":PORT{at}")).replace(id, &format!("ID{at}"));
            text = text.replace(&format!("@{}", port.wrapping_add(10_000)), &format!("@BUS{at}"));
        }
        text
    }
}

/// A Redis of a cluster, in a folder of its own.
struct Redis {
    process: Child,
    port: u16,
    bus: u16,
    _folder: Folder,
}

impl Redis {
    fn start(at: usize) -> Redis {
        let (port, bus) = (free_port(), free_port());
        let folder = Folder::new(&format!("beside-redis-{at}"));
        let process = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
            .args(["--cluster-enabled", "yes", "--cluster-node-timeout", "60000"])
            .args(["--cluster-port", &bus.to_string()])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let redis = Redis { process, port, bus, _folder: folder };
        crate::harness::wait_until("redis-server listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        redis
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Three of Redis; `None` if none is installed.
fn start_redis() -> Option<(Vec<Redis>, Trio)> {
    let version = Command::new("redis-server").arg("--version").output();
    let text = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    if !text.starts_with("Redis server v=7.0") {
        eprintln!("SKIPPED: redis-server 7.0 is not installed: {text}");
        return None;
    }
    let all: Vec<Redis> = (0..3).map(Redis::start).collect();
    let addresses: Vec<String> =
        all.iter().map(|redis| format!("127.0.0.1:{}@{}", redis.port, redis.bus)).collect();
    let created = Command::new("redis-cli")
        .args(["--cluster", "create"])
        .args(&addresses)
        .arg("--cluster-yes")
        .output()
        .expect("redis-cli runs");
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
    let trio = Trio::of(all.iter().map(|redis| redis.port).collect());
    let began = std::time::Instant::now();
    for port in &trio.ports {
        let mut client = Client::connect(*port);
        let is_ok = |value: Value| matches!(value, Value::Text(text) if text.contains("cluster_state:ok"));
        while !is_ok(client.call(&["CLUSTER", "INFO"])) {
            assert!(began.elapsed() < PATIENCE, "the cluster does not form");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    Some((all, trio))
}

/// Three of Darter with the same slots.
fn start_darter() -> (Vec<Server>, Vec<Folder>, Trio) {
    let folders: Vec<Folder> = (0..3).map(|at| Folder::new(&format!("beside-{at}"))).collect();
    let servers: Vec<Server> = folders
        .iter()
        .enumerate()
        .map(|(at, folder)| {
            let id = format!("{at}").repeat(40);
            Server::start(&["--cluster_mode=yes", "--cluster_node_id", &id, "--dir", folder.text()])
        })
        .collect();
    let trio = Trio::of(servers.iter().map(Server::port).collect());
    let group = |at: usize| {
        let ((start, end), id, port) = (SLOTS[at], &trio.ids[at], trio.ports[at]);
        format!(
            r#"{{"slot_ranges":[{{"start":{start},"end":{end}}}],"master":{{"id":"{id}","ip":"127.0.0.1","port":{port}}}}}"#
        )
    };
    let json = format!("[{},{},{}]", group(0), group(1), group(2));
    for server in &servers {
        assert_eq!(server.client().call(&["DFLYCLUSTER", "CONFIG", &json]), Value::ok());
    }
    (servers, folders, trio)
}

#[test]
fn answers_are_those_of_redis() {
    let Some((_redis, theirs)) = start_redis() else { return };
    let (_servers, _folders, ours) = start_darter();
    let clients = |trio: &Trio| trio.ports.iter().map(|port| Client::connect(*port)).collect::<Vec<_>>();
    let (mut our_clients, mut their_clients) = (clients(&ours), clients(&theirs));
    let mut different = Vec::new();
    for line in SCRIPT.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (at, line) = line.split_once(' ').expect("a node and a command");
        let at: usize = at.parse().expect("a node");
        let words: Vec<String> = line.split(' ').map(|word| word.replace('~', " ")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let our = ours.plain(our_clients[at].call(&words));
        let their = theirs.plain(their_clients[at].call(&words));
        if our != their {
            different.push(format!("{line}\n  ours   {our:?}\n  theirs {their:?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A node and a command to it; `~` is a space within a word. foo is in slot 12182 (node 2), bar in 5061 and hello in 866
/// (node 0), a in 15495 (node 2).
const SCRIPT: &str = "
    0 SET bar 1
    0 GET bar
    0 GET foo
    0 SET foo 1
    1 GET foo
    2 SET foo 1
    2 GET foo
    0 MGET bar foo
    0 MGET bar hello
    0 MGET foo bar
    0 MGET foo a
    0 DEL bar hello
    0 MGET {bar}1 bar
    0 RENAME bar foo
    0 RENAME bar {bar}2
    0 RENAME {bar}2 bar
    0 GET {}foo
    0 GET foo{bar}x
    0 GET {bar
    0 EXISTS foo
    0 TTL a
    0 OBJECT ENCODING foo
    0 OBJECT ENCODING bar
    0 BLPOP foo 1
    0 XREAD STREAMS foo 0
    0 SINTERCARD 2 bar hello
    0 SORT foo
    0 PING
    0 ECHO x
    0 DBSIZE
    0 PUBLISH foo x
    0 SPUBLISH foo x
    0 SPUBLISH bar x
    0 SSUBSCRIBE foo
    0 SUNSUBSCRIBE foo
    0 GET
    0 MGET
    0 NOSUCH foo
    0 MULTI
    0 GET foo
    0 EXEC
    0 MULTI
    0 SET bar 1
    0 SET hello 1
    0 EXEC
    0 EXEC
    0 MULTI
    0 SET bar 5
    0 INCR bar
    0 EXEC
    0 MULTI
    0 MGET bar hello
    0 EXEC
    0 WATCH foo
    0 WATCH bar hello
    0 WATCH bar
    0 MULTI
    0 EXEC
    0 EVAL return(1) 0
    0 EVAL return(1) 1 foo
    0 EVAL return(1) 2 bar hello
    0 EVAL return~redis.call('get','bar') 1 bar
    0 EVAL return~redis.pcall('get','foo').err 1 bar
    0 EVAL return~redis.pcall('get','foo').err 0
    0 EVAL return~redis.pcall('mget','bar','hello').err 0
    0 EVAL redis.call('set','bar',1)~redis.call('set','hello',2)~return~1 1 bar
    0 EVAL redis.call('set','bar',1)~redis.call('set','hello',2)~return~1 0
    0 EVALSHA aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 1 foo
    0 FCALL nosuch 1 foo
    0 GET hello
    0 CLUSTER KEYSLOT foo
    0 CLUSTER COUNTKEYSINSLOT 5061
    0 CLUSTER COUNTKEYSINSLOT 12182
    2 CLUSTER COUNTKEYSINSLOT 12182
    0 CLUSTER COUNTKEYSINSLOT 16384
    0 CLUSTER GETKEYSINSLOT 5061 10
    0 CLUSTER GETKEYSINSLOT 5061 0
    0 CLUSTER SLOTS
    1 CLUSTER SLOTS
    0 CLUSTER MYID
    0 CLUSTER REPLICAS x
    0 CLUSTER COUNT-FAILURE-REPORTS x
    0 CLUSTER NOSUCH
    0 READONLY
    0 GET foo
    0 GET bar
    0 READWRITE
    0 ASKING
    0 GET foo
    0 FLUSHALL
    2 GET foo
";
