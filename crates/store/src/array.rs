//! A sparse array: texts at places from 0 to 2^64 - 2, as Redis 8.8 has it.
//!
//! Sixty-four places next to each other share a block of the arena: a bit for each that is taken, then the texts in
//! order. A long text has a block of its own. Blocks are replaced, never changed, so that a reader of an older state
//! sees the former array; the root shares its pages of handles with such a reader. Called by the array commands and
//! by files.

use std::collections::BTreeMap;
use std::sync::Arc;

use darter_base::varint;
use darter_slab::{Arena, Handle};

use crate::error::ShardFull;

/// The last place.
pub const PLACE_MAX: u64 = u64::MAX - 1;
/// Places of a block.
const BLOCK_BITS: u32 = 6;
/// Blocks of a page.
const PAGE_BITS: u32 = 8;
/// Texts from this length on have blocks of their own.
const FAR_MIN: usize = 48;
const MAP_BYTES: usize = 8;
const HANDLE_BYTES: usize = 4;

/// Handles of up to 256 blocks, by their number in the page.
#[derive(Clone, Debug, Default)]
struct ArrayPage {
    blocks: Vec<(u8, Handle)>,
    // Texts in them.
    count: u64,
}

impl ArrayPage {
    fn find(&self, slot: u8) -> Result<usize, usize> {
        self.blocks.binary_search_by_key(&slot, |(slot, _)| *slot)
    }
}

/// An array.
#[derive(Clone, Debug, Default)]
pub struct Array {
    pages: BTreeMap<u64, Arc<ArrayPage>>,
    /// Numbers of the pages, for a reader of the past that asks for one after another.
    order: Vec<u64>,
    count: u64,
    /// The place of the last insertion.
    pub cursor: Option<u64>,
    arena_bytes: usize,
    blocks_len: usize,
    // Blocks that were taken out unread, to be freed in steps.
    doomed: Vec<Handle>,
    doomed_pages: Vec<Arc<ArrayPage>>,
}

/// A text of a block, as it lies there.
#[derive(Clone, Copy)]
struct ArrayEntry<'a> {
    place: u8,
    // length and text, or length and handle
    raw: &'a [u8],
    text: ArrayText<'a>,
}

#[derive(Clone, Copy)]
enum ArrayText<'a> {
    Near(&'a [u8]),
    Far(Handle, usize),
}

impl<'a> ArrayText<'a> {
    fn bytes(self, arena: &'a Arena) -> &'a [u8] {
        match self {
            ArrayText::Near(bytes) => bytes,
            ArrayText::Far(handle, len) => arena.seen(handle).get(..len).unwrap_or_default(),
        }
    }
}

/// The texts of a block in the order of their places.
fn entries(block: &[u8]) -> impl Iterator<Item = ArrayEntry<'_>> {
    let (map, mut rest) = block.split_first_chunk::<MAP_BYTES>().unwrap_or((&[0; MAP_BYTES], &[]));
    let mut map = u64::from_le_bytes(*map);
    std::iter::from_fn(move || {
        let place = map.trailing_zeros() as u8;
        map &= map.checked_sub(1)?;
        let before = rest;
        let head = varint::take(&mut rest)?;
        let (len, is_far) = ((head >> 1) as usize, head & 1 == 1);
        let stored = if is_far { HANDLE_BYTES } else { len };
        let (bytes, behind) = rest.split_at_checked(stored)?;
        rest = behind;
        let text = if is_far {
            ArrayText::Far(Handle::from_raw(u32::from_le_bytes(bytes.try_into().ok()?)), len)
        } else {
            ArrayText::Near(bytes)
        };
        Some(ArrayEntry { place, raw: before.get(..before.len() - rest.len())?, text })
    })
}

fn split(place: u64) -> (u64, u8, u8) {
    let block = place >> BLOCK_BITS;
    (block >> PAGE_BITS, block as u8, place as u8 & ((1 << BLOCK_BITS) - 1))
}

fn join(page: u64, slot: u8, place: u8) -> u64 {
    (page << PAGE_BITS | u64::from(slot)) << BLOCK_BITS | u64::from(place)
}

fn put_far(arena: &mut Arena, text: &[u8]) -> Option<Handle> {
    let handle = arena.alloc(text.len())?;
    arena.keep_none(handle);
    arena.block_mut(handle).get_mut(..text.len())?.copy_from_slice(text);
    Some(handle)
}

fn free(arena: &mut Arena, handle: Handle) -> usize {
    let bytes = arena.size(handle);
    arena.give_up(handle);
    bytes
}

impl Array {
    /// Texts.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The highest place that is taken, plus one.
    pub fn len(&self, arena: &Arena) -> u64 {
        let last = self.pages.last_key_value().and_then(|(&page, blocks)| {
            let &(slot, handle) = blocks.blocks.last()?;
            let map = u64::from_le_bytes(*arena.seen(handle).first_chunk()?);
            Some(join(page, slot, 63_u8.saturating_sub(map.leading_zeros() as u8)) + 1)
        });
        last.unwrap_or(0)
    }

    /// Blocks of up to 64 places that are taken.
    pub fn blocks_len(&self) -> usize {
        self.blocks_len
    }

    /// Bytes in the arena and on the heap, without the root.
    pub fn memory_bytes(&self) -> usize {
        const PAGE_BYTES: usize = 80;
        self.arena_bytes + self.pages.len() * PAGE_BYTES + self.blocks_len * size_of::<(u8, Handle)>()
    }

    fn block(&self, page: u64, slot: u8) -> Option<Handle> {
        let page = self.pages.get(&page)?;
        page.find(slot).ok().and_then(|at| page.blocks.get(at)).map(|(_, handle)| *handle)
    }

    /// The text at `place`.
    pub fn get<'a>(&self, arena: &'a Arena, place: u64) -> Option<&'a [u8]> {
        let (page, slot, place) = split(place);
        let block = arena.seen(self.block(page, slot)?);
        entries(block).find(|entry| entry.place == place).map(|entry| entry.text.bytes(arena))
    }

    /// Puts `texts` at `place` and the places behind it; returns how many of them were free.
    ///
    /// Errors: no room; some of them may be there.
    pub fn put<'t>(
        &mut self,
        arena: &mut Arena,
        mut place: u64,
        texts: impl Iterator<Item = &'t [u8]>,
    ) -> Result<u64, ShardFull> {
        let before = self.count;
        let mut texts = texts.peekable();
        while texts.peek().is_some() {
            let (page, slot, first) = split(place);
            let places = first..1 << BLOCK_BITS;
            let puts: Vec<(u8, &[u8])> = places.zip(texts.by_ref()).collect();
            self.change_block(arena, (page, slot), u64::MAX, &puts)?;
            place = place.saturating_add(puts.len() as u64);
        }
        Ok(self.count - before)
    }

    /// Removes the texts of `from..=to`; returns their number. Blocks between those of the ends are left to
    /// [`Array::sweep`].
    ///
    /// Cost: two blocks, a look at each block of the pages of the ends, and at each page between.
    ///
    /// Errors: no room for what stays; some may be gone.
    pub fn remove(&mut self, arena: &mut Arena, from: u64, to: u64) -> Result<u64, ShardFull> {
        let before = self.count;
        let is_in_one = from >> BLOCK_BITS == to >> BLOCK_BITS;
        for end in [from, to].into_iter().skip(usize::from(is_in_one)) {
            let (page, slot, _) = split(end);
            if self.block(page, slot).is_some() {
                let start = join(page, slot, 0);
                let low = from.saturating_sub(start).min(63) as u32;
                let high = to.saturating_sub(start).min(63) as u32;
                let goes = u64::MAX << low & u64::MAX >> (63 - high);
                self.change_block(arena, (page, slot), !goes, &[])?;
            }
        }
        let (first, end) = ((from >> BLOCK_BITS) + 1, to >> BLOCK_BITS);
        if first < end {
            self.take_out(arena, first, end - 1);
        }
        Ok(before - self.count)
    }

    /// Takes out the blocks `first..=last`.
    fn take_out(&mut self, arena: &Arena, first: u64, last: u64) {
        let pages = first >> PAGE_BITS..=last >> PAGE_BITS;
        let pages: Vec<u64> = self.pages.range(pages).map(|(&page, _)| page).collect();
        for number in pages {
            let start = number << PAGE_BITS;
            let slots = first.saturating_sub(start)..=(last - start).min(u64::from(u8::MAX));
            if slots == (0..=u64::from(u8::MAX)) {
                let Some(page) = self.pages.remove(&number) else { continue };
                self.count -= page.count;
                self.blocks_len -= page.blocks.len();
                self.doomed_pages.push(page);
                continue;
            }
            let Some(page) = self.pages.get_mut(&number).map(Arc::make_mut) else { continue };
            let from = page.blocks.partition_point(|(slot, _)| u64::from(*slot) < *slots.start());
            let to = page.blocks.partition_point(|(slot, _)| u64::from(*slot) <= *slots.end());
            for (_, block) in page.blocks.drain(from..to) {
                let map = arena.seen(block).first_chunk().map_or(0, |map| u64::from_le_bytes(*map));
                page.count -= u64::from(map.count_ones());
                self.count -= u64::from(map.count_ones());
                self.blocks_len -= 1;
                self.doomed.push(block);
            }
            if page.blocks.is_empty() {
                self.pages.remove(&number);
            }
        }
    }

    /// Returns true if blocks that were taken out are not freed yet.
    pub fn is_unswept(&self) -> bool {
        !(self.doomed.is_empty() && self.doomed_pages.is_empty())
    }

    /// Frees up to about `blocks_max` blocks that were taken out; returns true if none is left.
    pub fn sweep(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        for _ in 0..blocks_max {
            if let Some(block) = self.doomed.pop() {
                self.free_block(arena, block);
                continue;
            }
            let Some(page) = self.doomed_pages.pop() else { break };
            self.doomed.extend(page.blocks.iter().map(|(_, block)| *block));
        }
        !self.is_unswept()
    }

    /// Frees a block and its far texts.
    fn free_block(&mut self, arena: &mut Arena, block: Handle) {
        let far: Vec<Handle> = entries(arena.block(block))
            .filter_map(|entry| match entry.text {
                ArrayText::Far(handle, _) => Some(handle),
                ArrayText::Near(_) => None,
            })
            .collect();
        for handle in far.into_iter().chain([block]) {
            self.arena_bytes -= free(arena, handle);
        }
    }

    /// Replaces a block by one with the places of `keep` and those of `puts`, both sorted.
    fn change_block(
        &mut self,
        arena: &mut Arena,
        (page, slot): (u64, u8),
        keep: u64,
        puts: &[(u8, &[u8])],
    ) -> Result<(), ShardFull> {
        let old = self.block(page, slot);
        let new_map = puts.iter().fold(0, |map, (place, _)| map | 1_u64 << place);
        let mut far = Vec::new();
        for (_, text) in puts.iter().filter(|(_, text)| text.len() >= FAR_MIN) {
            match put_far(arena, text) {
                Some(handle) => far.push(handle),
                None => {
                    far.into_iter().for_each(|handle| arena.free(handle));
                    return Err(ShardFull);
                }
            }
        }
        let mut map = 0_u64;
        let (mut body, mut gone) = (Vec::new(), Vec::new());
        let mut old_len = 0;
        {
            let mut new_far = far.iter();
            let mut put = |map: &mut u64, body: &mut Vec<u8>, &(place, text): &(u8, &[u8])| {
                *map |= 1 << place;
                varint::write(body, (text.len() as u64) << 1 | u64::from(text.len() >= FAR_MIN));
                match text.len() >= FAR_MIN {
                    true => body.extend(new_far.next().map_or(0, |handle| handle.raw()).to_le_bytes()),
                    false => body.extend_from_slice(text),
                }
            };
            let mut waiting = puts.iter().peekable();
            for entry in entries(old.map_or(&[], |old| arena.block(old))) {
                old_len += 1;
                while let Some(next) = waiting.next_if(|(place, _)| *place < entry.place) {
                    put(&mut map, &mut body, next);
                }
                if keep & !new_map & 1 << entry.place != 0 {
                    map |= 1 << entry.place;
                    body.extend_from_slice(entry.raw);
                } else if let ArrayText::Far(handle, _) = entry.text {
                    gone.push(handle);
                }
            }
            waiting.for_each(|next| put(&mut map, &mut body, next));
        }
        let new = if map == 0 { None } else { Some(self.write_block(arena, map, &body)) };
        let new = match new {
            Some(Err(full)) => {
                far.into_iter().for_each(|handle| arena.free(handle));
                return Err(full);
            }
            Some(Ok(handle)) => Some(handle),
            None => None,
        };
        self.arena_bytes += far.iter().chain(&new).map(|&handle| arena.size(handle)).sum::<usize>();
        for handle in gone.into_iter().chain(old) {
            self.arena_bytes -= free(arena, handle);
        }
        self.count = self.count + u64::from(map.count_ones()) - old_len;
        self.link(page, slot, new, (old_len, u64::from(map.count_ones())));
        Ok(())
    }

    fn write_block(&self, arena: &mut Arena, map: u64, body: &[u8]) -> Result<Handle, ShardFull> {
        let handle = arena.alloc(MAP_BYTES + body.len()).ok_or(ShardFull)?;
        arena.keep_none(handle);
        if let Some((head, room)) = arena.block_mut(handle).split_first_chunk_mut::<MAP_BYTES>() {
            *head = map.to_le_bytes();
            if let Some(room) = room.get_mut(..body.len()) {
                room.copy_from_slice(body);
            }
        }
        Ok(handle)
    }

    /// Puts a block of `new` texts in place of one of `old` texts.
    fn link(&mut self, page: u64, slot: u8, handle: Option<Handle>, (old, new): (u64, u64)) {
        let blocks = Arc::make_mut(self.pages.entry(page).or_default());
        blocks.count = blocks.count + new - old;
        match (blocks.find(slot), handle) {
            (Ok(at), Some(handle)) => {
                if let Some(place) = blocks.blocks.get_mut(at) {
                    place.1 = handle;
                }
            }
            (Err(at), Some(handle)) => {
                blocks.blocks.insert(at, (slot, handle));
                self.blocks_len += 1;
            }
            (Ok(at), None) => {
                blocks.blocks.remove(at);
                self.blocks_len -= 1;
            }
            (Err(_), None) => {}
        }
        if blocks.blocks.is_empty() {
            self.pages.remove(&page);
        }
    }

    /// Visits the texts of `from..=to`, lowest place first, until `visit` returns false.
    pub fn each(&self, arena: &Arena, from: u64, to: u64, visit: &mut dyn FnMut(u64, &[u8]) -> bool) {
        let (first, last) = (split(from).0, split(to).0);
        if from > to {
            return;
        }
        for (&page, blocks) in self.pages.range(first..=last) {
            for &(slot, handle) in &blocks.blocks {
                let start = join(page, slot, 0);
                if start > to || start + 63 < from {
                    continue;
                }
                for entry in entries(arena.seen(handle)) {
                    let place = start + u64::from(entry.place);
                    if (from..=to).contains(&place) && !visit(place, entry.text.bytes(arena)) {
                        return;
                    }
                }
            }
        }
    }

    /// [`Array::each`], highest place first.
    pub fn each_reversed(
        &self,
        arena: &Arena,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) {
        let (first, last) = (split(from).0, split(to).0);
        if from > to {
            return;
        }
        for (&page, blocks) in self.pages.range(first..=last).rev() {
            for &(slot, handle) in blocks.blocks.iter().rev() {
                let start = join(page, slot, 0);
                if start > to || start + 63 < from {
                    continue;
                }
                let block: Vec<ArrayEntry<'_>> = entries(arena.seen(handle)).collect();
                for entry in block.into_iter().rev() {
                    let place = start + u64::from(entry.place);
                    if (from..=to).contains(&place) && !visit(place, entry.text.bytes(arena)) {
                        return;
                    }
                }
            }
        }
    }

    /// A copy of the root for a reader of the present state. The copy must never free its blocks.
    pub fn frozen(&self) -> Array {
        Array {
            pages: self.pages.clone(),
            order: self.pages.keys().copied().collect(),
            doomed: Vec::new(),
            doomed_pages: Vec::new(),
            ..*self
        }
    }

    /// Pages of the array.
    pub fn pages_len(&self) -> usize {
        self.pages.len()
    }

    /// The first place and the last of page `number` of a frozen array.
    pub fn page_span(&self, number: usize) -> Option<(u64, u64)> {
        let page = *self.order.get(number)?;
        Some((join(page, 0, 0), join(page, u8::MAX, 63)))
    }

    /// Frees up to about `blocks_max` blocks; returns true if none is left.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        if !self.sweep(arena, blocks_max) {
            return false;
        }
        for _ in 0..blocks_max {
            let Some(mut last) = self.pages.last_entry() else { break };
            let popped = Arc::make_mut(last.get_mut()).blocks.pop();
            if last.get().blocks.is_empty() {
                last.remove();
            }
            let Some((_, block)) = popped else { continue };
            self.free_block(arena, block);
        }
        self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::rng::Rng;

    #[test]
    fn an_array_is_as_a_map_of_texts() {
        let mut arena = Arena::with_reserve(64 << 20).expect("address space");
        let (mut array, mut map) = (Array::default(), BTreeMap::new());
        let mut rng = Rng::new(3);
        for round in 0..20_000_u64 {
            let place = match rng.below(4) {
                0 => rng.below(100),
                1 => rng.below(100_000),
                2 => PLACE_MAX - rng.below(200),
                _ => rng.next_u64() >> 1,
            };
            let text = vec![round as u8; [0, 1, 7, 47, 48, 300][rng.below(6) as usize]];
            match rng.below(5) {
                0 => {
                    let far = [u64::MAX, 40_000, 40_000, 200][rng.below(12).min(3) as usize];
                    let to = place.saturating_add(rng.below(far)).min(PLACE_MAX);
                    let gone: Vec<u64> = map.range(place..=to).map(|(&place, _)| place).collect();
                    assert_eq!(array.remove(&mut arena, place, to), Ok(gone.len() as u64));
                    gone.iter().for_each(|place| drop(map.remove(place)));
                }
                1 => {
                    let texts: Vec<&[u8]> = vec![&text; rng.below(100).min(PLACE_MAX - place) as usize];
                    let new = (place..)
                        .zip(&texts)
                        .filter(|(place, text)| map.insert(*place, text.to_vec()).is_none());
                    let new = new.count() as u64;
                    assert_eq!(array.put(&mut arena, place, texts.into_iter()), Ok(new));
                }
                _ => {
                    let is_new = map.insert(place, text.clone()).is_none();
                    assert_eq!(array.put(&mut arena, place, [&text[..]].into_iter()), Ok(u64::from(is_new)));
                }
            }
            assert_eq!(array.get(&arena, place), map.get(&place).map(Vec::as_slice));
            if rng.below(3) == 0 {
                array.sweep(&mut arena, rng.below(50) as usize);
            }
            assert_eq!(array.count(), map.len() as u64);
            assert_eq!(array.arena_bytes, arena.used_bytes());
            assert_eq!(array.len(&arena), map.last_key_value().map_or(0, |(place, _)| place + 1));
        }
        let (mut up, mut down) = (Vec::new(), Vec::new());
        array.each(&arena, 50, PLACE_MAX - 20, &mut |place, text| {
            up.push((place, text.to_vec()));
            true
        });
        array.each_reversed(&arena, 50, PLACE_MAX - 20, &mut |place, text| {
            down.push((place, text.to_vec()));
            true
        });
        down.reverse();
        let wanted: Vec<_> =
            map.range(50..=PLACE_MAX - 20).map(|(&place, text)| (place, text.clone())).collect();
        assert!(up == wanted && down == wanted);
        while !array.free_step(&mut arena, 100) {}
        assert_eq!((arena.used_bytes(), array.arena_bytes), (0, 0));
    }

    /// A million texts go with a look at some hundred of their blocks.
    #[test]
    fn a_long_range_is_taken_out_unread() {
        let mut arena = Arena::with_reserve(256 << 20).expect("address space");
        let mut array = Array::default();
        let texts = vec![&b"text"[..]; 1_000_000];
        array.put(&mut arena, 0, texts.into_iter()).expect("room");
        let used = arena.used_bytes();
        assert_eq!(array.remove(&mut arena, 70, 999_900), Ok(999_831));
        assert_eq!((array.count(), array.len(&arena)), (169, 1_000_000));
        assert!(array.is_unswept() && arena.used_bytes() > used / 10 * 9, "freed at once");
        assert_eq!(array.get(&arena, 69), Some(&b"text"[..]));
        assert_eq!((array.get(&arena, 70), array.get(&arena, 999_900)), (None, None));
        while !array.sweep(&mut arena, 100) {}
        assert_eq!(array.arena_bytes, arena.used_bytes());
        assert!(arena.used_bytes() < used / 100);
        while !array.free_step(&mut arena, 100) {}
        assert_eq!(arena.used_bytes(), 0);
    }
}
