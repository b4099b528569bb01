//! Access rules on a running server: who may do what, and what becomes of clients whose rights change.

use std::time::Instant;

use crate::harness::{Client, Server, Value};

fn text(value: Value) -> String {
    match value {
        Value::Error(text) | Value::Status(text) | Value::Text(text) => text,
        other => panic!("no text: {other:?}"),
    }
}

/// A client logged in as `user`, whose password is anything.
fn login(server: &Server, user: &str) -> Client {
    let mut client = server.client();
    assert_eq!(client.call(&["AUTH", user, "x"]), Value::ok());
    client
}

fn set_user(admin: &mut Client, rules: &str) {
    let command: Vec<&str> = ["ACL", "SETUSER"].into_iter().chain(rules.split(' ')).collect();
    assert_eq!(admin.call(&command), Value::ok(), "{rules}");
}

/// A field of the newest entry of ACL LOG.
fn logged(admin: &mut Client, field: &str) -> String {
    let Value::Array(entries) = admin.call(&["ACL", "LOG", "1"]) else { panic!("no log") };
    let Some(Value::Array(entry)) = entries.into_iter().next() else { panic!("an empty log") };
    let at = entry.iter().position(|value| *value == Value::Text(field.to_owned())).expect("the field");
    match &entry[at + 1] {
        Value::Int(number) => number.to_string(),
        other => text(other.clone()),
    }
}

const NO_KEY: &str = "NOPERM No permissions to access a key";
const NO_CHANNEL: &str = "NOPERM No permissions to access a channel";

#[test]
fn a_user_may_do_what_its_rules_say() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +@all -flushall -client|kill ~a* %R~r* resetchannels &c*");
    let mut client = login(&server, "u");
    for (call, wanted) in [
        ("SET a1 x", "OK"),
        ("GET a1", "x"),
        ("SET b x", NO_KEY),
        ("MSET a1 x b y", NO_KEY),
        ("COPY r1 a1", "0"),
        ("COPY a1 r1", NO_KEY),
        ("SET r1 x GET", NO_KEY),
        ("PUBLISH c1 x", "0"),
        ("PUBLISH d1 x", NO_CHANNEL),
        ("SUBSCRIBE d1", NO_CHANNEL),
        ("FLUSHALL", "NOPERM User u has no permissions to run the 'flushall' command"),
        ("CLIENT KILL TYPE normal", "NOPERM User u has no permissions to run the 'client|kill' command"),
        ("ACL WHOAMI", "u"),
        ("SORT a2 BY w*", "ERR BY option of SORT denied due to insufficient ACL permissions."),
        ("EVAL return(redis.call('get','b')) 0", "ERR ACL failure in script: No permissions to access a key"),
        ("EVAL return(redis.pcall('set',KEYS[1],'x')) 1 a1", "OK"),
        ("EVAL return(tostring(redis.acl_check_cmd('get','b'))) 0", "false"),
        ("EVAL return(tostring(redis.acl_check_cmd('get','a'))) 0", "true"),
        ("EVAL return(1) 1 b", NO_KEY),
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        let answer = match client.call(&words) {
            Value::Int(number) => number.to_string(),
            other => text(other),
        };
        assert!(answer.starts_with(wanted), "{call}: {answer}");
    }
    let list = text(admin.call(&["CLIENT", "LIST"]));
    assert!(list.lines().any(|line| line.contains(" user=u ")), "{list}");
}

#[test]
fn series_that_labels_lead_to_are_checked_one_by_one() {
    const NO_SERIES: &str =
        "NOPERM TSDB: current user doesn't have read permission to one or more keys that match";
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut admin = server.client();
    for line in [
        "TS.CREATE a1 LABELS group both own x left 1",
        "TS.CREATE a2 LABELS group both own x",
        "TS.CREATE b1 LABELS group both own y right 1",
        "TS.ADD a1 1 5",
    ] {
        assert!(!matches!(admin.call(&line.split(' ').collect::<Vec<_>>()), Value::Error(_)), "{line}");
    }
    // The second selector reads everything, but allows none of these commands.
    set_user(&mut admin, "u on nopass +@all %R~a* %W~b* &* (+get ~*)");
    let mut client = login(&server, "u");
    let mut ask = |line: &str| client.call(&line.split(' ').collect::<Vec<_>>());
    for line in [
        "TS.MGET FILTER group=both",
        "TS.MGET FILTER own=y",
        "TS.MRANGE - + FILTER group=both",
        "TS.MREVRANGE - + FILTER group=both GROUPBY own REDUCE max",
        "EVAL return(redis.call('TS.MGET','FILTER','own=y')) 0",
    ] {
        let answer = text(ask(line));
        assert!(answer.starts_with(NO_SERIES), "{line}: {answer}");
    }
    for (line, len) in [
        ("TS.MGET FILTER own=x", 2),
        ("TS.MRANGE - + FILTER own=x", 2),
        ("TS.MRANGE - + FILTER group=both own=x GROUPBY own REDUCE max", 1),
        // Names are no secret, as with KEYS.
        ("TS.QUERYINDEX group=both", 3),
        ("TS.QUERYLABELS LABELS", 3),
        ("TS.QUERYLABELS VALUES own", 1),
        ("TS.QUERYLABELS VALUES own FILTER own=y", 0),
        ("EVAL return(redis.call('TS.MGET','FILTER','own=x')) 0", 2),
    ] {
        let Value::Array(answer) = ask(line) else { panic!("{line}") };
        assert_eq!(answer.len(), len, "{line}: {answer:?}");
    }
    ask("MULTI");
    ask("TS.MGET FILTER own=y");
    let Value::Array(answers) = ask("EXEC") else { panic!("EXEC") };
    assert!(matches!(&answers[..], [Value::Error(line)] if line.starts_with(NO_SERIES)), "{answers:?}");
    // A right that comes counts from the next call on.
    set_user(&mut admin, "u %R~b*");
    assert!(matches!(ask("TS.MGET FILTER group=both"), Value::Array(found) if found.len() == 3));
}

#[test]
fn every_key_of_a_pipeline_is_checked() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    set_user(&mut admin, "short on nopass +@all ~key:*");
    set_user(&mut admin, "long on nopass +@all ~key:abcdefgh*");
    set_user(&mut admin, "reader on nopass +@all %R~key:*");
    let keys = [
        "key:abcdefghij",
        "key:abcdefgxij",
        "key:1",
        "key:",
        "kex:abcdefghij",
        "key",
        "",
        "key:00001",
        "kez:00001",
        "k",
        "key:abcdefgh",
        "other:key:1",
    ];
    for (user, prefix, writes) in
        [("short", "key:", true), ("long", "key:abcdefgh", true), ("reader", "key:", false)]
    {
        let mut client = login(&server, user);
        // Calls of one command that follow each other, then by turns.
        let runs =
            keys.iter().map(|key| vec!["GET", key]).chain(keys.iter().map(|key| vec!["SET", key, "x"]));
        let turns = keys.iter().flat_map(|key| [vec!["SET", key, "x"], vec!["GET", key]]);
        let calls: Vec<Vec<&str>> = runs.chain(turns).collect();
        let borrowed: Vec<&[&str]> = calls.iter().map(Vec::as_slice).collect();
        client.send_all(&borrowed);
        for call in &calls {
            let is_allowed = call[1].starts_with(prefix) && (writes || call[0] == "GET");
            let answer = client.read();
            let is_refused = matches!(&answer, Value::Error(text) if text.starts_with(NO_KEY));
            assert_eq!(is_refused, !is_allowed, "{user}: {call:?}: {answer:?}");
        }
    }
}

#[test]
fn keys_that_begin_alike_are_checked_up_to_the_first_that_does_not() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    for rules in
        ["near on nopass +@all ~key:*", "far on nopass +@all ~key:00000000*", "two on nopass +@all ~a ~key:*"]
    {
        set_user(&mut admin, rules);
    }
    for user in ["near", "far", "two"] {
        let mut client = login(&server, user);
        for verb in ["GET", "SET"] {
            // All of one length; a stranger's key first, last, among the others, and where a pipeline is cut.
            let keys: Vec<String> = (0..100)
                .map(|n| {
                    format!("{}:{n:012}", if [0, 7, 8, 31, 32, 33, 99].contains(&n) { "kez" } else { "key" })
                })
                .collect();
            let calls: Vec<Vec<&str>> = keys
                .iter()
                .map(|key| [verb, key].into_iter().chain((verb == "SET").then_some("x")).collect())
                .collect();
            client.send_all(&calls.iter().map(Vec::as_slice).collect::<Vec<_>>());
            for call in &calls {
                let answer = client.read();
                let is_refused = matches!(&answer, Value::Error(text) if text.starts_with(NO_KEY));
                assert_eq!(is_refused, call[1].starts_with("kez"), "{user}: {call:?}: {answer:?}");
            }
        }
        // What the user does to itself in the middle counts for what follows, however alike.
        let rules = ["ACL", "SETUSER", user, "resetkeys", "~other:*"];
        let get: &[&str] = &["GET", "key:000000000001"];
        client.send_all(&[get, get, &rules, get, get, get]);
        let answers: Vec<Value> = (0..6).map(|_| client.read()).collect();
        assert_eq!(answers[..3], [Value::Text("x".into()), Value::Text("x".into()), Value::ok()], "{user}");
        for answer in &answers[3..] {
            assert!(matches!(answer, Value::Error(text) if text.starts_with(NO_KEY)), "{user}: {answers:?}");
        }
    }
}

#[test]
fn rights_count_from_the_next_command_on() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut admin = server.client();
    let mut default = server.client();
    assert_eq!(default.call(&["SET", "k", "v"]), Value::ok());
    // The own connection in one pipeline, and others after the reply.
    admin.send_all(&[&["ACL", "SETUSER", "default", "-get"], &["GET", "k"]]);
    assert_eq!(admin.read(), Value::ok());
    let refused = "NOPERM User default has no permissions to run the 'get' command";
    assert_eq!(text(admin.read()), refused);
    for _ in 0..8 {
        assert_eq!(text(server.client().call(&["GET", "k"])), refused);
    }
    assert_eq!(text(default.call(&["GET", "k"])), refused);
    set_user(&mut admin, "default +get");
    assert_eq!(default.call(&["GET", "k"]), Value::Text("v".into()));
}

#[test]
fn transactions_are_checked_when_they_are_queued_and_when_they_run() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +@all ~a*");
    let mut client = login(&server, "u");
    assert_eq!(client.call(&["MULTI"]), Value::ok());
    assert_eq!(text(client.call(&["SET", "b", "x"])), NO_KEY);
    assert!(text(client.call(&["EXEC"])).starts_with("EXECABORT"));
    assert_eq!(logged(&mut admin, "context"), "multi");
    assert_eq!(client.call(&["MULTI"]), Value::ok());
    client.call(&["SET", "a1", "x"]);
    client.call(&["GET", "a1"]);
    set_user(&mut admin, "u -get");
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("no replies") };
    assert_eq!(replies[0], Value::ok());
    assert_eq!(
        text(replies[1].clone()),
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: no permission to execute the command or subcommand"
    );
    set_user(&mut admin, "u -exec");
    client.call(&["MULTI"]);
    assert!(text(client.call(&["EXEC"])).starts_with("EXECABORT Transaction discarded because of: NOPERM"));
}

#[test]
fn a_wait_that_is_not_allowed_any_more_ends_with_an_error() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +@all ~*");
    for key in ["l1", "l2", "l3", "l4"] {
        set_user(&mut admin, "u ~*");
        let mut client = login(&server, "u");
        client.send_all(&[&["BLPOP", key, "0"]]);
        let began = Instant::now();
        while !text(admin.call(&["INFO", "clients"])).contains("blocked_clients:1") {
            assert!(began.elapsed() < crate::harness::PATIENCE, "it does not wait");
        }
        set_user(&mut admin, "u resetkeys");
        assert_eq!(admin.call(&["RPUSH", key, "x"]), Value::Int(1));
        assert_eq!(text(client.read()), NO_KEY);
        assert_eq!(admin.call(&["LLEN", key]), Value::Int(1));
    }
}

#[test]
fn clients_of_a_user_that_is_removed_are_closed() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +@all ~* &*");
    let mut clients: Vec<Client> = (0..6).map(|_| login(&server, "u")).collect();
    assert_eq!(admin.call(&["ACL", "DELUSER", "u", "nobody"]), Value::Int(1));
    assert!(!text(admin.call(&["CLIENT", "LIST"])).contains("user=u "));
    assert!(clients.iter_mut().all(Client::is_closed));
    assert_eq!(text(admin.call(&["ACL", "DELUSER", "default"])), "ERR The 'default' user cannot be removed");
    // One's own reply still comes.
    set_user(&mut admin, "v on nopass +@all");
    let mut own = login(&server, "v");
    assert_eq!(own.call(&["ACL", "DELUSER", "v"]), Value::Int(1));
    assert!(own.is_closed());
}

#[test]
fn subscribers_are_closed_when_a_channel_is_withdrawn() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut admin = server.client();
    for (begin, name, rules, stays) in [
        ("SUBSCRIBE", "foo:1", "resetchannels", false),
        ("SSUBSCRIBE", "foo:1", "resetchannels &foo:2", false),
        ("PSUBSCRIBE", "bar:*", "resetchannels &bar:1", false),
        ("SUBSCRIBE", "foo:1", "resetchannels &foo:1 &bar:*", true),
        ("PSUBSCRIBE", "bar:*", "allchannels", true),
    ] {
        set_user(&mut admin, "u reset on nopass +@all &foo:1 &bar:*");
        let mut client = login(&server, "u");
        client.call(&[begin, name]);
        set_user(&mut admin, &format!("u {rules}"));
        let list = text(admin.call(&["CLIENT", "LIST"]));
        assert_eq!(list.contains("user=u "), stays, "{begin} {name}, then {rules}: {list}");
        if stays {
            assert_eq!(client.call(&["PING"]), Value::array(&["pong", ""]));
            admin.call(&["ACL", "DELUSER", "u"]);
        }
        assert!(client.is_closed(), "{begin} {name}, then {rules}");
    }
}

#[test]
fn what_is_published_after_a_channel_is_withdrawn_is_not_heard() {
    let server = Server::start(&["--proactor_threads", "2"]);
    let mut admin = server.client();
    for round in 0..20 {
        set_user(&mut admin, "u reset on nopass +@all &foo:1");
        let mut client = login(&server, "u");
        client.call(&["SUBSCRIBE", "foo:1"]);
        let publish = ["PUBLISH", "foo:1", "secret"];
        admin.send_all(&[&["ACL", "SETUSER", "u", "resetchannels"], &publish, &publish]);
        assert_eq!(admin.read(), Value::ok());
        let _receivers = (admin.read(), admin.read());
        assert!(client.is_closed(), "round {round}: it heard something");
    }
}

#[test]
fn logins_are_checked_counted_and_logged() {
    let server = Server::start(&["--requirepass", "first"]);
    let mut admin = server.client();
    assert!(text(admin.call(&["ACL", "WHOAMI"])).starts_with("NOAUTH"));
    assert_eq!(admin.call(&["AUTH", "first"]), Value::ok());
    set_user(&mut admin, "u on >secret >other +@all ~*");
    let mut client = server.client();
    let wrong = "WRONGPASS invalid username-password pair or user is disabled.";
    for password in ["", "first", "secre", "secretsecret"] {
        assert_eq!(text(client.call(&["AUTH", "u", password])), wrong);
    }
    assert_eq!(text(client.call(&["HELLO", "3", "AUTH", "nobody", "secret"])), wrong);
    assert_eq!((logged(&mut admin, "reason"), logged(&mut admin, "object")), ("auth".into(), "HELLO".into()));
    assert_eq!(logged(&mut admin, "username"), "nobody");
    assert!(text(admin.call(&["INFO", "stats"])).contains("acl_access_denied_auth:5\r\n"));
    assert!(matches!(client.call(&["HELLO", "2", "AUTH", "u", "other"]), Value::Array(_)));
    assert_eq!(client.call(&["ACL", "WHOAMI"]), Value::Text("u".into()));
    assert_eq!(client.call(&["RESET"]), Value::Status("RESET".into()));
    assert!(text(client.call(&["GET", "k"])).starts_with("NOAUTH"));
    // The default user's password by either way.
    assert_eq!(admin.call(&["CONFIG", "SET", "requirepass", "second"]), Value::ok());
    assert_eq!(text(client.call(&["AUTH", "first"])), wrong);
    assert_eq!(client.call(&["AUTH", "second"]), Value::ok());
    set_user(&mut admin, "default >third");
    assert_eq!(client.call(&["AUTH", "third"]), Value::ok());
    set_user(&mut admin, "default off");
    assert_eq!(text(client.call(&["AUTH", "third"])), wrong);
    assert!(text(server.client().call(&["PING"])).starts_with("NOAUTH"));
}

#[test]
fn the_log_groups_what_is_alike() {
    let server = Server::start(&["--acllog_max_len", "3"]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +get +eval ~a*");
    let mut client = login(&server, "u");
    for _ in 0..5 {
        client.call(&["GET", "b"]);
    }
    assert_eq!((logged(&mut admin, "count"), logged(&mut admin, "object")), ("5".into(), "b".into()));
    assert!(logged(&mut admin, "client-info").contains("cmd=get user=u "));
    client.call(&["EVAL", "return redis.call('get', 'b')", "0"]);
    assert_eq!((logged(&mut admin, "count"), logged(&mut admin, "context")), ("1".into(), "lua".into()));
    for key in ["c", "d", "e", "f"] {
        client.call(&["GET", key]);
    }
    let Value::Array(entries) = admin.call(&["ACL", "LOG"]) else { panic!("no log") };
    assert_eq!(entries.len(), 3);
    assert_eq!(admin.call(&["ACL", "LOG", "RESET"]), Value::ok());
    assert_eq!(admin.call(&["ACL", "LOG"]), Value::Array(Vec::new()));
}

#[test]
fn users_are_kept_in_files() {
    let dir = std::env::temp_dir().join(format!("darter-acl-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let path = dir.join("users.acl");
    std::fs::write(&path, "user alice on >alice +@all ~*\nuser bob on nopass (+get ~b*)\n").expect("a file");
    let dir_flag = dir.to_str().expect("a plain path");
    let server = Server::start(&["--dir", dir_flag, "--aclfile", "users.acl"]);
    let mut admin = server.client();
    assert_eq!(admin.call(&["ACL", "USERS"]), Value::array(&["alice", "bob", "default"]));
    let mut alice = server.client();
    assert_eq!(alice.call(&["AUTH", "alice", "alice"]), Value::ok());
    set_user(&mut admin, "carol on >pw +get");
    assert_eq!(admin.call(&["ACL", "SAVE"]), Value::ok());
    set_user(&mut admin, "dave on nopass +@all");
    let mut dave = login(&server, "dave");
    assert_eq!(admin.call(&["ACL", "LOAD"]), Value::ok());
    assert!(dave.is_closed());
    assert_eq!(alice.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(admin.call(&["ACL", "USERS"]), Value::array(&["alice", "bob", "carol", "default"]));
    let saved = std::fs::read_to_string(&path).expect("the file");
    assert!(
        saved.contains(
            "user bob on nopass sanitize-payload resetchannels -@all (~b* resetchannels -@all +get)"
        )
    );
    std::fs::write(&path, "user alice on nonsense\n").expect("a file");
    assert!(text(admin.call(&["ACL", "LOAD"])).contains("Syntax error"));
    assert_eq!(alice.call(&["GET", "k"]), Value::Text("v".into()));
    std::fs::remove_file(&path).expect("removed");
    assert!(text(admin.call(&["ACL", "LOAD"])).starts_with("ERR Error loading ACLs, opening file"));
    drop(server);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn users_of_the_configuration_survive_a_rewrite() {
    let dir = std::env::temp_dir().join(format!("darter-acl-conf-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let path = dir.join("darter.conf");
    std::fs::write(&path, "# users\nuser default on nopass ~* +@all -flushdb\nuser u on >pw +get\n")
        .expect("a file");
    let conf = path.to_str().expect("a plain path");
    let start = || Server::start_with_file(Some(conf), &[]);
    let server = start();
    let mut client = server.client();
    assert!(text(client.call(&["FLUSHDB"])).starts_with("NOPERM"));
    assert_eq!(text(client.call(&["SUBSCRIBE", "c"])), NO_CHANNEL);
    set_user(&mut client, "v on nopass +@read ~x");
    assert_eq!(client.call(&["CONFIG", "REWRITE"]), Value::ok());
    drop(server);
    let server = start();
    let mut client = server.client();
    assert!(text(client.call(&["FLUSHDB"])).starts_with("NOPERM"));
    assert_eq!(client.call(&["ACL", "USERS"]), Value::array(&["default", "u", "v"]));
    assert_eq!(client.call(&["AUTH", "u", "pw"]), Value::ok());
    drop(server);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn what_a_check_asks_for_is_what_a_command_touches() {
    // A rename, a store and an unknown number of keys: the key that is not allowed comes last or first.
    let server = Server::start(&[]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +@all ~a*");
    let mut client = login(&server, "u");
    for call in [
        "RENAME a1 b1",
        "RENAME b1 a1",
        "SORT a1 STORE b1",
        "ZUNIONSTORE b1 1 a1",
        "ZUNIONSTORE a1 2 a1 b1",
        "GEOSEARCHSTORE a1 b1 FROMLONLAT 1 1 BYRADIUS 1 m",
        "GEORADIUS a1 1 1 1 m STORE b1",
        "LMPOP 2 a1 b1 LEFT",
        "XREAD STREAMS a1 b1 0 0",
        "XREADGROUP GROUP g c STREAMS a1 b1 > >",
        "BITOP AND a1 a2 b1",
        "PFMERGE a1 b1",
        "SINTERCARD 2 a1 b1",
        "MSET a1 x b1 y",
        "BLPOP a1 b1 1",
        "COPY a1 b1",
        "LMOVE a1 b1 LEFT LEFT",
        "SMOVE a1 b1 x",
        "OBJECT ENCODING b1",
        "MEMORY USAGE b1",
        "WATCH a1 b1",
        "DEL a1 b1",
        "EXISTS a1 b1",
        "TOUCH b1",
        "XINFO STREAM b1",
        "ZMPOP 1 b1 MIN",
        "ZRANGESTORE a1 b1 0 -1",
        "SDIFFSTORE a1 a2 b1",
        "EVALSHA x 2 a1 b1",
        "LCS a1 b1",
        "RESTORE b1 0 x",
    ] {
        let words: Vec<&str> = call.split(' ').collect();
        assert_eq!(text(client.call(&words)), NO_KEY, "{call}");
    }
}

#[test]
fn rights_in_a_database_end_there() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +@all ~* $1");
    let mut client = login(&server, "u");
    let refused = "NOPERM No permissions to access database";
    // Who may not stay where he is begins in the first database that is his.
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(admin.call(&["EXISTS", "k"]), Value::Int(0));
    assert_eq!(admin.call(&["SELECT", "1"]), Value::ok());
    assert_eq!(admin.call(&["EXISTS", "k"]), Value::Int(1));
    set_user(&mut admin, "w on nopass +@all ~*");
    let mut other = login(&server, "w");
    set_user(&mut admin, "w $1");
    assert_eq!(text(other.call(&["GET", "k"])), refused);
    assert_eq!(other.call(&["SELECT", "1"]), Value::ok());
    assert_eq!(other.call(&["DEL", "k"]), Value::Int(1));
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(text(client.call(&["SELECT", "0"])), refused);
    assert_eq!(text(client.call(&["FLUSHALL"])), refused);
    assert_eq!(text(client.call(&["COPY", "k", "x", "DB", "0"])), refused);
    let script = "redis.call('select', 0) return 1";
    assert!(text(client.call(&["EVAL", script, "0"])).starts_with("ERR ACL failure in script"));
    assert_eq!(logged(&mut admin, "reason"), "database");
}

#[test]
fn databases_of_valkeys_list_are_gone_between() {
    let server = Server::start(&[]);
    let mut admin = server.client();
    set_user(&mut admin, "u on nopass +@all ~* db=1,2");
    let mut client = login(&server, "u");
    let refused = "NOPERM No permissions to access database";
    // Nobody is taken elsewhere.
    assert_eq!(text(client.call(&["GET", "k"])), refused);
    assert_eq!(client.call(&["SELECT", "1"]), Value::ok());
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(client.call(&["MOVE", "k", "2"]), Value::Int(1));
    assert_eq!(client.call(&["SWAPDB", "1", "2"]), Value::ok());
    assert_eq!(text(client.call(&["MOVE", "k", "3"])), refused);
    assert_eq!(logged(&mut admin, "object"), "3");
    assert_eq!(text(client.call(&["SELECT", "99"])), "ERR DB index is out of range");
    assert_eq!(
        text(admin.call(&["ACL", "DRYRUN", "u", "SELECT", "7"])),
        "User u has no permissions to access database 7"
    );
    assert!(text(admin.call(&["INFO", "stats"])).contains("acl_access_denied_db:2\r\n"));
    // In a transaction it counts where its SELECT leads to.
    set_user(&mut admin, "w on nopass (db=0 +@all -@read ~*) (db=2 +@all -@write ~*)");
    let mut client = login(&server, "w");
    assert_eq!(client.call(&["MULTI"]), Value::ok());
    for call in
        [&["SET", "k", "v"][..], &["SELECT", "2"], &["GET", "k"], &["SELECT", "0"], &["SET", "l", "v"]]
    {
        assert_eq!(client.call(call), Value::Status("QUEUED".to_owned()), "{call:?}");
    }
    let Value::Array(replies) = client.call(&["EXEC"]) else { panic!("an array") };
    assert!(
        replies.len() == 5 && replies.iter().all(|reply| !matches!(reply, Value::Error(_))),
        "{replies:?}"
    );
    // Beside MULTI nothing is remembered of it.
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(client.call(&["MULTI"]), Value::ok());
    assert_eq!(client.call(&["SELECT", "2"]), Value::Status("QUEUED".to_owned()));
    assert_eq!(client.call(&["DISCARD"]), Value::ok());
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
}
