//! `stats` and its subcommands.
//!
//! Every field of memcached is there, as tools look for them by name; those of things that Darter has not got (slab
//! moves, LRU lists, log watchers) are 0. All items are shown as one class, number 1.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_reactor::process;
use darter_wire::memcache::{MemcacheWords, write_stat};

use super::{Counter, DB};
use crate::report::{self, Report};
use crate::shared::Shared;
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// The version clients are told: the memcached whose commands these are, and who speaks.
pub(super) const VERSION: &str = concat!("1.6.38 darter-", env!("CARGO_PKG_VERSION"));

/// Runs `stats` with its words.
pub(super) fn run(local: &ThreadState, mut words: MemcacheWords<'_>, out: &mut Vec<u8>) {
    let mut list = StatList { out };
    match words.next() {
        None => general(local, &mut list),
        Some(b"settings") => settings(local, &mut list),
        Some(b"items") => items(local, &mut list),
        Some(b"slabs") => slabs(local, &mut list),
        Some(b"conns") => connections(local, &mut list),
        Some(b"sizes" | b"sizes_disable") => list.add("sizes_status", "disabled"),
        Some(b"sizes_enable") => {
            list.add("sizes_status", "error");
            list.add("sizes_error", "not_supported");
        }
        Some(b"extstore") => {}
        Some(b"detail") => match words.next() {
            Some(b"dump") => local.shared.memcached_detail.dump(list.out),
            Some(word @ (b"on" | b"off")) => {
                local.shared.memcached_detail.switch(word == b"on");
                return out.extend_from_slice(b"OK\r\n");
            }
            _ => return out.extend_from_slice(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
        },
        Some(b"reset") => {
            report::reset(local.shared, None);
            local.shared.memcached_detail.reset();
            return out.extend_from_slice(b"RESET\r\n");
        }
        Some(b"cachedump") => return out.extend_from_slice(b"CLIENT_ERROR stats cachedump not allowed\r\n"),
        Some(_) => return out.extend_from_slice(b"ERROR\r\n"),
    }
    out.extend_from_slice(b"END\r\n");
}

struct StatList<'a> {
    out: &'a mut Vec<u8>,
}

impl StatList<'_> {
    fn add(&mut self, name: &str, value: impl Display) {
        write_stat(self.out, name, &value.to_string());
    }

    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.add(name, 0));
    }
}

/// How often something was counted, on all threads.
fn total(shared: &Shared, counter: Counter) -> u64 {
    shared.stats.iter().map(|stats| stats.memcached.get(counter)).sum()
}

fn general(local: &ThreadState, list: &mut StatList<'_>) {
    let shared = local.shared;
    let report = Report::gather(shared, None);
    let (totals, times) = (&report.totals, process::cpu_times());
    list.add("pid", std::process::id());
    list.add("uptime", shared.started.elapsed().as_secs());
    list.add("time", local.now_ms / 1000);
    list.add("version", VERSION);
    list.add("libevent", shared.driver_name.get().unwrap_or(&"none"));
    list.add("pointer_size", usize::BITS);
    list.add("rusage_user", seconds(times.user));
    list.add("rusage_system", seconds(times.system));
    list.add("max_connections", local.live.maxclients);
    list.add("curr_connections", report.clients.connected);
    list.add("total_connections", totals.connections);
    list.add("rejected_connections", totals.rejected_connections);
    list.add("connection_structures", report.clients.connected);
    list.add("response_obj_oom", 0);
    list.add("response_obj_count", 0);
    list.add("response_obj_bytes", report.clients.output_bytes);
    list.add("read_buf_count", 0);
    list.add("read_buf_bytes", report.clients.input_bytes);
    list.zeros(&["read_buf_bytes_free", "read_buf_oom", "reserved_fds"]);
    for &counter in Counter::ALL.iter().filter(|counter| **counter != Counter::Stored) {
        list.add(counter.name(), total(shared, counter));
        if counter == Counter::GetExpired {
            list.add("get_flushed", 0);
        }
    }
    list.add("bytes_read", totals.input_bytes);
    list.add("bytes_written", totals.output_bytes);
    list.add("limit_maxbytes", shared.limit.max_bytes(&local.live));
    list.add("accepting_conns", 1);
    list.zeros(&["listen_disabled_num", "time_in_listen_disabled_us"]);
    list.add("threads", shared.handles.len());
    list.zeros(&["conn_yields", "hash_power_level"]);
    list.add("hash_bytes", report.shards.index_bytes);
    list.zeros(NOTHING_SUCH);
    list.add("bytes", report.shards.used_bytes);
    list.add("curr_items", report.shards.keys.get(DB).copied().unwrap_or(0));
    list.add("total_items", total(shared, Counter::Stored));
    list.zeros(&["slab_global_page_pool", "expired_unfetched", "evicted_unfetched", "evicted_active"]);
    list.add("evictions", report.shards.counters.evicted);
    list.add("reclaimed", report.shards.counters.expired);
    list.zeros(NO_LISTS);
}

const NOTHING_SUCH: &[&str] = &[
    "hash_is_expanding",
    "slab_reassign_rescues",
    "slab_reassign_chunk_rescues",
    "slab_reassign_evictions_nomem",
    "slab_reassign_inline_reclaim",
    "slab_reassign_busy_items",
    "slab_reassign_busy_deletes",
    "slab_reassign_running",
    "slabs_moved",
    "lru_crawler_running",
    "lru_crawler_starts",
    "lru_maintainer_juggles",
    "malloc_fails",
    "log_worker_dropped",
    "log_worker_written",
    "log_watcher_skipped",
    "log_watcher_sent",
    "log_watchers",
    "unexpected_napi_ids",
    "round_robin_fallback",
];

const NO_LISTS: &[&str] = &[
    "crawler_reclaimed",
    "crawler_items_checked",
    "lrutail_reflocked",
    "moves_to_cold",
    "moves_to_warm",
    "moves_within_lru",
    "direct_reclaims",
    "lru_bumps_dropped",
];

fn seconds(time: Duration) -> String {
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}

fn settings(local: &ThreadState, list: &mut StatList<'_>) {
    let live = &local.live;
    let on = |is_on: bool| if is_on { "yes" } else { "no" };
    list.add("maxbytes", local.shared.limit.max_bytes(live));
    list.add("maxconns", live.maxclients);
    list.add("tcpport", live.memcached_port.or(live.port).unwrap_or(0));
    list.add("udpport", 0);
    list.add("inter", if live.bind.is_empty() { "NULL".to_owned() } else { live.bind.join(",") });
    list.add("verbosity", 0);
    list.add("oldest", 0);
    list.add("evictions", if local.evicts { "on" } else { "off" });
    let socket = live.unixsocket.as_ref().map_or("NULL".to_owned(), |path| path.display().to_string());
    list.add("domain_socket", socket);
    list.add("umask", format!("{:o}", live.unixsocketperm.unwrap_or(0)));
    list.add("shutdown_command", "no");
    list.add("growth_factor", format_args!("{:.2}", 2f64.powf(1.0 / 16.0)));
    list.add("chunk_size", 16);
    list.add("num_threads", local.shared.handles.len());
    list.add("stat_key_prefix", ":");
    list.add("detail_enabled", on(local.shared.memcached_detail.is_on()));
    list.add("cas_enabled", "yes");
    list.add("tcp_backlog", live.tcp.backlog);
    list.add("binding_protocol", "ascii");
    list.add("auth_enabled_sasl", "no");
    list.add("auth_enabled_ascii", on(local.shared.acl.default_has_password()));
    list.add("item_size_max", live.memcached_item_size_max);
    list.add("maxconns_fast", "yes");
    NOT_THERE.iter().for_each(|&(name, value)| list.add(name, value));
    list.add("idle_timeout", live.timeout_s);
    list.add("client_flags_size", 4);
    list.add("memory_file", "(null)");
    list.add("ssl_enabled", on(live.tls.enabled));
}

/// Settings of slabs, LRU lists, the crawler and logs, as those would say that have none.
const NOT_THERE: &[(&str, &str)] = &[
    ("reqs_per_event", "0"),
    ("hashpower_init", "0"),
    ("slab_reassign", "no"),
    ("slab_automove", "0"),
    ("slab_automove_ratio", "0.80"),
    ("slab_automove_window", "30"),
    ("slab_chunk_max", "0"),
    ("lru_crawler", "no"),
    ("lru_crawler_sleep", "0"),
    ("lru_crawler_tocrawl", "0"),
    ("tail_repair_time", "0"),
    ("flush_enabled", "yes"),
    ("dump_enabled", "no"),
    ("hash_algorithm", "darter"),
    ("lru_maintainer_thread", "no"),
    ("lru_segmented", "no"),
    ("hot_lru_pct", "0"),
    ("warm_lru_pct", "0"),
    ("hot_max_factor", "0.00"),
    ("warm_max_factor", "0.00"),
    ("temp_lru", "no"),
    ("temporary_ttl", "0"),
    ("watcher_logbuf_size", "0"),
    ("worker_logbuf_size", "0"),
    ("read_buf_mem_limit", "0"),
    ("track_sizes", "no"),
    ("inline_ascii_response", "no"),
    ("drop_privileges", "no"),
    ("proxy_enabled", "no"),
    ("proxy_uring_enabled", "no"),
];

fn items(local: &ThreadState, list: &mut StatList<'_>) {
    let shards = local.shared.survey(None);
    let number = shards.keys.get(DB).copied().unwrap_or(0) as u64;
    if number == 0 {
        return;
    }
    let hits = total(local.shared, Counter::GetHit);
    let figures = [
        ("number", number),
        ("number_hot", 0),
        ("number_warm", 0),
        ("number_cold", number),
        ("age_hot", 0),
        ("age_warm", 0),
        ("age", 0),
        ("mem_requested", shards.used_bytes as u64),
        ("evicted", shards.counters.evicted),
        ("evicted_nonzero", 0),
        ("evicted_time", 0),
        ("outofmemory", total(local.shared, Counter::NoRoom)),
        ("tailrepairs", 0),
        ("reclaimed", shards.counters.expired),
        ("expired_unfetched", 0),
        ("evicted_unfetched", 0),
        ("evicted_active", 0),
        ("crawler_reclaimed", 0),
        ("crawler_items_checked", 0),
        ("lrutail_reflocked", 0),
        ("moves_to_cold", 0),
        ("moves_to_warm", 0),
        ("moves_within_lru", 0),
        ("direct_reclaims", 0),
        ("hits_to_hot", 0),
        ("hits_to_warm", 0),
        ("hits_to_cold", hits),
        ("hits_to_temp", 0),
    ];
    figures.iter().for_each(|(name, figure)| list.add(&format!("items:1:{name}"), figure));
}

fn slabs(local: &ThreadState, list: &mut StatList<'_>) {
    let shards = local.shared.survey(None);
    let number = shards.keys.get(DB).copied().unwrap_or(0) as u64;
    if let Some(mean_bytes) = (shards.used_bytes as u64).checked_div(number) {
        let figures = [
            ("chunk_size", mean_bytes),
            ("chunks_per_page", PAGE_BYTES / mean_bytes.max(1)),
            ("total_pages", shards.memory_bytes as u64 / PAGE_BYTES),
            ("total_chunks", number),
            ("used_chunks", number),
            ("free_chunks", 0),
            ("free_chunks_end", 0),
        ];
        figures.iter().for_each(|(name, figure)| list.add(&format!("1:{name}"), figure));
        for counter in SLAB_COUNTERS {
            list.add(&format!("1:{}", counter.name()), total(local.shared, *counter));
        }
    }
    list.add("active_slabs", u8::from(number > 0));
    list.add("total_malloced", shards.memory_bytes);
}

/// What memcached calls a page.
const PAGE_BYTES: u64 = 1 << 20;

const SLAB_COUNTERS: &[Counter] = &[
    Counter::GetHit,
    Counter::Set,
    Counter::DeleteHit,
    Counter::IncrHit,
    Counter::DecrHit,
    Counter::CasHit,
    Counter::CasBad,
    Counter::TouchHit,
];

fn connections(local: &ThreadState, list: &mut StatList<'_>) {
    let mut infos: Vec<_> = lock(&local.shared.clients).values().cloned().collect();
    infos.sort_unstable_by_key(|info| info.fd);
    for info in infos {
        let kind = if info.is_unix { "unix" } else { "tcp" };
        let silent_ms = local.now_ms.saturating_sub(info.active_ms.load(Relaxed));
        list.add(&format!("{}:addr", info.fd), format_args!("{kind}:{}", info.peer));
        list.add(&format!("{}:listen_addr", info.fd), format_args!("{kind}:{}", info.local));
        list.add(&format!("{}:state", info.fd), "conn_new_cmd");
        list.add(&format!("{}:secs_since_last_cmd", info.fd), silent_ms / 1000);
    }
}
