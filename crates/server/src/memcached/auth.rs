//! Logging in as memcached does where it has an authentication file: a `set` whose value is `user password` comes
//! first, under any key.

use darter_wire::OwnedArgs;
use darter_wire::memcache::MemcacheError;

use super::Counter;
use super::run::write_error;
use crate::conn::Conn;
use crate::dispatch;
use crate::exec::CommandCall;
use crate::session::{Gate, Session};
use crate::thread_state::ThreadState;

/// Bytes of a line before login, and of what it sends.
const BYTES_MAX: usize = 2048;

/// Whether a connection must still log in.
pub(super) fn is_needed(local: &ThreadState, session: &Session) -> bool {
    session.gate.has(Gate::LOGIN) && local.shared.acl.default_needs_login()
}

/// Reads one login, or refuses one line; returns how many bytes it took, 0 when more must come.
pub(super) fn step(conn: &mut Conn, local: &mut ThreadState, buf: &[u8]) -> usize {
    let Some(end) = memchr::memchr(b'\n', buf) else {
        conn.session.is_closing |= buf.len() > BYTES_MAX;
        return 0;
    };
    let (line, rest) = (&buf[..end], &buf[end + 1..]);
    let words: Vec<&[u8]> =
        line.trim_ascii().split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    let len = match words[..] {
        [b"set", _, _, _, len, ..] => std::str::from_utf8(len).ok().and_then(|len| len.parse::<usize>().ok()),
        [b"quit"] => {
            conn.session.is_closing = true;
            return end + 1;
        }
        _ => None,
    };
    let Some(len) = len.filter(|&len| len <= BYTES_MAX) else {
        write_error(MemcacheError::Unauthenticated, &mut conn.output);
        return end + 1;
    };
    let Some(value) = rest.get(..len + 2) else { return 0 };
    local.stats().memcached.add(Counter::Auth);
    match value.strip_suffix(b"\r\n") {
        Some(login) if log_in(conn, local, login) => conn.output.extend_from_slice(b"STORED\r\n"),
        Some(_) => {
            local.stats().memcached.add(Counter::AuthError);
            write_error(MemcacheError::AuthenticationFailure, &mut conn.output);
        }
        None => {
            local.stats().memcached.add(Counter::AuthError);
            conn.output.extend_from_slice(b"CLIENT_ERROR bad termination\r\n");
        }
    }
    end + 1 + len + 2
}

/// Tries `user password` as AUTH does.
fn log_in(conn: &mut Conn, local: &mut ThreadState, login: &[u8]) -> bool {
    let Some(space) = memchr::memchr(b' ', login) else { return false };
    run_as_client(conn, local, &[b"AUTH", &login[..space], &login[space + 1..]])
}

/// Runs a command of Redis that answers at once, as the connection's user; returns whether it answered OK.
pub(super) fn run_as_client(conn: &mut Conn, local: &mut ThreadState, words: &[&[u8]]) -> bool {
    let args = OwnedArgs::from_slices(words);
    let ready = dispatch::prepare(local, args.args());
    let mut out = Vec::new();
    let call = CommandCall { session: &mut conn.session, out: &mut out, token: conn.token };
    dispatch::execute(local, call, &conn.info, ready, args.args());
    out == b"+OK\r\n"
}
