//! LATENCY: slow events from the monitor, and histograms of commands.

use darter_base::number;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::registry::CommandEntry;
use crate::report::latency::LatencySeries;
use crate::report::times_of;
use crate::sync::lock;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("latency", -2).doc(
            Group::Server,
            "2.8.13",
            "",
            "A container for latency diagnostics commands.",
        ),
        super::no_subcommand,
    ),
    row(
        admin("latency|doctor", 2, "", "Returns a human-readable latency analysis report.")
            .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
            .mark(Marks::ONLY_TELLS),
        doctor,
    ),
    row(
        admin("latency|graph", 3, "event", "Returns a latency graph for an event.")
            .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
            .mark(Marks::ONLY_TELLS),
        graph,
    ),
    row(
        admin(
            "latency|histogram",
            -2,
            "[command [command ...]]",
            "Returns the cumulative distribution of latencies of a subset or all commands.",
        )
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
        .mark(Marks::ONLY_TELLS)
        .cost("O(N) where N is the number of commands with latency information being retrieved."),
        histogram,
    ),
    row(
        admin("latency|history", 3, "event", "Returns timestamp-latency samples for an event.")
            .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
            .mark(Marks::ONLY_TELLS),
        history,
    ),
    row(
        admin("latency|latest", 2, "", "Returns the latest latency samples for all events.")
            .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"])
            .mark(Marks::ONLY_TELLS),
        latest,
    ),
    row(
        admin("latency|reset", -2, "[event [event ...]]", "Resets the latency data for one or more events.")
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
        reset,
    ),
    row(super::help_row("latency|help", "2.8.13"), help),
];

const fn admin(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    let flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);
    Spec::other(name, arity).flag(flags).doc(Group::Server, "2.8.13", syntax, summary)
}

fn latest(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let monitor = lock(&caller.local.shared.latency);
    reply.array(monitor.len());
    for (event, series) in monitor.iter() {
        let (unix_s, ms) = series.last().map_or((0, 0), |last| (last.unix_s, last.ms));
        reply.array(4);
        reply.bulk(event.as_bytes());
        [unix_s, ms, series.max_ms].into_iter().for_each(|n| reply.int(n.cast_signed()));
    }
    Ok(())
}

fn history(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let monitor = lock(&caller.local.shared.latency);
    let Some(series) = monitor.get(args.at(2)) else {
        reply.array(0);
        return Ok(());
    };
    reply.array(series.samples().len());
    for sample in series.samples() {
        reply.array(2);
        reply.int(sample.unix_s.cast_signed());
        reply.int(sample.ms.cast_signed());
    }
    Ok(())
}

fn reset(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut monitor = lock(&caller.local.shared.latency);
    let forgotten = match args.len() {
        2 => monitor.clear(),
        _ => args.iter().skip(2).filter(|event| monitor.forget(event)).count(),
    };
    reply.int_len(forgotten);
    Ok(())
}

fn histogram(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let shared = caller.local.shared;
    let registry = &shared.registry;
    let mut shown: Vec<&CommandEntry> = Vec::new();
    for name in args.iter().skip(2) {
        if let Some(entry) = super::command::named(registry, name) {
            shown.push(entry);
            shown.extend(&entry.subs);
        }
    }
    if args.len() == 2 {
        shown.extend(registry.entries());
    }
    let begun = reply.begin_array();
    let mut pairs = 0;
    for entry in shown {
        let Some((times, calls)) = times_of(shared, entry.id) else { continue };
        pairs += 1;
        reply.bulk(entry.spec.name.as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(calls.cast_signed());
        reply.bulk(b"histogram_usec");
        let doublings = times.doublings(calls);
        reply.map(doublings.len());
        for (us, count) in doublings {
            reply.int(us.cast_signed());
            reply.int(count.cast_signed());
        }
    }
    reply.end_map(begun, pairs);
    Ok(())
}

/// Rows of the graph.
const GRAPH_ROWS: usize = 4;

fn graph(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let monitor = lock(&caller.local.shared.latency);
    let Some(series) = monitor.get(args.at(2)) else {
        let event = String::from_utf8_lossy(args.at(2));
        return Err(Fault::Text(format!("ERR No samples available for event '{event}'").into()));
    };
    let text = draw(&String::from_utf8_lossy(args.at(2)), series, caller.local.now_ms / 1000);
    reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// Columns of `#` as high as their sample, the newest at the right, each with its age below.
fn draw(event: &str, series: &LatencySeries, now_s: u64) -> String {
    let samples: Vec<_> = series.samples().collect();
    let max = samples.iter().map(|sample| sample.ms).max().unwrap_or(0);
    let min = samples.iter().map(|sample| sample.ms).min().unwrap_or(0);
    let mut text = format!("{event} - high {max} ms, low {min} ms (all time high {} ms)\n", series.max_ms);
    text.push_str(&"-".repeat(80));
    text.push('\n');
    let height = |ms: u64| {
        let span = (max - min).max(1);
        ((ms - min) as usize * (GRAPH_ROWS * 2 - 1)).div_ceil(span as usize) + 1
    };
    for row in (0..GRAPH_ROWS).rev() {
        for sample in &samples {
            text.push(match height(sample.ms).saturating_sub(row * 2) {
                0 => ' ',
                1 => '_',
                _ => '#',
            });
        }
        text.push('\n');
    }
    let ages: Vec<String> = samples.iter().map(|sample| age(now_s.saturating_sub(sample.unix_s))).collect();
    for row in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        text.push('\n');
        text.extend(ages.iter().map(|age| age.chars().nth(row).unwrap_or(' ')));
    }
    text.push('\n');
    text
}

/// Seconds as `5s`, `3m`, `2h`, `9d`.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

fn doctor(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let threshold_ms = caller.local.live.latency_monitor_threshold_ms;
    let monitor = lock(&caller.local.shared.latency);
    let mut text = String::new();
    if threshold_ms == 0 {
        text.push_str(
            "Latency monitoring is off, so there is nothing to judge. Turn it on with \
             \"CONFIG SET latency-monitor-threshold <milliseconds>\" and ask again once something was slow.\n",
        );
    } else if monitor.is_empty() {
        text.push_str("No event took as long as the threshold since the server started or LATENCY RESET.\n");
    } else {
        text.push_str("Events at or above the threshold:\n\n");
        for (event, series) in monitor.iter() {
            text.push_str(&diagnosis(event, series));
        }
        text.push_str("\nWhat to do:\n\n");
        text.push_str(ADVICE);
    }
    reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn diagnosis(event: &str, series: &LatencySeries) -> String {
    let mean = series.sum_ms as f64 / series.count.max(1) as f64;
    let mut buffer = Vec::new();
    number::write_f64(&mut buffer, (mean * 100.0).round() / 100.0);
    format!(
        "- {event}: {} spikes, {} ms on average, worst {} ms.\n",
        series.count,
        String::from_utf8_lossy(&buffer),
        series.max_ms
    )
}

const ADVICE: &str = "- Look at SLOWLOG GET for the commands behind \"command\" events: calls that touch many elements are \
the usual reason; read in smaller pieces (SCAN, HSCAN, LRANGE with limits).\n- A \"fast-command\" event points at the \
machine: too few cores, another busy process, memory being swapped. Compare INFO cpu with the load of the machine.\n- An \
\"expire-cycle\" event means that many keys died at once: spread their times to live.\n";

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "LATENCY",
        &[
            "DOCTOR",
            "    Return a human readable latency analysis report.",
            "GRAPH <event>",
            "    Return an ASCII latency graph for the <event> class.",
            "HISTORY <event>",
            "    Return time-latency samples for the <event> class.",
            "LATEST",
            "    Return the latest latency samples for all events.",
            "RESET [<event> ...]",
            "    Reset latency data of one or more <event> classes.",
            "    (default: reset all data for all event classes)",
            "HISTOGRAM [COMMAND ...]",
            "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
            "    If no commands are specified then all histograms are replied.",
        ],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::latency::Monitor;

    #[test]
    fn a_graph_has_a_column_for_each_sample() {
        let mut monitor = Monitor::default();
        [(100, 10), (101, 50), (160, 30)].into_iter().for_each(|(at, ms)| monitor.note("command", at, ms));
        let text = monitor.get(b"command").map(|series| draw("command", series, 161)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "command - high 50 ms, low 10 ms (all time high 50 ms)");
        assert_eq!(lines[2], " # ");
        assert_eq!(lines[5], "_##");
        assert_eq!(&lines[7..], ["111", "mms"]);
    }
}
