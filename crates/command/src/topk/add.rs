//! TOPK.ADD key items [items ...], TOPK.INCRBY key item increment [item increment ...]

use darter_sketch::TopK;
use darter_wire::{Args, Reply};

use super::{NO_KEY, doc};
use crate::probabilistic::{SILENT, arity};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TOPK.ADD.
pub const ADD: DataCommand = DataCommand {
    spec: doc(
        Spec::write("topk.add", -3, Keys::ONE),
        "key items [items ...]",
        "Counts items, and returns those that left the list.",
    )
    .cost("O(n * k) where n is the number of items and k is the depth"),
    run: |ctx, args, reply| {
        let pairs = args.tail(2).iter().map(|item| (item, 1)).collect();
        add_all(ctx, args.at(1), pairs, TopkAddEnd::Whole, reply)
    },
};
/// TOPK.INCRBY.
pub const INCRBY: DataCommand = DataCommand {
    spec: doc(
        Spec::write("topk.incrby", -4, Keys::ONE),
        "key item increment [item increment ...]",
        "Counts items, and returns those that left the list.",
    )
    .cost("O(n * k * increment) where n is the number of items and k is the depth"),
    run: incrby,
};

/// The largest increment.
const INCREMENT_MAX: i64 = 100_000;
/// The text of RedisBloom, including the blanks.
const BAD_INCREMENT: &str = "TopK: increment must be an integer greater or equal to 0    \
                             \x20                       and smaller or equal to 100,000";

/// The end of the list of items.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TopkAddEnd {
    Whole,
    // An invalid increment: the items before it were counted.
    Broken,
}

fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(arity("topk.incrby"));
    }
    let (mut pairs, mut end) = (Vec::with_capacity(args.len() / 2 - 1), TopkAddEnd::Whole);
    for at in (2..args.len()).step_by(2) {
        match darter_base::number::parse_i64(args.at(at + 1)) {
            Some(increment) if (0..=INCREMENT_MAX).contains(&increment) => {
                pairs.push((args.at(at), increment as u32));
            }
            _ => {
                end = TopkAddEnd::Broken;
                break;
            }
        }
    }
    add_all(ctx, args.at(1), pairs, end, reply)
}

fn add_all(
    ctx: &mut Ctx<'_>,
    key: &[u8],
    pairs: Vec<(&[u8], u32)>,
    end: TopkAddEnd,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut place = ctx.at(key);
    let edited = place.edit(|list: &mut TopK, arena, _| {
        let mut add = |&(item, increment): &(&[u8], u32)| list.add(arena, item, increment);
        pairs.iter().map(&mut add).collect::<Result<Vec<_>, _>>()
    })?;
    let expelled = edited.ok_or(NO_KEY)?.result.map_err(|_| Fault::OutOfMemory)?;
    place.changed(SILENT);
    // RedisBloom promises more answers than it gives here; a client could not continue to read.
    reply.array(expelled.len() + usize::from(end == TopkAddEnd::Broken));
    expelled.iter().for_each(|item| reply.bulk_or_null(item.as_deref()));
    if end == TopkAddEnd::Broken {
        reply.error(BAD_INCREMENT);
    }
    Ok(())
}
