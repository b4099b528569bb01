//! Writing entries: into packs, out of line when long, and the table's bytes with every block that moves.
//!
//! Called by the public operations of [`Table`], which have found the pack and the place.

use darter_slab::{Arena, Handle};

use super::directory::{Bytes, TableDirectory};
use super::{FieldExpiry, Table};
use crate::entry::{self, Coded};
use crate::pack::{NewPackItem, Pack, PackFull, PackHead, PackKind, PackPlace};

impl Table {
    #[inline(never)]
    pub(super) fn insert_first(
        &mut self,
        arena: &mut Arena,
        x: u64,
        key: Coded<'_>,
        value: Coded<'_>,
        expiry: FieldExpiry,
    ) -> Result<(), PackFull> {
        let value_len = if self.kind == PackKind::Keys { 0 } else { value.len() };
        let pack = Pack::create(arena, 0, false, FIRST_PACK_BYTES + key.len() + value_len)?;
        self.count_in(arena, pack);
        self.directory.root = pack;
        match self.append(arena, x, pack, key, value, expiry) {
            Ok(_) => Ok(()),
            Err(full) => {
                self.count_out(arena, pack);
                arena.free(pack);
                self.directory = TableDirectory::EMPTY;
                Err(full)
            }
        }
    }

    /// Makes room for an entry of `len` bytes in pack `h`, which holds `x`, if no other entry would have to move.
    /// Returns the pack's handle if so.
    #[inline]
    pub(super) fn room_within(&mut self, arena: &mut Arena, x: u64, h: Handle, len: usize) -> Option<Handle> {
        let head = Pack::open(arena, h).head();
        if !Pack::has_open_group(head) {
            return None;
        }
        let size = arena.size(h);
        if head.used() + len <= size {
            return Some(h);
        }
        let moved = Pack::make_room(arena, h, len).ok()?;
        self.moved(arena, x, h, size, moved);
        Some(moved)
    }

    #[inline(never)]
    pub(super) fn append(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        key: Coded<'_>,
        value: Coded<'_>,
        expiry: FieldExpiry,
    ) -> Result<(Handle, PackHead), PackFull> {
        let value = (self.kind == PackKind::KeysAndValues).then_some(value);
        let mut new = NewPackItem { key, value, expiry_ms: expiry.ms(), spilled: false };
        if key.is_long() || value.is_some_and(|v| v.is_long()) {
            return self.append_long(arena, x, h, new);
        }
        self.append_coded(arena, x, h, &mut new)
    }

    #[inline]
    pub(super) fn append_coded(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        new: &mut NewPackItem<'_>,
    ) -> Result<(Handle, PackHead), PackFull> {
        if self.len == u32::MAX {
            return Err(PackFull);
        }
        let size = arena.size(h);
        let (moved, head) = Pack::append(arena, h, x, new)?;
        self.moved(arena, x, h, size, moved);
        self.len += 1;
        if let Some(ms) = new.expiry_ms {
            self.note_expiry(ms);
        }
        Ok((moved, head))
    }

    #[cold]
    pub(super) fn append_long(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        mut new: NewPackItem<'_>,
    ) -> Result<(Handle, PackHead), PackFull> {
        new.key = self.spill_item(arena, new.key)?;
        if let Some(value) = new.value {
            match self.spill_item(arena, value) {
                Ok(value) => new.value = Some(value),
                Err(full) => {
                    self.unspill_item(arena, &new.key);
                    return Err(full);
                }
            }
        }
        new.spilled = true;
        self.append_coded(arena, x, h, &mut new).inspect_err(|_| {
            self.unspill_item(arena, &new.key);
            if let Some(value) = new.value {
                self.unspill_item(arena, &value);
            }
        })
    }

    /// Replaces the value of the entry at `place`.
    #[inline]
    pub(super) fn overwrite(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        place: PackPlace,
        value: Coded<'_>,
        expiry: FieldExpiry,
    ) -> Result<(), PackFull> {
        if expiry != FieldExpiry::Keep {
            return self.overwrite_both(arena, x, h, place, value, expiry);
        }
        if self.kind == PackKind::KeysAndValues && !Pack::overwrite_same_len(arena, h, place, &value) {
            self.write_value(arena, x, h, place, value)?;
        }
        Ok(())
    }

    /// Replaces the value and the expiry time of the entry at `place`.
    #[inline(never)]
    pub(super) fn overwrite_both(
        &mut self,
        arena: &mut Arena,
        x: u64,
        mut h: Handle,
        mut place: PackPlace,
        value: Coded<'_>,
        expiry: FieldExpiry,
    ) -> Result<(), PackFull> {
        let value = self.spill_item(arena, value)?;
        if expiry.ms().is_some() {
            // Reserves all room first, so that nothing is half done if there is none.
            let size = arena.size(h);
            let room = value.len() + entry::EXPIRY_BYTES * 2;
            let moved = Pack::make_room(arena, h, room).inspect_err(|_| self.unspill_item(arena, &value))?;
            self.moved(arena, x, h, size, moved);
            (h, place) = self.write_expiry(arena, x, moved, place, expiry)?;
        }
        if self.kind == PackKind::KeysAndValues {
            h = self.write_value(arena, x, h, place, value)?;
        }
        if expiry == FieldExpiry::Clear {
            self.write_expiry(arena, x, h, place, expiry)?;
        }
        Ok(())
    }

    pub(super) fn write_value(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        place: PackPlace,
        value: Coded<'_>,
    ) -> Result<Handle, PackFull> {
        let value = self.spill_item(arena, value)?;
        let (at, old) = Pack::open(arena, h).value_place(place.at);
        let mut freed = [0; entry::SPILLED_BYTES];
        let was_spilled = entry::is_spilled(&arena.tail(h)[at..]);
        if was_spilled {
            freed.copy_from_slice(&arena.tail(h)[at..at + old]);
        }
        let size = arena.size(h);
        let moved = match Pack::resize(arena, h, place.index, at, old, value.len()) {
            Ok(moved) => moved,
            Err(full) => {
                self.unspill_item(arena, &value);
                return Err(full);
            }
        };
        Pack::write_item(arena, moved, at, &value, value.is_spilled());
        self.moved(arena, x, h, size, moved);
        if was_spilled {
            self.release_item(arena, &freed);
        }
        Ok(moved)
    }

    pub(super) fn write_expiry(
        &mut self,
        arena: &mut Arena,
        x: u64,
        h: Handle,
        place: PackPlace,
        expiry: FieldExpiry,
    ) -> Result<(Handle, PackPlace), PackFull> {
        let expiry_ms = expiry.ms();
        let size = arena.size(h);
        let moved = Pack::set_expiry(arena, h, place, expiry_ms)?;
        self.moved(arena, x, h, size, moved);
        if let Some(ms) = expiry_ms {
            self.note_expiry(ms);
        }
        let at = Pack::open(arena, moved).offset(place.index, self.kind);
        Ok((moved, PackPlace { at, ..place }))
    }

    /// Removes the entry at `place` of pack `h`, with its parts out of line.
    pub(super) fn take_out(&mut self, arena: &mut Arena, x: u64, h: Handle, place: PackPlace) {
        if Pack::open(arena, h).head().spilled() {
            let mut bytes = self.take_bytes();
            self.release_entry(arena, &mut bytes, h, place.at);
            self.put_bytes(bytes);
        }
        let size = arena.size(h);
        let moved = Pack::remove(arena, h, place, self.kind);
        self.moved(arena, x, h, size, moved);
        self.len -= 1;
    }

    /// Records that pack `h` of `size` bytes, which holds `x`, is now `moved`.
    #[inline]
    pub(super) fn moved(&mut self, arena: &mut Arena, x: u64, h: Handle, size: usize, moved: Handle) {
        if moved != h {
            let depth = Pack::open(arena, moved).head().depth();
            self.directory.replace(arena, x, depth, moved);
            self.granules -= (size / 8) as u32;
            self.count_in(arena, moved);
        }
    }

    pub(super) fn spill_item<'k>(
        &mut self,
        arena: &mut Arena,
        item: Coded<'k>,
    ) -> Result<Coded<'k>, PackFull> {
        if !item.is_long() {
            return Ok(item);
        }
        let item = item.spill(arena, &mut self.spill).ok_or(PackFull)?;
        if let Some(h) = item.block() {
            self.count_in(arena, h);
        }
        Ok(item)
    }

    /// Takes back what [`Table::spill_item`] did.
    pub(super) fn unspill_item(&mut self, arena: &mut Arena, item: &Coded<'_>) {
        let mut bytes = [0; entry::SPILLED_BYTES];
        if item.is_spilled() {
            item.write(&mut bytes);
            self.release_item(arena, &bytes);
        }
    }

    pub(super) fn release_item(&mut self, arena: &mut Arena, encoded: &[u8]) {
        if let Some(h) = entry::release(encoded, &mut self.spill) {
            self.count_out(arena, h);
            arena.free(h);
        }
    }

    /// Frees the out-of-line parts of the items of the entry at `at`.
    pub(super) fn release_entry(&mut self, arena: &mut Arena, bytes: &mut Bytes, h: Handle, at: usize) {
        for item in Pack::open(arena, h).spilled_items(at, self.kind).into_iter().flatten() {
            if let Some(block) = entry::release(&item, &mut self.spill) {
                bytes.free(arena, block);
            }
        }
    }

    /// Frees the out-of-line parts of all items of a pack; returns its number of entries.
    pub(super) fn release_items(&mut self, arena: &mut Arena, bytes: &mut Bytes, h: Handle) -> u32 {
        let head = Pack::open(arena, h).head();
        if head.spilled() {
            let mut at = Pack::open(arena, h).first_at();
            for _ in 0..head.len() {
                self.release_entry(arena, bytes, h, at);
                at += Pack::open(arena, h).entry_len(at, self.kind);
            }
        }
        head.len() as u32
    }

    pub(super) fn take_bytes(&mut self) -> Bytes {
        Bytes(self.granules as usize * 8)
    }

    pub(super) fn put_bytes(&mut self, bytes: Bytes) {
        self.granules = (bytes.0 / 8) as u32;
    }

    #[inline]
    pub(super) fn count_in(&mut self, arena: &Arena, h: Handle) {
        self.granules += (arena.size(h) / 8) as u32;
    }

    pub(super) fn count_out(&mut self, arena: &Arena, h: Handle) {
        self.granules -= (arena.size(h) / 8) as u32;
    }
}

/// Header and fingerprint of a pack of one entry.
const FIRST_PACK_BYTES: usize = 5;
