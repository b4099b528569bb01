//! Output on its way to the kernel: how much a client may let pile up, and for how long.
//!
//! As in Redis, what fits the 16 KiB that every client may have counts against no limit. What is longer is sent a part at
//! a time, each client getting its part in turn: a thread that hands megabytes to the kernel in one go answers nobody else.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::Flags;
use darter_command::spec::Group;
use darter_reactor::{Reactor, Token};

use crate::conn::traffic;
use crate::conn::{Conn, OUTPUT_PAUSE_BYTES, STRANGER_INPUT_BYTES_MAX};
use crate::journal::log::{HeldFor, HeldLog};
use crate::registry::RunKind;
use crate::session::Gate;
use crate::shared::Shared;
use crate::thread_state::ThreadState;
use crate::worker::find;
use darter_config::OutputLimit;

/// Output up to this many bytes counts against no limit.
pub const FREE_BYTES: usize = 16 << 10;
/// Unsent bytes a client may have that has never logged in where a password is set (CVE-2025-21605).
const STRANGER_BYTES_MAX: usize = 1 << 10;

/// Input kept for a connection that cannot run commands before reading from it is paused.
const INPUT_PAUSE_BYTES: usize = 1 << 20;
/// Output buffers up to this size are kept for reuse by the same connection.
const OUTPUT_KEEP_BYTES: usize = 64 << 10;

/// The most bytes of one long output that the kernel gets in one turn.
pub const PART_BYTES: usize = 128 << 10;
/// The most bytes of all long outputs together in one turn: some 100 microseconds of work.
pub const TURN_BYTES: usize = 4 * PART_BYTES;
/// Sent bytes of an output are dropped from this length on, if the rest is short enough to be moved.
const SENT_KEEP_BYTES: usize = 64 << 10;
const MOVED_BYTES_MAX: usize = 2 << 20;

/// What became of a connection's output.
pub struct Flushed {
    /// The connection is to stay.
    pub is_open: bool,
    /// Commands that waited for the output to go out may run.
    pub goes_on: bool,
    /// Others have been sent what the turn may send; it comes first in the next.
    pub is_late: bool,
}

impl Flushed {
    const CLOSED: Flushed = Flushed { is_open: false, goes_on: false, is_late: false };
    const NOTHING_SENT: Flushed = Flushed { is_open: true, goes_on: false, is_late: false };
}

/// What the kernel has taken of an output that was sent together with others.
#[derive(Debug)]
pub struct Handed {
    asked: usize,
    took: io::Result<usize>,
}

/// Fewer outputs are sent one by one.
const TOGETHER_MIN: usize = 64;

/// Hands the outputs of many connections to the kernel at once, as far as nothing else is to be asked before. Returns
/// what became of them, each in its connection's turn: an item for each of `tokens`, none of which comes twice, or nothing.
pub fn flush_together(
    local: &mut ThreadState,
    reactor: &mut Reactor,
    conns: &mut [Option<Box<Conn>>],
    tokens: &[Token],
) -> Vec<Option<Handed>> {
    let mut handed = Vec::new();
    if tokens.len() < TOGETHER_MIN || local.journal.holds {
        return handed;
    }
    // What fits the free bytes is over no limit.
    let is_plain = |conn: &Conn| {
        // One that others may send to is held while it is sent to.
        let is_alone = conn.session.direct_push.is_none();
        let is_small = conn.sent < conn.output.len() && conn.unsent_bytes() <= FREE_BYTES;
        is_alone && is_small && !conn.awaits_writable && conn.channel.is_none()
    };
    for &token in tokens {
        if let Some(conn) = find(conns, token).filter(|conn| is_plain(conn)) {
            conn.show_session(local);
        }
    }
    let plain = tokens.iter().enumerate().filter_map(|(at, &token)| {
        let conn = conns.get(token.index())?.as_deref()?;
        (conn.token == token && is_plain(conn)).then_some((at, (token, &conn.output[conn.sent..])))
    });
    let (places, pieces): (Vec<usize>, Vec<_>) = plain.unzip();
    let mut took = Vec::with_capacity(pieces.len());
    if reactor.send_many(&pieces, &mut took) {
        handed.resize_with(tokens.len(), || None);
        for ((at, (_, piece)), took) in places.into_iter().zip(pieces).zip(took) {
            handed[at] = Some(Handed { asked: piece.len(), took });
        }
    }
    handed
}

/// Hands a connection's output to the kernel, as far as it takes it, or what is left of it after [`flush_together`].
pub fn flush(
    local: &mut ThreadState,
    reactor: &mut Reactor,
    conn: &mut Conn,
    handed: Option<Handed>,
) -> Flushed {
    match conn.session.direct_push.clone() {
        None => flush_held(local, reactor, conn, handed),
        Some(direct_push) => {
            let mut way = direct_push.hold();
            let rest = way.take_rest();
            conn.output.splice(conn.sent..conn.sent, rest);
            let flushed = flush_held(local, reactor, conn, handed);
            way.settle(conn, reactor.socket(conn.token));
            flushed
        }
    }
}

/// [`flush`], while nobody else sends to the client.
fn flush_held(
    local: &mut ThreadState,
    reactor: &mut Reactor,
    conn: &mut Conn,
    handed: Option<Handed>,
) -> Flushed {
    match handed {
        None => conn.show_session(local),
        Some(Handed { asked, took }) => {
            if !note_sent(local, reactor, conn, took.map(|n| (n, n < asked))) {
                return Flushed::CLOSED;
            }
        }
    }
    if is_over_limit(local, conn) {
        return Flushed::CLOSED;
    }
    if local.shared.group.is_some() && !local.journal.holds {
        // A member may lead later: what was asked for until then is known one command at a time only.
        asks_for_data(local.shared, conn);
    }
    let was_full = conn.output.len() - conn.sent > OUTPUT_PAUSE_BYTES;
    let owes = conn.sent < conn.output.len() || conn.channel.as_ref().is_some_and(|channel| channel.owes());
    if owes && !conn.awaits_writable {
        let end = match local.journal.holds {
            false => conn.output.len(),
            true => {
                let (wait, is_failing) = (held_for(local.shared, conn), local.shared.journal.is_failing());
                local.journal.may_send(&mut conn.held, conn.output.len(), is_failing, wait)
            }
        };
        // What the journal holds back is looked at again when it has been synced.
        if end <= conn.sent && conn.sent < conn.output.len() {
            conn.show_buffers(local);
            return Flushed::NOTHING_SENT;
        }
        let end = match end - conn.sent {
            0..=FREE_BYTES => end,
            _ if local.send_left == 0 => {
                conn.show_buffers(local);
                return Flushed { is_late: true, ..Flushed::NOTHING_SENT };
            }
            long => {
                let part = long.min(PART_BYTES).min(local.send_left);
                local.send_left -= part;
                conn.sent + part
            }
        };
        let handed = match conn.channel {
            None => reactor.send(conn.token, &conn.output[conn.sent..end]).map(|n| (n, n < end - conn.sent)),
            Some(_) => traffic::send(local, reactor, conn, end),
        };
        if !note_sent(local, reactor, conn, handed) {
            return Flushed::CLOSED;
        }
    }
    let pending = conn.output.len() - conn.sent;
    if conn.session.is_closing && pending == 0 && !conn.is_stalled {
        traffic::say_goodbye(reactor, conn);
        reactor.shutdown_write(conn.token);
        return Flushed::CLOSED;
    }
    conn.show_buffers(local);
    Flushed { goes_on: was_full && !conn.is_held_back(), ..Flushed::NOTHING_SENT }
}

/// Gives a connection a frame in two pieces. A long one goes past its output, so that nobody copies it here, if nothing else is
/// on its way there; what the kernel does not take waits in the output. False: the connection is broken.
pub fn send_frame(
    local: &mut ThreadState,
    reactor: &mut Reactor,
    conn: &mut Conn,
    (head, body): (&[u8], &[u8]),
) -> bool {
    let is_plain = conn.output.is_empty() && conn.channel.is_none() && conn.session.reading.is_none();
    let is_free = !conn.awaits_writable && !local.journal.holds && conn.session.direct_push.is_none();
    let mut took = 0;
    if body.len() >= DIRECT_BYTES_MIN && is_plain && is_free && local.send_left >= DIRECT_BYTES_MIN {
        let part = body.get(..local.send_left).unwrap_or(body);
        let Ok(n) = reactor.send_two(conn.token, head, part) else { return false };
        local.send_left = local.send_left.saturating_sub(n);
        took = n;
        count_sent(local, conn, n);
        if n < head.len() + part.len() {
            conn.awaits_writable = true;
            reactor.want_writable(conn.token);
        }
    }
    let out = conn.messages();
    out.extend_from_slice(head.get(took..).unwrap_or_default());
    out.extend_from_slice(body.get(took.saturating_sub(head.len())..).unwrap_or_default());
    true
}

/// Shorter frames are gathered in the output: a call into the kernel for each is dearer than the copy.
const DIRECT_BYTES_MIN: usize = 16 << 10;

/// Returns the wait of a connection's output: members of the group must get what they are to acknowledge, and a connection
/// that has asked for no data shows none.
pub fn held_for(shared: &Shared, conn: &mut Conn) -> HeldFor {
    // Without a group both waits are one.
    if shared.group.is_none() {
        return HeldFor::All;
    }
    let is_member = conn.info.is_replica.load(Relaxed);
    if is_member || !asks_for_data(shared, conn) { HeldFor::Own } else { HeldFor::All }
}

/// Returns true if a client has run a command that may show data, or is sent what others do. Asked before each send; several
/// commands since the last time count as such.
fn asks_for_data(shared: &Shared, conn: &mut Conn) -> bool {
    let session = &mut conn.session;
    if session.has_asked {
        return true;
    }
    let usage = session.usage;
    let ran = usage.commands.saturating_sub(std::mem::replace(&mut session.looked_commands, usage.commands));
    let is_harmless = || {
        let entry = shared.registry.entries().get(usage.last_command as usize);
        entry.is_none_or(|entry| {
            let is_about_server = matches!(entry.spec.group, Group::Connection | Group::Server);
            let reaches_data = entry.spec.flags.any(Flags::WRITE.with(Flags::READONLY));
            is_about_server && !reaches_data && matches!(entry.run, RunKind::Server(_))
        })
    };
    session.has_asked |= ran > 1 || ran == 1 && !is_harmless();
    session.has_asked |= session.is_monitor || session.subscriptions.is_some() || session.tracking.is_some();
    session.has_asked
}

/// Whether there is output that neither the kernel nor the journal keeps from being sent.
pub fn is_due(conn: &Conn) -> bool {
    conn.sent < conn.output.len() && !conn.awaits_writable && !conn.held.is_waiting()
}

/// Notes how many bytes of an output the kernel took, and whether its buffer is full now; false: the connection is broken.
fn note_sent(
    local: &ThreadState,
    reactor: &mut Reactor,
    conn: &mut Conn,
    handed: io::Result<(usize, bool)>,
) -> bool {
    let Ok((n, is_full)) = handed else { return false };
    count_sent(local, conn, n);
    conn.sent += n;
    if is_full {
        conn.awaits_writable = true;
        reactor.want_writable(conn.token);
    }
    if conn.sent == conn.output.len() {
        conn.sent = 0;
        conn.held = HeldLog::default();
        conn.output.clear();
        if conn.output.capacity() > OUTPUT_KEEP_BYTES {
            conn.output = Vec::new();
        }
    } else if conn.sent >= SENT_KEEP_BYTES && conn.output.len() - conn.sent <= MOVED_BYTES_MAX.min(conn.sent)
    {
        // An answer that is given in slices may never be all out before its end.
        conn.output.drain(..conn.sent);
        conn.held.move_down(conn.sent);
        conn.sent = 0;
    }
    true
}

/// Counts bytes that the kernel took.
fn count_sent(local: &ThreadState, conn: &mut Conn, n: usize) {
    local.stats().output_bytes.add(n as u64);
    local.stats().writes.add(1);
    conn.session.usage.output_bytes += n as u64;
    if n > 0 {
        conn.stuck_since_ms = local.now_ms;
        conn.info.active_ms.store(local.now_ms, Relaxed);
    }
}

/// Stops reading from a connection that cannot keep up with itself, and starts again when it can.
pub fn balance_reading(reactor: &mut Reactor, conn: &mut Conn) {
    let is_stranger = conn.session.gate.has(Gate::LOGIN);
    let input_bytes_max = if is_stranger { STRANGER_INPUT_BYTES_MAX } else { INPUT_PAUSE_BYTES };
    let is_full = conn.is_held_back() && conn.input.len() > input_bytes_max;
    if is_full != conn.is_paused {
        conn.is_paused = is_full;
        conn.info.is_paused.store(is_full, Relaxed);
        if is_full {
            reactor.pause(conn.token);
        } else {
            reactor.resume(conn.token);
        }
    }
}

/// Whether a client lets more output pile up than is allowed; it is to be closed then. Notes the time.
pub fn is_over_limit(local: &ThreadState, conn: &mut Conn) -> bool {
    let pending = conn.unsent_bytes();
    // What has just been written may go out at once.
    if conn.awaits_writable && pending > STRANGER_BYTES_MAX && is_stranger(local, conn) {
        return close(local, conn, pending);
    }
    let counted = if pending > FREE_BYTES { pending as u64 } else { 0 };
    let OutputLimit { hard_bytes, soft_bytes, soft_s } = class_of(local, conn);
    if hard_bytes != 0 && counted > hard_bytes {
        return close(local, conn, pending);
    }
    if soft_bytes == 0 || counted <= soft_bytes {
        conn.over_soft_since_ms = 0;
        return false;
    }
    if conn.over_soft_since_ms == 0 {
        conn.over_soft_since_ms = local.now_ms;
    }
    local.now_ms.saturating_sub(conn.over_soft_since_ms) > soft_s.saturating_mul(1000)
        && close(local, conn, pending)
}

/// Whether a client has taken nothing of its output for `send_timeout` seconds.
pub fn is_stuck(local: &ThreadState, conn: &mut Conn) -> bool {
    if conn.sent == conn.output.len() || conn.held.is_waiting() {
        conn.stuck_since_ms = 0;
        return false;
    }
    if conn.stuck_since_ms == 0 {
        conn.stuck_since_ms = local.now_ms;
    }
    let timeout_ms = u64::from(local.live.send_timeout_s) * 1000;
    timeout_ms > 0 && local.now_ms.saturating_sub(conn.stuck_since_ms) > timeout_ms
}

fn is_stranger(local: &ThreadState, conn: &Conn) -> bool {
    conn.session.gate.has(Gate::LOGIN) && !conn.session.was_trusted && local.shared.acl.default_needs_login()
}

fn class_of(local: &ThreadState, conn: &Conn) -> OutputLimit {
    let limits = &local.live.output_limits;
    match conn.is_subscriber() {
        true => limits.pubsub,
        // As in Redis; what these get they have not asked for one by one.
        false if conn.session.is_monitor || conn.session.gets_copy() => limits.replica,
        false => limits.normal,
    }
}

#[cold]
fn close(local: &ThreadState, conn: &Conn, pending: usize) -> bool {
    local.stats().output_limit_closed.add(1);
    tracing::warn!("closing client {}: {pending} bytes of output that it does not take", conn.session.id);
    true
}
