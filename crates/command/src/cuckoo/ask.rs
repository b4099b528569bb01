//! CF.EXISTS key item, CF.MEXISTS key item [item ...], CF.COUNT key item, CF.DEL key item, CF.INFO key, CF.DEBUG key,
//! CF.COMPACT key

use darter_sketch::Cuckoo;
use darter_sketch::cuckoo::{KickEffort, hash};
use darter_wire::{Args, Reply};

use super::{NOT_FOUND, doc};
use crate::probabilistic::SILENT;
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

const COST: &str = "O(k), where k is the number of sub-filters";

/// CF.EXISTS.
pub const EXISTS: DataCommand = DataCommand {
    spec: doc(Spec::read("cf.exists", 3, Keys::ONE), "key item", "Tells whether an item may be there.")
        .cost(COST),
    run: exists,
};
/// CF.MEXISTS.
pub const MEXISTS: DataCommand = DataCommand {
    spec: doc(
        Spec::read("cf.mexists", -3, Keys::ONE),
        "key item [item ...]",
        "Tells whether an item may be there.",
    )
    .cost("O(k * n), where k is the number of sub-filters and n is the number of items"),
    run: |ctx, args, reply| {
        reply.array(args.len() - 2);
        exists(ctx, args, reply)
    },
};
/// CF.COUNT.
pub const COUNT: DataCommand = DataCommand {
    spec: doc(
        Spec::read("cf.count", 3, Keys::ONE),
        "key item",
        "Counts how often an item may have been added.",
    )
    .cost(COST),
    run: |ctx, args, reply| {
        let place = ctx.read(args.at(1));
        let count = match place.view::<Cuckoo>() {
            Ok(Some(view)) => view.root.count(view.arena, hash(args.at(2))),
            _ => 0,
        };
        reply.int(count.cast_signed());
        Ok(())
    },
};
/// CF.DEL.
pub const DEL: DataCommand = DataCommand {
    spec: doc(Spec::shrink("cf.del", 3, Keys::ONE), "key item", "Deletes one copy of an item.").cost(COST),
    run: del,
};
/// CF.INFO.
pub const INFO: DataCommand = DataCommand {
    spec: doc(
        Spec::read("cf.info", 2, Keys::ONE).fast(),
        "key",
        "Shows size, layers and counts of a filter.",
    ),
    run: info,
};
/// CF.DEBUG.
pub const DEBUG: DataCommand = DataCommand {
    spec: doc(Spec::read("cf.debug", 2, Keys::ONE), "key", "Shows the parameters of a filter in one line."),
    run: debug,
};
/// CF.COMPACT.
pub const COMPACT: DataCommand = DataCommand {
    spec: doc(
        Spec::shrink("cf.compact", 2, Keys::ONE),
        "key",
        "Moves items of later layers to earlier ones.",
    )
    .cost("O(n), where n is the number of buckets"),
    run: compact,
};

fn exists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    // A key of another type has no items, as in RedisBloom.
    let view = place.view::<Cuckoo>().ok().flatten();
    for item in args.tail(2).iter() {
        reply.boolean(view.is_some_and(|view| view.root.contains(view.arena, hash(item))));
    }
    Ok(())
}

fn del(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const NOT_THERE: Fault = Fault::text("Not found");
    let mut place = ctx.at(args.at(1));
    let edited = place.edit(|filter: &mut Cuckoo, arena, _| filter.remove(arena, hash(args.at(2))));
    let removed = match edited {
        Ok(Some(edited)) => edited.result.map_err(|_| Fault::OutOfMemory)?,
        Ok(None) | Err(_) => return Err(NOT_THERE),
    };
    if removed {
        place.changed(SILENT);
    }
    reply.boolean(removed);
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let filter = place.view::<Cuckoo>()?.ok_or(NOT_FOUND)?.root;
    let settings = filter.settings();
    let rows = [
        ("Size", filter.nominal_bytes()),
        ("Number of buckets", filter.buckets()),
        ("Number of filters", filter.tables_len() as u64),
        ("Number of items inserted", filter.items()),
        ("Number of items deleted", filter.deletes()),
        ("Bucket size", u64::from(settings.bucket_size)),
        ("Expansion rate", u64::from(settings.expansion)),
        ("Max iterations", u64::from(settings.iterations_max)),
    ];
    reply.map(rows.len());
    for (name, number) in rows {
        reply.status(name);
        reply.int(number.cast_signed());
    }
    Ok(())
}

fn debug(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let filter = place.view::<Cuckoo>()?.ok_or(NOT_FOUND)?.root;
    let settings = filter.settings();
    let line = format!(
        "bktsize:{} buckets:{} items:{} deletes:{} filters:{} max_iterations:{} expansion:{}",
        settings.bucket_size,
        filter.buckets(),
        filter.items(),
        filter.deletes(),
        filter.tables_len(),
        settings.iterations_max,
        settings.expansion,
    );
    reply.bulk(line.as_bytes());
    Ok(())
}

fn compact(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    match place.edit(|filter: &mut Cuckoo, arena, _| filter.compact(arena, KickEffort::All)) {
        Ok(Some(edited)) => edited.result.map_err(|_| Fault::OutOfMemory)?,
        Ok(None) | Err(_) => return Err(Fault::text("Cuckoo filter was not found")),
    }
    place.changed(SILENT);
    reply.ok();
    Ok(())
}
