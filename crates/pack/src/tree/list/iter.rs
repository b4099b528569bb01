//! Walking a list from an index towards either end.

use darter_slab::{Arena, Handle};

use super::leaf::{ListEnd, ListLeafHead, NewListItem};
use super::{List, ListSeat};
use crate::entry::Item;
use crate::tree::block::bytes_of;

/// Items of a list in order; made by [`List::iter`].
pub struct ListIter<'a> {
    list: &'a List,
    arena: &'a Arena,
    towards: ListEnd,
    seat: ListSeat,
    block: &'a [u8],
    head: ListLeafHead,
    // Offset at which the next item starts (towards the back) or ends (towards the front).
    offset: usize,
    // Items not yet given in this leaf.
    left: usize,
}

impl<'a> ListIter<'a> {
    pub(super) fn new(list: &'a List, arena: &'a Arena, index: u64, towards: ListEnd) -> Self {
        let head = ListLeafHead { start: 0, end: 0, len: 0, width: 0, cap: 0 };
        let done = match towards {
            ListEnd::Back => ListSeat::Tail,
            ListEnd::Front => ListSeat::Head,
        };
        let mut iter = ListIter { list, arena, towards, seat: done, block: &[], head, offset: 0, left: 0 };
        if index < list.len {
            let (leaf, seat, at) = list.locate(arena, index);
            iter.seat = seat;
            iter.enter(leaf);
            match towards {
                ListEnd::Back => {
                    iter.offset = iter.head.offset(iter.block, at);
                    iter.left = iter.head.len - at;
                }
                ListEnd::Front => {
                    iter.offset = iter.head.offset(iter.block, at + 1);
                    iter.left = at + 1;
                }
            }
        }
        iter
    }

    /// Number of items before the next one equal to `item`, if it is among the next `items_max`.
    pub(super) fn find_equal(&mut self, item: Item<'_>, items_max: u64) -> Option<u64> {
        let new = NewListItem::of(item);
        let mut passed = 0;
        while passed < items_max && (self.left > 0 || self.advance()) {
            let offset = self.step();
            if new.is_at(self.block, &self.head, offset, self.arena, &self.list.spill) {
                return Some(passed);
            }
            passed += 1;
        }
        None
    }

    fn enter(&mut self, leaf: Handle) {
        self.block = bytes_of(self.arena, leaf);
        self.head = ListLeafHead::of(self.block);
        self.left = self.head.len;
        self.offset = match self.towards {
            ListEnd::Back => self.head.start,
            ListEnd::Front => self.head.end,
        };
    }

    /// Passes one item of this leaf; returns its offset.
    #[inline(always)]
    fn step(&mut self) -> usize {
        self.left -= 1;
        match self.towards {
            ListEnd::Back => {
                let offset = self.offset;
                // The last item has no following item to measure.
                if self.left > 0 {
                    self.offset = self.head.next(self.block, offset);
                }
                offset
            }
            ListEnd::Front => {
                self.offset = self.head.prev(self.block, self.offset);
                self.offset
            }
        }
    }

    /// Moves to the next leaf that has items.
    #[cold]
    fn advance(&mut self) -> bool {
        let (list, arena) = (self.list, self.arena);
        let (next, last) = match self.towards {
            ListEnd::Back => (ListSeat::Tail, list.tail),
            ListEnd::Front => (ListSeat::Head, list.head),
        };
        let inner = match (&mut self.seat, self.towards) {
            (ListSeat::Tail, ListEnd::Back) | (ListSeat::Head, ListEnd::Front) => return false,
            (ListSeat::Tree(path), ListEnd::Back) => list.spine.next(arena, path),
            (ListSeat::Tree(path), ListEnd::Front) => list.spine.prev(arena, path),
            _ if list.spine.is_empty() => None,
            _ => {
                let (leaf, path) = match self.towards {
                    ListEnd::Back => list.spine.first(arena),
                    ListEnd::Front => list.spine.last(arena),
                };
                self.seat = ListSeat::Tree(path);
                Some(leaf)
            }
        };
        match inner {
            Some(leaf) => self.enter(leaf),
            None => {
                self.seat = next;
                if last.is_none() {
                    return false;
                }
                self.enter(last);
            }
        }
        true
    }
}

impl<'a> Iterator for ListIter<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        if self.left == 0 && !self.advance() {
            return None;
        }
        let offset = self.step();
        Some(self.head.item(self.block, offset, self.arena, &self.list.spill))
    }
}
