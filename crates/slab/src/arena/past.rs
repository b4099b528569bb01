//! Pre-images of blocks: an older version of a tree can be read while the tree changes.
//!
//! The arena keeps each block before its first change ([`Arena::keep_into`]). A reader of the older version sees the
//! kept blocks in place of the present ones ([`Arena::look_back`]). Its handles stay valid, even if their blocks were
//! freed and reused meanwhile. The trees of `pack` use this: every change passes through `block` there. A tree that
//! is not kept pays one comparison of a pointer.

use super::Arena;
use crate::handle::Handle;
use std::collections::BTreeMap;

/// The pre-images of blocks since one point in time.
#[derive(Debug, Default)]
pub struct Past {
    // By handle; a block that is younger has no bytes.
    kept: BTreeMap<u32, PastSpan>,
    // Pre-images, one after another. Each lies whole in one chunk.
    chunks: Vec<Vec<u8>>,
    // Texts outside the arena, by their former number; `None` for a younger one.
    texts: BTreeMap<u32, Option<Box<[u8]>>>,
    bytes: usize,
}

/// The position of a kept block.
#[derive(Copy, Clone, Debug)]
struct PastSpan {
    chunk: u32,
    at: u32,
    bytes: u32,
}

/// Kept blocks are put into pieces of memory of this size, so that they are given back quickly.
const CHUNK_BYTES: usize = 256 << 10;
/// Approximate bytes of a map entry.
const ENTRY_BYTES: usize = 24;

impl Past {
    /// Nothing kept.
    pub fn new() -> Past {
        Past::default()
    }

    /// Bytes that it takes, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pre-image of the block, if it was kept.
    fn get(&self, h: Handle) -> Option<&[u8]> {
        let span = self.kept.get(&h.raw())?;
        let chunk = self.chunks.get(span.chunk as usize)?;
        chunk.get(span.at as usize..(span.at + span.bytes) as usize)
    }

    fn keep(&mut self, h: Handle, block: &[u8]) {
        if self.kept.contains_key(&h.raw()) {
            return;
        }
        let fits = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= block.len();
        if !block.is_empty() && !self.chunks.last().is_some_and(fits) {
            self.chunks.push(Vec::with_capacity(CHUNK_BYTES.max(block.len())));
        }
        let chunk = self.chunks.len().saturating_sub(1) as u32;
        let at = self.chunks.last().map_or(0, Vec::len) as u32;
        if let Some(last) = self.chunks.last_mut() {
            last.extend_from_slice(block);
        }
        self.kept.insert(h.raw(), PastSpan { chunk, at, bytes: block.len() as u32 });
        self.bytes += block.len() + ENTRY_BYTES;
    }

    fn keep_text(&mut self, at: u32, text: Option<Box<[u8]>>) {
        self.texts.entry(at).or_insert_with(|| {
            self.bytes += text.as_ref().map_or(0, |text| text.len()) + ENTRY_BYTES;
            text
        });
    }

    /// Frees the memory of about `blocks_max` kept blocks; returns true if none are left. The pre-images are unusable
    /// from the first call on.
    pub fn forget(&mut self, blocks_max: usize) -> bool {
        for _ in 0..blocks_max {
            if self.kept.pop_first().is_none() {
                break;
            }
        }
        self.chunks.pop();
        self.texts.pop_first();
        self.kept.is_empty() && self.chunks.is_empty() && self.texts.is_empty()
    }
}

impl Arena {
    /// From now on puts blocks of trees into `past` before they change or are freed, until [`Arena::end_past`].
    #[inline]
    pub fn keep_into(&mut self, past: Box<Past>) {
        debug_assert!(self.past.is_none());
        self.past = Some(past);
    }

    /// From now on shows blocks of trees as `past` has them, until [`Arena::end_past`]. Nothing may change meanwhile.
    #[inline]
    pub fn look_back(&mut self, past: Box<Past>) {
        self.keep_into(past);
        self.looks_back = true;
    }

    /// Returns to the present blocks; returns the pre-images.
    #[inline]
    pub fn end_past(&mut self) -> Option<Box<Past>> {
        self.looks_back = false;
        self.past.take()
    }

    /// Returns true if older blocks are shown.
    #[inline(always)]
    pub fn looks_back(&self) -> bool {
        self.looks_back
    }

    /// The block as it must be seen now, with its exact length.
    #[inline]
    pub fn seen(&self, h: Handle) -> &[u8] {
        if self.looks_back { self.seen_in_past(h) } else { self.block(h) }
    }

    #[cold]
    #[inline(never)]
    fn seen_in_past(&self, h: Handle) -> &[u8] {
        self.past.as_ref().and_then(|past| past.get(h)).unwrap_or_else(|| self.block(h))
    }

    /// To be called before a block of a tree changes or is freed.
    #[inline(always)]
    pub fn keep_first(&mut self, h: Handle) {
        if self.past.is_some() {
            self.keep(h);
        }
    }

    /// To be called with a newly allocated block of a tree: its former content need not be kept.
    #[inline(always)]
    pub fn keep_none(&mut self, h: Handle) {
        if let Some(past) = &mut self.past {
            past.keep(h, &[]);
        }
    }

    /// To be called with a text outside the arena that a tree has given up, and the number it had there.
    #[inline]
    pub fn keep_text(&mut self, at: u32, text: Box<[u8]>) {
        if let Some(past) = &mut self.past {
            past.keep_text(at, Some(text));
        }
    }

    /// To be called when a tree has put a text outside the arena, with its number.
    #[inline]
    pub fn keep_no_text(&mut self, at: u32) {
        if let Some(past) = &mut self.past {
            past.keep_text(at, None);
        }
    }

    /// The text outside the arena that had this number, if it was removed since. Only while the arena looks back.
    #[inline]
    pub fn seen_text(&self, at: u32) -> Option<&[u8]> {
        if !self.looks_back {
            return None;
        }
        self.past.as_ref()?.texts.get(&at)?.as_deref()
    }

    #[cold]
    #[inline(never)]
    fn keep(&mut self, h: Handle) {
        debug_assert!(!self.looks_back, "the past cannot be changed");
        let Some(mut past) = self.past.take() else { return };
        past.keep(h, self.block(h));
        self.past = Some(past);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_seen_whatever_became_of_it() {
        let mut arena = Arena::with_reserve(1 << 20).expect("address space");
        let handles: Vec<Handle> = (0..100).map(|_| arena.alloc(200).expect("room")).collect();
        for (n, &h) in handles.iter().enumerate() {
            arena.block_mut(h).fill(n as u8);
        }
        arena.keep_into(Box::new(Past::new()));
        for (n, &h) in handles.iter().enumerate().filter(|(n, _)| n % 3 > 0) {
            arena.keep_first(h);
            arena.block_mut(h).fill(200);
            if n % 3 == 1 {
                arena.free(h);
                let again = arena.alloc(200).expect("room");
                arena.keep_none(again);
                arena.keep_first(again);
                arena.block_mut(again).fill(201);
            }
        }
        let past = arena.end_past().expect("it was kept");
        assert!(past.bytes() > 66 * 200);
        assert_eq!(arena.seen(handles[1])[0], 201, "the present");
        arena.look_back(past);
        for (n, &h) in handles.iter().enumerate() {
            assert_eq!(arena.seen(h).len(), arena.size(h));
            assert!(arena.seen(h).iter().all(|byte| *byte == n as u8), "block {n}");
        }
        let mut past = arena.end_past().expect("it was looked at");
        let steps = (0..).take_while(|_| !past.forget(10)).count();
        assert!((5..8).contains(&steps), "{steps}");
    }
}
