//! The numbers that the console draws, as JSON: `/api/stats`.
//!
//! Counters are totals; the page computes differences between two requests. No shard or client is asked.

use std::sync::atomic::Ordering::Relaxed;

use darter_reactor::process;
use serde_json::{Map, Value, json};

use super::metrics::most_called;
use crate::commands::info;
use crate::engine::cluster;
use crate::replication::{group, show};
use crate::report::trend::Point;
use crate::report::{CommandTotals, Report};
use crate::shared::Shared;
use crate::stats::histogram::Sum;
use crate::sync::lock;
use darter_config::Live;
use darter_config::Measure;

/// Load of the last 24 hours: for each distance of points its seconds, and for each point the time in Unix ms,
/// commands, bytes in and bytes out per second, and bytes used.
pub fn history(shared: &Shared) -> Value {
    let startup = shared.startup_bytes.load(Relaxed);
    let history = lock(&shared.history);
    let row = |point: &Point| {
        let rates = [point.commands, point.input_bytes, point.output_bytes];
        let [commands, input, output] = rates.map(|rate| rate.round() as u64);
        [point.at_ms, commands, input, output, startup + point.data_bytes]
    };
    let tiers =
        history.trend().tiers().iter().map(
            |tier| json!({ "seconds": tier.seconds, "points": tier.points().map(row).collect::<Vec<_>>() }),
        );
    json!({ "tiers": tiers.collect::<Vec<_>>() })
}

/// Everything. Cost: as `/metrics`.
pub fn render(shared: &Shared, live: &Live) -> Value {
    let report = Report::glance(shared);
    let cpu = process::cpu_times();
    let fields = |section: &[u8]| -> Map<String, Value> {
        let fields = info::fields(shared, live, &report, &[section]);
        fields.into_iter().map(|(name, text)| (name, Value::String(text))).collect()
    };
    json!({
        "now_ms": crate::clock::unix_ms(),
        "readonly": live.http.console_readonly,
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": shared.started.elapsed().as_secs(),
        "driver": shared.driver_name.get().unwrap_or(&"?"),
        "port": shared.port.load(Relaxed),
        "shards": shared.cells.len(),
        "databases": live.dbnum,
        "slowlog": shared.command_logs.of(Measure::Time).len(),
        "cpu": { "user_s": cpu.user.as_secs_f64(), "system_s": cpu.system.as_secs_f64() },
        "totals": totals(&report),
        "clients": clients(shared, live, &report),
        "memory": memory(shared, live, &report),
        "keyspace": keyspace(&report),
        "threads": threads(shared),
        "latency": ranges(&command_times(shared)),
        "turns": ranges(&turn_times(shared)),
        "commands": commands(shared),
        "persistence": fields(b"persistence"),
        "replication": fields(b"replication"),
        "replicas": show::overview(shared),
        "group": group::show::console(shared),
        "cluster": cluster::show::console(shared),
    })
}

fn totals(report: &Report) -> Value {
    let (totals, counters) = (&report.totals, &report.shards.counters);
    json!({
        "commands": totals.commands,
        "connections": totals.connections,
        "rejected_connections": totals.rejected_connections,
        "input_bytes": totals.input_bytes,
        "output_bytes": totals.output_bytes,
        "errors": totals.errors,
        "contended": totals.contended,
        "pipelined": totals.pipelined,
        "hits": counters.hits,
        "misses": counters.misses,
        "expired": counters.expired,
        "evicted": counters.evicted,
        "changes": report.shards.changes,
    })
}

fn clients(shared: &Shared, live: &Live, report: &Report) -> Value {
    let clients = &report.clients;
    json!({
        "connected": clients.connected,
        "max": live.maxclients,
        "blocked": clients.blocked,
        "subscribed": clients.subscribed,
        "watching": clients.watching,
        "tracking": shared.tracking.clients_len(),
    })
}

fn memory(shared: &Shared, live: &Live, report: &Report) -> Value {
    let memory = &report.memory;
    let max_bytes = shared.limit.max_bytes(live);
    json!({
        "used": memory.used,
        "peak": memory.peak,
        "rss": memory.rss,
        "max": if max_bytes == u64::MAX { 0 } else { max_bytes },
        "classes": [
            ["Keys and values", memory.records],
            ["Free space in pages", memory.keyspace.saturating_sub(memory.records + memory.index)],
            ["Index", memory.index],
            ["Client buffers", memory.clients],
            ["Tables and stacks", memory.startup],
        ],
    })
}

/// Databases that hold a key.
fn keyspace(report: &Report) -> Vec<Value> {
    let shards = &report.shards;
    let with_keys = shards.keys.iter().zip(&shards.expiring).enumerate().filter(|(_, (keys, _))| **keys > 0);
    with_keys.map(|(db, (keys, expiring))| json!({ "db": db, "keys": keys, "expiring": expiring })).collect()
}

fn threads(shared: &Shared) -> Vec<Value> {
    let rows = shared.stats.iter().zip(&shared.handles);
    rows.map(|(stats, handle)| {
        json!({
            "busy_us": stats.busy_nanos.get() / 1000,
            "commands": stats.commands_run(),
            "connections": handle.connections.load(Relaxed),
        })
    })
    .collect()
}

/// Durations of all commands together; a sample represents the cheap ones.
fn command_times(shared: &Shared) -> Sum {
    let mut sum = Sum::default();
    for timed in most_called(shared) {
        sum.add_weighted(&timed.times, timed.calls as f64 / timed.times.count().max(1) as f64);
    }
    sum
}

fn turn_times(shared: &Shared) -> Sum {
    let mut sum = Sum::default();
    shared.stats.iter().for_each(|stats| sum.add(&stats.turn_times));
    sum
}

fn ranges(times: &Sum) -> Vec<[u64; 2]> {
    times.ranges().map(|(end, count)| [end, count]).collect()
}

fn commands(shared: &Shared) -> Vec<Value> {
    let totals =
        shared.registry.entries().iter().map(|entry| (entry.spec.name, CommandTotals::of(shared, entry.id)));
    let mut called: Vec<_> = totals.filter(|(_, totals)| totals.calls > 0).collect();
    called.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.calls));
    let row = |(name, totals): (&str, CommandTotals)| json!({ "name": name, "calls": totals.calls, "us": totals.us, "failed": totals.failed + totals.rejected });
    called.into_iter().map(row).collect()
}
