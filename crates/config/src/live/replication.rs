//! The settings of masters and replicas.

use std::path::PathBuf;

use super::fields::FlagFields;

/// Masters and replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicationSettings {
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
    /// What becomes of the data while that of the master comes.
    pub sync_load: SyncLoad,
    /// The link ends if the master has started anew without its data.
    pub breaks_on_restart: bool,
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
    /// The group of servers with a store of consensus.
    pub ha: HighAvailability,
}

/// What becomes of a replica's data while that of its master comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncLoad {
    /// It stays until all of the other has come.
    Whole,
    /// It stays until all of the other is loaded.
    Aside,
    /// It goes first.
    Direct,
}

/// A group of servers, of which a store says who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HighAvailability {
    /// Address of the store; empty: no group.
    pub store: String,
    /// The name of the group there.
    pub group: String,
    /// Milliseconds for which a leader serves after its members were heard.
    pub lease_ms: u64,
    /// Authorities of the store's certificate.
    pub ca_file: Option<PathBuf>,
    /// The certificate shown to the store.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// Replicas that have a change before it is answered.
    pub acks: u32,
    /// The port for clients of Sentinel.
    pub sentinel_port: Option<u16>,
    /// They have it on disk.
    pub acks_disk: bool,
    /// Silence after which a member is dropped, in milliseconds.
    pub ack_timeout_ms: u64,
}

impl HighAvailability {
    /// Returns true if this server belongs to a group.
    pub fn is_on(&self) -> bool {
        !self.store.is_empty()
    }
}

impl ReplicationSettings {
    pub(super) fn new(v: &FlagFields<'_>) -> Self {
        ReplicationSettings {
            master: v.endpoint("replicaof"),
            user: v.text("masteruser"),
            password: v.text("masterauth"),
            announce_ip: v.text("replica-announce-ip"),
            announce_port: v.port("replica-announce-port").unwrap_or(0),
            is_announced: v.bool("replica-announced"),
            priority: v.u32("replica-priority"),
            read_only: v.bool("replica-read-only"),
            sync_load: match v.choice("repl-diskless-load") {
                "swapdb" => SyncLoad::Aside,
                "flush-before-load" => SyncLoad::Direct,
                _ => SyncLoad::Whole,
            },
            breaks_on_restart: v.bool("break_replication_on_master_restart"),
            serves_stale: v.bool("replica-serve-stale-data"),
            timeout_s: v.u64("repl-timeout"),
            ping_s: v.u64("repl-ping-replica-period"),
            backlog_bytes: v.u64("repl-backlog-size"),
            backlog_disk_bytes: v.u64("repl-backlog-disk-size"),
            backlog_ttl_s: v.u64("repl-backlog-ttl"),
            min_replicas: v.u32("min-replicas-to-write"),
            max_lag_s: v.u64("min-replicas-max-lag"),
            ha: HighAvailability {
                store: v.text("ha_store"),
                group: v.text("ha_group"),
                lease_ms: v.u64("ha_lease_ms"),
                ca_file: v.path("ha_ca_file"),
                cert_file: v.path("ha_cert_file"),
                key_file: v.path("ha_key_file"),
                acks: v.u32("min_replicas_to_ack"),
                sentinel_port: v.port("sentinel_port"),
                acks_disk: v.choice("replica_ack") == "disk",
                ack_timeout_ms: v.u64("replica_ack_timeout_ms"),
            },
        }
    }
}
