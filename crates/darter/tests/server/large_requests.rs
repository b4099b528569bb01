//! Large requests beside small ones: they arrive in any pieces, on both drivers, and every reply is the right one.
//!
//! The server receives them in two ways, into lent buffers or into the connection's own, and changes between the two.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::Server;
use crate::harness::raw::{Link, Raw, encoded};
use crate::rng::Rng;

/// Bytes that tell where they are from.
fn value(rng: &mut Rng, len: usize) -> Vec<u8> {
    let first = rng.next();
    (0..len as u64).map(|at| (first.wrapping_add(at).wrapping_mul(0x9e37_79b9) >> 24) as u8).collect()
}

/// A length: mostly short, else around the bounds where the ways of receiving change, or some megabytes.
fn length(rng: &mut Rng) -> usize {
    match rng.below(8) {
        0..=3 => rng.below(200),
        4 => 16_000 + rng.below(1_000),
        5 => 65_000 + rng.below(2_000),
        6 => 250_000 + rng.below(30_000),
        _ => 1_000_000 + rng.below(2_000_000),
    }
}

/// Sends bytes in pieces that end anywhere.
fn send(stream: &mut TcpStream, mut bytes: &[u8], mut rng: Rng) {
    while !bytes.is_empty() {
        let most = *rng.pick(&[1, 40, 3_000, 70_000, 4_000_000]);
        let piece = (1 + rng.below(most)).min(bytes.len());
        stream.write_all(&bytes[..piece]).expect("the server takes them");
        bytes = &bytes[piece..];
        if rng.percent(3) {
            std::thread::yield_now();
        }
    }
}

/// Some pipelines of one client, with their replies.
fn converse(server: &Server, name: &str, seed: u64, rounds: usize) {
    let mut rng = Rng::new(seed);
    let mut link = Link::new(server);
    for _ in 0..rounds {
        let (mut bytes, mut wanted) = (Vec::new(), Vec::new());
        for n in 0..1 + rng.below(6) {
            let key = format!("{name}:{n}").into_bytes();
            let len = length(&mut rng);
            let text = value(&mut rng, len);
            match rng.below(4) {
                0 => {
                    bytes.extend(encoded(&[b"ECHO".to_vec(), text.clone()]));
                    wanted.push(Raw::Bulk(Some(text)));
                }
                1 => {
                    bytes.extend(encoded(&[b"SET".to_vec(), key.clone(), text.clone()]));
                    bytes.extend(encoded(&[b"GET".to_vec(), key]));
                    wanted.extend([Raw::Line(b"+OK".to_vec()), Raw::Bulk(Some(text))]);
                }
                2 => {
                    bytes.extend(encoded(&[
                        b"SET".to_vec(),
                        key.clone(),
                        b"a".to_vec(),
                        b"EX".to_vec(),
                        b"100".to_vec(),
                    ]));
                    bytes.extend(encoded(&[b"APPEND".to_vec(), key.clone(), text.clone()]));
                    bytes.extend(encoded(&[b"GETDEL".to_vec(), key]));
                    let len = format!(":{}", text.len() + 1).into_bytes();
                    wanted.extend([Raw::Line(b"+OK".to_vec()), Raw::Line(len)]);
                    wanted.push(Raw::Bulk(Some([b"a".as_slice(), &text].concat())));
                }
                _ => {
                    bytes.extend(encoded(&[b"PING".to_vec()]));
                    wanted.push(Raw::Line(b"+PONG".to_vec()));
                }
            }
        }
        let mut stream = link.0.get_ref().try_clone().expect("a handle");
        let pieces = Rng::new(rng.next());
        let sender = std::thread::spawn(move || send(&mut stream, &bytes, pieces));
        for (n, wanted) in wanted.iter().enumerate() {
            let reply = link.read().expect("a reply");
            assert!(reply == *wanted, "{name}: reply {n} of seed {seed} is another one");
        }
        sender.join().expect("it sent all");
    }
}

#[test]
fn they_arrive_in_any_pieces() {
    for flags in [&["--proactor_threads", "2"][..], &["--proactor_threads", "1", "--force_epoll"]] {
        let server = Server::start(flags);
        std::thread::scope(|scope| {
            for client in 0..4 {
                let server = &server;
                scope.spawn(move || converse(server, &format!("c{client}"), 7 + client, 12));
            }
        });
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_of_one_leaves_nothing_behind() {
    for flags in [&[][..], &["--force_epoll"]] {
        let server = Server::start(flags);
        let mut watcher = server.client();
        let done = Arc::new(AtomicBool::new(false));
        let leaver = {
            let (done, port) = (done.clone(), server.port());
            std::thread::spawn(move || {
                let request = encoded(&[b"SET".to_vec(), b"k".to_vec(), vec![b'v'; 1 << 20]]);
                for n in 0..200 {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
                    let part = 20_000 + n * 5_000;
                    stream.write_all(&request[..part.min(request.len() - 1)]).expect("the server takes them");
                }
                done.store(true, Relaxed);
            })
        };
        while !done.load(Relaxed) {
            watcher.call(&["PING"]);
        }
        leaver.join().expect("no fault");
        let began = std::time::Instant::now();
        while watcher.info::<u64>("clients", "connected_clients") > 1 {
            assert!(began.elapsed() < crate::harness::PATIENCE);
        }
        assert_eq!(watcher.call(&["EXISTS", "k"]), crate::harness::Value::Int(0));
    }
}

#[test]
fn one_that_is_longer_than_the_limit_is_refused_however_it_arrives() {
    for flags in [&[][..], &["--force_epoll"]] {
        let server = Server::start(flags);
        let mut client = server.client();
        client.call(&["CONFIG", "SET", "client-query-buffer-limit", "1048576"]);
        let request = encoded(&[b"SET".to_vec(), b"k".to_vec(), vec![b'a'; 1 << 20]]);
        for piece in [20_000, 100_000, 1 << 20] {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
            for bytes in request.chunks(piece) {
                // The last pieces may come when the connection has ended.
                let _ = stream.write_all(bytes);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            stream.set_read_timeout(Some(crate::harness::PATIENCE)).expect("an option");
            let answer = std::io::Read::read(&mut stream, &mut [0; 64]);
            assert!(!matches!(answer, Ok(1..)), "{piece}");
        }
        assert_eq!(client.call(&["EXISTS", "k"]), crate::harness::Value::Int(0));
        assert_eq!(client.info::<u64>("stats", "client_query_buffer_limit_disconnections"), 3);
    }
}
