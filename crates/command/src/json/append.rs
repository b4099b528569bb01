//! JSON.ARRAPPEND key path value [value ...]

use darter_document::edit::EditedNode;
use darter_store::Event;
use darter_wire::{Args, Reply};

use super::arrays::is_array;
use super::change::{change_each, check_depth};
use super::long_set::ArrayValues;
use super::{depth_of, event, nodes_of, path_at, present};
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// JSON.ARRAPPEND.
pub const ARRAPPEND: DataCommand = DataCommand {
    spec: Spec::write("json.arrappend", -4, Keys::ONE)
        .doc(
            Group::Json,
            "1.0.0",
            "key path value [value ...]",
            "Adds values at the end of the arrays that a path names.",
        )
        .cost("O(N) over the size of the document"),
    run: append,
};

const APPEND_EVENT: Event = event("json.arrappend");

fn append(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let path = path_at(args, 2)?;
    let Some(values) = ArrayValues::of(ctx, args, 3, &path)? else { return Ok(()) };
    let mut place = ctx.at(args.at(1));
    let put = |slot: &mut EditedNode<'_, '_>, nodes: &[Vec<u8>]| Ok(slot.append(nodes).unwrap_or_default());
    let Some(forms) = values.put(&mut place, &path, APPEND_EVENT, put, reply)? else { return Ok(()) };
    let nodes = nodes_of(args, 3, present(&place)?, &forms)?;
    let depth = depth_of(&nodes);
    let outcome = change_each(&mut place, &path, APPEND_EVENT, is_array, |slot| {
        check_depth(slot, depth)?;
        put(slot, &nodes)
    })?;
    outcome.reply(&path, "not an array", reply, |len, reply| reply.int_len(len))
}
