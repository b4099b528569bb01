//! What others may know of a connected client: CLIENT LIST reads it from any thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use darter_reactor::Token;
use darter_txn::watch::WatchFlag;

use crate::subscriptions::Subscriptions;
use crate::sync::lock;

/// A client as seen from outside its thread. Its own thread keeps it fresh once a turn.
#[derive(Debug)]
pub struct ClientInfo {
    /// The client's id.
    pub id: u64,
    /// Its thread.
    pub thread: u16,
    /// Its connection there.
    pub token: Token,
    /// Remote address.
    pub peer: String,
    /// Local address.
    pub local: String,
    /// File descriptor, for CLIENT LIST.
    pub fd: i32,
    /// Came by a Unix socket.
    pub is_unix: bool,
    /// When it connected, Unix ms.
    pub since_ms: u64,
    /// When it last sent something, Unix ms.
    pub active_ms: AtomicU64,
    /// Selected database.
    pub db: AtomicUsize,
    /// Speaks RESP3.
    pub resp3: AtomicBool,
    /// Said that it follows redirects (CLIENT CAPA).
    pub takes_redirects: AtomicBool,
    /// Id of the last command's entry, or `u32::MAX`.
    pub last_command: AtomicU32,
    /// Commands run.
    pub commands: AtomicU64,
    /// Bytes received.
    pub input_bytes: AtomicU64,
    /// Bytes sent.
    pub output_bytes: AtomicU64,
    /// Bytes of input that is not understood yet.
    pub query_bytes: AtomicUsize,
    /// Bytes allocated for more input.
    pub query_free: AtomicUsize,
    /// Bytes of the arguments of the command that runs or waits, or is half read.
    pub arg_bytes: AtomicUsize,
    /// Bytes of unsent output.
    pub pending_bytes: AtomicUsize,
    /// Bytes allocated for output.
    pub output_room: AtomicUsize,
    /// The longest output of the last seconds, in bytes.
    pub output_peak: AtomicUsize,
    /// Bytes allocated for input, output and what waits beside them.
    pub buffer_bytes: AtomicUsize,
    /// Bytes it takes in all, as its thread last counted them.
    pub memory_bytes: AtomicUsize,
    /// The kernel's buffer for it is full.
    pub awaits_writable: AtomicBool,
    /// Nothing is read from it until what it has sent is worked off.
    pub is_paused: AtomicBool,
    /// Commands queued by MULTI, or -1 (as `u32::MAX`) outside.
    pub multi: AtomicU32,
    /// Bytes of those commands.
    pub multi_bytes: AtomicUsize,
    /// Bytes it holds outside its buffers.
    pub held_bytes: AtomicUsize,
    /// Keys watched.
    pub watched: AtomicU32,
    /// Is closed as soon as its replies are sent.
    pub is_closing: AtomicBool,
    /// Somebody closed it: what it has sent since is not run. Seen by who sees the next version of the users.
    pub is_killed: AtomicBool,
    /// Waits for a key.
    pub is_blocked: AtomicBool,
    /// Waits for the end of CLIENT PAUSE.
    pub is_postponed: AtomicBool,
    /// Another client's invalidations have been redirected to it: it reads its messages before its next request.
    pub is_redirected_to: AtomicBool,
    /// Sees every command.
    pub is_monitor: AtomicBool,
    /// Follows this server.
    pub is_replica: AtomicBool,
    /// The link to the master of this server: it is in no table of clients.
    pub is_master: AtomicBool,
    /// One of the flows of a replica whose first connection stands for all.
    pub is_flow: AtomicBool,
    /// CLIENT NO-EVICT.
    pub no_evict: AtomicBool,
    /// CLIENT NO-TOUCH.
    pub no_touch: AtomicBool,
    /// CLIENT IMPORT-SOURCE.
    pub imports: AtomicBool,
    /// The client that hears of the keys it tracks: 0 is itself, -1 when it tracks none.
    pub redirect: AtomicI64,
    /// It tracks by prefix.
    pub is_broadcast: AtomicBool,
    /// The client that was to hear of them has gone.
    pub is_redirect_broken: AtomicBool,
    /// Channels, patterns and shard channels subscribed to.
    pub subscriptions: [AtomicU32; 3],
    subscribed: Mutex<Option<Subscriptions>>,
    // of the keys it has watched last
    watch_flag: Mutex<WatchFlag>,
    /// Name, library and user, which change rarely.
    pub words: Mutex<ClientWords>,
}

/// The texts of a client.
#[derive(Clone, Debug, Default)]
pub struct ClientWords {
    /// CLIENT SETNAME.
    pub name: String,
    /// CLIENT SETINFO lib-name.
    pub lib_name: String,
    /// CLIENT SETINFO lib-ver.
    pub lib_ver: String,
    /// User.
    pub user: String,
}

impl ClientInfo {
    /// The info of a client that connects now, on a thread and by a token and descriptor there.
    pub fn new(
        id: u64,
        (thread, token, fd): (u16, Token, i32),
        peer: String,
        local: String,
        is_unix: bool,
        now_ms: u64,
    ) -> ClientInfo {
        ClientInfo {
            id,
            thread,
            token,
            peer,
            local,
            fd,
            is_unix,
            since_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            db: AtomicUsize::new(0),
            resp3: AtomicBool::new(false),
            takes_redirects: AtomicBool::new(false),
            last_command: AtomicU32::new(u32::MAX),
            commands: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            query_bytes: AtomicUsize::new(0),
            query_free: AtomicUsize::new(0),
            arg_bytes: AtomicUsize::new(0),
            pending_bytes: AtomicUsize::new(0),
            output_room: AtomicUsize::new(0),
            output_peak: AtomicUsize::new(0),
            buffer_bytes: AtomicUsize::new(0),
            memory_bytes: AtomicUsize::new(0),
            awaits_writable: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            multi: AtomicU32::new(u32::MAX),
            multi_bytes: AtomicUsize::new(0),
            held_bytes: AtomicUsize::new(0),
            watched: AtomicU32::new(0),
            is_closing: AtomicBool::new(false),
            is_killed: AtomicBool::new(false),
            is_blocked: AtomicBool::new(false),
            is_postponed: AtomicBool::new(false),
            is_redirected_to: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            is_master: AtomicBool::new(false),
            is_flow: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            imports: AtomicBool::new(false),
            redirect: AtomicI64::new(-1),
            is_broadcast: AtomicBool::new(false),
            is_redirect_broken: AtomicBool::new(false),
            subscriptions: Default::default(),
            subscribed: Mutex::default(),
            watch_flag: Mutex::default(),
            words: Mutex::new(ClientWords { user: "default".into(), ..ClientWords::default() }),
        }
    }

    /// Shows whether what it watches from now on has changed.
    pub fn show_watch(&self, flag: &WatchFlag) {
        *lock(&self.watch_flag) = flag.clone();
    }

    /// Whether a key that it watches has changed.
    pub fn is_dirty(&self) -> bool {
        self.watched.load(Relaxed) > 0 && lock(&self.watch_flag).is_dirty()
    }

    /// Subscriptions of all kinds.
    pub fn subscriptions_len(&self) -> u64 {
        self.subscriptions.iter().map(|n| u64::from(n.load(Relaxed))).sum()
    }

    /// What it is subscribed to, if to anything.
    pub fn subscribed(&self) -> Option<Subscriptions> {
        lock(&self.subscribed).clone()
    }

    /// Shows what it is subscribed to; its own thread calls this.
    pub fn show_subscribed(&self, names: Option<Subscriptions>) {
        *lock(&self.subscribed) = names;
    }

    /// Its texts. Cost: a copy of four strings.
    pub fn words(&self) -> ClientWords {
        lock(&self.words).clone()
    }
}
