//! The io_uring driver: one multishot accept per listener, one multishot receive per connection, into lent buffers.
//!
//! Called by `Reactor` only. An operation in flight keeps its connection's slot and descriptor until its last
//! completion, so a completion always finds the tenant it was started for, and no buffer is freed under the kernel.

mod buffers;
mod ring;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::listener::{ACCEPT_PAUSE, Accept, ListenAddr, Listener, accept_failure};
use crate::sys;
use crate::table::Table;
use crate::token::{Kind, split_kind};
use crate::waker::Waker;
use crate::{CloseReason, Config, Event, ListenerId, Socket, Token};
use buffers::Buffers;
use ring::{Completion, Ring};

#[derive(Debug)]
pub(crate) struct Uring {
    ring: Ring,
    // `None` only while dropping.
    buffers: Option<Buffers>,
    connections: Table<Connection>,
    closing_len: usize, // connections closed by the caller whose operations still run, <= connections.len()
    listeners: Table<Listening>,
    // Completions set aside while waiting for a particular one, older than anything in the ring.
    stash: VecDeque<Completion>,
    // Connections with bytes that a former reactor had read.
    unread: Vec<Token>,
    accept_again: Option<Instant>,
    eventfd: RawFd,
    watching: bool,
    events_max: usize,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    receiving: bool, // a receive is in flight
    polling: bool,   // a poll for writability is in flight
    paused: bool,
    ended: bool,
    closing: bool,
}

#[derive(Debug)]
struct Listening {
    listener: Listener,
    accepting: bool, // an accept is in flight
}

impl Uring {
    pub(crate) fn new(config: &Config, waker: &Waker) -> io::Result<Uring> {
        let events_max = config.events_max.clamp(1, 4096);
        let ring = Ring::open(events_max as u32 * 4)?;
        let buffers = Buffers::new(config.ring_buffers_len, config.ring_buffer_bytes)?;
        // SAFETY: our Drop frees the buffers only after the last receive completed, else it leaks them.
        unsafe { ring.lend(&buffers)? };
        Ok(Uring {
            ring,
            buffers: Some(buffers),
            connections: Table::new(),
            closing_len: 0,
            listeners: Table::new(),
            stash: VecDeque::new(),
            unread: Vec::new(),
            accept_again: None,
            eventfd: waker.raw_fd(),
            watching: false,
            events_max,
        })
    }

    /// Sends bytes through a small ring of its own, because set-up may succeed where operations are refused.
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
                Event::Data { bytes, .. } => arrived = Ok(bytes == b"probe"),
                Event::Closed { reason: CloseReason::Error(error), .. } => arrived = Err(error),
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
        let name = self.listeners.insert(Listening { listener, accepting: true });
        self.ring.accept(raw_fd, name);
        Ok(ListenerId(name))
    }

    pub(crate) fn listener_address(&self, id: ListenerId) -> Option<&ListenAddr> {
        self.listeners.get(id.0).map(|listening| listening.listener.address())
    }

    pub(crate) fn stop_listening(&mut self, id: ListenerId) {
        if self.listeners.get(id.0).is_some_and(|listening| listening.accepting) {
            self.ring.cancel(Kind::Accept, id.0);
            // Waiting frees the port before this returns; on a fault of the ring the slot stays until it is dropped.
            let waited = self.await_completions(id.0, |driver, kind, completion| {
                match kind {
                    Kind::Accept => drop(adopt(completion.result)),
                    Kind::Cancel => driver.retry_cancel_accept(id, completion.result),
                    _ => {}
                }
                let Some(listening) = driver.listeners.get_mut(id.0) else { return true };
                if kind == Kind::Accept && !completion.more {
                    listening.accepting = false;
                }
                !listening.accepting
            });
            if waited.is_err() {
                return;
            }
        }
        self.listeners.remove(id.0);
    }

    pub(crate) fn register(&mut self, socket: Socket) -> io::Result<Token> {
        let unread = !socket.unread.is_empty();
        let raw_fd = socket.raw_fd();
        let connection = Connection {
            socket,
            receiving: true,
            polling: false,
            paused: false,
            ended: false,
            closing: false,
        };
        let name = self.connections.insert(connection);
        self.ring.receive(raw_fd, name);
        if unread {
            self.unread.push(Token(name));
        }
        Ok(Token(name))
    }

    #[inline]
    pub(crate) fn socket(&self, token: Token) -> Option<&Socket> {
        self.connections.get(token.0).filter(|connection| !connection.closing).map(|open| &open.socket)
    }

    pub(crate) fn connections_len(&self) -> usize {
        self.connections.len() - self.closing_len
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.connections.names().map(Token).filter(|&token| self.socket(token).is_some())
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
        if !std::mem::replace(&mut connection.paused, true) && connection.receiving {
            self.ring.cancel(Kind::Receive, token.0);
        }
    }

    pub(crate) fn resume(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        connection.paused = false;
        if !connection.socket.unread.is_empty() {
            self.unread.push(token);
        }
        self.receive_on(token);
    }

    pub(crate) fn close(&mut self, token: Token) {
        let Some(connection) = self.open(token) else { return };
        if connection.is_busy() {
            connection.closing = true;
            let raw_fd = connection.socket.raw_fd();
            self.closing_len += 1;
            self.ring.cancel_all(raw_fd, token.0);
        } else {
            self.connections.remove(token.0);
        }
    }

    pub(crate) fn take(&mut self, token: Token) -> Option<Socket> {
        let connection = self.open(token)?;
        if connection.is_busy() {
            // Ends the retries of `receive_on`, and no event of it is told any more.
            connection.closing = true;
            let raw_fd = connection.socket.raw_fd();
            self.closing_len += 1;
            self.ring.cancel_all(raw_fd, token.0);
            let mut rest = Vec::new();
            let waited = self.await_completions(token.0, |driver, kind, completion| {
                driver.collect(token, kind, completion, &mut rest)
            });
            if waited.is_err() {
                return None; // still closing: its last completion frees it
            }
            self.closing_len -= 1;
            let mut socket = self.connections.remove(token.0)?.socket;
            append(&mut socket.unread, &rest);
            return Some(socket);
        }
        self.connections.remove(token.0).map(|connection| connection.socket)
    }

    /// Submits what is queued and waits up to `timeout`, forever for `None`, until something completed.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.accept_after_pause();
        if !self.watching {
            self.watching = true;
            self.ring.watch(self.eventfd);
        }
        let now = !self.stash.is_empty() || !self.unread.is_empty();
        let timeout = if now { Some(Duration::ZERO) } else { self.shorten(timeout) };
        self.ring.wait(timeout)
    }

    /// Tells the sink what completed; returns how many events that made.
    pub(crate) fn deliver(&mut self, sink: &mut impl FnMut(Event<'_>)) -> io::Result<usize> {
        let mut told = if self.unread.is_empty() { 0 } else { self.settle(sink) };
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

    /// Tells what a former reactor had read, before anything newer of the same connection.
    fn settle(&mut self, sink: &mut impl FnMut(Event<'_>)) -> usize {
        let mut told = 0;
        for token in std::mem::take(&mut self.unread) {
            let Some(connection) = self.open(token) else { continue };
            if !connection.paused && !connection.socket.unread.is_empty() {
                let bytes = std::mem::take(&mut connection.socket.unread);
                sink(Event::Data { token, bytes: &bytes });
                told += 1;
            }
        }
        told
    }

    #[inline]
    fn complete(&mut self, completion: Completion, sink: &mut impl FnMut(Event<'_>)) -> usize {
        match split_kind(completion.data) {
            Some((Kind::Receive, name)) => self.received(Token(name), completion, sink),
            Some((Kind::Poll, name)) => self.polled(Token(name), sink),
            Some((Kind::Accept, name)) => self.accepted(ListenerId(name), completion, sink),
            Some((Kind::Wake, _)) => {
                self.watching = completion.more;
                0
            }
            Some((Kind::Cancel, name)) => {
                self.retry_cancel(Token(name), completion.result);
                0
            }
            None => 0,
        }
    }

    #[inline]
    fn received(&mut self, token: Token, completion: Completion, sink: &mut impl FnMut(Event<'_>)) -> usize {
        let mut told = 0;
        if let Some(connection) = self.connections.get_mut(token.0) {
            let silent = connection.closing || connection.ended;
            connection.receiving = completion.more;
            match completion.result {
                n if n > 0 => {
                    if let (Some(id), Some(buffers), false) = (completion.buffer, &self.buffers, silent)
                        && let Some(bytes) = buffers.bytes(id, n as usize)
                    {
                        if connection.socket.unread.is_empty() {
                            sink(Event::Data { token, bytes });
                            told = 1;
                        } else {
                            // Older bytes are still held back by a pause: keep the order.
                            append(&mut connection.socket.unread, bytes);
                        }
                    }
                }
                n => {
                    if let (Some(reason), false) = (end_of(n), silent) {
                        connection.ended = true;
                        sink(Event::Closed { token, reason });
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

    fn polled(&mut self, token: Token, sink: &mut impl FnMut(Event<'_>)) -> usize {
        let Some(connection) = self.connections.get_mut(token.0) else { return 0 };
        connection.polling = false;
        if connection.closing {
            self.after_operation(token);
            return 0;
        }
        sink(Event::Writable { token });
        1
    }

    fn accepted(
        &mut self,
        id: ListenerId,
        completion: Completion,
        sink: &mut impl FnMut(Event<'_>),
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
        sink(Event::Accepted { listener: id, socket });
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
        if !connection.paused && !connection.ended && !connection.receiving {
            connection.receiving = true;
            let raw_fd = connection.socket.raw_fd();
            self.ring.receive(raw_fd, token.0);
        }
    }

    /// A cancel misses an operation that the kernel is just about to try again; its last completion has not come
    /// then, and the cancel is repeated until it does.
    fn retry_cancel(&mut self, token: Token, result: i32) {
        let Some(connection) = self.connections.get(token.0) else { return };
        if connection.closing && connection.is_busy() && result <= 0 {
            self.ring.cancel_all(connection.socket.raw_fd(), token.0);
        } else if connection.paused && connection.receiving && result < 0 {
            self.ring.cancel(Kind::Receive, token.0);
        }
    }

    fn retry_cancel_accept(&mut self, id: ListenerId, result: i32) {
        if result < 0 && self.listeners.get(id.0).is_some_and(|listening| listening.accepting) {
            self.ring.cancel(Kind::Accept, id.0);
        }
    }

    /// Feeds `each` the completions of one name, in order, until it says true; all others are set aside for `deliver`.
    fn await_completions(
        &mut self,
        name: u64,
        mut each: impl FnMut(&mut Uring, Kind, Completion) -> bool,
    ) -> io::Result<()> {
        let mut done = false;
        for completion in std::mem::take(&mut self.stash) {
            match split_kind(completion.data) {
                Some((kind, owner)) if owner == name && kind != Kind::Wake => {
                    done |= each(self, kind, completion)
                }
                _ => self.stash.push_back(completion),
            }
        }
        while !done {
            while let Some(completion) = self.ring.next() {
                match split_kind(completion.data) {
                    Some((kind, owner)) if owner == name && kind != Kind::Wake => {
                        done |= each(self, kind, completion)
                    }
                    _ => self.stash.push_back(completion),
                }
            }
            if !done {
                self.ring.wait(None)?;
            }
        }
        Ok(())
    }

    /// One completion of a connection being taken; true when none is left in flight.
    fn collect(&mut self, token: Token, kind: Kind, completion: Completion, rest: &mut Vec<u8>) -> bool {
        match kind {
            Kind::Receive => {
                if let (Some(id), Some(buffers)) = (completion.buffer, &self.buffers)
                    && let Ok(n) = usize::try_from(completion.result)
                {
                    rest.extend_from_slice(buffers.bytes(id, n).unwrap_or_default());
                }
                self.give_back(completion);
            }
            Kind::Cancel => self.retry_cancel(token, completion.result),
            _ => {}
        }
        let Some(connection) = self.connections.get_mut(token.0) else { return true };
        match kind {
            Kind::Receive => connection.receiving = completion.more,
            Kind::Poll => connection.polling = false,
            _ => {}
        }
        !connection.is_busy()
    }

    #[inline]
    fn give_back(&mut self, completion: Completion) {
        if let (Some(id), Some(buffers)) = (completion.buffer, &mut self.buffers) {
            buffers.give_back(id);
        }
    }

    #[inline]
    fn open(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections.get_mut(token.0).filter(|connection| !connection.closing)
    }

    /// Cancels every operation and takes their last completions, so that ports and paths are free when we are gone;
    /// false if some did not come.
    fn drain(&mut self) -> bool {
        let connections = self.connections.names().filter_map(|name| self.connections.get(name));
        let operations =
            connections.map(|c| usize::from(c.receiving) + usize::from(c.polling)).sum::<usize>();
        let listeners = self.listeners.names().filter_map(|name| self.listeners.get(name));
        let accepts = listeners.filter(|listening| listening.accepting).count();
        let mut in_flight = operations + accepts + usize::from(self.watching);
        if !self.ring.is_enabled() {
            return true;
        }
        self.ring.cancel_everything();
        for _ in 0..DRAIN_WAITS {
            while let Some(completion) = self.stash.pop_front().or_else(|| self.ring.next()) {
                let kind = split_kind(completion.data).map(|(kind, _)| kind);
                if kind == Some(Kind::Accept) {
                    drop(adopt(completion.result));
                }
                // A poll without `more` was its only completion, like every other operation's last one.
                if kind != Some(Kind::Cancel) && !completion.more {
                    in_flight = in_flight.saturating_sub(1);
                }
            }
            if in_flight == 0 {
                return true;
            }
            if self.ring.wait(Some(DRAIN_WAIT)).is_err() {
                return false;
            }
        }
        false
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.drain() {
            // The kernel may still write into them: better lost than written over.
            std::mem::forget(self.buffers.take());
        }
    }
}

impl Connection {
    #[inline]
    fn is_busy(&self) -> bool {
        self.receiving || self.polling
    }
}

/// What a receive's negative or zero result means to the reader; `None` if it just has to be started again.
fn end_of(result: i32) -> Option<CloseReason> {
    match -result {
        0 => Some(CloseReason::Eof),
        libc::ENOBUFS | libc::ECANCELED | libc::EAGAIN | libc::EINTR => None,
        errno => Some(CloseReason::Error(io::Error::from_raw_os_error(errno))),
    }
}

/// Makes a socket of what an accept returned.
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
        // It left between the accept and the question.
        Err(_) => Accept::Skip,
    }
}

fn append(held: &mut Box<[u8]>, bytes: &[u8]) {
    if !bytes.is_empty() {
        let mut joined = std::mem::take(held).into_vec();
        joined.extend_from_slice(bytes);
        *held = joined.into_boxed_slice();
    }
}

const DRAIN_WAITS: u32 = 20;
const DRAIN_WAIT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        // Each slot carries a generation and a free-list link besides.
        assert!(size_of::<Connection>() + 8 <= 80, "{}", size_of::<Connection>());
    }
}
