//! JSON.SET key path value [NX | XX] [FPHA <FP16 | BF16 | FP32 | FP64>] [FORMAT <STRING | JSON>]

use darter_document::path::PathStep;
use darter_document::precision::{Precision, node_in, parse_in};
use darter_document::{DEPTH_MAX, Doc, DocChange, DocNode, JsonPath, Rewritten, Trace, parse_for, rewrite};
use darter_store::{Collection, Event, Expiry, Json, Keyed};
use darter_wire::{Args, Reply};

use super::change::apply;
use super::fault::{NOT_ROOT, bad_path, invalid, unfit};
use super::long_set::{self, NewValue};
use super::long_texts::Forms;
use super::{document, event};
use crate::reader::ArgReader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.SET.
pub const SET: DataCommand = DataCommand {
    spec: Spec::write("json.set", -4, Keys::ONE)
        .doc(
            Group::Json,
            "1.0.0",
            "key path value [NX | XX] [FPHA <FP16 | BF16 | FP32 | FP64>]",
            "Sets the values that a path names, or creates a document.",
        )
        .cost("O(N) over the size of the document"),
    run: set,
};

const SET_EVENT: Event = event("json.set");

/// When a value is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum When {
    Always,
    Missing,
    There,
}

struct JsonSetWanted {
    when: When,
    float: Option<Precision>,
}

fn options(args: Args<'_>) -> Result<JsonSetWanted, Fault> {
    let mut wanted = JsonSetWanted { when: When::Always, float: None };
    let mut reader = ArgReader::new(args, 4);
    while !reader.is_done() {
        if wanted.when == When::Always && reader.take("nx") {
            wanted.when = When::Missing;
        } else if wanted.when == When::Always && reader.take("xx") {
            wanted.when = When::There;
        } else if reader.take("format") {
            if !matches!(reader.bytes()?, b"STRING" | b"JSON") {
                return Err(Fault::text("ERR wrong format"));
            }
        } else if reader.take("fpha") {
            let name = reader.bytes().map_err(|_| Fault::Arity("json.set".into()))?.to_ascii_uppercase();
            let float = Precision::named(&name);
            wanted.float = Some(float.ok_or(Fault::text("ERR invalid FPHA type"))?);
        } else {
            return Err(Fault::Syntax);
        }
    }
    Ok(wanted)
}

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let wanted = options(args)?;
    let path = JsonPath::parse(args.at(2)).map_err(bad_path)?;
    let staged = match ctx.staged.take() {
        Some(staged) => Some(NewValue::take(staged, ctx)?),
        None if wanted.float.is_none() && long_set::leave(ctx, args, 3, &path)? => return Ok(()),
        None => None,
    };
    let mut place = ctx.at(args.at(1));
    let is_set = match path.is_root() {
        true => set_root(&mut place, (args.at(3), staged), &wanted)?,
        false => set_below(&mut place, &path, (args.at(3), staged), &wanted)?,
    };
    if is_set {
        reply.ok()
    } else {
        reply.null()
    }
    Ok(())
}

/// Sets the whole document, by its text or what was made of it; returns false if a condition forbids it.
fn set_root(
    place: &mut Keyed<'_>,
    (text, staged): (&[u8], Option<NewValue>),
    wanted: &JsonSetWanted,
) -> Result<bool, Fault> {
    let is_there = match document(place) {
        Ok(doc) => doc.is_some(),
        Err(fault) => {
            NewValue::discard(staged, place);
            return Err(fault);
        }
    };
    let form = match &staged {
        None => Some(document_of(text, wanted.float, place)?),
        Some(_) => None,
    };
    if (is_there && wanted.when == When::Missing) || (!is_there && wanted.when == When::There) {
        NewValue::discard(staged, place);
        return Ok(false);
    }
    match (staged, form) {
        (Some(value), _) => value.put_root(place)?,
        (None, form) => put_root(place, &form.unwrap_or_default())?,
    }
    place.changed(SET_EVENT);
    Ok(true)
}

/// Sets the values that `path` leads to; returns false if one of them was not set.
fn set_below(
    place: &mut Keyed<'_>,
    path: &JsonPath,
    (text, staged): (&[u8], Option<NewValue>),
    wanted: &JsonSetWanted,
) -> Result<bool, Fault> {
    let forms = match staged {
        Some(NewValue::Stored(object, depth)) => {
            if let Some(is_set) = long_set::put_below(place, path, wanted.when, (object, depth))? {
                if is_set {
                    place.changed(SET_EVENT);
                }
                return Ok(is_set);
            }
            Forms::default()
        }
        Some(NewValue::Form(form)) => Forms::one(form),
        None => Forms::default(),
    };
    let Some(doc) = document(place)? else {
        document_of(text, wanted.float, place)?;
        return if wanted.when == When::There { Ok(false) } else { Err(NOT_ROOT) };
    };
    let update = Update::find(doc, path, wanted.when)?;
    let mut node = forms.node(0, text, doc)?;
    if let Some(precision) = wanted.float {
        let mut short = Vec::new();
        node_in(DocNode::new(doc.names, &node), &mut || Some(precision), &mut short).map_err(unfit)?;
        node = short;
    }
    let done = update.write(doc, &node)?;
    apply(place, done.rewritten)?;
    if done.updated > 0 {
        place.changed(SET_EVENT);
    }
    Ok(done.updated > 0 && done.updated == done.wanted)
}

/// The bytes of a new document for `place`.
fn document_of(text: &[u8], float: Option<Precision>, place: &mut Keyed<'_>) -> Result<Vec<u8>, Fault> {
    match float {
        Some(precision) => parse_in(text, precision).map_err(unfit),
        None => parse_for(text, place.arena_mut()).map_err(invalid),
    }
}

/// Stores a whole document at the key; its deadline stays.
///
/// Errors: no room.
pub(super) fn put_root(place: &mut Keyed<'_>, bytes: &[u8]) -> Result<(), Fault> {
    let replaced = if place.exists() {
        place.edit(|json: &mut Json, arena, _| json.replace(bytes, arena)).ok().flatten()
    } else {
        None
    };
    match replaced {
        Some(edited) => Ok(edited.result?),
        None => {
            let json = Json::new(bytes, place.arena_mut())?;
            Ok(place.put_object(json.wrap(), Expiry::Keep)?)
        }
    }
}

/// The places where a value is written: over existing values, or as a new member of objects.
#[derive(Debug)]
pub(super) enum Update {
    Over(Trace),
    Under(Trace, Box<[u8]>),
    Nowhere,
}

/// Returns true if a value of `depth` levels is too deep for a place within `level` containers.
pub(super) fn is_too_deep(level: usize, depth: usize) -> bool {
    depth > 0 && level + depth > DEPTH_MAX
}

/// The result of writing.
#[derive(Debug)]
pub(super) struct WrittenDoc {
    pub rewritten: Rewritten,
    /// Places that were found.
    pub wanted: usize,
    /// Places that were written.
    pub updated: usize,
}

impl Update {
    /// Finds the places that `path` leads to.
    ///
    /// Errors: no value is there, and the path does not name a member to create.
    pub(super) fn find(doc: Doc<'_>, path: &JsonPath, when: When) -> Result<Update, Fault> {
        let found = path.trace(doc);
        match when {
            When::Always | When::There if !found.spots().is_empty() => return Ok(Update::Over(found)),
            When::There => return Ok(Update::Nowhere),
            _ => {}
        }
        if !path.is_static() {
            return Err(Fault::text("Err wrong static path"));
        }
        let (last, parent) =
            path.split_last().ok_or(Fault::text("Err path must end with object key to set"))?;
        match last {
            PathStep::Name(name) => Ok(Update::Under(parent.trace(doc), name.clone())),
            _ if found.spots().is_empty() => Err(Fault::text("ERR array index out of range")),
            _ => Ok(Update::Nowhere),
        }
    }

    /// Number of these places.
    pub(super) fn places(&self) -> usize {
        match self {
            Update::Over(trace) | Update::Under(trace, _) => trace.spots().len(),
            Update::Nowhere => 0,
        }
    }

    /// Writes a node, with the names of `doc`, to these places. Places where it would be too deep stay unchanged.
    pub(super) fn write(&self, doc: Doc<'_>, node: &[u8]) -> Result<WrittenDoc, Fault> {
        self.write_deep(doc, node, DocNode::new(doc.names, node).depth())
    }

    /// The same for a node of `depth` levels, which may be in pieces if there is one place.
    pub(super) fn write_deep(&self, doc: Doc<'_>, node: &[u8], depth: usize) -> Result<WrittenDoc, Fault> {
        let (trace, name) = match self {
            Update::Nowhere => {
                return Ok(WrittenDoc { rewritten: Rewritten::Same, wanted: 0, updated: 0 });
            }
            Update::Over(trace) => (trace, None),
            Update::Under(trace, name) => (trace, Some(name)),
        };
        let depth = depth + usize::from(name.is_some());
        let mut updated = 0;
        let rewritten = rewrite(doc, trace, |_, slot| {
            let is_written = match name {
                _ if is_too_deep(slot.level(), depth) => false,
                None => {
                    slot.replace(node);
                    true
                }
                Some(name) => slot.node().member(name).is_none() && slot.add_member(name, node),
            };
            updated += usize::from(is_written);
            Ok::<_, Fault>(DocChange::Keep)
        })?;
        Ok(WrittenDoc { rewritten, wanted: trace.spots().len(), updated })
    }
}
