//! The process and its machine.

use super::I32_MAX;
use crate::check;
use crate::setting::{Setting, SettingGroup::System, SettingKind};

const SHUTDOWN: &[&str] = &["default", "save", "nosave", "now", "force"];
const PINNED: &str = "pinning to given CPUs; taskset does it";

pub(super) const ROWS: &[Setting] = &[
    Setting::bool("daemonize", "no")
        .fixed()
        .no_effect("the process stays in the foreground: the service manager or the shell puts it into the background")
        .help(System, "go to the background"),
    Setting::choice("supervised", &["upstart", "systemd", "auto", "no"], "no")
        .fixed()
        .no_effect("systemd is notified of start and stop if NOTIFY_SOCKET is set")
        .help(System, "supervisor to tell about start and stop"),
    Setting::text("pidfile", "").fixed().help(System, "file to write the process id to"),
    Setting::bool("set-proc-title", "yes")
        .fixed()
        .no_effect("the title stays as started")
        .help(System, "change the process title"),
    Setting::checked("proc-title-template", "{title} {listen-addr} {server-mode}", check::title_template)
        .no_effect("the title stays as started")
        .help(System, "that title"),
    Setting::text("locale-collate", "")
        .no_effect("text is compared by bytes")
        .help(System, "locale of SORT ALPHA"),
    Setting::choice("proactor_affinity_mode", &["on", "off", "auto"], "auto")
        .dragonfly()
        .fixed()
        .help(System, "bind each thread to a CPU; auto: if a CPU is left for other processes"),
    Setting::text("server-cpulist", "").fixed().not_yet(PINNED).help(System, "CPUs of the server"),
    Setting::text("bio-cpulist", "").fixed().not_yet(PINNED).help(System, "CPUs of background threads"),
    Setting::text("aof-rewrite-cpulist", "").fixed().not_yet(PINNED).help(System, "CPUs of rewrites"),
    Setting::text("bgsave-cpulist", "").fixed().not_yet(PINNED).help(System, "CPUs of snapshots"),
    Setting::choice("oom-score-adj", &["no", "yes", "relative", "absolute"], "no")
        .help(System, "tell the kernel whom to kill first: relative to the score at start, or absolute"),
    Setting::new("oom-score-adj-values", SettingKind::OomScores, "0 200 800")
        .help(System, "scores of master, replica and child; the first is the one that counts here"),
    Setting::bool("disable-thp", "yes")
        .fixed()
        .no_effect("memory is aligned so that huge pages do no harm")
        .help(System, "turn transparent huge pages off"),
    Setting::int("shutdown-timeout", 0, I32_MAX, "10")
        .no_effect("there are neither replicas nor snapshots yet")
        .help(System, "seconds to wait for replicas"),
    Setting::new("shutdown-on-sigint", SettingKind::Choices(SHUTDOWN), "default").help(System, "what SIGINT does"),
    Setting::new("shutdown-on-sigterm", SettingKind::Choices(SHUTDOWN), "default").help(System, "what SIGTERM does"),
    Setting::bool("extended-redis-compatibility", "no")
        .no_effect("INFO always says redis_version")
        .help(System, "Valkey calls itself Redis"),
    Setting::bool("use-exit-on-panic", "no")
        .hidden()
        .no_effect("for tests of Redis")
        .help(System, "exit instead of abort"),
    Setting::bool("enable-debug-assert", "no")
        .hidden()
        .fixed()
        .no_effect("for tests of Redis")
        .help(System, "more assertions"),
    Setting::int("watchdog-period", 0, I32_MAX, "0")
        .hidden()
        .no_effect("there is no software watchdog")
        .help(System, "milliseconds of Redis' watchdog"),
    Setting::text("debug-context", "")
        .hidden()
        .no_effect("for tests of Redis")
        .help(System, "text in crash reports"),
    Setting::int("pause_wait_timeout", 0, I32_MAX, "1")
        .dragonfly()
        .fixed()
        .no_effect("a pause holds at once")
        .help(System, "seconds until a pause must hold"),
    Setting::bool("omit_basic_usage", "false")
        .dragonfly()
        .fixed()
        .no_effect("there is no such text")
        .help(System, "no usage text at start-up"),
];
