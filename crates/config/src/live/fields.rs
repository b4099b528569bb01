//! Reads values out of the table by name and builds the groups of `Live`.
//!
//! The names are literals of this module and its parent; one that the table lacks, or of another kind, is a
//! programming error that the first `Live` reveals, so it panics.

use super::parts::{
    Admin, Allowed, Cluster, ClusterMode, Encoding, Endpoint, EvictionPolicy, Http, LogLevel, LogSettings,
    OnSignal, OomScore, Persistence, Share, Shutdown, Slowlog, Tcp, Tls,
};
use darter_durability::Fsync;
use darter_persist::storage::{CloudOptions, is_cloud};
use darter_store::rdb::Versions;

use crate::compound::{Events, OutputLimits};
use crate::table::{self, Values};
use crate::value::{SettingValue, absolute};
use std::path::{Path, PathBuf};

/// The values, by name.
pub(super) struct FlagFields<'a>(pub(super) &'a Values);

impl FlagFields<'_> {
    fn get(&self, name: &str) -> &SettingValue {
        match table::find_id(name) {
            Some(id) => self.0.get(id),
            None => panic!("there is no setting {name}"),
        }
    }

    /// Returns true if the setting was ever set.
    fn is_given(&self, name: &str) -> bool {
        table::find_id(name).is_some_and(|id| self.0.is_given(id))
    }

    pub(super) fn bool(&self, name: &str) -> bool {
        match self.get(name) {
            SettingValue::Bool(on) => *on,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A number or an amount; negative counts as 0.
    pub(super) fn u64(&self, name: &str) -> u64 {
        match self.get(name) {
            SettingValue::Int(number) => u64::try_from(*number).unwrap_or(0),
            SettingValue::Bytes(bytes) => *bytes,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A number, at most `u32::MAX`.
    pub(super) fn u32(&self, name: &str) -> u32 {
        u32::try_from(self.u64(name)).unwrap_or(u32::MAX)
    }

    fn i64(&self, name: &str) -> i64 {
        match self.get(name) {
            SettingValue::Int(number) => *number,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// A port: 0 for none, -1 for any.
    pub(super) fn port(&self, name: &str) -> Option<u16> {
        match self.i64(name) {
            0 => None,
            number => Some(u16::try_from(number).unwrap_or(0)),
        }
    }

    pub(super) fn permissions(&self, name: &str) -> Option<u32> {
        match self.get(name) {
            SettingValue::Octal(0) => None,
            SettingValue::Octal(bits) => Some(*bits),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(super) fn text(&self, name: &str) -> String {
        match self.get(name) {
            SettingValue::Text(text) => text.clone(),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(super) fn endpoint(&self, name: &str) -> Option<(String, u16)> {
        match self.get(name) {
            SettingValue::Endpoint(place) => place.clone(),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.text(name);
        (!text.is_empty()).then(|| PathBuf::from(text))
    }

    /// A path relative to the folder of snapshots, or to the current folder if that is in a cloud.
    pub(super) fn in_dir(&self, path: PathBuf) -> PathBuf {
        let SettingValue::Dir(dir) = self.get("dir") else { panic!("dir is no folder") };
        absolute(if is_cloud(dir) { "" } else { dir }).join(path)
    }

    pub(super) fn choice(&self, name: &str) -> &'static str {
        match self.get(name) {
            SettingValue::Choice(word) => word,
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(super) fn words(&self, name: &str) -> Vec<String> {
        match self.get(name) {
            SettingValue::Words(words) => words.clone(),
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Words, each of which may be several with commas.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let words = self.words(name);
        let names = words.iter().flat_map(|word| word.split(',')).map(str::trim);
        names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    pub(super) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let words = self.words(name);
        let (pairs, _) = words.as_chunks::<2>();
        pairs.iter().cloned().map(|[old, new]| (old, new)).collect()
    }

    pub(super) fn output_limits(&self, name: &str) -> OutputLimits {
        match self.get(name) {
            SettingValue::OutputLimits(limits) => *limits,
            other => panic!("{name} is {other:?}"),
        }
    }

    /// Of `oom-score-adj` and its values.
    pub(super) fn oom_score(&self) -> OomScore {
        let SettingValue::OomScores([score, ..]) = self.get("oom-score-adj-values") else {
            panic!("oom-score-adj-values are no scores");
        };
        match self.choice("oom-score-adj") {
            "no" => OomScore::Untouched,
            "absolute" => OomScore::Absolute(*score),
            _ => OomScore::Relative(*score),
        }
    }

    pub(super) fn percentiles(&self, name: &str) -> Vec<f64> {
        match self.get(name) {
            SettingValue::Percentiles(list) => list.clone(),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(super) fn events(&self, name: &str) -> Events {
        match self.get(name) {
            SettingValue::Events(events) => *events,
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(super) fn allowed(&self, name: &str) -> Allowed {
        match self.choice(name) {
            "yes" => Allowed::Yes,
            "local" => Allowed::Local,
            _ => Allowed::No,
        }
    }

    pub(super) fn share(&self, name: &str) -> Share {
        match self.get(name) {
            SettingValue::Percent(percent) => Share::Percent(*percent),
            SettingValue::Bytes(bytes) => Share::Bytes(*bytes),
            other => panic!("{name} is {other:?}"),
        }
    }

    pub(super) fn policy(&self, name: &str) -> EvictionPolicy {
        match self.choice(name) {
            "allkeys-lru" => EvictionPolicy::AllKeysLru,
            "allkeys-lfu" => EvictionPolicy::AllKeysLfu,
            "allkeys-random" => EvictionPolicy::AllKeysRandom,
            "volatile-lru" => EvictionPolicy::VolatileLru,
            "volatile-lfu" => EvictionPolicy::VolatileLfu,
            "volatile-random" => EvictionPolicy::VolatileRandom,
            "volatile-ttl" => EvictionPolicy::VolatileTtl,
            "allkeys-lrm" => EvictionPolicy::AllKeysLrm,
            "volatile-lrm" => EvictionPolicy::VolatileLrm,
            _ => EvictionPolicy::NoEviction,
        }
    }

    fn on_signal(&self, name: &str) -> OnSignal {
        let SettingValue::Choices(words) = self.get(name) else { panic!("{name} is no choice") };
        let save = words.contains(&"save").then_some(true);
        OnSignal {
            save: save.or(words.contains(&"nosave").then_some(false)),
            now: words.contains(&"now"),
            force: words.contains(&"force"),
        }
    }
}

impl Admin {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        Admin { port: v.port("admin_port"), bind: v.text("admin_bind"), nopass: v.bool("admin_nopass") }
    }
}

impl Http {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        Http {
            enabled: v.bool("primary_port_http_enabled"),
            console: v.bool("http_admin_console"),
            console_readonly: v.bool("http_console_readonly"),
            api: v.bool("expose_http_api"),
        }
    }
}

impl Tcp {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        Tcp {
            backlog: v.u32("tcp-backlog"),
            keepalive_s: v.u32("tcp-keepalive"),
            nodelay: v.bool("tcp_nodelay"),
            user_timeout_ms: v.u32("tcp_user_timeout"),
        }
    }
}

impl Encoding {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        let size = v.i64("list-max-listpack-size");
        Encoding {
            hash_max_listpack_entries: v.u64("hash-max-listpack-entries"),
            hash_max_listpack_value: v.u64("hash-max-listpack-value"),
            list_max_listpack_size: i32::try_from(size).unwrap_or(-2),
            set_max_intset_entries: v.u64("set-max-intset-entries"),
            set_max_listpack_entries: v.u64("set-max-listpack-entries"),
            set_max_listpack_value: v.u64("set-max-listpack-value"),
            zset_max_listpack_entries: v.u64("zset-max-listpack-entries"),
            zset_max_listpack_value: v.u64("zset-max-listpack-value"),
            stream_node_max_bytes: v.u64("stream-node-max-bytes"),
            stream_node_max_entries: v.u64("stream-node-max-entries"),
            stream_idmp_duration: v.u64("stream-idmp-duration"),
            stream_idmp_maxsize: v.u64("stream-idmp-maxsize"),
            hll_sparse_max_bytes: v.u64("hll-sparse-max-bytes"),
        }
    }
}

impl Slowlog {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        let or_never = |limit: i64| u64::try_from(limit).unwrap_or(u64::MAX);
        Slowlog {
            slower_us: or_never(v.i64("slowlog-log-slower-than")),
            max_len: v.u64("slowlog-max-len"),
            large_request_bytes: or_never(v.i64("commandlog-request-larger-than")),
            large_request_max_len: v.u64("commandlog-large-request-max-len"),
            large_reply_bytes: or_never(v.i64("commandlog-reply-larger-than")),
            large_reply_max_len: v.u64("commandlog-large-reply-max-len"),
            entry_max_argc: v.u32("slowlog-entry-max-argc"),
            entry_max_string_len: v.u32("slowlog-entry-max-string-len"),
        }
    }
}

impl LogSettings {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        let file = v.path("logfile").map(|path| (path, None));
        let megabytes = v.u64("max_log_size");
        let in_dir = v.path("log_dir").map(|dir| (dir.join("darter.log"), Some(megabytes << 20)));
        let file = file.or(in_dir).filter(|_| !v.bool("logtostderr"));
        let (file, rotate_bytes) = file.map_or((None, None), |(path, bytes)| (Some(path), bytes));
        LogSettings {
            level: LogLevel::new(v),
            to_stderr: file.is_none() || v.bool("alsologtostderr"),
            file,
            rotate_bytes,
        }
    }
}

impl LogLevel {
    /// `v` opens what `loglevel` would hide; `minloglevel` takes precedence.
    fn new(v: &FlagFields<'_>) -> Self {
        let wanted = match v.choice("loglevel") {
            "debug" => LogLevel::Trace,
            "verbose" => LogLevel::Debug,
            "warning" => LogLevel::Warning,
            "nothing" => LogLevel::Nothing,
            _ => LogLevel::Info,
        };
        let opened = match v.u64("v") {
            0 => wanted,
            1 => wanted.min(LogLevel::Debug),
            _ => LogLevel::Trace,
        };
        opened.max(match v.u64("minloglevel") {
            0 => LogLevel::Trace,
            1 => LogLevel::Warning,
            2 => LogLevel::Error,
            _ => LogLevel::Nothing,
        })
    }
}

impl Persistence {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        let dbfilename = v.text("dbfilename");
        let SettingValue::Dir(dir) = v.get("dir") else { panic!("dir is no folder") };
        let SettingValue::Save(save) = v.get("save") else { panic!("save is no rule") };
        Persistence {
            dir: absolute(dir),
            cloud: CloudOptions {
                s3_endpoint: v.text("s3_endpoint"),
                is_plain_http: !v.bool("s3_use_https"),
                uses_machine_credentials: v.bool("s3_ec2_metadata"),
                is_payload_unsigned: !v.bool("s3_sign_payload"),
            },
            df_snapshot_format: v.bool("df_snapshot_format")
                && Path::new(&dbfilename).extension().is_none_or(|e| e != "rdb"),
            dbfilename,
            snapshot_cron: v.text("snapshot_cron"),
            save_schedule: v.text("save_schedule"),
            save: save.clone(),
            never_saves: save.is_empty() && v.is_given("save"),
            egress_bytes_per_s_max: v.u64("snapshot_egress_limit_bytes"),
            stop_writes_on_bgsave_error: v.bool("stop-writes-on-bgsave-error"),
            key_save_delay_us: v.i64("rdb-key-save-delay"),
            key_load_delay_us: v.i64("key-load-delay"),
            native_compression: !matches!(v.choice("compression_mode"), "0" | "NONE"),
            rdbcompression: v.bool("rdbcompression"),
            rdbchecksum: v.bool("rdbchecksum"),
            rdb_modules: v.bool("rdb_modules"),
            restored_versions: match v.choice("rdb-version-check") {
                "relaxed" => Versions::Any,
                _ => Versions::Known,
            },
            appendonly: v.bool("appendonly"),
            appendfsync: match v.choice("appendfsync") {
                "always" => Fsync::Always,
                "no" => Fsync::No,
                _ => Fsync::EverySecond,
            },
            appendfilename: v.text("appendfilename"),
            appenddirname: v.text("appenddirname"),
            backupdirname: v.text("backupdirname"),
            backup_sealed_ttl_s: v.u64("backup-sealed-ttl"),
            no_appendfsync_on_rewrite: v.bool("no-appendfsync-on-rewrite"),
            auto_aof_rewrite_percentage: v.u32("auto-aof-rewrite-percentage"),
            auto_aof_rewrite_min_bytes: v.u64("auto-aof-rewrite-min-size"),
            aof_load_truncated: v.bool("aof-load-truncated"),
        }
    }
}

impl Shutdown {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        Shutdown {
            on_sigint: v.on_signal("shutdown-on-sigint"),
            on_sigterm: v.on_signal("shutdown-on-sigterm"),
        }
    }
}

impl Tls {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        Tls {
            enabled: v.bool("tls"),
            port: v.port("tls-port"),
            plain_admin_port: v.bool("no_tls_on_admin_port"),
            cert_file: v.path("tls-cert-file"),
            key_file: v.path("tls-key-file"),
            ca_cert_file: v.path("tls-ca-cert-file"),
            ca_cert_dir: v.path("tls-ca-cert-dir"),
            auth_clients: match v.choice("tls-auth-clients") {
                "yes" => Some(true),
                "no" => Some(false),
                _ => None,
            },
            protocols: v.text("tls-protocols"),
            ciphersuites: v.text("tls-ciphersuites"),
            prefers_own_ciphers: v.bool("tls-prefer-server-ciphers"),
            session_caching: v.bool("tls-session-caching"),
            session_cache_size: v.u32("tls-session-cache-size"),
            client_cert_file: v.path("tls-client-cert-file"),
            client_key_file: v.path("tls-client-key-file"),
            replication: v.bool("tls-replication"),
            cluster: v.bool("tls-cluster"),
        }
    }
}

impl Cluster {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        let port = v.port("cluster-announce-port").or(v.port("replica-announce-port"));
        Cluster {
            mode: match v.choice("cluster_mode") {
                "emulated" => ClusterMode::Emulated,
                "yes" if v.text("cluster_store").is_empty() => ClusterMode::Pushed,
                "yes" => ClusterMode::Stored,
                _ if v.bool("cluster-enabled") => ClusterMode::Emulated,
                _ => ClusterMode::Off,
            },
            announce_ip: v.text("cluster-announce-ip"),
            announce_port: port.unwrap_or(0),
            announce_tls_port: v.port("cluster-announce-tls-port").unwrap_or(0),
            announce_bus_port: v.port("cluster-announce-bus-port").or(v.port("cluster-port")).unwrap_or(0),
            announce_hostname: v.text("cluster-announce-hostname"),
            endpoint: match v.choice("cluster-preferred-endpoint-type") {
                "hostname" => Endpoint::Hostname,
                "unknown-endpoint" => Endpoint::Unknown,
                _ => Endpoint::Ip,
            },
            node_id: v.text("cluster_node_id"),
            store: v.text("cluster_store"),
            name: v.text("cluster_name"),
            config_file: v.in_dir(PathBuf::from(v.text("cluster-config-file"))),
            requires_all: v.bool("cluster-require-full-coverage"),
            reads_when_down: v.bool("cluster-allow-reads-when-down"),
            messages_when_down: v.bool("cluster-allow-pubsubshard-when-down"),
            crosses_own: v.choice("cluster_cross_slot") == "own",
            failover_ms: v.u64("cluster-manual-failover-timeout"),
            takes_over: !v.bool("cluster-replica-no-failover"),
            pause_ms_max: v.u64("cluster-slot-migration-write-pause-timeout"),
            counts_by_slot: v.bool("cluster-slot-stats-enabled"),
            migration_retries: v.u64("cluster_migration_retries"),
            throttle_us: v.u64("slot_migration_throttle_us"),
        }
    }
}
