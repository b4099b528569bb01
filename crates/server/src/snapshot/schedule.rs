//! When the server takes snapshots by itself: after a number of changes within a time, or by the clock.

use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use chrono::{DateTime, Timelike, Utc};
use croner::Cron;

use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::Live;

use super::RefusedSave;
use super::run::SnapshotOrder;

/// Seconds between a snapshot that failed and the next attempt by count of changes.
const RETRY_S: u64 = 5;
/// The most seconds between attempts while writes are refused.
const REST_S_MAX: u64 = 300;

/// The clock's side of it, kept by thread 0.
pub struct Schedule {
    // the settings it was made from
    version: u64,
    cron: Option<Cron>,
    // the minute that was looked at last
    minute: i64,
}

impl Default for Schedule {
    /// The minute in which the server starts is not looked at: it would be saved at once.
    fn default() -> Schedule {
        Schedule { version: 0, cron: None, minute: DateTime::<Utc>::from(SystemTime::now()).timestamp() / 60 }
    }
}

impl Schedule {
    /// Begins what is due; called by thread 0 once a second.
    pub fn step(&mut self, local: &mut ThreadState) {
        let snapshots = &local.shared.snapshots;
        if snapshots.current().is_some() || snapshots.loading.is_on() || snapshots.ending.is_on() {
            return;
        }
        let scheduled = snapshots.take_scheduled();
        // Whatever the reason, the one that begins now comes after it.
        let is_outdated = is_outdated(local);
        let why = match () {
            _ if scheduled.is_some() => "asked for while another was taken",
            _ if self.is_time(local) => "by the clock",
            _ if is_changed_enough(local) => "by count of changes",
            _ if is_outdated => "all databases were emptied",
            _ if is_worth_another(local) => "writes are refused until one succeeds",
            _ => return,
        };
        let Some(order) = scheduled.map(Ok).or_else(|| SnapshotOrder::of(&local.live)) else { return };
        tracing::info!("taking a snapshot: {why}");
        let why = match order.map(|order| super::start(local, order)) {
            Ok(Ok(_)) => return,
            Err(why) => why,
            // A client has begun one at this moment.
            Ok(Err(RefusedSave::Busy(order))) => return snapshots.put_back(*order),
            Ok(Err(refused)) => refused.to_string(),
        };
        tracing::warn!("the snapshot was not begun: {why}");
    }

    /// Whether the clock says so; true once a minute at most.
    fn is_time(&mut self, local: &ThreadState) -> bool {
        let now = DateTime::<Utc>::from(SystemTime::now());
        let minute = now.timestamp() / 60;
        if self.version != local.live.version {
            self.version = local.live.version;
            self.cron = cron_of(&local.live);
        }
        if std::mem::replace(&mut self.minute, minute) == minute {
            return false;
        }
        let persistence = &local.live.persistence;
        match &self.cron {
            Some(cron) => cron.is_time_matching(&start_of_minute(now)).unwrap_or(false),
            None => is_scheduled(&persistence.save_schedule, now),
        }
    }
}

/// Whether snapshots are taken without being asked for.
pub fn is_automatic(live: &Live) -> bool {
    let persistence = &live.persistence;
    !persistence.save.is_empty()
        || !persistence.snapshot_cron.is_empty()
        || !persistence.save_schedule.is_empty()
}

/// Whether one is taken before the server ends.
pub fn saves_at_end(live: &Live) -> bool {
    !live.persistence.dbfilename.is_empty() && !live.persistence.never_saves
}

fn cron_of(live: &Live) -> Option<Cron> {
    let text = &live.persistence.snapshot_cron;
    if text.is_empty() {
        return None;
    }
    Cron::from_str(text).map_err(|error| tracing::error!("snapshot_cron '{text}': {error}")).ok()
}

fn start_of_minute(now: DateTime<Utc>) -> DateTime<Utc> {
    now.with_second(0).and_then(|now| now.with_nanosecond(0)).unwrap_or(now)
}

/// Whether `pattern`, HH:MM with `*` for any, matches.
fn is_scheduled(pattern: &str, now: DateTime<Utc>) -> bool {
    let Some((hours, minutes)) = pattern.split_once(':') else { return false };
    let fits = |field: &str, value: u32| field == "*" || field.parse() == Ok(value);
    fits(hours, now.hour()) && fits(minutes, now.minute())
}

/// Whether one of the `save` rules is met.
fn is_changed_enough(local: &ThreadState) -> bool {
    let points = &local.live.persistence.save;
    if points.is_empty() {
        return false;
    }
    let shared = local.shared;
    let now_s = local.now_ms / 1000;
    let history = lock(&shared.snapshots.history).clone();
    if history.error.is_some() && now_s < history.tried_s + RETRY_S {
        return false;
    }
    let changes = super::changes_of(shared).saturating_sub(history.changes);
    let since_s = now_s.saturating_sub(history.saved_s.max(shared.started_unix_s));
    points.iter().any(|point| changes >= point.changes && since_s > point.seconds && changes > 0)
}

/// Whether there are `save` rules and FLUSHALL came since the last snapshot was begun.
fn is_outdated(local: &ThreadState) -> bool {
    let is_outdated = local.shared.snapshots.is_outdated.swap(false, Ordering::Relaxed);
    is_outdated && !local.live.persistence.save.is_empty()
}

/// Whether writes are refused as the last one failed, and it is time to see whether the disk has room again.
fn is_worth_another(local: &ThreadState) -> bool {
    if !local.refuses_writes() {
        return false;
    }
    let history = lock(&local.shared.snapshots.history);
    local.now_ms / 1000 >= history.tried_s + rest_s(history.took_s.unwrap_or(0))
}

/// Seconds between a snapshot that took `took_s` to fail and the next attempt: a tenth of the time is spent on attempts.
fn rest_s(took_s: u64) -> u64 {
    took_s.saturating_mul(9).clamp(RETRY_S, REST_S_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(text).expect("a time").with_timezone(&Utc)
    }

    #[test]
    fn hours_and_minutes_match_by_pattern() {
        let now = at("2026-11-21T23:05:59Z");
        for (pattern, fits) in
            [("*:*", true), ("23:*", true), ("*:05", true), ("*:5", true), ("23:06", false), ("", false)]
        {
            assert_eq!(is_scheduled(pattern, now), fits, "{pattern}");
        }
    }

    #[test]
    fn attempts_rest_longer_when_they_take_longer() {
        assert_eq!([0, 1, 20, 1000, u64::MAX].map(rest_s), [5, 9, 180, 300, 300]);
    }

    #[test]
    fn cron_is_looked_at_by_the_minute() {
        for (pattern, fits) in
            [("*/5 * * * *", true), ("5 23 * * sat", true), ("6 * * * *", false), ("5 23 22 * *", false)]
        {
            let cron = Cron::from_str(pattern).expect("a pattern");
            let now = start_of_minute(at("2026-11-21T23:05:59Z"));
            assert_eq!(cron.is_time_matching(&now).unwrap_or(false), fits, "{pattern}");
        }
    }
}
