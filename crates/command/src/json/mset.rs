//! JSON.MSET key path value [key path value ...]

use darter_document::{JsonPath, parse};
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::apply;
use super::fault::{NOT_ROOT, bad_path, invalid};
use super::set::{Update, When, put_root};
use super::{document, event, node_of};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.MSET.
pub const MSET: DataCommand = DataCommand {
    spec: Spec::write("json.mset", -4, Keys::Range { first: 1, last: -1, step: 3 })
        .doc(
            Group::Json,
            "2.6.0",
            "key path value [key path value ...]",
            "Sets values in several documents, all of them or none.",
        )
        .cost("O(N) over the size of the document"),
    run: mset,
};

const MSET_EVENT: Event = event("json.mset");

fn mset(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !(args.len() - 1).is_multiple_of(3) {
        return Err(Fault::Arity("json.mset".into()));
    }
    let count = (args.len() - 1) / 3;
    let triples = || (0..count).map(|n| (args.at(1 + 3 * n), args.at(2 + 3 * n), args.at(3 + 3 * n)));
    // Everything that can fail is tried first, as if each triple were the only one.
    let mut paths = Vec::with_capacity(count);
    for (name, path, text) in triples() {
        let path = JsonPath::parse(path).map_err(bad_path)?;
        let place = ctx.at(name);
        let doc = document(&place)?;
        parse(text).map_err(invalid)?;
        match doc {
            _ if path.is_root() => {}
            None => return Err(NOT_ROOT),
            Some(doc) => drop(Update::find(doc, &path, When::Always)?.write(doc, &node_of(text, doc)?)?),
        }
        paths.push(path);
    }
    let mut are_all_updated = true;
    for ((name, _, text), path) in triples().zip(&paths) {
        are_all_updated &= set_one(ctx, name, path, text)?;
    }
    if are_all_updated {
        reply.ok()
    } else {
        reply.null()
    }
    Ok(())
}

/// Sets one value; returns whether it was set at every place of the path.
fn set_one(ctx: &mut Ctx<'_>, name: &[u8], path: &JsonPath, text: &[u8]) -> Result<bool, Fault> {
    let mut place = ctx.at(name);
    if path.is_root() {
        put_root(&mut place, &parse(text).map_err(invalid)?)?;
        place.changed(MSET_EVENT);
        return Ok(true);
    }
    let doc = document(&place)?.ok_or(NOT_ROOT)?;
    // An earlier triple may have removed the target of this one.
    let Ok(update) = Update::find(doc, path, When::Always) else { return Ok(false) };
    let Ok(done) = node_of(text, doc).and_then(|node| update.write(doc, &node)) else { return Ok(false) };
    apply(&mut place, done.rewritten)?;
    if done.updated > 0 {
        place.changed(MSET_EVENT);
    }
    Ok(done.updated > 0 && done.updated == done.wanted)
}
