//! The io_uring driver: one multishot accept per listener, one multishot receive per connection, into lent buffers.
//!
//! Called by `Reactor` only. An operation in flight keeps its connection's slot and descriptor until its last
//! completion, so a completion always finds the tenant it was started for, and no buffer is freed under the kernel.

mod buffers;
mod ending;
mod ring;
mod sends;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::listener::{ACCEPT_PAUSE, Accept, ListenAddr, Listener, accept_failure};
use crate::sys;
use crate::table::ConnectionTable;
use crate::token::{TokenKind, split_kind};
use crate::waker::Waker;
use crate::{CloseReason, Config, ListenerId, ReactorEvent, Socket, Token};
use buffers::Buffers;
use ring::{Completion, UringRing};
use sends::{SENDS_MAX, Sends};

#[derive(Debug)]
pub(crate) struct Uring {
    ring: UringRing,
    // `None` only while dropping.
    buffers: Option<Buffers>,
    connections: ConnectionTable<UringConnection>,
    closing_len: usize, // connections closed by the caller whose operations still run, <= connections.len()
    listeners: ConnectionTable<UringListener>,
    // Completions set aside while waiting for a particular one, older than anything in the ring.
    stash: VecDeque<Completion>,
    accept_again: Option<Instant>,
    eventfd: RawFd,
    watching: bool,
    events_max: usize,
    // Opened when there is something for it; an error is remembered.
    sends: Option<Result<Sends, io::ErrorKind>>,
}

#[derive(Debug)]
struct UringConnection {
    socket: Socket,
    receiving: Receiving,
    polling: bool, // a poll for writability is in flight
    paused: bool,
    ended: bool,
    closing: bool,
    by_hand: bool, // its bytes are left to the caller
}

/// The request in flight for a connection's next bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiving {
    Nothing,
    /// A receive into lent buffers.
    Lent,
    /// A poll for readability.
    Awaited,
}

#[derive(Debug)]
struct UringListener {
    listener: Listener,
    accepting: bool, // an accept is in flight
}

impl Uring {
    pub(crate) fn new(config: &Config, waker: &Waker) -> io::Result<Uring> {
        let events_max = config.events_max.clamp(1, 4096);
        let ring = UringRing::open(events_max as u32 * 4)?;
        let buffers = Buffers::new(config.ring_buffers_len, config.ring_buffer_bytes)?;
        // SAFETY: our Drop frees the buffers only after the last receive completed, else it leaks them.
        unsafe { ring.lend(&buffers)? };
        Ok(Uring {
            ring,
            buffers: Some(buffers),
            connections: ConnectionTable::new(),
            closing_len: 0,
            listeners: ConnectionTable::new(),
            stash: VecDeque::new(),
            accept_again: None,
            eventfd: waker.raw_fd(),
            watching: false,
            events_max,
            sends: None,
        })
    }

    /// Sends bytes through a small separate ring, because set-up may succeed although operations are refused.
    pub(crate) fn probe() -> io::Result<()> {
        let config =
            Config { events_max: 8, ring_buffers_len: 1, ring_buffer_bytes: 64, ..Config::default() };
        let waker = Waker::new()?;
        let mut driver = Uring::new(&config, &waker)?;
        let (near, far) = UnixStream::pair()?;
        driver.register(Socket::from_unix(near)?)?;
        sys::send(std::os::fd::AsRawFd::as_raw_fd(&far), b"probe")?;
        let mut arrived = Ok(false);
        for _ in 0..4 {
            driver.wait(Some(Duration::from_millis(50)))?;
            driver.deliver(&mut |event| match event {
                ReactorEvent::Data { bytes, .. } => arrived = Ok(bytes == b"probe"),
                ReactorEvent::Closed { reason: CloseReason::Error(error), .. } => arrived = Err(error),
                _ => {}
            })?;
            if !matches!(arrived, Ok(false)) {
                break;
            }
        }
        match arrived {
            Ok(true) => Ok(()),
            Ok(false) => Err(io::Error::new(io::ErrorKind::Unsupported, "a probe receive got nothing")),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn listen(&mut self, listener: Listener) -> io::Result<ListenerId> {
        let raw_fd = listener.raw_fd();
        let name = self.listeners.insert(UringListener { listener, accepting: true });
        self.ring.accept(raw_fd, name);
        Ok(ListenerId(name))
    }

    pub(crate) fn listener_address(&self, id: ListenerId) -> Option<&ListenAddr> {
        self.listeners.get(id.0).map(|listening| listening.listener.address())
    }

    pub(crate) fn register(&mut self, socket: Socket) -> io::Result<Token> {
        let raw_fd = socket.raw_fd();
        let connection = UringConnection {
            socket,
            receiving: Receiving::Lent,
            polling: false,
            paused: false,
            ended: false,
            closing: false,
            by_hand: false,
        };
        let name = self.connections.insert(connection);
        self.ring.receive(raw_fd, name);
        Ok(Token(name))
    }

    #[inline]
    pub(crate) fn socket(&self, token: Token) -> Option<&Socket> {
        self.connections.get(token.0).filter(|connection| !connection.closing).map(|open| &open.socket)
    }

    pub(crate) fn connections_len(&self) -> usize {
        self.connections.len() - self.closing_len
    }

    pub(crate) fn want_writable(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        if !std::mem::replace(&mut connection.polling, true) {
            let raw_fd = connection.socket.raw_fd();
            self.ring.poll_writable(raw_fd, token.0);
        }
    }

    pub(crate) fn pause(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        if !std::mem::replace(&mut connection.paused, true) && connection.receiving == Receiving::Lent {
            self.ring.cancel_receive(token.0);
        }
    }

    pub(crate) fn receive_by_hand(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        let is_new = !std::mem::replace(&mut connection.by_hand, true);
        // The poll begins with the last completion of the receive. One that pauses is being cancelled already.
        if is_new && connection.receiving == Receiving::Lent && !connection.paused {
            self.ring.cancel_receive(token.0);
        }
    }

    pub(crate) fn receive_lent(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        // A poll that is in flight ends first: with the bytes that the receive is to find.
        connection.by_hand = false;
        self.receive_on(token);
    }

    /// The caller has received, and there is no more.
    pub(crate) fn end_receiving(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        connection.ended = true;
    }

    /// The caller has received, and there may be more.
    pub(crate) fn await_more(&mut self, token: Token) {
        self.receive_on(token);
    }

    pub(crate) fn resume(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        connection.paused = false;
        self.receive_on(token);
    }

    /// See [`crate::Reactor::send_many`].
    pub(crate) fn send_many(&mut self, pieces: &[(Token, &[u8])], took: &mut Vec<io::Result<usize>>) -> bool {
        let sends = self.sends.get_or_insert_with(|| Sends::open().map_err(|error| error.kind()));
        let Ok(sends) = sends else { return false };
        for some in pieces.chunks(SENDS_MAX) {
            // A stale token gets a descriptor that nothing can be sent to.
            let fd_of = |token: Token| self.connections.get(token.0).filter(|open| !open.closing);
            let some = some
                .iter()
                .map(|&(token, bytes)| (fd_of(token).map_or(-1, |open| open.socket.raw_fd()), bytes));
            sends.send(&some.collect::<Vec<_>>(), took);
        }
        true
    }

    /// Submits queued operations and waits up to `timeout`, forever for `None`, until one has completed.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.accept_after_pause();
        if !self.watching {
            self.watching = true;
            self.ring.watch(self.eventfd);
        }
        let timeout = if self.stash.is_empty() { self.shorten(timeout) } else { Some(Duration::ZERO) };
        self.ring.wait(timeout)
    }

    /// Passes completions to the sink; returns the number of events.
    pub(crate) fn deliver(&mut self, sink: &mut impl FnMut(ReactorEvent<'_>)) -> io::Result<usize> {
        let mut told = 0;
        for _ in 0..self.events_max {
            let next = if self.stash.is_empty() { self.ring.next() } else { self.stash.pop_front() };
            let Some(completion) = next else { break };
            told += self.complete(completion, sink);
        }
        Ok(told)
    }

    fn shorten(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(again) = self.accept_again else { return timeout };
        let rest = again.saturating_duration_since(Instant::now());
        Some(timeout.map_or(rest, |timeout| timeout.min(rest)))
    }

    #[inline]
    fn complete(&mut self, completion: Completion, sink: &mut impl FnMut(ReactorEvent<'_>)) -> usize {
        match split_kind(completion.data) {
            Some((TokenKind::Receive, name)) => self.received(Token(name), completion, sink),
            Some((TokenKind::Poll, name)) => self.polled(Token(name), sink),
            Some((TokenKind::Readable, name)) => self.readable(Token(name), sink),
            Some((TokenKind::Accept, name)) => self.accepted(ListenerId(name), completion, sink),
            Some((TokenKind::Wake, _)) => {
                self.watching = completion.more;
                0
            }
            Some((TokenKind::Cancel, name)) => {
                self.retry_cancel(Token(name), completion.result);
                0
            }
            // The caller that stops a listener waits for its completions itself.
            Some((TokenKind::CancelAccept, _)) | None => 0,
        }
    }

    #[inline]
    fn received(
        &mut self,
        token: Token,
        completion: Completion,
        sink: &mut impl FnMut(ReactorEvent<'_>),
    ) -> usize {
        let mut told = 0;
        if let Some(connection) = self.connections.get_mut(token.0) {
            let silent = connection.closing || connection.ended;
            connection.receiving = if completion.more { Receiving::Lent } else { Receiving::Nothing };
            match completion.result {
                n if n > 0 => {
                    if let (Some(id), Some(buffers), false) = (completion.buffer, &self.buffers, silent)
                        && let Some(bytes) = buffers.bytes(id, n as usize)
                    {
                        sink(ReactorEvent::Data { token, bytes });
                        told = 1;
                    }
                }
                n => {
                    if let (Some(reason), false) = (end_of(n), silent) {
                        connection.ended = true;
                        sink(ReactorEvent::Closed { token, reason });
                        told = 1;
                    }
                }
            }
        }
        self.give_back(completion);
        if !completion.more {
            self.after_operation(token);
        }
        told
    }

    fn polled(&mut self, token: Token, sink: &mut impl FnMut(ReactorEvent<'_>)) -> usize {
        let Some(connection) = self.connections.get_mut(token.0) else { return 0 };
        connection.polling = false;
        if connection.closing {
            self.after_operation(token);
            return 0;
        }
        sink(ReactorEvent::Writable { token });
        1
    }

    fn readable(&mut self, token: Token, sink: &mut impl FnMut(ReactorEvent<'_>)) -> usize {
        let Some(connection) = self.connections.get_mut(token.0) else { return 0 };
        connection.receiving = Receiving::Nothing;
        if connection.closing || !connection.by_hand || connection.paused || connection.ended {
            self.after_operation(token);
            return 0;
        }
        sink(ReactorEvent::Readable { token });
        1
    }

    fn accepted(
        &mut self,
        id: ListenerId,
        completion: Completion,
        sink: &mut impl FnMut(ReactorEvent<'_>),
    ) -> usize {
        let accept = adopt(completion.result);
        let Some(listening) = self.listeners.get_mut(id.0) else { return 0 };
        listening.accepting = completion.more;
        let raw_fd = listening.listener.raw_fd();
        if let Accept::Pause = accept {
            self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
        } else if !completion.more && self.accept_again.is_none() {
            listening.accepting = true;
            self.ring.accept(raw_fd, id.0);
        }
        let Accept::Socket(socket) = accept else { return 0 };
        sink(ReactorEvent::Accepted { listener: id, socket });
        1
    }

    fn accept_after_pause(&mut self) {
        if self.accept_again.is_none_or(|again| Instant::now() < again) {
            return;
        }
        self.accept_again = None;
        let names: Vec<u64> = self.listeners.names().collect();
        for name in names {
            let Some(listening) = self.listeners.get_mut(name) else { continue };
            if !std::mem::replace(&mut listening.accepting, true) {
                let raw_fd = listening.listener.raw_fd();
                self.ring.accept(raw_fd, name);
            }
        }
    }

    /// After an operation's last completion: frees the slot of a closed connection, or receives on.
    fn after_operation(&mut self, token: Token) {
        let Some(connection) = self.connections.get(token.0) else { return };
        if !connection.closing {
            self.receive_on(token);
        } else if !connection.is_busy() {
            self.closing_len -= 1;
            self.connections.remove(token.0);
        }
    }

    fn receive_on(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        if connection.paused || connection.ended || connection.receiving != Receiving::Nothing {
            return;
        }
        let raw_fd = connection.socket.raw_fd();
        if connection.by_hand {
            connection.receiving = Receiving::Awaited;
            self.ring.poll_readable(raw_fd, token.0);
        } else {
            connection.receiving = Receiving::Lent;
            self.ring.receive(raw_fd, token.0);
        }
    }

    #[inline]
    fn give_back(&mut self, completion: Completion) {
        if let (Some(id), Some(buffers)) = (completion.buffer, &mut self.buffers) {
            buffers.give_back(id);
        }
    }

    #[inline]
    fn open(&mut self, token: Token) -> Option<&mut UringConnection> {
        self.connections.get_mut(token.0).filter(|connection| !connection.closing)
    }
}

impl UringConnection {
    #[inline]
    fn is_busy(&self) -> bool {
        self.receiving != Receiving::Nothing || self.polling
    }

    /// Operations in flight, 0..=2.
    fn operations_len(&self) -> i32 {
        i32::from(self.receiving != Receiving::Nothing) + i32::from(self.polling)
    }
}

/// The meaning of a receive's negative or zero result for the reader; `None` if it must just be started again.
fn end_of(result: i32) -> Option<CloseReason> {
    match -result {
        0 => Some(CloseReason::Eof),
        libc::ENOBUFS | libc::ECANCELED | libc::EAGAIN | libc::EINTR => None,
        errno => Some(CloseReason::Error(io::Error::from_raw_os_error(errno))),
    }
}

/// Makes a socket from the result of an accept.
fn adopt(result: i32) -> Accept {
    if result < 0 {
        return match -result {
            libc::ECANCELED => Accept::Empty,
            errno => accept_failure(&io::Error::from_raw_os_error(errno)),
        };
    }
    let Ok(fd) = sys::owned(result) else { return Accept::Skip };
    match sys::peer_address(fd.as_fd()) {
        Ok(address) => Accept::Socket(Socket::accepted(fd, &address)),
        // The client left between the accept and the query of its address.
        Err(_) => Accept::Skip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // Each slot carries a generation and a free-list link besides.
        assert!(size_of::<UringConnection>() + 8 <= 80, "{}", size_of::<UringConnection>());
    }
}
