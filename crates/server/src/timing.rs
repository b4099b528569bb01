//! What follows from how long a command took: its statistics, the slow log, the latency monitor.

use std::time::Duration;

use darter_command::Flags;
use darter_wire::Args;

use crate::clients::ClientCard;
use crate::command_log::{self, Measure};
use crate::core::Core;
use crate::registry::Entry;
use crate::stats::{Histograms, Weight};
use crate::worker::lock;

/// Notes how long a call took that stands for as many calls as `weight` says, where such times are kept.
pub fn note(core: &Core, card: &ClientCard, entry: &Entry, args: Args<'_>, took: Duration, weight: Weight) {
    core.shared.hot_keys.note_time(core.thread, entry, args, took);
    note_part(core, card, entry, args, took, weight);
}

/// The same for a call whose time is a part of another's, as in a script.
pub fn note_part(
    core: &Core,
    card: &ClientCard,
    entry: &Entry,
    args: Args<'_>,
    took: Duration,
    weight: Weight,
) {
    let live = &core.live;
    count(core, entry, took, weight);
    let us = took.as_micros() as u64;
    if us >= live.slowlog.slower_us && command_log::keep(core, card, entry, args, Measure::Time, us) {
        core.stats().slow[entry.id].note(us);
    }
    note_event(core, if entry.spec.flags.any(Flags::FAST) { "fast-command" } else { "command" }, took);
}

fn count(core: &Core, entry: &Entry, took: Duration, weight: Weight) {
    let histograms = if core.live.latency_tracking { Histograms::Kept } else { Histograms::Off };
    core.stats().commands[entry.id].time(took.as_nanos() as u64, weight, histograms);
}

/// The same for a command that another thread may have run, long after its client sent it. Such calls are always timed.
pub fn note_job(core: &Core, client: u64, entry: &Entry, args: Args<'_>, took: Duration) {
    core.shared.hot_keys.note_time(core.thread, entry, args, took);
    let live = &core.live;
    let is_slow = took.as_micros() >= u128::from(live.slowlog.slower_us);
    let card = if is_slow { lock(&core.shared.clients).get(&client).cloned() } else { None };
    match card {
        Some(card) => note_part(core, &card, entry, args, took, Weight::One),
        None => count(core, entry, took, Weight::One),
    }
}

/// Notes an event for LATENCY, when it took long enough.
pub fn note_event(core: &Core, event: &'static str, took: Duration) {
    let threshold_ms = core.live.latency_monitor_threshold_ms;
    if threshold_ms > 0 && took.as_millis() >= u128::from(threshold_ms) {
        lock(&core.shared.latency).note(event, core.now_ms / 1000, took.as_millis() as u64);
    }
}
