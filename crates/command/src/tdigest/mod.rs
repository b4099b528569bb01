//! T-digests: quantiles and ranks of a stream of numbers.

mod add;
mod ask;
mod info;
mod merge;
#[cfg(test)]
mod tests;

use darter_sketch::Digest;
use darter_store::Keyed;

use crate::spec::{Group, Spec};
use crate::{DataCommand, Fault};

/// The family's commands.
pub const FAMILY: &[DataCommand] = &[
    add::CREATE,
    add::ADD,
    add::RESET,
    merge::MERGE,
    info::MIN,
    info::MAX,
    info::INFO,
    ask::QUANTILE,
    ask::CDF,
    ask::RANK,
    ask::REVRANK,
    ask::BYRANK,
    ask::BYREVRANK,
    ask::TRIMMED_MEAN,
];

/// The compression of a digest without one.
const COMPRESSION: u64 = 100;

const NO_KEY: Fault = Fault::text("ERR T-Digest: key does not exist");
const OVERFLOW: Fault = Fault::text("ERR T-Digest: overflow detected");

const fn doc(spec: Spec, syntax: &'static str, summary: &'static str) -> Spec {
    spec.doc(Group::Digest, "2.4.0", syntax, summary)
}

/// A compression as the client gives it.
fn compression(arg: &[u8]) -> Result<u64, Fault> {
    let number = crate::probabilistic::int(arg, "ERR T-Digest: error parsing compression parameter")?;
    match u64::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(Fault::text("ERR T-Digest: compression parameter needs to be a positive integer")),
    }
}

/// Merges the buffered values of the digest at `place`, as queries require. That changes later answers in their last
/// digits, so the journal treats it as a write.
fn settle(place: &mut Keyed<'_>) -> Result<(), Fault> {
    let is_buffered = place.view::<Digest>()?.ok_or(NO_KEY)?.root.is_buffered();
    if is_buffered {
        let edited = place.edit(|digest: &mut Digest, _, _| digest.compress())?;
        edited.ok_or(NO_KEY)?.result.map_err(|_| OVERFLOW)?;
        place.counted();
    }
    Ok(())
}
