//! Metrics and statistics by HTTP: their format, and that all places agree on the numbers.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::harness::browser::{Browser, CONSOLE, sample};
use crate::harness::{PATIENCE, Server, Value, wait_until};
use crate::nodes::follow;

#[test]
fn metrics_are_well_formed_and_tell_what_happened() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let commands: Vec<Vec<String>> = (0..100)
        .map(|n| vec!["SET".to_owned(), format!("k{n}"), "v".to_owned(), "EX".to_owned(), "1000".to_owned()])
        .collect();
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        assert_eq!(client.call(&words), Value::ok());
    }
    client.send_all(&[&["GET", "k1"], &["GET", "nothing"], &["GET", "k2"]]);
    (0..3).for_each(|_| drop(client.read()));
    assert!(matches!(client.call(&["INCR", "k1"]), Value::Error(_)));
    let mut browser = Browser::to(server.port());
    let maxclients = client.info::<f64>("clients", "maxclients");
    let expected = [
        (r#"dragonfly_db_keys{db="db0"}"#, 100.0),
        (r#"dragonfly_keyspace_misses_total{db="all"}"#, 1.0),
        (r#"dragonfly_db_keys_expiring{db="db0"}"#, 100.0),
        (r#"dragonfly_commands_total{cmd="set"}"#, 100.0),
        (r#"dragonfly_commands_total{cmd="get"}"#, 3.0),
        (r#"dragonfly_keyspace_hits_total{db="all"}"#, 2.0),
        (r#"darter_commands_failed_total{cmd="incr"}"#, 1.0),
        (r#"darter_error_replies_total{error="ERR"}"#, 1.0),
        (r#"dragonfly_version{version="0.1.0"}"#, 1.0),
        // Lowered where the limit of open files is.
        ("dragonfly_max_clients", maxclients),
        ("dragonfly_master", 1.0),
    ];
    // Housekeeping looks at one shard after the other, so that one number may be told before another.
    let began = Instant::now();
    let text = loop {
        let text = browser.get("/metrics", "").body;
        if expected.iter().all(|(name, value)| sample(&text, name) == *value) || began.elapsed() > PATIENCE {
            break text;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    check_format(&text);
    for (name, value) in expected {
        assert_eq!(sample(&text, name), value, "{name}");
    }
    assert!(sample(&text, r#"darter_command_duration_seconds_count{cmd="set"}"#) >= 1.0);
    assert!(sample(&text, "dragonfly_pipeline_commands_total") >= 2.0);
    assert!(sample(&text, r#"dragonfly_db_capacity{db="db0"}"#) >= 100.0);
}

#[test]
fn lua_takes_the_same_memory_everywhere() {
    let server = Server::start(&["--proactor_threads", "1"]);
    let mut client = server.client();
    assert_eq!(client.call(&["EVAL", "return 1", "0"]), Value::Int(1));
    let page = || Browser::to(server.port()).get("/metrics", "").body;
    wait_until("both tell of the state", || {
        let bytes = client.info::<f64>("memory", "used_memory_lua");
        bytes > 10_000.0 && sample(&page(), "dragonfly_used_memory_lua") == bytes
    });
}

#[test]
fn only_a_replica_tells_of_a_link_to_a_master() {
    let (master, replica) = (Server::start(&[]), Server::start(&[]));
    follow(&mut replica.client(), master.port());
    let page = |server: &Server| Browser::to(server.port()).get("/metrics", "").body;
    let text = page(&replica);
    check_format(&text);
    assert_eq!(sample(&text, "dragonfly_master_link_status"), 1.0);
    assert_eq!(sample(&text, "dragonfly_master_sync_in_progress"), 0.0);
    // An alert for a link that is down must not name every master.
    let text = page(&master);
    check_format(&text);
    for field in ["link_status", "last_io_seconds_ago", "sync_in_progress"] {
        assert!(!text.contains(&format!("dragonfly_master_{field}")), "{field}");
    }
    assert!(!text.contains("dragonfly_slave_repl_offset"), "{text}");
}

/// Every line is a comment of the format or a sample of the family that was announced last, and nothing comes twice.
fn check_format(text: &str) {
    let (mut families, mut samples) = (HashSet::new(), HashSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(families.insert(name.to_owned()) && !help.is_empty(), "{line}");
            (family, kind) = (name.to_owned(), String::new());
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, word) = rest.split_once(' ').expect("a type");
            assert!(name == family && kind.is_empty(), "{line}");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&word), "{line}");
            kind = word.to_owned();
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let value: f64 = value.parse().expect("a number");
        assert!(value >= 0.0 && value.is_finite(), "{line}");
        assert!(samples.insert(series.to_owned()), "twice: {line}");
        let name = series.split('{').next().expect("a name");
        let suffix =
            name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{line} is not of {family}"));
        let allowed: &[&str] = match kind.as_str() {
            "histogram" => &["_bucket", "_sum", "_count"],
            "summary" => &["", "_sum", "_count"],
            _ => &[""],
        };
        assert!(allowed.contains(&suffix), "{line}");
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with("\"}") && labels.contains("=\""), "{line}");
        }
    }
    assert!(families.len() > 80 && samples.len() > families.len());
}

/// The sum of a command's times, in seconds, as four places tell it.
#[test]
fn times_of_commands_agree_wherever_they_are_told() {
    let server = Server::start(&["--proactor_threads", "2", "--latency-tracking-info-percentiles", "99 100"]);
    let mut client = server.client();
    for n in 0..12_000u32 {
        client.send_all(&[&["ZADD", "z", &n.to_string(), &format!("m{}", n % 100)]]);
    }
    (0..12_000).for_each(|_| drop(client.read()));
    let many: Vec<String> = (0..100_000).flat_map(|n| [n.to_string(), format!("many:{n}")]).collect();
    let words: Vec<&str> = ["ZADD", "z"].into_iter().chain(many.iter().map(String::as_str)).collect();
    assert_eq!(client.call(&words), Value::Int(100_000));
    let line = |client: &mut crate::harness::Client, section: &str, start: &str| {
        let Value::Text(text) = client.call(&["INFO", section]) else { panic!("no text") };
        text.lines().find_map(|line| line.strip_prefix(start).map(str::to_owned)).expect(start)
    };
    let field = |line: &str, name: &str| -> f64 {
        line.split(',').find_map(|part| part.strip_prefix(name)?.parse().ok()).expect(name)
    };
    let stats = line(&mut client, "commandstats", "cmdstat_zadd:");
    let (calls, us) = (field(&stats, "calls="), field(&stats, "usec="));
    assert_eq!(calls, 12_001.0);
    let latency = line(&mut client, "latencystats", "latency_percentiles_usec_zadd:");
    let (p99, max) = (field(&latency, "p99="), field(&latency, "p100="));
    // One call of 12,001 is beyond the ninety-ninth percentile.
    assert!(p99 * 4.0 < max && us >= max * 0.8, "{stats} {latency}");
    let mut browser = Browser::to(server.port());
    let metrics = browser.get("/metrics", "").body;
    let near = |seconds: f64| (seconds * 1e6 - us).abs() <= us * 0.01;
    assert!(near(sample(&metrics, r#"darter_command_duration_seconds_sum{cmd="zadd"}"#)), "{us}");
    assert!(near(sample(&metrics, r#"dragonfly_commands_duration_seconds{cmd="zadd"}"#)), "{us}");
    let count = sample(&metrics, r#"darter_command_duration_seconds_count{cmd="zadd"}"#);
    assert!((count - calls).abs() <= calls * 0.01, "{count}");
    let page = browser.get("/api/stats", CONSOLE).body;
    assert!(page.contains(&format!(r#""us":{us}"#)), "{us} is not in {page}");
}

#[test]
fn stats_are_json_with_everything_the_page_draws() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    let mut browser = Browser::to(server.port());
    let answer = browser.get("/api/stats", CONSOLE);
    assert_eq!(answer.headers["content-type"], "application/json");
    for field in [
        "totals",
        "clients",
        "memory",
        "keyspace",
        "threads",
        "latency",
        "turns",
        "commands",
        "persistence",
        "replication",
        "uptime_s",
        "version",
        "cpu",
    ] {
        assert!(answer.body.contains(&format!("\"{field}\":")), "{field}");
    }
    let began = Instant::now();
    let none =
        r#"{"tiers":[{"points":[],"seconds":1},{"points":[],"seconds":10},{"points":[],"seconds":60}]}"#;
    while browser.get("/api/history", CONSOLE).body.trim_end() == none {
        assert!(began.elapsed() < PATIENCE, "no second was noted");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(browser.get("/api/history", CONSOLE).body.contains(r#"{"points":[[1"#), "a time comes first");
}
