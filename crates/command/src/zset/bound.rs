//! Ranges as clients write them, by rank, by score or by text, and the run of ranks of each.

use darter_base::number;
use darter_pack::decimal::Digits;
use darter_pack::entry::Item;
use darter_pack::tree::zset::Edge;
use darter_pack::tree::{Direction, Zset};
use darter_store::KeyView;

use crate::{Fault, reader};

/// The order of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeBy {
    /// Places in the order; negative ones count from the end.
    Rank,
    /// Scores.
    Score,
    /// Member texts, meaningful if all scores are equal.
    Text,
}

/// A range of a sorted set.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ScoreRange<'a> {
    /// From the first to the second, both included.
    Rank(i64, i64),
    /// Between two scores.
    Score((f64, Edge), (f64, Edge)),
    /// Between two texts.
    Text(TextBound<'a>, TextBound<'a>),
}

/// An end of a range by text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextBound<'a> {
    /// `-`: before every text.
    Lowest,
    /// `+`: after every text.
    Highest,
    /// Beside the entries equal to a text.
    At(&'a [u8], Edge),
}

/// A run of members from a rank on, counted from the lowest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankRun {
    /// Rank of the first.
    pub first: u64,
    /// Their number.
    pub len: u64,
}

impl<'a> ScoreRange<'a> {
    /// Reads a range; `min` and `max` are its lower and its upper end in both directions.
    ///
    /// Errors: an end does not suit the order.
    pub fn parse(by: RangeBy, min: &'a [u8], max: &'a [u8]) -> Result<ScoreRange<'a>, Fault> {
        match by {
            RangeBy::Rank => Ok(ScoreRange::Rank(reader::int(min)?, reader::int(max)?)),
            RangeBy::Score => {
                let ends = (score_bound(min, Edge::Before), score_bound(max, Edge::After));
                let (Some(min), Some(max)) = ends else {
                    return Err(Fault::text("ERR min or max is not a float"));
                };
                Ok(ScoreRange::Score(min, max))
            }
            RangeBy::Text => {
                let ends = (text_bound(min, Edge::Before), text_bound(max, Edge::After));
                let (Some(min), Some(max)) = ends else {
                    return Err(Fault::text("ERR min or max not valid string range item"));
                };
                Ok(ScoreRange::Text(min, max))
            }
        }
    }

    /// The covered members. Ranks are unchanged, from the lowest. Cost: O(log n).
    pub fn run(&self, zset: KeyView<'_, Zset>) -> RankRun {
        let (set, arena) = (zset.root, zset.arena);
        let (from, to) = match *self {
            ScoreRange::Rank(start, stop) => return RankRun::of_ranks(start, stop, set.len()),
            ScoreRange::Score((min, from), (max, to)) => {
                (set.rank_of_score(arena, min, from), set.rank_of_score(arena, max, to))
            }
            ScoreRange::Text(min, max) if has_one_score(zset) => (min.rank(zset), max.rank(zset)),
            ScoreRange::Text(min, max) => return run_of_mixed(zset, min, max),
        };
        RankRun { first: from, len: to.saturating_sub(from) }
    }
}

impl TextBound<'_> {
    /// Returns true if a member is before the bound.
    fn is_above(self, member: Item<'_>) -> bool {
        match self {
            TextBound::Lowest => false,
            TextBound::Highest => true,
            TextBound::At(text, Edge::Before) => member.text(&mut Digits::new()) < text,
            TextBound::At(text, Edge::After) => member.text(&mut Digits::new()) <= text,
        }
    }

    fn rank(self, zset: KeyView<'_, Zset>) -> u64 {
        match self {
            TextBound::Lowest => 0,
            TextBound::Highest => zset.root.len(),
            TextBound::At(text, edge) => zset.root.rank_of_text(zset.arena, text, edge),
        }
    }
}

/// Returns true if all scores are equal, so that members are in order of text.
fn has_one_score(zset: KeyView<'_, Zset>) -> bool {
    let score = |rank| zset.root.nth(zset.arena, rank).map(|(_, score)| score);
    score(0) == score(zset.root.len().saturating_sub(1))
}

/// A range by text of texts that are unordered, or ordered by chance: the result that Redis finds by a walk in a
/// listpack, or by bisection in a skip list.
fn run_of_mixed(zset: KeyView<'_, Zset>, min: TextBound<'_>, max: TextBound<'_>) -> RankRun {
    let len = zset.root.len();
    if len <= WALKED_MAX {
        let mut members = zset.root.iter(zset.arena, 0, Direction::Up).map(|(member, _)| member).peekable();
        let mut first = 0;
        while members.next_if(|&member| min.is_above(member)).is_some() {
            first += 1;
        }
        let in_range = members.take_while(|&member| max.is_above(member)).count();
        return RankRun { first, len: in_range as u64 };
    }
    let rank = |bound: TextBound<'_>| {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            match zset.root.nth(zset.arena, middle) {
                Some((member, _)) if bound.is_above(member) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    };
    let first = rank(min);
    RankRun { first, len: rank(max).saturating_sub(first) }
}

/// Sets up to this length are walked: Redis' default threshold for listpacks.
const WALKED_MAX: u64 = 128;

impl RankRun {
    /// The ranks `start..=stop` of a set of `len` members; negative ones count from the end.
    pub fn of_ranks(start: i64, stop: i64, len: u64) -> RankRun {
        let rank = |n: i64| match u64::try_from(n) {
            Ok(n) => Some(n),
            Err(_) => len.checked_sub(n.unsigned_abs()),
        };
        let first = rank(start).unwrap_or(0);
        match rank(stop) {
            Some(stop) if first <= stop && first < len => {
                RankRun { first, len: stop.min(len - 1) - first + 1 }
            }
            _ => RankRun { first: 0, len: 0 },
        }
    }

    /// The same run seen from the other end of a set of `len` members.
    pub fn mirrored(self, len: u64) -> RankRun {
        RankRun { first: len.saturating_sub(self.first).saturating_sub(self.len), ..self }
    }

    /// The rest after skipping `offset` members and taking at most `count`. A negative offset leaves nothing, a
    /// negative count takes all. `is_reversed`: the skipping begins at the high end.
    pub fn limited(self, offset: i64, count: i64, is_reversed: bool) -> RankRun {
        let Ok(offset) = u64::try_from(offset) else { return RankRun { len: 0, ..self } };
        let left = self.len.saturating_sub(offset);
        let len = u64::try_from(count).map_or(left, |count| count.min(left));
        let skipped = if is_reversed { left - len } else { offset.min(self.len) };
        RankRun { first: self.first + skipped, len }
    }
}

/// A score, after `(` an excluded one; `side` is the edge of an included one.
fn score_bound(arg: &[u8], side: Edge) -> Option<(f64, Edge)> {
    match arg.strip_prefix(b"(") {
        Some(excluded) => Some((strtod(excluded)?, other(side))),
        None => Some((strtod(arg)?, side)),
    }
}

fn text_bound(arg: &[u8], side: Edge) -> Option<TextBound<'_>> {
    match arg {
        b"-" => Some(TextBound::Lowest),
        b"+" => Some(TextBound::Highest),
        [b'[', text @ ..] => Some(TextBound::At(text, side)),
        [b'(', text @ ..] => Some(TextBound::At(text, other(side))),
        _ => None,
    }
}

const fn other(edge: Edge) -> Edge {
    match edge {
        Edge::Before => Edge::After,
        Edge::After => Edge::Before,
    }
}

/// The number that C's `strtod` reads from all of `arg`. Unlike in a score, leading spaces are allowed, an empty text
/// is 0, and a number out of range is infinite or 0.
fn strtod(arg: &[u8]) -> Option<f64> {
    if let Some(value) = number::parse_f64(arg) {
        return Some(value);
    }
    let text = std::str::from_utf8(arg).ok()?;
    let text = text.trim_start_matches(|c: char| c == ' ' || ('\t'..='\r').contains(&c));
    if text.is_empty() {
        return arg.is_empty().then_some(0.0);
    }
    let value = number::parse_f64(text.as_bytes()).or_else(|| text.parse().ok())?;
    (!value.is_nan()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_clipped() {
        let run = |start, stop| RankRun::of_ranks(start, stop, 5);
        assert_eq!(run(0, -1), RankRun { first: 0, len: 5 });
        assert_eq!(run(i64::MIN, i64::MAX), RankRun { first: 0, len: 5 });
        assert_eq!(run(-2, 100), RankRun { first: 3, len: 2 });
        assert_eq!(run(3, 2).len, 0);
        assert_eq!(run(5, 9).len, 0);
        assert_eq!(run(0, -9).len, 0);
        assert_eq!(run(0, 1).mirrored(5), RankRun { first: 3, len: 2 });
    }

    #[test]
    fn limits_skip_from_the_end_the_walk_begins_at() {
        let run = RankRun { first: 10, len: 5 };
        assert_eq!(run.limited(1, 2, false), RankRun { first: 11, len: 2 });
        assert_eq!(run.limited(1, 2, true), RankRun { first: 12, len: 2 });
        assert_eq!(run.limited(4, 9, true), RankRun { first: 10, len: 1 });
        assert_eq!(run.limited(1, -1, false), RankRun { first: 11, len: 4 });
        assert_eq!(run.limited(-1, 2, false).len, 0);
        assert_eq!(run.limited(i64::MAX, i64::MAX, true).len, 0);
        assert_eq!(run.limited(0, 0, false).len, 0);
    }

    #[test]
    fn bounds_are_read_as_strtod_reads_them() {
        assert_eq!(score_bound(b"(1.5", Edge::Before), Some((1.5, Edge::After)));
        assert_eq!(score_bound(b"(", Edge::After), Some((0.0, Edge::Before)));
        assert_eq!(strtod(b""), Some(0.0));
        assert_eq!(strtod(b" 7"), Some(7.0));
        assert_eq!(strtod(b"-INF"), Some(f64::NEG_INFINITY));
        assert_eq!(strtod(b"1e999"), Some(f64::INFINITY));
        assert_eq!(strtod(b"0x10"), Some(16.0));
        for wrong in [&b"nan"[..], b"7 ", b"(1", b"x", b" ", b"1e", b"."] {
            assert_eq!(strtod(wrong), None, "{wrong:?}");
        }
    }
}
