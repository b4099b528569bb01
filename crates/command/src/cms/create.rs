//! CMS.INITBYDIM key width depth, CMS.INITBYPROB key error probability

use darter_sketch::{Cms, cms};
use darter_store::{Collection, Expiry};
use darter_wire::{Args, Reply};

use super::doc;
use crate::probabilistic::{SILENT, float, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CMS.INITBYDIM.
pub const INITBYDIM: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cms.initbydim", 4, Keys::ONE).fast(),
        "key width depth",
        "Creates a sketch of a given width and depth.",
    ),
    run: |ctx, args, reply| create(ctx, args, by_dimensions, reply),
};
/// CMS.INITBYPROB.
pub const INITBYPROB: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cms.initbyprob", 4, Keys::ONE).fast(),
        "key error probability",
        "Creates a sketch of a given error and probability.",
    ),
    run: |ctx, args, reply| create(ctx, args, by_probability, reply),
};

/// Width and depth.
type Dimensions = (u64, u64);

fn by_dimensions(args: Args<'_>) -> Result<Dimensions, Fault> {
    let positive = |at: usize, otherwise| match int(args.at(at), otherwise)? {
        number if number >= 1 => Ok(number.unsigned_abs()),
        _ => Err(Fault::text(otherwise)),
    };
    Ok((positive(2, "CMS: invalid width")?, positive(3, "CMS: invalid depth")?))
}

fn by_probability(args: Args<'_>) -> Result<Dimensions, Fault> {
    let share = |at: usize, otherwise| match float(args.at(at), otherwise)? {
        number if number > 0.0 && number < 1.0 => Ok(number),
        _ => Err(Fault::text(otherwise)),
    };
    let error = share(2, "CMS: invalid overestimation value")?;
    Ok(cms::dimensions(error, share(3, "CMS: invalid prob value")?))
}

fn create(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    dimensions: fn(Args<'_>) -> Result<Dimensions, Fault>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    if place.exists() {
        return Err(Fault::text("CMS: key already exists"));
    }
    let (width, depth) = dimensions(args)?;
    let is_possible =
        width >= 1 && depth >= 1 && width.checked_mul(depth).is_some_and(|n| n <= i64::MAX as u64);
    if !is_possible {
        return Err(Fault::text("CMS: invalid init arguments"));
    }
    let made = Cms::new(width, depth);
    let made = made.map_err(|_| Fault::text("CMS: Insufficient memory to create the key"))?;
    place.put_object(made.wrap(), Expiry::None)?;
    place.changed(SILENT);
    reply.ok();
    Ok(())
}
