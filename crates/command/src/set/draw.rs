//! SPOP key [count], SRANDMEMBER key [count]

use darter_base::rng::Rng;
use darter_pack::entry::Item;
use darter_store::change::{JournalReaders, Vocabulary};
use darter_store::reads::Stretch;
use darter_store::{Event, KeyView, Keyed, SetValue, Type};
use darter_wire::{Args, Reply};

use super::{alive_len, at, event, read};
use crate::incremental::StagedForm;
use crate::incremental::partition::{self, Partition};
use crate::item::reply_item;
use crate::member_scan::{check_budget, check_count};
use crate::random::{self, Choice};
use crate::reader::ArgReader;
use crate::spec::{Effect, Group, Keys, Marks, ReplicaForm, Spec};
use crate::{Ctx, DataCommand, Env, Fault, slices};

/// SPOP.
pub const SPOP: DataCommand = DataCommand {
    spec: Spec::shrink("spop", -2, Keys::ONE).replica_form(ReplicaForm::Values).key_access("RW access delete").tips(&["nondeterministic_output"])
        .effect(Effect::Reported)
        .mark(Marks::WORDS_ARE_FEW)
        .fast()
        .doc(
            Group::Set,
            "1.0.0",
            "key [count]",
            "Returns one or more random members from a set after removing them. Deletes the set if the last member was popped.",
        )
        .cost("O(N) where N is the value of the passed count"),
    run: spop,
};
/// SRANDMEMBER.
pub const SRANDMEMBER: DataCommand = DataCommand {
    spec: Spec::read("srandmember", -2, Keys::ONE)
        .tips(&["nondeterministic_output"])
        .doc(Group::Set, "1.0.0", "key [count]", "Returns one or more random members from a set.")
        .cost("O(N) where N is the absolute value of the passed count"),
    run: srandmember,
};

fn spop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(Fault::Syntax);
    }
    let count = match args.get(2) {
        None => None,
        Some(_) => Some(
            ArgReader::new(args, 2)
                .int_from(0, Fault::text("ERR value is out of range, must be positive"))?
                .unsigned_abs(),
        ),
    };
    if let Some(mut staged) = ctx.staged.take() {
        let answer = std::mem::take(&mut staged.found.bytes);
        staged.put_back(ctx, args.at(1))?;
        at(ctx, args.at(1)).changed(event("spop"));
        if ctx.journal_readers(args.at(1)) != JournalReaders::None {
            journal_removed(ctx, args.at(1), partition::members_of(&answer));
        }
        reply.take_over(answer);
        return Ok(());
    }
    if let Some(count) = count
        && leave_part(ctx, args.at(1), count, reply.is_resp3())?
    {
        return Ok(());
    }
    pop(ctx, args, count, reply)
}

/// Leaves dividing a long set into popped and remaining members to slices; false if it must be done at once.
fn leave_part(ctx: &mut Ctx<'_>, name: &[u8], count: u64, resp3: bool) -> Result<bool, Fault> {
    if !ctx.may_slice || count <= slices::LEN_MAX {
        return Ok(false);
    }
    let mut place = at(ctx, name);
    let rng = Rng::new(place.random());
    let Some(set) = place.view::<SetValue>()? else { return Ok(false) };
    let len = set.root.len();
    let is_for_slices = count < len
        && slices::is_better_rebuilt(len - count, count, slices::LEN_MAX)
        && set.root.next_expiry_ms().is_none();
    Ok(is_for_slices && {
        let operation = Box::new(Partition::new((count, len), rng, resp3));
        ctx.store_later((name, StagedForm::Set), &[name], &[(name, Stretch::All)], operation)
    })
}

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, count: Option<u64>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (now_ms, may_slice) = (ctx.now_ms, ctx.may_slice);
    let mut removed = (ctx.journal_readers(args.at(1)) != JournalReaders::None).then(Vec::new);
    let mut place = at(ctx, args.at(1));
    let mut rng = Rng::new(place.random());
    let set = place.view::<SetValue>()?;
    let len = match (set, count) {
        (None, _) => 0,
        (Some(set), Some(_)) => alive_len(set, now_ms) as u64,
        // one of many: no need to count them
        (Some(set), None) if one(set, &mut rng, now_ms).is_some() => set.root.len(),
        (Some(_), None) => 0,
    };
    let n = count.unwrap_or(1).min(len);
    match (count, set) {
        (Some(_), _) => reply.set(usize::try_from(n).unwrap_or(usize::MAX)),
        (None, _) if n == 0 => reply.null(),
        (None, _) => {}
    }
    let Some(set) = set.filter(|_| n > 0) else { return Ok(()) };
    let is_gone = if n == len {
        if may_slice && slices::is_long(len, set.root.next_expiry_ms(), now_ms) {
            let left = ctx.leave_rest(args.at(1), Stretch::All, slices::tell_items(reply.is_resp3()));
            place = at(ctx, args.at(1));
            if !left {
                place.view::<SetValue>()?.into_iter().for_each(|set| {
                    set.root.iter(set.arena, now_ms).for_each(|member| reply_item(reply, member));
                });
            }
        } else {
            set.root.iter(set.arena, now_ms).for_each(|member| reply_item(reply, member));
        }
        place.remove()
    } else {
        take(&mut place, n, &mut rng, (reply, &mut removed))?
    };
    place.changed(event("spop"));
    if is_gone {
        place.changed(Event::DEL);
        ctx.journal_removal(args.at(1));
    } else if let Some(removed) = removed {
        journal_removed(ctx, args.at(1), removed);
    }
    Ok(())
}

/// Has the journal write which members were removed.
fn journal_removed(ctx: &mut Ctx<'_>, name: &[u8], members: Vec<Vec<u8>>) {
    let head = [b"srem".as_slice(), name];
    ctx.journal_as(name, Vocabulary::Old, head.into_iter().chain(members.iter().map(Vec::as_slice)));
}

/// Takes `n` random members out, fewer than there are, and adds them to `removed` if the journal wants them; whether the
/// key went all the same.
fn take(
    place: &mut Keyed<'_>,
    n: u64,
    rng: &mut Rng,
    (reply, removed): (&mut Reply<'_>, &mut Option<Vec<Vec<u8>>>),
) -> Result<bool, Fault> {
    let now_ms = place.now_ms();
    let edited = place.edit(|set: &mut SetValue, arena, hasher| {
        for _ in 0..n {
            let view = KeyView { root: &*set, arena: &*arena, hasher };
            let Some(OwnedMembers(value, text)) = one(view, rng, now_ms).map(OwnedMembers::of) else { break };
            let member = value.map_or(Item::Bytes(&text), Item::Int);
            reply_item(reply, member);
            if let Some(removed) = removed {
                removed.push(member.to_vec());
            }
            set.remove(arena, hasher, member);
        }
    })?;
    Ok(edited.is_some_and(|edited| edited.is_gone))
}

/// A member copied out of its set, which can then be changed.
struct OwnedMembers(Option<i64>, Vec<u8>);

impl OwnedMembers {
    fn of(item: Item<'_>) -> OwnedMembers {
        match item {
            Item::Int(value) => OwnedMembers(Some(value), Vec::new()),
            Item::Bytes(text) => OwnedMembers(None, text.to_vec()),
        }
    }
}

fn srandmember(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(Fault::Syntax);
    }
    let count = args.get(2).map(random::count).transpose()?;
    if let Some(count) = count
        && leave_draws(ctx, args.at(1), count, reply)
    {
        return Ok(());
    }
    let (now_ms, env, may_slice) = (ctx.now_ms, ctx.env, ctx.may_slice);
    let mut place = read(ctx, args.at(1));
    let mut rng = Rng::new(place.random());
    let set = place.view::<SetValue>()?;
    if may_slice
        && let (Some(set), Some(count @ 1..)) = (set, count)
        && slices::is_long(set.root.len(), set.root.next_expiry_ms(), now_ms)
        && let len = set.root.len()
        && let Some(wanted) = Choice::of(count, len).going_through(len)
    {
        // A reply that is refused as too long by the body is refused here too.
        let mark = reply.len();
        let tell = random::tell_some(slices::tell_items(reply.is_resp3()), (wanted, len), rng);
        reply.array(usize::try_from(wanted).unwrap_or(usize::MAX));
        if ctx.leave_rest(args.at(1), Stretch::All, tell) {
            return Ok(());
        }
        reply.truncate_to(mark);
        let mut place = read(ctx, args.at(1));
        let mut rng = Rng::new(place.random());
        let Some(set) = place.view::<SetValue>()? else { return Ok(()) };
        return some(set, count, &mut rng, (now_ms, env), reply);
    }
    match (set, count) {
        (None, None) => reply.null(),
        (None, Some(_)) => reply.array(0),
        (Some(set), None) => match one(set, &mut rng, now_ms) {
            Some(member) => reply_item(reply, member),
            None => reply.null(),
        },
        (Some(set), Some(count)) => some(set, count, &mut rng, (now_ms, env), reply)?,
    }
    Ok(())
}

/// Leaves this number of draws to slices; false if they must be made now.
fn leave_draws(ctx: &mut Ctx<'_>, name: &[u8], count: i64, reply: &mut Reply<'_>) -> bool {
    let resp3 = reply.is_resp3();
    let head = |reply: &mut Reply<'_>, len| reply.array(usize::try_from(len).unwrap_or(usize::MAX));
    ctx.draw((name, Type::Set), count, head, || slices::tell_items(resp3), reply)
}

fn some(
    set: KeyView<'_, SetValue>,
    count: i64,
    rng: &mut Rng,
    (now_ms, env): (u64, &Env),
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mark = reply.len();
    if let Choice::Few(n) = Choice::of(count, set.root.len()) {
        let draw = || draw(set, rng, now_ms);
        if let Some(members) = random::distinct(n, draw, |member| member.to_vec()) {
            reply.array(members.len());
            members.into_iter().for_each(|member| reply_item(reply, member));
            return check_budget(reply, mark, env);
        }
    }
    let len = alive_len(set, now_ms) as u64;
    let choice = if len == 0 { Choice::All } else { Choice::of(count, len) };
    check_count(choice.len(len), env)?;
    reply.array(usize::try_from(choice.len(len)).unwrap_or(usize::MAX));
    let mut show = |member: Item<'_>| {
        reply_item(reply, member);
        check_budget(reply, mark, env)
    };
    let all = || set.root.iter(set.arena, now_ms);
    match choice {
        Choice::All => all().try_for_each(show),
        Choice::Repeated(n) => (0..n).filter_map(|_| one(set, rng, now_ms)).try_for_each(&mut show),
        Choice::Most(n) | Choice::Few(n) => random::choose(all(), n, len, rng).try_for_each(show),
    }
}

/// A random member, unless the drawn one has expired.
fn draw<'a>(set: KeyView<'a, SetValue>, rng: &mut Rng, now_ms: u64) -> Option<Item<'a>> {
    let may_be_dead = set.root.next_expiry_ms().is_some_and(|ms| ms <= now_ms);
    let member = set.root.random(set.arena, rng.next_u64())?;
    let is_alive = !may_be_dead || set.root.contains(set.arena, set.hasher, member, now_ms);
    is_alive.then_some(member)
}

/// A random member that is alive, if there is one.
fn one<'a>(set: KeyView<'a, SetValue>, rng: &mut Rng, now_ms: u64) -> Option<Item<'a>> {
    let drawn = (0..random::DRAWS_MAX).find_map(|_| draw(set, rng, now_ms));
    drawn.or_else(|| set.root.iter(set.arena, now_ms).next())
}
