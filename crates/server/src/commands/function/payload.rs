//! FUNCTION DUMP and RESTORE: all libraries as one text, which other servers of this protocol read and write too.
//!
//! It holds each library's code as an RDB file does, and ends like the payload of DUMP: version and checksum.

use std::sync::Arc;

use darter_command::{Fault, reader};
use darter_script::Library;
use darter_store::rdb;
use darter_wire::{Args, Reply};

use super::note_functions;
use crate::dispatch::Caller;
use crate::libraries::Libraries;
use crate::script_run;
use crate::thread_state::ThreadState;

/// The byte before a library's code.
const FUNCTION: u8 = 0xf5;

/// FUNCTION DUMP
pub(super) fn dump(caller: &mut Caller<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut payload = Vec::new();
    for library in caller.local.shared.scripts.libraries().iter() {
        payload.push(FUNCTION);
        rdb::write_text(&mut payload, &library.source);
    }
    rdb::seal(&mut payload);
    reply.bulk(&payload);
    Ok(())
}

/// FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]
pub(super) fn restore(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    restore_in(caller.local, args, reply)
}

/// The same without a client. Adds all libraries, or none.
pub(super) fn restore_in(
    local: &mut ThreadState,
    args: Args<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if args.len() > 4 {
        return Err(Fault::wrong_form(args));
    }
    let is = |word: &str| args.len() == 4 && reader::is(args.at(3), word);
    let (flushes, replaces) = (is("flush"), is("replace"));
    if args.len() == 4 && !flushes && !replaces && !is("append") {
        return Err(Fault::text(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
        ));
    }
    let restored = read(local, args.at(2))?;
    let shared = local.shared;
    let mut libraries = shared.scripts.libraries_mut();
    let joined = joined(if flushes { Libraries::default() } else { libraries.clone() }, restored, replaces)?;
    // Recorded as a replacement, which can be replayed in any state.
    note_functions(
        local,
        &[b"function", b"restore", args.at(2), if flushes { b"flush" } else { b"replace" }],
    );
    *libraries = joined;
    reply.ok();
    Ok(())
}

/// The present libraries plus those of these sources. Errors: one cannot be loaded, exists already without
/// `replaces`, or has a function of another one.
pub fn join(local: &mut ThreadState, sources: &[Vec<u8>], replaces: bool) -> Result<Libraries, Fault> {
    let mut more = Libraries::default();
    for source in sources {
        add(&mut more, script_run::load_library(local, source)?)?;
    }
    let known = local.shared.scripts.libraries().clone();
    joined(known, more, replaces)
}

fn joined(mut known: Libraries, more: Libraries, replaces: bool) -> Result<Libraries, Fault> {
    if replaces {
        for library in more.iter() {
            known.remove(&library.name);
        }
    }
    for library in more.iter() {
        if known.contains(&library.name) {
            return Err(Fault::Text(format!("ERR Library {} already exists", library.name).into()));
        }
        known.insert(library.clone())?;
    }
    Ok(known)
}

/// Adds a library to others of the same text.
fn add(libraries: &mut Libraries, library: Library) -> Result<(), Fault> {
    if libraries.contains(&library.name) {
        return Err(Fault::Text(format!("ERR Library '{}' already exists", library.name).into()));
    }
    libraries.insert(Arc::new(library))
}

fn read(local: &mut ThreadState, payload: &[u8]) -> Result<Libraries, Fault> {
    const TORN: Fault = Fault::text("ERR failed loading the given functions payload");
    let mut source = rdb::open(payload, local.env.restored_versions)
        .map_err(|_| Fault::text("ERR DUMP payload version or checksum are wrong"))?
        .source;
    let mut libraries = Libraries::default();
    while source.left() > 0 {
        if source.byte().map_err(|_| TORN)? != FUNCTION {
            return Err(Fault::text("ERR given type is not a function"));
        }
        let code = source.text().map_err(|_| TORN)?;
        add(&mut libraries, script_run::load_library(local, &code)?)?;
    }
    Ok(libraries)
}
