//! What the journal costs: SET with it off, synced each second and synced before each reply, for Redis and Darter.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::load::{Load, Shape};
use crate::replies::Protocol;
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::template::{Filling, Pool};
use crate::usage::Cpu;
use crate::workload::Workload;

const CONNECTIONS: usize = 64;
const DEPTHS: [usize; 2] = [1, 16];
/// The name of a row, and the setting of `appendfsync`.
const MODES: [(&str, Option<&str>); 3] =
    [("off", None), ("everysec", Some("everysec")), ("always", Some("always"))];
const KEYS: u64 = 100_000;
/// The longest that one of them is measured, at scale 1.
const WALL: Duration = Duration::from_secs(4);

struct Figures {
    per_second: f64,
    cpu_us: f64,
    /// Syncs per second, and milliseconds of each, where the server tells.
    syncs: Option<(f64, f64)>,
}

/// Runs it and returns the table.
pub fn table(setting: &Setting) -> String {
    let sync = disk_sync_ms().map_or_else(|error| error.to_string(), |ms| format!("{ms:.2} ms"));
    let dir = std::env::temp_dir();
    let mut out =
        format!("Writing 4 KiB at the end of a file in {} and syncing it takes {sync}.\n\n", dir.display());
    out.push_str(
        "| SET 256 B, 64 clients | server | SET/s | of off | CPU µs/op | of off | syncs/s | ms each | SETs a sync |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for depth in DEPTHS {
        for program in [setting.redis(), setting.darter(1)] {
            let mut off: Option<Figures> = None;
            for (name, fsync) in MODES {
                eprintln!("depth {depth}, {}, {name}", program.label());
                let row = format!("depth {depth}, {name} | {}", program.label());
                match measure(&program, depth, fsync, setting) {
                    Ok(figures) => {
                        let base = off.as_ref().unwrap_or(&figures);
                        let (speed, cpu) =
                            (figures.per_second / base.per_second, figures.cpu_us / base.cpu_us);
                        let syncs = figures.syncs.map_or_else(
                            || "- | - | -".to_owned(),
                            |(n, ms)| format!("{n:.0} | {ms:.2} | {:.0}", figures.per_second / n.max(1.0)),
                        );
                        let (per_second, cpu_us) = (figures.per_second, figures.cpu_us);
                        let _ = writeln!(
                            out,
                            "| {row} | {per_second:.0} | {speed:.2} | {cpu_us:.2} | {cpu:.2} | {syncs} |"
                        );
                        off.get_or_insert(figures);
                    }
                    Err(error) => {
                        let _ = writeln!(out, "| {row} | {error} | | | | | | |");
                    }
                }
            }
        }
    }
    out
}

fn measure(program: &Program, depth: usize, fsync: Option<&str>, setting: &Setting) -> io::Result<Figures> {
    let on = ["--dir", ".", "--appendonly", "yes", "--appendfsync", fsync.unwrap_or_default()];
    let program = match fsync {
        Some(_) => program.clone().with_flags(&on),
        None => program.clone(),
    };
    let server = Server::start(&program, &setting.server_cores)?;
    let set = Workload::by_name("set", Protocol::Resp, KEYS, 256).map_err(io::Error::other)?;
    let pool = Pool::new(Filling::Binary);
    let load = |wall| Load {
        address: server.address(),
        ops: u64::MAX,
        wall,
        connections: CONNECTIONS,
        pipeline: depth,
        shape: Shape::Batch,
        threads: 1,
        cores: setting.client_cores.clone(),
        seed: 3,
        greeting: Vec::new(),
    };
    load(WALL.mul_f64(0.25 * setting.scale)).run(&set, &pool)?;
    let (cpu, syncs) = (Cpu::of(server.pid())?, syncs_of(&server)?);
    let measured = load(WALL.mul_f64(setting.scale)).run(&set, &pool)?;
    let cpu = Cpu::of(server.pid())?.since(&cpu);
    let syncs = syncs_of(&server)?.zip(syncs).map(|(now, then)| {
        let (count, us) = (now.0 - then.0, now.1 - then.1);
        (count / measured.elapsed.as_secs_f64(), us / 1e3 / count.max(1.0))
    });
    if measured.errors > 0 {
        return Err(io::Error::other(measured.first_error.unwrap_or_default()));
    }
    Ok(Figures {
        per_second: measured.ops_per_second(),
        cpu_us: cpu.total.as_secs_f64() * 1e6 / measured.ops.max(1) as f64,
        syncs,
    })
}

/// Syncs since the start and the microseconds of all, where the server tells.
fn syncs_of(server: &Server) -> io::Result<Option<(f64, f64)>> {
    let info = server.ask(&["INFO", "persistence"])?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|text| text.trim().parse::<f64>().ok())
    };
    Ok(field("aof_fsyncs").zip(field("aof_fsync_us")))
}

/// What a sync costs on the disk where servers run, in milliseconds: the mean of a hundred.
fn disk_sync_ms() -> io::Result<f64> {
    let path = std::env::temp_dir().join(format!("darter-bench-sync-{}", std::process::id()));
    let mut file = File::create(&path)?;
    let began = Instant::now();
    let done = (0..100).try_for_each(|_| file.write_all(&[7; 4096]).and_then(|()| file.sync_data()));
    let ms = began.elapsed().as_secs_f64() * 10.0;
    std::fs::remove_file(&path)?;
    done.map(|()| ms)
}
