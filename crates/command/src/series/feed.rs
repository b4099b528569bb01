//! Effects of a change of a series on others: the series that its rules feed, and keys that name it.
//!
//! Called by the family's writing commands with the shards of all of them held, and by RENAME. A rule is removed when
//! it is found to be dead: its other end is missing, or has another source.

use darter_series::{Fed, Sample, Series};

use super::event;
use crate::Ctx;

/// Adds `fed`, the results of a change of the series at `source`, to the series it feeds.
#[inline]
pub(super) fn feed(ctx: &mut Ctx<'_>, source: &[u8], fed: Vec<Fed>) {
    if !fed.is_empty() {
        bring(ctx, source, fed);
    }
}

#[inline(never)]
fn bring(ctx: &mut Ctx<'_>, source: &[u8], fed: Vec<Fed>) {
    let mut dead = Vec::new();
    for Fed { target, change } in fed {
        let is_taken = ctx.covers(&target) && {
            let mut place = ctx.at(&target);
            let edited = place.edit(|series: &mut Series, arena, _| {
                series.source.as_deref() == Some(source) && series.take(arena, change).is_ok()
            });
            let is_taken = matches!(edited, Ok(Some(edited)) if edited.result);
            if is_taken {
                place.changed(event("ts.add:dest"));
            }
            is_taken
        };
        if !is_taken && !is_fed_by(ctx, &target, source) {
            dead.push(target);
        }
    }
    if !dead.is_empty() {
        let _ =
            ctx.at(source).reshape_series(|series| series.rules.retain(|rule| !dead.contains(&rule.target)));
    }
}

/// Returns true if there is a series at `target` whose source is `source`.
pub(super) fn is_fed_by(ctx: &Ctx<'_>, target: &[u8], source: &[u8]) -> bool {
    look(ctx, target, |series| series.source.as_deref() == Some(source)).unwrap_or(false)
}

/// Returns true if there is a series at `source` that feeds `target`.
pub(super) fn is_feeding(ctx: &Ctx<'_>, source: &[u8], target: &[u8]) -> bool {
    look(ctx, source, |series| series.feeds(target)).unwrap_or(false)
}

/// The result of `ask` for the series at `name`, if its shard is held and it is a series.
fn look<R>(ctx: &Ctx<'_>, name: &[u8], ask: impl FnOnce(&Series) -> R) -> Option<R> {
    if !ctx.covers(name) {
        return None;
    }
    let (shard, record) = ctx.peek(name)?;
    Some(ask(shard.view_of::<Series>(record).ok()?.root))
}

/// Removes rules of the series at `name` whose other end is missing, and a source that no longer feeds it.
pub(super) fn clean(ctx: &mut Ctx<'_>, name: &[u8]) {
    let Some((source, targets)) = look(ctx, name, |series| {
        let targets: Vec<_> = series.rules.iter().map(|rule| rule.target.clone()).collect();
        (series.source.clone(), targets)
    }) else {
        return;
    };
    let keeps_source = source.is_none_or(|source| is_feeding(ctx, &source, name));
    let (live, dead): (Vec<_>, Vec<_>) = targets.into_iter().partition(|target| is_fed_by(ctx, target, name));
    if keeps_source && dead.is_empty() {
        return;
    }
    let _ = ctx.at(name).reshape_series(|series| {
        series.source.take_if(|_| !keeps_source);
        series.rules.retain(|rule| live.contains(&rule.target));
    });
}

/// The sample that the open bucket of the source of the series at `name` would become.
pub(super) fn latest(ctx: &Ctx<'_>, name: &[u8]) -> Option<Sample> {
    let source = look(ctx, name, |series| series.source.clone())??;
    look(ctx, &source, |series| series.latest_for(name))?
}

/// Updates the series that name `from`, after its value was renamed to `to`.
pub(crate) fn renamed(ctx: &mut Ctx<'_>, from: &[u8], to: &[u8]) {
    if !ctx.shards_mut().router().links().is_any() {
        return;
    }
    let found = look(ctx, to, |series| {
        let targets: Vec<_> = series.rules.iter().map(|rule| rule.target.clone()).collect();
        (series.source.clone(), targets)
    });
    let Some((source, targets)) = found else { return };
    for target in targets {
        if is_fed_by(ctx, &target, from) {
            let _ = ctx.at(&target).reshape_series(|series| series.source = Some(to.into()));
        }
    }
    if let Some(source) = source
        && is_feeding(ctx, &source, from)
    {
        let _ = ctx.at(&source).reshape_series(|series| {
            let fed = series.rules.iter_mut().filter(|rule| *rule.target == *from);
            fed.for_each(|rule| rule.target = to.into());
        });
    }
}
