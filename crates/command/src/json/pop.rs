//! JSON.ARRPOP key [FORMAT format] [path [index]]

use darter_base::number;
use darter_document::{DocNode, JsonPath};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::arrays::is_array;
use super::change::change_quietly;
use super::fault::{NO_FORMAT, no_path_or};
use super::shape::{JsonFormat, reply_node, text_of};
use super::{event, path_at};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.ARRPOP.
pub const ARRPOP: DataCommand = DataCommand {
    spec: Spec::shrink("json.arrpop", -2, Keys::ONE)
        .doc(
            Group::Json,
            "1.0.0",
            "key [FORMAT <STRINGS | EXPAND1 | EXPAND>] [path [index]]",
            "Takes elements out of arrays and returns them.",
        )
        .cost("O(N) over the size of the document"),
    run: pop,
};

const POP_EVENT: Event = event("json.arrpop");

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (mut format, mut at) = (JsonFormat::Text, 2);
    if args.len() > 3 && reader::is(args.at(2), "format") {
        format = JsonFormat::named(args.at(3), "strings")?;
        if !reply.is_resp3() {
            return Err(NO_FORMAT);
        }
        at = 4;
    }
    let path = path_at(args, at)?;
    if path.is_legacy() && format != JsonFormat::Text {
        return Err(Fault::text("Legacy paths are supported only with FORMAT STRINGS"));
    }
    let index = args.get(at + 1).and_then(number::parse_i64).unwrap_or(-1);
    let is_resp3 = reply.is_resp3();
    let mut place = ctx.at(args.at(1));
    let show_one = |node: DocNode<'_>| {
        let mut shown = Vec::new();
        let mut reply = Reply::new(&mut shown, is_resp3);
        match format {
            JsonFormat::Text => reply.bulk_long(&text_of(node)),
            format => reply_node(node, format, &mut reply),
        }
        shown
    };
    let outcome =
        change_quietly(&mut place, &path, is_array, |slot| Ok(slot.pop(index, show_one).flatten()))?;
    let is_popped = |one: &Option<Vec<u8>>| path.is_legacy() || one.is_some();
    if outcome.each().iter().flatten().any(is_popped) {
        place.changed(POP_EVENT);
    }
    show(outcome.into_each(), &path, reply)
}

/// Answers the items popped from each array: null for an empty one.
fn show(each: Vec<Option<Option<Vec<u8>>>>, path: &JsonPath, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let one = |popped: Option<Vec<u8>>, reply: &mut Reply<'_>| match popped {
        Some(shown) => reply.raw(&shown),
        None => reply.null(),
    };
    if path.is_legacy() {
        let last = each.into_iter().flatten().next_back();
        one(last.ok_or_else(|| no_path_or("not an array"))?, reply);
        return Ok(());
    }
    reply.array(each.len());
    each.into_iter().for_each(|popped| one(popped.flatten(), reply));
    Ok(())
}
