//! TOPK.QUERY key item [item ...], TOPK.COUNT key item [item ...], TOPK.LIST key [WITHCOUNT], TOPK.INFO key

use darter_sketch::TopK;
use darter_wire::{Args, Reply};

use super::{NO_KEY, doc};
use crate::probabilistic::arity;
use crate::reader::is;
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TOPK.QUERY.
pub const QUERY: DataCommand = DataCommand {
    spec: doc(
        Spec::read("topk.query", -3, Keys::ONE),
        "key item [item ...]",
        "Tells which items are in the list.",
    )
    .cost("O(n) where n is the number of items"),
    run: |ctx, args, reply| {
        let place = ctx.read(args.at(1));
        let list = place.view::<TopK>()?.ok_or(NO_KEY)?.root;
        reply.array(args.len() - 2);
        args.tail(2).iter().for_each(|item| reply.boolean(list.contains(item)));
        Ok(())
    },
};
/// TOPK.COUNT.
pub const COUNT: DataCommand = DataCommand {
    spec: doc(
        Spec::read("topk.count", -3, Keys::ONE),
        "key item [item ...]",
        "Estimates the counts of items.",
    )
    .cost("O(n) where n is the number of items"),
    run: |ctx, args, reply| {
        let place = ctx.read(args.at(1));
        let view = place.view::<TopK>()?.ok_or(NO_KEY)?;
        reply.array(args.len() - 2);
        args.tail(2).iter().for_each(|item| reply.int(i64::from(view.root.count(view.arena, item))));
        Ok(())
    },
};
/// TOPK.LIST.
pub const LIST: DataCommand = DataCommand {
    spec: doc(
        Spec::read("topk.list", -2, Keys::ONE),
        "key [WITHCOUNT]",
        "Returns the items with the largest counts.",
    )
    .cost("O(k*log(k)) where k is the value of top-k"),
    run: list,
};
/// TOPK.INFO.
pub const INFO: DataCommand = DataCommand {
    spec: doc(Spec::read("topk.info", 2, Keys::ONE).fast(), "key", "Shows the parameters of a list."),
    run: |ctx, args, reply| {
        let place = ctx.read(args.at(1));
        let list = place.view::<TopK>()?.ok_or(NO_KEY)?.root;
        reply.map(4);
        for (name, number) in [("k", list.k()), ("width", list.width()), ("depth", list.depth())] {
            reply.status(name);
            reply.int(i64::from(number));
        }
        reply.status("decay");
        reply.double(list.decay());
        Ok(())
    },
};

fn list(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > 3 {
        return Err(arity("topk.list"));
    }
    let with_count = args.len() == 3;
    if with_count && !is(args.at(2), "WITHCOUNT") {
        return Err(Fault::text("WITHCOUNT keyword expected"));
    }
    let place = ctx.read(args.at(1));
    let listed = place.view::<TopK>()?.ok_or(NO_KEY)?.root.listed();
    reply.array(listed.len() * (1 + usize::from(with_count)));
    for row in listed {
        reply.bulk(row.item);
        if with_count {
            reply.int(i64::from(row.count));
        }
    }
    Ok(())
}
