//! What commands of each slot take, while `cluster-slot-stats-enabled` is set (CLUSTER SLOT-STATS).
//!
//! `timing` and `large` note each call with keys; all calls take the timed way then. Without the setting nothing is counted and
//! nothing is allocated. A call counts for the slot that all its keys have, the calls of an EXEC one by one, and a script for
//! its declared keys.

use std::sync::Arc;
use std::time::Duration;

use darter_base::crc::SLOTS_LEN;
use darter_cluster::{SlotMap, slot_of};
use darter_command::Flags;
use darter_command::slot_usage::SlotUsage;
use darter_config::{ClusterMode, Live};
use darter_wire::Args;

use crate::hot_keys::request_bytes;
use crate::registry::CommandEntry;
use crate::shared::Shared;
use crate::thread_state::ThreadState;

/// The table in which calls are counted; `None`: they are not.
pub fn table(shared: &Shared, live: &Live) -> Option<Arc<SlotUsage>> {
    let is_on = live.cluster.counts_by_slot && live.cluster.mode != ClusterMode::Off;
    is_on.then(|| shared.slot_usage.get_or_init(Arc::default).clone())
}

/// Notes how long a call took, and which keys it named.
#[inline]
pub fn note_time(local: &ThreadState, entry: &CommandEntry, args: Args<'_>, took: Duration) {
    if let Some(usage) = &local.env.slot_usage {
        note_keys(usage, entry, args);
        if let Some(slot) = slot_of_call(entry, args) {
            usage.add_time(slot, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }
}

/// Counts the keys of a call as read or written, each for its slot.
#[cold]
fn note_keys(usage: &SlotUsage, entry: &CommandEntry, args: Args<'_>) {
    let flags = entry.spec.flags;
    entry.spec.each_key(args, &mut |at| {
        let slot = slot_of(args.at(at));
        if flags.any(Flags::WRITE) {
            usage.add_writes(slot, 1);
        } else if flags.any(Flags::READONLY) {
            usage.add_reads(slot, 1);
        }
    });
}

/// Notes the bytes of a call, its reply being of `reply_bytes`.
pub fn note_bytes(local: &ThreadState, entry: &CommandEntry, args: Args<'_>, reply_bytes: usize) {
    if let Some(usage) = &local.env.slot_usage
        && let Some(slot) = slot_of_call(entry, args)
    {
        usage.add_bytes(slot, request_bytes(args) as u64, reply_bytes as u64);
    }
}

/// The one slot of a call's keys.
#[cold]
fn slot_of_call(entry: &CommandEntry, args: Args<'_>) -> Option<u16> {
    let (mut first, mut is_one) = (None, true);
    entry.spec.each_key(args, &mut |at| {
        let slot = slot_of(args.at(at));
        is_one &= *first.get_or_insert(slot) == slot;
    });
    first.filter(|_| is_one)
}

/// Begins again from zero with slots that this node has got or given away.
pub fn restart_changed(shared: &Shared, before: &SlotMap, now: &SlotMap) {
    if let Some(usage) = shared.slot_usage.get() {
        let has_changed = |slot: &u16| before.is_own(*slot) != now.is_own(*slot);
        (0..SLOTS_LEN).filter(has_changed).for_each(|slot| usage.reset(slot));
    }
}
