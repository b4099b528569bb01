//! What others may know of a connected client: CLIENT LIST reads it from any thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use darter_reactor::Token;

/// A client as seen from outside its thread. Its own thread keeps it fresh once a turn.
#[derive(Debug)]
pub struct ClientCard {
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
    /// When it connected, Unix ms.
    pub since_ms: u64,
    /// When it last sent something, Unix ms.
    pub active_ms: AtomicU64,
    /// Selected database.
    pub db: AtomicUsize,
    /// Speaks RESP3.
    pub resp3: AtomicBool,
    /// Id of the last command's entry, or `u32::MAX`.
    pub last_command: AtomicU32,
    /// Commands run.
    pub commands: AtomicU64,
    /// Bytes received.
    pub input_bytes: AtomicU64,
    /// Bytes sent.
    pub output_bytes: AtomicU64,
    /// Bytes of unread input kept.
    pub query_bytes: AtomicUsize,
    /// Bytes of unsent output.
    pub pending_bytes: AtomicUsize,
    /// Commands queued by MULTI, or -1 (as `u32::MAX`) outside.
    pub multi: AtomicU32,
    /// Keys watched.
    pub watched: AtomicU32,
    /// Waits for a key.
    pub is_blocked: AtomicBool,
    /// Sees every command.
    pub is_monitor: AtomicBool,
    /// CLIENT NO-EVICT.
    pub no_evict: AtomicBool,
    /// CLIENT NO-TOUCH.
    pub no_touch: AtomicBool,
    /// Channels, patterns and shard channels subscribed to.
    pub subscriptions: [AtomicU32; 3],
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

impl ClientCard {
    /// The card of a client that connects now.
    pub fn new(
        id: u64,
        thread: u16,
        token: Token,
        peer: String,
        local: String,
        fd: i32,
        now_ms: u64,
    ) -> ClientCard {
        ClientCard {
            id,
            thread,
            token,
            peer,
            local,
            fd,
            since_ms: now_ms,
            active_ms: AtomicU64::new(now_ms),
            db: AtomicUsize::new(0),
            resp3: AtomicBool::new(false),
            last_command: AtomicU32::new(u32::MAX),
            commands: AtomicU64::new(0),
            input_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            query_bytes: AtomicUsize::new(0),
            pending_bytes: AtomicUsize::new(0),
            multi: AtomicU32::new(u32::MAX),
            watched: AtomicU32::new(0),
            is_blocked: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            subscriptions: Default::default(),
            words: Mutex::new(ClientWords { user: "default".into(), ..ClientWords::default() }),
        }
    }
}
