//! One connection on its thread: bytes that wait to be understood, replies that wait to be sent.

pub mod batch;
pub mod output;
mod shown;
pub mod traffic;
pub mod window;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_reactor::{Reactor, Token};
use darter_wire::memcache::MemcacheDecoder;
use darter_wire::{
    Args, OwnedArgs, Parser, ParserLimits, ParserStep, ProtocolError, Reply, ReplyBuffer, Span, short_request,
};

use batch::CommandBatch;

use crate::acl::Acl;
use crate::busy_rejection::WaitingClient;
use crate::clients::ClientInfo;
use crate::command_log::large;
use crate::dispatch::{self, Resolved};
use crate::exec::{CommandCall, Ran};
use crate::http::{self, Visit};
use crate::journal::log::HeldLog;
use crate::protocol::ListenerKind;
use crate::protocol::{self, AllowedProtocols, Protocol};
use crate::session::{Gate, Session};
use crate::thread_state::ThreadState;
use crate::tls::Channel;
use window::{ConnWindow, Prepared, WINDOW_LEN};

/// Requests of a window that others are compared with: where they alternate, comparing gains nothing.
const LIKES_MAX: u32 = 4;

/// Shorter windows are not worth a look ahead.
const WARM_LEN_MIN: usize = 4;
/// Output beyond this many bytes is sent before more commands run.
pub const OUTPUT_PAUSE_BYTES: usize = 1 << 20;

/// Seconds that the longest output is looked for in.
const PEAK_S: u64 = 5;

/// Bytes of a request that is not whole that are kept for a client that has not logged in.
pub const STRANGER_INPUT_BYTES_MAX: usize = 8 << 10;
/// Room made at once for an argument that is not there yet.
const RESERVE_BYTES_MAX: usize = 32 << 20;
/// A request that lacks so many bytes is received into the connection's own buffer, which saves a copy.
const BY_HAND_BYTES_MIN: usize = 64 << 10;
/// Bytes that one connection receives by hand in a turn, at most.
const BY_HAND_BYTES_MAX: usize = 256 << 10;
/// Room for the beginning of a request whose length is not known.
const BEGINNING_BYTES: usize = 32 << 10;

/// A client's connection.
pub struct Conn {
    /// The reactor's name for it.
    pub token: Token,
    /// What commands read and change.
    pub session: Session,
    /// What other threads see of it.
    pub info: Arc<ClientInfo>,
    /// Bytes received but not understood yet.
    pub input: Vec<u8>,
    /// Replies not handed to the kernel yet, from `sent` on.
    pub output: Vec<u8>,
    /// Bytes of `output` that the kernel has taken.
    pub sent: usize,
    /// The longest output of the last seconds, in bytes.
    pub output_peak: usize,
    /// Waits for a shard or a key: no further command runs.
    pub is_stalled: bool,
    /// Bytes of the arguments of the command that waits.
    waiting_args: usize,
    /// Its wait is in the worker's list of deadlines.
    pub has_deadline: bool,
    /// Its next command waits for the end of CLIENT PAUSE.
    pub is_postponed: bool,
    /// Its next command may run a script, which waits until the reactor is at hand.
    pub is_due: bool,
    /// Which part of `output` waits for the journal.
    pub held: HeldLog,
    /// The kernel's buffer is full; a Writable event will come.
    pub awaits_writable: bool,
    /// Stands in the worker's list of connections with something to send.
    pub is_dirty: bool,
    /// Reading is paused because too much waits to be understood or sent.
    pub is_paused: bool,
    /// Something arrived since its info was last brought up to date.
    pub was_active: bool,
    /// Since when its output has been over the soft limit, Unix ms; 0: it is not.
    pub over_soft_since_ms: u64,
    /// Since when it has taken none of its output, Unix ms; 0: it has.
    pub stuck_since_ms: u64,
    /// Its TLS; none when it speaks plainly.
    pub channel: Option<Box<Channel>>,
    /// What it remembers between requests, when it speaks HTTP.
    pub http: Option<Box<Visit>>,
    parser: Parser,
    /// Bytes that its unfinished command lacks at least, as far as its length is known; as of the last look at `input`.
    lacks_bytes: usize,
    /// Its bytes are received by hand, as it lacks many.
    pub is_by_hand: bool,
    /// Its progress, where it speaks memcached.
    pub decoder: MemcacheDecoder,
}

impl Conn {
    /// A connection that has just been accepted.
    pub fn new(token: Token, session: Session, info: Arc<ClientInfo>) -> Conn {
        Conn {
            token,
            session,
            info,
            input: Vec::new(),
            output: Vec::new(),
            sent: 0,
            output_peak: 0,
            is_stalled: false,
            waiting_args: 0,
            has_deadline: false,
            is_postponed: false,
            is_due: false,
            held: HeldLog::default(),
            awaits_writable: false,
            is_dirty: false,
            is_paused: false,
            was_active: false,
            over_soft_since_ms: 0,
            stuck_since_ms: 0,
            channel: None,
            http: None,
            parser: Parser::new(),
            lacks_bytes: 0,
            is_by_hand: false,
            decoder: MemcacheDecoder::new(),
        }
    }

    /// Takes bytes from the reactor: runs what is complete, keeps the rest.
    pub fn receive(&mut self, local: &mut ThreadState, window: &mut ConnWindow, bytes: &[u8]) {
        self.was_active = true;
        self.session.usage.input_bytes += bytes.len() as u64;
        if self.input.is_empty() && !self.is_held_back() {
            let consumed = self.process(local, window, bytes);
            self.keep(local, &bytes[consumed..]);
            self.give_words(|| bytes.to_vec());
        } else {
            self.keep(local, bytes);
            self.lacks_bytes = 0;
            // Before it is looked at, as Redis: a request of that length is too long even when it is all there.
            if self.input.len() as u64 > local.live.client_query_buffer_limit {
                return self.refuse_input(local);
            }
            self.resume(local, window);
        }
        if !self.input.is_empty() {
            self.bound_input(local);
        }
    }

    /// Takes bytes that are to wait for [`Conn::go_on`] in the same turn.
    #[cold]
    pub fn receive_later(&mut self, local: &ThreadState, bytes: &[u8]) {
        self.was_active = true;
        self.session.usage.input_bytes += bytes.len() as u64;
        self.keep(local, bytes);
        self.lacks_bytes = 0;
    }

    /// Returns true if its request lacks so many bytes that they are to be received by hand.
    #[inline]
    pub fn lacks_much(&self) -> bool {
        self.lacks_bytes >= BY_HAND_BYTES_MIN
            && self.channel.is_none()
            && !self.session.gate.has(Gate::LOGIN)
            && !self.is_held_back()
    }

    /// Receives by hand: a part of what its request lacks, or the beginning of one. [`Conn::go_on`] must follow.
    pub fn fill(&mut self, local: &ThreadState, reactor: &mut Reactor) -> std::io::Result<usize> {
        if self.input.capacity() == 0 {
            // What follows a large request is likely to be one.
            self.input = local.take_buffer(0..usize::MAX).unwrap_or_default();
        }
        let bytes_max = self.lacks_bytes.clamp(BEGINNING_BYTES, BY_HAND_BYTES_MAX);
        self.make_room(local, self.lacks_bytes.max(bytes_max));
        let received = reactor.receive(self.token, &mut self.input, bytes_max)?;
        self.was_active = true;
        self.session.usage.input_bytes += received as u64;
        self.lacks_bytes = self.lacks_bytes.saturating_sub(received);
        Ok(received)
    }

    /// Runs what [`Conn::receive_later`] has kept, or [`Conn::fill`] has received.
    pub fn go_on(&mut self, local: &mut ThreadState, window: &mut ConnWindow) {
        // As in `receive`: a request that is too long is not run, even when it is all there.
        if self.input.len() as u64 > local.live.client_query_buffer_limit {
            return self.refuse_input(local);
        }
        self.resume(local, window);
        if !self.input.is_empty() {
            self.bound_input(local);
        }
    }

    /// Ends a connection that has more kept for it than it may.
    fn bound_input(&mut self, local: &ThreadState) {
        if self.input.len() as u64 > local.live.client_query_buffer_limit {
            return self.refuse_input(local);
        }
        // HTTP and memcached's protocol have bounds of their own.
        let is_stranger = self.session.gate.has(Gate::LOGIN)
            && matches!(self.session.protocol, Protocol::Resp | Protocol::Unknown);
        // What waits for its turn may be a login, and much behind it.
        if is_stranger && self.input.len() > STRANGER_INPUT_BYTES_MAX && !self.is_held_back() {
            self.fail(local, &ProtocolError::UnauthenticatedBulkLength);
            self.input = Vec::new();
        }
    }

    /// Whether it is sent messages that others cause. What caused them may be known to it already, so they come before
    /// the reply to what it sends next.
    #[inline]
    pub fn hears_others(&self) -> bool {
        self.session.tracking.is_some()
            || self.session.subscriptions.is_some()
            || self.info.is_redirected_to.load(Relaxed)
    }

    /// The request is longer than `client-query-buffer-limit`: the client is closed without a word.
    #[cold]
    fn refuse_input(&mut self, local: &ThreadState) {
        tracing::warn!("closing client {} that reached the maximum query buffer length", self.session.id);
        local.stats().input_limit_closed.add(1);
        self.session.is_closing = true;
        self.input = Vec::new();
        self.parser = Parser::new();
    }

    /// Whether commands must not run now.
    pub fn is_held_back(&self) -> bool {
        self.is_stalled
            || self.is_postponed
            || self.is_due
            || self.session.is_closing
            || self.output.len() - self.sent > OUTPUT_PAUSE_BYTES
    }

    /// Goes on with bytes that were kept.
    pub fn resume(&mut self, local: &mut ThreadState, window: &mut ConnWindow) {
        if self.http.is_some() {
            http::go_on(self, local);
        }
        if self.input.is_empty() || self.is_held_back() {
            return;
        }
        let mut input = std::mem::take(&mut self.input);
        let consumed = self.process(local, window, &input);
        if self.session.reading.as_ref().is_some_and(|reading| reading.lacks_words()) {
            self.input = input[consumed..].to_vec();
            self.give_words(|| input);
            return;
        }
        if consumed == input.len() {
            // An idle connection holds no buffer; a busy one gets it back.
            if input.capacity() <= 64 << 10 {
                input.clear();
                self.input = input;
            } else if self.is_by_hand {
                local.keep_buffer(input);
            }
        } else {
            input.drain(..consumed);
            self.input = input;
        }
    }

    /// Gives a command that is left to slices with its words the bytes in which they came.
    #[inline]
    fn give_words(&mut self, input: impl FnOnce() -> Vec<u8>) {
        if let Some(reading) = self.session.reading.as_mut().filter(|reading| reading.lacks_words()) {
            reading.adopt(input());
        }
    }

    /// Where messages go that no command asked for: behind the answer that it is getting in slices, if it is.
    pub fn messages(&mut self) -> &mut Vec<u8> {
        if self.session.reading.is_some() { &mut self.session.own_messages } else { &mut self.output }
    }

    /// Bytes held for it that it has not taken.
    pub fn unsent_bytes(&self) -> usize {
        let unsent = self.output.len() - self.sent;
        match &self.session.reading {
            None => unsent,
            Some(reading) => unsent + reading.aside_bytes() + self.session.own_messages.len(),
        }
    }

    /// Takes the reply of a command that was run elsewhere.
    pub fn answer(&mut self, reply: &[u8]) {
        match &mut self.http {
            Some(visit) => visit.answer(reply),
            None => self.output.extend_from_slice(reply),
        }
    }

    fn keep(&mut self, local: &ThreadState, bytes: &[u8]) {
        if !bytes.is_empty() && !self.session.is_closing {
            // To strangers nothing is promised.
            if self.lacks_bytes > bytes.len() && !self.session.gate.has(Gate::LOGIN) {
                // What came before was parsed with these bytes, what is kept already without them.
                let parsed = if self.input.is_empty() { bytes.len() } else { 0 };
                self.make_room(local, self.lacks_bytes.saturating_add(parsed));
            }
            self.input.extend_from_slice(bytes);
        }
    }

    /// Makes room for a large argument, and no more, as it counts. Only so much at a time, because it is a promise; room that is
    /// never filled costs address space only. To grow costs no copy.
    fn make_room(&mut self, local: &ThreadState, lacks_bytes: usize) {
        let bytes = lacks_bytes.min(RESERVE_BYTES_MAX);
        if self.input.capacity() - self.input.len() >= bytes {
            return;
        }
        let wanted = self.input.len() + bytes;
        match local.take_buffer(wanted..wanted * 2) {
            Some(mut buffer) => {
                buffer.extend_from_slice(&self.input);
                self.input = buffer;
            }
            None => self.input.reserve_exact(bytes),
        }
    }

    /// Gives back buffers that an idle connection does not need. Called once a second.
    pub fn rest(&mut self, local: &ThreadState) {
        if (local.now_ms / 1000).is_multiple_of(PEAK_S) {
            self.output_peak = 0;
        }
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
        }
        if self.output.is_empty() && self.output.capacity() > 0 {
            self.output = Vec::new();
        }
    }

    /// Runs the complete commands at the front of `buf`; returns how many bytes they took.
    #[inline]
    fn process(&mut self, local: &mut ThreadState, window: &mut ConnWindow, buf: &[u8]) -> usize {
        if self.session.is_user_stale(&local.shared.acl) {
            self.settle(&local.shared.acl);
        }
        if self.session.protocol == Protocol::Resp {
            return self.process_resp(local, window, buf);
        }
        self.process_other(local, window, buf)
    }

    /// Catches up with what others did to its user and to itself.
    #[cold]
    fn settle(&mut self, acl: &Acl) {
        self.session.settle_user(acl);
        self.session.is_closing |= self.info.is_killed.load(Relaxed);
    }

    /// The way of connections that do not speak RESP, or have not said enough to tell.
    #[inline(never)]
    fn process_other(&mut self, local: &mut ThreadState, window: &mut ConnWindow, buf: &[u8]) -> usize {
        if self.session.protocol == Protocol::Unknown {
            let http = local.live.http.enabled || self.session.listener == ListenerKind::Admin;
            let Some(protocol) = protocol::recognise(self.session.listener, AllowedProtocols { http }, buf)
            else {
                return 0;
            };
            self.session.protocol = protocol;
        }
        match self.session.protocol {
            Protocol::MemcachedBinary => {
                self.output.extend_from_slice(&crate::memcached::binary::refusal(buf));
                let (id, peer) = (self.session.id, &self.info.peer);
                if local.shared.told_binary.swap(true, Relaxed) {
                    tracing::debug!("client {id} at {peer} speaks memcached's binary protocol");
                } else {
                    tracing::warn!(
                        "client {id} at {peer} speaks memcached's binary protocol, which is not served: set it to the text \
                         protocol; further clients are not reported"
                    );
                }
                self.session.is_closing = true;
                buf.len()
            }
            Protocol::Memcached => crate::memcached::process(self, local, buf),
            Protocol::Http => http::receive(self, local, buf),
            _ => self.process_resp(local, window, buf),
        }
    }

    fn process_resp(&mut self, local: &mut ThreadState, window: &mut ConnWindow, buf: &[u8]) -> usize {
        let mut done = 0;
        loop {
            window.clear();
            let more = self.parse(local, window, buf, done);
            if window.is_empty() && !matches!(more, NextCommand::Quoted(..)) {
                if let NextCommand::Fail(error) = more {
                    self.fail(local, &error);
                    return buf.len();
                }
                return if let NextCommand::More(at) = more { at } else { done };
            }
            if local.looks_ahead && window.len() >= WARM_LEN_MIN {
                let keys = window.commands().iter().filter_map(|one| Some((one.ready.cell?, one.ready.hash)));
                let tracks = self.session.gate.has(Gate::TRACKING);
                crate::exec::prefetch(local, self.session.db, tracks, keys);
            }
            if window.len() > 1 {
                local.stats().pipelined.add(window.len() as u64);
            }
            let may_be_large = buf.len() - done >= local.large.request;
            let (mut commands, spans, reply_buffer) = window.parts();
            while let Some(&planned) = commands.first() {
                if self.is_held_back() {
                    self.parser = Parser::new();
                    return done;
                }
                let (ran_len, ran) = match may_be_large {
                    true => (0, Ran::Done),
                    false => self.run_straight(local, buf, spans, reply_buffer, commands),
                };
                if let Some(last) = ran_len.checked_sub(1).and_then(|last| commands.get(last)) {
                    if ran == Ran::Stalled {
                        self.stall(last.args(buf, spans));
                    }
                    done = last.after;
                    commands = commands.get(ran_len..).unwrap_or_default();
                    continue;
                }
                let args = planned.args(buf, spans);
                if self.execute(local, planned.ready, args) == Ran::Postponed {
                    self.parser = Parser::new();
                    return done;
                }
                if may_be_large && let Some(entry) = planned.ready.entry {
                    large::note_request(local, self.session.id, entry, args, planned.after - done);
                }
                done = planned.after;
                commands = &commands[1..];
            }
            match more {
                NextCommand::Command => {}
                NextCommand::More(at) if at == done => return done,
                NextCommand::More(at) => done = at,
                NextCommand::Quoted(ref owned, after) => {
                    if self.is_held_back() {
                        return done;
                    }
                    let args = owned.args();
                    let ready = dispatch::prepare(local, args);
                    if self.execute(local, ready, args) == Ran::Postponed {
                        return done;
                    }
                    done = after;
                }
                NextCommand::Fail(ref error) => {
                    if !self.is_held_back() {
                        self.fail(local, error);
                        return buf.len();
                    }
                    self.parser = Parser::new();
                    return done;
                }
            }
            if self.is_held_back() {
                self.parser = Parser::new();
                return done;
            }
            if matches!(more, NextCommand::More(_)) {
                return done;
            }
        }
    }

    /// Fills the window with commands from `buf[from..]`. Not inlined: parsing, looking ahead and running are loops of
    /// their own that each need all registers.
    #[inline(never)]
    fn parse(
        &mut self,
        local: &ThreadState,
        window: &mut ConnWindow,
        buf: &[u8],
        from: usize,
    ) -> NextCommand {
        let limits = ParserLimits {
            bulk_bytes_max: local.env.proto_max_bulk_len,
            args_max: u64::from(local.live.max_multi_bulk_len),
            authenticated: !self.session.gate.has(Gate::LOGIN),
            ..ParserLimits::default()
        };
        // What AUTH allows is known only after it has run.
        let window_len = if limits.authenticated { WINDOW_LEN } else { 1 };
        // Spans are 32 bits; a command that began in earlier bytes is the parser's.
        let is_spanned = u32::try_from(buf.len()).is_ok();
        let mut is_fresh = is_spanned && self.parser.is_idle();
        let mut at = from;
        let mut likes_left = LIKES_MAX;
        while window.len() < window_len {
            if is_fresh
                && let Some(short) = short_request(buf, at)
                && let Some(ready) = dispatch::prepare_short(local, &short)
            {
                window.push_short(ready, &short);
                if likes_left > 0 && limits.authenticated && short.end < buf.len() {
                    likes_left -= 1;
                    let is_limited = self.session.gate.has(Gate::ACL);
                    let key_head_len = if is_limited { self.session.user.key_head_len() } else { 0 };
                    at = window.push_alike(local, buf, at, &short, ready, key_head_len);
                } else {
                    at = short.end;
                }
                continue;
            }
            if is_fresh && at == buf.len() {
                // Nothing has begun: the end of most of what comes.
                self.lacks_bytes = 1;
                return NextCommand::More(at);
            }
            let first = window.spans.len();
            match self.parser.next(&buf[at..], at as u32, &limits, &mut window.spans) {
                ParserStep::Command { consumed } => {
                    at += consumed;
                    let args = Args::new(buf, &window.spans[first..]);
                    window.push(dispatch::prepare(local, args), first, at);
                    is_fresh = is_spanned;
                }
                ParserStep::Empty { consumed } => at += consumed,
                ParserStep::Quoted { consumed, args } => return NextCommand::Quoted(args, at + consumed),
                ParserStep::More { want } => {
                    self.lacks_bytes = want;
                    return NextCommand::More(at);
                }
                ParserStep::Fail(error) => return NextCommand::Fail(error),
            }
        }
        NextCommand::Command
    }

    /// Runs commands as far as nothing stands before them; returns how many, and how the last ended.
    #[inline]
    fn run_straight(
        &mut self,
        local: &mut ThreadState,
        buf: &[u8],
        spans: &[Span],
        reply_buffer: &mut ReplyBuffer,
        commands: &[Prepared],
    ) -> (usize, Ran) {
        let mut way = CommandBatch {
            buf,
            spans,
            reply_buffer,
            out_bytes_max: self.sent + OUTPUT_PAUSE_BYTES,
            session: &mut self.session,
            out: &mut self.output,
            token: self.token,
        };
        batch::run(local, &mut way, commands)
    }

    /// Whether its next command waits for the end of the reactor's turn, because it may run a script: one that is
    /// overdue serves others with the reactor.
    pub fn defers(&mut self, local: &mut ThreadState, ready: Resolved) -> bool {
        let runs_script = ready.entry.is_some_and(|entry| entry.may_run_script(&self.session));
        // While the server is busy it is refused at once.
        let defers = runs_script && local.event_loop.is_none() && !local.is_inside && local.busy.is_none();
        if defers {
            self.is_due = true;
            WaitingClient::begin_due(local, &mut self.session);
            local.due.push(self.token);
        }
        defers
    }

    fn execute(&mut self, local: &mut ThreadState, ready: Resolved, args: Args<'_>) -> Ran {
        if self.defers(local, ready) {
            return Ran::Postponed;
        }
        let call = CommandCall { session: &mut self.session, out: &mut self.output, token: self.token };
        let ran = dispatch::execute(local, call, &self.info, ready, args);
        match ran {
            Ran::Done if self.session.blocked.is_none() => {}
            Ran::Done | Ran::Stalled => self.stall(args),
            Ran::Postponed => self.postpone(local),
        }
        ran
    }

    /// Notes that the command with these arguments waits.
    #[cold]
    fn stall(&mut self, args: Args<'_>) {
        self.is_stalled = true;
        self.waiting_args = args.bytes_len();
    }

    /// Has its next command wait for the end of CLIENT PAUSE.
    #[cold]
    pub fn postpone(&mut self, local: &mut ThreadState) {
        self.is_postponed = true;
        self.info.is_postponed.store(true, Relaxed);
        local.has_postponed = true;
    }

    #[cold]
    fn fail(&mut self, local: &ThreadState, error: &ProtocolError) {
        let text = error.text();
        Reply::new(&mut self.output, self.session.resp3).error(&text);
        local.count_error("ERR");
        self.session.is_closing = true;
        self.parser = Parser::new();
    }
}

/// Why parsing stopped.
enum NextCommand {
    /// The window is full.
    Command,
    /// The bytes from here on are no whole command.
    More(usize),
    /// A quoted inline command, and where the next one starts.
    Quoted(Box<OwnedArgs>, usize),
    /// The client broke the protocol.
    Fail(ProtocolError),
}
