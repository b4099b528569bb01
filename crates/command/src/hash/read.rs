//! HGET key field, HMGET, HGETALL, HKEYS, HVALS, HLEN, HEXISTS, HSTRLEN

use std::sync::Arc;

use darter_pack::entry::Item;
use darter_pack::table::Table;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_store::KeyView;
use darter_store::reads::Stretch;
use darter_wire::{Args, Reply};

use super::{alive, alive_len, find, look_ahead, read, shown_len};
use crate::ctx::begins_batch;
use crate::item::reply_item;
use crate::slices;
use crate::spec::{Group, Keys, Spec};
use crate::{Ctx, DataCommand, Fault};

/// HGET.
pub const HGET: DataCommand = DataCommand {
    spec: Spec::read("hget", 3, Keys::ONE).fast().doc(
        Group::Hash,
        "2.0.0",
        "key field",
        "Returns the value of a field in a hash.",
    ),
    run: hget,
};
/// HMGET.
pub const HMGET: DataCommand = DataCommand {
    spec: Spec::read("hmget", -3, Keys::ONE)
        .fast()
        .doc(Group::Hash, "2.0.0", "key field [field ...]", "Returns the values of fields of a hash.")
        .cost("O(N)"),
    run: hmget,
};
/// HGETALL.
pub const HGETALL: DataCommand = DataCommand {
    spec: Spec::read("hgetall", 2, Keys::ONE)
        .tips(&["nondeterministic_output_order"])
        .doc(Group::Hash, "2.0.0", "key", "Returns all fields and values in a hash.")
        .cost("O(N)"),
    run: |ctx, args, reply| each(ctx, args, reply, HashPart::Both),
};
/// HKEYS.
pub const HKEYS: DataCommand = DataCommand {
    spec: Spec::read("hkeys", 2, Keys::ONE)
        .tips(&["nondeterministic_output_order"])
        .doc(Group::Hash, "2.0.0", "key", "Returns all fields in a hash.")
        .cost("O(N)"),
    run: |ctx, args, reply| each(ctx, args, reply, HashPart::Fields),
};
/// HVALS.
pub const HVALS: DataCommand = DataCommand {
    spec: Spec::read("hvals", 2, Keys::ONE)
        .tips(&["nondeterministic_output_order"])
        .doc(Group::Hash, "2.0.0", "key", "Returns all values in a hash.")
        .cost("O(N)"),
    run: |ctx, args, reply| each(ctx, args, reply, HashPart::Values),
};
/// HLEN.
pub const HLEN: DataCommand = DataCommand {
    spec: Spec::read("hlen", 2, Keys::ONE).key_access("RO").fast().doc(
        Group::Hash,
        "2.0.0",
        "key",
        "Returns the number of fields in a hash.",
    ),
    run: hlen,
};
/// HEXISTS.
pub const HEXISTS: DataCommand = DataCommand {
    spec: Spec::read("hexists", 3, Keys::ONE).key_access("RO").fast().doc(
        Group::Hash,
        "2.0.0",
        "key field",
        "Determines whether a field exists in a hash.",
    ),
    run: hexists,
};
/// HSTRLEN.
pub const HSTRLEN: DataCommand = DataCommand {
    spec: Spec::read("hstrlen", 3, Keys::ONE).key_access("RO").fast().doc(
        Group::Hash,
        "3.2.0",
        "key field",
        "Returns the length of the value of a field.",
    ),
    run: hstrlen,
};

fn hget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    match place.view::<Table>()?.and_then(|hash| find(hash, args.at(2), now_ms)) {
        Some(entry) => reply_item(reply, entry.value()),
        None => reply.null(),
    }
    Ok(())
}

fn hmget(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let hash = place.view::<Table>()?;
    let fields = args.tail(2);
    reply.array(fields.len());
    for (at, field) in fields.iter().enumerate() {
        if let Some(hash) = hash.filter(|_| begins_batch(at, fields.len())) {
            look_ahead(hash.root, hash.arena, hash.hasher, fields.tail(at), 1);
        }
        match hash.and_then(|hash| find(hash, field, now_ms)) {
            Some(entry) => reply_item(reply, entry.value()),
            None => reply.null(),
        }
    }
    Ok(())
}

/// The part of each field that is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HashPart {
    Fields,
    Values,
    Both,
}

impl HashPart {
    #[inline]
    fn show(self, reply: &mut Reply<'_>, field: Item<'_>, value: Item<'_>) {
        if self != HashPart::Values {
            reply_item(reply, field);
        }
        if self != HashPart::Fields {
            reply_item(reply, value);
        }
    }

    fn show_all(self, reply: &mut Reply<'_>, hash: KeyView<'_, Table>, now_ms: u64) {
        alive(hash, now_ms).for_each(|entry| self.show(reply, entry.key(), entry.value()));
    }

    fn tell(self, resp3: bool) -> Tell {
        Arc::new(move |seen, out| match seen {
            SeenLeaf::Field(field, value) => self.show(&mut Reply::new(out, resp3), field, value),
            _ => debug_assert!(false, "a hash has fields"),
        })
    }
}

fn each(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>, part: HashPart) -> Result<(), Fault> {
    let (now_ms, may_slice) = (ctx.now_ms, ctx.may_slice);
    let head = if part == HashPart::Both { Reply::map } else { Reply::array };
    let place = read(ctx, args.at(1));
    let Some(hash) = place.view::<Table>()? else {
        head(reply, 0);
        return Ok(());
    };
    let len = alive_len(hash, now_ms);
    head(reply, len);
    if !may_slice || !slices::is_long(len as u64, hash.root.min_expiry_ms(), now_ms) {
        part.show_all(reply, hash, now_ms);
    } else if !ctx.leave_rest(args.at(1), Stretch::All, part.tell(reply.is_resp3()))
        && let Some(hash) = ctx.at(args.at(1)).view::<Table>()?
    {
        part.show_all(reply, hash, now_ms);
    }
    Ok(())
}

fn hlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let len = read(ctx, args.at(1)).view::<Table>()?.map_or(0, |hash| shown_len(hash, now_ms));
    reply.int_len(len);
    Ok(())
}

fn hexists(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let found = place.view::<Table>()?.and_then(|hash| find(hash, args.at(2), now_ms));
    reply.int(i64::from(found.is_some()));
    Ok(())
}

fn hstrlen(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let now_ms = ctx.now_ms;
    let place = read(ctx, args.at(1));
    let found = place.view::<Table>()?.and_then(|hash| find(hash, args.at(2), now_ms));
    reply.int_len(found.map_or(0, |entry| entry.value().len()));
    Ok(())
}
