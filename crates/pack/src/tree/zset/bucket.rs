//! A bucket of the member index: hashes and leaf ids in two arrays.
//!
//! ```text
//! u8 0 | u8 bits of its node that all its entries share | u16 len | u16 cap | u16 unused | cap x u32 hash | cap x u32 id
//! ```

use darter_slab::{Arena, Handle};

use crate::tree::TreeFull;
use crate::tree::block::{bytes_of_mut, two_of_mut};
use crate::tree::owned::OwnedEntry;
use crate::tree::word::{find_u32, get_u16, get_u32, put_u16, put_u32};

/// The head of a bucket, decoded.
#[derive(Clone, Copy)]
pub(super) struct ScoreBucket {
    pub(super) shared: u32,
    // 0 <= len <= cap
    pub(super) len: usize,
    pub(super) cap: usize,
}

impl ScoreBucket {
    #[inline(always)]
    pub(super) fn of(bytes: &[u8]) -> ScoreBucket {
        ScoreBucket { shared: u32::from(bytes[1]), len: get_u16(bytes, 2), cap: get_u16(bytes, 4) }
    }

    /// An empty bucket for at least `cap` entries.
    pub(super) fn alloc(
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        shared: u32,
        cap: usize,
    ) -> Result<Handle, TreeFull> {
        if cap > CAP_MAX {
            return Err(TreeFull);
        }
        // Few sizes, so that the blocks that growing buckets leave behind are taken up by others.
        let bytes = HEAD + 8 * cap;
        let bytes = if bytes > 256 { bytes.next_multiple_of(64) } else { bytes };
        let block = owned.alloc(arena, bytes)?;
        let cap = (arena.size(block) - HEAD) / 8;
        let bytes = bytes_of_mut(arena, block);
        bytes[0] = BUCKET;
        bytes[1] = shared as u8;
        put_u16(bytes, 2, 0);
        put_u16(bytes, 4, cap);
        Ok(block)
    }

    #[inline(always)]
    pub(super) fn id(self, bytes: &[u8], at: usize) -> u32 {
        get_u32(bytes, HEAD + 4 * (self.cap + at))
    }

    pub(super) fn position(self, bytes: &[u8], hash: u32, id: u32) -> Option<usize> {
        let mut from = 0;
        loop {
            let at = from + find_u32(&bytes[HEAD + 4 * from..HEAD + 4 * self.len], hash)?;
            if self.id(bytes, at) == id {
                return Some(at);
            }
            from = at + 1;
        }
    }

    /// Appends an entry; `false` when there is no room.
    #[inline]
    pub(super) fn push(bytes: &mut [u8], hash: u32, id: u32) -> bool {
        let bucket = ScoreBucket::of(bytes);
        if bucket.len == bucket.cap {
            return false;
        }
        put_u32(bytes, HEAD + 4 * bucket.len, hash);
        put_u32(bytes, HEAD + 4 * (bucket.cap + bucket.len), id);
        put_u16(bytes, 2, bucket.len + 1);
        true
    }

    pub(super) fn swap_remove(bytes: &mut [u8], at: usize) {
        let bucket = ScoreBucket::of(bytes);
        let last = bucket.len - 1;
        for start in [HEAD, HEAD + 4 * bucket.cap] {
            let moved = get_u32(bytes, start + 4 * last);
            put_u32(bytes, start + 4 * at, moved);
        }
        put_u16(bytes, 2, last);
    }

    /// Appends the entries of one bucket to another that has room.
    pub(super) fn copy(arena: &mut Arena, from: Handle, to: Handle) {
        let (from, to) = two_of_mut(arena, from, to);
        let (source, target) = (ScoreBucket::of(from), ScoreBucket::of(to));
        for (start, end) in [(HEAD, HEAD), (HEAD + 4 * source.cap, HEAD + 4 * target.cap)] {
            let end = end + 4 * target.len;
            to[end..end + 4 * source.len].copy_from_slice(&from[start..start + 4 * source.len]);
        }
        put_u16(to, 2, target.len + source.len);
    }
}

/// Bytes before the hashes, and before the slots of a node.
pub(super) const HEAD: usize = 8;
/// First byte of a bucket.
const BUCKET: u8 = 0;
/// Entries of a bucket whose hashes are all but equal; past that the set takes no more of them.
const CAP_MAX: usize = 4095;
