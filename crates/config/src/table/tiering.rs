//! Spilling values to disk.

use super::{BYTES_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Tiering, SettingKind};

const NO_TIERING: &str = "tiering is missing";

pub(super) const ROWS: &[Setting] = &[
    Setting::bool("backing_file_direct", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "files bypass the page cache"),
    Setting::int("list_tiering_prefetch_depth", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "list nodes read ahead"),
    Setting::int("list_tiering_threshold", 0, U32_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "nodes of a list before its middle is moved to disk; 0 means never"),
    Setting::bool("tiered_experimental_cooling", "true")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "keep values in memory for a while"),
    Setting::bool("tiered_experimental_hash_support", "false")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "move hashes to disk"),
    Setting::bool("tiered_experimental_list_support", "false")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "move lists to disk"),
    Setting::memory("tiered_max_file_size", 0, BYTES_MAX, "0")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "bytes of the files; 0 means automatic"),
    Setting::memory("tiered_max_pending_stash_bytes", 0, BYTES_MAX, "256kb")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "bytes on their way to disk"),
    Setting::int("tiered_min_ttl_to_offload_ms", 0, U32_MAX, "5000")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "milliseconds to live that are worth it"),
    Setting::memory("tiered_min_value_size", 0, BYTES_MAX, "64")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "bytes of a value that are worth it"),
    Setting::new("tiered_offload_threshold", SettingKind::Real(0.0, 1.0), "0.5")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "free share of memory below which values are moved to disk"),
    Setting::text("tiered_prefix", "")
        .dragonfly()
        .fixed()
        .not_yet("tiering to disk")
        .help(Tiering, "path prefix of the files; empty turns tiering off"),
    Setting::new("tiered_upload_threshold", SettingKind::Real(0.0, 1.0), "0.1")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "free share of memory below which values stay on disk"),
    Setting::memory("tiering_disk_storage_initial_size", 0, BYTES_MAX, "256mb")
        .dragonfly()
        .fixed()
        .no_effect(NO_TIERING)
        .help(Tiering, "bytes of a new file"),
];
