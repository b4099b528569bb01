//! COMMAND: the list of commands, from the registry alone.

mod describe;
mod docs;
mod keys;

use darter_base::glob;
use darter_command::category::Categories;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec, reader};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::registry::{CommandEntry, Registry};

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        spec("command", -1, "2.8.13", "", "Returns detailed information about all commands.")
            .tips(&["nondeterministic_output_order"])
            .cost("O(N) where N is the total number of commands"),
        all,
    ),
    row(spec("command|count", 2, "2.8.13", "", "Returns a count of commands."), count),
    row(
        spec("command|list", -2, "7.0.0", LIST_SYNTAX, "Returns a list of command names.")
            .tips(&["nondeterministic_output_order"])
            .cost("O(N) where N is the total number of commands"),
        list,
    ),
    row(
        spec(
            "command|info",
            -2,
            "2.8.13",
            "[command-name [command-name ...]]",
            "Returns information about one, multiple or all commands.",
        )
        .tips(&["nondeterministic_output_order"])
        .cost("O(N) where N is the number of commands to look up"),
        info,
    ),
    row(
        spec(
            "command|docs",
            -2,
            "7.0.0",
            "[command-name [command-name ...]]",
            "Returns documentary information about one, multiple or all commands.",
        )
        .tips(&["nondeterministic_output_order"])
        .cost("O(N) where N is the number of commands to look up"),
        docs::docs,
    ),
    row(
        spec(
            "command|getkeys",
            -3,
            "2.8.13",
            "command [arg [arg ...]]",
            "Extracts the key names from a command.",
        )
        .cost("O(N) where N is the number of arguments to the command"),
        keys::getkeys,
    ),
    row(
        spec(
            "command|getkeysandflags",
            -3,
            "7.0.0",
            "command [arg [arg ...]]",
            "Extracts the key names and access flags from a command.",
        )
        .cost("O(N) where N is the number of arguments to the command"),
        keys::getkeysandflags,
    ),
    row(super::help_row("command|help", "5.0.0").category(Categories::CONNECTION), help),
];

const LIST_SYNTAX: &str = "[FILTERBY <MODULE module-name | ACLCAT category | PATTERN pattern>]";

const fn spec(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::other(name, arity)
        .flag(Flags::LOADING.with(Flags::STALE))
        .mark(Marks::ONLY_TELLS)
        .category(Categories::CONNECTION)
        .doc(Group::Server, since, syntax, summary)
}

fn all(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let commands = caller.local.shared.registry.commands();
    reply.array(commands.len());
    commands.iter().for_each(|entry| describe::entry(entry, reply));
    Ok(())
}

fn count(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    reply.int_len(caller.local.shared.registry.commands().len());
    Ok(())
}

fn info(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() == 2 {
        return all(caller, args, reply);
    }
    reply.array(args.len() - 2);
    for name in args.iter().skip(2) {
        match named(&caller.local.shared.registry, name) {
            Some(entry) => describe::entry(entry, reply),
            None => reply.null(),
        }
    }
    Ok(())
}

fn list(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let entries = caller.local.shared.registry.entries();
    let is_shown: Filter<'_> = match args.len() {
        2 => Box::new(|_| true),
        5 if reader::is(args.at(2), "filterby") => filter(args.at(3), args.at(4)).ok_or(Fault::Syntax)?,
        _ => return Err(Fault::Syntax),
    };
    let begun = reply.begin_array();
    let shown = entries.iter().filter(|entry| is_shown(entry));
    let len = shown.map(|entry| reply.bulk(entry.spec.name.as_bytes())).count();
    reply.end_array(begun, len);
    Ok(())
}

/// Returns true if COMMAND LIST shows a command.
type Filter<'a> = Box<dyn Fn(&CommandEntry) -> bool + 'a>;

fn filter<'a>(by: &[u8], what: &'a [u8]) -> Option<Filter<'a>> {
    if reader::is(by, "module") {
        Some(Box::new(move |entry| super::modules::has_group(what, entry.spec.group)))
    } else if reader::is(by, "aclcat") {
        let category = Categories::named(what).unwrap_or_default();
        Some(Box::new(move |entry| entry.spec.categories().any(category)))
    } else if reader::is(by, "pattern") {
        Some(Box::new(move |entry| glob::matches(what, entry.spec.name.as_bytes(), true)))
    } else {
        None
    }
}

/// The command, or the subcommand written `container|sub`.
pub(super) fn named(registry: &Registry, name: &[u8]) -> Option<&'static CommandEntry> {
    match name.iter().position(|&b| b == b'|') {
        None => registry.find(name),
        Some(at) => registry.find(&name[..at])?.sub(&name[at + 1..]),
    }
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    super::help(
        reply,
        "COMMAND",
        &[
            "(no subcommand)",
            "    Return details about all commands.",
            "COUNT",
            "    Return the total number of commands in this server.",
            "LIST",
            "    Return a list of all commands in this server.",
            "INFO [<command-name> ...]",
            "    Return details about multiple commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "DOCS [<command-name> ...]",
            "    Return documentation details about multiple commands.",
            "    If no command names are given, documentation details for all",
            "    commands are returned.",
            "GETKEYS <full-command>",
            "    Return the keys from a full command.",
            "GETKEYSANDFLAGS <full-command>",
            "    Return the keys and the access flags from a full command.",
        ],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subcommand_is_named_with_a_bar() {
        let registry = Registry::build();
        assert_eq!(named(&registry, b"COMMAND|Count").map(|entry| entry.spec.name), Some("command|count"));
        assert_eq!(named(&registry, b"get").map(|entry| entry.spec.name), Some("get"));
        for wrong in [&b"get|x"[..], b"command|", b"|count", b"|", b""] {
            assert!(named(&registry, wrong).is_none(), "{wrong:?}");
        }
    }
}
