//! TDIGEST.CREATE key [COMPRESSION compression], TDIGEST.ADD key value [value ...], TDIGEST.RESET key

use darter_sketch::Digest;
use darter_store::{Collection, Expiry, Type};
use darter_wire::{Args, Reply};

use super::{COMPRESSION, NO_KEY, OVERFLOW, compression, doc};
use crate::probabilistic::{SILENT, arity, float};
use crate::reader::is;
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TDIGEST.CREATE.
pub const CREATE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("tdigest.create", -2, Keys::ONE).fast(),
        "key [COMPRESSION compression]",
        "Creates an empty digest.",
    ),
    run: create,
};
/// TDIGEST.ADD.
pub const ADD: DataCommand = DataCommand {
    spec: doc(Spec::write("tdigest.add", -3, Keys::ONE), "key value [value ...]", "Adds observations.")
        .cost("O(N), where N is the number of samples to add"),
    run: add,
};
/// TDIGEST.RESET.
pub const RESET: DataCommand = DataCommand {
    spec: doc(Spec::write("tdigest.reset", 2, Keys::ONE).fast(), "key", "Empties a digest."),
    run: |ctx, args, reply| {
        let mut place = ctx.at(args.at(1));
        place.edit(|digest: &mut Digest, _, _| digest.reset())?.ok_or(NO_KEY)?;
        place.changed(SILENT);
        reply.ok();
        Ok(())
    },
};

fn create(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len() != 2 && args.len() != 4 {
        return Err(arity("tdigest.create"));
    }
    let mut place = ctx.at(args.at(1));
    match place.kind() {
        None => {}
        Some(Type::Digest) => return Err(Fault::text("ERR T-Digest: key already exists")),
        Some(_) => return Err(Fault::WrongType),
    }
    let wanted = match args.len() {
        2 => COMPRESSION,
        _ if is(args.at(2), "COMPRESSION") => compression(args.at(3))?,
        _ => return Err(Fault::text("ERR T-Digest: wrong keyword")),
    };
    let digest = Digest::new(wanted).map_err(|_| Fault::text("ERR T-Digest: allocation failed"))?;
    place.put_object(digest.wrap(), Expiry::None)?;
    place.changed(SILENT);
    reply.ok();
    Ok(())
}

fn add(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut place = ctx.at(args.at(1));
    if place.view::<Digest>()?.is_none() {
        return Err(NO_KEY);
    }
    let mut values = Vec::with_capacity(args.len() - 2);
    for arg in args.tail(2).iter() {
        let value = float(arg, "ERR T-Digest: error parsing val parameter")?;
        if !value.is_finite() {
            return Err(Fault::text("ERR T-Digest: val parameter needs to be a finite number"));
        }
        values.push(value);
    }
    let edited =
        place.edit(|digest: &mut Digest, _, _| values.iter().try_for_each(|&value| digest.add(value, 1)))?;
    let done = edited.ok_or(NO_KEY)?.result;
    place.changed(SILENT);
    done.map_err(|_| OVERFLOW)?;
    reply.ok();
    Ok(())
}
