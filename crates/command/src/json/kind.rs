//! JSON.TYPE key [path]

use darter_wire::{Args, Reply};

use super::each_later::{ShowNode, ShownNodes, leave_each};
use super::read::reply_each;
use super::{document, path_at};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.TYPE.
pub const TYPE: DataCommand = DataCommand {
    spec: Spec::read("json.type", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Names the types of values.")
        .cost("O(N) over the part of the document that the path visits"),
    run: kind,
};

fn kind(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let head: &[u8] = if reply.is_resp3() { b"*1\r\n" } else { b"" };
    let show: ShowNode = |_, node, reply| reply.bulk(node.kind().as_bytes());
    if leave_each(ctx, args.at(1), &path, (head, ShownNodes::Own, show), reply) {
        return Ok(());
    }
    let place = ctx.read(args.at(1));
    let doc = document(&place)?;
    if reply.is_resp3() {
        reply.array(1);
    }
    match doc {
        None => reply.null(),
        Some(doc) if path.is_legacy() => match path.first(doc) {
            Some(at) => reply.bulk(doc.node(at).kind().as_bytes()),
            None => reply.null(),
        },
        Some(doc) => reply_each(doc, &path, reply, |node, reply| show(None, node, reply)),
    }
    Ok(())
}
