//! Waiting at start for an address that a killed process still holds. The kernel keeps the listeners of a process that
//! used io_uring for some moments after it was killed, and takes connections for them.
//!
//! A connection shows whether a server lives there. If it does, the port was given by mistake and is an error at once.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use darter_reactor::{ListenAddr, ListenerId, Reactor};

/// How long addresses that are in use are waited for, all together.
pub struct Patience<'a> {
    until: Option<Instant>,
    is_over: &'a dyn Fn() -> bool,
}

/// What a start waits for at most.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The time a server has for its answer; who takes longer is asked again.
const ANSWER_MAX: Duration = Duration::from_millis(100);
/// The time between two attempts where nobody takes connections.
const PAUSE: Duration = Duration::from_millis(5);

impl<'a> Patience<'a> {
    /// For some seconds, unless `is_over` says that nobody waits for the start any more.
    pub fn at_start(is_over: &'a dyn Fn() -> bool) -> Patience<'a> {
        Patience { until: Some(Instant::now() + TIME_MAX), is_over }
    }

    /// None.
    pub fn none() -> Patience<'static> {
        Patience { until: None, is_over: &|| true }
    }

    /// Listens at an address, as soon as it is free.
    ///
    /// Errors: as [`Reactor::listen`]; the address is in use by somebody who answers, or for too long.
    pub fn listen(&self, reactor: &mut Reactor, at: &ListenAddr) -> io::Result<ListenerId> {
        let mut is_told = false;
        loop {
            let error = match reactor.listen(at) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => error,
                done => return done,
            };
            if self.until.is_none_or(|until| Instant::now() >= until) || (self.is_over)() {
                return Err(error);
            }
            if answers(at) {
                return Err(io::Error::new(error.kind(), format!("{error}, a server answers there")));
            }
            if !std::mem::replace(&mut is_told, true) {
                let place = match at {
                    ListenAddr::Tcp(at) => at.to_string(),
                    ListenAddr::Unix { path, .. } => path.display().to_string(),
                };
                tracing::warn!("{place} is in use, but nobody answers there: trying again for up to 10 s");
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Returns true if a server at the address answers.
fn answers(at: &ListenAddr) -> bool {
    let answer = match at {
        ListenAddr::Tcp(at) => TcpStream::connect_timeout(at, ANSWER_MAX).and_then(|stream| {
            // Where nobody listens, a connection may have met itself.
            let is_own = stream.local_addr()? == stream.peer_addr()?;
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            Ok(!is_own && replies(stream)?)
        }),
        ListenAddr::Unix { path, .. } => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(ANSWER_MAX))?;
            replies(stream)
        }),
    };
    answer.unwrap_or(false)
}

/// Says what servers of Redis', memcached's and HTTP's protocol answer to.
fn replies(mut stream: impl Read + Write) -> io::Result<bool> {
    stream.write_all(b"PING\r\n")?;
    Ok(stream.read(&mut [0])? > 0)
}
