//! CLUSTER SLOT-STATS SLOTSRANGE first last, or ORDERBY metric [LIMIT n] [ASC | DESC]: the keys in each slot of this node, and
//! with `cluster-slot-stats-enabled` also the time and the bytes that its commands have taken.

use std::cmp::Reverse;

use darter_base::crc::{SLOTS_LEN, key_slot};
use darter_wire::{Args, Reply};

use super::slot::DISABLED;
use crate::reader::{self, is};
use crate::slot_usage::SlotUsage;
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
            "Returns the keys in slots of this node, and what their commands have taken.",
        )
        .cost("O(N) where N is the number of slots; in an emulated cluster O(N) over all keys"),
    run: slot_stats,
};

/// A column of the answer. The first is always there, the others if they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    Keys,
    Time,
    BytesIn,
    BytesOut,
}

impl Metric {
    const ALL: [Metric; 4] = [Metric::Keys, Metric::Time, Metric::BytesIn, Metric::BytesOut];

    fn name(self) -> &'static str {
        match self {
            Metric::Keys => "key-count",
            Metric::Time => "cpu-usec",
            Metric::BytesIn => "network-bytes-in",
            Metric::BytesOut => "network-bytes-out",
        }
    }

    /// The columns of an answer.
    fn shown(usage: Option<&SlotUsage>) -> &'static [Metric] {
        if usage.is_some() { &Metric::ALL } else { &[Metric::Keys] }
    }
}

/// A slot with its columns, in the order of [`Metric::ALL`].
struct SlotRow {
    slot: u16,
    columns: [u64; 4],
}

impl SlotRow {
    fn new(slot: u16, counts: &[usize], usage: Option<&SlotUsage>) -> SlotRow {
        let keys = counts.get(usize::from(slot)).copied().unwrap_or(0) as u64;
        let used = usage.map(|usage| usage.of(slot)).unwrap_or_default();
        SlotRow { slot, columns: [keys, used.time_us, used.bytes_in, used.bytes_out] }
    }

    fn of(&self, metric: Metric) -> u64 {
        self.columns.get(metric as usize).copied().unwrap_or(0)
    }
}

fn slot_stats(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if !ctx.env.is_cluster {
        return Err(DISABLED);
    }
    let (own, usage) = (ctx.env.own_slots.clone(), ctx.env.slot_usage.clone());
    let (own, usage) = (own.as_deref(), usage.as_deref());
    let is_own = |slot: &u16| own.is_none_or(|own| own.get(usize::from(*slot)) == Some(&true));
    let rows: Vec<SlotRow> = if is(args.at(2), "SLOTSRANGE") && args.len() == 5 {
        let (first, last) = (slot(args.at(3))?, slot(args.at(4))?);
        if first > last {
            let line = format!("ERR Start slot number {first} is greater than end slot number {last}");
            return Err(Fault::Text(line.into()));
        }
        let counts = count(ctx);
        (first..=last).filter(is_own).map(|slot| SlotRow::new(slot, &counts, usage)).collect()
    } else if is(args.at(2), "ORDERBY") {
        let wanted = SlotOrder::read(args, Metric::shown(usage))?;
        let counts = count(ctx);
        let mut rows: Vec<SlotRow> =
            (0..SLOTS_LEN).filter(is_own).map(|slot| SlotRow::new(slot, &counts, usage)).collect();
        match wanted.direction {
            SortOrder::Ascending => rows.sort_by_key(|row| row.of(wanted.metric)),
            SortOrder::Descending => rows.sort_by_key(|row| Reverse(row.of(wanted.metric))),
        }
        rows.truncate(wanted.limit);
        rows
    } else {
        return Err(Fault::wrong_form(args));
    };
    reply.array(rows.len());
    for row in rows {
        reply.array(2);
        reply.int(i64::from(row.slot));
        let shown = Metric::shown(usage);
        reply.map(shown.len());
        for metric in shown {
            reply.bulk(metric.name().as_bytes());
            reply.int(i64::try_from(row.of(*metric)).unwrap_or(i64::MAX));
        }
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

/// What ORDERBY asks for.
struct SlotOrder {
    metric: Metric,
    limit: usize,
    direction: SortOrder,
}

impl SlotOrder {
    /// Reads the words. Errors: a metric that is not counted, or a word too many.
    fn read(args: Args<'_>, shown: &[Metric]) -> Result<SlotOrder, Fault> {
        const INVALID: Fault =
            Fault::text("ERR Limit has to lie in between 1 and 16384 (maximum number of slots).");
        const TWICE: Fault = Fault::text("ERR Multiple filters of the same type are disallowed.");
        let metric = shown.iter().copied().find(|metric| is(args.at(3), metric.name()));
        let metric = metric.ok_or(Fault::text("ERR Unrecognized sort metric for ORDERBY."))?;
        let (mut limit, mut direction, mut at) = (None, None, 4);
        while let Some(word) = args.get(at) {
            let is_twice = match args.get(at + 1) {
                Some(number) if is(word, "LIMIT") => {
                    let number = reader::int(number).ok().and_then(|number| usize::try_from(number).ok());
                    let number =
                        number.filter(|n| (1..=usize::from(SLOTS_LEN)).contains(n)).ok_or(INVALID)?;
                    at += 1;
                    limit.replace(number).is_some()
                }
                _ if is(word, "ASC") => direction.replace(SortOrder::Ascending).is_some(),
                _ if is(word, "DESC") => direction.replace(SortOrder::Descending).is_some(),
                _ => return Err(Fault::Syntax),
            };
            if is_twice {
                return Err(TWICE);
            }
            at += 1;
        }
        let limit = limit.unwrap_or(usize::from(SLOTS_LEN));
        Ok(SlotOrder { metric, limit, direction: direction.unwrap_or(SortOrder::Descending) })
    }
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
    use std::sync::Arc;

    use crate::slot_usage::SlotUsage;
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
            (
                "slotsrange 1",
                "-ERR unknown subcommand or wrong number of arguments for 'slot-stats'. Try CLUSTER HELP.",
            ),
            ("slotsrange 2 1", "-ERR Start slot number 2 is greater than end slot number 1"),
            ("slotsrange 0 16384", "-ERR Invalid or out of range slot"),
            ("orderby cpu-usec", "-ERR Unrecognized sort metric for ORDERBY."),
            (
                "orderby key-count limit 0",
                "-ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ),
            (
                "orderby key-count limit x",
                "-ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ),
            ("orderby key-count limit", "-ERR syntax error"),
            ("orderby key-count asc desc", "-ERR Multiple filters of the same type are disallowed."),
            ("orderby key-count limit 1 limit 2", "-ERR Multiple filters of the same type are disallowed."),
        ] {
            assert_eq!(bed.run(&format!("cluster slot-stats {words}")), said, "{words}");
        }
    }

    #[test]
    fn what_is_counted_is_shown_and_orders_the_answer() {
        let mut bed = Bed::new();
        bed.env.is_cluster = true;
        let usage = Arc::new(SlotUsage::default());
        bed.env.slot_usage = Some(usage.clone());
        bed.run("set {bar}1 c");
        usage.add_time(7, 2_500_000);
        usage.add_bytes(7, 10, 20);
        usage.add_bytes(9, 30, 5);
        let row = |slot: u16, [keys, time, bytes_in, bytes_out]: [u64; 4]| {
            format!(
                "*2|:{slot}|*8|$9|key-count|:{keys}|$8|cpu-usec|:{time}|$16|network-bytes-in|:{bytes_in}|\
                 $17|network-bytes-out|:{bytes_out}"
            )
        };
        let (seven, nine) = (row(7, [0, 2500, 10, 20]), row(9, [0, 0, 30, 5]));
        let bar = row(5061, [1, 0, 0, 0]);
        for (metric, first) in [
            ("key-count", &bar),
            ("cpu-usec", &seven),
            ("network-bytes-in", &nine),
            ("network-bytes-out", &seven),
        ] {
            let said = bed.run(&format!("cluster slot-stats orderby {metric} limit 1"));
            assert_eq!(said, format!("*1|{first}"));
        }
        let refused = "-ERR Unrecognized sort metric for ORDERBY.";
        assert_eq!(bed.run("cluster slot-stats orderby memory-bytes"), refused);
        usage.reset(7);
        let said = bed.run("cluster slot-stats slotsrange 7 7");
        assert_eq!(said, format!("*1|{}", row(7, [0, 0, 0, 0])));
        assert_eq!(usage.of(9).bytes_in, 30);
        usage.reset_all();
        assert_eq!(usage.of(9).bytes_in, 0);
    }
}
