//! A server whose `--dir` is in an object store, against programs that answer as Amazon's and Azure's do. Those
//! that are not in the path are skipped with a message.
#![cfg(feature = "cloud")]

#[path = "server/harness/mod.rs"]
mod harness;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::{Client, Server, Value};

/// A program that answers as a provider does, the container `bucket` in it.
struct Store {
    kind: &'static Kind,
    process: Child,
    port: u16,
}

/// What speaks for a provider.
struct Kind {
    program: &'static str,
    /// How to get it.
    source: &'static str,
    /// Its arguments, `PORT` in place of the port.
    args: &'static str,
    /// What Darter finds in its environment, and its flags, `PORT` as before.
    env: &'static [(&'static str, &'static str)],
    flags: &'static [&'static str],
    /// Makes the container.
    make: fn(u16) -> bool,
}

const MOTO: Kind = Kind {
    program: "moto_server",
    source: "pip install 'moto[server]'",
    args: "-H 127.0.0.1 -p PORT",
    env: &[("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_REGION", "us-east-1")],
    flags: &["--dir", "s3://bucket/some/where", "--s3_endpoint", "127.0.0.1:PORT", "--s3_use_https", "false"],
    make: |port| request(port, "PUT /bucket").starts_with("HTTP/1.1 200"),
};

const AZURITE: Kind = Kind {
    program: "azurite-blob",
    source: "npm install azurite",
    args: "--blobHost 127.0.0.1 --blobPort PORT --inMemoryPersistence --skipApiVersionCheck --silent --disableTelemetry",
    env: &[("AZURE_STORAGE_USE_EMULATOR", "true"), ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:PORT")],
    flags: &["--dir", "az://bucket/some/where"],
    make: |port| {
        let made = Command::new("node").args(["-e", MAKE_CONTAINER, &port.to_string()]).status();
        made.is_ok_and(|status| status.success())
    },
};

/// Makes a container in Azurite: a request that is signed with the key every emulator has.
const MAKE_CONTAINER: &str = r#"
const account = 'devstoreaccount1', version = '2021-12-02', date = new Date().toUTCString();
const key = 'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==';
const text = `PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:${date}\nx-ms-version:${version}\n` +
    `/${account}/${account}/bucket\nrestype:container`;
const hmac = require('crypto').createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64');
const headers = { 'x-ms-date': date, 'x-ms-version': version, authorization: `SharedKey ${account}:${hmac}` };
const options = { host: '127.0.0.1', port: process.argv[1], method: 'PUT', headers,
    path: `/${account}/bucket?restype=container` };
require('http').request(options, answer => process.exit(answer.statusCode === 201 ? 0 : 1)).end();
"#;

/// Requests of Google's XML API, which is S3's but for names of headers; fake-gcs-server (1.56) does not take them.
const GOOGLE: Kind = Kind {
    env: &[("GOOGLE_BASE_URL", "http://127.0.0.1:PORT"), ("GOOGLE_BEARER_TOKEN", "test")],
    flags: &["--dir", "gs://bucket/some/where"],
    ..MOTO
};

/// The answer to a request without a body. Moto may reset a connection before or after it has answered, so it is asked
/// again where there is none: a bucket is then made or deleted twice.
fn request(port: u16, line: &str) -> String {
    let head =
        format!("{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
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

impl Store {
    /// `None`, and a word about it, where the program is not in the path.
    fn start(kind: &'static Kind) -> Option<Store> {
        let port = harness::free_port();
        let args = kind.args.replace("PORT", &port.to_string());
        let started = Command::new(kind.program)
            .args(args.split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            eprintln!("SKIPPED: {} is not installed ({})", kind.program, kind.source);
            return None;
        };
        let store = Store { kind, process, port };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < harness::PATIENCE, "{} does not listen", kind.program);
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!((kind.make)(port), "{} makes no container", kind.program);
        Some(store)
    }

    fn server(&self, flags: &[&str]) -> Server {
        let port = self.port.to_string();
        let with_port = |text: &str| text.replace("PORT", &port);
        let env: Vec<_> = self.kind.env.iter().map(|(name, value)| (*name, with_port(value))).collect();
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let own: Vec<_> = self.kind.flags.iter().map(|flag| with_port(flag)).collect();
        let own: Vec<_> = own.iter().map(String::as_str).collect();
        Server::start_with_env(&env, &[&own, flags].concat())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn digest(client: &mut Client) -> Value {
    client.call(&["DEBUG", "DIGEST"])
}

/// Takes snapshots, ends the server, and looks at what the next one finds.
fn snapshots_come_back(store: &Store) {
    let flags = ["--dbfilename", "dump-{timestamp}", "--enable_debug_command", "yes"];
    let server = store.server(&flags);
    let mut client = server.client();
    assert_eq!(client.call(&["CONFIG", "GET", "dir"]), Value::array(&["dir", store.kind.flags[1]]));
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
    let before = digest(&mut client);
    drop((client, server));
    let server = store.server(&flags);
    let mut client = server.client().loaded();
    assert_eq!(digest(&mut client), before);
    assert_eq!(client.call(&["GET", "later"]), Value::Text("x".to_owned()));
}

#[test]
fn snapshots_go_to_azure_and_the_newest_comes_back() {
    Store::start(&AZURITE).iter().for_each(snapshots_come_back);
}

#[test]
fn snapshots_go_to_google_and_the_newest_comes_back() {
    Store::start(&GOOGLE).iter().for_each(snapshots_come_back);
}

#[test]
fn snapshots_go_to_a_bucket_and_the_newest_comes_back() {
    let Some(moto) = Store::start(&MOTO) else { return };
    snapshots_come_back(&moto);
    assert_eq!(request(moto.port, "GET /bucket?list-type=2").matches("<Key>some/where/dump-").count(), 2);
    let server = moto.server(&[]);
    let mut client = server.client();
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
    let Some(moto) = Store::start(&MOTO) else { return };
    let server = moto.server(&["--dbfilename", "dump"]);
    let gone = request(moto.port, "DELETE /bucket");
    assert!(["HTTP/1.1 204", "HTTP/1.1 404"].iter().any(|line| gone.starts_with(line)), "{gone}");
    let mut client = server.client();
    client.call(&["SET", "a", "1"]);
    let Value::Error(why) = client.call(&["SAVE"]) else { panic!("no error") };
    assert!(why.contains("s3://bucket/some/where") && why.contains("bucket"), "{why}");
    let Value::Text(info) = client.call(&["INFO", "persistence"]) else { panic!("no text") };
    assert!(info.contains("rdb_last_bgsave_status:err"), "{info}");
    assert_eq!(client.call(&["GET", "a"]), Value::Text("1".to_owned()));
}
