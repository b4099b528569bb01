//! What follows from how long a command took: its statistics, the slow log, the latency monitor.

use std::time::Duration;

use darter_command::Flags;
use darter_wire::Args;

use crate::clients::ClientInfo;
use crate::command_log;
use crate::command_log::slots;
use crate::registry::CommandEntry;
use crate::stats::{Histograms, SampleWeight};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::Measure;

/// Notes how long a call took that stands for as many calls as `weight` says, where such times are kept.
pub fn note(
    local: &ThreadState,
    info: &ClientInfo,
    entry: &CommandEntry,
    args: Args<'_>,
    took: Duration,
    weight: SampleWeight,
) {
    local.shared.hot_keys.note_time(local.thread, entry, args, took);
    slots::note_time(local, entry, args, took);
    note_part(local, info, entry, args, took, weight);
}

/// The same for a call whose time is a part of another's, as in a script.
pub fn note_part(
    local: &ThreadState,
    info: &ClientInfo,
    entry: &CommandEntry,
    args: Args<'_>,
    took: Duration,
    weight: SampleWeight,
) {
    let live = &local.live;
    count(local, entry, took, weight);
    let us = took.as_micros() as u64;
    if us >= live.slowlog.slower_us && command_log::keep(local, info, entry, args, Measure::Time, us) {
        local.stats().slow[entry.id].note(us);
    }
    note_event(local, if entry.spec.flags.any(Flags::FAST) { "fast-command" } else { "command" }, took);
}

fn count(local: &ThreadState, entry: &CommandEntry, took: Duration, weight: SampleWeight) {
    let histograms = if local.live.latency_tracking { Histograms::Kept } else { Histograms::Off };
    local.stats().commands[entry.id].time(took.as_nanos() as u64, weight, histograms);
}

/// The same for a command that another thread may have run, long after its client sent it. Such calls are always timed.
pub fn note_job(local: &ThreadState, client: u64, entry: &CommandEntry, args: Args<'_>, took: Duration) {
    local.shared.hot_keys.note_time(local.thread, entry, args, took);
    slots::note_time(local, entry, args, took);
    let live = &local.live;
    let is_slow = took.as_micros() >= u128::from(live.slowlog.slower_us);
    let info = if is_slow { lock(&local.shared.clients).get(&client).cloned() } else { None };
    match info {
        Some(info) => note_part(local, &info, entry, args, took, SampleWeight::One),
        None => count(local, entry, took, SampleWeight::One),
    }
}

/// Notes an event for LATENCY, when it took long enough.
pub fn note_event(local: &ThreadState, event: &'static str, took: Duration) {
    let threshold_ms = local.live.latency_monitor_threshold_ms;
    if threshold_ms > 0 && took.as_millis() >= u128::from(threshold_ms) {
        lock(&local.shared.latency).note(event, local.now_ms / 1000, took.as_millis() as u64);
    }
}
