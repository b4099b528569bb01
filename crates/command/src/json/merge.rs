//! JSON.MERGE key path value

use darter_document::{DocChange, DocNode, JsonPath, parse_for, rewrite};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::apply;
use super::fault::{NOT_ROOT, bad_path, invalid};
use super::long_set::{self, NewValue};
use super::set::{Update, When, is_too_deep, put_root};
use super::{document, event, node_of};
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.MERGE.
pub const MERGE: DataCommand = DataCommand {
    spec: Spec::write("json.merge", -4, Keys::ONE)
        .doc(
            Group::Json,
            "2.6.0",
            "key path value",
            "Merges a value into a document by the rules of RFC 7396.",
        )
        .cost("O(N) over the size of the document"),
    run: merge,
};

const MERGE_EVENT: Event = event("json.merge");

fn merge(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut reader = ArgReader::new(args, 4);
    while !reader.is_done() {
        if !reader.take("format") {
            return Err(Fault::Syntax);
        }
        if !matches!(reader.bytes()?, b"STRING" | b"JSON") {
            return Err(Fault::text("ERR wrong format"));
        }
    }
    let path = JsonPath::parse(args.at(2)).map_err(bad_path)?;
    let is_new = path.is_root() && !ctx.at(args.at(1)).exists();
    let text = args.at(3);
    let staged = match ctx.staged.take() {
        Some(staged) => Some(NewValue::take(staged, ctx)?),
        None if is_new && long_set::leave(ctx, args, 3, &path)? => return Ok(()),
        None => None,
    };
    let mut place = ctx.at(args.at(1));
    match staged {
        Some(value) if is_new => {
            value.put_root(&mut place)?;
            place.changed(MERGE_EVENT);
            reply.ok();
            return Ok(());
        }
        // The key has come meanwhile.
        staged => NewValue::discard(staged, &mut place),
    }
    let Some(doc) = document(&place)? else {
        let bytes = parse_for(text, place.arena_mut()).map_err(invalid)?;
        if !path.is_root() {
            return Err(NOT_ROOT);
        }
        put_root(&mut place, &bytes)?;
        place.changed(MERGE_EVENT);
        reply.ok();
        return Ok(());
    };
    let patch = node_of(text, doc)?;
    let done = match Update::find(doc, &path, When::Always)? {
        Update::Over(trace) => {
            let depth = DocNode::new(doc.names, &patch).depth();
            let mut is_any = false;
            let done = rewrite(doc, &trace, |_, slot| {
                if !is_too_deep(slot.level(), depth) {
                    slot.merge(&patch);
                    is_any = true;
                }
                Ok::<_, Fault>(DocChange::Keep)
            })?;
            is_any.then_some(done)
        }
        update => Some(update.write(doc, &patch)?).filter(|done| done.updated > 0).map(|done| done.rewritten),
    };
    let Some(done) = done else {
        reply.null();
        return Ok(());
    };
    apply(&mut place, done)?;
    place.changed(MERGE_EVENT);
    reply.ok();
    Ok(())
}
