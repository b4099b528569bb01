//! Ports, sockets, threads and the rights of clients before login.

use super::{BYTES_MAX, I32_MAX, LOCAL_ACTIONS, PORT_MAX, U32_MAX};
use crate::check;
use crate::setting::{Setting, SettingChange, SettingGroup::Network, SettingGroup::Security, SettingKind};

pub(super) const ROWS: &[Setting] = &[
    Setting::int("port", -1, PORT_MAX, "6379")
        .change(SettingChange::Applied)
        .help(Network, "TCP port; 0 listens on none, -1 on any that is free"),
    Setting::new("bind", SettingKind::Words(16), "").change(SettingChange::Applied).help(
        Network,
        "addresses to listen on; empty means all; an address after '-' may be absent from this machine",
    ),
    Setting::text("unixsocket", "")
        .fixed()
        .help(Network, "path of a Unix socket to listen on; empty means none"),
    Setting::new("unixsocketperm", SettingKind::Octal(0, 0o777), "0")
        .fixed()
        .help(Network, "octal permissions of the Unix socket; 0 leaves the umask alone"),
    Setting::text("unixsocketgroup", "")
        .fixed()
        .not_yet("a group for the Unix socket")
        .help(Network, "group that owns the Unix socket"),
    Setting::int("proactor_threads", 0, 1024, "0")
        .alias(&["threads"])
        .dragonfly()
        .fixed()
        .help(Network, "threads that serve clients and hold data; 0 means one per CPU"),
    Setting::int("num_shards", 0, 1024, "0")
        .alias(&["shards"])
        .dragonfly()
        .fixed()
        .help(Network, "parts the data is split into; 0 means as many as fit the threads"),
    Setting::bool("force_epoll", "false")
        .dragonfly()
        .fixed()
        .help(Network, "use epoll even where io_uring works"),
    Setting::int("tcp-backlog", 0, I32_MAX, "4096")
        .fixed()
        .help(Network, "connections the kernel holds before accept"),
    Setting::int("tcp-keepalive", 0, I32_MAX, "300")
        .help(Network, "seconds of silence before keep-alive probes; 0 turns them off"),
    Setting::bool("tcp_nodelay", "true")
        .dragonfly()
        .fixed()
        .help(Network, "send replies without waiting for more"),
    Setting::int("tcp_user_timeout", 0, I32_MAX, "0")
        .dragonfly()
        .fixed()
        .help(Network, "milliseconds sent data may stay unacknowledged; 0 leaves it to the system"),
    Setting::bool("enable_tcp_defer_accept", "true")
        .dragonfly()
        .fixed()
        .no_effect("connections are accepted when they arrive")
        .help(Network, "accept a connection when its first bytes arrive"),
    Setting::int("timeout", 0, I32_MAX, "0")
        .help(Network, "seconds until an idle client is closed; 0 means never"),
    Setting::int("send_timeout", 0, I32_MAX, "0")
        .dragonfly()
        .help(Network, "seconds until a client that does not read is closed; 0 means never"),
    Setting::int("memcached_port", 0, PORT_MAX, "0")
        .dragonfly()
        .fixed()
        .help(Network, "port for memcached clients; 0 means none"),
    Setting::memory("memcached_item_size_max", 1024, 1 << 30, "1mb")
        .dragonfly()
        .help(Network, "largest item that memcached clients may store, with key and head"),
    Setting::int("admin_port", 0, PORT_MAX, "0")
        .dragonfly()
        .fixed()
        .help(Network, "second port for administrators, RESP and HTTP; 0 means none"),
    Setting::text("admin_bind", "")
        .dragonfly()
        .fixed()
        .help(Network, "addresses of the admin port; empty means those of bind"),
    Setting::bool("admin_nopass", "false").dragonfly().fixed().help(
        Network,
        "no password on the admin port, which must be on loopback unless protected-mode is off",
    ),
    Setting::bool("primary_port_http_enabled", "true")
        .dragonfly()
        .fixed()
        .help(Network, "serve HTTP (console, /metrics) on the main port"),
    Setting::bool("http_admin_console", "true").dragonfly().fixed().help(Network, "the HTTP console as such"),
    Setting::bool("http_console_readonly", "false")
        .dragonfly()
        .fixed()
        .help(Network, "the console shows data and changes none; its commands that would are refused"),
    Setting::bool("expose_http_api", "false")
        .dragonfly()
        .fixed()
        .help(Network, "take commands as JSON arrays by POST /api"),
    Setting::text("bind-source-addr", "")
        .not_yet("a source address for outgoing connections")
        .help(Network, "local address of outgoing connections"),
    Setting::int("socket-mark-id", 0, U32_MAX, "0")
        .fixed()
        .not_yet("socket marks")
        .help(Network, "SO_MARK of listening sockets"),
    Setting::int("max-new-connections-per-cycle", 1, 1000, "10")
        .no_effect("every waiting connection is accepted")
        .help(Network, "connections accepted per turn of the loop"),
    Setting::int("max-new-tls-connections-per-cycle", 1, 1000, "1")
        .no_effect("every waiting connection is accepted")
        .help(Network, "TLS connections accepted per turn of the loop"),
    Setting::int("io-threads", 1, 128, "1")
        .fixed()
        .no_effect("every thread serves clients and data; see proactor_threads")
        .help(Network, "Redis' I/O threads"),
    Setting::bool("io-threads-do-reads", "no")
        .fixed()
        .no_effect("every thread serves clients and data; see proactor_threads")
        .help(Network, "whether Redis' I/O threads read"),
    Setting::bool("io-threads-always-active", "no")
        .hidden()
        .no_effect("every thread serves clients and data; see proactor_threads")
        .help(Network, "keep Valkey's I/O threads awake"),
    Setting::int("min-io-threads-avoid-copy-reply", 0, I32_MAX, "7")
        .hidden()
        .no_effect("every thread serves clients and data; see proactor_threads")
        .help(Network, "I/O threads from which Valkey sends values without copying"),
    Setting::int("min-string-size-avoid-copy-reply", 0, I32_MAX, "16384")
        .hidden()
        .no_effect("long replies are sent in slices")
        .help(Network, "bytes from which Valkey sends a value without copying"),
    Setting::int("min-string-size-avoid-copy-reply-threaded", 0, I32_MAX, "65536")
        .hidden()
        .no_effect("long replies are sent in slices")
        .help(Network, "the same for its I/O threads"),
    Setting::int("events-per-io-thread", 0, I32_MAX, "2")
        .no_effect("every thread serves clients and data; see proactor_threads")
        .help(Network, "Valkey's load per I/O thread"),
    Setting::int("prefetch-batch-max-size", 0, 128, "16")
        .no_effect("a pipeline is prefetched as far as it has arrived")
        .help(Network, "Valkey's commands per prefetched batch"),
    Setting::text("requirepass", "")
        .secret()
        .help(Security, "password of the default user; DFLY_PASSWORD is read too"),
    Setting::bool("protected-mode", "yes")
        .help(Security, "refuse clients from other machines while there is no password"),
    Setting::choice("enable-debug-command", LOCAL_ACTIONS, "local")
        .fixed()
        .help(Security, "clients that may call DEBUG: none, those on this machine, all"),
    Setting::choice("enable-module-command", LOCAL_ACTIONS, "no")
        .fixed()
        .help(Security, "clients that may call MODULE"),
    Setting::choice("enable-protected-configs", LOCAL_ACTIONS, "no")
        .fixed()
        .help(Security, "clients that may change dir and dbfilename by CONFIG SET"),
    Setting::text("aclfile", "").fixed().help(Security, "file of ACL users"),
    Setting::int("acllog-max-len", 0, i64::MAX, "128").help(Security, "entries of ACL LOG"),
    Setting::choice("acl-pubsub-default", &["allchannels", "resetchannels"], "resetchannels")
        .help(Security, "channels a new ACL user may use"),
    Setting::new("user", SettingKind::Words(1024), "")
        .directive()
        .secret()
        .help(Security, "an ACL user and its rules; may be given for several users"),
    Setting::new("rename-command", SettingKind::Words(1024), "")
        .directive()
        .help(Security, "give a command another name, or none: NAME NEW"),
    Setting::new("command_alias", SettingKind::Words(1024), "")
        .dragonfly()
        .directive()
        .not_yet("command aliases")
        .help(Security, "alias=command pairs"),
    Setting::new("restricted_commands", SettingKind::Words(1024), "")
        .dragonfly()
        .fixed()
        .help(Security, "commands that only the admin port takes"),
    Setting::new("loadmodule", SettingKind::Words(1024), "")
        .directive()
        .not_yet("loading modules (search, JSON and filters are part of the server)")
        .help(Security, "a module to load"),
    Setting::checked("availability-zone", "", check::printable)
        .help(Network, "zone that INFO and CLIENT answer, for clients that read nearby"),
    Setting::bool("version_check", "true")
        .dragonfly()
        .fixed()
        .no_effect("Darter never calls home")
        .help(Network, "ask for new versions daily"),
    Setting::memory("client-query-buffer-limit", 1 << 20, BYTES_MAX, "1gb")
        .help(crate::setting::SettingGroup::Limits, "bytes of one client's request that may be incomplete"),
];
