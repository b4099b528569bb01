//! MEMORY: the use of memory. USAGE of a key is a separate data command.

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::limit::relief;
use crate::report::Report;
use crate::report::memory::anonymous_bytes;
use crate::scripts::Scripts;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("memory", -2).doc(
            Group::Server,
            "4.0.0",
            "",
            "A container for memory diagnostics commands.",
        ),
        super::no_subcommand,
    ),
    row(
        plain("memory|doctor", "Outputs a memory problems report.")
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .mark(Marks::ONLY_TELLS),
        doctor,
    ),
    row(
        plain("memory|malloc-stats", "Returns the allocator statistics.")
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .mark(Marks::ONLY_TELLS),
        malloc_stats,
    ),
    row(
        plain("memory|purge", "Asks the allocator to release memory.")
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
        purge,
    ),
    row(plain("memory|defragment", "Moves values together until no page can be freed that way."), defragment),
    row(
        plain("memory|stats", "Returns details about memory usage.")
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .mark(Marks::ONLY_TELLS),
        stats,
    ),
    row(super::help_row("memory|help", "4.0.0"), help),
];

const fn plain(name: &'static str, summary: &'static str) -> Spec {
    Spec::other(name, 2).flag(Flags::NONE).doc(Group::Server, "4.0.0", "", summary)
}

enum Figure {
    Whole(u64),
    Real(f64),
}

fn figures(report: &Report, scripts: &Scripts) -> Vec<(&'static str, Figure)> {
    use Figure::{Real, Whole};
    let memory = &report.memory;
    let keys = report.keys() as u64;
    let apart = memory.rss.saturating_sub(memory.used);
    let bytes_per_key = memory.used.saturating_sub(memory.startup).checked_div(keys).unwrap_or(0);
    vec![
        ("peak.allocated", Whole(memory.peak)),
        ("total.allocated", Whole(memory.used)),
        ("startup.allocated", Whole(memory.startup)),
        ("replication.backlog", Whole(0)),
        ("clients.slaves", Whole(0)),
        ("clients.normal", Whole(memory.clients)),
        ("cluster.links", Whole(0)),
        ("aof.buffer", Whole(0)),
        ("lua.caches", Whole(scripts.size().1 as u64)),
        ("functions.caches", Whole(scripts.libraries_size().2 as u64)),
        ("overhead.db.hashtable.lut", Whole(memory.index)),
        ("overhead.db.hashtable.rehashing", Whole(0)),
        ("db.dict.rehashing.count", Whole(0)),
        ("overhead.total", Whole(memory.overhead)),
        ("keys.count", Whole(keys)),
        ("keys.bytes-per-key", Whole(bytes_per_key)),
        ("dataset.bytes", Whole(memory.dataset)),
        ("dataset.percentage", Real(memory.dataset_percent())),
        ("peak.percentage", Real(memory.peak_percent())),
        ("allocator.allocated", Whole(memory.used)),
        ("allocator.active", Whole(memory.used)),
        ("allocator.resident", Whole(memory.rss)),
        ("allocator.muzzy", Whole(0)),
        ("allocator-fragmentation.ratio", Real(1.0)),
        ("allocator-fragmentation.bytes", Whole(0)),
        ("allocator-rss.ratio", Real(memory.fragmentation())),
        ("allocator-rss.bytes", Whole(apart)),
        ("rss-overhead.ratio", Real(1.0)),
        ("rss-overhead.bytes", Whole(0)),
        ("fragmentation", Real(memory.fragmentation())),
        ("fragmentation.bytes", Whole(apart)),
    ]
}

fn stats(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let report = Report::gather(caller.local.shared, caller.held.as_deref_mut());
    let figures = figures(&report, &caller.local.shared.scripts);
    let used: Vec<usize> = (0..report.shards.keys.len()).filter(|&db| report.shards.keys[db] > 0).collect();
    reply.map(figures.len() + used.len());
    for (name, figure) in figures {
        reply.bulk(name.as_bytes());
        match figure {
            Figure::Whole(n) => reply.int(n.cast_signed()),
            Figure::Real(x) => reply.double(x),
        }
    }
    // the index is one structure for keys and deadlines: its bytes are divided by keys
    let all = report.keys().max(1);
    for db in used {
        reply.bulk(format!("db.{db}").as_bytes());
        reply.map(2);
        reply.bulk(b"overhead.hashtable.main");
        reply.int_len(report.shards.index_bytes / all * report.shards.keys[db]);
        reply.bulk(b"overhead.hashtable.expires");
        reply.int(0);
    }
    Ok(())
}

fn doctor(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let local = &caller.local;
    let report = Report::gather(local.shared, caller.held.as_deref_mut());
    let max = local.shared.limit.max_bytes(&local.live);
    reply.verbatim(*b"txt", diagnosis(&report, anonymous_bytes(), max, local.evicts).as_bytes());
    Ok(())
}

/// Below this the process is too small for its proportions to mean anything.
const SMALL_BYTES: u64 = 5 << 20;

/// `resident` is memory without the pages of the program itself, which weigh much beside little data.
fn diagnosis(report: &Report, resident: u64, max: u64, evicts: bool) -> String {
    let memory = &report.memory;
    let is_over = memory.used > max;
    if !is_over && memory.used.saturating_sub(memory.startup) < SMALL_BYTES {
        return "There is hardly any data yet: proportions would mean nothing. Ask again when there is more.\n".into();
    }
    let mut found = Vec::new();
    if is_over {
        let what =
            if evicts { "keys are evicted until it fits" } else { "writes that need memory are refused" };
        found.push(format!("Limit: {} bytes are used, maxmemory is {max}: {what}.", memory.used));
    }
    if memory.peak > memory.used.saturating_add(memory.used / 2) {
        found.push(format!(
            "Peak: {} bytes were used at most, over 150% of the bytes used now. Resident memory shrinks as pages become empty.",
            memory.peak
        ));
    }
    let apart = resident.saturating_sub(memory.used);
    if apart > memory.used * 2 / 5 && apart > 10 << 20 {
        found.push(format!(
            "Resident memory is {:.2} times the memory used: deletes left pages half empty, or buffers of clients were large.",
            resident as f64 / memory.used.max(1) as f64
        ));
    }
    if memory.clients > (report.clients.connected as u64).saturating_mul(200 << 10) {
        found.push(format!(
            "Clients: their buffers take {} bytes; look at omem and qbuf in CLIENT LIST.",
            memory.clients
        ));
    }
    if found.is_empty() {
        return "Nothing unusual was found.\n".into();
    }
    let lines: Vec<String> = found.into_iter().map(|line| format!(" * {line}\n")).collect();
    format!("Worth a look:\n\n{}", lines.concat())
}

fn malloc_stats(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    let report = Report::gather(shared, caller.held.as_deref_mut());
    let memory = &report.memory;
    let mut text = String::from("___ Begin memory statistics ___\n");
    let lines = [
        ("shards", shared.cells.len() as u64),
        ("committed by shards", memory.keyspace),
        ("live records", memory.records),
        ("indexes", memory.index),
        ("clients and their buffers", memory.clients),
        ("taken at start", memory.startup),
        ("resident", memory.rss),
        ("resident, most", memory.rss_peak),
    ];
    lines.iter().for_each(|(name, n)| text.push_str(&format!("{name}: {n}\n")));
    text.push_str("--- End memory statistics ---\n");
    reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn purge(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    relief::each_shard(caller.local, |shard| {
        shard.purge();
    });
    darter_store::purge();
    reply.ok();
    Ok(())
}

/// MEMORY DEFRAGMENT starts a pass in every shard; housekeeping continues it.
fn defragment(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    relief::each_shard(caller.local, |shard| {
        shard.squeeze(DEFRAGMENT_LINES);
    });
    reply.ok();
    Ok(())
}

/// Index lines of a shard examined by the command itself.
const DEFRAGMENT_LINES: usize = 1024;

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "MEMORY",
        &[
            "DEFRAGMENT",
            "    Start moving values together to free pages.",
            "DOCTOR",
            "    Return memory problems reports.",
            "MALLOC-STATS",
            "    Return internal statistics report from the memory allocator.",
            "PURGE",
            "    Attempt to purge dirty pages for reclamation by the allocator.",
            "STATS",
            "    Return information about the memory usage of the server.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return memory in bytes used by <key> and its value. Nested values are",
            "    sampled up to <count> times (default: 5, 0 means sample all).",
        ],
    );
    Ok(())
}
