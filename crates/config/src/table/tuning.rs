//! Knobs of Dragonfly's engine. Darter has no use for them, so they are accepted and change nothing.

use super::{BYTES_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Tuning};

const PIPELINE: &str = "a pipeline runs in order as it arrives";
const LOOP: &str = "housekeeping takes what time is left over";
const THREADS: &str = "every thread serves clients and data";
const BUFFERS: &str = "buffers follow the load";
const LOCKS: &str = "a key is its own lock";
const FIBERS: &str = "there are no fibers";
const RETIRED: &str = "retired by Dragonfly, which still takes it";

pub(super) const ROWS: &[Setting] = &[
    Setting::bool("always_flush_pipeline", "false")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "write replies after every batch"),
    Setting::int("async_dispatch_quota", 0, U32_MAX, "100")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "pushed messages handled before commands"),
    Setting::bool("enable_memcache_io_loop_v2", "true")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "event-driven memcached connections"),
    Setting::bool("enable_resp_io_loop_v2", "false")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "event-driven connections"),
    Setting::bool("enable_pipeline_squashing_v2", "true")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "group a pipeline by shard"),
    Setting::int("max_busy_read_usec", 0, U32_MAX, "200")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "microseconds of reading before others run"),
    Setting::int("max_busy_squash_usec", 0, U32_MAX, "1000")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "microseconds of a batch before others run"),
    Setting::int("max_squashed_cmd_num", 0, U32_MAX, "100")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "commands of a batch per shard"),
    Setting::int("log_squash_info_threshold_usec", 0, U32_MAX, "2147483648")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "microseconds of a batch that are logged"),
    Setting::bool("multi_exec_squash", "true")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "run single-shard commands of EXEC side by side"),
    Setting::bool("pipeline_parse_in_proactor", "true")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "parse while the connection waits"),
    Setting::bool("pipeline_prioritize_large_batches", "true")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "gather larger batches"),
    Setting::int("pipeline_squash", 0, U32_MAX, "1")
        .dragonfly()
        .no_effect(PIPELINE)
        .help(Tuning, "commands from which a pipeline is grouped by shard"),
    Setting::int("pipeline_squash_limit", 0, U32_MAX, "1073741824")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "commands of one batch"),
    Setting::int("pipeline_wait_batch_usec", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "microseconds to wait for more commands"),
    Setting::bool("mget_dedup_keys", "false")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "look a key of MGET up once"),
    Setting::bool("get_zero_copy", "true")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "GET without copying"),
    Setting::bool("unlink_experimental_async", "true")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "UNLINK in the background"),
    Setting::int("tx_queue_warning_len", 0, U32_MAX, "96")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "waiting transactions that are logged"),
    Setting::int("write_connection_throttling_sleep_usec", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(PIPELINE)
        .help(Tuning, "microseconds of pause for writers"),
    Setting::bool("background_debug_jobs", "false")
        .dragonfly()
        .no_effect(LOOP)
        .help(Tuning, "DEBUG at low priority"),
    Setting::bool("background_heartbeat", "false")
        .dragonfly()
        .fixed()
        .no_effect(LOOP)
        .help(Tuning, "housekeeping at low priority"),
    Setting::int("scheduler_background_budget", 0, U32_MAX, "50000")
        .dragonfly()
        .fixed()
        .no_effect(LOOP)
        .help(Tuning, "nanoseconds of background work per slice"),
    Setting::int("scheduler_background_sleep_prob", 0, U32_MAX, "50")
        .dragonfly()
        .fixed()
        .no_effect(LOOP)
        .help(Tuning, "percent chance of sleep after it"),
    Setting::int("scheduler_background_warrant", 0, U32_MAX, "5")
        .dragonfly()
        .fixed()
        .no_effect(LOOP)
        .help(Tuning, "percent of CPU for background work"),
    Setting::int("conn_io_threads", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(THREADS)
        .help(Tuning, "threads that serve clients; 0 means all"),
    Setting::int("conn_io_thread_start", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(THREADS)
        .help(Tuning, "first of them"),
    Setting::bool("conn_use_incoming_cpu", "false")
        .dragonfly()
        .fixed()
        .no_effect(THREADS)
        .help(Tuning, "serve a client where its packets arrive"),
    Setting::int("shard_thread_busy_polling_usec", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(THREADS)
        .help(Tuning, "microseconds a thread looks for work before it sleeps"),
    Setting::int("epoll_file_threads", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(THREADS)
        .help(Tuning, "threads for files under epoll"),
    Setting::int("iobuf_min_shrink_interval_sec", 0, U32_MAX, "30")
        .dragonfly()
        .fixed()
        .no_effect(BUFFERS)
        .help(Tuning, "seconds between shrinks of an input buffer"),
    Setting::memory("registered_buffer_size", 0, BYTES_MAX, "512kb")
        .dragonfly()
        .fixed()
        .no_effect(BUFFERS)
        .help(Tuning, "bytes registered with io_uring"),
    Setting::int("uring_direct_table_len", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(BUFFERS)
        .help(Tuning, "direct descriptors of io_uring"),
    Setting::bool("uring_disable_iowait", "false")
        .dragonfly()
        .fixed()
        .no_effect(BUFFERS)
        .help(Tuning, "io_uring waits are not I/O waits"),
    Setting::int("uring_recv_buffer_cnt", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(BUFFERS)
        .help(Tuning, "receive buffers of io_uring per thread"),
    Setting::bool("lock_on_hashtags", "false")
        .dragonfly()
        .fixed()
        .no_effect(LOCKS)
        .help(Tuning, "lock hash tags instead of keys"),
    Setting::text("locktag_delimiter", "")
        .dragonfly()
        .fixed()
        .no_effect(LOCKS)
        .help(Tuning, "character around the tag"),
    Setting::text("locktag_prefix", "")
        .dragonfly()
        .fixed()
        .no_effect(LOCKS)
        .help(Tuning, "prefix of keys that have a tag"),
    Setting::int("locktag_skip_n_end_delimiters", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(LOCKS)
        .help(Tuning, "closing characters to skip"),
    Setting::text("shard_round_robin_prefix", "")
        .dragonfly()
        .fixed()
        .no_effect(LOCKS)
        .help(Tuning, "prefix of keys distributed round robin; deprecated by Dragonfly"),
    Setting::int("fiber_safety_margin", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(FIBERS)
        .help(Tuning, "bytes of stack that must be free when a fiber ends"),
    Setting::int("fiber_run_warning_threshold_ms", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(FIBERS)
        .help(Tuning, "milliseconds after which a running fiber is logged"),
    Setting::text("allocation_tracker", "")
        .dragonfly()
        .fixed()
        .no_effect("allocations are not traced")
        .help(Tuning, "sizes of allocations to trace, as min:max"),
    Setting::bool("experimental_io_loop_v2", "true")
        .dragonfly()
        .fixed()
        .no_effect(RETIRED)
        .help(Tuning, "event-driven connections"),
    Setting::bool("experimental_replicaof_v2", "true")
        .dragonfly()
        .fixed()
        .no_effect(RETIRED)
        .help(Tuning, "a newer way of replication"),
    Setting::int("shard_repl_backlog_len", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(RETIRED)
        .help(Tuning, "entries of a backlog"),
    Setting::int("squash_stats_latency_lower_limit", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(RETIRED)
        .help(Tuning, "microseconds from which batches are counted"),
    Setting::int("tiered_storage_write_depth", 0, U32_MAX, "200")
        .dragonfly()
        .fixed()
        .no_effect(RETIRED)
        .help(Tuning, "writes to disk under way at once"),
];
