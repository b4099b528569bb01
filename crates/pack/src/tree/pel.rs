//! `Pel`: the entries that a consumer group has delivered and that are not acknowledged, by entry id.
//!
//! Called by the store for consumer groups. It holds numbers only; the group knows the consumers.

use darter_slab::Arena;

use super::rows::RowTree;
use super::stream::StreamId;
use super::{Direction, TreeFull};

/// An entry that was delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending {
    /// The consumer that has it, by the group's number for it.
    pub consumer: u32,
    /// When it was last delivered, in Unix milliseconds.
    pub delivered_ms: u64,
    /// Number of deliveries.
    pub deliveries: u64,
}

/// Pending entries by id: 24 bytes and blocks in the arena. [`Pel::clear`] must run before it is dropped, or the blocks are
/// lost.
#[derive(Debug)]
pub struct Pel {
    rows: RowTree<5, 2>,
}

impl Default for Pel {
    fn default() -> Self {
        Self::new()
    }
}

impl Pel {
    /// Nothing pending, no block.
    pub const fn new() -> Pel {
        Pel { rows: RowTree::EMPTY }
    }

    /// A second list on the same blocks. Only one of the two may be changed or cleared. The other is for a reader
    /// that looks back to the time of this call.
    pub fn twin(&self) -> Pel {
        Pel { rows: self.rows.frozen() }
    }

    /// Number of pending entries.
    #[inline]
    pub fn len(&self) -> u64 {
        self.rows.len()
    }

    /// Returns true if nothing is pending.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Bytes held in the arena, exactly.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// The pending entry with this id. Cost: O(log n).
    pub fn get(&self, arena: &Arena, id: StreamId) -> Option<Pending> {
        self.rows.get(arena, id.key()).map(|row| unpack(row).1)
    }

    /// Number of pending entries with an id below `id`. Cost: O(log n).
    pub fn rank(&self, arena: &Arena, id: StreamId) -> u64 {
        self.rows.rank(arena, id.key())
    }

    /// Pending entries from this rank on, in a direction.
    pub fn iter<'a>(
        &'a self,
        arena: &'a Arena,
        rank: u64,
        direction: Direction,
    ) -> impl Iterator<Item = (StreamId, Pending)> + 'a {
        self.rows.iter(arena, rank, direction).map(unpack)
    }

    /// Pending entries whose id is at least `id`, rising.
    pub fn iter_from<'a>(
        &'a self,
        arena: &'a Arena,
        id: StreamId,
    ) -> impl Iterator<Item = (StreamId, Pending)> + 'a {
        self.rows.iter_from(arena, id.key()).map(unpack)
    }

    /// Writes a pending entry. Returns true if the id is new. Errors: nothing is changed. Cost: O(log n).
    pub fn put(&mut self, arena: &mut Arena, id: StreamId, pending: Pending) -> Result<bool, TreeFull> {
        self.rows
            .put(arena, [id.ms, id.seq, pending.consumer.into(), pending.delivered_ms, pending.deliveries])
    }

    /// Removes and returns the pending entry with this id. Cost: O(log n).
    pub fn remove(&mut self, arena: &mut Arena, id: StreamId) -> Option<Pending> {
        self.rows.remove(arena, id.key()).map(|row| unpack(row).1)
    }

    /// Frees up to `blocks_max` blocks; the list is unusable from the first call until it returns `true`, and empty
    /// then.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> bool {
        self.rows.free_step(arena, blocks_max)
    }

    /// Gives every block back. Cost: O(blocks).
    pub fn clear(&mut self, arena: &mut Arena) {
        while !self.free_step(arena, 1 << 16) {}
    }
}

fn unpack([ms, seq, consumer, delivered_ms, deliveries]: [u64; 5]) -> (StreamId, Pending) {
    (StreamId { ms, seq }, Pending { consumer: consumer as u32, delivered_ms, deliveries })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use darter_base::rng::Rng;

    use super::*;

    #[test]
    fn mixed_changes_follow_a_btree_map() {
        for (seed, ops) in [(1, 400u64), (2, 8_000), (3, 60_000)] {
            let mut rng = Rng::new(seed);
            let mut arena = Arena::with_reserve(1 << 28).unwrap();
            let (mut pel, mut model) = (Pel::new(), BTreeMap::new());
            for op in 0..ops {
                let growing = (op * 4 / ops).is_multiple_of(2);
                let id = StreamId { ms: 1_700_000_000_000 + rng.below(ops), seq: rng.below(3) };
                let id = if rng.below(500) == 0 {
                    StreamId { ms: rng.next_u64(), seq: rng.next_u64() }
                } else {
                    id
                };
                let pending = Pending {
                    consumer: rng.below(5) as u32 + if rng.below(100) == 0 { u32::MAX - 9 } else { 0 },
                    delivered_ms: 1_700_000_000_000 + op,
                    deliveries: 1 + if rng.below(50) == 0 { rng.below(1000) } else { 0 },
                };
                match rng.below(8) {
                    0..=4 if growing => {
                        assert_eq!(
                            pel.put(&mut arena, id, pending).unwrap(),
                            model.insert(id, pending).is_none()
                        );
                    }
                    5 => {
                        // Claimed by another.
                        let near = model.range(id..).next().map_or(id, |e| *e.0);
                        assert_eq!(
                            pel.put(&mut arena, near, pending).unwrap(),
                            model.insert(near, pending).is_none()
                        );
                    }
                    0..=4 => {
                        let near = model.range(id..).next().map_or(id, |e| *e.0);
                        assert_eq!(pel.remove(&mut arena, near), model.remove(&near));
                    }
                    6 => assert!(
                        pel.iter_from(&arena, id).take(4).eq(model.range(id..).take(4).map(|e| (*e.0, *e.1)))
                    ),
                    _ => assert_eq!(pel.get(&arena, id), model.get(&id).copied()),
                }
                if op % (ops / 20 + 1) == 0 {
                    assert_eq!((pel.len(), pel.bytes()), (model.len() as u64, arena.used_bytes()));
                    assert_eq!(pel.rows.check(&arena), pel.len());
                    assert!(pel.iter(&arena, 0, Direction::Up).eq(model.iter().map(|e| (*e.0, *e.1))));
                    assert_eq!(pel.rank(&arena, id), model.range(..id).count() as u64);
                }
            }
            pel.clear(&mut arena);
            assert_eq!((pel.len(), arena.used_bytes()), (0, 0));
        }
    }

    #[test]
    fn a_busy_group_costs_few_bytes_an_entry() {
        let mut arena = Arena::with_reserve(1 << 28).unwrap();
        let mut pel = Pel::new();
        for n in 0..50_000u64 {
            let pending =
                Pending { consumer: (n % 8) as u32, delivered_ms: 1_700_000_000_000 + n / 3, deliveries: 1 };
            pel.put(&mut arena, StreamId { ms: 1_700_000_000_000 + n / 4, seq: n % 4 }, pending).unwrap();
        }
        let each = pel.bytes() as f64 / 50_000.0;
        assert!(each < 7.0, "{each}");
        pel.clear(&mut arena);
    }
}
