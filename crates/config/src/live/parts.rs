//! Groups of `Live` fields that belong together.

use super::super::compound::SavePoint;
use darter_durability::Fsync;
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
    /// Silence of a client before it is probed; `None`: no probes.
    pub fn keepalive(&self) -> Option<Duration> {
        (self.keepalive_s > 0).then(|| Duration::from_secs(u64::from(self.keepalive_s)))
    }
}

/// What a command is kept for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// The microseconds it took.
    Time,
    /// The bytes of its request.
    Request,
    /// The bytes of its reply.
    Reply,
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
    /// The access to a cloud.
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
    /// `save ""` was set: no snapshot unless requested, not even at the end.
    pub never_saves: bool,
    /// Bytes per second and thread that a snapshot may grow, 0 = as fast as it can.
    pub egress_bytes_per_s_max: u64,
    /// Refuse writes after a failed snapshot.
    pub stop_writes_on_bgsave_error: bool,
    /// Microseconds to sleep for each saved key; negative: one for this many keys.
    pub key_save_delay_us: i64,
    /// Microseconds to sleep for each loaded key or command; negative: one for this many.
    pub key_load_delay_us: i64,
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
    /// Name of that file as written by Redis.
    pub appendfilename: String,
    /// Folder of that file, in `dir`.
    pub appenddirname: String,
    /// Folder of backups, in `dir`.
    pub backupdirname: String,
    /// Seconds that a sealed backup is kept; 0 = until it is removed by command.
    pub backup_sealed_ttl_s: u64,
    /// It is not synced while a new base is written.
    pub no_appendfsync_on_rewrite: bool,
    /// Growth in percent that gives it a new base; 0 = never.
    pub auto_aof_rewrite_percentage: u32,
    /// Bytes below which it never gets one.
    pub auto_aof_rewrite_min_bytes: u64,
    /// A torn end is left out instead of refused.
    pub aof_load_truncated: bool,
}

impl Persistence {
    /// Returns true if snapshots are written to a cloud.
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
    /// Returns true if it has no separate addresses.
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

/// The clients that may do something.
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
    /// Returns true if a client of this place may.
    pub const fn lets(self, caller: CallerLimits) -> bool {
        match self {
            Allowed::No => false,
            Allowed::Yes => true,
            Allowed::Local => matches!(caller, CallerLimits::Local),
        }
    }
}

/// The place of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerLimits {
    /// On this machine: loopback or Unix socket.
    Local,
    /// Elsewhere.
    Remote,
}

/// The eviction policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// Writes that need memory are refused.
    NoEviction,
    /// The key read longest ago.
    AllKeysLru,
    /// The key read least often.
    AllKeysLfu,
    /// Anything.
    AllKeysRandom,
    /// The key read longest ago, of those with a deadline.
    VolatileLru,
    /// The key read least often, of those with a deadline.
    VolatileLfu,
    /// Anything that expires.
    VolatileRandom,
    /// The key that expires soonest.
    VolatileTtl,
    /// The key written longest ago.
    AllKeysLrm,
    /// The key written longest ago, of those with a deadline.
    VolatileLrm,
}

/// An amount of memory, or a part of `maxmemory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage.
    Percent(u8),
}

/// The limits up to which values keep their small layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    /// Fields of a hash.
    pub hash_max_listpack_entries: u64,
    /// Bytes of its fields and values.
    pub hash_max_listpack_value: u64,
    /// Elements of a list node if positive, a size class (-1 to -5 = 4 to 64 KB) if negative.
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

/// The lines that are logged, and their destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// The least important line that is logged.
    pub level: LogLevel,
    /// The file: `logfile`, or `log_dir`/darter.log.
    pub file: Option<PathBuf>,
    /// Log to stderr.
    pub to_stderr: bool,
    /// Bytes after which the file is set aside; `None` for a `logfile`, which belongs to logrotate.
    pub rotate_bytes: Option<u64>,
}

/// The importance of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// For finding a fault.
    Debug,
    /// For operators.
    Info,
    /// Unwanted conditions.
    Warning,
    /// Failures.
    Error,
    /// Nothing is logged.
    Nothing,
}

/// The effects of the signals to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shutdown {
    /// On SIGINT.
    pub on_sigint: OnSignal,
    /// On SIGTERM.
    pub on_sigterm: OnSignal,
}

/// The likelihood that the kernel kills the process when memory runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OomScore {
    /// As at start.
    Untouched,
    /// As at start, plus this amount.
    Relative(i32),
    /// This amount.
    Absolute(i32),
}

/// The effect of one signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnSignal {
    /// True to save first, false not to; `None` = save if there are save points.
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
    /// True if clients must show a certificate when authorities are given; `None` = they may.
    pub auth_clients: Option<bool>,
    /// Versions to offer, by name; empty = all that are safe.
    pub protocols: String,
    /// Suites of TLS 1.3, between colons; empty = all.
    pub ciphersuites: String,
    /// Our order of suites takes precedence over the client's.
    pub prefers_own_ciphers: bool,
    /// Clients may resume sessions.
    pub session_caching: bool,
    /// Sessions remembered for clients without tickets.
    pub session_cache_size: u32,
    /// The certificate shown to the master; else `cert_file`.
    pub client_cert_file: Option<PathBuf>,
    /// Its key.
    pub client_key_file: Option<PathBuf>,
    /// The connection to the master is encrypted.
    pub replication: bool,
    /// Connections to other nodes of a cluster are.
    pub cluster: bool,
}

impl Tls {
    /// Returns true if connections to other nodes of a cluster are encrypted: where the one to the master is, they are too.
    pub fn encrypts_nodes(&self) -> bool {
        self.cluster || self.replication
    }
}

/// The address that cluster clients connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The address.
    Ip,
    /// The host name.
    Hostname,
    /// None: the one they are connected to.
    Unknown,
}

/// Cluster mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// The mode.
    pub mode: ClusterMode,
    /// Address told to clients; empty = the one they came by.
    pub announce_ip: String,
    /// Port told to clients, 0 = the real one.
    pub announce_port: u16,
    /// Port told to clients that use TLS, 0 = the real one.
    pub announce_tls_port: u16,
    /// Port of the bus told to clients, 0 = 10,000 more than the port.
    pub announce_bus_port: u16,
    /// Host name told to clients; empty = none.
    pub announce_hostname: String,
    /// The address that clients connect to.
    pub endpoint: Endpoint,
    /// Id of this node; empty = chosen by the server.
    pub node_id: String,
    /// Where the map is kept; empty = nowhere, it is pushed.
    pub store: String,
    /// Name of the cluster in the store.
    pub name: String,
    /// File of the id and of the pushed configuration.
    pub config_file: PathBuf,
    /// Nothing is served unless every slot has an owner.
    pub requires_all: bool,
    /// Reads go on without that.
    pub reads_when_down: bool,
    /// Sharded messages go on without that.
    pub messages_when_down: bool,
    /// One command may have keys of several slots of this node.
    pub crosses_own: bool,
    /// Milliseconds for a replica to catch up when it takes over.
    pub failover_ms: u64,
    /// A replica takes over when its master is silent.
    pub takes_over: bool,
    /// Milliseconds that writers wait at most while slots are handed over.
    pub pause_ms_max: u64,
    /// Time and bytes of commands are counted by slot.
    pub counts_by_slot: bool,
    /// How often a migration of slots begins again after a failure.
    pub migration_retries: u64,
    /// Microseconds that a migration rests after each batch of keys.
    pub throttle_us: u64,
}

impl ClusterMode {
    /// Returns true if the server is one of several.
    pub fn has_slots(self) -> bool {
        matches!(self, ClusterMode::Pushed | ClusterMode::Stored)
    }
}

/// The cluster mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterMode {
    /// One server, no cluster commands.
    Off,
    /// One server that cluster clients can use.
    Emulated,
    /// One of several servers, configured by `DFLYCLUSTER CONFIG`.
    Pushed,
    /// One of several servers, whose map is kept in a store.
    Stored,
}
