//! darter-compat: sends the same random command streams to two servers and compares the replies byte for byte.
//!
//! `darter-compat --family strings --seed 1 --ops 20000` compares Debian's redis-server with Darter, in both protocol
//! versions. Every failure prints the seed, the shortest failing stream and the first differing reply; the exit code is
//! 1 then, and 2 when a server could not be started.
#![forbid(unsafe_code)]

mod connection;
mod events;
mod filling;
mod form;
mod grammar;
mod memcached;
mod pair;
mod reply;
mod rng;
mod rules;
mod server;
mod shrink;
mod stream;
mod way;
mod words;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::grammar::{FAMILIES, Family, Mode};
use crate::pair::{Pair, Side};
use crate::server::Server;
use crate::stream::{Op, Stream};
use crate::way::Way;

fn main() -> ExitCode {
    let args = command().get_matches();
    if args.get_flag("list") {
        FAMILIES.iter().for_each(|family| println!("{}", family.name));
        println!("memcached");
        return ExitCode::SUCCESS;
    }
    if args.get_flag("rules") {
        for rule in rules::RULES {
            let with = rule.with.map_or(String::new(), |word| format!(" … {word}"));
            println!("| {}{with} | {:?} | {} |", rule.command, rule.compare, rule.why);
        }
        for (answer, why) in rules::ACCEPTED_RAW {
            println!("| raw bytes answered {answer:?} | accepted | {why} |");
        }
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failures) => {
            println!("{failures} differences");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("darter-compat: {error}");
            ExitCode::from(2)
        }
    }
}

fn command() -> Command {
    let text = |name: &'static str, help: &'static str| Arg::new(name).long(name).help(help);
    let many = |name, help| text(name, help).action(ArgAction::Append);
    Command::new("darter-compat")
        .about("Compares Darter's replies with those of Redis")
        .arg(text("family", "a family, several with commas, or all").default_value("strings"))
        .arg(text("seed", "the stream follows from it").default_value("1").value_parser(value_parser!(u64)))
        .arg(
            text("ops", "commands per family and version")
                .default_value("20000")
                .value_parser(value_parser!(usize)),
        )
        .arg(text("resp", "2, 3 or both").default_value("both"))
        .arg(
            text("redis-bin", "the reference: a program or HOST:PORT").default_value("/usr/bin/redis-server"),
        )
        .arg(
            text("memcached-bin", "the reference of the family memcached")
                .default_value("/usr/bin/memcached"),
        )
        .arg(text("peer-bin", "the other side: a program or HOST:PORT; without it DARTER_BIN or target/"))
        .arg(many("peer-flag", "a further flag for the other side"))
        .arg(
            text("peer-way", "how the other side gets commands: direct, exec, script, function")
                .default_value("direct"),
        )
        .arg(text("failures", "stop after so many").default_value("1").value_parser(value_parser!(usize)))
        .arg(text("events", "classes of keyspace events to compare too, such as KEAmn").default_value(""))
        .arg(
            text("members", "fill keys with values of so many members every so often; 0: never")
                .default_value("0")
                .value_parser(value_parser!(usize)),
        )
        .arg(many("without", "leave out this command"))
        .arg(text("strings-only", "no keys of other types").action(ArgAction::SetTrue))
        .arg(text("list", "print the families").action(ArgAction::SetTrue))
        .arg(text("rules", "print the table of rules").action(ArgAction::SetTrue))
}

/// Runs the families and returns the number of differences.
fn run(args: &ArgMatches) -> io::Result<usize> {
    let text = |name: &str| args.get_one::<String>(name).cloned().unwrap_or_default();
    let many = |name: &str| args.get_many::<String>(name).unwrap_or_default().cloned().collect::<Vec<_>>();
    let peer = args.get_one::<String>("peer-bin").cloned().unwrap_or_else(darter_binary);
    if text("family") == "memcached" {
        return memcached::compare(&memcached::Settings {
            seed: args.get_one("seed").copied().unwrap_or(1),
            ops: args.get_one("ops").copied().unwrap_or(20_000),
            reference: text("memcached-bin"),
            peer,
        });
    }
    let left = Server::start(&text("redis-bin"), &[], "left")?;
    let right = Server::start(&peer, &many("peer-flag"), "right")?;
    let mut pair = Pair { left: Side::new(left), right: Side::new(right), events: text("events") };
    let way = text("peer-way");
    pair.right.way = Way::named(&way).ok_or_else(|| io::Error::other(format!("no way {way:?}")))?;
    let versions: &[u8] = match text("resp").as_str() {
        "2" => &[2],
        "3" => &[3],
        _ => &[2, 3],
    };
    let settings = Settings {
        seed: args.get_one("seed").copied().unwrap_or(1),
        ops: args.get_one("ops").copied().unwrap_or(20_000),
        every_type: !args.get_flag("strings-only"),
        failures_max: args.get_one("failures").copied().unwrap_or(1),
        members: args.get_one("members").copied().unwrap_or(0),
    };
    let mut failures = 0;
    for family in families(&text("family"))? {
        if !pair.left.knows(family.needs)? {
            println!("{} is left out: {} has no {}", family.name, pair.left.server.name(), family.needs);
            continue;
        }
        for version in versions {
            failures +=
                compare(&mut pair, family, *version, &settings, many("without")).unwrap_or_else(|error| {
                    println!("{} RESP{version} could not be compared: {error}", family.name);
                    1
                });
        }
    }
    Ok(failures)
}

/// Whether `answer`, as shown, says that there is no command `name`.
fn is_unknown(name: &str, answer: &str) -> bool {
    // Replies are shown escaped.
    let refusal = format!("unknown command \\'{name}\\'");
    answer.to_uppercase().contains(&refusal.to_uppercase())
}

struct Settings {
    seed: u64,
    ops: usize,
    every_type: bool,
    failures_max: usize,
    members: usize,
}

fn families(names: &str) -> io::Result<Vec<&'static Family>> {
    if names == "all" {
        return Ok(FAMILIES.iter().collect());
    }
    let find = |name: &str| {
        let family = FAMILIES.iter().find(|family| family.name == name);
        family.ok_or_else(|| io::Error::other(format!("no family {name:?}; --list prints them")))
    };
    names.split(',').map(find).collect()
}

fn darter_binary() -> String {
    std::env::var("DARTER_BIN").unwrap_or_else(|_| {
        let release = "target/release/darter";
        if Path::new(release).exists() { release.to_owned() } else { "target/debug/darter".to_owned() }
    })
}

/// Runs one family in one protocol version; after a difference the command is left out and the stream drawn anew.
fn compare(
    pair: &mut Pair,
    family: &'static Family,
    version: u8,
    settings: &Settings,
    mut without: Vec<String>,
) -> io::Result<usize> {
    let (mut failures, mut missing) = (0, 0);
    loop {
        let stream =
            Stream::new(family, settings.seed, settings.every_type, &without).map_err(io::Error::other)?;
        let ops = stream.take(match family.mode {
            Mode::Direct => settings.ops,
            // These wait for each op to settle.
            Mode::Settled | Mode::Raw => settings.ops.div_ceil(10),
        });
        let ops = match (settings.members, family.mode) {
            (1.., Mode::Direct) => filling::under(ops, family.name, settings.members, settings.seed),
            _ => ops,
        };
        let begin = Instant::now();
        let Some(difference) = pair.run(family, &ops, version)? else {
            let rate = ops.len() as f64 / begin.elapsed().as_secs_f64();
            println!("{} RESP{version}: {} ops the same ({rate:.0}/s)", family.name, ops.len());
            return Ok(failures + missing);
        };
        // A server that panics may take a moment to end.
        let silent = difference.right.contains("(no reply");
        std::thread::sleep(Duration::from_millis(if silent { 300 } else { 0 }));
        let crashed = pair.right.server.revive()?;
        let failing = &ops[..=difference.at];
        let name = failing[difference.at].name();
        // A missing command needs no shrinking, and says nothing about the ones that are there.
        let is_missing = is_unknown(&name, &difference.right) && !is_unknown(&name, &difference.left);
        if is_missing && !without.contains(&name) {
            println!("{} RESP{version}: {name} is unknown to {}", family.name, pair.right.server.name());
            missing += 1;
            without.push(name);
            continue;
        }
        match shrink::shrink(pair, family, failing, version)? {
            Some(shrunk) => {
                failures += 1;
                report(pair, family, version, settings, &shrunk.ops, &shrunk.difference, crashed);
            }
            None if difference.by_clock => {
                println!("{} RESP{version}: {name} differed once, by the clock", family.name)
            }
            None => {
                failures += 1;
                println!("(the following difference did not come back when run again)");
                let last = &failing[failing.len().saturating_sub(10)..];
                report(pair, family, version, settings, last, &difference, crashed);
            }
        }
        if failures >= settings.failures_max || family.mode == Mode::Raw || without.contains(&name) {
            return Ok((failures + missing).max(1));
        }
        without.push(name);
    }
}

fn report(
    pair: &Pair,
    family: &Family,
    version: u8,
    settings: &Settings,
    ops: &[Op],
    difference: &pair::Difference,
    crashed: bool,
) {
    let (left, right) = (pair.left.server.name(), pair.right.server.name());
    println!("\nDIFFERENCE in {} RESP{version}, seed {}, {} ops:", family.name, settings.seed, ops.len());
    for op in &ops[ops.len().saturating_sub(40)..] {
        let joined = if op.joined { "+" } else { " " };
        let pause = if op.pause_ms > 0 { format!("(after {} ms) ", op.pause_ms) } else { String::new() };
        println!("  {}{joined} {pause}{}", op.connection, op.line());
    }
    let same = difference.left.bytes().zip(difference.right.bytes()).take_while(|(l, r)| l == r).count();
    println!("  {left:>14}: {}", excerpt(&difference.left, same));
    println!("  {right:>14}: {}", excerpt(&difference.right, same));
    if crashed {
        println!("  {right} had ended: {}", pair.right.server.last_words());
    }
    println!(
        "  again: darter-compat --family {} --seed {} --ops {} --members {} --resp {version}\n",
        family.name, settings.seed, settings.ops, settings.members
    );
}

/// The part of a long reply where the difference begins.
fn excerpt(text: &str, same: usize) -> String {
    const BEFORE: usize = 100;
    const SHOWN: usize = 500;
    let skipped = if text.len() > SHOWN { same.saturating_sub(BEFORE) } else { 0 };
    // Replies are shown escaped, so that every byte is a character.
    let shown: String = text.chars().skip(skipped).take(SHOWN).collect();
    let (head, tail) =
        (if skipped > 0 { "…" } else { "" }, if text.len() > skipped + SHOWN { "…" } else { "" });
    format!("{head}{shown}{tail}")
}
