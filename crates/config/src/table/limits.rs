//! The limits of one client or one command.

use super::{BYTES_MAX, I32_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Limits, SettingKind};

pub(super) const ROWS: &[Setting] = &[
    Setting::int("maxclients", 1, U32_MAX, "64000").help(Limits, "client connections at a time"),
    Setting::int("dbnum", 1, 65_536, "16")
        .alias(&["databases"])
        .dragonfly()
        .fixed()
        .help(Limits, "databases that SELECT may name"),
    Setting::int("keys_output_limit", 0, U32_MAX, "0")
        .dragonfly()
        .help(Limits, "keys that KEYS returns at most; 0 means all"),
    Setting::memory("proto-max-bulk-len", 1 << 20, BYTES_MAX, "512mb")
        .alias(&["max_bulk_len"])
        .help(Limits, "bytes of the longest argument, and so of a string value"),
    Setting::int("max_multi_bulk_len", 1, I32_MAX, "2147483647")
        .dragonfly()
        .fixed()
        .help(Limits, "arguments of one command"),
    Setting::new(
        "client-output-buffer-limit",
        SettingKind::OutputLimits,
        "normal 0 0 0 replica 256mb 64mb 60 pubsub 32mb 8mb 60",
    )
    .help(
        Limits,
        "class, hard and soft bytes, seconds above soft: clients that do not read are closed there",
    ),
    Setting::new("maxmemory-clients", SettingKind::MemoryOrPercent, "0").help(
        Limits,
        "bytes of all clients together, or percent of maxmemory: the fattest are closed; 0 is no limit",
    ),
    Setting::memory("max_client_iobuf_len", 1024, BYTES_MAX, "32kb")
        .dragonfly()
        .fixed()
        .no_effect("input is received into the parse buffer")
        .help(Limits, "bytes of one client's input buffer"),
    Setting::memory("pipeline_buffer_limit", 0, BYTES_MAX, "128mb")
        .dragonfly()
        .fixed()
        .no_effect("a client is read no faster than it is answered")
        .help(Limits, "bytes of queued requests per thread"),
    Setting::int("pipeline_queue_limit", 0, U32_MAX, "10000")
        .dragonfly()
        .fixed()
        .no_effect("a client is read no faster than it is answered")
        .help(Limits, "queued requests per client"),
    Setting::memory("publish_buffer_limit", 0, BYTES_MAX, "196mb")
        .dragonfly()
        .fixed()
        .no_effect("client-output-buffer-limit pubsub bounds it")
        .help(Limits, "bytes of published messages per thread"),
    Setting::int("pubsub_slow_subscriber_timeout_ms", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect("client-output-buffer-limit pubsub bounds it")
        .help(Limits, "milliseconds a subscriber may not read"),
    Setting::memory("request_cache_limit", 0, BYTES_MAX, "64mb")
        .dragonfly()
        .fixed()
        .no_effect("requests are not copied, so none are kept")
        .help(Limits, "bytes of recycled requests per thread"),
    Setting::memory("squashed_reply_size_limit", 0, BYTES_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect("replies go straight to the client's buffer")
        .help(Limits, "bytes of captured replies"),
    Setting::int("tracking-table-max-keys", 0, i64::MAX, "1000000")
        .help(Limits, "keys that client-side caching remembers"),
    Setting::memory("disk_backpressure_file_max_bytes", 0, BYTES_MAX, "50mb")
        .dragonfly()
        .fixed()
        .no_effect("a slow client is slowed down, not spilled")
        .help(Limits, "bytes of one spill file"),
    Setting::text("disk_backpressure_folder", "/tmp/")
        .dragonfly()
        .fixed()
        .no_effect("a slow client is slowed down, not spilled")
        .help(Limits, "folder of spill files"),
];
