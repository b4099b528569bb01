//! The server's own commands on a real server: COMMAND, CONFIG, INFO, SLOWLOG, LATENCY, MEMORY, DEBUG, SHUTDOWN.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value, wait_until};

fn text(value: Value) -> String {
    match value {
        Value::Text(text) | Value::Status(text) | Value::Error(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => panic!("no array: {other:?}"),
    }
}

fn int(value: Value) -> i64 {
    match value {
        Value::Int(n) => n,
        other => panic!("no integer: {other:?}"),
    }
}

fn error(client: &mut Client, command: &[&str]) -> String {
    match client.call(command) {
        Value::Error(line) => line,
        other => panic!("{command:?} is no error: {other:?}"),
    }
}

/// The fields of INFO's answer.
fn info(client: &mut Client, sections: &[&str]) -> BTreeMap<String, String> {
    let command: Vec<&str> = ["INFO"].iter().chain(sections).copied().collect();
    let text = text(client.call(&command));
    let field = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
    text.lines().filter(|line| !line.starts_with('#')).filter_map(field).collect()
}

#[test]
fn command_answers_from_the_registry() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let all = items(client.call(&["COMMAND"])).len() as i64;
    assert_eq!(int(client.call(&["COMMAND", "COUNT"])), all);
    let found = items(client.call(&["COMMAND", "INFO", "get", "nosuch", "config|set"]));
    assert_eq!(found[1], Value::Null);
    let get = items(found[0].clone());
    assert_eq!(get[..2], [Value::Text("get".into()), Value::Int(2)]);
    assert_eq!(get[3..6], [Value::Int(1), Value::Int(1), Value::Int(1)]);
    assert_eq!(client.call(&["COMMAND", "GETKEYS", "MSET", "a", "1", "b", "2"]), Value::array(&["a", "b"]));
    for (command, wanted) in [
        (&["COMMAND", "GETKEYS", "PING"] as &[&str], "ERR The command has no key arguments"),
        (&["COMMAND", "GETKEYS", "NOSUCH", "k"], "ERR Invalid command specified"),
        (&["COMMAND", "GETKEYS", "SET", "k"], "ERR Invalid number of arguments specified for command"),
        (&["COMMAND", "NOSUCH"], "ERR unknown subcommand 'NOSUCH'. Try COMMAND HELP."),
        (&["COMMAND", "COUNT", "x"], "ERR wrong number of arguments for 'command|count' command"),
        (&["COMMAND", "LIST", "FILTERBY", "x", "y"], "ERR syntax error"),
    ] {
        assert_eq!(error(&mut client, command), wanted);
    }
    let names = client.call(&["COMMAND", "LIST", "FILTERBY", "PATTERN", "config|re*"]);
    assert_eq!(names, Value::array(&["config|resetstat", "config|rewrite"]));
    client.send_all(&[&["COMMAND", "INFO", "nosuch"]]);
    assert_eq!([client.read_line(), client.read_line()], ["*1", "$-1"], "the null of a text, as in Redis");
}

#[test]
fn docs_of_every_command_can_be_read() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["HELLO", "3"]);
    let docs = items(client.call(&["COMMAND", "DOCS"]));
    assert_eq!(docs.len() as i64, 2 * int(client.call(&["COMMAND", "COUNT"])));
    assert_eq!(client.call(&["COMMAND", "DOCS", "nosuch"]), Value::Array(Vec::new()));
}

#[test]
fn settings_change_all_or_none_and_take_effect() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["CONFIG", "GET", "nosuch"]), Value::Array(Vec::new()));
    assert_eq!(client.call(&["CONFIG", "SET", "timeout", "7", "slowlog-max-len", "5"]), Value::ok());
    assert_eq!(client.call(&["CONFIG", "GET", "timeout"]), Value::array(&["timeout", "7"]));
    for (command, wanted) in [
        (
            &["CONFIG", "SET", "timeout", "1", "timeout", "2"] as &[&str],
            "ERR CONFIG SET failed (possibly related to argument 'timeout') - duplicate parameter",
        ),
        (
            &["CONFIG", "SET", "timeout", "9", "nosuch", "1"],
            "ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
        (&["CONFIG", "SET", "timeout", "9", "x"], "ERR wrong number of arguments for 'config|set' command"),
        (&["CONFIG", "SET", "a"], "ERR wrong number of arguments for 'config|set' command"),
        (&["CONFIG"], "ERR wrong number of arguments for 'config' command"),
        (&["CONFIG", "REWRITE"], "ERR The server is running without a config file"),
    ] {
        assert_eq!(error(&mut client, command), wanted);
    }
    assert_eq!(client.call(&["CONFIG", "GET", "timeout"]), Value::array(&["timeout", "7"]));
    assert_eq!(client.call(&["CONFIG", "SET", "maxclients", "2"]), Value::ok());
    let _second = server.client();
    let mut third = server.client();
    assert_eq!(third.read(), Value::Error("ERR max number of clients reached".into()));
}

#[test]
fn info_counts_what_happened() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["CONFIG", "RESETSTAT"]);
    for n in 0..100 {
        client.call(&["SET", &format!("k{n}"), "v"]);
    }
    client.call(&["EXPIRE", "k1", "100"]);
    client.call(&["GET", "k1"]);
    client.call(&["GET", "none"]);
    client.call(&["LPUSH", "k2", "x"]);
    client.call(&["NOSUCH"]);
    let fields = info(&mut client, &["everything"]);
    assert_eq!((fields["keyspace_hits"].as_str(), fields["keyspace_misses"].as_str()), ("1", "1"));
    assert!(fields["db0"].starts_with("keys=100,expires=1,avg_ttl="), "{}", fields["db0"]);
    let ttl: u64 = fields["db0"]
        .split("avg_ttl=")
        .nth(1)
        .and_then(|rest| rest.split(',').next()?.parse().ok())
        .unwrap_or(0);
    assert!((90_000..=100_000).contains(&ttl), "{ttl}");
    assert!(fields["cmdstat_set"].starts_with("calls=100,usec="), "{}", fields["cmdstat_set"]);
    assert!(
        fields["cmdstat_lpush"].ends_with("rejected_calls=0,failed_calls=1"),
        "{}",
        fields["cmdstat_lpush"]
    );
    assert_eq!(fields["errorstat_WRONGTYPE"], "count=1");
    assert_eq!(fields["errorstat_ERR"], "count=1");
    assert_eq!(fields["total_error_replies"], "2");
    assert_eq!(fields["cmdstat_config|resetstat"].split(',').next(), Some("calls=1"));
    assert!(fields["latency_percentiles_usec_set"].starts_with("p50="));
    let number =
        |name: &str| fields[name].parse::<u64>().unwrap_or_else(|_| panic!("{name}: {}", fields[name]));
    assert_eq!(number("total_commands_processed"), 106);
    assert!(number("used_memory") > number("used_memory_overhead"));
    assert!(number("used_memory_peak") >= number("used_memory"));
    assert!(number("used_memory_rss") > 1 << 20);
    assert_eq!(number("connected_clients"), 1);
    assert_eq!(fields["tcp_port"], server.port().to_string());
}

#[test]
fn info_sections_are_chosen_and_managed_services_hide_the_machine() {
    let server = Server::start(&["--managed_service_info"]);
    let mut client = server.client();
    let fields = info(&mut client, &["server", "CPU"]);
    assert!(fields.contains_key("used_cpu_user") && fields.contains_key("redis_version"));
    for hidden in ["os", "process_id", "executable", "config_file", "used_memory"] {
        assert!(!fields.contains_key(hidden), "{hidden}");
    }
    assert_eq!(text(client.call(&["INFO", "nosuch"])), "");
    assert!(!info(&mut client, &[]).keys().any(|name| name.starts_with("cmdstat_")));
}

/// Enough keys for every shard to have one that is held.
const HELD_KEYS: usize = 200;

#[test]
fn numbers_asked_for_in_a_transaction_or_script_are_of_that_moment() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["MULTI"]);
    for n in 0..HELD_KEYS {
        client.call(&["SET", &format!("key:{n}"), "v", "EX", "100"]);
    }
    client.call(&["INFO", "keyspace"]);
    client.call(&["GET", "key:1"]);
    client.call(&["CONFIG", "RESETSTAT"]);
    client.call(&["INFO", "stats"]);
    let replies = items(client.call(&["EXEC"]));
    let [.., keyspace, _, _, stats] = replies.as_slice() else { panic!("{replies:?}") };
    let keyspace = text(keyspace.clone());
    assert!(keyspace.contains("db0:keys=200,expires=200,") && !keyspace.contains("avg_ttl=0"), "{keyspace}");
    let stats = text(stats.clone());
    assert!(stats.contains("\r\nkeyspace_hits:0\r\n"), "{stats}");

    let script = "redis.call('DEL', KEYS[1]); return redis.call('INFO', 'keyspace')";
    let keyspace = text(client.call(&["EVAL", script, "1", "key:0"]));
    assert!(keyspace.contains("db0:keys=199,expires=199,") && !keyspace.contains("avg_ttl=0"), "{keyspace}");
}

#[test]
fn the_slow_log_keeps_slow_commands_and_no_secrets() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    client.call(&["SLOWLOG", "RESET"]);
    client.call(&["CLIENT", "SETNAME", "me"]);
    client.call(&["CONFIG", "SET", "requirepass", "hush"]);
    client.call(&["CONFIG", "SET", "requirepass", ""]);
    client.call(&["SET", "k", &"x".repeat(200)]);
    let entries = items(client.call(&["SLOWLOG", "GET", "-1"]));
    let newest = items(entries[0].clone());
    assert_eq!(newest.len(), 6);
    assert_eq!(newest[3], Value::array(&["SET", "k", &format!("{}... (72 more bytes)", "x".repeat(128))]));
    assert_eq!(newest[4..], [Value::Text(client.local()), Value::Text("me".into())]);
    let hidden = items(entries[2].clone());
    assert_eq!(hidden[3], Value::array(&["CONFIG", "SET", "requirepass", "(redacted)"]));
    client.call(&["CONFIG", "SET", "slowlog-max-len", "2"]);
    assert_eq!(client.call(&["SLOWLOG", "LEN"]), Value::Int(2));
    assert_eq!(
        error(&mut client, &["SLOWLOG", "GET", "-2"]),
        "ERR count should be greater than or equal to -1"
    );
}

/// The amounts and the arguments of the newest commands of one of COMMANDLOG's logs.
fn logged(client: &mut Client, log: &str) -> Vec<(i64, Value)> {
    let entries = items(client.call(&["COMMANDLOG", "GET", "-1", log])).into_iter().map(items);
    entries.map(|entry| (int(entry[2].clone()), entry[3].clone())).collect()
}

#[test]
fn large_requests_and_replies_are_kept() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let big = "x".repeat(2_000_000);
    let shown = format!("{}... (1999872 more bytes)", "x".repeat(128));
    // Within a pipeline, whose other commands are not.
    client.send_all(&[
        &["PING"],
        &["SET", "k", &big],
        &["GET", "k"],
        &["GET", "k"],
        &["GET", "none"],
        &["STRLEN", "k"],
    ]);
    (0..6).for_each(|_| drop(client.read()));
    let request_len = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2000000\r\n\r\n".len() as i64 + 2_000_000;
    assert_eq!(logged(&mut client, "large-request"), [(request_len, Value::array(&["SET", "k", &shown]))]);
    let get = (2_000_012, Value::array(&["GET", "k"]));
    assert_eq!(logged(&mut client, "Large-Reply"), [get.clone(), get.clone()]);
    // What EXEC runs is kept, EXEC is not; a script's calls have no reply of their own.
    client.call(&["COMMANDLOG", "RESET", "large-reply"]);
    for command in [&["MULTI"][..], &["GET", "k"], &["EXEC"], &["EVAL", "return redis.call('GET', 'k')", "0"]]
    {
        client.call(command);
    }
    let eval = (2_000_012, Value::array(&["EVAL", "return redis.call('GET', 'k')", "0"]));
    assert_eq!(logged(&mut client, "large-reply"), [eval, get]);
    // An answer that is given in slices.
    client.call(&["EVAL", "for i = 1, 200000 do redis.call('RPUSH', 'l', i) end", "0"]);
    client.call(&["COMMANDLOG", "RESET", "large-reply"]);
    client.call(&["LRANGE", "l", "0", "-1"]);
    let sliced = logged(&mut client, "large-reply");
    assert_eq!(sliced.len(), 1);
    assert!(
        sliced[0].0 > 2_000_000 && sliced[0].1 == Value::array(&["LRANGE", "l", "0", "-1"]),
        "{sliced:?}"
    );
    // A reply that another thread's push brings.
    let mut waiter = server.client();
    waiter.send_all(&[&["CLIENT", "ID"], &["BLPOP", "q", "0"]]);
    waiter.read();
    client.call(&["RPUSH", "q", &big]);
    waiter.read();
    assert_eq!(logged(&mut client, "large-reply")[0].1, Value::array(&["BLPOP", "q", "0"]));
}

#[test]
fn the_command_log_keeps_what_it_is_told_to() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for (bytes, kept) in [("-1", 0), ("0", 3)] {
        client.call(&["CONFIG", "SET", "commandlog-large-reply-max-len", "3"]);
        client.call(&["CONFIG", "SET", "commandlog-request-larger-than", bytes]);
        client.call(&["CONFIG", "SET", "commandlog-reply-larger-than", bytes]);
        client.call(&["COMMANDLOG", "RESET", "large-request"]);
        client.call(&["COMMANDLOG", "RESET", "large-reply"]);
        (0..5).for_each(|_| drop(client.call(&["SET", "k", "v"])));
        assert_eq!(client.call(&["COMMANDLOG", "LEN", "large-reply"]), Value::Int(kept), "{bytes}");
    }
    // Both resets, of which the first is noted after it, the five SETs, and the question about the replies.
    let requests = logged(&mut client, "large-request");
    assert_eq!(requests.len(), 8);
    assert_eq!(requests[1], (27, Value::array(&["SET", "k", "v"])));
    client.call(&["CONFIG", "SET", "commandlog-large-request-max-len", "2"]);
    assert_eq!(client.call(&["COMMANDLOG", "LEN", "large-request"]), Value::Int(2));
    client.call(&["CONFIG", "SET", "commandlog-execution-slower-than", "0"]);
    client.call(&["PING"]);
    assert_eq!(logged(&mut client, "slow")[0].1, Value::array(&["PING"]));
    assert!(!items(client.call(&["SLOWLOG", "GET"])).is_empty());
    let unknown = "ERR type should be one of the following: slow, large-request, large-reply";
    assert_eq!(error(&mut client, &["COMMANDLOG", "LEN", "big"]), unknown);
    let below = "ERR count should be greater than or equal to -1";
    assert_eq!(error(&mut client, &["COMMANDLOG", "GET", "-2", "slow"]), below);
}

#[test]
fn latency_events_and_histograms_are_measured() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["LATENCY", "LATEST"]), Value::Array(Vec::new()));
    // Nothing else is measured, which might take as long where others have the cores.
    let threshold = |ms| ["CONFIG", "SET", "latency-monitor-threshold", ms];
    client.send_all(&[
        &threshold("20"),
        &["DEBUG", "SLEEP", "0.03"],
        &["DEBUG", "SLEEP", "0.06"],
        &threshold("600000"),
    ]);
    (0..4).for_each(|_| assert_eq!(client.read(), Value::ok()));
    let latest = items(items(client.call(&["LATENCY", "LATEST"]))[0].clone());
    assert_eq!(latest[0], Value::Text("command".into()));
    let [last, max] = [int(latest[2].clone()), int(latest[3].clone())];
    assert!(max >= 60 && last >= 30 && last <= max, "{last} {max}");
    assert!(!items(client.call(&["LATENCY", "HISTORY", "command"])).is_empty());
    assert!(text(client.call(&["LATENCY", "GRAPH", "command"])).starts_with("command - high "));
    let doctor = text(client.call(&["LATENCY", "DOCTOR"]));
    let spikes = doctor.split_once("- command: ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    // The change of the threshold before them may have been as slow.
    assert!(matches!(spikes, Some(2..=3)), "{doctor}");
    assert_eq!(client.call(&["LATENCY", "RESET", "command"]), Value::Int(1));
    client.call(&["CONFIG", "RESETSTAT"]);
    client.call(&["SET", "k", "v"]);
    (0..500).for_each(|_| drop(client.call(&["GET", "k"])));
    let histogram = items(client.call(&["LATENCY", "HISTOGRAM", "get", "nosuch"]));
    assert_eq!(histogram[0], Value::Text("get".into()));
    let get = items(histogram[1].clone());
    assert_eq!(get[..2], [Value::Text("calls".into()), Value::Int(500)]);
    let counts = items(get[3].clone());
    assert_eq!(counts.last(), Some(&Value::Int(500)));
}

#[test]
fn populate_makes_keys_of_any_type_while_others_go_on() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let mut other = server.client();
    client.send_all(&[&["DEBUG", "POPULATE", "20000", "big", "100", "RAND"]]);
    assert_eq!(other.call(&["SET", "mine", "1"]), Value::ok());
    assert_eq!(client.read(), Value::ok());
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(20_001));
    assert_eq!(client.call(&["STRLEN", "big:19999"]), Value::Int(100));
    assert_eq!(
        client.call(&[
            "DEBUG", "POPULATE", "3", "l", "5", "TYPE", "list", "ELEMENTS", "100", "EXPIRE", "500", "600"
        ]),
        Value::ok()
    );
    assert_eq!(client.call(&["LLEN", "l:2"]), Value::Int(100));
    let ttl = int(client.call(&["TTL", "l:0"]));
    assert!((400..=600).contains(&ttl), "{ttl}");
    assert!(int(client.call(&["MEMORY", "USAGE", "l:0"])) > 100);
    assert_eq!(
        error(&mut client, &["DEBUG", "POPULATE", "-1"]),
        "ERR value is out of range, must be positive"
    );
}

#[test]
fn debug_can_be_kept_from_clients() {
    let server = Server::start(&["--enable-debug-command", "no"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    for command in [&["DEBUG", "OBJECT", "k"] as &[&str], &["DEBUG", "SLEEP", "0"], &["DEBUG", "NOSUCH"]] {
        assert!(error(&mut client, command).starts_with("ERR DEBUG command not allowed."));
    }
    client.call(&["MULTI"]);
    client.call(&["DEBUG", "OBJECT", "k"]);
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("EXEC runs") };
    assert!(matches!(&replies[0], Value::Error(line) if line.starts_with("ERR DEBUG command not allowed.")));
}

#[test]
fn dead_keys_stay_while_active_expiry_is_off() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    client.call(&["SET", "k", "v", "PX", "1"]);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(1));
    client.call(&["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
    let began = Instant::now();
    while client.call(&["DBSIZE"]) != Value::Int(0) {
        assert!(began.elapsed() < crate::harness::PATIENCE, "the key is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn wait_answers_when_its_time_is_up_and_not_in_a_transaction() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["WAIT", "0", "0"]), Value::Int(0));
    let began = Instant::now();
    assert_eq!(client.call(&["WAIT", "1", "2000"]), Value::Int(0));
    // Half of it: the deadline counts from the millisecond in which the server's turn began.
    assert!(began.elapsed() >= Duration::from_millis(1000));
    client.call(&["MULTI"]);
    client.call(&["WAIT", "1", "0"]);
    assert_eq!(client.call(&["EXEC"]), Value::Array(vec![Value::Int(0)]));
    assert_eq!(error(&mut client, &["WAIT", "1", "-1"]), "ERR timeout is negative");
    assert_eq!(error(&mut client, &["WAIT", "1", "a"]), "ERR timeout is not an integer or out of range");
}

#[test]
fn shutdown_ends_the_process_and_takes_its_pid_file_along() {
    let path = std::env::temp_dir().join(format!("darter-pid-{}", std::process::id()));
    let shown = path.display().to_string();
    let server = Server::start(&["--pidfile", &shown]);
    let mut client = server.client();
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".into()));
    assert_eq!(
        std::fs::read_to_string(&path).map(|text| text.trim().to_owned()).ok(),
        Some(server.pid().to_string())
    );
    assert_eq!(error(&mut client, &["SHUTDOWN", "SAVE", "NOSAVE"]), "ERR syntax error");
    assert_eq!(error(&mut client, &["SHUTDOWN", "ABORT"]), "ERR No shutdown in progress.");
    assert_eq!(error(&mut client, &["SHUTDOWN", "SAFE", "ABORT"]), "ERR syntax error");
    client.send_all(&[&["SHUTDOWN", "NOSAVE", "SAFE"]]);
    assert!(client.is_closed());
    let began = Instant::now();
    while path.exists() {
        assert!(began.elapsed() < crate::harness::PATIENCE, "the pid file is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_port_can_be_moved_and_a_taken_one_changes_nothing() {
    let server = Server::start(&[]);
    let mut client = server.client();
    // One that the kernel gives nobody once it is free again.
    let number = crate::harness::free_port();
    let (listener, port) = (TcpListener::bind(("127.0.0.1", number)).expect("a port"), number.to_string());
    let line = error(&mut client, &["CONFIG", "SET", "timeout", "5", "port", &port]);
    assert_eq!(
        line,
        "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. Check server logs."
    );
    assert_eq!(client.call(&["CONFIG", "GET", "timeout"]), Value::array(&["timeout", "0"]));
    assert_eq!(
        error(&mut client, &["CONFIG", "SET", "bind", "203.0.113.7"]),
        "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified addresses."
    );
    drop(server.client());
    drop(listener);
    assert_eq!(client.call(&["CONFIG", "SET", "port", &port]), Value::ok());
    // The thread that listens has a second for that; then the answer comes before it.
    let connects = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    wait_until("it has moved", || connects(number) && !connects(server.port()));
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".into()));
    assert_eq!(info(&mut client, &["server"])["tcp_port"], port);
}

#[test]
fn info_counts_the_keys_that_are_waited_for() {
    let server = Server::start(&["--proactor_threads=2"]);
    let mut admin = server.client();
    let mut counts = |when: &str, wanted: (u32, u32)| {
        let began = Instant::now();
        loop {
            let info = info(&mut admin, &["clients"]);
            let field = |name: &str| info[name].parse::<u32>().expect("a number");
            let found = (field("total_blocking_keys"), field("total_blocking_keys_on_nokey"));
            if found == wanted {
                return;
            }
            assert!(began.elapsed() < crate::harness::PATIENCE, "{when}: {found:?} instead of {wanted:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    counts("at first", (0, 0));
    let (mut one, mut two, mut group) = (server.client(), server.client(), server.client());
    one.send_all(&[&["BLPOP", "a", "b", "0"]]);
    two.send_all(&[&["BZPOPMIN", "b", "c", "d", "0"]]);
    counts("five waits for four keys", (4, 0));
    group.call(&["XGROUP", "CREATE", "s", "g", "$", "MKSTREAM"]);
    group.send_all(&[&["XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "s", ">"]]);
    counts("and a group's", (5, 1));
    let mut other = server.client();
    other.call(&["RPUSH", "a", "x"]);
    assert_eq!(one.read(), Value::array(&["a", "x"]));
    counts("one is served", (4, 1));
    other.call(&["DEL", "s"]);
    assert!(matches!(group.read(), Value::Error(_)));
    counts("the group's key has gone", (3, 0));
    drop(two);
    counts("nobody is left", (0, 0));
}

#[test]
fn without_the_replicas_that_are_asked_for_nothing_is_written() {
    let server = Server::start(&[]);
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "x", "1"]), Value::ok());
    assert_eq!(client.call(&["CONFIG", "SET", "min-replicas-to-write", "1"]), Value::ok());
    let refused =
        |value: Value| matches!(&value, Value::Error(line) if line.starts_with("NOREPLICAS Not enough good"));
    assert!(refused(client.call(&["SET", "x", "2"])));
    assert!(refused(client.call(&["EVAL", "return redis.call('set', 'x', 1)", "1", "x"])));
    assert!(refused(client.call(&["EVAL", "#!lua\nreturn redis.call('get', 'x')", "1", "x"])));
    let reads = "#!lua flags=no-writes\nreturn redis.call('get', 'x')";
    assert_eq!(client.call(&["EVAL", reads, "1", "x"]), Value::Text("1".to_owned()));
    assert_eq!(
        client.call(&["EVAL", "return redis.call('get', 'x')", "1", "x"]),
        Value::Text("1".to_owned())
    );
    assert_eq!(client.call(&["CONFIG", "SET", "min-replicas-to-write", "0"]), Value::ok());
    assert_eq!(client.call(&["SET", "x", "2"]), Value::ok());
}

/// How often the server's threads have gone to sleep.
fn sleeps(server: &Server) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("a process");
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    tasks.filter_map(of_task).sum()
}

#[test]
fn a_server_with_nothing_to_do_sleeps() {
    let server = Server::start(&["--proactor_threads", "4", "--hz", "100"]);
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "key", "value"]), Value::ok());
    // With memory to give back at first; then ten times a second for each of the threads, and some.
    let patient_until = Instant::now() + crate::harness::PATIENCE;
    loop {
        let (began, before) = (Instant::now(), sleeps(&server));
        std::thread::sleep(Duration::from_millis(500));
        // A thread that has ended meanwhile is counted no more.
        let slept = sleeps(&server).saturating_sub(before);
        let per_second = slept as f64 / began.elapsed().as_secs_f64();
        if per_second < 100.0 {
            break;
        }
        assert!(Instant::now() < patient_until, "{per_second} a second");
    }
    // What is due is done nevertheless, on whatever thread.
    for n in 0..40 {
        assert_eq!(client.call(&["SET", &format!("key:{n}"), "value", "PX", "400"]), Value::ok());
    }
    std::thread::sleep(Duration::from_millis(700));
    while client.call(&["DBSIZE"]) != Value::Int(1) {
        assert!(Instant::now() < patient_until + crate::harness::PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}
