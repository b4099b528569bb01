//! Dragonfly's families, in the order of its own page.
//!
//! A family that counts something Darter does not have is zero if a dashboard uses it, and its help says so.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use super::text::seconds;
use super::{Family, MetricKind, MetricValue, Samples, Scrape, counter, gauge, gauge_of_replica, many};
use crate::protocol::ListenerKind;
use crate::shared::ThreadHandle;
use crate::sync::lock;

const fn zero(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    label: &'static str,
    texts: &'static [&'static str],
) -> Family {
    Family { name, kind, help, value: MetricValue::Zero(label, texts) }
}

/// Turns from `2^20` nanoseconds on, a bit over a millisecond, count as long.
const LONG_BITS: u32 = 20;

/// Every family.
pub(super) const DRAGONFLY: &[Family] = &[
    many("dragonfly_version", MetricKind::Gauge, "Always 1; the version is in the label.", |_, out| {
        out.with("version", env!("CARGO_PKG_VERSION"), 1)
    }),
    gauge("dragonfly_master", "1 unless this server follows another.", |s| {
        f64::from(s.info.get("role").is_none_or(|role| role == "master"))
    }),
    counter("dragonfly_uptime_in_seconds", "Seconds since the start.", |s| {
        s.shared.started.elapsed().as_secs() as f64
    }),
    many("dragonfly_connected_clients", MetricKind::Gauge, "Connected clients.", connected),
    gauge("dragonfly_max_clients", "Clients that may be connected.", |s| f64::from(s.live.maxclients)),
    gauge("dragonfly_blocked_clients", "Clients that wait for a key.", |s| s.report.clients.blocked as f64),
    counter("dragonfly_connections_received_total", "Connections accepted.", |s| {
        s.report.totals.connections as f64
    }),
    many("dragonfly_listener_accept_error_total", MetricKind::Counter, "Connections refused.", |s, out| {
        out.with("reason", "limit_reached", s.report.totals.rejected_connections);
        out.with("reason", "tls_error", s.report.totals.tls_failed);
    }),
    gauge("dragonfly_connection_memory_bytes", "Bytes of connections and their buffers.", |s| {
        s.report.memory.clients as f64
    }),
    gauge("dragonfly_client_read_buffer_bytes", "Bytes received and not yet understood.", |s| {
        s.report.clients.input_bytes as f64
    }),
    gauge("dragonfly_dispatch_queue_bytes", "Bytes of replies that wait to be sent.", |s| {
        s.report.clients.output_bytes as f64
    }),
    many("dragonfly_commands_processed_total", MetricKind::Counter, "Commands run.", |s, out| {
        out.with("listener", "main", s.report.totals.commands);
        out.with("listener", "other", 0);
    }),
    many("dragonfly_commands_total", MetricKind::Counter, "Calls by command.", |s, out| {
        s.commands.iter().for_each(|(name, totals)| out.with("cmd", name, totals.calls))
    }),
    many(
        "dragonfly_commands_duration_seconds",
        MetricKind::Counter,
        "Seconds in calls, by command.",
        |s, out| s.commands.iter().for_each(|(name, totals)| out.with("cmd", name, totals.us as f64 / 1e6)),
    ),
    gauge("dragonfly_memory_used_bytes", "Bytes of data, clients and tables.", |s| {
        s.report.memory.used as f64
    }),
    gauge("dragonfly_memory_used_peak_bytes", "The most that ever were used.", |s| {
        s.report.memory.peak as f64
    }),
    gauge(
        "dragonfly_memory_max_bytes",
        "Bytes that may be used: maxmemory, or the limit that replaces 0.",
        memory_max,
    ),
    gauge("dragonfly_used_memory_rss_bytes", "Resident bytes of the process.", |s| {
        s.report.memory.rss as f64
    }),
    many("dragonfly_memory_by_class_bytes", MetricKind::Gauge, "Bytes by what they are for.", by_class),
    many("dragonfly_db_keys", MetricKind::Gauge, "Keys by database.", |s, out| {
        by_db(s, &s.report.shards.keys, out)
    }),
    many("dragonfly_db_keys_expiring", MetricKind::Gauge, "Keys with a deadline by database.", |s, out| {
        by_db(s, &s.report.shards.expiring, out)
    }),
    many("dragonfly_db_capacity", MetricKind::Gauge, "Places for keys by database.", |s, out| {
        by_db(s, &s.report.shards.slots, out)
    }),
    many("dragonfly_expired_keys_total", MetricKind::Counter, "Keys removed at their deadline.", |s, out| {
        out.with("db", ALL_DBS, s.report.shards.counters.expired)
    }),
    many("dragonfly_evicted_keys_total", MetricKind::Counter, "Keys removed to make room.", |s, out| {
        out.with("db", ALL_DBS, s.report.shards.counters.evicted)
    }),
    many("dragonfly_keyspace_hits_total", MetricKind::Counter, "Reads that found their key.", |s, out| {
        out.with("db", ALL_DBS, s.report.shards.counters.hits)
    }),
    many("dragonfly_keyspace_misses_total", MetricKind::Counter, "Reads that found no key.", |s, out| {
        out.with("db", ALL_DBS, s.report.shards.counters.misses)
    }),
    counter("dragonfly_keyspace_mutations_total", "Changes of keys.", |s| s.report.shards.changes as f64),
    counter("dragonfly_net_input_bytes_total", "Bytes received.", |s| s.report.totals.input_bytes as f64),
    counter("dragonfly_net_output_bytes_total", "Bytes sent.", |s| s.report.totals.output_bytes as f64),
    counter("dragonfly_net_input_recv_total", "Receives.", |s| s.report.totals.reads as f64),
    counter("dragonfly_proactor_reads_total", "Receives.", |s| s.report.totals.reads as f64),
    zero("dragonfly_net_read_yields_total", MetricKind::Counter, "Always 0: a read never yields.", "", &[]),
    counter("dragonfly_reply_total", "Sends, each with the replies of a turn.", |s| {
        s.report.totals.writes as f64
    }),
    zero(
        "dragonfly_reply_duration_seconds",
        MetricKind::Counter,
        "Always 0: sends never wait and are part of a turn.",
        "",
        &[],
    ),
    counter("dragonfly_pipeline_commands_total", "Commands that came together with others.", |s| {
        s.report.totals.pipelined as f64
    }),
    counter(
        "dragonfly_pipeline_commands_duration_seconds",
        "Their part of the time in commands.",
        pipelined_seconds,
    ),
    many(
        "dragonfly_pipeline_latency_seconds",
        MetricKind::Summary,
        "From a turn's first bytes to its last reply.",
        |s, out| out.summary(&[("0.95", 95.0), ("0.99", 99.0)], &s.turns, s.report.totals.busy_us * 1000),
    ),
    zero(
        "dragonfly_pipeline_queue_length",
        MetricKind::Gauge,
        "Always 0: commands run when they are read.",
        "",
        &[],
    ),
    zero("dragonfly_pipeline_queue_bytes", MetricKind::Gauge, "Always 0: commands are not copied.", "", &[]),
    zero(
        "dragonfly_pipeline_cmd_cache_bytes",
        MetricKind::Gauge,
        "Always 0: commands are not copied.",
        "",
        &[],
    ),
    zero(
        "dragonfly_pipeline_queue_wait_duration_seconds",
        MetricKind::Counter,
        "Always 0: there is no queue.",
        "",
        &[],
    ),
    zero("dragonfly_pipeline_throttle_total", MetricKind::Counter, "Always 0: there is no queue.", "", &[]),
    zero(
        "dragonfly_pipeline_dispatch_calls_total",
        MetricKind::Counter,
        "Always 0: there is no queue.",
        "",
        &[],
    ),
    zero(
        "dragonfly_pipeline_dispatch_commands_total",
        MetricKind::Counter,
        "Always 0: there is no queue.",
        "",
        &[],
    ),
    zero(
        "dragonfly_pipeline_dispatch_flush_duration_seconds",
        MetricKind::Counter,
        "Always 0: there is no queue.",
        "",
        &[],
    ),
    zero(
        "dragonfly_pipeline_dispatch_flush_total",
        MetricKind::Counter,
        "Always 0: there is no queue.",
        "",
        &[],
    ),
    zero("dragonfly_cmd_squash_hop_total", MetricKind::Counter, "Always 0: commands do not hop.", "", &[]),
    zero(
        "dragonfly_cmd_squash_hop_duration_seconds",
        MetricKind::Counter,
        "Always 0: commands do not hop.",
        "",
        &[],
    ),
    zero(
        "dragonfly_cmd_squash_hop_reply_seconds",
        MetricKind::Counter,
        "Always 0: commands do not hop.",
        "",
        &[],
    ),
    zero(
        "dragonfly_cmd_squash_commands_total",
        MetricKind::Counter,
        "Always 0: commands do not hop.",
        "",
        &[],
    ),
    counter("dragonfly_fiber_switch_total", "Turns of the threads' loops; there are no fibers.", |s| {
        s.report.totals.turns as f64
    }),
    counter("dragonfly_fiber_switch_delay_seconds_total", "Seconds in those turns.", |s| {
        s.report.totals.busy_us as f64 / 1e6
    }),
    counter("dragonfly_fiber_longrun_total", "Turns of more than a millisecond.", |s| {
        (s.turns.count() - s.turns.below(LONG_BITS)) as f64
    }),
    counter("dragonfly_fiber_longrun_seconds", "Seconds in those, at most an eighth too many.", |s| {
        seconds(s.turns.nanos_from(LONG_BITS))
    }),
    zero("dragonfly_fibers_count", MetricKind::Gauge, "Always 0: there are no fibers.", "", &[]),
    zero(
        "dragonfly_tx_queue_len",
        MetricKind::Gauge,
        "Always 0: no transaction waits in a queue of its own.",
        "",
        &[],
    ),
    counter("dragonfly_lua_blocked_total", "Always 0: each thread has its own Lua.", |_| 0.0),
    gauge("dragonfly_lua_interpreter_cnt", "Threads, each with its own Lua when it needs one.", |s| {
        s.shared.handles.len() as f64
    }),
    gauge("dragonfly_used_memory_lua", "Bytes of the threads' Lua states.", |s| s.report.memory.lua as f64),
    many(
        "dragonfly_oom_errors_total",
        MetricKind::Counter,
        "Commands refused for want of memory.",
        |s, out| {
            out.with("type", "cmd", s.errors.iter().find(|(word, _)| word == "OOM").map_or(0, |(_, n)| *n));
            out.with("type", "insert", 0);
        },
    ),
    counter("dragonfly_backups_total", "Snapshots written.", |s| s.number("rdb_saves")),
    gauge("dragonfly_snapshot_serialization_bytes", "Bytes a running snapshot holds.", |s| {
        s.number("current_cow_size")
    }),
    gauge("dragonfly_replication_streaming_bytes", "Bytes kept for replicas.", |s| {
        s.number("repl_backlog_histlen")
    }),
    gauge(
        "dragonfly_replication_full_sync_bytes",
        "Bytes of snapshots that replicas have yet to get.",
        |s| {
            let left = s.followers.iter().filter_map(|one| one.progress);
            left.map(|progress| progress.total.saturating_sub(progress.done)).sum::<u64>() as f64
        },
    ),
    counter("dragonfly_replication_psync_count", "Replicas that went on by what they lacked.", |s| {
        s.shared.replication.counts.partial.load(Relaxed) as f64
    }),
    counter("dragonfly_replica_reconnect_count", "Links to a master that were up.", |s| {
        s.shared.replication.counts.links.load(Relaxed) as f64
    }),
    gauge_of_replica("dragonfly_master_link_status", "1 while the link to the master is up.", |s| {
        f64::from(s.info.get("master_link_status").is_some_and(|status| status == "up"))
    }),
    gauge_of_replica(
        "dragonfly_master_last_io_seconds_ago",
        "Since the master was heard; -1: the link is down.",
        |s| s.number("master_last_io_seconds_ago"),
    ),
    gauge_of_replica("dragonfly_master_sync_in_progress", "1 while a snapshot of the master comes.", |s| {
        s.number("master_sync_in_progress")
    }),
    gauge_of_replica("dragonfly_slave_repl_offset", "Bytes of the master's stream that are applied.", |s| {
        s.number("slave_repl_offset")
    }),
    many("dragonfly_tls_handshakes_total", MetricKind::Counter, "Handshakes of TLS.", |s, out| {
        out.with("status", "started", s.report.totals.tls_begun);
        out.with("status", "completed", s.report.totals.tls_finished);
    }),
    many("dragonfly_connections_libs", MetricKind::Gauge, "Clients by library, of at most 1000.", libraries),
    zero("dragonfly_blocked_tasks", MetricKind::Gauge, "Always 0: there are no tasks.", "", &[]),
    zero(
        "dragonfly_memory_fiberstack_vms_bytes",
        MetricKind::Gauge,
        "Always 0: there are no fibers.",
        "",
        &[],
    ),
    zero(
        "dragonfly_commands_squashing_replies_bytes",
        MetricKind::Gauge,
        "Always 0: replies are not copied.",
        "",
        &[],
    ),
    zero(
        "dragonfly_pipeline_blocking_commands_total",
        MetricKind::Counter,
        "Always 0: there is no queue.",
        "",
        &[],
    ),
    zero(
        "dragonfly_huffman_tables_built",
        MetricKind::Counter,
        "Always 0: text is packed without tables.",
        "",
        &[],
    ),
    zero("dragonfly_interned_string_entries", MetricKind::Gauge, INTERNED, "", &[]),
    zero("dragonfly_interned_string_hits_total", MetricKind::Counter, INTERNED, "", &[]),
    zero("dragonfly_interned_string_misses_total", MetricKind::Counter, INTERNED, "", &[]),
    many(
        "dragonfly_migration_errors_total",
        MetricKind::Counter,
        "Attempts to move slots away as a whole that failed.",
        |s, out| out.with("num", "migration errors", s.shared.cluster.outgoing.errors.load(Relaxed)),
    ),
    many("dragonfly_moved_errors_total", MetricKind::Counter, "Commands answered with MOVED.", |s, out| {
        out.with("num", "moved errors", s.shared.cluster.redirects.moved.load(Relaxed))
    }),
    zero("dragonfly_tiered_list_events", MetricKind::Counter, TIERED, "type", &["offload", "onload"]),
    zero("dragonfly_tiered_entries", MetricKind::Gauge, TIERED, "", &[]),
    zero(
        "dragonfly_tiered_bytes",
        MetricKind::Gauge,
        TIERED,
        "type",
        &["used", "cold", "allocated", "capacity"],
    ),
    zero(
        "dragonfly_tiered_events",
        MetricKind::Counter,
        TIERED,
        "type",
        &["stash", "fetch", "upload", "cancel", "delete"],
    ),
    zero("dragonfly_tiered_hits", MetricKind::Counter, TIERED, "type", &["ram", "cool", "disk"]),
    zero(
        "dragonfly_tiered_overload",
        MetricKind::Counter,
        TIERED,
        "type",
        &["client throttling", "stash overflows"],
    ),
];

const INTERNED: &str = "Always 0: no string is shared.";
const TIERED: &str = "Always 0: no value is on disk.";

/// Hits and similar counts cover all databases together.
const ALL_DBS: &str = "all";

fn connected(s: &Scrape<'_>, out: &mut Samples<'_>) {
    let main = |handle: &ThreadHandle| {
        let of = |kind: ListenerKind| handle.by_kind[kind as usize].load(Relaxed);
        of(ListenerKind::Main) + of(ListenerKind::Tls)
    };
    let main: usize = s.shared.handles.iter().map(main).sum();
    // As in INFO, replicas are counted apart.
    let main = main.saturating_sub(s.shared.replication.state().connections());
    out.with("listener", "main", main);
    out.with("listener", "other", s.report.clients.connected.saturating_sub(main));
}

/// Clients examined one by one for their libraries.
const LIBRARY_CLIENTS_MAX: usize = 1000;

fn libraries(s: &Scrape<'_>, out: &mut Samples<'_>) {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for info in lock(&s.shared.clients).values().take(LIBRARY_CLIENTS_MAX) {
        let words = lock(&info.words);
        if !words.lib_name.is_empty() {
            *counts.entry(format!("{}:{}", words.lib_name, words.lib_ver)).or_default() += 1;
        }
    }
    counts.iter().for_each(|(library, count)| out.with("lib", library, count));
}

fn memory_max(s: &Scrape<'_>) -> f64 {
    s.shared.limit.max_bytes(s.live) as f64
}

fn by_class(s: &Scrape<'_>, out: &mut Samples<'_>) {
    let (memory, clients) = (&s.report.memory, &s.report.clients);
    let buffers = (clients.input_bytes + clients.output_bytes) as u64;
    for (class, bytes) in [
        ("object_used", memory.keyspace.saturating_sub(memory.index)),
        ("table_used", memory.index),
        ("connection", memory.clients.saturating_sub(buffers)),
        ("client_read_buffer", clients.input_bytes as u64),
        ("dispatch_queue", clients.output_bytes as u64),
        ("used_lua", s.shared.scripts.size().1 as u64),
        ("startup", memory.startup),
    ] {
        out.with("class", class, bytes);
    }
}

/// Databases that hold a key, and the first.
fn by_db(s: &Scrape<'_>, values: &[usize], out: &mut Samples<'_>) {
    for (db, value) in values.iter().enumerate() {
        if db == 0 || s.report.shards.keys.get(db).is_some_and(|keys| *keys > 0) {
            out.with("db", &format!("db{db}"), value);
        }
    }
}

fn pipelined_seconds(s: &Scrape<'_>) -> f64 {
    let all_us: u64 = s.commands.iter().map(|(_, totals)| totals.us).sum();
    let totals = &s.report.totals;
    all_us as f64 / 1e6 * totals.pipelined as f64 / totals.commands.max(1) as f64
}
