//! What a new user meets in the first hour, and an operator on the first day: files of Redis that are looked at before the
//! move, what MEMORY DOCTOR says after it, and a console that only shows.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use crate::harness::folder::Folder;
use crate::harness::{PATIENCE, Server, Value};

/// Exit code of `darter --check` and what it printed.
fn check(path: &Path) -> (Option<i32>, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_darter")).arg("--check").arg(path).output().expect("it runs");
    (out.status.code(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

const SET: &str = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";

#[test]
fn append_only_folders_of_redis_are_checked() {
    // The base is one that this server writes for Redis.
    let folder = Folder::new("first-aof");
    let server = Server::start(&["--dir", folder.text()]);
    let mut client = server.client();
    client.call(&["SET", "a", "1"]);
    client.call(&["BACKUP", "START"]);
    crate::harness::wait_until(
        "the backup has its snapshot",
        || matches!(client.call(&["BACKUP", "LIST"]), Value::Array(files) if files.len() == 1),
    );
    client.call(&["SET", "b", "2"]);
    assert_eq!(client.call(&["BACKUP", "SEAL"]), Value::ok());
    let dir = folder.path().join("backupdir");
    let manifest = dir.join("appendonly.aof.manifest");
    for path in [&dir, &manifest] {
        let (code, said) = check(path);
        assert!(code == Some(0) && said.ends_with("result     good\n"), "{code:?} {said}");
        assert!(said.contains("commands 1, 0 transactions") && said.contains("1 keys"), "{said}");
    }
    let increment = dir.join("appendonly.aof.1.incr.aof");
    let whole = std::fs::read(&increment).expect("readable");
    std::fs::write(&increment, &whole[..whole.len() - 3]).expect("written");
    let (code, said) = check(&dir);
    assert!(code == Some(1) && said.contains("result     cut off: loads without its end"), "{code:?} {said}");
    std::fs::write(&increment, [&whole[..], b"rubbish\r\n", &whole[..]].concat()).expect("written");
    let (code, said) = check(&dir);
    assert!(code == Some(1) && said.ends_with("result     damaged\n"), "{code:?} {said}");
    std::fs::remove_file(&increment).expect("removed");
    let (code, said) = check(&dir);
    assert!(code == Some(1) && said.contains("result     damaged"), "{code:?} {said}");
    std::fs::write(&manifest, "file a seq").expect("written");
    let (code, said) = check(&manifest);
    assert!(code == Some(1) && said.contains("a line of the manifest"), "{code:?} {said}");
    // A folder with neither, and one file of a version before 7.
    let empty = Folder::new("first-empty");
    let (code, said) = check(empty.path());
    assert!(
        code == Some(1) && said.contains("no journal of Darter, and no manifest of Redis"),
        "{code:?} {said}"
    );
    let single = empty.path().join("appendonly.aof");
    std::fs::write(&single, SET.repeat(3)).expect("written");
    let (code, said) = check(&single);
    assert!(code == Some(0) && said.contains("commands 3"), "{code:?} {said}");
    assert_eq!(check(&empty.path().join("missing.aof")).0, Some(1));
}

#[test]
fn commands_behind_the_snapshot_of_an_old_append_only_file_are_loaded() {
    // Redis 4 to 6 writes one file: an RDB file, and commands behind it.
    let folder = Folder::new("first-preamble");
    let server = Server::start(&["--dir", folder.text(), "--dbfilename", "dump.rdb"]);
    server.client().call(&["SET", "a", "1"]);
    assert_eq!(server.client().call(&["SAVE"]), Value::ok());
    drop(server);
    let rdb = std::fs::read(folder.path().join("dump.rdb")).expect("readable");
    std::fs::remove_file(folder.path().join("dump.rdb")).expect("removed");
    std::fs::write(folder.path().join("appendonly.aof"), [&rdb[..], SET.as_bytes()].concat())
        .expect("written");
    let server = Server::start(&["--dir", folder.text(), "--appendonly", "yes"]);
    assert_eq!(
        server.client().loaded().call(&["MGET", "a", "k"]),
        Value::Array(vec![Value::Text("1".to_owned()), Value::Text("v".to_owned())])
    );
}

#[test]
fn the_doctor_finds_nothing_after_a_load() {
    let folder = Folder::new("first-doctor");
    let flags = ["--dir", folder.text(), "--dbfilename", "dump.rdb", "--enable-debug-command", "yes"];
    let server = Server::start(&flags);
    let mut client = server.client();
    assert!(
        matches!(client.call(&["MEMORY", "DOCTOR"]), Value::Text(said) if said.contains("hardly any data"))
    );
    // Some 10 MB: the program's own pages are as much again.
    assert_eq!(client.call(&["DEBUG", "POPULATE", "80000", "key", "100"]), Value::ok());
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    drop(server);
    let server = Server::start(&flags);
    let mut client = server.client().loaded();
    assert_eq!(client.call(&["DBSIZE"]), Value::Int(80_000));
    // What the load has used is given back by and by.
    let mut said = Value::Null;
    crate::harness::wait_until("nothing unusual is found", || {
        said = client.call(&["MEMORY", "DOCTOR"]);
        said == Value::Text("Nothing unusual was found.\n".to_owned())
    });
}

/// Status line and body of a request of the console.
fn console(port: u16, commands: &str) -> (String, String) {
    let body = format!("{{\"commands\":{commands}}}");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let head = format!(
        "POST /api/command HTTP/1.0\r\nHost: localhost:{port}\r\nX-Darter-Console: 1\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).expect("sent");
    let mut said = String::new();
    let _ = socket.read_to_string(&mut said);
    let (head, body) = said.split_once("\r\n\r\n").expect("a head");
    (head.lines().next().unwrap_or_default().to_owned(), body.to_owned())
}

#[test]
fn a_console_that_only_shows_changes_nothing() {
    let server = Server::start(&["--http_console_readonly"]);
    let mut client = server.client();
    client.call(&["SET", "k", "v"]);
    client.call(&["RPUSH", "list", "a"]);
    let refused = [
        r#"["SET","k","w"]"#,
        r#"["DEL","k"]"#,
        r#"["GETDEL","k"]"#,
        r#"["EXPIRE","k","1"]"#,
        r#"["LPOP","list"]"#,
        r#"["FLUSHALL"]"#,
        r#"["SHUTDOWN","NOSAVE"]"#,
        r#"["CONFIG","SET","maxmemory","1gb"]"#,
        r#"["CLIENT","KILL","TYPE","normal"]"#,
        r#"["SLOWLOG","RESET"]"#,
        r#"["LATENCY","RESET"]"#,
        r#"["EVAL","return redis.call('DEL','k')","0"]"#,
        r#"["FUNCTION","FLUSH"]"#,
        r#"["SAVE"]"#,
        r#"["BACKUP","START"]"#,
        r#"["HOTKEYS","START","METRICS","1","CPU"]"#,
        r#"["ACL","SETUSER","x","on"]"#,
        r#"["PUBLISH","c","m"]"#,
        r#"["DEBUG","SLEEP","0"]"#,
        r#"["REPLICAOF","NO","ONE"]"#,
        r#"["MEMORY","PURGE"]"#,
    ];
    for command in refused {
        let (status, said) = console(server.port(), &format!("[{command}]"));
        assert!(
            status.contains("200") && said.contains("READONLY this console changes nothing"),
            "{command}: {said}"
        );
    }
    let shown = [
        r#"["GET","k"]"#,
        r#"["SCAN","0"]"#,
        r#"["TYPE","k"]"#,
        r#"["OBJECT","ENCODING","k"]"#,
        r#"["MEMORY","USAGE","k"]"#,
        r#"["LRANGE","list","0","-1"]"#,
        r#"["DBSIZE"]"#,
        r#"["INFO"]"#,
        r#"["CLIENT","LIST"]"#,
        r#"["SLOWLOG","GET"]"#,
        r#"["CONFIG","GET","maxmemory"]"#,
        r#"["LATENCY","LATEST"]"#,
        r#"["LATENCY","HISTORY","command"]"#,
        r#"["COMMAND","DOCS","get"]"#,
        r#"["COMMAND"]"#,
        r#"["PING"]"#,
        r#"["MEMORY","DOCTOR"]"#,
    ];
    for command in shown {
        let (status, said) = console(server.port(), &format!("[{command}]"));
        assert!(status.contains("200") && !said.contains("\"error\""), "{command}: {said}");
    }
    assert_eq!(client.call(&["GET", "k"]), Value::Text("v".to_owned()));
    assert_eq!(client.call(&["LLEN", "list"]), Value::Int(1));
    // It is not for a client to lift.
    assert!(matches!(client.call(&["CONFIG", "SET", "http_console_readonly", "no"]), Value::Error(_)));
}
