//! JSON.ARRINDEX key path value [start [stop]]

use darter_document::compare::is_equal;
use darter_document::{Doc, DocNode, parse};
use darter_wire::{Args, Reply};

use super::arrays::is_array;
use super::change::first_of;
use super::fault::{NO_PATH, expected, invalid};
use super::read::reply_each;
use super::{document, path_at};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.ARRINDEX.
pub const ARRINDEX: DataCommand = DataCommand {
    spec: Spec::read("json.arrindex", -4, Keys::ONE)
        .doc(
            Group::Json,
            "1.0.0",
            "key path value [start [stop]]",
            "Finds a value in the arrays that a path names.",
        )
        .cost("O(N) over the part of the document that the path visits"),
    run: index,
};

fn index(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 6 {
        return Err(Fault::Arity("json.arrindex".into()));
    }
    let path = path_at(args, 2)?;
    let limit = |at: usize| args.get(at).map_or(Ok(0), reader::int);
    let (start, stop) = (limit(4)?, limit(5)?);
    let bytes = parse(args.at(3)).map_err(invalid)?;
    let wanted = Doc::new(&bytes).root();
    let place = ctx.read(args.at(1));
    let doc = document(&place)?.ok_or(NO_PATH)?;
    if path.is_legacy() {
        reply.int(first_index(first_of(doc, &path)?, wanted, start, stop).ok_or_else(|| expected("array"))?);
        return Ok(());
    }
    reply_each(doc, &path, reply, |node, reply| match first_index(node, wanted, start, stop) {
        Some(index) => reply.int(index),
        None => reply.null(),
    });
    Ok(())
}

/// The index of the first item from `start` on and before `stop` that equals `wanted`, or -1; `None`: not an array.
/// Both positions count from the end if they are negative; a `stop` of 0 is the end.
fn first_index(node: DocNode<'_>, wanted: DocNode<'_>, start: i64, stop: i64) -> Option<i64> {
    let len = node.len().filter(|_| is_array(node.view()))? as i64;
    let first = if start < 0 { start.saturating_add(len).max(0) } else { start.min(len - 1).max(0) };
    let end = match stop {
        0 => len,
        stop if stop < 0 => stop.saturating_add(len).max(0),
        stop => stop.min(len),
    };
    let taken = node.items_from(first as usize).zip(first..end).map(|(item, at)| (at, item));
    Some(taken.into_iter().find(|(_, item)| is_equal(*item, wanted)).map_or(-1, |(at, _)| at))
}
