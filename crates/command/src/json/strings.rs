//! JSON.STRAPPEND key [path] value, JSON.STRLEN key [path]

use darter_document::{Doc, FormView, parse};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::{change_each, first_of};
use super::each_later::{ShowNode, ShownNodes, leave_each};
use super::fault::{expected, invalid};
use super::read::{reply_each, reply_len};
use super::{document, event, path_at, present};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.STRAPPEND.
pub const STRAPPEND: DataCommand = DataCommand {
    spec: Spec::write("json.strappend", -3, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path] value", "Adds text at the end of strings.")
        .cost("O(N) over the size of the document"),
    run: append,
};
/// JSON.STRLEN.
pub const STRLEN: DataCommand = DataCommand {
    spec: Spec::read("json.strlen", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Counts the bytes of strings.")
        .cost("O(N) over the size of the document"),
    run: len,
};

const APPEND_EVENT: Event = event("json.strappend");

fn is_text(view: FormView<'_>) -> bool {
    matches!(view, FormView::Text(_))
}

fn append(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let has_path = args.len() > 3;
    let path = if has_path { path_at(args, 2)? } else { darter_document::JsonPath::root() };
    let bytes = parse(args.at(2 + usize::from(has_path))).map_err(invalid)?;
    let FormView::Text(more) = Doc::new(&bytes).root().view() else { return Err(expected("string")) };
    let mut place = ctx.at(args.at(1));
    let outcome = change_each(&mut place, &path, APPEND_EVENT, is_text, |slot| {
        Ok(slot.append_text(more).unwrap_or_default())
    })?;
    outcome.reply(&path, "not a string", reply, |len, reply| reply.int_len(len))
}

fn len(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let show: ShowNode = |_, node, reply| reply_len(node.len().filter(|_| is_text(node.view())), reply);
    if leave_each(ctx, args.at(1), &path, (b"", ShownNodes::Own, show), reply) {
        return Ok(());
    }
    let place = ctx.read(args.at(1));
    if !path.is_legacy() {
        reply_each(present(&place)?, &path, reply, |node, reply| show(None, node, reply));
        return Ok(());
    }
    match document(&place)? {
        None => reply.null(),
        Some(doc) => match first_of(doc, &path)?.view() {
            FormView::Text(text) => reply.int_len(text.len()),
            _ => return Err(expected("string")),
        },
    }
    Ok(())
}
