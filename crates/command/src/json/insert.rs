//! JSON.ARRINSERT key path index value [value ...]

use darter_document::edit::EditedNode;
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::arrays::is_array;
use super::change::{change_each, check_depth};
use super::long_set::ArrayValues;
use super::{depth_of, event, nodes_of, path_at, present};
use crate::reader;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.ARRINSERT.
pub const ARRINSERT: DataCommand = DataCommand {
    spec: Spec::write("json.arrinsert", -5, Keys::ONE)
        .doc(
            Group::Json,
            "1.0.0",
            "key path index value [value ...]",
            "Puts values into arrays, in front of an index.",
        )
        .cost("O(N) over the size of the document"),
    run: insert,
};

const INSERT_EVENT: Event = event("json.arrinsert");

fn insert(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let index = reader::int(args.at(3))?;
    let Some(values) = ArrayValues::of(ctx, args, 4, &path)? else { return Ok(()) };
    let mut place = ctx.at(args.at(1));
    let put = |slot: &mut EditedNode<'_, '_>, nodes: &[Vec<u8>]| {
        let done = slot.insert(index, nodes).unwrap_or(Ok(0));
        done.map_err(|_| Fault::text("ERR index out of bounds"))
    };
    let Some(forms) = values.put(&mut place, &path, INSERT_EVENT, put, reply)? else { return Ok(()) };
    let nodes = nodes_of(args, 4, present(&place)?, &forms)?;
    let depth = depth_of(&nodes);
    let outcome = change_each(&mut place, &path, INSERT_EVENT, is_array, |slot| {
        check_depth(slot, depth)?;
        put(slot, &nodes)
    })?;
    outcome.reply(&path, "not an array", reply, |len, reply| reply.int_len(len))
}
