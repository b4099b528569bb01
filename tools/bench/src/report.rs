//! The tables, in Markdown, as they go into the README.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use crate::expiry::ExpiryStorm;
use crate::growth::Growth;
use crate::memory::{Footprint, StartUp};
use crate::messages;
use crate::removal::{Ended, Removal};
use crate::samples::{Sample, Series, Spread};
use crate::setting::Setting;

/// Date, machine, versions, command line.
pub fn head(setting: &Setting) -> String {
    let command_line: Vec<String> = std::env::args().collect();
    let mut out = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "- {name}: {}", text.trim());
    };
    line("date", output_of("date", &["-u", "+%Y-%m-%d %H:%M UTC"]));
    line("machine", machine());
    line("kernel", output_of("uname", &["-sr"]));
    line("redis", version_of(&setting.redis_path));
    line("memcached", version_of(&setting.memcached_path));
    line("darter", version_of(&setting.darter_path));
    line(
        "placement",
        format!("server on core {:?}, client on core {:?}", setting.server_cores, setting.client_cores),
    );
    line("command", format!("`{}`", command_line.join(" ")));
    out
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(':').nth(1));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{}, {} cores, load at the start {}",
        model.unwrap_or("unknown processor").trim(),
        setting_cores(&info),
        load.split(' ').next().unwrap_or("?")
    )
}

fn setting_cores(cpuinfo: &str) -> usize {
    cpuinfo.lines().filter(|l| l.starts_with("processor")).count()
}

fn version_of(program: &Path) -> String {
    if !program.exists() {
        return format!("{} is absent", program.display());
    }
    let text = output_of(&program.to_string_lossy(), &["--version"]);
    text.lines().next().unwrap_or("").to_owned()
}

fn output_of(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

/// The speed table's heading.
pub fn speed_head() -> String {
    "| row | server | CPU µs/op median (min-max) | system | ratio to the first (min-max) | ratio to echo floor | ops/s median (min-max) | p50 µs | p99 µs | p99.9 µs |\n\
     |---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned()
}

/// One row of the speed table: a line per server, and why rounds are missing.
pub fn speed_row(name: &str, series: &[Series]) -> String {
    let find = |server: &str| series.iter().find(|s| s.server == server);
    let (first, floor) = (series.first(), find("echo floor"));
    let mut out = String::new();
    for one in series {
        let ratio = |base: Option<&Series>| {
            let base = base.filter(|b| b.server != one.server)?;
            Spread::of(one.cpu_ratios_to(base))
        };
        let cell = |figure: fn(&Sample) -> f64| median(&one.figures(figure));
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            one.server,
            spread(Spread::of(one.figures(|s| s.cpu_us)), 3),
            Spread::of(one.figures(|s| s.system_share))
                .map_or("-".into(), |s| format!("{:.0} %", s.median * 100.0)),
            spread(ratio(first), 2),
            ratio(floor).map_or("-".into(), |s| format!("{:.2}", s.median)),
            spread(Spread::of(one.figures(|s| s.ops_per_second)), 0),
            cell(|s| s.latency_us[0]),
            cell(|s| s.latency_us[1]),
            cell(|s| s.latency_us[2]),
        );
        for fault in one.faults() {
            let _ = writeln!(out, "| {name} | {}: {} | | | | | | | | |", one.server, one_line(fault));
        }
    }
    if let (Some(one), Some(two)) = (find("darter, 1 thread"), find("darter, 2 threads"))
        && let Some(growth) = Spread::of(two.cpu_ratios_to(one))
    {
        let _ = writeln!(
            out,
            "| {name} | darter, 2 threads over 1 | {} × | | | | | | | |",
            spread(Some(growth), 2)
        );
    }
    out
}

/// The memory table's heading.
pub fn memory_head() -> String {
    "| entries | server | bytes per entry | ratio to Redis | resident MiB |\n|---|---|---|---|---|\n"
        .to_owned()
}

/// One row of the memory table.
pub fn memory_row(name: &str, footprints: &[Footprint]) -> String {
    let redis = footprints.first().and_then(|f| f.result.as_ref().ok()).map(|(bytes, _)| *bytes);
    let mut out = String::new();
    for Footprint { server, result } in footprints {
        let _ = match result {
            Ok((bytes, resident)) => {
                let ratio = redis.map_or("-".into(), |r| format!("{:.2}", bytes / r));
                let mib = *resident as f64 / f64::from(1 << 20);
                writeln!(out, "| {name} | {server} | {bytes:.1} | {ratio} | {mib:.1} |")
            }
            Err(fault) => writeln!(out, "| {name} | {server}: {} | | | |", one_line(fault)),
        };
    }
    out
}

/// The heading of a table of single figures.
pub fn figures_head() -> String {
    "| row | server | figure median (min-max) | ratio to the first (min-max) | must be |\n|---|---|---|---|---|\n"
        .to_owned()
}

/// One row of single figures: a line per server.
pub fn figures_row(row: &messages::Row, results: &[messages::Figures]) -> String {
    let mut out = String::new();
    let first: &[f64] = results.first().map_or(&[], |r| &r.figures);
    for (at, one) in results.iter().enumerate() {
        let ratios: Vec<f64> = one.figures.iter().zip(first).map(|(mine, base)| mine / base).collect();
        let ratio = if at == 0 { None } else { Spread::of(ratios) };
        let (figure, unit) = (spread(Spread::of(one.figures.clone()), 3), row.unit);
        let (name, server, must) = (row.name, one.server, row.must);
        let _ = writeln!(out, "| {name} | {server} | {figure} {unit} | {} | {must} |", spread(ratio, 2));
        for fault in &one.faults {
            let _ = writeln!(out, "| {name} | {server}: {} | | | |", one_line(fault));
        }
    }
    out
}

/// The start-up table.
pub fn start_ups(start_ups: &[StartUp]) -> String {
    let mut out =
        "| server | start to first answer ms (min-max) | resident MiB empty (min-max) |\n|---|---|---|\n"
            .to_owned();
    for StartUp { server, result } in start_ups {
        let _ = match result {
            Ok((start, resident)) => {
                writeln!(out, "| {server} | {} | {} |", spread(Some(*start), 1), spread(Some(*resident), 1))
            }
            Err(fault) => writeln!(out, "| {server}: {} | | |", one_line(fault)),
        };
    }
    out
}

/// The expiry table.
pub fn storms(storms: &[ExpiryStorm]) -> String {
    let mut out = "| a million EXPIREs due at once | p50 µs before / during | p99.9 µs before / during | slowest µs before / during | left after 3.5 s |\n|---|---|---|---|---|\n".to_owned();
    for ExpiryStorm { server, result } in storms {
        let _ = match result {
            Ok(storm) => {
                let us = |q: f64| {
                    let of = |m: &crate::load::Measured| m.latency.quantile(q).as_secs_f64() * 1e6;
                    format!("{:.0} / {:.0}", of(&storm.before), of(&storm.during))
                };
                let slowest = format!(
                    "{} / {}",
                    storm.before.latency.max().as_micros(),
                    storm.during.latency.max().as_micros()
                );
                writeln!(out, "| {server} | {} | {} | {slowest} | {} |", us(0.5), us(0.999), storm.left)
            }
            Err(fault) => writeln!(out, "| {server}: {} | | | | |", one_line(fault)),
        };
    }
    out
}

/// The growth table.
pub fn growths(growths: &[Growth]) -> String {
    let mut out =
        "| growing by single inserts | server | commands over 100 µs | slowest µs in the server |\n|---|---|---|---|\n"
            .to_owned();
    for Growth { kind, server, result } in growths {
        let _ = match result {
            Ok((count, slowest_us)) => writeln!(out, "| {kind} | {server} | {count} | {slowest_us} |"),
            Err(fault) => writeln!(out, "| {kind} | {server}: {} | | |", one_line(fault)),
        };
    }
    out
}

/// The table of values that end.
pub fn removals(removals: &[Removal]) -> String {
    let mut out = "| a set of ids ends by | server | µs in the server | MB it took | MB left | after s |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for Removal { command, server, result } in removals {
        let _ = match result {
            Ok(Ended { took_us, grown_bytes, left_bytes, after }) => {
                let [grown, left] = [grown_bytes, left_bytes].map(|bytes| bytes / 1_000_000);
                let after = after.as_secs_f64();
                writeln!(out, "| {command} | {server} | {took_us} | {grown} | {left} | {after:.2} |")
            }
            Err(fault) => writeln!(out, "| {command} | {server}: {} | | | | |", one_line(fault)),
        };
    }
    out
}

fn median(figures: &[f64]) -> String {
    Spread::of(figures.to_vec()).map_or("-".into(), |s| format!("{:.0}", s.median))
}

fn spread(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or("-".into(), |s| {
        format!("{:.decimals$} ({:.decimals$}-{:.decimals$})", s.median, s.min, s.max)
    })
}

/// A table cell must stay on one line and hold no bar.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r', '|'], " ").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_line_per_server_and_says_what_failed() {
        let sample =
            |cpu_us| Sample { ops_per_second: 1e6, latency_us: [1.0, 2.0, 3.0], cpu_us, system_share: 0.5 };
        let series = [
            Series { server: "redis".into(), rounds: vec![Ok(sample(1.0))] },
            Series { server: "darter".into(), rounds: vec![Ok(sample(0.25))] },
            Series { server: "memcached".into(), rounds: vec![Err("broken\npipe".into())] },
        ];
        let text = speed_row("GET", &series);
        assert!(text.contains("| GET | darter | 0.250 (0.250-0.250) | 50 % | 0.25 (0.25-0.25) |"), "{text}");
        assert!(text.contains("| GET | memcached: broken pipe |"), "{text}");
    }
}
