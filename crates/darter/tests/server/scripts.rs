//! Scripts on a real server: atomic with any keys, inside MULTI, and killed from another connection.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::raw::encoded;
use crate::harness::{Server, Value};

fn error(value: Value) -> String {
    match value {
        Value::Error(line) => line,
        other => panic!("no error: {other:?}"),
    }
}

#[test]
fn scripts_with_keys_nobody_named_are_atomic() {
    const TRANSFER: &str = "local from, to = 'acct:' .. ARGV[1], 'acct:' .. ARGV[2]
        redis.call('decrby', from, 1) redis.call('incrby', to, 1) return redis.status_reply('DONE')";
    const NAMED: &str = "redis.call('decrby', KEYS[1], 1) return redis.call('incrby', KEYS[2], 1)";
    const SUM: &str =
        "local sum = 0 for n = 0, 15 do sum = sum + (redis.call('get', 'acct:' .. n) or 0) end return sum";
    let server = Server::start(&[]);
    thread::scope(|scope| {
        for worker in 0..4usize {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                for round in 0..200usize {
                    let (from, to) = ((round * 7 + worker) % 16, (round * 3 + worker * 5) % 16);
                    let (from, to) = (from.to_string(), to.to_string());
                    if round % 2 == 0 {
                        let done = client.call(&["EVAL", TRANSFER, "0", &from, &to]);
                        assert_eq!(done, Value::Status("DONE".into()));
                    } else {
                        let keys = [format!("acct:{from}"), format!("acct:{to}")];
                        client.call(&["EVAL", NAMED, "2", &keys[0], &keys[1]]);
                    }
                    assert_eq!(client.call(&["EVAL_RO", SUM, "0"]), Value::Int(0));
                }
            });
        }
    });
}

#[test]
fn scripts_run_inside_multi_and_by_their_digest() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let unknown = "NOSCRIPT No matching script. Please use EVAL.";
    assert_eq!(error(client.call(&["EVALSHA", sha, "0"])), unknown);
    assert_eq!(client.call(&["SCRIPT", "LOAD", "return 1"]), Value::Text(sha.into()));
    assert_eq!(client.call(&["EVALSHA", &sha.to_uppercase(), "0"]), Value::Int(1));
    client.call(&["MULTI"]);
    client.call(&["SET", "k", "5"]);
    client.call(&["EVAL", "return redis.call('incr', 'k') + redis.call('exists', 'other')", "0"]);
    client.call(&["EVALSHA", "00", "0"]);
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("EXEC has replies") };
    assert_eq!(replies[1], Value::Int(6));
    assert_eq!(error(replies[2].clone()), unknown);
    assert_eq!(client.call(&["SCRIPT", "FLUSH"]), Value::Status("OK".into()));
    assert_eq!(client.call(&["SCRIPT", "EXISTS", sha]), Value::Array(vec![Value::Int(0)]));
    client.call(&["SELECT", "1"]);
    client.call(&["EVAL", "redis.call('select', 2) redis.call('set', 'here', 1)", "0"]);
    assert_eq!(client.call(&["EXISTS", "here"]), Value::Int(0));
}

#[test]
fn a_long_script_is_told_of_and_killed() {
    let server = Server::start(&["--busy-reply-threshold", "50"]);
    thread::sleep(Duration::from_millis(300));
    // One connection on each of two threads.
    let (mut killer, mut runner) = (server.client(), server.client());
    assert_eq!(
        killer.call(&["SCRIPT", "KILL"]),
        Value::Error("NOTBUSY No scripts in execution right now.".into())
    );
    runner.call(&["PING"]);
    thread::scope(|scope| {
        let running = scope
            .spawn(move || error(runner.call(&["EVAL", "while true do pcall(function() end) end", "0"])));
        let began = Instant::now();
        let mut was_busy = false;
        loop {
            assert!(began.elapsed() < crate::harness::PATIENCE, "the script is not killed");
            match killer.call(&["PING"]) {
                Value::Error(line) => was_busy |= line.starts_with("BUSY "),
                _ => thread::sleep(Duration::from_millis(5)),
            }
            if was_busy && killer.call(&["SCRIPT", "KILL"]) == Value::Status("OK".into()) {
                break;
            }
        }
        let line = running.join().expect("the script's end");
        assert!(line.contains("Script killed by user with SCRIPT KILL"), "{line}");
    });
    // The killer's thread may still take the script for running.
    let began = Instant::now();
    loop {
        match killer.call(&["EVAL", "return 7", "0"]) {
            Value::Error(line) if line.starts_with("BUSY ") => {}
            said => break assert_eq!(said, Value::Int(7)),
        }
        assert!(began.elapsed() < crate::harness::PATIENCE, "it stays busy");
    }
}

#[test]
fn a_script_that_its_own_transaction_loads_finds_its_keys() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let text = "return redis.call('incr', KEYS[1]) + redis.call('incr', KEYS[2])";
    let Value::Text(sha) = client.call(&["SCRIPT", "LOAD", text]) else { panic!("its digest") };
    client.call(&["SCRIPT", "FLUSH"]);
    client.call(&["MULTI"]);
    client.call(&["SCRIPT", "LOAD", text]);
    client.call(&["EVALSHA", &sha, "2", "one", "two"]);
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("EXEC has replies") };
    assert_eq!(replies[1], Value::Int(2));
}

#[test]
fn a_script_sent_again_is_known_by_its_digest_until_all_are_forgotten() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let (text, sha) = ("return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    let exists = |client: &mut crate::harness::Client| client.call(&["SCRIPT", "EXISTS", sha]);
    for _ in 0..2 {
        client.call(&["EVAL", text, "0"]);
        // So many others push it out of what is known by digest.
        for n in 0..600 {
            client.call(&["EVAL", &format!("return 'n{n}'"), "0"]);
        }
        assert_eq!(exists(&mut client), Value::array(&[":0"]));
        assert_eq!(client.call(&["EVAL", text, "0"]), Value::Int(1));
        assert_eq!(exists(&mut client), Value::array(&[":1"]));
        client.call(&["SCRIPT", "FLUSH"]);
        assert_eq!(exists(&mut client), Value::array(&[":0"]));
    }
}

#[test]
fn time_stands_still_in_a_script_and_goes_on_behind_it() {
    const SCRIPT: &str = "local first = redis.call('TIME')
        redis.call('DEBUG', 'SLEEP', '1.2')
        local second = redis.call('TIME')
        return {first[1] == second[1] and first[2] == second[2], redis.call('GET', KEYS[1])}";
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.call(&["DEBUG", "SET-DISABLE-DENY-SCRIPTS", "1"]);
    // In one piece, so that all are read in one turn.
    let commands = [&["SET", "k", "v", "PX", "1000"][..], &["EVAL", SCRIPT, "1", "k"], &["GET", "k"]];
    let request = commands.map(encoded).concat();
    client.stream().write_all(&request).expect("sent");
    assert_eq!(client.read(), Value::ok());
    assert_eq!(client.read(), Value::Array(vec![Value::Int(1), Value::Text("v".into())]));
    assert_eq!(client.read(), Value::Null);
    client.call(&["MULTI"]);
    for words in [&["TIME"][..], &["DEBUG", "SLEEP", "0.002"], &["TIME"]] {
        client.call(words);
    }
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("EXEC has replies") };
    assert_eq!(replies[0], replies[2]);
    assert_ne!(client.call(&["TIME"]), replies[0]);
}

#[test]
fn time_moves_again_in_a_script_that_is_overdue() {
    const SCRIPT: &str =
        "local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
        local till = now() + 20
        while now() < till do end
        return 1";
    let server = Server::start(&["--busy-reply-threshold", "30"]);
    assert_eq!(server.client().call(&["EVAL", SCRIPT, "0"]), Value::Int(1));
}

/// As Redis 7.0.15 counts: a script whose answer is an error has failed, whoever made the error, and it is counted once.
#[test]
fn a_script_that_answers_with_an_error_has_failed() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "str", "x"]);
    for script in [
        "return redis.error_reply('MY err')",
        "return redis.call('nosuch')",
        "return redis.pcall('incr','str')",
        "error('x')",
        "return {err='FOO bar'}",
        "return redis.call('incr','str')",
        "syntax(",
    ] {
        assert!(matches!(client.call(&["EVAL", script, "0"]), Value::Error(_)), "{script}");
    }
    assert_eq!(client.call(&["EVAL", "return 1", "0"]), Value::Int(1));
    let failed = |line: String| line.rsplit_once("rejected_calls=").map(|(_, rest)| rest.to_owned());
    assert_eq!(failed(client.info("commandstats", "cmdstat_eval")).as_deref(), Some("0,failed_calls=7"));
    assert_eq!(failed(client.info("commandstats", "cmdstat_incr")).as_deref(), Some("0,failed_calls=2"));
    for (name, count) in [("ERR", 5), ("FOO", 1), ("MY", 1)] {
        let shown: String = client.info("errorstats", &format!("errorstat_{name}"));
        assert_eq!(shown, format!("count={count}"));
    }
}

/// Scripts had no more memory than the data, and could not even be compiled.
#[test]
fn scripts_run_however_little_memory_the_data_may_have() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "x", "5"]);
    assert_eq!(client.call(&["CONFIG", "SET", "maxmemory", "1"]), Value::ok());
    let get = "return redis.call('get', KEYS[1])";
    assert_eq!(client.call(&["EVAL", get, "1", "x"]), Value::Text("5".to_owned()));
    let answer = client.call(&["EVAL", "return redis.call('set', KEYS[1], 1)", "1", "x"]);
    assert!(matches!(&answer, Value::Error(line) if line.starts_with("OOM ")), "{answer:?}");
}
