//! Snapshots of a real server: what is saved is what is loaded, transactions are whole in it, and failures lose nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value, wait_until};

fn start(folder: &Folder, name: &str, flags: &[&str]) -> Server {
    let mut all = vec!["--dir", folder.text(), "--dbfilename", name, "--enable_debug_command", "yes"];
    all.extend_from_slice(flags);
    Server::start(&all)
}

/// A client of a server that may still be loading.
fn loaded(server: &Server) -> Client {
    server.client().loaded()
}

fn wait_for_save(client: &mut Client) {
    wait_until("the snapshot ends", || client.info::<String>("persistence", "rdb_bgsave_in_progress") == "0");
}

/// Keys of every type, small and large, in two databases.
fn fill(client: &mut Client) {
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut add = |words: &[&str]| commands.push(words.iter().map(|word| (*word).to_owned()).collect());
    for n in 0..3000 {
        let (key, value) = (format!("key:{n}"), format!("value of {n}"));
        add(&["SET", &key, &value]);
        let (field, score) = (format!("f{n}"), (n * 7 % 1000).to_string());
        add(&["HSET", "hash", &field, &value]);
        add(&["ZADD", "zset", &score, &field]);
        add(&["SADD", "set", &field]);
        add(&["SADD", "ints", &score]);
        add(&["RPUSH", "list", &value]);
        add(&["XADD", "stream", &format!("{}-1", n + 1), &field, &value]);
    }
    let large = "for n = 1, 20000 do redis.call('rpush', 'long list', 'item ' .. n) redis.call('zadd', 'long zset', n % 99, \
                 'member ' .. n) redis.call('sadd', 'long ints', n * 7) redis.call('sadd', 'mixed', n, 'x' .. n) end";
    add(&["EVAL", large, "0"]);
    add(&["HSET", "small", "a", "1", "b", "two"]);
    add(&["SET", "long", &"x".repeat(100_000)]);
    add(&["SET", "dies", "x", "PX", "100000000"]);
    add(&["SET", "dead", "x", "PX", "1"]);
    add(&["HPEXPIRE", "hash", "100000000", "FIELDS", "1", "f5"]);
    add(&["XGROUP", "CREATE", "stream", "group", "0"]);
    add(&["XREADGROUP", "GROUP", "group", "me", "COUNT", "3", "STREAMS", "stream", ">"]);
    add(&["SELECT", "3"]);
    add(&["SET", "in three", "x"]);
    add(&["SELECT", "0"]);
    for piece in commands.chunks(1000) {
        let words: Vec<Vec<&str>> =
            piece.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
        client.send_all(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
        piece.iter().for_each(|_| assert!(!matches!(client.read(), Value::Error(_))));
    }
}

fn digest(client: &mut Client) -> Value {
    client.call(&["DEBUG", "DIGEST"])
}

#[test]
fn what_is_saved_is_loaded() {
    for (format, name, file) in
        [("true", "dump", "dump.darter"), ("false", "x", "x.rdb"), ("true", "y.rdb", "y.rdb")]
    {
        let folder = Folder::new(&format!("round-{name}"));
        let flags = ["--df_snapshot_format", format, "--proactor_threads", "2"];
        let server = start(&folder, name, &flags);
        let mut client = server.client();
        fill(&mut client);
        let code = "#!lua name=lib\nredis.register_function('seven', function() return 7 end)";
        assert_eq!(client.call(&["FUNCTION", "LOAD", code]), Value::Text("lib".to_owned()));
        // Removed here, so that its end is no change after the snapshot.
        wait_until("a key has died", || client.call(&["EXISTS", "dead"]) == Value::Int(0));
        let before = (digest(&mut client), client.call(&["PEXPIRETIME", "dies"]));
        assert_eq!(client.call(&["SAVE"]), Value::ok());
        assert_eq!(client.info::<String>("persistence", "rdb_changes_since_last_save"), "0");
        assert_eq!(folder.files(), [file]);
        drop(server);
        let server = start(&folder, name, &["--df_snapshot_format", format, "--proactor_threads", "3"]);
        let mut client = loaded(&server);
        assert_eq!((digest(&mut client), client.call(&["PEXPIRETIME", "dies"])), before, "{file}");
        assert_eq!(client.call(&["FCALL", "seven", "0"]), Value::Int(7));
        assert_eq!(client.call(&["EXISTS", "dead"]), Value::Int(0));
        assert_eq!(client.info::<String>("persistence", "rdb_changes_since_last_save"), "0");
        assert_eq!(client.call(&["DEBUG", "RELOAD"]), Value::ok());
        assert_eq!(digest(&mut client), before.0);
    }
}

/// Adds to two counters in different shards, always by one transaction, until told to stop.
fn count_in_pairs(port: &Server, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (mut client, stop) = (port.client(), stop.clone());
    std::thread::spawn(move || {
        let mut rounds = 0;
        while !stop.load(Relaxed) {
            for pair in 0..8 {
                let (a, b) = (format!("a:{pair}"), format!("b:{pair}"));
                client.send_all(&[
                    &["MULTI"],
                    &["INCR", &a],
                    &["HINCRBY", &b, "n", "1"],
                    &["RPUSH", &format!("l:{pair}"), "x"],
                    &["EXEC"],
                ]);
                (0..5).for_each(|_| assert!(!matches!(client.read(), Value::Error(_))));
            }
            rounds += 1;
        }
        rounds
    })
}

/// Loads a file into a new server and looks at the pairs.
fn check_pairs(folder: &Folder, name: &str, at_most: u64) {
    let server = start(folder, name, &["--proactor_threads", "1"]);
    let mut client = loaded(&server);
    for pair in 0..8 {
        let number = |value: Value| match value {
            Value::Text(text) => text.parse::<u64>().expect("a number"),
            Value::Int(number) => number as u64,
            Value::Null => 0,
            other => panic!("{other:?}"),
        };
        let a = number(client.call(&["GET", &format!("a:{pair}")]));
        let b = number(client.call(&["HGET", &format!("b:{pair}"), "n"]));
        let l = number(client.call(&["LLEN", &format!("l:{pair}")]));
        assert!(a == b && b == l && a <= at_most, "pair {pair} of {name}: {a}, {b}, {l} of {at_most}");
    }
}

/// How many snapshots the consistency test takes: 20, or what the environment says.
fn rounds() -> usize {
    std::env::var("DARTER_SNAPSHOTS").ok().and_then(|text| text.parse().ok()).unwrap_or(20)
}

#[test]
fn every_snapshot_has_whole_transactions() {
    for threads in ["1", "2", "4"] {
        let folder = Folder::new(&format!("pairs-{threads}"));
        let server = start(&folder, "dump", &["--proactor_threads", threads]);
        let mut client = server.client();
        client.call(&["DEBUG", "POPULATE", "20000", "filler", "50"]);
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3).map(|_| count_in_pairs(&server, &stop)).collect();
        let mut names = Vec::new();
        for round in 0..rounds().div_ceil(3) {
            let name = format!("s{round}");
            let began = client.call(&["BGSAVE", &name]);
            assert_eq!(began, Value::Status("Background saving started".to_owned()));
            wait_for_save(&mut client);
            names.push(name);
        }
        assert_eq!(client.info::<String>("persistence", "rdb_last_bgsave_status"), "ok");
        stop.store(true, Relaxed);
        let at_most: u64 = writers.into_iter().map(|writer| writer.join().expect("no fault")).sum();
        assert!(at_most > 0);
        drop(server);
        names.iter().for_each(|name| check_pairs(&folder, name, at_most + 3));
    }
}

#[test]
fn a_server_that_is_killed_while_it_saves_keeps_the_file_before() {
    let folder = Folder::new("snapshots-killed");
    let server = start(&folder, "dump", &["--snapshot_egress_limit_bytes", "20000"]);
    let mut client = server.client();
    client.call(&["SET", "first", "1"]);
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    client.call(&["DEBUG", "POPULATE", "100000", "k", "100"]);
    client.call(&["BGSAVE"]);
    wait_until("some of it is written", || folder.files().len() == 2);
    drop(server);
    let server = start(&folder, "dump", &[]);
    let mut client = loaded(&server);
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(1));
    assert_eq!(folder.files(), ["dump.darter"], "what was left behind is removed");
}

#[test]
fn a_failed_save_refuses_writes_until_one_succeeds() {
    let folder = Folder::new("snapshots-failing");
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).expect("a folder");
    let path = inner.to_str().expect("a text").to_owned();
    let flags = ["--dir", &path, "--dbfilename", "dump", "--save", "3600 1000000"];
    let server = Server::start(&flags);
    let mut client = server.client();
    client.call(&["SET", "a", "1"]);
    // A folder in the way of the file: even root cannot write it.
    std::fs::remove_dir_all(&inner).expect("removed");
    std::fs::write(&inner, b"in the way").expect("a file");
    assert!(matches!(client.call(&["SAVE"]), Value::Error(_)));
    assert_eq!(client.info::<String>("persistence", "rdb_last_bgsave_status"), "err");
    for command in
        [&["SET", "a", "2"][..], &["PING"], &["DEL", "a"], &["EVAL", "redis.call('SET', 'a', 1)", "0"]]
    {
        let Value::Error(line) = client.call(command) else { panic!("{command:?} was run") };
        assert!(line.starts_with("MISCONF ") || line.contains("MISCONF"), "{line}");
    }
    assert_eq!(client.call(&["GET", "a"]), Value::Text("1".to_owned()));
    assert_eq!(client.call(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]), Value::ok());
    assert_eq!(client.call(&["SET", "a", "2"]), Value::ok());
    assert_eq!(client.call(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]), Value::ok());
    assert!(matches!(client.call(&["SET", "a", "3"]), Value::Error(_)));
    std::fs::remove_file(&inner).expect("removed");
    std::fs::create_dir(&inner).expect("a folder");
    // Nobody asks for one: it is tried again by itself, though the rule would wait for an hour.
    wait_until("writes are taken again", || client.call(&["SET", "a", "3"]) == Value::ok());
    assert_eq!(client.info::<String>("persistence", "rdb_last_bgsave_status"), "ok");
    assert!(inner.join("dump.darter").exists());
}

#[test]
fn a_full_disk_costs_nothing_but_the_snapshot() {
    let folder = Folder::new("snapshots-full");
    let script = format!(
        "ulimit -f 200; exec {} --dir {} --dbfilename dump --port 0 --unixsocket {}/s",
        env!("CARGO_BIN_EXE_darter"),
        folder.text(),
        folder.text()
    );
    let mut process = std::process::Command::new("sh").args(["-c", &script]).spawn().expect("a shell");
    let socket = folder.path().join("s");
    // The file is there before it listens.
    wait_until("it listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let call = |words: &[&str]| talk(&socket, words);
    assert_eq!(call(&["SET", "a", "1"]), "+OK\r\n");
    assert_eq!(call(&["SAVE"]), "+OK\r\n");
    let long = "x".repeat(960_000);
    for n in 0..8 {
        let noise = noise(long.len(), n);
        assert_eq!(call(&["SET", &format!("long{n}"), &noise]), "+OK\r\n");
    }
    let failed = call(&["SAVE"]);
    assert!(failed.starts_with("-ERR"), "{failed}");
    assert_eq!(call(&["STRLEN", "long7"]), format!(":{}\r\n", long.len()));
    assert_eq!(
        call(&["DEL", "long0", "long1", "long2", "long3", "long4", "long5", "long6", "long7"]),
        ":8\r\n"
    );
    assert_eq!(call(&["SAVE"]), "+OK\r\n");
    process.kill().expect("killed");
    process.wait().expect("ended");
}

/// Text that does not compress.
fn noise(len: usize, seed: u64) -> String {
    let mut state = seed + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90)
    };
    (0..len).map(|_| next()).collect()
}

/// Sends a command to a Unix socket and returns the first line of the reply.
fn talk(socket: &Path, words: &[&str]) -> String {
    use std::io::{BufRead, BufReader, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("a connection");
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    stream.write_all(&bytes).expect("sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a line");
    line
}

#[test]
fn a_damaged_file_is_not_served() {
    let folder = Folder::new("snapshots-damaged");
    let server = start(&folder, "dump", &[]);
    let mut client = server.client();
    client.call(&["DEBUG", "POPULATE", "5000"]);
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    assert_eq!(client.call(&["SAVE", "RDB"]), Value::ok());
    drop(server);
    for name in ["dump.darter", "dump.rdb"] {
        let path = folder.path().join(name);
        let good = std::fs::read(&path).expect("readable");
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 0x55;
        for (what, bytes) in [("flipped", &bad[..]), ("cut off", &good[..good.len() / 2])] {
            std::fs::write(&path, bytes).expect("written");
            let ended = std::process::Command::new(env!("CARGO_BIN_EXE_darter"))
                .args([
                    "--dir",
                    folder.text(),
                    "--dbfilename",
                    name,
                    "--port",
                    "0",
                    "--proactor_threads",
                    "2",
                ])
                .output()
                .expect("it runs");
            let said = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(1), "{name} {what}: {said}");
            assert!(said.contains(name) && said.contains("byte"), "{name} {what}: {said}");
        }
    }
}

/// A server that saves when it ends, and its port; for tests that end it.
fn serve(folder: &Folder, flags: &[&str]) -> (std::process::Child, u16) {
    let port = crate::harness::free_port();
    let process = std::process::Command::new(env!("CARGO_BIN_EXE_darter"))
        .args(["--dir", folder.text(), "--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(flags)
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it runs");
    wait_until("it listens", || crate::harness::listens(process.id(), port));
    let mut client = Client::connect(port);
    wait_until("it is loaded", || client.call(&["PING"]) == Value::Status("PONG".to_owned()));
    (process, port)
}

fn signal(process: &std::process::Child, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &process.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

#[test]
fn a_second_sigterm_does_not_take_the_snapshot_away_but_a_second_ctrl_c_does() {
    let folder = Folder::new("snapshots-twice");
    let (mut process, port) = serve(&folder, &["--snapshot_egress_limit_bytes", "16000000"]);
    let mut client = Client::connect(port);
    client.call(&["DEBUG", "POPULATE", "300000", "key", "50"]);
    (0..3).for_each(|_| signal(&process, "-TERM"));
    assert!(process.wait().expect("it ends").success());
    let (mut process, port) = serve(&folder, &["--snapshot_egress_limit_bytes", "100000"]);
    let mut client = Client::connect(port);
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(300_000));
    client.call(&["SET", "one more", "v"]);
    signal(&process, "-INT");
    // Reads are served while it saves, which would take minutes.
    wait_until("it saves", || client.info::<String>("persistence", "rdb_bgsave_in_progress") == "1");
    signal(&process, "-INT");
    assert!(process.wait().expect("it ends").success());
    let (mut process, port) = serve(&folder, &[]);
    assert_eq!(Client::connect(port).call(&["DBSIZE"]), Value::Int(300_000));
    let _ = process.kill();
    let _ = process.wait();
}

/// Processor time of a process's first thread, and of the one of the others that has taken most.
fn thread_times(process: &std::process::Child) -> (Duration, Duration) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id()));
    let (mut first, mut other) = (Duration::ZERO, Duration::ZERO);
    for task in tasks.into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
        let of = if *task.file_name() == *process.id().to_string() { &mut first } else { &mut other };
        *of = Duration::from_nanos(nanos).max(*of);
    }
    (first, other)
}

/// What both take until together they have taken `time`, or the process ends: no clock, as others may have the processor.
fn threads_take(process: &mut std::process::Child, time: Duration) -> (Duration, Duration) {
    let before = thread_times(process);
    let mut taken = (Duration::ZERO, Duration::ZERO);
    wait_until("the script runs", || {
        if process.try_wait().expect("its state").is_some() {
            return true;
        }
        let now = thread_times(process);
        taken = (now.0.saturating_sub(before.0).max(taken.0), now.1.saturating_sub(before.1).max(taken.1));
        taken.0 + taken.1 >= time
    });
    taken
}

/// It once turned as fast as it could meanwhile; ahead of others by its priority, it kept from the processor what it waited for.
#[test]
fn the_end_waits_for_another_thread_without_using_the_processor() {
    let folder = Folder::new("snapshots-waiting");
    let is_shown = (0..20).any(|attempt| {
        let (mut process, port) =
            serve(&folder, &["--proactor_threads", "2", "--busy-reply-threshold", "60000"]);
        // Threads get connections in turn: the runner goes to the other one where somebody came before it.
        let _before: Vec<Client> = (0..attempt % 2).map(|_| Client::connect(port)).collect();
        let mut runner = Client::connect(port);
        runner.send_all(&[&["EVAL", "while true do end", "0"]]);
        threads_take(&mut process, Duration::from_millis(100));
        let (first, other) = threads_take(&mut process, Duration::from_millis(200));
        let is_elsewhere = first < other / 9;
        if is_elsewhere {
            signal(&process, "-TERM");
            let (first, other) = threads_take(&mut process, Duration::from_millis(500));
            // The end itself takes some.
            assert!(
                first < (first + other) * 3 / 10 + Duration::from_millis(30),
                "{first:?} beside {other:?}"
            );
        }
        let _ = process.kill();
        let _ = process.wait();
        is_elsewhere
    });
    assert!(is_shown, "the script was on the first thread each time");
}

#[test]
fn the_end_saves_what_was_acknowledged() {
    let folder = Folder::new("snapshots-ending");
    let mut expected = 0u64;
    for round in 0..3 {
        let (mut process, port) = serve(&folder, &[]);
        let mut client = Client::connect(port);
        let before = client.call(&["GET", "n"]);
        assert_eq!(before, if round == 0 { Value::Null } else { Value::Text(expected.to_string()) });
        // One client writes as fast as it can while another ends the server.
        let writer = std::thread::spawn(move || {
            let mut writer = Client::connect(port);
            let mut last = 0;
            while let Some(Value::Int(n)) = writer.try_call(&["INCR", "n"]) {
                last = n as u64;
            }
            last
        });
        wait_until("it writes", || client.call(&["GET", "n"]) != before);
        std::thread::sleep(Duration::from_millis(100));
        if round == 1 {
            signal(&process, "-TERM");
        } else {
            client.send_all(&[&["SHUTDOWN"]]);
        }
        assert!(process.wait().expect("it ends").success());
        let last = writer.join().expect("no fault");
        assert!(last > expected);
        expected = last;
    }
    assert_eq!(folder.files(), ["dump.darter"]);
}

#[test]
fn what_flushall_empties_stays_empty_where_there_are_save_points() {
    let folder = Folder::new("snapshots-flushed");
    for flags in [&["--save", "3600 1"][..], &[]] {
        let server = start(&folder, "dump", flags);
        let mut client = loaded(&server);
        client.call(&["SET", "k", "v"]);
        client.call(&["SAVE"]);
        client.call(&["FLUSHALL"]);
        let saves = |client: &mut Client| client.info::<u64>("persistence", "rdb_saves");
        if !flags.is_empty() {
            wait_until("it is saved", || saves(&mut client) == 2);
        }
        assert_eq!(saves(&mut client), 1 + flags.len() as u64 / 2);
        drop(server);
        let kept = loaded(&start(&folder, "dump", &["--save", ""])).call(&["DBSIZE"]);
        assert_eq!(kept, Value::Int(if flags.is_empty() { 1 } else { 0 }), "{flags:?}");
    }
}

#[test]
fn snapshots_are_taken_by_rule_and_called_off() {
    let folder = Folder::new("snapshots-rules");
    let server =
        start(&folder, "dump-{timestamp}", &["--save", "1 10", "--snapshot_egress_limit_bytes", "50000"]);
    let mut client = server.client();
    (0..20).for_each(|n| drop(client.call(&["SET", &format!("k{n}"), "v"])));
    wait_until("the rule is met", || !folder.files().is_empty());
    assert!(folder.files()[0].starts_with("dump-20"), "{:?}", folder.files());
    wait_until("it is saved", || client.info::<String>("persistence", "rdb_changes_since_last_save") == "0");
    assert_eq!(client.call(&["CONFIG", "SET", "save", ""]), Value::ok());
    wait_for_save(&mut client);
    client.call(&["DEBUG", "POPULATE", "200000", "key", "50"]);
    assert_eq!(client.call(&["BGSAVE"]), Value::Status("Background saving started".to_owned()));
    assert!(matches!(client.call(&["BGSAVE"]), Value::Error(_)));
    assert_eq!(client.call(&["BGSAVE", "CANCEL"]), Value::Status("Background saving cancelled".to_owned()));
    wait_for_save(&mut client);
    assert_eq!(client.info::<String>("persistence", "rdb_last_bgsave_status"), "ok");
    assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
    client.call(&["MULTI"]);
    client.call(&["BGSAVE"]);
    assert_eq!(
        client.call(&["EXEC"]),
        Value::Array(vec![Value::Status("Background saving scheduled".to_owned())])
    );
    wait_until("it begins", || client.info::<String>("persistence", "rdb_bgsave_in_progress") == "1");
    // As in Redis, emptying everything makes a snapshot of it pointless.
    assert_eq!(client.call(&["FLUSHALL"]), Value::ok());
    wait_for_save(&mut client);
    assert_eq!(folder.files().len(), 1, "{:?}", folder.files());
    assert_eq!(
        client.call(&["SAVE", "a/b"]),
        Value::Error("ERR the name of a snapshot can't be a path, just a filename".to_owned())
    );
}

#[test]
fn what_is_there_stays_or_gives_way_when_a_snapshot_is_loaded_onto_it() {
    const FAILED: &str = "ERR Error trying to load the RDB dump, check server logs.";
    let folder = Folder::new("onto");
    let library = |name: &str, answer: &str| {
        format!("#!lua name={name}\nredis.register_function('{name}f', function() return '{answer}' end)")
    };
    for file in ["dump.darter", "dump.rdb"] {
        let server = start(&folder, file, &[]);
        let mut client = loaded(&server);
        assert_eq!(client.call(&["FLUSHALL"]), Value::ok());
        assert_eq!(client.call(&["FUNCTION", "FLUSH"]), Value::ok());
        fill(&mut client);
        client.call(&["FUNCTION", "LOAD", &library("one", "old")]);
        assert_eq!(client.call(&["SAVE"]), Value::ok());
        let saved = digest(&mut client);
        // The file has these, whole and in pieces.
        client.call(&["SET", "key:7", "another"]);
        client.call(&["HSET", "hash", "more", "x"]);
        client.call(&["DEL", "list", "key:8"]);
        client.call(&["RPUSH", "list", "short"]);
        client.call(&["FUNCTION", "LOAD", "REPLACE", &library("one", "new")]);
        // It has not these.
        client.call(&["SET", "mine", "1"]);
        client.call(&["FUNCTION", "LOAD", &library("two", "two")]);
        let changed = digest(&mut client);

        let refused = client.call(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]);
        assert_eq!(refused, Value::Error(FAILED.into()), "{file}");
        // Not the number of keys: one that has died counts until it is swept.
        assert_eq!(digest(&mut client), changed, "{file}");
        // Functions alone are enough to refuse it, keys too.
        client.call(&["FLUSHALL"]);
        assert_eq!(client.call(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]), Value::Error(FAILED.into()));
        client.call(&["FUNCTION", "DELETE", "one"]);
        client.call(&["SET", "small", "x"]);
        assert_eq!(client.call(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]), Value::Error(FAILED.into()));
        assert_eq!(client.call(&["DBSIZE"]), Value::Int(1), "nothing was loaded from {file}");
        client.call(&["DEL", "small"]);
        assert_eq!(client.call(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH"]), Value::ok());
        assert_eq!(digest(&mut client), saved, "{file}");
        assert_eq!(client.call(&["FCALL", "onef", "0"]), Value::Text("old".into()));

        client.call(&["SET", "key:7", "another"]);
        client.call(&["HSET", "hash", "more", "x"]);
        client.call(&["LTRIM", "list", "0", "0"]);
        client.call(&["FUNCTION", "LOAD", "REPLACE", &library("one", "new")]);
        assert_eq!(client.call(&["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE"]), Value::ok());
        assert_eq!(digest(&mut client), saved, "{file}");
        client.call(&["SET", "mine", "1"]);
        assert_eq!(client.call(&["DEBUG", "RELOAD", "MERGE", "NOFLUSH", "NOSAVE"]), Value::ok());
        assert_eq!(client.call(&["GET", "mine"]), Value::Text("1".into()));
        assert_eq!(client.call(&["FCALL", "onef", "0"]), Value::Text("old".into()));
        assert_eq!(client.call(&["FCALL", "twof", "0"]), Value::Text("two".into()));
        // MERGE alone does nothing: all goes first.
        assert_eq!(client.call(&["DEBUG", "RELOAD", "NOSAVE", "MERGE"]), Value::ok());
        assert_eq!(client.call(&["EXISTS", "mine"]), Value::Int(0));
        assert_eq!(digest(&mut client), saved, "{file}");
        let twof = client.call(&["FCALL", "twof", "0"]);
        assert_eq!(twof, Value::Error("ERR Function not found".into()));
    }
}
