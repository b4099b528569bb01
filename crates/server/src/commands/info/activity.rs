//! INFO persistence, stats, replication, cluster, keyspace and Dragonfly's transaction and acl: what happened so far.

use super::{Source, Text};
use crate::journal::report::Figures;
use crate::pubsub::Kind;
use crate::report;

/// INFO persistence: nothing is saved yet, so every change since the start waits.
pub fn persistence(source: &Source<'_>, out: &mut Text) {
    out.zeros(&["loading", "async_loading", "current_cow_peak", "current_cow_size", "current_cow_size_age"]);
    out.field("current_fork_perc", "0.00");
    out.zeros(&["current_save_keys_processed", "current_save_keys_total"]);
    out.field("rdb_changes_since_last_save", source.report.shards.changes);
    out.field("rdb_bgsave_in_progress", 0);
    out.field("rdb_last_save_time", source.shared.started_unix_s);
    out.field("rdb_last_bgsave_status", "ok");
    out.field("rdb_last_bgsave_time_sec", -1);
    out.field("rdb_current_bgsave_time_sec", -1);
    out.zeros(&["rdb_saves", "rdb_last_cow_size", "rdb_last_load_keys_expired", "rdb_last_load_keys_loaded"]);
    journal(&source.shared.journal.figures(), out);
}

/// The fields of the append-only file.
fn journal(journal: &Figures, out: &mut Text) {
    let seconds =
        |seconds: Option<u64>| seconds.map_or_else(|| "-1".to_owned(), |seconds| seconds.to_string());
    let status = |is_ok: bool| if is_ok { "ok" } else { "err" };
    out.field("aof_enabled", u8::from(journal.is_on));
    out.field("aof_rewrite_in_progress", u8::from(journal.is_rewriting));
    out.field("aof_rewrite_scheduled", u8::from(journal.is_rewrite_due));
    out.field("aof_last_rewrite_time_sec", seconds(journal.rewrite_took_s));
    out.field("aof_current_rewrite_time_sec", seconds(journal.rewriting_s));
    out.field("aof_last_bgrewrite_status", status(journal.rewrite_failures == 0));
    out.field("aof_rewrites", journal.rewrites);
    out.field("aof_rewrites_consecutive_failures", journal.rewrite_failures);
    out.field("aof_last_write_status", status(journal.is_write_ok));
    out.zeros(&["aof_last_cow_size", "module_fork_in_progress", "module_fork_last_cow_size"]);
    if journal.is_on {
        out.field("aof_current_size", journal.bytes);
        out.field("aof_base_size", journal.base_bytes);
        out.field("aof_pending_rewrite", u8::from(journal.is_rewrite_due));
        out.zeros(&["aof_buffer_length"]);
        out.field("aof_pending_bio_fsync", journal.pending_syncs);
        out.field("aof_delayed_fsync", journal.delayed_syncs);
    }
}

/// INFO stats.
pub fn stats(source: &Source<'_>, out: &mut Text) {
    let (totals, rates) = (&source.report.totals, &source.report.rates);
    out.field("total_connections_received", totals.connections);
    out.field("total_commands_processed", totals.commands);
    out.field("instantaneous_ops_per_sec", rates.commands.round() as u64);
    out.field("total_net_input_bytes", totals.input_bytes);
    out.field("total_net_output_bytes", totals.output_bytes);
    out.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    out.field("instantaneous_input_kbps", format_args!("{:.2}", rates.input_bytes / 1024.0));
    out.field("instantaneous_output_kbps", format_args!("{:.2}", rates.output_bytes / 1024.0));
    out.field("instantaneous_input_repl_kbps", "0.00");
    out.field("instantaneous_output_repl_kbps", "0.00");
    out.field("rejected_connections", totals.rejected_connections);
    out.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
    out.field("expired_subkeys", source.report.shards.counters.expired_members);
    keys(source, out);
    out.zeros(&["latest_fork_usec", "total_forks", "migrate_cached_sockets", "slave_expires_tracked_keys"]);
    out.zeros(&["active_defrag_hits", "active_defrag_misses", "active_defrag_key_hits"]);
    out.zeros(&["active_defrag_key_misses", "total_active_defrag_time", "current_active_defrag_time"]);
    let (keys, items, prefixes) = source.shared.tracking.totals();
    out.field("tracking_total_keys", keys);
    out.field("tracking_total_items", items);
    out.field("tracking_total_prefixes", prefixes);
    out.field("unexpected_error_replies", 0);
    out.field("total_error_replies", totals.errors);
    out.field("dump_payload_sanitizations", 0);
    out.field("total_reads_processed", totals.reads);
    out.field("total_writes_processed", totals.writes);
    out.zeros(&["io_threaded_reads_processed", "io_threaded_writes_processed"]);
    out.field("client_query_buffer_limit_disconnections", totals.input_limit_closed);
    out.field("client_output_buffer_limit_disconnections", totals.output_limit_closed);
    out.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"]);
    out.field("eventloop_cycles", totals.turns);
    out.field("eventloop_duration_sum", totals.busy_us);
    out.field("eventloop_duration_cmd_sum", report::command_us(source.shared));
    out.field("instantaneous_eventloop_cycles_per_sec", rates.turns.round() as u64);
    out.field("instantaneous_eventloop_duration_usec", rates.turn_us.round() as u64);
    for (reason, count) in source.shared.acl.denials() {
        let reason = if reason == "command" { "cmd" } else { reason };
        out.field(&format!("acl_access_denied_{reason}"), count);
    }
}

/// The part of INFO stats about keys and channels.
fn keys(source: &Source<'_>, out: &mut Text) {
    let counters = &source.report.shards.counters;
    let pubsub = &source.shared.pubsub;
    out.field("expired_keys", counters.expired);
    out.field("expired_stale_perc", "0.00");
    out.zeros(&["expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds"]);
    out.field("evicted_keys", counters.evicted);
    out.field("evicted_clients", source.report.totals.clients_evicted);
    out.zeros(&["evicted_scripts"]);
    out.zeros(&["total_eviction_exceeded_time", "current_eviction_exceeded_time"]);
    out.field("keyspace_hits", counters.hits);
    out.field("keyspace_misses", counters.misses);
    out.field("keyspace_mutations", source.report.shards.changes);
    out.field("pubsub_channels", pubsub.channels_len(Kind::Channel));
    out.field("pubsub_patterns", pubsub.patterns_len());
    out.field("pubsubshard_channels", pubsub.channels_len(Kind::Shard));
}

/// INFO replication.
pub fn replication(source: &Source<'_>, out: &mut Text) {
    out.field("role", "master");
    out.field("connected_slaves", 0);
    out.field("master_failover_state", "no-failover");
    out.field("master_replid", &source.shared.run_id);
    out.field("master_replid2", "0".repeat(40));
    out.field("master_repl_offset", 0);
    out.field("second_repl_offset", -1);
    out.field("repl_backlog_active", 0);
    out.field("repl_backlog_size", 1 << 20);
    out.zeros(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"]);
}

/// INFO cluster.
pub fn cluster(source: &Source<'_>, out: &mut Text) {
    out.field("cluster_enabled", u8::from(source.live.cluster.mode != crate::config::ClusterMode::Off));
    out.zeros(&["migration_errors_total", "total_migrated_keys"]);
}

/// INFO keyspace: databases that hold a key.
pub fn keyspace(source: &Source<'_>, out: &mut Text) {
    let shards = &source.report.shards;
    for (db, &keys) in shards.keys.iter().enumerate().filter(|(_, keys)| **keys > 0) {
        let expires = shards.expiring.get(db).copied().unwrap_or(0);
        let ttl_ms = if expires > 0 { source.shared.average_ttl_ms(db, source.now_ms) } else { 0 };
        out.field(
            &format!("db{db}"),
            format_args!("keys={keys},expires={expires},avg_ttl={ttl_ms},subexpiry=0"),
        );
    }
}

/// INFO transaction: how commands found their shards.
pub fn transaction(source: &Source<'_>, out: &mut Text) {
    let totals = &source.report.totals;
    out.field("tx_inline_runs_total", totals.commands.saturating_sub(totals.contended));
    out.field("tx_normal_total", totals.contended);
}

/// INFO tiered: no value is on disk.
pub fn tiered(_: &Source<'_>, out: &mut Text) {
    out.zeros(&["tiered_entries", "tiered_entries_bytes", "tiered_total_stashes", "tiered_total_fetches"]);
    out.zeros(&[
        "tiered_total_cancels",
        "tiered_total_deletes",
        "tiered_total_uploads",
        "tiered_allocated_bytes",
    ]);
    out.zeros(&[
        "tiered_capacity_bytes",
        "tiered_pending_read_cnt",
        "tiered_pending_stash_cnt",
        "tiered_ram_hits",
    ]);
    out.zeros(&["tiered_ram_cool_hits", "tiered_ram_misses"]);
}

/// INFO search: there is no index.
pub fn search(_: &Source<'_>, out: &mut Text) {
    out.zeros(&["search_memory", "search_num_indices", "search_num_entries"]);
}

/// INFO acl: how many users and rules there are.
pub fn acl(source: &Source<'_>, out: &mut Text) {
    let users = source.shared.acl.all();
    let channels = |selector: &crate::acl::Selector| selector.channels().len();
    let selectors = || users.values().flat_map(|user| user.selectors());
    out.field("acl_num_users", users.len());
    out.field("acl_num_passwords", users.values().map(|user| user.passwords.len()).sum::<usize>());
    out.field("acl_num_key_globs", selectors().map(|selector| selector.keys_len()).sum::<usize>());
    out.field("acl_num_pubsub_globs", selectors().map(channels).sum::<usize>());
}
