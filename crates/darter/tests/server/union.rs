//! Commands that only some of the servers have: BACKUP, HOTKEYS, SFLUSH, TRIMSLOTS, RESTORE-ASKING, CLIENT IMPORT-SOURCE;
//! and clients of memcached's binary protocol, which nobody serves any more.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::{Client, PATIENCE, Server, Value, free_port, wait_until};

fn error(text: &str) -> Value {
    Value::Error(text.to_owned())
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// A map as field and value.
fn fields(value: Value) -> HashMap<String, Value> {
    let Value::Array(items) = value else { panic!("no map: {value:?}") };
    let name = |value: &Value| match value {
        Value::Text(name) => name.clone(),
        other => panic!("no name: {other:?}"),
    };
    items.chunks(2).map(|pair| (name(&pair[0]), pair[1].clone())).collect()
}

/// Sends bytes and returns all that comes until the server closes.
fn answer_to(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(bytes).expect("sent");
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    said
}

#[test]
fn a_client_of_the_binary_protocol_is_told_so_in_its_framing() {
    let folder = Folder::new("union-binary");
    let log = folder.path().join("log");
    let port = free_port();
    let server =
        Server::start(&["--logfile", log.to_str().expect("a text"), "--memcached_port", &port.to_string()]);
    // A `version` whose opaque is 01020304.
    let mut request = [0_u8; 24];
    (request[0], request[1]) = (0x80, 0x0b);
    request[12..16].copy_from_slice(&[1, 2, 3, 4]);
    for port in [server.port(), port, port] {
        let said = answer_to(port, &request);
        assert_eq!(said.get(..8), Some([0x81, 0x0b, 0, 0, 0, 0, 0, 0x83].as_slice()), "{said:?}");
        let body = u32::from_be_bytes(said[8..12].try_into().expect("four bytes")) as usize;
        assert_eq!((said.len(), &said[12..16]), (24 + body, [1, 2, 3, 4].as_slice()));
        assert!(said.ends_with(b"is not supported: use the text protocol"));
    }
    let told = || {
        let log = std::fs::read_to_string(&log).expect("the log");
        log.matches("memcached's binary protocol").count()
    };
    wait_until("it is in the log", || told() > 0);
    assert_eq!(told(), 1);
}

#[test]
fn restore_asking_is_restore() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "k", "1"]);
    client.call(&["COPY", "k", "old"]);
    // An integer's payload is text but for its checksum, so it is restored by a script.
    let script = "local d = redis.call('DUMP', 'k') return redis.call('RESTORE-ASKING', KEYS[1], ARGV[1], d, unpack(ARGV, 2))";
    assert_eq!(client.call(&["EVAL", script, "1", "new", "0"]), Value::ok());
    assert_eq!(client.call(&["GET", "new"]), text("1"));
    assert!(
        matches!(client.call(&["EVAL", script, "1", "old", "0"]), Value::Error(said) if said.contains("BUSYKEY"))
    );
    assert_eq!(client.call(&["EVAL", script, "1", "old", "100000", "REPLACE"]), Value::ok());
    assert!(matches!(client.call(&["PTTL", "old"]), Value::Int(ms) if ms > 0));
    assert_eq!(
        client.call(&["RESTORE-ASKING", "a"]),
        error("ERR wrong number of arguments for 'restore-asking' command")
    );
}

#[test]
fn slots_are_flushed() {
    const OFF: &str = "ERR This instance has cluster support disabled";
    let plain = Server::start(&[]);
    assert_eq!(plain.client().call(&["SFLUSH", "0", "1"]), error(OFF));
    assert_eq!(plain.client().call(&["TRIMSLOTS", "RANGES", "1", "0", "1"]), error(OFF));
    // Who may not do dangerous things may not do these.
    for name in ["sflush", "trimslots", "restore-asking"] {
        let Value::Array(infos) = plain.client().call(&["COMMAND", "INFO", name]) else { panic!("no info") };
        let found = format!("{infos:?}");
        assert!(found.contains("@keyspace") && found.contains("@dangerous"), "{name}: {found}");
    }
    let folder = Folder::new("union-slots");
    let flags = ["--cluster_mode", "emulated", "--dir", folder.text(), "--appendonly", "yes"];
    let server = Server::start(&flags);
    let mut client = server.client().loaded();
    client.call_for_each(&["MSET"], 20_000, |n, words| {
        words.extend([format!("k{n}"), "v".to_owned()]);
    });
    // The slot of foo is 12182.
    client.call(&["SET", "foo", "1"]);
    client.call(&["SET", "{foo}2", "1"]);
    let mut watcher = server.client();
    watcher.call(&["WATCH", "foo"]);
    watcher.call(&["MULTI"]);
    watcher.call(&["PING"]);
    let one = |first: i64, last: i64| Value::Array(vec![Value::Int(first), Value::Int(last)]);
    assert_eq!(client.call(&["SFLUSH", "12182", "12182", "SYNC"]), Value::Array(vec![one(12182, 12182)]));
    assert_eq!(watcher.call(&["EXEC"]), Value::Null);
    assert_eq!(client.call(&["EXISTS", "foo", "{foo}2"]), Value::Int(0));
    let Value::Int(left) = client.call(&["DBSIZE"]) else { panic!("no number") };
    assert!(left > 19_900, "{left}");
    assert_eq!(
        client.call(&["SFLUSH", "8000", "8191", "0", "7999", "10000", "10000"]),
        Value::Array(vec![one(0, 8191), one(10000, 10000)])
    );
    let Value::Int(half) = client.call(&["DBSIZE"]) else { panic!("no number") };
    assert!(half > 9_000 && half < 11_000, "{half}");
    for (words, said) in [
        (&["SFLUSH", "1", "2", "3"][..], "ERR wrong number of arguments for 'sflush' command"),
        (&["SFLUSH", "1", "SYNC"], "ERR wrong number of arguments for 'sflush' command"),
        (&["SFLUSH", "0", "16384"], "ERR Invalid or out of range slot"),
        (&["SFLUSH", "9", "1"], "ERR start slot number 9 is greater than end slot number 1"),
        (&["SFLUSH", "0", "1", "1", "2"], "ERR Slot 1 specified multiple times"),
        (&["TRIMSLOTS", "RANGES", "1", "7", "9"], "ERR the slot 7 is served by this node"),
        (&["TRIMSLOTS", "RANGES", "2", "7", "9"], "ERR wrong number of arguments for 'trimslots' command"),
        (&["TRIMSLOTS", "RANGE", "1", "7", "9"], "ERR missing ranges argument"),
        (&["TRIMSLOTS", "RANGES", "0", "7", "9"], "ERR invalid number of ranges"),
    ] {
        assert_eq!(client.call(words), error(said), "{words:?}");
    }
    // The journal knows what went, whatever the next start says about clusters.
    drop(server);
    let server = Server::start(&["--dir", folder.text(), "--appendonly", "yes"]);
    assert_eq!(server.client().loaded().call(&["DBSIZE"]), Value::Int(half));
}

#[test]
fn hot_keys_are_found() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    assert_eq!(client.call(&["HOTKEYS", "GET"]), Value::Null);
    assert_eq!(client.call(&["HOTKEYS", "STOP"]), Value::Null);
    assert_eq!(client.call(&["HOTKEYS", "RESET"]), Value::ok());
    for (words, said) in [
        (&["START"][..], "ERR METRICS parameter is required"),
        (&["START", "COUNT", "1", "CPU"], "ERR METRICS parameter is required"),
        (&["START", "METRICS", "3", "CPU", "NET", "X"], "ERR METRICS count must be > 0 and <= 2"),
        (
            &["START", "METRICS", "2", "CPU"],
            "ERR METRICS count does not match number of metric types provided",
        ),
        (&["START", "METRICS", "2", "CPU", "CPU"], "ERR METRICS CPU defined more than once!"),
        (&["START", "METRICS", "1", "RAM"], "ERR METRICS no valid metrics passed. Supported: CPU|NET"),
        (&["START", "METRICS", "1", "CPU", "COUNT", "65"], "ERR COUNT must be between 1 and 64"),
        (&["START", "METRICS", "1", "CPU", "DURATION", "0"], "ERR DURATION must be between 1 and 1000000"),
        (&["START", "METRICS", "1", "CPU", "SAMPLE", "0"], "ERR SAMPLE ratio must be positive"),
        (
            &["START", "METRICS", "1", "CPU", "SLOTS", "1", "5"],
            "ERR SLOTS parameter cannot be used in non-cluster mode",
        ),
        (&["START", "METRICS", "1", "CPU", "WHAT"], "ERR syntax error"),
    ] {
        let all: Vec<&str> = std::iter::once("HOTKEYS").chain(words.iter().copied()).collect();
        assert_eq!(client.call(&all), error(said), "{words:?}");
    }
    let start = ["HOTKEYS", "START", "METRICS", "2", "CPU", "NET", "COUNT", "2"];
    assert_eq!(client.call(&start), Value::ok());
    assert_eq!(client.call(&start), error("ERR hotkey tracking session already in progress"));
    assert_eq!(
        client.call(&["HOTKEYS", "RESET"]),
        error("ERR hotkey tracking session in progress, stop tracking first")
    );
    let value = "x".repeat(1000);
    for nth in 0..50 {
        client.call(&["SET", "large", &value]);
        client.call(&["SADD", "set", &nth.to_string()]);
        client.call(&["GET", &format!("cold{nth}")]);
        // Within a transaction too, and by another thread's connection.
        client.call(&["MULTI"]);
        client.call(&["GET", "large"]);
        client.call(&["EXEC"]);
    }
    let mut other = server.client();
    other.send_all(&[&["GET", "large"][..]; 20]);
    (0..20).for_each(|_| drop(other.read()));
    assert_eq!(client.call(&["HOTKEYS", "STOP"]), Value::ok());
    client.call(&["SET", "late", &"x".repeat(1 << 20)]);
    let Value::Array(nodes) = client.call(&["HOTKEYS", "GET"]) else { panic!("no array") };
    let found = fields(nodes[0].clone());
    assert_eq!(found["tracking-active"], Value::Int(0));
    assert_eq!(found["sample-ratio"], Value::Int(1));
    assert_eq!(
        found["selected-slots"],
        Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16383)])])
    );
    let Value::Array(by_bytes) = &found["by-net-bytes"] else { panic!("{found:?}") };
    // SET of 1,000 bytes: 1,000 and 35 around it, with +OK; GET: 25, and 1,000 and 9.
    let (set, get) = (35 + 1002 + 5 - 2, 24 + 1009);
    let want = 50 * set + 70 * get;
    assert_eq!(by_bytes[0], text("large"));
    assert!(matches!(by_bytes[1], Value::Int(n) if (n - want).abs() < 120 * 12), "{by_bytes:?}, {want}");
    assert_eq!(by_bytes.len(), 4);
    let Value::Array(by_time) = &found["by-cpu-time-us"] else { panic!("{found:?}") };
    assert!(by_time.len() <= 4 && by_time.len() >= 2, "{by_time:?}");
    assert!(matches!(found["all-commands-all-slots-us"], Value::Int(us) if us > 0));
    assert!(matches!(found["total-net-bytes"], Value::Int(n) if n > want));
    assert!(
        found.contains_key("total-cpu-time-user-ms") && !found.contains_key("all-commands-selected-slots-us")
    );
    assert_eq!(client.call(&["HOTKEYS", "RESET"]), Value::ok());
    assert_eq!(client.call(&["HOTKEYS", "GET"]), Value::Null);
}

#[test]
fn hot_keys_end_by_themselves_and_may_be_of_some_slots() {
    let server = Server::start(&["--cluster_mode", "emulated"]);
    let mut client = server.client();
    let start = [
        "HOTKEYS", "START", "METRICS", "1", "NET", "DURATION", "1", "SAMPLE", "2", "SLOTS", "2", "12182", "5",
    ];
    // In one piece, so that the server has all of it before its second is over.
    let mut commands = vec![&start[..]];
    commands.extend([&["GET", "foo"][..]; 200]);
    commands.extend([&["GET", "bar"][..]; 200]);
    client.send_all(&commands);
    assert_eq!(client.read(), Value::ok());
    (0..400).for_each(|_| drop(client.read()));
    let began = Instant::now();
    let found = loop {
        let Value::Array(nodes) = client.call(&["HOTKEYS", "GET"]) else { panic!("no array") };
        let found = fields(nodes[0].clone());
        if found["tracking-active"] == Value::Int(0) {
            break found;
        }
        assert!(began.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    let slot = |n: i64| Value::Array(vec![Value::Int(n)]);
    assert_eq!(found["selected-slots"], Value::Array(vec![slot(5), slot(12182)]));
    assert_eq!(found["collection-duration-ms"], Value::Int(1000));
    let number = |name: &str| match &found[name] {
        Value::Int(n) => *n,
        other => panic!("{name} is {other:?}"),
    };
    let all = number("net-bytes-all-commands-all-slots");
    let selected = number("net-bytes-all-commands-selected-slots");
    let sampled = number("net-bytes-sampled-commands-selected-slots");
    assert_eq!(all, 2 * selected);
    // One in two of 200.
    assert!(sampled > selected / 4 && sampled < selected * 3 / 4, "{sampled} of {selected}");
    assert!(
        matches!(&found["by-net-bytes"], Value::Array(keys) if keys.len() == 2 && keys[0] == text("foo"))
    );
}

#[test]
fn who_imports_sees_expired_keys() {
    let server = Server::start(&[]);
    let (mut source, mut other) = (server.client(), server.client());
    assert_eq!(source.call(&["CLIENT", "IMPORT-SOURCE", "ON"]), error("ERR Server is not in import mode"));
    assert_eq!(other.call(&["CONFIG", "SET", "import-mode", "yes"]), Value::ok());
    assert_eq!(source.call(&["CLIENT", "IMPORT-SOURCE", "PERHAPS"]), error("ERR syntax error"));
    assert_eq!(source.call(&["CLIENT", "IMPORT-SOURCE", "ON"]), Value::ok());
    let Value::Text(line) = source.call(&["CLIENT", "INFO"]) else { panic!("no text") };
    assert!(line.contains(" flags=I "), "{line}");
    // Valkey's own example: what expires before the next command arrives is still there for it.
    source.call(&["SET", "n", "1", "PX", "1"]);
    source.call(&["SET", "m", "1"]);
    source.call(&["PEXPIREAT", "m", "1"]);
    let began = Instant::now();
    while other.call(&["EXISTS", "n"]) != Value::Int(0) {
        assert!(began.elapsed() < PATIENCE, "it does not expire");
    }
    assert_eq!(other.call(&["GET", "n"]), Value::Null);
    assert_eq!(other.call(&["MGET", "n", "m"]), Value::Array(vec![Value::Null, Value::Null]));
    assert_eq!(other.call(&["KEYS", "*"]), Value::Array(vec![]));
    assert_eq!(source.call(&["GET", "m"]), text("1"));
    assert_eq!(source.call(&["INCR", "n"]), Value::Int(2));
    source.call(&["MULTI"]);
    source.call(&["INCR", "n"]);
    assert_eq!(source.call(&["EXEC"]), Value::Array(vec![Value::Int(3)]));
    assert_eq!(source.call(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", "n"]), Value::Int(4));
    assert_eq!(source.call(&["PERSIST", "n"]), Value::Int(1));
    assert_eq!(other.call(&["GET", "n"]), text("4"));
    // Nothing removes dead keys in the background.
    assert_eq!(other.call(&["DBSIZE"]), Value::Int(2));
    // Others write anew where they see nothing.
    assert_eq!(other.call(&["INCR", "m"]), Value::Int(1));
    assert_eq!(source.call(&["PTTL", "m"]), Value::Int(-1));
    source.call(&["PEXPIREAT", "m", "1"]);
    assert_eq!(other.call(&["CONFIG", "SET", "import-mode", "no"]), Value::ok());
    assert_eq!(source.call(&["GET", "m"]), Value::Null);
    let began = Instant::now();
    while other.call(&["DBSIZE"]) != Value::Int(1) {
        assert!(began.elapsed() < PATIENCE, "dead keys stay");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_is_evicted_while_data_is_imported() {
    let flags = ["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru", "--import-mode", "yes"];
    let server = Server::start(&flags);
    let mut client = server.client();
    let value = "x".repeat(100_000);
    let refused = (0..2000).find_map(|n| match client.call(&["SET", &format!("k{n}"), &value]) {
        Value::Error(said) => Some(said),
        _ => None,
    });
    assert!(refused.is_some_and(|said| said.starts_with("OOM ")));
    assert_eq!(client.info::<u64>("stats", "evicted_keys"), 0);
    assert_eq!(client.call(&["CONFIG", "SET", "import-mode", "no"]), Value::ok());
    assert_eq!(client.call(&["SET", "k", &value]), Value::ok());
}

fn state(client: &mut Client) -> String {
    match &fields(client.call(&["BACKUP", "STATUS"]))["state"] {
        Value::Text(state) => state.clone(),
        other => panic!("{other:?}"),
    }
}

fn wait_for(client: &mut Client, wanted: &str) {
    let began = Instant::now();
    while state(client) != wanted {
        assert!(began.elapsed() < PATIENCE, "it is {}, not {wanted}", state(client));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A Redis on a folder of append-only files; nothing where it is not installed.
fn redis(folder: &Folder) -> Option<(Child, u16)> {
    let version = Command::new("redis-server").arg("--version").output();
    if version.is_err() {
        eprintln!("SKIPPED: redis-server is not installed");
        return None;
    }
    let port = free_port();
    let process = Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir", folder.text(), "--save", ""])
        .args(["--appendonly", "yes"])
        .stdout(Stdio::null())
        .spawn()
        .expect("it runs");
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < PATIENCE, "redis-server does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
    Some((process, port))
}

#[test]
fn a_backup_has_what_was_there_when_it_was_sealed() {
    for appendonly in ["no", "yes"] {
        let folder = Folder::new(&format!("union-backup-{appendonly}"));
        let server =
            Server::start(&["--dir", folder.text(), "--appendonly", appendonly, "--proactor_threads", "2"]);
        let mut client = server.client().loaded();
        assert_eq!(state(&mut client), "idle");
        assert_eq!(client.call(&["BACKUP", "SEAL"]), error("ERR No backup ready to seal"));
        assert_eq!(client.call(&["BACKUP", "ABORT"]), error("ERR No backup in progress"));
        assert_eq!(client.call(&["BACKUP", "CLEANUP"]), Value::ok());
        client
            .call_for_each(&["MSET"], 2000, |n, words| words.extend([format!("k{n}"), "before".to_owned()]));
        client.call(&["RPUSH", "list", "a", "b"]);
        assert_eq!(client.call(&["BACKUP", "START"]), Value::ok());
        assert_eq!(client.call(&["BACKUP", "START"]), error("ERR Backup already in progress"));
        assert_eq!(
            client.call(&["BACKUP", "CLEANUP"]),
            error("ERR Backup in progress: BACKUP ABORT ends it")
        );
        wait_for(&mut client, "incrementing");
        assert_eq!(client.info::<u8>("persistence", "backup_in_progress"), 1);
        let base = folder.path().join("backupdir/appendonly.aof.1.base.rdb");
        assert_eq!(client.call(&["BACKUP", "LIST"]), Value::array(&[base.to_str().expect("a text")]));
        // By several connections, in several databases, whole transactions.
        let mut others: Vec<Client> = (0..4).map(|_| server.client()).collect();
        for (nth, other) in others.iter_mut().enumerate() {
            other.call(&["SELECT", if nth == 3 { "1" } else { "0" }]);
            other.call(&["MULTI"]);
            other.call(&["SET", &format!("after{nth}"), "1"]);
            other.call(&["DEL", &format!("k{nth}")]);
            other.call(&["EXEC"]);
        }
        client.call(&["LPOP", "list"]);
        assert_eq!(client.call(&["BACKUP", "SEAL"]), Value::ok());
        client.call(&["SET", "late", "1"]);
        let status = fields(client.call(&["BACKUP", "STATUS"]));
        assert_eq!(status["state"], text("sealed"));
        assert!(matches!(&status["end_time"], Value::Text(s) if s.parse::<u64>().is_ok_and(|s| s > 0)));
        assert!(matches!(client.call(&["BACKUP", "LIST"]), Value::Array(files) if files.len() == 3));
        assert!(matches!(client.call(&["BACKUP", "START"]), Value::Error(said) if said.contains("CLEANUP")));
        // It loads as a folder of append-only files: in Redis, and here.
        let copies = Folder::new(&format!("union-backup-copy-{appendonly}"));
        let expect = |client: &mut Client| {
            assert_eq!(client.call(&["DBSIZE"]), Value::Int(2000 - 3 + 3 + 1));
            assert_eq!(client.call(&["EXISTS", "after0", "after1", "after2", "late", "k0"]), Value::Int(3));
            assert_eq!(client.call(&["LRANGE", "list", "0", "-1"]), Value::array(&["b"]));
            client.call(&["SELECT", "1"]);
            assert_eq!(client.call(&["GET", "after3"]), text("1"));
        };
        for name in ["redis", "darter"] {
            let target = copies.path().join(name).join("appendonlydir");
            std::fs::create_dir_all(&target).expect("a folder");
            for file in std::fs::read_dir(folder.path().join("backupdir")).expect("readable") {
                let file = file.expect("an entry");
                std::fs::copy(file.path(), target.join(file.file_name())).expect("a copy");
            }
        }
        let dir = |name: &str| copies.path().join(name).to_str().expect("a text").to_owned();
        let redis_dir = Folder::new(&format!("union-backup-redis-{appendonly}"));
        std::fs::rename(dir("redis") + "/appendonlydir", redis_dir.path().join("appendonlydir"))
            .expect("moved");
        if let Some((mut process, port)) = redis(&redis_dir) {
            expect(&mut Client::connect(port).loaded());
            let _ = process.kill();
            let _ = process.wait();
        }
        let restored = Server::start(&["--dir", &dir("darter"), "--appendonly", "yes"]);
        expect(&mut restored.client().loaded());
        assert_eq!(client.call(&["BACKUP", "CLEANUP"]), Value::ok());
        assert_eq!(state(&mut client), "idle");
        assert!(std::fs::read_dir(folder.path().join("backupdir")).expect("readable").next().is_none());
    }
}

#[test]
fn a_backup_can_be_given_up_and_expires() {
    let folder = Folder::new("union-backup-ends");
    let flags = ["--dir", folder.text(), "--backupdirname", "mine", "--dbfilename", "dump.rdb"];
    let server = Server::start(&flags);
    let mut client = server.client();
    let here = folder.path().join("mine");
    client.call(&["SET", "k", "v"]);
    client.call(&["BACKUP", "START"]);
    wait_for(&mut client, "incrementing");
    assert_eq!(client.call(&["BACKUP", "ABORT"]), Value::ok());
    let status = fields(client.call(&["BACKUP", "STATUS"]));
    assert_eq!((&status["state"], &status["error"]), (&text("failed"), &text("aborted by user")));
    assert!(std::fs::read_dir(&here).expect("readable").next().is_none());
    // Something in the folder.
    std::fs::write(here.join("other"), "x").expect("a file");
    assert!(matches!(client.call(&["BACKUP", "START"]), Value::Error(said) if said.contains("is not empty")));
    std::fs::remove_file(here.join("other")).expect("removed");
    // Data that no record tells of.
    client.call(&["BACKUP", "START"]);
    wait_for(&mut client, "incrementing");
    assert_eq!(client.call(&["DEBUG", "RELOAD"]), Value::ok());
    wait_for(&mut client, "failed");
    // A replica has no stream of its own.
    client.call(&["BACKUP", "START"]);
    wait_for(&mut client, "incrementing");
    client.call(&["REPLICAOF", "127.0.0.1", "1"]);
    wait_for(&mut client, "failed");
    assert!(matches!(client.call(&["BACKUP", "START"]), Value::Error(said) if said.contains("for masters")));
    client.call(&["REPLICAOF", "NO", "ONE"]);
    // A sealed one goes when its time is over.
    assert_eq!(client.call(&["CONFIG", "SET", "backup-sealed-ttl", "1"]), Value::ok());
    assert_eq!(client.call(&["BACKUP", "START"]), Value::ok());
    wait_for(&mut client, "incrementing");
    assert_eq!(client.call(&["BACKUP", "SEAL"]), Value::ok());
    wait_for(&mut client, "idle");
    assert!(std::fs::read_dir(&here).expect("readable").next().is_none());
    assert!(
        matches!(client.call(&["CONFIG", "SET", "backupdirname", "a/b"]), Value::Error(said) if said.contains("can't be a path"))
    );
}
