//! HRANDFIELD key [count [WITHVALUES]]

use std::sync::Arc;

use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_pack::table::{EntryRef, Table};
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_store::reads::Stretch;
use darter_store::{KeyView, Type};
use darter_wire::{Args, Reply};

use super::{alive, alive_len, is_alive, read};
use crate::item::reply_item;
use crate::member_scan::{check_budget, check_count};
use crate::random::{self, Choice};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Env, Fault, slices};

/// HRANDFIELD.
pub const HRANDFIELD: DataCommand = DataCommand {
    spec: Spec::read("hrandfield", -2, Keys::ONE)
        .tips(&["nondeterministic_output"])
        .doc(
            Group::Hash,
            "6.2.0",
            "key [count [WITHVALUES]]",
            "Returns one or more random fields from a hash.",
        )
        .cost("O(N) where N is the number of fields returned"),
    run: hrandfield,
};

fn hrandfield(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count = args.get(2).map(random::count).transpose()?;
    let with_values = args.len() == 4 && reader::is(args.at(3), "withvalues");
    if args.len() > 4 || args.len() == 4 && !with_values {
        return Err(Fault::Syntax);
    }
    if with_values && count.is_some_and(|count| count.unsigned_abs() > i64::MAX.unsigned_abs() / 2) {
        return Err(Fault::OutOfRange);
    }
    if let Some(count) = count
        && leave_draws(ctx, args.at(1), (count, with_values), reply)
    {
        return Ok(());
    }
    let (now_ms, env, may_slice) = (ctx.now_ms, ctx.env, ctx.may_slice);
    let mut place = read(ctx, args.at(1));
    let mut rng = Rng::new(place.random());
    let hash = place.view::<Table>()?;
    if may_slice
        && let (Some(hash), Some(count @ 1..)) = (hash, count)
        && let len = hash.root.len() as u64
        && slices::is_long(len, hash.root.min_expiry_ms(), now_ms)
        && let Some(wanted) = Choice::of(count, len).going_through(len)
    {
        return answer_long(ctx, args.at(1), (wanted, len), rng, with_values, reply);
    }
    match (hash, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(hash), None) => match one(hash, &mut rng, now_ms) {
            Some(entry) => reply_item(reply, entry.key()),
            None => reply.null(),
        },
        (Some(hash), Some(count)) => {
            let mut shown = ShownFields { env, with_values, mark: reply.len(), reply };
            some(hash, count, &mut rng, now_ms, &mut shown)?;
        }
    }
    Ok(())
}

/// Answers `wanted` of all `len` fields, by a walk in slices.
fn answer_long(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    (wanted, len): (u64, u64),
    rng: Rng,
    with_values: bool,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (now_ms, env, resp3) = (ctx.now_ms, ctx.env, reply.is_resp3());
    let tell = random::tell_some(tell(with_values, resp3), (wanted, len), rng);
    if ctx.leave_rest(name, Stretch::All, tell) {
        // A reply that is refused as too long by the body is refused here too.
        reply.array(shown_len(wanted, with_values && !resp3));
        return Ok(());
    }
    let mut place = read(ctx, name);
    let mut rng = Rng::new(place.random());
    let Some(hash) = place.view::<Table>()? else { return Ok(()) };
    let mut shown = ShownFields { env, with_values, mark: reply.len(), reply };
    some(hash, wanted as i64, &mut rng, now_ms, &mut shown)
}

/// Leaves this number of draws to slices; false if they must be made now.
fn leave_draws(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    (count, with_values): (i64, bool),
    reply: &mut Reply<'_>,
) -> bool {
    let resp3 = reply.is_resp3();
    let head = |reply: &mut Reply<'_>, len| reply.array(shown_len(len, with_values && !resp3));
    ctx.draw((name, Type::Hash), count, head, || tell(with_values, resp3), reply)
}

/// Writes fields in the order received.
fn tell(with_values: bool, resp3: bool) -> Tell {
    Arc::new(move |seen, out| {
        if let SeenLeaf::Field(field, value) = seen {
            show(&mut Reply::new(out, resp3), (field, value), with_values);
        }
    })
}

/// Elements of the reply for this number of fields.
fn shown_len(len: u64, is_flat: bool) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX).saturating_mul(if is_flat { 2 } else { 1 })
}

fn show(reply: &mut Reply<'_>, (field, value): (Item<'_>, Item<'_>), with_values: bool) {
    if with_values && reply.is_resp3() {
        reply.array(2);
    }
    reply_item(reply, field);
    if with_values {
        reply_item(reply, value);
    }
}

fn some(
    hash: KeyView<'_, Table>,
    count: i64,
    rng: &mut Rng,
    now_ms: u64,
    shown: &mut ShownFields<'_, '_>,
) -> Result<(), Fault> {
    if let Choice::Few(n) = Choice::of(count, hash.root.len() as u64) {
        let draw = || hash.root.random(hash.arena, rng.next_u64()).filter(|entry| is_alive(entry, now_ms));
        if let Some(entries) = random::distinct(n, draw, |entry| entry.key().to_vec()) {
            shown.begin(n)?;
            return entries.into_iter().try_for_each(|entry| shown.entry(entry));
        }
    }
    let len = alive_len(hash, now_ms) as u64;
    let choice = if len == 0 { Choice::All } else { Choice::of(count, len) };
    shown.begin(choice.len(len))?;
    match choice {
        Choice::All => alive(hash, now_ms).try_for_each(|entry| shown.entry(entry)),
        Choice::Repeated(n) => {
            (0..n).filter_map(|_| one(hash, rng, now_ms)).try_for_each(|entry| shown.entry(entry))
        }
        Choice::Most(n) | Choice::Few(n) => {
            random::choose(alive(hash, now_ms), n, len, rng).try_for_each(|entry| shown.entry(entry))
        }
    }
}

/// Fields written into a reply of bounded size.
struct ShownFields<'r, 'o> {
    reply: &'r mut Reply<'o>,
    mark: usize,
    with_values: bool,
    env: &'r Env,
}

impl ShownFields<'_, '_> {
    fn begin(&mut self, len: u64) -> Result<(), Fault> {
        check_count(len, self.env)?;
        self.reply.array(shown_len(len, self.with_values && !self.reply.is_resp3()));
        Ok(())
    }

    fn entry(&mut self, entry: EntryRef<'_>) -> Result<(), Fault> {
        show(self.reply, (entry.key(), entry.value()), self.with_values);
        check_budget(self.reply, self.mark, self.env)
    }
}

/// A random field that is alive, if there is one.
fn one<'a>(hash: KeyView<'a, Table>, rng: &mut Rng, now_ms: u64) -> Option<EntryRef<'a>> {
    let drawn = (0..random::DRAWS_MAX)
        .find_map(|_| hash.root.random(hash.arena, rng.next_u64()).filter(|entry| is_alive(entry, now_ms)));
    drawn.or_else(|| alive(hash, now_ms).next())
}
