//! BF.SCANDUMP key iterator, BF.LOADCHUNK key iterator data

use darter_sketch::Bloom;
use darter_sketch::bloom::ChunkFault;
use darter_store::{Collection, Expiry};
use darter_wire::{Args, Reply};

use super::{NOT_FOUND, doc};
use crate::probabilistic::{CHUNK_BYTES_MAX, SILENT, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// BF.SCANDUMP.
pub const SCANDUMP: DataCommand = DataCommand {
    spec: doc(
        Spec::read("bf.scandump", 3, Keys::ONE),
        "1.0.0",
        "key iterator",
        "Returns a filter piece by piece.",
    )
    .cost("O(n), where n is the capacity"),
    run: scandump,
};
/// BF.LOADCHUNK.
pub const LOADCHUNK: DataCommand = DataCommand {
    spec: doc(
        Spec::write("bf.loadchunk", 4, Keys::ONE),
        "1.0.0",
        "key iterator data",
        "Takes one piece of a filter that SCANDUMP gave.",
    )
    .cost("O(n), where n is the capacity"),
    run: loadchunk,
};

const BAD_DATA: Fault = Fault::text("ERR received bad data");

fn scandump(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let place = ctx.read(args.at(1));
    let view = place.view::<Bloom>()?.ok_or(NOT_FOUND)?;
    let iterator = int(args.at(2), "Second argument must be numeric")?;
    let (next, bytes) = match iterator {
        0 => (1, view.root.dump_header()),
        iterator => view.root.dump_chunk(view.arena, iterator, CHUNK_BYTES_MAX),
    };
    reply.array(2);
    reply.int(next);
    reply.bulk(&bytes);
    Ok(())
}

fn loadchunk(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let iterator = int(args.at(2), "ERR Second argument must be numeric")?;
    let data = args.at(3);
    let mut place = ctx.at(args.at(1));
    if !place.exists() && iterator == 1 {
        let bloom = Bloom::of_header(data).map_err(|_| BAD_DATA)?;
        place.put_object(bloom.wrap(), Expiry::None)?;
    } else {
        let edited = place.edit(|bloom: &mut Bloom, arena, _| bloom.load_chunk(arena, iterator, data))?;
        edited.ok_or(NOT_FOUND)?.result.map_err(|fault| match fault {
            ChunkFault::BadData => BAD_DATA,
            ChunkFault::NoLink => Fault::text("ERR invalid offset - no link found"),
            ChunkFault::TooBig => Fault::text("ERR invalid chunk - Too big for current filter"),
            ChunkFault::Full => Fault::OutOfMemory,
        })?;
    }
    place.changed(SILENT);
    reply.ok();
    Ok(())
}
