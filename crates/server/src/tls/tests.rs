//! A channel and a client of rustls, joined without a socket.

use std::io::{Read, Write};
use std::sync::Arc;

use darter_base::rng::Rng;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

use super::channel::Heard;
use super::identity::Identity;
use super::{Channel, TlsScratch};

/// Both ends' settings, of one version.
fn configs(version: &'static rustls::SupportedProtocolVersion) -> (Identity, Arc<ClientConfig>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .expect("a pair");
    let mut roots = RootCertStore::empty();
    roots.add(cert.der().clone()).expect("an authority");
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Identity { config: Arc::new(server), asks_certificates: false }, Arc::new(client))
}

/// A channel and its client.
struct Pair {
    channel: Channel,
    scratch: TlsScratch,
    client: ClientConnection,
    /// What the channel heard.
    heard: Vec<u8>,
    ended: bool,
}

impl Pair {
    fn new(identity: &Identity, config: &Arc<ClientConfig>) -> Pair {
        let mut channel = Channel::expected(identity.clone(), true, 0);
        channel.begin().expect("a session");
        let name = ServerName::try_from("localhost").expect("a name");
        let client = ClientConnection::new(config.clone(), name).expect("a session");
        Pair { channel, scratch: TlsScratch::default(), client, heard: Vec::new(), ended: false }
    }

    /// Gives the channel what the client has to send, in pieces.
    fn upward(&mut self, rng: &mut Rng) -> Result<(), rustls::Error> {
        let mut wire = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut wire).expect("memory");
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(1 + rng.below(rest.len() as u64) as usize);
            let heard = self.channel.receive(&mut self.scratch, piece, |plain| self.heard.extend(plain))?;
            self.ended |= heard == Heard::Ended;
            rest = after;
        }
        Ok(())
    }

    /// Gives the client what the channel has to send; the kernel takes little at a time. Returns what it read.
    fn downward(&mut self, rng: &mut Rng, plain: &[u8]) -> Vec<u8> {
        let (mut wire, mut sent) = (Vec::new(), 0);
        loop {
            let room = 1 + rng.below(50_000) as usize;
            let take = |bytes: &[u8]| {
                let taken = bytes.len().min(room);
                wire.extend_from_slice(&bytes[..taken]);
                Ok(taken)
            };
            let (gone, is_full) =
                self.channel.send(&mut self.scratch, &plain[sent..], take).expect("no error");
            sent += gone;
            if !is_full {
                break;
            }
        }
        let (mut read, mut rest) = (Vec::new(), &wire[..]);
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).expect("memory");
            self.client.process_new_packets().expect("records in order");
            let _ = self.client.reader().read_to_end(&mut read);
        }
        if self.channel.is_open() {
            assert_eq!(sent, plain.len(), "all of it went");
        }
        read
    }

    fn shake_hands(&mut self, rng: &mut Rng) {
        for _ in 0..4 {
            self.upward(rng).expect("a handshake");
            assert_eq!(self.downward(rng, b""), b"");
        }
        assert!(self.channel.is_open() && !self.client.is_handshaking());
    }
}

#[test]
fn bytes_arrive_as_they_were_sent_however_they_are_cut() {
    for version in rustls::ALL_VERSIONS {
        let (identity, config) = configs(version);
        for seed in 0..12 {
            let mut rng = Rng::new(seed);
            let mut pair = Pair::new(&identity, &config);
            pair.shake_hands(&mut rng);
            for len in [1, 300, 20_000, 200_000] {
                let sent: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
                let mut rest = &sent[..];
                while !rest.is_empty() {
                    // The client's own buffer is bounded.
                    let taken = pair.client.writer().write(rest).expect("memory");
                    rest = &rest[taken..];
                    pair.upward(&mut rng).expect("records in order");
                }
                assert!(std::mem::take(&mut pair.heard) == sent, "seed {seed}, {len} bytes");
                assert!(pair.downward(&mut rng, &sent) == sent, "seed {seed}, {len} bytes");
            }
            pair.client.send_close_notify();
            pair.upward(&mut rng).expect("a goodbye");
            assert!(pair.ended && pair.channel.farewell().is_some());
        }
    }
}

#[test]
fn a_changed_byte_is_an_error_and_never_data() {
    for version in rustls::ALL_VERSIONS {
        let (identity, config) = configs(version);
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut pair = Pair::new(&identity, &config);
            pair.shake_hands(&mut rng);
            pair.client.writer().write_all(&[b'x'; 500]).expect("memory");
            let mut wire = Vec::new();
            pair.client.write_tls(&mut wire).expect("memory");
            // A longer length makes the record one that has not come whole: no error yet, and no data.
            let at = 5 + rng.below(wire.len() as u64 - 5) as usize;
            wire[at] ^= 1 << rng.below(8);
            let result = pair.channel.receive(&mut pair.scratch, &wire, |plain| pair.heard.extend(plain));
            assert!(result.is_err() && pair.heard.is_empty(), "seed {seed}, byte {at}");
            assert!(pair.channel.owes(), "an alert waits");
        }
    }
}

#[test]
fn any_bytes_in_place_of_a_handshake_are_kept_within_bounds() {
    let (identity, config) = configs(&rustls::version::TLS13);
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut pair = Pair::new(&identity, &config);
        let mut hello = Vec::new();
        pair.client.write_tls(&mut hello).expect("memory");
        for _ in 0..1 + rng.below(8) {
            let at = rng.below(hello.len() as u64) as usize;
            hello[at] = rng.next_u64() as u8;
        }
        let extra = (0..rng.below(30_000)).map(|_| rng.next_u64() as u8);
        hello.extend(extra);
        for piece in hello.chunks(1 + rng.below(4000) as usize) {
            if pair.channel.receive(&mut pair.scratch, piece, |_| panic!("no data before the end")).is_err() {
                break;
            }
            assert!(pair.channel.bytes() < 32 << 10, "seed {seed}: {} bytes", pair.channel.bytes());
        }
        assert!(!pair.channel.is_open());
    }
}
