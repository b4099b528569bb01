//! HRANDFIELD key [count [WITHVALUES]]

use std::collections::HashSet;

use darter_base::rng::Rng;
use darter_pack::decimal::Digits;
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
    let hash = place.view::<Table>()?.filter(|hash| alive_len(*hash, now_ms) > 0);
    match (hash, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(hash), None) => {
            if let Some(entry) = one(hash, &mut rng, now_ms) {
                reply_item(reply, entry.key());
            }
        }
        (Some(hash), Some(count)) => some(hash, count, with_values, &mut rng, (now_ms, env), reply)?,
    }
    Ok(())
}

fn some(
    hash: View<'_, Table>,
    count: i64,
    with_values: bool,
    rng: &mut Rng,
    (now_ms, env): (u64, &Env),
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let len = alive_len(hash, now_ms) as u64;
    let choice = Choice::of(count, len);
    check_count(choice.len(len), env)?;
    let mark = reply.len();
    let parts = if with_values && !reply.is_resp3() { 2 } else { 1 };
    reply.array(usize::try_from(choice.len(len)).unwrap_or(usize::MAX).saturating_mul(parts));
    let mut show = |entry: EntryRef<'_>| {
        if with_values && reply.is_resp3() {
            reply.array(2);
        }
        reply_item(reply, entry.key());
        if with_values {
            reply_item(reply, entry.value());
        }
        check_budget(reply, mark, env)
    };
    match choice {
        Choice::All => alive(hash, now_ms).try_for_each(show),
        Choice::Repeated(n) => (0..n).filter_map(|_| one(hash, rng, now_ms)).try_for_each(show),
        Choice::Most(n) => random::choose(alive(hash, now_ms), n, len, rng).try_for_each(show),
        Choice::Few(n) => {
            let mut seen: HashSet<Vec<u8>> = HashSet::new();
            while (seen.len() as u64) < n {
                let Some(entry) = one(hash, rng, now_ms) else { break };
                let is_new = seen.insert(entry.key().text(&mut Digits::new()).to_vec());
                if is_new {
                    show(entry)?;
                }
            }
            Ok(())
        }
    }
}

/// A random field that is alive; there is one.
fn one<'a>(hash: View<'a, Table>, rng: &mut Rng, now_ms: u64) -> Option<EntryRef<'a>> {
    let drawn = (0..random::DRAWS_MAX)
        .find_map(|_| hash.root.random(hash.arena, rng.next_u64()).filter(|entry| is_alive(entry, now_ms)));
    drawn.or_else(|| alive(hash, now_ms).next())
}
