//! INFO server, clients, memory, cpu: the process and the machine.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{env, fs, process};

use darter_reactor::process as usage;

use super::{InfoSource, InfoText};
use crate::stats::ThreadStats;
use crate::stats::memcached::Counter;
use crate::thread_state::COMPAT_VERSION;
use darter_config::EvictionPolicy;

/// INFO server.
pub fn server(source: &InfoSource<'_>, out: &mut InfoText) {
    let (shared, live) = (source.shared, source.live);
    let hides_machine = live.managed_service_info;
    out.field("redis_version", COMPAT_VERSION);
    out.field("darter_version", env!("CARGO_PKG_VERSION"));
    out.field("redis_git_sha1", "00000000");
    out.field("redis_git_dirty", 0);
    out.field("redis_build_id", env!("CARGO_PKG_VERSION"));
    let is_cluster = source.live.cluster.mode != darter_config::ClusterMode::Off;
    out.field("redis_mode", if is_cluster { "cluster" } else { "standalone" });
    if !hides_machine {
        out.field("os", os());
    }
    out.field("arch_bits", usize::BITS);
    out.field("monotonic_clock", "POSIX clock_gettime");
    out.field("multiplexing_api", shared.driver_name.get().unwrap_or(&"unknown"));
    if !hides_machine {
        out.field("process_id", process::id());
        out.field("thread_count", shared.handles.len());
    }
    out.field("process_supervised", "no");
    out.field("run_id", &shared.run_id);
    out.field("tcp_port", shared.port.load(Relaxed));
    let now_us = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    out.field("server_time_usec", now_us.as_micros());
    let uptime = shared.started.elapsed().as_secs();
    out.field("uptime_in_seconds", uptime);
    out.field("uptime_in_days", uptime / 86_400);
    out.field("hz", live.hz);
    out.field("configured_hz", live.hz);
    out.field("lru_clock", (source.now_ms / 1000) & 0xff_ffff);
    if !hides_machine {
        out.field("executable", env::current_exe().unwrap_or_default().display());
        out.field("config_file", shared.settings.config_file().unwrap_or_default().display());
    }
    out.field("io_threads_active", u8::from(shared.handles.len() > 1));
    out.field("availability_zone", &live.availability_zone);
}

/// Name, release and processor, as `uname` says.
fn os() -> String {
    let read = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {}", read("ostype").trim(), read("osrelease").trim(), env::consts::ARCH)
}

/// INFO clients.
pub fn clients(source: &InfoSource<'_>, out: &mut InfoText) {
    let clients = &source.report.clients;
    out.field("connected_clients", clients.connected);
    out.field("cluster_connections", 0);
    out.field("maxclients", source.live.maxclients);
    out.field("max_clients", source.live.maxclients);
    out.field("client_recent_max_input_buffer", clients.input_bytes_max);
    out.field("client_recent_max_output_buffer", clients.output_bytes_max);
    out.field("client_read_buffer_bytes", clients.input_bytes);
    out.field("blocked_clients", clients.blocked);
    out.field("tracking_clients", source.shared.tracking.clients_len());
    out.field("pubsub_clients", clients.subscribed);
    out.field("watching_clients", clients.watching);
    out.field("clients_in_timeout_table", clients.blocked);
    let late = |stats: &ThreadStats| stats.memcached.get(Counter::IdleKick) + stats.send_timeouts.get();
    out.field("timeout_disconnects", source.shared.stats.iter().map(late).sum::<u64>());
    out.field("total_watched_keys", source.report.shards.watched);
    let (waiting, waiting_groups) = source.report.shards.waiting;
    out.field("total_blocking_keys", waiting);
    out.field("total_blocking_keys_on_nokey", waiting_groups);
    let pause = &source.shared.pause;
    let (reason, actions, left_ms) = match pause.is_on(source.now_ms) {
        false => ("none", "none", 0),
        true => {
            let actions = if pause.holds_reads(source.now_ms) { "all" } else { "write" };
            let left = u64::try_from(pause.until_ms()).unwrap_or(0).saturating_sub(source.now_ms);
            ("client_pause", actions, left)
        }
    };
    out.field("paused_reason", reason);
    out.field("paused_actions", actions);
    out.field("paused_timeout_milliseconds", left_ms);
}

/// INFO memory.
pub fn memory(source: &InfoSource<'_>, out: &mut InfoText) {
    let memory = &source.report.memory;
    out.bytes("used_memory", memory.used);
    out.bytes("used_memory_rss", memory.rss);
    out.bytes("used_memory_peak", memory.peak);
    out.field("used_memory_peak_perc", format_args!("{:.2}%", memory.peak_percent()));
    out.field("used_memory_peak_rss", memory.rss_peak);
    out.fields(&[
        ("used_memory_overhead", memory.overhead),
        ("used_memory_startup", memory.startup),
        ("used_memory_dataset", memory.dataset),
    ]);
    out.field("used_memory_dataset_perc", format_args!("{:.2}%", memory.dataset_percent()));
    out.fields(&[
        ("object_used_memory", memory.records),
        ("table_used_memory", memory.index),
        ("num_entries", source.report.keys() as u64),
        ("allocator_allocated", memory.used),
        ("allocator_active", memory.used),
        ("allocator_resident", memory.rss),
    ]);
    if !source.live.managed_service_info {
        out.bytes("total_system_memory", usage::machine_memory_bytes().unwrap_or(0));
    }
    lua(source, out);
    out.bytes("maxmemory", source.shared.limit.max_bytes(source.live));
    out.field("maxmemory_policy", policy(source.live.maxmemory_policy));
    out.field("cache_mode", if source.live.cache_mode { "cache" } else { "store" });
    let apart = memory.rss.cast_signed().wrapping_sub(memory.used.cast_signed());
    let ratio = memory.fragmentation();
    out.field("allocator_frag_ratio", "1.00");
    out.field("allocator_frag_bytes", 0);
    out.field("allocator_rss_ratio", format_args!("{ratio:.2}"));
    out.field("allocator_rss_bytes", apart);
    out.field("rss_overhead_ratio", "1.00");
    out.field("rss_overhead_bytes", 0);
    out.field("mem_fragmentation_ratio", format_args!("{ratio:.2}"));
    out.field("mem_fragmentation_bytes", apart);
    let (backlog, replicas) = source.shared.replication.state().memory_bytes();
    out.zeros(&["mem_not_counted_for_evict"]);
    out.field("mem_replication_backlog", backlog);
    out.field("mem_total_replication_buffers", backlog + replicas);
    out.field("mem_clients_slaves", replicas);
    out.field("mem_clients_normal", memory.clients);
    out.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    out.field("mem_allocator", "mimalloc+slab");
    out.zeros(&["mem_overhead_db_hashtable_rehashing"]);
    // As in Redis, the share of a core that it may use, in percent.
    let shards = &source.report.shards;
    out.field("active_defrag_running", if shards.tidying > 0 { crate::cron::SHARE_PERCENT } else { 0 });
    out.field("lazyfree_pending_objects", shards.lazy_free_len);
    out.field("lazyfreed_objects", shards.tidied.buried);
}

/// Memory of scripts: their texts, and each thread's Lua state, including functions.
fn lua(source: &InfoSource<'_>, out: &mut InfoText) {
    let (scripts, bytes) = source.shared.scripts.size();
    let lua = source.report.memory.lua;
    out.bytes("used_memory_lua", lua);
    out.field("used_memory_vm_eval", lua);
    out.field("used_memory_scripts_eval", bytes);
    out.field("number_of_cached_scripts", scripts);
    let (libraries, functions, library_bytes) = source.shared.scripts.libraries_size();
    out.field("number_of_functions", functions);
    out.field("number_of_libraries", libraries);
    out.zeros(&["used_memory_vm_functions"]);
    out.bytes("used_memory_vm_total", lua);
    out.field("used_memory_functions", library_bytes);
    out.bytes("used_memory_scripts", (bytes + library_bytes) as u64);
}

fn policy(policy: EvictionPolicy) -> &'static str {
    match policy {
        EvictionPolicy::NoEviction => "noeviction",
        EvictionPolicy::AllKeysLru => "allkeys-lru",
        EvictionPolicy::AllKeysLfu => "allkeys-lfu",
        EvictionPolicy::AllKeysRandom => "allkeys-random",
        EvictionPolicy::VolatileLru => "volatile-lru",
        EvictionPolicy::VolatileLfu => "volatile-lfu",
        EvictionPolicy::VolatileRandom => "volatile-random",
        EvictionPolicy::VolatileTtl => "volatile-ttl",
        EvictionPolicy::AllKeysLrm => "allkeys-lrm",
        EvictionPolicy::VolatileLrm => "volatile-lrm",
    }
}

/// INFO cpu.
pub fn cpu(source: &InfoSource<'_>, out: &mut InfoText) {
    let mut pair = |names: [&str; 2], times: usage::CpuTimes| {
        let seconds = |time: Duration| format!("{}.{:06}", time.as_secs(), time.subsec_micros());
        out.field(names[0], seconds(times.system));
        out.field(names[1], seconds(times.user));
    };
    pair(["used_cpu_sys", "used_cpu_user"], usage::cpu_times());
    pair(["used_cpu_sys_children", "used_cpu_user_children"], usage::children_cpu_times());
    pair(["used_cpu_sys_main_thread", "used_cpu_user_main_thread"], usage::thread_cpu_times());
    let busy_ns = source.shared.stats.first().map_or(0, |stats| stats.busy_nanos.get());
    let busy = Duration::from_nanos(busy_ns);
    out.field("used_active_time_main_thread", format_args!("{}.{:06}", busy.as_secs(), busy.subsec_micros()));
}
