//! The log, the slow log, latency and keyspace events.

use super::{I32_MAX, U32_MAX};
use crate::setting::{Setting, SettingGroup::Logging, SettingKind};

const UNBUFFERED: &str = "every line is written at once";

pub(super) const ROWS: &[Setting] = &[
    Setting::choice("loglevel", &["debug", "verbose", "notice", "warning", "nothing"], "notice")
        .help(Logging, "least important line that is logged"),
    Setting::text("logfile", "").fixed().help(Logging, "file to log to; empty means stderr"),
    Setting::bool("logtostderr", "false")
        .dragonfly()
        .fixed()
        .help(Logging, "log to stderr only, whatever else is set"),
    Setting::bool("alsologtostderr", "false")
        .dragonfly()
        .fixed()
        .help(Logging, "log to stderr as well as to a file"),
    Setting::text("log_dir", "").dragonfly().fixed().help(Logging, "folder to log to, in darter.log"),
    Setting::int("max_log_size", 1, U32_MAX, "200")
        .dragonfly()
        .fixed()
        .help(Logging, "megabytes after which darter.log is set aside as darter.log.1"),
    Setting::int("minloglevel", 0, 3, "0")
        .dragonfly()
        .help(Logging, "0 logs everything loglevel lets pass, 1 warnings, 2 errors, 3 nothing"),
    Setting::int("v", 0, 9, "0").dragonfly().help(Logging, "1 logs debug lines, 2 trace lines"),
    Setting::text("vmodule", "")
        .dragonfly()
        .fixed()
        .no_effect("there are no levels by module; see v")
        .help(Logging, "v by module"),
    Setting::int("stderrthreshold", 0, 3, "2")
        .dragonfly()
        .fixed()
        .no_effect("see alsologtostderr")
        .help(Logging, "level from which lines are also written to stderr"),
    Setting::int("logbuflevel", -1, 3, "0")
        .dragonfly()
        .fixed()
        .no_effect(UNBUFFERED)
        .help(Logging, "level that is buffered"),
    Setting::int("logbufsecs", 0, I32_MAX, "30")
        .dragonfly()
        .fixed()
        .no_effect(UNBUFFERED)
        .help(Logging, "seconds of buffering"),
    Setting::bool("syslog-enabled", "no").fixed().not_yet("syslog").help(Logging, "log to syslog"),
    Setting::text("syslog-ident", "darter")
        .fixed()
        .no_effect("syslog is not supported yet")
        .help(Logging, "name used there"),
    Setting::choice(
        "syslog-facility",
        &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"],
        "local0",
    )
    .fixed()
    .no_effect("syslog is not supported yet")
    .help(Logging, "facility used there"),
    Setting::bool("crash-log-enabled", "yes")
        .no_effect("a crash always reports its place")
        .help(Logging, "report crashes in the log"),
    Setting::bool("crash-memcheck-enabled", "yes")
        .no_effect("memory is not tested")
        .help(Logging, "test memory after a crash"),
    Setting::bool("hide-user-data-from-log", "yes")
        .no_effect("keys and values are never logged")
        .help(Logging, "keep keys and values out of the log"),
    Setting::bool("always-show-logo", "no")
        .fixed()
        .no_effect("there is no logo")
        .help(Logging, "a logo in the log"),
    Setting::text("ignore-warnings", "")
        .no_effect("there are no such warnings")
        .help(Logging, "warnings of Redis to ignore"),
    Setting::int("slowlog-log-slower-than", -1, i64::MAX, "10000")
        .alias(&["commandlog-execution-slower-than"])
        .help(Logging, "microseconds from which SLOWLOG keeps a command; -1 means never"),
    Setting::int("slowlog-max-len", 0, i64::MAX, "128")
        .alias(&["commandlog-slow-execution-max-len"])
        .help(Logging, "commands SLOWLOG keeps"),
    Setting::int("slowlog-entry-max-argc", 2, I32_MAX, "32").help(Logging, "arguments it keeps of each"),
    Setting::int("slowlog-entry-max-string-len", 1, I32_MAX, "128")
        .help(Logging, "bytes it keeps of each argument"),
    Setting::int("commandlog-request-larger-than", -1, i64::MAX, "1048576")
        .help(Logging, "bytes from which COMMANDLOG keeps a request; -1 means never"),
    Setting::int("commandlog-large-request-max-len", 0, i64::MAX, "128")
        .help(Logging, "large requests it keeps"),
    Setting::int("commandlog-reply-larger-than", -1, i64::MAX, "1048576")
        .help(Logging, "bytes from which COMMANDLOG keeps a reply; -1 means never"),
    Setting::int("commandlog-large-reply-max-len", 0, i64::MAX, "128")
        .help(Logging, "large replies it keeps"),
    Setting::int("latency-monitor-threshold", 0, i64::MAX, "0")
        .help(Logging, "milliseconds from which LATENCY keeps an event; 0 means never"),
    Setting::bool("latency-tracking", "yes").help(Logging, "latency histograms by command"),
    Setting::new("latency-tracking-info-percentiles", SettingKind::Percentiles, "50 99 99.9")
        .help(Logging, "percentiles that INFO latencystats shows"),
    Setting::new("notify-keyspace-events", SettingKind::Events, "")
        .help(Logging, "keyspace events to publish: K or E, and classes of g$lshzxetdnmoc or A"),
    Setting::bool("info_replication_valkey_compatible", "true")
        .dragonfly()
        .fixed()
        .no_effect("INFO names fields as Redis does")
        .help(Logging, "Valkey's words in INFO replication"),
    Setting::bool("keep_legacy_memory_metrics", "false")
        .dragonfly()
        .fixed()
        .no_effect("there are no older names")
        .help(Logging, "older names of memory metrics"),
    Setting::bool("managed_service_info", "false").dragonfly().help(Logging, "leave the machine out of INFO"),
];
