//! JSON.SET of a long text: it is parsed without a shard, and stored in slices as a draft.
//!
//! Called by JSON.SET (to begin and to end) and by `Incremental`. The condition and the place of the value are looked at
//! when it is complete. Memory: the form of the text, twice for a moment.

use darter_document::edit::EditedNode;
use darter_document::{DocChange, JsonPath, Parsed, Parsing, Rewritten, parse, rewrite};
use darter_store::error::ShardFull;
use darter_store::{Collection, Event, Expiry, Json, Keyed, Object};
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::arrays::is_array;
use super::change::{JsonOutcome, check_depth};
use super::document;
use super::fault::{BAD_KEY, invalid};
use super::long_texts::Forms;
use super::set::{Update, When, WrittenDoc, put_root};
use crate::incremental::operation::{NextSlice, Operation, OperationStage, ResultTo};
use crate::incremental::{FoundValue, Staged};
use crate::{Ctx, Fault};

/// Texts of this many bytes are parsed in slices. Parsing one at once takes a fifth of a millisecond.
pub(super) const TEXT_BYTES_MIN: usize = 32 << 10;
/// Bytes parsed in one slice, without a shard.
pub(super) const PARSED_BYTES: usize = 16 << 10;
/// Blocks stored in one slice, some 20 microseconds.
const STORED_BLOCKS: usize = 32;

/// A value that is complete.
pub(super) enum NewValue {
    /// A document in the shard, and its levels.
    Stored(Object, usize),
    /// Its form, if it is for several places or the text had to be parsed as a whole; empty if that is no JSON.
    Form(Vec<u8>),
}

/// The progress of a value.
enum SetProgress {
    Parsing(Box<Parsing>),
    Parsed(Parsed),
    Storing,
    /// The form of the text; empty if the value is stored.
    Done(Vec<u8>),
}

/// A text on its way into the shard.
struct LongSet {
    // The word of the command.
    word: usize,
    progress: SetProgress,
    // Bytes of the value's form, and its levels.
    form_bytes: usize,
    depth: usize,
    fault: Option<Fault>,
}

impl Operation for LongSet {
    fn next(&self, draft_shard: Option<u16>) -> NextSlice {
        match (&self.progress, draft_shard) {
            (SetProgress::Parsed(_) | SetProgress::Storing, Some(shard)) => NextSlice::Step(shard),
            _ => NextSlice::Work,
        }
    }

    fn take(&mut self, _nth: u32, _told: &[u8], args: Args<'_>) -> Vec<u8> {
        let SetProgress::Parsing(parsing) = &mut self.progress else { return Vec::new() };
        let text = args.at(self.word);
        match parsing.step(text, PARSED_BYTES) {
            Ok(false) => {}
            Ok(true) => {
                let done = std::mem::replace(&mut self.progress, SetProgress::Storing);
                if let SetProgress::Parsing(parsing) = done {
                    let parsed = parsing.end();
                    (self.form_bytes, self.depth) = (parsed.stage.fresh_bytes(), parsed.depth);
                    self.progress = SetProgress::Parsed(parsed);
                }
            }
            Err(_) => match parse(text) {
                Ok(form) => self.progress = SetProgress::Done(form),
                Err(reason) => self.fail(invalid(reason)),
            },
        }
        Vec::new()
    }

    fn step(&mut self, part: &mut ShardPart, draft: Option<u32>) {
        let draft = draft.and_then(|number| part.shard.draft_mut(number));
        let Some((json, arena)) = draft.and_then(|draft| Some((Json::of_mut(draft.object)?, draft.arena)))
        else {
            return self.fail(Fault::OutOfMemory);
        };
        if let SetProgress::Parsed(_) = &self.progress
            && let SetProgress::Parsed(parsed) = std::mem::replace(&mut self.progress, SetProgress::Storing)
        {
            json.begin_store(parsed);
            return;
        }
        match json.store_step(arena, STORED_BLOCKS) {
            Ok(true) => self.progress = SetProgress::Done(Vec::new()),
            Ok(false) => {}
            Err(_) => self.fail(Fault::OutOfMemory),
        }
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        if matches!(self.progress, SetProgress::Done(_)) {
            OperationStage::Done
        } else {
            OperationStage::Reading
        }
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn found(&mut self) -> FoundValue {
        let bytes = match &mut self.progress {
            SetProgress::Done(form) => std::mem::take(form),
            _ => Vec::new(),
        };
        FoundValue { bytes, numbers: vec![self.depth as u64], ..FoundValue::default() }
    }

    fn bytes(&self) -> usize {
        match &self.progress {
            SetProgress::Parsing(parsing) => parsing.bytes(),
            SetProgress::Parsed(_) | SetProgress::Storing => self.form_bytes,
            SetProgress::Done(form) => form.len(),
        }
    }
}

impl LongSet {
    fn fail(&mut self, fault: Fault) {
        (self.progress, self.fault) = (SetProgress::Done(Vec::new()), Some(fault));
    }
}

impl NewValue {
    /// The value that was made in slices.
    ///
    /// Errors: the fault found meanwhile.
    pub(super) fn take(mut staged: Staged, ctx: &mut Ctx<'_>) -> Result<NewValue, Fault> {
        let form = std::mem::take(&mut staged.found.bytes);
        if !form.is_empty() || !staged.has_draft() {
            staged.give_up(ctx);
            return Ok(NewValue::Form(form));
        }
        let depth = staged.found.numbers.first().map_or(0, |depth| *depth as usize);
        let object = staged.take(ctx)?.ok_or(Fault::OutOfMemory)?;
        Ok(NewValue::Stored(object, depth))
    }

    /// Makes the value the whole document at a key, whose deadline stays.
    ///
    /// Errors: no room.
    pub(super) fn put_root(self, place: &mut Keyed<'_>) -> Result<(), Fault> {
        match self {
            NewValue::Stored(object, _) => Ok(place.put_object(object, Expiry::Keep)?),
            NewValue::Form(form) => put_root(place, &form),
        }
    }

    /// Frees a value that is not used.
    pub(super) fn discard(value: Option<NewValue>, place: &mut Keyed<'_>) {
        if let Some(NewValue::Stored(object, _)) = value {
            place.discard(object);
        }
    }
}

/// Leaves word `word`, a text for `path` in the document at the command's first word, to slices; false if the body must
/// parse it: it is short.
///
/// Errors: the value at the key is no document.
pub(super) fn leave(ctx: &mut Ctx<'_>, args: Args<'_>, word: usize, path: &JsonPath) -> Result<bool, Fault> {
    if !ctx.may_slice || args.at(word).len() < TEXT_BYTES_MIN {
        return Ok(false);
    }
    let name = args.at(1);
    let parsing = {
        let place = ctx.at(name);
        match document(&place)? {
            _ if path.is_root() => Some(Parsing::of_document()),
            Some(doc) if path.is_static() => Some(Parsing::of_value(doc)),
            Some(_) => None,
            None => return Ok(false),
        }
    };
    Ok(match parsing {
        Some(parsing) => begin(ctx, name, word, parsing),
        // Of a text for several places most of the time goes into storing it.
        None => false,
    })
}

/// The new values of a command for arrays.
pub(super) enum ArrayValues {
    /// The only one, a document in the shard, and its levels.
    Stored(Object, usize),
    /// Texts.
    Texts(Forms),
}

impl ArrayValues {
    /// Those in the words from `first` on, for the arrays that `path` leads to. `None` if slices make them: the body runs
    /// again.
    ///
    /// Errors: the fault found meanwhile; the value at the key is no document.
    pub(super) fn of(
        ctx: &mut Ctx<'_>,
        args: Args<'_>,
        first: usize,
        path: &JsonPath,
    ) -> Result<Option<ArrayValues>, Fault> {
        Ok(Some(match ctx.staged.take() {
            Some(staged) => match NewValue::take(staged, ctx)? {
                NewValue::Stored(object, depth) => ArrayValues::Stored(object, depth),
                NewValue::Form(form) => ArrayValues::Texts(Forms::one(form)),
            },
            None if args.len() == first + 1 && leave_item(ctx, args, first, path)? => return Ok(None),
            None => ArrayValues::Texts(Forms::default()),
        }))
    }

    /// Puts a stored value into the array that `path` leads to, by `put`, and answers the length of that. Returns the forms
    /// of the values if that is still to be done.
    ///
    /// Errors: those of `put`, or no room; the value is freed.
    pub(super) fn put(
        self,
        place: &mut Keyed<'_>,
        path: &JsonPath,
        event: Event,
        put: impl Fn(&mut EditedNode<'_, '_>, &[Vec<u8>]) -> Result<usize, Fault>,
        reply: &mut Reply<'_>,
    ) -> Result<Option<Forms>, Fault> {
        let (object, depth) = match self {
            ArrayValues::Texts(forms) => return Ok(Some(forms)),
            ArrayValues::Stored(object, depth) => (object, depth),
        };
        let Some(len) = put_item(place, path, (object, depth), put)? else {
            return Ok(Some(Forms::default()));
        };
        place.changed(event);
        JsonOutcome::one(len).reply(path, "", reply, |len, reply| reply.int_len(len))?;
        Ok(None)
    }
}

/// Leaves word `word`, an item for the only array that `path` leads to, to slices; false if the body must parse it.
///
/// Errors: the value at the key is no document.
fn leave_item(ctx: &mut Ctx<'_>, args: Args<'_>, word: usize, path: &JsonPath) -> Result<bool, Fault> {
    if !ctx.may_slice || args.at(word).len() < TEXT_BYTES_MIN || !path.is_static() {
        return Ok(false);
    }
    let parsing = document(&ctx.at(args.at(1)))?.map(Parsing::of_value);
    Ok(parsing.is_some_and(|parsing| begin(ctx, args.at(1), word, parsing)))
}

/// Leaves parsing and storing a word to slices.
fn begin(ctx: &mut Ctx<'_>, name: &[u8], word: usize, parsing: Parsing) -> bool {
    let progress = SetProgress::Parsing(Box::new(parsing));
    let operation = LongSet { word, progress, form_bytes: 0, depth: 0, fault: None };
    ctx.fill_later((name, &[]), Json::draft().wrap(), Box::new(operation));
    true
}

/// Puts a value that has pieces of its own into the document at a key; returns whether it was set. `None` if it cannot
/// be: the document has gone or has other names by now, or there are several places. The value is freed then.
///
/// Errors: the path leads nowhere, or no room; the value is freed.
pub(super) fn put_below(
    place: &mut Keyed<'_>,
    path: &JsonPath,
    when: When,
    (value, depth): (Object, usize),
) -> Result<Option<bool>, Fault> {
    let done = written_below(place, path, when, (&value, depth));
    let done = match done {
        Ok(Some(done)) if done.updated > 0 => done,
        done => {
            place.discard(value);
            return done.map(|done| done.map(|_| false));
        }
    };
    adopt(place, done.rewritten, value)?;
    Ok(Some(true))
}

/// Stores a changed document that refers to the pieces of `value`, which belong to it then.
///
/// Errors: no room; the value is freed.
fn adopt(place: &mut Keyed<'_>, rewritten: Rewritten, mut value: Object) -> Result<(), Fault> {
    let edited = place.edit(|json: &mut Json, arena, _| {
        json.apply(rewritten, arena)?;
        if let Some(value) = Json::of_mut(&mut value) {
            json.adopt(value, arena);
        }
        Ok::<_, ShardFull>(())
    });
    place.discard(value);
    edited.map_err(|_| BAD_KEY)?.map_or(Ok(()), |edited| Ok(edited.result?))
}

/// Puts a value that has pieces of its own into the array that `path` leads to, by `put`; returns the length of the array.
/// `None` if it cannot be: the array or the document has gone, or has other names by now. The value is freed then.
///
/// Errors: those of `put`, or no room; the value is freed.
fn put_item(
    place: &mut Keyed<'_>,
    path: &JsonPath,
    (value, depth): (Object, usize),
    put: impl Fn(&mut EditedNode<'_, '_>, &[Vec<u8>]) -> Result<usize, Fault>,
) -> Result<Option<usize>, Fault> {
    match array_with(place, path, (&value, depth), put) {
        Ok(Some((rewritten, len))) => {
            adopt(place, rewritten, value)?;
            Ok(Some(len))
        }
        done => {
            place.discard(value);
            done.map(|_| None)
        }
    }
}

/// The document with `value` in the array that `path` leads to, and the length of that.
fn array_with(
    place: &Keyed<'_>,
    path: &JsonPath,
    (value, depth): (&Object, usize),
    put: impl Fn(&mut EditedNode<'_, '_>, &[Vec<u8>]) -> Result<usize, Fault>,
) -> Result<Option<(Rewritten, usize)>, Fault> {
    let view = place.view::<Json>().map_err(|_| BAD_KEY)?;
    let (Some(view), Some(value)) = (view, Json::of(value)) else { return Ok(None) };
    let mut own = Vec::new();
    let (doc, value) = (view.root.doc_in_pieces(view.arena, &mut own), value.doc(view.arena));
    let mut trace = path.trace(doc);
    trace.retain(|spot| is_array(doc.node(spot).view()));
    if trace.spots().len() != 1 || !doc.names.iter().eq(value.names.iter()) {
        return Ok(None);
    }
    let (node, mut len) = (vec![value.root().bytes().to_vec()], 0);
    let rewritten = rewrite(doc, &trace, |_, slot| {
        check_depth(slot, depth)?;
        len = put(slot, &node)?;
        Ok::<_, Fault>(DocChange::Keep)
    })?;
    Ok(Some((rewritten, len)))
}

/// The document with `value` in it.
fn written_below(
    place: &Keyed<'_>,
    path: &JsonPath,
    when: When,
    (value, depth): (&Object, usize),
) -> Result<Option<WrittenDoc>, Fault> {
    let view = place.view::<Json>().map_err(|_| BAD_KEY)?;
    let (Some(view), Some(value)) = (view, Json::of(value)) else { return Ok(None) };
    let mut own = Vec::new();
    let (doc, value) = (view.root.doc_in_pieces(view.arena, &mut own), value.doc(view.arena));
    let update = Update::find(doc, path, when)?;
    if update.places() > 1 || !doc.names.iter().eq(value.names.iter()) {
        return Ok(None);
    }
    update.write_deep(doc, value.root().bytes(), depth).map(Some)
}
