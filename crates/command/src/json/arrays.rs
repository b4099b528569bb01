//! JSON.ARRLEN key [path]

use darter_document::FormView;
use darter_wire::{Args, Reply};

use super::change::first_of;
use super::each_later::{ShowNode, ShownNodes, leave_each};
use super::fault::{MISSING_KEY, no_path_or};
use super::read::{reply_each, reply_len};
use super::{document, path_at};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.ARRLEN.
pub const ARRLEN: DataCommand = DataCommand {
    spec: Spec::read("json.arrlen", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Counts the elements of arrays.")
        .cost("O(N) over the part of the document that the path visits"),
    run: len,
};

pub(super) fn is_array(view: FormView<'_>) -> bool {
    matches!(view, FormView::Array(_))
}

fn len(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let show: ShowNode = |_, node, reply| reply_len(node.len().filter(|_| is_array(node.view())), reply);
    if leave_each(ctx, args.at(1), &path, (b"", ShownNodes::Own, show), reply) {
        return Ok(());
    }
    let place = ctx.read(args.at(1));
    match document(&place)? {
        None if path.is_legacy() => reply.null(),
        None => return Err(MISSING_KEY),
        Some(doc) if path.is_legacy() => {
            let node = first_of(doc, &path)?;
            if !is_array(node.view()) {
                return Err(no_path_or("not an array"));
            }
            reply_len(node.len(), reply);
        }
        Some(doc) => {
            reply_each(doc, &path, reply, |node, reply| show(None, node, reply));
        }
    }
    Ok(())
}
