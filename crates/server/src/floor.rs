//! What a thread has of the world outside: its reactor and its connections; and the turn it takes while a script of its
//! own runs too long.
//!
//! The worker owns it and works on it in each turn. For as long as a connection's commands run after the reactor's turn,
//! it is lent to the thread's state (`Core::floor`), where a script that is overdue finds it: then new clients are let
//! in and all are told that the server is busy, as Redis does. Such a turn runs commands on other connections, which wait
//! for no shard; it touches neither the connection whose script runs nor any Lua.

use std::io::Write;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_reactor::{CloseReason, Event, Reactor, Socket, Token};
use darter_script::Kind;

use crate::clients::ClientCard;
use crate::commands::login;
use crate::conn::Conn;
use crate::core::Core;
use crate::journal;
use crate::listening::{ListenerKind, Listening, Refused};
use crate::output;
use crate::session::{Gate, Session};
use crate::shared::{Door, Mail};
use crate::tls;
use crate::window::Window;
use crate::worker::{find, lock, mark_dirty};

/// A thread's reactor, its connections, and what the turn has still to do about them.
pub struct Floor {
    /// The thread's door to the kernel.
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
    /// Messages from other threads that have been taken out but not read.
    pub mail: Vec<Mail>,
    /// Where it listens.
    pub listening: Listening,
    /// The connection whose commands run while the floor is lent.
    running: Option<Running>,
    inner_window: Window,
}

/// A connection that is away from its place, and what has come for it meanwhile.
struct Running {
    token: Token,
    bytes: Vec<u8>,
    is_paused: bool,
}

impl Floor {
    /// The floor around a reactor: nobody is there yet.
    pub fn new(reactor: Reactor) -> Floor {
        Floor {
            reactor,
            conns: Vec::new(),
            dirty: Vec::new(),
            late: Vec::new(),
            accepted: Vec::new(),
            closed: Vec::new(),
            writable: Vec::new(),
            mail: Vec::new(),
            listening: Listening::default(),
            running: None,
            inner_window: Window::default(),
        }
    }

    /// Whether there is something to do without anything arriving.
    pub fn has_more(&self) -> bool {
        !(self.dirty.is_empty() && self.late.is_empty() && self.mail.is_empty())
    }

    /// Takes what arrived: runs commands, notes what else there is to do. Returns whether anything did.
    pub fn collect(
        &mut self,
        core: &mut Core,
        window: &mut Window,
        sleep: Duration,
    ) -> std::io::Result<bool> {
        let Floor { reactor, conns, dirty, late, accepted, closed, writable, listening, running, .. } = self;
        let door = core.shared.door(core.thread);
        let mut is_first = !core.is_inside;
        let stats = core.stats();
        reactor.turn(
            Some(sleep),
            || !door.has_mail(),
            |event| {
                if is_first {
                    core.refresh();
                    is_first = false;
                }
                match event {
                    Event::Data { token, bytes } => {
                        stats.input_bytes.add(bytes.len() as u64);
                        stats.reads.add(1);
                        if let Some(conn) = find(conns, token) {
                            let waits = conn.hears_others() && door.has_mail();
                            if waits {
                                late.push(token);
                            }
                            take_bytes(core, window, conn, bytes, waits);
                            mark_dirty(conn, dirty);
                            core.journal.write_early(&core.shared.journal);
                        } else if let Some(away) = running.as_mut().filter(|away| away.token == token) {
                            away.bytes.extend_from_slice(bytes);
                        }
                    }
                    Event::Accepted { listener, socket } => {
                        accepted.push((socket, listening.kind_of(listener)))
                    }
                    Event::Closed { token, reason } => {
                        closed.push((token, matches!(reason, CloseReason::Eof)))
                    }
                    Event::Writable { token } => writable.push(token),
                }
            },
        )?;
        Ok(!is_first)
    }

    /// Takes a connection from its place, to run its commands while the floor is lent.
    pub fn lift(&mut self, token: Token) -> Option<Box<Conn>> {
        let place = self.conns.get_mut(token.index())?;
        let conn = place.take_if(|conn| conn.token == token)?;
        self.running = Some(Running { token, bytes: Vec::new(), is_paused: false });
        Some(conn)
    }

    /// Puts it back; what has come for it meanwhile is received now.
    pub fn put_back(&mut self, core: &mut Core, window: &mut Window, mut conn: Box<Conn>) {
        if let Some(away) = self.running.take() {
            if away.is_paused && !conn.is_paused {
                self.reactor.resume(away.token);
            }
            if !away.bytes.is_empty() {
                take_bytes(core, window, &mut conn, &away.bytes, false);
            }
        }
        mark_dirty(&mut conn, &mut self.dirty);
        let place = conn.token.index();
        self.conns[place] = Some(conn);
    }

    /// Serves others for a moment while a script of this thread is overdue, or ends because it was killed.
    pub fn turn_inside(&mut self, core: &mut Core, kind: Kind) {
        let now_ms = core.now_ms;
        core.is_inside = true;
        core.refresh();
        (core.busy, core.is_gated) = (core.busy.or(Some(kind)), true);
        if let Some(away) = self.running.as_mut().filter(|away| !away.is_paused) {
            // What it sends waits with the kernel until its script has ended.
            away.is_paused = true;
            self.reactor.pause(away.token);
        }
        let mut window = mem::take(&mut self.inner_window);
        if let Err(error) = self.collect(core, &mut window, Duration::ZERO) {
            tracing::error!("event loop: {error}");
        }
        self.turn_away(core, &mut window);
        self.inner_window = window;
        self.accept_all(core);
        let mut mail = Vec::new();
        core.shared.door(core.thread).drain(&mut mail);
        for message in mail {
            match message {
                Mail::Connection(socket, kind) => self.adopt(core, socket, kind),
                other => self.mail.push(other),
            }
        }
        journal::log::commit(core);
        self.send_inside(core);
        core.is_inside = false;
        core.now_ms = now_ms;
    }

    /// Sends what connections have to say; what goes on from there is left to the turn around this one.
    fn send_inside(&mut self, core: &mut Core) {
        for token in mem::take(&mut self.writable) {
            if let Some(conn) = find(&mut self.conns, token) {
                conn.awaits_writable = false;
                mark_dirty(conn, &mut self.dirty);
            }
        }
        core.send_left = output::TURN_BYTES;
        for token in &self.dirty {
            let Some(conn) = find(&mut self.conns, *token) else { continue };
            if !output::flush(core, &mut self.reactor, conn, None).is_open {
                self.closed.push((*token, false));
            }
        }
    }

    /// Gives each new connection to the thread that has fewest.
    pub fn accept_all(&mut self, core: &mut Core) {
        for (socket, kind) in mem::take(&mut self.accepted) {
            let doors = &core.shared.doors;
            let counted: usize = doors.iter().map(Door::counted_connections).sum();
            if kind != ListenerKind::Admin && counted >= core.live.maxclients as usize {
                core.stats().rejected_connections.add(1);
                refuse(core, &socket, kind, Refused::Full);
                continue;
            }
            if is_unprotected(core, &socket) {
                core.stats().rejected_connections.add(1);
                refuse(core, &socket, kind, Refused::Unprotected);
                continue;
            }
            core.stats().connections.add(1);
            let busy_ms = core.live.busy_reply_threshold_ms;
            let is_busy = |t| core.shared.scripts.is_busy(t, busy_ms, core.now_ms);
            let fewest = (0..doors.len())
                .min_by_key(|&t| (is_busy(t), doors[t].connections.load(Relaxed)))
                .unwrap_or(0);
            doors[fewest].count_in(kind);
            if fewest == usize::from(core.thread) {
                self.adopt(core, socket, kind);
            } else {
                doors[fewest].send(Mail::Connection(socket, kind));
            }
        }
    }

    /// Lets a client in, on this thread.
    pub fn adopt(&mut self, core: &mut Core, socket: Socket, kind: ListenerKind) {
        let live = &core.live;
        let keepalive = live.tcp.keepalive();
        if keepalive != self.reactor.keepalive() {
            let _ = socket.set_keepalive(keepalive);
        }
        if live.tcp.user_timeout_ms > 0 && !socket.is_unix() {
            let _ = socket.set_user_timeout(live.tcp.user_timeout_ms);
        }
        let (peer, local, fd) = (socket.peer(), socket.local(), socket.as_fd().as_raw_fd());
        let is_unix = socket.is_unix();
        let Ok(token) = self.reactor.register(socket) else {
            core.shared.door(core.thread).count_out(kind);
            return;
        };
        let id = core.shared.new_client_id();
        let place = (core.thread, token, fd);
        let card = Arc::new(ClientCard::new(id, place, peer, local, is_unix, core.now_ms));
        lock(&core.shared.clients).insert(id, card.clone());
        let must_login = login::is_wanted(core, kind);
        let user = core.shared.acl.default_user();
        let mut session = Session::new(id, kind, must_login, user);
        let is_restricted = kind != ListenerKind::Admin && !core.live.restricted_commands.is_empty();
        session.gate.set(Gate::RESTRICTED, is_restricted);
        let mut conn = Conn::new(token, session, card);
        conn.channel = core.shared.tls.channel(&core.live, kind, is_unix, core.now_ms);
        let index = token.index();
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        self.conns[index] = Some(Box::new(conn));
    }
}

/// Has a connection take bytes, decrypted if need be; `waits` keeps them until the mail has been read.
#[inline]
fn take_bytes(core: &mut Core, window: &mut Window, conn: &mut Conn, bytes: &[u8], waits: bool) {
    match (&conn.channel, waits) {
        (None, false) => conn.receive(core, window, bytes),
        (None, true) => conn.receive_later(bytes),
        (Some(_), false) => tls::receive(conn, core, window, bytes, Conn::receive),
        (Some(_), true) => {
            let keep = |conn: &mut Conn, _: &mut _, _: &mut _, plain: &[u8]| {
                conn.receive_later(plain);
            };
            tls::receive(conn, core, window, bytes, keep);
        }
    }
}

/// Tells a client why it may not come in, where it can understand that.
fn refuse(core: &Core, socket: &Socket, kind: ListenerKind, why: Refused) {
    // Before its handshake a client of TLS understands nothing.
    let is_plain = socket.is_unix() || !tls::is_required(&core.live, kind);
    if is_plain && let Ok(fd) = socket.as_fd().try_clone_to_owned() {
        let _ = std::fs::File::from(fd).write(why.text(kind));
    }
}

/// Whether `protected-mode` keeps a client out: there is no password and it is on another machine.
fn is_unprotected(core: &Core, socket: &Socket) -> bool {
    let is_local = socket.peer_address().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    !is_local && core.live.protected_mode && !core.shared.acl.default_has_password()
}
