//! The memory limit, eviction, expiry and freeing.

use super::{BYTES_MAX, I32_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Memory, SettingKind};

const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "allkeys-lrm",
    "volatile-lrm",
    "noeviction",
];

const COUNTED_OTHERWISE: &str = "uses of a key are not counted by factor and decay";
const FREED_AT_ONCE: &str = "large values are freed in small steps by the thread that owns them";
const NO_DEFRAG: &str = "values are moved when it frees pages, within the time of housekeeping";
const OWN_EVICTION: &str = "eviction runs in the write that needs the memory";

pub(super) const ROWS: &[Setting] = &[
    Setting::memory("maxmemory", 0, u64::MAX, "0")
        .help(Memory, "memory limit, as in 100mb or 12gb; 0 chooses by the memory of the machine"),
    Setting::choice("maxmemory-policy", POLICIES, "noeviction")
        .help(Memory, "the keys that are evicted at the limit"),
    Setting::bool("cache_mode", "false").dragonfly().fixed().help(
        Memory,
        "at the limit, evict the keys least likely to be read again instead of refusing writes",
    ),
    Setting::int("maxmemory-samples", 1, I32_MAX, "5")
        .no_effect("eviction does not sample")
        .help(Memory, "keys Redis samples for eviction"),
    Setting::int("maxmemory-eviction-tenacity", 0, 100, "10")
        .no_effect(OWN_EVICTION)
        .help(Memory, "how long Redis evicts at a time"),
    Setting::new("rss_oom_deny_ratio", SettingKind::Real(0.0, 1000.0), "1.25")
        .dragonfly()
        .fixed()
        .no_effect("maxmemory alone decides")
        .help(Memory, "refuse writes that need memory when resident memory exceeds maxmemory times this"),
    Setting::new("eviction_memory_budget_threshold", SettingKind::Real(0.0, 1.0), "0.1")
        .dragonfly()
        .fixed()
        .no_effect(OWN_EVICTION)
        .help(Memory, "free share of maxmemory where eviction starts"),
    Setting::bool("enable_heartbeat_eviction", "true")
        .dragonfly()
        .no_effect(OWN_EVICTION)
        .help(Memory, "evict in the background too"),
    Setting::bool("enable_heartbeat_rss_eviction", "true")
        .dragonfly()
        .no_effect(OWN_EVICTION)
        .help(Memory, "evict when resident memory grows too"),
    Setting::int("max_eviction_per_heartbeat", 0, U32_MAX, "100")
        .dragonfly()
        .no_effect(OWN_EVICTION)
        .help(Memory, "keys evicted per step"),
    Setting::int("max_segment_to_consider", 0, U32_MAX, "4")
        .dragonfly()
        .no_effect(OWN_EVICTION)
        .help(Memory, "segments looked at per step"),
    Setting::new("table_growth_margin", SettingKind::Real(0.0, 1.0), "0.15")
        .dragonfly()
        .no_effect("the index grows by one segment of 4 KiB at a time")
        .help(Memory, "share of free slots that blocks growth near the limit"),
    Setting::int("lfu-log-factor", 0, I32_MAX, "10")
        .no_effect(COUNTED_OTHERWISE)
        .help(Memory, "how slowly OBJECT FREQ rises"),
    Setting::int("lfu-decay-time", 0, I32_MAX, "1")
        .no_effect(COUNTED_OTHERWISE)
        .help(Memory, "minutes until OBJECT FREQ falls by one"),
    Setting::new("hz", SettingKind::Clamped(1, 500), "100")
        .help(Memory, "times a second that expiry and other housekeeping run"),
    Setting::bool("dynamic-hz", "yes")
        .no_effect("housekeeping takes what time is left over")
        .help(Memory, "raise hz with the number of clients"),
    Setting::int("active-expire-effort", 1, 10, "1")
        .no_effect("expired keys are found by index, without searching")
        .help(Memory, "how hard to look for expired keys"),
    Setting::bool("lazyfree-lazy-eviction", "no")
        .no_effect(FREED_AT_ONCE)
        .help(Memory, "free evicted values in the background"),
    Setting::bool("lazyfree-lazy-expire", "no")
        .no_effect(FREED_AT_ONCE)
        .help(Memory, "free expired values in the background"),
    Setting::bool("lazyfree-lazy-server-del", "no")
        .no_effect(FREED_AT_ONCE)
        .help(Memory, "free overwritten values in the background"),
    Setting::bool("lazyfree-lazy-user-del", "no").no_effect(FREED_AT_ONCE).help(Memory, "DEL as UNLINK"),
    Setting::bool("lazyfree-lazy-user-flush", "no")
        .no_effect(FREED_AT_ONCE)
        .help(Memory, "FLUSHALL and FLUSHDB as ASYNC unless they say SYNC"),
    Setting::bool("activedefrag", "yes").help(
        Memory,
        "move values together to free pages while there is time; at the limit it is done anyway",
    ),
    Setting::memory("active-defrag-ignore-bytes", 1, BYTES_MAX, "100mb")
        .no_effect(NO_DEFRAG)
        .help(Memory, "waste that starts defragmentation"),
    Setting::int("active-defrag-threshold-lower", 0, 1000, "10")
        .no_effect(NO_DEFRAG)
        .help(Memory, "percent of waste that starts defragmentation"),
    Setting::int("active-defrag-threshold-upper", 0, 1000, "100")
        .no_effect(NO_DEFRAG)
        .help(Memory, "percent of waste that takes all effort"),
    Setting::int("active-defrag-cycle-min", 1, 99, "1")
        .no_effect(NO_DEFRAG)
        .help(Memory, "least effort, percent of CPU"),
    Setting::int("active-defrag-cycle-max", 1, 99, "25")
        .no_effect(NO_DEFRAG)
        .help(Memory, "most effort, percent of CPU"),
    Setting::int("active-defrag-cycle-us", 0, 100_000, "500")
        .no_effect(NO_DEFRAG)
        .help(Memory, "microseconds of effort at a time"),
    Setting::int("active-defrag-max-scan-fields", 1, i64::MAX, "1000")
        .no_effect(NO_DEFRAG)
        .help(Memory, "elements of one value per step"),
    Setting::new("mem_defrag_threshold", SettingKind::Real(0.0, 1.0), "0.7")
        .dragonfly()
        .fixed()
        .no_effect(NO_DEFRAG)
        .help(Memory, "share of maxmemory in use below which nothing moves"),
    Setting::new("mem_defrag_page_utilization_threshold", SettingKind::Real(0.0, 1.0), "0.8")
        .dragonfly()
        .fixed()
        .no_effect(NO_DEFRAG)
        .help(Memory, "use of a page below which its values move"),
    Setting::new("mem_defrag_waste_threshold", SettingKind::Real(0.0, 1.0), "0.2")
        .dragonfly()
        .fixed()
        .no_effect(NO_DEFRAG)
        .help(Memory, "wasted share that starts defragmentation"),
    Setting::int("mem_defrag_check_sec_interval", 0, U32_MAX, "60")
        .dragonfly()
        .fixed()
        .no_effect(NO_DEFRAG)
        .help(Memory, "seconds between looks at the waste"),
    Setting::bool("disable_json_defragmentation", "false")
        .dragonfly()
        .fixed()
        .no_effect(NO_DEFRAG)
        .help(Memory, "do not move JSON values"),
    Setting::bool("activerehashing", "yes")
        .no_effect("the index grows in steps of 4 KiB, so nothing is rehashed")
        .help(Memory, "rehash in the background"),
    Setting::bool("jemalloc-bg-thread", "yes")
        .no_effect("memory is managed by Darter's own slabs")
        .help(Memory, "a thread of the allocator"),
    Setting::bool("key-memory-histograms", "no")
        .hidden()
        .no_effect("sizes are counted by MEMORY STATS")
        .help(Memory, "histograms of key sizes"),
];
