//! The journal switched on and off while the server runs: what it holds after any of that is whole, and its end is not
//! hidden.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::harness::journal::{Dir, setting, wait_for_base};
use crate::harness::raw::{Link, encoded};
use crate::harness::{Client, PATIENCE, Server, Value, wait_until};
use crate::rng::Rng;

/// Counts keys up in transactions until `ends`, or the server has gone; `counted` is what was answered.
fn count(server: &Server, writer: usize, counted: &AtomicU64, ends: &AtomicBool) {
    let mut link = Link::new(server);
    let mut transaction = encoded(&["MULTI"]);
    (0..KEYS).for_each(|key| transaction.extend(encoded(&["INCR", &format!("{writer}:{key}")])));
    transaction.extend(encoded(&["EXEC"]));
    while !ends.load(SeqCst) {
        if std::io::Write::write_all(link.0.get_mut(), &transaction).is_err() {
            return;
        }
        let Some(reply) = (0..KEYS + 2).map(|_| link.read()).last().flatten() else { return };
        let text = reply.items().first().map(|item| item.text()).unwrap_or_default();
        counted.store(text.trim_start_matches(':').parse().expect("a number"), SeqCst);
    }
}

/// Writers in transactions, the journal switched off and on again, a kill: all that a sync had covered is there, and no
/// half of a transaction.
#[test]
fn a_kill_after_the_journal_was_switched_off_or_on_finds_whole_transactions() {
    let dir = Dir::new("switched");
    let mut rng = Rng::new(setting("DARTER_SEED", 1) as u64);
    let mut safe = [0; WRITERS];
    for round in 0..=setting("DARTER_KILL_ROUNDS", 8) {
        let server = dir.start(&["--proactor_threads", "4"]);
        let mut client = server.client();
        for (writer, safe) in safe.iter_mut().enumerate() {
            let keys: Vec<String> = (0..KEYS).map(|key| format!("{writer}:{key}")).collect();
            let words: Vec<&str> = std::iter::once("MGET").chain(keys.iter().map(String::as_str)).collect();
            let Value::Array(values) = client.call(&words) else { panic!("an array") };
            assert!(values.iter().all(|value| *value == values[0]), "round {round}: half of one: {values:?}");
            let a = if let Value::Text(text) = &values[0] { text.parse().expect("a number") } else { 0 };
            assert!(a >= *safe, "round {round}: {a} of {safe} are there");
            *safe = a;
        }
        let counted: [AtomicU64; WRITERS] = safe.map(AtomicU64::new);
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (writer, counted) in counted.iter().enumerate() {
                let (server, ends) = (&server, &ends);
                scope.spawn(move || count(server, writer, counted, ends));
            }
            let rest = |rng: &mut Rng| std::thread::sleep(Duration::from_millis(5 + rng.below(40) as u64));
            rest(&mut rng);
            assert_eq!(client.call(&["CONFIG", "SET", "appendonly", "no"]), Value::ok());
            rest(&mut rng);
            if round % 2 == 1 {
                assert_eq!(client.call(&["CONFIG", "SET", "appendonly", "yes"]), Value::ok());
                wait_for_base(&server);
                safe = std::array::from_fn(|writer| counted[writer].load(SeqCst));
                assert_eq!(client.call(&["WAITAOF", "1", "0", "0"]), Value::array(&[":1", ":0"]));
                rest(&mut rng);
            }
            let killed = std::process::Command::new("kill").args(["-9", &server.pid().to_string()]).status();
            assert!(killed.expect("kill runs").success());
            ends.store(true, SeqCst);
        });
    }
    assert!(safe.iter().all(|safe| *safe > 0), "nothing was written: {safe:?}");
}

const WRITERS: usize = 4;
/// What each counts up, in many shards.
const KEYS: usize = 24;

/// A base that was begun while the journal was off may end just when it is switched on, by several clients at once: what
/// is written afterwards does not stand behind a gap.
#[test]
fn nothing_stands_behind_a_gap_once_the_journal_was_switched_on_and_has_a_base() {
    let dir = Dir::new("gap");
    let server = dir.start(&["--proactor_threads", "4"]);
    let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
    for round in 0..setting("DARTER_SWITCH_ROUNDS", 40) {
        let text = round.to_string();
        assert_eq!(clients[0].call(&["CONFIG", "SET", "appendonly", "no"]), Value::ok());
        clients[0].call(&["SET", "off", &text]);
        clients[0].call(&["BGREWRITEAOF"]);
        std::thread::sleep(Duration::from_micros(round as u64 * 731 % 15_000));
        clients.iter_mut().for_each(|client| client.send_all(&[&["CONFIG", "SET", "appendonly", "yes"]]));
        clients.iter_mut().for_each(|client| assert_eq!(client.read(), Value::ok(), "round {round}"));
        wait_for_base(&server);
        clients[0].call(&["SET", "on", &text]);
        assert_eq!(clients[0].call(&["WAITAOF", "1", "0", "0"]), Value::array(&[":1", ":0"]));
        let checked = std::process::Command::new(env!("CARGO_BIN_EXE_darter"))
            .arg("--check")
            .arg(dir.journal())
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(checked.status.success() && !told.contains("left out"), "round {round}: {told}");
    }
    drop(server);
    let server = dir.start(&[]);
    let last = (setting("DARTER_SWITCH_ROUNDS", 40) - 1).to_string();
    assert_eq!(server.client().call(&["MGET", "off", "on"]), Value::array(&[&last, &last]));
}

/// The next start looks for the journal in the folder that the settings name.
#[test]
fn the_journal_is_in_another_folder_once_it_was_switched_off_and_on_again() {
    let dir = Dir::new("folders");
    let server = dir.start(&["--enable-protected-configs", "yes"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    let other = dir.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    let other = other.to_str().expect("a plain name");
    let Value::Error(line) = client.call(&["CONFIG", "SET", "dir", other]) else { panic!("an error") };
    assert!(line.contains("switch appendonly off before"), "{line}");
    assert_eq!(client.call(&["CONFIG", "SET", "appendonly", "no"]), Value::ok());
    assert_eq!(client.call(&["CONFIG", "SET", "dir", other]), Value::ok());
    assert_eq!(client.call(&["CONFIG", "SET", "appendonly", "yes"]), Value::ok());
    wait_for_base(&server);
    client.call(&["SET", "k2", "v"]);
    assert_eq!(client.call(&["WAITAOF", "1", "0", "0"]), Value::array(&[":1", ":0"]));
    drop(server);
    let server = dir.start(&["--dir", other]);
    assert_eq!(server.client().call(&["MGET", "k", "k2"]), Value::array(&["v", "v"]));
}

/// The client, if it is answered while a script keeps a thread to itself, which has set `before`.
fn on_another_thread(mut client: Client) -> Option<Client> {
    let mut answers = 0;
    while answers < 2 {
        std::thread::sleep(Duration::from_millis(50));
        client.send_all(&[&["GET", "before"]]);
        let stream = client.stream();
        stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket");
        stream.peek(&mut [0]).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        answers += u32::from(client.read() != Value::Null);
    }
    Some(client)
}

/// What a thread has noted before it runs a long script is with the kernel, and synced, long before the script ends:
/// after a kill nothing is read back that comes after it.
#[test]
fn nothing_waits_for_a_script_that_runs_long() {
    for fsync in ["everysec", "always"] {
        let dir = Dir::new(&format!("long-script-{fsync}"));
        let flags = format!("--proactor_threads 2 --appendfsync {fsync} --busy-reply-threshold 600000");
        let flags: Vec<&str> = flags.split(' ').collect();
        let server = dir.start(&flags);
        let others: Vec<_> = (0..16).map(|_| server.client()).collect();
        let mut slow = server.client();
        slow.send_all(&[&["SET", "before", "1"], &["EVAL", "while true do end", "0"]]);
        let mut other = others.into_iter().find_map(on_another_thread).expect("one of sixteen");
        assert_eq!(other.call(&["SET", "after", "1"]), Value::ok());
        assert_eq!(other.call(&["WAITAOF", "1", "0", "0"]), Value::array(&[":1", ":0"]), "{fsync}");
        drop(server);
        let server = dir.start(&[]);
        assert_eq!(server.client().call(&["MGET", "before", "after"]), Value::array(&["1", "1"]));
    }
}

/// What went by itself while the journal was read back is told by the journal already, and not noted again.
#[test]
fn a_journal_that_is_read_back_while_the_server_runs_is_not_written_to() {
    let dir = Dir::new("read-twice");
    let server = dir.start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v", "PX", "20"]);
    std::thread::sleep(Duration::from_millis(120));
    assert_eq!(client.call(&["SET", "k", "new", "NX"]), Value::ok());
    for _ in 0..2 {
        assert_eq!(client.call(&["DEBUG", "LOADAOF"]), Value::ok());
        assert_eq!(client.call(&["GET", "k"]), Value::Text("new".to_owned()));
        // In every shard.
        (0..200).for_each(|n| drop(client.call(&["SET", &format!("other:{n}"), "v"])));
    }
}

/// The files are as they were then, and what was written since continues nothing: no reason to refuse the start.
#[test]
fn a_kill_before_the_first_base_finds_what_was_there_before() {
    let dir = Dir::new("baseless");
    let flags =
        ["--aof-load-truncated", "no", "--dbfilename", "dump", "--snapshot_egress_limit_bytes", "20000"];
    let server = dir.start(&flags);
    let mut client = server.client();
    client.call(&["SET", "k", "old"]);
    assert_eq!(client.call(&["CONFIG", "SET", "appendonly", "no"]), Value::ok());
    client.call(&["DEBUG", "POPULATE", "100000", "key", "50"]);
    // The base has to wait for a snapshot that takes a minute.
    assert_eq!(client.call(&["BGSAVE"]), Value::Status("Background saving started".into()));
    assert_eq!(client.call(&["CONFIG", "SET", "appendonly", "yes"]), Value::ok());
    client.call(&["SET", "k", "new"]);
    assert_eq!(client.call(&["WAITAOF", "1", "0", "0"]), Value::array(&[":1", ":0"]));
    drop(server);
    for expected in ["old", "newer"] {
        let server = dir.start(&flags);
        let mut client = server.client();
        assert_eq!(client.call(&["GET", "k"]), Value::Text(expected.into()));
        client.call(&["SET", "k", "newer"]);
    }
    let server = dir.start(&flags);
    assert_eq!(server.client().call(&["BGREWRITEAOF"]), started());
    wait_for_base(&server);
    // Nothing of it is left: what is there was made for the new base, and has no record.
    let checked =
        std::process::Command::new(env!("CARGO_BIN_EXE_darter")).arg("--check").arg(dir.journal()).output();
    let told = String::from_utf8_lossy(&checked.expect("it runs").stdout).into_owned();
    assert!(told.contains("\n0 records"), "{told}");
    assert!(!told.contains("never complete") && !told.contains("no longer needed"), "{told}");
    drop(server);
    assert_eq!(dir.start(&flags).client().call(&["GET", "k"]), Value::Text("newer".into()));
}

fn started() -> Value {
    Value::Status("Background append only file rewriting started".into())
}

/// Growth has a base written, and the segments behind it are made before: a kill loses nothing, a clean stop leaves none that
/// nobody wrote to.
#[test]
fn nothing_is_lost_at_bases_that_follow_growth() {
    std::thread::scope(|scope| {
        for fsync in ["everysec", "always", "no"] {
            scope.spawn(move || grow(fsync));
        }
    });
}

fn grow(fsync: &str) {
    let dir = Dir::new(&format!("growth-{fsync}"));
    let growth = "--auto-aof-rewrite-percentage 1 --auto-aof-rewrite-min-size 1";
    let flags = format!("--proactor_threads 2 --appendfsync {fsync} {growth}");
    let flags: Vec<&str> = flags.split(' ').collect();
    let mut counted = 0;
    for is_killed in [true, false, true] {
        let server = dir.start(&flags);
        let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        assert_eq!(clients[0].call(&["INCRBY", "n", "0"]), Value::Int(counted), "{fsync}");
        let began = std::time::Instant::now();
        while clients[0].info::<u64>("persistence", "aof_rewrites") == 0 {
            assert!(began.elapsed() < PATIENCE, "no base");
            for at in 0..400 {
                counted += 1;
                assert_eq!(clients[at % 4].call(&["INCR", "n"]), Value::Int(counted));
            }
        }
        // Some seconds later the next is asked for.
        std::thread::sleep(Duration::from_millis(1200));
        clients.iter_mut().for_each(|client| drop(client.call(&["INCR", "other"])));
        if !is_killed {
            assert_eq!(clients[0].try_call(&["SHUTDOWN"]), None);
            assert!(server.wait_for_end());
            let files = std::fs::read_dir(dir.journal()).expect("a folder").flatten();
            let names: Vec<_> = files.map(|file| file.file_name().into_string().expect("a text")).collect();
            assert!(names.iter().all(|name| !name.ends_with(".tail")), "{names:?}");
        }
    }
    assert_eq!(
        dir.start(&flags).client().call(&["MGET", "n", "other"]),
        Value::array(&[&counted.to_string(), "12"])
    );
}

/// Where nothing is ever synced, segments that a base has taken the place of are let go of all the same.
#[test]
fn segments_before_a_base_do_not_stay_open() {
    let dir = Dir::new("open-files");
    let server = dir.start(&["--proactor_threads", "1", "--appendfsync", "no"]);
    let mut client = server.client();
    for round in 0..8 {
        client.call(&["SET", "k", &round.to_string()]);
        assert_eq!(client.call(&["BGREWRITEAOF"]), started());
        wait_for_base(&server);
    }
    let is_gone = |path: &str| path.ends_with("(deleted)") && path.contains("appendonlydir");
    // The last one and its ring: nothing was written since. The journal's thread looks once a second.
    wait_until("others are let go", || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs").flatten();
        let targets = open.filter_map(|file| std::fs::read_link(file.path()).ok());
        targets.filter(|path| is_gone(&path.to_string_lossy())).count() <= 3
    });
}
