//! The end of a value of fifty million members: what it costs its caller, and how long its memory takes to come back.
//!
//! The server's own slow log tells the time of the command; resident memory is read until it is back where it was.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use crate::growth::slowest_us;
use crate::keys::Distribution;
use crate::replies::Protocol;
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::speed;
use crate::template::{Filling, Part, Pool, Template, fixed};
use crate::usage::resident_bytes;
use crate::workload::Workload;

/// The end of one value on one server.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The command.
    pub command: &'static str,
    /// The server's name in the table.
    pub server: String,
    /// What it came to, or why there is nothing.
    pub result: Result<Ended, String>,
}

/// What the end of a value came to.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Microseconds of the command in the server.
    pub took_us: u64,
    /// Resident bytes that the value took.
    pub grown_bytes: u64,
    /// Resident bytes that were left of it in the end.
    pub left_bytes: u64,
    /// Until that was so; at most [`PATIENCE`].
    pub after: Duration,
}

const MEMBERS: u64 = 50_000_000;
const PATIENCE: Duration = Duration::from_secs(10);
/// What connections and logs may have taken meanwhile.
const SLACK_BYTES: u64 = 4 << 20;

/// Ends a set of ids by each command, on Redis and Darter.
pub fn run(setting: &Setting) -> Vec<Removal> {
    let mut programs = vec![setting.redis(), setting.darter(1)];
    programs.retain(|program| program.path().exists());
    let mut removals = Vec::new();
    for command in ["DEL", "UNLINK", "FLUSHALL"] {
        for program in &programs {
            let result = end(program, command, setting).map_err(|e| e.to_string());
            removals.push(Removal { command, server: program.label().to_owned(), result });
        }
    }
    removals
}

fn end(program: &Program, command: &'static str, setting: &Setting) -> io::Result<Ended> {
    let server = Server::start(program, &setting.server_cores)?;
    let empty = resident_bytes(server.pid())?;
    let members = setting.scaled(MEMBERS);
    let id = Part::Number { prefix: "", width: 9, base: 100_000_000, stride: 7, group: 1, fresh: true };
    let template = Template::resp(&[fixed("SADD"), fixed("s"), id]);
    let workload =
        Workload::new(Protocol::Resp, vec![(1, template)], members).with_distribution(Distribution::Shuffled);
    speed::fill(&server, &workload, &Pool::new(Filling::Ascii), members, &setting.client_cores)?;
    let grown_bytes = resident_bytes(server.pid())?.saturating_sub(empty);
    server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"])?;
    server.ask(&["SLOWLOG", "RESET"])?;
    match command {
        "FLUSHALL" => server.ask(&[command])?,
        _ => server.ask(&[command, "s"])?,
    };
    // The entry before it is SLOWLOG RESET itself.
    let took_us = slowest_us(&server.ask(&["SLOWLOG", "GET", "1"])?);
    let began = Instant::now();
    loop {
        let left_bytes = resident_bytes(server.pid())?.saturating_sub(empty);
        let after = began.elapsed();
        if left_bytes <= grown_bytes / 20 + SLACK_BYTES || after > PATIENCE {
            return Ok(Ended { took_us, grown_bytes, left_bytes, after });
        }
        thread::sleep(Duration::from_millis(20));
    }
}
