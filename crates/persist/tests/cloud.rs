//! Files in an S3 bucket, against moto's server. Skipped with a message if `moto_server` is not in the path (`pip
//! install 'moto[server]'`).
#![cfg(feature = "cloud")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use darter_persist::ReadAt;
use darter_persist::storage::{CloudOptions, FaultKind, StorageDirectory, directory};

struct Moto(Child);

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A request that must succeed. Moto may reset a connection before it has answered; the request is then repeated.
fn request(port: u16, line: &str) {
    let head =
        format!("{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let mut ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(head.as_bytes())?;
        stream.read_to_end(&mut answer)
    };
    let began = Instant::now();
    while let Err(error) = ask() {
        assert!(began.elapsed() < Duration::from_secs(60), "{line}: {error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

/// Runs this test again in a process that has credentials in its environment.
#[test]
fn files_go_to_a_bucket_and_come_back() {
    const PORT: &str = "DARTER_TEST_MOTO_PORT";
    if let Some(port) = std::env::var(PORT).ok().and_then(|port| port.parse().ok()) {
        return use_bucket(port);
    }
    let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a port").port();
    let started = Command::new("moto_server")
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(process) = started else {
        eprintln!("SKIPPED: moto_server is not installed (pip install 'moto[server]')");
        return;
    };
    let _moto = Moto(process);
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "moto_server does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    request(port, "PUT /bucket");
    let me = std::env::current_exe().expect("this program");
    let status = Command::new(me)
        .args(["--exact", "files_go_to_a_bucket_and_come_back", "--nocapture"])
        .env(PORT, port.to_string())
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_REGION", "us-east-1")
        .status()
        .expect("this program runs");
    assert!(status.success());
}

fn use_bucket(port: u16) {
    let options = CloudOptions {
        s3_endpoint: format!("127.0.0.1:{port}"),
        is_plain_http: true,
        ..CloudOptions::default()
    };
    let place = directory("s3://bucket/some/where", &options).expect("a directory");
    assert_eq!(place.list().expect("a list"), []);
    // one request; and several parts
    for len in [0, 5_000, 40_000_000] {
        round_trip(&*place, len);
    }
    let mut names: Vec<String> = place.list().expect("a list").into_iter().map(|facts| facts.name).collect();
    names.sort();
    assert_eq!(names, ["file-0", "file-40000000", "file-5000"]);
    place.remove("file-0").expect("removed");
    assert_eq!(place.list().expect("a list").len(), 2);
    let kind_of = |done: Result<(), darter_persist::storage::StorageFault>| done.expect_err("a fault").kind;
    assert_eq!(kind_of(place.open("file-0").map(drop)), FaultKind::Missing);
    assert_eq!(kind_of(place.create("a/b").map(drop)), FaultKind::BadName);
    // given up: no file
    let mut file = place.create("given-up").expect("a file");
    file.write_all(&vec![1; 20_000_000]).expect("room");
    drop(file);
    assert_eq!(place.list().expect("a list").len(), 2);
    let elsewhere = directory("s3://no-such-bucket", &options).expect("a directory");
    assert!(elsewhere.list().is_err());
    assert_eq!(kind_of(directory("s3://", &options).map(drop)), FaultKind::BadName);
}

fn round_trip(place: &dyn StorageDirectory, len: usize) {
    let bytes: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251) as u8).collect();
    let name = format!("file-{len}");
    let mut file = place.create(&name).expect("a file");
    for piece in bytes.chunks(999_999) {
        file.write_all(piece).expect("room");
    }
    assert!(place.list().expect("a list").iter().all(|facts| facts.name != name));
    file.finish().expect("a good end");
    let file = place.open(&name).expect("a file");
    assert_eq!(file.len().expect("a length"), len as u64);
    let mut back = vec![0; len];
    for (n, piece) in back.chunks_mut(1_500_000).enumerate() {
        file.read_at(n as u64 * 1_500_000, piece).expect("bytes");
    }
    assert!(back == bytes);
    assert!(file.read_at(len as u64, &mut [0]).is_err());
}
