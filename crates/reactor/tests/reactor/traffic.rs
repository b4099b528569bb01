//! Bytes get through: whole, in order, in both directions, for many connections at once.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use darter_reactor::{Config, DriverChoice, ListenAddr, Token, process};

use crate::rig::{Rig, Seen, is_pattern, on_both_drivers, pattern, reset_on_drop, stream_pattern};

on_both_drivers! {
    fn many_connections_are_echoed(choice) {
        echo_to_many(choice, &Config::default(), 100, 40);
    }

    /// One receive buffer for fifty connections: the kernel runs out of them all the time.
    fn echo_survives_a_shortage_of_buffers(choice) {
        let config = Config {
            ring_buffers_len: 1, ring_buffer_bytes: 17, recv_bytes_max: 17, ..Config::default()
        };
        echo_to_many(choice, &config, 50, 10);
    }

    fn echo_survives_one_event_per_turn(choice) {
        echo_to_many(choice, &Config { events_max: 1, ..Config::default() }, 20, 10);
    }

    fn echo_works_while_spinning(choice) {
        echo_to_many(choice, &Config { spin_us: 50, ..Config::default() }, 4, 40);
    }

    /// One of them is closed here, and one client takes nothing: neither concerns the others.
    fn many_are_sent_to_at_once(choice) {
        let mut rig = Rig::new(choice);
        let mut clients: Vec<(TcpStream, Token)> = (0..700).map(|_| rig.connect()).collect();
        let (_, closed) = clients.swap_remove(3);
        rig.reactor.close(closed);
        let (full, full_token) = clients.swap_remove(5);
        // The kernel moves bytes to the peer's side meanwhile, which makes room again.
        let mut takes_some = || {
            thread::sleep(Duration::from_millis(2));
            rig.reactor.send(full_token, &[0; 1 << 16]).unwrap() > 0
        };
        while (0..10).any(|_| takes_some()) {}
        let texts: Vec<Vec<u8>> = (0..clients.len()).map(|n| format!("hello {n:04}").into_bytes()).collect();
        let mut pieces: Vec<(Token, &[u8])> =
            clients.iter().zip(&texts).map(|((_, token), text)| (*token, &**text)).collect();
        pieces.insert(100, (closed, b"gone"));
        pieces.insert(600, (full_token, b"full"));
        let mut took = vec![Ok(77)];
        if !rig.reactor.send_many(&pieces, &mut took) {
            assert_eq!((took.len(), choice), (1, DriverChoice::Epoll));
            return;
        }
        assert_eq!((took.len(), choice), (pieces.len() + 1, DriverChoice::Uring));
        for (n, (took, piece)) in took.iter().skip(1).zip(&pieces).enumerate() {
            match n {
                100 => assert!(took.is_err()),
                600 => assert_eq!(took.as_ref().ok(), Some(&0)),
                _ => assert_eq!(took.as_ref().ok(), Some(&piece.1.len()), "{n}"),
            }
        }
        for ((client, _), text) in clients.iter_mut().zip(&texts) {
            let mut got = vec![0; text.len()];
            client.read_exact(&mut got).unwrap();
            assert_eq!(&got, text);
        }
        drop(full);
    }

    fn a_thousand_connections(choice) {
        process::raise_open_files(8_192).unwrap();
        let mut rig = Rig::new(choice);
        let (_, address) = rig.listen();
        let mut clients = Vec::new();
        for _ in 0..1_000 {
            clients.push(TcpStream::connect(address).unwrap());
            if clients.len() % 100 == 0 {
                let wanted = clients.len();
                rig.until(|rig| rig.accepted.len() == wanted);
            }
        }
        let tokens: Vec<Token> =
            rig.accepted.drain(..).map(|socket| rig.reactor.register(socket).unwrap()).collect();
        assert_eq!(rig.reactor.connections(), 1_000);
        for (i, client) in clients.iter_mut().enumerate() {
            client.write_all(format!("hello {i:04}").as_bytes()).unwrap();
        }
        rig.until(|rig| rig.seen.len() >= 1_000);
        let texts: std::collections::BTreeSet<Vec<u8>> = tokens.iter().map(|&token| rig.bytes(token)).collect();
        assert_eq!(texts.len(), 1_000);
        drop(clients);
        rig.until(|rig| rig.seen.iter().filter(|seen| matches!(seen, Seen::Eof(_))).count() == 1_000);
        for token in tokens {
            rig.reactor.close(token);
        }
        assert_eq!(rig.reactor.connections(), 0);
    }

    fn a_burst_of_clients_is_accepted(choice) {
        let mut rig = Rig::new(choice);
        let (id, address) = rig.listen();
        let clients: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
        rig.until(|rig| rig.accepted.len() == 300);
        let mut peers: Vec<String> = rig.accepted.iter().map(|socket| socket.peer()).collect();
        let mut ours: Vec<String> = clients.iter().map(|c| c.local_addr().unwrap().to_string()).collect();
        peers.sort();
        ours.sort();
        assert_eq!(peers, ours);
        assert!(rig.accepted.iter().all(|socket| socket.local() == address.to_string()));
        rig.reactor.stop_listening(id);
    }

    /// 16 MiB to a client that reads late and little: partial sends, then one `Writable` each.
    fn a_slow_reader_gets_every_byte(choice) {
        const LEN: usize = 16 << 20;
        let mut rig = Rig::new(choice);
        let (mut client, token) = rig.connect();
        let (begin, began) = std::sync::mpsc::channel();
        let reader = thread::spawn(move || {
            began.recv().unwrap(); // when the send buffer is full
            let (mut all, mut piece) = (Vec::new(), [0; 200_000]);
            while all.len() < LEN {
                let n = client.read(&mut piece).unwrap();
                all.extend_from_slice(&piece[..n]);
            }
            assert!(is_pattern(&all));
            client
        });
        let bytes = pattern(0, LEN);
        let (mut sent, mut full) = (0, 0);
        while sent < LEN {
            let n = rig.reactor.send(token, &bytes[sent..]).unwrap();
            sent += n;
            if sent < LEN {
                full += 1;
                let _ = begin.send(());
                rig.seen.clear();
                rig.reactor.want_writable(token);
                rig.until(|rig| rig.has_writable(token));
                assert_eq!(rig.seen.len(), 1);
            }
        }
        let _client = reader.join().unwrap();
        assert!(full > 0, "the send buffer never was full");
        rig.seen.clear();
        rig.rest(Duration::from_millis(30));
        assert!(rig.seen.is_empty(), "Writable came unasked");
    }

    fn a_paused_connection_is_quiet_and_loses_nothing(choice) {
        const LEN: usize = 4 << 20;
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        let writer = thread::spawn(move || stream_pattern(client, LEN));
        rig.until(|rig| !rig.bytes(token).is_empty());
        rig.reactor.pause(token);
        rig.rest(Duration::from_millis(20)); // bytes that the kernel had delivered already
        let before = rig.bytes(token).len();
        rig.rest(Duration::from_millis(50));
        assert_eq!(rig.bytes(token).len(), before);
        assert!(before < LEN);
        rig.reactor.resume(token);
        rig.until(|rig| rig.has_eof(token));
        let all = rig.bytes(token);
        assert_eq!(all.len(), LEN);
        assert!(is_pattern(&all));
        rig.reactor.close(token);
        writer.join().unwrap();
    }

    fn bytes_taken_by_hand_are_all_there(choice) {
        const LEN: usize = 2 << 20;
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        let writer = thread::spawn(move || stream_pattern(client, LEN));
        rig.until(|rig| !rig.bytes(token).is_empty());
        rig.reactor.receive_by_hand(token);
        rig.until(|rig| rig.has_eof(token));
        let all = rig.bytes(token);
        assert!(all.len() == LEN && is_pattern(&all));
        rig.seen.clear();
        rig.rest(Duration::from_millis(30));
        assert!(rig.seen.is_empty(), "the end came twice");
        rig.reactor.close(token);
        writer.join().unwrap();
    }

    fn who_takes_the_bytes_may_change_at_any_time(choice) {
        const LEN: usize = 2 << 20;
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        let writer = thread::spawn(move || stream_pattern(client, LEN));
        let mut random = 1_u32;
        for _ in 0..4_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            rig.hand_bytes = 1 + (random >> 8) as usize % 3_000;
            match random >> 28 {
                0 | 1 => rig.reactor.pause(token),
                2..=4 => rig.reactor.resume(token),
                5 | 6 => rig.reactor.receive_by_hand(token),
                7 | 8 => rig.reactor.receive_lent(token),
                _ => drop(rig.turn(Duration::ZERO)),
            }
        }
        rig.hand_bytes = 100_000;
        rig.reactor.resume(token);
        rig.until(|rig| rig.has_eof(token));
        let all = rig.bytes(token);
        assert!(all.len() == LEN && is_pattern(&all));
        rig.reactor.close(token);
        writer.join().unwrap();
        assert_eq!(rig.reactor.connections(), 0);
    }

    fn a_peer_that_is_lost_while_bytes_are_taken_by_hand_is_told(choice) {
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        rig.reactor.receive_by_hand(token);
        rig.rest(Duration::from_millis(10));
        reset_on_drop(&client);
        drop(client);
        rig.until(|rig| rig.failure(token).is_some());
        rig.reactor.close(token);
        let (client, token) = rig.connect();
        rig.reactor.receive_by_hand(token);
        rig.rest(Duration::from_millis(10));
        rig.reactor.close(token);
        drop(client);
        rig.rest(Duration::from_millis(10));
        assert!(rig.reactor.connections() == 0 && !rig.has_eof(token));
    }

    fn rapid_pauses_lose_nothing(choice) {
        const LEN: usize = 1 << 20;
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        let writer = thread::spawn(move || stream_pattern(client, LEN));
        for i in 0..2_000 {
            match i % 7 {
                0 | 3 => rig.reactor.pause(token),
                1 | 4 | 6 => rig.reactor.resume(token),
                _ => drop(rig.turn(Duration::ZERO)),
            }
        }
        rig.reactor.resume(token);
        rig.until(|rig| rig.has_eof(token));
        let all = rig.bytes(token);
        assert_eq!(all.len(), LEN);
        assert!(is_pattern(&all));
        rig.reactor.close(token);
        writer.join().unwrap();
    }
}

/// `clients` threads send `rounds` messages of uneven sizes each and expect them back.
fn echo_to_many(choice: DriverChoice, config: &Config, clients: usize, rounds: usize) {
    let mut rig = Rig::with(choice, config);
    let id = rig.reactor.listen(&ListenAddr::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    let Some(ListenAddr::Tcp(address)) = rig.reactor.local_addr(id) else { panic!("no address") };
    let done = Arc::new(AtomicBool::new(false));
    let waker = rig.reactor.waker();
    let finished = done.clone();
    let load = thread::spawn(move || {
        let threads: Vec<_> =
            (0..clients).map(|i| thread::spawn(move || converse(address, i, rounds))).collect();
        for thread in threads {
            thread.join().unwrap();
        }
        finished.store(true, Ordering::SeqCst);
        waker.interrupt();
    });
    let mut unsent: HashMap<Token, Vec<u8>> = HashMap::new();
    rig.until(|rig| {
        for socket in rig.accepted.drain(..) {
            rig.reactor.register(socket).unwrap();
        }
        for seen in std::mem::take(&mut rig.seen) {
            match seen {
                Seen::Data(token, bytes) => unsent.entry(token).or_default().extend(bytes),
                Seen::Writable(_) => {}
                Seen::Eof(token) | Seen::Failed(token, _) => {
                    assert!(unsent.remove(&token).is_none_or(|rest| rest.is_empty()));
                    rig.reactor.close(token);
                }
            }
        }
        for (token, bytes) in unsent.iter_mut().filter(|(_, bytes)| !bytes.is_empty()) {
            let sent = rig.reactor.send(*token, bytes).unwrap();
            bytes.drain(..sent);
            if !bytes.is_empty() {
                rig.reactor.want_writable(*token);
            }
        }
        done.load(Ordering::SeqCst) && rig.reactor.connections() == 0
    });
    load.join().unwrap();
}

fn converse(address: SocketAddr, i: usize, rounds: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    for round in 0..rounds {
        let message = pattern(i * 1_000 + round, 1 + (i * 131 + round * 977) % 3_000);
        stream.write_all(&message).unwrap();
        let mut back = vec![0; message.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, message);
    }
}
