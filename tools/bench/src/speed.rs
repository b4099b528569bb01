//! The speed rows: which requests, against which servers, on which cores.
//!
//! In each round every server starts anew, is prepared for the row, and runs alone; the order of the servers turns by
//! one from round to round, so that a drift of the machine does not favour one of them.

use std::io;
use std::time::Duration;

use crate::keys::Distribution;
use crate::load::{Load, Shape};
use crate::replies::Protocol;
use crate::samples::{Sample, Series};
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::template::{Filling, Pool};
use crate::usage::Cpu;
use crate::workload::Workload;

/// A step before the measured part.
#[derive(Clone, Copy, Debug)]
pub enum Prepare {
    /// `count` operations of a workload, key after key.
    Fill {
        /// Its name on the command line.
        workload: &'static str,
        /// Operations, and keys.
        count: u64,
    },
    /// The row starts on an empty server.
    Nothing,
}

/// How server and client share the two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One server thread on a core, the client on the other.
    Apart,
    /// Server and two client threads on both cores.
    Together,
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name in the table.
    pub name: &'static str,
    /// Before the measured part.
    pub prepare: Prepare,
    /// The measured workload.
    pub workload: &'static str,
    /// The key space of the measured part.
    pub keys: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// What values are made of.
    pub filling: Filling,
    /// Bytes of a reply, for the echo floor; zero: the floor is not run.
    pub reply_bytes: usize,
    /// Requests in flight per connection.
    pub pipeline: usize,
    /// Operations at scale 1.
    pub ops: u64,
    /// Server and client on the cores.
    pub placement: Placement,
    /// The protocol; with memcached's, only memcached can be compared.
    pub protocol: Protocol,
}

/// The rows of the engine's table.
pub fn engine_rows() -> Vec<Row> {
    let fill = Prepare::Fill { workload: "set", count: KEYS };
    let row = |name, workload, pipeline, placement| Row {
        name,
        prepare: fill,
        workload,
        keys: KEYS,
        value_bytes: 256,
        filling: Filling::Binary,
        reply_bytes: if workload == "get" { "$256\r\n".len() + 256 + 2 } else { "+OK\r\n".len() },
        pipeline,
        ops: if pipeline == 1 { 150_000 } else { 2_000_000 },
        placement,
        protocol: Protocol::Resp,
    };
    vec![
        row("GET 256 B, pipeline 30", "get", 30, Placement::Apart),
        row("SET 256 B, pipeline 30", "set", 30, Placement::Apart),
        row("GET 256 B, pipeline 1", "get", 1, Placement::Apart),
        row("SET 256 B, pipeline 1", "set", 1, Placement::Apart),
        row("GET 256 B, pipeline 30, both cores shared", "get", 30, Placement::Together),
        row("SET 256 B, pipeline 30, both cores shared", "set", 30, Placement::Together),
    ]
}

/// The rows of the collections' table.
pub fn type_rows() -> Vec<Row> {
    const MILLION: u64 = 1_000_000;
    let row = |name, prepare, workload, keys, ops| Row {
        name,
        prepare,
        workload,
        keys,
        value_bytes: 32,
        filling: Filling::Binary,
        reply_bytes: 0,
        pipeline: 30,
        ops,
        placement: Placement::Apart,
        protocol: Protocol::Resp,
    };
    let fill = |workload, count| Prepare::Fill { workload, count };
    vec![
        row("HSET into one hash, 1M fields", Prepare::Nothing, "hset", MILLION, 1_500_000),
        row("ZADD into one zset of 1M", fill("zadd-fill", MILLION), "zadd", MILLION, 1_000_000),
        row("SADD into one set, 1M members", Prepare::Nothing, "sadd", MILLION, 1_500_000),
        row("LPUSH", Prepare::Nothing, "lpush", MILLION, 1_500_000),
        row("RPOP", fill("lpush", 2 * MILLION), "rpop", 1, 1_500_000),
        row("XADD", Prepare::Nothing, "xadd", MILLION, 1_000_000),
        row("MGET 8 keys", fill("set", KEYS), "mget", KEYS, 400_000),
        row("ZRANGE 100 of 1M", fill("zadd-fill", MILLION), "zrange", 899_000, 100_000),
        row("LRANGE 100 of 1M", fill("lrange-fill", MILLION), "lrange", 899_000, 100_000),
    ]
}

/// The rows of memcached's table.
pub fn memcached_rows() -> Vec<Row> {
    let row = |name, workload, pipeline, ops| Row {
        name,
        prepare: Prepare::Fill { workload: "set", count: KEYS },
        workload,
        keys: KEYS,
        value_bytes: 256,
        filling: Filling::Binary,
        reply_bytes: 0,
        pipeline,
        ops,
        placement: Placement::Apart,
        protocol: Protocol::Memcached,
    };
    vec![
        row("get 256 B, depth 1", "get", 1, 150_000),
        row("set 256 B, depth 1", "set", 1, 150_000),
        row("get of 24 keys, 256 B, depth 1", "mget", 1, 50_000),
        row("get 256 B, pipeline 30", "get", 30, 2_000_000),
        row("set 256 B, pipeline 30", "set", 30, 2_000_000),
    ]
}

/// The rows of long strings.
pub fn long_rows() -> Vec<Row> {
    let row = |name, workload, value_bytes, filling| Row {
        name,
        prepare: Prepare::Fill { workload: "set", count: LONG_KEYS },
        workload,
        keys: LONG_KEYS,
        value_bytes,
        filling,
        reply_bytes: 0,
        pipeline: 1,
        ops: (LONG_BYTES / value_bytes) as u64,
        placement: Placement::Apart,
        protocol: Protocol::Resp,
    };
    vec![
        row("GET 16 KiB", "get", 16 << 10, Filling::Binary),
        row("SET 16 KiB", "set", 16 << 10, Filling::Binary),
        row("GET 256 KiB", "get", 256 << 10, Filling::Binary),
        row("SET 256 KiB", "set", 256 << 10, Filling::Binary),
        row("GET 1 MB", "get", MB, Filling::Binary),
        row("SET 1 MB", "set", MB, Filling::Binary),
        row("GET 1 MB of ASCII", "get", MB, Filling::Ascii),
        row("SET 1 MB of ASCII", "set", MB, Filling::Ascii),
    ]
}

/// The longest strings there.
const MB: usize = 1_000_000;
/// Keys of the rows of long strings.
const LONG_KEYS: u64 = 64;
/// Bytes of values that each of those rows moves at scale 1.
const LONG_BYTES: usize = 4 << 30;

/// Keys of the string rows.
const KEYS: u64 = 100_000;

/// Runs a row for all its servers, `rounds` times.
pub fn run(row: &Row, setting: &Setting) -> Vec<Series> {
    let programs = contenders(row, setting);
    let mut series: Vec<Series> = programs
        .iter()
        .map(|(label, _)| Series {
            server: label.clone(),
            rounds: vec![Err("not run".into()); setting.rounds],
        })
        .collect();
    for round in 0..setting.rounds {
        for step in 0..programs.len() {
            let index = (step + round) % programs.len();
            let (label, program) = &programs[index];
            let result = measure(row, program, setting).map_err(|e| e.to_string());
            if let Err(fault) = &result {
                eprintln!("  {}: {label}: {fault}", row.name);
            }
            series[index].rounds[round] = result;
        }
    }
    series
}

fn contenders(row: &Row, setting: &Setting) -> Vec<(String, Program)> {
    let mut programs = match row.protocol {
        Protocol::Resp => vec![("redis".to_owned(), setting.redis())],
        Protocol::Memcached => vec![
            ("memcached".to_owned(), setting.memcached(1)),
            ("darter".to_owned(), setting.darter_by(Protocol::Memcached, 1)),
        ],
    };
    match row.placement {
        _ if row.protocol == Protocol::Memcached => {}
        Placement::Apart => {
            if matches!(row.workload, "get" | "set") {
                programs.push(("memcached".into(), setting.memcached(1)));
            }
            if row.reply_bytes > 0 {
                programs.extend(
                    setting.echo_floor(request_bytes(row), row.reply_bytes).map(|p| ("echo floor".into(), p)),
                );
            }
            programs.push(("darter".into(), setting.darter(1)));
        }
        Placement::Together => {
            programs.push(("darter, 1 thread".into(), setting.darter(1)));
            programs.push(("darter, 2 threads".into(), setting.darter(2)));
        }
    }
    programs.retain(|(_, program)| program.path().exists());
    programs
}

fn request_bytes(row: &Row) -> usize {
    let workload = Workload::by_name(row.workload, Protocol::Resp, row.keys, row.value_bytes);
    workload.ok().and_then(|w| w.request_bytes()).unwrap_or(1)
}

fn measure(row: &Row, program: &Program, setting: &Setting) -> io::Result<Sample> {
    let (server_cores, client_cores, threads) = match row.placement {
        Placement::Apart => (&setting.server_cores, &setting.client_cores, 1),
        Placement::Together => (&setting.all_cores, &setting.all_cores, 2),
    };
    let server = Server::start(program, server_cores)?;
    let protocol = program.protocol();
    let pool = Pool::new(row.filling);
    let workload =
        |name, keys| Workload::by_name(name, protocol, keys, row.value_bytes).map_err(io::Error::other);
    let is_floor = matches!(program, Program::EchoFloor { .. });
    if let Prepare::Fill { workload: name, count } = row.prepare
        && !is_floor
    {
        let filling = workload(name, count)?.with_distribution(Distribution::Sequential);
        fill(&server, &filling, &pool, count, client_cores)?;
    }
    let load = Load {
        address: server.address(),
        ops: setting.scaled(row.ops),
        wall: setting.wall,
        connections: 50,
        pipeline: row.pipeline,
        shape: setting.shape,
        threads,
        cores: client_cores.clone(),
        seed: 42,
        greeting: Vec::new(),
    };
    let before = Cpu::of(server.pid())?;
    let measured = load.run(&workload(row.workload, row.keys)?, &pool)?;
    let cpu = Cpu::of(server.pid())?.since(&before);
    if measured.errors > 0 {
        let first = measured.first_error.unwrap_or_default();
        return Err(io::Error::other(format!(
            "{} of {} replies were errors: {first}",
            measured.errors, measured.ops
        )));
    }
    Ok(Sample::new(&measured, &cpu))
}

/// Runs `count` operations key after key.  Errors: error replies, or not done within 10 minutes and 10 s a million.
pub fn fill(
    server: &Server,
    workload: &Workload,
    pool: &Pool,
    count: u64,
    cores: &[usize],
) -> io::Result<()> {
    let load = Load {
        address: server.address(),
        ops: count,
        wall: Duration::from_secs(600 + count / 100_000),
        connections: 8,
        pipeline: 64,
        shape: Shape::Batch,
        threads: 1,
        cores: cores.to_vec(),
        seed: 1,
        greeting: Vec::new(),
    };
    let filled = load.run(workload, pool)?;
    if filled.errors > 0 {
        return Err(io::Error::other(format!("filling: {}", filled.first_error.unwrap_or_default())));
    }
    if filled.ops < count {
        return Err(io::Error::other(format!("only {} of {count} filled within the limit", filled.ops)));
    }
    Ok(())
}
