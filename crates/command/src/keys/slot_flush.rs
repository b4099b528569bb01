//! SFLUSH and TRIMSLOTS: removal of the keys in ranges of slots. Keys are not grouped by slot, so every key is
//! examined, a few index lines at a time. The shards stay held to the end.
//!
//! The journal and replicas get each removed key: slot ranges of a node mean nothing to a server without slots.

use crate::category::Categories;
use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_store::{Event, Keyed, ScanPosition, Shard};
use darter_wire::{Args, Reply};

use super::slot::DISABLED;
use crate::reader::{self, is, is_sync_or_async};
use crate::spec::{DatabaseReach, Effect, Flags, Group, Keys, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SFLUSH slot-start slot-last [slot-start slot-last ...] [ASYNC | SYNC]
pub const SFLUSH: DataCommand = DataCommand {
    spec: spec("sflush", -3).category(Categories::DANGEROUS).category(Categories::KEYSPACE).doc(
        Group::Server,
        "8.0.0",
        "slot-start slot-last [slot-start slot-last ...] [ASYNC | SYNC]",
        "Removes the keys of ranges of slots.",
    ),
    run: sflush,
};

/// TRIMSLOTS RANGES numranges startslot endslot [startslot endslot ...]
pub const TRIMSLOTS: DataCommand = DataCommand {
    spec: spec("trimslots", -5).category(Categories::DANGEROUS).category(Categories::KEYSPACE).doc(
        Group::Server,
        "8.4.0",
        "RANGES numranges startslot endslot [startslot endslot ...]",
        "Removes the keys of slots that another node has; this one has all of them.",
    ),
    run: trimslots,
};

/// DFLYCLUSTER FLUSHSLOTS slot-start slot-last [slot-start slot-last ...]
pub const FLUSHSLOTS: DataCommand = DataCommand {
    spec: spec("dflycluster|flushslots", -4)
        .category(Categories::DANGEROUS)
        .flag(Flags::ADMIN.with(Flags::NOSCRIPT))
        .doc(
            Group::Cluster,
            "0.1.0",
            "slot-start slot-last [slot-start slot-last ...]",
            "Removes the keys of ranges of slots.",
        ),
    run: flushslots,
};

const fn spec(name: &'static str, arity: i16) -> Spec {
    Spec::shrink(name, arity, Keys::None)
        .effect(Effect::Nothing)
        .databases(DatabaseReach::All)
        .reach(Reach::All)
        .cost("O(N) over the keys of all databases")
}

/// The slots of some ranges.
struct FlushedSlots {
    // In the order of the slots, without gaps between neighbours.
    ranges: Vec<(u16, u16)>,
}

impl FlushedSlots {
    /// Reads pairs of a first and a last slot.
    ///
    /// Errors: invalid slots, in reversed order, or named twice.
    fn parse(words: Args<'_>) -> Result<FlushedSlots, Fault> {
        let mut ranges = Vec::with_capacity(words.len() / 2);
        for at in (0..words.len()).step_by(2) {
            let (first, last) = (slot(words.at(at))?, slot(words.at(at + 1))?);
            if first > last {
                let text = format!("ERR start slot number {first} is greater than end slot number {last}");
                return Err(Fault::Text(text.into()));
            }
            ranges.push((first, last));
        }
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1 => {
                    return Err(Fault::Text(format!("ERR Slot {first} specified multiple times").into()));
                }
                Some(before) if first == before.1 + 1 => before.1 = last,
                _ => joined.push((first, last)),
            }
        }
        Ok(FlushedSlots { ranges: joined })
    }

    fn has(&self, slot: u16) -> bool {
        let after = self.ranges.partition_point(|&(first, _)| first <= slot);
        after.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|&(_, last)| slot <= last)
    }
}

fn slot(word: &[u8]) -> Result<u16, Fault> {
    const INVALID: Fault = Fault::text("ERR Invalid or out of range slot");
    let number = reader::int(word).map_err(|_| INVALID)?;
    u16::try_from(number).ok().filter(|&slot| slot < SLOTS_LEN).ok_or(INVALID)
}

fn sflush(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    let words = args.tail(1);
    let len = words.len() - usize::from(is_sync_or_async(words.at(words.len() - 1)));
    if !len.is_multiple_of(2) || len == 0 {
        return Err(Fault::Arity("sflush".into()));
    }
    let slots = FlushedSlots::parse(words.head(len))?;
    let now_ms = ctx.now_ms;
    ctx.each_part(|_, part| flush(&mut part.shard, &slots, now_ms));
    // All of them are this node's.
    reply.array(slots.ranges.len());
    for (first, last) in slots.ranges {
        reply.array(2);
        reply.int(i64::from(first));
        reply.int(i64::from(last));
    }
    Ok(())
}

fn flushslots(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    let words = args.tail(2);
    if !words.len().is_multiple_of(2) {
        return Err(Fault::Arity("dflycluster|flushslots".into()));
    }
    let slots = FlushedSlots::parse(words)?;
    let now_ms = ctx.now_ms;
    ctx.each_part(|_, part| flush(&mut part.shard, &slots, now_ms));
    reply.ok();
    Ok(())
}

/// Refuses the slots that Redis refuses: those served by this node, which are all of them here.
fn trimslots(ctx: &mut Ctx<'_>, args: Args<'_>, _: &mut Reply<'_>) -> Result<(), Fault> {
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    if !is(args.at(1), "RANGES") {
        return Err(Fault::text("ERR missing ranges argument"));
    }
    let count = reader::int(args.at(2))?;
    if !(1..=i64::from(SLOTS_LEN)).contains(&count) {
        return Err(Fault::text("ERR invalid number of ranges"));
    }
    if args.len() as i64 != 3 + 2 * count {
        return Err(Fault::Arity("trimslots".into()));
    }
    let slots = FlushedSlots::parse(args.tail(3))?;
    let first = slots.ranges.first().map_or(0, |&(first, _)| first);
    Err(Fault::Text(format!("ERR the slot {first} is served by this node").into()))
}

/// Index lines whose keys are collected before those of the slots are removed.
const LINES_AT_ONCE: usize = 64;

fn flush(shard: &mut Shard, slots: &FlushedSlots, now_ms: u64) {
    for db in 0..shard.dbs_len() {
        let mut next = Some(ScanPosition::START);
        while let Some(mut at) = next {
            let mut names: Vec<Box<[u8]>> = Vec::new();
            for _ in 0..LINES_AT_ONCE {
                next = shard.scan(db, at, |record| {
                    if slots.has(key_slot(record.key())) {
                        names.push(record.key().into());
                    }
                });
                match next {
                    Some(place) => at = place,
                    None => break,
                }
            }
            for name in names {
                let key = shard.key(&name);
                if Keyed::find(shard, db, key, now_ms).remove() {
                    shard.changes.push_loss(db, &name, Event::DEL);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_and_searched() {
        let words =
            darter_wire::OwnedArgs::from_slices(&[b"10", b"12", b"0", b"0", b"1", b"3", b"16383", b"16383"]);
        let slots = FlushedSlots::parse(words.args()).expect("good ranges");
        assert_eq!(slots.ranges, [(0, 3), (10, 12), (16383, 16383)]);
        for (slot, is_in) in
            [(0, true), (3, true), (4, false), (9, false), (10, true), (13, false), (16383, true)]
        {
            assert_eq!(slots.has(slot), is_in, "{slot}");
        }
    }

    #[test]
    fn bad_ranges_are_refused() {
        for (words, expected) in [
            (
                [b"5".as_slice(), b"4", b"0", b"0"],
                "ERR start slot number 5 is greater than end slot number 4",
            ),
            ([b"0", b"4", b"4", b"9"], "ERR Slot 4 specified multiple times"),
            ([b"0", b"16384", b"1", b"1"], "ERR Invalid or out of range slot"),
            ([b"x", b"1", b"1", b"1"], "ERR Invalid or out of range slot"),
        ] {
            let words = darter_wire::OwnedArgs::from_slices(&words);
            assert_eq!(FlushedSlots::parse(words.args()).err().expect("refused").line(), expected);
        }
    }
}
