//! SCRIPT: the scripts the server knows.

use darter_command::Marks;
use darter_command::reader::{is, is_sync_or_async};
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Spec};
use darter_script::ScriptKind;
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::script_run;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("script", -2).mark(Marks::NO_GROUP_CATEGORY).doc(
            Group::Scripting,
            "2.6.0",
            "",
            "A container for Lua scripts management commands.",
        ),
        super::no_subcommand,
    ),
    row(
        script("script|load", 3, "2.6.0", "script", "Loads a script, to be called by its SHA1 digest.")
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .flag(Flags::STALE)
            .cost("O(N) with N being the length in bytes of the script body."),
        load,
    ),
    row(
        script("script|exists", -3, "2.6.0", "sha1 [sha1 ...]", "Tells which scripts are known.")
            .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
            .cost("O(N) with N being the number of scripts to check."),
        exists,
    ),
    row(
        script("script|flush", -2, "2.6.0", "[ASYNC | SYNC]", "Forgets all scripts.")
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
            .cost("O(N) with N being the number of scripts in cache"),
        flush,
    ),
    row(
        Spec::other("script|kill", 2)
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
            .flag(Flags::NOSCRIPT.with(Flags::ALLOW_BUSY))
            .doc(
                Group::Scripting,
                "2.6.0",
                "",
                "Ends a script that has run for long and has written nothing.",
            ),
        kill,
    ),
    row(
        script("script|debug", 3, "3.2.0", "YES | SYNC | NO", "Sets the debug mode of subsequent scripts.")
            .cost("O(1)"),
        debug,
    ),
    row(script("script|show", 3, "8.0.0", "sha1", "Returns the text of a script."), show),
    row(super::help_row("script|help", "5.0.0"), help),
];

const fn script(
    name: &'static str,
    arity: i16,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::other(name, arity).flag(Flags::NOSCRIPT).doc(Group::Scripting, since, syntax, summary)
}

fn load(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let cached = script_run::learn(caller.local, args.at(2), false)?;
    reply.bulk(&cached.script.sha);
    Ok(())
}

fn exists(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let names = args.tail(2);
    reply.array(names.len());
    for name in names.iter() {
        reply.int(i64::from(caller.local.shared.scripts.find(name).is_some()));
    }
    Ok(())
}

fn flush(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const MODES: Fault = Fault::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    match args.len() {
        2 => {}
        3 if is_sync_or_async(args.at(2)) => {}
        _ => return Err(MODES),
    }
    caller.local.shared.scripts.flush();
    reply.ok();
    Ok(())
}

fn kill(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let busy_ms = caller.local.live.busy_reply_threshold_ms;
    caller.local.shared.scripts.kill(ScriptKind::Script, busy_ms, crate::clock::unix_ms())?;
    reply.ok();
    Ok(())
}

/// There is no debugger, so it can be turned off but not on.
fn debug(_: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mode = args.at(2);
    if is(mode, "no") {
        reply.ok();
        return Ok(());
    }
    Err(Fault::text(match is(mode, "yes") || is(mode, "sync") {
        true => "ERR the Lua debugger is not available on this server",
        false => "ERR Use SCRIPT DEBUG YES/SYNC/NO",
    }))
}

fn show(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const UNKNOWN: Fault = Fault::text("NOSCRIPT No matching script. Please use EVAL.");
    let cached = caller.local.shared.scripts.find(args.at(2)).ok_or(UNKNOWN)?;
    reply.bulk(&cached.script.source);
    Ok(())
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const LINES: &[&str] = &[
        "DEBUG (YES|SYNC|NO)",
        "    Turn the debugger of scripts off; this server has none to turn on.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Flush the Lua scripts cache. Very dangerous on replicas.",
        "KILL",
        "    Kill the currently executing Lua script.",
        "LOAD <script>",
        "    Load a script into the scripts cache without executing it.",
        "SHOW <sha1>",
        "    Show the text of a script in the scripts cache.",
    ];
    super::help(reply, "SCRIPT", LINES);
    Ok(())
}
