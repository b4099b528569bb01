//! JSON.DEBUG MEMORY key [path], JSON.DEBUG HELP

use darter_wire::{Args, Reply};

use super::change::first_of;
use super::read::reply_each;
use super::{document, path_at};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.DEBUG MEMORY.
pub const MEMORY: DataCommand = DataCommand {
    spec: Spec::read("json.debug|memory", -3, Keys::Range { first: 2, last: 2, step: 1 })
        .doc(Group::Json, "1.0.0", "key [path]", "Counts the bytes of the values that a path names.")
        .cost("O(N) over the part of the document that the path visits"),
    run: memory,
};
/// JSON.DEBUG HELP.
pub const HELP: DataCommand = DataCommand {
    spec: Spec::other("json.debug|help", 2).doc(Group::Json, "1.0.0", "", "Lists the subcommands."),
    run: |_, _, reply| {
        reply.array(2);
        reply.bulk(b"MEMORY <key> [path] - reports memory usage");
        reply.bulk(b"HELP                - this message");
        Ok(())
    },
};
/// JSON.DEBUG.
pub const DEBUG: DataCommand = DataCommand {
    spec: Spec::other("json.debug", -2).doc(
        Group::Json,
        "1.0.0",
        "",
        "A container of commands for debugging.",
    ),
    run: |_, _, _| Err(Fault::text("ERR unknown subcommand - try `JSON.DEBUG HELP`")),
};

/// Answers the bytes that values really take: the whole document with its block, any other value in encoded form.
fn memory(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 3)?;
    let place = ctx.untouched(args.at(2));
    let Some(doc) = document(&place)? else {
        if path.is_legacy() {
            reply.int(0)
        } else {
            reply.array(0)
        }
        return Ok(());
    };
    let whole = place.object().map_or(0, |(object, _)| object.memory_bytes());
    let is_root = path.is_root();
    let bytes_of = |bytes: usize| if is_root { whole } else { bytes };
    if path.is_legacy() {
        reply.int_len(bytes_of(first_of(doc, &path)?.size()));
    } else {
        reply_each(doc, &path, reply, |node, reply| reply.int_len(bytes_of(node.size())));
    }
    Ok(())
}
