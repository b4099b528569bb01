//! A server whose `--dir` is a bucket, against moto's server. Skipped with a message where `moto_server` is not in the
//! path (`pip install 'moto[server]'`).
#![cfg(feature = "cloud")]

mod harness;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Client, Server, Value};

struct Moto {
    process: Child,
    port: u16,
}

impl Moto {
    fn start() -> Option<Moto> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
        let process = Command::new("moto_server")
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let moto = Moto { process, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < harness::PATIENCE, "moto_server does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(moto)
    }

    /// The answer to a request without a body. Moto may reset a connection before or after it has answered, so it is asked
    /// again where there is none: a bucket is then made or deleted twice.
    fn request(&self, line: &str) -> String {
        let head =
            format!("{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        let ask = || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(harness::PATIENCE))?;
            stream.write_all(head.as_bytes())?;
            let mut answer = Vec::new();
            let ended = stream.read_to_end(&mut answer);
            if answer.is_empty() {
                Err(ended.err().unwrap_or(ErrorKind::UnexpectedEof.into()))
            } else {
                Ok(answer)
            }
        };
        let began = Instant::now();
        loop {
            match ask() {
                Ok(answer) => return String::from_utf8_lossy(&answer).into_owned(),
                Err(error) => assert!(began.elapsed() < harness::PATIENCE, "{line}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn server(&self, flags: &[&str]) -> Server {
        let env =
            [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")];
        let endpoint = format!("127.0.0.1:{}", self.port);
        let own = ["--dir", "s3://bucket/some/where", "--s3_endpoint", &endpoint, "--s3_use_https", "false"];
        Server::start_with_env(&env, &[&own, flags].concat())
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn digest(client: &mut Client) -> Value {
    client.call(&["DEBUG", "DIGEST"])
}

#[test]
fn snapshots_go_to_a_bucket_and_the_newest_comes_back() {
    let Some(moto) = Moto::start() else {
        eprintln!("SKIPPED: moto_server is not installed (pip install 'moto[server]')");
        return;
    };
    assert!(moto.request("PUT /bucket").starts_with("HTTP/1.1 200"));
    let flags = ["--dbfilename", "dump-{timestamp}", "--enable_debug_command", "yes"];
    let server = moto.server(&flags);
    let mut client = server.client();
    assert_eq!(client.call(&["CONFIG", "GET", "dir"]), Value::array(&["dir", "s3://bucket/some/where"]));
    // Several parts of an upload.
    assert_eq!(client.call(&["DEBUG", "POPULATE", "40000", "key", "1000", "RAND"]), Value::ok());
    assert_eq!(client.call(&["SAVE"]), Value::ok());
    client.call(&["SET", "later", "x"]);
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(client.call(&["BGSAVE"]), Value::Status("Background saving started".to_owned()));
    let began = Instant::now();
    loop {
        let Value::Text(info) = client.call(&["INFO", "persistence"]) else { panic!("no text") };
        if info.contains("rdb_bgsave_in_progress:0") {
            assert!(info.contains("rdb_last_bgsave_status:ok") && info.contains("rdb_saves:2"), "{info}");
            break;
        }
        assert!(began.elapsed() < harness::PATIENCE, "{info}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(moto.request("GET /bucket?list-type=2").matches("<Key>some/where/dump-").count(), 2);
    let before = digest(&mut client);
    drop((client, server));
    let server = moto.server(&flags);
    let mut client = server.client().loaded();
    assert_eq!(digest(&mut client), before);
    assert_eq!(client.call(&["GET", "later"]), Value::Text("x".to_owned()));
    // The journal stays on this machine, and so does a copy for a client on its way.
    let Value::Error(refusal) = client.call(&["CONFIG", "SET", "appendonly", "yes"]) else {
        panic!("no error")
    };
    assert!(refusal.contains("--dir is in an object store"), "{refusal}");
    client.stream().write_all(b"SYNC\r\n").expect("sent");
    let line = client.read_line();
    assert!(line.trim_start().starts_with('$'), "{line}");
}

#[test]
fn a_bucket_that_is_not_there_is_told() {
    let Some(moto) = Moto::start() else { return };
    assert!(moto.request("PUT /bucket").starts_with("HTTP/1.1 200"));
    let server = moto.server(&["--dbfilename", "dump"]);
    let gone = moto.request("DELETE /bucket");
    assert!(["HTTP/1.1 204", "HTTP/1.1 404"].iter().any(|line| gone.starts_with(line)), "{gone}");
    let mut client = server.client();
    client.call(&["SET", "a", "1"]);
    let Value::Error(why) = client.call(&["SAVE"]) else { panic!("no error") };
    assert!(why.contains("s3://bucket/some/where") && why.contains("bucket"), "{why}");
    let Value::Text(info) = client.call(&["INFO", "persistence"]) else { panic!("no text") };
    assert!(info.contains("rdb_last_bgsave_status:err"), "{info}");
    assert_eq!(client.call(&["GET", "a"]), Value::Text("1".to_owned()));
}
