//! Cluster mode.

use super::{BYTES_MAX, I32_MAX, PORT_MAX, U32_MAX};
use crate::check;
use crate::setting::{Setting, SettingGroup::Cluster, SettingKind};

const NO_CLUSTER: &str = "the cluster has no bus and no gossip";

pub(super) const ROWS: &[Setting] = &[
    Setting::choice("cluster_mode", &["", "emulated", "yes"], "")
        .dragonfly()
        .fixed()
        .help(Cluster, "emulated: one server that cluster clients can use; yes: one of several"),
    Setting::bool("cluster-enabled", "no").fixed().help(Cluster, "the same as cluster_mode emulated"),
    Setting::checked("cluster-announce-ip", "", check::printable)
        .help(Cluster, "address told to cluster clients"),
    Setting::checked("cluster-announce-client-ipv4", "", check::ipv4)
        .no_effect(NO_CLUSTER)
        .help(Cluster, "IPv4 address told to cluster clients"),
    Setting::checked("cluster-announce-client-ipv6", "", check::ipv6)
        .no_effect(NO_CLUSTER)
        .help(Cluster, "IPv6 address told to cluster clients"),
    Setting::int("cluster-announce-port", 0, PORT_MAX, "0")
        .help(Cluster, "port told to cluster clients; 0 means the real one"),
    Setting::int("cluster-announce-tls-port", 0, PORT_MAX, "0")
        .help(Cluster, "TLS port told to cluster clients that use TLS; 0 means the real one"),
    Setting::int("cluster-announce-bus-port", 0, PORT_MAX, "0").help(Cluster, "bus port told to nodes"),
    Setting::checked("cluster-announce-hostname", "", check::hostname)
        .help(Cluster, "host name told to cluster clients"),
    Setting::checked("cluster-announce-human-nodename", "", check::nodename)
        .no_effect(NO_CLUSTER)
        .help(Cluster, "name of this node in logs"),
    Setting::choice("cluster-preferred-endpoint-type", &["ip", "hostname", "unknown-endpoint"], "ip")
        .help(Cluster, "form of the address for cluster clients"),
    Setting::checked("cluster_node_id", "", check::printable)
        .dragonfly()
        .fixed()
        .help(Cluster, "id of this node; empty means the replication id"),
    Setting::text("cluster_store", "").dragonfly().fixed().secret().help(
        Cluster,
        "where the map of the cluster is kept: etcd:// or https://[USER:PASSWORD@]HOST[:PORT][,...]; empty means it is pushed",
    ),
    Setting::checked("cluster_name", "darter", check::printable)
        .dragonfly()
        .fixed()
        .help(Cluster, "name of the cluster in that store"),
    Setting::int("cluster-port", 0, PORT_MAX, "0")
        .fixed()
        .help(Cluster, "port of the bus shown to cluster clients; there is no bus"),
    Setting::checked("cluster-config-file", "nodes.conf", check::cluster_config_file)
        .fixed()
        .help(Cluster, "file of the pushed configuration, in mode yes"),
    Setting::choice("cluster_cross_slot", &["never", "own"], "never")
        .dragonfly()
        .help(Cluster, "own: one command may have keys of several slots of this node"),
    Setting::int("cluster-node-timeout", 0, i64::MAX, "15000")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "milliseconds until a silent node has failed"),
    Setting::int("cluster-ping-interval", 0, i64::MAX, "0")
        .hidden()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "milliseconds between pings, for tests"),
    Setting::int("cluster-manual-failover-timeout", 1, I32_MAX, "5000")
        .help(Cluster, "milliseconds that writes wait while a replica takes over"),
    Setting::int("cluster-message-gossip-perc", 1, 100, "10")
        .hidden()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "nodes told of in a message, percent"),
    Setting::bool("cluster-slot-stats-enabled", "no").help(Cluster, "count time and bytes by slot"),
    Setting::int("cluster-slot-migration-write-pause-timeout", 1, I32_MAX, "2000")
        .help(Cluster, "milliseconds that writers wait at most while slots are handed over"),
    Setting::int("cluster_migration_retries", 0, I32_MAX, "3")
        .dragonfly()
        .help(Cluster, "how often a migration of slots begins again that has failed for a passing reason"),
    Setting::int("cluster-slot-migration-log-max-len", 0, i64::MAX, "1000")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "moves of slots that are remembered"),
    Setting::int("cluster-compatibility-sample-ratio", 0, 100, "0")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "commands checked for errors of a cluster, percent"),
    Setting::choice("cluster-config-save-behavior", &["sync", "best-effort"], "sync")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "whether a change waits for the file of the nodes"),
    Setting::int("cluster-blacklist-ttl", 0, i64::MAX, "60")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "seconds a forgotten node stays away"),
    Setting::int("cluster-migration-barrier", 0, I32_MAX, "1")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "replicas a master keeps"),
    Setting::int("cluster-replica-validity-factor", 0, I32_MAX, "10")
        .alias(&["cluster-slave-validity-factor"])
        .no_effect(NO_CLUSTER)
        .help(Cluster, "how stale a replica may be to take over"),
    Setting::bool("cluster-replica-no-failover", "no")
        .alias(&["cluster-slave-no-failover"])
        .help(Cluster, "a replica does not take over when its master is silent"),
    Setting::bool("cluster-allow-replica-migration", "yes")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "let replicas move to bare masters"),
    Setting::bool("cluster-require-full-coverage", "yes")
        .help(Cluster, "refuse all when some slots are lost"),
    Setting::bool("cluster-allow-reads-when-down", "no").help(Cluster, "read on while the cluster is down"),
    Setting::bool("cluster-allow-pubsubshard-when-down", "yes")
        .help(Cluster, "sharded pub/sub while the cluster is down"),
    Setting::memory("cluster-link-sendbuf-limit", 0, BYTES_MAX, "0")
        .no_effect(NO_CLUSTER)
        .help(Cluster, "bytes waiting on a bus link"),
    Setting::int("cluster-databases", 1, 65_536, "1")
        .hidden()
        .fixed()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "databases in cluster mode"),
    Setting::int("cluster_coordinator_connect_timeout_ms", 0, I32_MAX, "3000")
        .dragonfly()
        .fixed()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "milliseconds to reach another node"),
    Setting::int("cluster_coordinator_response_timeout_ms", 0, I32_MAX, "3000")
        .dragonfly()
        .fixed()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "milliseconds for its answer"),
    Setting::bool("cluster_flush_decommit_memory", "false")
        .dragonfly()
        .fixed()
        .no_effect("freed pages always go back")
        .help(Cluster, "give memory back after flushing slots"),
    Setting::bool("cluster_search", "false")
        .dragonfly()
        .fixed()
        .not_yet("search across nodes")
        .help(Cluster, "search across nodes"),
    Setting::bool("experimental_cluster_shard_by_slot", "false")
        .dragonfly()
        .fixed()
        .not_yet("cluster mode")
        .help(Cluster, "a slot lives on one thread"),
    Setting::new("migration_buckets_cpu_budget", SettingKind::Real(0.0, 1.0), "0.2")
        .dragonfly()
        .fixed()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "share of CPU for moving slots"),
    Setting::int("migration_buckets_serialization_threshold", 0, U32_MAX, "10")
        .dragonfly()
        .fixed()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "buckets moved per step"),
    Setting::int("migration_buckets_sleep_usec", 0, U32_MAX, "500")
        .dragonfly()
        .fixed()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "microseconds between steps"),
    Setting::int("migration_finalization_timeout_ms", 0, I32_MAX, "30000")
        .dragonfly()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "milliseconds to finish moving"),
    Setting::int("slot_migration_connection_timeout_ms", 0, I32_MAX, "2000")
        .dragonfly()
        .fixed()
        .no_effect(NO_CLUSTER)
        .help(Cluster, "milliseconds to reach the new owner"),
    Setting::int("slot_migration_throttle_us", 0, U32_MAX, "0")
        .dragonfly()
        .help(Cluster, "microseconds that a migration rests after each batch of keys; 0 means none"),
];
