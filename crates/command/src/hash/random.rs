//! HRANDFIELD key [count [WITHVALUES]]

use darter_base::rng::Rng;
use darter_pack::table::{EntryRef, Table};
use darter_store::View;
use darter_wire::{Args, Reply};

use super::{alive, alive_len, is_alive, read};
use crate::item::reply_item;
use crate::member_scan::{check_budget, check_count};
use crate::random::{self, Choice};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Env, Fault};

/// HRANDFIELD.
pub const HRANDFIELD: DataCommand = DataCommand {
    spec: Spec::read("hrandfield", -2, Keys::ONE)
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
    let (now_ms, env) = (ctx.now_ms, ctx.env);
    let mut place = read(ctx, args.at(1));
    let mut rng = Rng::new(place.random());
    let hash = place.view::<Table>()?;
    match (hash, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(hash), None) => match one(hash, &mut rng, now_ms) {
            Some(entry) => reply_item(reply, entry.key()),
            None => reply.null(),
        },
        (Some(hash), Some(count)) => {
            let mut shown = Shown { env, with_values, mark: reply.len(), reply };
            some(hash, count, &mut rng, now_ms, &mut shown)?;
        }
    }
    Ok(())
}

fn some(
    hash: View<'_, Table>,
    count: i64,
    rng: &mut Rng,
    now_ms: u64,
    shown: &mut Shown<'_, '_>,
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

/// Fields on their way into a reply of bounded size.
struct Shown<'r, 'o> {
    reply: &'r mut Reply<'o>,
    mark: usize,
    with_values: bool,
    env: &'r Env,
}

impl Shown<'_, '_> {
    fn begin(&mut self, len: u64) -> Result<(), Fault> {
        check_count(len, self.env)?;
        let parts = if self.with_values && !self.reply.is_resp3() { 2 } else { 1 };
        self.reply.array(usize::try_from(len).unwrap_or(usize::MAX).saturating_mul(parts));
        Ok(())
    }

    fn entry(&mut self, entry: EntryRef<'_>) -> Result<(), Fault> {
        if self.with_values && self.reply.is_resp3() {
            self.reply.array(2);
        }
        reply_item(self.reply, entry.key());
        if self.with_values {
            reply_item(self.reply, entry.value());
        }
        check_budget(self.reply, self.mark, self.env)
    }
}

/// A random field that is alive, if there is one.
fn one<'a>(hash: View<'a, Table>, rng: &mut Rng, now_ms: u64) -> Option<EntryRef<'a>> {
    let drawn = (0..random::DRAWS_MAX)
        .find_map(|_| hash.root.random(hash.arena, rng.next_u64()).filter(|entry| is_alive(entry, now_ms)));
    drawn.or_else(|| alive(hash, now_ms).next())
}
