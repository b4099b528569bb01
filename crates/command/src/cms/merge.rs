//! CMS.MERGE destination numKeys source [source ...] [WEIGHTS weight [weight ...]]

use darter_sketch::Cms;
use darter_sketch::cms::MergeFault;
use darter_wire::{Args, Reply};

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
        let view = place.view::<Cms>()?.ok_or(NO_KEY)?;
        if (view.root.width(), view.root.depth()) != (width, depth) {
            return Err(Fault::text("CMS: width/depth is not equal"));
        }
        sources.push((view.root.contents(view.arena), weight));
    }
    let mut place = ctx.at(destination);
    let edited = place.edit(|sketch: &mut Cms, arena, _| sketch.assign_sum(arena, &sources))?;
    edited.ok_or(NO_KEY)?.result.map_err(|fault| match fault {
        MergeFault::Overflow => Fault::text("CMS: MERGE overflow"),
        MergeFault::Full => Fault::OutOfMemory,
    })?;
    place.changed(SILENT);
    reply.ok();
    Ok(())
}
