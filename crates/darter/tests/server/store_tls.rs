//! An etcd that is encrypted, asked by a group and by a cluster, with certificates made for the test.

use std::process::{Command, Stdio};

use crate::harness::folder::Folder;
use crate::harness::{Server, Value, wait_until};
use crate::stored::{Etcd, group_role};
use crate::tls::Authority;

/// An authority, and an etcd that takes its clients alone; it has made itself known as `hosts`.
fn encrypted(name: &str, hosts: &[&str]) -> Option<(Authority, Etcd)> {
    let authority = Authority::new(name);
    authority.sign_for("etcd", hosts);
    authority.sign("client");
    let file = |flag: &str, name: &str| format!("--{flag}={}", authority.file(name));
    let etcd = Etcd::start_with(
        name,
        &[
            file("cert-file", "etcd.crt"),
            file("key-file", "etcd.key"),
            file("trusted-ca-file", "ca.crt"),
            "--client-cert-auth".to_owned(),
        ],
    )?;
    Some((authority, etcd))
}

/// Flags with which a server asks it with a certificate, or with none.
fn asking(store: &str, etcd: &Etcd, authority: &Authority, client: Option<&str>) -> Vec<String> {
    let mut flags =
        vec![format!("--{store}={}", etcd.url()), format!("--ha_ca_file={}", authority.file("ca.crt"))];
    if let Some(name) = client {
        flags.push(format!("--ha_cert_file={}", authority.file(&format!("{name}.crt"))));
        flags.push(format!("--ha_key_file={}", authority.file(&format!("{name}.key"))));
    }
    if store == "cluster_store" {
        flags.push("--cluster_mode=yes".to_owned());
    }
    // The cores are shared with others.
    flags.push("--ha_lease_ms=5000".to_owned());
    flags
}

fn start(flags: &[String], folder: &Folder) -> Server {
    let mut words: Vec<&str> = flags.iter().map(String::as_str).collect();
    words.extend(["--dir", folder.text()]);
    Server::start(&words)
}

/// What a server writes that cannot start.
fn refusal(flags: &[&str]) -> String {
    let out = Command::new(env!("CARGO_BIN_EXE_darter"))
        .args(["--bind", "127.0.0.1", "--port", "0"])
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .expect("the server");
    assert!(!out.status.success());
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[test]
fn a_group_asks_an_encrypted_store_with_its_certificate() {
    let Some((authority, etcd)) = encrypted("group-tls", &["127.0.0.1"]) else { return };
    let folder = Folder::new("group-tls");
    let server = start(&asking("ha_store", &etcd, &authority, Some("client")), &folder);
    wait_until("it leads", || server.client().call(&["SET", "k", "v"]) == Value::ok());
}

#[test]
fn a_cluster_asks_an_encrypted_store_with_its_certificate() {
    let Some((authority, mut etcd)) = encrypted("cluster-tls", &["127.0.0.1"]) else { return };
    let folder = Folder::new("cluster-tls");
    let server = start(&asking("cluster_store", &etcd, &authority, Some("client")), &folder);
    let mut client = server.client();
    wait_until("it leads", || group_role(&mut client) == "leading");
    assert_eq!(client.call(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]), Value::ok());
    wait_until("it serves", || client.call(&["SET", "k", "v"]) == Value::ok());
    // Connections break, and new ones are made.
    etcd.stop();
    wait_until("it misses the store", || client.info::<u8>("cluster", "cluster_store_connected") == 0);
    etcd.go_on();
    wait_until("it reaches the store", || client.info::<u8>("cluster", "cluster_store_connected") == 1);
}

#[test]
fn a_store_of_another_authority_is_not_asked() {
    let Some((_authority, etcd)) = encrypted("wrong-ca", &["127.0.0.1"]) else { return };
    let other = Authority::new("wrong-ca-other");
    other.sign("client");
    for store in ["ha_store", "cluster_store"] {
        let folder = Folder::new(&format!("wrong-ca-{store}"));
        let server = start(&asking(store, &etcd, &other, Some("client")), &folder);
        let said = "does not come from the authorities of ha_ca_file";
        server.wait_until_it_says(said, 1);
        assert!(matches!(server.client().call(&["SET", "k", "v"]), Value::Error(_)), "{store}");
    }
}

#[test]
fn a_store_that_does_not_name_its_host_is_not_asked() {
    let Some((authority, etcd)) = encrypted("wrong-host", &["elsewhere"]) else { return };
    let folder = Folder::new("wrong-host");
    let server = start(&asking("ha_store", &etcd, &authority, Some("client")), &folder);
    server.wait_until_it_says("does not name this host", 1);
}

#[test]
fn a_server_without_a_certificate_is_told_so() {
    let Some((authority, etcd)) = encrypted("no-client", &["127.0.0.1"]) else { return };
    let folder = Folder::new("no-client");
    let server = start(&asking("ha_store", &etcd, &authority, None), &folder);
    server.wait_until_it_says("wants another certificate than that of ha_cert_file", 1);
}

#[test]
fn files_of_the_store_are_looked_at_before_anything_starts() {
    let authority = Authority::new("store-files");
    authority.sign("client");
    authority.sign("other");
    let file = |flag: &str, name: &str| format!("--{flag}={}", authority.file(name));
    let (ca, cert) = (file("ha_ca_file", "ca.crt"), file("ha_cert_file", "client.crt"));
    for store in ["--ha_store=https://127.0.0.1:1", "--cluster_store=https://127.0.0.1:1"] {
        let folder = Folder::new("store-files");
        let mut flags = vec![store, "--dir", folder.text()];
        if store.contains("cluster") {
            flags.push("--cluster_mode=yes");
        }
        for (more, said) in [
            (vec![], "https:// needs ha_ca_file"),
            (vec![file("ha_ca_file", "none.crt")], "ha_ca_file: "),
            (vec![file("ha_ca_file", "client.key")], "there is no certificate in it"),
            (vec![ca.clone(), cert.clone()], "ha_key_file: "),
            (vec![ca.clone(), cert.clone(), file("ha_key_file", "other.key")], "is not the key of"),
        ] {
            let all: Vec<&str> = flags.iter().copied().chain(more.iter().map(String::as_str)).collect();
            let text = refusal(&all);
            assert!(text.contains(said), "{said}: {text}");
        }
    }
}
