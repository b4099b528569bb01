//! LPOP key [count], RPOP, LMPOP numkeys key [key ...] LEFT | RIGHT [COUNT count]

use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{Direction, List};
use darter_store::{Event, Keyed};
use darter_wire::{Args, Reply};

use super::{end, pop_event};
use crate::incremental::StagedForm;
use crate::item::reply_item;
use crate::reader::ArgReader;
use crate::spec::{Flags, Group, Keys, Marks, Spec};
use crate::taking::{Taken, Taking};
use crate::{Ctx, DataCommand, Fault, slices};

const fn spec(name: &'static str, summary: &'static str) -> Spec {
    Spec::shrink(name, -2, Keys::ONE)
        .fast()
        .mark(Marks::WORDS_ARE_FEW)
        .doc(Group::List, "1.0.0", "key [count]", summary)
        .cost("O(N)")
}

/// LPOP.
pub const LPOP: DataCommand = DataCommand {
    spec: spec(
        "lpop",
        "Returns and removes the first elements of a list. Deletes the list if the last element was popped.",
    )
    .key_access("RW access delete"),
    run: |ctx, args, reply| pop(ctx, args, reply, ListEnd::Front),
};
/// RPOP.
pub const RPOP: DataCommand = DataCommand {
    spec: spec(
        "rpop",
        "Returns and removes the last elements of a list. Deletes the list if the last element was popped.",
    )
    .key_access("RW access delete"),
    run: |ctx, args, reply| pop(ctx, args, reply, ListEnd::Back),
};
/// LMPOP.
pub const LMPOP: DataCommand = DataCommand {
    spec: Spec::shrink("lmpop", -4, Keys::Count { at: 1, dest: 0 }).key_access("RW access delete")
        .flag(Flags::MOVABLEKEYS)
        .doc(
            Group::List,
            "7.0.0",
            "numkeys key [key ...] <LEFT | RIGHT> [COUNT count]",
            "Returns multiple elements from a list after removing them. Deletes the list if the last element was popped.",
        )
        .cost("O(N+M)"),
    run: lmpop,
};

fn pop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, end: ListEnd) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(Fault::Arity(if end == ListEnd::Front { "lpop" } else { "rpop" }.into()));
    }
    let count = match args.get(2) {
        None => None,
        Some(_) => Some(
            ArgReader::new(args, 2)
                .int_from(0, Fault::text("ERR value is out of range, must be positive"))?,
        ),
    };
    let found = match count {
        None => take(ctx, &[args.at(1)], end, 1, |_| {}, reply)?,
        Some(count) => {
            let head = |(reply, n): (&mut Reply<'_>, u64)| reply.array(n as usize);
            take(ctx, &[args.at(1)], end, count.unsigned_abs(), head, reply)?
        }
    };
    match (found, count) {
        (true, _) => {}
        (false, None) => reply.null(),
        (false, Some(_)) => reply.null_array(),
    }
    Ok(())
}

/// Pops up to `count` elements of the last of `keys` into the reply, after `head` has written the part before them.
/// Returns false, with nothing written, if there is no such list. The other keys must have been examined before.
pub(super) fn take(
    ctx: &mut Ctx<'_>,
    keys: &[&[u8]],
    end: ListEnd,
    count: u64,
    head: impl FnOnce((&mut Reply<'_>, u64)),
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    let key = keys.last().copied().unwrap_or_default();
    if count > slices::LEN_MAX
        && let Some(len) = ctx.at(key).view::<List>()?.map(|list| list.root.len())
    {
        let count = count.min(len);
        let towards = if end == ListEnd::Front { Direction::Up } else { Direction::Down };
        let taking = Taking { names: keys, form: StagedForm::List, len, count, towards, due_ms: None };
        match taking.run(ctx, slices::tell_items(reply.is_resp3()))? {
            Taken::AtOnce => {}
            Taken::Later => return Ok(true),
            Taken::Gone => {
                head((reply, count));
                report(&mut ctx.at(key), end, count == len);
                return Ok(true);
            }
        }
    }
    let mut place = ctx.at(key);
    let popped = place.edit::<List, _>(|list, arena, _| {
        let n = count.min(list.len());
        head((reply, n));
        for _ in 0..n {
            list.pop(arena, end, |item| reply_item(reply, item));
        }
        n
    })?;
    let Some(popped) = popped else { return Ok(false) };
    if popped.result > 0 {
        report(&mut place, end, popped.is_gone);
    }
    Ok(true)
}

/// Reports a pop, and the removal of the key with its last element.
fn report(place: &mut Keyed<'_>, end: ListEnd, is_gone: bool) {
    place.changed(pop_event(end));
    if is_gone {
        place.changed(Event::DEL);
    }
}

/// The arguments of LMPOP and BLMPOP after the timeout.
pub(super) struct ListPopMany<'a> {
    pub keys: Vec<&'a [u8]>,
    pub end: ListEnd,
    pub count: u64,
}

pub(super) fn parse_many<'a>(read: &mut ArgReader<'a>) -> Result<ListPopMany<'a>, Fault> {
    let numkeys = read.int_from(1, Fault::text("ERR numkeys should be greater than 0"))?;
    let room = read.left();
    let numkeys = usize::try_from(numkeys).ok().filter(|&n| n < room).ok_or(Fault::Syntax)?;
    let keys = (0..numkeys).map(|_| read.bytes()).collect::<Result<Vec<_>, _>>()?;
    let end = end(read.bytes()?)?;
    let mut count = None;
    while !read.is_done() {
        if count.is_none() && read.take_with("count", 1) {
            count = Some(read.int_from(1, Fault::text("ERR count should be greater than 0"))?.unsigned_abs());
        } else {
            return Err(Fault::Syntax);
        }
    }
    Ok(ListPopMany { keys, end, count: count.unwrap_or(1) })
}

/// Pops from the first list that has elements; returns false, with nothing written, if none has.
pub(super) fn take_many(
    ctx: &mut Ctx<'_>,
    many: &ListPopMany<'_>,
    reply: &mut Reply<'_>,
) -> Result<bool, Fault> {
    for (at, &key) in many.keys.iter().enumerate() {
        if ctx.skips(key) {
            continue;
        }
        let head = |(reply, n): (&mut Reply<'_>, u64)| {
            reply.array(2);
            reply.bulk(key);
            reply.array(n as usize);
        };
        let keys = many.keys.get(..=at).unwrap_or_default();
        if take(ctx, keys, many.end, many.count, head, reply)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn lmpop(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let many = parse_many(&mut ArgReader::new(args, 1))?;
    if !take_many(ctx, &many, reply)? {
        reply.null_array();
    }
    Ok(())
}
