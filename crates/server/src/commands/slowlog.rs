//! SLOWLOG: the slow commands kept in `crate::slowlog`.

use darter_base::number;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::worker::lock;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("slowlog", -2).doc(Group::Server, "2.2.12", "", "A container for slow log commands."),
        super::no_subcommand,
    ),
    row(
        admin("slowlog|get", -2, "[count]", "Returns the slow log's entries.")
            .cost("O(N) where N is the number of entries returned"),
        get,
    ),
    row(admin("slowlog|len", 2, "", "Returns the number of entries in the slow log."), len),
    row(
        admin("slowlog|reset", 2, "", "Clears all entries from the slow log.")
            .cost("O(N) where N is the number of entries in the slowlog"),
        reset,
    ),
    row(super::help_row("slowlog|help", "6.2.0"), help),
];

const fn admin(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    let flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);
    Spec::other(name, arity).flag(flags).doc(Group::Server, "2.2.12", syntax, summary)
}

/// Entries that GET shows when no number is given.
const SHOWN: usize = 10;

fn get(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count = match args.len() {
        2 => SHOWN,
        3 => match number::parse_i64(args.at(2)) {
            Some(-1) => usize::MAX,
            Some(n) if n >= 0 => usize::try_from(n).unwrap_or(usize::MAX),
            _ => return Err(Fault::text("ERR count should be greater than or equal to -1")),
        },
        _ => return Err(super::wrong_subcommand("SLOWLOG", args.at(1))),
    };
    let log = lock(&caller.core.shared.slowlog);
    reply.array(count.min(log.len()));
    for entry in log.iter().take(count) {
        reply.array(6);
        reply.int(entry.id.cast_signed());
        reply.int(entry.unix_s.cast_signed());
        reply.int(entry.duration_us.cast_signed());
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.peer.as_bytes());
        reply.bulk(entry.name.as_bytes());
    }
    Ok(())
}

fn len(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int_len(lock(&caller.core.shared.slowlog).len());
    Ok(())
}

fn reset(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    lock(&caller.core.shared.slowlog).clear();
    reply.ok();
    Ok(())
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
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
