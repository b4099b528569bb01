//! The pack: one arena block of up to a few dozen entries with a fingerprint of each in front.
//!
//! Called by [`crate::table`]. It keeps entries in the order they came, grows and shrinks its block with
//! its content, and never looks at hashes, depths or expiry times beyond storing them.
//!
//! Block: `used:u16 len:u8 depth:6 timed:1 spilled:1 | [first expiry: 6] | fingerprints | offsets | entries`.
//! Up to 8 entries there is one fingerprint byte each; then room for them comes in eights, and each
//! further eight has a u16 offset of its first entry, counted from the start of the entries. So the front
//! moves once in eight insertions, and reaching an entry skips at most seven others.

use darter_slab::{Arena, BLOCK_BYTES_MAX, Handle};

use crate::entry::{self, Coded, EXPIRY_BYTES, Item, TAG_EXPIRY};
use crate::spill::Spill;

/// What an entry consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Entries are keys (a set).
    Keys,
    /// Entries are a key and its value (a hash).
    KeysAndValues,
}

/// The arena is exhausted, or one pack is filled by entries of equal hash; nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// A pack open for reading.
#[derive(Clone, Copy)]
pub(crate) struct Pack<'a> {
    // The block and what lies behind it in the arena, so that fingerprints can be read 16 at a time.
    bytes: &'a [u8],
    head: Head,
}

/// The first four bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes from the start of the block to the end of the last entry.
    pub used: usize,
    /// Number of entries, 0..=LEN_MAX.
    pub len: usize,
    /// Number of leading hash bits all entries share.
    pub depth: u32,
    /// Whether the pack has room for its earliest expiry time, because an entry may have one.
    pub timed: bool,
    /// Whether an item may be out of line.
    pub spilled: bool,
}

/// Where an entry lies in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
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
    kind: Kind,
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
            Kind::Keys => Item::Bytes(&[]),
            Kind::KeysAndValues => {
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
        let bytes = arena.tail(h);
        Pack { bytes, head: Head::read(bytes) }
    }

    /// The header.
    #[inline]
    pub fn head(&self) -> Head {
        self.head
    }

    /// Bytes of entries, without header, fingerprints and offsets.
    pub fn content(&self) -> usize {
        self.head.used - self.head.shape().data_at()
    }

    /// No entry expires before this, in Unix milliseconds; `u64::MAX` when none expires.
    pub fn min_expiry_ms(&self) -> u64 {
        if self.head.timed { read_ms(&self.bytes[HEAD_BYTES..]) } else { u64::MAX }
    }

    /// The entry of this fingerprint and key.
    #[inline]
    pub fn find(&self, fp: u8, key: &Coded<'_>, kind: Kind, arena: &Arena, spill: &Spill) -> Option<Place> {
        let shape = self.head.shape();
        let mut first = 0;
        while first < shape.len {
            let fps = &self.bytes[shape.fps_at() + first..];
            let mut hits = equal_bytes(fps, (shape.len - first).min(64), fp);
            while hits != 0 {
                let index = first + hits.trailing_zeros() as usize;
                let at = self.offset(index, kind);
                if key.is_at(&self.bytes[at + expiry_len(self.bytes[at])..self.head.used], arena, spill) {
                    return Some(Place { index, at });
                }
                hits &= hits - 1;
            }
            first += 64;
        }
        None
    }

    /// Offset of entry `index` (0..len) from the start of the block.
    #[inline]
    pub fn offset(&self, index: usize, kind: Kind) -> usize {
        let shape = self.head.shape();
        let group = index / GROUP;
        let mut at = shape.data_at();
        if group != 0 {
            at += read_u16(self.bytes, shape.offset_at(group)) as usize;
        }
        for _ in 0..index % GROUP {
            at += entry_size(&self.bytes[at..], kind);
        }
        at
    }

    /// Fingerprint of entry `index`.
    pub fn fingerprint(&self, index: usize) -> u8 {
        self.bytes[self.head.shape().fps_at() + index]
    }

    /// The entry at offset `at`.
    #[inline]
    pub fn entry(&self, at: usize, kind: Kind, arena: &'a Arena, spill: &'a Spill) -> EntryRef<'a> {
        let skip = expiry_len(self.bytes[at]);
        let expiry_ms = if skip == 0 { 0 } else { read_ms(&self.bytes[at + 1..]) };
        EntryRef { bytes: &self.bytes[at + skip..], arena, spill, kind, expiry_ms }
    }

    /// Bytes of the entry at offset `at`, expiry time included.
    #[inline]
    pub fn entry_len(&self, at: usize, kind: Kind) -> usize {
        entry_size(&self.bytes[at..], kind)
    }

    /// Offset of the first entry.
    #[inline]
    pub fn first_at(&self) -> usize {
        self.head.shape().data_at()
    }

    /// Offset and bytes of the value of the entry at offset `at`, in a pack of keys and values.
    pub fn value_place(&self, at: usize) -> (usize, usize) {
        let key_at = at + expiry_len(self.bytes[at]);
        let value_at = key_at + entry::size(&self.bytes[key_at..]);
        (value_at, entry::size(&self.bytes[value_at..]))
    }

    /// Copies of the encoded items of the entry at offset `at` that are out of line.
    pub fn spilled_items(&self, at: usize, kind: Kind) -> [Option<[u8; entry::SPILLED_BYTES]>; 2] {
        let key_at = at + expiry_len(self.bytes[at]);
        let copy = |at: usize| self.bytes[at..at + entry::SPILLED_BYTES].try_into().ok();
        let spilled = |at: usize| if entry::is_spilled(&self.bytes[at..]) { copy(at) } else { None };
        let value = if kind == Kind::Keys { None } else { spilled(self.value_place(at).0) };
        [spilled(key_at), value]
    }

    /// Bytes of a block for `len` entries of `content` bytes.
    pub fn block_bytes(len: usize, timed: bool, content: usize) -> usize {
        Shape { len, timed }.data_at() + content
    }

    /// The encoded bytes from offset `at` to the end of the last entry.
    fn encoded(&self, at: usize, len: usize) -> &'a [u8] {
        &self.bytes[at..at + len]
    }
}

/// Writes that change a pack; each gives the handle of its block, which may have moved.
impl Pack<'_> {
    /// An empty pack of `depth` with room for `bytes` bytes of block.
    pub fn create(arena: &mut Arena, depth: u32, timed: bool, bytes: usize) -> Result<Handle, Full> {
        let used = Shape { len: 0, timed }.data_at();
        let h = allocate(arena, bytes.max(used))?;
        Head { used, len: 0, depth, timed, spilled: false }.write(arena.block_mut(h));
        if timed {
            write_ms(&mut arena.block_mut(h)[HEAD_BYTES..], u64::MAX);
        }
        Ok(h)
    }

    /// Adds an entry at the end.
    #[inline]
    pub fn append(arena: &mut Arena, h: Handle, fp: u8, new: &New<'_>) -> Result<Handle, Full> {
        let head = Head::read(arena.tail(h));
        let timed = head.timed || new.expiry_ms.is_some();
        let (from, to) = (head.shape(), Shape { len: head.len + 1, timed });
        let used = head.used + to.data_at() - from.data_at();
        if head.len == LEN_MAX {
            return Err(Full);
        }
        let h = reserve(arena, h, head.used, used + new.len())?;
        let block = arena.block_mut(h);
        from.convert(to, block, head.used);
        if timed {
            note_expiry(block, head.timed, new.expiry_ms.unwrap_or(u64::MAX));
        }
        block[to.fps_at() + head.len] = fp;
        if head.len.is_multiple_of(GROUP) && head.len != 0 {
            write_u16(block, to.offset_at(head.len / GROUP), used - to.data_at());
        }
        new.write(&mut block[used..]);
        let spilled = head.spilled || new.spilled;
        Head { used: used + new.len(), len: head.len + 1, depth: head.depth, timed, spilled }.write(block);
        Ok(h)
    }

    /// Takes the entry at `place` out; items out of line must have been released before.
    pub fn remove(arena: &mut Arena, h: Handle, place: Place, kind: Kind) -> Handle {
        let pack = Pack::open(arena, h);
        let (head, len) = (pack.head, pack.entry_len(place.at, kind));
        let from = head.shape();
        // The first entry of each later group moves to the group before.
        let mut moved = [0u16; LEN_MAX / GROUP + 1];
        for group in place.index / GROUP + 1..from.groups() {
            let at = read_u16(pack.bytes, from.offset_at(group)) as usize;
            moved[group] = (at + pack.entry_len(from.data_at() + at, kind) - len) as u16;
        }
        let block = arena.block_mut(h);
        for (group, &at) in moved.iter().enumerate().take(from.groups()).skip(place.index / GROUP + 1) {
            write_u16(block, from.offset_at(group), at as usize);
        }
        block.copy_within(place.at + len..head.used, place.at);
        let fps = from.fps_at();
        block.copy_within(fps + place.index + 1..fps + head.len, fps + place.index);
        let to = Shape { len: head.len - 1, timed: head.timed };
        from.convert(to, block, head.used - len);
        let used = head.used - len + to.data_at() - from.data_at();
        Head { used, len: head.len - 1, ..head }.write(block);
        shrink(arena, h, used)
    }

    /// Replaces `old` bytes at offset `at`, within entry `index`, by `new` bytes still to be written.
    #[inline]
    pub fn resize(
        arena: &mut Arena,
        h: Handle,
        index: usize,
        at: usize,
        old: usize,
        new: usize,
    ) -> Result<Handle, Full> {
        if old == new {
            return Ok(h);
        }
        let head = Head::read(arena.tail(h));
        let used = head.used - old + new;
        let h = reserve(arena, h, head.used, used)?;
        let block = arena.block_mut(h);
        block.copy_within(at + old..head.used, at + new);
        let shape = head.shape();
        for group in index / GROUP + 1..shape.groups() {
            let offset = read_u16(block, shape.offset_at(group)) as usize;
            write_u16(block, shape.offset_at(group), offset - old + new);
        }
        Head { used, ..head }.write(block);
        Ok(if new < old { shrink(arena, h, used) } else { h })
    }

    /// Makes sure that `extra` more bytes fit.
    pub fn make_room(arena: &mut Arena, h: Handle, extra: usize) -> Result<Handle, Full> {
        let used = Head::read(arena.tail(h)).used;
        reserve(arena, h, used, used + extra)
    }

    /// Overwrites bytes at offset `at` with an encoded item.
    #[inline]
    pub fn write_item(arena: &mut Arena, h: Handle, at: usize, item: &Coded<'_>, spilled: bool) {
        let block = arena.block_mut(h);
        item.write(&mut block[at..]);
        if spilled {
            Head { spilled: true, ..Head::read(block) }.write(block);
        }
    }

    /// Gives the entry at `place` an expiry time, or none.
    pub fn set_expiry(
        arena: &mut Arena,
        h: Handle,
        place: Place,
        expiry_ms: Option<u64>,
    ) -> Result<Handle, Full> {
        let head = Head::read(arena.tail(h));
        let old = expiry_len(arena.tail(h)[place.at]);
        let Some(ms) = expiry_ms else {
            return Pack::resize(arena, h, place.index, place.at, old, 0);
        };
        let to = Shape { len: head.len, timed: true };
        let room = to.data_at() - head.shape().data_at();
        let mut h = reserve(arena, h, head.used, head.used + room + EXPIRY_BYTES - old)?;
        let block = arena.block_mut(h);
        head.shape().convert(to, block, head.used);
        Head { used: head.used + room, timed: true, ..head }.write(block);
        note_expiry(block, head.timed, ms);
        let at = place.at + room;
        h = Pack::resize(arena, h, place.index, at, old, EXPIRY_BYTES)?;
        write_expiry(&mut arena.block_mut(h)[at..], ms);
        Ok(h)
    }

    /// Sets the bound below which no entry expires; only of a timed pack.
    pub fn set_min_expiry(arena: &mut Arena, h: Handle, ms: u64) {
        let block = arena.block_mut(h);
        debug_assert!(Head::read(block).timed);
        write_ms(&mut block[HEAD_BYTES..], ms);
    }

    /// Sets the depth.
    pub fn set_depth(arena: &mut Arena, h: Handle, depth: u32) {
        let block = arena.block_mut(h);
        Head { depth, ..Head::read(block) }.write(block);
    }

    /// Appends the entries of `from` that `wanted` names by index; `into` has room for them.
    pub fn append_some(
        arena: &mut Arena,
        into: Handle,
        from: Handle,
        kind: Kind,
        wanted: impl Fn(usize) -> bool,
    ) {
        let (target, source) = arena.two_mut(into, from);
        let pack = Pack { bytes: source, head: Head::read(source) };
        let mut head = Head::read(target);
        let shape = head.shape();
        let added = (0..pack.head.len).filter(|&i| wanted(i)).count();
        let to = Shape { len: head.len + added, timed: head.timed };
        shape.convert(to, target, head.used);
        head.used += to.data_at() - shape.data_at();
        let mut at = pack.first_at();
        for index in 0..pack.head.len {
            let len = pack.entry_len(at, kind);
            if wanted(index) {
                target[to.fps_at() + head.len] = pack.fingerprint(index);
                if head.len.is_multiple_of(GROUP) && head.len != 0 {
                    write_u16(target, to.offset_at(head.len / GROUP), head.used - to.data_at());
                }
                target[head.used..head.used + len].copy_from_slice(pack.encoded(at, len));
                head.used += len;
                head.len += 1;
            }
            at += len;
        }
        head.spilled |= pack.head.spilled;
        if head.timed {
            note_expiry(target, true, pack.min_expiry_ms());
        }
        head.write(target);
    }
}

/// An entry about to be written.
pub(crate) struct New<'a> {
    pub key: Coded<'a>,
    pub value: Option<Coded<'a>>,
    pub expiry_ms: Option<u64>,
    pub spilled: bool,
}

impl New<'_> {
    /// Bytes the entry takes.
    #[inline]
    pub fn len(&self) -> usize {
        let expiry = if self.expiry_ms.is_some() { EXPIRY_BYTES } else { 0 };
        expiry + self.key.len() + self.value.as_ref().map_or(0, |v| v.len())
    }

    #[inline]
    fn write(&self, mut out: &mut [u8]) {
        if let Some(ms) = self.expiry_ms {
            write_expiry(out, ms);
            out = &mut out[EXPIRY_BYTES..];
        }
        self.key.write(out);
        if let Some(value) = &self.value {
            value.write(&mut out[self.key.len()..]);
        }
    }
}

impl Head {
    #[inline]
    fn read(block: &[u8]) -> Head {
        let word = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
        Head {
            used: (word & 0xFFFF) as usize,
            len: (word >> 16 & 0xFF) as usize,
            depth: word >> 24 & 63,
            timed: word & 1 << 30 != 0,
            spilled: word & 1 << 31 != 0,
        }
    }

    #[inline]
    fn write(self, block: &mut [u8]) {
        debug_assert!(self.used <= BLOCK_BYTES_MAX && self.len <= LEN_MAX && self.depth < 64);
        let word = self.used as u32
            | (self.len as u32) << 16
            | self.depth << 24
            | u32::from(self.timed) << 30
            | u32::from(self.spilled) << 31;
        block[..HEAD_BYTES].copy_from_slice(&word.to_le_bytes());
    }

    #[inline]
    fn shape(self) -> Shape {
        Shape { len: self.len, timed: self.timed }
    }
}

/// Where the parts of a block with so many entries lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub len: usize,
    pub timed: bool,
}

impl Shape {
    #[inline]
    fn fps_at(self) -> usize {
        HEAD_BYTES + if self.timed { MS_BYTES } else { 0 }
    }

    #[inline]
    fn groups(self) -> usize {
        self.len.div_ceil(GROUP)
    }

    #[inline]
    fn room(self) -> usize {
        if self.len <= GROUP { self.len } else { self.groups() * GROUP }
    }

    /// Where the offset of group 1.. lies.
    #[inline]
    fn offset_at(self, group: usize) -> usize {
        self.fps_at() + self.room() + 2 * (group - 1)
    }

    /// Bytes before the first entry.
    #[inline]
    pub fn data_at(self) -> usize {
        self.fps_at() + self.room() + 2 * self.groups().saturating_sub(1)
    }

    /// Moves the parts of a block of `used` bytes to where shape `to` has them.
    #[inline]
    fn convert(self, to: Shape, block: &mut [u8], used: usize) {
        if self.data_at() == to.data_at() {
            return;
        }
        let offsets = 2 * self.groups().min(to.groups()).saturating_sub(1);
        let fps = self.len.min(to.len);
        let (from_offsets, to_offsets) = (self.fps_at() + self.room(), to.fps_at() + to.room());
        if self.data_at() < to.data_at() {
            block.copy_within(self.data_at()..used, to.data_at());
            block.copy_within(from_offsets..from_offsets + offsets, to_offsets);
        }
        if self.timed != to.timed {
            block.copy_within(self.fps_at()..self.fps_at() + fps, to.fps_at());
        }
        if self.data_at() > to.data_at() {
            block.copy_within(from_offsets..from_offsets + offsets, to_offsets);
            block.copy_within(self.data_at()..used, to.data_at());
        }
    }
}

/// Moves a pack of `used` bytes to a larger block when `needed` bytes do not fit.
#[inline]
fn reserve(arena: &mut Arena, h: Handle, used: usize, needed: usize) -> Result<Handle, Full> {
    if needed <= arena.size(h) {
        return Ok(h);
    }
    relocate(arena, h, used, needed).ok_or(Full)
}

/// Moves a pack to a smaller block when enough would be gained; stays when the arena is exhausted.
fn shrink(arena: &mut Arena, h: Handle, used: usize) -> Handle {
    let (size, needed) = (arena.size(h), used.max(BLOCK_BYTES_MIN));
    if size - Arena::fits(needed) <= size / 8 {
        return h;
    }
    relocate(arena, h, used, needed).unwrap_or(h)
}

fn relocate(arena: &mut Arena, h: Handle, used: usize, needed: usize) -> Option<Handle> {
    let moved = allocate(arena, needed).ok()?;
    let (to, from) = arena.two_mut(moved, h);
    to[..used].copy_from_slice(&from[..used]);
    arena.free(h);
    Some(moved)
}

fn allocate(arena: &mut Arena, bytes: usize) -> Result<Handle, Full> {
    if bytes > BLOCK_BYTES_MAX {
        return Err(Full);
    }
    arena.alloc(bytes.max(BLOCK_BYTES_MIN)).ok_or(Full)
}

#[inline]
fn entry_size(bytes: &[u8], kind: Kind) -> usize {
    let mut len = expiry_len(bytes[0]);
    len += entry::size(&bytes[len..]);
    if kind == Kind::KeysAndValues {
        len += entry::size(&bytes[len..]);
    }
    len
}

/// Bytes of the expiry time an entry with this first byte begins with.
#[inline]
fn expiry_len(first: u8) -> usize {
    if first == TAG_EXPIRY { EXPIRY_BYTES } else { 0 }
}

/// Lowers the pack's expiry bound to `ms`; `was_timed` tells whether it had one.
fn note_expiry(block: &mut [u8], was_timed: bool, ms: u64) {
    let bound = if was_timed { read_ms(&block[HEAD_BYTES..]) } else { u64::MAX };
    write_ms(&mut block[HEAD_BYTES..], bound.min(ms));
}

fn write_expiry(out: &mut [u8], ms: u64) {
    out[0] = TAG_EXPIRY;
    write_ms(&mut out[1..], ms);
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

fn write_ms(out: &mut [u8], ms: u64) {
    out[..MS_BYTES].copy_from_slice(&ms.min(NEVER).to_le_bytes()[..MS_BYTES]);
}

#[inline]
fn read_u16(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

#[inline]
fn write_u16(block: &mut [u8], at: usize, value: usize) {
    debug_assert!(value <= BLOCK_BYTES_MAX);
    block[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

/// Bit i is set when byte i of the first `len` (0..=64) bytes equals `wanted`.
#[inline]
fn equal_bytes(bytes: &[u8], len: usize, wanted: u8) -> u64 {
    let mut hits = 0;
    let mut first = 0;
    while first < len {
        match bytes.get(first..first + 16) {
            Some(lane) => hits |= u64::from(equal_lane(lane, wanted)) << first,
            // The end of the reservation is near: byte by byte.
            None => {
                let rest = bytes[first..len].iter().enumerate();
                hits |= rest.fold(0, |sum, (i, &b)| sum | u64::from(b == wanted) << (first + i));
            }
        }
        first += 16;
    }
    if len == 0 { 0 } else { hits & u64::MAX >> (64 - len) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn equal_lane(lane: &[u8], wanted: u8) -> u16 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    debug_assert!(lane.len() >= 16);
    // SAFETY: the caller sliced exactly 16 bytes, and the load needs no alignment; SSE2 is part of x86-64.
    unsafe {
        let bytes = _mm_loadu_si128(lane.as_ptr().cast::<__m128i>());
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted as i8))) as u16
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn equal_lane(lane: &[u8], wanted: u8) -> u16 {
    lane.iter().take(16).enumerate().fold(0, |sum, (i, &b)| sum | u16::from(b == wanted) << i)
}

/// Most entries a pack can hold; a table splits long before.
pub(crate) const LEN_MAX: usize = 255;

const HEAD_BYTES: usize = 4;
const MS_BYTES: usize = 6;
const NEVER: u64 = (1 << 48) - 1;
const GROUP: usize = 8;
/// Header and a small entry; less would be reallocated at once.
const BLOCK_BYTES_MIN: usize = 16;
