//! ARGET key index, ARMGET key index [index ...], ARGETRANGE key start end, ARSCAN key start end [LIMIT limit],
//! ARLASTITEMS key count [REV], ARCOUNT key, ARLEN key, ARINFO key [FULL]

use darter_base::number;
use darter_store::{Arena, Array};
use darter_wire::{Args, Reply};

use super::long_read::{self, PlaceSpan, RangeCollector, Took};
use super::{place, range, read, reply_number, spec};
use crate::reader::is;
use crate::{Ctx, DataCommand, Fault};

/// ARGET.
pub const ARGET: DataCommand = DataCommand {
    spec: spec(read("arget", 3).fast(), "key index", "Gets the value at an index in an array."),
    run: get,
};
/// ARMGET.
pub const ARMGET: DataCommand = DataCommand {
    spec: spec(
        read("armget", -3).fast(),
        "key index [index ...]",
        "Gets values at multiple indices in an array.",
    )
    .cost("O(N) where N is the number of indices"),
    run: get_many,
};
/// ARGETRANGE.
pub const ARGETRANGE: DataCommand = DataCommand {
    spec: spec(read("argetrange", 4), "key start end", "Gets values in a range of indices.")
        .cost("O(N) where N is the range length"),
    run: get_range,
};
/// ARSCAN.
pub const ARSCAN: DataCommand = DataCommand {
    spec: spec(
        read("arscan", -4),
        "key start end [LIMIT limit]",
        "Iterates existing elements in a range, returning index-value pairs.",
    )
    .cost("O(N) where N is the number of existing elements in range"),
    run: scan,
};
/// ARLASTITEMS.
pub const ARLASTITEMS: DataCommand = DataCommand {
    spec: spec(read("arlastitems", -3), "key count [REV]", "Returns the most recently inserted elements.")
        .cost("O(N) where N is the number of elements returned"),
    run: last_items,
};
/// ARCOUNT.
pub const ARCOUNT: DataCommand = DataCommand {
    spec: spec(read("arcount", 2).fast(), "key", "Returns the number of non-empty elements in an array."),
    run: |ctx, args, reply| size(ctx, args, reply, |array, _| array.count()),
};
/// ARLEN.
pub const ARLEN: DataCommand = DataCommand {
    spec: spec(read("arlen", 2).fast(), "key", "Returns the length of an array (max index + 1)."),
    run: |ctx, args, reply| size(ctx, args, reply, Array::len),
};
/// ARINFO.
pub const ARINFO: DataCommand = DataCommand {
    spec: spec(read("arinfo", -2), "key [FULL]", "Returns metadata about an array.")
        .cost("O(1), or O(N) with FULL option where N is the number of slices"),
    run: info,
};

/// Places that ARGETRANGE answers at most.
const RANGE_MAX: u64 = 1_000_000;
/// Places of a block, as ARINFO calls a slice.
const SLICE: i64 = 64;

fn get(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let at = place(args.at(2))?;
    let key = ctx.read(args.at(1));
    reply.bulk_or_null(key.view::<Array>()?.and_then(|view| view.root.get(view.arena, at)));
    Ok(())
}

fn get_many(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let places = args.tail(2).iter().map(place).collect::<Result<Vec<u64>, Fault>>()?;
    let key = ctx.read(args.at(1));
    let view = key.view::<Array>()?;
    reply.array(places.len());
    for at in places {
        reply.bulk_or_null(view.and_then(|view| view.root.get(view.arena, at)));
    }
    Ok(())
}

fn get_range(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let ((low, high), is_reversed) = range(args.at(2), args.at(3))?;
    if high - low >= RANGE_MAX {
        return Err(Fault::text("ERR range exceeds maximum of 1000000 items"));
    }
    long_read::answer(
        ctx,
        args.at(1),
        vec![PlaceSpan { low, high, is_reversed }],
        EachPlace::default(),
        reply,
    )
}

/// Answers each place of the spans: its text, or null.
#[derive(Clone, Default)]
struct EachPlace {
    // The next place of the span; `None` behind its last.
    next: Option<u64>,
    last: u64,
    is_reversed: bool,
    len: usize,
}

impl EachPlace {
    fn advance(&mut self) {
        self.len += 1;
        self.next = self.next.filter(|&next| next != self.last).map(|next| match self.is_reversed {
            true => next.wrapping_sub(1),
            false => next.wrapping_add(1),
        });
    }

    /// Writes nulls up to `end`, as far as there is room; returns whether there was.
    fn skip_to(&mut self, end: Option<u64>, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        while self.next != end {
            if reply.len() >= bytes_max {
                return false;
            }
            reply.null();
            self.advance();
        }
        true
    }
}

impl RangeCollector for EachPlace {
    fn begin(&mut self, PlaceSpan { low, high, is_reversed }: PlaceSpan) {
        let (first, last) = if is_reversed { (high, low) } else { (low, high) };
        (self.next, self.last, self.is_reversed) = (Some(first), last, is_reversed);
    }

    fn take(&mut self, at: u64, text: &[u8], reply: &mut Reply<'_>, bytes_max: usize) -> Took {
        if !self.skip_to(Some(at), reply, bytes_max) {
            return Took::Again;
        }
        reply.bulk(text);
        self.advance();
        Took::On
    }

    fn end(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        self.skip_to(None, reply, bytes_max)
    }

    fn len(&self) -> Option<usize> {
        Some(self.len)
    }
}

fn limit(args: Args<'_>, at: usize) -> Result<usize, Fault> {
    match (args.get(at), args.get(at + 1), args.len() - at) {
        (None, ..) => Ok(usize::MAX),
        (Some(word), Some(limit), 2) if is(word, "LIMIT") => positive(limit),
        _ => Err(Fault::Syntax),
    }
}

/// A number of elements above 0.
pub(super) fn positive(word: &[u8]) -> Result<usize, Fault> {
    let count = number::parse_i64(word).ok_or(Fault::NotInteger)?;
    usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Fault::text("ERR LIMIT must be positive"))
}

fn scan(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let ((low, high), is_reversed) = range(args.at(2), args.at(3))?;
    let pairs = Pairs { limit: limit(args, 4)?, len: 0 };
    long_read::answer(ctx, args.at(1), vec![PlaceSpan { low, high, is_reversed }], pairs, reply)
}

/// Answers the texts with their places.
#[derive(Clone)]
struct Pairs {
    limit: usize,
    len: usize,
}

impl RangeCollector for Pairs {
    fn take(&mut self, at: u64, text: &[u8], reply: &mut Reply<'_>, _bytes_max: usize) -> Took {
        reply.array(2);
        reply_number(reply, at);
        reply.bulk(text);
        self.len += 1;
        if self.len < self.limit { Took::On } else { Took::Last }
    }

    fn len(&self) -> Option<usize> {
        Some(self.len)
    }
}

/// The last `count` insertion places, the newest first: back from the cursor, and from the end on behind 0.
fn last_places(array: &Array, arena: &Arena, count: u64) -> Vec<PlaceSpan> {
    let len = array.len(arena);
    let count = count.min(len);
    let newest = array.cursor.unwrap_or(u64::MAX).min(len.wrapping_sub(1));
    let before = count.min(newest.saturating_add(1));
    let behind = count - before;
    let span = |end: u64, places: u64| PlaceSpan { low: end - places, high: end - 1, is_reversed: true };
    let spans = [(newest.saturating_add(1), before), (len, behind)];
    spans.into_iter().filter(|(_, places)| *places > 0).map(|(end, places)| span(end, places)).collect()
}

fn last_items(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let count =
        number::parse_i64(args.at(2)).and_then(|count| u64::try_from(count).ok()).ok_or(Fault::NotInteger)?;
    let is_newest_first = match (args.get(3), args.len()) {
        (None, _) => false,
        (Some(word), 4) if is(word, "REV") => true,
        _ => return Err(Fault::Syntax),
    };
    let key = ctx.read(args.at(1));
    let mut spans = key
        .view::<Array>()?
        .map_or_else(Vec::new, |view| last_places(view.root, view.arena, count.min(view.root.count())));
    if !is_newest_first {
        spans.reverse();
        spans.iter_mut().for_each(|span| span.is_reversed = false);
    }
    long_read::answer(ctx, args.at(1), spans, EachPlace::default(), reply)
}

fn size(
    ctx: &mut Ctx<'_>,
    args: Args<'_>,
    reply: &mut Reply<'_>,
    measure: fn(&Array, &Arena) -> u64,
) -> Result<(), Fault> {
    let key = ctx.read(args.at(1));
    reply_number(reply, key.view::<Array>()?.map_or(0, |view| measure(view.root, view.arena)));
    Ok(())
}

fn info(ctx: &mut Ctx<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let is_full = match (args.get(2), args.len()) {
        (None, _) => false,
        (Some(word), 3) if is(word, "FULL") => true,
        _ => return Err(Fault::Syntax),
    };
    let key = ctx.read(args.at(1));
    let view = key.view::<Array>()?.ok_or(Fault::NoSuchKey)?;
    let (array, slices) = (view.root, view.root.blocks_len());
    reply.map(6 + if is_full { 5 } else { 0 });
    let mut row = |name: &str, number: u64| {
        reply.bulk(name.as_bytes());
        reply_number(reply, number);
    };
    row("count", array.count());
    row("len", array.len(view.arena));
    row("next-insert-index", array.cursor.map_or(0, |cursor| cursor.saturating_add(1)));
    row("slices", slices as u64);
    row("directory-size", array.pages_len() as u64);
    row("slice-size", SLICE.unsigned_abs());
    if is_full {
        // Every block is packed: none is laid out for all of its places.
        row("dense-slices", 0);
        row("sparse-slices", slices as u64);
        let average = |sum: f64| if slices == 0 { 0.0 } else { sum / slices as f64 };
        for (name, number) in [
            ("avg-dense-size", 0.0),
            ("avg-dense-fill", 0.0),
            ("avg-sparse-size", average(array.count() as f64)),
        ] {
            reply.bulk(name.as_bytes());
            reply.double(number);
        }
    }
    Ok(())
}
