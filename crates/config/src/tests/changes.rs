//! CONFIG GET and CONFIG SET.

use super::*;

#[test]
fn get_answers_names_as_they_were_asked_and_once() {
    let settings = serve(&["--dbnum=7"]);
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(settings.config_get(&["MAXMEMORY"]), [pair("MAXMEMORY", "0")]);
    assert_eq!(settings.config_get(&["keys-output-limit"]), [pair("keys-output-limit", "0")]);
    assert_eq!(settings.config_get(&["databases", "databases"]), [pair("databases", "7")]);
    assert_eq!(settings.config_get(&["slaveof", "nothing"]), [pair("slaveof", "")]);
    assert_eq!(settings.config_get(&["*max_listpack_size"]), [pair("list-max-listpack-size", "-2")]);
    assert_eq!(
        settings.config_get(&["KEYS-output-*", "keys_output_limit"]),
        [pair("keys_output_limit", "0")]
    );
    assert_eq!(settings.config_get::<&str>(&[]), []);
    assert_eq!(settings.config_get(&[b"\xff*".as_slice(), b"\xff"]), []);
    let names: Vec<String> = settings.config_get(&["*of"]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["replicaof", "slaveof"]);
}

#[test]
fn hidden_names_answer_only_when_named_and_directives_never() {
    let settings = serve(&[]);
    let all = settings.config_get(&["*"]);
    assert!(all.iter().all(|(name, _)| name != "key-load-delay" && name != "rename-command"));
    assert_eq!(get(&settings, "key-load-delay"), "0");
    assert_eq!(settings.config_get(&["rename-command"]), []);
    let fault = set(&settings, &[("rename-command", "a b")]).expect_err("a directive");
    assert_eq!(fault, "ERR Unknown option or number of arguments for CONFIG SET - 'rename-command'");
    let mut names: Vec<_> = all.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len(), "a name comes once");
}

#[test]
fn what_get_answers_can_be_set() {
    let settings = serve(&[]);
    let before = settings.live();
    for (name, value) in settings.config_get(&["*"]) {
        let Some(setting) = find(&name) else { panic!("{name}") };
        let may = match setting.change {
            SettingChange::Runtime | SettingChange::Applied => true,
            SettingChange::Startup => {
                setting.spelling == Spelling::Dragonfly || VALKEYS.contains(&setting.name)
            }
            SettingChange::Protected => false,
        };
        let outcome = set(&settings, &[(&name, &value)]);
        assert_eq!(outcome.is_ok(), may, "{name} = '{value}': {outcome:?}");
        assert_eq!(get(&settings, &name), value);
    }
    assert_eq!(settings.live(), before, "nothing has changed");
}

#[test]
fn values_read_back_as_redis_prints_them() {
    let cases = [
        ("maxmemory", "12g", "12000000000"),
        ("maxmemory", "1gb", "1073741824"),
        ("maxmemory-clients", "5%", "5%"),
        ("hz", "0", "1"),
        ("hz", "100000", "500"),
        ("list-max-ziplist-size", "-9", "-9"),
        ("hash-max-listpack-value", "1k", "1000"),
        (
            "client-output-buffer-limit",
            "replica 1mb 0 5",
            "normal 0 0 0 slave 1048576 0 5 pubsub 33554432 8388608 60",
        ),
        ("client-output-buffer-limit", "pubsub 0 0 0", "normal 0 0 0 slave 1048576 0 5 pubsub 0 0 0"),
        ("notify-keyspace-events", "KExz", "zxKE"),
        ("notify-keyspace-events", "KA", "AK"),
        ("notify-keyspace-events", "Knm", "nKm"),
        ("notify-keyspace-events", "", ""),
        ("shutdown-on-sigterm", "now save", "save now"),
        ("shutdown-on-sigterm", "default", "default"),
        ("latency-tracking-info-percentiles", "50.0 99.99", "50 99.99"),
        ("latency-tracking-info-percentiles", "", ""),
        ("save", "3000 5", "3000 5"),
        ("save", "", ""),
        ("oom-score-adj-values", "1 1 1", "1 1 1"),
        ("appendfsync", "ALWAYS", "always"),
        ("requirepass", "with space", "with space"),
        ("slave-read-only", "no", "no"),
        ("slowlog_log_slower_than", "-1", "-1"),
        ("protected-mode", "NO", "no"),
    ];
    let settings = serve(&[]);
    for (name, text, expected) in cases {
        set(&settings, &[(name, text)]).unwrap_or_else(|fault| panic!("{name} {text}: {fault}"));
        assert_eq!(get(&settings, name), expected, "{name} {text}");
    }
}

#[test]
fn errors_are_those_of_redis() {
    let related = |name: &str, text: &str| {
        format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {text}")
    };
    let unknown = |name: &str| format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
    let policies = "argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, \
                    volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, allkeys-lrm, volatile-lrm, noeviction";
    let signals = "argument(s) must be one of the following: default, save, nosave, now, force";
    let class = "Invalid client class specified in buffer limit configuration.";
    let limit = "Error in hard, soft or soft_seconds setting in buffer limit configuration.";
    let whole = "Wrong number of arguments in buffer limit configuration.";
    let between = |min: i64, max: i64| format!("argument must be between {min} and {max} inclusive");
    let percentiles = "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]";
    let cases: &[(&str, &str, &str)] = &[
        ("maxmemory", "abc", "argument must be a memory value"),
        ("maxmemory", "-5", "argument must be a memory value"),
        ("maxmemory", "10 mb", "argument must be a memory value"),
        ("maxmemory-clients", "x", "argument must be a memory or percent value"),
        ("maxmemory-clients", "200%", "percentage argument must be less or equal to 100"),
        ("maxmemory-policy", "foo", policies),
        ("appendonly", "maybe", "argument must be 'yes' or 'no'"),
        ("hz", "-3", &between(0, 2_147_483_647)),
        ("hz", "007", "argument couldn't be parsed into an integer"),
        ("maxclients", "0", &between(1, 4_294_967_295)),
        ("slowlog-log-slower-than", "-2", &between(-1, i64::MAX)),
        ("slowlog-max-len", "-1", &between(0, i64::MAX)),
        ("proto-max-bulk-len", "1", &between(1_048_576, i64::MAX)),
        ("repl-backlog-size", "0", &between(1, i64::MAX)),
        ("save", "1 2 3", "Invalid save parameters"),
        ("save", "a 1", "Invalid save parameters"),
        ("save", "0 1", "Invalid save parameters"),
        ("client-output-buffer-limit", "normal 0 0", whole),
        ("client-output-buffer-limit", "foo 0 0 0", class),
        ("client-output-buffer-limit", "master 0 0 0", class),
        ("client-output-buffer-limit", "slave 1mb 0 x", limit),
        ("notify-keyspace-events", "Q", "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."),
        (
            "shutdown-on-sigterm",
            "save nosave",
            "shutdown options SAVE and NOSAVE can't be used simultaneously",
        ),
        ("shutdown-on-sigterm", "bla", signals),
        ("shutdown-on-sigint", "", signals),
        ("latency-tracking-info-percentiles", "50.0 200", percentiles),
        ("latency-tracking-info-percentiles", "x", "Invalid latency-tracking-info-percentiles parameters"),
        ("oom-score-adj-values", "1 2", "wrong number of arguments"),
        (
            "oom-score-adj-values",
            "1 2 3000",
            "Invalid oom-score-adj-values, elements must be between -2000 and 2000.",
        ),
        ("proc-title-template", "{foo", "template format is invalid or contains unknown variables"),
        (
            "cluster-announce-hostname",
            "a b",
            "Hostnames may only contain alphanumeric characters, hyphens or dots",
        ),
        ("databases", "1", "can't set immutable config"),
        ("unixsocketgroup", "other", "can't set immutable config"),
        ("daemonize", "yes", "can't set immutable config"),
        ("daemonize", "no", "can't set immutable config"),
        ("unixsocketperm", "9", "can't set immutable config"),
        ("num_shards", "9", "can't set immutable config"),
        ("dir", "/tmp", "can't set protected config"),
        ("dbfilename", "a", "can't set protected config"),
        (
            "bind-source-addr",
            "::1",
            "a source address for outgoing connections is not in this version of Darter yet",
        ),
    ];
    let settings = serve(&[]);
    let before = settings.config_get(&["*"]);
    for (name, text, expected) in cases {
        let fault = set(&settings, &[(name, text)]).expect_err(name);
        assert_eq!(fault, related(name, expected), "{name} {text}");
    }
    let pairs: &[(&[(&str, &str)], String)] = &[
        (&[("foo", "1")], unknown("foo")),
        (&[("foo", "1"), ("bar", "2")], unknown("foo")),
        (&[("maxmemory", "1"), ("foo", "2")], unknown("foo")),
        (&[("daemonize", "yes"), ("foo", "2")], unknown("foo")),
        (&[("maxmemory", "1"), ("maxmemory", "2")], related("maxmemory", "duplicate parameter")),
        (
            &[("lua-time-limit", "1"), ("busy_reply_threshold", "2")],
            related("busy_reply_threshold", "duplicate parameter"),
        ),
        (&[("maxmemory", "x"), ("daemonize", "yes")], related("daemonize", "can't set immutable config")),
    ];
    for (pairs, expected) in pairs {
        assert_eq!(set(&settings, pairs).expect_err("bad pairs"), *expected, "{pairs:?}");
    }
    let fault = settings.config_set(
        &[(b"maxmemory".as_slice(), b"\xff".as_slice())],
        CallerLimits::Local,
        |_| Ok(()),
    );
    assert_eq!(fault.expect_err("bytes"), related("maxmemory", "argument must be UTF-8"));
    assert_eq!(settings.config_get(&["*"]), before, "a failed set changes nothing");
    assert_eq!(settings.live().version, 1);
}

#[test]
fn a_set_of_several_is_all_or_nothing() {
    let settings = serve(&[]);
    set(&settings, &[("maxmemory", "10000002")]).expect("a good value");
    let pairs =
        [("maxmemory", "10000001"), ("maxmemory-clients", "200%"), ("client-query-buffer-limit", "invalid")];
    let fault = set(&settings, &pairs).expect_err("a bad share");
    assert!(
        fault.contains("'maxmemory-clients') - percentage argument must be less or equal to 100"),
        "{fault}"
    );
    assert_eq!(get(&settings, "maxmemory"), "10000002");
    assert_eq!(settings.live().maxmemory, 10_000_002);
    let pairs = [("maxmemory", "10000001"), ("repl-backlog-size", "10000002"), ("save", "3000 5")];
    let changes = set(&settings, &pairs).expect("good values");
    assert_eq!(changes.names, ["maxmemory", "repl-backlog-size", "save"]);
    assert_eq!((changes.before.maxmemory, changes.after.maxmemory), (10_000_002, 10_000_001));
}

#[test]
fn whoever_applies_a_change_may_refuse_it() {
    let settings = serve(&[]);
    let refuse = |_: &Changes| {
        Err(SettingRefusal {
            name: "port",
            text: "Unable to listen on this port. Check server logs.".to_owned(),
        })
    };
    let pairs = [("maxmemory", "10000001"), ("port", "1")];
    let fault = settings.config_set(&pairs, CallerLimits::Remote, refuse).expect_err("a taken port");
    let expected = "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port. \
                    Check server logs.";
    assert_eq!(fault, expected);
    assert_eq!(get(&settings, "maxmemory"), "0");

    let seen = |changes: &Changes| {
        assert_eq!(changes.names, ["maxmemory", "port"]);
        assert_eq!((changes.before.port, changes.after.port), (Some(6379), Some(1)));
        Ok(())
    };
    settings.config_set(&pairs, CallerLimits::Remote, seen).expect("a free port");
    assert_eq!(settings.live().port, Some(1));
    // no effect to apply, so `refuse` is not called
    settings.config_set(&pairs, CallerLimits::Remote, refuse).expect("the same values");
}

#[test]
fn protected_settings_open_to_whom_the_setting_names() {
    let cases = [("no", false, false), ("local", true, false), ("yes", true, true)];
    for (allowed, local, remote) in cases {
        let settings = serve(&["--enable-protected-configs", allowed]);
        let dir = std::env::temp_dir().display().to_string();
        for (caller, may) in [(CallerLimits::Local, local), (CallerLimits::Remote, remote)] {
            let set = settings.config_set(&[("dir", &dir)], caller, |_| Ok(()));
            assert_eq!(set.is_ok(), may, "{allowed} {caller:?}");
        }
    }
    let settings = serve(&["--enable-protected-configs=yes"]);
    let faults = [
        ("dir", "/nonexistent", "No such file or directory"),
        ("dir", "/dev/null", "Not a directory"),
        ("dbfilename", "a/b", "dbfilename can't be a path, just a filename"),
    ];
    for (name, text, expected) in faults {
        let fault = set(&settings, &[(name, text)]).expect_err(text);
        assert!(fault.ends_with(&format!(" - {expected}")), "{fault}");
    }
    let bucket = set(&settings, &[("dir", "s3://bucket/some/where")]);
    match darter_persist::storage::HAS_CLOUD {
        true => assert!(bucket.is_ok() && get(&settings, "dir") == "s3://bucket/some/where"),
        false => assert!(bucket.is_err_and(|fault| fault.contains("built without"))),
    }
    set(&settings, &[("dir", "/tmp/./")]).expect("a folder");
    assert_eq!(get(&settings, "dir"), "/tmp");
    assert_eq!(settings.live().persistence.dir, PathBuf::from("/tmp"));
}

#[test]
fn a_watch_sees_each_change_once() {
    let settings = serve(&[]);
    let mut watch = settings.watch();
    assert!(!watch.refresh(&settings));
    set(&settings, &[("timeout", "30")]).expect("a good value");
    assert_eq!(watch.live().timeout_s, 0, "only refresh brings news");
    assert!(watch.refresh(&settings));
    assert_eq!(watch.live().timeout_s, 30);
    assert!(!watch.refresh(&settings));
    set(&settings, &[("timeout", "30")]).expect("the same value");
    assert!(!watch.refresh(&settings), "the same value is no change");
}

#[test]
fn threads_see_only_whole_changes() {
    let settings = serve(&[]);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for i in 1..=500 {
                let text = i.to_string();
                set(&settings, &[("timeout", &text), ("maxmemory", &text)]).expect("a good value");
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut watch = settings.watch();
                let mut last = 0;
                while last < 500 {
                    watch.refresh(&settings);
                    let live = watch.live();
                    assert_eq!(u64::from(live.timeout_s), live.maxmemory);
                    assert!(live.timeout_s >= last, "time does not go back");
                    last = live.timeout_s;
                }
            });
        }
        writer.join().expect("the writer");
    });
}

#[test]
fn live_holds_what_was_set() {
    let live = serve(&[
        "--port=0",
        "--unixsocket=/tmp/s",
        "--unixsocketperm=770",
        "--slowlog-log-slower-than=-1",
        "--v=1",
        "--log_dir=/tmp",
        "--alsologtostderr",
        "--rename-command",
        "FLUSHALL",
        "",
        "--maxmemory-policy=volatile-ttl",
        "--notify-keyspace-events=Kx",
        "--shutdown-on-sigint=nosave force",
        "--announce_port=9",
        "--max_log_size=3",
    ]);
    let live = live.live();
    assert_eq!(live.port, None);
    assert_eq!(live.unixsocket, Some(PathBuf::from("/tmp/s")));
    assert_eq!(live.unixsocketperm, Some(0o770));
    assert_eq!(live.slowlog.slower_us, u64::MAX);
    assert_eq!(live.log.level, LogLevel::Debug);
    assert_eq!(live.log.file, Some(PathBuf::from("/tmp/darter.log")));
    assert_eq!(live.log.rotate_bytes, Some(3 << 20));
    assert!(live.log.to_stderr);
    assert_eq!(live.renamed_commands, [("FLUSHALL".to_owned(), String::new())]);
    assert_eq!(live.maxmemory_policy, EvictionPolicy::VolatileTtl);
    assert!(live.notify_keyspace_events.publishes(Events::EXPIRED));
    assert!(!live.notify_keyspace_events.publishes(Events::STRING));
    assert_eq!(live.shutdown.on_sigint, OnSignal { save: Some(false), now: false, force: true });
    assert_eq!(live.cluster.announce_port, 9);
    assert_eq!(serve(&["--port=-1"]).live().port, Some(0));
    assert_eq!(serve(&["--loglevel=debug", "--minloglevel=2"]).live().log.level, LogLevel::Error);
    assert_eq!(serve(&["--logfile=/tmp/x", "--logtostderr"]).live().log.file, None);
}
