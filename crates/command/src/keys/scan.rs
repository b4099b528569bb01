//! SCAN, KEYS, RANDOMKEY: enumeration of keys.

use crate::category::Categories;
use darter_base::{glob, number};
use darter_store::{Record, ScanPosition, Shard, Type};
use darter_wire::{Args, Reply};

use super::walk::KEYS_MAX;
use crate::reader::{self, ArgReader};
use crate::slices::SlicesRest;
use crate::spec::{Group, Keys, Reach, Spec};
use crate::{Ctx, DataCommand, Fault};

/// SCAN.
pub const SCAN: DataCommand = DataCommand {
    spec: Spec::read("scan", -2, Keys::None)
        .tips(&["nondeterministic_output", "request_policy:special"])
        .reach(Reach::Run(scanned_shards))
        .doc(
            Group::Generic,
            "2.8.0",
            "cursor [MATCH pattern] [COUNT count] [TYPE type] [ATTR attribute] [MINMSZ bytes]",
            "Iterates over the keys of the selected database.",
        )
        .cost("O(1) for every call, O(N) for a whole iteration"),
    run: scan,
};

/// KEYS.
pub const KEYS: DataCommand = DataCommand {
    spec: Spec::read("keys", 2, Keys::None)
        .category(Categories::DANGEROUS)
        .tips(&["nondeterministic_output_order", "request_policy:all_shards"])
        .reach(Reach::All)
        .doc(
            Group::Generic,
            "1.0.0",
            "pattern",
            "Returns the keys that match a pattern, up to keys_output_limit if that is set.",
        )
        .cost("O(N) over the keys of the database"),
    run: keys,
};

/// RANDOMKEY.
pub const RANDOMKEY: DataCommand = DataCommand {
    spec: Spec::read("randomkey", 1, Keys::None)
        .tips(&["nondeterministic_output", "request_policy:all_shards"])
        .reach(Reach::All)
        .doc(Group::Generic, "1.0.0", "", "Returns a random key of the selected database."),
    run: randomkey,
};

/// The position of a scan: a shard, and a position in its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ScanCursor {
    shard: u16,
    at: ScanPosition,
}

/// There are at most 1,024 shards; the cursor stays below 2^53, which every client can hold.
const SHARD_BITS: u32 = 12;

impl ScanCursor {
    const START: ScanCursor = ScanCursor { shard: 0, at: ScanPosition::START };

    fn of_shard(shard: u16) -> ScanCursor {
        ScanCursor { shard, ..ScanCursor::START }
    }

    fn raw(self) -> u64 {
        self.at.raw() << SHARD_BITS | u64::from(self.shard)
    }

    /// Any number is a cursor, as C's `strtoul` reads it. Cursors that no scan returned find nothing, or continue
    /// somewhere.
    fn parse(arg: &[u8]) -> Option<ScanCursor> {
        let raw = match arg {
            [] => 0,
            [b'-', digits @ ..] => number::parse_u64_digits(digits)?.wrapping_neg(),
            [b'+', digits @ ..] | digits => number::parse_u64_digits(digits)?,
        };
        let shard = u16::try_from(raw & ((1 << SHARD_BITS) - 1)).ok()?;
        Some(ScanCursor { shard, at: ScanPosition::from_raw(raw >> SHARD_BITS) })
    }
}

/// Fewest shards that one call holds. A small database leaves most shards empty, and clients expect its keys in one
/// call, as in Redis.
const RUN_LEN_MIN: u16 = 64;

fn scanned_shards(args: Args<'_>, shards_len: u16) -> (u16, u16) {
    let first = ScanCursor::parse(args.at(1)).map_or(0, |cursor| cursor.shard.min(shards_len - 1));
    // a large COUNT wants many keys at once
    let count = ScanOptions::parse(args).map_or(0, |options| options.count);
    let len = u16::try_from(count / 128).unwrap_or(u16::MAX).max(RUN_LEN_MIN);
    (first, len.min(shards_len - first))
}

struct ScanOptions<'a> {
    pattern: Option<&'a [u8]>,
    count: u64,
    kind: ScanWanted,
    attribute: Option<Attribute>,
    // least bytes of the value
    bytes_min: usize,
}

/// The values that TYPE selects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanWanted {
    Any,
    One(Type),
    /// Those of an unsupported module: there are none.
    Foreign,
}

/// Names of types that modules of Redis and Dragonfly have.
const FOREIGN: [&str; 9] = [
    "ReJSON-RL",
    "MBbloom--",
    "MBbloomCF",
    "CMSk-TYPE",
    "TopK-TYPE",
    "TDIS-TYPE",
    "TSDB-TYPE",
    "vectorset",
    "array",
];

impl ScanWanted {
    fn parse(name: &[u8]) -> Result<ScanWanted, Fault> {
        if let Some(kind) = Type::ALL.into_iter().find(|kind| reader::is(name, kind.name())) {
            return Ok(ScanWanted::One(kind));
        }
        if FOREIGN.iter().any(|foreign| reader::is(name, foreign)) {
            return Ok(ScanWanted::Foreign);
        }
        let name = String::from_utf8_lossy(name.get(..128).unwrap_or(name));
        Err(Fault::Text(format!("ERR unknown type name '{name}'").into()))
    }

    fn fits(self, kind: Type) -> bool {
        self == ScanWanted::Any || self == ScanWanted::One(kind)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attribute {
    Volatile,
    Permanent,
}

impl<'a> ScanOptions<'a> {
    fn parse(args: Args<'a>) -> Result<ScanOptions<'a>, Fault> {
        let mut options =
            ScanOptions { pattern: None, count: 10, kind: ScanWanted::Any, attribute: None, bytes_min: 0 };
        let mut reader = ArgReader::new(args, 2);
        while !reader.is_done() {
            if reader.take_with("COUNT", 1) {
                let count = reader.int()?;
                options.count = u64::try_from(count).ok().filter(|&n| n > 0).ok_or(Fault::Syntax)?;
            } else if reader.take_with("MATCH", 1) {
                options.pattern = Some(reader.bytes()?).filter(|&pattern| pattern != b"*");
            } else if reader.take_with("TYPE", 1) {
                options.kind = ScanWanted::parse(reader.bytes()?)?;
            } else if reader.take_with("ATTR", 1) {
                options.attribute = Some(match reader.bytes()? {
                    b"v" => Attribute::Volatile,
                    b"p" => Attribute::Permanent,
                    _ => return Err(Fault::Syntax),
                });
            } else if reader.take_with("MINMSZ", 1) {
                options.bytes_min = usize::try_from(reader.int()?).map_err(|_| Fault::Syntax)?;
            } else {
                return Err(Fault::Syntax);
            }
        }
        Ok(options)
    }

    fn accepts(&self, shard: &Shard, record: Record<'_>) -> bool {
        let is_kind = self.kind.fits(record.value_type());
        let has_attribute = match self.attribute {
            None => true,
            Some(attribute) => (attribute == Attribute::Volatile) == record.deadline_ms().is_some(),
        };
        is_kind
            && has_attribute
            && (self.bytes_min == 0 || shard.value_bytes(record) >= self.bytes_min)
            && self.pattern.is_none_or(|pattern| glob::matches(pattern, record.key(), false))
    }
}

/// The remaining budget of one call, and its results.
struct Scanner<'a, 'r, 'o> {
    options: ScanOptions<'a>,
    now_ms: u64,
    db: usize,
    // keys looked at and keys answered
    seen: u64,
    found: usize,
    lines_left: u64,
    // expired keys of the shard, removed after it has been scanned
    dead: Vec<Box<[u8]>>,
    reply: &'r mut Reply<'o>,
}

impl Scanner<'_, '_, '_> {
    fn is_done(&self) -> bool {
        self.seen >= self.options.count.max(KEYS_MIN) || self.lines_left == 0
    }

    fn look(&mut self, shard: &Shard, record: Record<'_>) {
        self.seen += 1;
        if !self.options.accepts(shard, record) {
            return;
        }
        if !shard.shows(record, self.now_ms) {
            self.dead.push(record.key().into());
        } else {
            self.found += 1;
            self.reply.bulk(record.key());
        }
    }

    /// Scans a shard from `at`; returns the next position in it, `None` at its end.
    fn scan(&mut self, shard: &Shard, mut at: ScanPosition) -> Option<ScanPosition> {
        let db = shard.db(self.db);
        if at == ScanPosition::START && db.slots() <= SLOTS_MAX && db.len() as u64 <= self.options.count {
            // few keys, whose lines are contiguous
            shard.each(self.db, |record| self.look(shard, record));
            self.lines_left = self.lines_left.saturating_sub(1);
            return None;
        }
        loop {
            let next = shard.scan(self.db, at, |record| self.look(shard, record))?;
            self.lines_left = self.lines_left.saturating_sub(1);
            if self.is_done() {
                return Some(next);
            }
            at = next;
        }
    }
}

/// Places in an index that is walked at once: one segment of it.
const SLOTS_MAX: usize = 1024;

/// Fewest keys that a call examines, so that a tiny database is returned in one call.
const KEYS_MIN: u64 = 16;
/// Index lines that a call examines for each key wanted, so that a sparse database does not delay it.
const LINES_PER_KEY: u64 = 10;

fn scan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let cursor = ScanCursor::parse(args.at(1)).ok_or(Fault::text("ERR invalid cursor"))?;
    let options = ScanOptions::parse(args)?;
    let lines_left = options.count.max(KEYS_MIN).saturating_mul(LINES_PER_KEY);
    // keys are written before the cursor is known, so they have a separate buffer
    let mut keys = Vec::new();
    let mut found = Reply::new(&mut keys, reply.is_resp3());
    let (db, now_ms) = (ctx.db, ctx.now_ms);
    let mut scanner =
        Scanner { options, now_ms, db, seen: 0, found: 0, lines_left, dead: Vec::new(), reply: &mut found };
    let shards_len = ctx.shards_len();
    let mut at = cursor;
    let next = loop {
        let Some(part) = ctx.part(at.shard) else {
            break if at.shard < shards_len { at } else { ScanCursor::START };
        };
        let stopped = scanner.scan(&part.shard, at.at);
        for name in std::mem::take(&mut scanner.dead) {
            // The lookup removes it.
            ctx.at(&name);
        }
        if let Some(position) = stopped {
            break ScanCursor { at: position, ..at };
        }
        at = ScanCursor::of_shard(at.shard + 1);
        while ctx.part(at.shard).is_some_and(|part| part.shard.db(db).is_empty()) {
            at.shard += 1;
        }
        if at.shard >= shards_len {
            break ScanCursor::START;
        }
        if scanner.is_done() {
            break at;
        }
    };
    let count = scanner.found;
    reply.array(2);
    reply.bulk(next.raw().to_string().as_bytes());
    reply.array(count);
    reply.raw(&keys);
    Ok(())
}

fn keys(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (pattern, db, now_ms) = (args.at(1), ctx.db, ctx.now_ms);
    let limit = if ctx.env.keys_output_limit == 0 { u64::MAX } else { ctx.env.keys_output_limit };
    if ctx.may_slice {
        let mut keys = 0;
        ctx.each_part(|_, part| keys += part.shard.db(db).len());
        if keys > KEYS_MAX {
            ctx.rest = Some(SlicesRest::Keys);
            return Ok(());
        }
    }
    let takes_all = pattern == b"*";
    let begun = reply.begin_array();
    let (mut count, mut is_cut) = (0, false);
    ctx.each_part(|_, part| {
        let before = is_cut;
        let shard = &part.shard;
        shard.each(db, |record| {
            let is_match = !is_cut
                && shard.shows(record, now_ms)
                && (takes_all || glob::matches(pattern, record.key(), false));
            if is_match && (count as u64) < limit {
                reply.bulk(record.key());
                count += 1;
            } else {
                is_cut |= is_match;
            }
        });
        part.shard.answers_cut += u64::from(is_cut && !before);
    });
    reply.end_array(begun, count);
    Ok(())
}

fn randomkey(ctx: &mut Ctx<'_>, _: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let (db, now_ms) = (ctx.db, ctx.now_ms);
    // Every round either answers or removes a shard's expired keys.
    loop {
        let (mut total, mut random) = (0, 0);
        ctx.each_part(|_, part| {
            total += part.shard.visible_len(db) as u64;
            random ^= part.shard.rng.next_u64();
        });
        if total == 0 {
            reply.null();
            return Ok(());
        }
        let mut skip = random % total;
        let mut found = None;
        ctx.each_part(|_, part| {
            let len = part.shard.visible_len(db) as u64;
            if found.is_none() && skip < len {
                found = Some(part.shard.random_key(db, now_ms));
            }
            skip = skip.saturating_sub(len);
        });
        if let Some(Some(name)) = found {
            reply.bulk(&name);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_modules_are_known_and_have_no_keys() {
        let mut bed = crate::testing::Bed::new();
        bed.run("set k v");
        assert_eq!(bed.run("scan 0 type STRING"), "*2|$1|0|*1|$1|k");
        assert_eq!(bed.run("scan 0 type rejson-rl"), "*2|$1|0|*0");
        assert_eq!(bed.run("scan 0 count 1"), "*2|$1|0|*1|$1|k", "there is nothing more");
        assert_eq!(bed.run("scan 0 type string1"), "-ERR unknown type name 'string1'");
    }

    #[test]
    fn cursors_go_out_and_come_back() {
        for raw in [0, 1, 4095, 4096, (1 << 50) - 1] {
            let text = raw.to_string();
            assert_eq!(ScanCursor::parse(text.as_bytes()).map(ScanCursor::raw), Some(raw));
        }
        assert_eq!(ScanCursor::parse(b"00"), Some(ScanCursor::START));
        assert_eq!(ScanCursor::parse(b""), Some(ScanCursor::START));
        assert_eq!(ScanCursor::parse(b"-0"), Some(ScanCursor::START));
        assert!(ScanCursor::parse(b"-9223372036854775808").is_some());
        assert_eq!(ScanCursor::parse(b"x"), None);
        assert_eq!(ScanCursor::parse(b"1 "), None);
        assert_eq!(ScanCursor::parse(b"99999999999999999999"), None);
        assert!(ScanCursor::parse(b"18446744073709551615").is_some());
    }
}
