//! HTTP on the main port and the admin port: health, the console's API, and everything that must be refused.

use std::io::{BufRead, Read, Write};
use std::time::{Duration, Instant};

use crate::harness::browser::{Browser, CONSOLE, sample};
use crate::harness::{Server, Value, free_port, wait_until};

#[test]
fn health_and_pages_are_served_and_other_paths_are_not() {
    let server = Server::start(&[]);
    let mut browser = Browser::to(server.port());
    for (path, status) in [
        ("/healthz", 200),
        ("/readyz", 200),
        ("/metrics", 200),
        ("/", 200),
        ("/console.js", 200),
        ("/console.css", 200),
        ("/favicon.ico", 200),
        ("/nothing", 404),
        ("/api", 404),
        ("/../etc/passwd", 404),
        ("/api/command", 405),
    ] {
        let answer = browser.get(path, "");
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
        assert!(answer.headers["content-security-policy"].contains("default-src 'none'"));
    }
    assert_eq!(browser.post("/metrics", "", "").status, 405);
    browser.send(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let head = browser.try_read(true).expect("an answer");
    assert!(head.headers["content-length"].parse::<usize>().expect("a length") > 1000);
    browser.send(b"OPTIONS /api/command HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(browser.read().status, 405);
    browser.send(b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(browser.read().body, "OK\n");
    assert!(browser.is_closed());
}

#[test]
fn a_server_that_loads_lives_but_is_not_ready() {
    let folder = std::env::temp_dir().join(format!("darter-http-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let dir = folder.to_str().expect("a plain name");
    let flags = ["--dir", dir, "--dbfilename", "dump", "--enable_debug_command", "yes"];
    let server = Server::start(&flags);
    let mut client = server.client();
    assert_eq!(client.call(&["DEBUG", "POPULATE", "1000", "key", "50"]), Value::ok());
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    drop(server);
    // A minute for each key, until the setting says otherwise.
    let server = Server::start_loading(&[&flags[..], &["--key-load-delay", "60000000"]].concat());
    let mut browser = Browser::to(server.port());
    assert_eq!(browser.get("/readyz", "").status, 503);
    assert_eq!(browser.get("/healthz", "").status, 200);
    assert_eq!(server.client().call(&["CONFIG", "SET", "key-load-delay", "0"]), Value::ok());
    let began = Instant::now();
    while browser.get("/readyz", "").status != 200 {
        assert!(began.elapsed() < crate::harness::PATIENCE);
        assert_eq!(browser.get("/healthz", "").status, 200);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(server.client().call(&["DBSIZE"]), Value::Int(1000));
    let _ = std::fs::remove_dir_all(&folder);
}

/// The text of the console's script and of every script that it imports.
fn scripts(browser: &mut Browser) -> String {
    let mut paths = vec!["/console.js".to_owned()];
    let mut text = String::new();
    let mut at = 0;
    while let Some(path) = paths.get(at).cloned() {
        let answer = browser.get(&path, "");
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.headers["content-type"], "text/javascript; charset=utf-8");
        for line in answer.body.lines().filter(|line| line.starts_with("import ")) {
            let name = line.rsplit('/').next().expect("a path").trim_end_matches(['"', ';']);
            let found = format!("/console/{name}");
            if !paths.contains(&found) {
                paths.push(found);
            }
        }
        text.push_str(&answer.body);
        at += 1;
    }
    assert!(paths.len() > 10, "{paths:?}");
    text
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let server = Server::start(&[]);
    let mut browser = Browser::to(server.port());
    let parts: String = ["/", "/console.css", "/icon.svg"].map(|path| browser.get(path, "").body).concat()
        + &scripts(&mut browser);
    let urls: Vec<&str> =
        parts.match_indices("http").map(|(at, _)| &parts[at..(at + 40).min(parts.len())]).collect();
    let foreign: Vec<_> =
        urls.iter().filter(|url| url.contains("://") && !url.contains("://www.w3.org/2000/svg")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let page = browser.get("/", "").body;
    assert!(
        !page.contains("<script>") && !page.contains("style=") && !page.contains("onclick"),
        "the CSP forbids it"
    );
}

#[test]
fn requests_may_be_pipelined_and_split_anywhere() {
    let server = Server::start(&[]);
    let mut browser = Browser::to(server.port());
    let body = r#"{"commands":[["INCR","n"]]}"#;
    let post = format!(
        "POST /api/command HTTP/1.1\r\nHost: localhost\r\n{CONSOLE}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let all = format!("{post}{get}{post}{get}").repeat(10);
    browser.send(all.as_bytes());
    for n in 0..10 {
        for round in 1..=2 {
            assert!(browser.read().body.starts_with(&format!(r#"{{"replies":[{}]"#, n * 2 + round)));
            assert_eq!(browser.read().body, "OK\n");
        }
    }
    for at in 1..post.len() {
        browser.send(&post.as_bytes()[..at]);
        if at % 16 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        browser.send(&post.as_bytes()[at..]);
        assert_eq!(browser.read().status, 200, "split at {at}");
    }
}

#[test]
fn commands_run_in_order_with_their_types() {
    let server = Server::start(&[]);
    let mut browser = Browser::to(server.port());
    assert_eq!(
        browser.run(r#"[["SET","k",{"base64":"AP8="}],["GET","k"],["INCR","n"],["NOSUCH"],["GET"],["ZADD","z","1.5","m"],["ZSCORE","z","m"],["HGETALL","h"]]"#),
        r#"[{"status":"OK"},{"base64":"AP8="},1,{"error":"ERR unknown command 'NOSUCH', with args beginning with: "},{"error":"ERR wrong number of arguments for 'get' command"},1,{"double":"1.5"},{"map":[]}]"#
    );
    for word in ["MULTI", "MONITOR", "SUBSCRIBE", "HELLO", "AUTH", "QUIT", "RESET", "WATCH"] {
        let reply = browser.run(&format!(r#"[["{word}","x"]]"#));
        assert!(reply.starts_with(r#"[{"error":"ERR "#) && reply.contains("HTTP"), "{word}: {reply}");
    }
    assert!(browser.run(r#"[["CLIENT","REPLY","OFF"]]"#).contains("error"));
    // Each request begins in the database it names.
    assert_eq!(browser.run(r#"[["SELECT","3"],["SET","x","1"]]"#), r#"[{"status":"OK"},{"status":"OK"}]"#);
    assert_eq!(browser.run(r#"[["EXISTS","x"]]"#), "[0]");
    let answer = browser.post("/api/command", CONSOLE, r#"{"db":3,"commands":[["EXISTS","x"]]}"#);
    assert!(answer.body.starts_with(r#"{"replies":[1]"#), "{answer:?}");
    for wrong in ["", "[]", "{}", r#"{"commands":[["GET",null]]}"#, r#"{"db":16,"commands":[["PING"]]}"#] {
        assert_eq!(browser.post("/api/command", CONSOLE, wrong).status, 400, "{wrong}");
    }
}

#[test]
fn commands_that_wait_are_answered_when_their_time_comes() {
    let server = Server::start(&[]);
    let mut browser = Browser::to(server.port());
    assert_eq!(browser.run(r#"[["BLPOP","l","0.05"],["PING"]]"#), r#"[null,{"status":"PONG"}]"#);
    let body = r#"{"commands":[["PING"],["BLPOP","l","0"],["LLEN","l"]]}"#;
    let head = format!(
        "POST /api/command HTTP/1.1\r\nHost: localhost\r\n{CONSOLE}Content-Length: {}\r\n\r\n",
        body.len()
    );
    browser.send(format!("{head}{body}GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    let mut client = server.client();
    let began = Instant::now();
    while !matches!(client.call(&["INFO", "clients"]), Value::Text(text) if text.contains("blocked_clients:1\r\n"))
    {
        assert!(began.elapsed() < crate::harness::PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(client.call(&["RPUSH", "l", "a"]), Value::Int(1));
    let answer = browser.read();
    assert!(answer.body.starts_with(r#"{"replies":[{"status":"PONG"},["l","a"],0]"#), "{answer:?}");
    assert_eq!(browser.read().body, "OK\n", "the request behind it");
    // The pause of clients holds the console too.
    let began = Instant::now();
    assert_eq!(client.call(&["CLIENT", "PAUSE", "2000", "WRITE"]), Value::ok());
    assert_eq!(browser.run(r#"[["SET","p","1"],["GET","p"]]"#), r#"[{"status":"OK"},"1"]"#);
    // Half of it: the deadline counts from the millisecond in which the server's turn began.
    assert!(began.elapsed() >= Duration::from_millis(1000));
}

#[test]
fn replies_of_busy_shards_find_their_way() {
    let server = Server::start(&["--proactor_threads", "2", "--num_shards", "2"]);
    let port = server.port();
    let workers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut browser = Browser::to(port);
                for _ in 0..50 {
                    let reply = browser.run(r#"[["INCR","n"],["EVAL","return redis.call('GET', KEYS[1])","1","n"],["MGET","a","b"]]"#);
                    assert!(reply.ends_with(r#"",[null,null]]"#), "{reply}");
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("no failure"));
    assert_eq!(Browser::to(port).run(r#"[["GET","n"]]"#), r#"["200"]"#);
}

#[test]
fn a_password_is_asked_for_and_metrics_are_open() {
    let server = Server::start(&["--requirepass", "se:cret"]);
    let mut browser = Browser::to(server.port());
    assert_eq!(browser.get("/metrics", "").status, 200);
    assert_eq!(browser.get("/healthz", "").status, 200);
    let right = "Authorization: Basic ZGVmYXVsdDpzZTpjcmV0\r\n";
    let wrong = "Authorization: Basic ZGVmYXVsdDpzZTpjcmVU\r\n";
    let other = "Authorization: Basic cm9vdDpzZTpjcmV0\r\n";
    for path in ["/", "/console.js", "/api/stats"] {
        for bad in ["", wrong, other, "Authorization: Bearer x\r\n", "Authorization: Basic !\r\n"] {
            let answer = browser.get(path, &format!("{CONSOLE}{bad}"));
            assert_eq!(answer.status, 401, "{path} {bad}");
            assert!(answer.headers["www-authenticate"].starts_with("Basic realm="));
        }
        assert_eq!(browser.get(path, &format!("{CONSOLE}{right}")).status, 200, "{path}");
    }
    let body = r#"{"commands":[["PING"]]}"#;
    assert_eq!(browser.post("/api/command", &format!("{CONSOLE}{right}"), body).status, 200);
    // What one request brought is not lent to the next; its body is not even read.
    assert_eq!(browser.post("/api/command", CONSOLE, body).status, 401);
    assert!(browser.is_closed());
    // Under a password any name will do: no other site can have it.
    let mut browser = Browser::to(server.port());
    browser.send(format!("GET / HTTP/1.1\r\nHost: darter.example.org\r\n{right}\r\n").as_bytes());
    assert_eq!(browser.read().status, 200);
}

#[test]
fn access_rules_hold_for_what_comes_by_http() {
    let server = Server::start(&[]);
    let mut client = server.client();
    let reader = ["ACL", "SETUSER", "reader", "on", ">pw", "~app:*", "+get", "+info"];
    assert_eq!(client.call(&reader), Value::ok());
    assert_eq!(client.call(&["SET", "app:1", "v"]), Value::ok());
    let mut browser = Browser::to(server.port());
    let as_reader = format!("{CONSOLE}Authorization: Basic cmVhZGVyOnB3\r\n");
    let body = r#"{"commands":[["GET","app:1"],["GET","other"],["SET","app:1","x"],["ACL","WHOAMI"]]}"#;
    let answer = browser.post("/api/command", &as_reader, body);
    assert!(answer.body.starts_with(r#"{"replies":["v",{"error":"NOPERM "#), "{answer:?}");
    assert_eq!(answer.body.matches("NOPERM").count(), 3, "{answer:?}");
    // The next request on the same connection is the default user's again.
    assert_eq!(browser.run(r#"[["ACL","WHOAMI"]]"#), r#"["default"]"#);
    let wrong = format!("{CONSOLE}Authorization: Basic cmVhZGVyOnB4\r\n");
    assert_eq!(browser.post("/api/command", &wrong, body).status, 401);
}

#[test]
fn other_sites_are_refused() {
    let server = Server::start(&[]);
    let port = server.port();
    let body = r#"{"commands":[["SET","owned","1"]]}"#;
    for headers in [
        "Content-Type: application/json\r\n",
        "X-Darter-Console: 1\r\n",
        "X-Darter-Console: 1\r\nContent-Type: text/plain\r\n",
        "X-Darter-Console: 1\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        &format!("{CONSOLE}Origin: http://evil.example\r\n"),
        &format!("{CONSOLE}Origin: null\r\n"),
        &format!("{CONSOLE}Origin: http://localhost:1\r\n"),
        &format!("{CONSOLE}Sec-Fetch-Site: cross-site\r\n"),
        &format!("{CONSOLE}Sec-Fetch-Site: same-site\r\n"),
    ] {
        let mut browser = Browser::to(port);
        let answer = browser.post("/api/command", headers, body);
        assert!(matches!(answer.status, 403 | 415), "{headers}: {answer:?}");
        assert!(browser.is_closed(), "its body was not read");
    }
    let mut browser = Browser::to(port);
    assert_eq!(browser.get("/api/stats", "").status, 403, "a page elsewhere could load it as a script");
    assert_eq!(browser.get("/", "Sec-Fetch-Site: cross-site\r\n").status, 200, "a link is fine");
    for host in ["evil.example", "127.0.0.1.evil.example:6379", "localhost.evil.example"] {
        browser.send(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!(browser.read().status, 421, "{host}");
        browser.send(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        assert_eq!(browser.read().status, 200, "{host}: Prometheus may use any name");
    }
    assert_eq!(browser.run(r#"[["EXISTS","owned"]]"#), "[0]");
}

#[test]
fn what_could_be_smuggled_is_refused_and_the_connection_closed() {
    let server = Server::start(&[]);
    let smuggled = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    for (bytes, status) in [
        (
            format!(
                "POST /api/command HTTP/1.1\r\nHost: a\r\n{CONSOLE}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
            ),
            400,
        ),
        (
            format!(
                "POST /api/command HTTP/1.1\r\nHost: a\r\n{CONSOLE}Content-Length: 0\r\nContent-Length: 4\r\n\r\n{smuggled}"
            ),
            400,
        ),
        (
            format!(
                "POST /api/command HTTP/1.1\r\nHost: a\r\n{CONSOLE}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
            ),
            501,
        ),
        (format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n{smuggled}"), 400),
        (format!("GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello{smuggled}"), 400),
        (format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n{smuggled}"), 400),
        (format!("GET /healthz HTTP/1.1\r\nHost: a\nX: a\r\n\r\n{smuggled}"), 400),
        (format!("GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n{smuggled}"), 400),
        (format!("GET /healthz HTTP/1.1\r\n\r\n{smuggled}"), 400),
        (format!("GET /healthz HTTP/1.9\r\nHost: a\r\n\r\n{smuggled}"), 505),
        (format!("POST /api/command HTTP/1.1\r\nHost: a\r\n{CONSOLE}Content-Length: 1048577\r\n\r\n"), 413),
        (format!("GET /healthz HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(17 << 10)), 431),
        (format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: a\r\n".repeat(100)), 431),
    ] {
        let mut browser = Browser::to(server.port());
        browser.send(bytes.as_bytes());
        let answer = browser.read();
        assert_eq!(answer.status, status, "{bytes:.120?}");
        assert!(browser.is_closed(), "{bytes:.120?}");
    }
}

#[test]
fn endless_headers_hold_little_and_are_cut() {
    let server = Server::start(&[]);
    let mut browser = Browser::to(server.port());
    browser.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n");
    let mut sent = 0;
    let piece = format!("X-Header: {}\r\n", "a".repeat(4000));
    while sent < 1 << 30 && browser.reader.get_mut().write_all(piece.as_bytes()).is_ok() {
        sent += piece.len();
    }
    assert!(sent < 64 << 20, "the server goes on reading");
    assert_eq!(Browser::to(server.port()).get("/healthz", "").status, 200);
}

#[test]
fn half_requests_are_closed_after_a_while() {
    let server = Server::start(&[]);
    let mut halves: Vec<Browser> = (0..3).map(|_| Browser::to(server.port())).collect();
    halves[0].send(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ");
    halves[1].send(
        format!("POST /api/command HTTP/1.1\r\nHost: a\r\n{CONSOLE}Content-Length: 1000\r\n\r\n{{")
            .as_bytes(),
    );
    // A trickle is no excuse.
    let mut trickle = halves.pop().expect("the third");
    let began = Instant::now();
    trickle.send(b"GET /healthz HTTP/1.1\r\nHost: a\r\n");
    trickle.reader.get_ref().set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let mut byte = [0];
    loop {
        trickle.send(b"X: y\r\n");
        match trickle.reader.read(&mut byte) {
            Ok(0) => break,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            _ => assert!(began.elapsed() < crate::harness::PATIENCE, "it may go on for ever"),
        }
    }
    for half in &mut halves {
        assert!(half.is_closed());
    }
    // Ten, in whole seconds of the server's clock.
    assert!(began.elapsed() >= Duration::from_secs(8));
}

#[test]
fn switches_turn_http_off() {
    let server = Server::start(&["--primary_port_http_enabled=false"]);
    let mut browser = Browser::to(server.port());
    browser.send(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(browser.is_closed(), "as Redis does");
    let mut browser = Browser::to(server.port());
    browser.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut line = String::new();
    browser.reader.read_line(&mut line).expect("an error");
    assert!(line.starts_with("-ERR"), "{line}");

    let server = Server::start(&["--nohttp_admin_console"]);
    let mut browser = Browser::to(server.port());
    assert_eq!(browser.get("/metrics", "").status, 200);
    for path in ["/", "/console.js", "/api/stats"] {
        assert_eq!(browser.get(path, CONSOLE).status, 404, "{path}");
    }
    assert_eq!(browser.post("/api/command", CONSOLE, r#"{"commands":[["PING"]]}"#).status, 404);
}

#[test]
fn programs_may_post_a_command_when_that_is_allowed() {
    let server = Server::start(&["--expose_http_api"]);
    let mut browser = Browser::to(server.port());
    assert_eq!(browser.post("/api", "", r#"["SET","k","v"]"#).body, "{\"result\":\"OK\"}\n");
    assert_eq!(browser.post("/api", "", r#"["GET","k"]"#).body, "{\"result\":\"v\"}\n");
    assert_eq!(
        browser.post("/api", "", r#"["INCR","k"]"#).body,
        "{\"error\":\"ERR value is not an integer or out of range\"}\n"
    );
    assert_eq!(browser.post("/api", "Origin: http://evil.example\r\n", r#"["GET","k"]"#).status, 403);
}

#[test]
fn the_console_does_what_its_user_may() {
    let server = Server::start(&["--requirepass", "x"]);
    let mut admin = server.client();
    admin.call(&["AUTH", "x"]);
    admin.call(&["ACL", "SETUSER", "u", "on", ">y", "+get", "~a*"]);
    let mut browser = Browser::to(server.port());
    // u:y
    let login = format!("{CONSOLE}Authorization: Basic dTp5\r\n");
    let answer =
        browser.post("/api/command", &login, r#"{"commands":[["GET","a"],["GET","b"],["SET","a","x"]]}"#);
    let wanted = r#"[null,{"error":"NOPERM No permissions to access a key"},{"error":"NOPERM User u has no permissions to run the 'set' command"}]"#;
    assert!(answer.body.contains(wanted), "{}", answer.body);
    assert_eq!(browser.get("/api/stats", &login).status, 403);
    admin.call(&["ACL", "SETUSER", "u", "+info", "+slowlog|get", "+client|list"]);
    assert_eq!(browser.get("/api/stats", &login).status, 200);
    admin.call(&["ACL", "DELUSER", "u"]);
    let gone = Browser::to(server.port()).post("/api/command", &login, r#"{"commands":[["GET","a"]]}"#);
    assert_eq!(gone.status, 401);
}

#[test]
fn restricted_commands_run_on_the_admin_port_only() {
    let admin = free_port();
    let server = Server::start(&[
        "--admin_port",
        &admin.to_string(),
        "--admin_bind",
        "127.0.0.1",
        "--restricted_commands=FLUSHALL,config",
    ]);
    let mut client = server.client();
    let refused = Value::Error("ERR Cannot execute restricted command (admin only)".to_owned());
    assert_eq!(client.call(&["FLUSHALL"]), refused);
    assert_eq!(client.call(&["CONFIG", "GET", "port"]), refused);
    assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(client.call(&["MULTI"]), Value::ok());
    assert_eq!(client.call(&["FLUSHALL"]), refused);
    assert!(matches!(client.call(&["EXEC"]), Value::Error(_)));
    let script = client.call(&["EVAL", "return redis.call('flushall')", "0"]);
    assert!(matches!(script, Value::Error(line) if line.contains("restricted command")));
    assert_eq!(client.call(&["GET", "k"]), Value::Text("v".to_owned()));
    let mut administrator = Browser::to(admin);
    administrator.send(b"*1\r\n$8\r\nFLUSHALL\r\n");
    let mut line = String::new();
    administrator.reader.read_line(&mut line).expect("a reply");
    assert_eq!(line, "+OK\r\n");
}

#[test]
fn an_admin_port_without_an_address_is_where_bind_says() {
    let admin = free_port();
    let server = Server::start(&["--admin_port", &admin.to_string(), "--requirepass", "x", "--admin_nopass"]);
    assert_eq!(crate::harness::Client::connect(admin).call(&["PING"]), Value::Status("PONG".to_owned()));
    assert_eq!(listening_at(admin), ["0100007F"]);
    let mut client = server.client();
    assert_eq!(client.call(&["AUTH", "x"]), Value::ok());
    let refused = client.call(&["CONFIG", "SET", "bind", "0.0.0.0"]);
    assert!(matches!(&refused, Value::Error(line) if line.contains("admin_nopass")), "{refused:?}");
    assert_eq!(client.call(&["CONFIG", "SET", "protected-mode", "no"]), Value::ok());
    assert_eq!(client.call(&["CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2"]), Value::ok());
    wait_until("it follows", || listening_at(admin) == ["0100007F", "0200007F"]);
}

/// The IPv4 addresses on which somebody listens to `port`, as the kernel writes them.
fn listening_at(port: u16) -> Vec<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let end = format!(":{port:04X}");
    let mut found: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words.get(3) == Some(&"0A"))
        .filter_map(|words| words.get(1)?.strip_suffix(&end).map(str::to_owned))
        .collect();
    found.sort();
    found
}

#[test]
fn an_admin_port_without_a_password_is_on_loopback() {
    let run = |flags: &[&str]| {
        // A server that starts is ended after a while.
        let out = std::process::Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_darter")])
            .args(["--port", "0", "--dbfilename", "", "--admin_port", "6390", "--admin_nopass"])
            .args(flags)
            .output()
            .expect("it runs");
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    for flags in [
        &[][..],
        &["--bind", "127.0.0.1 0.0.0.0"],
        &["--bind", "127.0.0.1", "--admin_bind", "0.0.0.0"],
        &["--bind", "127.0.0.1", "--admin_bind", "an.example"],
    ] {
        let (code, said) = run(flags);
        assert_eq!(code, Some(1), "{flags:?}: {said}");
        assert!(said.contains("admin_nopass") && said.contains("protected-mode"), "{said}");
    }
}

#[test]
fn the_admin_port_has_room_and_rules_of_its_own() {
    let admin = free_port();
    let server = Server::start(&[
        "--admin_port",
        &admin.to_string(),
        "--admin_bind",
        "127.0.0.1",
        "--admin_nopass",
        "--requirepass",
        "x",
        "--maxclients",
        "2",
        "--primary_port_http_enabled=false",
    ]);
    let mut taken: Vec<_> = (0..2).map(|_| server.client()).collect();
    let began = Instant::now();
    // The harness' own connection may still be counted for a moment.
    let is_in = |client: &mut crate::harness::Client| match client.try_call(&["PING"]) {
        Some(Value::Error(line)) => line.starts_with("NOAUTH"),
        _ => false,
    };
    for place in &mut taken {
        while !is_in(place) {
            *place = server.client();
            assert!(began.elapsed() < crate::harness::PATIENCE);
        }
    }
    let mut refused = server.client();
    assert!(matches!(refused.read(), Value::Error(line) if line.contains("max number of clients")));
    let mut browser = Browser::to(admin);
    assert_eq!(browser.run(r#"[["PING"]]"#), r#"[{"status":"PONG"}]"#);
    let mut more: Vec<_> = (0..5).map(|_| Browser::to(admin)).collect();
    for administrator in &mut more {
        administrator.send(b"*1\r\n$4\r\nPING\r\n");
        let mut line = String::new();
        administrator.reader.read_line(&mut line).expect("a reply");
        assert_eq!(line, "+PONG\r\n");
    }
    // The one that was refused may be counted for a moment.
    let mut seen = [0.0; 2];
    wait_until("two at the main port and six at the other", || {
        let metrics = browser.get("/metrics", "").body;
        let count = |of: &str| sample(&metrics, &format!("dragonfly_connected_clients{{listener=\"{of}\"}}"));
        seen = [count("main"), count("other")];
        seen == [2.0, 6.0]
    });

    let admin = free_port();
    let _server = Server::start(&[
        "--admin_port",
        &admin.to_string(),
        "--admin_bind",
        "127.0.0.1",
        "--requirepass",
        "x",
    ]);
    assert_eq!(Browser::to(admin).get("/", "").status, 401, "without admin_nopass the password is wanted");
}
