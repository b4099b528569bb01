//! TDIGEST.MIN key, TDIGEST.MAX key, TDIGEST.INFO key

use darter_sketch::Digest;
use darter_wire::{Args, Reply};

use super::{NO_KEY, doc};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TDIGEST.MIN.
pub const MIN: DataCommand = DataCommand {
    spec: doc(Spec::read("tdigest.min", 2, Keys::ONE).fast(), "key", "Returns the smallest observation."),
    run: |ctx, args, reply| end(ctx, args, Digest::min, reply),
};
/// TDIGEST.MAX.
pub const MAX: DataCommand = DataCommand {
    spec: doc(Spec::read("tdigest.max", 2, Keys::ONE).fast(), "key", "Returns the largest observation."),
    run: |ctx, args, reply| end(ctx, args, Digest::max, reply),
};
/// TDIGEST.INFO.
pub const INFO: DataCommand = DataCommand {
    spec: doc(
        Spec::read("tdigest.info", 2, Keys::ONE),
        "key",
        "Shows the size and the contents of a digest.",
    ),
    run: info,
};

fn end(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    value: fn(&Digest) -> f64,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let digest = place.view::<Digest>()?.ok_or(NO_KEY)?.root;
    reply.double(if digest.is_empty() { f64::NAN } else { value(digest) });
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let digest = place.view::<Digest>()?.ok_or(NO_KEY)?.root;
    let ((merged, unmerged), (merged_weight, unmerged_weight)) = (digest.nodes(), digest.weights());
    let rows = [
        ("Compression", digest.compression().cast_signed()),
        ("Capacity", digest.capacity() as i64),
        ("Merged nodes", merged as i64),
        ("Unmerged nodes", unmerged as i64),
        ("Merged weight", merged_weight),
        ("Unmerged weight", unmerged_weight),
        ("Observations", digest.len()),
        ("Total compressions", digest.compressions()),
        ("Memory usage", digest.nominal_bytes().cast_signed()),
    ];
    reply.map(rows.len());
    for (name, number) in rows {
        reply.status(name);
        reply.int(number);
    }
    Ok(())
}
