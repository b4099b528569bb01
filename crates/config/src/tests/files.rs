//! Configuration files, flag files and CONFIG REWRITE.

use super::*;

#[test]
fn a_file_as_redis_writes_it_is_read() {
    let folder = Folder::new("conf");
    folder.file("more-a.conf", "timeout 5\nhz 20\n");
    folder.file("more-b.conf", "hz 30\n");
    let text = format!(
        "# a comment\n\n  port 7000\r\nbind 127.0.0.1 -::1\nrequirepass \"a \\x41\\n\\\"b\"\nsave 900 1\nsave 300 10\n\
         client-output-buffer-limit normal 1mb 0 0\nclient-output-buffer-limit pubsub 2mb 0 0\nLOGLEVEL verbose\n\
         tcp_keepalive 3\nrename-command CONFIG \"\"\nrename-command GET G\ninclude {}/more-*.conf\n\
         syslog-ident 'it''s'\n",
        folder.0.display()
    );
    let bad = folder.file("bad.conf", &text);
    let line = fault_of(&[&bad], &[]);
    assert_eq!(line, format!("{bad}:15: unbalanced quotes"));

    let path = folder.file("good.conf", &text.replace("'it''s'", "'it\\'s'"));
    let settings = serve_with(&[&path, "--timeout", "6", "--save", "100", "100"], &[("DFLY_port", "7001")]);
    let expected = [
        ("port", "7001"),
        ("bind", "127.0.0.1 -::1"),
        ("requirepass", "a A\n\"b"),
        ("save", "900 1 300 10 100 100"),
        ("loglevel", "verbose"),
        ("tcp-keepalive", "3"),
        ("hz", "30"),
        ("timeout", "6"),
        ("syslog-ident", "it's"),
        ("client-output-buffer-limit", "normal 1048576 0 0 slave 268435456 67108864 60 pubsub 2097152 0 0"),
    ];
    for (name, value) in expected {
        assert_eq!(get(&settings, name), value, "{name}");
    }
    let renamed = [("CONFIG", ""), ("GET", "G")].map(|(old, new)| (old.to_owned(), new.to_owned()));
    assert_eq!(settings.live().renamed_commands, renamed);
    assert_eq!(settings.config_file(), Some(PathBuf::from(path)));
}

#[test]
fn a_bad_file_is_named_with_its_line() {
    let folder = Folder::new("bad");
    let cases = [
        ("port abc\n", ":1: port: argument couldn't be parsed into an integer"),
        ("\nport\n", ":2: port: wrong number of arguments"),
        ("port 1 2\n", ":1: port: wrong number of arguments"),
        ("prot 1\n", ":1: unknown directive 'prot'; did you mean port?"),
        ("loglevel \"debug\n", ":1: unbalanced quotes"),
        ("loglevel \"debug\"x\n", ":1: unbalanced quotes"),
        ("requirepass \"\\xff\"\n", ":1: unbalanced quotes"),
        ("include\n", ":1: include: wrong number of arguments"),
        (
            "loadmodule x.so\n",
            ":1: loadmodule: loading modules (search, JSON and filters are part of the server) \
                               is not in this version of Darter yet",
        ),
    ];
    for (text, expected) in cases {
        let path = folder.file("x.conf", text);
        assert_eq!(fault_of(&[&path], &[]), format!("{path}{expected}"), "{text}");
    }
    let inner = folder.file("inner.conf", "hz 10\nhz x\n");
    let outer = folder.file("outer.conf", &format!("\n\ninclude {inner}\n"));
    let expected = format!("{inner}:2: hz: argument couldn't be parsed into an integer");
    assert_eq!(fault_of(&[&outer], &[]), expected, "the included file is to blame");

    let looped = folder.file("loop.conf", &format!("include {}/loop.conf\n", folder.0.display()));
    assert_eq!(fault_of(&[&looped], &[]), format!("{looped}: files include each other more than 16 deep"));
    let fault = fault_of(&["/nonexistent.conf"], &[]);
    assert!(
        fault.starts_with("can't read the configuration file '/nonexistent.conf': No such file"),
        "{fault}"
    );
}

#[test]
fn a_flag_file_is_read_in_its_place() {
    let folder = Folder::new("flags");
    let text = "# comment\n// comment\n--port=7000\nrequirepass=a \"b\" = c \n\n-cache_mode\nnohttp_admin_console\n\
                save=60 1 10 2\ntimeout = 4\n";
    let path = folder.file("flags", &text.replace(" = 4", "=4"));
    let settings = serve(&["--port=1", &format!("--flagfile={path}"), "--timeout=9"]);
    let expected = [
        ("port", "7000"),
        ("requirepass", "a \"b\" = c "),
        ("cache_mode", "true"),
        ("http_admin_console", "false"),
        ("save", "60 1 10 2"),
        ("timeout", "9"),
    ];
    for (name, value) in expected {
        assert_eq!(get(&settings, name), value, "{name}");
    }
    assert_eq!(serve_with(&[], &[("DFLY_flagfile", &path)]).live().port, Some(7000));

    let cases = [
        ("port 7000\n", ":1: 'port' needs the form name=value"),
        ("--port\n", ":1: port: needs a value"),
        ("\nport=x\n", ":2: port: argument couldn't be parsed into an integer"),
        ("prot=1\n", ":1: unknown flag 'prot'; did you mean port?"),
    ];
    for (text, expected) in cases {
        let path = folder.file("bad", text);
        assert_eq!(fault_of(&["--flagfile", &path], &[]), format!("{path}{expected}"), "{text}");
    }
}

#[test]
fn rewrite_keeps_comments_order_and_what_it_does_not_know() {
    let folder = Folder::new("rewrite");
    let before = "# my server\nport 7000\n\n# memory\nmaxmemory   1gb\nhash-max-ziplist-entries 5\nsave 900 1\n# twice\n\
                  save 300 10\nrename-command FLUSHALL \"\"\ntimeout 5\n";
    let path = folder.file("a.conf", before);
    let settings = serve(&[&path, "--cache_mode"]);
    set(&settings, &[("hash-max-listpack-entries", "6"), ("requirepass", "a b"), ("timeout", "0")])
        .expect("values");
    settings.rewrite(None, WantedSettings::Changed).expect("a writable file");
    let after = "# my server\nport 7000\n\n# memory\nmaxmemory   1gb\nhash-max-listpack-entries 6\nsave 900 1 300 10\n\
                 # twice\nrename-command FLUSHALL \"\"\ntimeout 0\n# Generated by CONFIG REWRITE\n\
                 requirepass \"a b\"\nmaxmemory-policy allkeys-lfu\ncache_mode true\n";
    assert_eq!(fs::read_to_string(&path).expect("the file"), after);
    settings.rewrite(None, WantedSettings::Changed).expect("a writable file");
    assert_eq!(fs::read_to_string(&path).expect("the file"), after, "nothing more to do");
    set(&settings, &[("requirepass", ""), ("client-output-buffer-limit", "pubsub 1gb 3 4")]).expect("values");
    settings.rewrite(None, WantedSettings::Changed).expect("a writable file");
    let after = after.replace("requirepass \"a b\"", "requirepass \"\"")
        + "client-output-buffer-limit normal 0 0 0\nclient-output-buffer-limit replica 256mb 64mb 60\n\
           client-output-buffer-limit pubsub 1gb 3 4\n";
    assert_eq!(fs::read_to_string(&path).expect("the file"), after);
    let left: Vec<_> = fs::read_dir(&folder.0).expect("the folder").collect();
    assert_eq!(left.len(), 1, "no file is left over");
}

#[test]
fn a_start_from_the_rewritten_file_gives_the_same_settings() {
    let folder = Folder::new("again");
    let pairs = [
        ("maxmemory", "100mb"),
        ("maxmemory-clients", "7%"),
        ("requirepass", "päss \"wörd\" \\ # \t\n"),
        ("save", "60 1 10 2"),
        ("notify-keyspace-events", "KEA"),
        ("shutdown-on-sigterm", "nosave now"),
        ("latency-tracking-info-percentiles", ""),
        ("client-output-buffer-limit", "normal 1kb 2 3 replica 0 0 0"),
        ("oom-score-adj-values", "-1 0 1"),
        ("proc-title-template", ""),
        ("unixsocketperm", "700"),
        ("keys_output_limit", "5"),
    ];
    for style in ["conf", "flags"] {
        let path = folder.file(style, "# empty\n");
        let flag = format!("--flagfile={path}");
        let start = if style == "conf" { path.as_str() } else { flag.as_str() };
        let settings = serve(&[start, "--unixsocketperm=700"]);
        for (name, value) in pairs.iter().filter(|(name, _)| *name != "unixsocketperm") {
            if style == "flags" && *name == "requirepass" {
                continue;
            }
            set(&settings, &[(*name, *value)]).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        }
        settings.rewrite(None, WantedSettings::Changed).expect("a writable file");
        assert_eq!(serve(&[start]).config_get(&["*"]), settings.config_get(&["*"]), "{style}");
    }
}

#[test]
fn rewrite_says_why_it_cannot() {
    let fault = serve(&[]).rewrite(None, WantedSettings::Changed).expect_err("no file");
    assert_eq!(fault, "ERR The server is running without a config file");

    let folder = Folder::new("cannot");
    let path = folder.file("flags", "--requirepass=a\n");
    let settings = serve(&["--flagfile", &path]);
    set(&settings, &[("requirepass", "two\nlines")]).expect("a good value");
    let fault = settings.rewrite(None, WantedSettings::Changed).expect_err("no quotes in flag files");
    assert_eq!(fault, "ERR Rewriting config file: a flag file cannot hold the value of requirepass");
    assert_eq!(fs::read_to_string(&path).expect("the file"), "--requirepass=a\n");

    let path = folder.file("gone.conf", "port 7000\n");
    let settings = serve(&[&path, "--timeout=3"]);
    fs::remove_file(&path).expect("the file");
    settings.rewrite(None, WantedSettings::Changed).expect("a file that is gone is made anew");
    assert_eq!(serve(&[&path]).config_get(&["*"]), settings.config_get(&["*"]));
}

#[test]
fn rewrite_keeps_permissions_and_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = Folder::new("links");
    let path = folder.file("real.conf", "timeout 1\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("permissions");
    let link = folder.0.join("link.conf");
    symlink(&path, &link).expect("a link");
    let settings = serve(&[&link.display().to_string()]);
    set(&settings, &[("timeout", "2")]).expect("a good value");
    settings.rewrite(None, WantedSettings::Changed).expect("a writable file");
    assert_eq!(fs::read_to_string(&path).expect("the file"), "timeout 2\n");
    assert_eq!(fs::metadata(&path).expect("the file").permissions().mode() & 0o777, 0o640);
    assert!(fs::symlink_metadata(&link).expect("the link").is_symlink());
}

#[test]
fn words_survive_quotes() {
    // a small generator, so that a failure repeats
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    let letters: Vec<char> = "ab\"'\\ \t\n\r#{}é\u{0}\u{7f}\u{1F600}x41".chars().collect();
    for _ in 0..5_000 {
        let mut word = String::new();
        for _ in 0..seed % 12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let letter = letters.get((seed >> 33) as usize % letters.len());
            word.extend(letter);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let line = format!("name {} {}", words::quote(&word), words::quote("end"));
        assert_eq!(words::split(&line), Some(vec!["name".to_owned(), word, "end".to_owned()]), "{line}");
        assert!(!line.contains(['\n', '\r']), "{line:?} stays one line");
    }
}
