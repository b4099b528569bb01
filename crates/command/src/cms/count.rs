//! CMS.INCRBY key item increment [item increment ...], CMS.QUERY key item [item ...], CMS.INFO key

use darter_sketch::Cms;
use darter_wire::{Args, Reply};

use super::{NO_KEY, doc};
use crate::probabilistic::{SILENT, arity, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CMS.INCRBY.
pub const INCRBY: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cms.incrby", -4, Keys::ONE),
        "key item increment [item increment ...]",
        "Adds to the counts of items.",
    )
    .cost("O(n) where n is the number of items"),
    run: incrby,
};
/// CMS.QUERY.
pub const QUERY: DataCommand = DataCommand {
    spec: doc(
        Spec::read("cms.query", -3, Keys::ONE),
        "key item [item ...]",
        "Estimates the counts of items.",
    )
    .cost("O(n) where n is the number of items"),
    run: |ctx, args, reply| {
        let place = ctx.read(args.at(1));
        let view = place.view::<Cms>()?.ok_or(NO_KEY)?;
        let items = args.tail(2);
        reply.array(items.len());
        items.iter().for_each(|item| reply.int(i64::from(view.root.estimate(view.arena, item))));
        Ok(())
    },
};
/// CMS.INFO.
pub const INFO: DataCommand = DataCommand {
    spec: doc(
        Spec::read("cms.info", 2, Keys::ONE).fast(),
        "key",
        "Shows width, depth and the sum of all counts.",
    ),
    run: |ctx, args, reply| {
        let place = ctx.read(args.at(1));
        let sketch = place.view::<Cms>()?.ok_or(NO_KEY)?.root;
        reply.map(3);
        for (name, number) in
            [("width", sketch.width()), ("depth", sketch.depth()), ("count", sketch.count())]
        {
            reply.status(name);
            reply.int(number.cast_signed());
        }
        Ok(())
    },
};

fn incrby(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !args.len().is_multiple_of(2) {
        return Err(arity("cms.incrby"));
    }
    let mut place = ctx.at(args.at(1));
    if place.view::<Cms>()?.is_none() {
        return Err(NO_KEY);
    }
    let mut pairs = Vec::with_capacity(args.len() / 2 - 1);
    for at in (2..args.len()).step_by(2) {
        let number = int(args.at(at + 1), "CMS: Cannot parse number")?;
        let number = u64::try_from(number).map_err(|_| Fault::text("CMS: Number cannot be negative"))?;
        pairs.push((args.at(at), number));
    }
    let edited = place.edit(|sketch: &mut Cms, arena, _| {
        let mut add = |&(item, number): &(&[u8], u64)| sketch.add(arena, item, number);
        pairs.iter().map(&mut add).collect::<Result<Vec<u32>, _>>()
    })?;
    let counts = edited.ok_or(NO_KEY)?.result.map_err(|_| Fault::OutOfMemory)?;
    place.changed(SILENT);
    reply.array(counts.len());
    for count in counts {
        if count == u32::MAX {
            reply.error("CMS: INCRBY overflow");
        } else {
            reply.int(i64::from(count));
        }
    }
    Ok(())
}
