//! A BGSAVE under full load: memory over time, and how writes and reads fare, for Redis and Darter.
//!
//! The memory is that of the whole process tree (proportional set size), so that what a forked child shares with its
//! parent counts once.

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use plotters::prelude::*;

use crate::histogram::Histogram;
use crate::keys::Distribution;
use crate::load::{Load, Measured, Shape};
use crate::replies::Protocol;
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::speed;
use crate::template::{Filling, Pool, Template};
use crate::usage::tree_bytes;
use crate::workload::Workload;

/// The saved data, and the load meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Keys.
    pub keys: u64,
    /// Bytes of a value; they do not compress.
    pub value_bytes: usize,
    /// Connections that write, and as many that read.
    pub connections: usize,
    /// The load before the save.
    pub before: Duration,
}

/// One server's run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name.
    pub server: &'static str,
    /// Seconds since the load began, and bytes of the process tree.
    pub memory: Vec<(f64, u64)>,
    /// When the save began and ended, in seconds.
    pub saved: (f64, f64),
    /// Writes and reads before the save.
    pub calm: [Measured; 2],
    /// The same while it was written.
    pub saving: [Measured; 2],
    /// What the server says a SET took before the save and while it was written.
    pub sets: [Inside; 2],
    /// The same of GET.
    pub gets: [Inside; 2],
}

/// What the server says a command took, in microseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Inside {
    /// All but one in a thousand took no longer.
    pub p999: f64,
    /// The slowest.
    pub slowest: f64,
}

/// Has the server time every command and forget what it has timed so far.
pub fn time_anew(server: &Server) -> io::Result<()> {
    // With the slow log on for what takes a millisecond Darter times each command, not one in 128.
    server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "999"])?;
    server.ask(&["CONFIG", "SET", "latency-tracking-info-percentiles", "99.9 100"])?;
    server.ask(&["CONFIG", "RESETSTAT"]).map(drop)
}

/// What the server has timed since, of SET and GET.
pub fn times_of(server: &Server) -> io::Result<[Inside; 2]> {
    let info = server.ask(&["INFO", "latencystats"])?;
    Ok(["set", "get"].map(|name| {
        let start = format!("latency_percentiles_usec_{name}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default();
        let mut figures = line.trim().split(',').map(|pair| pair.split_once('=').map_or("", |(_, us)| us));
        let mut next = || figures.next().and_then(|us| us.parse().ok()).unwrap_or_default();
        Inside { p999: next(), slowest: next() }
    }))
}

impl Run {
    /// Mean memory before the save.
    fn before(&self) -> f64 {
        let before: Vec<f64> =
            self.memory.iter().filter(|(at, _)| *at < self.saved.0).map(|(_, bytes)| *bytes as f64).collect();
        before.iter().sum::<f64>() / before.len().max(1) as f64
    }

    /// The most memory while it was written.
    fn peak(&self) -> f64 {
        let (from, to) = self.saved;
        let during = self.memory.iter().filter(|(at, _)| (from..=to + 0.5).contains(at));
        during.map(|(_, bytes)| *bytes as f64).fold(0.0, f64::max)
    }
}

/// Time between two looks at the memory.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The load after the save.
const AFTER: Duration = Duration::from_secs(2);

/// Runs it for Redis and Darter; a server that failed is told of on stderr.
pub fn run(size: Size, setting: &Setting) -> Vec<Run> {
    let flags = ["--dir", ".", "--dbfilename", "dump"];
    let programs = [setting.redis(), setting.darter(1).with_flags(&flags)];
    let mut runs = Vec::new();
    for program in programs.iter().filter(|program| program.path().exists()) {
        eprintln!("{}", program.label());
        match measure(program, size, setting) {
            Ok(run) => runs.push(run),
            Err(error) => eprintln!("{}: {error}", program.label()),
        }
    }
    runs
}

fn measure(program: &Program, size: Size, setting: &Setting) -> io::Result<Run> {
    let server = Server::start(program, &setting.server_cores)?;
    let pool = Pool::new(Filling::Binary);
    let set = || Workload::of(Template::set(Protocol::Resp, "key:", size.value_bytes), size.keys);
    let fill = set().with_distribution(Distribution::Sequential);
    speed::fill(&server, &fill, &pool, size.keys, &setting.client_cores)?;
    let workloads = [set(), Workload::of(Template::get(Protocol::Resp, "key:"), size.keys)];
    let slice = |workload: &Workload, wall, seed| {
        let load = Load {
            address: server.address(),
            ops: u64::MAX,
            wall,
            connections: size.connections,
            pipeline: 1,
            shape: Shape::Batch,
            threads: 1,
            cores: setting.client_cores.clone(),
            seed,
            greeting: Vec::new(),
        };
        load.run(workload, &pool)
    };
    let both = |wall, seed| {
        thread::scope(|scope| {
            let reads = scope.spawn(|| slice(&workloads[1], wall, seed + 1));
            let writes = slice(&workloads[0], wall, seed)?;
            let reads = reads.join().unwrap_or_else(|_| Err(io::Error::other("a load thread panicked")))?;
            Ok::<_, io::Error>([writes, reads])
        })
    };
    let (began, ends) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let memory = scope.spawn(|| look(server.pid(), began, &ends));
        let done = (|| {
            both(Duration::from_secs(1), 1)?;
            time_anew(&server)?;
            let calm = both(size.before, 11)?;
            let calm_times = times_of(&server)?;
            time_anew(&server)?;
            let from = began.elapsed().as_secs_f64();
            server.ask(&["BGSAVE"])?;
            let mut saving = [nothing(), nothing()];
            let mut seed = 100;
            while server.ask(&["INFO", "persistence"])?.contains("rdb_bgsave_in_progress:1") {
                seed += 10;
                let parts = both(Duration::from_secs(1), seed)?;
                saving.iter_mut().zip(parts).for_each(|(sum, part)| add(sum, part));
            }
            let to = began.elapsed().as_secs_f64();
            let ([set, get], [saving_set, saving_get]) = (calm_times, times_of(&server)?);
            thread::sleep(AFTER);
            Ok((calm, saving, (from, to), [set, saving_set], [get, saving_get]))
        })();
        ends.store(true, Relaxed);
        let memory = memory.join().unwrap_or_default();
        let server = program.label();
        done.map(|(calm, saving, saved, sets, gets)| Run { server, memory, saved, calm, saving, sets, gets })
    })
}

/// Memory over time until told to end.
fn look(pid: u32, began: Instant, ends: &AtomicBool) -> Vec<(f64, u64)> {
    let mut seen = Vec::new();
    while !ends.load(Relaxed) {
        let at = began.elapsed().as_secs_f64();
        seen.extend(tree_bytes(pid).ok().map(|bytes| (at, bytes)));
        thread::sleep(LOOK_EVERY);
    }
    seen
}

fn nothing() -> Measured {
    Measured { ops: 0, elapsed: Duration::ZERO, latency: Histogram::new(), errors: 0, first_error: None }
}

fn add(sum: &mut Measured, part: Measured) {
    sum.ops += part.ops;
    sum.elapsed += part.elapsed;
    sum.latency.merge(&part.latency);
    sum.errors += part.errors;
    sum.first_error = sum.first_error.take().or(part.first_error);
}

/// The table.
pub fn table(runs: &[Run]) -> String {
    let mut out = "| | memory before | peak | grown by | save took | SET/s before, during | SET p99.9 ms | SET slowest | GET \
                   p99.9 ms | GET slowest |\n|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for run in runs {
        let ms = |measured: &Measured, fraction| measured.latency.quantile(fraction).as_secs_f64() * 1e3;
        let pair = |at: usize, fraction| {
            format!("{:.2}, {:.2}", ms(&run.calm[at], fraction), ms(&run.saving[at], fraction))
        };
        let (before, peak) = (run.before(), run.peak());
        let _ = writeln!(
            out,
            "| {} | {:.0} MB | {:.0} MB | {:+.1} % | {:.1} s | {:.0}, {:.0} | {} | {} | {} | {} |",
            run.server,
            before / 1e6,
            peak / 1e6,
            (peak / before.max(1.0) - 1.0) * 100.0,
            run.saved.1 - run.saved.0,
            run.calm[0].ops_per_second(),
            run.saving[0].ops_per_second(),
            pair(0, 0.999),
            pair(0, 1.0),
            pair(1, 0.999),
            pair(1, 1.0),
        );
    }
    out.push_str(
        "\nInside the server, by its own clock, µs before the save, during it:\n\n\
         | | SET p99.9 | slowest | GET p99.9 | slowest |\n|---|---|---|---|---|\n",
    );
    for run in runs {
        let cells = [run.sets, run.gets].map(|[calm, saving]| {
            let Inside { p999, slowest } = calm;
            format!("{p999:.1}, {:.1} | {slowest:.0}, {:.0}", saving.p999, saving.slowest)
        });
        let _ = writeln!(out, "| {} | {} |", run.server, cells.join(" | "));
    }
    out
}

/// Draws memory over time.
///
/// Errors: the file cannot be written.
pub fn draw(path: &Path, runs: &[Run]) -> Result<(), Box<dyn std::error::Error>> {
    const COLORS: [RGBColor; 2] = [RGBColor(200, 30, 30), RGBColor(40, 80, 180)];
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let all = || runs.iter().flat_map(|run| &run.memory);
    let end = all().map(|(at, _)| *at).fold(1.0, f64::max);
    let most = all().map(|(_, bytes)| gb(*bytes)).fold(0.0, f64::max) * 1.1;
    // No fonts are read: the text of an SVG is set by who shows it.
    let root = SVGBackend::new(path, (900, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption("Memory while BGSAVE runs under full load", ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..end, 0.0..most)?;
    chart.configure_mesh().x_desc("seconds").y_desc("GB").draw()?;
    for (run, color) in runs.iter().zip(COLORS) {
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(run.memory.iter().map(|(at, bytes)| (*at, gb(*bytes))), style))?
            .label(format!("{} (saved from {:.0} to {:.0} s)", run.server, run.saved.0, run.saved.1))
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], style));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}
