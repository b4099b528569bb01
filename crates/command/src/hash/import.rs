//! HIMPORT SET key fieldset value [value ...]: a hash of fields whose names were sent before.
//!
//! The names belong to a connection. The server inserts them before it takes the key's shard, so the body gets
//! `HIMPORT SET key fieldset field value [field value ...]`.

use darter_pack::entry::Item;
use darter_pack::table::{FieldExpiry, Table};
use darter_store::Object;
use darter_wire::{Args, Reply};

use super::{Edit, HSET_EVENT, at, new_hash};
use crate::spec::{Effect, Flags, Group, Keys, Marks, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HIMPORT SET.
pub const SET: DataCommand = DataCommand {
    spec: Spec::write("himport|set", -5, Keys::Range { first: 2, last: 2, step: 1 })
        // Only the connection knows the names of its fields.
        .effect(Effect::LastValue)
        .mark(Marks::IMPORTS)
        .flag(Flags::NOSCRIPT)
        .doc(
            Group::Hash,
            "8.10.0",
            "key fieldset value [value ...]",
            "Makes a hash of values for the fields that HIMPORT PREPARE named, over a hash that is there.",
        )
        .cost("O(N)"),
    run: set,
};

fn set(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let mut place = at(ctx, args.at(2));
    place.view::<Table>()?;
    let hasher = place.hasher();
    let arena = place.arena_mut();
    let mut table = new_hash();
    for i in (4..args.len()).step_by(2) {
        let mut edit = Edit { table: &mut table, arena, hasher, now_ms };
        if let Err(fault) = edit.put(args.at(i), Item::Bytes(args.at(i + 1)), FieldExpiry::Keep) {
            Object::Hash(table).clear(arena);
            return Err(fault);
        }
    }
    place.put_object(Object::Hash(table), darter_store::Expiry::None)?;
    place.changed(HSET_EVENT);
    reply.ok();
    Ok(())
}
