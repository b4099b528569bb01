//! The settings of masters and replicas.

use super::fields::Fields;

/// Masters and replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replication {
    /// The master to follow.
    pub master: Option<(String, u16)>,
    /// User there; empty = the default one.
    pub user: String,
    /// Password there; empty = none.
    pub password: String,
    /// Address told to the master; empty = the one it sees.
    pub announce_ip: String,
    /// Port told to the master, 0 = the real one.
    pub announce_port: u16,
    /// Sentinel may see this replica.
    pub is_announced: bool,
    /// The priority for Sentinel.
    pub priority: u32,
    /// Clients may not write on a replica.
    pub read_only: bool,
    /// Clients are answered while the master is away.
    pub serves_stale: bool,
    /// Silence that ends a link, in seconds.
    pub timeout_s: u64,
    /// Seconds between pings to replicas.
    pub ping_s: u64,
    /// Bytes kept for replicas that come back.
    pub backlog_bytes: u64,
    /// Bytes of the journal's files kept past a base for the same.
    pub backlog_disk_bytes: u64,
    /// Seconds that they are kept without replicas, 0 = forever.
    pub backlog_ttl_s: u64,
    /// Replicas without which writes are refused.
    pub min_replicas: u32,
    /// Largest lag of such a replica, in seconds.
    pub max_lag_s: u64,
}

impl Replication {
    pub(super) fn new(v: &Fields<'_>) -> Self {
        Replication {
            master: v.endpoint("replicaof"),
            user: v.text("masteruser"),
            password: v.text("masterauth"),
            announce_ip: v.text("replica-announce-ip"),
            announce_port: v.port("replica-announce-port").unwrap_or(0),
            is_announced: v.bool("replica-announced"),
            priority: v.u32("replica-priority"),
            read_only: v.bool("replica-read-only"),
            serves_stale: v.bool("replica-serve-stale-data"),
            timeout_s: v.u64("repl-timeout"),
            ping_s: v.u64("repl-ping-replica-period"),
            backlog_bytes: v.u64("repl-backlog-size"),
            backlog_disk_bytes: v.u64("repl-backlog-disk-size"),
            backlog_ttl_s: v.u64("repl-backlog-ttl"),
            min_replicas: v.u32("min-replicas-to-write"),
            max_lag_s: v.u64("min-replicas-max-lag"),
        }
    }
}
