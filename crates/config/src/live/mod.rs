//! The settings as plain fields, for the rest of the server.
//!
//! Rebuilt whole after every change and shared as `Arc<Live>`; a worker thread keeps its own and compares a version
//! number to detect a newer one (see `SettingsWatch`).

mod fields;
mod parts;
mod replication;

pub use darter_durability::Fsync;
pub use parts::{
    Admin, Allowed, CallerLimits, Cluster, ClusterMode, Encoding, Endpoint, EvictionPolicy, Http, LogLevel,
    LogSettings, Measure, OnSignal, OomScore, Persistence, Share, Shutdown, Slowlog, Tcp, Tls,
};
pub use replication::{HighAvailability, ReplicationSettings, SyncLoad};

use super::compound::{Events, OutputLimits};
use super::table::Values;
use fields::FlagFields;
use std::path::PathBuf;

/// Every setting the server acts on, in the units the names end with.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    /// Counts changes; two `Live` of one server with the same version are equal.
    pub version: u64,

    /// TCP port: none, or a number, where 0 lets the system choose.
    pub port: Option<u16>,
    /// Addresses to listen on; empty = all, v4 and v6. A leading `-` marks one that may be missing on this machine.
    pub bind: Vec<String>,
    /// Port of the memcached protocol.
    pub memcached_port: Option<u16>,
    /// Longest value that memcached clients may store, in bytes.
    pub memcached_item_size_max: u32,
    /// The administrators' listener.
    pub admin: Admin,
    /// Path of the Unix socket.
    pub unixsocket: Option<PathBuf>,
    /// Its permissions, if they must be set.
    pub unixsocketperm: Option<u32>,
    /// Threads, 0 = one per CPU.
    pub threads: u32,
    /// Binding of each thread to one CPU: `on`, `off` or `auto`.
    pub affinity: &'static str,
    /// Shards, 0 = chosen by the server.
    pub shards: u32,
    /// Never use io_uring.
    pub force_epoll: bool,
    /// Options of sockets.
    pub tcp: Tcp,
    /// Seconds until an idle client is closed, 0 = never.
    pub timeout_s: u32,
    /// Seconds until a client that does not read is closed, 0 = never.
    pub send_timeout_s: u32,
    /// Serve HTTP on the main port: `primary_port_http_enabled` and `http_admin_console`.
    pub http: Http,

    /// The default user's password; empty = none.
    pub requirepass: String,
    /// Refuse clients from other machines while there is no password.
    pub protected_mode: bool,
    /// The clients that may call DEBUG.
    pub enable_debug_command: Allowed,
    /// The clients that may call MODULE.
    pub enable_module_command: Allowed,
    /// The clients that may set protected settings.
    pub enable_protected_configs: Allowed,
    /// Renamed commands: old and new name; an empty new name disables the command.
    pub renamed_commands: Vec<(String, String)>,
    /// Commands that only the admin port takes.
    pub restricted_commands: Vec<String>,
    /// File of the users, absolute.
    pub aclfile: Option<PathBuf>,
    /// Users of the configuration, one each, their words joined by `USER_SEPARATOR`.
    pub users: Vec<String>,
    /// Entries of ACL LOG.
    pub acllog_max_len: u64,
    /// New ACL users may use all channels.
    pub acl_pubsub_all: bool,

    /// The likelihood that the kernel kills the process.
    pub oom_score: OomScore,
    /// Databases.
    pub dbnum: u32,
    /// Clients at a time.
    pub maxclients: u32,
    /// Bytes of the longest argument.
    pub proto_max_bulk_len: u64,
    /// Arguments of one command.
    pub max_multi_bulk_len: u32,
    /// Bytes of one incomplete request.
    pub client_query_buffer_limit: u64,
    /// Output limits by class.
    pub output_limits: OutputLimits,
    /// Keys that KEYS returns at most; 0 = no limit.
    pub keys_output_limit: u64,
    /// Keys that client-side caching remembers.
    pub tracking_table_max_keys: u64,
    /// Milliseconds after which a running script makes other clients see BUSY.
    pub busy_reply_threshold_ms: u64,

    /// Memory limit in bytes, 0 = chosen by the server.
    pub maxmemory: u64,
    /// The eviction policy at the limit.
    pub maxmemory_policy: EvictionPolicy,
    /// The memory of all clients together, 0 = no limit.
    pub maxmemory_clients: Share,
    /// Move values together to free pages.
    pub activedefrag: bool,
    /// Evict the values least likely to be read instead of refusing writes.
    pub cache_mode: bool,
    /// Data is imported from another server: nothing expires or is evicted.
    pub import_mode: bool,
    /// Housekeeping turns per second, 1 to 500.
    pub hz: u32,

    /// The layout of values.
    pub encoding: Encoding,

    /// The logs of commands that took long or were large.
    pub slowlog: Slowlog,
    /// Milliseconds from which LATENCY keeps an event, 0 = never.
    pub latency_monitor_threshold_ms: u64,
    /// Bytes that the scripts of one thread may hold together; 0 = as many as `maxmemory`.
    pub lua_memory_limit: u64,
    /// Keep latency histograms.
    pub latency_tracking: bool,
    /// Percentiles of INFO latencystats, each 0 to 100.
    pub latency_percentiles: Vec<f64>,
    /// Keyspace events to publish.
    pub notify_keyspace_events: Events,
    /// Leave the machine out of INFO.
    pub managed_service_info: bool,
    /// The log.
    pub log: LogSettings,

    /// Snapshots and the append-only file.
    pub persistence: Persistence,
    /// The effects of the signals to stop.
    pub shutdown: Shutdown,

    /// Encryption.
    pub tls: Tls,
    /// Masters and replicas.
    pub replication: ReplicationSettings,
    /// Emulated or real cluster mode.
    pub cluster: Cluster,

    /// File to write the process id to.
    pub pidfile: Option<PathBuf>,
    /// Zone told to clients; empty = none.
    pub availability_zone: String,
}

impl Live {
    /// The fields for `values`, as change number `version`.
    pub(super) fn new(values: &Values, version: u64) -> Live {
        let v = &FlagFields(values);
        Live {
            version,
            port: v.port("port"),
            bind: v.words("bind"),
            memcached_port: v.port("memcached_port"),
            memcached_item_size_max: v.u32("memcached_item_size_max"),
            admin: Admin::new(v),
            unixsocket: v.path("unixsocket"),
            unixsocketperm: v.permissions("unixsocketperm"),
            threads: v.u32("proactor_threads"),
            affinity: v.choice("proactor_affinity_mode"),
            shards: v.u32("num_shards"),
            force_epoll: v.bool("force_epoll"),
            tcp: Tcp::new(v),
            timeout_s: v.u32("timeout"),
            send_timeout_s: v.u32("send_timeout"),
            http: Http::new(v),
            requirepass: v.text("requirepass"),
            protected_mode: v.bool("protected-mode"),
            enable_debug_command: v.allowed("enable-debug-command"),
            enable_module_command: v.allowed("enable-module-command"),
            enable_protected_configs: v.allowed("enable-protected-configs"),
            renamed_commands: v.pairs("rename-command"),
            restricted_commands: v.names("restricted_commands"),
            aclfile: v.path("aclfile").map(|path| v.in_dir(path)),
            users: v.words("user").into_iter().filter(|line| !line.is_empty()).collect(),
            acllog_max_len: v.u64("acllog-max-len"),
            acl_pubsub_all: v.choice("acl-pubsub-default") == "allchannels",
            dbnum: v.u32("dbnum"),
            maxclients: v.u32("maxclients"),
            proto_max_bulk_len: v.u64("proto-max-bulk-len"),
            max_multi_bulk_len: v.u32("max_multi_bulk_len"),
            client_query_buffer_limit: v.u64("client-query-buffer-limit"),
            output_limits: v.output_limits("client-output-buffer-limit"),
            keys_output_limit: v.u64("keys_output_limit"),
            tracking_table_max_keys: v.u64("tracking-table-max-keys"),
            busy_reply_threshold_ms: v.u64("busy-reply-threshold"),
            maxmemory: v.u64("maxmemory"),
            maxmemory_policy: v.policy("maxmemory-policy"),
            maxmemory_clients: v.share("maxmemory-clients"),
            activedefrag: v.bool("activedefrag"),
            cache_mode: v.bool("cache_mode"),
            import_mode: v.bool("import-mode"),
            hz: v.u32("hz"),
            encoding: Encoding::new(v),
            slowlog: Slowlog::new(v),
            latency_monitor_threshold_ms: v.u64("latency-monitor-threshold"),
            lua_memory_limit: v.u64("lua_memory_limit"),
            latency_tracking: v.bool("latency-tracking"),
            latency_percentiles: v.percentiles("latency-tracking-info-percentiles"),
            notify_keyspace_events: v.events("notify-keyspace-events"),
            managed_service_info: v.bool("managed_service_info"),
            log: LogSettings::new(v),
            persistence: Persistence::new(v),
            shutdown: Shutdown::new(v),
            tls: Tls::new(v),
            replication: ReplicationSettings::new(v),
            cluster: Cluster::new(v),
            pidfile: v.path("pidfile"),
            oom_score: v.oom_score(),
            availability_zone: v.text("availability-zone"),
        }
    }
}

/// Bytes for scripts where `maxmemory` would leave them less.
const SCRIPT_BYTES_MIN: u64 = 16 << 20;

impl Live {
    /// Bytes that the scripts of one thread may hold together; 0 for no limit. However small `maxmemory` is, scripts run:
    /// the commands that they call are refused for it.
    pub fn script_memory_max(&self) -> usize {
        let bytes = match (self.lua_memory_limit, self.maxmemory) {
            (0, 0) => 0,
            (0, maxmemory) => maxmemory.max(SCRIPT_BYTES_MIN),
            (limit, _) => limit,
        };
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Returns true if a store says who leads: of a group of its own, or of a group of the cluster.
    pub fn has_group(&self) -> bool {
        self.replication.ha.is_on() || self.cluster.mode == ClusterMode::Stored
    }

    /// Returns true if this server begins as a replica.
    pub fn may_follow(&self) -> bool {
        self.replication.master.is_some() || self.has_group()
    }

    /// The addresses of the admin port, in the words of `bind`; empty = all addresses.
    pub fn admin_addresses(&self) -> Vec<String> {
        if self.admin.follows_bind() {
            return self.bind.clone();
        }
        self.admin.bind.split_whitespace().map(str::to_owned).collect()
    }

    /// Fails if the admin port gives every machine of the network a login without a password.
    pub fn check_admin(&self) -> Result<(), String> {
        if self.admin.port.is_none() || !self.admin.nopass || !self.protected_mode {
            return Ok(());
        }
        let addresses = self.admin_addresses();
        match addresses.iter().find(|word| !is_loopback(word)) {
            None if !addresses.is_empty() => Ok(()),
            found => Err(format!(
                "admin_nopass lets anyone who reaches {} run every command: set admin_bind to a loopback address, or turn \
                 protected-mode off",
                found.map_or("the admin port", String::as_str)
            )),
        }
    }
}

/// Returns true if a word of `bind` names this machine only. A name other than `localhost` may mean any machine.
fn is_loopback(word: &str) -> bool {
    let name = word.strip_prefix('-').unwrap_or(word);
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}
