//! `flush_all`: every key of the database deleted, now or later.

use std::sync::Mutex;

use darter_txn::LockSet;
use darter_wire::OwnedArgs;

use super::run::{origin, queue};
use crate::engine::lease;
use crate::engine::origin::Origin;
use crate::exec::{self, CommandCall, Ran};
use crate::job::Shards;
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// When a flush is still to come, Unix milliseconds; a later `flush_all` takes its place.
#[derive(Debug, Default)]
pub struct Flush(Mutex<Option<u64>>);

impl Flush {
    /// Runs the flush whose time has come, if there is one. Called by thread 0 at every tick.
    pub fn keep(local: &mut ThreadState) {
        let now_ms = local.now_ms;
        let due = lock(&local.shared.memcached_flush.0).take_if(|at_ms| *at_ms <= now_ms);
        if due.is_some() {
            now(local, Origin::nobody(local.thread), &mut Vec::new(), true);
        }
    }
}

/// Longer delays are Unix time.
const RELATIVE_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// `flush_all`, at once or after `delay` seconds.
pub(super) fn run(local: &mut ThreadState, call: CommandCall<'_>, delay: i64, is_quiet: bool) -> Ran {
    let seconds = u64::try_from(delay).unwrap_or(0);
    let at_ms = match seconds.saturating_mul(1000) {
        ms if delay <= RELATIVE_SECONDS_MAX => local.now_ms.saturating_add(ms),
        ms => ms,
    };
    let is_later = at_ms > local.now_ms;
    *lock(&local.shared.memcached_flush.0) = is_later.then_some(at_ms);
    if !is_later {
        return now(local, origin(local, call.session.id, call.token), call.out, is_quiet);
    }
    if !is_quiet {
        call.out.extend_from_slice(b"OK\r\n");
    }
    Ran::Done
}

/// Deletes everything with all shards held, or leaves it to a job.
fn now(local: &mut ThreadState, origin: Origin, out: &mut Vec<u8>, is_quiet: bool) -> Ran {
    let wanted = LockSet::all(local.shared.router.shards_len());
    let raw: &[u8] = if is_quiet { b"flush_all noreply\r\n" } else { b"flush_all\r\n" };
    let mut grant = match lease::take(local, &wanted) {
        Ok(grant) => grant,
        Err(grant) => {
            queue(local, origin, raw.into(), wanted, grant);
            return Ran::Stalled;
        }
    };
    granted(local, &mut grant, origin, is_quiet, out);
    lease::release(local, grant);
    Ran::Done
}

/// Deletes everything, with all shards held.
pub(super) fn granted(
    local: &mut ThreadState,
    grant: &mut Shards,
    origin: Origin,
    is_quiet: bool,
    out: &mut Vec<u8>,
) {
    let entry = local.shared.verbs.flush();
    let args = OwnedArgs::from_slices(&[entry.spec.name.as_bytes()]);
    exec::run_granted(local, grant, origin, entry, args.args(), &mut Vec::new());
    if !is_quiet {
        out.extend_from_slice(b"OK\r\n");
    }
}
