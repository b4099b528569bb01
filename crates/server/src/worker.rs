//! A thread's loop: read all, execute all, write all, keep house.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_latch::{Waiter, drive};
use darter_reactor::{CloseReason, Event, Reactor, Socket, Token};

use crate::clients::ClientCard;
use crate::commands::login;
use crate::config::Live;
use crate::conn::Conn;
use crate::core::Core;
use crate::house::House;
use crate::job::{BUDGET, Body, Job};
use crate::journal;
use crate::limit;
use crate::listening::{ListenerKind, Listening, Refused};
use crate::multi;
use crate::output;
use crate::pubsub::{self, Message};
use crate::reading::{self, Reading};
use crate::session::{Gate, Session};
use crate::shared::{Door, Mail, Shared};
use crate::tls;
use crate::tracking;
use crate::waiting::{self, Parking};
use crate::window::Window;

/// The longest sleep of an idle thread.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Sleep while clients wait for a snapshot's buffers.
const HELD_BACK: Duration = Duration::from_millis(1);

/// One I/O thread.
pub struct Worker {
    core: Core,
    reactor: Reactor,
    conns: Vec<Option<Box<Conn>>>,
    window: Window,
    dirty: Vec<Token>,
    /// Connections whose requests wait until the mail has been read.
    late: Vec<Token>,
    accepted: Vec<(Socket, ListenerKind)>,
    closed: Vec<(Token, bool)>,
    writable: Vec<Token>,
    mail: Vec<Mail>,
    /// Connections whose replies wait for the journal.
    held: Vec<Token>,
    /// Connections whose wait ends at a time, by that time and the client's id.
    deadlines: BTreeMap<(u64, u64), Token>,
    house: House,
    listening: Listening,
    is_stopping: bool,
}

impl Worker {
    /// The worker of thread `thread`, around a reactor made on this thread.
    pub fn new(shared: &'static Shared, thread: u16, reactor: Reactor) -> Worker {
        shared.door(thread).open(reactor.waker());
        Worker {
            core: Core::new(shared, thread),
            reactor,
            conns: Vec::new(),
            window: Window::default(),
            dirty: Vec::new(),
            late: Vec::new(),
            accepted: Vec::new(),
            closed: Vec::new(),
            writable: Vec::new(),
            mail: Vec::new(),
            held: Vec::new(),
            deadlines: BTreeMap::new(),
            house: House::new(shared, thread),
            listening: Listening::default(),
            is_stopping: false,
        }
    }

    /// Listens where the settings say; returns the addresses.
    ///
    /// Errors: an address is taken or not ours.
    pub fn listen(&mut self, live: &Live) -> std::io::Result<Vec<String>> {
        let mut shown = Vec::new();
        self.listening = Listening::open(&mut self.reactor, live, self.core.shared, &mut shown)?;
        Ok(shown)
    }

    /// Serves until told to stop. `on_turn` runs once a turn; thread 0 looks at signals there.
    pub fn run(&mut self, mut on_turn: impl FnMut(&mut Core)) {
        while !self.is_stopping {
            let sleep = if self.dirty.is_empty() { self.sleep_max() } else { Duration::ZERO };
            if let Err(error) = self.turn(sleep) {
                tracing::error!("event loop: {error}");
            }
            on_turn(&mut self.core);
        }
        self.flush_before_end();
    }

    fn turn(&mut self, sleep: Duration) -> std::io::Result<()> {
        let Worker {
            core, reactor, conns, window, dirty, late, accepted, closed, writable, listening, ..
        } = self;
        let door = core.shared.door(core.thread);
        let mut is_first = true;
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
                            mark_dirty(conn, dirty);
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
        if is_first {
            self.core.refresh();
        }
        self.core.is_quiet = is_first;
        self.stats_turn();
        self.accept_all();
        self.read_mail();
        self.run_late();
        self.end_late_waits();
        self.resume_postponed();
        self.note_writable();
        journal::log::commit(&mut self.core);
        self.flush_all();
        if limit::clients::is_over(&self.core) {
            limit::clients::evict(&self.core);
        }
        self.close_all();
        self.house.keep(&mut self.core, &mut self.conns);
        journal::log::settle(&mut self.core);
        Ok(())
    }

    /// How long nothing has to be done unless something arrives.
    fn sleep_max(&self) -> Duration {
        let mut housekeeping = self.house.sleep(&self.core).min(TURN_MAX);
        if self.core.has_postponed && self.core.shared.snapshots.holds_writers() {
            housekeeping = housekeeping.min(HELD_BACK);
        } else if self.core.has_postponed {
            let left_ms = self.core.shared.pause.until_ms().saturating_sub(crate::core::unix_ms() as i64);
            housekeeping = housekeeping.min(Duration::from_millis(left_ms.max(0) as u64));
        }
        match self.deadlines.first_key_value() {
            Some((&(deadline_ms, _), _)) => {
                housekeeping.min(Duration::from_millis(deadline_ms.saturating_sub(crate::core::unix_ms())))
            }
            None => housekeeping,
        }
    }

    fn stats_turn(&self) {
        self.core.stats().turns.add(1);
    }

    /// Gives each new connection to the thread that has fewest.
    fn accept_all(&mut self) {
        for (socket, kind) in std::mem::take(&mut self.accepted) {
            let doors = &self.core.shared.doors;
            let counted: usize = doors.iter().map(Door::counted_connections).sum();
            if kind != ListenerKind::Admin && counted >= self.core.live.maxclients as usize {
                self.core.stats().rejected_connections.add(1);
                self.refuse(&socket, kind, Refused::Full);
                continue;
            }
            if is_unprotected(&self.core, &socket) {
                self.core.stats().rejected_connections.add(1);
                self.refuse(&socket, kind, Refused::Unprotected);
                continue;
            }
            self.core.stats().connections.add(1);
            let busy_ms = self.core.live.busy_reply_threshold_ms;
            let is_busy = |t| self.core.shared.scripts.is_busy(t, busy_ms, self.core.now_ms);
            let fewest = (0..doors.len())
                .min_by_key(|&t| (is_busy(t), doors[t].connections.load(Relaxed)))
                .unwrap_or(0);
            doors[fewest].count_in(kind);
            if fewest == usize::from(self.core.thread) {
                self.adopt(socket, kind);
            } else {
                doors[fewest].send(Mail::Connection(socket, kind));
            }
        }
    }

    /// Tells a client why it may not come in, where it can understand that.
    fn refuse(&self, socket: &Socket, kind: ListenerKind, why: Refused) {
        // Before its handshake a client of TLS understands nothing.
        let is_plain = socket.is_unix() || !tls::is_required(&self.core.live, kind);
        if is_plain && let Ok(fd) = socket.as_fd().try_clone_to_owned() {
            let _ = std::fs::File::from(fd).write(why.text(kind));
        }
    }

    fn adopt(&mut self, socket: Socket, kind: ListenerKind) {
        let live = &self.core.live;
        if live.tcp.nodelay && !socket.is_unix() {
            let _ = socket.set_nodelay();
        }
        if live.tcp.keepalive_s > 0 && !socket.is_unix() {
            let _ = socket.set_keepalive(Some(Duration::from_secs(u64::from(live.tcp.keepalive_s))));
        }
        if live.tcp.user_timeout_ms > 0 && !socket.is_unix() {
            let _ = socket.set_user_timeout(live.tcp.user_timeout_ms);
        }
        let (peer, local, fd) = (socket.peer(), socket.local(), socket.as_fd().as_raw_fd());
        let is_unix = socket.is_unix();
        let Ok(token) = self.reactor.register(socket) else {
            self.core.shared.door(self.core.thread).count_out(kind);
            return;
        };
        let id = self.core.shared.new_client_id();
        let place = (self.core.thread, token, fd);
        let card = Arc::new(ClientCard::new(id, place, peer, local, is_unix, self.core.now_ms));
        lock(&self.core.shared.clients).insert(id, card.clone());
        let must_login = login::is_wanted(&self.core, kind);
        let user = self.core.shared.acl.default_user();
        let mut session = Session::new(id, kind, must_login, user);
        let is_restricted = kind != ListenerKind::Admin && !self.core.live.restricted_commands.is_empty();
        session.gate.set(Gate::RESTRICTED, is_restricted);
        let mut conn = Conn::new(token, session, card);
        conn.channel = self.core.shared.tls.channel(&self.core.live, kind, is_unix, self.core.now_ms);
        let index = token.index();
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        self.conns[index] = Some(Box::new(conn));
    }

    fn read_mail(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        self.core.shared.door(self.core.thread).drain(&mut mail);
        for message in mail.drain(..) {
            self.open(message);
        }
        self.mail = mail;
    }

    /// Runs what came from connections while messages to them may have been among the mail.
    fn run_late(&mut self) {
        let Worker { core, conns, window, late, dirty, .. } = self;
        for token in late.drain(..) {
            if let Some(conn) = find(conns, token) {
                conn.go_on(core, window);
                mark_dirty(conn, dirty);
            }
        }
    }

    fn open(&mut self, message: Mail) {
        match message {
            Mail::Connection(socket, kind) => self.adopt(socket, kind),
            Mail::Move => {
                self.core.refresh_settings();
                let live = self.core.live.clone();
                self.listening.move_to(&mut self.reactor, &live, self.core.shared);
            }
            Mail::Done(job) => self.finish(*job),
            Mail::Run(job) => self.run_at_home(job),
            Mail::Push { token, client, bytes } => {
                if let Some(conn) = find(&mut self.conns, token).filter(|conn| conn.session.id == client) {
                    conn.messages().extend_from_slice(&bytes);
                    mark_dirty(conn, &mut self.dirty);
                }
            }
            Mail::Publish(message) => self.deliver(&message),
            Mail::Kill { token, client } => {
                if let Some(conn) = find(&mut self.conns, token).filter(|conn| conn.session.id == client) {
                    conn.session.is_closing = true;
                    self.closed.push((token, false));
                }
            }
            Mail::Unpaused | Mail::Durable | Mail::Snapshot => {}
            Mail::Invalidate(message) => {
                let to = message.to;
                if let Some(conn) = find(&mut self.conns, to.token).filter(|c| c.session.id == to.client)
                    && tracking::deliver(conn, &message)
                {
                    mark_dirty(conn, &mut self.dirty);
                }
            }
            Mail::Redirected { token, client, keys } => {
                if let Some(conn) = find(&mut self.conns, token).filter(|conn| conn.session.id == client)
                    && tracking::redirected(conn, &keys)
                {
                    mark_dirty(conn, &mut self.dirty);
                }
            }
            Mail::Served { token, client, reply } => self.end_wait(token, client, |_| Some(reply)),
            Mail::Unblock { token, client, with_error } => {
                let mut unblocked = None;
                self.end_wait(token, client, |conn| {
                    let parking = conn.session.parking.as_ref().filter(|parking| parking.cancel())?;
                    let mut reply = Vec::new();
                    if with_error {
                        reply.extend_from_slice(b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
                        unblocked = parking.entry_id();
                    } else {
                        parking.write_timeout(&mut reply, conn.session.resp3);
                    }
                    Some(reply)
                });
                if let Some(id) = unblocked {
                    self.core.stats().commands[id].failed.add(1);
                    self.core.count_error("UNBLOCKED");
                }
            }
            Mail::Stop => self.is_stopping = true,
        }
    }

    /// Appends a published message to the output of every connection of this thread that is subscribed.
    fn deliver(&mut self, message: &Message) {
        let Worker { core, conns, dirty, .. } = self;
        core.subscribers.each_receiver(message, |token, client, pattern| {
            // One that is being closed may have been closed so that it hears no more.
            let hears = |conn: &&mut Conn| conn.session.id == client && !conn.session.is_closing;
            if let Some(conn) = find(conns, token).filter(hears) {
                let resp3 = conn.session.resp3;
                message.write_to(conn.messages(), pattern, resp3);
                mark_dirty(conn, dirty);
            }
        });
    }

    /// Goes on with the connections that waited for the end of CLIENT PAUSE, as far as they may.
    fn resume_postponed(&mut self) {
        let Worker { core, conns, dirty, window, .. } = self;
        let shared = core.shared;
        if !core.has_postponed || shared.pause.is_on(core.now_ms) || shared.snapshots.holds_writers() {
            return;
        }
        core.has_postponed = false;
        core.refresh_gate();
        for conn in conns.iter_mut().flatten().filter(|conn| conn.is_postponed) {
            conn.is_postponed = false;
            conn.card.is_postponed.store(false, Relaxed);
            conn.resume(core, window);
            mark_dirty(conn, dirty);
        }
    }

    /// A job of one of our connections was run: answer and go on with its pipeline.
    fn finish(&mut self, job: Job) {
        self.core.journal.has_news = true;
        let Some(conn) = find(&mut self.conns, job.token).filter(|conn| conn.session.id == job.client) else {
            reading::end_of_nobody(&mut self.core, &job.body);
            return;
        };
        if job.parking.is_some() || !std::mem::take(&mut conn.session.drops_reply) {
            conn.answer(&job.reply);
        }
        if job.parking.is_some() {
            conn.session.parking = job.parking;
            mark_dirty(conn, &mut self.dirty);
            return;
        }
        match job.body {
            Body::Left { source, entry, args } => {
                conn.session.reading = Some(Box::new(Reading::new(source, entry, args)));
                mark_dirty(conn, &mut self.dirty);
                return;
            }
            Body::Read { source, slice } => {
                let is_done = reading::note_slice(&self.core, conn, source, slice);
                if !is_done {
                    mark_dirty(conn, &mut self.dirty);
                    return;
                }
            }
            _ => {}
        }
        conn.is_stalled = false;
        conn.resume(&mut self.core, &mut self.window);
        mark_dirty(conn, &mut self.dirty);
    }

    /// Ends a client's wait with the reply that `answer` gives; with none it goes on waiting.
    fn end_wait(&mut self, token: Token, client: u64, answer: impl FnOnce(&mut Conn) -> Option<Vec<u8>>) {
        let Some(conn) = find(&mut self.conns, token).filter(|conn| conn.session.id == client) else {
            return;
        };
        if conn.session.parking.is_none() {
            return;
        }
        self.core.journal.has_news = true;
        let Some(reply) = answer(conn) else { return };
        if !std::mem::take(&mut conn.session.drops_reply) {
            conn.answer(&reply);
        }
        if let Some(parking) = conn.session.parking.take() {
            forget_deadline(&mut self.deadlines, conn, &parking);
            if let Some(ticket) = &parking.ticket {
                waiting::leave_queues(&mut self.core, ticket);
            }
        }
        conn.card.is_blocked.store(false, Relaxed);
        conn.is_stalled = false;
        conn.resume(&mut self.core, &mut self.window);
        mark_dirty(conn, &mut self.dirty);
    }

    /// Ends the waits whose time is up.
    fn end_late_waits(&mut self) {
        while let Some((&(deadline_ms, client), &token)) = self.deadlines.first_key_value() {
            if deadline_ms > self.core.now_ms {
                return;
            }
            self.deadlines.remove(&(deadline_ms, client));
            if let Some(conn) = find(&mut self.conns, token) {
                conn.has_deadline = false;
                // One that is being served this moment gets its reply by mail.
                mark_dirty(conn, &mut self.dirty);
            }
            self.end_wait(token, client, |conn| {
                let parking = conn.session.parking.as_ref().filter(|parking| parking.cancel())?;
                let mut reply = Vec::new();
                parking.write_timeout(&mut reply, conn.session.resp3);
                Some(reply)
            });
        }
    }

    /// A job that came home with all its shards.
    fn run_at_home(&mut self, mut job: Box<Waiter<Job>>) {
        let mut grant = std::mem::take(&mut job.grant);
        let conn = find(&mut self.conns, job.token).filter(|conn| conn.session.id == job.client);
        match conn {
            _ if !job.is_home_only() => crate::exec::run_job(&mut self.core, &mut grant, &mut job),
            None => {}
            Some(conn) => {
                let Job { body, reply, .. } = &mut **job;
                multi::run_held(&mut self.core, &mut conn.session, &conn.card, &mut grant, body, reply);
            }
        }
        let is_for_nobody = job.is_for_nobody();
        drive(self.core.shared.cells, grant, &mut self.core, BUDGET);
        if !is_for_nobody {
            self.finish(job.into_inner());
        }
    }

    fn note_writable(&mut self) {
        for token in std::mem::take(&mut self.writable) {
            if let Some(conn) = find(&mut self.conns, token) {
                conn.awaits_writable = false;
                mark_dirty(conn, &mut self.dirty);
            }
        }
    }

    /// Sends what every connection has to say. A connection whose output was over its pause mark goes on
    /// with its input once the output is out.
    fn flush_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.append(&mut self.held);
        let mut again = Vec::new();
        let (mut readers_left, mut unread) = (reading::CLIENTS_PER_TURN, Vec::new());
        for token in dirty.drain(..) {
            let Some(conn) = find(&mut self.conns, token) else { continue };
            conn.is_dirty = false;
            note_deadline(&mut self.deadlines, conn);
            let output::Flushed { is_open, goes_on } = output::flush(&mut self.core, &mut self.reactor, conn);
            if !is_open {
                self.closed.push((token, false));
                continue;
            }
            if conn.held.is_waiting() {
                self.held.push(token);
            }
            if goes_on && !conn.input.is_empty() {
                conn.resume(&mut self.core, &mut self.window);
                if !conn.is_dirty {
                    conn.is_dirty = true;
                    again.push(token);
                }
            }
            output::balance_reading(&mut self.reactor, conn);
            if conn.session.reading.is_some() {
                if readers_left == 0 {
                    if !conn.is_dirty {
                        conn.is_dirty = true;
                        unread.push(token);
                    }
                    continue;
                }
                readers_left -= 1;
                let next = reading::go_on(&mut self.core, conn);
                if next == reading::Next::Done {
                    conn.is_stalled = false;
                    conn.resume(&mut self.core, &mut self.window);
                }
                if next != reading::Next::Wait && !conn.is_dirty {
                    conn.is_dirty = true;
                    again.push(token);
                }
            }
        }
        // Who got no slice this time comes first the next.
        dirty.append(&mut unread);
        dirty.append(&mut again);
        self.dirty = dirty;
        self.core.journal.has_news = false;
    }

    fn close_all(&mut self) {
        for (token, is_eof) in std::mem::take(&mut self.closed) {
            let Some(conn) = find(&mut self.conns, token) else { continue };
            if is_eof && conn.is_stalled && conn.session.parking.is_none() {
                // The reply to its last command is still to come; its job closes it.
                conn.session.is_closing = true;
                continue;
            }
            self.drop_conn(token);
        }
    }

    fn drop_conn(&mut self, token: Token) {
        let Some(mut conn) = self.conns.get_mut(token.index()).and_then(Option::take) else { return };
        self.reactor.close(token);
        self.core.shared.door(self.core.thread).count_out(conn.session.listener);
        lock(&self.core.shared.clients).remove(&conn.session.id);
        if conn.session.is_monitor {
            self.core.shared.monitors.remove(conn.session.id);
        }
        conn.count_bytes(&self.core, 0);
        pubsub::unsubscribe_all(&mut self.core, &mut conn.session, &conn.card);
        tracking::end(&self.core, &mut conn.session);
        if let Some(reading) = conn.session.reading.take() {
            reading.give_up(&mut self.core);
        }
        conn.session.watched.clear();
        if let Some(parking) = conn.session.parking.take() {
            forget_deadline(&mut self.deadlines, &mut conn, &parking);
            if parking.cancel()
                && let Some(ticket) = &parking.ticket
            {
                waiting::leave_queues(&mut self.core, ticket);
            }
        }
    }

    fn flush_before_end(&mut self) {
        journal::log::commit(&mut self.core);
        let tokens: Vec<Token> = self.conns.iter().flatten().map(|conn| conn.token).collect();
        for token in tokens {
            if let Some(conn) = find(&mut self.conns, token) {
                output::flush(&mut self.core, &mut self.reactor, conn);
            }
            self.drop_conn(token);
        }
    }
}

/// The connection behind a token, unless it has gone.
pub fn find(conns: &mut [Option<Box<Conn>>], token: Token) -> Option<&mut Conn> {
    conns.get_mut(token.index())?.as_deref_mut().filter(|conn| conn.token == token)
}

/// Puts a connection that has begun to wait into the list of deadlines.
fn note_deadline(deadlines: &mut BTreeMap<(u64, u64), Token>, conn: &mut Conn) {
    let Some(parking) = &conn.session.parking else { return };
    conn.card.is_blocked.store(true, Relaxed);
    if let Some(deadline_ms) = parking.deadline_ms
        && !conn.has_deadline
    {
        conn.has_deadline = true;
        deadlines.insert((deadline_ms, conn.session.id), conn.token);
    }
}

fn forget_deadline(deadlines: &mut BTreeMap<(u64, u64), Token>, conn: &mut Conn, parking: &Parking) {
    if let Some(deadline_ms) = parking.deadline_ms {
        deadlines.remove(&(deadline_ms, conn.session.id));
    }
    conn.has_deadline = false;
}

fn mark_dirty(conn: &mut Conn, dirty: &mut Vec<Token>) {
    if !conn.is_dirty {
        conn.is_dirty = true;
        dirty.push(conn.token);
    }
}

/// Whether `protected-mode` keeps a client out: there is no password and it is on another machine.
fn is_unprotected(core: &Core, socket: &Socket) -> bool {
    let is_local = socket.peer_address().is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    !is_local && core.live.protected_mode && !core.shared.acl.default_has_password()
}

/// Locks a mutex whose data stays sound even if a holder panicked.
pub fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
