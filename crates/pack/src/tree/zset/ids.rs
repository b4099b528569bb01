//! Names of leaves that outlive their blocks: the member index holds ids, so a leaf may move without touching it.

use darter_slab::{Arena, Handle};

use crate::tree::TreeFull;
use crate::tree::block::{bytes_of, bytes_of_mut, two_of_mut};
use crate::tree::owned::OwnedEntry;
use crate::tree::word::{get_u32, put_u32};

/// A map of ids to leaves: chunks of 4 bytes per id, listed in one directory block.
#[derive(Debug)]
pub(super) struct Ids {
    directory: Handle,
    // Ids ever given out: 0..made.
    made: u32,
    // First id given back, each holding the next one; NONE at the end.
    free: u32,
}

impl Ids {
    /// No id.
    pub(super) const EMPTY: Ids = Ids { directory: Handle::NONE, made: 0, free: NONE };

    /// The leaf of an id in use.
    #[inline]
    pub(super) fn get(&self, arena: &Arena, id: u32) -> Handle {
        let (chunk, at) = self.place(arena, id);
        Handle::from_raw(get_u32(bytes_of(arena, chunk), at))
    }

    /// Points an id in use to another leaf.
    #[inline]
    pub(super) fn set(&mut self, arena: &mut Arena, id: u32, leaf: Handle) {
        let (chunk, at) = self.place(arena, id);
        put_u32(bytes_of_mut(arena, chunk), at, leaf.raw());
    }

    /// A new id for a leaf. Errors: nothing is changed.
    pub(super) fn add(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        leaf: Handle,
    ) -> Result<u32, TreeFull> {
        if self.free != NONE {
            let id = self.free;
            let (chunk, at) = self.place(arena, id);
            self.free = get_u32(bytes_of(arena, chunk), at);
            put_u32(bytes_of_mut(arena, chunk), at, leaf.raw());
            return Ok(id);
        }
        self.make_room(arena, owned)?;
        let id = self.made;
        self.made += 1;
        self.set(arena, id, leaf);
        Ok(id)
    }

    /// Takes an id back.
    pub(super) fn remove(&mut self, arena: &mut Arena, id: u32) {
        let (chunk, at) = self.place(arena, id);
        put_u32(bytes_of_mut(arena, chunk), at, self.free);
        self.free = id;
    }

    /// Gives every block back. Cost: one block per 4,096 ids.
    pub(super) fn clear(&mut self, arena: &mut Arena, owned: &mut OwnedEntry) {
        for chunk in 0..self.made.div_ceil(CHUNK_IDS) {
            let block = Handle::from_raw(get_u32(bytes_of(arena, self.directory), 4 * chunk as usize));
            owned.free(arena, block);
        }
        if !self.directory.is_none() {
            owned.free(arena, self.directory);
        }
        *self = Self::EMPTY;
    }

    #[inline(always)]
    fn place(&self, arena: &Arena, id: u32) -> (Handle, usize) {
        debug_assert!(id < self.made);
        let directory = bytes_of(arena, self.directory);
        let chunk = get_u32(directory, 4 * (id / CHUNK_IDS) as usize);
        (Handle::from_raw(chunk), 4 * (id % CHUNK_IDS) as usize)
    }

    /// Makes sure that the id `made` has a place.
    fn make_room(&mut self, arena: &mut Arena, owned: &mut OwnedEntry) -> Result<(), TreeFull> {
        let (chunk, at) = ((self.made / CHUNK_IDS) as usize, (self.made % CHUNK_IDS) as usize);
        if chunk > 0 && at == 0 {
            self.make_listed(arena, owned, chunk)?;
            let block = owned.alloc(arena, 4 * CHUNK_IDS as usize)?;
            put_u32(bytes_of_mut(arena, self.directory), 4 * chunk, block.raw());
        } else if chunk == 0 && (at == 0 || (at >= FIRST_IDS && at.is_power_of_two())) {
            // The first chunk grows with the set, the others are made whole.
            self.make_listed(arena, owned, 0)?;
            let block = owned.alloc(arena, 4 * (2 * at).max(FIRST_IDS))?;
            if at > 0 {
                let old = Handle::from_raw(get_u32(bytes_of(arena, self.directory), 0));
                let (from, to) = two_of_mut(arena, old, block);
                to[..4 * at].copy_from_slice(&from[..4 * at]);
                owned.free(arena, old);
            }
            put_u32(bytes_of_mut(arena, self.directory), 0, block.raw());
        }
        Ok(())
    }

    /// Makes sure that the directory has a place for `chunk`, the next one.
    fn make_listed(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        chunk: usize,
    ) -> Result<(), TreeFull> {
        if self.directory.is_none() {
            self.directory = owned.alloc(arena, 4 * CHUNKS_FIRST)?;
            return Ok(());
        }
        if chunk < CHUNKS_FIRST
            || !chunk.is_power_of_two()
            || Arena::fits(8 * chunk) == arena.size(self.directory)
        {
            return Ok(());
        }
        if chunk == CHUNKS_MAX {
            return Err(TreeFull);
        }
        let larger = owned.alloc(arena, 8 * chunk)?;
        let (from, to) = two_of_mut(arena, self.directory, larger);
        to[..4 * chunk].copy_from_slice(&from[..4 * chunk]);
        owned.free(arena, self.directory);
        self.directory = larger;
        Ok(())
    }
}

/// No id.
const NONE: u32 = u32::MAX;
/// Ids of a chunk: 16 KiB.
const CHUNK_IDS: u32 = 4096;
/// Ids of the first chunk when it is made.
const FIRST_IDS: usize = 4;
/// Places of the first directory.
const CHUNKS_FIRST: usize = 2;
/// Places of the largest directory: 32 KiB, 33 million leaves.
const CHUNKS_MAX: usize = 8192;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_leaves_and_are_given_again() {
        let mut arena = Arena::with_reserve(1 << 24).unwrap();
        let (mut ids, mut owned) = (Ids::EMPTY, OwnedEntry::default());
        let leaf = |n: u32| Handle::from_raw(n * 3 + 1);
        // Past several chunks and several sizes of the directory.
        for n in 0..40_000 {
            assert_eq!(ids.add(&mut arena, &mut owned, leaf(n)), Ok(n));
        }
        for n in (0..40_000).step_by(7) {
            ids.set(&mut arena, n, leaf(n + 1_000_000));
        }
        for n in 0..40_000 {
            let moved = if n % 7 == 0 { 1_000_000 } else { 0 };
            assert_eq!(ids.get(&arena, n), leaf(n + moved));
        }
        assert_eq!(owned.bytes(), arena.used_bytes());
        let freed = [5, 39_999, 0, 4_096, 17];
        freed.iter().for_each(|&id| ids.remove(&mut arena, id));
        let again = freed.map(|_| ids.add(&mut arena, &mut owned, leaf(9)).unwrap());
        assert!(freed.iter().all(|id| again.contains(id)), "{again:?}");
        assert_eq!(ids.add(&mut arena, &mut owned, leaf(9)), Ok(40_000));
        ids.clear(&mut arena, &mut owned);
        assert_eq!((owned.bytes(), arena.used_bytes()), (0, 0));
    }
}
