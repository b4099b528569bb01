//! A leaf of a sorted set: scores and members in order of (score, member text).
//!
//! Called by `Zset` only. It works on one block, or builds a new one out of parts of others, and knows nothing of the tree.
//!
//! ```text
//! u8 len | u8 cap | u8 score width, member width * 16 | u8 shift, 128 if raw | u32 id | u64 score base
//! u64 member base, or for members of any kind: u16 used, u16 room
//! cap x score width    (order number - base) >> shift; raw: the score's bits
//! cap x member width   integer members: order number - base; others: two bytes, 11 bits of offset of the member's code
//!                      and above them 5 bits that tell most codes apart
//! room bytes           codes, in the order they came
//! ```

use std::ops::Range;

use darter_slab::{Arena, Handle};

use super::member::{self, NewMember};
use super::score::{is_negative_zero, ord, score};
use crate::entry::{self, Item};
use crate::spill::Spill;
use crate::tree::LEAF_BYTES_MAX;
use crate::tree::block::bytes_of;
use crate::tree::word::{
    below, find, get_u16, get_u32, get_u64, get_wide, mask, put_u16, put_u32, put_u64, put_wide,
};

/// Bytes before the scores.
pub(super) const HEAD: usize = 24;
/// Most entries of a leaf.
pub(super) const LEN_MAX: usize = 160;
const RAW: u8 = 128;
const SLOTS: usize = 15;
const SLOT_BYTES: usize = 2;
/// The bits of a slot that are the offset.
const OFFSET: usize = 0x07FF;
/// Most room for codes: all offsets must fit into a slot.
pub(super) const ROOM_MAX: usize = OFFSET + 1;
/// Turns integers into unsigned ones that sort the same way.
pub(super) const SIGN: u64 = 1 << 63;
/// Tags of codes from here on are of strings out of line.
const SPILLED_TAG: u8 = 0xD0;

/// The form in which a leaf keeps its members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeafMembers {
    /// All are integers: `base` plus `width` bytes each.
    Ints { width: usize, base: u64 },
    /// Any: an offset each, then `used` of `room` bytes of codes.
    Slots { used: usize, room: usize },
}

/// The form in which a leaf keeps its scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scores {
    pub(super) width: usize,
    pub(super) shift: u32,
    pub(super) raw: bool,
    pub(super) base: u64,
}

impl Scores {
    /// Returns true if these scores can hold `value`.
    pub(super) fn holds(&self, value: f64) -> bool {
        self.code(value).is_some()
    }

    /// The code of `value`, if these scores can hold it.
    #[inline(always)]
    fn code(&self, value: f64) -> Option<u64> {
        if self.raw {
            return Some(value.to_bits());
        }
        let ord = ord(value);
        let offset = ord.wrapping_sub(self.base);
        let code = offset >> self.shift;
        let exact = code << self.shift == offset && code <= mask(self.width);
        (exact && ord >= self.base && !is_negative_zero(value)).then_some(code)
    }
}

/// The head of a leaf, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZsetLeafHead {
    // 0 <= len <= cap
    pub(super) len: usize,
    pub(super) cap: usize,
    pub(super) id: u32,
    pub(super) scores: Scores,
    pub(super) members: LeafMembers,
}

impl ZsetLeafHead {
    #[inline(always)]
    pub(super) fn of(block: &[u8]) -> ZsetLeafHead {
        let member_width = (block[2] >> 4) as usize;
        let members = match member_width {
            SLOTS => LeafMembers::Slots { used: get_u16(block, 16), room: get_u16(block, 18) },
            width => LeafMembers::Ints { width, base: get_u64(block, 16) },
        };
        let scores = Scores {
            width: (block[2] & 15) as usize,
            shift: u32::from(block[3] & !RAW),
            raw: block[3] & RAW != 0,
            base: get_u64(block, 8),
        };
        ZsetLeafHead {
            len: block[0] as usize,
            cap: block[1] as usize,
            id: get_u32(block, 4),
            scores,
            members,
        }
    }

    pub(super) fn write(&self, block: &mut [u8]) {
        debug_assert!(self.len <= self.cap && self.cap < 256);
        block[0] = self.len as u8;
        block[1] = self.cap as u8;
        let width = match self.members {
            LeafMembers::Slots { used, room } => {
                debug_assert!(used <= room);
                put_u16(block, 16, used);
                put_u16(block, 18, room);
                SLOTS
            }
            LeafMembers::Ints { width, base } => {
                put_u64(block, 16, base);
                width
            }
        };
        block[2] = (self.scores.width | width << 4) as u8;
        block[3] = self.scores.shift as u8 | if self.scores.raw { RAW } else { 0 };
        put_u32(block, 4, self.id);
        put_u64(block, 8, self.scores.base);
    }

    /// Offset of the score of entry `at`.
    #[inline(always)]
    pub(super) fn scores_at(&self, at: usize) -> usize {
        HEAD + at * self.scores.width
    }

    /// Offset of the integer or the slot of the member of entry `at`.
    #[inline(always)]
    pub(super) fn member_at(&self, at: usize) -> usize {
        self.members_at() + at * self.member_bytes()
    }

    #[inline(always)]
    fn members_at(&self) -> usize {
        HEAD + self.cap * self.scores.width
    }

    #[inline(always)]
    fn member_bytes(&self) -> usize {
        match self.members {
            LeafMembers::Ints { width, .. } => width,
            LeafMembers::Slots { .. } => SLOT_BYTES,
        }
    }

    #[inline(always)]
    fn codes_at(&self) -> usize {
        self.members_at() + self.cap * SLOT_BYTES
    }

    /// Bytes in use, without free room.
    pub(super) fn bytes(&self) -> usize {
        let codes = if let LeafMembers::Slots { used, .. } = self.members { used } else { 0 };
        HEAD + self.len * (self.scores.width + self.member_bytes()) + codes
    }

    /// Bytes in use with one more entry of the same shape.
    pub(super) fn bytes_with(&self, new: &NewMember<'_>) -> usize {
        let code = if let LeafMembers::Slots { .. } = self.members { new.len() } else { 0 };
        self.bytes() + self.scores.width + self.member_bytes() + code
    }

    /// The order number of the score of entry `at`.
    #[inline(always)]
    pub(super) fn ord(&self, block: &[u8], at: usize) -> u64 {
        let code = get_wide(block, HEAD + at * self.scores.width, self.scores.width);
        if self.scores.raw {
            ord(f64::from_bits(code))
        } else {
            self.scores.base + (code << self.scores.shift)
        }
    }

    /// The score of entry `at`.
    #[inline]
    pub(super) fn score(&self, block: &[u8], at: usize) -> f64 {
        let code = get_wide(block, HEAD + at * self.scores.width, self.scores.width);
        if self.scores.raw {
            f64::from_bits(code)
        } else {
            score(self.scores.base + (code << self.scores.shift))
        }
    }

    /// The code of the member of entry `at`, and the bytes after it; only for a leaf of mixed members.
    #[inline(always)]
    pub(super) fn code<'a>(&self, block: &'a [u8], at: usize) -> &'a [u8] {
        let offset = get_u16(block, self.members_at() + at * SLOT_BYTES) & OFFSET;
        &block[self.codes_at() + offset..]
    }

    /// The member of entry `at`.
    #[inline]
    pub(super) fn member<'a>(
        &self,
        block: &'a [u8],
        at: usize,
        arena: &'a Arena,
        spill: &'a Spill,
    ) -> Item<'a> {
        match self.members {
            LeafMembers::Ints { width, base } => {
                let offset = get_wide(block, self.members_at() + at * width, width);
                Item::Int((base.wrapping_add(offset) ^ SIGN) as i64)
            }
            LeafMembers::Slots { .. } => entry::read(self.code(block, at), arena, spill).0,
        }
    }

    /// The part of the member of entry `at` that is written; of a leaf of integers only.
    #[inline(always)]
    pub(super) fn int_offset(&self, block: &[u8], at: usize) -> u64 {
        let width = self.member_bytes();
        get_wide(block, self.members_at() + at * width, width)
    }

    /// The member of entry `at`; of a leaf of integers only.
    #[inline(always)]
    pub(super) fn int(&self, block: &[u8], at: usize) -> Item<'static> {
        let base = if let LeafMembers::Ints { base, .. } = self.members { base } else { 0 };
        Item::Int((base.wrapping_add(self.int_offset(block, at)) ^ SIGN) as i64)
    }

    /// Writes a score that the shape is known to hold.
    #[inline(always)]
    pub(super) fn put_score(&self, block: &mut [u8], at: usize, value: f64) {
        let width = self.scores.width;
        let code = self.scores.code(value);
        debug_assert!(code.is_some());
        put_wide(block, HEAD + at * width, width, code.unwrap_or(0));
    }

    /// Writes an integer member into a leaf of any members that has room.
    pub(super) fn put_any(&mut self, block: &mut [u8], at: usize, item: Item<'_>) {
        let new = NewMember::of(item);
        let mut code = [0; 16];
        new.write(&mut code);
        self.put_code(block, at, &code[..new.len()]);
    }

    /// Writes the code of a member into a leaf of any members that has room.
    #[inline(always)]
    pub(super) fn put_code(&mut self, block: &mut [u8], at: usize, code: &[u8]) {
        let (slot, codes) = (self.members_at() + at * SLOT_BYTES, self.codes_at());
        if let LeafMembers::Slots { used, .. } = &mut self.members {
            block[codes + *used..codes + *used + code.len()].copy_from_slice(code);
            put_u16(block, slot, *used | mark(code));
            *used += code.len();
        }
    }

    /// The ranges of the scores, the members and the codes in use.
    pub(super) fn regions(&self) -> [Range<usize>; 3] {
        let (members, codes) = (self.members_at(), self.codes_at());
        let codes = match self.members {
            LeafMembers::Slots { used, .. } => codes..codes + used,
            LeafMembers::Ints { .. } => 0..0,
        };
        [HEAD..HEAD + self.len * self.scores.width, members..members + self.len * self.member_bytes(), codes]
    }

    /// The place of a member.
    #[inline]
    pub(super) fn find(
        &self,
        block: &[u8],
        new: &NewMember<'_>,
        arena: &Arena,
        spill: &Spill,
    ) -> Option<usize> {
        match (self.members, new.item) {
            (LeafMembers::Ints { width, base }, Item::Int(value)) => {
                let offset = (value as u64 ^ SIGN).wrapping_sub(base);
                if offset > mask(width) {
                    return None;
                }
                let start = self.members_at();
                find(&block[start..start + width * self.len], width, offset)
            }
            (LeafMembers::Ints { .. }, Item::Bytes(_)) => None,
            (LeafMembers::Slots { .. }, _) => {
                let (coded, mark) = (new.coded(), new.mark());
                let start = self.members_at();
                let slots = block[start..start + self.len * SLOT_BYTES].as_chunks::<SLOT_BYTES>().0;
                let alike =
                    |slot: &[u8; SLOT_BYTES]| usize::from(u16::from_le_bytes(*slot)) & !OFFSET == mark;
                let mut alike = slots.iter().enumerate().filter(|(_, slot)| alike(slot));
                alike.find(|(at, _)| coded.is_at(self.code(block, *at), arena, spill)).map(|(at, _)| at)
            }
        }
    }

    /// Number of entries with an order number below `ord`.
    #[inline]
    pub(super) fn below(&self, block: &[u8], ord: u64) -> usize {
        let Scores { width, shift, raw, base } = self.scores;
        if raw {
            return partition(0, self.len, |at| self.ord(block, at) < ord);
        }
        let Some(offset) = ord.checked_sub(base) else { return 0 };
        // The lowest code whose number is not below `ord`; codes are compared, not numbers.
        let code = (offset >> shift) + u64::from(offset >> shift << shift != offset);
        below(&block[HEAD..HEAD + self.len * width], width, self.len, code)
    }

    /// Number of entries before (`ord`, `member`).
    #[inline]
    pub(super) fn before(
        &self,
        block: &[u8],
        ord: u64,
        member: Item<'_>,
        arena: &Arena,
        spill: &Spill,
    ) -> usize {
        let first = self.below(block, ord);
        if first == self.len || self.ord(block, first) > ord {
            return first;
        }
        partition(first, self.len, |at| {
            self.ord(block, at) == ord
                && member::compare(self.member(block, at, arena, spill), member).is_lt()
        })
    }

    /// The codes of the score and the member of an entry, if it can be added without another shape or a larger block.
    #[inline]
    fn accepts(&self, value: f64, new: &NewMember<'_>) -> Option<(u64, u64)> {
        if self.len == self.cap {
            return None;
        }
        let score = self.scores.code(value)?;
        match (self.members, new.item) {
            (LeafMembers::Ints { width, base }, Item::Int(value)) => {
                let offset = (value as u64 ^ SIGN).wrapping_sub(base);
                (offset <= mask(width)).then_some((score, offset))
            }
            (LeafMembers::Ints { .. }, Item::Bytes(_)) => None,
            (LeafMembers::Slots { used, room }, _) => {
                (used + new.len() <= room).then_some((score, used as u64))
            }
        }
    }

    /// Returns true if an entry would be accepted by the same shape in a larger block.
    pub(super) fn would_accept(&self, value: f64, new: &NewMember<'_>) -> bool {
        let mut larger = ZsetLeafHead { cap: self.cap + 1, ..*self };
        if let LeafMembers::Slots { room, .. } = &mut larger.members {
            *room += new.len();
        }
        larger.accepts(value, new).is_some()
    }
}

/// Adds an entry at `at` if the leaf can take it in its present shape.
#[inline]
pub(super) fn insert(block: &mut [u8], at: usize, value: f64, new: &NewMember<'_>) -> bool {
    let head = ZsetLeafHead::of(block);
    let Some((score, mut member)) = head.accepts(value, new) else { return false };
    if let LeafMembers::Slots { used, .. } = head.members {
        let (start, bytes) = (head.codes_at() + used, new.len());
        new.write(&mut block[start..start + bytes]);
        put_u16(block, 16, used + bytes);
        member |= mark(&block[start..start + bytes]) as u64;
    }
    open(block, HEAD, head.scores.width, at, head.len, score);
    open(block, head.members_at(), head.member_bytes(), at, head.len, member);
    block[0] = head.len as u8 + 1;
    true
}

/// Five bits of a slot that differ between most codes. Those of spilled members do not depend on the text.
#[inline]
pub(super) fn mark(code: &[u8]) -> usize {
    if code[0] >= SPILLED_TAG {
        return 0;
    }
    mark_of_last(code)
}

/// The mark of a code by its last bytes, at most eight.
#[inline]
pub(super) fn mark_of_last(code: &[u8]) -> usize {
    let mut last = [0; 8];
    match code.last_chunk::<8>() {
        Some(eight) => last = *eight,
        None => last[..code.len()].copy_from_slice(code),
    }
    let mixed = u64::from_le_bytes(last).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
    (mixed as usize) << OFFSET.count_ones()
}

/// Removes the entry at `at`. The caller must release its out-of-line part.
pub(super) fn remove(block: &mut [u8], at: usize) {
    let head = ZsetLeafHead::of(block);
    if let LeafMembers::Slots { used, .. } = head.members {
        let (slots, codes) = (head.members_at(), head.codes_at());
        let offset = get_u16(block, slots + at * SLOT_BYTES) & OFFSET;
        let size = entry::size(&block[codes + offset..]);
        block.copy_within(codes + offset + size..codes + used, codes + offset);
        for slot in block[slots..slots + head.len * SLOT_BYTES].chunks_exact_mut(SLOT_BYTES) {
            let old = u16::from_le_bytes([slot[0], slot[1]]);
            let moved = old - if old as usize & OFFSET > offset { size as u16 } else { 0 };
            slot.copy_from_slice(&moved.to_le_bytes());
        }
        put_u16(block, 16, used - size);
    }
    close(block, HEAD, head.scores.width, at, head.len);
    close(block, head.members_at(), head.member_bytes(), at, head.len);
    block[0] = head.len as u8 - 1;
}

/// Overwrites the score of entry `at` if the leaf can take it in its present shape. The entry's place must not
/// change.
pub(super) fn set_score(block: &mut [u8], at: usize, value: f64) -> bool {
    let scores = ZsetLeafHead::of(block).scores;
    let Some(code) = scores.code(value) else { return false };
    put_wide(block, HEAD + at * scores.width, scores.width, code);
    true
}

#[inline(always)]
fn open(block: &mut [u8], start: usize, width: usize, at: usize, len: usize, value: u64) {
    let (from, to) = (start + at * width, start + len * width);
    block.copy_within(from..to, from + width);
    put_wide(block, from, width, value);
}

#[inline(always)]
fn close(block: &mut [u8], start: usize, width: usize, at: usize, len: usize) {
    let (from, to) = (start + at * width, start + len * width);
    block.copy_within(from + width..to, from);
}

/// First index of `low..high` for which `before` does not hold.
#[inline(always)]
fn partition(mut low: usize, mut high: usize, mut before: impl FnMut(usize) -> bool) -> usize {
    while low < high {
        let middle = (low + high) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The id of a leaf.
pub(super) fn id(arena: &Arena, leaf: Handle) -> u32 {
    get_u32(bytes_of(arena, leaf), 4)
}

/// Returns true if a leaf is empty, or so small that it should shrink or be joined with another.
#[inline]
pub(super) fn is_sparse(arena: &Arena, leaf: Handle) -> bool {
    let head = ZsetLeafHead::of(bytes_of(arena, leaf));
    head.len == 0 || head.bytes() < LEAF_BYTES_MAX / 4 || head.bytes() < arena.size(leaf) / 2
}

/// Number of entries of a leaf.
#[inline]
pub(super) fn len(arena: &Arena, leaf: Handle) -> usize {
    bytes_of(arena, leaf)[0] as usize
}

/// Gives a leaf another id.
pub(super) fn set_id(block: &mut [u8], id: u32) {
    put_u32(block, 4, id);
}
