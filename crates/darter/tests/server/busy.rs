//! A script that runs too long: everybody is told, whichever thread serves them, new clients too; and it can be ended.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::{Client, Server, Value};

const PLACES: &[&[&str]] = &[
    &["--proactor_threads", "1"],
    &["--proactor_threads", "1", "--force_epoll"],
    &["--proactor_threads", "2"],
    &["--proactor_threads", "2", "--force_epoll"],
    &["--proactor_threads", "4", "--force_epoll"],
];

/// More clients than threads, so that some are on the thread that runs the script.
const CLIENTS: usize = 6;

fn each_server(check: impl Fn(&Server) + Sync) {
    thread::scope(|scope| {
        for flags in PLACES {
            let check = &check;
            scope.spawn(move || {
                let flags = [&["--busy-reply-threshold", "50"], *flags].concat();
                check(&Server::start(&flags));
            });
        }
    });
}

fn is_busy(value: &Value) -> bool {
    *value
        == Value::Error(
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.".into(),
        )
}

fn wait_until_busy(client: &mut Client) {
    let began = Instant::now();
    while !is_busy(&client.call(&["PING"])) {
        assert!(began.elapsed() < crate::harness::PATIENCE, "nothing is busy");
        thread::sleep(Duration::from_millis(5));
    }
}

fn assert_killed(value: Value) {
    let Value::Error(line) = value else { panic!("it was killed: {value:?}") };
    assert!(line.contains("Script killed by user with SCRIPT KILL"), "{line}");
}

#[test]
fn clients_of_every_thread_are_told_and_a_new_one_ends_it() {
    each_server(|server| {
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        clients[1].call(&["SET", "key", "before"]);
        let mut runner = clients.remove(0);
        runner.send_all(&[&["EVAL", "while true do redis.call('get', KEYS[1]) end", "1", "key"], &["PING"]]);
        clients.iter_mut().for_each(wait_until_busy);
        runner.send_all(&[&["ECHO", "meanwhile"]]);
        for client in &mut clients {
            assert!(is_busy(&client.call(&["SET", "key", "after"])));
            client.send_all(&[&["MULTI"], &["GET", "key"], &["EXEC"]]);
            assert_eq!(client.read(), Value::ok());
            assert!(is_busy(&client.read()));
            assert!(matches!(client.read(), Value::Error(line) if line.starts_with("EXECABORT ")));
            assert!(is_busy(&client.call(&["EVAL", "return 1", "0"])));
        }
        let mut fresh: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        fresh.iter_mut().for_each(|client| assert!(is_busy(&client.call(&["GET", "key"]))));
        drop(fresh.pop());
        assert_eq!(fresh[0].call(&["SCRIPT", "KILL"]), Value::ok());
        assert_killed(runner.read());
        assert_eq!(runner.read(), Value::Status("PONG".into()));
        assert_eq!(runner.read(), Value::Text("meanwhile".into()));
        for client in clients.iter_mut().chain(&mut fresh) {
            assert_eq!(client.call(&["GET", "key"]), Value::Text("before".into()));
        }
    });
}

#[test]
fn a_script_inside_a_transaction_and_one_that_waited_for_its_shard_are_ended_too() {
    each_server(|server| {
        let (mut first, mut second, mut other) = (server.client(), server.client(), server.client());
        let endless = "redis.call('get', KEYS[1]) while true do end";
        first.send_all(&[&["MULTI"], &["EVAL", endless, "1", "key"], &["EXEC"]]);
        // It asks for the same shard, if it can before anybody is told that the server is busy.
        second.send_all(&[&["EVAL", endless, "1", "key"], &["PING"]]);
        wait_until_busy(&mut other);
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                assert_eq!(first.read(), Value::ok());
                (first.read(), first.read())
            });
            let second = scope.spawn(move || (second.read(), second.read()));
            let began = Instant::now();
            while !first.is_finished() || !second.is_finished() {
                assert!(began.elapsed() < crate::harness::PATIENCE, "they are not ended");
                other.call(&["SCRIPT", "KILL"]);
                thread::sleep(Duration::from_millis(5));
            }
            let (queued, ended) = first.join().expect("the transaction's end");
            match ended {
                Value::Array(mut replies) => assert_killed(replies.remove(0)),
                refused => assert!(is_busy(&queued) || tells_busy(&refused), "{refused:?}"),
            }
            let (ended, pong) = second.join().expect("the script's end");
            if !is_busy(&ended) {
                assert_killed(ended);
            }
            assert!(pong == Value::Status("PONG".into()) || is_busy(&pong));
        });
        let began = Instant::now();
        while other.call(&["PING"]) != Value::Status("PONG".into()) {
            assert!(began.elapsed() < crate::harness::PATIENCE, "the server stays busy");
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn one_that_has_written_ends_with_the_server_alone() {
    each_server(|server| {
        let (mut runner, mut other) = (server.client(), server.client());
        runner.send_all(&[&["EVAL", "redis.call('set', KEYS[1], 1) while true do end", "1", "key"]]);
        wait_until_busy(&mut other);
        let mut fresh = server.client();
        assert!(
            matches!(fresh.call(&["SCRIPT", "KILL"]), Value::Error(line) if line.starts_with("UNKILLABLE "))
        );
        assert!(is_busy(&fresh.call(&["SHUTDOWN"])));
        fresh.send_all(&[&["SHUTDOWN", "NOSAVE"]]);
        assert!(fresh.is_closed() && other.is_closed());
    });
}

/// SHUTDOWN without NOSAVE keeps what has been answered, so it lets scripts come to their ends, but not for ever.
#[test]
fn the_end_of_the_server_waits_for_a_script_until_it_is_overdue() {
    let began = Instant::now();
    loop {
        let server = Server::start(&["--proactor_threads", "2", "--busy-reply-threshold", "3000"]);
        let (mut runner, mut other) = (server.client(), server.client());
        runner.send_all(&[&["EVAL", &begins("redis.call('set', KEYS[1], 1) while true do end"), "1", "key"]]);
        server.wait_until_it_says(BEGUN, 1);
        match other.try_call(&["SHUTDOWN"]) {
            None => return assert!(server.wait_for_end()),
            // Where others have the cores it may have been overdue before it was asked.
            Some(said) => assert!(is_busy(&said), "{said:?}"),
        }
        assert!(began.elapsed() < crate::harness::PATIENCE, "it is overdue each time");
    }
}

/// What the log has once a script of [`begins`] runs: nothing else tells of a script before it is overdue.
const BEGUN: &str = "it has begun";

/// A script that says so when it begins.
fn begins(script: &str) -> String {
    format!("redis.log(redis.LOG_WARNING, '{BEGUN}') {script}")
}

/// Whether a value tells of a script, or of a function, that runs too long.
fn tells_busy(value: &Value) -> bool {
    matches!(value, Value::Error(line) if line.starts_with("BUSY ") || line.contains("because of: BUSY "))
}

/// Four clients on two threads send what never ends while the first one's runs. The others are told once that is overdue,
/// wherever they wait, and nothing of theirs begins when it has been killed.
fn check_queue(family: &str, endless: &[&str]) {
    const FLAGS: &[&str] = &["--proactor_threads", "2", "--busy-reply-threshold", "1500"];
    let server = Server::start(FLAGS);
    let mut other = server.client();
    let body = begins("while true do end");
    let code = format!("#!lua name=l\nredis.register_function('loop', function() {body} end)");
    assert_eq!(other.call(&["FUNCTION", "LOAD", &code]), Value::Text("l".into()));
    let mut runner = server.client();
    let mut waiting: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    runner.send_all(&[endless]);
    server.wait_until_it_says(BEGUN, 1);
    for (at, client) in waiting.iter_mut().enumerate() {
        match at / 2 {
            0 => client.send_all(&[endless]),
            1 => client.send_all(&[&["MULTI"], endless, &["EXEC"]]),
            _ => client.send_all(&[&["GET", "key"], endless]),
        }
    }
    for (at, client) in waiting.iter_mut().enumerate() {
        match at / 2 {
            0 => {}
            1 => {
                assert_eq!(client.read(), Value::ok());
                client.read();
            }
            _ => {
                // Data commands too, whichever thread would have run them.
                let got = client.read();
                assert!(got == Value::Null || tells_busy(&got), "{got:?}");
            }
        }
        let said = client.read();
        assert!(tells_busy(&said), "{at}: {said:?}");
        // Told so while it still runs.
        let said = client.call(&["SET", "key", "x"]);
        assert!(tells_busy(&said), "{at}: {said:?}");
    }
    assert_eq!(other.call(&[family, "KILL"]), Value::ok());
    let Value::Error(line) = runner.read() else { panic!("it was killed") };
    assert!(line.contains("Script killed by user"), "{line}");
    assert_eq!(runner.call(&["SET", "key", "value"]), Value::ok());
    thread::sleep(Duration::from_millis(400));
    for client in waiting.iter_mut().chain([&mut other]) {
        assert_eq!(client.call(&["GET", "key"]), Value::Text("value".into()));
    }
    let Value::Array(stats) = other.call(&["FUNCTION", "STATS"]) else { panic!("no stats") };
    assert_eq!(stats[1], Value::Null);
    assert_eq!(waiting[0].call(&["EVAL", "return 1", "0"]), Value::Int(1));
    assert_eq!(server.says(BEGUN), 1, "one that waited has begun");
}

/// Endless, over all shards: its key is put together.
const ALL_SHARDS: &str = "redis.call('get', 'k' .. 'ey') while true do end";

#[test]
fn one_kill_ends_what_runs_on_every_thread() {
    let server = Server::start(&["--proactor_threads", "2", "--busy-reply-threshold", "400"]);
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let mut other = server.client();
    let script = begins("while true do end");
    for client in &mut clients {
        // It needs no shard, so that one runs on each thread.
        client.send_all(&[&["EVAL", &script, "0"]]);
        thread::sleep(Duration::from_millis(60));
    }
    wait_until_busy(&mut other);
    // One that begins after the end of the others would run for ever.
    crate::harness::wait_until("each has begun, or was told", || {
        server.says(BEGUN) + clients.iter_mut().map(|client| usize::from(client.has_reply())).sum::<usize>()
            == 4
    });
    assert_eq!(other.call(&["SCRIPT", "KILL"]), Value::ok());
    for client in &mut clients {
        let said = client.read();
        if !tells_busy(&said) {
            assert_killed(said);
        }
    }
    for client in &mut clients {
        assert_eq!(client.call(&["SET", "key", "value"]), Value::ok());
    }
}

#[test]
fn scripts_that_wait_for_an_overdue_one_are_told_and_never_begin() {
    thread::scope(|scope| {
        scope.spawn(|| check_queue("SCRIPT", &["EVAL", &begins(ALL_SHARDS), "0"]));
        scope.spawn(|| check_queue("FUNCTION", &["FCALL", "loop", "0"]));
    });
}

#[test]
fn data_commands_that_wait_for_an_overdue_script_are_told_and_never_run() {
    let server = Server::start(&["--proactor_threads", "2", "--busy-reply-threshold", "300"]);
    let mut runner = server.client();
    let mut waiting: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    let script = begins("redis.call('get', KEYS[1]) while true do end");
    runner.send_all(&[&["EVAL", &script, "1", "{k}1"]]);
    server.wait_until_it_says(BEGUN, 1);
    for (at, client) in waiting.iter_mut().enumerate() {
        match at % 3 {
            0 => client.send_all(&[&["INCR", "{k}1"]]),
            // With shards of its own that it holds while it waits.
            1 => client.send_all(&[&["DEL", "{k}1", "a", "b", "c", "d", "e", "f"]]),
            _ => client.send_all(&[&["BLPOP", "list", "{k}1", "0"]]),
        }
    }
    // Nobody has ended it: each of them is told in time.
    let told: Vec<Value> = waiting.iter_mut().step_by(3).map(Client::read).collect();
    assert!(told.iter().all(is_busy), "{told:?}");
    for said in waiting.iter_mut().skip(1).step_by(3).map(Client::read) {
        assert!(is_busy(&said), "{said:?}");
    }
    assert_eq!(server.client().call(&["SCRIPT", "KILL"]), Value::ok());
    assert_killed(runner.read());
    assert_eq!(runner.call(&["GET", "{k}1"]), Value::Null, "an INCR that was told BUSY has run");
    // What they held is free again.
    assert_eq!(
        runner.call(&["MSET", "a", "1", "b", "1", "c", "1", "d", "1", "e", "1", "f", "1"]),
        Value::ok()
    );
    assert_eq!(waiting[0].call(&["INCRBY", "a", "4"]), Value::Int(5));
}

/// As the test of a client's library does it: a function is started, and a second later killed.
#[test]
fn what_runs_for_a_while_can_be_ended_before_anybody_is_told() {
    let server = Server::start(&["--proactor_threads", "4", "--busy-reply-threshold", "600000"]);
    let mut runner = server.client();
    let library = "#!lua name=l\nredis.register_function('loop', function() while true do end end)";
    assert_eq!(runner.call(&["FUNCTION", "LOAD", library]), Value::Text("l".into()));
    // Those on the thread that runs it are served when it has ended.
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
    runner.send_all(&[&["FCALL", "loop", "0"]]);
    let has_ended = AtomicBool::new(false);
    let mut sent = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            let Value::Error(line) = runner.read() else { panic!("it was killed") };
            assert!(line.contains("Script killed by user with FUNCTION KILL"), "{line}");
            has_ended.store(true, Relaxed);
        });
        let began = Instant::now();
        while !has_ended.load(Relaxed) {
            assert!(began.elapsed() < crate::harness::PATIENCE, "nobody could end it");
            clients.iter_mut().for_each(|client| client.send_all(&[&["FUNCTION", "KILL"]]));
            sent += 1;
            thread::sleep(Duration::from_millis(20));
        }
    });
    let replies: Vec<Value> =
        clients.iter_mut().flat_map(|c| (0..sent).map(|_| c.read()).collect::<Vec<_>>()).collect();
    let idle = Value::Error("NOTBUSY No scripts in execution right now.".into());
    assert!(replies.contains(&Value::ok()));
    assert!(replies.iter().all(|reply| *reply == Value::ok() || *reply == idle), "{replies:?}");
    // Nobody was refused meanwhile, and nobody is now.
    assert_eq!(runner.call(&["PING"]), Value::Status("PONG".into()));
}

/// A server that saves when it ends, on so many threads.
fn saving(folder: &Folder, threads: &str) -> Server {
    let flags = [
        "--dir",
        folder.text(),
        "--dbfilename",
        "dump",
        "--save",
        "3600 1000000",
        "--busy-reply-threshold",
        "200",
    ];
    let server = Server::start(&[&flags, &["--proactor_threads", threads][..]].concat());
    drop(server.client().loaded());
    server
}

fn signal(server: &Server, name: &str) {
    let sent = std::process::Command::new("kill").args([name, &server.pid().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// A signal is seen whichever thread runs a script that never ends, and one that has written nothing does not keep the
/// server from saving.
#[test]
fn a_signal_ends_the_server_while_an_endless_script_runs() {
    for (threads, name) in [("1", "-TERM"), ("1", "-INT"), ("2", "-TERM"), ("4", "-TERM")] {
        let folder = Folder::new(&format!("busy-signal-{threads}{name}"));
        let server = saving(&folder, threads);
        let (mut runner, mut other) = (server.client(), server.client());
        assert_eq!(other.call(&["SET", "key", "value"]), Value::ok());
        runner.send_all(&[&["EVAL", "while true do redis.call('get', KEYS[1]) end", "1", "key"]]);
        if name == "-TERM" {
            wait_until_busy(&mut other);
        }
        signal(&server, name);
        assert!(server.wait_for_end(), "{threads} {name}");
        assert_eq!(saving(&folder, threads).client().call(&["GET", "key"]), Value::Text("value".into()));
    }
}

/// Half of what a script does is in no snapshot: the end waits for it, as in Redis, until somebody wants it without.
#[test]
fn the_end_waits_for_a_script_that_has_written_until_it_is_to_save_nothing() {
    for threads in ["1", "2"] {
        for insists in [true, false] {
            let folder = Folder::new(&format!("busy-written-{threads}-{insists}"));
            let server = saving(&folder, threads);
            let (mut runner, mut other) = (server.client(), server.client());
            assert_eq!(other.call(&["SET", "key", "before"]), Value::ok());
            assert_eq!(other.call(&["SAVE"]), Value::ok());
            let endless = "redis.call('set', KEYS[1], 'half') while true do end";
            runner.send_all(&[&["EVAL", endless, "1", "key"]]);
            wait_until_busy(&mut other);
            signal(&server, "-TERM");
            thread::sleep(Duration::from_millis(500));
            let mut fresh = server.client();
            assert!(is_busy(&fresh.call(&["GET", "key"])), "it waits for the script");
            if insists {
                signal(&server, "-INT");
            } else {
                fresh.send_all(&[&["SHUTDOWN", "NOSAVE"]]);
            }
            assert!(server.wait_for_end(), "{threads} {insists}");
            let found = saving(&folder, threads).client().call(&["GET", "key"]);
            assert_eq!(found, Value::Text("before".into()));
        }
    }
}
