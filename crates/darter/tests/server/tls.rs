//! TLS against a real server process, with certificates made for the test and rustls as the client.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::{Client, Server, Value, free_port, wait_until};
use crate::nodes::{Node, assert_equal, catch_up, field, follow};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

type Secure = StreamOwned<ClientConnection, TcpStream>;

/// An authority, and a folder with its certificate and those it has signed.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    pub fn new(test: &str) -> Authority {
        let dir = std::env::temp_dir().join(format!("darter-tls-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a folder");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority of {test}"));
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        std::fs::write(dir.join("ca.crt"), issuer.pem()).expect("a file");
        Authority { issuer, dir }
    }

    /// Signs a certificate; puts it and its key into `name.crt` and `name.key`.
    pub fn sign(&self, name: &str) {
        self.sign_for(name, &["localhost", "127.0.0.1"]);
    }

    /// The same for other hosts.
    pub fn sign_for(&self, name: &str, hosts: &[&str]) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.file(&format!("{name}.crt")), certificate.pem()).expect("a file");
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).expect("a file");
    }

    /// The path of a file.
    pub fn file(&self, name: &str) -> String {
        self.dir.join(name).to_string_lossy().into_owned()
    }

    fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.file(&format!("{name}.crt"))).expect("a certificate")
    }

    /// Flags of a server with the certificate `server`.
    pub fn flags(&self, more: &[&str]) -> Vec<String> {
        let mut flags = vec![
            format!("--tls_cert_file={}", self.file("server.crt")),
            format!("--tls_key_file={}", self.file("server.key")),
        ];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        flags
    }

    pub fn start(&self, more: &[&str]) -> Server {
        let flags = self.flags(more);
        Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn config(&self, client: Option<&str>, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate("ca")).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(roots);
        match client {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.file(&format!("{name}.key"))).expect("a key");
                builder.with_client_auth_cert(vec![self.certificate(name)], key).expect("a pair")
            }
        }
    }

    fn connect_with(&self, port: u16, config: ClientConfig) -> Secure {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        socket.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
        let name = ServerName::try_from("localhost").expect("a name");
        let session = ClientConnection::new(Arc::new(config), name).expect("a session");
        StreamOwned::new(session, socket)
    }

    pub fn connect(&self, port: u16) -> Client<Secure> {
        Client::over(self.connect_with(port, self.config(None, rustls::ALL_VERSIONS)))
    }

    /// Whether a client, with a certificate of its own or none, is served.
    fn is_served(&self, port: u16, certificate: Option<&str>) -> bool {
        let mut stream = self.connect_with(port, self.config(certificate, rustls::ALL_VERSIONS));
        let mut answer = [0; 7];
        stream.write_all(b"PING\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
            && answer == *b"+PONG\r\n"
    }

    /// The certificate a server shows.
    fn shown(&self, port: u16) -> CertificateDer<'static> {
        let mut client = self.connect(port);
        assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
        client.stream().conn.peer_certificates().expect("a chain")[0].clone().into_owned()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn authority(test: &str) -> Authority {
    let authority = Authority::new(test);
    authority.sign("server");
    authority
}

fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// Clients that could not be let in, as INFO counts them.
fn failed(client: &mut Client<Secure>) -> u64 {
    let Value::Text(info) = client.call(&["INFO", "stats"]) else { panic!("a text") };
    let count = info.lines().find_map(|line| line.strip_prefix("tls_connections_failed:"));
    count.expect("a count").parse().expect("a number")
}

/// What a client that does not speak TLS is told before it is closed.
fn told(port: u16, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    socket.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    socket.write_all(request).expect("sent");
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn commands_of_every_size_over_both_versions() {
    let authority = authority("sizes");
    let server = authority.start(&["--tls", "--client-query-buffer-limit", "64mb"]);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = authority.config(None, &[version]);
        let mut client = Client::over(authority.connect_with(server.port(), config));
        for len in [0, 1, 100, 16_383, 16_384, 16_385, 65_536, 70_000, 1_000_000, 5_000_000] {
            let value = "v".repeat(len);
            assert_eq!(client.call(&["SET", "key", &value]), Value::ok(), "{len}");
            assert_eq!(client.call(&["GET", "key"]), Value::Text(value), "{len}");
        }
        let pipeline: Vec<&[&str]> = vec![&["INCR", "counter"]; 3000];
        client.send_all(&pipeline);
        for at in 1..=3000 {
            assert_eq!(client.read(), Value::Int(at));
        }
        assert_eq!(client.call(&["DEL", "counter"]), Value::Int(1));
        assert_eq!(client.call(&["QUIT"]), Value::ok());
        assert!(client.is_closed());
    }
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let authority = authority("slow");
    let server = authority.start(&["--tls"]);
    let mut client = authority.connect(server.port());
    let value: String = (0..3_000_000).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    assert_eq!(client.call(&["SET", "key", &value]), Value::ok());
    let pipeline: Vec<&[&str]> = vec![&["GET", "key"]; 8];
    client.send_all(&pipeline);
    client.stream().flush().expect("sent");
    // The kernel's buffers fill up meanwhile.
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..8 {
        assert!(client.read() == text(&value), "the value as it was stored");
    }
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()));
}

#[test]
fn who_does_not_speak_tls_is_told_in_his_own_words() {
    let authority = authority("plain");
    let memcached = free_port();
    let server = authority.start(&["--tls", &format!("--memcached_port={memcached}")]);
    let resp = told(server.port(), b"PING\r\n");
    assert!(resp.starts_with("-ERR Bad TLS header"), "{resp}");
    assert!(told(server.port(), b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(told(memcached, b"get k\r\n").starts_with("SERVER_ERROR "));
    let mut client = authority.connect(server.port());
    assert_eq!(client.call(&["SET", "k", "v", "EX", "100"]), Value::ok());
    assert_eq!(failed(&mut client), 3);
    let mut stream = authority.connect_with(memcached, authority.config(None, rustls::ALL_VERSIONS));
    stream.write_all(b"get k\r\n").expect("sent");
    let mut answer = [0; 19];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"VALUE k 0 1\r\nv\r\nEND");
    let mut stream = authority.connect_with(server.port(), authority.config(None, rustls::ALL_VERSIONS));
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut page = Vec::new();
    let _ = stream.read_to_end(&mut page);
    let page = String::from_utf8_lossy(&page);
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert!(page.contains("dragonfly_tls_handshakes_total{status=\"completed\"} 3\n"), "{page}");
}

#[test]
fn clients_show_certificates_where_they_are_asked_to() {
    let authority = authority("clients");
    authority.sign("client");
    let stranger = Authority::new("stranger");
    stranger.sign("stranger");
    for name in ["stranger.crt", "stranger.key"] {
        std::fs::copy(stranger.file(name), authority.file(name)).expect("a copy");
    }
    let ca = format!("--tls_ca_cert_file={}", authority.file("ca.crt"));
    let server = authority.start(&["--tls", &ca]);
    let mut admin =
        authority.connect_with(server.port(), authority.config(Some("client"), rustls::ALL_VERSIONS));
    admin.flush().expect("a handshake");
    let mut admin = Client::over(admin);
    for (rule, none, ours, theirs) in
        [("yes", false, true, false), ("optional", true, true, false), ("no", true, true, true)]
    {
        assert_eq!(admin.call(&["CONFIG", "SET", "tls-auth-clients", rule]), Value::ok());
        let served = |name| authority.is_served(server.port(), name);
        let all = (served(None), served(Some("client")), served(Some("stranger")));
        assert_eq!(all, (none, ours, theirs), "tls-auth-clients {rule}");
    }
    // A folder of authorities serves as well, whatever else lies in it.
    let dir = authority.dir.join("authorities");
    std::fs::create_dir_all(&dir).expect("a folder");
    std::fs::copy(authority.file("ca.crt"), dir.join("ca.pem")).expect("a copy");
    std::fs::write(dir.join("README"), "nothing").expect("a file");
    let dir = dir.to_string_lossy().into_owned();
    let set = ["CONFIG", "SET", "tls-ca-cert-file", "", "tls-ca-cert-dir", &dir, "tls-auth-clients", "yes"];
    assert_eq!(admin.call(&set), Value::ok());
    assert!(authority.is_served(server.port(), Some("client")));
    assert!(!authority.is_served(server.port(), None));
}

#[test]
fn certificates_are_renewed_while_the_server_runs() {
    let authority = authority("renewal");
    let server = authority.start(&["--tls"]);
    let mut client = authority.connect(server.port());
    assert_eq!(authority.shown(server.port()), authority.certificate("server"));
    authority.sign("second");
    let (cert, key) = (authority.file("second.crt"), authority.file("second.key"));
    let fault = client.call(&["CONFIG", "SET", "tls-cert-file", &cert]);
    let Value::Error(fault) = fault else { panic!("a certificate without its key: {fault:?}") };
    assert!(fault.contains("'tls-cert-file')") && fault.contains("is not the key of"), "{fault}");
    assert_eq!(authority.shown(server.port()), authority.certificate("server"));
    let set = ["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key];
    assert_eq!(client.call(&set), Value::ok());
    assert_eq!(authority.shown(server.port()), authority.certificate("second"));
    // The files' content changes, their names do not.
    authority.sign("second");
    assert_ne!(authority.shown(server.port()), authority.certificate("second"));
    assert_eq!(client.call(&["CONFIG", "SET", "tls-cert-file", &cert]), Value::ok());
    assert_eq!(authority.shown(server.port()), authority.certificate("second"));
    std::fs::write(&key, "nothing").expect("a file");
    let fault = client.call(&["CONFIG", "SET", "tls-key-file", &key]);
    assert!(matches!(&fault, Value::Error(text) if text.contains("no private key")), "{fault:?}");
    assert!(authority.is_served(server.port(), None), "what was there goes on");
    assert_eq!(client.call(&["PING"]), Value::Status("PONG".to_owned()), "and so do connections");
}

#[test]
fn memcached_clients_have_certificates_read_anew() {
    let authority = authority("refresh");
    let port = free_port();
    let server = authority.start(&["--tls", "--memcached_port", &port.to_string()]);
    let mut client = authority.connect(port);
    client.stream().write_all(b"refresh_certs\r\n").expect("sent");
    assert_eq!(client.read_line(), "OK");
    authority.sign("server");
    assert_ne!(authority.shown(server.port()), authority.certificate("server"));
    client.stream().write_all(b"refresh_certs\r\n").expect("sent");
    assert_eq!(client.read_line(), "OK");
    assert_eq!(authority.shown(server.port()), authority.certificate("server"));
    std::fs::write(authority.file("server.key"), "nothing").expect("a file");
    client.stream().write_all(b"refresh_certs\r\n").expect("sent");
    assert_eq!(client.read_line(), "Error loading the certificate chain");
    assert!(authority.is_served(server.port(), None), "what was there goes on");
}

#[test]
fn an_encrypted_port_stands_beside_the_plain_one() {
    let authority = authority("beside");
    let (first, second) = (free_port(), free_port());
    let server = authority.start(&["--tls-auth-clients", "no", "--tls-port", &first.to_string()]);
    let mut plain = server.client();
    assert_eq!(plain.call(&["SET", "k", "v"]), Value::ok());
    assert_eq!(authority.connect(first).call(&["GET", "k"]), text("v"));
    assert_eq!(authority.connect(server.port()).call(&["GET", "k"]), text("v"), "told by its first byte");
    assert!(told(first, b"PING\r\n").starts_with("-ERR Bad TLS header"));
    // The answer waits for a second at most until the thread that listens has moved.
    let is_open = |port: u16| TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert_eq!(plain.call(&["CONFIG", "SET", "tls-port", &second.to_string()]), Value::ok());
    wait_until("the new port is open", || is_open(second));
    assert_eq!(authority.connect(second).call(&["GET", "k"]), text("v"));
    wait_until("the old port is closed", || !is_open(first));
    assert_eq!(plain.call(&["CONFIG", "SET", "tls-port", "0", "tls", "true"]), Value::ok());
    wait_until("there is no port of its own", || !is_open(second) && is_open(server.port()));
    assert!(told(server.port(), b"PING\r\n").starts_with("-ERR Bad TLS header"));
    assert_eq!(authority.connect(server.port()).call(&["GET", "k"]), text("v"));
    assert_eq!(plain.call(&["GET", "k"]), text("v"), "who is in stays in");
    assert_eq!(plain.call(&["CONFIG", "SET", "tls", "false"]), Value::ok());
    assert_eq!(server.client().call(&["GET", "k"]), text("v"));
}

#[test]
fn administrators_may_stay_without() {
    let authority = authority("admin");
    let admin = free_port();
    let port = format!("--admin_port={admin}");
    let server = authority.start(&["--tls", "--no_tls_on_admin_port", &port, "--admin_bind=127.0.0.1"]);
    assert_eq!(Client::connect(admin).call(&["PING"]), Value::Status("PONG".to_owned()));
    assert!(authority.is_served(server.port(), None));
}

#[test]
fn a_server_that_cannot_encrypt_does_not_start() {
    let authority = authority("start");
    let cert = format!("--tls_cert_file={}", authority.file("server.crt"));
    let key = format!("--tls_key_file={}", authority.file("server.key"));
    let none = format!("--tls_key_file={}", authority.file("nothing.key"));
    let ca = format!("--tls_key_file={}", authority.file("ca.crt"));
    let cases: &[(&[&str], &str)] = &[
        (&["--tls"], "tls-cert-file: TLS needs a certificate"),
        (&["--tls", &cert], "tls-key-file: TLS needs the certificate's key"),
        (&["--tls", &cert, &none], "nothing.key: No such file or directory"),
        (&["--tls", &cert, &ca], "there is no private key in it"),
        (
            &["--tls-port", "1", &cert, &key],
            "tls-auth-clients: tls-ca-cert-file or tls-ca-cert-dir is needed",
        ),
        (&["--tls", &cert, &key, "--tls-protocols", "TLSv1.1"], "none of these versions is safe"),
        (&["--tls", &cert, &key, "--tls-ciphersuites", "NONE"], "none of these suites is known"),
    ];
    for (flags, expected) in cases {
        let out = Command::new(env!("CARGO_BIN_EXE_darter"))
            .args(["--port", &free_port().to_string(), "--dbfilename", ""])
            .args(*flags)
            .stdin(Stdio::null())
            .output()
            .expect("the server runs");
        let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(expected), "{flags:?}: {said}");
    }
}

/// The first flight of a client.
fn hello(authority: &Authority) -> Vec<u8> {
    let config = Arc::new(authority.config(None, rustls::ALL_VERSIONS));
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(config, name).expect("a session");
    let mut bytes = Vec::new();
    session.write_tls(&mut bytes).expect("a flight");
    bytes
}

#[test]
fn broken_handshakes_end_connections_and_nothing_else() {
    let authority = authority("broken");
    let server = authority.start(&["--tls"]);
    let hello = hello(&authority);
    let mut waiting = Vec::new();
    for len in (1..hello.len()).step_by(7) {
        let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        socket.write_all(&hello[..len]).expect("sent");
        waiting.push(socket);
    }
    for at in (5..hello.len()).step_by(11) {
        let mut bad = hello.clone();
        bad[at] ^= 0x41;
        let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        socket.write_all(&bad).expect("sent");
        waiting.push(socket);
    }
    for junk in [
        &b"\x16"[..],
        b"\x16\x03\x01\xff\xff",
        &[0x16; 3000],
        b"\x16\x03\x01\x00\x00",
        &[0x16, 3, 1, 0, 4, 1, 0, 255, 255],
    ] {
        let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        socket.write_all(junk).expect("sent");
        waiting.push(socket);
    }
    // A handshake message that grows without end is cut off.
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    socket.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    let mut record = vec![0x16, 3, 1, 0x10, 0, 1, 0, 0xff, 0xff];
    record.resize(5 + 0x1000, 0);
    let mut sent = 0;
    // More than the kernel takes for a server that is not scheduled, and less than the message says.
    while sent < 14 << 20 && socket.write_all(&record).is_ok() {
        sent += record.len();
        record[5..9].fill(0);
    }
    let mut rest = Vec::new();
    let _ = socket.read_to_end(&mut rest);
    assert!(sent < 14 << 20, "{sent} bytes of one message were taken");
    assert!(authority.is_served(server.port(), None), "all others are served");
    drop(waiting);
}

#[test]
fn a_handshake_has_its_time() {
    let authority = authority("late");
    let server = authority.start(&["--tls"]);
    let began = Instant::now();
    let mut half = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    half.write_all(&hello(&authority)[..100]).expect("sent");
    let mut silent = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
    let mut open = authority.connect(server.port());
    assert_eq!(open.call(&["PING"]), Value::Status("PONG".to_owned()));
    for socket in [&mut half, &mut silent] {
        socket.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
        let mut rest = Vec::new();
        let ended = socket.read_to_end(&mut rest);
        let is_late =
            |error: std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(rest.is_empty() && !ended.is_err_and(is_late), "it is not closed: {rest:?}");
    }
    assert_eq!(failed(&mut open), 2);
    // Ten seconds of the server's clock, looked at by housekeeping; a busy machine may take longer to look.
    let took = began.elapsed();
    assert!(took.as_secs() >= 8, "closed after {took:?}");
    assert_eq!(open.call(&["PING"]), Value::Status("PONG".to_owned()));
}

#[test]
fn garbage_inside_a_session_ends_it() {
    let authority = authority("garbage");
    let server = authority.start(&["--tls"]);
    for junk in
        [&b"\x17\x03\x03\x00\x20garbagegarbagegarbagegarbagegarb"[..], b"\x17\x03\x03\xff\xff", b"PING\r\n"]
    {
        let mut client = authority.connect(server.port());
        assert_eq!(client.call(&["SET", "k", "v"]), Value::ok());
        client.stream().sock.write_all(junk).expect("sent");
        assert!(client.is_closed() || client.try_call(&["PING"]).is_none());
    }
    assert!(authority.is_served(server.port(), None));
}

#[test]
fn redis_cli_speaks_to_it() {
    let authority = authority("cli");
    let server = authority.start(&["--tls"]);
    let port = server.port().to_string();
    let cli = |args: &[&str]| {
        Command::new("redis-cli")
            .args(["-p", &port, "--tls", "--cacert", &authority.file("ca.crt")])
            .args(args)
            .output()
    };
    if Command::new("redis-cli").arg("--version").output().is_err() {
        eprintln!("SKIPPED: redis-cli is not installed");
        return;
    }
    let out = cli(&["SET", "k", "v"]).expect("redis-cli runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "OK\n", "{out:?}");
    let out = cli(&["-r", "3", "GET", "k"]).expect("redis-cli runs");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "v\nv\nv\n", "{out:?}");
}

#[test]
fn replicas_follow_over_tls_with_certificates_of_their_own() {
    let authority = Authority::new("replication");
    ["server", "replica"].iter().for_each(|name| authority.sign(name));
    let strangers = Authority::new("replication-strangers");
    strangers.sign("replica");
    let (ca, port) = (authority.file("ca.crt"), free_port().to_string());
    let own = [authority.file("server.crt"), authority.file("server.key")];
    let shown = [authority.file("replica.crt"), authority.file("replica.key")];
    let served = [
        ["--tls-port", &port],
        ["--tls-cert-file", &own[0]],
        ["--tls-key-file", &own[1]],
        ["--tls-ca-cert-file", &ca],
        ["--requirepass", "secret"],
    ];
    let following = [
        ["--tls-replication", "yes"],
        ["--tls-ca-cert-file", &ca],
        ["--tls-client-cert-file", &shown[0]],
        ["--tls-client-key-file", &shown[1]],
        ["--masterauth", "secret"],
    ];
    let master = Node::ours(served.as_flattened());
    let mut from = master.client();
    from.call(&["AUTH", "secret"]);
    let mut writer = crate::nodes::Writer::new(51);
    writer.write(&mut from, 300);
    let port: u16 = port.parse().expect("a port");
    let replica = Node::ours(following.as_flattened());
    let mut to = replica.client();
    follow(&mut to, port);
    writer.write(&mut from, 300);
    assert_equal(&mut from, &mut to);
    // A long value goes in many records.
    from.call(&["SET", "long", &"x".repeat(3_000_000)]);
    catch_up(&mut from, &mut to);
    assert_eq!(to.call(&["STRLEN", "long"]), Value::Int(3_000_000));
    // Who shows no certificate of the authority is not served, and who trusts another does not follow.
    let (theirs, their_ca) =
        ([strangers.file("replica.crt"), strangers.file("replica.key")], strangers.file("ca.crt"));
    for (certificate, key, trusted) in [(&theirs[0], &theirs[1], &ca), (&shown[0], &shown[1], &their_ca)] {
        let stranger = Node::ours(&[
            "--tls-replication",
            "yes",
            "--tls-ca-cert-file",
            trusted,
            "--tls-client-cert-file",
            certificate,
            "--tls-client-key-file",
            key,
            "--masterauth",
            "secret",
        ]);
        let mut client = stranger.client();
        client.call(&["REPLICAOF", "127.0.0.1", &port.to_string()]);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(field(&mut client, "master_link_status"), "down");
    }
    // Redis follows the same way.
    let theirs = [
        ["--tls-replication", "yes"],
        ["--tls-ca-cert-file", &ca],
        ["--tls-cert-file", &shown[0]],
        ["--tls-key-file", &shown[1]],
        ["--masterauth", "secret"],
    ];
    if let Some(redis) = Node::redis(theirs.as_flattened()) {
        let mut to = redis.client();
        follow(&mut to, port);
        assert_equal(&mut from, &mut to);
    }
    wait_until("all are known", || {
        field(&mut from, "connected_slaves").parse::<usize>().is_ok_and(|n| n >= 1)
    });
}
