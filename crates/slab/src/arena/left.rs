//! Blocks that never change, read in slices: those that are given up meanwhile stay until the last reader has ended.
//!
//! The trees of documents and the blocks of series are of this kind. Their owners call [`Arena::give_up`] in place of
//! [`Arena::free`]. Without a reader that costs one comparison.

use super::Arena;
use crate::handle::Handle;

/// Blocks that wait for the end of readers.
#[derive(Debug, Default)]
pub(super) struct LeftBlocks {
    readers: u32,
    blocks: Vec<Handle>,
    bytes: usize,
}

impl Arena {
    /// From now on blocks that are given up stay, until [`Arena::let_go`] was called as often as this.
    pub fn hold_on(&mut self) {
        self.left.readers += 1;
    }

    /// Ends a reader; after the last one, all blocks that were given up are freed.
    pub fn let_go(&mut self) {
        self.left.readers = self.left.readers.saturating_sub(1);
        if self.left.readers == 0 {
            self.left.bytes = 0;
            for block in std::mem::take(&mut self.left.blocks) {
                self.free(block);
            }
        }
    }

    /// Frees a block that was never changed, as soon as nobody reads it. A running snapshot keeps its content.
    #[inline]
    pub fn give_up(&mut self, block: Handle) {
        self.keep_first(block);
        if self.left.readers == 0 {
            return self.free(block);
        }
        self.left.bytes += self.size(block);
        self.left.blocks.push(block);
    }

    /// Bytes of blocks that wait for the end of readers.
    pub fn left_bytes(&self) -> usize {
        self.left.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_stay_until_the_last_reader_has_ended() {
        let mut arena = Arena::with_reserve(1 << 20).expect("address space");
        let [a, b] = [100, 200].map(|bytes| arena.alloc(bytes).expect("room"));
        arena.block_mut(a).fill(7);
        arena.hold_on();
        arena.give_up(a);
        arena.hold_on();
        arena.let_go();
        assert_eq!(arena.left_bytes(), arena.size(a));
        for _ in 0..1000 {
            let other = arena.alloc(100).expect("room");
            arena.block_mut(other).fill(8);
        }
        assert!(arena.block(a).iter().all(|byte| *byte == 7));
        let used = arena.used_bytes();
        arena.let_go();
        assert_eq!((arena.left_bytes(), arena.used_bytes()), (0, used - arena.size(a)));
        arena.give_up(b);
        assert_eq!(arena.used_bytes(), used - arena.size(a) - arena.size(b));
    }
}
