//! Changes inside a list: set, insert, remove, and freeing the whole list.

use darter_slab::{Arena, Handle};

use super::leaf::{self, HEAD, ListEnd, ListLeafHead, ListPart, ListShape, NewListItem};
use super::{List, ListSeat};
use crate::entry::{self, Item};
use crate::tree::block::{bytes_of, bytes_of_mut};
use crate::tree::owned::Far;
use crate::tree::spine::{Leaf, Spine, SpineSide};
use crate::tree::{LEAF_BYTES_MAX, TreeFull};

impl List {
    /// Replaces the item at `index`; `false` if there is none. Errors: nothing is changed. Cost: O(log n), one leaf.
    pub fn set(&mut self, arena: &mut Arena, index: u64, item: Item<'_>) -> Result<bool, TreeFull> {
        if index >= self.len {
            return Ok(false);
        }
        let is_read = self.spill.is_read();
        if is_read {
            self.before_removal(arena, index, 1);
        }
        let done = self.with_new(arena, item, |list, arena, new| list.set_new(arena, index, new));
        // The reader keeps the former item, whatever replaces it.
        if is_read {
            self.after_insertion(index, 1);
        }
        done.map(|()| true)
    }

    /// Puts `item` before the one at `index`, or at the end when `index` is the length; `false` past that.
    ///
    /// Errors: nothing is changed. Cost: O(log n), one leaf.
    pub fn insert(&mut self, arena: &mut Arena, index: u64, item: Item<'_>) -> Result<bool, TreeFull> {
        if index > self.len {
            return Ok(false);
        }
        if index == 0 || index == self.len {
            let end = if index == 0 { ListEnd::Front } else { ListEnd::Back };
            self.push(arena, end, item)?;
            return Ok(true);
        }
        self.with_new(arena, item, |list, arena, new| list.insert_new(arena, index, new))?;
        self.len += 1;
        if self.spill.is_read() {
            self.after_insertion(index, 1);
        }
        Ok(true)
    }

    /// Removes the item at `index`; `false` if there is none. Cost: O(log n), one leaf or two.
    pub fn remove(&mut self, arena: &mut Arena, index: u64) -> bool {
        self.remove_range(arena, index, 1) == 1
    }

    /// Removes up to `count` items from `index` on; returns their number.
    ///
    /// Cost: whole leaves are freed, about 200 items each; callers with millions call it in slices.
    pub fn remove_range(&mut self, arena: &mut Arena, index: u64, count: u64) -> u64 {
        let wanted = count.min(self.len.saturating_sub(index));
        if self.spill.is_read() {
            self.before_removal(arena, index, wanted);
        }
        let mut left = wanted;
        while left > 0 {
            let (leaf, seat, at) = self.locate(arena, index);
            let len = ListLeafHead::of(bytes_of(arena, leaf)).len;
            let part = left.min((len - at) as u64) as usize;
            self.cut(arena, leaf, seat, at, at + part);
            left -= part as u64;
        }
        wanted
    }

    /// Removes up to `count` items equal to `item`, starting from an end; returns their number.
    ///
    /// Cost: O(n); callers with long lists use [`List::position`] and [`List::remove`] in slices.
    pub fn remove_equal(&mut self, arena: &mut Arena, item: Item<'_>, count: u64, from: ListEnd) -> u64 {
        let mut removed = 0;
        let mut index = match from {
            ListEnd::Front => 0,
            ListEnd::Back => self.len.saturating_sub(1),
        };
        let towards = if from == ListEnd::Front { ListEnd::Back } else { ListEnd::Front };
        while removed < count {
            let Some(found) = self.position(arena, item, index, towards, u64::MAX) else { break };
            self.remove(arena, found);
            removed += 1;
            index = match from {
                ListEnd::Front => found,
                ListEnd::Back if found == 0 => break,
                ListEnd::Back => found - 1,
            };
        }
        removed
    }

    /// Frees up to about `blocks_max` blocks; the list is unusable from the first call until it returns `true`, and
    /// empty then.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        let mut freed = 0;
        while freed < blocks_max {
            let ends = [
                std::mem::replace(&mut self.tail, Handle::NONE),
                std::mem::replace(&mut self.head, Handle::NONE),
            ];
            let leaf = match ends {
                [leaf, other] if !leaf.is_none() => {
                    self.head = other;
                    leaf
                }
                [_, leaf] if !leaf.is_none() => leaf,
                _ => match self.spine.take_last(arena, &mut self.owned) {
                    Some(leaf) => leaf,
                    None => {
                        debug_assert_eq!(self.owned.bytes(), 0);
                        self.len = 0;
                        self.spine = Spine::EMPTY;
                        return true;
                    }
                },
            };
            freed += 1 + self.release_run(arena, leaf, 0, ListLeafHead::of(bytes_of(arena, leaf)).len);
            self.owned.free(arena, leaf);
        }
        false
    }

    /// Gives every block back. Cost: O(blocks).
    pub fn clear(&mut self, arena: &mut Arena) {
        while !self.free_step(arena, 1 << 16) {}
    }

    /// Runs `act` with the item made ready to be written, and frees its out-of-line block if that fails.
    fn with_new(
        &mut self,
        arena: &mut Arena,
        item: Item<'_>,
        act: impl FnOnce(&mut Self, &mut Arena, &NewListItem<'_>) -> Result<(), TreeFull>,
    ) -> Result<(), TreeFull> {
        let new = NewListItem::of(item).spilled(arena, &mut self.owned, &mut self.spill)?;
        let done = act(self, arena, &new);
        if done.is_err() {
            new.unspill(arena, &mut self.owned, &mut self.spill);
        }
        done
    }

    fn set_new(&mut self, arena: &mut Arena, index: u64, new: &NewListItem<'_>) -> Result<(), TreeFull> {
        loop {
            let (leaf, seat, at) = self.locate(arena, index);
            let head = ListLeafHead::of(bytes_of(arena, leaf));
            // The old code is read before it is overwritten and released after nothing can fail any more.
            let mut old = [0; 16];
            if head.width == 0 {
                let offset = head.offset(bytes_of(arena, leaf), at);
                let code = &bytes_of(arena, leaf)[offset..];
                let bytes = entry::size(code).min(old.len());
                old[..bytes].copy_from_slice(&code[..bytes]);
            }
            if leaf::overwrite(bytes_of_mut(arena, leaf), at, new) {
                self.owned.release(arena, &mut self.spill, &old);
                return Ok(());
            }
            let parts =
                [ListPart::Run(leaf, 0, at), ListPart::One(new), ListPart::Run(leaf, at + 1, head.len)];
            let shape = ListShape::of(arena, &parts);
            if HEAD + shape.payload <= LEAF_BYTES_MAX {
                let fresh =
                    shape.build(arena, &mut self.owned, &parts, HEAD + shape.payload, ListEnd::Back)?;
                self.owned.release(arena, &mut self.spill, &old);
                self.reseat(arena, seat, leaf, fresh);
                return Ok(());
            }
            // The new item alone always fits, so the leaf is cut down to it.
            self.split(arena, leaf, seat, if at > 0 { at } else { 1 })?;
        }
    }

    fn insert_new(&mut self, arena: &mut Arena, index: u64, new: &NewListItem<'_>) -> Result<(), TreeFull> {
        loop {
            let (leaf, seat, at) = self.locate(arena, index);
            if at > 0 {
                if self.insert_into(arena, leaf, seat, at, new)? {
                    return Ok(());
                }
                self.split(arena, leaf, seat, at)?;
                continue;
            }
            // Between two leaves: the one before first, so that inserting at one place fills leaves.
            let (before, before_seat, last) = self.locate(arena, index - 1);
            if self.insert_into(arena, before, before_seat, last + 1, new)?
                || self.insert_into(arena, leaf, seat, 0, new)?
            {
                return Ok(());
            }
            return self.insert_leaf(arena, leaf, seat, new);
        }
    }

    /// Puts the item into a leaf if that leaves it small enough; returns whether it did.
    fn insert_into(
        &mut self,
        arena: &mut Arena,
        leaf: Handle,
        seat: ListSeat,
        at: usize,
        new: &NewListItem<'_>,
    ) -> Result<bool, TreeFull> {
        let len = ListLeafHead::of(bytes_of(arena, leaf)).len;
        let parts = [ListPart::Run(leaf, 0, at), ListPart::One(new), ListPart::Run(leaf, at, len)];
        let shape = ListShape::of(arena, &parts);
        if HEAD + shape.payload > LEAF_BYTES_MAX {
            return Ok(false);
        }
        let fresh = shape.build(arena, &mut self.owned, &parts, shape.roomy_bytes(), ListEnd::Back)?;
        self.reseat(arena, seat, leaf, fresh);
        if let ListSeat::Tree(path) = seat {
            self.spine.adjust(arena, &path, 1);
        }
        Ok(true)
    }

    /// Puts a leaf of one item before `leaf`, or the item into the leaf before that if it has room.
    fn insert_leaf(
        &mut self,
        arena: &mut Arena,
        leaf: Handle,
        seat: ListSeat,
        new: &NewListItem<'_>,
    ) -> Result<(), TreeFull> {
        let parts = [ListPart::One(new)];
        let shape = ListShape::of(arena, &parts);
        let fresh = shape.build(arena, &mut self.owned, &parts, HEAD + shape.payload, ListEnd::Back)?;
        let done = match seat {
            // The index was above 0, so nothing is inserted before the head leaf.
            ListSeat::Head => Err(TreeFull),
            ListSeat::Tail => self.hang(arena, ListEnd::Back, fresh),
            ListSeat::Tree(path) => {
                let left = Leaf { block: fresh, entries: 1 };
                let right = Leaf { block: leaf, entries: ListLeafHead::of(bytes_of(arena, leaf)).len as u32 };
                self.spine.split(arena, &mut self.owned, &path, left, right, 0)
            }
        };
        if done.is_err() {
            self.owned.free(arena, fresh);
        }
        done
    }

    /// Splits a leaf before item `at` (above 0 and below its length). Errors: the items are unchanged.
    fn split(&mut self, arena: &mut Arena, leaf: Handle, seat: ListSeat, at: usize) -> Result<(), TreeFull> {
        let len = ListLeafHead::of(bytes_of(arena, leaf)).len;
        let halves = [(0, at), (at, len)];
        let mut fresh = [Handle::NONE; 2];
        for (half, (from, to)) in halves.into_iter().enumerate() {
            let parts = [ListPart::Run(leaf, from, to)];
            let shape = ListShape::of(arena, &parts);
            match shape.build(arena, &mut self.owned, &parts, HEAD + shape.payload, ListEnd::Back) {
                Ok(block) => fresh[half] = block,
                Err(full) => {
                    if half == 1 {
                        self.owned.free(arena, fresh[0]);
                    }
                    return Err(full);
                }
            }
        }
        let hung = match seat {
            ListSeat::Head => self.hang(arena, ListEnd::Front, fresh[1]),
            ListSeat::Tail => self.hang(arena, ListEnd::Back, fresh[0]),
            ListSeat::Tree(path) => {
                let left = Leaf { block: fresh[0], entries: at as u32 };
                let right = Leaf { block: fresh[1], entries: (len - at) as u32 };
                self.spine.split(arena, &mut self.owned, &path, left, right, 0)
            }
        };
        if let Err(full) = hung {
            self.owned.free(arena, fresh[0]);
            self.owned.free(arena, fresh[1]);
            return Err(full);
        }
        match seat {
            ListSeat::Head => self.head = fresh[0],
            ListSeat::Tail => self.tail = fresh[1],
            ListSeat::Tree(_) => {}
        }
        self.owned.free(arena, leaf);
        Ok(())
    }

    /// Puts `fresh` in the place of `leaf` and frees that.
    fn reseat(&mut self, arena: &mut Arena, seat: ListSeat, leaf: Handle, fresh: Handle) {
        match seat {
            ListSeat::Head => self.head = fresh,
            ListSeat::Tail => self.tail = fresh,
            ListSeat::Tree(path) => self.spine.replace(arena, &path, fresh),
        }
        self.owned.free(arena, leaf);
    }

    /// Removes items `from..to` of a leaf, and the leaf from the list if it has none or few left.
    fn cut(&mut self, arena: &mut Arena, leaf: Handle, seat: ListSeat, from: usize, to: usize) {
        self.release_run(arena, leaf, from, to);
        leaf::cut(bytes_of_mut(arena, leaf), from, to);
        self.len -= (to - from) as u64;
        let head = ListLeafHead::of(bytes_of(arena, leaf));
        let ListSeat::Tree(path) = seat else {
            if head.len == 0 || head.is_sparse() {
                self.settle_end(arena, leaf);
            }
            return;
        };
        self.spine.adjust(arena, &path, -((to - from) as i64));
        if head.len == 0 {
            self.spine.remove(arena, &mut self.owned, &path, 0);
            self.owned.free(arena, leaf);
            return;
        }
        if head.payload() < LEAF_BYTES_MAX / 4 && self.join(arena, leaf, &path) {
            return;
        }
        if head.is_sparse() {
            let fresh = self.trimmed(arena, leaf);
            self.spine.replace(arena, &path, fresh);
        }
    }

    /// Joins this leaf with a neighbour, if both fit into one; returns whether it did.
    fn join(&mut self, arena: &mut Arena, leaf: Handle, path: &crate::tree::spine::SpinePath) -> bool {
        let count = |arena: &Arena, leaf| ListLeafHead::of(bytes_of(arena, leaf)).len;
        for side in [SpineSide::After, SpineSide::Before] {
            let Some((other, beside)) = self.spine.sibling(arena, path, side) else { continue };
            // A rough look first: the exact one may pass over all items.
            let payloads = [leaf, other].map(|leaf| ListLeafHead::of(bytes_of(arena, leaf)).payload());
            if payloads[0] + payloads[1] > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            let runs = [leaf, other].map(|leaf| ListPart::Run(leaf, 0, count(arena, leaf)));
            let parts = if side == SpineSide::After { runs } else { [runs[1], runs[0]] };
            let shape = ListShape::of(arena, &parts);
            if HEAD + shape.payload > LEAF_BYTES_MAX * 3 / 4 {
                continue;
            }
            // Joining only saves memory, so a full arena is no error here.
            let Ok(fresh) = shape.build(arena, &mut self.owned, &parts, HEAD + shape.payload, ListEnd::Back)
            else {
                return false;
            };
            let entries = count(arena, leaf);
            self.spine.replace(arena, &beside, fresh);
            self.spine.adjust(arena, &beside, entries as i64);
            self.spine.remove(arena, &mut self.owned, path, entries as u32);
            self.owned.free(arena, leaf);
            self.owned.free(arena, other);
            return true;
        }
        false
    }

    /// Frees the out-of-line parts of items `from..to` of a leaf; returns the number of items that had one.
    fn release_run(&mut self, arena: &mut Arena, leaf: Handle, from: usize, to: usize) -> usize {
        let head = ListLeafHead::of(bytes_of(arena, leaf));
        if head.width > 0 {
            return 0;
        }
        let mut released = 0;
        let mut place = (from, head.offset(bytes_of(arena, leaf), from));
        while place.0 < to {
            let far = next_far(bytes_of(arena, leaf), head, &mut place, to);
            released += usize::from(self.owned.release_far(arena, &mut self.spill, far));
        }
        released
    }
}

/// The out-of-line part of the next such item of a leaf before item `to`. `place`, its number and offset, moves past
/// it, or to the end.
fn next_far(leaf: &[u8], head: ListLeafHead, place: &mut (usize, usize), to: usize) -> Far {
    let mut far = Far::Nothing;
    while place.0 < to && matches!(far, Far::Nothing) {
        far = Far::of(&leaf[place.1..]);
        *place = (place.0 + 1, head.next(leaf, place.1));
    }
    far
}
