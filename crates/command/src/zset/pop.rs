//! ZPOPMIN key [count], ZPOPMAX, ZMPOP numkeys key [key ...] MIN | MAX [COUNT count], and the forms that wait

use std::sync::Arc;

use darter_pack::entry::Item;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_pack::tree::{Direction, Zset};
use darter_store::{Collection, Event, Keyed};
use darter_wire::{Args, Reply};

use super::event;
use crate::ctx::BlockingWait;
use crate::item::reply_item;
use crate::reader::{ArgReader, is, timeout_ms};
use crate::spec::{Flags, Group, Keys, Marks, Spec};
use crate::taking::{Taken, Taking};
use crate::{Ctx, DataCommand, Fault, incremental, slices};

const fn pop_spec(name: &'static str, summary: &'static str) -> Spec {
    Spec::shrink(name, -2, Keys::ONE).fast().mark(Marks::WORDS_ARE_FEW).doc(Group::SortedSet, "5.0.0", "key [count]", summary).cost(
        "O(log(N)*M) with N being the number of elements in the sorted set, and M being the number of elements popped.",
    )
}

/// ZPOPMIN.
pub const ZPOPMIN: DataCommand = DataCommand {
    spec: pop_spec(
        "zpopmin",
        "Returns the lowest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
    ).key_access("RW access delete"),
    run: |ctx, args, reply| pop(ctx, args, reply, Direction::Up),
};
/// ZPOPMAX.
pub const ZPOPMAX: DataCommand = DataCommand {
    spec: pop_spec(
        "zpopmax",
        "Returns the highest-scoring members from a sorted set after removing them. Deletes the sorted set if the last member was popped.",
    ).key_access("RW access delete"),
    run: |ctx, args, reply| pop(ctx, args, reply, Direction::Down),
};
/// ZMPOP.
pub const ZMPOP: DataCommand = DataCommand {
    spec: Spec::shrink("zmpop", -4, Keys::Count { at: 1, dest: 0 }).key_access("RW access delete")
        .flag(Flags::MOVABLEKEYS)
        .doc(
            Group::SortedSet,
            "7.0.0",
            "numkeys key [key ...] <MIN | MAX> [COUNT count]",
            "Returns the highest- or lowest-scoring members from one or more sorted sets after removing them. Deletes the sorted set if the last member was popped.",
        )
        .cost(MANY_COST),
    run: zmpop,
};

const MANY_COST: &str = "O(K) + O(M*log(N)) where K is the number of provided keys, N being the number of elements in the sorted set, and M being the number of elements popped.";

const fn wait_spec(name: &'static str, summary: &'static str) -> Spec {
    Spec::shrink(name, -3, Keys::Range { first: 1, last: -2, step: 1 })
        .fast()
        .flag(Flags::BLOCKING)
        .doc(Group::SortedSet, "5.0.0", "key [key ...] timeout", summary)
        .cost("O(log(N)) with N being the number of elements in the sorted set.")
}

/// BZPOPMIN.
pub const BZPOPMIN: DataCommand = DataCommand {
    spec: wait_spec(
        "bzpopmin",
        "Removes and returns the member with the lowest score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
    ).key_access("RW access delete"),
    run: |ctx, args, reply| bzpop(ctx, args, reply, Direction::Up),
};
/// BZPOPMAX.
pub const BZPOPMAX: DataCommand = DataCommand {
    spec: wait_spec(
        "bzpopmax",
        "Removes and returns the member with the highest score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
    ).key_access("RW access delete"),
    run: |ctx, args, reply| bzpop(ctx, args, reply, Direction::Down),
};
/// BZMPOP.
pub const BZMPOP: DataCommand = DataCommand {
    spec: Spec::shrink("bzmpop", -5, Keys::Count { at: 2, dest: 0 }).key_access("RW access delete")
        .flag(Flags::BLOCKING.with(Flags::MOVABLEKEYS))
        .doc(
            Group::SortedSet,
            "7.0.0",
            "timeout numkeys key [key ...] <MIN | MAX> [COUNT count]",
            "Removes and returns a member by score from one or more sorted sets. Blocks until a member is available otherwise. Deletes the sorted set if the last element was popped.",
        )
        .cost(MANY_COST),
    run: bzmpop,
};

/// The form of popped members in the reply.
#[derive(Clone, Copy)]
enum PopForm<'a> {
    /// Members and scores in one array.
    Flat,
    /// An array of pairs.
    Pairs,
    /// A key, a member and its score.
    Keyed(&'a [u8]),
    /// A key, and an array of pairs.
    KeyedPairs(&'a [u8]),
}

impl PopForm<'_> {
    fn head(self, reply: &mut Reply<'_>, len: u64) {
        match self {
            PopForm::Flat => reply.array((len as usize).saturating_mul(2)),
            PopForm::Pairs => reply.array(len as usize),
            PopForm::Keyed(key) => {
                reply.array(3);
                reply.bulk(key);
            }
            PopForm::KeyedPairs(key) => {
                reply.array(2);
                reply.bulk(key);
                reply.array(len as usize);
            }
        }
    }

    fn pair(self, reply: &mut Reply<'_>, member: Item<'_>, score: f64) {
        reply_pair(reply, self.has_pairs(), member, score);
    }

    fn has_pairs(self) -> bool {
        matches!(self, PopForm::Pairs | PopForm::KeyedPairs(_))
    }

    /// Encodes members that are answered later.
    fn tell(self, resp3: bool) -> Tell {
        let has_pairs = self.has_pairs();
        Arc::new(move |seen, out| {
            if let SeenLeaf::Scored(member, score) = seen {
                reply_pair(&mut Reply::new(out, resp3), has_pairs, member, score);
            }
        })
    }
}

fn reply_pair(reply: &mut Reply<'_>, is_pair: bool, member: Item<'_>, score: f64) {
    if is_pair {
        reply.array(2);
    }
    reply_item(reply, member);
    reply.double(score);
}

/// Pops up to `count` members of the last of `keys` into the reply; returns false, with nothing written, if there is
/// no such set. The others must have been examined before.
fn take(
    ctx: &mut Ctx<'_>,
    keys: &[&[u8]],
    (from, count): (Direction, u64),
    form: PopForm<'_>,
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    let key = keys.last().copied().unwrap_or_default();
    let mut place = super::at(ctx, key);
    let Some(zset) = place.view::<Zset>()? else { return Ok(false) };
    let (len, count) = (zset.root.len(), count.min(zset.root.len()));
    if count > slices::LEN_MAX {
        let due_ms = zset.root.next_expiry_ms();
        let taking =
            Taking { names: keys, form: incremental::StagedForm::Zset, len, count, towards: from, due_ms };
        let taken = taking.run(ctx, form.tell(reply.is_resp3()))?;
        place = super::at(ctx, key);
        match taken {
            Taken::AtOnce => {}
            Taken::Later => return Ok(true),
            Taken::Gone => {
                form.head(reply, count);
                report(&mut place, from, count == len);
                return Ok(true);
            }
        }
    }
    take_at_once(&mut place, (from, count), form, reply)?;
    if count > 0 {
        report(&mut place, from, count == len);
    }
    Ok(true)
}

/// Reports a pop, and the removal of the key with its last member.
fn report(place: &mut Keyed<'_>, from: Direction, is_gone: bool) {
    place.changed(event(if from == Direction::Up { "zpopmin" } else { "zpopmax" }));
    if is_gone {
        place.changed(Event::DEL);
    }
}

/// Pops `count` members, at most all.
fn take_at_once(
    place: &mut Keyed<'_>,
    (from, count): (Direction, u64),
    form: PopForm<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let Some(zset) = place.view::<Zset>()? else { return Ok(()) };
    let len = zset.root.len();
    form.head(reply, count);
    let is_all = count == len;
    if is_all || count > 1 {
        let first = if from == Direction::Up { 0 } else { len.saturating_sub(1) };
        for (member, score) in zset.root.iter(zset.arena, first, from).take(count as usize) {
            form.pair(reply, member, score);
        }
    }
    if is_all {
        // The blocks are freed in steps, later.
        place.remove();
    } else {
        place.edit::<Zset, _>(|zset, arena, hasher| match (count, from) {
            (1, _) => {
                zset.pop(arena, &hasher, from, |member, score| form.pair(reply, member, score));
            }
            (_, Direction::Up) => {
                zset.remove_ranks(arena, &hasher, 0, count);
            }
            (_, Direction::Down) => {
                zset.remove_ranks(arena, &hasher, len - count, count);
            }
        })?;
    }
    Ok(())
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, from: Direction) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(Fault::Syntax);
    }
    let mut reader = ArgReader::new(args, 2);
    let (count, form) = if reader.is_done() {
        (1, PopForm::Flat)
    } else {
        let count = reader.int_from(0, Fault::text("ERR value is out of range, must be positive"))?;
        (count.unsigned_abs(), if reply.is_resp3() { PopForm::Pairs } else { PopForm::Flat })
    };
    if !take(ctx, &[args.at(1)], (from, count), form, reply)? {
        reply.array(0);
    }
    Ok(())
}

/// The arguments of ZMPOP, and of BZMPOP after the timeout.
struct ZpopMany<'a> {
    keys: Vec<&'a [u8]>,
    from: Direction,
    count: u64,
}

impl<'a> ZpopMany<'a> {
    fn parse(reader: &mut ArgReader<'a>) -> Result<ZpopMany<'a>, Fault> {
        let numkeys = reader.int_from(1, Fault::text("ERR numkeys should be greater than 0"))?;
        let room = reader.left();
        let numkeys = usize::try_from(numkeys).ok().filter(|&n| n < room).ok_or(Fault::Syntax)?;
        let keys = (0..numkeys).map(|_| reader.bytes()).collect::<Result<Vec<_>, _>>()?;
        let from = match reader.bytes()? {
            word if is(word, "min") => Direction::Up,
            word if is(word, "max") => Direction::Down,
            _ => return Err(Fault::Syntax),
        };
        let mut count = None;
        while !reader.is_done() {
            if count.is_some() || !reader.take_with("count", 1) {
                return Err(Fault::Syntax);
            }
            count = Some(reader.int_from(1, Fault::text("ERR count should be greater than 0"))?);
        }
        Ok(ZpopMany { keys, from, count: count.unwrap_or(1).unsigned_abs() })
    }

    /// Pops from the first existing set; returns false, with nothing written, if none exists.
    fn take(&self, ctx: &mut Ctx<'_>, reply: &mut Reply<'_>) -> Result<bool, Fault> {
        for (at, &key) in self.keys.iter().enumerate() {
            if ctx.skips(key) {
                continue;
            }
            let keys = self.keys.get(..=at).unwrap_or_default();
            if take(ctx, keys, (self.from, self.count), PopForm::KeyedPairs(key), reply)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn zmpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !ZpopMany::parse(&mut ArgReader::new(args, 1))?.take(ctx, reply)? {
        reply.null_array();
    }
    Ok(())
}

fn bzpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, from: Direction) -> Result<(), Fault> {
    let last = args.len() - 1;
    let timeout_ms = timeout_ms(args.at(last))?;
    for key in args.head(last).tail(1).iter() {
        if !ctx.skips(key) && take(ctx, &[key], (from, 1), PopForm::Keyed(key), reply)? {
            return Ok(());
        }
    }
    ctx.wait_or_reply(BlockingWait::for_a_key(timeout_ms, 0), reply);
    Ok(())
}

fn bzmpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    // The other arguments are checked before the timeout.
    let many = ZpopMany::parse(&mut ArgReader::new(args, 2))?;
    let timeout_ms = timeout_ms(args.at(1))?;
    ctx.may_repeat = false;
    if !many.take(ctx, reply)? {
        ctx.wait_or_reply(BlockingWait::for_a_key(timeout_ms, 0), reply);
    }
    Ok(())
}
