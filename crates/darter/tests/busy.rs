//! A script that runs too long: everybody is told, whichever thread serves them, new clients too; and it can be ended.

mod harness;

use std::thread;
use std::time::{Duration, Instant};

use harness::{Client, Server, Value};

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
        assert!(began.elapsed() < Duration::from_secs(30), "nothing is busy");
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
                assert!(began.elapsed() < Duration::from_secs(30), "they are not ended");
                other.call(&["SCRIPT", "KILL"]);
                thread::sleep(Duration::from_millis(5));
            }
            let (queued, ended) = first.join().expect("the transaction's end");
            match ended {
                Value::Array(mut replies) => assert_killed(replies.remove(0)),
                refused => assert!(is_busy(&queued) && matches!(refused, Value::Error(_)), "{refused:?}"),
            }
            let (ended, pong) = second.join().expect("the script's end");
            if !is_busy(&ended) {
                assert_killed(ended);
            }
            assert!(pong == Value::Status("PONG".into()) || is_busy(&pong));
        });
        let began = Instant::now();
        while other.call(&["PING"]) != Value::Status("PONG".into()) {
            assert!(began.elapsed() < Duration::from_secs(30), "the server stays busy");
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
