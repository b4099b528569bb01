//! JSON.DEL key [path], JSON.FORGET

use darter_document::{Doc, Rewritten, remove};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::apply;
use super::{document, event, path_at};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.DEL.
pub const DEL: DataCommand = DataCommand {
    spec: Spec::shrink("json.del", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Deletes the values that a path names.")
        .cost("O(N) over the size of the document"),
    run: del,
};
/// JSON.FORGET.
pub const FORGET: DataCommand = DataCommand {
    spec: Spec::shrink("json.forget", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Deletes the values that a path names.")
        .cost("O(N) over the size of the document"),
    run: del,
};

const DEL_EVENT: Event = event("json.del");

fn del(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let mut place = ctx.at(args.at(1));
    let Some(doc) = document(&place)? else {
        reply.int(0);
        return Ok(());
    };
    let (done, removed) = remove(doc, &path.trace(doc));
    if removed == 0 {
        reply.int(0);
        return Ok(());
    }
    let is_gone = match &done {
        Rewritten::Gone => true,
        Rewritten::Whole(first) | Rewritten::Pieces { first, .. } => Doc::new(first).root().is_empty(),
        _ => false,
    };
    if is_gone {
        place.remove();
    } else {
        apply(&mut place, done)?;
    }
    place.changed(DEL_EVENT);
    reply.int_len(removed);
    Ok(())
}
