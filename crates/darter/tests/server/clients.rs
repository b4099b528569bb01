//! Connections of a real server: login, protocol versions, CLIENT, MONITOR, pub/sub, notifications, limits.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value, wait_until};

pub fn text(value: Value) -> String {
    match value {
        Value::Text(text) | Value::Status(text) | Value::Error(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

#[test]
fn hello_switches_the_protocol_in_the_middle_of_a_pipeline() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send_all(&[
        &["GET", "none"],
        &["HELLO", "3"],
        &["GET", "none"],
        &["HELLO", "2"],
        &["GET", "none"],
    ]);
    assert_eq!(client.read_line(), "$-1");
    let answer = |value: Value| match value {
        Value::Array(items) => (items.len(), items.first().cloned()),
        other => panic!("{other:?}"),
    };
    // Seven pairs, as a map and as an array.
    let facts = (14, Some(Value::Text("server".into())));
    assert_eq!(answer(client.read()), facts);
    assert_eq!(client.read_line(), "_");
    assert_eq!(answer(client.read()), facts);
    assert_eq!(client.read_line(), "$-1");
}

#[test]
fn hello_says_what_is_wrong() {
    let server = Server::start(&[]);
    let mut client = server.client();
    for (command, wanted) in [
        (&["HELLO", "4"] as &[&str], "NOPROTO unsupported protocol version"),
        (&["HELLO", "x"], "ERR Protocol version is not an integer or out of range"),
        (&["HELLO", "3", "SETNAME"], "ERR Syntax error in HELLO option 'SETNAME'"),
        (&["HELLO", "3", "FOO", "x"], "ERR Syntax error in HELLO option 'FOO'"),
        (
            &["HELLO", "3", "SETNAME", "a b"],
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ),
        (
            &["HELLO", "3", "AUTH", "joe", "x"],
            "WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            &["AUTH", "x"],
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
             configuration is correct?",
        ),
        (&["AUTH", "a", "b", "c"], "ERR syntax error"),
    ] {
        assert_eq!(client.call(command), Value::Error(wanted.to_owned()), "{command:?}");
    }
}

#[test]
fn nothing_runs_before_the_password() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut client = server.client();
    let noauth = Value::Error("NOAUTH Authentication required.".to_owned());
    assert_eq!(client.call(&["GET", "k"]), noauth);
    assert_eq!(client.call(&["CLIENT", "LIST"]), noauth);
    assert!(text(client.call(&["HELLO", "3"])).starts_with("NOAUTH HELLO must be called"));
    assert!(text(client.call(&["AUTH", "wrong"])).starts_with("WRONGPASS"));
    assert!(text(client.call(&["AUTH", "default", "secretx"])).starts_with("WRONGPASS"));
    assert_eq!(client.call(&["GET", "k"]), noauth);
    assert_eq!(client.call(&["AUTH", "secret"]), Value::ok());
    assert_eq!(client.call(&["GET", "k"]), Value::Null);
    assert_eq!(client.call(&["RESET"]), Value::Status("RESET".to_owned()));
    assert_eq!(client.call(&["GET", "k"]), noauth);
    assert!(matches!(client.call(&["HELLO", "2", "AUTH", "default", "secret"]), Value::Array(_)));
    assert_eq!(client.call(&["GET", "k"]), Value::Null);
}

#[test]
fn a_stranger_that_does_not_read_is_closed() {
    let server = Server::start(&["--requirepass", "secret"]);
    let mut stranger = server.client();
    // The answers fill the socket's buffers and then pile up.
    let began = Instant::now();
    let flood = "GET a\r\n".repeat(20_000);
    while began.elapsed() < crate::harness::PATIENCE {
        if stranger.stream().write_all(flood.as_bytes()).is_err() {
            break;
        }
    }
    let mut client = server.client();
    client.call(&["AUTH", "secret"]);
    let began = Instant::now();
    while text(client.call(&["CLIENT", "LIST"])).lines().count() > 1 {
        assert!(began.elapsed() < crate::harness::PATIENCE, "the stranger is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Resident bytes of the server.
fn resident_bytes(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

#[test]
fn strangers_make_the_server_hold_little_each() {
    const STRANGERS: usize = 400;
    let server = Server::start(&["--requirepass", "secret"]);
    let mut client = server.client();
    assert_eq!(client.call(&["AUTH", "secret"]), Value::ok());
    let args = |len: usize| format!("*10\r\n{}", format!("${len}\r\n{}\r\n", "x".repeat(len)).repeat(10));
    // Tables have grown, and those who were there have gone.
    let first: Vec<Client> = (0..STRANGERS).map(|_| server.client()).collect();
    wait_until("all are in", || client.info::<usize>("clients", "connected_clients") == STRANGERS + 1);
    drop(first);
    wait_until("all have gone", || client.info::<usize>("clients", "connected_clients") == 1);
    let before = resident_bytes(&server);
    let read: usize = client.info("stats", "total_net_input_bytes");
    let kept = [
        args(700)[..7000].to_owned(),
        "a".repeat(8000),
        format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(8000)),
    ];
    let mut strangers: Vec<Client> = (0..STRANGERS).map(|_| server.client()).collect();
    let mut sent = 0;
    for (n, stranger) in strangers.iter_mut().enumerate() {
        let bytes = &kept[n % kept.len()];
        stranger.stream().write_all(bytes.as_bytes()).expect("it is taken");
        sent += bytes.len();
    }
    let began = Instant::now();
    while client.info::<usize>("stats", "total_net_input_bytes") < read + sent {
        assert!(began.elapsed() < crate::harness::PATIENCE, "they are not read");
        std::thread::sleep(Duration::from_millis(20));
    }
    let each = resident_bytes(&server).saturating_sub(before) / STRANGERS;
    assert!(each < 16 << 10, "{each} bytes each");
    // More of it is the end.
    for bytes in [args(16_384)[..150_000].to_owned(), "a".repeat(60_000), "*1000000000\r\n".to_owned()] {
        let mut stranger = server.client();
        // It may be closed before it has taken all.
        let _ = stranger.stream().write_all(bytes.as_bytes());
        let mut said = Vec::new();
        let _ = std::io::Read::read_to_end(stranger.stream(), &mut said);
        assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
    }
    // A login, and a long request behind it in the same piece or not.
    let long = "v".repeat(100_000);
    let mut late = server.client();
    late.send_all(&[&["AUTH", "secret"], &["SET", "k", &long]]);
    assert_eq!((late.read(), late.read()), (Value::ok(), Value::ok()));
}

#[test]
fn unknown_commands_are_repeated_up_to_a_length() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let long = "x".repeat(200);
    let wanted = format!(
        "ERR unknown command '{}', with args beginning with: '{}' ",
        "x".repeat(128),
        "x".repeat(128)
    );
    assert_eq!(client.call(&[&long, &long, "y"]), Value::Error(wanted));
    assert_eq!(
        client.call(&["nosuch", "a", "b"]),
        Value::Error("ERR unknown command 'nosuch', with args beginning with: 'a' 'b' ".to_owned())
    );
    let wrong = "ERR unknown subcommand 'nosuch'. Try CLIENT HELP.";
    assert_eq!(client.call(&["client", "nosuch"]), Value::Error(wrong.to_owned()));
}

#[test]
fn a_wrong_exec_says_that_nothing_runs() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let wanted = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command";
    assert_eq!(client.call(&["EXEC", "x"]), Value::Error(wanted.to_owned()));
    client.call(&["MULTI"]);
    assert_eq!(client.call(&["EXEC", "x"]), Value::Error(wanted.to_owned()));
    assert_eq!(client.call(&["EXEC"]), Value::Error("ERR EXEC without MULTI".to_owned()));
}

#[test]
fn http_is_cut_off_without_a_word() {
    let server = Server::start(&[]);
    for head in ["POST / HTTP/1.1\r\n", "Host: localhost\r\n"] {
        let mut client = server.client();
        client.stream().write_all(format!("{head}SET hacked 1\r\n").as_bytes()).expect("sent");
        assert!(client.is_closed());
    }
    assert_eq!(server.client().call(&["GET", "hacked"]), Value::Null);
}

#[test]
fn quit_answers_and_drops_what_follows() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send_all(&[&["SET", "a", "1"], &["QUIT"], &["SET", "a", "2"]]);
    assert_eq!((client.read(), client.read()), (Value::ok(), Value::ok()));
    assert!(client.is_closed());
    assert_eq!(server.client().call(&["GET", "a"]), Value::Text("1".to_owned()));
}

#[test]
fn client_list_tells_the_truth() {
    let server = Server::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    a.call(&["CLIENT", "SETNAME", "ann"]);
    a.call(&["CLIENT", "SETINFO", "LIB-NAME", "lib"]);
    a.call(&["CLIENT", "SETINFO", "LIB-VER", "1.2"]);
    a.call(&["SELECT", "3"]);
    a.call(&["HELLO", "3"]);
    a.call(&["WATCH", "k1", "k2"]);
    a.call(&["MULTI"]);
    a.call(&["GET", "x"]);
    let list = text(b.call(&["CLIENT", "LIST"]));
    let line = list.lines().find(|line| line.contains(" name=ann ")).expect("ann is there");
    for part in [
        " db=3 ",
        " flags=x ",
        " multi=1 ",
        " watch=2 ",
        " cmd=get ",
        " resp=3 ",
        " lib-name=lib ",
        " lib-ver=1.2 ",
        " tot-cmds=8",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    let own = text(b.call(&["CLIENT", "INFO"]));
    assert!(own.contains(" cmd=client|info ") && own.contains(" qbuf=0 "), "{own}");
    let id = text(b.call(&["CLIENT", "INFO"])).split([' ', '=']).nth(1).map(str::to_owned).expect("an id");
    assert_eq!(text(b.call(&["CLIENT", "LIST", "ID", &id])).lines().count(), 1);
    assert_eq!(text(b.call(&["CLIENT", "LIST", "TYPE", "pubsub"])), "");
    assert_eq!(
        b.call(&["CLIENT", "LIST", "TYPE", "x"]),
        Value::Error("ERR Unknown client type 'x'".to_owned())
    );
    assert_eq!(b.call(&["CLIENT", "LIST", "ID", "x"]), Value::Error("ERR Invalid client ID".to_owned()));
}

#[test]
fn clients_are_found_by_everything_the_list_shows() {
    let server = Server::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    a.call(&["CLIENT", "SETNAME", "ann"]);
    a.call(&["CLIENT", "SETINFO", "LIB-NAME", "lib"]);
    a.call(&["SELECT", "3"]);
    b.call(&["CLIENT", "SETNAME", "bob"]);
    let Value::Int(id) = a.call(&["CLIENT", "ID"]) else { panic!("no id") };
    let (id, other) = (id.to_string(), (id + 1000).to_string());
    let mut names = |words: &[&str]| {
        let list = text(b.call(&[&["CLIENT", "LIST"], words].concat()));
        let name =
            |line: &str| line.split(' ').find_map(|field| field.strip_prefix("name=")).map(str::to_owned);
        list.lines().filter_map(name).collect::<Vec<_>>().join(" ")
    };
    for (words, found) in [
        ("NAME ann", "ann"),
        ("NAME nobody NAME bob", "bob"),
        ("NOT-NAME ann", "bob"),
        ("LIB-NAME lib", "ann"),
        ("NOT-LIB-NAME lib", "bob"),
        ("LIB-VER 1", ""),
        ("DB 3", "ann"),
        ("NOT-DB 3", "bob"),
        ("IP 127.0.0.1", "ann bob"),
        ("NOT-IP 127.0.0.1", ""),
        ("USER default SKIPME YES", "ann"),
        ("NOT-USER default", ""),
        ("FLAGS N", "ann bob"),
        ("NOT-FLAGS N", ""),
        ("TYPE normal NOT-TYPE pubsub", "ann bob"),
        ("MAXAGE 3600", ""),
        ("IDLE 3600", ""),
        (&format!("ID {other} {id} NAME ann"), "ann"),
        (&format!("ID {other} ID {id}"), "ann"),
        (&format!("NOT-ID {id} {other}"), "bob"),
    ] {
        assert_eq!(names(&words.split(' ').collect::<Vec<_>>()), found, "{words}");
    }
    for (words, error) in [
        ("FLAGS NZ", "ERR Unknown flags found in the provided filter: NZ"),
        ("USER nobody", "ERR No such user 'nobody'"),
        ("DB x", "ERR DB is not an integer or out of range"),
        ("IDLE 0", "ERR idle should be greater than 0"),
        ("NAME", "ERR syntax error"),
        ("ID 1 wrong", "ERR Invalid client ID"),
    ] {
        let call = [&["CLIENT", "LIST"], &words.split(' ').collect::<Vec<_>>()[..]].concat();
        assert_eq!(b.call(&call), Value::Error(error.to_owned()), "{words}");
    }
    assert_eq!(b.call(&["CLIENT", "KILL", "NOT-NAME", "bob", "DB", "3"]), Value::Int(1));
    assert!(a.is_closed());
}

#[test]
fn a_reply_that_was_read_is_in_the_list() {
    let server = Server::start(&["--threads=2"]);
    let (mut a, mut b) = (server.client(), server.client());
    a.call(&["CLIENT", "SETNAME", "ann"]);
    for sent in 2..500 {
        a.call(&["ECHO", "x"]);
        let list = text(b.call(&["CLIENT", "LIST"]));
        let line = list.lines().find(|line| line.contains(" name=ann ")).expect("ann is there");
        assert!(line.ends_with(&format!(" tot-cmds={sent}")), "{sent} sent: {line}");
    }
}

#[test]
fn killed_clients_are_gone() {
    let server = Server::start(&[]);
    let (mut a, mut b) = (server.client(), server.client());
    let Value::Int(id) = a.call(&["CLIENT", "ID"]) else { panic!("no id") };
    assert_eq!(b.call(&["CLIENT", "KILL", "ID", &id.to_string()]), Value::Int(1));
    assert_eq!(b.call(&["CLIENT", "KILL", "ID", &id.to_string()]), Value::Int(0));
    assert!(a.is_closed());
    assert_eq!(b.call(&["CLIENT", "KILL", "1.2.3.4:5"]), Value::Error("ERR No such client".to_owned()));
    for wrong in [
        &["CLIENT", "KILL", "ID", "0"] as &[&str],
        &["CLIENT", "KILL", "MAXAGE", "0"],
        &["CLIENT", "KILL", "a", "b"],
    ] {
        assert!(matches!(b.call(wrong), Value::Error(_)), "{wrong:?}");
    }
    // SKIPME no: the caller is answered first.
    assert_eq!(b.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]), Value::Int(1));
    assert!(b.is_closed());
}

#[test]
fn paused_commands_wait_and_run_once() {
    let server = Server::start(&["--proactor_threads=2"]);
    let mut admin = server.client();
    let mut others: Vec<Client> = (0..6).map(|_| server.client()).collect();
    assert_eq!(admin.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
    others.iter_mut().for_each(|client| client.send_all(&[&["GET", "n"], &["SET", "n", "1"], &["GET", "n"]]));
    others.iter_mut().for_each(|client| assert_eq!(client.read(), Value::Null));
    let waits_until = Instant::now() + crate::harness::PATIENCE;
    loop {
        let list = text(admin.call(&["CLIENT", "LIST"]));
        if list.lines().filter(|line| line.contains(" flags=b ")).count() == 6 {
            break;
        }
        assert!(Instant::now() < waits_until, "six wait: {list}");
    }
    assert_eq!(admin.call(&["GET", "n"]), Value::Null);
    assert_eq!(admin.call(&["CLIENT", "UNPAUSE"]), Value::ok());
    for client in &mut others {
        assert_eq!((client.read(), client.read()), (Value::ok(), Value::Text("1".to_owned())));
    }
    let began = Instant::now();
    assert_eq!(admin.call(&["CLIENT", "PAUSE", "2000"]), Value::ok());
    assert_eq!(others[0].call(&["PING"]), Value::Status("PONG".to_owned()));
    // Half of it: the deadline counts from the millisecond in which the server's turn began.
    assert!(began.elapsed() >= Duration::from_millis(1000));
    for (wrong, fault) in [
        (&["CLIENT", "PAUSE", "x"] as &[&str], "ERR timeout is not an integer or out of range"),
        (&["CLIENT", "PAUSE", "-1"], "ERR timeout is negative"),
        (&["CLIENT", "PAUSE", "1", "x"], "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        (&["CLIENT", "PAUSE", "9223372036854775807"], "ERR timeout is out of range"),
    ] {
        assert_eq!(admin.call(wrong), Value::Error(fault.to_owned()), "{wrong:?}");
    }
}

#[test]
fn nothing_is_written_once_a_pause_is_answered() {
    let server = Server::start(&["--proactor_threads=2"]);
    let mut admin = server.client();
    let is_over = AtomicBool::new(false);
    let wrong: Vec<_> = std::thread::scope(|scope| {
        for key in ["a", "b", "c", "d"] {
            let mut client = server.client();
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    client.send_all(&[&["INCR", key][..]; 500]);
                    (0..500).for_each(|_| assert!(matches!(client.read(), Value::Int(_))));
                }
            });
        }
        let rounds = (0..100).filter_map(|_| {
            assert_eq!(admin.call(&["CLIENT", "PAUSE", "600000", "WRITE"]), Value::ok());
            let counts = admin.call(&["MGET", "a", "b", "c", "d"]);
            // Long enough for a turn of another thread; one that takes longer is missed.
            std::thread::sleep(Duration::from_millis(5));
            let later = admin.call(&["MGET", "a", "b", "c", "d"]);
            assert_eq!(admin.call(&["CLIENT", "UNPAUSE"]), Value::ok());
            (counts != later).then_some((counts, later))
        });
        let wrong = rounds.collect();
        is_over.store(true, Relaxed);
        wrong
    });
    assert!(wrong.is_empty(), "{} of 100: {:?}", wrong.len(), wrong[0]);
}

#[test]
fn replies_can_be_switched_off() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.send_all(&[
        &["CLIENT", "REPLY", "OFF"],
        &["SET", "a", "1"],
        &["NOSUCH"],
        &["CLIENT", "REPLY", "ON"],
    ]);
    assert_eq!(client.read(), Value::ok());
    client.send_all(&[&["CLIENT", "REPLY", "SKIP"], &["SET", "a", "2"], &["GET", "a"]]);
    assert_eq!(client.read(), Value::Text("2".to_owned()));
    client.send_all(&[&["CLIENT", "REPLY", "SKIP"], &["NOSUCH"], &["PING"]]);
    assert_eq!(client.read(), Value::Status("PONG".to_owned()));
}

#[test]
fn monitors_see_what_all_threads_run_but_no_passwords() {
    let server = Server::start(&["--proactor_threads=2"]);
    let mut monitor = server.client();
    assert_eq!(monitor.call(&["MONITOR"]), Value::ok());
    let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        client.call(&["SELECT", "2"]);
        client.call(&["SET", &format!("k{at}"), "a\"\n"]);
        client.call(&["AUTH", "user", "secret"]);
        client.call(&["CLIENT", "LIST"]);
        client.call(&["HELLO", "2", "AUTH", "default", "secret", "SETNAME", "x"]);
        client.call(&["MULTI"]);
        client.call(&["GET", "k"]);
        client.call(&["EXEC"]);
    }
    let lines: Vec<String> = (0..28).map(|_| monitor.read_line()).collect();
    for (at, client) in clients.iter().enumerate() {
        let shown = format!(r#"[2 {}] "SET" "k{at}" "a\"\n""#, client.local());
        assert!(
            lines.iter().any(|line| line.starts_with('+') && line.ends_with(&shown)),
            "{shown} in {lines:?}"
        );
    }
    let all = lines.join("\n");
    assert!(!all.contains("secret") && !all.contains("LIST"), "{all}");
    assert!(all.contains(r#""HELLO" "2" "AUTH" "(redacted)" "(redacted)" "SETNAME" "x""#), "{all}");
    assert_eq!(all.matches("\"EXEC\"").count(), 4);
    assert_eq!(monitor.call(&["RESET"]), Value::Status("RESET".to_owned()));
    clients[0].call(&["PING"]);
    assert_eq!(monitor.call(&["PING"]), Value::Status("PONG".to_owned()));
}

#[test]
fn monitors_see_a_script_before_what_it_does() {
    let server = Server::start(&[]);
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.call(&["MONITOR"]);
    client.call(&["EVAL", "return redis.call('set', KEYS[1], 'v')", "1", "k"]);
    assert!(monitor.read_line().contains(r#""EVAL" "return redis.call("#));
    assert!(monitor.read_line().ends_with(r#"[0 lua] "set" "k" "v""#));
}

#[test]
fn messages_reach_every_subscriber_once_and_in_order() {
    let server = Server::start(&["--proactor_threads=2"]);
    let mut readers: Vec<Client> = (0..6).map(|_| server.client()).collect();
    for (at, reader) in readers.iter_mut().enumerate() {
        if at % 2 == 0 {
            reader.call(&["HELLO", "3"]);
        }
        assert_eq!(reader.call(&["SUBSCRIBE", "ch"]), Value::array(&["subscribe", "ch", ":1"]));
        assert_eq!(reader.call(&["PSUBSCRIBE", "c*"]), Value::array(&["psubscribe", "c*", ":2"]));
    }
    let mut writer = server.client();
    for n in 0..500 {
        writer.send_all(&[&["PUBLISH", "ch", &n.to_string()]]);
    }
    (0..500).for_each(|_| assert_eq!(writer.read(), Value::Int(12)));
    for reader in &mut readers {
        for n in 0..500 {
            let n = n.to_string();
            assert_eq!(reader.read(), Value::array(&["message", "ch", &n]));
            assert_eq!(reader.read(), Value::array(&["pmessage", "c*", "ch", &n]));
        }
    }
    assert_eq!(writer.call(&["PUBSUB", "NUMSUB", "ch", "no"]), Value::array(&["ch", ":6", "no", ":0"]));
    assert_eq!(writer.call(&["PUBSUB", "NUMPAT"]), Value::Int(1));
    drop(readers);
    let began = Instant::now();
    while writer.call(&["PUBLISH", "ch", "x"]) != Value::Int(0) {
        assert!(began.elapsed() < crate::harness::PATIENCE, "closed clients are still subscribed");
    }
    assert_eq!(writer.call(&["PUBSUB", "CHANNELS"]), Value::Array(Vec::new()));
}

#[test]
fn subscribed_clients_may_do_little_under_resp2() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["SUBSCRIBE", "a"]);
    assert_eq!(client.call(&["PING"]), Value::array(&["pong", ""]));
    let wanted = "ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed \
                  in this context";
    assert_eq!(client.call(&["GET", "k"]), Value::Error(wanted.to_owned()));
    assert_eq!(client.call(&["SSUBSCRIBE", "a"]), Value::array(&["ssubscribe", "a", ":1"]));
    assert_eq!(client.call(&["UNSUBSCRIBE"]), Value::array(&["unsubscribe", "a", ":0"]));
    assert!(matches!(client.call(&["GET", "k"]), Value::Error(_)));
    assert_eq!(server.client().call(&["SPUBLISH", "a", "m"]), Value::Int(1));
    assert_eq!(client.read(), Value::array(&["smessage", "a", "m"]));
    assert_eq!(client.call(&["SUNSUBSCRIBE"]), Value::array(&["sunsubscribe", "a", ":0"]));
    assert_eq!(client.call(&["GET", "k"]), Value::Null);
}

#[test]
fn what_never_ends_is_refused_in_a_transaction() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["MULTI"]);
    client.call(&["MONITOR"]);
    client.call(&["SSUBSCRIBE", "a"]);
    client.call(&["PING"]);
    let refusal = |name: &str| {
        Value::Error(format!(
            "ERR {name} isn't allowed for {}DENY BLOCKING client",
            if name == "MONITOR" { "" } else { "a " }
        ))
    };
    let wanted = [refusal("MONITOR"), refusal("SSUBSCRIBE"), Value::Status("PONG".to_owned())];
    assert_eq!(client.call(&["EXEC"]), Value::Array(wanted.to_vec()));
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
}

#[test]
fn a_message_to_oneself_follows_the_reply() {
    let server = Server::start(&[]);
    let mut client = server.client();
    client.call(&["HELLO", "3"]);
    client.call(&["SUBSCRIBE", "foo"]);
    client.send_all(&[&["PUBLISH", "foo", "1"], &["PING"]]);
    assert_eq!(client.read(), Value::Int(1));
    assert_eq!(client.read(), Value::array(&["message", "foo", "1"]));
    assert_eq!(client.read(), Value::Status("PONG".to_owned()));
    client.send_all(&[&["MULTI"], &["PUBLISH", "foo", "2"], &["UNSUBSCRIBE", "foo"], &["EXEC"], &["PING"]]);
    (0..3).for_each(|_| drop(client.read()));
    let Value::Array(both) = client.read() else { panic!("no array") };
    assert_eq!(both, [Value::Int(1), Value::array(&["unsubscribe", "foo", ":0"])]);
    assert_eq!(client.read(), Value::array(&["message", "foo", "2"]));
    assert_eq!(client.read(), Value::Status("PONG".to_owned()));
}

#[test]
fn changes_of_keys_are_published() {
    let server = Server::start(&["--notify-keyspace-events", "KEA", "--proactor_threads=2"]);
    let (mut reader, mut writer) = (server.client(), server.client());
    reader.call(&["PSUBSCRIBE", "__key*__:*"]);
    writer.call(&["SELECT", "3"]);
    for n in 0..20 {
        let key = format!("k{n}");
        writer.call(&["SET", &key, "v"]);
        assert_eq!(
            reader.read(),
            Value::array(&["pmessage", "__key*__:*", &format!("__keyspace@3__:{key}"), "set"])
        );
        assert_eq!(reader.read(), Value::array(&["pmessage", "__key*__:*", "__keyevent@3__:set", &key]));
    }
}

#[test]
fn notifications_begin_and_end_with_the_setting() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut reader, mut writer, mut admin) = (server.client(), server.client(), server.client());
    reader.call(&["PSUBSCRIBE", "__keyevent*"]);
    for round in 0..20 {
        for (setting, is_on) in [("KEA", true), ("", false), ("Kg", false), ("Ex", false), ("E$", true)] {
            assert_eq!(admin.call(&["CONFIG", "SET", "notify-keyspace-events", setting]), Value::ok());
            let key = format!("{setting}{round}");
            writer.call(&["SET", &key, "v"]);
            if is_on {
                let wanted = Value::array(&["pmessage", "__keyevent*", "__keyevent@0__:set", &key]);
                assert_eq!(reader.read(), wanted);
            }
        }
    }
    assert_eq!(reader.call(&["PING"]), Value::array(&["pong", ""]));
}

#[test]
fn a_password_set_later_is_for_new_clients() {
    let server = Server::start(&[]);
    let mut old = server.client();
    assert_eq!(old.call(&["CONFIG", "SET", "requirepass", "secret"]), Value::ok());
    assert_eq!(old.call(&["GET", "k"]), Value::Null);
    let mut new = server.client();
    assert!(text(new.call(&["GET", "k"])).starts_with("NOAUTH"));
    assert_eq!(old.call(&["CONFIG", "SET", "requirepass", ""]), Value::ok());
    assert_eq!(new.call(&["GET", "k"]), Value::Null);
}

#[test]
fn tracked_keys_are_invalidated_after_the_reply() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut cache, mut writer) = (server.client(), server.client());
    let invalidated =
        |keys: &[&str]| Value::Array(vec![Value::Text("invalidate".to_owned()), Value::array(keys)]);
    cache.call(&["HELLO", "3"]);
    assert_eq!(cache.call(&["CLIENT", "TRACKING", "ON"]), Value::ok());
    for n in 0..200 {
        let key = format!("k{}", n % 7);
        cache.call(&["MGET", &key, "other"]);
        cache.call(&["GET", &key]);
        writer.call(&["SET", &key, "v"]);
        writer.call(&["SET", &key, "w"]);
        assert_eq!(cache.read(), invalidated(&[&key]), "round {n}");
        assert_eq!(cache.call(&["GET", &key]), Value::Text("w".to_owned()));
        writer.call(&["DEL", &key]);
        assert_eq!(cache.read(), invalidated(&[&key]), "round {n}");
    }
    // Its own change, by default, too; the message comes after the reply.
    cache.send_all(&[&["GET", "own"], &["SET", "own", "1"]]);
    assert_eq!((cache.read(), cache.read(), cache.read()), (Value::Null, Value::ok(), invalidated(&["own"])));
    cache.send_all(&[&["MULTI"], &["GET", "x"], &["EXEC"]]);
    (0..3).for_each(|_| drop(cache.read()));
    writer.call(&["SET", "x", "1"]);
    assert_eq!(cache.read(), invalidated(&["x"]));
    writer.call(&["FLUSHALL"]);
    assert_eq!(cache.read(), Value::Array(vec![Value::Text("invalidate".to_owned()), Value::Null]));
    cache.call(&["CLIENT", "TRACKING", "OFF"]);
    cache.call(&["GET", "x"]);
    writer.call(&["SET", "x", "2"]);
    assert_eq!(cache.call(&["PING"]), Value::Status("PONG".to_owned()));
}

#[test]
fn tracking_has_its_modes() {
    let server = Server::start(&["--proactor_threads=2"]);
    let (mut cache, mut writer, mut reader) = (server.client(), server.client(), server.client());
    cache.call(&["HELLO", "3"]);
    let message =
        |keys: &[&str]| Value::Array(vec![Value::Text("invalidate".to_owned()), Value::array(keys)]);
    cache.call(&["CLIENT", "TRACKING", "ON", "OPTIN"]);
    cache.call(&["GET", "a"]);
    cache.call(&["CLIENT", "CACHING", "YES"]);
    cache.call(&["GET", "b"]);
    cache.call(&["GET", "c"]);
    ["a", "b", "c"].iter().for_each(|key| drop(writer.call(&["SET", key, "1"])));
    assert_eq!(cache.read(), message(&["b"]));
    cache.call(&["CLIENT", "TRACKING", "OFF"]);
    cache.call(&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "us", "PREFIX", "it", "NOLOOP"]);
    let wrong = cache.call(&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "user"]);
    assert!(text(wrong).starts_with("ERR Prefix 'user' overlaps with an existing prefix 'us'."));
    cache.call(&["SET", "user:0", "1"]);
    writer.call(&["SET", "no", "1"]);
    writer.send_all(&[
        &["MULTI"],
        &["SET", "user:1", "1"],
        &["SET", "item:1", "1"],
        &["SET", "user:2", "1"],
        &["EXEC"],
    ]);
    (0..5).for_each(|_| drop(writer.read()));
    let mut both = [cache.read(), cache.read()];
    both.sort_by_key(|value| format!("{value:?}"));
    assert_eq!(both, [message(&["item:1"]), message(&["user:1", "user:2"])]);
    // Without a prefix it hears of all keys from then on, of each once.
    assert_eq!(cache.call(&["CLIENT", "TRACKING", "ON", "BCAST"]), Value::ok());
    assert!(matches!(cache.call(&["CLIENT", "TRACKING", "ON", "BCAST", "PREFIX", "zoo"]), Value::Error(_)));
    ["any", "user:3"].iter().for_each(|key| drop(writer.call(&["SET", key, "1"])));
    assert_eq!([cache.read(), cache.read()], [message(&["any"]), message(&["user:3"])]);
    assert_eq!(cache.call(&["PING"]), Value::Status("PONG".to_owned()));
    // RESP2 clients name another one, which is subscribed.
    let Value::Int(id) = reader.call(&["CLIENT", "ID"]) else { panic!("no id") };
    reader.call(&["SUBSCRIBE", "__redis__:invalidate"]);
    writer.call(&["CLIENT", "TRACKING", "ON", "REDIRECT", &id.to_string()]);
    writer.call(&["GET", "z"]);
    assert_eq!(writer.call(&["CLIENT", "GETREDIR"]), Value::Int(id));
    cache.call(&["SET", "z", "1"]);
    let wanted = [
        Value::Text("message".to_owned()),
        Value::Text("__redis__:invalidate".to_owned()),
        Value::array(&["z"]),
    ];
    assert_eq!(reader.read(), Value::Array(wanted.to_vec()));
    let list = text(writer.call(&["CLIENT", "INFO"]));
    assert!(list.contains(" flags=t ") && list.contains(&format!(" redir={id} ")), "{list}");
}

#[test]
fn requests_that_never_end_are_cut_off() {
    let server = Server::start(&["--client-query-buffer-limit", "2mb"]);
    let mut client = server.client();
    client.stream().write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$8000000\r\n").expect("sent");
    let piece = vec![b'x'; 1 << 20];
    let closed = (0..7).any(|_| client.stream().write_all(&piece).is_err());
    assert!(closed || client.is_closed());
    let server = Server::start(&["--max_multi_bulk_len", "20"]);
    let mut client = server.client();
    client.stream().write_all(b"*21\r\n").expect("sent");
    assert_eq!(client.read(), Value::Error("ERR Protocol error: invalid multibulk length".to_owned()));
    assert!(client.is_closed());
}

#[test]
fn the_limit_of_clients_is_kept() {
    let server = Server::start(&["--maxclients", "3"]);
    let mut clients: Vec<Client> = Vec::new();
    while clients.len() < 3 {
        // The probe that found the server listening may still count.
        let mut client = server.client();
        if client.try_call(&["PING"]) == Some(Value::Status("PONG".to_owned())) {
            clients.push(client);
        }
    }
    let mut fourth = server.client();
    assert_eq!(fourth.read(), Value::Error("ERR max number of clients reached".to_owned()));
    assert!(fourth.is_closed());
}

#[test]
fn idle_clients_are_closed_but_listeners_stay() {
    let server = Server::start(&[]);
    let (mut idle, mut listener) = (server.client(), server.client());
    listener.call(&["SUBSCRIBE", "a"]);
    // From now on nobody may pause for a second, but those who listen.
    assert_eq!(idle.call(&["CONFIG", "SET", "timeout", "1"]), Value::ok());
    assert!(idle.is_closed());
    // The same for the thread of the other one.
    std::thread::sleep(Duration::from_millis(2500));
    let publish = || server.client().try_call(&["PUBLISH", "a", "b"]) == Some(Value::Int(1));
    wait_until("somebody is quick enough to publish", publish);
    assert_eq!(listener.read(), Value::array(&["message", "a", "b"]));
}

#[test]
fn clients_that_do_not_take_their_answers_are_closed_and_counted() {
    let server = Server::start(&["--send_timeout", "1"]);
    let mut client = server.client();
    assert_eq!(client.call(&["SET", "k", &"v".repeat(8 << 20)]), Value::ok());
    let mut slow = server.client();
    slow.send_all(&[&["GET", "k"], &["GET", "k"]]);
    let began = Instant::now();
    while client.info::<u64>("clients", "timeout_disconnects") == 0 {
        assert!(began.elapsed() < crate::harness::PATIENCE, "it is not counted");
        std::thread::sleep(Duration::from_millis(20));
    }
    let waits_until = Instant::now() + crate::harness::PATIENCE;
    while client.info::<u64>("clients", "connected_clients") > 1 {
        assert!(Instant::now() < waits_until, "it is not closed");
    }
}

#[test]
fn subscribers_that_do_not_read_are_closed_at_the_limit() {
    let server = Server::start(&["--client-output-buffer-limit", "pubsub 4mb 0 0"]);
    let mut reader = server.client();
    reader.call(&["SUBSCRIBE", "a"]);
    let mut writer = server.client();
    let message = "x".repeat(1 << 20);
    let sent = (0..120).take_while(|_| writer.call(&["PUBLISH", "a", &message]) == Value::Int(1)).count();
    assert!(sent < 120, "nothing stopped it");
}

#[test]
fn renamed_commands_answer_to_their_new_name() {
    let server = Server::start(&["--rename-command", "GET", "fetch", "--rename-command", "ECHO", ""]);
    let mut client = server.client();
    client.call(&["SET", "a", "1"]);
    assert_eq!(client.call(&["FETCH", "a"]), Value::Text("1".to_owned()));
    assert!(text(client.call(&["GET", "a"])).starts_with("ERR unknown command 'GET'"));
    assert!(text(client.call(&["ECHO", "a"])).starts_with("ERR unknown command 'ECHO'"));
}

#[test]
fn unix_sockets_serve_too() {
    let path = std::env::temp_dir().join(format!("darter-test-{}.sock", std::process::id()));
    let server = Server::start(&["--unixsocket", &path.to_string_lossy()]);
    let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("listening");
    stream.write_all(b"CLIENT INFO\r\n").expect("sent");
    stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    let mut buf = [0; 1024];
    let n = std::io::Read::read(&mut stream, &mut buf).expect("an answer");
    let line = String::from_utf8_lossy(&buf[..n]).into_owned();
    assert!(line.contains(&format!(" addr={}:0 ", path.display())) && line.contains(" flags=U "), "{line}");
    drop(server);
}
