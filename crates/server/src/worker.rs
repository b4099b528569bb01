//! A thread's loop: read all, execute all, write all, keep house.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_latch::Waiter;
use darter_reactor::signal::Signals;
use darter_reactor::{Reactor, Token, process};
use darter_txn::waiters::Parked;

use crate::coalescing::{self, Coalescing, Received};
use crate::config::Live;
use crate::conn::Conn;
use crate::core::Core;
use crate::engine::lease;
use crate::floor::Floor;
use crate::house::House;
use crate::job::{Body, Job};
use crate::journal;
use crate::limit;
use crate::listening::{Listening, Patience};
use crate::multi;
use crate::output;
use crate::pubsub::{self, Message};
use crate::reading::{self, Reading};
use crate::shared::{Mail, Shared};
use crate::signals;
use crate::tracking;
use crate::turned_away;
use crate::waiting::{self, Parking};
use crate::window::Window;

/// The longest sleep of an idle thread.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Sleep while clients wait for a snapshot's buffers.
const HELD_BACK: Duration = Duration::from_millis(1);

/// One I/O thread.
pub struct Worker {
    core: Core,
    // Away only while it is lent to `core`.
    floor: Option<Box<Floor>>,
    window: Window,
    /// Connections whose replies wait for the journal.
    held: Vec<Token>,
    /// Connections whose wait ends at a time, by that time and the client's id.
    deadlines: BTreeMap<(u64, u64), Token>,
    house: House,
    coalescing: Coalescing,
    is_stopping: bool,
}

impl Worker {
    /// The worker of thread `thread`, around a reactor made on this thread.
    pub fn new(shared: &'static Shared, thread: u16, reactor: Reactor) -> Worker {
        shared.door(thread).open(reactor.waker());
        Worker {
            core: Core::new(shared, thread),
            floor: Some(Box::new(Floor::new(reactor))),
            window: Window::default(),
            held: Vec::new(),
            deadlines: BTreeMap::new(),
            house: House::new(shared, thread),
            coalescing: Coalescing::default(),
            is_stopping: false,
        }
    }

    /// Listens where the settings say; returns the addresses.
    ///
    /// Errors: an address is taken or not ours.
    pub fn listen(&mut self, live: &Live, patience: &Patience<'_>) -> std::io::Result<Vec<String>> {
        let mut shown = Vec::new();
        if let Some(floor) = &mut self.floor {
            floor.listening =
                Listening::open(&mut floor.reactor, live, self.core.shared, patience, &mut shown)?;
        }
        Ok(shown)
    }

    /// Has this thread, which is thread 0, do what signals ask for.
    pub fn heed(&mut self, signals: Signals) {
        self.core.signals = Some(signals);
    }

    /// Serves until told to stop.
    pub fn run(&mut self) {
        while !self.is_stopping {
            let has_more = self.floor.as_ref().is_some_and(|floor| floor.has_more());
            let sleep = if has_more || !self.core.due.is_empty() { Duration::ZERO } else { self.sleep_max() };
            self.rest_before_turn(has_more);
            if let Err(error) = self.turn(sleep) {
                tracing::error!("event loop: {error}");
            }
            signals::look(&mut self.core);
        }
        self.flush_before_end();
    }

    /// Waits for more to come at once, where that saves calls into the kernel.
    fn rest_before_turn(&mut self, has_more: bool) {
        let Worker { core, floor: Some(floor), coalescing, .. } = self else { return };
        if core.is_quiet || has_more || !core.due.is_empty() {
            return;
        }
        let stats = core.stats();
        let rests = coalescing.rests(|| {
            let spent = process::thread_cpu_times();
            let received = Received {
                reads: stats.reads.get(),
                pipelined: stats.pipelined.get(),
                bytes: stats.input_bytes.get(),
                cpu: spent.user + spent.system,
            };
            (received, core.shared.started.elapsed())
        });
        if rests && !core.shared.door(core.thread).has_mail() {
            floor.reactor.rest(coalescing::REST);
        }
    }

    fn turn(&mut self, sleep: Duration) -> std::io::Result<()> {
        let Worker { core, floor: Some(floor), window, .. } = self else { return Ok(()) };
        let arrived = floor.collect(core, window, sleep)?;
        if !arrived {
            core.refresh();
        }
        core.is_quiet = !arrived;
        if core.busy.is_some() {
            floor.turn_away(core, window);
        }
        floor.accept_all(core);
        self.stats_turn();
        self.read_mail();
        self.run_late();
        self.end_late_waits();
        self.resume_postponed();
        self.run_due();
        self.note_writable();
        journal::log::commit(&mut self.core);
        self.flush_all();
        if limit::clients::is_over(&self.core) {
            limit::clients::evict(&self.core);
        }
        self.close_all();
        if let Some(floor) = &mut self.floor {
            self.house.keep(&mut self.core, &mut floor.conns);
        }
        journal::log::settle(&mut self.core);
        Ok(())
    }

    /// How long nothing has to be done unless something arrives.
    fn sleep_max(&self) -> Duration {
        let mut housekeeping = self.house.sleep().min(TURN_MAX);
        let snapshots = &self.core.shared.snapshots;
        if snapshots.ending.is_on() || self.core.has_postponed && snapshots.holds_writers() {
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

    fn read_mail(&mut self) {
        let Worker { core, floor: Some(floor), .. } = self else { return };
        let mut mail = std::mem::take(&mut floor.mail);
        core.shared.door(core.thread).drain(&mut mail);
        let mut unread = mail.drain(..).peekable();
        while let Some(message) = unread.next() {
            self.open(message, &mut unread);
        }
        drop(unread);
        // What came in while a script was overdue is there already.
        if let Some(floor) = self.floor.as_mut().filter(|floor| floor.mail.is_empty()) {
            floor.mail = mail;
        }
    }

    /// Runs what waits for the reactor to be at hand: scripts, and what comes behind them on their connections.
    fn run_due(&mut self) {
        for token in std::mem::take(&mut self.core.due) {
            let Some(mut conn) = self.floor.as_mut().and_then(|floor| floor.lift(token)) else { continue };
            conn.is_due = false;
            self.core.floor = self.floor.take();
            turned_away::resume(&mut self.core, &mut self.window, &mut conn);
            self.settle_floor(conn);
        }
    }

    /// Takes the floor back after it was lent, and puts the connection that ran in its place.
    fn settle_floor(&mut self, conn: Box<Conn>) {
        self.floor = self.core.floor.take();
        if let Some(floor) = &mut self.floor {
            floor.put_back(&mut self.core, &mut self.window, conn);
        }
    }

    /// Runs what came from connections while messages to them may have been among the mail.
    fn run_late(&mut self) {
        let Worker { core, floor: Some(floor), window, .. } = self else { return };
        for token in floor.late.drain(..) {
            if let Some(conn) = find(&mut floor.conns, token) {
                conn.go_on(core, window);
                mark_dirty(conn, &mut floor.dirty);
            }
        }
    }

    /// Does what a message asks for; more of its kind may be taken from those that are `unread`.
    fn open(&mut self, message: Mail, unread: &mut Peekable<impl Iterator<Item = Mail>>) {
        let Worker { core, floor: Some(floor), deadlines, .. } = self else { return };
        let Floor { conns, dirty, closed, .. } = &mut **floor;
        match message {
            Mail::Connection(socket, kind) => floor.adopt(core, socket, kind),
            Mail::Move => {
                core.refresh_settings();
                let live = core.live.clone();
                floor.listening.move_to(&mut floor.reactor, &live, core.shared);
            }
            Mail::Done(job) => self.finish(*job),
            Mail::Run(job) => self.run_at_home(job),
            Mail::Push { token, client, bytes } => {
                if let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client) {
                    conn.messages().extend_from_slice(&bytes);
                    mark_dirty(conn, dirty);
                }
            }
            Mail::Publish(first) => match &*pubsub::run::take(first, unread) {
                [message] => self.deliver(message),
                run => pubsub::run::deliver(core, floor, run),
            },
            Mail::Kill { token, client } => {
                if let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client) {
                    conn.session.is_closing = true;
                    closed.push((token, false));
                }
            }
            Mail::Ripening { token, client } => {
                let waits = |conn: &&mut Conn| conn.session.id == client && conn.session.parking.is_some();
                if let Some(conn) = find(conns, token).filter(waits) {
                    note_deadline(deadlines, conn);
                }
            }
            Mail::Demoted => self.unblock_writers(),
            Mail::Unpaused | Mail::Durable | Mail::Snapshot => {}
            Mail::Invalidate(message) => {
                let to = &message.to;
                if let Some(conn) = find(conns, to.token).filter(|c| c.session.id == to.client)
                    && tracking::deliver(conn, &message)
                {
                    mark_dirty(conn, dirty);
                }
            }
            Mail::Redirected { token, client, keys } => {
                if let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client)
                    && tracking::redirected(conn, &keys)
                {
                    mark_dirty(conn, dirty);
                }
            }
            Mail::Served { token, client, reply } => self.end_wait(token, client, |_| Some(reply)),
            Mail::Unblock { token, client, with_error } => {
                let (mut unblocked, mut is_tried) = (None, false);
                self.end_wait(token, client, |conn| {
                    let parking = conn.session.parking.as_ref()?;
                    if !parking.cancel() {
                        is_tried = parking.is_tried();
                        return None;
                    }
                    let mut reply = Vec::new();
                    if with_error {
                        reply.extend_from_slice(b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
                        unblocked = parking.entry_id();
                    } else {
                        parking.write_timeout(&mut reply, conn.session.resp3);
                    }
                    Some(reply)
                });
                if is_tried {
                    // A try to serve it may find nothing, and then the wait must end all the same.
                    let shared = self.core.shared;
                    shared.door(self.core.thread).send(Mail::Unblock { token, client, with_error });
                }
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
        let Worker { core, floor: Some(floor), .. } = self else { return };
        let Floor { conns, dirty, .. } = &mut **floor;
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
        let Worker { core, floor: Some(floor), window, .. } = self else { return };
        let Floor { conns, dirty, .. } = &mut **floor;
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
        let Worker { core, floor: Some(floor), window, .. } = self else { return };
        let Floor { conns, dirty, .. } = &mut **floor;
        core.journal.has_news = true;
        let Some(conn) = find(conns, job.origin.token).filter(|conn| conn.session.id == job.origin.client)
        else {
            reading::end_of_nobody(core, &job.body);
            if let Some(parking) = &job.parking {
                waiting::abandon(core, parking);
            }
            return;
        };
        if job.parking.is_some() && conn.session.is_closing {
            // The client closed before its command was found to wait: no reply would ever close the connection.
            conn.session.parking = job.parking;
            self.drop_conn(job.origin.token);
            return;
        }
        if job.parking.is_some() || !std::mem::take(&mut conn.session.drops_reply) {
            conn.answer(&job.reply);
        }
        if job.parking.is_some() {
            conn.session.waiting = None;
            conn.session.parking = job.parking;
            mark_dirty(conn, dirty);
            return;
        }
        match job.body {
            Body::Left { source, entry, args } => {
                conn.session.waiting = None;
                conn.session.reading = Some(Box::new(Reading::new(source, entry, args)));
                mark_dirty(conn, dirty);
                return;
            }
            Body::Read { source, slice } => {
                let is_done = reading::note_slice(core, conn, source, slice, job.reply.len());
                if !is_done {
                    mark_dirty(conn, dirty);
                    return;
                }
            }
            Body::Keep { .. } => reading::note_kept(core, conn, job.reply.len()),
            _ => {}
        }
        conn.is_stalled = false;
        turned_away::resume(core, window, conn);
        mark_dirty(conn, dirty);
    }

    /// Ends a client's wait with the reply that `answer` gives; with none it goes on waiting.
    fn end_wait(&mut self, token: Token, client: u64, answer: impl FnOnce(&mut Conn) -> Option<Vec<u8>>) {
        let Worker { core, floor: Some(floor), window, deadlines, .. } = self else { return };
        let Floor { conns, dirty, .. } = &mut **floor;
        let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client) else {
            return;
        };
        if conn.session.parking.is_none() {
            return;
        }
        core.journal.has_news = true;
        let Some(reply) = answer(conn) else { return };
        if !std::mem::take(&mut conn.session.drops_reply) {
            conn.answer(&reply);
        }
        if let Some(parking) = conn.session.parking.take() {
            forget_deadline(deadlines, conn, &parking);
            if let Some(ticket) = &parking.ticket {
                waiting::leave_queues(core, ticket);
            }
        }
        conn.card.is_blocked.store(false, Relaxed);
        conn.is_stalled = false;
        conn.resume(core, window);
        mark_dirty(conn, dirty);
    }

    /// Ends the waits of clients that would write: this server follows another now.
    fn unblock_writers(&mut self) {
        self.core.refresh_gate();
        let Some(floor) = &self.floor else { return };
        let waits = |conn: &Conn| conn.session.parking.as_ref().is_some_and(Parking::would_write);
        let found = floor.conns.iter().filter_map(|conn| conn.as_deref()).filter(|conn| waits(conn));
        let clients: Vec<(Token, u64)> = found.map(|conn| (conn.token, conn.session.id)).collect();
        for (token, client) in clients {
            self.end_wait(token, client, |conn| {
                conn.session.parking.as_ref().filter(|parking| parking.cancel())?;
                let line = "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
                Some(format!("{line}\r\n").into_bytes())
            });
        }
    }

    /// Ends the waits whose time is up.
    fn end_late_waits(&mut self) {
        while let Some((&(deadline_ms, client), &token)) = self.deadlines.first_key_value() {
            if deadline_ms > self.core.now_ms {
                return;
            }
            self.deadlines.remove(&(deadline_ms, client));
            if let Some(ticket) = self.ripe(token) {
                waiting::look_again(&mut self.core, &ticket);
                continue;
            }
            if let Some(floor) = &mut self.floor
                && let Some(conn) = find(&mut floor.conns, token)
            {
                conn.has_deadline = false;
                // One that is being served this moment gets its reply by mail.
                mark_dirty(conn, &mut floor.dirty);
            }
            self.end_wait(token, client, |conn| {
                let parking = conn.session.parking.as_ref().filter(|parking| parking.cancel())?;
                let mut reply = Vec::new();
                parking.write_timeout(&mut reply, conn.session.resp3);
                Some(reply)
            });
        }
    }

    /// The ticket of a connection that waits on, and for which time alone has something now.
    fn ripe(&mut self, token: Token) -> Option<Parked> {
        let now_ms = self.core.now_ms;
        let parking = find(&mut self.floor.as_mut()?.conns, token)?.session.parking.as_mut()?;
        let is_over = parking.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
        parking.ripe_ms.take_if(|ripe_ms| *ripe_ms <= now_ms && !is_over)?;
        parking.ticket.clone()
    }

    /// A job that came home with all its shards.
    fn run_at_home(&mut self, mut job: Box<Waiter<Job>>) {
        let mut grant = std::mem::take(&mut job.grant);
        if !job.is_home_only() {
            crate::exec::run_job(&mut self.core, &mut grant, &mut job);
        } else if self.floor.as_mut().is_some_and(|floor| turned_away::is_answered(floor, &job)) {
            lease::release(&mut self.core, grant);
            return;
        } else if let Some(mut conn) = self.floor.as_mut().and_then(|floor| floor.lift(job.origin.token)) {
            if conn.session.id == job.origin.client {
                let Job { body, reply, origin, .. } = &mut **job;
                let Conn { session, card, .. } = &mut *conn;
                self.core.floor = self.floor.take();
                if !turned_away::refuse_late(&mut self.core, session, origin.token, (body, reply)) {
                    multi::run_held(&mut self.core, session, card, &mut grant, body, reply);
                }
            }
            self.settle_floor(conn);
        }
        let is_for_nobody = job.is_for_nobody();
        lease::release(&mut self.core, grant);
        if !is_for_nobody {
            self.finish(job.into_inner());
        }
    }

    fn note_writable(&mut self) {
        let Some(floor) = &mut self.floor else { return };
        for token in std::mem::take(&mut floor.writable) {
            if let Some(conn) = find(&mut floor.conns, token) {
                conn.awaits_writable = false;
                mark_dirty(conn, &mut floor.dirty);
            }
        }
    }

    /// Sends what every connection has to say. A connection whose output was over its pause mark goes on
    /// with its input once the output is out.
    fn flush_all(&mut self) {
        let Worker { core, floor: Some(floor), window, held, deadlines, .. } = self else { return };
        let mut dirty = std::mem::take(&mut floor.dirty);
        let Floor { reactor, conns, closed, .. } = &mut **floor;
        let mut handed = output::flush_together(core, reactor, conns, &dirty).into_iter();
        if std::mem::take(&mut core.journal.frees) {
            // Some may be in the list already.
            dirty.append(held);
        }
        let (mut again, mut late) = (Vec::new(), Vec::new());
        let (mut readers_left, mut unread) = (reading::CLIENTS_PER_TURN, Vec::new());
        core.send_left = output::TURN_BYTES;
        let sent_before = core.stats().output_bytes.get();
        for token in dirty.drain(..) {
            let handed = handed.next().flatten();
            let Some(conn) = find(conns, token) else { continue };
            conn.is_dirty = false;
            note_deadline(deadlines, conn);
            let output::Flushed { is_open, goes_on, is_late } = output::flush(core, reactor, conn, handed);
            if !is_open {
                closed.push((token, false));
                continue;
            }
            if is_late {
                conn.is_dirty = true;
                late.push(token);
                continue;
            }
            if conn.held.is_waiting() {
                held.push(token);
            }
            if goes_on && !conn.input.is_empty() {
                conn.resume(core, window);
                if !conn.is_dirty {
                    conn.is_dirty = true;
                    again.push(token);
                }
            }
            output::balance_reading(reactor, conn);
            if conn.session.reading.is_some() {
                if readers_left == 0 {
                    if !conn.is_dirty {
                        conn.is_dirty = true;
                        unread.push(token);
                    }
                    continue;
                }
                readers_left -= 1;
                let next = reading::go_on(core, conn);
                if next == reading::Next::Done {
                    conn.is_stalled = false;
                    conn.resume(core, window);
                }
                if next != reading::Next::Wait && !conn.is_dirty {
                    conn.is_dirty = true;
                    again.push(token);
                }
            }
            // A further part of it, or what was given before a wait: nothing else may come that would send it.
            if output::is_due(conn) && !conn.is_dirty {
                conn.is_dirty = true;
                again.push(token);
            }
        }
        // Who was sent nothing, or got no slice, this time comes first the next.
        dirty.append(&mut late);
        dirty.append(&mut unread);
        dirty.append(&mut again);
        floor.dirty = dirty;
        core.journal.has_news = false;
        let sent = core.stats().output_bytes.get().saturating_sub(sent_before);
        if sent > core.stats().turn_sent_max.get() {
            core.stats().turn_sent_max.set(sent);
        }
    }

    fn close_all(&mut self) {
        let closed = self.floor.as_mut().map(|floor| std::mem::take(&mut floor.closed)).unwrap_or_default();
        for (token, is_eof) in closed {
            let Some(conn) = self.floor.as_mut().and_then(|floor| find(&mut floor.conns, token)) else {
                continue;
            };
            if is_eof && conn.is_stalled && conn.session.parking.is_none() {
                // The reply to its last command is still to come; its job closes it.
                conn.session.is_closing = true;
                continue;
            }
            self.drop_conn(token);
        }
    }

    fn drop_conn(&mut self, token: Token) {
        let Some(floor) = &mut self.floor else { return };
        let Some(mut conn) = floor.conns.get_mut(token.index()).and_then(Option::take) else { return };
        floor.reactor.close(token);
        self.core.shared.door(self.core.thread).count_out(conn.session.listener);
        lock(&self.core.shared.clients).remove(&conn.session.id);
        if conn.session.is_monitor {
            self.core.shared.monitors.remove(conn.session.id);
        }
        conn.count_bytes(&self.core, 0);
        pubsub::unsubscribe_all(&mut self.core, &mut conn.session, &conn.card);
        tracking::leave(&self.core, &mut conn.session);
        if let Some(reading) = conn.session.reading.take() {
            reading.give_up(&mut self.core);
        }
        conn.session.watched.clear();
        if let Some(parking) = conn.session.parking.take() {
            forget_deadline(&mut self.deadlines, &mut conn, &parking);
            waiting::abandon(&mut self.core, &parking);
        }
    }

    fn flush_before_end(&mut self) {
        journal::log::commit_last(&mut self.core);
        let Some(floor) = &mut self.floor else { return };
        let tokens: Vec<Token> = floor.conns.iter().flatten().map(|conn| conn.token).collect();
        for &token in &tokens {
            let Some(conn) = find(&mut floor.conns, token) else { continue };
            loop {
                self.core.send_left = output::TURN_BYTES;
                let flushed = output::flush(&mut self.core, &mut floor.reactor, conn, None);
                if !flushed.is_open || !output::is_due(conn) {
                    break;
                }
            }
        }
        tokens.into_iter().for_each(|token| self.drop_conn(token));
    }
}

/// The connection behind a token, unless it has gone.
pub fn find(conns: &mut [Option<Box<Conn>>], token: Token) -> Option<&mut Conn> {
    conns.get_mut(token.index())?.as_deref_mut().filter(|conn| conn.token == token)
}

/// Puts a connection that has begun to wait into the list of deadlines.
fn note_deadline(deadlines: &mut BTreeMap<(u64, u64), Token>, conn: &mut Conn) {
    let Some(parking) = &mut conn.session.parking else { return };
    conn.card.is_blocked.store(true, Relaxed);
    let ripe_ms = parking.ripens_ms();
    let noted = std::mem::replace(&mut parking.ripe_ms, ripe_ms);
    if noted != ripe_ms {
        // Its deadline may be at the same moment, and stays.
        noted
            .filter(|_| noted != parking.deadline_ms)
            .and_then(|ms| deadlines.remove(&(ms, conn.session.id)));
        ripe_ms.and_then(|ms| deadlines.insert((ms, conn.session.id), conn.token));
    }
    if let Some(deadline_ms) = parking.deadline_ms
        && !conn.has_deadline
    {
        conn.has_deadline = true;
        deadlines.insert((deadline_ms, conn.session.id), conn.token);
    }
}

fn forget_deadline(deadlines: &mut BTreeMap<(u64, u64), Token>, conn: &mut Conn, parking: &Parking) {
    for ms in [parking.deadline_ms, parking.ripe_ms].into_iter().flatten() {
        deadlines.remove(&(ms, conn.session.id));
    }
    conn.has_deadline = false;
}

/// Notes that a connection may have something to send.
pub fn mark_dirty(conn: &mut Conn, dirty: &mut Vec<Token>) {
    if !conn.is_dirty {
        conn.is_dirty = true;
        dirty.push(conn.token);
    }
}

/// Locks a mutex whose data stays sound even if a holder panicked.
pub fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
