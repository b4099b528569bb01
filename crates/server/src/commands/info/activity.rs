//! INFO persistence, stats, replication, cluster, keyspace and Dragonfly's transaction and acl: totals of events.

use std::sync::atomic::Ordering::Relaxed;

use super::{InfoSource, InfoText};
use crate::journal::report::Figures;
use crate::pubsub::SubscriptionKind;
use crate::report;
use crate::snapshot::Purpose;
use crate::stats::histogram::Sum;
use crate::sync::lock;

/// INFO persistence.
pub fn persistence(source: &InfoSource<'_>, out: &mut InfoText) {
    let snapshots = &source.shared.snapshots;
    let (run, history) = (snapshots.current(), lock(&snapshots.history).clone());
    let (run, base) = (run.as_ref().filter(|run| run.purpose != Purpose::Base), run.as_ref());
    loading(source, out);
    let waiting = base.map_or(0, |run| run.pipe.waiting_bytes());
    out.field("current_cow_peak", history.waiting_bytes_max.max(waiting));
    out.field("current_cow_size", waiting);
    out.field("current_cow_size_age", base.map_or(0, |run| run.began.elapsed().as_secs()));
    let (done, total) = base.map_or((0, 0), |run| (run.keys_done(), run.keys_total()));
    out.field("current_fork_perc", format_args!("{:.2}", done as f64 * 100.0 / total.max(1) as f64));
    out.field("current_save_keys_processed", done);
    out.field("current_save_keys_total", total);
    out.field("rdb_changes_since_last_save", source.report.shards.changes.saturating_sub(history.changes));
    out.field("rdb_bgsave_in_progress", u8::from(run.is_some()));
    let saved_s = if history.saved_s > 0 { history.saved_s } else { source.shared.started_unix_s };
    out.field("rdb_last_save_time", saved_s);
    out.field("rdb_last_bgsave_status", if history.error.is_some() { "err" } else { "ok" });
    out.field("rdb_last_bgsave_time_sec", history.took_s.map_or(-1, u64::cast_signed));
    out.field(
        "rdb_current_bgsave_time_sec",
        run.map_or(-1, |run| run.began.elapsed().as_secs().cast_signed()),
    );
    out.field("rdb_saves", history.saves);
    out.field("rdb_last_cow_size", history.waiting_bytes_max);
    out.field("rdb_last_load_keys_expired", snapshots.loading.keys_expired.load(Relaxed));
    out.field("rdb_last_load_keys_loaded", snapshots.loading.keys.load(Relaxed));
    journal(&source.shared.journal.figures(), out);
    out.field("backup_in_progress", u8::from(source.shared.backup.status().stage.is_open()));
    out.field("last_saved_file", &history.name);
    out.field("last_save_keys_written_early", history.keys_early);
    out.field("saving", u8::from(base.is_some()));
}

/// The fields of the append-only file.
fn journal(journal: &Figures, out: &mut InfoText) {
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
        out.field("aof_fsyncs", journal.syncs);
        out.field("aof_fsync_us", journal.sync_us);
    }
}

/// The part of INFO persistence about a running load.
fn loading(source: &InfoSource<'_>, out: &mut InfoText) {
    let loading = &source.shared.snapshots.loading;
    out.field("loading", u8::from(loading.is_on()));
    out.field("async_loading", u8::from(loading.is_aside()));
    if !loading.is_on() && !loading.is_aside() {
        return;
    }
    let (percent, left_s) = loading.progress(source.now_ms);
    out.field("loading_start_time", loading.began_s.load(Relaxed));
    out.field("loading_total_bytes", loading.total_bytes.load(Relaxed));
    out.field("loading_rdb_used_mem", 0);
    out.field("loading_loaded_bytes", loading.loaded_bytes.load(Relaxed));
    out.field("loading_loaded_perc", format_args!("{percent:.2}"));
    out.field("loading_eta_seconds", left_s);
}

/// INFO stats.
pub fn stats(source: &InfoSource<'_>, out: &mut InfoText) {
    let (totals, rates) = (&source.report.totals, &source.report.rates);
    out.field("total_connections_received", totals.connections);
    out.field("total_commands_processed", totals.commands);
    out.field("total_pipelined_commands", totals.pipelined);
    out.field("instantaneous_ops_per_sec", rates.commands.round() as u64);
    out.field("total_net_input_bytes", totals.input_bytes);
    out.field("total_net_output_bytes", totals.output_bytes);
    out.field("total_net_repl_input_bytes", totals.master_bytes);
    out.field("total_net_repl_output_bytes", totals.replica_bytes);
    out.field("instantaneous_input_kbps", format_args!("{:.2}", rates.input_bytes / 1024.0));
    out.field("instantaneous_output_kbps", format_args!("{:.2}", rates.output_bytes / 1024.0));
    out.field("instantaneous_input_repl_kbps", format_args!("{:.2}", rates.master_bytes / 1024.0));
    out.field("instantaneous_output_repl_kbps", format_args!("{:.2}", rates.replica_bytes / 1024.0));
    out.field("rejected_connections", totals.rejected_connections);
    let syncs = &source.shared.replication.counts;
    out.field("sync_full", syncs.full.load(Relaxed));
    out.field("sync_dropped_slow", syncs.dropped_slow.load(Relaxed));
    out.field("sync_dropped_silent", syncs.dropped_silent.load(Relaxed));
    out.field("sync_streams_lost", syncs.lost.load(Relaxed));
    out.field("sync_partial_ok", syncs.partial.load(Relaxed));
    out.field("sync_partial_from_disk", syncs.partial_from_disk.load(Relaxed));
    out.field("sync_partial_err", syncs.partial_refused.load(Relaxed));
    // By Redis' name and by Valkey's.
    out.field("expired_subkeys", source.report.shards.counters.expired_members);
    out.field("expired_fields", source.report.shards.counters.expired_members);
    keys(source, out);
    out.zeros(&["latest_fork_usec", "total_forks"]);
    out.field("migrate_cached_sockets", source.shared.migrations.idle_len());
    out.zeros(&["slave_expires_tracked_keys"]);
    let tidied = &source.report.shards.tidied;
    out.field("active_defrag_hits", tidied.hits);
    out.field("active_defrag_misses", tidied.misses + tidied.packs);
    out.field("active_defrag_key_hits", tidied.hits);
    out.field("active_defrag_key_misses", tidied.misses);
    out.field("total_active_defrag_time", source.shared.tidying.total_ms(source.now_ms));
    out.field("current_active_defrag_time", source.shared.tidying.current_ms(source.now_ms));
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
    out.field("tls_handshakes_started", totals.tls_begun);
    out.field("tls_handshakes_completed", totals.tls_finished);
    out.field("tls_connections_failed", totals.tls_failed);
    out.field("client_output_buffer_limit_disconnections", totals.output_limit_closed);
    out.zeros(&["reply_buffer_shrinks", "reply_buffer_expands"]);
    out.field("eventloop_cycles", totals.lively_turns);
    out.field("eventloop_duration_sum", totals.busy_us);
    out.field("eventloop_duration_cmd_sum", report::command_us(source.shared));
    out.field("instantaneous_eventloop_cycles_per_sec", rates.turns.ceil() as u64);
    out.field("instantaneous_eventloop_duration_usec", rates.turn_us.ceil() as u64);
    let slow = &totals.slow;
    out.field("slowlog_commands_count", slow.calls);
    out.field("slowlog_commands_time_ms_max", format_args!("{:.2}", slow.us_max as f64 / 1000.0));
    out.field("slowlog_commands_time_ms_sum", format_args!("{:.2}", slow.us as f64 / 1000.0));
    for (reason, count) in source.shared.acl.denials() {
        let reason = match reason {
            "command" => "cmd",
            "database" => "db",
            _ => reason,
        };
        out.field(&format!("acl_access_denied_{reason}"), count);
    }
}

/// The part of INFO stats about keys and channels.
fn keys(source: &InfoSource<'_>, out: &mut InfoText) {
    let counters = &source.report.shards.counters;
    let pubsub = &source.shared.pubsub;
    out.field("expired_keys", counters.expired);
    out.field("expired_keys_active", source.report.totals.swept_keys);
    out.field("expired_stale_perc", "0.00");
    out.zeros(&["expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds"]);
    out.field("evicted_keys", counters.evicted);
    out.field("evicted_clients", source.report.totals.clients_evicted);
    out.zeros(&["evicted_scripts"]);
    let overrun = &source.shared.limit.overrun.spell;
    out.field("total_eviction_exceeded_time", overrun.total_ms(source.now_ms));
    out.field("current_eviction_exceeded_time", overrun.current_ms(source.now_ms));
    out.field("keyspace_hits", counters.hits);
    out.field("keyspace_misses", counters.misses);
    out.field("keys_answers_cut", source.report.shards.answers_cut);
    out.field("keyspace_mutations", source.report.shards.changes);
    out.field("pubsub_channels", pubsub.channels_len(SubscriptionKind::Channel));
    out.field("pubsub_patterns", pubsub.patterns_len());
    out.field("pubsubshard_channels", pubsub.channels_len(SubscriptionKind::Shard));
}

/// INFO cluster.
pub fn cluster(source: &InfoSource<'_>, out: &mut InfoText) {
    out.field("cluster_enabled", u8::from(source.live.cluster.mode != darter_config::ClusterMode::Off));
    let cluster = &source.shared.cluster;
    out.field("migration_errors_total", cluster.outgoing.errors.load(Relaxed));
    out.field("total_migrated_keys", cluster.outgoing.sent_keys.load(Relaxed));
    if cluster.is_on() {
        let redirects = &cluster.redirects;
        out.field("cluster_map_revision", cluster.map().revision());
        out.field("cluster_redirects_moved", redirects.moved.load(Relaxed));
        out.field("cluster_redirects_ask", redirects.ask.load(Relaxed));
        out.field("cluster_refused_tryagain", redirects.try_again.load(Relaxed));
        out.field("cluster_refused_crossslot", redirects.cross.load(Relaxed));
        out.field("cluster_refused_down", redirects.down.load(Relaxed));
        let map = cluster.map();
        if let Some(store) = cluster.shared_store() {
            out.field("cluster_store_connected", u8::from(store.is_reached.load(Relaxed)));
            out.field("cluster_store_revision", cluster.store_revision.load(Relaxed));
            out.field("cluster_store_errors", store.errors.load(Relaxed));
            out.field("cluster_slots_moving", map.moves().len());
        }
        let active = map.migrations().iter().filter(|one| one.is_active()).count();
        out.field("cluster_migrations_active", active);
        out.field("cluster_migrations_done", cluster.outgoing.done.load(Relaxed));
        out.field("cluster_migrations_failed", cluster.outgoing.failed.load(Relaxed));
    }
}

/// INFO keyspace: databases that hold a key. Keys whose members expire are counted by Redis' name and by Valkey's.
pub fn keyspace(source: &InfoSource<'_>, out: &mut InfoText) {
    let shards = &source.report.shards;
    for (db, &keys) in shards.keys.iter().enumerate().filter(|(_, keys)| **keys > 0) {
        let [expires, in_part] =
            [&shards.expiring, &shards.expiring_in_part].map(|counts| counts.get(db).copied().unwrap_or(0));
        let ttl_ms = source.ttls_ms.get(db).copied().unwrap_or(0);
        let parts = format_args!("subexpiry={in_part},keys_with_volatile_items={in_part}");
        out.field(&format!("db{db}"), format_args!("keys={keys},expires={expires},avg_ttl={ttl_ms},{parts}"));
    }
}

/// INFO transaction: how often commands found their shards free or busy, and the hold times of slices and of timed
/// commands.
pub fn transaction(source: &InfoSource<'_>, out: &mut InfoText) {
    let totals = &source.report.totals;
    out.field("tx_inline_runs_total", totals.commands.saturating_sub(totals.contended));
    out.field("tx_normal_total", totals.contended);
    let (mut slices, mut holds) = (Sum::default(), Sum::default());
    for stats in &source.shared.stats {
        slices.add(&stats.slice_times);
        holds.add(&stats.hold_times);
    }
    for (what, times) in [("slice", slices), ("hold", holds)] {
        out.field(&format!("{what}s_total"), times.count());
        for (name, percent) in [("p50", 50.0), ("p99", 99.0), ("max", 100.0)] {
            let nanos = times.percentile_nanos(percent);
            out.field(&format!("{what}_usec_{name}"), format_args!("{:.1}", nanos as f64 / 1000.0));
        }
    }
    let sent = source.shared.stats.iter().map(|stats| stats.turn_sent_max.get());
    out.field("turn_sent_bytes_max", sent.max().unwrap_or(0));
    if cfg!(debug_assertions) {
        let blocks = source.shared.stats.iter().map(|stats| stats.hold_blocks_max.get());
        out.field("hold_blocks_max", blocks.max().unwrap_or(0));
    }
}

/// INFO tiered: no value is on disk.
pub fn tiered(_: &InfoSource<'_>, out: &mut InfoText) {
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
pub fn search(_: &InfoSource<'_>, out: &mut InfoText) {
    out.zeros(&["search_memory", "search_num_indices", "search_num_entries"]);
}

/// INFO acl: numbers of users and rules.
pub fn acl(source: &InfoSource<'_>, out: &mut InfoText) {
    let users = source.shared.acl.all();
    let channels = |selector: &crate::acl::Selector| selector.channels().len();
    let selectors = || users.values().flat_map(|user| user.selectors());
    out.field("acl_num_users", users.len());
    out.field("acl_num_passwords", users.values().map(|user| user.passwords.len()).sum::<usize>());
    out.field("acl_num_key_globs", selectors().map(|selector| selector.keys_len()).sum::<usize>());
    out.field("acl_num_pubsub_globs", selectors().map(channels).sum::<usize>());
}
