//! CLUSTER COUNTKEYSINSLOT slot, CLUSTER GETKEYSINSLOT slot count: the keys of a slot.
//!
//! In `cluster_mode yes` a slot is in one shard, which counts its keys and is scanned for them. An emulated cluster
//! distributes keys by another hash: every key of the database is examined, as by KEYS.

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_wire::{Args, Reply};

use crate::reader;
use crate::spec::{Flags, Group, Keys, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CLUSTER COUNTKEYSINSLOT.
pub const COUNTKEYSINSLOT: DataCommand = DataCommand {
    spec: spec("cluster|countkeysinslot", 3, "slot", "Counts the keys of a slot."),
    run: countkeysinslot,
};

/// CLUSTER GETKEYSINSLOT.
pub const GETKEYSINSLOT: DataCommand = DataCommand {
    spec: spec("cluster|getkeysinslot", 4, "slot count", "Lists keys of a slot, up to a number of them.")
        .tips(&["nondeterministic_output"]),
    run: getkeysinslot,
};

const fn spec(name: &'static str, arity: i16, syntax: &'static str, summary: &'static str) -> Spec {
    Spec { keys: Keys::None, ..Spec::other(name, arity) }
        .flag(Flags::STALE)
        .reach(Reach::Slot(|args| slot(reader::int(args.at(2)).ok()?)))
        .doc(Group::Cluster, "3.0.0", syntax, summary)
        .cost("COUNTKEYSINSLOT O(1), GETKEYSINSLOT O(N) over the keys of a shard; in an emulated cluster O(N) over all keys")
}

/// The error of CLUSTER without an emulated cluster.
pub const DISABLED: Fault = Fault::text("ERR This instance has cluster support disabled");

fn countkeysinslot(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    let slot = slot(reader::int(args.at(2))?).ok_or(Fault::text("ERR Invalid slot"))?;
    reply.int_len(count(ctx, slot));
    Ok(())
}

/// The keys of a slot; those that shards count include expired ones that nobody has looked for yet.
pub(super) fn count(ctx: &mut Ctx<'_>, slot: u16) -> usize {
    let db = ctx.db;
    if let Some(id) = ctx.shards_mut().router().shard_of_slot(slot) {
        return ctx.part(id).and_then(|part| part.shard.slot_keys(db, slot)).unwrap_or(0);
    }
    let mut count = 0;
    each_key_of(ctx, slot, |_| {
        count += 1;
        true
    });
    count
}

fn getkeysinslot(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    const INVALID: Fault = Fault::text("ERR Invalid slot or number of keys");
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    let (number, limit) = (reader::int(args.at(2))?, reader::int(args.at(3))?);
    let slot = slot(number).ok_or(INVALID)?;
    let limit = usize::try_from(limit).map_err(|_| INVALID)?;
    let begun = reply.begin_array();
    let mut count = 0;
    if limit > 0 {
        each_key_of(ctx, slot, |key| {
            reply.bulk(key);
            count += 1;
            count < limit
        });
    }
    reply.end_array(begun, count);
    Ok(())
}

fn slot(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|&slot| slot < SLOTS_LEN)
}

/// Calls `visit` with the keys of a slot until it returns false.
fn each_key_of(ctx: &mut Ctx<'_>, slot: u16, mut visit: impl FnMut(&[u8]) -> bool) {
    let (db, now_ms) = (ctx.db, ctx.now_ms);
    let mut goes_on = true;
    ctx.each_part(|_, part| {
        if goes_on {
            part.shard.each(db, |record| {
                if goes_on && key_slot(record.key()) == slot && !record.is_expired(now_ms) {
                    goes_on = visit(record.key());
                }
            });
        }
    });
}
