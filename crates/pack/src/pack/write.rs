//! Changes to a pack. Each gives the handle of its block, which may have moved.

use darter_slab::{Arena, BLOCK_BYTES_MAX, Handle};

use super::head::{GROUP, HEAD_BYTES, MS_BYTES};
use super::{
    Full, Head, Kind, LEN_MAX, NEVER, Pack, Place, Shape, expiry_len, fingerprint, read_ms, read_u16,
};
use crate::entry::{Coded, EXPIRY_BYTES, TAG_EXPIRY, copy_short};

/// An entry about to be written.
pub(crate) struct New<'a> {
    /// Its key, not long.
    pub key: Coded<'a>,
    /// Its value, not long; none in a pack of keys.
    pub value: Option<Coded<'a>>,
    /// When it expires.
    pub expiry_ms: Option<u64>,
    /// Whether one of the items is out of line.
    pub spilled: bool,
}

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

    /// Adds an entry of place `x` in hash space at the end.
    #[inline]
    pub fn append(arena: &mut Arena, h: Handle, x: u64, new: &New<'_>) -> Result<Handle, Full> {
        let len = new.len();
        let block = arena.block_mut(h);
        let head = Head::read(block);
        let is_plain = new.expiry_ms.is_none() && !new.spilled;
        // Within a group of eight nothing moves.
        if is_plain && head.len > GROUP && !head.len.is_multiple_of(GROUP) && head.used + len <= block.len() {
            block[head.shape().fps_at() + head.len] = fingerprint(x, head.depth);
            new.write(&mut block[head.used..]);
            Head { used: head.used + len, len: head.len + 1, ..head }.write(block);
            return Ok(h);
        }
        Pack::append_moving(arena, h, x, new)
    }

    #[inline(never)]
    fn append_moving(arena: &mut Arena, h: Handle, x: u64, new: &New<'_>) -> Result<Handle, Full> {
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
        block[to.fps_at() + head.len] = fingerprint(x, head.depth);
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
        let later = place.index / GROUP + 1..from.groups();
        let mut moved = [0u16; LEN_MAX / GROUP + 1];
        for group in later.clone() {
            let at = read_u16(pack.bytes, from.offset_at(group)) as usize;
            moved[group] = (at + pack.entry_len(from.data_at() + at, kind) - len) as u16;
        }
        let block = arena.block_mut(h);
        for group in later {
            write_u16(block, from.offset_at(group), moved[group] as usize);
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

    /// Overwrites bytes at offset `at` with an encoded item; `spilled` tells whether it is out of line.
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
        let old = if head.timed { expiry_len(arena.tail(h)[place.at]) } else { 0 };
        let Some(ms) = expiry_ms else {
            return Pack::resize(arena, h, place.index, place.at, old, 0);
        };
        let to = Shape { len: head.len, timed: true };
        let room = to.data_at() - head.shape().data_at();
        let h = reserve(arena, h, head.used, head.used + room + EXPIRY_BYTES - old)?;
        let block = arena.block_mut(h);
        head.shape().convert(to, block, head.used);
        Head { used: head.used + room, timed: true, ..head }.write(block);
        note_expiry(block, head.timed, ms);
        let at = place.at + room;
        let h = Pack::resize(arena, h, place.index, at, old, EXPIRY_BYTES)?;
        write_expiry(&mut arena.block_mut(h)[at..], ms);
        Ok(h)
    }

    /// Sets the bound below which no entry expires; only of a timed pack.
    pub fn set_min_expiry(arena: &mut Arena, h: Handle, ms: u64) {
        let block = arena.block_mut(h);
        debug_assert!(Head::read(block).timed);
        write_ms(&mut block[HEAD_BYTES..], ms);
    }

    /// Appends those entries of `from` that `fp` has a fingerprint for (given index and old fingerprint);
    /// `into` has room for them. `offsets` are those of `from`.
    #[inline]
    pub fn append_some(
        arena: &mut Arena,
        into: Handle,
        from: Handle,
        offsets: &[u16; LEN_MAX + 1],
        len: usize,
        fp: impl Fn(usize, u8) -> Option<u8>,
    ) {
        let (target, source) = arena.two_mut(into, from);
        let mut head = Head::read(target);
        let pack = Pack { bytes: source, head: Head::read(source) };
        let to = Shape { len: head.len + len, timed: head.timed };
        head.shape().convert(to, target, head.used);
        head.used += to.data_at() - head.shape().data_at();
        for (index, &old) in pack.fingerprints().iter().enumerate() {
            let Some(new) = fp(index, old) else { continue };
            target[to.fps_at() + head.len] = new;
            if head.len.is_multiple_of(GROUP) && head.len != 0 {
                write_u16(target, to.offset_at(head.len / GROUP), head.used - to.data_at());
            }
            let (at, end) = (offsets[index] as usize, offsets[index + 1] as usize);
            copy_short(&mut target[head.used..head.used + end - at], &pack.bytes[at..end]);
            head.used += end - at;
            head.len += 1;
        }
        debug_assert_eq!(head.len, to.len);
        head.spilled |= pack.head.spilled;
        let bound_ms = pack.min_expiry_ms();
        head.write(target);
        if head.timed {
            note_expiry(target, true, bound_ms);
        }
    }
}

impl New<'_> {
    /// Bytes the entry takes.
    #[inline]
    pub fn len(&self) -> usize {
        let expiry = if self.expiry_ms.is_some() { EXPIRY_BYTES } else { 0 };
        expiry + self.key.len() + self.value.as_ref().map_or(0, |v| v.len())
    }

    /// Writes the entry to the front of `out`, whose other bytes are free to be overwritten.
    #[inline]
    fn write(&self, mut out: &mut [u8]) {
        if let Some(ms) = self.expiry_ms {
            write_expiry(out, ms);
            out = &mut out[EXPIRY_BYTES..];
        }
        self.key.write_last(out);
        if let Some(value) = &self.value {
            value.write_last(&mut out[self.key.len()..]);
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

#[inline(never)]
fn relocate(arena: &mut Arena, h: Handle, used: usize, needed: usize) -> Option<Handle> {
    let moved = allocate(arena, needed).ok()?;
    let (to, from) = arena.two_mut(moved, h);
    to[..used].copy_from_slice(&from[..used]);
    arena.free(h);
    Some(moved)
}

#[inline]
fn allocate(arena: &mut Arena, bytes: usize) -> Result<Handle, Full> {
    arena.alloc(bytes.max(BLOCK_BYTES_MIN)).ok_or(Full)
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

fn write_ms(out: &mut [u8], ms: u64) {
    out[..MS_BYTES].copy_from_slice(&ms.min(NEVER).to_le_bytes()[..MS_BYTES]);
}

#[inline]
fn write_u16(block: &mut [u8], at: usize, value: usize) {
    debug_assert!(value <= BLOCK_BYTES_MAX);
    if let Some(bytes) = block[at..].first_chunk_mut::<2>() {
        *bytes = (value as u16).to_le_bytes();
    }
}

/// Header and a small entry; less would be reallocated at once.
const BLOCK_BYTES_MIN: usize = 16;
