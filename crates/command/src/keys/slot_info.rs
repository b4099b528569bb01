//! DFLYCLUSTER GETSLOTINFO SLOTS slot [slot ...]: the keys of slots and their bytes, found by a look at every key. A slot is a
//! number or a range. Reads and writes are counted while `cluster-slot-stats-enabled` is set.

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_store::{Keyed, ScanPosition, Shard};
use darter_wire::{Args, Reply};

use super::slot::DISABLED;
use crate::reader::is;
use crate::spec::{DatabaseReach, Effect, Flags, Group, Keys, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// DFLYCLUSTER GETSLOTINFO.
pub const GETSLOTINFO: DataCommand = DataCommand {
    spec: Spec { keys: Keys::None, ..Spec::other("dflycluster|getslotinfo", -4) }
        .flag(Flags::ADMIN.with(Flags::NOSCRIPT))
        .effect(Effect::Nothing)
        .databases(DatabaseReach::All)
        .reach(Reach::All)
        .doc(
            Group::Cluster,
            "0.1.0",
            "SLOTS slot [slot ...]",
            "Counts the keys of slots and their bytes, and keys that were read and written.",
        )
        .cost("O(N) over the keys of all databases"),
    run: getslotinfo,
};

/// What a slot holds.
#[derive(Clone, Copy, Default)]
struct SlotUse {
    is_asked: bool,
    keys: usize,
    bytes: usize,
}

fn getslotinfo(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    if !is(args.at(2), "SLOTS") {
        return Err(Fault::Syntax);
    }
    let mut slots = vec![SlotUse::default(); usize::from(SLOTS_LEN)];
    for word in args.tail(3).iter() {
        let (first, last) = range(word)?;
        let asked = slots.get_mut(first..=last).unwrap_or_default();
        asked.iter_mut().for_each(|held| held.is_asked = true);
    }
    let now_ms = ctx.now_ms;
    ctx.each_part(|_, part| count(&mut part.shard, &mut slots, now_ms));
    let usage = ctx.env.slot_usage.clone();
    let asked = slots.iter().enumerate().filter(|(_, held)| held.is_asked);
    reply.array(asked.clone().count());
    for (slot, held) in asked {
        reply.array(9);
        reply.int_len(slot);
        let amounts = usage.as_ref().map(|usage| usage.of(slot as u16)).unwrap_or_default();
        let fields = [
            ("key_count", held.keys),
            ("total_reads", amounts.reads as usize),
            ("total_writes", amounts.writes as usize),
            ("memory_bytes", held.bytes),
        ];
        for (name, value) in fields {
            reply.bulk(name.as_bytes());
            reply.int_len(value);
        }
    }
    Ok(())
}

/// A slot, or the first and the last of a range.
fn range(word: &[u8]) -> Result<(usize, usize), Fault> {
    const INVALID: Fault = Fault::text("ERR Invalid slot id");
    let text = std::str::from_utf8(word).map_err(|_| INVALID)?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let slot =
        |text: &str| text.parse::<usize>().ok().filter(|slot| *slot < usize::from(SLOTS_LEN)).ok_or(INVALID);
    let (first, last) = (slot(first)?, slot(last)?);
    if first <= last { Ok((first, last)) } else { Err(INVALID) }
}

/// Index lines whose keys are collected before they are measured.
const LINES_AT_ONCE: usize = 64;

fn count(shard: &mut Shard, slots: &mut [SlotUse], now_ms: u64) {
    for db in 0..shard.dbs_len() {
        let mut next = Some(ScanPosition::START);
        while next.is_some() {
            let mut names: Vec<(usize, Box<[u8]>)> = Vec::new();
            for _ in 0..LINES_AT_ONCE {
                let Some(at) = next else { break };
                next = shard.scan(db, at, |record| {
                    let slot = usize::from(key_slot(record.key()));
                    if slots.get(slot).is_some_and(|held| held.is_asked) {
                        names.push((slot, record.key().into()));
                    }
                });
            }
            for (slot, name) in names {
                let key = shard.key(&name);
                let bytes = Keyed::find(shard, db, key, now_ms).memory_bytes();
                if let (Some(bytes), Some(held)) = (bytes, slots.get_mut(slot)) {
                    held.keys += 1;
                    held.bytes += bytes;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_slot_or_a_range() {
        assert_eq!(range(b"7").ok(), Some((7, 7)));
        assert_eq!(range(b"7-16383").ok(), Some((7, 16383)));
        for bad in ["", "x", "16384", "7-6", "-1", "1-", "1-2-3"] {
            assert!(range(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
