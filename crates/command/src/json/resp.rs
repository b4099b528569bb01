//! JSON.RESP key [path]

use darter_document::path::PathQuery;
use darter_document::{DocNode, FormView, JsonPath};
use darter_wire::{Args, Reply};

use super::change::first_of;
use super::document;
use super::each_later::{ShownNodes, leave_each};
use super::fault::bad_path;
use super::read::reply_query;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.RESP.
pub const RESP: DataCommand = DataCommand {
    spec: Spec::read("json.resp", -2, Keys::ONE)
        .doc(Group::Json, "1.0.0", "key [path]", "Returns a value as nested replies of the protocol.")
        .cost("O(N) over the part of the document that the path visits"),
    run: resp,
};

fn resp(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let query = match args.get(2) {
        Some(text) => PathQuery::parse(text).map_err(bad_path)?,
        None => PathQuery::Path(JsonPath::root()),
    };
    if let PathQuery::Path(path) = &query
        && leave_each(ctx, args.at(1), path, (b"", ShownNodes::Below, show_one), reply)
    {
        return Ok(());
    }
    let place = ctx.read(args.at(1));
    match (document(&place)?, &query) {
        (None, _) => reply.null(),
        (Some(doc), PathQuery::Path(path)) if path.is_legacy() => show(first_of(doc, path)?, reply),
        (Some(doc), query) => reply_query(doc, query, reply, show),
    }
    Ok(())
}

fn show(node: DocNode<'_>, reply: &mut Reply<'_>) {
    show_one(None, node, reply);
    node.items().for_each(|item| show(item, reply));
    for (name, value) in node.members() {
        reply.bulk(name);
        show(value, reply);
    }
}

/// A value without those below it, and its name.
fn show_one(name: Option<&[u8]>, node: DocNode<'_>, reply: &mut Reply<'_>) {
    name.into_iter().for_each(|name| reply.bulk(name));
    match node.view() {
        FormView::Null => reply.null(),
        FormView::Bool(true) => reply.status("true"),
        FormView::Bool(false) => reply.status("false"),
        FormView::Int(value) => reply.int(value),
        FormView::Uint(value) => reply.double(value as f64),
        FormView::Float(value) => reply.double(value),
        FormView::Text(text) => reply.bulk(text),
        FormView::Array(count) => {
            reply.array(count + 1);
            reply.status("[");
        }
        FormView::Object(count) => {
            reply.array(2 * count + 1);
            reply.status("{");
        }
    }
}
