//! The memory rows: what a million entries cost, and what an empty server costs.
//!
//! Each server starts anew for each row, is filled, rests half a second, and its resident memory is read. The bytes per
//! entry are what it grew by; the resident memory as a whole stands beside them.

use std::io;
use std::thread;
use std::time::Duration;

use crate::keys::Distribution;
use crate::replies::Protocol;
use crate::samples::Spread;
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::speed;
use crate::template::{Filling, Part, Pool, Template, fixed};
use crate::usage::resident_bytes;
use crate::workload::Workload;

/// What a row fills.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name in the table.
    pub name: &'static str,
    /// The entries that the bytes are divided by.
    pub entries: u64,
    /// The requests that make them: one per entry unless `requests` says otherwise.
    pub requests: u64,
    shape: Shape,
    filling: Filling,
    // Filled on Darter only.
    is_alone: bool,
    /// Answers with the entries (or keys) that must be there afterwards.
    count: Count,
}

#[derive(Clone, Debug)]
enum Shape {
    /// 16-byte keys with values of so many bytes.
    Strings(usize),
    /// Anything else, RESP only.
    Resp(Template),
}

/// One server's result.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// The server's name in the table.
    pub server: String,
    /// Bytes per entry, and resident bytes filled; or why there are none.
    pub result: Result<(f64, u64), String>,
}

const MILLION: u64 = 1_000_000;

/// The engine's rows.
pub fn engine_rows() -> Vec<Row> {
    let row = |name, value_bytes, filling| Row {
        name,
        entries: MILLION,
        requests: MILLION,
        shape: Shape::Strings(value_bytes),
        filling,
        is_alone: false,
        count: (&["DBSIZE"], MILLION),
    };
    vec![
        row("1M keys 16 B, values 32 B", 32, Filling::Binary),
        row("1M keys 16 B, values 1,024 B binary", 1024, Filling::Binary),
        row("1M keys 16 B, values 1,024 B ASCII", 1024, Filling::Ascii),
    ]
}

/// The collections' rows.
pub fn type_rows() -> Vec<Row> {
    let id = || Part::id8(true);
    let row = |name, parts: &[Part], count| collection(name, parts, MILLION, count);
    let group = Part::Number { prefix: "group:", width: 6, base: 0, stride: 1, group: 1800, fresh: true };
    let text = |len| Part::Text { len, fresh: false };
    let mut small_hash = vec![fixed("HSET"), Part::key("user")];
    for field in ["name", "mail", "city", "age", "seen"] {
        small_hash.extend([fixed(field), text(8)]);
    }
    let mut small_list = vec![fixed("RPUSH"), Part::key("list")];
    small_list.extend((1..=10).map(|n| fixed(&(n * 37).to_string())));
    let keys = |count| (&["DBSIZE"][..], count);
    vec![
        row("one set of 1M 8-digit ids", &[fixed("SADD"), fixed("s"), id()], SET),
        row("sets of 1,800 8-digit ids", &[fixed("SADD"), group, Part::id8(false)], keys(556)),
        row(
            "one hash of 1M 8-digit fields, 10-digit values",
            &[fixed("HSET"), fixed("h"), id(), Part::number10(false)],
            HASH,
        ),
        row(
            "one zset of 1M 8-digit members, timestamp scores",
            &[fixed("ZADD"), fixed("z"), Part::number10(true), Part::id8(false)],
            ZSET,
        ),
        row(
            "one set of 1M 10-byte strings",
            &[fixed("SADD"), fixed("s"), Part::Text { len: 10, fresh: true }],
            SET,
        ),
        row("one list of 1M 10-digit ints", &[fixed("RPUSH"), fixed("l"), Part::number10(true)], LIST),
        row("one hash of 1M 16 B to 32 B", &[fixed("HSET"), fixed("h"), Part::key("user"), text(32)], HASH),
        row("1M hashes of 5 short fields", &small_hash, keys(MILLION)),
        row("1M lists of 10 small ints", &small_list, keys(MILLION)),
    ]
}

/// The first three collections with 25 million members, and with 100 million on Darter alone: Redis would take 7 to 12 GB.
pub fn large_rows() -> Vec<Row> {
    let names = [
        ["one set of 25M 8-digit ids", "one set of 100M 9-digit ids"],
        [
            "one hash of 25M 8-digit fields, 10-digit values",
            "one hash of 100M 9-digit fields, 10-digit values",
        ],
        [
            "one zset of 25M 8-digit members, timestamp scores",
            "one zset of 100M 9-digit members, timestamp scores",
        ],
    ];
    let mut rows = Vec::new();
    for (size, (millions, width, base)) in
        [(25, 8, 10_000_000), (100, 9, 100_000_000)].into_iter().enumerate()
    {
        let id = |fresh| Part::Number { prefix: "", width, base, stride: 3, group: 1, fresh };
        let kinds = [
            (vec![fixed("SADD"), fixed("s"), id(true)], SET),
            (vec![fixed("HSET"), fixed("h"), id(true), Part::number10(false)], HASH),
            (vec![fixed("ZADD"), fixed("z"), Part::number10(true), id(false)], ZSET),
        ];
        let members = millions * MILLION;
        rows.extend(names.iter().zip(kinds).map(|(names, (parts, count))| Row {
            is_alone: size > 0,
            ..collection(names[size], &parts, members, (count.0, members))
        }));
    }
    rows
}

type Count = (&'static [&'static str], u64);

const SET: Count = (&["SCARD", "s"], MILLION);
const HASH: Count = (&["HLEN", "h"], MILLION);
const ZSET: Count = (&["ZCARD", "z"], MILLION);
const LIST: Count = (&["LLEN", "l"], MILLION);

fn collection(name: &'static str, parts: &[Part], requests: u64, count: Count) -> Row {
    let shape = Shape::Resp(Template::resp(parts));
    Row { name, entries: requests, requests, shape, filling: Filling::Ascii, is_alone: false, count }
}

/// Fills every server with the row's entries.
pub fn run(row: &Row, setting: &Setting) -> Vec<Footprint> {
    let mut programs = if row.is_alone { Vec::new() } else { vec![setting.redis()] };
    if matches!(row.shape, Shape::Strings(_)) {
        programs.push(setting.memcached(1));
    }
    programs.push(setting.darter(1));
    programs.retain(|program| program.path().exists());
    let footprint = |program: &Program| {
        let result = fill_and_read(row, program, setting).map_err(|e| e.to_string());
        Footprint { server: program.label().to_owned(), result }
    };
    programs.iter().map(footprint).collect()
}

fn fill_and_read(row: &Row, program: &Program, setting: &Setting) -> io::Result<(f64, u64)> {
    let server = Server::start(program, &setting.server_cores)?;
    thread::sleep(Duration::from_millis(200));
    let empty = resident_bytes(server.pid())?;
    let protocol = program.protocol();
    let template = match &row.shape {
        Shape::Strings(value_bytes) => Template::set(protocol, "key:", *value_bytes),
        Shape::Resp(template) => template.clone(),
    };
    let workload =
        Workload::new(protocol, vec![(1, template)], row.requests).with_distribution(Distribution::Shuffled);
    speed::fill(&server, &workload, &Pool::new(row.filling), row.requests, &setting.client_cores)?;
    if protocol == Protocol::Resp {
        let (command, wanted) = row.count;
        let counted = server.ask_count(command)?;
        if counted != wanted {
            return Err(io::Error::other(format!("{command:?} counts {counted} instead of {wanted}")));
        }
    }
    thread::sleep(Duration::from_millis(500));
    let filled = resident_bytes(server.pid())?;
    Ok((filled.saturating_sub(empty) as f64 / row.entries as f64, filled))
}

/// Start to first answer, and resident memory when empty.
#[derive(Clone, Debug)]
pub struct StartUp {
    /// The server's name in the table.
    pub server: String,
    /// Milliseconds to the first answer and resident MiB; or why there are none.
    pub result: Result<(Spread, Spread), String>,
}

/// Starts each server ten times, Darter with two threads.
pub fn start_ups(setting: &Setting) -> Vec<StartUp> {
    let mut programs = vec![setting.redis(), setting.memcached(2), setting.darter(2)];
    programs.retain(|program| program.path().exists());
    let start_up = |program: &Program| {
        let result = start_ten_times(program, setting).map_err(|e| e.to_string());
        StartUp { server: program.label().to_owned(), result }
    };
    programs.iter().map(start_up).collect()
}

fn start_ten_times(program: &Program, setting: &Setting) -> io::Result<(Spread, Spread)> {
    let (mut starts_ms, mut resident_mib) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let server = Server::start(program, &setting.all_cores)?;
        starts_ms.push(server.start_time().as_secs_f64() * 1e3);
        thread::sleep(Duration::from_millis(200));
        resident_mib.push(resident_bytes(server.pid())? as f64 / f64::from(1 << 20));
    }
    let spread = |figures| Spread::of(figures).ok_or_else(|| io::Error::other("no start"));
    Ok((spread(starts_ms)?, spread(resident_mib)?))
}
