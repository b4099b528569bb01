//! A table of values named by small numbers, with free places reused.
//!
//! Records refer to values that do not fit into them (collections) by such a number. The table grows by a fixed piece
//! at a time: a value never moves, and growing copies nothing.

/// Values named by `u32`; removal leaves a hole that the next insertion fills.
#[derive(Debug)]
pub struct SlotKeys<T> {
    // All pieces but the last are full or have holes in the free list.
    pieces: Vec<Vec<SlotPlace<T>>>,
    free: u32,
    len: usize,
}

#[derive(Debug)]
enum SlotPlace<T> {
    Taken(T),
    Free { next: u32 },
}

const END: u32 = u32::MAX;
/// Places of a piece: some kilobytes.
const PIECE_BITS: u32 = 6;
const PIECE_LEN: usize = 1 << PIECE_BITS;

impl<T> Default for SlotKeys<T> {
    fn default() -> Self {
        SlotKeys { pieces: Vec::new(), free: END, len: 0 }
    }
}

impl<T> SlotKeys<T> {
    /// Number of values held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table itself, without those that the values own.
    pub fn bytes(&self) -> usize {
        self.pieces.len() * PIECE_LEN * size_of::<SlotPlace<T>>()
            + self.pieces.capacity() * size_of::<Vec<SlotPlace<T>>>()
    }

    /// Stores `value` and returns its number. Cost: sometimes the allocation of a piece.
    pub fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == END {
            return self.push(value);
        }
        let id = self.free;
        match std::mem::replace(self.place_mut(id), SlotPlace::Taken(value)) {
            SlotPlace::Free { next } => self.free = next,
            SlotPlace::Taken(_) => unreachable!("the free list names a taken place"),
        }
        id
    }

    fn push(&mut self, value: T) -> u32 {
        if self.pieces.last().is_none_or(|piece| piece.len() == PIECE_LEN) {
            self.pieces.push(Vec::with_capacity(PIECE_LEN));
        }
        let before = self.pieces.len() - 1;
        let piece = &mut self.pieces[before];
        piece.push(SlotPlace::Taken(value));
        (before << PIECE_BITS) as u32 + piece.len() as u32 - 1
    }

    /// Takes the value out; `id` must be held.
    pub fn remove(&mut self, id: u32) -> T {
        let next = self.free;
        let place = std::mem::replace(self.place_mut(id), SlotPlace::Free { next });
        self.free = id;
        self.len -= 1;
        match place {
            SlotPlace::Taken(value) => value,
            SlotPlace::Free { .. } => panic!("slot {id} removed twice"),
        }
    }

    /// The value named `id`, which must be held.
    #[inline]
    pub fn get(&self, id: u32) -> &T {
        match &self.pieces[(id >> PIECE_BITS) as usize][id as usize % PIECE_LEN] {
            SlotPlace::Taken(value) => value,
            SlotPlace::Free { .. } => panic!("slot {id} is empty"),
        }
    }

    /// The value named `id`, to change; it must be held.
    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut T {
        match self.place_mut(id) {
            SlotPlace::Taken(value) => value,
            SlotPlace::Free { .. } => panic!("slot {id} is empty"),
        }
    }

    /// The value named `id`, if there is one, to change.
    pub fn find_mut(&mut self, id: u32) -> Option<&mut T> {
        let piece = self.pieces.get_mut((id >> PIECE_BITS) as usize)?;
        match piece.get_mut(id as usize % PIECE_LEN)? {
            SlotPlace::Taken(value) => Some(value),
            SlotPlace::Free { .. } => None,
        }
    }

    /// The first value from number `id` on, with its number. Cost: the holes that are passed.
    pub fn next_from(&mut self, id: u32) -> Option<(u32, &mut T)> {
        let (first, skipped) = ((id >> PIECE_BITS) as usize, id as usize % PIECE_LEN);
        let pieces = self.pieces.iter_mut().enumerate().skip(first);
        let mut places = pieces.flat_map(|(n, piece)| {
            let skipped = if n == first { skipped } else { 0 };
            piece.iter_mut().enumerate().skip(skipped).map(move |(i, place)| (n * PIECE_LEN + i, place))
        });
        places.find_map(|(id, place)| match place {
            SlotPlace::Taken(value) => Some((id as u32, value)),
            SlotPlace::Free { .. } => None,
        })
    }

    #[inline]
    fn place_mut(&mut self, id: u32) -> &mut SlotPlace<T> {
        &mut self.pieces[(id >> PIECE_BITS) as usize][id as usize % PIECE_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::SlotKeys;

    #[test]
    fn reuses_holes_and_keeps_the_rest() {
        let mut slots = SlotKeys::default();
        let ids: Vec<u32> = (0..10).map(|n| slots.insert(n)).collect();
        assert_eq!(slots.remove(ids[3]), 3);
        assert_eq!(slots.remove(ids[7]), 7);
        assert_eq!(slots.insert(70), ids[7]);
        assert_eq!(slots.insert(30), ids[3]);
        assert_eq!(*slots.get(ids[9]), 9);
        assert_eq!(slots.len(), 10);
        assert_eq!(slots.insert(11), 10);
        slots.remove(ids[0]);
        slots.remove(ids[1]);
        assert_eq!(slots.next_from(0), Some((2, &mut 2)));
        assert_eq!(slots.next_from(10), Some((10, &mut 11)));
        assert_eq!(slots.next_from(11), None);
        assert_eq!(slots.next_from(1000), None);
    }

    #[test]
    fn keeps_thousands_apart() {
        let mut slots = SlotKeys::default();
        let ids: Vec<u32> = (0..5000).map(|n| slots.insert(n)).collect();
        assert!(ids.iter().enumerate().all(|(n, &id)| *slots.get(id) == n));
        ids.iter().skip(1).step_by(3).for_each(|&id| assert_eq!(slots.remove(id), id as usize));
        let again: Vec<u32> = (0..1000).map(|n| slots.insert(10_000 + n)).collect();
        assert!(again.iter().enumerate().all(|(n, &id)| id < 5000 && *slots.get(id) == 10_000 + n));
        assert!(slots.bytes() >= 5000 * size_of::<usize>());
        *slots.get_mut(4998) += 1;
        assert_eq!(*slots.get(4998), 4999);
    }
}
