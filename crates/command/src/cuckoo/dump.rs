//! CF.SCANDUMP key iterator, CF.LOADCHUNK key iterator data

use darter_sketch::Cuckoo;
use darter_store::{Collection, Expiry, Type};
use darter_wire::{Args, Reply};

use super::{EXISTS, NOT_FOUND, doc};
use crate::probabilistic::{CHUNK_BYTES_MAX, SILENT, int};
use crate::spec::{Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CF.SCANDUMP.
pub const SCANDUMP: DataCommand = DataCommand {
    spec: doc(Spec::read("cf.scandump", 3, Keys::ONE), "key iterator", "Returns a filter piece by piece.")
        .cost("O(n), where n is the capacity"),
    run: scandump,
};
/// CF.LOADCHUNK.
pub const LOADCHUNK: DataCommand = DataCommand {
    spec: doc(
        Spec::write("cf.loadchunk", 4, Keys::ONE),
        "key iterator data",
        "Takes one piece of a filter that SCANDUMP gave.",
    )
    .cost("O(n), where n is the capacity"),
    run: loadchunk,
};

const BAD_POSITION: &str = "Invalid position";

fn scandump(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let iterator = int(args.at(2), BAD_POSITION)?;
    if iterator < 0 {
        return Err(Fault::text(BAD_POSITION));
    }
    let place = ctx.read(args.at(1));
    let view = place.view::<Cuckoo>()?.ok_or(NOT_FOUND)?;
    let chunk = match iterator {
        _ if view.root.items() == 0 => None,
        0 => Some((1, view.root.dump_header())),
        iterator => view.root.dump_chunk(view.arena, iterator, CHUNK_BYTES_MAX),
    };
    reply.array(2);
    reply.int(chunk.as_ref().map_or(0, |(next, _)| *next));
    reply.bulk_or_null(chunk.as_ref().map(|(_, bytes)| &bytes[..]));
    Ok(())
}

fn loadchunk(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let data = args.at(3);
    let iterator = int(args.at(2), BAD_POSITION)?;
    let mut place = ctx.at(args.at(1));
    match iterator {
        0 => return Err(Fault::text(BAD_POSITION)),
        1 => {
            match place.kind() {
                None if Cuckoo::is_header(data) => {}
                None => return Err(Fault::text("Invalid header")),
                Some(Type::Cuckoo) => return Err(EXISTS),
                Some(_) => return Err(Fault::WrongType),
            }
            let filter = Cuckoo::of_header(data).map_err(|_| Fault::text("Couldn't create filter!"))?;
            place.put_object(filter.wrap(), Expiry::None)?;
        }
        iterator => {
            let edited =
                place.edit(|filter: &mut Cuckoo, arena, _| filter.load_chunk(arena, iterator, data))?;
            edited.ok_or(NOT_FOUND)?.result.map_err(|_| Fault::text("Couldn't load chunk!"))?;
        }
    }
    place.changed(SILENT);
    reply.ok();
    Ok(())
}
