//! Changing the values that a path leads to, and answering the results.

use darter_document::edit::EditedNode;
use darter_document::path::JsonPath;
use darter_document::{DEPTH_MAX, Doc, DocChange, FormView, NodePlace, Rewritten, rewrite, rewrite_scalar};
use darter_store::{Event, Json, Keyed};
use darter_wire::Reply;

use super::fault::{NO_PATH, TOO_DEEP, no_path_or};
use super::present;
use crate::Fault;

/// The result for each value that a path led to, in its order; `None`: the value is of another type.
pub(super) struct JsonOutcome<R> {
    each: Vec<Option<R>>,
}

impl<R> JsonOutcome<R> {
    /// The result for the only value.
    pub(super) fn one(result: R) -> JsonOutcome<R> {
        JsonOutcome { each: vec![Some(result)] }
    }

    /// Returns true if some value was of the right type.
    fn is_any(&self) -> bool {
        self.each.iter().any(Option::is_some)
    }

    /// The result for each value.
    pub(super) fn each(&self) -> &[Option<R>] {
        &self.each
    }
}

/// Changes each value that `path` leads to and `fits`, by `change`, and reports `event` if any has changed.
///
/// Errors: the key is missing or not a document, those of `change`, no room. Nothing has changed then.
pub(super) fn change_each<R: Clone>(
    place: &mut Keyed<'_>,
    path: &JsonPath,
    event: Event,
    fits: impl Fn(FormView<'_>) -> bool,
    change: impl FnMut(&mut EditedNode<'_, '_>) -> Result<R, Fault>,
) -> Result<JsonOutcome<R>, Fault> {
    let outcome = change_quietly(place, path, fits, change)?;
    if outcome.is_any() {
        place.changed(event);
    }
    Ok(outcome)
}

/// [`change_each`] whose caller reports the event.
pub(super) fn change_quietly<R: Clone>(
    place: &mut Keyed<'_>,
    path: &JsonPath,
    fits: impl Fn(FormView<'_>) -> bool,
    mut change: impl FnMut(&mut EditedNode<'_, '_>) -> Result<R, Fault>,
) -> Result<JsonOutcome<R>, Fault> {
    let doc = present(place)?;
    if let Some(level) = path.names_len()
        && let Some(spot) = path.first(doc)
        && fits(doc.node(spot).view())
    {
        let mut result = None;
        let done = rewrite_scalar(doc, (spot, level), |slot| {
            result = Some(change(slot)?);
            Ok::<_, Fault>(())
        })?;
        if let Some(done) = done {
            apply(place, done)?;
            return Ok(JsonOutcome { each: vec![result] });
        }
    }
    let mut trace = path.trace(doc);
    trace.retain(|spot| fits(doc.node(spot).view()));
    if trace.spots().is_empty() {
        return Ok(JsonOutcome { each: trace.walked().iter().map(|_| None).collect() });
    }
    let mut results: Vec<Option<R>> = vec![None; trace.spots().len()];
    let done = rewrite(doc, &trace, |number, slot| {
        let result = change(slot)?;
        if let Some(place) = results.get_mut(number) {
            *place = Some(result);
        }
        Ok::<_, Fault>(DocChange::Keep)
    })?;
    let each = trace.walked().iter().map(|spot| results.get(trace.number_of(*spot)?)?.clone()).collect();
    apply(place, done)?;
    Ok(JsonOutcome { each })
}

/// Fails if values of `depth` levels are too deep for an array.
pub(super) fn check_depth(array: &EditedNode<'_, '_>, depth: usize) -> Result<(), Fault> {
    if array.level() + 1 + depth > DEPTH_MAX { Err(TOO_DEEP) } else { Ok(()) }
}

/// Stores a changed document at the key.
///
/// Errors: no room.
pub(super) fn apply(place: &mut Keyed<'_>, done: Rewritten) -> Result<(), Fault> {
    if done != Rewritten::Same {
        let edited = place.edit(|json: &mut Json, arena, _| json.apply(done, arena))?;
        edited.map_or(Ok(()), |edited| edited.result)?;
    }
    Ok(())
}

impl<R> JsonOutcome<R> {
    /// Answers an array of the results, or for a legacy path the last one.
    ///
    /// Errors: a legacy path led to no `wanted` value.
    pub(super) fn reply(
        self,
        path: &JsonPath,
        wanted: &str,
        reply: &mut Reply<'_>,
        show: impl Fn(R, &mut Reply<'_>),
    ) -> Result<(), Fault> {
        if path.is_legacy() {
            let last = self.each.into_iter().flatten().next_back().ok_or_else(|| no_path_or(wanted))?;
            show(last, reply);
            return Ok(());
        }
        self.reply_all(reply, show);
        Ok(())
    }

    /// Answers an array of the results.
    pub(super) fn reply_all(self, reply: &mut Reply<'_>, show: impl Fn(R, &mut Reply<'_>)) {
        reply.array(self.each.len());
        for one in self.each {
            match one {
                Some(result) => show(result, reply),
                None => reply.null(),
            }
        }
    }

    /// The result for each value.
    pub(super) fn into_each(self) -> Vec<Option<R>> {
        self.each
    }
}

/// The first value that a legacy path leads to.
///
/// Errors: the path leads to no value.
pub(super) fn first_of<'a>(doc: Doc<'a>, path: &JsonPath) -> Result<darter_document::DocNode<'a>, Fault> {
    first_spot(doc, path).map(|spot| doc.node(spot))
}

/// The place of that value.
///
/// Errors: the path leads to no value.
pub(super) fn first_spot(doc: Doc<'_>, path: &JsonPath) -> Result<NodePlace, Fault> {
    path.first(doc).ok_or(NO_PATH)
}
