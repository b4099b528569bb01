//! Encryption of client, replica and cluster connections.

use super::{I32_MAX, PORT_MAX};
use crate::config::setting::{Change, Group::Tls, Setting};

const TLS: &str = "TLS";

const NO_TLS: &str = "TLS is not there yet";

pub(super) const ROWS: &[Setting] = &[
    Setting::bool("tls", "false").dragonfly().not_yet(TLS).help(Tls, "encrypt the main port"),
    Setting::int("tls-port", 0, PORT_MAX, "0")
        .change(Change::Applied)
        .not_yet(TLS)
        .help(Tls, "port that is encrypted, beside the main one; 0 means none"),
    Setting::bool("no_tls_on_admin_port", "false")
        .dragonfly()
        .fixed()
        .no_effect(NO_TLS)
        .help(Tls, "leave the admin port unencrypted"),
    Setting::text("tls-cert-file", "").not_yet(TLS).help(Tls, "certificate, PEM"),
    Setting::text("tls-key-file", "").not_yet(TLS).help(Tls, "its private key, PEM"),
    Setting::text("tls-key-file-pass", "").secret().not_yet(TLS).help(Tls, "password of that key"),
    Setting::text("tls-client-cert-file", "").not_yet(TLS).help(Tls, "certificate for outgoing connections"),
    Setting::text("tls-client-key-file", "").not_yet(TLS).help(Tls, "its private key"),
    Setting::text("tls-client-key-file-pass", "").secret().not_yet(TLS).help(Tls, "password of that key"),
    Setting::text("tls-dh-params-file", "")
        .no_effect("key exchange is by elliptic curves only")
        .help(Tls, "Diffie-Hellman parameters"),
    Setting::text("tls-ca-cert-file", "")
        .not_yet(TLS)
        .help(Tls, "authorities that clients' certificates must come from"),
    Setting::text("tls-ca-cert-dir", "").not_yet(TLS).help(Tls, "folder of such authorities"),
    Setting::choice("tls-auth-clients", &["no", "yes", "optional"], "yes")
        .no_effect(NO_TLS)
        .help(Tls, "whether clients must show a certificate when authorities are given"),
    Setting::text("tls-protocols", "")
        .no_effect("TLS 1.2 and 1.3 are offered")
        .help(Tls, "versions to offer"),
    Setting::text("tls-ciphers", "").no_effect("only safe ciphers exist").help(Tls, "ciphers of TLS 1.2"),
    Setting::text("tls-ciphersuites", "")
        .alias(&["tls_cipher_suites"])
        .no_effect("only safe ciphers exist")
        .help(Tls, "ciphers of TLS 1.3"),
    Setting::bool("tls-prefer-server-ciphers", "no")
        .no_effect("only safe ciphers exist")
        .help(Tls, "the server's order of ciphers wins"),
    Setting::bool("tls-session-caching", "yes").no_effect(NO_TLS).help(Tls, "let clients resume sessions"),
    Setting::int("tls-session-cache-size", 0, I32_MAX, "20480")
        .no_effect(NO_TLS)
        .help(Tls, "sessions to remember"),
    Setting::int("tls-session-cache-timeout", 0, I32_MAX, "300")
        .no_effect(NO_TLS)
        .help(Tls, "seconds to remember them"),
    Setting::bool("tls-replication", "no").not_yet(TLS).help(Tls, "encrypt the connection to the master"),
    Setting::bool("tls-cluster", "no").not_yet(TLS).help(Tls, "encrypt the cluster bus"),
];
