//! The epoll driver: level-triggered, one receive per ready connection and turn, into one buffer of the thread.
//!
//! Called by `Reactor` only. It never reads until EAGAIN: a connection with more to say is simply ready again.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::listener::{ACCEPT_PAUSE, Accept, ListenAddr, Listener};
use crate::sys;
use crate::table::ConnectionTable;
use crate::token::{TokenKind, split_kind, with_kind};
use crate::waker::Waker;
use crate::{CloseReason, Config, ListenerId, ReactorEvent, Socket, Token};

#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    connections: ConnectionTable<EpollConnection>,
    listeners: ConnectionTable<Listener>,
    // Kernel events of the current turn, the first `ready_len` of them; length is the limit per turn.
    ready: Vec<libc::epoll_event>,
    ready_len: usize,
    buffer: Vec<u8>,
    // Failures of epoll_ctl that are not reported yet.
    failed: Vec<(Token, io::Error)>,
    accept_again: Option<Instant>,
}

#[derive(Debug)]
struct EpollConnection {
    socket: Socket,
    interest: u32, // as the kernel has it; DETACHED when it has none
    paused: bool,
    ended: bool,
    wants_write: bool,
    by_hand: bool, // its bytes are left to the caller
}

impl Epoll {
    pub(crate) fn new(config: &Config, waker: &Waker) -> io::Result<Epoll> {
        // SAFETY: epoll_create1 takes no pointers.
        let fd = sys::owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // Edge-triggered: every ring of the eventfd is one event, and its counter need not be read.
        let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
        control(&fd, libc::EPOLL_CTL_ADD, waker.raw_fd(), edge, with_kind(0, TokenKind::Wake))?;
        Ok(Epoll {
            fd,
            connections: ConnectionTable::new(),
            listeners: ConnectionTable::new(),
            ready: vec![libc::epoll_event { events: 0, u64: 0 }; config.events_max.clamp(1, 4096)],
            ready_len: 0,
            buffer: vec![0; config.recv_bytes_max.max(1)],
            failed: Vec::new(),
            accept_again: None,
        })
    }

    pub(crate) fn listen(&mut self, listener: Listener) -> io::Result<ListenerId> {
        let raw_fd = listener.raw_fd();
        let name = self.listeners.insert(listener);
        let added = control(&self.fd, libc::EPOLL_CTL_ADD, raw_fd, READ, with_kind(name, TokenKind::Accept));
        if let Err(error) = added {
            self.listeners.remove(name);
            return Err(error);
        }
        Ok(ListenerId(name))
    }

    pub(crate) fn listener_address(&self, id: ListenerId) -> Option<&ListenAddr> {
        self.listeners.get(id.0).map(Listener::address)
    }

    pub(crate) fn stop_listening(&mut self, id: ListenerId) {
        self.listeners.remove(id.0);
    }

    pub(crate) fn register(&mut self, socket: Socket) -> io::Result<Token> {
        let raw_fd = socket.raw_fd();
        let connection = EpollConnection {
            socket,
            interest: READ,
            paused: false,
            ended: false,
            wants_write: false,
            by_hand: false,
        };
        let name = self.connections.insert(connection);
        if let Err(error) = control(&self.fd, libc::EPOLL_CTL_ADD, raw_fd, READ, name) {
            self.connections.remove(name);
            return Err(error);
        }
        Ok(Token(name))
    }

    #[inline]
    pub(crate) fn socket(&self, token: Token) -> Option<&Socket> {
        self.connections.get(token.0).map(|connection| &connection.socket)
    }

    pub(crate) fn connections_len(&self) -> usize {
        self.connections.len()
    }

    pub(crate) fn want_writable(&mut self, token: Token) {
        self.change(token, |connection| connection.wants_write = true);
    }

    pub(crate) fn pause(&mut self, token: Token) {
        self.change(token, |connection| connection.paused = true);
    }

    pub(crate) fn resume(&mut self, token: Token) {
        self.change(token, |connection| connection.paused = false);
    }

    pub(crate) fn receive_by_hand(&mut self, token: Token) {
        self.change(token, |connection| connection.by_hand = true);
    }

    pub(crate) fn receive_lent(&mut self, token: Token) {
        self.change(token, |connection| connection.by_hand = false);
    }

    /// The caller has received, and there is no more.
    pub(crate) fn end_receiving(&mut self, token: Token) {
        self.change(token, |connection| connection.ended = true);
    }

    /// The caller has received, and there may be more: the kernel tells of it anyway.
    pub(crate) fn await_more(&mut self, _token: Token) {}

    pub(crate) fn close(&mut self, token: Token) {
        // The kernel drops a closed descriptor from the set by itself.
        self.connections.remove(token.0);
    }

    /// Waits up to `timeout`, forever for `None`, until something is ready.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = if self.failed.is_empty() { self.shorten(timeout) } else { Some(Duration::ZERO) };
        let timeout_ms = match timeout {
            None => -1,
            // Rounded up, or a wait of 0.3 ms would spin.
            Some(timeout) => i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        let events_max = self.ready.len() as libc::c_int;
        // SAFETY: `ready` has room for `events_max` events and is borrowed for the call.
        let n =
            unsafe { libc::epoll_wait(self.fd.as_raw_fd(), self.ready.as_mut_ptr(), events_max, timeout_ms) };
        self.ready_len = match sys::check(n) {
            Ok(n) => n as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Passes the events of the wait to the sink; returns their number.
    pub(crate) fn deliver(&mut self, sink: &mut impl FnMut(ReactorEvent<'_>)) -> io::Result<usize> {
        let mut told = self.tell_failed(sink);
        self.accept_after_pause();
        for i in 0..std::mem::take(&mut self.ready_len) {
            let event = self.ready[i];
            match split_kind(event.u64) {
                Some((TokenKind::Receive, name)) => told += self.serve(Token(name), event.events, sink),
                Some((TokenKind::Accept, name)) => told += self.accept(ListenerId(name), sink),
                _ => {}
            }
        }
        Ok(told)
    }

    /// Ends the wait in time for the next accept.
    fn shorten(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(again) = self.accept_again else { return timeout };
        let rest = again.saturating_duration_since(Instant::now());
        Some(timeout.map_or(rest, |timeout| timeout.min(rest)))
    }

    /// Reports failures that the kernel does not report by itself, before anything newer of the same connection.
    fn tell_failed(&mut self, sink: &mut impl FnMut(ReactorEvent<'_>)) -> usize {
        let mut told = 0;
        for (token, error) in std::mem::take(&mut self.failed) {
            let Some(connection) = self.connections.get_mut(token.0) else { continue };
            if !std::mem::replace(&mut connection.ended, true) {
                sink(ReactorEvent::Closed { token, reason: CloseReason::Error(error) });
                told += 1;
            }
        }
        told
    }

    /// One connection's readiness: at most one `Writable` and one `Data`, `Readable` or `Closed`.
    #[inline]
    fn serve(&mut self, token: Token, ready: u32, sink: &mut impl FnMut(ReactorEvent<'_>)) -> usize {
        let Some(connection) = self.connections.get_mut(token.0) else { return 0 };
        let mut told = 0;
        if connection.wants_write && ready & (WRITE | GONE) != 0 {
            self.change(token, |connection| connection.wants_write = false);
            sink(ReactorEvent::Writable { token });
            told += 1;
        } else if !connection.reads() && ready & GONE != 0 {
            // Always reported, wanted or not: remove the descriptor from the set until something is wanted of it.
            self.detach(token);
            return 0;
        }
        if ready & (READ | GONE) == 0 {
            return told;
        }
        let Some(connection) = self.connections.get(token.0) else { return told };
        if !connection.reads() {
            return told;
        }
        if connection.by_hand {
            sink(ReactorEvent::Readable { token });
            return told + 1;
        }
        let reason = match sys::receive(connection.socket.raw_fd(), &mut self.buffer) {
            Ok(0) => CloseReason::Eof,
            Ok(n) => {
                sink(ReactorEvent::Data { token, bytes: &self.buffer[..n] });
                return told + 1;
            }
            Err(error) if sys::is_transient(&error) => return told,
            Err(error) => CloseReason::Error(error),
        };
        self.change(token, |connection| connection.ended = true);
        sink(ReactorEvent::Closed { token, reason });
        told + 1
    }

    fn accept(&mut self, id: ListenerId, sink: &mut impl FnMut(ReactorEvent<'_>)) -> usize {
        let mut told = 0;
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listeners.get(id.0) else { break };
            match listener.accept() {
                Accept::Socket(socket) => {
                    sink(ReactorEvent::Accepted { listener: id, socket });
                    told += 1;
                }
                Accept::Skip => {}
                Accept::Empty => break,
                Accept::Pause => {
                    self.listen_for(0);
                    self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
                    break;
                }
            }
        }
        told
    }

    fn accept_after_pause(&mut self) {
        if self.accept_again.is_some_and(|again| Instant::now() >= again) {
            self.accept_again = None;
            self.listen_for(READ);
        }
    }

    /// Descriptors run out for the whole process, so all listeners rest and return together.
    fn listen_for(&self, interest: u32) {
        for name in self.listeners.names() {
            if let Some(listener) = self.listeners.get(name) {
                // MOD of a descriptor in the set allocates nothing, so it cannot fail.
                let data = with_kind(name, TokenKind::Accept);
                let _ = control(&self.fd, libc::EPOLL_CTL_MOD, listener.raw_fd(), interest, data);
            }
        }
    }

    /// Changes the interest in a connection, and tells the kernel if that makes a difference.
    fn change(&mut self, token: Token, edit: impl FnOnce(&mut EpollConnection)) {
        let Some(connection) = self.connections.get_mut(token.0) else { return };
        edit(connection);
        let wanted = connection.wanted();
        if wanted == connection.interest || (connection.interest == DETACHED && wanted == 0) {
            return;
        }
        let operation =
            if connection.interest == DETACHED { libc::EPOLL_CTL_ADD } else { libc::EPOLL_CTL_MOD };
        match control(&self.fd, operation, connection.socket.raw_fd(), wanted, token.0) {
            Ok(()) => connection.interest = wanted,
            Err(error) => self.failed.push((token, error)),
        }
    }

    fn detach(&mut self, token: Token) {
        if let Some(connection) = self.connections.get_mut(token.0) {
            connection.interest = DETACHED;
            // Only a descriptor that is not in the set could fail here, and that is the wanted state.
            let _ = control(&self.fd, libc::EPOLL_CTL_DEL, connection.socket.raw_fd(), 0, 0);
        }
    }
}

impl EpollConnection {
    #[inline]
    fn reads(&self) -> bool {
        !self.paused && !self.ended
    }

    fn wanted(&self) -> u32 {
        let read = if self.reads() { READ } else { 0 };
        let write = if self.wants_write { WRITE } else { 0 };
        read | write
    }
}

fn control(set: &OwnedFd, operation: libc::c_int, fd: RawFd, interest: u32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events: interest, u64: data };
    // SAFETY: `event` is borrowed for the call.
    sys::check(unsafe { libc::epoll_ctl(set.as_raw_fd(), operation, fd, &raw mut event) }).map(drop)
}

const READ: u32 = libc::EPOLLIN as u32;
const WRITE: u32 = libc::EPOLLOUT as u32;
// Reported by the kernel whatever the interest.
const GONE: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const DETACHED: u32 = u32::MAX;
// A burst of clients must not starve those already served.
const ACCEPTS_PER_TURN: usize = 64;
