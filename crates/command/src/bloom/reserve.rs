//! BF.RESERVE key error_rate capacity [EXPANSION expansion] [NONSCALING]

use darter_sketch::Bloom;
use darter_sketch::bloom::{ERROR_RATE_CAP, Scaling};
use darter_store::{Collection, Expiry, Type};
use darter_wire::{Args, Reply};

use super::{CAPACITY_MAX, EXISTS, EXPANSION, EXPANSION_MAX, doc, not_made};
use crate::probabilistic::{SILENT, arity, find_word, float, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// BF.RESERVE.
pub const RESERVE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("bf.reserve", -4, Keys::ONE).fast(),
        "1.0.0",
        "key error_rate capacity [EXPANSION expansion] [NONSCALING]",
        "Creates an empty filter of a given size and error rate.",
    ),
    run: reserve,
};

const ARGS_MAX: usize = 7;

fn reserve(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() > ARGS_MAX {
        return Err(arity("bf.reserve"));
    }
    let error = float(args.at(2), "ERR bad error rate")?;
    if !(error > 0.0 && error < 1.0) {
        return Err(Fault::text("ERR error rate must be in the range (0.000000, 1.000000)"));
    }
    let capacity = int(args.at(3), "ERR bad capacity")?;
    if !(1..=CAPACITY_MAX).contains(&capacity) {
        return Err(Fault::Text(format!("ERR capacity must be in the range [1, {CAPACITY_MAX}]").into()));
    }
    let scaling = scaling(args)?;
    let mut place = ctx.at(args.at(1));
    match place.kind() {
        None => {}
        Some(Type::Bloom) => return Err(EXISTS),
        Some(_) => return Err(Fault::WrongType),
    }
    let bloom = Bloom::new(capacity.unsigned_abs(), error.min(ERROR_RATE_CAP), scaling).map_err(not_made)?;
    place.put_object(bloom.wrap(), Expiry::None)?;
    place.changed(SILENT);
    reply.ok();
    Ok(())
}

fn scaling(args: Args<'_>) -> Result<Scaling, Fault> {
    let is_fixed = find_word(args, 4, "NONSCALING").is_some();
    let Some(at) = find_word(args, 4, "EXPANSION") else {
        let growth = EXPANSION as u32;
        return Ok(if is_fixed { Scaling::Fixed(growth) } else { Scaling::By(growth) });
    };
    let word = args.get(at + 1).ok_or(Fault::text("ERR no expansion"))?;
    let expansion = int(word, "ERR bad expansion")?;
    if expansion != 0 && is_fixed {
        return Err(Fault::text("Nonscaling filters cannot expand"));
    }
    if !(0..=EXPANSION_MAX).contains(&expansion) {
        return Err(Fault::Text(format!("ERR expansion must be in the range [0, {EXPANSION_MAX}]").into()));
    }
    let growth = expansion as u32;
    Ok(if growth == 0 { Scaling::Fixed(growth) } else { Scaling::By(growth) })
}
