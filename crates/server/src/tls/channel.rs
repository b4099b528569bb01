//! One connection's TLS: records in, plain bytes out, and the other way round. No socket, no clock.
//!
//! Called by `traffic`. Bytes of whole records pass through the thread's [`TlsScratch`]; a connection keeps only the
//! piece of a record that has not come whole and what the kernel did not take.

use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{Error, ServerConfig};

use super::identity::Identity;

/// Plain bytes that are encrypted at once: some records of the largest size.
pub const SEAL_BYTES_MAX: usize = 64 << 10;
/// What encryption adds to them at most, and room for a message of rustls' own.
const SEAL_MARGIN: usize = 4 << 10;
/// Bytes of handshake kept of a client that has not finished it and is not asked for a certificate.
const HELLO_BYTES_MAX: usize = 8 << 10;
/// The same where it is; also the longest record there is: 2^14 bytes, expansion and header.
const RECORD_BYTES_MAX: usize = (16 << 10) + 256 + 5;
/// What rustls keeps for a connection, roughly: keys, tables, state.
const SESSION_BYTES: usize = 3 << 10;

/// TLS of one connection.
pub struct Channel {
    state: ChannelState,
    /// Encrypted bytes that are no whole record yet.
    unread: Vec<u8>,
    /// Encrypted bytes that the kernel has not taken, from `sealed_sent` on.
    sealed: Vec<u8>,
    sealed_sent: usize,
    /// Plain bytes that are gone when `sealed` is.
    covers: usize,
    is_open: bool,
    /// Bytes of handshake that are kept.
    hello_bytes_max: usize,
    /// When the connection began, Unix ms.
    pub began_ms: u64,
}

enum ChannelState {
    /// No byte has come.
    Expected {
        config: Arc<ServerConfig>,
        is_required: bool,
    },
    Running(Box<UnbufferedServerConnection>),
    /// Over: the other side did not keep to the protocol. What it sends is not looked at any more.
    Failed,
}

/// Buffers of one thread.
#[derive(Default)]
pub struct TlsScratch {
    input: Vec<u8>,
    sealed: Vec<u8>,
}

/// What became of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// All is well.
    More,
    /// This ended the handshake.
    Opened,
    /// The client has said that it will send nothing more.
    Ended,
}

impl Channel {
    /// The channel of a connection that has sent nothing.
    pub(crate) fn expected(identity: Identity, is_required: bool, began_ms: u64) -> Channel {
        let Identity { config, asks_certificates } = identity;
        Channel {
            state: ChannelState::Expected { config, is_required },
            hello_bytes_max: if asks_certificates { RECORD_BYTES_MAX } else { HELLO_BYTES_MAX },
            unread: Vec::new(),
            sealed: Vec::new(),
            sealed_sent: 0,
            covers: 0,
            is_open: false,
            began_ms,
        }
    }

    /// Whether nothing has come, and then whether something else than TLS is an error.
    pub(crate) fn awaits(&self) -> Option<bool> {
        match self.state {
            ChannelState::Expected { is_required, .. } => Some(is_required),
            ChannelState::Running(_) | ChannelState::Failed => None,
        }
    }

    /// Whether the handshake is over.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether encrypted bytes wait for the kernel.
    pub fn owes(&self) -> bool {
        self.sealed_sent < self.sealed.len()
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        let session = match &self.state {
            ChannelState::Expected { .. } | ChannelState::Failed => 0,
            ChannelState::Running(_) => size_of::<UnbufferedServerConnection>() + SESSION_BYTES,
        };
        size_of::<Channel>() + self.unread.capacity() + self.sealed.capacity() + session
    }

    /// Begins the handshake.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        if let ChannelState::Expected { config, .. } = &self.state {
            let session = UnbufferedServerConnection::new(config.clone())?;
            self.state = ChannelState::Running(Box::new(session));
        }
        Ok(())
    }

    /// Takes bytes of the wire; gives `deliver` what they say, record by record. What is to be answered waits in the
    /// channel to be sent.
    ///
    /// Errors: the client does not keep to the protocol, or has no certificate that will do; an alert waits then.
    pub(crate) fn receive(
        &mut self,
        scratch: &mut TlsScratch,
        bytes: &[u8],
        mut deliver: impl FnMut(&[u8]),
    ) -> Result<Heard, Error> {
        let ChannelState::Running(session) = &mut self.state else { return Ok(Heard::More) };
        let was_open = self.is_open;
        let mut input = std::mem::take(&mut scratch.input);
        let kept = &mut self.unread;
        let buf = if kept.is_empty() { &mut input } else { kept };
        buf.extend_from_slice(bytes);
        let (used, read) = pump(session, buf, &mut self.sealed, &mut deliver);
        if self.unread.is_empty() {
            self.unread.extend_from_slice(&input[used..]);
        } else if used > 0 {
            self.unread.drain(..used);
        }
        if self.unread.is_empty() {
            self.unread = Vec::new();
        }
        input.clear();
        scratch.input = input;
        let pumped = read.inspect_err(|_| self.fail())?;
        self.is_open |= pumped.is_open;
        let unread_bytes_max = if self.is_open { RECORD_BYTES_MAX } else { self.hello_bytes_max };
        if self.unread.len() > unread_bytes_max {
            self.fail();
            return Err(Error::General("a message that is too long".to_owned()));
        }
        Ok(match (pumped.has_ended, was_open) {
            (true, _) => Heard::Ended,
            (false, false) if self.is_open => Heard::Opened,
            _ => Heard::More,
        })
    }

    /// Ends the session; the alert that an error left waits to be sent.
    fn fail(&mut self) {
        if let ChannelState::Running(session) = &mut self.state {
            // What waits is told before input is looked at. Asked twice, a session that has failed would look at it.
            let UnbufferedStatus { state, .. } = session.process_tls_records(&mut self.unread);
            if let Ok(ConnectionState::EncodeTlsData(mut message)) = state {
                encode(&mut message, &mut self.sealed);
            }
        }
        self.state = ChannelState::Failed;
        self.is_open = false;
        self.unread = Vec::new();
    }

    /// Hands encrypted bytes to `send`: first what waits, then `plain`, as far as the kernel takes it. Returns how
    /// many plain bytes are gone, and whether the kernel's buffer is full.
    ///
    /// Errors: those of `send`, `ConnectionAborted` after a failure, `Other` when the keys may encrypt no more.
    pub(crate) fn send(
        &mut self,
        scratch: &mut TlsScratch,
        mut plain: &[u8],
        mut send: impl FnMut(&[u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<(usize, bool)> {
        let mut gone = 0;
        if self.owes() {
            self.sealed_sent += send(&self.sealed[self.sealed_sent..])?;
            if self.owes() {
                return Ok((0, true));
            }
            gone = std::mem::take(&mut self.covers);
            plain = &plain[gone..];
            self.sealed_sent = 0;
            self.sealed = Vec::new();
        }
        if matches!(self.state, ChannelState::Failed) && !plain.is_empty() {
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        while !plain.is_empty() && self.is_open {
            let piece = &plain[..plain.len().min(SEAL_BYTES_MAX)];
            let len = self.seal(scratch, piece).map_err(std::io::Error::other)?;
            let sealed = &scratch.sealed[..len];
            let sent = send(sealed)?;
            if sent < len {
                self.sealed.extend_from_slice(&sealed[sent..]);
                self.covers = piece.len();
                return Ok((gone, true));
            }
            gone += piece.len();
            plain = &plain[piece.len()..];
        }
        Ok((gone, false))
    }

    /// The record that says that nothing more will come; none before the handshake is over.
    pub(crate) fn farewell(&mut self) -> Option<Vec<u8>> {
        let ChannelState::Running(session) = &mut self.state else { return None };
        let mut record = vec![0; 256];
        let UnbufferedStatus { state, .. } = session.process_tls_records(&mut self.unread);
        match state {
            Ok(ConnectionState::WriteTraffic(mut writer)) if self.is_open => {
                let len = writer.queue_close_notify(&mut record).ok()?;
                record.truncate(len);
                Some(record)
            }
            _ => None,
        }
    }

    /// Encrypts `plain` into the scratch buffer; returns the length.
    fn seal(&mut self, scratch: &mut TlsScratch, plain: &[u8]) -> Result<usize, String> {
        let ChannelState::Running(session) = &mut self.state else { return Err("no handshake".to_owned()) };
        let out = &mut scratch.sealed;
        out.resize(SEAL_BYTES_MAX + SEAL_MARGIN, 0);
        let mut own = Vec::new();
        // A message of rustls' own, as for new keys, comes before.
        for _ in 0..STEPS_MAX {
            let UnbufferedStatus { discard, state } = session.process_tls_records(&mut self.unread);
            match state.map_err(|error| error.to_string())? {
                ConnectionState::WriteTraffic(mut writer) => {
                    out.get_mut(..own.len()).ok_or("no room")?.copy_from_slice(&own);
                    let sealed =
                        writer.encrypt(plain, &mut out[own.len()..]).map_err(|error| match error {
                            EncryptError::InsufficientSize(_) => "no room".to_owned(),
                            error => error.to_string(),
                        })?;
                    return Ok(own.len() + sealed);
                }
                ConnectionState::EncodeTlsData(mut message) => encode(&mut message, &mut own),
                ConnectionState::TransmitTlsData(message) => message.done(),
                _ => {}
            }
            self.unread.drain(..discard);
        }
        Err("the connection cannot be written to".to_owned())
    }
}

/// More states than this one after another mean nothing good.
const STEPS_MAX: usize = 16;

/// What a run over received bytes came to.
struct Pumped {
    is_open: bool,
    has_ended: bool,
}

/// Works through the whole records of `buf`; returns how many bytes they took.
fn pump(
    session: &mut UnbufferedServerConnection,
    buf: &mut [u8],
    out: &mut Vec<u8>,
    deliver: &mut impl FnMut(&[u8]),
) -> (usize, Result<Pumped, Error>) {
    let (mut used, mut has_ended) = (0, false);
    loop {
        let UnbufferedStatus { mut discard, state } = session.process_tls_records(&mut buf[used..]);
        let end = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                match traffic.next_record() {
                    Some(Ok(record)) => {
                        discard += record.discard;
                        deliver(record.payload);
                    }
                    Some(Err(error)) => break Some(Err(error)),
                    None => break None,
                }
            },
            Ok(ConnectionState::EncodeTlsData(mut message)) => {
                encode(&mut message, out);
                None
            }
            Ok(ConnectionState::TransmitTlsData(message)) => {
                message.done();
                None
            }
            Ok(ConnectionState::PeerClosed) => {
                has_ended = true;
                None
            }
            Ok(ConnectionState::WriteTraffic(_)) => Some(Ok(true)),
            Ok(ConnectionState::BlockedHandshake) => Some(Ok(false)),
            Ok(ConnectionState::Closed) => {
                has_ended = true;
                Some(Ok(true))
            }
            // Early data is not offered.
            Ok(_) => Some(Err(Error::General("an unknown state".to_owned()))),
            Err(error) => Some(Err(error)),
        };
        used += discard;
        match end {
            None => {}
            Some(Ok(is_open)) => return (used, Ok(Pumped { is_open, has_ended })),
            Some(Err(error)) => return (used, Err(error)),
        }
    }
}

fn encode<Data>(message: &mut rustls::unbuffered::EncodeTlsData<'_, Data>, out: &mut Vec<u8>) {
    // The first try tells how much room it needs.
    if let Err(EncodeError::InsufficientSize(needs)) = message.encode(&mut []) {
        let begin = out.len();
        out.resize(begin + needs.required_size, 0);
        if message.encode(&mut out[begin..]).is_err() {
            out.truncate(begin);
        }
    }
}
