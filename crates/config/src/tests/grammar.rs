//! The command line and the environment.

use super::*;

#[test]
fn every_form_of_a_flag_is_read() {
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);
    let cases: &[Case<'_>] = &[
        (&["--port=7000"], &[("port", "7000")]),
        (&["--port", "7000"], &[("port", "7000")]),
        (&["-port", "7000"], &[("port", "7000")]),
        (&["-port=7000"], &[("port", "7000")]),
        (&["--PORT", "7000"], &[("port", "7000")]),
        (&["--port=-1"], &[("port", "-1")]),
        (&["--port", "-1"], &[("port", "-1")]),
        (&["--port=7000", "--port=7001"], &[("port", "7001")]),
        (&["--cache_mode"], &[("cache_mode", "true")]),
        (&["--cache-mode", "--port=1"], &[("cache_mode", "true"), ("port", "1")]),
        (&["--cache_mode", "false", "--port=1"], &[("cache_mode", "false"), ("port", "1")]),
        (&["--cache_mode=1"], &[("cache_mode", "true")]),
        (&["--cache_mode", "--nocache_mode"], &[("cache_mode", "false")]),
        (&["--nohttp_admin_console"], &[("http_admin_console", "false")]),
        (&["--http_admin_console=false"], &[("http_admin_console", "false")]),
        (&["--no-protected-mode"], &[("protected-mode", "no")]),
        (&["--protected-mode", "no"], &[("protected-mode", "no")]),
        (&["--appendonly", "no"], &[("appendonly", "no")]),
        (&["--maxmemory", "100mb"], &[("maxmemory", "104857600")]),
        (
            &["--maxmemory 700mb", "--maxmemory-policy 'volatile-lru'"],
            &[("maxmemory", "734003200"), ("maxmemory-policy", "volatile-lru")],
        ),
        (&["--save", "3600", "1", "--save", "300", "100"], &[("save", "3600 1 300 100")]),
        (&["--save", "3600 1", "--save", ""], &[("save", "")]),
        (&["--save=3600 1"], &[("save", "3600 1")]),
        (&["--save", "60", "1", "--save", "--loglevel", "verbose"], &[("save", ""), ("loglevel", "verbose")]),
        (&["--bind", "127.0.0.1", "-::1", "--port", "1"], &[("bind", "127.0.0.1 -::1"), ("port", "1")]),
        (&["--bind", "localhost", "-dbnum", "3"], &[("bind", "localhost"), ("dbnum", "3")]),
        (&["--databases", "5"], &[("dbnum", "5"), ("databases", "5")]),
        (&["--threads=3"], &[("proactor_threads", "3")]),
        (&["--requirepass", "--secret"], &[("requirepass", "--secret")]),
        (&["--requirepass="], &[("requirepass", "")]),
        (&["--requirepass=a=b"], &[("requirepass", "a=b")]),
        (&["--requirepass=a b"], &[("requirepass", "a b")]),
        (
            &["--client-output-buffer-limit", "normal", "1mb", "0", "0"],
            &[(
                "client-output-buffer-limit",
                "normal 1048576 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
            )],
        ),
        (&["--shutdown-on-sigterm", "now", "nosave"], &[("shutdown-on-sigterm", "nosave now")]),
        (&["--unixsocketperm", "700"], &[("unixsocketperm", "700")]),
        (&["--proc-title-template", "--my--title"], &[("proc-title-template", "--my--title")]),
        (&["--undefok=nothing_known,other", "--nothing_known=3", "--port=1"], &[("port", "1")]),
        (&["--other", "3", "--port=1", "--undefok", "other"], &[("port", "1")]),
        (&["--notify-keyspace-events", "KEA"], &[("notify-keyspace-events", "AKE")]),
        (&["--compression_mode=0"], &[("compression_mode", "0")]),
        (&["--compression_mode=MULTI_ENTRY_ZSTD"], &[("compression_mode", "MULTI_ENTRY_ZSTD")]),
    ];
    for (arguments, expected) in cases {
        let settings = serve(arguments);
        for (name, value) in *expected {
            assert_eq!(get(&settings, name), *value, "{name} of {arguments:?}");
        }
    }
}

#[test]
fn the_example_line_of_the_readme_is_read() {
    let line = "--logtostderr --requirepass=youshallnotpass --cache_mode=true -dbnum 1 --bind localhost --port 6379 \
                --maxmemory=12gb --keys_output_limit=12288 --dbfilename dump.rdb";
    let arguments: Vec<&str> = line.split_ascii_whitespace().collect();
    let live = serve(&arguments).live();
    assert_eq!(live.log.file, None);
    assert!(live.log.to_stderr);
    assert_eq!(live.requirepass, "youshallnotpass");
    assert!(live.cache_mode);
    assert_eq!(live.dbnum, 1);
    assert_eq!(live.bind, ["localhost"]);
    assert_eq!(live.port, Some(6379));
    assert_eq!(live.maxmemory, 12 << 30);
    assert_eq!(live.keys_output_limit, 12_288);
    assert_eq!(live.persistence.dbfilename, "dump.rdb");
    assert!(!live.persistence.df_snapshot_format, "the suffix asks for Redis' format");
}

#[test]
fn a_bad_command_line_is_named_in_one_line() {
    let cases: &[(&[&str], &str)] = &[
        (&["--prot=1"], "unknown flag '--prot'; did you mean --port?"),
        (&["-prot", "1"], "unknown flag '-prot'; did you mean --port?"),
        (&["--maxmemroy=1gb"], "unknown flag '--maxmemroy'; did you mean --maxmemory?"),
        (&["--nosuchthingatall"], "unknown flag '--nosuchthingatall'; --help lists all"),
        (&["--undefok=a", "--zzzzzz"], "unknown flag '--zzzzzz'; --help lists all"),
        (&["--nocache_mode=true"], "--nocache_mode takes no value"),
        (&["--port"], "--port: needs a value"),
        (&["--port", "--tls"], "--port: needs a value, but '--tls' follows"),
        (&["--port=abc"], "--port: argument couldn't be parsed into an integer"),
        (&["--port=70000"], "--port: argument must be between -1 and 65535 inclusive"),
        (&["--port", "1", "2"], "unexpected argument '2'; flags look like --name=value"),
        (&["--port=1", "file.conf"], "unexpected argument 'file.conf'; flags look like --name=value"),
        (&["--appendonly", "maybe"], "--appendonly: 'maybe' is neither yes nor no"),
        (&["--appendonly", "yes", "2"], "unexpected argument '2'; flags look like --name=value"),
        (&["--"], "unexpected argument '--'; flags look like --name=value"),
        (&["--bind"], "--bind: needs a value"),
        (&["--shutdown-on-sigint"], "--shutdown-on-sigint: needs a value"),
        (&["--flagfile"], "--flagfile needs a value"),
        (&["--maxmemory=12gbx"], "--maxmemory: argument must be a memory value"),
        (&["--cache_mode=maybe"], "--cache_mode: argument must be 'yes' or 'no'"),
        (&["--port '1"], "unbalanced quotes in '--port '1'"),
        (&["--port 1 2"], "--port: wrong number of arguments"),
        (&["--replicaof", "127.0.0.1", "abc"], "--replicaof: Invalid master port"),
        (&["--replicaof", "--127.0.0.1"], "--replicaof: needs a value"),
        (&["--syslog_enabled"], "--syslog_enabled: syslog is not in this version of Darter yet"),
        (&["--rename-command", "FLUSHALL"], "--rename-command: wrong number of arguments"),
        (&["--fromenv=port"], "--fromenv=port: there is no variable FLAGS_port"),
        (&["--snapshot_cron=* * *"], "--snapshot_cron: '* * *' is not a cron expression of five fields"),
        (&["--save_schedule=25:00"], "--save_schedule: '25:00' is not a time like 23:45, *:30 or *:*"),
    ];
    for (arguments, expected) in cases {
        assert_eq!(fault_of(arguments, &[]), *expected, "{arguments:?}");
    }
}

#[test]
fn the_environment_names_flags_exactly() {
    let environment =
        [("DFLY_port", "7000"), ("DFLY_tcp_keepalive", "5"), ("DFLY_DEV_ENV", "1"), ("PORT", "3")];
    let settings = serve_with(&[], &environment);
    assert_eq!(get(&settings, "port"), "7000");
    assert_eq!(get(&settings, "tcp-keepalive"), "5");
    let settings = serve_with(&["--port=1"], &environment);
    assert_eq!(get(&settings, "port"), "1", "the command line wins");
    let settings = serve_with(&["--fromenv=port", "--tryfromenv=hz"], &[("FLAGS_port", "9")]);
    assert_eq!(get(&settings, "port"), "9");

    let cases = [
        ("DFLY_prot", "unknown environment variable 'DFLY_prot'; did you mean DFLY_port?"),
        ("DFLY_PORT", "unknown environment variable 'DFLY_PORT'; did you mean DFLY_port?"),
        ("DFLY_", "unknown environment variable 'DFLY_'; --help lists all"),
    ];
    for (key, expected) in cases {
        assert_eq!(fault_of(&[], &[(key, "1")]), expected);
    }
    let fault = fault_of(&[], &[("DFLY_port", "x")]);
    assert_eq!(fault, "DFLY_port: argument couldn't be parsed into an integer");
}

#[test]
fn the_password_of_the_environment_counts_when_there_is_no_other() {
    let password = [("DFLY_PASSWORD", "secret")];
    assert_eq!(serve_with(&[], &password).live().requirepass, "secret");
    assert_eq!(serve_with(&["--requirepass="], &password).live().requirepass, "secret");
    assert_eq!(serve_with(&["--requirepass=mine"], &password).live().requirepass, "mine");
}

#[test]
fn settings_without_effect_are_taken_with_a_note() {
    let start = parse_with(&["--io-threads", "4", "--loglevel=debug", "--maxmemory-samples=5"], &[]);
    let Ok(Startup::Serve { notes, .. }) = start else { panic!("{start:?}") };
    let expected = "io-threads has no effect: every thread serves clients and data; see proactor_threads";
    assert_eq!(notes, [expected], "no note about what works or is at its default");
}

#[test]
fn help_and_version_are_printed_whatever_else_is_there() {
    let text_of = |arguments: &[&str]| match parse_with(arguments, &[]) {
        Ok(Startup::Print(text)) => text,
        other => panic!("{arguments:?}: {other:?}"),
    };
    let version = concat!("darter ", env!("CARGO_PKG_VERSION"), "\n");
    for arguments in [["--version"].as_slice(), &["-v"], &["--port=abc", "--version"]] {
        assert_eq!(text_of(arguments), version);
    }
    let about = text_of(&["--help=ziplist-v"]);
    assert!(
        about.contains("--hash-max-listpack-value=64") && about.contains("--zset-max-listpack-value=64"),
        "{about}"
    );
    assert_eq!(about.lines().filter(|line| line.starts_with("  --")).count(), 2, "{about}");
    assert_eq!(text_of(&["--helpon=qqq"]), "no setting has 'qqq' in its name; --help lists all\n");
    let usual = text_of(&["--help"]);
    let full = text_of(&["--port=abc", "--helpfull"]);
    for setting in settings() {
        let line = format!("\n  --{}=", setting.name);
        assert!(full.contains(&line), "{line}");
        assert_eq!(usual.contains(&line), !matches!(setting.status, SettingStatus::NoEffect(_)), "{line}");
    }
    for group in SettingGroup::ALL {
        assert!(full.contains(&format!("\n{}\n", group.title())), "{group:?} is empty");
    }
}
