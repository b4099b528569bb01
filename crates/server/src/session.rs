//! What the server remembers about a connection between commands.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::Marks;
use darter_txn::Reader;
use darter_txn::watch::WatchFlag;
use darter_wire::OwnedArgs;

use crate::acl::User;
use crate::busy_rejection::WaitingClient;
use crate::clients::ClientInfo;
use crate::fieldsets::Fieldsets;
use crate::long_reads::LongRead;
use crate::protocol::ListenerKind;
use crate::protocol::Protocol;
use crate::registry::CommandEntry;
use crate::snapshot::copy::CopyWish;
use crate::subscriptions::Subscriptions;
use crate::tracking::{ClientTracking, DirectPush, TrackingMode};
use crate::waiting::BlockedState;

/// Reasons why a command of this connection cannot take the short way, one bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Gate(pub u32);

impl Gate {
    /// Has not logged in yet.
    pub const LOGIN: Gate = Gate(1 << 0);
    /// Between MULTI and EXEC.
    pub const MULTI: Gate = Gate(1 << 1);
    /// Subscribed under RESP2, where few commands are allowed.
    pub const SUBSCRIBED: Gate = Gate(1 << 2);
    /// CLIENT REPLY OFF or SKIP.
    pub const REPLY: Gate = Gate(1 << 3);
    /// Its user may not run everything.
    pub const ACL: Gate = Gate(1 << 4);
    /// Some commands are reserved for connections of administrators; this is an ordinary one.
    pub const RESTRICTED: Gate = Gate(1 << 6);
    /// Tracks keys for a client-side cache.
    pub const TRACKING: Gate = Gate(1 << 5);
    /// What it reads does not count as used.
    pub const NO_TOUCH: Gate = Gate(1 << 7);
    /// It imports data: dead keys are there for it.
    pub const IMPORTS: Gate = Gate(1 << 8);
    /// The server is one of a cluster: commands are checked for their slots.
    pub const CLUSTER: Gate = Gate(1 << 9);

    /// The owner of a slot has sent the client here (ASKING), for the next command.
    pub const ASKING: Gate = Gate(1 << 10);

    /// Sets or clears `which`.
    pub fn set(&mut self, which: Gate, on: bool) {
        if on {
            self.0 |= which.0;
        } else {
            self.0 &= !which.0;
        }
    }

    /// Whether `which` is set.
    #[inline]
    pub fn has(self, which: Gate) -> bool {
        self.0 & which.0 != 0
    }
}

/// What CLIENT REPLY asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReplyMode {
    /// Every command is answered.
    #[default]
    On,
    /// Nothing is answered.
    Off,
    /// The next command is not answered.
    SkipNext,
}

/// A command between MULTI and EXEC.
pub struct QueuedCommand {
    /// Which.
    pub entry: &'static CommandEntry,
    /// With which arguments.
    pub args: OwnedArgs,
}

/// An open MULTI.
#[derive(Default)]
pub struct Multi {
    /// What EXEC will run.
    pub queued: Vec<QueuedCommand>,
    /// Bytes those commands hold.
    pub bytes: usize,
    /// The database that a queued SELECT leads to; kept for limited users only.
    pub db: Option<usize>,
    /// A command was refused while queueing, so EXEC will be too.
    pub is_broken: bool,
}

impl Multi {
    /// Bytes it takes in all.
    pub fn held_bytes(&self) -> usize {
        self.bytes + self.queued.capacity() * size_of::<QueuedCommand>()
    }
}

/// A connection's own counts; its thread copies them to its info once a turn.
#[derive(Clone, Copy, Debug)]
pub struct SessionUsage {
    /// Commands run.
    pub commands: u64,
    /// Id of the last command's entry, or `u32::MAX`.
    pub last_command: u32,
    /// Bytes received.
    pub input_bytes: u64,
    /// Bytes sent.
    pub output_bytes: u64,
}

impl Default for SessionUsage {
    fn default() -> SessionUsage {
        SessionUsage { commands: 0, last_command: u32::MAX, input_bytes: 0, output_bytes: 0 }
    }
}

/// The state of one connection that commands read and change.
pub struct Session {
    /// The number CLIENT ID answers, never reused.
    pub id: u64,
    /// By which kind of listener it came.
    pub listener: ListenerKind,
    /// What it speaks.
    pub protocol: Protocol,
    /// Selected database.
    pub db: usize,
    /// Speaks RESP3.
    pub resp3: bool,
    /// What stands in the way of the short path.
    pub gate: Gate,
    /// The open MULTI, if any.
    pub multi: Option<Multi>,
    /// Keys under WATCH, with their databases.
    pub watched: Vec<(usize, Box<[u8]>)>,
    /// Bytes of those, here and in the tables of the shards.
    pub watched_bytes: usize,
    /// Set when one of them changes.
    pub watch_flag: WatchFlag,
    /// What CLIENT REPLY asked for.
    pub reply_mode: ReplyMode,
    /// Close once the replies are sent.
    pub is_closing: bool,
    /// Whom it acts as: `default` until it logs in.
    pub user: Arc<User>,
    /// The version of the users that `user` is of; 0 is none.
    pub acl_version: u64,
    /// Has logged in at some time, or needed not to.
    pub was_trusted: bool,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// Set while it waits for a key or for time to pass; a server command may set it to wait for time.
    pub blocked: Option<BlockedState>,
    /// Since when it waits for a shard, or for the turn's end.
    pub waiting: Option<WaitingClient>,
    /// Set while it gets a long answer in slices.
    pub reading: Option<Box<LongRead>>,
    /// Receives every command (MONITOR).
    pub is_monitor: bool,
    /// The reply of the command it waits for is not to be sent (CLIENT REPLY).
    pub drops_reply: bool,
    /// Channels and patterns it is subscribed to; nothing for most clients.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// Its number in the tables of what clients have read, since it has tracked for the first time.
    pub reader: Option<Reader>,
    /// How it tracks keys for a cache of its own, if it does.
    pub tracking: Option<Box<ClientTracking>>,
    /// The way to it past its thread, since it has tracked for the first time.
    pub direct_push: Option<Arc<DirectPush>>,
    /// Messages that follow the reply of the command that runs: those it published to itself, and those that come while
    /// it gets a long answer.
    pub own_messages: Vec<u8>,
    /// The copy it wants, or gets (SYNC).
    pub copy: Option<Box<CopyWish>>,
    /// It reads from replicas of a cluster (READONLY).
    pub reads_replica: bool,
    /// The migration whose source it is, and the attempt: keys of its slots, which are arriving, are this client's to write.
    pub import: Option<Box<(String, u64)>>,
    /// Commands that ASKING is still for, itself among them.
    pub asks_left: u8,
    /// Names of fields for the hashes it is about to send; nothing for most clients.
    pub fieldsets: Option<Box<Fieldsets>>,
    /// What CLIENT LIST counts.
    pub usage: SessionUsage,
    /// It has run a command that may show data, as far as was looked at.
    pub has_asked: bool,
    /// Commands that it had run when that was looked at last.
    pub looked_commands: u64,
}

impl Session {
    /// Returns true if `entry` is EXEC and one of the queued commands is as `is` says.
    pub fn queues(&self, entry: &CommandEntry, is: fn(&CommandEntry) -> bool) -> bool {
        let queued = self.multi.as_ref().map_or(&[][..], |multi| &multi.queued);
        entry.spec.has(Marks::RUNS_QUEUE) && queued.iter().any(|one| is(one.entry))
    }

    /// A new connection's state: `user` is the default one. `must_login` when that needs a password.
    pub fn new(id: u64, listener: ListenerKind, must_login: bool, user: Arc<User>) -> Session {
        let mut gate = Gate::default();
        gate.set(Gate::LOGIN, must_login);
        gate.set(Gate::ACL, !user.is_unlimited());
        Session {
            id,
            listener,
            protocol: Protocol::Unknown,
            db: 0,
            resp3: false,
            gate,
            multi: None,
            watched: Vec::new(),
            watched_bytes: 0,
            watch_flag: WatchFlag::default(),
            reply_mode: ReplyMode::On,
            is_closing: false,
            user,
            acl_version: 0,
            was_trusted: !must_login,
            no_evict: false,
            no_touch: false,
            blocked: None,
            waiting: None,
            reading: None,
            is_monitor: false,
            drops_reply: false,
            subscriptions: None,
            reader: None,
            tracking: None,
            direct_push: None,
            own_messages: Vec::new(),
            copy: None,
            reads_replica: false,
            import: None,
            asks_left: 0,
            fieldsets: None,
            usage: SessionUsage::default(),
            has_asked: false,
            looked_commands: 0,
        }
    }

    /// Whether a long answer may be given to it in slices: nothing is to be done with the answer as a whole.
    #[inline]
    pub fn may_slice(&self) -> bool {
        self.protocol == Protocol::Resp && !self.gate.has(Gate::REPLY)
    }

    /// Appends the messages it published to itself to its output.
    #[inline]
    pub fn send_own_messages(&mut self, out: &mut Vec<u8>) {
        if !self.own_messages.is_empty() {
            out.append(&mut self.own_messages);
            self.own_messages = Vec::new();
        }
    }

    /// Bytes it holds outside its buffers: watched keys, subscriptions, prefixes it tracks, names of fields. Cost: four
    /// additions.
    pub fn held_bytes(&self) -> usize {
        self.watched_bytes
            + self.subscriptions.as_deref().map_or(0, Subscriptions::bytes)
            + self.tracking.as_deref().map_or(0, |own| own.prefix_bytes)
            + self.fieldsets.as_deref().map_or(0, Fieldsets::bytes)
    }

    /// Shuts or opens the gate of subscribed clients; to be called when subscriptions or the protocol changed.
    pub fn settle_subscribed(&mut self) {
        let is_subscribed = self.subscriptions.is_some();
        self.gate.set(Gate::SUBSCRIBED, is_subscribed && !self.resp3);
    }

    /// Whether a copy is on its way to it.
    pub fn gets_copy(&self) -> bool {
        self.copy.as_ref().is_some_and(|wish| wish.is_begun)
    }

    /// Forgets MULTI; the caller has dealt with the watches.
    pub fn end_multi(&mut self) -> Option<Multi> {
        self.gate.set(Gate::MULTI, false);
        self.multi.take()
    }
}

impl ClientInfo {
    /// Brings up to date what the session knows; its own thread calls this.
    pub fn update(&self, session: &Session) {
        self.show_multi(session.multi.as_ref());
        self.update_in_exec(session);
    }

    /// Shows what MULTI has queued, if it is open.
    pub fn show_multi(&self, multi: Option<&Multi>) {
        self.multi.store(multi.map_or(u32::MAX, |multi| multi.queued.len() as u32), Relaxed);
        self.multi_bytes.store(multi.map_or(0, Multi::held_bytes), Relaxed);
    }

    /// [`ClientInfo::update`] while EXEC runs, which the client is in until its end.
    pub fn update_in_exec(&self, session: &Session) {
        let usage = &session.usage;
        self.db.store(session.db, Relaxed);
        self.resp3.store(session.resp3, Relaxed);
        self.last_command.store(usage.last_command, Relaxed);
        // One that waits is counted when it is answered.
        let waiting = u64::from(session.blocked.is_some());
        self.commands.store(usage.commands - waiting, Relaxed);
        self.input_bytes.store(usage.input_bytes, Relaxed);
        self.held_bytes.store(session.held_bytes(), Relaxed);
        self.watched.store(session.watched.len() as u32, Relaxed);
        self.is_closing.store(session.is_closing, Relaxed);
        self.is_monitor.store(session.is_monitor, Relaxed);
        self.no_evict.store(session.no_evict, Relaxed);
        self.no_touch.store(session.no_touch, Relaxed);
        self.imports.store(session.gate.has(Gate::IMPORTS), Relaxed);
        let own = session.tracking.as_deref();
        let redirect = own.map_or(-1, |own| own.redirect.map_or(0, |id| id as i64));
        self.redirect.store(redirect, Relaxed);
        self.is_broadcast.store(own.is_some_and(|own| own.mode == TrackingMode::Broadcast), Relaxed);
        self.is_redirect_broken.store(own.is_some_and(|own| own.is_broken), Relaxed);
    }
}
