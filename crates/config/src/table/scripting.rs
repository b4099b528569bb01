//! Lua scripts and functions.

use super::{BYTES_MAX, U32_MAX};
use crate::check;
use crate::setting::{Setting, SettingGroup::Scripting, SettingKind};

const ANY_KEYS: &str = "every script may touch any key";
const ATOMIC: &str = "a call is a function call and never waits";
const ONE_STATE: &str = "a thread has one interpreter, tidied when it holds more than 4 MiB";
const WHOLE_NUMBERS: &str = "scripts return whole numbers, as those of Redis do";

pub(super) const ROWS: &[Setting] = &[
    Setting::int("busy-reply-threshold", 0, i64::MAX, "5000")
        .alias(&["lua-time-limit"])
        .help(Scripting, "milliseconds after which other clients get BUSY"),
    Setting::memory("lua_memory_limit", 0, BYTES_MAX, "0").dragonfly().help(
        Scripting,
        "bytes that the scripts of one thread may hold together; 0 means as many as maxmemory",
    ),
    Setting::checked("default_lua_flags", "", check::script_flags)
        .dragonfly()
        .fixed()
        .no_effect("what these flags allow is allowed to every script")
        .help(Scripting, "flags of every script: allow-undeclared-keys, disable-atomicity, legacy-float"),
    Setting::bool("lua_allow_undeclared_auto_correct", "false")
        .dragonfly()
        .fixed()
        .no_effect(ANY_KEYS)
        .help(Scripting, "remember scripts that touch undeclared keys"),
    Setting::new("lua_undeclared_keys_shas", SettingKind::Words(4096), "")
        .dragonfly()
        .no_effect(ANY_KEYS)
        .help(Scripting, "scripts that may touch undeclared keys"),
    Setting::new("lua_float_as_int_shas", SettingKind::Words(4096), "")
        .dragonfly()
        .no_effect(WHOLE_NUMBERS)
        .help(Scripting, "scripts whose fractions become whole numbers"),
    Setting::bool("lua_auto_async", "false")
        .dragonfly()
        .fixed()
        .no_effect(ATOMIC)
        .help(Scripting, "do not wait for calls whose result is dropped"),
    Setting::bool("lua_enable_redis_log", "false")
        .dragonfly()
        .fixed()
        .no_effect("redis.log reaches the log as in Redis, if its level is kept")
        .help(Scripting, "let redis.log reach the log"),
    Setting::bool("lua_resp2_legacy_float", "false")
        .dragonfly()
        .fixed()
        .no_effect(WHOLE_NUMBERS)
        .help(Scripting, "fractions become whole numbers on RESP2"),
    Setting::memory("lua_mem_gc_threshold", 0, BYTES_MAX, "10000000")
        .dragonfly()
        .no_effect(ONE_STATE)
        .help(Scripting, "bytes of a script heap that start its collector"),
    Setting::text("luagc", "")
        .dragonfly()
        .fixed()
        .no_effect(ONE_STATE)
        .help(Scripting, "mode of that collector"),
    Setting::int("interpreter_per_thread", 1, U32_MAX, "10")
        .dragonfly()
        .fixed()
        .no_effect(ONE_STATE)
        .help(Scripting, "interpreters per thread"),
    Setting::int("multi_eval_squash_buffer", 0, U32_MAX, "8096")
        .dragonfly()
        .fixed()
        .no_effect(ATOMIC)
        .help(Scripting, "bytes of calls gathered per script"),
    Setting::bool("migrate_connections", "true")
        .dragonfly()
        .fixed()
        .no_effect("a connection runs its commands on any shard")
        .help(Scripting, "move a connection to the thread that owns its keys"),
];
