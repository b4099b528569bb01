//! Encryption of client, replica and cluster connections.

use super::{I32_MAX, PORT_MAX};
use crate::setting::{Setting, SettingChange, SettingGroup::Tls};

pub(super) const ROWS: &[Setting] = &[
    Setting::bool("tls", "false")
        .dragonfly()
        .change(SettingChange::Applied)
        .help(Tls, "encrypt every port (Unix sockets stay plain)"),
    Setting::int("tls-port", 0, PORT_MAX, "0")
        .change(SettingChange::Applied)
        .help(Tls, "port that is encrypted, beside the main one; 0 means none"),
    Setting::bool("no_tls_on_admin_port", "false")
        .dragonfly()
        .fixed()
        .help(Tls, "leave the admin port unencrypted"),
    Setting::text("tls-cert-file", "")
        .change(SettingChange::Applied)
        .help(Tls, "certificate and its chain, PEM"),
    Setting::text("tls-key-file", "").change(SettingChange::Applied).help(Tls, "its private key, PEM"),
    Setting::text("tls-key-file-pass", "")
        .secret()
        .not_yet("an encrypted key")
        .help(Tls, "password of that key"),
    Setting::text("tls-client-cert-file", "")
        .help(Tls, "certificate for the connection to the master; empty means tls-cert-file"),
    Setting::text("tls-client-key-file", "").help(Tls, "its private key"),
    Setting::text("tls-client-key-file-pass", "")
        .secret()
        .not_yet("an encrypted key")
        .help(Tls, "password of that key"),
    Setting::text("tls-dh-params-file", "")
        .no_effect("key exchange is by elliptic curves only")
        .help(Tls, "Diffie-Hellman parameters"),
    Setting::text("tls-ca-cert-file", "")
        .change(SettingChange::Applied)
        .help(Tls, "authorities that clients' and masters' certificates must come from, PEM"),
    Setting::text("tls-ca-cert-dir", "")
        .change(SettingChange::Applied)
        .help(Tls, "folder of such authorities"),
    Setting::choice("tls-auth-clients", &["no", "yes", "optional"], "yes")
        .change(SettingChange::Applied)
        .help(Tls, "whether clients must show a certificate when authorities are given"),
    Setting::text("tls-protocols", "")
        .change(SettingChange::Applied)
        .help(Tls, "versions to offer, of TLSv1.2 and TLSv1.3; empty means both"),
    Setting::text("tls-ciphers", "").no_effect("only safe ciphers exist").help(Tls, "ciphers of TLS 1.2"),
    Setting::text("tls-ciphersuites", "")
        .alias(&["tls_cipher_suites"])
        .change(SettingChange::Applied)
        .help(Tls, "ciphers of TLS 1.3, between colons; empty means all"),
    Setting::bool("tls-prefer-server-ciphers", "no")
        .change(SettingChange::Applied)
        .help(Tls, "the server's order of ciphers wins"),
    Setting::bool("tls-session-caching", "yes")
        .change(SettingChange::Applied)
        .help(Tls, "let clients resume sessions"),
    Setting::int("tls-session-cache-size", 0, I32_MAX, "20480")
        .change(SettingChange::Applied)
        .help(Tls, "sessions to remember for clients without tickets"),
    Setting::int("tls-session-cache-timeout", 0, I32_MAX, "300")
        .no_effect("tickets are good for six to twelve hours")
        .help(Tls, "seconds to remember them"),
    Setting::bool("tls-replication", "no").help(Tls, "encrypt the connection to the master"),
    Setting::bool("tls-cluster", "no")
        .help(Tls, "encrypt connections to other nodes of a cluster, and MIGRATE"),
];
