//! Changes to a pack. Each returns the handle of its block, which may have moved.

use darter_slab::{Arena, BLOCK_BYTES_MAX, Handle};

use super::head::{GROUP, HEAD_BYTES, MS_BYTES};
use super::{
    LEN_MAX, NEVER, Pack, PackFull, PackHead, PackKind, PackPlace, PackShape, expiry_len, fingerprint,
    read_ms, read_u16,
};
use crate::entry::{self, Coded, EXPIRY_BYTES, TAG_EXPIRY, copy_short};

/// An entry about to be written.
pub(crate) struct NewPackItem<'a> {
    /// Its key, not long.
    pub key: Coded<'a>,
    /// Its value, not long; none in a pack of keys.
    pub value: Option<Coded<'a>>,
    /// When it expires.
    pub expiry_ms: Option<u64>,
    /// True if one of the items is out of line.
    pub spilled: bool,
}

impl Pack<'_> {
    /// An empty pack of `depth` with room for `bytes` bytes of block.
    pub fn create(arena: &mut Arena, depth: u32, timed: bool, bytes: usize) -> Result<Handle, PackFull> {
        let head = PackHead::empty(depth, timed);
        let h = allocate(arena, bytes.max(head.used()))?;
        let block = arena.block_mut(h);
        head.write(block);
        if timed {
            write_ms(&mut block[HEAD_BYTES..], u64::MAX);
        }
        Ok(h)
    }

    /// Returns true if an entry without expiry time can be added without moving the others.
    #[inline]
    pub fn has_open_group(head: PackHead) -> bool {
        !head.timed() && head.len() > GROUP && !head.len().is_multiple_of(GROUP)
    }

    /// Adds an entry of place `x` in hash space at the end of a pack with an open group and enough room; `value` is
    /// ignored in a pack of keys. Returns the new header.
    #[inline(always)]
    pub fn append_within(
        arena: &mut Arena,
        h: Handle,
        x: u64,
        key: &Coded<'_>,
        value: &Coded<'_>,
        kind: PackKind,
    ) -> PackHead {
        let block = arena.block_mut(h);
        let head = PackHead::read(block);
        debug_assert!(Pack::has_open_group(head));
        let index = head.len();
        block[HEAD_BYTES + index] = fingerprint(x, head.depth());
        let out = &mut block[head.used()..];
        key.write_last(out);
        let mut used = head.used() + key.len();
        if kind == PackKind::KeysAndValues {
            value.write_last(&mut out[key.len()..]);
            used += value.len();
        }
        let head = head.with_used(used).with_len(index + 1);
        head.write(block);
        head
    }

    /// Adds an entry of place `x` in hash space at the end.
    #[inline(never)]
    pub fn append(
        arena: &mut Arena,
        h: Handle,
        x: u64,
        new: &NewPackItem<'_>,
    ) -> Result<(Handle, PackHead), PackFull> {
        let head = PackHead::read(arena.tail(h));
        let index = head.len();
        let timed = head.timed() || new.expiry_ms.is_some();
        let (from, to) = (head.shape(), PackShape { len: index + 1, timed });
        if index == LEN_MAX {
            return Err(PackFull);
        }
        let used = head.used() + to.data_at() - from.data_at();
        let len = new.len();
        let h = reserve(arena, h, head.used(), used + len)?;
        let block = arena.block_mut(h);
        from.convert(to, block, head.used());
        if timed {
            note_expiry(block, head.timed(), new.expiry_ms.unwrap_or(u64::MAX));
        }
        block[to.fps_at() + index] = fingerprint(x, head.depth());
        if index != 0 && index.is_multiple_of(GROUP) {
            write_u16(block, to.offset_at(index / GROUP), used - to.data_at());
        }
        new.write(&mut block[used..]);
        let head = head.with_used(used + len).with_len(index + 1).with_timed(timed).with_spilled(new.spilled);
        head.write(block);
        Ok((h, head))
    }

    /// Removes the entry at `place`; items out of line must have been released before. The others stay in order if
    /// the pack is alone in its table.
    #[inline(never)]
    pub fn remove(arena: &mut Arena, h: Handle, place: PackPlace, kind: PackKind) -> Handle {
        let pack = Pack::open(arena, h);
        let (head, len) = (pack.head, pack.entry_len(place.at, kind));
        let from = head.shape();
        let last = from.len - 1;
        let last_at = if head.depth() == 0 { 0 } else { pack.offset(last, kind) };
        if last_at + len == head.used() {
            let block = arena.block_mut(h);
            copy_within(block, last_at, place.at, len);
            block[from.fps_at() + place.index] = block[from.fps_at() + last];
        } else {
            Pack::close_gap(arena, h, place, len, kind);
        }
        let to = PackShape { len: last, timed: from.timed };
        let block = arena.block_mut(h);
        from.convert(to, block, head.used() - len);
        let used = head.used() - len + to.data_at() - from.data_at();
        head.with_used(used).with_len(last).write(block);
        shrink(arena, h, used)
    }

    /// Closes the gap of the entry at `place`, which has `len` bytes.
    fn close_gap(arena: &mut Arena, h: Handle, place: PackPlace, len: usize, kind: PackKind) {
        let pack = Pack::open(arena, h);
        let (used, shape) = (pack.head.used(), pack.head.shape());
        // The first entry of each later group moves to the group before.
        let later = place.index / GROUP + 1..shape.groups();
        let mut moved = [0u16; LEN_MAX / GROUP];
        for group in later.clone() {
            let at = read_u16(pack.bytes, shape.offset_at(group)) as usize;
            moved[group] = (at + pack.entry_len(shape.data_at() + at, kind) - len) as u16;
        }
        let block = arena.block_mut(h);
        for group in later {
            write_u16(block, shape.offset_at(group), moved[group] as usize);
        }
        block.copy_within(place.at + len..used, place.at);
        let fps = shape.fps_at();
        block.copy_within(fps + place.index + 1..fps + shape.len, fps + place.index);
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
    ) -> Result<Handle, PackFull> {
        if old == new {
            return Ok(h);
        }
        let head = PackHead::read(arena.tail(h));
        let used = head.used() - old + new;
        let h = reserve(arena, h, head.used(), used)?;
        let block = arena.block_mut(h);
        block.copy_within(at + old..head.used(), at + new);
        let shape = head.shape();
        for group in index / GROUP + 1..shape.groups() {
            let offset = read_u16(block, shape.offset_at(group)) as usize;
            write_u16(block, shape.offset_at(group), offset - old + new);
        }
        head.with_used(used).write(block);
        Ok(if new < old { shrink(arena, h, used) } else { h })
    }

    /// Moves the block out of a page that the arena wants to empty, and the blocks its items are in.
    pub fn compact(arena: &mut Arena, h: Handle, kind: PackKind) -> Handle {
        let h = arena.compact(h).unwrap_or(h);
        if !PackHead::read(arena.tail(h)).spilled() {
            return h;
        }
        let mut offsets = [0; LEN_MAX + 1];
        let pack = Pack::open(arena, h);
        let len = pack.head.len();
        pack.offsets(kind, &mut offsets);
        for &at in &offsets[..len] {
            let pack = Pack::open(arena, h);
            let key_at = at as usize + pack.expiry_len(at as usize);
            let value_at = (kind == PackKind::KeysAndValues).then(|| pack.value_place(at as usize).0);
            for at in [Some(key_at), value_at].into_iter().flatten() {
                if let Some(block) = entry::block(&arena.tail(h)[at..]).and_then(|block| arena.compact(block))
                {
                    entry::set_block(&mut arena.block_mut(h)[at..], block);
                }
            }
        }
        h
    }

    /// Makes sure that `extra` more bytes fit.
    pub fn make_room(arena: &mut Arena, h: Handle, extra: usize) -> Result<Handle, PackFull> {
        let used = PackHead::read(arena.tail(h)).used();
        reserve(arena, h, used, used + extra)
    }

    /// Overwrites the value of the entry at `place` by one of the same few bytes. Returns false, with nothing
    /// changed, if the length differs or either value is out of line.
    #[inline]
    pub fn overwrite_same_len(arena: &mut Arena, h: Handle, place: PackPlace, value: &Coded<'_>) -> bool {
        let at = Pack::open(arena, h).value_at(place.at);
        let out = &mut arena.tail_mut(h)[at..];
        let fits = value.fits_over(out[0]);
        if fits {
            value.write(out);
        }
        fits
    }

    /// Overwrites bytes at offset `at` with an encoded item; `spilled` tells whether it is out of line.
    #[inline]
    pub fn write_item(arena: &mut Arena, h: Handle, at: usize, item: &Coded<'_>, spilled: bool) {
        let block = arena.block_mut(h);
        item.write(&mut block[at..]);
        if spilled {
            PackHead::read(block).with_spilled(true).write(block);
        }
    }

    /// Gives the entry at `place` an expiry time, or none.
    pub fn set_expiry(
        arena: &mut Arena,
        h: Handle,
        place: PackPlace,
        expiry_ms: Option<u64>,
    ) -> Result<Handle, PackFull> {
        let head = PackHead::read(arena.tail(h));
        let old = if head.timed() { expiry_len(arena.tail(h)[place.at]) } else { 0 };
        let Some(ms) = expiry_ms else {
            return Pack::resize(arena, h, place.index, place.at, old, 0);
        };
        let from = head.shape();
        let to = PackShape { timed: true, ..from };
        let used = head.used() + to.data_at() - from.data_at();
        let h = reserve(arena, h, head.used(), used + EXPIRY_BYTES - old)?;
        let block = arena.block_mut(h);
        from.convert(to, block, head.used());
        head.with_used(used).with_timed(true).write(block);
        note_expiry(block, head.timed(), ms);
        let at = place.at + to.data_at() - from.data_at();
        let h = Pack::resize(arena, h, place.index, at, old, EXPIRY_BYTES)?;
        write_expiry(&mut arena.block_mut(h)[at..], ms);
        Ok(h)
    }

    /// Sets the bound below which no entry expires; only of a timed pack.
    pub fn set_min_expiry(arena: &mut Arena, h: Handle, ms: u64) {
        let block = arena.block_mut(h);
        debug_assert!(PackHead::read(block).timed());
        write_ms(&mut block[HEAD_BYTES..], ms);
    }

    /// Appends those entries of `from` that `chosen` names, in that order. `into` must have room for them, and the
    /// caller must note the expiry bound of `from`. `offsets` and `fps` are indexed as in `from`.
    pub fn append_chosen(
        arena: &mut Arena,
        into: Handle,
        from: Handle,
        chosen: &[u8],
        offsets: &[u16; LEN_MAX + 1],
        fps: &[u8; LEN_MAX],
    ) {
        let (target, source) = arena.two_mut(into, from);
        let head = PackHead::read(target);
        let first = head.len();
        let to = PackShape { len: first + chosen.len(), timed: head.timed() };
        head.shape().convert(to, target, head.used());
        let mut used = head.used() + to.data_at() - head.shape().data_at();
        let targets = &mut target[to.fps_at() + first..][..chosen.len()];
        for (fp, &index) in targets.iter_mut().zip(chosen) {
            *fp = fps[index as usize];
        }
        for (index, &chosen) in (first..).zip(chosen) {
            if index.is_multiple_of(GROUP) && index != 0 {
                write_u16(target, to.offset_at(index / GROUP), used - to.data_at());
            }
            let chosen = chosen as usize;
            let (at, end) = (offsets[chosen] as usize, offsets[chosen + 1] as usize);
            copy_entry(&mut target[used..], &source[at..], end - at);
            used += end - at;
        }
        let spilled = PackHead::read(source).spilled();
        head.with_used(used).with_len(to.len).with_spilled(spilled).write(target);
    }

    /// Lowers the expiry bound of a timed pack to `ms`.
    pub fn note_min_expiry(arena: &mut Arena, h: Handle, ms: u64) {
        let block = arena.block_mut(h);
        if PackHead::read(block).timed() {
            note_expiry(block, true, ms);
        }
    }
}

impl NewPackItem<'_> {
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

/// Copies `len` bytes. Up to 32 are copied as two words if there is room; this may overwrite bytes behind the target.
#[inline(always)]
fn copy_entry(to: &mut [u8], from: &[u8], len: usize) {
    if len <= 32
        && let (Some(to), Some(from)) = (to.first_chunk_mut::<32>(), from.first_chunk::<32>())
    {
        *to = *from;
        return;
    }
    copy_short(&mut to[..len], &from[..len]);
}

/// Copies `len` bytes from offset `from` to offset `to`, which do not overlap or are the same.
#[inline]
fn copy_within(block: &mut [u8], from: usize, to: usize, len: usize) {
    if len > 32 {
        block.copy_within(from..from + len, to);
        return;
    }
    let mut entry = [0; 32];
    copy_short(&mut entry[..len], &block[from..from + len]);
    copy_short(&mut block[to..to + len], &entry[..len]);
}

/// Moves a pack of `used` bytes to a larger block when `needed` bytes do not fit.
#[inline]
fn reserve(arena: &mut Arena, h: Handle, used: usize, needed: usize) -> Result<Handle, PackFull> {
    if needed <= arena.size(h) {
        return Ok(h);
    }
    relocate(arena, h, used, needed)
}

/// Moves a pack to a smaller block if enough would be gained; leaves it if the arena is exhausted.
fn shrink(arena: &mut Arena, h: Handle, used: usize) -> Handle {
    let (size, needed) = (arena.size(h), used.max(BLOCK_BYTES_MIN));
    if size - Arena::fits(needed) <= size / 8 {
        return h;
    }
    relocate(arena, h, used, needed).unwrap_or(h)
}

#[inline(never)]
fn relocate(arena: &mut Arena, h: Handle, used: usize, needed: usize) -> Result<Handle, PackFull> {
    let moved = allocate(arena, needed)?;
    let (to, from) = arena.two_mut(moved, h);
    to[..used].copy_from_slice(&from[..used]);
    arena.free(h);
    Ok(moved)
}

#[inline]
fn allocate(arena: &mut Arena, bytes: usize) -> Result<Handle, PackFull> {
    if bytes > BLOCK_BYTES_MAX {
        return Err(PackFull);
    }
    arena.alloc(bytes.max(BLOCK_BYTES_MIN)).ok_or(PackFull)
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
