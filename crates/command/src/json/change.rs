//! Changing the values that a path leads to, and answering the results.

use darter_document::path::Path;
use darter_document::{Change, DEPTH_MAX, Doc, Rewritten, View, rewrite};
use darter_store::{Event, Json, Keyed};
use darter_wire::Reply;

use super::fault::{NO_PATH, TOO_DEEP, no_path_or};
use super::present;
use crate::Fault;

/// The result for each value that a path led to, in its order; `None`: the value is of another type.
pub(super) struct Outcome<R> {
    each: Vec<Option<R>>,
}

impl<R> Outcome<R> {
    /// Returns true if some value was of the right type.
    fn is_any(&self) -> bool {
        self.each.iter().any(Option::is_some)
    }

    /// The result for each value.
    pub(super) fn each(&self) -> &[Option<R>] {
        &self.each
    }
}

/// Changes each value that `path` leads to and `fits`, by `change`, and reports `event` if any has changed. `change`
/// gets a buffer that ends with the value's node, and the start of that node.
///
/// Errors: the key is missing or not a document, those of `change`, no room. Nothing has changed then.
pub(super) fn change_each<R: Clone>(
    place: &mut Keyed<'_>,
    path: &Path,
    event: Event,
    fits: impl Fn(View<'_>) -> bool,
    change: impl FnMut(Doc<'_>, &mut Vec<u8>, usize) -> Result<R, Fault>,
) -> Result<Outcome<R>, Fault> {
    let outcome = change_quietly(place, path, fits, change)?;
    if outcome.is_any() {
        place.changed(event);
    }
    Ok(outcome)
}

/// [`change_each`] whose caller reports the event.
pub(super) fn change_quietly<R: Clone>(
    place: &mut Keyed<'_>,
    path: &Path,
    fits: impl Fn(View<'_>) -> bool,
    mut change: impl FnMut(Doc<'_>, &mut Vec<u8>, usize) -> Result<R, Fault>,
) -> Result<Outcome<R>, Fault> {
    let doc = present(place)?;
    let found = path.find(doc);
    let mut hits: Vec<usize> = found.iter().copied().filter(|at| fits(doc.node(*at).view())).collect();
    hits.sort_unstable();
    hits.dedup();
    if hits.is_empty() {
        return Ok(Outcome { each: found.iter().map(|_| None).collect() });
    }
    let mut results: Vec<Option<R>> = vec![None; hits.len()];
    let done = rewrite(doc, &hits, |number, out, start| {
        let result = change(doc, out, start)?;
        if let Some(place) = results.get_mut(number) {
            *place = Some(result);
        }
        Ok::<_, Fault>(Change::Keep)
    })?;
    check_depth(&done)?;
    let each = found.iter().map(|at| results.get(hits.binary_search(at).ok()?)?.clone()).collect();
    apply(place, &done)?;
    Ok(Outcome { each })
}

/// Fails if a changed document has more levels than a document may have.
pub(super) fn check_depth(done: &Rewritten) -> Result<(), Fault> {
    match done {
        Rewritten::Whole(bytes) if Doc::new(bytes).root().depth() > DEPTH_MAX => Err(TOO_DEEP),
        _ => Ok(()),
    }
}

/// Stores a changed document at the key.
///
/// Errors: no room.
pub(super) fn apply(place: &mut Keyed<'_>, done: &Rewritten) -> Result<(), Fault> {
    if *done != Rewritten::Same {
        let edited = place.edit(|json: &mut Json, arena, _| json.apply(done, arena))?;
        edited.map_or(Ok(()), |edited| edited.result)?;
    }
    Ok(())
}

impl<R> Outcome<R> {
    /// Answers an array of the results, or for a legacy path the last one.
    ///
    /// Errors: a legacy path led to no `wanted` value.
    pub(super) fn reply(
        self,
        path: &Path,
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
pub(super) fn first_of<'a>(doc: Doc<'a>, path: &Path) -> Result<darter_document::Node<'a>, Fault> {
    path.find(doc).first().map(|at| doc.node(*at)).ok_or(NO_PATH)
}
