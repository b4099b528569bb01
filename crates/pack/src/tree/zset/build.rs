//! New leaves of a sorted set from runs of old ones: the only code by which a leaf grows, changes shape, splits,
//! joins or shrinks.

use std::ops::Range;

use darter_slab::{Arena, Handle};

use super::leaf::{HEAD, LEN_MAX, LeafMembers, ROOM_MAX, SIGN, Scores, ZsetLeafHead};
use super::member::NewMember;
use super::score::{is_negative_zero, ord};
use crate::entry;
use crate::tree::block::{bytes_of, bytes_of_mut, two_of_mut};
use crate::tree::owned::OwnedEntry;
use crate::tree::word::{differences, get_wide, least_and_most, mask, put_wide, width};
use crate::tree::{TreeFull, leaf_bytes};

/// A part of a new leaf.
#[derive(Clone, Copy)]
pub(super) enum ZsetPart<'a> {
    /// Entries `.1..(.2)` of a leaf.
    Run(Handle, usize, usize),
    /// An entry.
    One(f64, &'a NewMember<'a>),
}

impl ZsetPart<'_> {
    pub(super) fn len(&self) -> usize {
        match *self {
            ZsetPart::Run(_, from, to) => to - from,
            ZsetPart::One(..) => 1,
        }
    }
}

/// The first `keep` entries of `parts` and the others.
pub(super) fn cut<'a>(parts: &[ZsetPart<'a>; 3], keep: usize) -> [[ZsetPart<'a>; 3]; 2] {
    let (mut left, mut right) = (*parts, *parts);
    let mut keep = keep;
    for (left, right) in left.iter_mut().zip(right.iter_mut()) {
        let taken = keep.min(left.len());
        keep -= taken;
        match *left {
            ZsetPart::Run(leaf, from, to) => {
                *left = ZsetPart::Run(leaf, from, from + taken);
                *right = ZsetPart::Run(leaf, from + taken, to);
            }
            ZsetPart::One(..) if taken == 1 => *right = ZsetPart::Run(Handle::NONE, 0, 0),
            ZsetPart::One(..) => *left = ZsetPart::Run(Handle::NONE, 0, 0),
        }
    }
    [left, right]
}

/// Room a new leaf gets beyond its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Slack {
    None,
    /// An eighth of the entries.
    Some,
    /// An eighth and a few more, for a leaf of a large set.
    Ample,
}

/// The shape a leaf of some parts would have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZsetShape {
    pub(super) len: usize,
    scores: Scores,
    members: LeafMembers,
}

impl ZsetShape {
    /// The smallest shape that holds all parts. Cost: two passes over the entries.
    pub(super) fn of(arena: &Arena, parts: &[ZsetPart<'_>]) -> ZsetShape {
        let mut seen = SeenMember::default();
        for part in parts {
            match *part {
                ZsetPart::Run(leaf, from, to) if from < to => seen.run(bytes_of(arena, leaf), from, to),
                ZsetPart::Run(..) => {}
                ZsetPart::One(value, new) => {
                    seen.score(ord(value));
                    seen.raw |= is_negative_zero(value);
                    match new.item {
                        entry::Item::Int(value) => seen.int(value as u64 ^ SIGN),
                        entry::Item::Bytes(_) => seen.any = true,
                    }
                }
            }
        }
        let members = if seen.any {
            let used = parts.iter().map(|part| code_bytes(arena, part)).sum();
            LeafMembers::Slots { used, room: used }
        } else {
            seen.ints()
        };
        ZsetShape { len: seen.len, scores: seen.scores(), members }
    }

    /// Returns true if members are kept as slots and codes.
    pub(super) fn has_slots(&self) -> bool {
        matches!(self.members, LeafMembers::Slots { .. })
    }

    /// Bytes of a leaf of this shape without free room.
    pub(super) fn bytes(&self) -> usize {
        self.head(0, self.len, 0).bytes()
    }

    /// Returns true if a leaf of this shape is small enough for a leaf of at most `bytes_max`.
    pub(super) fn fits(&self, bytes_max: usize) -> bool {
        self.len <= LEN_MAX && self.bytes() <= bytes_max
    }

    fn head(&self, id: u32, cap: usize, extra: usize) -> ZsetLeafHead {
        let members = match self.members {
            LeafMembers::Slots { used, .. } => LeafMembers::Slots { used, room: used + extra },
            ints => ints,
        };
        ZsetLeafHead { len: self.len, cap, id, scores: self.scores, members }
    }

    /// A new leaf of the parts. Errors: nothing is kept. The out-of-line parts then belong to the new leaf.
    pub(super) fn build(
        &self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        parts: &[ZsetPart<'_>],
        slack: Slack,
        id: u32,
    ) -> Result<Handle, TreeFull> {
        let (leaf, head) = alloc(arena, owned, &self.head(id, self.len, 0), slack)?;
        // Entries are appended, so the length grows from nothing.
        let empty = match head.members {
            LeafMembers::Slots { room, .. } => LeafMembers::Slots { used: 0, room },
            ints => ints,
        };
        ZsetLeafHead { len: 0, members: empty, ..head }.write(bytes_of_mut(arena, leaf));
        for part in parts {
            match *part {
                ZsetPart::One(value, new) => append(bytes_of_mut(arena, leaf), value, new),
                ZsetPart::Run(source, from, to) if from < to => {
                    let (old, fresh) = two_of_mut(arena, source, leaf);
                    copy(old, from, to, fresh);
                }
                ZsetPart::Run(..) => {}
            }
        }
        debug_assert_eq!(ZsetLeafHead::of(bytes_of(arena, leaf)).len, self.len);
        Ok(leaf)
    }
}

/// A block for a leaf of `head`'s length and shape, with that head given the room the block has.
fn alloc(
    arena: &mut Arena,
    owned: &mut OwnedEntry,
    head: &ZsetLeafHead,
    slack: Slack,
) -> Result<(Handle, ZsetLeafHead), TreeFull> {
    let mut head = *head;
    let fixed = head.scores.width;
    let more = match slack {
        Slack::None => 0,
        Slack::Some => head.len / 8,
        Slack::Ample => head.len / 8 + 6,
    };
    let cap = (head.len + more).max(1);
    let (wanted, stride) = match head.members {
        LeafMembers::Ints { width, .. } => (HEAD + cap * (fixed + width), fixed + width),
        LeafMembers::Slots { used, .. } => {
            (HEAD + cap * (fixed + 2) + used + used / head.len.max(1) * more, fixed + 2)
        }
    };
    let wanted = if slack == Slack::None { wanted } else { leaf_bytes(wanted) };
    let leaf = owned.alloc(arena, wanted)?;
    // Room the class rounding gives is used too.
    let bytes = arena.size(leaf);
    match &mut head.members {
        LeafMembers::Ints { .. } => head.cap = ((bytes - HEAD) / stride.max(1)).min(CAP_MAX),
        LeafMembers::Slots { used, room } => {
            let code = *used / head.len.max(1);
            let spare = bytes - wanted;
            head.cap = (cap + spare / (stride + code)).min(CAP_MAX);
            *room = (bytes - HEAD - head.cap * stride).min(ROOM_MAX);
        }
    }
    Ok((leaf, head))
}

/// The same leaf in a larger block, with room for one more entry of its shape and code bytes. The caller frees the old block.
pub(super) fn enlarge(
    arena: &mut Arena,
    owned: &mut OwnedEntry,
    leaf: Handle,
    code: usize,
    slack: Slack,
) -> Result<Handle, TreeFull> {
    let old_head = ZsetLeafHead::of(bytes_of(arena, leaf));
    let mut wanted = old_head;
    wanted.len += 1;
    if let LeafMembers::Slots { used, .. } = &mut wanted.members {
        *used += code;
    }
    let (fresh, mut head) = alloc(arena, owned, &wanted, slack)?;
    head.len = old_head.len;
    if let (LeafMembers::Slots { used, .. }, LeafMembers::Slots { used: old, .. }) =
        (&mut head.members, old_head.members)
    {
        *used = old;
    }
    let (from, to) = two_of_mut(arena, leaf, fresh);
    head.write(to);
    for (source, target) in old_head.regions().into_iter().zip(head.regions()) {
        let bytes = source.len();
        to[target.start..target.start + bytes].copy_from_slice(&from[source]);
    }
    Ok(fresh)
}

/// The result of a pass over the entries.
#[derive(Default)]
struct SeenMember {
    len: usize,
    raw: bool,
    low: u64,
    high: u64,
    // All differences between order numbers, or-ed: their trailing zeros are not worth writing.
    differences: u64,
    any: bool,
    ints: bool,
    int_low: u64,
    int_high: u64,
    // The shape of the first run. If it is reused, copying only moves bytes.
    before: Option<(Scores, LeafMembers)>,
}

impl SeenMember {
    fn score(&mut self, ord: u64) {
        if self.len == 0 {
            self.low = ord;
        }
        self.high = ord;
        self.differences |= ord - self.low;
        self.len += 1;
    }

    fn int(&mut self, value: u64) {
        self.int_low = if self.ints { self.int_low.min(value) } else { value };
        self.int_high = if self.ints { self.int_high.max(value) } else { value };
        self.ints = true;
    }

    fn run(&mut self, block: &[u8], from: usize, to: usize) {
        let head = ZsetLeafHead::of(block);
        self.before.get_or_insert((head.scores, head.members));
        if head.scores.raw {
            self.raw |= (from..to).any(|at| is_negative_zero(head.score(block, at)));
            (from..to).for_each(|at| self.score(head.ord(block, at)));
        } else {
            // Sorted: the ends tell the span.
            self.score(head.ord(block, from));
            self.score(head.ord(block, to - 1));
            self.len = self.len + (to - from) - 2;
            let codes = &block[head.scores_at(from)..head.scores_at(to)];
            self.differences |= differences(codes, head.scores.width) << head.scores.shift;
        }
        match head.members {
            LeafMembers::Ints { width, base } => {
                let (low, high) = least_and_most(&block[head.member_at(from)..head.member_at(to)], width);
                self.int(base.wrapping_add(low));
                self.int(base.wrapping_add(high));
            }
            // A leaf of mixed members stays one: searching for integers again would cost more than it saves.
            LeafMembers::Slots { .. } => self.any = true,
        }
    }

    fn scores(&self) -> Scores {
        if self.raw {
            return Scores { width: 8, shift: 0, raw: true, base: 0 };
        }
        let shift = if self.differences == 0 { 0 } else { self.differences.trailing_zeros() };
        let span = (self.high - self.low) >> shift;
        let width = width(span);
        if let Some((before, _)) = self.before
            && (before.width, before.shift, before.raw) == (width, shift, false)
            && before.base <= self.low
            && (self.high - before.base) >> shift <= mask(width)
            && (self.low - before.base).trailing_zeros() >= shift
        {
            return before;
        }
        // Half of the spare codes lie below the lowest, so that later scores fit on either side.
        let below = ((mask(width) - span) / 2).checked_mul(1 << shift).unwrap_or(0);
        let base = self.low.checked_sub(below).unwrap_or(self.low);
        Scores { width, shift, raw: false, base }
    }

    fn ints(&self) -> LeafMembers {
        let span = self.int_high - self.int_low;
        let width = width(span).max(1);
        if let Some((_, LeafMembers::Ints { width: before, base })) = self.before
            && before == width
            && self.int_low.wrapping_sub(base) <= mask(width)
            && self.int_high.wrapping_sub(base) <= mask(width)
        {
            return LeafMembers::Ints { width, base };
        }
        let base = self.int_low.wrapping_sub((mask(width) - span) / 2);
        LeafMembers::Ints { width, base }
    }
}

/// Bytes that a part's codes take in a leaf of any members.
fn code_bytes(arena: &Arena, part: &ZsetPart<'_>) -> usize {
    code_lens(arena, part).sum()
}

/// Bytes of the code of each entry of a part.
fn code_lens<'a>(arena: &'a Arena, part: &'a ZsetPart<'a>) -> impl Iterator<Item = usize> + 'a {
    let (first, run, one) = match *part {
        ZsetPart::Run(leaf, from, to) if from < to => {
            let block = bytes_of(arena, leaf);
            (from, Some((block, ZsetLeafHead::of(block))), 0)
        }
        ZsetPart::Run(..) => (0, None, 0),
        ZsetPart::One(_, new) => (0, None, new.len()),
    };
    (first..first + part.len()).map(move |at| match run {
        None => one,
        Some((block, head)) => match head.members {
            LeafMembers::Slots { .. } => entry::size(head.code(block, at)),
            LeafMembers::Ints { .. } => NewMember::of(head.int(block, at)).len(),
        },
    })
}

/// Number of entries, of two or more, that are about half of them; in bytes for mixed members.
pub(super) fn middle(arena: &Arena, parts: &[ZsetPart<'_>; 3], slots: bool) -> usize {
    let len = parts.iter().map(ZsetPart::len).sum::<usize>();
    if !slots {
        return len.div_ceil(2);
    }
    // Bytes of an entry besides its code.
    const FIXED: usize = 6;
    let half = parts.iter().map(|part| code_bytes(arena, part) + FIXED * part.len()).sum::<usize>() / 2;
    let sizes = parts.iter().flat_map(|part| code_lens(arena, part).map(|len| len + FIXED));
    let before = sizes.scan(0, |sum, size| {
        *sum += size;
        Some(*sum)
    });
    before.take_while(|&sum| sum <= half).count().clamp(1, len - 1)
}

/// Appends an entry to a leaf that has room and the shape for it.
fn append(block: &mut [u8], value: f64, new: &NewMember<'_>) {
    let len = ZsetLeafHead::of(block).len;
    let added = super::leaf::insert(block, len, value, new);
    debug_assert!(added, "a leaf's shape holds what it was made for");
}

/// Appends entries `from..to` of one leaf to another that has room and the shape for them.
fn copy(old: &[u8], from: usize, to: usize, fresh: &mut [u8]) {
    let source = ZsetLeafHead::of(old);
    let mut target = ZsetLeafHead::of(fresh);
    copy_scores(&source, old, from..to, &target, fresh);
    match (source.members, target.members) {
        (LeafMembers::Ints { width, base }, LeafMembers::Ints { width: wide, base: other }) => {
            let first = (source.member_at(from), target.member_at(target.len));
            recode(old, (first.0, width), fresh, (first.1, wide), to - from, |v| {
                v.wrapping_add(base.wrapping_sub(other))
            });
        }
        (LeafMembers::Ints { .. }, LeafMembers::Slots { .. }) => {
            for at in from..to {
                target.put_any(fresh, target.len + at - from, source.int(old, at));
            }
        }
        (LeafMembers::Slots { .. }, _) => {
            for at in from..to {
                let code = source.code(old, at);
                target.put_code(fresh, target.len + at - from, &code[..entry::size(code)]);
            }
        }
    }
    target.len += to - from;
    target.write(fresh);
}

fn copy_scores(
    source: &ZsetLeafHead,
    old: &[u8],
    run: Range<usize>,
    target: &ZsetLeafHead,
    fresh: &mut [u8],
) {
    let (a, b) = (source.scores, target.scores);
    if a.raw || b.raw {
        for (entry, at) in run.enumerate() {
            target.put_score(fresh, target.len + entry, source.score(old, at));
        }
        return;
    }
    let first = (source.scores_at(run.start), target.scores_at(target.len));
    let added = a.base.wrapping_sub(b.base);
    recode(old, (first.0, a.width), fresh, (first.1, b.width), run.len(), |code| {
        (code << a.shift).wrapping_add(added) >> b.shift
    });
}

/// Writes packed numbers, given by where they start and their width, as `change` makes them.
#[inline(always)]
fn recode(
    old: &[u8],
    (from, width): (usize, usize),
    fresh: &mut [u8],
    (to, wide): (usize, usize),
    count: usize,
    change: impl Fn(u64) -> u64,
) {
    // Compare the least and the greatest: numbers in between may be unchanged while others are not.
    if width == wide && change(0) == 0 && change(mask(width)) == mask(width) {
        fresh[to..to + count * width].copy_from_slice(&old[from..from + count * width]);
        return;
    }
    for at in 0..count {
        put_wide(fresh, to + at * wide, wide, change(get_wide(old, from + at * width, width)));
    }
}

const CAP_MAX: usize = 255;
