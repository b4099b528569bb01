//! Groups of `Live` fields that belong together.

use super::super::compound::SavePoint;
use crate::command_log::Measure;
use darter_persist::storage::{CloudOptions, is_cloud};
use darter_store::rdb::Versions;
use std::path::PathBuf;
use std::time::Duration;

/// Options of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// Listen backlog.
    pub backlog: u32,
    /// Seconds of silence before keep-alive probes, 0 = no probes.
    pub keepalive_s: u32,
    /// Set TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_USER_TIMEOUT in milliseconds, 0 = the system's.
    pub user_timeout_ms: u32,
}

impl Tcp {
    /// How long a client may be silent before it is probed; `None`: it is not.
    pub fn keepalive(&self) -> Option<Duration> {
        (self.keepalive_s > 0).then(|| Duration::from_secs(u64::from(self.keepalive_s)))
    }
}

/// The logs of commands that took long or were large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slowlog {
    /// Microseconds from which a command is kept; `u64::MAX` = never.
    pub slower_us: u64,
    /// Commands that are kept.
    pub max_len: u64,
    /// Bytes from which a request is kept; `u64::MAX` = never.
    pub large_request_bytes: u64,
    /// Large requests that are kept.
    pub large_request_max_len: u64,
    /// Bytes from which a reply is kept; `u64::MAX` = never.
    pub large_reply_bytes: u64,
    /// Large replies that are kept.
    pub large_reply_max_len: u64,
    /// Arguments that are kept of each.
    pub entry_max_argc: u32,
    /// Bytes that are kept of each argument.
    pub entry_max_string_len: u32,
}

impl Slowlog {
    /// Commands that are kept of one measure.
    pub fn len_max(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Time => self.max_len,
            Measure::Request => self.large_request_max_len,
            Measure::Reply => self.large_reply_max_len,
        }
    }
}

/// Snapshots and the append-only file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Persistence {
    /// Folder of snapshots, absolute, or its address in a cloud.
    pub dir: PathBuf,
    /// How a cloud is reached.
    pub cloud: CloudOptions,
    /// Their name; empty = no snapshots.
    pub dbfilename: String,
    /// Native files instead of one `.rdb`: the flag, unless `dbfilename` ends in `.rdb`.
    pub df_snapshot_format: bool,
    /// Schedule as five fields of cron; empty = none.
    pub snapshot_cron: String,
    /// Schedule as HH:MM with `*`; empty = none.
    pub save_schedule: String,
    /// Schedule by count of changes.
    pub save: Vec<SavePoint>,
    /// `save ""` was said: no snapshot unless one is asked for, not at the end either.
    pub never_saves: bool,
    /// Bytes per second and thread that a snapshot may grow, 0 = as fast as it can.
    pub egress_bytes_per_s_max: u64,
    /// Refuse writes after a failed snapshot.
    pub stop_writes_on_bgsave_error: bool,
    /// Microseconds to sleep for each key that is saved; negative: one for so many keys.
    pub key_save_delay_us: i64,
    /// Compress native files.
    pub native_compression: bool,
    /// Compress strings in `.rdb` files.
    pub rdbcompression: bool,
    /// Close `.rdb` files with a checksum.
    pub rdbchecksum: bool,
    /// `.rdb` files have keys that only servers with modules read.
    pub rdb_modules: bool,
    /// Versions of payloads that RESTORE takes.
    pub restored_versions: Versions,
    /// Log every write to a file.
    pub appendonly: bool,
    /// When that file is synced.
    pub appendfsync: Fsync,
    /// Name of that file where Redis wrote it.
    pub appendfilename: String,
    /// Folder of that file, in `dir`.
    pub appenddirname: String,
    /// Folder of backups, in `dir`.
    pub backupdirname: String,
    /// Seconds that a sealed backup is kept; 0 = until somebody removes it.
    pub backup_sealed_ttl_s: u64,
    /// It is not synced while it gets a new base.
    pub no_appendfsync_on_rewrite: bool,
    /// Growth in percent that gives it a new base; 0 = never.
    pub auto_aof_rewrite_percentage: u32,
    /// Bytes below which it never gets one.
    pub auto_aof_rewrite_min_bytes: u64,
    /// A torn end is left out rather than refused.
    pub aof_load_truncated: bool,
}

impl Persistence {
    /// Whether snapshots go to a cloud.
    pub fn is_in_cloud(&self) -> bool {
        is_cloud(&self.dir.to_string_lossy())
    }
}

/// The administrators' listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Its port.
    pub port: Option<u16>,
    /// Its addresses; empty = those of `bind`.
    pub bind: String,
    /// Needs no password.
    pub nopass: bool,
}

impl Admin {
    /// Whether it has no addresses of its own.
    pub fn follows_bind(&self) -> bool {
        self.bind.trim().is_empty()
    }
}

/// HTTP on the main port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http {
    /// Answer HTTP at all.
    pub enabled: bool,
    /// Serve the console, not only metrics.
    pub console: bool,
    /// The console changes nothing.
    pub console_readonly: bool,
    /// Take commands of programs: `POST /api`.
    pub api: bool,
}

/// Who may do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Nobody.
    No,
    /// Everybody.
    Yes,
    /// Clients on this machine.
    Local,
}

impl Allowed {
    /// Whether a client that is (not) on this machine may.
    pub const fn lets(self, caller: Caller) -> bool {
        match self {
            Allowed::No => false,
            Allowed::Yes => true,
            Allowed::Local => matches!(caller, Caller::Local),
        }
    }
}

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// On this machine: loopback or Unix socket.
    Local,
    /// Elsewhere.
    Remote,
}

/// What goes when the memory limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Writes that need memory are refused.
    NoEviction,
    /// What was read longest ago.
    AllKeysLru,
    /// What is read least often.
    AllKeysLfu,
    /// Anything.
    AllKeysRandom,
    /// What was read longest ago among what expires.
    VolatileLru,
    /// What is read least often among what expires.
    VolatileLfu,
    /// Anything that expires.
    VolatileRandom,
    /// What expires soonest.
    VolatileTtl,
    /// What was written longest ago.
    AllKeysLrm,
    /// What was written longest ago among what expires.
    VolatileLrm,
}

/// An amount of memory, or a part of `maxmemory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// So many bytes.
    Bytes(u64),
    /// So many percent.
    Percent(u8),
}

/// When the append-only file is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before a write is answered.
    Always,
    /// Once a second.
    EverySecond,
    /// When the system likes.
    No,
}

/// Up to where values keep their small layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    /// Fields of a hash.
    pub hash_max_listpack_entries: u64,
    /// Bytes of its fields and values.
    pub hash_max_listpack_value: u64,
    /// Elements of a list node when positive, a size class (-1 to -5 = 4 to 64 KB) when negative.
    pub list_max_listpack_size: i32,
    /// Members of a set of integers.
    pub set_max_intset_entries: u64,
    /// Members of a set.
    pub set_max_listpack_entries: u64,
    /// Bytes of its members.
    pub set_max_listpack_value: u64,
    /// Members of a sorted set.
    pub zset_max_listpack_entries: u64,
    /// Bytes of its members.
    pub zset_max_listpack_value: u64,
    /// Bytes of a stream node, 0 = any.
    pub stream_node_max_bytes: u64,
    /// Entries of a stream node, 0 = any.
    pub stream_node_max_entries: u64,
    /// Seconds that a new stream remembers the names of producers' entries.
    pub stream_idmp_duration: u64,
    /// Names of entries that it remembers of each producer.
    pub stream_idmp_maxsize: u64,
    /// Bytes of a sparse HyperLogLog.
    pub hll_sparse_max_bytes: u64,
}

/// What lines are logged and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The least important line that is logged.
    pub level: LogLevel,
    /// The file: `logfile`, or `log_dir`/darter.log.
    pub file: Option<PathBuf>,
    /// Log to stderr.
    pub to_stderr: bool,
    /// Bytes after which the file is set aside; `None` for a `logfile`, which belongs to logrotate.
    pub rotate_bytes: Option<u64>,
}

/// How important a line must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// What helps to find a fault.
    Debug,
    /// What an operator wants to know.
    Info,
    /// What should not be.
    Warning,
    /// What went wrong.
    Error,
    /// Nothing is logged.
    Nothing,
}

/// What the signals to stop do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// On SIGINT.
    pub on_sigint: OnSignal,
    /// On SIGTERM.
    pub on_sigterm: OnSignal,
}

/// How likely the kernel is to kill the process when memory runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomScore {
    /// As it was started.
    Untouched,
    /// As it was started, and so much more.
    Relative(i32),
    /// So much.
    Absolute(i32),
}

/// What one signal does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnSignal {
    /// Save first, or surely not; `None` = when there are rules for saving.
    pub save: Option<bool>,
    /// Do not wait for replicas.
    pub now: bool,
    /// Stop although saving failed.
    pub force: bool,
}

/// Encryption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The main port is encrypted.
    pub enabled: bool,
    /// A second, encrypted port.
    pub port: Option<u16>,
    /// The admin port stays unencrypted.
    pub plain_admin_port: bool,
    /// Certificate, PEM.
    pub cert_file: Option<PathBuf>,
    /// Private key, PEM.
    pub key_file: Option<PathBuf>,
    /// Authorities of clients' certificates.
    pub ca_cert_file: Option<PathBuf>,
    /// Folder of such authorities.
    pub ca_cert_dir: Option<PathBuf>,
    /// Whether clients must show a certificate when authorities are given; `None` = they may.
    pub auth_clients: Option<bool>,
    /// Versions to offer, by name; empty = all that are safe.
    pub protocols: String,
    /// Suites of TLS 1.3, between colons; empty = all.
    pub ciphersuites: String,
    /// Our order of suites goes before the client's.
    pub prefers_own_ciphers: bool,
    /// Clients may resume sessions.
    pub session_caching: bool,
    /// Sessions remembered for clients without tickets.
    pub session_cache_size: u32,
    /// What the master is shown; else `cert_file`.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
    /// The connection to the master is encrypted.
    pub replication: bool,
}

/// What cluster clients are told to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The address.
    Ip,
    /// The host name.
    Hostname,
    /// Nothing: where they are connected already.
    Unknown,
}

/// Cluster mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Which one.
    pub mode: ClusterMode,
    /// Address told to clients; empty = the one they came by.
    pub announce_ip: String,
    /// Port told to clients, 0 = the real one.
    pub announce_port: u16,
    /// Port of the bus told to clients, 0 = 10,000 more than the port.
    pub announce_bus_port: u16,
    /// Host name told to clients; empty = none.
    pub announce_hostname: String,
    /// What clients are told to connect to.
    pub endpoint: Endpoint,
    /// Id of this node; empty = chosen by the server.
    pub node_id: String,
}

/// Which cluster mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterMode {
    /// One server, no cluster commands.
    Off,
    /// One server that cluster clients can use.
    Emulated,
}
