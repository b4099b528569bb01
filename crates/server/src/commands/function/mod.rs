//! FUNCTION: libraries of functions the server knows.

use darter_command::spec::Effect;
use std::sync::Arc;

use darter_base::glob;
use darter_command::reader::{is, is_sync_or_async};
use darter_command::spec::Group;
use darter_command::{ArgReader, Fault, Flags, Marks, Reach, Spec};
use darter_script::{Library, ScriptKind};
use darter_wire::{Args, Reply};

use super::{ServerCommand, help_row, no_subcommand, row};
use crate::dispatch::Caller;
use crate::journal::note::note_functions;
use crate::script_run;
use crate::scripts::busy_line;
use crate::thread_state::ThreadState;

mod payload;

pub use payload::join;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("function", -2).mark(Marks::NO_GROUP_CATEGORY).doc(
            Group::Scripting,
            "7.0.0",
            "",
            "A container for function commands.",
        ),
        no_subcommand,
    ),
    row(
        function("function|load", -3, "[REPLACE] function-code", "Creates a library.")
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .flag(Flags::WRITE.with(Flags::DENYOOM))
            .mark(Marks::REPLAYED)
            .effect(Effect::Nothing)
            .reach(LIBRARIES)
            .cost("O(1) (considering compilation time is redundant)"),
        load,
    ),
    row(
        function("function|delete", 3, "library-name", "Deletes a library and its functions.")
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .flag(Flags::WRITE)
            .mark(Marks::REPLAYED)
            .effect(Effect::Nothing)
            .reach(LIBRARIES),
        delete,
    ),
    row(
        function("function|flush", -2, "[ASYNC | SYNC]", "Deletes all libraries and functions.")
            .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
            .flag(Flags::WRITE)
            .mark(Marks::REPLAYED)
            .effect(Effect::Nothing)
            .reach(LIBRARIES)
            .cost("O(N) where N is the number of functions deleted"),
        flush,
    ),
    row(
        function(
            "function|list",
            -2,
            "[LIBRARYNAME library-name-pattern] [WITHCODE]",
            "Returns information about all libraries.",
        )
        .tips(&["nondeterministic_output_order"])
        .cost("O(N) where N is the number of functions"),
        list,
    ),
    row(
        function("function|dump", 2, "", "Dumps all libraries into a serialized binary payload.")
            .cost("O(N) where N is the number of functions"),
        payload::dump,
    ),
    row(
        function(
            "function|restore",
            -3,
            "serialized-value [FLUSH | APPEND | REPLACE]",
            "Restores all libraries from a payload.",
        )
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .flag(Flags::WRITE.with(Flags::DENYOOM))
        .mark(Marks::REPLAYED)
        .effect(Effect::Nothing)
        .reach(LIBRARIES)
        .cost("O(N) where N is the number of functions on the payload"),
        payload::restore,
    ),
    row(
        function("function|stats", 2, "", "Returns information about a function during execution.")
            .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
            .flag(Flags::ALLOW_BUSY)
            .cost("O(1)"),
        stats,
    ),
    row(
        function("function|kill", 2, "", "Ends a function that has run for long and has written nothing.")
            .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
            .flag(Flags::ALLOW_BUSY)
            .cost("O(1)"),
        kill,
    ),
    row(help_row("function|help", "7.0.0"), help),
];

/// Changes of libraries hold the first shard, to the end of their transaction. They therefore have their place in the
/// journal in the order of their execution, and a base contains all changes before its cut.
const LIBRARIES: Reach = Reach::Run(|_, _| (0, 1));

const fn function(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    Spec::other(name, arity).flag(Flags::NOSCRIPT).doc(Group::Scripting, "7.0.0", syntax, summary)
}

/// Runs LOAD, DELETE, FLUSH or RESTORE without a client, while the journal is replayed.
///
/// Errors: the text for a client.
pub fn change(local: &mut ThreadState, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"load" => load_in(local, args, reply),
        b"delete" => delete_in(local, args, reply),
        b"restore" => payload::restore_in(local, args, reply),
        _ => flush_in(local, args, reply),
    }
}

fn load(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    load_in(caller.local, args, reply)
}

fn delete(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    delete_in(caller.local, args, reply)
}

fn flush(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    flush_in(caller.local, args, reply)
}

fn load_in(local: &mut ThreadState, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 2);
    let mut replaces = false;
    while reader.left() > 1 {
        let word = reader.bytes()?;
        if !is(word, "replace") {
            let word = String::from_utf8_lossy(word);
            return Err(Fault::Text(format!("ERR Unknown option given: {word}").into()));
        }
        replaces = true;
    }
    let library = script_run::load_library(local, reader.bytes()?)?;
    let mut libraries = local.shared.scripts.libraries_mut();
    if !replaces && libraries.contains(&library.name) {
        return Err(Fault::Text(format!("ERR Library '{}' already exists", library.name).into()));
    }
    let library = Arc::new(library);
    libraries.insert(library.clone())?;
    reply.bulk(library.name.as_bytes());
    // Recorded as a replacement, which can be replayed in any state.
    note_functions(local, &[b"function", b"load", b"replace", &library.source]);
    Ok(())
}

fn delete_in(local: &mut ThreadState, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let name = String::from_utf8_lossy(args.at(2));
    let mut libraries = local.shared.scripts.libraries_mut();
    if !libraries.remove(&name) {
        return Err(Fault::text("ERR Library not found"));
    }
    note_functions(local, &[b"function", b"delete", args.at(2)]);
    reply.ok();
    Ok(())
}

fn flush_in(local: &mut ThreadState, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match args.len() {
        2 => {}
        3 if is_sync_or_async(args.at(2)) => {}
        4.. => return Err(Fault::wrong_form(args)),
        _ => return Err(Fault::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
    }
    let mut libraries = local.shared.scripts.libraries_mut();
    libraries.clear();
    note_functions(local, &[b"function", b"flush"]);
    reply.ok();
    Ok(())
}

fn list(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 2);
    let (mut pattern, mut with_code) = (None, false);
    while !reader.is_done() {
        if !with_code && reader.take("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && reader.take("LIBRARYNAME") {
            const NO_NAME: Fault = Fault::text("ERR library name argument was not given");
            pattern = Some(reader.bytes().map_err(|_| NO_NAME)?);
        } else {
            let word = String::from_utf8_lossy(reader.bytes()?);
            return Err(Fault::Text(format!("ERR Unknown argument {word}").into()));
        }
    }
    let libraries = caller.local.shared.scripts.libraries();
    let shown: Vec<&Arc<Library>> = libraries
        .iter()
        .filter(|library| pattern.is_none_or(|pattern| glob::matches(pattern, library.name.as_bytes(), true)))
        .collect();
    reply.array(shown.len());
    shown.iter().for_each(|library| show(library, with_code, reply));
    Ok(())
}

fn show(library: &Library, with_code: bool, reply: &mut Reply<'_>) {
    reply.map(3 + usize::from(with_code));
    reply.bulk(b"library_name");
    reply.bulk(library.name.as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(function.name.as_bytes());
        reply.bulk(b"description");
        reply.bulk_or_null(function.description.as_deref().map(str::as_bytes));
        reply.bulk(b"flags");
        reply.set(function.flag_names.len());
        function.flag_names.iter().for_each(|flag| reply.status(flag));
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(&library.source);
    }
}

fn stats(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if caller.local.busy == Some(ScriptKind::Script) {
        return Err(Fault::Text(busy_line(ScriptKind::Script).into()));
    }
    let (scripts, now_ms) = (&caller.local.shared.scripts, crate::clock::unix_ms());
    let running = scripts.watches.iter().filter_map(|watch| watch.running_function(now_ms));
    reply.map(2);
    reply.bulk(b"running_script");
    match running.max_by_key(|(_, for_ms)| *for_ms) {
        None => reply.null(),
        Some((running, for_ms)) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(running.name.as_bytes());
            reply.bulk(b"command");
            let command = running.command.args();
            reply.array(command.len());
            command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.int(i64::try_from(for_ms).unwrap_or(i64::MAX));
        }
    }
    let libraries = scripts.libraries();
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.int(libraries.len() as i64);
    reply.bulk(b"functions_count");
    reply.int_len(libraries.functions_len());
    Ok(())
}

fn kill(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let busy_ms = caller.local.live.busy_reply_threshold_ms;
    caller.local.shared.scripts.kill(ScriptKind::Function, busy_ms, crate::clock::unix_ms())?;
    reply.ok();
    Ok(())
}

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const LINES: &[&str] = &[
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "DUMP",
        "    Return a serialized payload of all libraries, to be restored with FUNCTION RESTORE.",
        "KILL",
        "    Kill the function that runs.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries of a payload. APPEND is the default, FLUSH deletes all others first, REPLACE",
        "    replaces libraries of the same name.",
        "STATS",
        "    Return what runs, and how many libraries and functions there are.",
    ];
    super::help(reply, "FUNCTION", LINES);
    Ok(())
}
