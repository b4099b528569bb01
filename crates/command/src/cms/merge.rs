//! CMS.MERGE destination numKeys source [source ...] [WEIGHTS weight [weight ...]]

use darter_sketch::Cms;
use darter_sketch::cms::MergeFault;
use darter_wire::{Args, Reply};

use super::merging::{self, MergedSource};
use super::{NO_KEY, doc};
use crate::probabilistic::{SILENT, find_word, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CMS.MERGE.
pub const MERGE: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cms.merge", -4, Keys::Count { at: 2, dest: 1 }),
        "destination numkeys source [source ...] [WEIGHTS weight [weight ...]]",
        "Adds up sketches, with weights, into another one.",
    )
    .cost("O(n) where n is the number of sketches"),
    run: merge,
};

fn merge(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let destination = args.at(1);
    let (width, depth) = {
        let place = ctx.at(destination);
        let sketch = place.view::<Cms>()?.ok_or(NO_KEY)?.root;
        (sketch.width(), sketch.depth())
    };
    let keys_len = int(args.at(2), "CMS: invalid numkeys")?;
    let keys_len = usize::try_from(keys_len).unwrap_or(0);
    if keys_len == 0 {
        return Err(Fault::text("CMS: Number of keys must be positive"));
    }
    let rest = args.tail(3);
    let weights = find_word(rest, 0, "WEIGHTS");
    match weights {
        None if keys_len != rest.len() => return Err(Fault::text("CMS: wrong number of keys")),
        Some(at) if at != keys_len || rest.len() != 1 + 2 * keys_len => {
            return Err(Fault::text("CMS: wrong number of keys/weights"));
        }
        _ => {}
    }
    let mut sources = Vec::new();
    for at in 0..keys_len {
        let weight = match weights {
            Some(_) => int(rest.at(keys_len + 1 + at), "CMS: invalid weight value")?,
            None => 1,
        };
        let place = ctx.read(rest.at(at));
        let sketch = place.view::<Cms>()?.ok_or(NO_KEY)?.root;
        if (sketch.width(), sketch.depth()) != (width, depth) {
            return Err(Fault::text("CMS: width/depth is not equal"));
        }
        sources.push(MergedSource { name: rest.at(at), weight, count: sketch.count() });
    }
    if let Some(staged) = ctx.staged.take() {
        staged.put_back(ctx, destination)?;
    } else if merging::leave(ctx, destination, (width, depth), &sources)? {
        return Ok(());
    } else {
        merge_now(ctx, destination, &sources)?;
    }
    ctx.changed(destination, SILENT);
    reply.ok();
    Ok(())
}

fn merge_now(ctx: &mut Ctx<'_>, destination: &[u8], sources: &[MergedSource<'_>]) -> Result<(), Fault> {
    let mut contents = Vec::with_capacity(sources.len());
    for source in sources {
        let place = ctx.at(source.name);
        let view = place.view::<Cms>()?.ok_or(NO_KEY)?;
        contents.push((view.root.contents(view.arena), source.weight));
    }
    let mut place = ctx.at(destination);
    let edited = place.edit(|sketch: &mut Cms, arena, _| sketch.assign_sum(arena, &contents))?;
    edited.ok_or(NO_KEY)?.result.map_err(merge_fault)
}

/// The count of the sum.
///
/// Errors: it does not fit.
pub(super) fn total_count(sources: &[MergedSource<'_>]) -> Result<u64, Fault> {
    let counts = sources.iter().map(|source| (source.count, source.weight));
    darter_sketch::cms::sum_of_counts(counts).map_err(merge_fault)
}

pub(super) fn merge_fault(fault: MergeFault) -> Fault {
    match fault {
        MergeFault::Overflow => Fault::text("CMS: MERGE overflow"),
        MergeFault::Full => Fault::OutOfMemory,
    }
}
