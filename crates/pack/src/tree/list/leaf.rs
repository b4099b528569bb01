//! A leaf of a list: integers of one width back to back, or any items each followed by its length, with room at both ends.
//!
//! Called by `List` only. It moves bytes within one block or from old blocks into a new one, and knows nothing of the tree.
//!
//! ```text
//! u16 start | u16 end | u16 len | u8 width | u8 cap / 8 | room | items from start to end | room
//! width 1..=8: an integer is that many bytes, two's complement, low byte first
//! width 0:     an item is its code, then the code's length in one byte, or in two of which the last has its top bit set
//! ```

use darter_slab::{Arena, Handle};

use crate::decimal::Digits;
use crate::entry::{self, Coded, Item};
use crate::spill::Spill;
use crate::tree::TreeFull;
use crate::tree::block::{bytes_of, bytes_of_mut, two_of_mut};
use crate::tree::owned::OwnedEntry;
use crate::tree::word::{get_u16, get_wide, put_u16, put_wide};

/// An end of a list or a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListEnd {
    /// The head, index 0.
    Front,
    /// The tail, the highest index.
    Back,
}

/// Bytes before the items.
pub(super) const HEAD: usize = 8;

/// The head of a leaf, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListLeafHead {
    // HEAD <= start <= end <= cap
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) len: usize,
    // 0 (any items) to 8 (integers)
    pub(super) width: usize,
    pub(super) cap: usize,
}

impl ListLeafHead {
    #[inline(always)]
    pub(super) fn of(block: &[u8]) -> ListLeafHead {
        ListLeafHead {
            start: get_u16(block, 0),
            end: get_u16(block, 2),
            len: get_u16(block, 4),
            width: block[6] as usize,
            cap: block[7] as usize * 8,
        }
    }

    #[inline(always)]
    pub(super) fn write(&self, block: &mut [u8]) {
        debug_assert!(HEAD <= self.start && self.start <= self.end && self.end <= self.cap);
        put_u16(block, 0, self.start);
        put_u16(block, 2, self.end);
        put_u16(block, 4, self.len);
        block[6] = self.width as u8;
        block[7] = (self.cap / 8) as u8;
    }

    /// Bytes of the items.
    #[inline]
    pub(super) fn payload(&self) -> usize {
        self.end - self.start
    }

    /// Returns true if a block half the size would do.
    #[inline]
    pub(super) fn is_sparse(&self) -> bool {
        self.cap > 64 && HEAD + self.payload() < self.cap / 2
    }

    /// Offset of item `at` (0 to len; len gives the end). Cost: O(1) for integers, else a walk from the nearer end.
    pub(super) fn offset(&self, block: &[u8], at: usize) -> usize {
        debug_assert!(at <= self.len);
        if self.width > 0 {
            return self.start + at * self.width;
        }
        if at <= self.len / 2 {
            let mut offset = self.start;
            for _ in 0..at {
                offset = after(block, offset);
            }
            return offset;
        }
        let mut offset = self.end;
        for _ in at..self.len {
            offset = before(block, offset);
        }
        offset
    }

    /// The item at an offset.
    #[inline]
    pub(super) fn item<'a>(
        &self,
        block: &'a [u8],
        offset: usize,
        arena: &'a Arena,
        spill: &'a Spill,
    ) -> Item<'a> {
        match self.width {
            0 => entry::read(&block[offset..], arena, spill).0,
            width => Item::Int(get_int(block, offset, width)),
        }
    }

    /// Offset of the item after the one at `offset`.
    #[inline]
    pub(super) fn next(&self, block: &[u8], offset: usize) -> usize {
        match self.width {
            0 => after(block, offset),
            width => offset + width,
        }
    }

    /// Offset of the item that ends at `offset`.
    #[inline]
    pub(super) fn prev(&self, block: &[u8], offset: usize) -> usize {
        match self.width {
            0 => before(block, offset),
            width => offset - width,
        }
    }
}

/// An item ready to be written: spilled already when it is long.
#[derive(Clone, Copy)]
pub(super) struct NewListItem<'a> {
    coded: Coded<'a>,
    int: Option<i64>,
}

impl<'a> NewListItem<'a> {
    #[inline]
    pub(super) fn of(item: Item<'a>) -> NewListItem<'a> {
        debug_assert!(
            item == Item::of(item.text(&mut Digits::new())),
            "an integer's text is given as an integer"
        );
        let int = if let Item::Int(value) = item { Some(value) } else { None };
        NewListItem { coded: Coded::of_item(item), int }
    }

    /// The item with a long string moved out of line. Errors: nothing is kept.
    #[inline]
    pub(super) fn spilled(
        self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        spill: &mut Spill,
    ) -> Result<NewListItem<'a>, TreeFull> {
        if !self.coded.is_long() {
            return Ok(self);
        }
        Ok(NewListItem { coded: owned.spill(arena, spill, self.coded)?, int: None })
    }

    /// Frees the out-of-line part that [`NewListItem::spilled`] made, for an item that found no room.
    pub(super) fn unspill(&self, arena: &mut Arena, owned: &mut OwnedEntry, spill: &mut Spill) {
        if self.int.is_none() {
            let mut code = [0; 16];
            if self.coded.len() <= code.len() {
                self.coded.write(&mut code);
                owned.release(arena, spill, &code);
            }
        }
    }

    #[inline]
    fn mixed_bytes(&self) -> usize {
        let code = self.coded.len();
        code + tail_bytes(code)
    }

    /// Bytes of the item in a leaf of this width, if such a leaf can hold it.
    #[inline(always)]
    fn bytes_in(&self, width: usize) -> Option<usize> {
        match (width, self.int) {
            (0, _) => Some(self.mixed_bytes()),
            (_, Some(value)) if int_width(value) <= width => Some(width),
            _ => None,
        }
    }

    #[inline(always)]
    fn write(&self, block: &mut [u8], offset: usize, width: usize) {
        match (width, self.int) {
            (0, _) => {
                let code = self.coded.len();
                self.coded.write(&mut block[offset..offset + code]);
                write_tail(block, offset + code, code);
            }
            (_, value) => put_wide(block, offset, width, value.unwrap_or(0) as u64),
        }
    }

    /// Returns true if the item at `offset` equals this one.
    #[inline]
    pub(super) fn is_at(
        &self,
        block: &[u8],
        head: &ListLeafHead,
        offset: usize,
        arena: &Arena,
        spill: &Spill,
    ) -> bool {
        match head.width {
            0 => self.coded.is_at(&block[offset..], arena, spill),
            width => self.int == Some(get_int(block, offset, width)),
        }
    }
}

/// Adds an integer at an end of a leaf of integers if it fits there as the leaf is.
#[inline]
pub(super) fn push_int(block: &mut [u8], end: ListEnd, value: i64) -> bool {
    let head = ListLeafHead::of(block);
    if int_width(value) > head.width {
        return false;
    }
    let offset = match end {
        ListEnd::Back => {
            if head.end + head.width > head.cap {
                return false;
            }
            put_u16(block, 2, head.end + head.width);
            head.end
        }
        ListEnd::Front => {
            if head.start < HEAD + head.width {
                return false;
            }
            put_u16(block, 0, head.start - head.width);
            head.start - head.width
        }
    };
    put_u16(block, 4, head.len + 1);
    put_wide(block, offset, head.width, value as u64);
    true
}

/// Adds an item at an end of a leaf if it fits there as the leaf is.
#[inline]
pub(super) fn push(block: &mut [u8], end: ListEnd, new: &NewListItem<'_>) -> bool {
    let mut head = ListLeafHead::of(block);
    let Some(bytes) = new.bytes_in(head.width) else { return false };
    let offset = match end {
        ListEnd::Back => {
            if head.end + bytes > head.cap {
                return false;
            }
            head.end += bytes;
            head.end - bytes
        }
        ListEnd::Front => {
            if head.start < HEAD + bytes {
                return false;
            }
            head.start -= bytes;
            head.start
        }
    };
    head.len += 1;
    new.write(block, offset, head.width);
    head.write(block);
    true
}

/// Moves the items so that all free room is at `end`, if that makes room for the item and is worth the cost.
pub(super) fn make_room(block: &mut [u8], end: ListEnd, new: &NewListItem<'_>) -> bool {
    let mut head = ListLeafHead::of(block);
    let Some(bytes) = new.bytes_in(head.width) else { return false };
    let free = head.cap - HEAD - head.payload();
    if free < bytes + head.payload() / 8 {
        return false;
    }
    let start = match end {
        ListEnd::Back => HEAD,
        ListEnd::Front => head.cap - head.payload(),
    };
    block.copy_within(head.start..head.end, start);
    head.end = start + head.payload();
    head.start = start;
    head.write(block);
    true
}

/// Removes the items at `from..to` of a leaf. Their out-of-line parts must have been released.
pub(super) fn cut(block: &mut [u8], from: usize, to: usize) {
    let mut head = ListLeafHead::of(block);
    let (first, last) = (head.offset(block, from), head.offset(block, to));
    let gap = last - first;
    if first - head.start <= head.end - last {
        block.copy_within(head.start..first, head.start + gap);
        head.start += gap;
    } else {
        block.copy_within(last..head.end, first);
        head.end -= gap;
    }
    head.len -= to - from;
    head.write(block);
}

/// Overwrites item `at` when the new one has the same size.
pub(super) fn overwrite(block: &mut [u8], at: usize, new: &NewListItem<'_>) -> bool {
    let head = ListLeafHead::of(block);
    let offset = head.offset(block, at);
    let same = new.bytes_in(head.width).is_some_and(|bytes| offset + bytes == head.next(block, offset));
    if same {
        new.write(block, offset, head.width);
    }
    same
}

/// A part of a new leaf.
#[derive(Clone, Copy)]
pub(super) enum ListPart<'a> {
    /// Items `.1..(.2)` of a leaf.
    Run(Handle, usize, usize),
    /// An item.
    One(&'a NewListItem<'a>),
}

/// The shape a leaf of some parts would have.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListShape {
    len: usize,
    width: usize,
    pub(super) payload: usize,
}

impl ListShape {
    /// The smallest shape that holds all parts.
    pub(super) fn of(arena: &Arena, parts: &[ListPart<'_>]) -> ListShape {
        let (mut len, mut width) = (0, 1);
        for part in parts {
            match *part {
                ListPart::Run(leaf, from, to) if from < to => {
                    let head = ListLeafHead::of(bytes_of(arena, leaf));
                    len += to - from;
                    width = if head.width == 0 || width == 0 { 0 } else { width.max(head.width) };
                }
                ListPart::Run(..) => {}
                ListPart::One(new) => {
                    len += 1;
                    width = match new.int {
                        Some(value) if width > 0 => width.max(int_width(value)),
                        _ => 0,
                    };
                }
            }
        }
        let payload = if width > 0 { len * width } else { parts.iter().map(|p| mixed_bytes(arena, p)).sum() };
        ListShape { len, width, payload }
    }

    /// The shape of a leaf with one more item, if its width does for that too.
    #[inline]
    pub(super) fn grown(head: &ListLeafHead, new: &NewListItem<'_>) -> Option<ListShape> {
        let bytes = new.bytes_in(head.width)?;
        Some(ListShape { len: head.len + 1, width: head.width, payload: head.payload() + bytes })
    }

    /// Block size for a leaf that is likely to grow.
    pub(super) fn roomy_bytes(&self) -> usize {
        (HEAD + self.payload + self.payload / 4).min(super::LEAF_BYTES_MAX)
    }

    /// A new leaf of the parts in a block of `bytes`, with the free room at `room`.
    pub(super) fn build(
        &self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        parts: &[ListPart<'_>],
        bytes: usize,
        room: ListEnd,
    ) -> Result<Handle, TreeFull> {
        debug_assert!(bytes >= HEAD + self.payload);
        let leaf = owned.alloc(arena, bytes)?;
        let cap = arena.size(leaf).min(u8::MAX as usize * 8);
        let start = match room {
            ListEnd::Back => HEAD,
            ListEnd::Front => cap - self.payload,
        };
        let mut offset = start;
        for part in parts {
            offset = self.put(arena, leaf, part, offset);
        }
        debug_assert_eq!(offset, start + self.payload);
        let head = ListLeafHead { start, end: offset, len: self.len, width: self.width, cap };
        head.write(bytes_of_mut(arena, leaf));
        Ok(leaf)
    }

    /// Builds a leaf of this shape, which [`ListShape::grown`] returned, in a block of `bytes`: the items of `leaf`, and
    /// `new` at `end`, the side of the free room.
    pub(super) fn build_grown(
        &self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        leaf: Handle,
        new: &NewListItem<'_>,
        bytes: usize,
        end: ListEnd,
    ) -> Result<Handle, TreeFull> {
        let fresh = owned.alloc(arena, bytes)?;
        let (old, block) = two_of_mut(arena, leaf, fresh);
        let head = ListLeafHead::of(old);
        let items = &old[head.start..head.end];
        let cap = block.len().min(u8::MAX as usize * 8);
        let (start, items_at, new_at) = match end {
            ListEnd::Back => (HEAD, HEAD, HEAD + items.len()),
            ListEnd::Front => (cap - self.payload, cap - items.len(), cap - self.payload),
        };
        block[items_at..items_at + items.len()].copy_from_slice(items);
        new.write(block, new_at, self.width);
        ListLeafHead { start, end: start + self.payload, len: self.len, width: self.width, cap }.write(block);
        Ok(fresh)
    }

    /// Writes a part at `offset` of the new leaf; returns where it ends.
    fn put(&self, arena: &mut Arena, leaf: Handle, part: &ListPart<'_>, mut offset: usize) -> usize {
        match *part {
            ListPart::One(new) => {
                new.write(bytes_of_mut(arena, leaf), offset, self.width);
                offset + new.bytes_in(self.width).unwrap_or(0)
            }
            ListPart::Run(source, from, to) => {
                let (old, fresh) = two_of_mut(arena, source, leaf);
                let head = ListLeafHead::of(old);
                let (first, last) = (head.offset(old, from), head.offset(old, to));
                if head.width == self.width {
                    fresh[offset..offset + last - first].copy_from_slice(&old[first..last]);
                    return offset + last - first;
                }
                for at in (first..last).step_by(head.width.max(1)) {
                    let new = NewListItem::of(Item::Int(get_int(old, at, head.width)));
                    new.write(fresh, offset, self.width);
                    offset += new.bytes_in(self.width).unwrap_or(0);
                }
                offset
            }
        }
    }
}

/// Bytes of a part in a leaf of any items.
fn mixed_bytes(arena: &Arena, part: &ListPart<'_>) -> usize {
    match *part {
        ListPart::One(new) => new.mixed_bytes(),
        ListPart::Run(leaf, from, to) => {
            let block = bytes_of(arena, leaf);
            let head = ListLeafHead::of(block);
            let (first, last) = (head.offset(block, from), head.offset(block, to));
            if head.width == 0 {
                return last - first;
            }
            let int = |at| NewListItem::of(Item::Int(get_int(block, at, head.width))).mixed_bytes();
            (first..last).step_by(head.width).map(int).sum()
        }
    }
}

/// Number of bytes that `value` needs in two's complement: 1 to 8.
#[inline(always)]
fn int_width(value: i64) -> usize {
    let bits = 65 - (value ^ (value >> 63)).leading_zeros() as usize;
    bits.div_ceil(8)
}

#[inline(always)]
fn get_int(block: &[u8], offset: usize, width: usize) -> i64 {
    let gap = 64 - 8 * width as u32;
    (get_wide(block, offset, width) << gap) as i64 >> gap
}

#[inline(always)]
fn tail_bytes(code: usize) -> usize {
    1 + usize::from(code >= 128)
}

#[inline(always)]
fn write_tail(block: &mut [u8], offset: usize, code: usize) {
    if code < 128 {
        block[offset] = code as u8;
    } else {
        block[offset] = (code >> 7) as u8;
        block[offset + 1] = 0x80 | code as u8;
    }
}

#[inline(always)]
fn after(block: &[u8], offset: usize) -> usize {
    let code = entry::size(&block[offset..]);
    offset + code + tail_bytes(code)
}

#[inline(always)]
fn before(block: &[u8], offset: usize) -> usize {
    let last = block[offset - 1] as usize;
    if last < 128 {
        offset - 1 - last
    } else {
        offset - 2 - ((last & 127) | (block[offset - 2] as usize) << 7)
    }
}
