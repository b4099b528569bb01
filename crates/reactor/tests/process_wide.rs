//! Tests that affect the whole process and cannot share it with other tests: signals, running out of descriptors,
//! leaks of descriptors.

use std::fs::{self, File};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use darter_reactor::signal::{Signal, Signals};
use darter_reactor::{Config, DriverChoice, ListenAddr, Reactor, ReactorEvent, Socket};

#[test]
fn process_wide_behaviour() {
    let mut choices = vec![DriverChoice::Epoll];
    match Reactor::new(DriverChoice::Uring, &Config::default()) {
        Ok(_) => choices.push(DriverChoice::Uring),
        Err(error) => eprintln!("skipped io_uring: {error}"),
    }
    for choice in choices {
        signals_end_the_sleep(choice);
        descriptors_are_not_leaked(choice);
        accepting_survives_the_end_of_descriptors(choice);
    }
}

fn signals_end_the_sleep(choice: DriverChoice) {
    let mut reactor = Reactor::new(choice, &Config::default()).unwrap();
    let mut signals = Signals::install(reactor.waker()).unwrap();
    assert!(!signals.pending() && signals.take().is_none());
    for (number, signal) in [
        (libc::SIGTERM, Signal::Terminate),
        (libc::SIGINT, Signal::Interrupt),
        (libc::SIGHUP, Signal::HangUp),
    ] {
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            // SAFETY: kill takes no pointers; the handler is installed.
            assert_eq!(unsafe { libc::kill(libc::getpid(), number) }, 0);
        });
        let start = Instant::now();
        while !signals.pending() {
            reactor.turn(Some(Duration::from_secs(120)), || true, |_| {}).unwrap();
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the signal did not wake the reactor");
        assert_eq!(signals.take(), Some(signal));
        assert_eq!(signals.take(), None);
        sender.join().unwrap();
    }
    // SAFETY: as above; SIGPIPE is ignored, or this ends the test.
    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGPIPE) }, 0);
    assert!(!signals.pending());
}

fn descriptors_are_not_leaked(choice: DriverChoice) {
    let before = open_descriptors();
    for _ in 0..3 {
        let (mut reactor, address) = listening(choice);
        let mut clients: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut sockets = accept(&mut reactor, 20);
        let unregistered = sockets.split_off(15);
        let tokens: Vec<_> = sockets.into_iter().map(|socket| reactor.register(socket).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"something to receive").unwrap();
        }
        reactor.turn(Some(Duration::from_millis(20)), || true, |_| {}).unwrap();
        for &token in &tokens[..5] {
            reactor.close(token);
        }
        drop((unregistered, reactor));
    }
    assert_eq!(open_descriptors(), before);
}

fn accepting_survives_the_end_of_descriptors(choice: DriverChoice) {
    // Before listening: io_uring remembers the limit that held when the accept was started.
    let former = limit_descriptors(open_descriptors() as u64 + 40);
    let (mut reactor, address) = listening(choice);
    reactor.turn(Some(Duration::ZERO), || true, |_| {}).unwrap();
    // Everything but the clients' own ends is taken.
    let clients: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    let (start, mut turns) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(350) {
        let told = reactor.turn(
            Some(Duration::from_millis(350)),
            || true,
            |event| {
                assert!(!matches!(event, ReactorEvent::Accepted { .. }));
            },
        );
        assert_eq!(told.unwrap(), 0);
        turns += 1;
    }
    assert!(turns < 20, "{turns} turns: accepting did not rest");
    drop(hoard);
    let sockets = accept(&mut reactor, clients.len());
    assert_eq!(sockets.len(), clients.len());
    limit_descriptors(former);
}

fn listening(choice: DriverChoice) -> (Reactor, SocketAddr) {
    let mut reactor = Reactor::new(choice, &Config::default()).unwrap();
    let id = reactor.listen(&ListenAddr::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
    match reactor.local_addr(id) {
        Some(ListenAddr::Tcp(address)) => (reactor, address),
        other => panic!("listening at {other:?}"),
    }
}

fn accept(reactor: &mut Reactor, wanted: usize) -> Vec<Socket> {
    let (start, mut sockets) = (Instant::now(), Vec::new());
    while sockets.len() < wanted {
        assert!(start.elapsed() < Duration::from_secs(60));
        let timeout = Some(Duration::from_millis(50));
        reactor
            .turn(
                timeout,
                || true,
                |event| {
                    if let ReactorEvent::Accepted { socket, .. } = event {
                        sockets.push(socket);
                    }
                },
            )
            .unwrap();
    }
    sockets
}

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Sets the soft limit and returns the former one.
fn limit_descriptors(limit: u64) -> u64 {
    let mut current = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit into `current`.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut current) }, 0);
    let wanted = libc::rlimit { rlim_cur: limit, rlim_max: current.rlim_max };
    // SAFETY: the kernel reads one rlimit from `wanted`.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) }, 0);
    current.rlim_cur
}
