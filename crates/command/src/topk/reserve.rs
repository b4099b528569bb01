//! TOPK.RESERVE key topk [width depth decay]

use darter_sketch::TopK;
use darter_store::{Collection, Expiry};
use darter_wire::{Args, Reply};

use super::doc;
use crate::probabilistic::{SILENT, arity, float, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TOPK.RESERVE.
pub const RESERVE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("topk.reserve", -3, Keys::ONE).fast(),
        "key topk [width depth decay]",
        "Creates a list of the k most frequent items.",
    ),
    run: reserve,
};

const WIDTH: u32 = 8;
const DEPTH: u32 = 7;
const DECAY: f64 = 0.9;

fn reserve(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const BAD_DECAY: &str = "TopK: invalid decay value. must be '<= 1' & '> 0'";
    if args.len() != 3 && args.len() != 6 {
        return Err(arity("topk.reserve"));
    }
    let mut place = ctx.at(args.at(1));
    if place.exists() {
        return Err(Fault::text("TopK: key already exists"));
    }
    let size = |at: usize, otherwise| match u32::try_from(int(args.at(at), otherwise)?) {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(Fault::text(otherwise)),
    };
    let k = size(2, "TopK: invalid k")?;
    let (mut width, mut depth, mut decay) = (WIDTH, DEPTH, DECAY);
    if args.len() == 6 {
        width = size(3, "TopK: invalid width")?;
        depth = size(4, "TopK: invalid depth")?;
        decay = float(args.at(5), BAD_DECAY)?;
        if !(decay > 0.0 && decay <= 1.0) {
            return Err(Fault::text(BAD_DECAY));
        }
    }
    let list = TopK::new(k, width, depth, decay);
    let list = list.map_err(|_| Fault::text("ERR Insufficient memory to create topk data structure"))?;
    place.put_object(list.wrap(), Expiry::None)?;
    place.changed(SILENT);
    reply.ok();
    Ok(())
}
