//! The pack: one arena block of up to a few dozen entries with a fingerprint of each in front.
//!
//! Called by [`crate::table`]. A pack keeps entries in the order of insertion and grows and shrinks its block with
//! its content. It never decides when to split, merge or expire.
//!
//! Block: `used:u16 len:u8 depth:6 timed:1 spilled:1 | [first expiry: 6] | fingerprints | offsets | entries`. Up to 8
//! entries there is one fingerprint byte each. Beyond, room for fingerprints comes in groups of eight, and each
//! further group has a u16 offset of its first entry, counted from the start of the entries. So the front moves once
//! in eight insertions, and reaching an entry skips at most seven others.
//!
//! A fingerprint is eight bits of the entry's place, from the pack's depth on or, in a pack of odd depth, from the
//! bit before. It contains the bit by which a split decides, so every other split needs no key. In return, one of its
//! bits may be the same in the whole pack.

mod head;
mod search;
mod write;

use darter_slab::{Arena, Handle};

pub(crate) use head::{LEN_MAX, PackHead, PackShape};
pub(crate) use write::NewPackItem;

use crate::entry::{self, Coded, EXPIRY_BYTES, Item, TAG_EXPIRY};
use crate::spill::Spill;
use head::{GROUP, HEAD_BYTES, MS_BYTES};
use search::equal_bytes;

/// The parts of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PackKind {
    /// Entries are keys (a set).
    Keys,
    /// Entries are a key and its value (a hash).
    KeysAndValues,
}

/// The arena is exhausted, or one pack is filled by entries of equal hash; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PackFull;

/// A pack open for reading.
#[derive(Clone, Copy)]
pub(crate) struct Pack<'a> {
    bytes: &'a View,
    head: PackHead,
}

/// A block and the bytes behind it in the arena or its guard. Any 16-bit offset, and some bytes more, can be read
/// without a check.
type View = [u8; VIEW_BYTES];

/// The position of an entry in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackPlace {
    /// Number of the entry, 0..len.
    pub index: usize,
    /// Offset of its first byte (the expiry time, if any) from the start of the block.
    pub at: usize,
}

/// One stored entry, decoded on demand.
#[derive(Clone, Copy)]
pub struct EntryRef<'a> {
    // Starts with the key.
    bytes: &'a [u8],
    arena: &'a Arena,
    spill: &'a Spill,
    kind: PackKind,
    // 0 = never
    expiry_ms: u64,
}

impl<'a> EntryRef<'a> {
    /// The key: a field or a member.
    #[inline]
    pub fn key(&self) -> Item<'a> {
        entry::read(self.bytes, self.arena, self.spill).0
    }

    /// The value; of a table of keys only, the empty string.
    #[inline]
    pub fn value(&self) -> Item<'a> {
        match self.kind {
            PackKind::Keys => Item::Bytes(&[]),
            PackKind::KeysAndValues => {
                let at = entry::size(self.bytes);
                entry::read(&self.bytes[at..], self.arena, self.spill).0
            }
        }
    }

    /// When the entry expires, in Unix milliseconds.
    #[inline]
    pub fn expiry_ms(&self) -> Option<u64> {
        (self.expiry_ms != 0).then_some(self.expiry_ms)
    }
}

impl<'a> Pack<'a> {
    /// Opens the pack of block `h`.
    #[inline]
    pub fn open(arena: &'a Arena, h: Handle) -> Pack<'a> {
        // SAFETY: `tail` starts inside the arena's mapping. The arena maps a guard of 1 MiB behind its last block, to
        // which nobody writes. These bytes are therefore readable as long as the arena is borrowed.
        let bytes = unsafe { &*arena.tail(h).as_ptr().cast::<View>() };
        Pack { bytes, head: PackHead::read(bytes) }
    }

    /// The header.
    #[inline]
    pub fn head(&self) -> PackHead {
        self.head
    }

    /// Bytes of entries, without header, fingerprints and offsets.
    pub fn content(&self) -> usize {
        self.head.used() - self.head.shape().data_at()
    }

    /// No entry expires before this, in Unix milliseconds; `u64::MAX` when none expires.
    pub fn min_expiry_ms(&self) -> u64 {
        if self.head.timed() { read_ms(&self.bytes[HEAD_BYTES..]) } else { u64::MAX }
    }

    /// The entry of place `x` in hash space and of this key.
    #[inline(always)]
    pub fn find(
        &self,
        x: u64,
        key: &Coded<'_>,
        kind: PackKind,
        arena: &Arena,
        spill: &Spill,
    ) -> Option<PackPlace> {
        let len = self.head.len();
        if self.head.timed() || len.wrapping_sub(1) >= 64 || key.is_long() {
            return self.find_slowly(x, key, kind, arena, spill);
        }
        let mut hits = equal_bytes(&self.bytes[HEAD_BYTES..], len, fingerprint(x, self.head.depth()));
        while hits != 0 {
            let index = hits.trailing_zeros() as usize;
            let at = self.skip_items(self.group_at(index), (index % GROUP) << kind as u32);
            if key.is_inline_at(&self.bytes[at as usize..]) {
                return Some(PackPlace { index, at: at as usize });
            }
            hits &= hits - 1;
        }
        None
    }

    /// [`Pack::find`] for packs with expiry times or too many entries, and for long keys.
    #[inline(never)]
    fn find_slowly(
        &self,
        x: u64,
        key: &Coded<'_>,
        kind: PackKind,
        arena: &Arena,
        spill: &Spill,
    ) -> Option<PackPlace> {
        let fp = fingerprint(x, self.head.depth());
        let mut indexes = self.fingerprints().iter().enumerate().filter(|&(_, &other)| other == fp);
        indexes.find_map(|(index, _)| {
            let at = self.offset(index, kind);
            let is_it = key.is_at(&self.bytes[at + self.expiry_len(at)..], arena, spill);
            is_it.then_some(PackPlace { index, at })
        })
    }

    /// Offset of entry `index` (0..len) from the start of the block.
    #[inline]
    pub fn offset(&self, index: usize, kind: PackKind) -> usize {
        let mut at = self.group_at(index);
        if !self.head.timed() {
            return self.skip_items(at, (index % GROUP) << kind as u32) as usize;
        }
        for _ in 0..index % GROUP {
            at = self.entry_end(at, kind);
        }
        at as usize
    }

    /// Offset of the first entry of the group that entry `index` belongs to.
    #[inline]
    fn group_at(&self, index: usize) -> u16 {
        let shape = self.head.shape();
        let group = index / GROUP;
        if group == 0 {
            return shape.data_at() as u16;
        }
        (shape.data_at() as u16).wrapping_add(read_u16(self.bytes, shape.offset_at(group)))
    }

    /// Offset of the item `count` items after the one at offset `at`.
    #[inline]
    fn skip_items(&self, mut at: u16, count: usize) -> u16 {
        for _ in 0..count {
            at = at.wrapping_add(self.item_len(at));
        }
        at
    }

    /// Bytes of the item at offset `at`.
    #[inline(always)]
    fn item_len(&self, at: u16) -> u16 {
        let at = at as usize;
        entry::size_of([self.bytes[at], self.bytes[at + 1]]) as u16
    }

    /// Offset behind the entry at offset `at`.
    #[inline(always)]
    fn entry_end(&self, at: u16, kind: PackKind) -> u16 {
        let key_at = at.wrapping_add(self.expiry_len(at as usize) as u16);
        self.skip_items(key_at, 1 << kind as u32)
    }

    /// Offsets of all entries and of their end from the start of the block.
    pub fn offsets(&self, kind: PackKind, out: &mut [u16; LEN_MAX + 1]) {
        let mut at = self.first_at() as u16;
        for out in &mut out[..self.head.len()] {
            *out = at;
            at = self.entry_end(at, kind);
        }
        out[self.head.len()] = at;
    }

    /// The fingerprints, one per entry.
    pub fn fingerprints(&self) -> &'a [u8] {
        &self.bytes[self.head.shape().fps_at()..][..self.head.len()]
    }

    /// The entry at offset `at`.
    #[inline]
    pub fn entry(&self, at: usize, kind: PackKind, arena: &'a Arena, spill: &'a Spill) -> EntryRef<'a> {
        let skip = self.expiry_len(at);
        let expiry_ms = if skip == 0 { 0 } else { read_ms(&self.bytes[at + 1..]) };
        EntryRef { bytes: &self.bytes[at + skip..], arena, spill, kind, expiry_ms }
    }

    /// Bytes of the entry at offset `at`, expiry time included.
    #[inline]
    pub fn entry_len(&self, at: usize, kind: PackKind) -> usize {
        (self.entry_end(at as u16, kind).wrapping_sub(at as u16)) as usize
    }

    /// Offset of the first entry.
    #[inline]
    pub fn first_at(&self) -> usize {
        self.head.shape().data_at()
    }

    /// Offset and bytes of the value of the entry at offset `at`, in a pack of keys and values.
    pub fn value_place(&self, at: usize) -> (usize, usize) {
        let value_at = self.value_at(at);
        (value_at, entry::size(&self.bytes[value_at..]))
    }

    /// Offset of the value of the entry at offset `at`, in a pack of keys and values.
    #[inline]
    pub fn value_at(&self, at: usize) -> usize {
        let key_at = at + self.expiry_len(at);
        key_at + entry::size(&self.bytes[key_at..])
    }

    /// Copies of the encoded items of the entry at offset `at` that are out of line.
    pub fn spilled_items(&self, at: usize, kind: PackKind) -> [Option<[u8; entry::SPILLED_BYTES]>; 2] {
        let key_at = at + self.expiry_len(at);
        let copy = |at: usize| self.bytes[at..at + entry::SPILLED_BYTES].try_into().ok();
        let spilled = |at: usize| if entry::is_spilled(&self.bytes[at..]) { copy(at) } else { None };
        let value = if kind == PackKind::Keys { None } else { spilled(self.value_place(at).0) };
        [spilled(key_at), value]
    }

    /// Bytes of a block for `len` entries of `content` bytes.
    pub fn block_bytes(len: usize, timed: bool, content: usize) -> usize {
        PackShape { len, timed }.data_at() + content
    }

    #[inline]
    fn expiry_len(&self, at: usize) -> usize {
        if self.head.timed() { expiry_len(self.bytes[at]) } else { 0 }
    }
}

/// The fingerprint of place `x` in a pack of `depth` (0..=48).
#[inline]
pub(crate) fn fingerprint(x: u64, depth: u32) -> u8 {
    (x << window(depth) >> 56) as u8
}

/// The first bit of place that fingerprints of a pack of `depth` hold.
#[inline]
pub(crate) fn window(depth: u32) -> u32 {
    depth / WINDOW_STEP * WINDOW_STEP
}

/// Bytes of the expiry time an entry with this first byte begins with.
#[inline]
fn expiry_len(first: u8) -> usize {
    if first == TAG_EXPIRY { EXPIRY_BYTES } else { 0 }
}

/// Six bytes; all ones mean never.
fn read_ms(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..MS_BYTES].copy_from_slice(&bytes[..MS_BYTES]);
    match u64::from_le_bytes(word) {
        NEVER => u64::MAX,
        ms => ms,
    }
}

#[inline]
fn read_u16(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Any 16-bit offset and the longest read beyond it.
const VIEW_BYTES: usize = (1 << 16) + 128;
const NEVER: u64 = (1 << 48) - 1;
/// Depths between changes of the fingerprints' window: more means fewer hashes in splits, less certain hits.
pub(crate) const WINDOW_STEP: u32 = 2;
