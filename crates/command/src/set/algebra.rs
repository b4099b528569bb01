//! SINTER key [key ...], SUNION, SDIFF, SINTERCARD numkeys key [key ...] [LIMIT limit], SUNIONCARD, SDIFFCARD

use darter_pack::entry::Item;
use darter_store::reads::Stretch;
use darter_store::{KeyView, SetValue};
use darter_wire::{Args, Reply};

use super::read;
use crate::incremental::{Combining, Copying, Operation, Scoring, SetOperation, reading_order};
use crate::item::reply_item;
use crate::reader::ArgReader;
use crate::slices;
use crate::spec::{Flags, Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SINTER.
pub const SINTER: DataCommand = DataCommand {
    spec: spec("sinter", "Returns the intersect of multiple sets.")
        .tips(&["nondeterministic_output_order"])
        .cost("O(N*M)"),
    run: |ctx, args, reply| show(ctx, args, reply, SetOperation::Intersect),
};
/// SUNION.
pub const SUNION: DataCommand = DataCommand {
    spec: spec("sunion", "Returns the union of multiple sets.")
        .tips(&["nondeterministic_output_order"])
        .cost("O(N)"),
    run: |ctx, args, reply| show(ctx, args, reply, SetOperation::Unite),
};
/// SDIFF.
pub const SDIFF: DataCommand = DataCommand {
    spec: spec("sdiff", "Returns the difference of multiple sets.")
        .tips(&["nondeterministic_output_order"])
        .cost("O(N)"),
    run: |ctx, args, reply| show(ctx, args, reply, SetOperation::Subtract),
};
/// SINTERCARD.
pub const SINTERCARD: DataCommand = DataCommand {
    spec: card_spec(
        "sintercard",
        "7.0.0",
        "numkeys key [key ...] [LIMIT limit]",
        "Returns the number of members of the intersect of multiple sets.",
    ),
    run: |ctx, args, reply| card(ctx, args, reply, SetOperation::Intersect),
};
/// SUNIONCARD.
pub const SUNIONCARD: DataCommand = DataCommand {
    spec: card_spec(
        "sunioncard",
        "8.10.0",
        "numkeys key [key ...] [APPROX] [LIMIT limit]",
        "Returns the number of members of the union of multiple sets.",
    ),
    run: |ctx, args, reply| card(ctx, args, reply, SetOperation::Unite),
};
/// SDIFFCARD.
pub const SDIFFCARD: DataCommand = DataCommand {
    spec: card_spec(
        "sdiffcard",
        "8.10.0",
        "numkeys key [key ...] [APPROX] [LIMIT limit]",
        "Returns the number of members of the difference of multiple sets.",
    ),
    run: |ctx, args, reply| card(ctx, args, reply, SetOperation::Subtract),
};

const fn spec(name: &'static str, summary: &'static str) -> Spec {
    Spec::read(name, -2, Keys::REST).doc(Group::Set, "1.0.0", "key [key ...]", summary)
}

const fn card_spec(
    name: &'static str,
    since: &'static str,
    syntax: &'static str,
    summary: &'static str,
) -> Spec {
    Spec::read(name, -3, Keys::Count { at: 1, dest: 0 })
        .flag(Flags::MOVABLEKEYS)
        .doc(Group::Set, since, syntax, summary)
        .cost("O(N*M)")
}

/// Sets that are read together; a missing one is empty.
pub(super) struct Sources<'a> {
    sets: Vec<Option<KeyView<'a, SetValue>>>,
    now_ms: u64,
}

impl<'a> Sources<'a> {
    /// Finds the sets at `keys`.
    ///
    /// Errors: one of them has another type.
    pub fn find(ctx: &'a mut Ctx<'_>, keys: Args<'_>) -> Result<Sources<'a>, Fault> {
        for key in keys.iter() {
            read(ctx, key).view::<SetValue>()?;
        }
        Sources::look(ctx, keys)
    }

    /// Like [`Sources::find`], for keys that were found before.
    pub fn look(ctx: &'a Ctx<'_>, keys: Args<'_>) -> Result<Sources<'a>, Fault> {
        let now_ms = ctx.now_ms;
        let sets = keys.iter().map(|key| match ctx.peek(key) {
            Some((shard, record)) => shard.view_of::<SetValue>(record).map(Some),
            None => Ok(None),
        });
        Ok(Sources { sets: sets.collect::<Result<_, _>>()?, now_ms })
    }

    /// The order in which to read the sets, and their combination, if slices are better.
    fn for_slices(&self, operation: SetOperation, scoring: Scoring) -> Option<(Vec<usize>, Combining)> {
        let lens = self.sets.iter().map(|set| set.map_or(0, |set| set.root.len())).collect::<Vec<_>>();
        let order = reading_order(operation, &lens)?;
        let due = |set: &KeyView<'_, SetValue>| set.root.next_expiry_ms().is_some_and(|ms| ms <= self.now_ms);
        if self.sets.iter().flatten().any(due) {
            return None;
        }
        let kept =
            if operation == SetOperation::Unite { lens.iter().sum() } else { *lens.get(*order.first()?)? };
        let hasher = self.sets.iter().flatten().next()?.hasher;
        let combining = Combining::new(operation, scoring, order.len(), (kept, hasher));
        Some((order, combining))
    }

    /// Like [`Sources::for_slices`], for a result to be stored: no member may expire meanwhile.
    pub fn for_keeping(&self, operation: SetOperation) -> Option<(Vec<usize>, Box<dyn Operation>)> {
        let expires = |set: &KeyView<'_, SetValue>| set.root.next_expiry_ms().is_some();
        if self.sets.iter().flatten().any(expires) {
            return None;
        }
        let (order, combining) = self.for_slices(operation, Scoring::None)?;
        // The built set ignores repeated members.
        let is_copy = operation == SetOperation::Unite;
        Some((order, if is_copy { Box::new(Copying) } else { Box::new(combining) }))
    }

    /// Passes each member of the result to `emit` once, until it returns false.
    pub fn each(&self, operation: SetOperation, emit: impl FnMut(Item<'a>) -> bool) {
        match operation {
            SetOperation::Intersect => self.intersect(emit),
            SetOperation::Unite => self.unite(emit),
            SetOperation::Subtract => self.subtract(emit),
        }
    }

    fn holds(&self, set: KeyView<'a, SetValue>, member: Item<'_>) -> bool {
        set.root.contains(set.arena, set.hasher, member, self.now_ms)
    }

    fn members(&self, set: KeyView<'a, SetValue>) -> impl Iterator<Item = Item<'a>> + 'a {
        set.root.iter(set.arena, self.now_ms)
    }

    /// Goes through the smallest set.
    fn intersect(&self, mut emit: impl FnMut(Item<'a>) -> bool) {
        let Some(mut sets) = self.sets.iter().copied().collect::<Option<Vec<_>>>() else { return };
        sets.sort_by_key(|set| set.root.len());
        let Some((&smallest, others)) = sets.split_first() else { return };
        for member in self.members(smallest) {
            if others.iter().all(|&set| self.holds(set, member)) && !emit(member) {
                break;
            }
        }
    }

    /// A member is shown with the first set that has it.
    fn unite(&self, mut emit: impl FnMut(Item<'a>) -> bool) {
        for (i, set) in self.sets.iter().enumerate() {
            let earlier = self.sets.get(..i).unwrap_or_default();
            for member in set.iter().flat_map(|&set| self.members(set)) {
                if !earlier.iter().flatten().any(|&set| self.holds(set, member)) && !emit(member) {
                    return;
                }
            }
        }
    }

    fn subtract(&self, mut emit: impl FnMut(Item<'a>) -> bool) {
        let Some((Some(first), others)) = self.sets.split_first() else { return };
        for member in self.members(*first) {
            if !others.iter().flatten().any(|&set| self.holds(set, member)) && !emit(member) {
                break;
            }
        }
    }
}

fn show(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    operation: SetOperation,
) -> Result<(), Fault> {
    let keys = args.tail(1);
    let may_slice = ctx.may_slice;
    let sources = Sources::find(ctx, keys)?;
    if may_slice && let Some((order, combining)) = sources.for_slices(operation, Scoring::None) {
        if leave(ctx, keys, &order, combining, reply) {
            return Ok(());
        }
        show_now(&Sources::look(ctx, keys)?, reply, operation);
    } else {
        show_now(&sources, reply, operation);
    }
    Ok(())
}

fn show_now(sources: &Sources<'_>, reply: &mut Reply<'_>, operation: SetOperation) {
    let begun = reply.begin_array();
    let mut len = 0;
    sources.each(operation, |member| {
        reply_item(reply, member);
        len += 1;
        true
    });
    reply.end_set(begun, len);
}

/// Leaves the answer to slices; false if that is impossible.
fn leave(
    ctx: &mut Ctx<'_>,
    keys: Args<'_>,
    order: &[usize],
    combining: Combining,
    reply: &Reply<'_>,
) -> bool {
    let sources: Vec<_> = order.iter().map(|at| (keys.at(*at), Stretch::All)).collect();
    ctx.answer_later(&sources, Box::new(combining), reply.is_resp3())
}

fn card(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    operation: SetOperation,
) -> Result<(), Fault> {
    let mut read = ArgReader::new(args, 1);
    let numkeys = read.int_from(1, Fault::text("ERR numkeys should be greater than 0"))?;
    let numkeys = usize::try_from(numkeys)
        .ok()
        .filter(|&n| n <= read.left())
        .ok_or(Fault::text("ERR Number of keys can't be greater than number of args"))?;
    let mut options = ArgReader::new(args, 2 + numkeys);
    let mut limit = 0;
    while !options.is_done() {
        if options.take_with("limit", 1) {
            limit = options.int_from(0, Fault::text("ERR LIMIT can't be negative"))?.unsigned_abs();
        } else if operation == SetOperation::Intersect || !options.take("approx") {
            // approximate counts of Redis are exact here
            return Err(Fault::Syntax);
        }
    }
    let keys = args.head(2 + numkeys).tail(2);
    let may_slice = ctx.may_slice;
    let mut sources = Sources::find(ctx, keys)?;
    let is_short = limit > 0 && limit <= slices::LEN_MAX;
    if may_slice
        && !is_short
        && let Some((order, combining)) = sources.for_slices(operation, Scoring::Count(limit))
    {
        if leave(ctx, keys, &order, combining, reply) {
            return Ok(());
        }
        sources = Sources::look(ctx, keys)?;
    }
    let mut count = 0;
    sources.each(operation, |_| {
        count += 1;
        limit == 0 || count < limit
    });
    reply.int(count as i64);
    Ok(())
}
