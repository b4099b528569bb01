//! TDIGEST.MERGE destination-key numkeys source-key [source-key ...] [COMPRESSION compression] [OVERRIDE]

use darter_sketch::Digest;
use darter_store::{Collection, Expiry};
use darter_wire::{Args, Reply};

use super::{NO_KEY, OVERFLOW, compression, doc};
use crate::probabilistic::{SILENT, arity, find_word, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// TDIGEST.MERGE.
pub const MERGE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("tdigest.merge", -4, Keys::Count { at: 2, dest: 1 }),
        "destination-key numkeys source-key [source-key ...] [COMPRESSION compression] [OVERRIDE]",
        "Merges digests into one.",
    )
    .cost("O(N*K), where N is the number of centroids and K being the number of input sketches"),
    run: merge,
};

fn merge(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let destination = args.at(1);
    let old = copy_of(ctx, destination)?;
    let keys_len = int(args.at(2), "ERR T-Digest: error parsing numkeys")?;
    let keys_len = usize::try_from(keys_len).unwrap_or(0);
    if keys_len == 0 {
        return Err(Fault::text("ERR T-Digest: numkeys needs to be a positive integer"));
    }
    if keys_len > args.len() - 3 {
        return Err(arity("tdigest.merge"));
    }
    let options = args.tail(3 + keys_len);
    let at = find_word(options, 0, "COMPRESSION");
    let asked = match at {
        Some(at) => Some(compression(options.get(at + 1).ok_or(arity("tdigest.merge"))?)?),
        None => None,
    };
    let overrides = find_word(options, 0, "OVERRIDE").is_some();
    if !options.is_empty() && at.is_none() && !overrides {
        return Err(Fault::text("ERR T-Digest: wrong keyword"));
    }
    let mut sources = Vec::with_capacity(keys_len.min(args.len()));
    for key in args.tail(3).head(keys_len).iter() {
        sources.push(copy_of(ctx, key)?.ok_or(NO_KEY)?);
    }
    let kept = old.filter(|_| !overrides);
    let of_kept = kept.as_ref().map(Digest::compression);
    let most = sources.iter().map(Digest::compression).max();
    let compression = asked.or(of_kept).or(most).unwrap_or(super::COMPRESSION);
    let made = Digest::new(compression);
    let mut made = made.map_err(|_| Fault::text("ERR T-Digest: allocation of destination digest failed"))?;
    kept.iter().chain(&sources).try_for_each(|source| made.merge(source)).map_err(|_| OVERFLOW)?;
    let mut place = ctx.at(destination);
    place.put_object(made.wrap(), Expiry::None)?;
    place.changed(SILENT);
    reply.ok();
    Ok(())
}

/// A copy of the digest at `key`.
fn copy_of(ctx: &mut Ctx<'_>, key: &[u8]) -> Result<Option<Digest>, Fault> {
    Ok(ctx.read(key).view::<Digest>()?.map(|view| view.root.clone()))
}
