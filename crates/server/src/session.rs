//! What the server remembers about a connection between commands.

use darter_txn::watch::WatchFlag;
use darter_wire::OwnedArgs;

use crate::registry::Entry;
use crate::waiting::Parking;

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
    /// Tracks keys for a client-side cache.
    pub const TRACKING: Gate = Gate(1 << 5);

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
pub struct Queued {
    /// Which.
    pub entry: &'static Entry,
    /// With which arguments.
    pub args: OwnedArgs,
}

/// An open MULTI.
#[derive(Default)]
pub struct Multi {
    /// What EXEC will run.
    pub queued: Vec<Queued>,
    /// A command was refused while queueing, so EXEC will be too.
    pub is_broken: bool,
}

/// The state of one connection that commands read and change.
pub struct Session {
    /// The number CLIENT ID answers, never reused.
    pub id: u64,
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
    /// Set when one of them changes.
    pub watch_flag: WatchFlag,
    /// What CLIENT REPLY asked for.
    pub reply_mode: ReplyMode,
    /// Close once the replies are sent.
    pub is_closing: bool,
    /// Name of the logged-in user.
    pub user: String,
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO lib-name.
    pub lib_name: String,
    /// CLIENT SETINFO lib-ver.
    pub lib_ver: String,
    /// CLIENT NO-EVICT.
    pub no_evict: bool,
    /// CLIENT NO-TOUCH.
    pub no_touch: bool,
    /// Set while it waits for a key or for time to pass; a server command may set it to wait for time.
    pub parking: Option<Parking>,
    /// Receives every command (MONITOR).
    pub is_monitor: bool,
}

impl Session {
    /// A new connection's state. `must_login` when a password is set.
    pub fn new(id: u64, must_login: bool) -> Session {
        let mut gate = Gate::default();
        gate.set(Gate::LOGIN, must_login);
        Session {
            id,
            db: 0,
            resp3: false,
            gate,
            multi: None,
            watched: Vec::new(),
            watch_flag: WatchFlag::default(),
            reply_mode: ReplyMode::On,
            is_closing: false,
            user: "default".into(),
            name: String::new(),
            lib_name: String::new(),
            lib_ver: String::new(),
            no_evict: false,
            no_touch: false,
            parking: None,
            is_monitor: false,
        }
    }

    /// Forgets MULTI; the caller has dealt with the watches.
    pub fn end_multi(&mut self) -> Option<Multi> {
        self.gate.set(Gate::MULTI, false);
        self.multi.take()
    }
}
