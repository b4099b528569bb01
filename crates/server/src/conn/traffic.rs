//! What a connection with TLS does where one without talks to the reactor.
//!
//! Called by `event_loop`, `output` and `cron`, each behind a look at `Conn::channel`; plain connections never come here.

use std::io;

use darter_reactor::Reactor;

use crate::conn::Conn;
use crate::conn::window::ConnWindow;
use crate::protocol::{self, AllowedProtocols, Protocol};
use crate::thread_state::ThreadState;
use crate::tls::{Channel, Heard};

/// The first byte of every handshake.
const HANDSHAKE: u8 = 0x16;
/// A client that has not finished its handshake by then is closed.
const HANDSHAKE_MS_MAX: u64 = 10_000;

/// Takes bytes from the reactor; `take` is what takes them of a connection that speaks plainly.
#[inline(never)]
pub fn receive(
    conn: &mut Conn,
    local: &mut ThreadState,
    window: &mut ConnWindow,
    bytes: &[u8],
    take: impl Fn(&mut Conn, &mut ThreadState, &mut ConnWindow, &[u8]),
) {
    let Some(mut channel) = conn.channel.take() else { return };
    match (channel.awaits(), bytes.first()) {
        (Some(is_required), Some(&first)) if first != HANDSHAKE => {
            if !is_required {
                return take(conn, local, window, bytes);
            }
            local.stats().tls_failed.add(1);
            return refuse(conn, bytes);
        }
        (Some(_), Some(_)) => {
            local.stats().tls_begun.add(1);
            conn.was_active = true;
            if let Err(error) = channel.begin() {
                tracing::warn!("TLS cannot begin: {error}");
                conn.session.is_closing = true;
                return;
            }
        }
        _ => {}
    }
    let mut scratch = std::mem::take(&mut local.tls);
    let heard = channel.receive(&mut scratch, bytes, |plain| take(conn, local, window, plain));
    local.tls = scratch;
    match heard {
        Ok(Heard::More) => {}
        Ok(Heard::Opened) => local.stats().tls_finished.add(1),
        Ok(Heard::Ended) => conn.session.is_closing = true,
        Err(error) => {
            local.stats().tls_failed.add(1);
            note_failure(conn.session.id, &error);
            conn.session.is_closing = true;
        }
    }
    conn.channel = Some(channel);
}

/// Logs why a client could not be let in: its own mistakes quietly, a certificate that we refuse for its owner to see.
fn note_failure(client: u64, error: &rustls::Error) {
    if !matches!(error, rustls::Error::InvalidCertificate(_)) {
        return tracing::debug!("client {client}: TLS: {error}");
    }
    let hint = match format!("{error:?}").contains("UnsupportedCertVersion") {
        true => {
            ": it is of version 1; sign it with an extension (openssl x509 -extfile), which makes it version 3"
        }
        false => "",
    };
    tracing::info!("client {client}: its certificate is refused: {error}{hint}");
}

/// Tells a client that does not speak TLS, in its own protocol, that it must.
fn refuse(conn: &mut Conn, bytes: &[u8]) {
    let protocol = protocol::recognise(conn.session.listener, AllowedProtocols { http: true }, bytes);
    if protocol == Some(Protocol::MemcachedBinary) {
        conn.output.extend_from_slice(&crate::memcached::binary::refusal(bytes));
        conn.session.is_closing = true;
        return;
    }
    let text: &[u8] = match protocol {
        Some(Protocol::Http) => {
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
              This port speaks HTTPS, not HTTP\n"
        }
        Some(Protocol::Memcached) => b"SERVER_ERROR this port speaks TLS only\r\n",
        _ => b"-ERR Bad TLS header, double check if you enabled TLS for your client.\r\n",
    };
    conn.output.extend_from_slice(text);
    conn.session.is_closing = true;
}

/// Sends `conn.output[conn.sent..end]`, and what the channel itself has to say. Returns how many of these bytes are
/// gone, and whether the kernel's buffer is full.
///
/// Errors: the connection is broken.
#[inline(never)]
pub fn send(
    local: &mut ThreadState,
    reactor: &mut Reactor,
    conn: &mut Conn,
    end: usize,
) -> io::Result<(usize, bool)> {
    let (token, plain) = (conn.token, &conn.output[conn.sent..end]);
    let Some(channel) = &mut conn.channel else { return Ok((0, false)) };
    channel.send(&mut local.tls, plain, |bytes| reactor.send(token, bytes))
}

/// Says that nothing more will come, as far as the kernel takes it.
#[cold]
pub fn say_goodbye(reactor: &mut Reactor, conn: &mut Conn) {
    if let Some(channel) = &mut conn.channel
        && !channel.owes()
        && let Some(record) = channel.farewell()
    {
        // A peer that has gone already needs no goodbye.
        let _ = reactor.send(conn.token, &record);
    }
}

/// Whether a client takes too long for its handshake.
pub fn is_late(local: &ThreadState, conn: &Conn) -> bool {
    conn.channel.as_ref().is_some_and(|channel| {
        let must_speak = channel.awaits().unwrap_or(true);
        must_speak && !channel.is_open() && local.now_ms.saturating_sub(channel.began_ms) > HANDSHAKE_MS_MAX
    })
}

/// Bytes that TLS adds to a connection.
pub fn count_bytes(channel: Option<&Channel>) -> usize {
    channel.map_or(0, Channel::bytes)
}
