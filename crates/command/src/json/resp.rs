//! JSON.RESP key [path]

use darter_document::path::PathQuery;
use darter_document::{DocNode, FormView, JsonPath};
use darter_wire::{Args, Reply};

use super::change::first_of;
use super::document;
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
    let place = ctx.read(args.at(1));
    match (document(&place)?, &query) {
        (None, _) => reply.null(),
        (Some(doc), PathQuery::Path(path)) if path.is_legacy() => show(first_of(doc, path)?, reply),
        (Some(doc), query) => reply_query(doc, query, reply, show),
    }
    Ok(())
}

fn show(node: DocNode<'_>, reply: &mut Reply<'_>) {
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
            node.items().for_each(|item| show(item, reply));
        }
        FormView::Object(count) => {
            reply.array(2 * count + 1);
            reply.status("{");
            for (name, value) in node.members() {
                reply.bulk(name);
                show(value, reply);
            }
        }
    }
}
