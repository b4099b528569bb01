//! JSON.OBJKEYS key [path], JSON.OBJLEN key [path]

use darter_document::{DocNode, FormView};
use darter_wire::{Args, Reply};

use super::each_later::{ShowNode, ShownNodes, leave_each};
use super::fault::{expected, no_path_or};
use super::read::{reply_each, reply_len};
use super::{document, path_at, present};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.OBJKEYS.
pub const OBJKEYS: DataCommand = DataCommand {
    spec: Spec::read("json.objkeys", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Returns the names of the members of objects.")
        .cost("O(N) over the part of the document that the path visits"),
    run: names,
};
/// JSON.OBJLEN.
pub const OBJLEN: DataCommand = DataCommand {
    spec: Spec::read("json.objlen", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Counts the members of objects.")
        .cost("O(N) over the part of the document that the path visits"),
    run: len,
};

fn is_object(node: DocNode<'_>) -> bool {
    matches!(node.view(), FormView::Object(_))
}

fn reply_names(node: DocNode<'_>, reply: &mut Reply<'_>) {
    match node.view() {
        FormView::Object(count) => {
            reply.array(count);
            node.members().for_each(|(name, _)| reply.bulk(name));
        }
        _ => reply.null(),
    }
}

fn names(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let show: ShowNode = |_, node, reply| reply_names(node, reply);
    if leave_each(ctx, args.at(1), &path, (b"", ShownNodes::Own, show), reply) {
        return Ok(());
    }
    let place = ctx.read(args.at(1));
    if !path.is_legacy() {
        reply_each(present(&place)?, &path, reply, reply_names);
        return Ok(());
    }
    let doc = document(&place)?;
    match doc.and_then(|doc| path.first(doc).map(|at| doc.node(at))) {
        None => reply.null(),
        Some(node) if is_object(node) => reply_names(node, reply),
        Some(_) => return Err(no_path_or("not an object")),
    }
    Ok(())
}

fn len(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let show: ShowNode = |_, node, reply| reply_len(node.len().filter(|_| is_object(node)), reply);
    if leave_each(ctx, args.at(1), &path, (b"", ShownNodes::Own, show), reply) {
        return Ok(());
    }
    let place = ctx.read(args.at(1));
    let doc = document(&place)?;
    if !path.is_legacy() {
        let doc = doc.ok_or_else(|| no_path_or("not an object"))?;
        reply_each(doc, &path, reply, |node, reply| show(None, node, reply));
        return Ok(());
    }
    match doc.and_then(|doc| path.first(doc).map(|at| doc.node(at))) {
        None => reply.null(),
        Some(node) if is_object(node) => reply_len(node.len(), reply),
        Some(_) => return Err(expected("object")),
    }
    Ok(())
}
