//! The slowest single insert while a collection grows to ten million members, as the server's own slow log has it.
//!
//! The log counts what the thread took by the clock, so on a busy machine a pre-empted thread shows too: compare with
//! Redis in the same run.

use std::io;

use crate::keys::Distribution;
use crate::replies::Protocol;
use crate::server::{Program, Server};
use crate::setting::Setting;
use crate::speed;
use crate::template::{Filling, Part, Pool, Template, fixed};
use crate::workload::Workload;

/// One kind of collection on one server.
#[derive(Clone, Debug)]
pub struct Growth {
    /// Set, hash, sorted set, list.
    pub kind: &'static str,
    /// The server's name in the table.
    pub server: String,
    /// Commands over 100 µs, and the slowest in microseconds; or why there are none.
    pub result: Result<(u64, u64), String>,
}

const MEMBERS: u64 = 10_000_000;

/// Runs all kinds on Redis and Darter.
pub fn run(setting: &Setting) -> Vec<Growth> {
    let id = |fresh| Part::Number { prefix: "", width: 8, base: 10_000_000, stride: 8, group: 1, fresh };
    let kinds = [
        ("set", vec![fixed("SADD"), fixed("s"), id(true)]),
        ("set of strings", vec![fixed("SADD"), fixed("s"), Part::Text { len: 12, fresh: true }]),
        ("hash", vec![fixed("HSET"), fixed("h"), id(true), Part::number10(false)]),
        ("sorted set", vec![fixed("ZADD"), fixed("z"), Part::number10(true), id(false)]),
        ("list", vec![fixed("RPUSH"), fixed("l"), id(true)]),
    ];
    let mut programs = vec![setting.redis(), setting.darter(1)];
    programs.retain(|program| program.path().exists());
    let mut growths = Vec::new();
    for (kind, parts) in &kinds {
        for program in &programs {
            let result = grow(program, &Template::resp(parts), setting).map_err(|e| e.to_string());
            growths.push(Growth { kind, server: program.label().to_owned(), result });
        }
    }
    growths
}

fn grow(program: &Program, template: &Template, setting: &Setting) -> io::Result<(u64, u64)> {
    let server = Server::start(program, &setting.server_cores)?;
    server.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "100"])?;
    server.ask(&["CONFIG", "SET", "slowlog-max-len", "100000"])?;
    server.ask(&["SLOWLOG", "RESET"])?;
    let members = setting.scaled(MEMBERS);
    let workload = Workload::new(Protocol::Resp, vec![(1, template.clone())], members)
        .with_distribution(Distribution::Shuffled);
    speed::fill(&server, &workload, &Pool::new(Filling::Ascii), members, &setting.client_cores)?;
    let count = server.ask_count(&["SLOWLOG", "LEN"])?;
    let entries = server.ask(&["SLOWLOG", "GET", "100000"])?;
    Ok((count, slowest_us(&entries)))
}

/// The greatest duration in a SLOWLOG GET reply: an entry is `*6`, its id, its time, its duration, and texts.
pub fn slowest_us(reply: &str) -> u64 {
    let entries = reply.split("*6\r\n").skip(1);
    let duration = |entry: &str| entry.lines().nth(2)?.strip_prefix(':')?.parse().ok();
    entries.filter_map(duration).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_entry_is_found() {
        let entry = |us| {
            format!("*6\r\n:1\r\n:1700000000\r\n:{us}\r\n*2\r\n$4\r\nSADD\r\n$1\r\ns\r\n$0\r\n\r\n$0\r\n\r\n")
        };
        assert_eq!(slowest_us(&format!("*2\r\n{}{}", entry(120), entry(340))), 340);
        assert_eq!(slowest_us("*0\r\n"), 0);
    }
}
