//! The batch path: `get` of one key and `set`, as nearly all requests are, while nothing stands before the connection's
//! commands.
//!
//! Called by the connection for the bytes at hand, before the decoder. It does what the general way does for such commands,
//! without a `Command` in between, and leaves everything else to it: a busy shard, a command that is to be timed.

use darter_store::Key;
use darter_wire::memcache::{Brief, BriefItem, MemcacheLimits, brief};
use smallvec::SmallVec;

use super::life::Life;
use super::run::{ExecutionContext, on_shard};
use super::store::{self, StoreMode, StoreWanted};
use super::{Counter, DB, SET_EVENT, read};
use crate::conn::Conn;
use crate::exec;
use crate::stats::Count;
use crate::thread_state::ThreadState;

/// Commands read ahead of the one that runs.
const WINDOW: usize = 16;
/// Shorter windows are not worth a look ahead.
const WARM_LEN_MIN: usize = 4;

/// Runs commands from the front of `buf` as far as the batch path goes; returns how many bytes they took.
#[inline]
pub(super) fn run(conn: &mut Conn, local: &mut ThreadState, buf: &[u8]) -> usize {
    let mut done = 0;
    loop {
        let is_open = conn.session.gate.0 == 0 && conn.decoder.is_idle() && !local.times_all;
        let is_open = is_open && !local.shared.memcached_detail.is_on();
        let rest = buf.get(done..).unwrap_or_default();
        if !is_open || rest.is_empty() {
            return done;
        }
        let (taken, goes_on) = run_window(conn, local, rest);
        done += taken;
        if !goes_on {
            return done;
        }
    }
}

/// Reads a window of commands and runs them; returns how many bytes they took, and whether more may follow.
fn run_window(conn: &mut Conn, local: &mut ThreadState, buf: &[u8]) -> (usize, bool) {
    if local.shows_dead_apart {
        return (0, false);
    }
    let limits =
        MemcacheLimits { item_bytes_max: local.live.memcached_item_size_max, ..MemcacheLimits::default() };
    let mut found_ahead: SmallVec<[(Brief<'_>, u64); WINDOW]> = SmallVec::new();
    let (mut at, mut len) = (0, 0);
    while len < WINDOW
        && let Some(found) = buf.get(at..).and_then(|rest| brief(rest, &limits))
    {
        let hash = local.shared.router.hasher().hash_key(found.key);
        exec::cell_of(local.shared, hash).0.prefetch();
        (at, len) = (at + found.consumed, len + 1);
        found_ahead.push((found, hash));
    }
    // Asked once where it lies.
    let window = found_ahead.as_slice();
    if local.looks_ahead && window.len() >= WARM_LEN_MIN {
        let shared = local.shared;
        exec::prefetch(local, DB, false, window.iter().map(|&(_, hash)| exec::cell_of(shared, hash)));
    }
    let mut done = 0;
    for &(found, hash) in window {
        if local.is_gated || conn.is_held_back() || !run_one(conn, local, &found, hash) {
            return (done, false);
        }
        done += found.consumed;
    }
    (done, len == WINDOW)
}

/// Runs a command; returns whether it did. If not, nothing has happened.
#[inline]
fn run_one(conn: &mut Conn, local: &mut ThreadState, found: &Brief<'_>, hash: u64) -> bool {
    let verbs = &local.shared.verbs;
    let entry = if found.item.is_some() { verbs.set() } else { verbs.get() };
    let calls: &'static Count = &local.stats().commands[entry.id].calls;
    if entry.is_timed(calls.get(), false, true) {
        return false;
    }
    let context = ExecutionContext { detail: None, ..ExecutionContext::new(local) };
    let (key, out) = (Key { bytes: found.key, hash }, &mut conn.output);
    let is_done = on_shard(local, conn.session.id, key, |shard| match found.item {
        None => {
            read::get(&context, shard, key, false, None, out);
            out.extend_from_slice(b"END\r\n");
        }
        Some(BriefItem { flags, exptime: 0, value })
            if shard.replace_item(DB, key, (flags, value), context.now_ms, SET_EVENT) =>
        {
            context.counts.add(Counter::Set);
            context.counts.add(Counter::Stored);
            out.extend_from_slice(b"STORED\r\n");
        }
        Some(BriefItem { flags, exptime, value }) => {
            let life = Life::of(exptime, context.now_ms);
            store::classic(&context, shard, key, &StoreWanted::of(StoreMode::Set, value, flags, life), out);
        }
    });
    if is_done {
        calls.add(1);
        conn.session.usage.commands += 1;
        conn.session.usage.last_command = entry.id as u32;
    }
    is_done
}
