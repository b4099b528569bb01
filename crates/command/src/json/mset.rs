//! JSON.MSET key path value [key path value ...]

use darter_document::JsonPath;
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::change::apply;
use super::fault::{NOT_ROOT, bad_path};
use super::long_texts::{self, Forms};
use super::set::{Update, When, put_root};
use super::{document, event};
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
    let forms = match ctx.staged.take() {
        Some(staged) => Forms::take(staged),
        None if long_texts::leave(ctx, args, (0..count).map(|n| 3 + 3 * n)) => return Ok(()),
        None => Forms::default(),
    };
    // Everything that can fail is tried first, as if each triple were the only one.
    let mut paths = Vec::with_capacity(count);
    for (nth, (name, path, text)) in triples().enumerate() {
        let path = JsonPath::parse(path).map_err(bad_path)?;
        let place = ctx.at(name);
        let doc = document(&place)?;
        forms.check(nth, text)?;
        match doc {
            _ if path.is_root() => {}
            None => return Err(NOT_ROOT),
            Some(doc) => {
                let node = forms.node(nth, text, doc);
                drop(Update::find(doc, &path, When::Always)?.write(doc, &node?)?);
            }
        }
        paths.push(path);
    }
    let mut are_all_updated = true;
    for (nth, ((name, _, text), path)) in triples().zip(&paths).enumerate() {
        are_all_updated &= set_one(ctx, (name, path), (nth, text), &forms)?;
    }
    if are_all_updated {
        reply.ok()
    } else {
        reply.null()
    }
    Ok(())
}

/// Sets one value; returns whether it was set at every place of the path.
fn set_one(
    ctx: &mut Ctx<'_>,
    (name, path): (&[u8], &JsonPath),
    (nth, text): (usize, &[u8]),
    forms: &Forms,
) -> Result<bool, Fault> {
    let mut place = ctx.at(name);
    if path.is_root() {
        let form = forms.document(nth, text, &mut place)?;
        put_root(&mut place, &form)?;
        place.changed(MSET_EVENT);
        return Ok(true);
    }
    let doc = document(&place)?.ok_or(NOT_ROOT)?;
    // An earlier triple may have removed the target of this one.
    let Ok(update) = Update::find(doc, path, When::Always) else { return Ok(false) };
    let done = forms.node(nth, text, doc).and_then(|node| update.write(doc, &node));
    let Ok(done) = done else { return Ok(false) };
    apply(&mut place, done.rewritten)?;
    if done.updated > 0 {
        place.changed(MSET_EVENT);
    }
    Ok(done.updated > 0 && done.updated == done.wanted)
}
