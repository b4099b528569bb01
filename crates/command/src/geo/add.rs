//! GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]

use darter_wire::{Args, Reply};

use super::place;
use crate::incremental::bulk_add::{BulkWords, MANY};
use crate::reader::is;
use crate::spec::{Group, Keys, Spec};
use crate::zset::add::{ZaddOptions, add, add_many};
use crate::{Ctx, DataCommand, Fault};

/// GEOADD.
pub const GEOADD: DataCommand = DataCommand {
    spec: Spec::write("geoadd", -5, Keys::ONE)
        .doc(
            Group::Geo,
            "3.2.0",
            "key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]",
            "Adds one or more members to a geospatial index. The key is created if it doesn't exist.",
        )
        .cost("O(log(N)) for each item added, where N is the number of elements in the sorted set."),
    run: geoadd,
};

fn geoadd(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let mut options = ZaddOptions::default();
    let mut at = 2;
    while let Some(word) = args.get(at) {
        if is(word, "nx") {
            options.only_new = true;
        } else if is(word, "xx") {
            options.only_old = true;
        } else if is(word, "ch") {
            options.counts_changed = true;
        } else {
            break;
        }
        at += 1;
    }
    let items = args.tail(at);
    let is_whole = !items.is_empty() && items.len().is_multiple_of(3);
    if !is_whole || (options.only_new && options.only_old) {
        return Err(Fault::Syntax);
    }
    let words = BulkWords { first: at, step: 3, score_of: Some(|args, at| Ok(place(args, at)?.score())) };
    if args.len() > MANY && add_many(ctx, args, words, options, reply)? {
        return Ok(());
    }
    let members = (0..items.len()).step_by(3).map(|at| Ok((place(items, at)?.score(), items.at(at + 2))));
    let members = members.collect::<Result<Vec<_>, Fault>>()?;
    add(ctx, args.at(1), options, members.into_iter(), reply)
}
