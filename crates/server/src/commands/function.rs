//! FUNCTION: libraries of functions the server knows.

use std::sync::Arc;

use darter_base::ascii::eq_ignore_case;
use darter_base::glob;
use darter_command::spec::Group;
use darter_command::{Fault, Flags, Reader, Spec};
use darter_script::Library;
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::core::Core;
use crate::dispatch::Caller;
use crate::journal::note::note_functions;
use crate::script_run;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[
    row(
        Spec::other("function", -2).doc(Group::Scripting, "7.0.0", "", "A container for function commands."),
        super::no_subcommand,
    ),
    row(
        function("function|load", -3, "[REPLACE] function-code", "Creates a library.")
            .flag(Flags::WRITE.with(Flags::DENYOOM))
            .cost("O(1) (considering compilation time is redundant)"),
        load,
    ),
    row(
        function("function|delete", 3, "library-name", "Deletes a library and its functions.")
            .flag(Flags::WRITE),
        delete,
    ),
    row(
        function("function|flush", -2, "[ASYNC | SYNC]", "Deletes all libraries and functions.")
            .flag(Flags::WRITE)
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
        .cost("O(N) where N is the number of functions"),
        list,
    ),
    row(super::help_row("function|help", "7.0.0"), help),
];

const fn function(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    Spec::other(name, arity).flag(Flags::NOSCRIPT).doc(Group::Scripting, "7.0.0", syntax, summary)
}

/// Runs LOAD, DELETE or FLUSH for nobody: the journal is read back.
///
/// Errors: what a client would be told.
pub fn change(core: &mut Core, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    match args.at(1).to_ascii_lowercase().as_slice() {
        b"load" => load_in(core, args, reply),
        b"delete" => delete_in(core, args, reply),
        _ => flush_in(core, args, reply),
    }
}

fn load(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    load_in(caller.core, args, reply)
}

fn delete(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    delete_in(caller.core, args, reply)
}

fn flush(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    flush_in(caller.core, args, reply)
}

fn load_in(core: &mut Core, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = Reader::new(args, 2);
    let mut replaces = false;
    while reader.left() > 1 {
        let word = reader.bytes()?;
        if !eq_ignore_case(word, b"replace") {
            let word = String::from_utf8_lossy(word);
            return Err(Fault::Text(format!("ERR Unknown option given: {word}").into()));
        }
        replaces = true;
    }
    let library = script_run::load_library(core, reader.bytes()?)?;
    let mut libraries = core.shared.scripts.libraries_mut();
    if !replaces && libraries.contains_key(&library.name) {
        return Err(Fault::Text(format!("ERR Library '{}' already exists", library.name).into()));
    }
    let others = libraries.values().filter(|other| other.name != library.name);
    for function in others.flat_map(|other| &other.functions) {
        if library.functions.iter().any(|own| own.name.eq_ignore_ascii_case(&function.name)) {
            return Err(Fault::Text(format!("ERR Function {} already exists", function.name).into()));
        }
    }
    reply.bulk(library.name.as_bytes());
    // Under the lock, and as a replacement, so that a base taken meanwhile may hold it already.
    note_functions(core, &[b"function", b"load", b"replace", &library.source]);
    libraries.insert(library.name.clone(), Arc::new(library));
    Ok(())
}

fn delete_in(core: &mut Core, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let name = String::from_utf8_lossy(args.at(2));
    let mut libraries = core.shared.scripts.libraries_mut();
    libraries.remove(&*name).ok_or(Fault::text("ERR Library not found"))?;
    note_functions(core, &[b"function", b"delete", args.at(2)]);
    reply.ok();
    Ok(())
}

fn flush_in(core: &mut Core, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_mode = |word: &[u8]| eq_ignore_case(word, b"sync") || eq_ignore_case(word, b"async");
    match args.len() {
        2 => {}
        3 if is_mode(args.at(2)) => {}
        _ => return Err(Fault::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")),
    }
    let mut libraries = core.shared.scripts.libraries_mut();
    libraries.clear();
    note_functions(core, &[b"function", b"flush"]);
    reply.ok();
    Ok(())
}

fn list(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = Reader::new(args, 2);
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
    let libraries = caller.core.shared.scripts.libraries();
    let shown: Vec<&Arc<Library>> = libraries
        .values()
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

fn help(_: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const LINES: &[&str] = &[
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
    ];
    super::help(reply, "FUNCTION", LINES);
    Ok(())
}
