//! What a thread has of the world outside: its reactor and its connections; and the turn it takes while a script of its
//! own runs too long.
//!
//! The worker owns it and works on it in each turn. For as long as a connection's commands run after the reactor's turn,
//! it is lent to the thread's state (`ThreadState::event_loop`), where a script that is overdue finds it: then new clients are let
//! in and all are told that the server is busy, as Redis does. Such a turn runs commands on other connections, which wait
//! for no shard; it touches neither the connection whose script runs nor any Lua.

use std::io::{ErrorKind, Write};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_reactor::{CloseReason, Reactor, ReactorEvent, Socket, Token};
use darter_script::ScriptKind;

use crate::clients::ClientInfo;
use crate::commands::login;
use crate::conn::Conn;
use crate::conn::output;
use crate::conn::traffic;
use crate::conn::window::ConnWindow;
use crate::journal;
use crate::listening::{Listening, RefusedConnection};
use crate::protocol::ListenerKind;
use crate::session::{Gate, Session};
use crate::shared::{ThreadHandle, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::tls;
use crate::worker::{find, mark_dirty};

/// A thread's reactor, its connections, and what the turn has still to do about them.
pub struct EventLoop {
    /// The thread's handle to the kernel.
    pub reactor: Reactor,
    /// Its connections, at the indices of their tokens.
    pub conns: Vec<Option<Box<Conn>>>,
    /// Those with something to send.
    pub dirty: Vec<Token>,
    /// Those whose requests wait until the mail has been read.
    pub late: Vec<Token>,
    /// New ones, not let in yet.
    pub accepted: Vec<(Socket, ListenerKind)>,
    /// Those that have ended, and whether politely.
    pub closed: Vec<(Token, bool)>,
    /// Those whose peer takes more bytes again.
    pub writable: Vec<Token>,
    /// Those that lack many bytes, which are to be received by hand.
    lacking: Vec<Token>,
    /// Those that have bytes to be received by hand.
    readable: Vec<Token>,
    /// Messages from other threads that have been taken out but not read.
    pub mail: Vec<ThreadMessage>,
    /// Where it listens.
    pub listening: Listening,
    /// The connection whose commands run while the event_loop is lent.
    running: Option<RunningTurn>,
    inner_window: ConnWindow,
}

/// A connection whose large request is there goes on to receive by hand while it brings so many bytes at once.
const BY_HAND_BYTES_MIN: usize = 16 << 10;

/// A connection that is away from its place, and what has come for it meanwhile.
struct RunningTurn {
    token: Token,
    bytes: Vec<u8>,
    is_paused: bool,
}

impl EventLoop {
    /// The event_loop around a reactor: nobody is there yet.
    pub fn new(reactor: Reactor) -> EventLoop {
        EventLoop {
            reactor,
            conns: Vec::new(),
            dirty: Vec::new(),
            late: Vec::new(),
            accepted: Vec::new(),
            closed: Vec::new(),
            writable: Vec::new(),
            lacking: Vec::new(),
            readable: Vec::new(),
            mail: Vec::new(),
            listening: Listening::default(),
            running: None,
            inner_window: ConnWindow::default(),
        }
    }

    /// Whether there is something to do without anything arriving.
    pub fn has_more(&self) -> bool {
        !(self.dirty.is_empty() && self.late.is_empty() && self.mail.is_empty())
    }

    /// Takes what arrived: runs commands, notes what else there is to do. Returns whether anything did.
    pub fn collect(
        &mut self,
        local: &mut ThreadState,
        window: &mut ConnWindow,
        sleep: Duration,
    ) -> std::io::Result<bool> {
        let EventLoop { reactor, conns, dirty, late, accepted, closed, writable, listening, running, .. } =
            self;
        let (lacking, readable) = (&mut self.lacking, &mut self.readable);
        let handle = local.shared.handle(local.thread);
        let mut is_first = !local.is_inside;
        let stats = local.stats();
        reactor.turn(
            Some(sleep),
            || !handle.has_mail(),
            |event| {
                if is_first {
                    local.refresh();
                    is_first = false;
                }
                match event {
                    ReactorEvent::Data { token, bytes } => {
                        stats.input_bytes.add(bytes.len() as u64);
                        stats.reads.add(1);
                        if let Some(conn) = find(conns, token) {
                            let waits = conn.hears_others() && handle.has_mail();
                            if waits {
                                late.push(token);
                            }
                            take_bytes(local, window, conn, bytes, waits);
                            if conn.lacks_much() && !conn.is_by_hand {
                                conn.is_by_hand = true;
                                lacking.push(token);
                            }
                            mark_dirty(conn, dirty);
                            local.journal.write_early(&local.shared.journal);
                        } else if let Some(away) = running.as_mut().filter(|away| away.token == token) {
                            away.bytes.extend_from_slice(bytes);
                        }
                    }
                    ReactorEvent::Accepted { listener, socket } => {
                        accepted.push((socket, listening.kind_of(listener)))
                    }
                    ReactorEvent::Closed { token, reason } => {
                        closed.push((token, matches!(reason, CloseReason::Eof)))
                    }
                    ReactorEvent::Writable { token } => writable.push(token),
                    ReactorEvent::Readable { token } => readable.push(token),
                }
            },
        )?;
        self.receive_by_hand(local, window);
        Ok(!is_first)
    }

    /// Receives what large requests lack, straight into the buffers of their connections.
    #[inline]
    fn receive_by_hand(&mut self, local: &mut ThreadState, window: &mut ConnWindow) {
        for token in self.lacking.drain(..) {
            self.reactor.receive_by_hand(token);
        }
        for at in 0..self.readable.len() {
            let token = self.readable[at];
            self.fill(local, window, token);
        }
        self.readable.clear();
    }

    #[cold]
    fn fill(&mut self, local: &mut ThreadState, window: &mut ConnWindow, token: Token) {
        let Some(conn) = find(&mut self.conns, token) else {
            // It is away from its place, and cannot lack anything there.
            return self.reactor.receive_lent(token);
        };
        let mut is_small = true;
        match conn.fill(local, &mut self.reactor) {
            Ok(0) => self.closed.push((token, true)),
            Ok(received) => {
                is_small = received < BY_HAND_BYTES_MIN;
                let stats = local.stats();
                stats.input_bytes.add(received as u64);
                stats.reads.add(1);
                if conn.hears_others() && local.shared.handle(local.thread).has_mail() {
                    self.late.push(token);
                } else {
                    conn.go_on(local, window);
                }
                local.journal.write_early(&local.shared.journal);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.closed.push((token, false)),
        }
        // Where large requests follow each other, their beginnings come by hand, too.
        if is_small && !conn.lacks_much() {
            conn.is_by_hand = false;
            self.reactor.receive_lent(token);
        }
        mark_dirty(conn, &mut self.dirty);
    }

    /// Takes a connection from its place, to run its commands while the event_loop is lent.
    pub fn lift(&mut self, token: Token) -> Option<Box<Conn>> {
        let place = self.conns.get_mut(token.index())?;
        let conn = place.take_if(|conn| conn.token == token)?;
        self.running = Some(RunningTurn { token, bytes: Vec::new(), is_paused: false });
        Some(conn)
    }

    /// Puts it back; what has come for it meanwhile is received now.
    pub fn put_back(&mut self, local: &mut ThreadState, window: &mut ConnWindow, mut conn: Box<Conn>) {
        if let Some(away) = self.running.take() {
            if away.is_paused && !conn.is_paused {
                self.reactor.resume(away.token);
            }
            if !away.bytes.is_empty() {
                take_bytes(local, window, &mut conn, &away.bytes, false);
            }
        }
        mark_dirty(&mut conn, &mut self.dirty);
        let place = conn.token.index();
        self.conns[place] = Some(conn);
    }

    /// Serves others for a moment while a script of this thread is overdue, or ends because it was killed.
    pub fn turn_inside(&mut self, local: &mut ThreadState, kind: ScriptKind) {
        let now_ms = local.now_ms;
        local.is_inside = true;
        local.refresh();
        (local.busy, local.is_gated) = (local.busy.or(Some(kind)), true);
        if let Some(away) = self.running.as_mut().filter(|away| !away.is_paused) {
            // What it sends waits with the kernel until its script has ended.
            away.is_paused = true;
            self.reactor.pause(away.token);
        }
        let mut window = mem::take(&mut self.inner_window);
        if let Err(error) = self.collect(local, &mut window, Duration::ZERO) {
            tracing::error!("event loop: {error}");
        }
        self.turn_away(local, &mut window);
        self.inner_window = window;
        self.accept_all(local);
        let mut mail = Vec::new();
        local.shared.handle(local.thread).drain(&mut mail);
        for message in mail {
            match message {
                ThreadMessage::Connection(socket, kind) => self.adopt(local, socket, kind),
                other => self.mail.push(other),
            }
        }
        journal::turn::commit(local);
        self.send_inside(local);
        local.is_inside = false;
        local.now_ms = now_ms;
    }

    /// Sends what connections have to say; what goes on from there is left to the turn around this one.
    fn send_inside(&mut self, local: &mut ThreadState) {
        for token in mem::take(&mut self.writable) {
            if let Some(conn) = find(&mut self.conns, token) {
                conn.awaits_writable = false;
                mark_dirty(conn, &mut self.dirty);
            }
        }
        local.send_left = output::TURN_BYTES;
        for token in &self.dirty {
            let Some(conn) = find(&mut self.conns, *token) else { continue };
            if !output::flush(local, &mut self.reactor, conn, None).is_open {
                self.closed.push((*token, false));
            }
        }
    }

    /// Gives each new connection to the thread that has fewest.
    pub fn accept_all(&mut self, local: &mut ThreadState) {
        for (socket, kind) in mem::take(&mut self.accepted) {
            let handles = &local.shared.handles;
            let counted: usize = handles.iter().map(ThreadHandle::counted_connections).sum();
            if kind != ListenerKind::Admin && counted >= local.live.maxclients as usize {
                local.stats().rejected_connections.add(1);
                refuse(local, &socket, kind, RefusedConnection::Full);
                continue;
            }
            if is_unprotected(local, &socket) {
                local.stats().rejected_connections.add(1);
                refuse(local, &socket, kind, RefusedConnection::Unprotected);
                continue;
            }
            local.stats().connections.add(1);
            let busy_ms = local.live.busy_reply_threshold_ms;
            let is_busy = |t| local.shared.scripts.is_busy(t, busy_ms, local.now_ms);
            let fewest = (0..handles.len())
                .min_by_key(|&t| (is_busy(t), handles[t].connections.load(Relaxed)))
                .unwrap_or(0);
            handles[fewest].count_in(kind);
            if fewest == usize::from(local.thread) {
                self.adopt(local, socket, kind);
            } else {
                handles[fewest].send(ThreadMessage::Connection(socket, kind));
            }
        }
    }

    /// Lets a client in, on this thread.
    pub fn adopt(&mut self, local: &mut ThreadState, socket: Socket, kind: ListenerKind) {
        let live = &local.live;
        let keepalive = live.tcp.keepalive();
        if keepalive != self.reactor.keepalive() {
            let _ = socket.set_keepalive(keepalive);
        }
        if live.tcp.user_timeout_ms > 0 && !socket.is_unix() {
            let _ = socket.set_user_timeout(live.tcp.user_timeout_ms);
        }
        let (peer, local_address, fd) = (socket.peer(), socket.local(), socket.as_fd().as_raw_fd());
        let is_unix = socket.is_unix();
        let Ok(token) = self.reactor.register(socket) else {
            local.shared.handle(local.thread).count_out(kind);
            return;
        };
        let id = local.shared.new_client_id();
        let place = (local.thread, token, fd);
        let info = Arc::new(ClientInfo::new(id, place, peer, local_address, is_unix, local.now_ms));
        lock(&local.shared.clients).insert(id, info.clone());
        let must_login = login::is_wanted(local, kind);
        let user = local.shared.acl.default_user();
        let mut session = Session::new(id, kind, must_login, user);
        let is_restricted = kind != ListenerKind::Admin && !local.live.restricted_commands.is_empty();
        session.gate.set(Gate::RESTRICTED, is_restricted);
        session.gate.set(Gate::CLUSTER, local.shared.cluster.is_on());
        let mut conn = Conn::new(token, session, info);
        conn.channel = local.shared.tls.channel(&local.live, kind, is_unix, local.now_ms);
        let index = token.index();
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        self.conns[index] = Some(Box::new(conn));
    }
}

/// Has a connection take bytes, decrypted if need be; `waits` keeps them until the mail has been read.
#[inline]
fn take_bytes(local: &mut ThreadState, window: &mut ConnWindow, conn: &mut Conn, bytes: &[u8], waits: bool) {
    match (&conn.channel, waits) {
        (None, false) => conn.receive(local, window, bytes),
        (None, true) => conn.receive_later(local, bytes),
        (Some(_), false) => traffic::receive(conn, local, window, bytes, Conn::receive),
        (Some(_), true) => {
            let keep = |conn: &mut Conn, local: &mut ThreadState, _: &mut _, plain: &[u8]| {
                conn.receive_later(local, plain);
            };
            traffic::receive(conn, local, window, bytes, keep);
        }
    }
}

/// Tells a client why it may not come in, where it can understand that.
fn refuse(local: &ThreadState, socket: &Socket, kind: ListenerKind, why: RefusedConnection) {
    // Before its handshake a client of TLS understands nothing.
    let is_plain = socket.is_unix() || !tls::is_required(&local.live, kind);
    if is_plain && let Ok(fd) = socket.as_fd().try_clone_to_owned() {
        let _ = std::fs::File::from(fd).write(why.text(kind));
    }
}

/// Whether `protected-mode` keeps a client out: there is no password and it is on another machine.
fn is_unprotected(local: &ThreadState, socket: &Socket) -> bool {
    let is_local = socket.peer_address().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    !is_local && local.live.protected_mode && !local.shared.acl.default_has_password()
}
