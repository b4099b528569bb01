//! The table itself.

use super::value::SettingValue;
use super::*;

#[test]
fn every_value_survives_being_printed_and_read() {
    for id in table::ids() {
        let setting = table::setting(id);
        let default = table::default_of(id);
        for text in [default.print(setting.spelling), default.print_for_file(setting.spelling)] {
            let read = setting.parse_text(&text, None);
            let same = match (&read, default) {
                (Ok(SettingValue::Dir(read)), SettingValue::Dir(default)) => {
                    value::absolute(read) == value::absolute(default)
                }
                (read, default) => read.as_ref() == Ok(default),
            };
            assert!(same, "{} printed as '{text}' reads as {read:?}", setting.name);
        }
    }
}

#[test]
fn every_row_is_complete() {
    for setting in settings() {
        assert!(!setting.help.is_empty(), "{} has no help", setting.name);
        let wrong = if setting.spelling == Spelling::Redis { '_' } else { '-' };
        assert!(!setting.name.contains(wrong), "{} is not spelled as its kin", setting.name);
        if matches!(setting.kind, SettingKind::Bool) {
            let words = ["yes", "no", "true", "false"];
            assert!(words.contains(&setting.default), "{} starts as {}", setting.name, setting.default);
        }
    }
}

#[test]
fn what_works_is_a_field_that_the_server_can_read() {
    let fields = [
        include_str!("../live/mod.rs"),
        include_str!("../live/fields.rs"),
        include_str!("../live/replication.rs"),
    ]
    .concat();
    for setting in settings().filter(|setting| setting.status == SettingStatus::Works) {
        let read = format!("\"{}\"", setting.name);
        assert!(fields.contains(&read), "{} cannot have an effect: nothing reads it", setting.name);
    }
}

#[test]
fn names_of_the_promises_exist() {
    let names = "port bind requirepass maxmemory dir dbfilename memcached_port keys_output_limit dbnum cache_mode hz \
                 snapshot_cron save_schedule primary_port_http_enabled admin_port admin_bind admin_nopass cluster_mode \
                 cluster_announce_ip announce_port logtostderr proactor_threads http_admin_console tls tls_cert_file \
                 tls_key_file tls_ca_cert_file databases save appendonly force_epoll df_snapshot_format";
    for name in names.split_ascii_whitespace() {
        assert!(find(name).is_some(), "{name}");
    }
}

#[test]
fn names_that_test_suites_set_exist() {
    let names = "acl-pubsub-default acllog-max-len active-defrag-cycle-max active-defrag-cycle-min \
                 active-defrag-ignore-bytes active-defrag-max-scan-fields active-defrag-threshold-lower activedefrag \
                 aof-use-rdb-preamble appendfsync auto-aof-rewrite-percentage bind-source-addr busy-reply-threshold \
                 client-output-buffer-limit client-query-buffer-limit cluster-allow-replica-migration \
                 cluster-announce-bus-port cluster-announce-client-ipv4 cluster-announce-client-ipv6 \
                 cluster-announce-hostname cluster-announce-human-nodename cluster-announce-port \
                 cluster-announce-tls-port cluster-link-sendbuf-limit cluster-node-timeout \
                 cluster-preferred-endpoint-type cluster-replica-no-failover cluster-replica-validity-factor \
                 cluster-require-full-coverage cluster-slave-validity-factor cluster-slot-stats-enabled daemonize \
                 dual-channel-replication-enabled dynamic-hz extended-redis-compatibility hash-max-listpack-entries \
                 hash-max-listpack-value hash-max-ziplist-entries hash-max-ziplist-value hll-sparse-max-bytes \
                 io-threads key-load-delay latency-monitor-threshold latency-tracking \
                 latency-tracking-info-percentiles lazyfree-lazy-expire lazyfree-lazy-server-del list-compress-depth \
                 list-max-listpack-size list-max-ziplist-size loading-process-events-interval-bytes loglevel \
                 lua-time-limit maxclients maxmemory-clients maxmemory-eviction-tenacity maxmemory-policy \
                 min-replicas-to-write notify-keyspace-events oom-score-adj oom-score-adj-values \
                 prefetch-batch-max-size primaryauth primaryuser proc-title-template proto-max-bulk-len protected-mode \
                 rdb-key-save-delay rdbcompression repl-backlog-size repl-backlog-ttl repl-diskless-load \
                 repl-diskless-sync repl-diskless-sync-delay repl-ping-replica-period repl-timeout replica-read-only \
                 replica-serve-stale-data requirepass set-max-intset-entries set-max-listpack-entries \
                 set-max-listpack-value shutdown-on-sigint shutdown-on-sigterm slave-read-only slowlog-log-slower-than \
                 slowlog-max-len stream-node-max-bytes stream-node-max-entries tls-auth-clients tls-ciphers \
                 tls-client-key-file-pass tls-key-file tls-key-file-pass tls-port tls-prefer-server-ciphers \
                 tls-protocols tracking-table-max-keys unixsocket zset-max-listpack-entries zset-max-ziplist-entries \
                 zset-max-ziplist-value aclfile rename-command user loadmodule cluster-enabled cluster-port \
                 cluster-ping-interval unixsocketgroup unixsocketperm enable-debug-command enable-module-command \
                 enable-protected-configs";
    for name in names.split_ascii_whitespace() {
        assert!(find(name).is_some(), "{name}");
    }
}

#[test]
fn dashes_underscores_dots_and_case_are_the_same() {
    let expected = find("maxmemory-policy").map(|setting| setting.name);
    for name in ["maxmemory_policy", "maxmemory.policy", "MaxMemory-Policy"] {
        assert_eq!(find(name).map(|setting| setting.name), expected);
    }
    for name in ["", "max", "maxmemory-policy ", "maxmemory--policy"] {
        assert!(find(name).is_none(), "{name}");
    }
}

#[test]
fn the_reference_page_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flags.md");
    let text = reference();
    if std::env::var_os("DARTER_BLESS").is_some() {
        fs::write(path, &text).expect("docs/flags.md can be written");
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == text,
        "docs/flags.md is out of date: DARTER_BLESS=1 cargo test -p darter-server reference"
    );
}

#[test]
fn no_text_makes_a_kind_panic() {
    let pieces =
        ["", "-", "0", "-0", "00", "1", "9223372036854775808", "1e400", "NaN", "-inf", "%", "101%", "-1%"];
    let more = [
        "1kb",
        "1.5g",
        "18446744073709551615gb",
        "\u{0}",
        "é%",
        "a b c d",
        "normal 1 2 3",
        "K\u{1F600}",
        "{",
    ];
    for setting in settings() {
        for text in pieces.iter().chain(&more) {
            if let Ok(value) = setting.parse_text(text, None) {
                let printed = value.print(setting.spelling);
                let again = setting.parse_text(&printed, None).map(|value| value.print(setting.spelling));
                assert_eq!(again, Ok(printed), "{} = '{text}'", setting.name);
            }
        }
    }
}
