//! darter-bench: a load generator, the comparison with Redis and memcached, and instruction counts.
//!
//! `darter-bench compare` prints the tables of the README; `darter-bench load` drives any server; `darter-bench
//! instructions` counts what an operation costs. `--help` lists the flags.
#![forbid(unsafe_code)]

mod bgsave;
mod caching;
mod compare;
mod connections;
mod cores;
mod documents;
mod doors;
mod expiry;
mod fanout;
mod flood;
mod growth;
mod histogram;
mod holds;
mod instructions;
mod keys;
mod load;
mod memory;
mod messages;
mod persist;
mod removal;
mod replication;
mod replies;
mod report;
mod samples;
mod scripts;
mod sealing;
mod server;
mod setting;
mod soak;
mod speed;
mod template;
mod usage;
mod workload;

use std::io;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::compare::Suite;
use crate::keys::Distribution;
use crate::load::{Load, Shape};
use crate::replies::Protocol;
use crate::setting::Setting;
use crate::template::{Filling, Pool, VALUE_BYTES_MAX};
use crate::usage::Cpu;
use crate::workload::Workload;

fn main() -> ExitCode {
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some(("compare", args)) => run_compare(args),
        Some(("bgsave", args)) => run_bgsave(args),
        Some(("holds", args)) => run_holds(args),
        Some(("documents", args)) => run_documents(args),
        Some(("soak", args)) => run_soak(args),
        Some(("load", args)) => run_load(args),
        Some(("instructions", args)) => run_instructions(args),
        Some(("connections", args)) => run_connections(args),
        _ => Err(io::Error::other(
            "a subcommand is needed: compare, bgsave, holds, documents, soak, load, instructions or connections",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("darter-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    let text = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name).long(name).default_value(default).help(help)
    };
    let number = |name, default, help| text(name, default, help).value_parser(value_parser!(u64));
    let darter_flag = || {
        Arg::new("darter-flag")
            .long("darter-flag")
            .action(ArgAction::Append)
            .help("a further flag for Darter")
    };
    let compare = Command::new("compare")
        .about("Compare Redis, memcached, the echo floor and Darter on loopback")
        .arg(text(
            "suite",
            "engine",
            "engine, long, types, memcached, large, pubsub, persist, scripts, cache, doors or replication",
        ))
        .arg(number("rounds", "5", "rounds of each speed row"))
        .arg(shape_arg())
        .arg(text("rows", "", "only rows whose name contains this; also: start, expiry, growth, removal"))
        .arg(text("scale", "1", "operations are multiplied by this").value_parser(value_parser!(f64)))
        .arg(number("wall-seconds", "60", "the longest a measured part may take"))
        .arg(text("darter", "target/release/darter", "Darter's binary"))
        .arg(darter_flag())
        .arg(text("redis", "/usr/bin/redis-server", "Redis' binary"))
        .arg(text("memcached", "/usr/bin/memcached", "memcached's binary"))
        .arg(text("echo-floor", "target/release/examples/echo_floor", "the echo floor's binary"))
        .arg(text("echo-floor-driver", "epoll", "its I/O driver"));
    let bgsave = Command::new("bgsave")
        .about("Memory over time and latencies of a BGSAVE under full load, Redis and Darter")
        .arg(number("keys", "2000000", "keys"))
        .arg(number("value-bytes", "1024", "bytes of a value"))
        .arg(number("connections", "25", "connections that write, and as many that read"))
        .arg(number("before-seconds", "5", "load before the save"))
        .arg(Arg::new("svg").long("svg").help("draws the memory into this file"))
        .arg(text("darter", "target/release/darter", "Darter's binary"))
        .arg(darter_flag())
        .arg(text("redis", "/usr/bin/redis-server", "Redis' binary"));
    let holds = Command::new("holds")
        .about("How long each command on large collections holds its shards at a time")
        .arg(number("members", "1000000", "members of each collection"))
        .arg(number("words", "10000", "keys or members that one command names"))
        .arg(number("rounds", "3", "runs of each command, of which the best counts"))
        .arg(text("only", "", "only commands that contain this"))
        .arg(text("darter", "target/release/darter", "Darter's binary"))
        .arg(darter_flag())
        .arg(text("redis", "/usr/bin/redis-server", "Redis' binary"));
    let documents = Command::new("documents")
        .about("Documents, sketches and time series: server CPU per operation, memory and holds")
        .arg(number("rounds", "3", "runs of each row, of which the best counts"))
        .arg(text("only", "", "only rows whose name contains this"))
        .arg(text("darter", "target/release/darter", "Darter's binary"))
        .arg(darter_flag())
        .arg(text("redis", "/usr/bin/redis-server", "Redis' binary"))
        .arg(
            Arg::new("redis-flag")
                .long("redis-flag")
                .action(ArgAction::Append)
                .allow_hyphen_values(true)
                .help("flags with which Redis has modules; without any it is left out"),
        );
    let soak = Command::new("soak")
        .about("Writes of mixed sizes at full speed at the memory limit, in cache mode; fails when it is not kept")
        .arg(number("minutes", "10", "how long"))
        .arg(number("seconds", "0", "and so many seconds"))
        .arg(number("limit-mb", "1024", "maxmemory in MiB"))
        .arg(number("connections", "8", "connections that write"))
        .arg(text("darter", "target/release/darter", "Darter's binary"))
        .arg(
            Arg::new("darter-flag")
                .long("darter-flag")
                .action(ArgAction::Append)
                .help("a further flag for Darter"),
        )
        .arg(text("redis", "/usr/bin/redis-server", "Redis' binary"));
    let load = Command::new("load")
        .about("Drive a server and print what was measured")
        .arg(text("address", "127.0.0.1:6379", "where the server listens"))
        .arg(shape_arg())
        .arg(text("workload", "get", "what is sent").long_help(workload::NAMES))
        .arg(text("protocol", "resp", "resp or memcached"))
        .arg(number("ops", "1000000", "operations"))
        .arg(number("wall-seconds", "60", "the run ends after this"))
        .arg(number("connections", "50", "connections"))
        .arg(number("pipeline", "1", "requests in flight per connection"))
        .arg(number("threads", "1", "client threads"))
        .arg(number("keys", "100000", "key space"))
        .arg(number("value-bytes", "256", "bytes of a value"))
        .arg(text("keys-by", "uniform", "uniform, sequential, shuffled, or a Zipf theta such as 0.99"))
        .arg(Arg::new("ascii").long("ascii").action(ArgAction::SetTrue).help("values are text"))
        .arg(number("seed", "42", "keys follow from it"))
        .arg(
            Arg::new("core")
                .long("core")
                .action(ArgAction::Append)
                .value_parser(value_parser!(usize))
                .help("pin to it"),
        )
        .arg(
            Arg::new("pid")
                .long("pid")
                .value_parser(value_parser!(u32))
                .help("server process whose CPU is read"),
        );
    let instructions = Command::new("instructions")
        .about("Count instructions per operation of `BINARY OPS MODE…` with callgrind")
        .arg(text("binary", "target/release/examples/dispatch", "the program"))
        .arg(number("ops", "20000", "operations of the shorter run"))
        .arg(number("limit", "0", "fail above so many instructions; 0: never"))
        .arg(
            Arg::new("mode").num_args(1..).default_value("get").help("what follows OPS on its command line"),
        );
    let connections = Command::new("connections")
        .about("Memory of idle connections, then clients that come and go")
        .arg(text("address", "127.0.0.1:6379", "where the server listens"))
        .arg(Arg::new("pid").long("pid").required(true).value_parser(value_parser!(u32)).help("its process"))
        .arg(number("idle", "10000", "connections that stay open"))
        .arg(number("storm-seconds", "5", "how long clients come and go"))
        .arg(number("threads", "4", "threads that do"));
    Command::new("darter-bench").about("Measures Darter").subcommands([
        compare,
        bgsave,
        holds,
        documents,
        soak,
        load,
        instructions,
        connections,
    ])
}

fn shape_arg() -> Arg {
    Arg::new("shape").long("shape").default_value("batch").help(
        "batch: a connection sends again when all was answered; refill: for each 4 KiB of replies as many requests",
    )
}

fn shape_of(args: &ArgMatches) -> io::Result<Shape> {
    let name = string(args, "shape");
    Shape::by_name(&name).ok_or_else(|| io::Error::other(format!("no shape {name:?}: batch or refill")))
}

/// Binaries and cores from the flags.
fn setting_of(args: &ArgMatches) -> io::Result<Setting> {
    let path = |name: &str| PathBuf::from(string(args, name));
    let mut setting = Setting {
        redis_path: path("redis"),
        memcached_path: PathBuf::new(),
        // Servers run in directories of their own, so a relative path must be made whole.
        darter_path: std::path::absolute(path("darter"))?,
        darter_flags: args.get_many::<String>("darter-flag").unwrap_or_default().cloned().collect(),
        echo_floor_path: PathBuf::new(),
        echo_floor_driver: String::new(),
        rounds: 1,
        shape: Shape::Batch,
        scale: 1.0,
        wall: Duration::from_secs(60),
        server_cores: Vec::new(),
        client_cores: Vec::new(),
        all_cores: Vec::new(),
    };
    setting.place()?;
    Ok(setting)
}

fn run_bgsave(args: &ArgMatches) -> io::Result<()> {
    let setting = setting_of(args)?;
    let size = bgsave::Size {
        keys: number(args, "keys"),
        value_bytes: number(args, "value-bytes") as usize,
        connections: number(args, "connections") as usize,
        before: Duration::from_secs(number(args, "before-seconds")),
    };
    let runs = bgsave::run(size, &setting);
    println!("{}", report::head(&setting));
    println!("{}", bgsave::table(&runs));
    match args.get_one::<String>("svg") {
        Some(path) => {
            bgsave::draw(Path::new(path), &runs).map_err(|error| io::Error::other(error.to_string()))
        }
        None => Ok(()),
    }
}

fn run_holds(args: &ArgMatches) -> io::Result<()> {
    let setting = Setting { rounds: number(args, "rounds") as usize, ..setting_of(args)? };
    println!("{}", report::head(&setting));
    holds::run(&setting, (number(args, "members"), number(args, "words")), &string(args, "only"))
}

fn run_documents(args: &ArgMatches) -> io::Result<()> {
    let setting = Setting { rounds: number(args, "rounds") as usize, ..setting_of(args)? };
    let flags: Vec<String> = args.get_many::<String>("redis-flag").unwrap_or_default().cloned().collect();
    println!("{}", report::head(&setting));
    documents::run(&setting, &string(args, "only"), &flags)
}

fn run_soak(args: &ArgMatches) -> io::Result<()> {
    let setting = setting_of(args)?;
    println!("{}", report::head(&setting));
    let soak = soak::Soak {
        limit_bytes: number(args, "limit-mb") << 20,
        time: Duration::from_secs(number(args, "minutes") * 60 + number(args, "seconds")),
        connections: number(args, "connections") as usize,
    };
    soak.run(&setting)
}

fn run_compare(args: &ArgMatches) -> io::Result<()> {
    let path = |name: &str| PathBuf::from(string(args, name));
    let setting = Setting {
        memcached_path: path("memcached"),
        echo_floor_path: std::path::absolute(path("echo-floor"))?,
        echo_floor_driver: string(args, "echo-floor-driver"),
        rounds: number(args, "rounds") as usize,
        shape: shape_of(args)?,
        scale: args.get_one::<f64>("scale").copied().unwrap_or(1.0),
        wall: Duration::from_secs(number(args, "wall-seconds")),
        ..setting_of(args)?
    };
    let suite = match string(args, "suite").as_str() {
        "engine" => Suite::Engine,
        "long" => Suite::Long,
        "types" => Suite::Types,
        "memcached" => Suite::Memcached,
        "large" => Suite::Large,
        "pubsub" => Suite::Pubsub,
        "scripts" => Suite::Scripts,
        "persist" => Suite::Persist,
        "cache" => Suite::Cache,
        "doors" => Suite::Doors,
        "replication" => Suite::Replication,
        other => {
            return Err(io::Error::other(format!(
                "unknown suite {other:?}; known: engine, long, types, memcached, large, pubsub, persist, scripts, cache, doors, replication"
            )));
        }
    };
    compare::run(suite, &string(args, "rows"), &setting);
    Ok(())
}

fn run_load(args: &ArgMatches) -> io::Result<()> {
    let protocol = match string(args, "protocol").as_str() {
        "resp" => Protocol::Resp,
        "memcached" => Protocol::Memcached,
        other => return Err(io::Error::other(format!("unknown protocol {other:?}"))),
    };
    let value_bytes = number(args, "value-bytes") as usize;
    if value_bytes > VALUE_BYTES_MAX {
        return Err(io::Error::other(format!("values are limited to {VALUE_BYTES_MAX} bytes")));
    }
    let distribution = match string(args, "keys-by").as_str() {
        "uniform" => Distribution::Uniform,
        "sequential" => Distribution::Sequential,
        "shuffled" => Distribution::Shuffled,
        theta => {
            Distribution::Zipf(theta.parse().map_err(|_| io::Error::other("--keys-by is not understood"))?)
        }
    };
    let workload = Workload::by_name(&string(args, "workload"), protocol, number(args, "keys"), value_bytes)
        .map_err(io::Error::other)?
        .with_distribution(distribution);
    let address = string(args, "address");
    let load = Load {
        address: address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("no such address"))?,
        ops: number(args, "ops"),
        wall: Duration::from_secs(number(args, "wall-seconds")),
        connections: number(args, "connections") as usize,
        pipeline: number(args, "pipeline") as usize,
        shape: shape_of(args)?,
        threads: number(args, "threads") as usize,
        cores: args.get_many::<usize>("core").unwrap_or_default().copied().collect(),
        seed: number(args, "seed"),
        greeting: Vec::new(),
    };
    let filling = if args.get_flag("ascii") { Filling::Ascii } else { Filling::Binary };
    let pid = args.get_one::<u32>("pid").copied();
    let before = pid.map(Cpu::of).transpose()?;
    let measured = load.run(&workload, &Pool::new(filling))?;
    let us = |fraction| measured.latency.quantile(fraction).as_secs_f64() * 1e6;
    println!(
        "ops {} in {:.3} s: {:.0} ops/s",
        measured.ops,
        measured.elapsed.as_secs_f64(),
        measured.ops_per_second()
    );
    println!(
        "latency µs: p50 {:.0}  p99 {:.0}  p99.9 {:.0}  slowest {}",
        us(0.5),
        us(0.99),
        us(0.999),
        measured.latency.max().as_micros()
    );
    if let (Some(pid), Some(before)) = (pid, before) {
        let cpu = Cpu::of(pid)?.since(&before);
        println!("server CPU: {:.3} µs/op", cpu.total.as_secs_f64() * 1e6 / measured.ops.max(1) as f64);
    }
    match measured.first_error {
        None => Ok(()),
        Some(text) => Err(io::Error::other(format!("{} error replies, the first: {text}", measured.errors))),
    }
}

fn run_connections(args: &ArgMatches) -> io::Result<()> {
    let address = string(args, "address");
    connections::Visit {
        address: address.to_socket_addrs()?.next().ok_or_else(|| io::Error::other("no such address"))?,
        pid: args.get_one::<u32>("pid").copied().unwrap_or_default(),
        threads: number(args, "threads") as usize,
        cores: Vec::new(),
    }
    .run(number(args, "idle") as usize, Duration::from_secs(number(args, "storm-seconds")))
}

fn run_instructions(args: &ArgMatches) -> io::Result<()> {
    let mode: Vec<String> = args.get_many::<String>("mode").unwrap_or_default().cloned().collect();
    let binary = PathBuf::from(string(args, "binary"));
    let count = instructions::per_operation(&binary, &mode, number(args, "ops").max(1))?;
    println!("{}: {count:.1} instructions per operation", mode.join(" "));
    let limit = number(args, "limit");
    if limit > 0 && count > limit as f64 {
        return Err(io::Error::other(format!("more than the limit of {limit}")));
    }
    Ok(())
}

fn string(args: &ArgMatches, name: &str) -> String {
    args.get_one::<String>(name).cloned().unwrap_or_default()
}

fn number(args: &ArgMatches, name: &str) -> u64 {
    args.get_one::<u64>(name).copied().unwrap_or_default()
}
