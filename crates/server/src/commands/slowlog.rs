//! SLOWLOG and COMMANDLOG: the commands kept in `crate::command_log`.

use darter_base::number;
use darter_command::reader::is;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use darter_config::Measure;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("slowlog", -2).doc(Group::Server, SLOW_SINCE, "", "A container for slow log commands."),
        super::no_subcommand,
    ),
    row(
        admin("slowlog|get", -2, SLOW_SINCE, "[count]", "Returns the slow log's entries.")
            .tips(&["nondeterministic_output", "request_policy:all_nodes"])
            .mark(Marks::ONLY_TELLS)
            .cost("O(N) where N is the number of entries returned"),
        slow_get,
    ),
    row(
        admin("slowlog|len", 2, SLOW_SINCE, "", "Returns the number of entries in the slow log.")
            .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:agg_sum"])
            .mark(Marks::ONLY_TELLS),
        |c, _, reply| len(c, Measure::Time, reply),
    ),
    row(
        admin("slowlog|reset", 2, SLOW_SINCE, "", "Clears all entries from the slow log.")
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .cost("O(N) where N is the number of entries in the slowlog"),
        |c, _, reply| reset(c, Measure::Time, reply),
    ),
    row(super::help_row("slowlog|help", "6.2.0"), slow_help),
    row(
        Spec::other("commandlog", -2).doc(Group::Server, SINCE, "", "A container for command log commands."),
        super::no_subcommand,
    ),
    row(
        admin("commandlog|get", 4, SINCE, KINDS_AFTER_COUNT, "Returns the specified command log's entries.")
            .tips(&["nondeterministic_output", "request_policy:all_nodes"])
            .cost("O(N) where N is the number of entries returned"),
        |c, args, reply| get(c, Some(args.at(2)), measure(args.at(3))?, reply),
    ),
    row(
        admin(
            "commandlog|len",
            3,
            SINCE,
            KINDS,
            "Returns the number of entries in the specified command log.",
        )
        .tips(&["nondeterministic_output", "request_policy:all_nodes", "response_policy:agg_sum"]),
        |c, args, reply| len(c, measure(args.at(2))?, reply),
    ),
    row(
        admin("commandlog|reset", 3, SINCE, KINDS, "Clears all entries from the specified command log.")
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .cost("O(N) where N is the number of entries in the commandlog"),
        |c, args, reply| reset(c, measure(args.at(2))?, reply),
    ),
    row(super::help_row("commandlog|help", SINCE), help),
];

const SLOW_SINCE: &str = "2.2.12";
/// Of Valkey.
const SINCE: &str = "8.1.0";
const KINDS: &str = "<SLOW | LARGE-REQUEST | LARGE-REPLY>";
const KINDS_AFTER_COUNT: &str = "count <SLOW | LARGE-REQUEST | LARGE-REPLY>";

const fn admin(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    let flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);
    Spec::other(name, arity).flag(flags).doc(Group::Server, since, syntax, summary)
}

/// Entries that SLOWLOG GET shows when no number is given.
const SHOWN: usize = 10;

/// The log that a word of COMMANDLOG means.
fn measure(word: &[u8]) -> Result<Measure, Fault> {
    const WORDS: [(&str, Measure); 3] =
        [("slow", Measure::Time), ("large-request", Measure::Request), ("large-reply", Measure::Reply)];
    let found = WORDS.iter().find(|(name, _)| is(word, name));
    let unknown = Fault::text("ERR type should be one of the following: slow, large-request, large-reply");
    found.map(|&(_, measure)| measure).ok_or(unknown)
}

fn slow_get(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match args.len() {
        2 => get(caller, None, Measure::Time, reply),
        3 => get(caller, Some(args.at(2)), Measure::Time, reply),
        _ => Err(Fault::wrong_form(args)),
    }
}

fn get(
    caller: &mut Caller<'_>,
    count: Option<&[u8]>,
    measure: Measure,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let count = match count.map(number::parse_i64) {
        None => SHOWN,
        Some(Some(-1)) => usize::MAX,
        Some(Some(n)) if n >= 0 => usize::try_from(n).unwrap_or(usize::MAX),
        _ => return Err(Fault::text("ERR count should be greater than or equal to -1")),
    };
    let log = caller.local.shared.command_logs.of(measure);
    reply.array(count.min(log.len()));
    for entry in log.iter().take(count) {
        reply.array(6);
        reply.int(entry.id.cast_signed());
        reply.int(entry.unix_s.cast_signed());
        reply.int(entry.amount.cast_signed());
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.peer.as_bytes());
        reply.bulk(entry.name.as_bytes());
    }
    Ok(())
}

fn len(caller: &mut Caller<'_>, measure: Measure, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int_len(caller.local.shared.command_logs.of(measure).len());
    Ok(())
}

fn reset(caller: &mut Caller<'_>, measure: Measure, reply: &mut Reply<'_>) -> Result<(), Fault> {
    caller.local.shared.command_logs.of(measure).clear();
    reply.ok();
    Ok(())
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "COMMANDLOG",
        &[
            "GET <count> <type>",
            "    Show the newest <count> entries of a log, -1 for all of them.",
            "    An entry is made of: id, timestamp, its amount (microseconds of a slow command,",
            "    bytes of a large request or reply), arguments array, client IP and port, client name",
            "LEN <type>",
            "    Show the number of entries of a log.",
            "RESET <type>",
            "    Clear a log. Types are: slow, large-request, large-reply.",
        ],
    );
    Ok(())
}

fn slow_help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "SLOWLOG",
        &[
            "GET [<count>]",
            "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
            "    Entries are made of:",
            "    id, timestamp, time in microseconds, arguments array, client IP and port,",
            "    client name",
            "LEN",
            "    Return the length of the slowlog.",
            "RESET",
            "    Reset the slowlog.",
        ],
    );
    Ok(())
}
