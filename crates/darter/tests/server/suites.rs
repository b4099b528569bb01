//! What the test suites of Redis and Valkey found and no other file here is about, each in a few words of our own.

use std::time::{Duration, Instant};

use crate::harness::folder::Folder;
use crate::harness::journal::Dir;
use crate::harness::{Client, Server, Value, wait_until};

fn text(value: Value) -> String {
    match value {
        Value::Text(text) | Value::Status(text) | Value::Error(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

fn errors(client: &mut Client, prefix: &str) -> String {
    let info = text(client.call(&["INFO", "errorstats"]));
    let name = format!("errorstat_{prefix}:count=");
    info.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_default().to_owned()
}

/// Waits until INFO shows this number of keys in a database. While housekeeping holds a shard, INFO shows its last figure.
fn await_keys(client: &mut Client, db: usize, keys: usize) {
    let start = format!("db{db}:keys={keys},");
    wait_until(&start, || text(client.call(&["INFO", "keyspace"])).contains(&start));
}

#[test]
fn the_journal_is_read_back_while_the_server_runs() {
    let dir = Dir::new("loadaof");
    let server = dir.start(&["--proactor_threads", "2"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v", "EX", "100000"]);
    client.call(&["SET", "k", "w", "KEEPTTL"]);
    for n in 0..100 {
        client.call(&["RPUSH", &format!("l{}", n % 7), &n.to_string()]);
    }
    client.call(&["FUNCTION", "LOAD", "#!lua name=f\nredis.register_function('f', function() return 7 end)"]);
    let digest = client.call(&["DEBUG", "DIGEST"]);
    assert_eq!(client.call(&["DEBUG", "LOADAOF"]), Value::ok());
    assert_eq!(client.call(&["DEBUG", "DIGEST"]), digest);
    assert_eq!(client.call(&["FCALL", "f", "0"]), Value::Int(7));
    let Value::Int(ttl) = client.call(&["TTL", "k"]) else { panic!("an integer") };
    assert!((99_900..=100_000).contains(&ttl), "{ttl}");
    // It goes on where it was.
    client.call(&["SET", "after", "1"]);
    let digest = client.call(&["DEBUG", "DIGEST"]);
    assert_eq!(client.call(&["DEBUG", "LOADAOF"]), Value::ok());
    assert_eq!(client.call(&["DEBUG", "DIGEST"]), digest);
    drop(server);
    assert_eq!(dir.start(&[]).client().call(&["DEBUG", "DIGEST"]), digest);
}

#[test]
fn settings_are_told_by_name() {
    let server = Server::start(&[]);
    let Value::Array(all) = server.client().call(&["CONFIG", "GET", "*"]) else { panic!("an array") };
    let names: Vec<String> = all.into_iter().step_by(2).map(text).collect();
    assert!(names.len() > 100 && names.is_sorted(), "{names:?}");
}

#[test]
fn a_base_is_written_while_the_journal_is_off() {
    let dir = Dir::new("offbase");
    let server = dir.start(&["--appendonly", "no"]);
    let mut client = server.client();
    client.call(&["MSET", "a", "1", "b", "2"]);
    assert!(text(client.call(&["BGREWRITEAOF"])).contains("rewriting started"));
    wait_until("it is written", || {
        let info = text(client.call(&["INFO", "persistence"]));
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    client.call(&["SET", "later", "1"]);
    assert_eq!(client.call(&["DEBUG", "LOADAOF"]), Value::ok());
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(2));
    drop(server);
    let server = dir.start(&[]);
    assert_eq!(server.client().call(&["MGET", "a", "b", "later"]), {
        Value::Array(vec![Value::Text("1".into()), Value::Text("2".into()), Value::Null])
    });
}

#[test]
fn scripts_that_do_not_write_run_while_writers_wait() {
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    client.call(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let script = "#!lua flags=no-writes\nreturn 12";
    assert_eq!(other.call(&["EVAL", script, "0"]), Value::Int(12));
    other.call(&["MULTI"]);
    other.call(&["EVAL", script, "0"]);
    assert_eq!(other.call(&["EXEC"]), Value::Array(vec![Value::Int(12)]));
    other.send_all(&[&["EVAL", "return 1", "0"]]);
    let began = std::time::Instant::now();
    while !text(client.call(&["INFO", "clients"])).contains("blocked_clients:1") {
        assert!(began.elapsed() < crate::harness::PATIENCE);
    }
    client.call(&["CLIENT", "UNPAUSE"]);
    assert_eq!(other.read(), Value::Int(1));
}

#[test]
fn scan_removes_the_dead_and_knows_the_types() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    client.call(&["MSET", "a", "1", "b", "2"]);
    client.call(&["SET", "dead", "1", "PX", "1"]);
    client.call(&["HSET", "deadtoo", "f", "v"]);
    client.call(&["PEXPIRE", "deadtoo", "1"]);
    std::thread::sleep(Duration::from_millis(50));
    await_keys(&mut client, 0, 4);
    let wrong = client.call(&["SCAN", "0", "TYPE", "string1"]);
    assert!(matches!(&wrong, Value::Error(line) if line.contains("unknown type name")), "{wrong:?}");
    client.call(&["SCAN", "0", "COUNT", "10000", "TYPE", "string"]);
    await_keys(&mut client, 0, 3);
    client.call(&["SCAN", "0", "COUNT", "10000"]);
    await_keys(&mut client, 0, 2);
}

#[test]
fn errors_are_counted_by_kind_within_bounds() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let script = "return redis.error_reply(ARGV[1] .. ' of mine')";
    for n in 0..140 {
        client.call(&["EVAL", script, "0", &format!("E{n}")]);
    }
    assert_eq!(errors(&mut client, "ERRORSTATS_OVERFLOW"), "12");
    client.call(&["SET", "a", "b", "c"]);
    assert_eq!(errors(&mut client, "ERR"), "1");
    assert_eq!(errors(&mut client, "E1"), "1");
    client.call(&["EVAL", script, "0", "E1"]);
    assert_eq!(errors(&mut client, "E1"), "2");
    // What a called command failed with is counted once, whether the script ends by it or answers it.
    for function in ["call", "pcall"] {
        client.call(&["EVAL", &format!("return redis.{function}('incr', KEYS[1], 1, 2)"), "1", "k"]);
    }
    assert_eq!(errors(&mut client, "ERR"), "3");
    let mut waiting = server.client();
    let Value::Int(id) = waiting.call(&["CLIENT", "ID"]) else { panic!("an integer") };
    waiting.send_all(&[&["BLPOP", "none", "0"]]);
    wait_until("it is let go", || {
        client.call(&["CLIENT", "UNBLOCK", &id.to_string(), "ERROR"]) == Value::Int(1)
    });
    assert!(text(waiting.read()).starts_with("UNBLOCKED"));
    assert_eq!(errors(&mut client, "UNBLOCKED"), "1");
    let stats = text(client.call(&["INFO", "commandstats"]));
    let blpop = stats.lines().find(|line| line.starts_with("cmdstat_blpop:")).expect("it was called");
    assert!(blpop.contains("calls=1,") && blpop.ends_with("failed_calls=1"), "{blpop}");
}

#[test]
fn keys_that_clients_wait_for_are_listed() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut other) = (server.client(), server.client());
    let listed = |client: &mut Client| {
        let Value::Array(mut items) = client.call(&["DEBUG", "WATCHED"]) else { panic!("an array") };
        let Some(Value::Array(mut watched)) = items.pop() else { panic!("an array") };
        assert_eq!(
            items,
            [Value::Text("awaked".into()), Value::Array(vec![]), Value::Text("watched".into())]
        );
        watched.sort_by_key(|name| format!("{name:?}"));
        watched
    };
    other.send_all(&[&["BLPOP", "a", "b", "a", "0"]]);
    let began = std::time::Instant::now();
    while listed(&mut client).len() < 2 {
        assert!(began.elapsed() < crate::harness::PATIENCE);
    }
    assert_eq!(listed(&mut client), ["a", "b"].map(|name| Value::Text(name.into())));
    client.call(&["RPUSH", "b", "x"]);
    assert_eq!(listed(&mut client), []);
    other.read();
}

#[test]
fn a_key_watched_twice_counts_once() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["WATCH", "k", "k"]);
    client.call(&["WATCH", "k"]);
    assert!(text(client.call(&["CLIENT", "INFO"])).contains("watch=1 "));
    server.client().call(&["SET", "k", "v"]);
    client.call(&["MULTI"]);
    client.call(&["PING"]);
    assert_eq!(client.call(&["EXEC"]), Value::Null);
}

#[test]
fn a_request_longer_than_the_limit_is_refused_even_when_it_is_whole() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "client-query-buffer-limit", "1048576"]);
    let mut other = server.client();
    other.send_all(&[&["SET", "k", &"a".repeat(1 << 20)]]);
    assert!(other.is_closed());
    assert!(text(client.call(&["INFO", "stats"])).contains("client_query_buffer_limit_disconnections:1"));
    assert_eq!(client.call(&["EXISTS", "k"]), Value::Int(0));
}

#[test]
fn the_kernel_is_told_how_much_the_process_matters() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let score = || {
        let text = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", server.pid())).expect("a file");
        text.trim().parse::<i32>().expect("a number")
    };
    let before = score();
    let mut set = |pairs: &[&str]| client.call(&[&["CONFIG", "SET"], pairs].concat());
    assert_eq!(set(&["oom-score-adj-values", "10 20 30"]), Value::ok());
    assert_eq!(score(), before);
    assert_eq!(set(&["oom-score-adj", "yes"]), Value::ok());
    assert_eq!(score(), before + 10);
    assert_eq!(set(&["oom-score-adj-values", "15 20 30"]), Value::ok());
    assert_eq!(score(), before + 15);
    let absolute = (before + 20).to_string();
    assert_eq!(
        set(&["oom-score-adj", "absolute", "oom-score-adj-values", &format!("{absolute} 0 0")]),
        Value::ok()
    );
    assert_eq!(score(), before + 20);
    assert_eq!(set(&["oom-score-adj", "no"]), Value::ok());
    assert_eq!(score(), before);
}

#[test]
fn a_forced_rewrite_names_every_setting() {
    let dir = Folder::new("rewriteall");
    let file = dir.path().join("darter.conf");
    std::fs::write(&file, "hz 50\n").expect("a file");
    let server = Server::start_with_file(file.to_str(), &["--enable-debug-command", "yes"]);
    let mut client = server.client();
    assert_eq!(client.call(&["DEBUG", "CONFIG-REWRITE-FORCE-ALL"]), Value::ok());
    let written = std::fs::read_to_string(&file).expect("a file");
    assert!(written.contains("hz 50\n") && written.contains("\nslowlog-max-len "), "{written}");
    drop(server);
    // What was written can be read.
    let server = Server::start_with_file(file.to_str(), &[]);
    assert_eq!(server.client().call(&["CONFIG", "GET", "hz"]), Value::array(&["hz", "50"]));
}

#[test]
fn what_exec_wrote_before_it_read_takes_nothing_from_a_cache() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.call(&["HELLO", "3"]);
    client.call(&["CLIENT", "TRACKING", "ON"]);
    for command in [&["MULTI"] as &[&str], &["SET", "k", "1"], &["GET", "k"], &["SET", "j", "1"]] {
        client.call(command);
    }
    assert!(matches!(client.call(&["EXEC"]), Value::Array(_)));
    client.call(&["EVAL", "redis.call('set', KEYS[1], 2) return redis.call('get', KEYS[1])", "1", "s"]);
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
    let told = |key: &str| Value::Array(vec![Value::Text("invalidate".into()), Value::array(&[key])]);
    for key in ["k", "s"] {
        other.call(&["SET", key, "3"]);
        assert_eq!(client.read(), told(key));
    }
    // What is written after it was read is told, and once.
    for command in [&["MULTI"] as &[&str], &["GET", "k"], &["SET", "k", "4"]] {
        client.call(command);
    }
    assert!(matches!(client.call(&["EXEC"]), Value::Array(_)));
    assert_eq!(client.read(), told("k"));
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
}

#[test]
fn small_integers_look_shared() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["MSET", "a", "9999", "b", "10000", "c", "x"]);
    let mut count = |key: &str| client.call(&["OBJECT", "REFCOUNT", key]);
    assert_eq!(
        [count("a"), count("b"), count("c"), count("d")],
        [Value::Int(2_147_483_647), Value::Int(1), Value::Int(1), Value::Null]
    );
    client.call(&["CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "volatile-lfu"]);
    assert_eq!(client.call(&["OBJECT", "REFCOUNT", "a"]), Value::Int(1));
}

#[test]
fn the_end_waits_for_the_first_base_of_a_journal() {
    let dir = Dir::new("firstbase");
    let server = dir.start(&["--appendonly", "no"]);
    let mut client = server.client();
    client.call(&["DEBUG", "POPULATE", "1000"]);
    client.call(&["CONFIG", "SET", "rdb-key-save-delay", "10000000"]);
    client.call(&["CONFIG", "SET", "appendonly", "yes"]);
    let killed = std::process::Command::new("kill").arg(server.pid().to_string()).status();
    assert!(killed.expect("kill runs").success());
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(1000));
    assert!(text(client.call(&["SHUTDOWN"])).contains("Errors trying to SHUTDOWN"));
    // The journal that is not wanted any more gets no base either.
    client.call(&["CONFIG", "SET", "appendonly", "no"]);
    assert_eq!(client.try_call(&["SHUTDOWN"]), None);
}

#[test]
fn swapdb_takes_the_dead_for_nothing() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut client, mut other) = (server.client(), server.client());
    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    other.call(&["SELECT", "1"]);
    let mut watched = |commands: &[&[&str]], other: &mut Client| {
        commands.iter().for_each(|command| drop(client.call(command)));
        std::thread::sleep(Duration::from_millis(50));
        other.call(&["WATCH", "x"]);
        client.call(&["SWAPDB", "0", "1"]);
        other.call(&["MULTI"]);
        other.call(&["PING"]);
        other.call(&["EXEC"])
    };
    let done = Value::Array(vec![Value::Status("PONG".to_owned())]);
    assert_eq!(watched(&[&["SET", "x", "1", "PX", "1"]], &mut other), done);
    other.call(&["SET", "x", "2", "PX", "1"]);
    assert_eq!(watched(&[&["SET", "x", "1", "PX", "1"]], &mut other), done);
    assert_eq!(watched(&[&["SET", "x", "1"]], &mut other), Value::Null);
}

#[test]
fn scripts_that_only_read_do_not_publish() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let call = "return redis.call('publish', 'c', 'm')";
    for command in [&["EVAL_RO", call, "0"], &["EVAL", &format!("#!lua flags=no-writes\n{call}"), "0"]] {
        let reply = client.call(command);
        assert!(matches!(&reply, Value::Error(line) if line.contains("read-only scripts")), "{reply:?}");
    }
    assert_eq!(client.call(&["EVAL", call, "0"]), Value::Int(0));
}

#[test]
fn what_expires_is_told_to_whoever_does_not_want_its_own_changes() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let (mut client, mut other) = (server.client(), server.client());
    for command in [&["HELLO", "3"] as &[&str], &["CLIENT", "TRACKING", "ON", "BCAST", "NOLOOP"], &["MULTI"]]
    {
        client.call(command);
    }
    for command in
        [&["SET", "dies", "1", "PX", "1"] as &[&str], &["SET", "stays", "1"], &["DEBUG", "SLEEP", "0.01"]]
    {
        client.call(command);
    }
    client.call(&["GET", "dies"]);
    client.call(&["EXEC"]);
    let told = |key: &str| Value::Array(vec![Value::Text("invalidate".into()), Value::array(&[key])]);
    assert_eq!(client.read(), told("dies"));
    other.call(&["SET", "stays", "2"]);
    assert_eq!(client.read(), told("stays"));
}

#[test]
fn zscan_looks_at_as_many_as_it_is_asked_to() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let members: Vec<String> = (0..1000).flat_map(|n| [n.to_string(), format!("m{n}")]).collect();
    let words: Vec<&str> = ["ZADD", "z"].into_iter().chain(members.iter().map(String::as_str)).collect();
    client.call(&words);
    let Value::Array(page) = client.call(&["ZSCAN", "z", "0", "COUNT", "1000", "NOSCORES"]) else { panic!() };
    assert!(matches!(&page[1], Value::Array(found) if found.len() == 1000));
}

#[test]
fn scripts_may_call_debug_when_they_are_let() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let mut client = server.client();
    let script = "return redis.call('debug', 'protocol', ARGV[1])";
    let refused = client.call(&["EVAL", script, "0", "integer"]);
    assert!(
        matches!(&refused, Value::Error(line) if line.contains("not allowed from script")),
        "{refused:?}"
    );
    client.call(&["DEBUG", "SET-DISABLE-DENY-SCRIPTS", "1"]);
    assert_eq!(client.call(&["EVAL", script, "0", "integer"]), Value::Int(12345));
    assert_eq!(client.call(&["EVAL", script, "0", "string"]), Value::Text("Hello World".to_owned()));
    client.call(&["DEBUG", "SET-DISABLE-DENY-SCRIPTS", "0"]);
    assert!(matches!(client.call(&["EVAL", script, "0", "integer"]), Value::Error(_)));
}

#[test]
fn what_is_said_of_keys_that_are_not_there_is_refused() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let wrong = Value::Error("ERR Invalid arguments specified for command".to_owned());
    assert_eq!(client.call(&["COMMAND", "GETKEYSANDFLAGS", "ZINTERSTORE", "d", "9", "a"]), wrong);
    assert_eq!(client.call(&["COMMAND", "GETKEYS", "ZUNION", "2", "a"]), wrong);
    assert_eq!(client.call(&["COMMAND", "GETKEYS", "EVAL", "return 1", "9", "a"]), Value::Array(Vec::new()));
    assert_eq!(client.call(&["ACL", "SETUSER", "u", "on", "nopass", "+@all", "~mine"]), Value::ok());
    assert_eq!(client.call(&["ACL", "DRYRUN", "u", "EVAL", "", "9", "other"]), Value::ok());
    assert!(text(client.call(&["ACL", "DRYRUN", "u", "EVAL", "", "1", "other"])).contains("'other' key"));
    // No pattern is one that no name fits.
    assert_eq!(client.call(&["ACL", "SETUSER", "v", "on", "nopass", "+@all", "%RW"]), Value::ok());
    assert!(text(client.call(&["ACL", "DRYRUN", "v", "GET", "k"])).contains("'k' key"));
    assert_eq!(client.call(&["PFDEBUG", "SIMD", "OFF"]), Value::ok());
    assert_eq!(client.call(&["CONFIG", "SET", "unixsocketgroup", ""]), Value::ok());
    let off = Value::Error("ERR This instance has cluster support disabled".to_owned());
    assert_eq!(client.call(&["CLUSTER", "RESET"]), off);
    assert!(
        text(client.call(&["EVAL", "return redis.call('cluster', 'reset')", "0"])).contains("not allowed")
    );
}

#[test]
fn what_was_emptied_counts_as_freed_later() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for n in 0..100 {
        client.call(&["SET", &n.to_string(), "v"]);
    }
    assert_eq!(client.call(&["CONFIG", "RESETSTAT"]), Value::ok());
    assert_eq!(client.call(&["FLUSHALL"]), Value::ok());
    wait_until("they are counted", || client.info::<u64>("memory", "lazyfreed_objects") == 100);
}

#[test]
fn a_wait_that_ends_because_rights_were_taken_was_no_call() {
    let server = Server::start(&["--threads=2"]);
    let (mut admin, mut waiter) = (server.client(), server.client());
    assert_eq!(admin.call(&["ACL", "SETUSER", "u", "on", "nopass", "+@all", "~*"]), Value::ok());
    assert_eq!(waiter.call(&["AUTH", "u", "x"]), Value::ok());
    waiter.send_all(&[&["BLPOP", "list", "0"]]);
    let blocked = |admin: &mut Client| admin.info::<u64>("clients", "blocked_clients") == 1;
    let ends = std::time::Instant::now() + crate::harness::PATIENCE;
    while !blocked(&mut admin) {
        assert!(std::time::Instant::now() < ends, "nobody waits");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(admin.call(&["ACL", "SETUSER", "u", "resetkeys", "~other"]), Value::ok());
    admin.call(&["LPUSH", "list", "v"]);
    assert!(text(waiter.read()).starts_with("NOPERM"));
    let stats = text(admin.call(&["INFO", "commandstats"]));
    let line = stats.lines().find(|line| line.starts_with("cmdstat_blpop:")).expect("it was refused");
    assert!(line.starts_with("cmdstat_blpop:calls=0,") && line.contains("rejected_calls=1"), "{line}");
}

#[test]
fn a_write_that_takes_too_much_is_paid_by_the_one_key_that_may_go() {
    let (mut paid, mut tries) = (0, 0);
    // Housekeeping may have its shard just then, and be kept from the processor: that key goes later.
    while paid < 9 {
        tries += 1;
        assert!(tries < 36, "{paid} of {tries}");
        let server = Server::start(&["--threads=2"]);
        let mut client = server.client();
        let used = client.info::<u64>("memory", "used_memory");
        assert_eq!(client.call(&["CONFIG", "SET", "maxmemory-policy", "volatile-random"]), Value::ok());
        assert_eq!(client.call(&["SETEX", "volatile", "10000", "x"]), Value::ok());
        assert_eq!(client.call(&["CONFIG", "SET", "maxmemory", &(used + 400_000).to_string()]), Value::ok());
        assert_eq!(client.call(&["SETBIT", "big", "16000000", "0"]), Value::Int(0));
        paid += usize::from(client.call(&["EXISTS", "volatile"]) == Value::Int(0));
    }
}

#[test]
fn keys_whose_fields_expire_are_counted_by_both_names() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let counted = |client: &mut Client| {
        let info = text(client.call(&["INFO", "keyspace"]));
        let line = info.lines().find(|line| line.starts_with("db0:")).unwrap_or_default().to_owned();
        line.split_once(",subexpiry=").map(|(_, rest)| rest.to_owned()).unwrap_or_default()
    };
    for key in ["h", "i"] {
        client.call(&["HSET", key, "a", "1", "b", "2"]);
        client.call(&["HEXPIRE", key, "100", "FIELDS", "1", "a"]);
    }
    let is = |client: &mut Client, wanted: &str| wait_until(wanted, || counted(client) == wanted);
    is(&mut client, "2,keys_with_volatile_items=2");
    client.call(&["SET", "i", "v"]);
    is(&mut client, "1,keys_with_volatile_items=1");
    client.call(&["DEL", "h"]);
    client.call(&["SET", "h", "v"]);
    is(&mut client, "0,keys_with_volatile_items=0");
}

#[test]
fn what_slowlog_kept_and_housekeeping_removed_is_counted() {
    let server = Server::start(&["--slowlog-log-slower-than=500000"]);
    let mut client = server.client();
    let slow = |client: &mut Client| {
        let names =
            ["slowlog_commands_count", "slowlog_commands_time_ms_sum", "slowlog_commands_time_ms_max"];
        names.map(|name| client.info::<f64>("stats", name))
    };
    assert_eq!(slow(&mut client), [0.0; 3]);
    client.call(&["DEBUG", "SLEEP", "0.6"]);
    client.call(&["DEBUG", "SLEEP", "0.8"]);
    client.call(&["SLOWLOG", "RESET"]);
    let [count, sum_ms, max_ms] = slow(&mut client);
    assert!(count == 2.0 && sum_ms >= 1400.0 && (800.0..sum_ms).contains(&max_ms), "{sum_ms} {max_ms}");
    let stats = text(client.call(&["INFO", "commandstats"]));
    let line = stats.lines().find(|line| line.starts_with("cmdstat_debug")).expect("it ran");
    assert!(line.contains(",slowlog_count=2,slowlog_time_ms_sum="), "{line}");
    assert_eq!(stats.matches("slowlog_count").count(), 1, "{stats}");
    client.call(&["CONFIG", "RESETSTAT"]);
    assert_eq!(slow(&mut client), [0.0; 3]);
    // Kept nowhere, counted nowhere.
    client.call(&["CONFIG", "SET", "slowlog-max-len", "0"]);
    client.call(&["DEBUG", "SLEEP", "0.6"]);
    assert_eq!(slow(&mut client), [0.0; 3]);

    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for key in ["met", "swept", "swept too"] {
        client.call(&["SET", key, "v", "PX", "1"]);
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.call(&["GET", "met"]), Value::Null);
    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
    let ends = std::time::Instant::now() + crate::harness::PATIENCE;
    while client.info::<u64>("stats", "expired_keys") < 3 {
        assert!(std::time::Instant::now() < ends, "they stay");
        std::thread::sleep(Duration::from_millis(2));
    }
    // The thread that swept counts after it has let go of the shard's counters.
    while client.info::<u64>("stats", "expired_keys_active") != 2 {
        assert!(std::time::Instant::now() < ends, "two were swept");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `count` clients wait for keys.
fn await_blocked(admin: &mut Client, count: u64) {
    let ends = std::time::Instant::now() + crate::harness::PATIENCE;
    while admin.info::<u64>("clients", "blocked_clients") != count {
        assert!(std::time::Instant::now() < ends, "{count} do not wait");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_client_that_was_killed_runs_nothing_more() {
    let server = Server::start(&["--threads=2"]);
    let mut admin = server.client();
    for _ in 0..500 {
        let mut other = server.client();
        assert_eq!(other.call(&["CLIENT", "SETNAME", "other"]), Value::ok());
        assert_eq!(admin.call(&["CLIENT", "KILL", "NAME", "other"]), Value::Int(1));
        assert!(other.try_call(&["INCR", "n"]).is_none());
    }
    assert_eq!(admin.call(&["EXISTS", "n"]), Value::Int(0));
    // Nor is it served what it waited for.
    for at in 1..=100 {
        let mut other = server.client();
        assert_eq!(other.call(&["CLIENT", "SETNAME", "other"]), Value::ok());
        other.send_all(&[&["BLPOP", &format!("list{at}"), "0"]]);
        await_blocked(&mut admin, 1);
        assert_eq!(admin.call(&["CLIENT", "KILL", "NAME", "other"]), Value::Int(1));
        assert_eq!(admin.call(&["RPUSH", &format!("list{at}"), "v"]), Value::Int(1));
        assert_eq!(admin.call(&["LLEN", &format!("list{at}")]), Value::Int(1));
        await_blocked(&mut admin, 0);
    }
}

/// When the one pending entry of group `g` was last delivered, in milliseconds of the server's clock.
fn delivered_ms(client: &mut Client) -> u64 {
    let Value::Array(full) = client.call(&["XINFO", "STREAM", "s", "FULL"]) else { panic!("no stream") };
    let after = |fields: &[Value], name: &str| {
        let at = fields.iter().position(|field| *field == Value::Text(name.to_owned())).expect("the field");
        fields[at + 1].clone()
    };
    let Value::Array(groups) = after(&full, "groups") else { panic!("no groups") };
    let Value::Array(group) = &groups[0] else { panic!("no group") };
    let Value::Array(pending) = after(group, "pending") else { panic!("nothing is pending") };
    let Value::Array(entry) = &pending[0] else { panic!("no entry") };
    let Value::Int(ms) = entry[2] else { panic!("no time") };
    ms.unsigned_abs()
}

#[test]
fn what_becomes_claimable_ends_a_wait() {
    let server = Server::start(&["--threads=2"]);
    let (mut admin, mut first, mut second) = (server.client(), server.client(), server.client());
    admin.call(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
    let wait = |client: &mut Client, name: &str, ms: &str| {
        let read = ["XREADGROUP", "GROUP", "g", name, "BLOCK", "0", "CLAIM", ms, "STREAMS", "s", ">"];
        client.send_all(&[&read]);
    };
    // Both wait; one gets the entry at once, the other when it has been idle for long enough.
    wait(&mut first, "a", "100");
    await_blocked(&mut admin, 1);
    wait(&mut second, "b", "100");
    await_blocked(&mut admin, 2);
    let id = text(admin.call(&["XADD", "s", "*", "f", "v"]));
    let added_ms: u64 = id.split('-').next().and_then(|ms| ms.parse().ok()).expect("milliseconds");
    let shown = |value: Value| format!("{value:?}");
    assert!(shown(first.read()).contains(&id));
    assert!(shown(second.read()).contains(&id));
    // Times are the server's own. Each thread reads its clock once a turn, hence half of the wait as the bound.
    let claimed_ms = delivered_ms(&mut admin);
    assert!(claimed_ms >= added_ms + 50, "{added_ms} {claimed_ms}");
    // One that is pending already when the wait begins.
    wait(&mut first, "a", "150");
    assert!(shown(first.read()).contains(&id));
    let again_ms = delivered_ms(&mut admin);
    assert!(again_ms >= claimed_ms + 75, "{claimed_ms} {again_ms}");
    // What is acknowledged meanwhile is not waited for, and what is new ends the wait as ever. The entry must be acknowledged
    // before it may be claimed, so whoever was late for that has more time for another one.
    let is_left_alone = [1000_u64, 4000, 16_000].into_iter().any(|ms| {
        admin.call(&["DEL", "s"]);
        admin.call(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
        let began = Instant::now();
        let is_late = || began.elapsed() > Duration::from_millis(ms / 2);
        let id = text(admin.call(&["XADD", "s", "*", "f", "v"]));
        let read = ["XREADGROUP", "GROUP", "g", "a", "STREAMS", "s", ">"];
        assert!(shown(first.call(&read)).contains(&id));
        wait(&mut first, "a", &ms.to_string());
        wait_until("it waits", || is_late() || admin.info::<u64>("clients", "blocked_clients") == 1);
        assert_eq!(admin.call(&["XACK", "s", "g", &id]), Value::Int(1));
        if is_late() {
            // It may have been claimed before, else it is told that the group is gone.
            admin.call(&["DEL", "s"]);
            first.read();
            return false;
        }
        std::thread::sleep(Duration::from_millis(ms + 200));
        assert_eq!(admin.info::<u64>("clients", "blocked_clients"), 1);
        true
    });
    assert!(is_left_alone, "each time the test was late");
    let id = text(admin.call(&["XADD", "s", "*", "f", "v"]));
    assert!(shown(first.read()).contains(&id));
    // The time to wait may end before.
    let read = ["XREADGROUP", "GROUP", "g", "b", "BLOCK", "50", "CLAIM", "100000", "STREAMS", "s", ">"];
    assert_eq!(second.call(&read), Value::Null);
}

#[test]
fn who_redirects_to_a_client_that_quit_hears_of_it() {
    let server = Server::start(&["--threads=2"]);
    let mut writer = server.client();
    for n in 0..300 {
        let (mut told, mut reader) = (server.client(), server.client());
        let Value::Int(id) = told.call(&["CLIENT", "ID"]) else { panic!("no id") };
        reader.call(&["HELLO", "3"]);
        assert_eq!(reader.call(&["CLIENT", "TRACKING", "ON", "REDIRECT", &id.to_string()]), Value::ok());
        reader.call(&["GET", "k"]);
        assert_eq!(told.call(&["QUIT"]), Value::ok());
        assert_eq!(writer.call(&["SET", "k", &n.to_string()]), Value::ok());
        let message = format!("{:?}", reader.read());
        assert!(message.contains("tracking-redir-broken"), "{message}");
    }
}

#[test]
fn clients_hear_of_the_zone_and_are_found_by_what_they_can_do() {
    let server = Server::start(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    let hello = |client: &mut Client| match client.call(&["HELLO", "2"]) {
        Value::Array(all) => all.into_iter().skip(14).map(text).collect::<Vec<_>>(),
        value => panic!("an array: {value:?}"),
    };
    assert_eq!(hello(&mut client), [""; 0]);
    client.call(&["CONFIG", "SET", "availability-zone", "here"]);
    assert_eq!(hello(&mut client), ["availability_zone", "here"]);
    other.call(&["CLIENT", "SETNAME", "other"]);
    assert_eq!(other.call(&["CLIENT", "CAPA", "redirect", "unheard-of"]), Value::ok());
    let listed = text(client.call(&["CLIENT", "LIST", "CAPA", "r"]));
    assert!(listed.contains("name=other") && listed.lines().count() == 1, "{listed}");
    let listed = text(client.call(&["CLIENT", "LIST", "NOT-CAPA", "r"]));
    assert!(!listed.contains("name=other") && listed.lines().count() == 1, "{listed}");
    let refused = text(client.call(&["CLIENT", "LIST", "CAPA", "x"]));
    assert_eq!(refused, "ERR Unknown capa found in the provided filter: x");
    assert_eq!(client.call(&["CLIENT", "KILL", "CAPA", "r"]), Value::Int(1));
}

#[test]
fn settings_of_valkey_9_are_taken() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for (name, value) in [
        ("min-io-threads-avoid-copy-reply", "0"),
        ("min-string-size-avoid-copy-reply", "1"),
        ("min-string-size-avoid-copy-reply-threaded", "1"),
        ("io-threads-always-active", "yes"),
        ("active-defrag-cycle-us", "1000"),
        ("cluster-manual-failover-timeout", "10"),
    ] {
        assert_eq!(client.call(&["CONFIG", "SET", name, value]), Value::ok(), "{name}");
    }
}

#[test]
fn a_timeout_that_ends_after_all_times_is_refused() {
    let dir = Dir::new("timeouts");
    let server = dir.start(&[]);
    let mut client = server.client();
    let max = i64::MAX.to_string();
    let too_long = Value::Error("ERR timeout is out of range".to_owned());
    for words in [
        &["WAIT", "2", &max][..],
        &["WAITAOF", "0", "1", &max],
        &["XREAD", "BLOCK", &max, "STREAMS", "s", "0"],
        &["XREADGROUP", "GROUP", "g", "c", "BLOCK", &max, "STREAMS", "s", ">"],
    ] {
        assert_eq!(client.call(words), too_long, "{words:?}");
    }
}
