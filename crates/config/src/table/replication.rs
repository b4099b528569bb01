//! Masters and replicas.

use super::{BYTES_MAX, I32_MAX, PORT_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Replication, SettingKind};

const NO_REPLICATION: &str = "Darter's replication has no use for it";
const DISKLESS: &str = "replicas are synced from memory";

pub(super) const ROWS: &[Setting] = &[
    Setting::new("replicaof", SettingKind::Endpoint, "")
        .alias(&["slaveof"])
        .fixed()
        .help(Replication, "master to follow: HOST PORT or HOST:PORT"),
    Setting::text("masterauth", "")
        .alias(&["primaryauth"])
        .secret()
        .help(Replication, "password for the master"),
    Setting::text("masteruser", "").alias(&["primaryuser"]).secret().help(Replication, "user for the master"),
    Setting::text("replica-announce-ip", "")
        .alias(&["slave-announce-ip"])
        .help(Replication, "address told to the master"),
    Setting::int("replica-announce-port", 0, PORT_MAX, "0")
        .alias(&["slave-announce-port", "announce_port"])
        .help(Replication, "port told to the master and to cluster clients; 0 means the real one"),
    Setting::bool("replica-announced", "yes").help(Replication, "let Sentinel see this replica"),
    Setting::int("replica-priority", 0, I32_MAX, "100")
        .alias(&["slave-priority"])
        .help(Replication, "preference when Sentinel promotes, lower first; 0 means never"),
    Setting::bool("replica-read-only", "yes")
        .alias(&["slave-read-only"])
        .help(Replication, "refuse writes on a replica"),
    Setting::bool("replica-serve-stale-data", "yes")
        .alias(&["slave-serve-stale-data"])
        .help(Replication, "answer while the master is away"),
    Setting::bool("replica-ignore-maxmemory", "yes")
        .alias(&["slave-ignore-maxmemory"])
        .no_effect("a replica never evicts")
        .help(Replication, "leave eviction to the master"),
    Setting::bool("replica-lazy-flush", "no")
        .alias(&["slave-lazy-flush"])
        .no_effect("a replica drops its data in the background")
        .help(Replication, "flush in the background before a sync"),
    Setting::bool("replica-ignore-disk-write-errors", "no")
        .no_effect(NO_REPLICATION)
        .help(Replication, "continue when the disk fails"),
    Setting::bool("replica_partial_sync", "true")
        .dragonfly()
        .no_effect(NO_REPLICATION)
        .help(Replication, "continue after a lost connection"),
    Setting::bool("replica_delete_expired", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "a replica drops expired keys it reads"),
    Setting::bool("replicaof_no_one_start_journal", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "keep offsets after REPLICAOF NO ONE"),
    Setting::bool("break_replication_on_master_restart", "false")
        .dragonfly()
        .fixed()
        .help(Replication, "stop following a master that restarted"),
    Setting::int("repl-timeout", 1, I32_MAX, "60").help(Replication, "seconds of silence that end a link"),
    Setting::int("repl-ping-replica-period", 1, I32_MAX, "10")
        .alias(&["repl-ping-slave-period"])
        .help(Replication, "seconds between pings to replicas"),
    Setting::memory("repl-backlog-size", 1, BYTES_MAX, "1mb")
        .help(Replication, "bytes kept for replicas that come back"),
    Setting::memory("repl-backlog-disk-size", 0, BYTES_MAX, "4gb")
        .help(Replication, "bytes of journal segments kept past a base for replicas that come back"),
    Setting::int("repl-backlog-ttl", 0, i64::MAX, "3600")
        .help(Replication, "seconds they are kept without replicas; 0 means forever"),
    Setting::memory("shard_repl_backlog_max_bytes", 0, BYTES_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect("repl-backlog-size bounds it")
        .help(Replication, "bytes of all backlogs; 0 means half a percent of maxmemory"),
    Setting::int("shard_repl_backlog_time_ms", 0, U32_MAX, "5000")
        .dragonfly()
        .fixed()
        .no_effect("repl-backlog-size bounds it")
        .help(Replication, "milliseconds kept for replicas that come back"),
    Setting::bool("repl-disable-tcp-nodelay", "no")
        .no_effect(NO_REPLICATION)
        .help(Replication, "gather bytes before sending to replicas"),
    Setting::bool("repl-diskless-sync", "yes")
        .no_effect(DISKLESS)
        .help(Replication, "sync replicas without a file"),
    Setting::int("repl-diskless-sync-delay", 0, I32_MAX, "5")
        .no_effect(DISKLESS)
        .help(Replication, "seconds to wait for more replicas"),
    Setting::int("repl-diskless-sync-max-replicas", 0, I32_MAX, "0")
        .no_effect(DISKLESS)
        .help(Replication, "replicas that end that wait"),
    Setting::choice(
        "repl-diskless-load",
        &["disabled", "on-empty-db", "swapdb", "flush-before-load"],
        "disabled",
    )
    .help(Replication, "what becomes of a replica's data while that of its master comes"),
    Setting::bool("dual-channel-replication-enabled", "no")
        .no_effect(NO_REPLICATION)
        .help(Replication, "snapshot and journal on two connections"),
    Setting::bool("repl-rdb-channel", "yes")
        .hidden()
        .no_effect(NO_REPLICATION)
        .help(Replication, "Redis' name for snapshot and journal on two connections"),
    Setting::memory("replica-full-sync-buffer-limit", 0, BYTES_MAX, "0")
        .no_effect(NO_REPLICATION)
        .help(Replication, "bytes a replica keeps while it loads"),
    Setting::choice("propagation-error-behavior", &["ignore", "panic", "panic-on-replicas"], "ignore")
        .no_effect(NO_REPLICATION)
        .help(Replication, "reaction to a failed journal entry"),
    Setting::int("min-replicas-to-write", 0, I32_MAX, "0")
        .alias(&["min-slaves-to-write"])
        .help(Replication, "replicas without which writes are refused"),
    Setting::int("min-replicas-max-lag", 0, I32_MAX, "10")
        .alias(&["min-slaves-max-lag"])
        .help(Replication, "largest lag of these replicas, in seconds"),
    Setting::int("master_connect_timeout_ms", 0, I32_MAX, "20000")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "milliseconds to reach the master"),
    Setting::int("master_reconnect_timeout_ms", 0, I32_MAX, "1000")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "milliseconds before the next attempt"),
    Setting::int("replication_timeout", 0, U32_MAX, "30000")
        .dragonfly()
        .no_effect(NO_REPLICATION)
        .help(Replication, "milliseconds a write to a replica may take"),
    Setting::int("replication_acks_interval", 0, I32_MAX, "1000")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "milliseconds between acknowledgements"),
    Setting::int("replication_dispatch_threshold", 0, U32_MAX, "1500")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "bytes gathered before a write to a replica"),
    Setting::memory("replication_stream_output_limit", 0, BYTES_MAX, "1mb")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "bytes waiting for a replica that slow writers down"),
    Setting::bool("journal_omit_redundant_writes", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_REPLICATION)
        .help(Replication, "send no changes of keys a sync has yet to reach"),
    Setting::bool("experimental_cascaded_partial_sync", "false")
        .dragonfly()
        .fixed()
        .no_effect("chains always resume by a partial sync if they can")
        .help(Replication, "partial sync through chains"),
    Setting::text("ha_store", "").dragonfly().secret().fixed().help(
        Replication,
        "store that fences failovers: etcd:// or https://[USER:PASSWORD@]HOST[:PORT][,...]; empty means none",
    ),
    Setting::text("ha_group", "darter")
        .dragonfly()
        .fixed()
        .help(Replication, "name of the group of servers in that store"),
    Setting::int("ha_lease_ms", 200, 60_000, "1000")
        .dragonfly()
        .fixed()
        .help(Replication, "milliseconds a leader serves after its members were heard"),
    Setting::text("ha_ca_file", "")
        .dragonfly()
        .fixed()
        .help(Replication, "authorities that the certificate of ha_store or cluster_store must come from, PEM; https:// needs it"),
    Setting::text("ha_cert_file", "")
        .dragonfly()
        .fixed()
        .help(Replication, "certificate shown to the store, PEM"),
    Setting::text("ha_key_file", "").dragonfly().fixed().help(Replication, "its private key"),
    Setting::int("min_replicas_to_ack", 0, 15, "0")
        .dragonfly()
        .fixed()
        .help(Replication, "replicas that have a change before anything is answered that tells of it"),
    Setting::int("sentinel_port", 0, PORT_MAX, "0")
        .dragonfly()
        .fixed()
        .help(Replication, "port at which clients of Sentinel ask who leads the group; 0 means none"),
    Setting::choice("replica_ack", &["memory", "disk"], "memory")
        .dragonfly()
        .fixed()
        .help(Replication, "where they have it; disk needs appendonly yes and appendfsync always"),
    Setting::int("replica_ack_timeout_ms", 50, 60_000, "500")
        .dragonfly()
        .fixed()
        .help(Replication, "milliseconds without an acknowledgement that drop a member of the group"),
    Setting::bool("import-mode", "no").help(
        Replication,
        "keep expired keys and evict none while a tool imports data (CLIENT IMPORT-SOURCE)",
    ),
];
