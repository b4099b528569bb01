//! Beginning and end of connections and listeners.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use darter_reactor::{Config, DriverChoice, ListenAddr, Reactor};

use crate::rig::{Rig, has_uring, on_both_drivers, pattern, reset_on_drop};

on_both_drivers! {
    fn the_end_of_a_stream_is_told_after_its_bytes_and_allows_answers(choice) {
        let mut rig = Rig::new(choice);
        let (mut client, token) = rig.connect();
        client.write_all(b"last words").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        rig.until(|rig| rig.has_eof(token));
        assert_eq!(rig.bytes(token), b"last words");
        assert_eq!(rig.reactor.connections(), 1);
        assert_eq!(rig.reactor.send(token, b"answer").unwrap(), 6);
        rig.reactor.want_writable(token);
        rig.until(|rig| rig.has_writable(token));
        rig.reactor.close(token);
        let mut answer = String::new();
        client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        rig.until(|_| match client.read_to_string(&mut answer) {
            Ok(_) => true,
            Err(error) => { assert_eq!(error.kind(), ErrorKind::WouldBlock); false }
        });
        assert_eq!(answer, "answer");
    }

    fn a_reset_is_told_as_an_error_once(choice) {
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        reset_on_drop(&client);
        drop(client);
        rig.until(|rig| rig.failure(token).is_some());
        assert_eq!(rig.failure(token), Some(ErrorKind::ConnectionReset));
        rig.rest(Duration::from_millis(30));
        assert_eq!(rig.seen.len(), 1);
        assert!(rig.reactor.send(token, b"x").is_err());
        rig.reactor.close(token);
        assert_eq!(rig.reactor.connections(), 0);
    }

    /// epoll reports a dead connection whether asked or not; that must not keep the thread awake.
    fn a_peer_lost_while_paused_costs_no_turns_and_is_told_on_resume(choice) {
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        rig.reactor.pause(token);
        rig.rest(Duration::from_millis(20));
        reset_on_drop(&client);
        drop(client);
        rig.turns = 0;
        rig.rest(Duration::from_millis(100));
        assert!(rig.turns < 10, "{} turns", rig.turns);
        assert!(rig.seen.is_empty());
        rig.reactor.want_writable(token);
        rig.until(|rig| rig.has_writable(token));
        rig.turns = 0;
        rig.rest(Duration::from_millis(50));
        assert!(rig.turns < 10, "{} turns", rig.turns);
        rig.reactor.resume(token);
        rig.until(|rig| rig.failure(token).is_some());
    }

    fn an_ended_connection_costs_no_turns(choice) {
        let mut rig = Rig::new(choice);
        let (client, token) = rig.connect();
        drop(client);
        rig.until(|rig| rig.has_eof(token));
        rig.reactor.shutdown_write(token);
        rig.turns = 0;
        rig.rest(Duration::from_millis(100));
        assert!(rig.turns < 10, "{} turns", rig.turns);
        assert_eq!(rig.seen.len(), 1);
    }

    fn stale_tokens_touch_nobody(choice) {
        let mut rig = Rig::new(choice);
        let (first_client, stale) = rig.connect();
        rig.reactor.close(stale);
        drop(first_client);
        rig.turn(Duration::from_millis(1));
        let (mut client, token) = rig.connect();
        assert_eq!(token.index(), stale.index());
        assert_ne!(token, stale);
        assert_eq!(rig.reactor.send(stale, b"x").unwrap_err().kind(), ErrorKind::NotConnected);
        rig.reactor.pause(stale);
        rig.reactor.shutdown_write(stale);
        rig.reactor.want_writable(stale);
        rig.reactor.resume(stale);
        rig.reactor.close(stale);
        assert!(rig.reactor.socket(stale).is_none());
        assert_eq!(rig.reactor.connections(), 1);
        client.write_all(b"mine").unwrap();
        rig.until(|rig| !rig.seen.is_empty());
        assert_eq!(rig.bytes(token), b"mine");
        rig.rest(Duration::from_millis(20));
        assert_eq!(rig.seen.len(), 1);
    }

    /// Connections closed at every possible moment of a talkative client tell nothing afterwards.
    fn closing_ends_the_events(choice) {
        let mut rig = Rig::new(choice);
        let (_, address) = rig.listen();
        for round in 0..100 {
            let mut client = TcpStream::connect(address).unwrap();
            let writer = thread::spawn(move || while client.write_all(&[7; 999]).is_ok() {});
            rig.until(|rig| !rig.accepted.is_empty());
            let token = rig.reactor.register(rig.accepted.pop().unwrap()).unwrap();
            if round % 3 == 0 {
                rig.reactor.want_writable(token);
            }
            for _ in 0..round % 5 {
                rig.turn(Duration::ZERO);
            }
            if round % 4 == 0 {
                rig.reactor.pause(token);
            }
            rig.reactor.close(token);
            rig.seen.clear();
            assert_eq!(rig.reactor.connections(), 0);
            rig.until(|_| writer.is_finished());
            assert!(rig.seen.is_empty(), "{:?}", rig.seen);
            writer.join().unwrap();
        }
    }

    fn our_end_of_a_stream_reaches_the_peer(choice) {
        let mut rig = Rig::new(choice);
        let (mut client, token) = rig.connect();
        rig.reactor.send(token, b"bye").unwrap();
        rig.reactor.shutdown_write(token);
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "bye");
        client.write_all(b"still talking").unwrap();
        rig.until(|rig| rig.bytes(token) == b"still talking");
    }

    fn a_stopped_listener_frees_its_port(choice) {
        let mut rig = Rig::new(choice);
        let (id, address) = rig.listen();
        rig.turn(Duration::ZERO);
        rig.reactor.stop_listening(id);
        assert_eq!(rig.reactor.local_addr(id), None);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        await_free(address);
        rig.reactor.stop_listening(id);
        let again = rig.reactor.listen(&ListenAddr::Tcp(address)).unwrap();
        assert_ne!(again, id);
        assert_eq!(rig.reactor.local_addr(again), Some(ListenAddr::Tcp(address)));
        let _client = TcpStream::connect(address).unwrap();
        rig.until(|rig| rig.accepted.len() == 1);
        drop(rig);
        await_free(address);
    }

    fn a_port_in_use_is_refused(choice) {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut rig = Rig::new(choice);
        let error = rig.reactor.listen(&ListenAddr::Tcp(taken.local_addr().unwrap())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
    }

    fn two_reactors_share_a_port_when_told_to(choice) {
        let config = Config { reuse_port: true, ..Config::default() };
        let (mut one, mut other) = (Rig::with(choice, &config), Rig::with(choice, &config));
        let (_, address) = one.listen();
        other.reactor.listen(&ListenAddr::Tcp(address)).unwrap();
        let _clients: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
        one.until(|one| {
            other.turn(Duration::ZERO);
            one.accepted.len() + other.accepted.len() == 64
        });
        assert!(!one.accepted.is_empty() && !other.accepted.is_empty());
    }

    fn ipv6_clients_are_named(choice) {
        let mut rig = Rig::new(choice);
        let address: SocketAddr = "[::1]:0".parse().unwrap();
        let Ok(id) = rig.reactor.listen(&ListenAddr::Tcp(address)) else {
            eprintln!("skipped: no IPv6 here");
            return;
        };
        let Some(ListenAddr::Tcp(bound)) = rig.reactor.local_addr(id) else { panic!("no address") };
        let client = TcpStream::connect(bound).unwrap();
        rig.until(|rig| !rig.accepted.is_empty());
        assert_eq!(rig.accepted[0].peer(), format!("[::1]:{}", client.local_addr().unwrap().port()));
        assert_eq!(rig.accepted[0].local(), bound.to_string());
        rig.accepted[0].set_keepalive(Some(Duration::from_secs(60))).unwrap();
        rig.accepted[0].set_keepalive(None).unwrap();
        assert!(!rig.accepted[0].is_unix());
    }

    fn a_unix_socket_has_its_mode_and_leaves_no_file(choice) {
        let path = scratch_path("mode", choice);
        let mut rig = Rig::new(choice);
        let address = ListenAddr::Unix { path: path.clone(), mode: Some(0o640) };
        let id = rig.reactor.listen(&address).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(rig.reactor.local_addr(id), Some(address.clone()));
        let mut client = UnixStream::connect(&path).unwrap();
        rig.until(|rig| !rig.accepted.is_empty());
        let socket = rig.accepted.pop().unwrap();
        let name = format!("{}:0", path.display());
        assert_eq!((socket.peer(), socket.local(), socket.is_unix()), (name.clone(), name, true));
        socket.set_keepalive(Some(Duration::from_secs(300))).unwrap();
        let token = rig.reactor.register(socket).unwrap();
        client.write_all(b"over unix").unwrap();
        rig.until(|rig| rig.bytes(token) == b"over unix");
        assert_eq!(Rig::new(choice).reactor.listen(&address).unwrap_err().kind(), ErrorKind::AddrInUse);
        rig.reactor.stop_listening(id);
        assert!(!path.exists());
    }

    fn a_dead_unix_socket_is_replaced_but_a_file_is_not(choice) {
        let path = scratch_path("stale", choice);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let address = ListenAddr::Unix { path: path.clone(), mode: None };
        let mut rig = Rig::new(choice);
        rig.reactor.listen(&address).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, b"precious").unwrap();
        assert_eq!(rig.reactor.listen(&address).unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(rig);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
        let long = ListenAddr::Unix { path: PathBuf::from("x".repeat(200)), mode: None };
        assert_eq!(Rig::new(choice).reactor.listen(&long).unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    /// The first listener and the first connection have the same number inside; ending one does not affect the other.
    fn listeners_and_connections_are_not_confused(choice) {
        let mut rig = Rig::new(choice);
        let (id, address) = rig.listen();
        let mut client = TcpStream::connect(address).unwrap();
        rig.until(|rig| !rig.accepted.is_empty());
        let token = rig.reactor.register(rig.accepted.pop().unwrap()).unwrap();
        rig.turn(Duration::ZERO);
        let _second = TcpStream::connect(address).unwrap();
        client.write_all(b"kept ").unwrap();
        thread::sleep(Duration::from_millis(5));
        rig.reactor.stop_listening(id);
        rig.until(|rig| rig.bytes(token) == b"kept ");
        client.write_all(b"too").unwrap();
        rig.until(|rig| rig.bytes(token) == b"kept too");
    }

    fn closing_the_first_connection_leaves_the_first_listener_alone(choice) {
        let mut rig = Rig::new(choice);
        let (_, address) = rig.listen();
        let _client = TcpStream::connect(address).unwrap();
        rig.until(|rig| !rig.accepted.is_empty());
        let token = rig.reactor.register(rig.accepted.pop().unwrap()).unwrap();
        rig.turn(Duration::ZERO);
        rig.reactor.close(token);
        let _second = TcpStream::connect(address).unwrap();
        rig.until(|rig| rig.accepted.len() == 1);
    }

    fn a_reactor_may_be_made_on_one_thread_and_run_on_another(choice) {
        let mut rig = Rig::new(choice);
        let (_, address) = rig.listen();
        let client = TcpStream::connect(address).unwrap();
        thread::spawn(move || {
            rig.until(|rig| rig.accepted.len() == 1);
            rig
        })
        .join()
        .map(drop)
        .unwrap();
        drop(client);
    }
}

/// Busy connections, unread bytes and waiting clients at the drop of the reactor.
#[test]
fn a_reactor_may_be_dropped_at_any_time() {
    for choice in [DriverChoice::Epoll, DriverChoice::Auto] {
        let mut rig = Rig::new(choice);
        let (mut client, token) = rig.connect();
        let (_, address) = rig.listen();
        let _waiting = TcpStream::connect(address).unwrap();
        client.write_all(&pattern(0, 10_000)).unwrap();
        rig.reactor.want_writable(token);
        drop(rig);
        let mut rest = Vec::new();
        assert!(matches!(client.read_to_end(&mut rest), Ok(0) | Err(_)));
        await_free(address);
    }
}

#[test]
fn automatic_choice_always_works_and_says_what_it_took() {
    let reactor = Reactor::new(DriverChoice::Auto, &Config::default()).unwrap();
    let uring = reactor.driver_name() == "io_uring";
    assert_eq!(uring, has_uring());
    assert_eq!(reactor.driver_note().is_none(), uring);
    assert_eq!(Reactor::new(DriverChoice::Epoll, &Config::default()).unwrap().driver_name(), "epoll");
}

/// Waits until nobody listens on an address: a neighbour may have been given the port meanwhile, for a while.
fn await_free(address: SocketAddr) {
    let end = Instant::now() + Duration::from_secs(60);
    while let Err(error) = TcpListener::bind(address) {
        assert!(Instant::now() < end, "{error}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn scratch_path(purpose: &str, choice: DriverChoice) -> PathBuf {
    let name = format!("darter-reactor-{purpose}-{choice:?}-{}.sock", std::process::id());
    std::env::temp_dir().join(name)
}
