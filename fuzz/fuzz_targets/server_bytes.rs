//! Any bytes to a live server: they come through a socket in two pieces, and the server answers or closes. Seeds:
//! tests/corpus/wire/parser and tests/corpus/wire/memcache. `tests/hostile.rs` of the binary is the form without a
//! fuzzer.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use darter_config::{Settings, Startup};

/// What ends, empties or stops the server by right is refused to it.
const REFUSED: &str = "shutdown,debug,flushall,flushdb,swapdb,config,acl,client,script,function,save,bgsave,\
                       bgrewriteaof,replicaof,slaveof,monitor,memory";

/// The port of the server, which is started once and lives as long as the fuzzer.
fn port() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|own| own.local_addr()).expect("a port").port();
        let flags = [
            "fuzz".to_owned(),
            format!("--port={port}"),
            "--bind=127.0.0.1".to_owned(),
            "--proactor_threads=2".to_owned(),
            "--dbfilename=".to_owned(),
            "--maxmemory=256mb".to_owned(),
            "--cache_mode=true".to_owned(),
            format!("--restricted_commands={REFUSED}"),
        ];
        let Ok(Startup::Serve { settings, .. }) =
            Settings::parse(flags.map(std::ffi::OsString::from), std::iter::empty())
        else {
            panic!("the flags are good")
        };
        std::thread::spawn(move || darter_server::start::serve(Arc::new(*settings)).expect("it serves"));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "it does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        port
    })
}

/// Sends `bytes` and reads until the server ends the connection, which it does when this end has.
fn send(bytes: &[u8], cut: usize) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port())).expect("it accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
    stream.set_nodelay(true).expect("an option");
    let (head, tail) = bytes.split_at(cut.min(bytes.len()));
    // A server that has closed already refuses the rest; that is an answer.
    let _ = stream.write_all(head).and_then(|()| stream.write_all(tail));
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            panic!("neither answered nor closed: {error}")
        }
        _ => answer,
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The last byte says where they are cut, so that seeds are plain requests.
    send(bytes, usize::from(bytes.last().copied().unwrap_or(0)));
    assert_eq!(send(b"*1\r\n$4\r\nPING\r\n", 3), b"+PONG\r\n");
});
