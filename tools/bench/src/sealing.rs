//! What the TLS library alone takes for a pipeline of GETs: a server's side without sockets, commands and data.
//!
//! Called by `doors`, beside what the same costs in a server. One record comes and one goes, as redis-benchmark and the
//! server exchange them.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};

/// More states than this one after another mean nothing good.
const STEPS_MAX: usize = 64;

/// Requests that are made before the clock is looked at.
const BATCH: u32 = 256;

/// Processor time of a server's side for a request of `request` bytes and a reply of `reply`, the mean of `batches` times
/// 256 of them.
///
/// Errors: the files are no certificate and key; the handshake fails.
pub fn time(
    certificate: &str,
    key: &str,
    request: usize,
    reply: usize,
    batches: u32,
) -> io::Result<Duration> {
    let mut pair = Pair::shake_hands(certificate, key)?;
    let (request, reply) = (vec![b'x'; request], vec![b'x'; reply]);
    let mut used = Duration::ZERO;
    for _ in 0..batches {
        let mut requests = Vec::new();
        for _ in 0..BATCH {
            pair.client.writer().write_all(&request)?;
            requests.push(pair.sent()?);
        }
        let before = thread_time();
        for wire in &mut requests {
            pair.receive(wire)?;
            pair.seal(&reply)?;
        }
        used += thread_time().saturating_sub(before);
    }
    Ok(used / (batches * BATCH).max(1))
}

/// A server's side and its client, joined by memory.
struct Pair {
    server: UnbufferedServerConnection,
    client: ClientConnection,
    // What the server sends.
    sealed: Vec<u8>,
    heard: Vec<u8>,
}

impl Pair {
    fn shake_hands(certificate: &str, key: &str) -> io::Result<Pair> {
        let provider = Arc::new(ring::default_provider());
        let certificate = CertificateDer::from_pem_file(certificate).map_err(io::Error::other)?;
        let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).map_err(io::Error::other)?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .and_then(|versions| versions.with_no_client_auth().with_single_cert(vec![certificate], key))
            .map_err(io::Error::other)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut pair = Pair {
            server: UnbufferedServerConnection::new(Arc::new(server)).map_err(io::Error::other)?,
            client: ClientConnection::new(Arc::new(client), name).map_err(io::Error::other)?,
            sealed: vec![0; 128 << 10],
            heard: Vec::new(),
        };
        for _ in 0..STEPS_MAX {
            let mut wire = pair.sent()?;
            let len = pair.receive(&mut wire)?;
            pair.hear(len)?;
            if !pair.client.is_handshaking() && !pair.client.wants_write() && len == 0 {
                return Ok(pair);
            }
        }
        Err(io::Error::other("the handshake does not end"))
    }

    /// What the client has to send.
    fn sent(&mut self) -> io::Result<Vec<u8>> {
        let mut wire = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut wire)?;
        }
        Ok(wire)
    }

    /// Gives the client the first bytes of `sealed`.
    fn hear(&mut self, len: usize) -> io::Result<()> {
        let mut rest = &self.sealed[..len];
        while !rest.is_empty() {
            self.client.read_tls(&mut rest)?;
            self.client.process_new_packets().map_err(io::Error::other)?;
        }
        let mut plain = [0; 16 << 10];
        while matches!(self.client.reader().read(&mut plain), Ok(1..)) {}
        Ok(())
    }

    /// Gives the server what came; returns how many bytes of its own it has put into `sealed`.
    fn receive(&mut self, wire: &mut [u8]) -> io::Result<usize> {
        let (mut used, mut own) = (0, 0);
        self.heard.clear();
        for _ in 0..STEPS_MAX {
            let UnbufferedStatus { mut discard, state } = self.server.process_tls_records(&mut wire[used..]);
            let is_over = match state.map_err(io::Error::other)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(io::Error::other)?;
                        discard += record.discard;
                        self.heard.extend_from_slice(record.payload);
                    }
                    false
                }
                ConnectionState::EncodeTlsData(mut message) => {
                    match message.encode(&mut self.sealed[own..]) {
                        Ok(len) => own += len,
                        Err(EncodeError::InsufficientSize(_) | EncodeError::AlreadyEncoded) => {
                            return Err(io::Error::other("no room"));
                        }
                    }
                    false
                }
                ConnectionState::TransmitTlsData(message) => {
                    message.done();
                    false
                }
                ConnectionState::WriteTraffic(_) | ConnectionState::BlockedHandshake => true,
                _ => return Err(io::Error::other("the client has gone")),
            };
            used += discard;
            if is_over {
                return Ok(own);
            }
        }
        Err(io::Error::other("too many records"))
    }

    fn seal(&mut self, plain: &[u8]) -> io::Result<usize> {
        match self.server.process_tls_records(&mut []).state.map_err(io::Error::other)? {
            ConnectionState::WriteTraffic(mut writer) => {
                writer.encrypt(plain, &mut self.sealed).map_err(io::Error::other)
            }
            _ => Err(io::Error::other("the connection cannot be written to")),
        }
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_alone_takes_time_that_grows_with_the_bytes() {
        let folder = crate::doors::Folder::new().expect("a folder");
        let (certificate, key) = folder.certificate().expect("openssl makes one");
        let took = |reply| time(&certificate, &key, 1000, reply, 2).expect("a handshake");
        let (short, long) = (took(16), took(60_000));
        assert!(short > Duration::ZERO && long > short, "{short:?} {long:?}");
    }
}
