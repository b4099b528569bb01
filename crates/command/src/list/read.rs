//! LLEN key, LINDEX key index, LRANGE key start stop, LPOS key element [RANK rank] [COUNT num] [MAXLEN len]

use darter_pack::entry::Item;
use darter_pack::tree::list::ListEnd;
use darter_pack::tree::{Direction, List};
use darter_store::KeyView;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::finding::{FoundAnswer, LOOKS_MAX, Search};
use super::{clip, index_of};
use crate::item::reply_item;
use crate::reader::{self, ArgReader};
use crate::slices;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// LLEN.
pub const LLEN: DataCommand = DataCommand {
    spec: Spec::read("llen", 2, Keys::ONE).key_access("RO").fast().doc(
        Group::List,
        "1.0.0",
        "key",
        "Returns the length of a list.",
    ),
    run: llen,
};
/// LINDEX.
pub const LINDEX: DataCommand = DataCommand {
    spec: Spec::read("lindex", 3, Keys::ONE)
        .doc(Group::List, "1.0.0", "key index", "Returns an element from a list by its index.")
        .cost("O(log N)"),
    run: lindex,
};
/// LRANGE.
pub const LRANGE: DataCommand = DataCommand {
    spec: Spec::read("lrange", 4, Keys::ONE)
        .doc(Group::List, "1.0.0", "key start stop", "Returns a range of elements from a list.")
        .cost("O(log N + M)"),
    run: lrange,
};
/// LPOS.
pub const LPOS: DataCommand = DataCommand {
    spec: Spec::read("lpos", -3, Keys::ONE)
        .doc(
            Group::List,
            "6.0.6",
            "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
            "Returns the index of matching elements in a list.",
        )
        .cost("O(N)"),
    run: lpos,
};

fn llen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let len = ctx.read(args.at(1)).view::<List>()?.map_or(0, |list| list.root.len());
    reply.int(len as i64);
    Ok(())
}

fn lindex(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let Some(list) = place.view::<List>()? else {
        reply.null();
        return Ok(());
    };
    let index = reader::int(args.at(2))?;
    let item = index_of(index, list.root.len()).and_then(|index| list.root.get(list.arena, index));
    match item {
        Some(item) => reply_item(reply, item),
        None => reply.null(),
    }
    Ok(())
}

fn lrange(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (start, stop) = (reader::int(args.at(2))?, reader::int(args.at(3))?);
    let (now_ms, may_slice) = (ctx.now_ms, ctx.may_slice);
    let place = ctx.read(args.at(1));
    let Some(list) = place.view::<List>()? else {
        reply.array(0);
        return Ok(());
    };
    let (first, count) = clip(start, stop, list.root.len());
    reply.array(count as usize);
    let stretch = Stretch::Ranks(first, count, Direction::Up);
    if !may_slice || !slices::is_long(count, None, now_ms) {
        show(reply, list, first, count);
    } else if !ctx.leave_rest(args.at(1), stretch, slices::tell_items(reply.is_resp3()))
        && let Some(list) = ctx.at(args.at(1)).view::<List>()?
    {
        show(reply, list, first, count);
    }
    Ok(())
}

#[inline]
fn show(reply: &mut Reply<'_>, list: KeyView<'_, List>, first: u64, count: u64) {
    let items = list.root.iter(list.arena, first, ListEnd::Back);
    items.take(count as usize).for_each(|item| reply_item(reply, item));
}

/// The arguments of LPOS: the search, and the number of matches.
fn parse_search(args: Args<'_>) -> Result<(Search, Option<u64>), Fault> {
    let (mut search, mut count) = (Search::FIRST, None);
    let mut read = ArgReader::new(args, 3);
    while !read.is_done() {
        if read.take_with("rank", 1) {
            let range =
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
            let rank = match read.int()? {
                i64::MIN => return Err(Fault::text(range)),
                rank => rank,
            };
            if rank == 0 {
                return Err(Fault::text(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
                ));
            }
            search.skip = rank.unsigned_abs() - 1;
            search.towards = if rank > 0 { ListEnd::Back } else { ListEnd::Front };
        } else if read.take_with("count", 1) {
            count = Some(read.int_from(0, Fault::text("ERR COUNT can't be negative"))?.unsigned_abs());
        } else if read.take_with("maxlen", 1) {
            let looks = read.int_from(0, Fault::text("ERR MAXLEN can't be negative"))?.unsigned_abs();
            search.looks = if looks == 0 { u64::MAX } else { looks };
        } else {
            return Err(Fault::Syntax);
        }
    }
    search.wanted = match count {
        None => 1,
        Some(0) => u64::MAX,
        Some(n) => n,
    };
    Ok((search, count))
}

fn lpos(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (search, count) = parse_search(args)?;
    let answer = FoundAnswer { is_array: count.is_some(), resp3: reply.is_resp3() };
    let may_slice = ctx.may_slice;
    let place = ctx.read(args.at(1));
    let Some(list) = place.view::<List>()? else {
        answer.write(&[], reply);
        return Ok(());
    };
    let (len, element) = (list.root.len(), args.at(2));
    let looks = if may_slice { search.looks.min(LOOKS_MAX) } else { search.looks };
    let places = places(list, Search { looks, ..search }, element);
    if (places.len() as u64) < search.wanted && looks < search.looks.min(len) {
        if search.leave(ctx, args.at(1), len, element, Some(answer)) {
            return Ok(());
        }
        let place = ctx.at(args.at(1));
        let Some(list) = place.view::<List>()? else { return Ok(()) };
        answer.write(&self::places(list, search, element), reply);
        return Ok(());
    }
    answer.write(&places, reply);
    Ok(())
}

/// The places a search finds.
fn places(list: KeyView<'_, List>, search: Search, element: &[u8]) -> Vec<u64> {
    let len = list.root.len();
    let (item, mut skip, mut found) = (Item::of(element), search.skip, Vec::new());
    let mut looks_left = search.looks.min(len);
    let mut at = if search.towards == ListEnd::Back { 0 } else { len - 1 };
    while (found.len() as u64) < search.wanted && looks_left > 0 {
        let Some(index) = list.root.position(list.arena, item, at, search.towards, looks_left) else { break };
        looks_left -= index.abs_diff(at) + 1;
        if skip > 0 {
            skip -= 1;
        } else {
            found.push(index);
        }
        at = match search.towards {
            ListEnd::Back => index + 1,
            ListEnd::Front if index == 0 => break,
            ListEnd::Front => index - 1,
        };
    }
    found
}
