//! `/metrics`: the server's numbers for Prometheus.
//!
//! Called by the routes. Names, types and labels are Dragonfly's where it has the same thing, so that its dashboards
//! work; our own begin with `darter_`. No shard or client is asked: threads note their numbers during housekeeping,
//! and this adds them up.

mod own;
mod table;
mod text;

use std::collections::HashMap;

use darter_reactor::process::{self, CpuTimes};

use crate::replication::show::{Follower, followers};
use crate::report::{self, CommandTotals, Report};
use crate::shared::Shared;
use crate::stats::histogram::Sum;
use crate::sync::lock;
use darter_config::Live;
use text::{MetricKind, MetricsPage, Samples};

/// The data of all families, read once.
struct Scrape<'a> {
    shared: &'a Shared,
    live: &'a Live,
    report: Report,
    /// Commands that were called, refused or failed, by id.
    commands: Vec<(&'static str, CommandTotals)>,
    /// Durations of turns of all threads.
    turns: Sum,
    cpu: CpuTimes,
    /// Fields of INFO persistence and replication.
    info: HashMap<String, String>,
    errors: Vec<(String, u64)>,
    /// The replicas of this server.
    followers: Vec<Follower>,
}

/// The source of a family's samples.
enum MetricValue {
    /// Its one number.
    Number(fn(&Scrape<'_>) -> f64),
    /// Its one number, while this server follows another. A master does not name the family, so that an alert for
    /// "the link is down" is about replicas alone.
    OfReplica(fn(&Scrape<'_>) -> f64),
    /// Samples with labels.
    Many(fn(&Scrape<'_>, &mut Samples<'_>)),
    /// Zeros for what Darter does not have, one for each value of a label.
    Zero(&'static str, &'static [&'static str]),
}

struct Family {
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    value: MetricValue,
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Scrape<'_>) -> f64) -> Family {
    Family { name, kind: MetricKind::Gauge, help, value: MetricValue::Number(value) }
}

const fn gauge_of_replica(name: &'static str, help: &'static str, value: fn(&Scrape<'_>) -> f64) -> Family {
    Family { name, kind: MetricKind::Gauge, help, value: MetricValue::OfReplica(value) }
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Scrape<'_>) -> f64) -> Family {
    Family { name, kind: MetricKind::Counter, help, value: MetricValue::Number(value) }
}

const fn many(
    name: &'static str,
    kind: MetricKind,
    help: &'static str,
    value: fn(&Scrape<'_>, &mut Samples<'_>),
) -> Family {
    Family { name, kind, help, value: MetricValue::Many(value) }
}

impl<'a> Scrape<'a> {
    fn look(shared: &'a Shared, live: &'a Live) -> Scrape<'a> {
        let report = Report::glance(shared);
        let is_used = |totals: &CommandTotals| totals.calls + totals.rejected + totals.failed > 0;
        let commands = shared
            .registry
            .entries()
            .iter()
            .map(|entry| (entry.spec.name, CommandTotals::of(shared, entry.id)))
            .filter(|(_, totals)| is_used(totals))
            .collect();
        let mut turns = Sum::default();
        shared.stats.iter().for_each(|stats| turns.add(&stats.turn_times));
        let mut errors: Vec<_> = lock(&shared.errors).iter().map(|(word, n)| (word.clone(), *n)).collect();
        errors.sort_unstable();
        Scrape {
            shared,
            live,
            followers: followers(shared),
            info: crate::commands::info::fields(shared, live, &report, &[b"persistence", b"replication"]),
            report,
            commands,
            turns,
            cpu: process::cpu_times(),
            errors,
        }
    }

    /// A number of INFO; 0 if it is missing.
    fn number(&self, field: &str) -> f64 {
        self.info.get(field).and_then(|text| text.parse().ok()).unwrap_or(0.0)
    }
}

/// The whole page. Cost: every counter of every command of every thread, and two files of `/proc`.
pub fn render(shared: &Shared, live: &Live) -> String {
    let scene = Scrape::look(shared, live);
    let mut page = MetricsPage::new();
    let follows = scene.info.contains_key("master_link_status");
    for family in table::DRAGONFLY.iter().chain(own::OWN) {
        if matches!(family.value, MetricValue::OfReplica(_)) && !follows {
            continue;
        }
        let mut samples = page.family(family.name, family.kind, family.help);
        match family.value {
            MetricValue::Number(of) | MetricValue::OfReplica(of) => samples.one(of(&scene)),
            MetricValue::Many(write) => write(&scene, &mut samples),
            MetricValue::Zero(_, []) => samples.one(0),
            MetricValue::Zero(label, texts) => texts.iter().for_each(|text| samples.with(label, text, 0)),
        }
    }
    page.into_text()
}

/// Durations of the calls of one command.
pub(super) struct Timed {
    pub(super) name: &'static str,
    /// Calls, of which some were timed.
    pub(super) calls: u64,
    pub(super) times: Sum,
    /// Nanoseconds of all of them.
    pub(super) nanos: u64,
}

/// The times of the commands that were called most.
pub(super) fn most_called(shared: &Shared) -> Vec<Timed> {
    let calls_of = |id: usize| shared.stats.iter().map(|stats| stats.commands[id].calls.get()).sum::<u64>();
    let entries = shared.registry.entries();
    let mut ids: Vec<(usize, u64)> =
        entries.iter().map(|entry| (entry.id, calls_of(entry.id))).filter(|(_, calls)| *calls > 0).collect();
    ids.sort_unstable_by_key(|(id, calls)| (std::cmp::Reverse(*calls), *id));
    ids.truncate((HISTOGRAMS_MAX / shared.stats.len().max(1)).max(4));
    ids.sort_unstable();
    let timed = |(id, _): (usize, u64)| {
        let estimate = report::estimate_of(shared, id);
        let (times, calls, nanos) = (estimate.times()?, estimate.calls(), estimate.nanos());
        Some(Timed { name: entries[id].spec.name, calls, times, nanos })
    };
    ids.into_iter().filter_map(timed).collect()
}

/// Histograms read for one page, those of each thread counted: 2 KiB that another processor may have to hand over.
const HISTOGRAMS_MAX: usize = 128;

#[cfg(test)]
mod tests;
