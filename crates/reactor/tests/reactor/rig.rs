//! A reactor with a diary, for tests that drive the turns themselves.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use darter_reactor::{
    CloseReason, Config, DriverChoice, ListenAddr, ListenerId, Reactor, ReactorEvent, Socket, Token,
};

/// The events that the sink received, in order.
#[derive(Debug)]
pub enum Seen {
    Data(Token, Vec<u8>),
    Eof(Token),
    Failed(Token, std::io::Error),
    Writable(Token),
}

pub struct Rig {
    pub reactor: Reactor,
    pub accepted: Vec<Socket>,
    pub seen: Vec<Seen>,
    pub turns: usize,
    /// Bytes taken at once of a connection whose bytes come by hand.
    pub hand_bytes: usize,
}

impl Rig {
    pub fn new(choice: DriverChoice) -> Rig {
        Rig::with(choice, &Config::default())
    }

    pub fn with(choice: DriverChoice, config: &Config) -> Rig {
        let reactor = Reactor::new(choice, config).unwrap();
        Rig { reactor, accepted: Vec::new(), seen: Vec::new(), turns: 0, hand_bytes: 5_000 }
    }

    pub fn listen(&mut self) -> (ListenerId, SocketAddr) {
        let any = ListenAddr::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let id = self.reactor.listen(&any).unwrap();
        match self.reactor.local_addr(id) {
            Some(ListenAddr::Tcp(address)) => (id, address),
            other => panic!("listening at {other:?}"),
        }
    }

    pub fn turn(&mut self, timeout: Duration) -> usize {
        self.turns += 1;
        let (accepted, seen, mut readable) = (&mut self.accepted, &mut self.seen, Vec::new());
        let told = self
            .reactor
            .turn(
                Some(timeout),
                || true,
                |event| match event {
                    ReactorEvent::Accepted { socket, .. } => accepted.push(socket),
                    ReactorEvent::Data { token, bytes } => {
                        assert!(!bytes.is_empty());
                        seen.push(Seen::Data(token, bytes.to_vec()));
                    }
                    ReactorEvent::Closed { token, reason: CloseReason::Eof } => seen.push(Seen::Eof(token)),
                    ReactorEvent::Closed { token, reason: CloseReason::Error(error) } => {
                        seen.push(Seen::Failed(token, error))
                    }
                    ReactorEvent::Writable { token } => seen.push(Seen::Writable(token)),
                    ReactorEvent::Readable { token } => readable.push(token),
                },
            )
            .unwrap();
        for token in readable {
            self.take(token);
        }
        told
    }

    fn take(&mut self, token: Token) {
        let mut bytes = Vec::new();
        let seen = match self.reactor.receive(token, &mut bytes, self.hand_bytes) {
            Ok(0) => Seen::Eof(token),
            Ok(n) => {
                assert!(n == bytes.len() && n <= self.hand_bytes);
                Seen::Data(token, bytes)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(error) => Seen::Failed(token, error),
        };
        self.seen.push(seen);
    }

    /// Turns until `done`; fails after a minute.
    pub fn until(&mut self, mut done: impl FnMut(&mut Rig) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(self) {
            assert!(Instant::now() < deadline, "not within a minute; last seen {:?}", self.seen.last());
            self.turn(Duration::from_millis(20));
        }
    }

    /// Turns for a while, for things that must not happen.
    pub fn rest(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            self.turn(deadline.saturating_duration_since(Instant::now()));
        }
    }

    /// A client and its registered connection.
    pub fn connect(&mut self) -> (TcpStream, Token) {
        let (id, address) = self.listen();
        let client = TcpStream::connect(address).unwrap();
        self.until(|rig| !rig.accepted.is_empty());
        self.reactor.stop_listening(id);
        let token = self.reactor.register(self.accepted.pop().unwrap()).unwrap();
        (client, token)
    }

    /// Bytes told for a connection so far.
    pub fn bytes(&self, token: Token) -> Vec<u8> {
        let mut all = Vec::new();
        for seen in &self.seen {
            if let Seen::Data(owner, bytes) = seen
                && *owner == token
            {
                all.extend_from_slice(bytes);
            }
        }
        all
    }

    pub fn has_eof(&self, token: Token) -> bool {
        self.seen.iter().any(|seen| matches!(seen, Seen::Eof(owner) if *owner == token))
    }

    pub fn has_writable(&self, token: Token) -> bool {
        self.seen.iter().any(|seen| matches!(seen, Seen::Writable(owner) if *owner == token))
    }

    pub fn failure(&self, token: Token) -> Option<std::io::ErrorKind> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Failed(owner, error) if *owner == token => Some(error.kind()),
            _ => None,
        })
    }
}

/// Bytes that tell their position, so that loss, repetition and disorder show.
pub fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|i| (i.wrapping_mul(2_654_435_761) >> 16) as u8).collect()
}

/// Returns true if `bytes` is the pattern from its beginning.
pub fn is_pattern(bytes: &[u8]) -> bool {
    bytes == pattern(0, bytes.len())
}

/// Writes the pattern in uneven pieces, then ends the stream.
pub fn stream_pattern(mut client: TcpStream, len: usize) {
    let (mut sent, mut piece) = (0, 1);
    while sent < len {
        let now = piece.min(len - sent);
        client.write_all(&pattern(sent, now)).unwrap();
        sent += now;
        piece = piece * 3 % 7_919 + 1;
    }
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = client.read_to_end(&mut rest);
}

/// Makes dropping the stream reset the connection instead of ending it.
pub fn reset_on_drop(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: `linger` lives over the call and its size is the one given.
    let result = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(stream),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

/// Makes two tests of each function: one per driver.
macro_rules! on_both_drivers {
    ($($(#[$attribute:meta])* fn $name:ident($choice:ident) $body:block)*) => {
        $(mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[$attribute])*
            fn run($choice: darter_reactor::DriverChoice) $body
            #[test]
            fn epoll() {
                run(darter_reactor::DriverChoice::Epoll);
            }
            #[test]
            fn uring() {
                if $crate::rig::has_uring() {
                    run(darter_reactor::DriverChoice::Uring);
                }
            }
        })*
    };
}
pub(crate) use on_both_drivers;

/// Returns true if the kernel allows io_uring here; prints a note to the test's output if not.
pub fn has_uring() -> bool {
    match Reactor::new(DriverChoice::Uring, &Config::default()) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}
