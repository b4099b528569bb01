//! CF.RESERVE key capacity [BUCKETSIZE bucketsize] [MAXITERATIONS maxiterations] [EXPANSION expansion]

use darter_sketch::Cuckoo;
use darter_sketch::cuckoo::CuckooSettings;
use darter_store::{Collection, Expiry, Type};
use darter_wire::{Args, Reply};

use super::{CAPACITY_MAX, EXISTS, NO_MEMORY, SETTINGS, doc};
use crate::probabilistic::{SILENT, arity, find_word, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CF.RESERVE.
pub const RESERVE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cf.reserve", -3, Keys::ONE).fast(),
        "key capacity [BUCKETSIZE bucketsize] [MAXITERATIONS maxiterations] [EXPANSION expansion]",
        "Creates an empty filter of a given capacity.",
    ),
    run: reserve,
};

fn reserve(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if args.len().is_multiple_of(2) {
        return Err(arity("cf.reserve"));
    }
    let capacity = int(args.at(2), "Bad capacity")?;
    let iterations_max =
        option(args, "MAXITERATIONS", "Couldn't parse MAXITERATIONS", 1..=65_535, SETTINGS.iterations_max)?;
    let bucket_size = option(args, "BUCKETSIZE", "Couldn't parse BUCKETSIZE", 1..=255, SETTINGS.bucket_size)?;
    let expansion = option(args, "EXPANSION", "Couldn't parse EXPANSION", 0..=32_768, SETTINGS.expansion)?;
    if i64::from(bucket_size) * 2 > capacity || capacity > CAPACITY_MAX {
        let text = format!("Capacity must be in the range [2 * BUCKETSIZE, {CAPACITY_MAX}]");
        return Err(Fault::Text(text.into()));
    }
    let mut place = ctx.at(args.at(1));
    match place.kind() {
        None => {}
        Some(Type::Cuckoo) => return Err(EXISTS),
        Some(_) => return Err(Fault::WrongType),
    }
    let settings = CuckooSettings { bucket_size, iterations_max, expansion };
    let filter = Cuckoo::new(capacity.unsigned_abs(), settings).map_err(|_| NO_MEMORY)?;
    place.put_object(filter.wrap(), Expiry::None)?;
    place.changed(SILENT);
    reply.ok();
    Ok(())
}

/// The number after `word`, or `otherwise` if the word is not there.
fn option(
    args: Args<'_>,
    word: &str,
    unreadable: &'static str,
    range: std::ops::RangeInclusive<i64>,
    otherwise: u16,
) -> Result<u16, Fault> {
    let Some(at) = find_word(args, 3, word) else { return Ok(otherwise) };
    let number = int(args.get(at + 1).ok_or(Fault::text(unreadable))?, unreadable)?;
    match u16::try_from(number) {
        Ok(small) if range.contains(&number) => Ok(small),
        _ => {
            let (min, max) = range.into_inner();
            Err(Fault::Text(format!("{word}: value must be in the range [{min}, {max}]").into()))
        }
    }
}
