//! `List`: items in insertion order, cheap at both ends, by index in O(log n).
//!
//! Called by the store for list values. The leaves at the two ends hang off the root, outside the tree, so that a
//! push or a pop touches one block and no count. Full ones are sealed into the tree. Items are compared only to find
//! one.

mod edit;
mod iter;
mod leaf;
#[cfg(test)]
mod tests;

use darter_slab::{Arena, Handle};

use self::leaf::{HEAD, ListLeafHead, ListPart, ListShape, NewListItem};
use super::owned::{Far, OwnedEntry};
use super::spine::{Leaf, Spine, SpinePath};
use super::window::{SeenLeaf, Windows, readable};
use super::{Direction, LEAF_BYTES_MAX, TreeFull};
use crate::entry::Item;
use crate::spill::Spill;
use crate::tree::block::{bytes_of, bytes_of_mut};

pub use iter::ListIter;
pub use leaf::ListEnd;

/// A list: 40 bytes and blocks in the arena. [`List::clear`] must run before it is dropped, or the blocks are lost.
///
/// Items are given as [`Item::of`] makes them: canonical integers are integers.
#[derive(Debug)]
pub struct List {
    head: Handle,
    tail: Handle,
    spine: Spine<0>,
    len: u64,
    owned: OwnedEntry,
    spill: Spill,
}

readable!(List);

/// The position of a leaf.
#[derive(Clone, Copy)]
enum ListSeat {
    Head,
    Tail,
    Tree(SpinePath),
}

impl Default for List {
    fn default() -> Self {
        Self::new()
    }
}

impl List {
    /// An empty list, which owns no block.
    pub const fn new() -> List {
        List {
            head: Handle::NONE,
            tail: Handle::NONE,
            spine: Spine::EMPTY,
            len: 0,
            owned: OwnedEntry::NONE,
            spill: Spill::new(),
        }
    }

    /// A copy of the list in its present state, for a reader that looks back while the arena keeps pre-images. It
    /// must never be changed or cleared.
    pub fn frozen(&self) -> List {
        List { spine: self.spine.frozen(), head: self.head, tail: self.tail, len: self.len, ..List::new() }
    }

    /// Lends the data outside the arena to a frozen copy for a read, or takes it back.
    pub fn lend(&mut self, frozen: &mut List) {
        std::mem::swap(&mut self.spill, &mut frozen.spill);
    }

    /// Number of items.
    #[inline]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if there is no item.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes held in the arena, exactly.
    pub fn bytes(&self) -> usize {
        self.owned.bytes()
    }

    /// Bytes held outside the arena, by items past 32 KiB.
    pub fn spilled_bytes(&self) -> usize {
        self.spill.bytes()
    }

    /// The item at `index`. Cost: O(log n), plus a walk within one leaf when its items are not integers of one width.
    pub fn get<'a>(&'a self, arena: &'a Arena, index: u64) -> Option<Item<'a>> {
        if index >= self.len {
            return None;
        }
        let (leaf, _, at) = self.locate(arena, index);
        let block = bytes_of(arena, leaf);
        let head = ListLeafHead::of(block);
        Some(head.item(block, head.offset(block, at), arena, &self.spill))
    }

    /// The items from `index` towards the end that `towards` names; nothing when `index` is not below the length.
    pub fn iter<'a>(&'a self, arena: &'a Arena, index: u64, towards: ListEnd) -> ListIter<'a> {
        ListIter::new(self, arena, index, towards)
    }

    /// The index of the first item equal to `item` among at most `items_max` items from `index` towards an end.
    ///
    /// Cost: O(items passed), which the caller bounds.
    pub fn position(
        &self,
        arena: &Arena,
        item: Item<'_>,
        index: u64,
        towards: ListEnd,
        items_max: u64,
    ) -> Option<u64> {
        let found = self.iter(arena, index, towards).find_equal(item, items_max)?;
        Some(match towards {
            ListEnd::Back => index + found,
            ListEnd::Front => index - found,
        })
    }

    /// Adds `item` at an end. Errors: nothing is changed. Cost: O(1), one block.
    #[inline]
    pub fn push(&mut self, arena: &mut Arena, end: ListEnd, item: Item<'_>) -> Result<(), TreeFull> {
        self.push_item(arena, end, item)?;
        if self.spill.is_read() {
            self.after_insertion(if end == ListEnd::Front { 0 } else { self.len - 1 }, 1);
        }
        Ok(())
    }

    #[inline(always)]
    fn push_item(&mut self, arena: &mut Arena, end: ListEnd, item: Item<'_>) -> Result<(), TreeFull> {
        let leaf = self.end_leaf(end);
        if let Item::Int(value) = item
            && !leaf.is_none()
            && leaf::push_int(bytes_of_mut(arena, leaf), end, value)
        {
            self.len += 1;
            return Ok(());
        }
        self.push_any(arena, end, leaf, item)
    }

    #[inline]
    fn push_any(
        &mut self,
        arena: &mut Arena,
        end: ListEnd,
        leaf: Handle,
        item: Item<'_>,
    ) -> Result<(), TreeFull> {
        let new = NewListItem::of(item).spilled(arena, &mut self.owned, &mut self.spill)?;
        if leaf.is_none() || !leaf::push(bytes_of_mut(arena, leaf), end, &new) {
            return self.push_slow(arena, end, new);
        }
        self.len += 1;
        Ok(())
    }

    /// Passes the item at an end to `emit` and removes it. Returns whether there was one. Cost: O(1), one block.
    #[inline]
    pub fn pop(&mut self, arena: &mut Arena, end: ListEnd, emit: impl FnOnce(Item<'_>)) -> bool {
        if self.len == 0 {
            return false;
        }
        if self.spill.is_read() {
            self.before_removal(arena, if end == ListEnd::Front { 0 } else { self.len - 1 }, 1);
        }
        let mut leaf = self.end_leaf(end);
        if leaf.is_none() {
            leaf = self.unseal(arena, end);
        }
        let block = bytes_of(arena, leaf);
        let mut head = ListLeafHead::of(block);
        let offset = match end {
            ListEnd::Front => head.start,
            ListEnd::Back => head.prev(block, head.end),
        };
        emit(head.item(block, offset, arena, &self.spill));
        match end {
            ListEnd::Front => head.start = head.next(block, offset),
            ListEnd::Back => head.end = offset,
        }
        head.len -= 1;
        self.len -= 1;
        if head.width == 0 {
            self.release(arena, leaf, offset);
        }
        head.write(bytes_of_mut(arena, leaf));
        // A leaf that others follow is soon empty; only the last one is worth shrinking.
        if head.len == 0 || (head.len as u64 == self.len && head.is_sparse()) {
            self.settle_end(arena, leaf);
        }
        true
    }

    /// The leaf that takes items at `end`, if it hangs off the root.
    #[inline]
    fn end_leaf(&self, end: ListEnd) -> Handle {
        let (near, far) = match end {
            ListEnd::Front => (self.head, self.tail),
            ListEnd::Back => (self.tail, self.head),
        };
        if near.is_none() && self.spine.is_empty() { far } else { near }
    }

    #[inline]
    fn end_field(&mut self, end: ListEnd) -> &mut Handle {
        match end {
            ListEnd::Front => &mut self.head,
            ListEnd::Back => &mut self.tail,
        }
    }

    #[cold]
    #[inline(never)]
    fn push_slow(&mut self, arena: &mut Arena, end: ListEnd, new: NewListItem<'_>) -> Result<(), TreeFull> {
        let done = self.push_anew(arena, end, &new);
        match done {
            Ok(()) => self.len += 1,
            Err(TreeFull) => new.unspill(arena, &mut self.owned, &mut self.spill),
        }
        done
    }

    fn push_anew(&mut self, arena: &mut Arena, end: ListEnd, new: &NewListItem<'_>) -> Result<(), TreeFull> {
        let leaf = self.end_leaf(end);
        if leaf.is_none() {
            let fresh = self.lone_leaf(arena, end, new)?;
            *self.end_field(end) = fresh;
            return Ok(());
        }
        if leaf::make_room(bytes_of_mut(arena, leaf), end, new)
            && leaf::push(bytes_of_mut(arena, leaf), end, new)
        {
            return Ok(());
        }
        let head = ListLeafHead::of(bytes_of(arena, leaf));
        let run = ListPart::Run(leaf, 0, head.len);
        let parts = match end {
            ListEnd::Front => [ListPart::One(new), run],
            ListEnd::Back => [run, ListPart::One(new)],
        };
        let grown = ListShape::grown(&head, new);
        let shape = grown.unwrap_or_else(|| ListShape::of(arena, &parts));
        if HEAD + shape.payload <= LEAF_BYTES_MAX {
            let bytes = if self.len == head.len as u64 { shape.roomy_bytes() } else { LEAF_BYTES_MAX };
            let fresh = match grown {
                Some(_) => shape.build_grown(arena, &mut self.owned, leaf, new, bytes, end)?,
                None => shape.build(arena, &mut self.owned, &parts, bytes, end)?,
            };
            self.swap_end(arena, leaf, fresh);
            return Ok(());
        }
        let fresh = self.lone_leaf(arena, end, new)?;
        if *self.end_field(end) == leaf
            && let Err(full) = self.seal(arena, end, leaf)
        {
            self.owned.free(arena, fresh);
            return Err(full);
        }
        *self.end_field(end) = fresh;
        Ok(())
    }

    /// A leaf of one item, with room for as many as the list's size makes likely.
    fn lone_leaf(
        &mut self,
        arena: &mut Arena,
        end: ListEnd,
        new: &NewListItem<'_>,
    ) -> Result<Handle, TreeFull> {
        let parts = [ListPart::One(new)];
        let shape = ListShape::of(arena, &parts);
        let likely = match (self.len, self.spine.is_empty()) {
            (0, _) => 0,
            (_, true) => LEAF_BYTES_MAX / 4,
            (_, false) => LEAF_BYTES_MAX,
        };
        shape.build(arena, &mut self.owned, &parts, likely.max(HEAD + shape.payload), end)
    }

    /// Puts the full leaf at `end` into the tree, in a block of just its size.
    fn seal(&mut self, arena: &mut Arena, end: ListEnd, leaf: Handle) -> Result<(), TreeFull> {
        let leaf = self.trimmed(arena, leaf);
        *self.end_field(end) = leaf;
        self.hang(arena, end, leaf)
    }

    /// Adds a leaf that is outside the tree at `end` of the tree.
    fn hang(&mut self, arena: &mut Arena, end: ListEnd, block: Handle) -> Result<(), TreeFull> {
        if self.spine.is_empty() {
            self.spine.plant(block);
            return Ok(());
        }
        let entries = |arena: &Arena, block| ListLeafHead::of(bytes_of(arena, block)).len as u32;
        let (other, path) = match end {
            ListEnd::Front => self.spine.first(arena),
            ListEnd::Back => self.spine.last(arena),
        };
        let leaf = Leaf { block, entries: entries(arena, block) };
        let other = Leaf { block: other, entries: entries(arena, other) };
        let (left, right) = match end {
            ListEnd::Front => (leaf, other),
            ListEnd::Back => (other, leaf),
        };
        self.spine.split(arena, &mut self.owned, &path, left, right, 0)
    }

    /// Removes the leaf at `end` from the tree, which is not empty, so that items can be taken from it.
    #[cold]
    fn unseal(&mut self, arena: &mut Arena, end: ListEnd) -> Handle {
        let (leaf, path) = match end {
            ListEnd::Front => self.spine.first(arena),
            ListEnd::Back => self.spine.last(arena),
        };
        let entries = ListLeafHead::of(bytes_of(arena, leaf)).len as u32;
        self.spine.remove(arena, &mut self.owned, &path, entries);
        *self.end_field(end) = leaf;
        leaf
    }

    /// The leaf in a block of its exact size; the same leaf if nothing would be gained.
    fn trimmed(&mut self, arena: &mut Arena, leaf: Handle) -> Handle {
        let parts = [ListPart::Run(leaf, 0, ListLeafHead::of(bytes_of(arena, leaf)).len)];
        let shape = ListShape::of(arena, &parts);
        if Arena::fits(HEAD + shape.payload) >= arena.size(leaf) {
            return leaf;
        }
        // Only saves memory, so a full arena is no error here.
        match shape.build(arena, &mut self.owned, &parts, HEAD + shape.payload, ListEnd::Back) {
            Ok(fresh) => {
                self.owned.free(arena, leaf);
                fresh
            }
            Err(TreeFull) => leaf,
        }
    }

    /// Replaces a leaf that hangs off the root, and frees it. `NONE` removes it.
    fn swap_end(&mut self, arena: &mut Arena, leaf: Handle, fresh: Handle) {
        let end = if self.tail == leaf { ListEnd::Back } else { ListEnd::Front };
        debug_assert_eq!(*self.end_field(end), leaf);
        *self.end_field(end) = fresh;
        self.owned.free(arena, leaf);
    }

    /// Frees a leaf that hangs off the root when it is empty, else shrinks it.
    #[cold]
    fn settle_end(&mut self, arena: &mut Arena, leaf: Handle) {
        if ListLeafHead::of(bytes_of(arena, leaf)).len == 0 {
            self.swap_end(arena, leaf, Handle::NONE);
            return;
        }
        let end = if self.tail == leaf { ListEnd::Back } else { ListEnd::Front };
        let fresh = self.trimmed(arena, leaf);
        *self.end_field(end) = fresh;
    }

    /// Frees the out-of-line part of the coded item at `offset` of a leaf of mixed items.
    #[inline]
    fn release(&mut self, arena: &mut Arena, leaf: Handle, offset: usize) {
        let far = Far::of(&bytes_of(arena, leaf)[offset..]);
        self.owned.release_far(arena, &mut self.spill, far);
    }

    fn each(
        &self,
        arena: &Arena,
        first: u64,
        len: u64,
        direction: Direction,
        see: &mut dyn FnMut(SeenLeaf<'_>),
    ) {
        let towards = if direction == Direction::Up { ListEnd::Back } else { ListEnd::Front };
        self.iter(arena, first, towards).take(len as usize).for_each(|item| see(SeenLeaf::Item(item)));
    }

    fn windows_mut(&mut self) -> &mut Windows {
        self.spill.windows_mut()
    }

    fn settle_windows(&mut self) {
        self.spill.settle();
    }

    /// The leaf, its seat, and the place in it of `index`, which is below the length.
    fn locate(&self, arena: &Arena, index: u64) -> (Handle, ListSeat, usize) {
        debug_assert!(index < self.len);
        let count = |leaf: Handle| {
            if leaf.is_none() { 0 } else { ListLeafHead::of(bytes_of(arena, leaf)).len as u64 }
        };
        let first = count(self.head);
        if index < first {
            return (self.head, ListSeat::Head, index as usize);
        }
        let last_from = self.len - count(self.tail);
        if index >= last_from {
            return (self.tail, ListSeat::Tail, (index - last_from) as usize);
        }
        let (leaf, path, at) = self.spine.by_rank(arena, index - first);
        (leaf, ListSeat::Tree(path), at)
    }
}
