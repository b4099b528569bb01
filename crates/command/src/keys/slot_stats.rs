//! CLUSTER SLOT-STATS SLOTSRANGE first last, or ORDERBY metric [LIMIT n] [ASC | DESC]: the number of keys in each slot of this node.

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_wire::{Args, Reply};

use super::slot::DISABLED;
use crate::reader::{self, is};
use crate::spec::{DatabaseReach, Flags, Group, Keys, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// CLUSTER SLOT-STATS.
pub const SLOT_STATS: DataCommand = DataCommand {
    spec: Spec { keys: Keys::None, ..Spec::other("cluster|slot-stats", -4) }
        .flag(Flags::STALE.with(Flags::LOADING))
        .databases(DatabaseReach::All)
        .reach(Reach::All)
        .tips(&["nondeterministic_output", "request_policy:all_shards"])
        .doc(
            Group::Cluster,
            "8.2.0",
            "<SLOTSRANGE start-slot end-slot | ORDERBY metric [LIMIT limit] [ASC | DESC]>",
            "Returns the number of keys in slots of this node.",
        )
        .cost("O(N) where N is the number of slots; in an emulated cluster O(N) over all keys"),
    run: slot_stats,
};

fn slot_stats(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    let own = ctx.env.own_slots.clone();
    let is_own = |slot: &u16| own.as_ref().is_none_or(|own| own.get(usize::from(*slot)) == Some(&true));
    let slots: Vec<(u16, usize)> = if is(args.at(2), "SLOTSRANGE") && args.len() == 5 {
        let (first, last) = (slot(args.at(3))?, slot(args.at(4))?);
        if first > last {
            let line = format!("ERR Start slot number {first} is greater than end slot number {last}");
            return Err(Fault::Text(line.into()));
        }
        let counts = count(ctx);
        (first..=last).filter(is_own).map(|slot| (slot, keys_of(&counts, slot))).collect()
    } else if is(args.at(2), "ORDERBY") {
        let (limit, order) = order(args)?;
        let counts = count(ctx);
        let mut slots: Vec<(u16, usize)> =
            (0..SLOTS_LEN).filter(is_own).map(|slot| (slot, keys_of(&counts, slot))).collect();
        match order {
            SortOrder::Ascending => slots.sort_by_key(|&(_, keys)| keys),
            SortOrder::Descending => slots.sort_by_key(|&(_, keys)| std::cmp::Reverse(keys)),
        }
        slots.truncate(limit);
        slots
    } else {
        return Err(Fault::Syntax);
    };
    reply.array(slots.len());
    for (slot, keys) in slots {
        reply.array(2);
        reply.int(i64::from(slot));
        reply.map(1);
        reply.bulk(b"key-count");
        reply.int_len(keys);
    }
    Ok(())
}

fn slot(word: &[u8]) -> Result<u16, Fault> {
    let slot = reader::int(word).ok().and_then(|slot| u16::try_from(slot).ok());
    slot.filter(|slot| *slot < SLOTS_LEN).ok_or(Fault::text("ERR Invalid or out of range slot"))
}

/// The order of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortOrder {
    Ascending,
    Descending,
}

/// The limit and the order that the words ask for. Errors: a metric that is not counted, or a word too many.
fn order(args: Args<'_>) -> Result<(usize, SortOrder), Fault> {
    if !is(args.at(3), "KEY-COUNT") {
        return Err(Fault::text("ERR Unrecognized sort metric for ORDERBY."));
    }
    let (mut limit, mut order, mut at) = (None, None, 4);
    while let Some(word) = args.get(at) {
        match args.get(at + 1) {
            Some(number) if is(word, "LIMIT") && limit.is_none() => {
                const INVALID: Fault =
                    Fault::text("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).");
                let number = usize::try_from(reader::int(number)?).map_err(|_| INVALID)?;
                limit =
                    Some(Some(number).filter(|n| (1..=usize::from(SLOTS_LEN)).contains(n)).ok_or(INVALID)?);
                at += 2;
            }
            _ if is(word, "ASC") && order.is_none() => (order, at) = (Some(SortOrder::Ascending), at + 1),
            _ if is(word, "DESC") && order.is_none() => (order, at) = (Some(SortOrder::Descending), at + 1),
            _ => return Err(Fault::Syntax),
        }
    }
    Ok((limit.unwrap_or(usize::from(SLOTS_LEN)), order.unwrap_or(SortOrder::Descending)))
}

fn keys_of(counts: &[usize], slot: u16) -> usize {
    counts.get(usize::from(slot)).copied().unwrap_or(0)
}

/// The keys of each slot, in all databases.
fn count(ctx: &mut Ctx<'_>) -> Vec<usize> {
    let mut counts = vec![0; usize::from(SLOTS_LEN)];
    let counts_slots = ctx.shards_mut().router().shard_of_slot(0).is_some();
    ctx.each_part(|_, part| {
        for db in 0..part.shard.dbs_len() {
            if part.shard.db(db).is_empty() {
                continue;
            }
            if counts_slots {
                let here = (0..SLOTS_LEN).zip(&mut counts).filter(|(slot, _)| part.shard.has_slot(*slot));
                here.for_each(|(slot, count)| *count += part.shard.slot_keys(db, slot).unwrap_or(0));
            } else {
                part.shard.each(db, |record| {
                    counts
                        .iter_mut()
                        .skip(usize::from(key_slot(record.key())))
                        .take(1)
                        .for_each(|count| *count += 1);
                });
            }
        }
    });
    counts
}

#[cfg(test)]
mod tests {
    use crate::testing::Bed;

    #[test]
    fn slots_are_listed_by_range_or_by_keys() {
        let mut bed = Bed::new();
        assert!(bed.run("cluster slot-stats slotsrange 0 1").starts_with("-ERR This instance"));
        bed.env.is_cluster = true;
        bed.run("mset {foo}1 a {foo}2 b {bar}1 c");
        assert_eq!(
            bed.run("cluster slot-stats slotsrange 5060 5061"),
            "*2|*2|:5060|*2|$9|key-count|:0|*2|:5061|*2|$9|key-count|:1"
        );
        assert_eq!(
            bed.run("cluster slot-stats orderby key-count limit 2"),
            "*2|*2|:12182|*2|$9|key-count|:2|*2|:5061|*2|$9|key-count|:1"
        );
        assert_eq!(
            bed.run("cluster slot-stats orderby key-count asc limit 1"),
            "*1|*2|:0|*2|$9|key-count|:0"
        );
        for (words, said) in [
            ("slotsrange 1", "-ERR syntax error"),
            ("slotsrange 2 1", "-ERR Start slot number 2 is greater than end slot number 1"),
            ("slotsrange 0 16384", "-ERR Invalid or out of range slot"),
            ("orderby cpu-usec", "-ERR Unrecognized sort metric for ORDERBY."),
            (
                "orderby key-count limit 0",
                "-ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ),
            ("orderby key-count asc desc", "-ERR syntax error"),
        ] {
            assert_eq!(bed.run(&format!("cluster slot-stats {words}")), said, "{words}");
        }
    }
}
