//! A thread's loop: read all, execute all, write all, keep house.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_engine::blocking;
use darter_latch::Waiter;
use darter_reactor::signal::Signals;
use darter_reactor::{Reactor, Token, process};
use darter_txn::waiters::Parked;

use crate::busy_rejection;
use crate::clock::unix_ms;
use crate::coalescing::{Coalescing, Received};
use crate::conn::Conn;
use crate::conn::output;
use crate::conn::window::ConnWindow;
use crate::cron::Cron;
use crate::engine::cluster::{ClusterView, changes};
use crate::engine::lease;
use crate::event_loop::EventLoop;
use crate::job::{Job, JobBody};
use crate::journal;
use crate::journal::log::HeldFor;
use crate::limit;
use crate::listening::{Listening, Patience};
use crate::long_reads::{self, LongRead};
use crate::protocol::ListenerKind;
use crate::pubsub::{self, Message};
use crate::replication;
use crate::shared::{CloseScope, Shared, ThreadMessage, UnblockReason};
use crate::snapshot::signals;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use crate::tracking;
use crate::transaction;
use crate::waiting::{self, BlockedState};
use darter_config::Live;

/// The longest sleep of an idle thread.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Sleep while clients wait for a snapshot's buffers.
const HELD_BACK: Duration = Duration::from_millis(1);

/// One I/O thread.
pub struct Worker {
    local: ThreadState,
    // Away only while it is lent to `local`.
    event_loop: Option<Box<EventLoop>>,
    window: ConnWindow,
    /// Connections whose replies wait for the journal.
    held: Vec<Token>,
    /// Connections whose wait ends at a time, by that time and the client's id.
    deadlines: BTreeMap<(u64, u64), Token>,
    house: Cron,
    coalescing: Coalescing,
    is_stopping: bool,
}

impl Worker {
    /// The worker of thread `thread`, around a reactor made on this thread.
    pub fn new(shared: &'static Shared, thread: u16, reactor: Reactor) -> Worker {
        shared.handle(thread).open(reactor.waker());
        Worker {
            local: ThreadState::new(shared, thread),
            event_loop: Some(Box::new(EventLoop::new(reactor))),
            window: ConnWindow::default(),
            held: Vec::new(),
            deadlines: BTreeMap::new(),
            house: Cron::new(shared, thread),
            coalescing: Coalescing::default(),
            is_stopping: false,
        }
    }

    /// Listens where the settings say; returns the addresses.
    ///
    /// Errors: an address is taken or not ours.
    pub fn listen(&mut self, live: &Live, patience: &Patience<'_>) -> std::io::Result<Vec<String>> {
        let mut shown = Vec::new();
        if let Some(event_loop) = &mut self.event_loop {
            event_loop.listening =
                Listening::open(&mut event_loop.reactor, live, self.local.shared, patience, &mut shown)?;
        }
        Ok(shown)
    }

    /// Has this thread, which is thread 0, do what signals ask for.
    pub fn heed(&mut self, signals: Signals) {
        self.local.signals = Some(signals);
    }

    /// Serves until told to stop.
    pub fn run(&mut self) {
        while !self.is_stopping {
            let has_more = self.event_loop.as_ref().is_some_and(|event_loop| event_loop.has_more());
            let sleep =
                if has_more || !self.local.due.is_empty() { Duration::ZERO } else { self.sleep_max() };
            self.rest_before_turn(has_more);
            if let Err(error) = self.turn(sleep) {
                tracing::error!("event loop: {error}");
            }
            signals::look(&mut self.local);
        }
        self.flush_before_end();
    }

    /// Waits for more to come at once, where that saves calls into the kernel.
    fn rest_before_turn(&mut self, has_more: bool) {
        let Worker { local, event_loop: Some(event_loop), coalescing, .. } = self else { return };
        if local.is_quiet || has_more || !local.due.is_empty() {
            return;
        }
        let stats = local.stats();
        let rest = coalescing.rest(|| {
            let spent = process::thread_cpu_times();
            let received = Received {
                reads: stats.reads.get(),
                pipelined: stats.pipelined.get(),
                bytes: stats.input_bytes.get(),
                cpu: spent.user + spent.system,
            };
            (received, local.shared.started.elapsed())
        });
        if !rest.is_zero() && !local.shared.handle(local.thread).has_mail() {
            event_loop.reactor.rest(rest);
        }
    }

    fn turn(&mut self, sleep: Duration) -> std::io::Result<()> {
        let Worker { local, event_loop: Some(event_loop), window, .. } = self else { return Ok(()) };
        let arrived = event_loop.collect(local, window, sleep)?;
        if !arrived {
            local.refresh();
        }
        local.is_quiet = !arrived;
        if local.busy.is_some() {
            event_loop.turn_away(local, window);
        }
        event_loop.accept_all(local);
        self.stats_turn();
        self.read_mail();
        self.run_late();
        self.end_late_waits();
        self.resume_postponed();
        self.run_due();
        self.note_writable();
        journal::turn::commit(&mut self.local);
        self.flush_all();
        if limit::clients::is_over(&self.local) {
            limit::clients::evict(&self.local);
        }
        self.close_all();
        if let Some(event_loop) = &mut self.event_loop {
            self.house.keep(&mut self.local, &mut event_loop.conns);
        }
        journal::turn::settle(&mut self.local);
        Ok(())
    }

    /// How long nothing has to be done unless something arrives.
    fn sleep_max(&self) -> Duration {
        let mut housekeeping = self.house.sleep().min(TURN_MAX);
        let snapshots = &self.local.shared.snapshots;
        if snapshots.ending.is_on() || self.local.has_postponed && snapshots.holds_writers() {
            housekeeping = housekeeping.min(HELD_BACK);
        } else if self.local.has_postponed && !self.local.waits_for_map {
            let left_ms = self.local.shared.pause.until_ms().saturating_sub(unix_ms() as i64);
            housekeeping = housekeeping.min(Duration::from_millis(left_ms.max(0) as u64));
        }
        match self.deadlines.first_key_value() {
            Some((&(deadline_ms, _), _)) => {
                housekeeping.min(Duration::from_millis(deadline_ms.saturating_sub(unix_ms())))
            }
            None => housekeeping,
        }
    }

    fn stats_turn(&self) {
        self.local.stats().turns.add(1);
    }

    fn read_mail(&mut self) {
        let Worker { local, event_loop: Some(event_loop), .. } = self else { return };
        let mut mail = std::mem::take(&mut event_loop.mail);
        local.shared.handle(local.thread).drain(&mut mail);
        let mut unread = mail.drain(..).peekable();
        while let Some(message) = unread.next() {
            self.open(message, &mut unread);
        }
        drop(unread);
        // What came in while a script was overdue is there already.
        if let Some(event_loop) = self.event_loop.as_mut().filter(|event_loop| event_loop.mail.is_empty()) {
            event_loop.mail = mail;
        }
    }

    /// Runs what waits for the reactor to be at hand: scripts, and what comes behind them on their connections.
    fn run_due(&mut self) {
        for token in std::mem::take(&mut self.local.due) {
            let Some(mut conn) = self.event_loop.as_mut().and_then(|event_loop| event_loop.lift(token))
            else {
                continue;
            };
            conn.is_due = false;
            self.local.event_loop = self.event_loop.take();
            busy_rejection::resume(&mut self.local, &mut self.window, &mut conn);
            self.settle_floor(conn);
        }
    }

    /// Takes the event_loop back after it was lent, and puts the connection that ran in its place.
    fn settle_floor(&mut self, conn: Box<Conn>) {
        self.event_loop = self.local.event_loop.take();
        if let Some(event_loop) = &mut self.event_loop {
            event_loop.put_back(&mut self.local, &mut self.window, conn);
        }
    }

    /// Runs what came from connections while messages to them may have been among the mail.
    fn run_late(&mut self) {
        let Worker { local, event_loop: Some(event_loop), window, .. } = self else { return };
        for token in event_loop.late.drain(..) {
            if let Some(conn) = find(&mut event_loop.conns, token) {
                conn.go_on(local, window);
                mark_dirty(conn, &mut event_loop.dirty);
            }
        }
    }

    /// Does what a message asks for; more of its kind may be taken from those that are `unread`.
    fn open(&mut self, message: ThreadMessage, unread: &mut Peekable<impl Iterator<Item = ThreadMessage>>) {
        let Worker { local, event_loop: Some(event_loop), deadlines, .. } = self else { return };
        let EventLoop { reactor, conns, dirty, closed, .. } = &mut **event_loop;
        match message {
            ThreadMessage::Connection(socket, kind) => event_loop.adopt(local, socket, kind),
            ThreadMessage::Move => {
                local.refresh_settings();
                let live = local.live.clone();
                event_loop.listening.move_to(&mut event_loop.reactor, &live, local.shared);
            }
            ThreadMessage::Done(job) => self.finish(*job),
            ThreadMessage::Run(job) => self.run_at_home(job),
            ThreadMessage::Push { token, client, bytes } => {
                if let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client) {
                    conn.messages().extend_from_slice(&bytes);
                    mark_dirty(conn, dirty);
                }
            }
            ThreadMessage::Frame { token, client, head, body } => {
                if let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client) {
                    match output::send_frame(local, reactor, conn, (&head, &body)) {
                        // The end of the turn shows others what it has sent.
                        true => mark_dirty(conn, dirty),
                        false => closed.push((token, false)),
                    }
                }
            }
            ThreadMessage::Publish(first) => match &*pubsub::run::take(first, unread) {
                [message] => self.deliver(message),
                run => pubsub::run::deliver(local, event_loop, run),
            },
            ThreadMessage::Close(scope) => self.close_clients(scope),
            ThreadMessage::Kill { token, client } => {
                if let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client) {
                    conn.session.is_closing = true;
                    closed.push((token, false));
                }
            }
            ThreadMessage::ReadyAt { token, client } => {
                let waits = |conn: &&mut Conn| conn.session.id == client && conn.session.blocked.is_some();
                if let Some(conn) = find(conns, token).filter(waits) {
                    note_deadline(deadlines, conn);
                }
            }
            ThreadMessage::Help => replication::help(local),
            ThreadMessage::Demoted => self.unblock_writers(),
            ThreadMessage::ClusterMap(revision) => self.take_map(revision),
            ThreadMessage::Unpaused | ThreadMessage::Durable | ThreadMessage::Snapshot => {}
            ThreadMessage::Invalidate(message) => {
                let to = &message.to;
                if let Some(conn) = find(conns, to.token).filter(|c| c.session.id == to.client)
                    && tracking::deliver(conn, &message)
                {
                    mark_dirty(conn, dirty);
                }
            }
            ThreadMessage::Redirected { token, client, keys } => {
                if let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client)
                    && tracking::redirected(conn, &keys)
                {
                    mark_dirty(conn, dirty);
                }
            }
            ThreadMessage::Served { token, client, reply } => self.end_wait(token, client, |_| Some(reply)),
            ThreadMessage::Unblock { token, client, reason } => self.unblock(token, client, reason),
            ThreadMessage::Stop => self.is_stopping = true,
        }
    }

    /// Closes clients that may not be answered any more: this server does not lead its group now.
    #[cold]
    fn close_clients(&mut self, scope: CloseScope) {
        let Worker { local, event_loop: Some(event_loop), .. } = self else { return };
        let EventLoop { conns, closed, .. } = &mut **event_loop;
        for conn in conns.iter_mut().filter_map(|conn| conn.as_deref_mut()) {
            let is_owed = conn.held.is_waiting() || conn.is_stalled && conn.session.blocked.is_none();
            let is_client = output::held_for(local.shared, conn) == HeldFor::All;
            let is_meant = match scope {
                CloseScope::Held => is_owed,
                CloseScope::All => true,
                CloseScope::Astray => conn.session.listener != ListenerKind::Sentinel,
            };
            if is_client && is_meant {
                conn.session.is_closing = true;
                closed.push((conn.token, false));
            }
        }
    }

    /// Ends a client's wait, as CLIENT UNBLOCK asks. If another thread tries to serve the client at this moment, the
    /// message is sent again: the try may find nothing, and the wait must end all the same.
    fn unblock(&mut self, token: Token, client: u64, reason: UnblockReason) {
        let (mut unblocked, mut is_tried) = (None, false);
        self.end_wait(token, client, |conn| {
            let blocked = conn.session.blocked.as_ref()?;
            if !blocked.cancel() {
                is_tried = blocked.is_tried();
                return None;
            }
            let mut reply = Vec::new();
            if reason == UnblockReason::Error {
                reply.extend_from_slice(b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
                unblocked = blocked.entry_id();
            } else {
                blocked.write_timeout(&mut reply, conn.session.resp3);
            }
            Some(reply)
        });
        if is_tried {
            let shared = self.local.shared;
            shared.handle(self.local.thread).send(ThreadMessage::Unblock { token, client, reason });
        }
        if let Some(id) = unblocked {
            self.local.stats().commands[id].failed.add(1);
            self.local.count_error("UNBLOCKED");
        }
    }

    /// Appends a published message to the output of every connection of this thread that is subscribed.
    fn deliver(&mut self, message: &Message) {
        let Worker { local, event_loop: Some(event_loop), .. } = self else { return };
        let EventLoop { conns, dirty, .. } = &mut **event_loop;
        local.subscribers.each_receiver(message, |token, client, pattern| {
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
        let Worker { local, event_loop: Some(event_loop), window, .. } = self else { return };
        let EventLoop { conns, dirty, .. } = &mut **event_loop;
        let shared = local.shared;
        let is_held = shared.pause.is_on(local.now_ms) || shared.snapshots.holds_writers();
        // With each map all are looked at again.
        if !local.has_postponed || is_held || local.waits_for_map {
            return;
        }
        local.has_postponed = false;
        local.waits_for_map = local.cluster.map.is_holding();
        local.refresh_gate();
        for conn in conns.iter_mut().flatten().filter(|conn| conn.is_postponed) {
            conn.is_postponed = false;
            conn.info.is_postponed.store(false, Relaxed);
            conn.resume(local, window);
            mark_dirty(conn, dirty);
        }
    }

    /// A job of one of our connections was run: answer and go on with its pipeline.
    fn finish(&mut self, job: Job) {
        let Worker { local, event_loop: Some(event_loop), window, .. } = self else { return };
        let EventLoop { conns, dirty, .. } = &mut **event_loop;
        local.journal.has_news = true;
        let Some(conn) = find(conns, job.origin.token).filter(|conn| conn.session.id == job.origin.client)
        else {
            long_reads::end_of_nobody(local, &job.body);
            if let Some(blocked) = &job.blocked {
                waiting::abandon(local, blocked);
            }
            return;
        };
        if job.blocked.is_some() && conn.session.is_closing {
            // The client closed before its command was found to wait: no reply would ever close the connection.
            conn.session.blocked = job.blocked;
            self.drop_conn(job.origin.token);
            return;
        }
        if job.blocked.is_some() || !std::mem::take(&mut conn.session.drops_reply) {
            conn.answer(&job.reply);
        }
        if job.blocked.is_some() {
            conn.session.waiting = None;
            conn.session.blocked = job.blocked;
            mark_dirty(conn, dirty);
            return;
        }
        match job.body {
            JobBody::Left { source, entry, args } => {
                conn.session.waiting = None;
                conn.session.reading = Some(Box::new(LongRead::new(source, entry, args)));
                mark_dirty(conn, dirty);
                return;
            }
            JobBody::Read { source, slice } => {
                let is_done = long_reads::note_slice(local, conn, source, slice, job.reply.len());
                if !is_done {
                    mark_dirty(conn, dirty);
                    return;
                }
            }
            JobBody::Keep { .. } => long_reads::note_kept(local, conn, job.reply.len()),
            _ => {}
        }
        conn.is_stalled = false;
        busy_rejection::resume(local, window, conn);
        mark_dirty(conn, dirty);
    }

    /// Ends a client's wait with the reply that `answer` gives; with none it goes on waiting.
    fn end_wait(&mut self, token: Token, client: u64, answer: impl FnOnce(&mut Conn) -> Option<Vec<u8>>) {
        let Worker { local, event_loop: Some(event_loop), window, deadlines, .. } = self else { return };
        let EventLoop { conns, dirty, .. } = &mut **event_loop;
        let Some(conn) = find(conns, token).filter(|conn| conn.session.id == client) else {
            return;
        };
        if conn.session.blocked.is_none() {
            return;
        }
        local.journal.has_news = true;
        let Some(reply) = answer(conn) else { return };
        if !std::mem::take(&mut conn.session.drops_reply) {
            conn.answer(&reply);
        }
        if let Some(blocked) = conn.session.blocked.take() {
            forget_deadline(deadlines, conn, &blocked);
            if let Some(ticket) = &blocked.ticket {
                blocking::leave_queues(local, ticket);
            }
        }
        conn.info.is_blocked.store(false, Relaxed);
        conn.is_stalled = false;
        conn.resume(local, window);
        mark_dirty(conn, dirty);
    }

    /// Ends the waits of clients that would write: this server follows another now.
    fn unblock_writers(&mut self) {
        self.local.refresh_gate();
        let Some(event_loop) = &self.event_loop else { return };
        let waits = |conn: &Conn| conn.session.blocked.as_ref().is_some_and(BlockedState::would_write);
        let found = event_loop.conns.iter().filter_map(|conn| conn.as_deref()).filter(|conn| waits(conn));
        let clients: Vec<(Token, u64)> = found.map(|conn| (conn.token, conn.session.id)).collect();
        for (token, client) in clients {
            self.end_wait(token, client, |conn| {
                conn.session.blocked.as_ref().filter(|blocked| blocked.cancel())?;
                let line = "-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
                Some(format!("{line}\r\n").into_bytes())
            });
        }
    }

    /// Routes by the latest map of the cluster, and settles what connections had under the one before.
    #[cold]
    fn take_map(&mut self, revision: u64) {
        let shared = self.local.shared;
        self.local.take_view(ClusterView::new(&shared.cluster, &self.local.live.cluster));
        let map = self.local.cluster.map.clone();
        self.local.waits_for_map = false;
        let Worker { local, event_loop: Some(event_loop), .. } = self else { return };
        let EventLoop { conns, dirty, .. } = &mut **event_loop;
        let mut waiting: Vec<(Token, u64)> = Vec::new();
        for conn in conns.iter_mut().filter_map(|conn| conn.as_deref_mut()) {
            if changes::end_subscriptions(local, &map, conn) {
                mark_dirty(conn, dirty);
            }
            if conn.session.blocked.is_some() {
                waiting.push((conn.token, conn.session.id));
            }
        }
        for (token, client) in waiting {
            let Some(event_loop) = &mut self.event_loop else { return };
            let conn = find(&mut event_loop.conns, token);
            let Some(reply) = conn.and_then(|conn| changes::answer_to_waiting(&self.local, conn)) else {
                continue;
            };
            self.end_wait(token, client, |conn| {
                conn.session.blocked.as_ref().filter(|blocked| blocked.cancel())?;
                Some(reply)
            });
        }
        shared.cluster.acknowledge(shared, revision);
    }

    /// Ends the waits whose time is up.
    fn end_late_waits(&mut self) {
        while let Some((&(deadline_ms, client), &token)) = self.deadlines.first_key_value() {
            if deadline_ms > self.local.now_ms {
                return;
            }
            self.deadlines.remove(&(deadline_ms, client));
            if let Some(ticket) = self.ready_ticket(token) {
                waiting::look_again(&mut self.local, &ticket);
                continue;
            }
            if let Some(event_loop) = &mut self.event_loop
                && let Some(conn) = find(&mut event_loop.conns, token)
            {
                conn.has_deadline = false;
                // One that is being served this moment gets its reply by mail.
                mark_dirty(conn, &mut event_loop.dirty);
            }
            self.end_wait(token, client, |conn| {
                let blocked = conn.session.blocked.as_ref().filter(|blocked| blocked.cancel())?;
                let mut reply = Vec::new();
                blocked.write_timeout(&mut reply, conn.session.resp3);
                Some(reply)
            });
        }
    }

    /// The ticket of a connection that waits on, and for which time alone has something now.
    fn ready_ticket(&mut self, token: Token) -> Option<Parked> {
        let now_ms = self.local.now_ms;
        let blocked = find(&mut self.event_loop.as_mut()?.conns, token)?.session.blocked.as_mut()?;
        let is_over = blocked.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms);
        blocked.ready_at_ms.take_if(|ready_at_ms| *ready_at_ms <= now_ms && !is_over)?;
        blocked.ticket.clone()
    }

    /// A job that came home with all its shards.
    fn run_at_home(&mut self, mut job: Box<Waiter<Job>>) {
        let mut grant = std::mem::take(&mut job.grant);
        if !job.is_home_only() {
            crate::exec::run_job(&mut self.local, &mut grant, &mut job);
        } else if self
            .event_loop
            .as_mut()
            .is_some_and(|event_loop| busy_rejection::is_answered(event_loop, &job))
        {
            lease::release(&mut self.local, grant);
            return;
        } else if let Some(mut conn) =
            self.event_loop.as_mut().and_then(|event_loop| event_loop.lift(job.origin.token))
        {
            if conn.session.id == job.origin.client {
                let Job { body, reply, origin, .. } = &mut **job;
                let Conn { session, info, .. } = &mut *conn;
                self.local.event_loop = self.event_loop.take();
                if !busy_rejection::refuse_late(&mut self.local, session, origin.token, (body, reply)) {
                    transaction::run_held(&mut self.local, session, info, &mut grant, body, reply);
                }
            }
            self.settle_floor(conn);
        }
        let is_for_nobody = job.is_for_nobody();
        lease::release(&mut self.local, grant);
        if !is_for_nobody {
            self.finish(job.into_inner());
        }
    }

    fn note_writable(&mut self) {
        let Some(event_loop) = &mut self.event_loop else { return };
        for token in std::mem::take(&mut event_loop.writable) {
            if let Some(conn) = find(&mut event_loop.conns, token) {
                conn.awaits_writable = false;
                mark_dirty(conn, &mut event_loop.dirty);
            }
        }
    }

    /// Sends what every connection has to say. A connection whose output was over its pause mark goes on
    /// with its input once the output is out.
    fn flush_all(&mut self) {
        let Worker { local, event_loop: Some(event_loop), window, held, deadlines, .. } = self else {
            return;
        };
        let mut dirty = std::mem::take(&mut event_loop.dirty);
        let EventLoop { reactor, conns, closed, .. } = &mut **event_loop;
        let mut handed = output::flush_together(local, reactor, conns, &dirty).into_iter();
        if std::mem::take(&mut local.journal.frees) {
            // Some may be in the list already.
            dirty.append(held);
        }
        let (mut again, mut late) = (Vec::new(), Vec::new());
        let (mut readers_left, mut unread) = (long_reads::CLIENTS_PER_TURN, Vec::new());
        local.send_left = output::TURN_BYTES;
        let sent_before = local.stats().output_bytes.get();
        for token in dirty.drain(..) {
            let handed = handed.next().flatten();
            let Some(conn) = find(conns, token) else { continue };
            conn.is_dirty = false;
            note_deadline(deadlines, conn);
            let output::Flushed { is_open, goes_on, is_late } = output::flush(local, reactor, conn, handed);
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
                conn.resume(local, window);
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
                let next = long_reads::go_on(local, conn);
                if next == long_reads::NextReadSlice::Done {
                    conn.is_stalled = false;
                    conn.resume(local, window);
                }
                if next != long_reads::NextReadSlice::Wait && !conn.is_dirty {
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
        event_loop.dirty = dirty;
        local.journal.has_news = false;
        let sent = local.stats().output_bytes.get().saturating_sub(sent_before);
        if sent > local.stats().turn_sent_max.get() {
            local.stats().turn_sent_max.set(sent);
        }
    }

    fn close_all(&mut self) {
        let closed = self
            .event_loop
            .as_mut()
            .map(|event_loop| std::mem::take(&mut event_loop.closed))
            .unwrap_or_default();
        for (token, is_eof) in closed {
            let Some(conn) =
                self.event_loop.as_mut().and_then(|event_loop| find(&mut event_loop.conns, token))
            else {
                continue;
            };
            if is_eof && conn.is_stalled && conn.session.blocked.is_none() {
                // The reply to its last command is still to come; its job closes it.
                conn.session.is_closing = true;
                continue;
            }
            self.drop_conn(token);
        }
    }

    fn drop_conn(&mut self, token: Token) {
        let Some(event_loop) = &mut self.event_loop else { return };
        let Some(mut conn) = event_loop.conns.get_mut(token.index()).and_then(Option::take) else { return };
        // Whoever sees that it has gone may push: nothing of that is for it any more.
        if let Some(blocked) = conn.session.blocked.take() {
            forget_deadline(&mut self.deadlines, &mut conn, &blocked);
            waiting::abandon(&mut self.local, &blocked);
        }
        event_loop.reactor.close(token);
        self.local.shared.handle(self.local.thread).count_out(conn.session.listener);
        lock(&self.local.shared.clients).remove(&conn.session.id);
        if conn.session.is_monitor {
            self.local.shared.monitors.remove(conn.session.id);
        }
        conn.count_bytes(&self.local, 0);
        pubsub::unsubscribe_all(&mut self.local, &mut conn.session, &conn.info);
        tracking::leave(&self.local, &mut conn.session);
        if let Some(reading) = conn.session.reading.take() {
            reading.give_up(&mut self.local);
        }
        conn.session.watched.clear();
    }

    fn flush_before_end(&mut self) {
        journal::turn::commit_last(&mut self.local);
        let Some(event_loop) = &mut self.event_loop else { return };
        let tokens: Vec<Token> = event_loop.conns.iter().flatten().map(|conn| conn.token).collect();
        for &token in &tokens {
            let Some(conn) = find(&mut event_loop.conns, token) else { continue };
            loop {
                self.local.send_left = output::TURN_BYTES;
                let flushed = output::flush(&mut self.local, &mut event_loop.reactor, conn, None);
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
    let Some(blocked) = &mut conn.session.blocked else { return };
    conn.info.is_blocked.store(true, Relaxed);
    let ready_at_ms = blocked.ready_at_ms();
    let noted = std::mem::replace(&mut blocked.ready_at_ms, ready_at_ms);
    if noted != ready_at_ms {
        // Its deadline may be at the same moment, and stays.
        noted
            .filter(|_| noted != blocked.deadline_ms)
            .and_then(|ms| deadlines.remove(&(ms, conn.session.id)));
        ready_at_ms.and_then(|ms| deadlines.insert((ms, conn.session.id), conn.token));
    }
    if let Some(deadline_ms) = blocked.deadline_ms
        && !conn.has_deadline
    {
        conn.has_deadline = true;
        deadlines.insert((deadline_ms, conn.session.id), conn.token);
    }
}

fn forget_deadline(deadlines: &mut BTreeMap<(u64, u64), Token>, conn: &mut Conn, blocked: &BlockedState) {
    for ms in [blocked.deadline_ms, blocked.ready_at_ms].into_iter().flatten() {
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
