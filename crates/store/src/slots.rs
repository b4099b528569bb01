//! A table of values named by small numbers, with free places reused.
//!
//! Records refer to what does not fit into them (large strings, collections) by such a number.

/// Values named by `u32`; removal leaves a hole that the next insertion fills.
#[derive(Debug)]
pub struct Slots<T> {
    places: Vec<Place<T>>,
    free: u32,
    len: usize,
}

#[derive(Debug)]
enum Place<T> {
    Taken(T),
    Free { next: u32 },
}

const END: u32 = u32::MAX;

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots { places: Vec::new(), free: END, len: 0 }
    }
}

impl<T> Slots<T> {
    /// Number of values held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the table itself, without what the values own.
    pub fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place<T>>()
    }

    /// Stores `value` and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == END {
            self.places.push(Place::Taken(value));
            return (self.places.len() - 1) as u32;
        }
        let id = self.free;
        let place = &mut self.places[id as usize];
        match std::mem::replace(place, Place::Taken(value)) {
            Place::Free { next } => self.free = next,
            Place::Taken(_) => unreachable!("the free list names a taken place"),
        }
        id
    }

    /// Takes the value out; `id` must be held.
    pub fn remove(&mut self, id: u32) -> T {
        let place = std::mem::replace(&mut self.places[id as usize], Place::Free { next: self.free });
        self.free = id;
        self.len -= 1;
        match place {
            Place::Taken(value) => value,
            Place::Free { .. } => panic!("slot {id} removed twice"),
        }
    }

    /// The value named `id`, which must be held.
    pub fn get(&self, id: u32) -> &T {
        match &self.places[id as usize] {
            Place::Taken(value) => value,
            Place::Free { .. } => panic!("slot {id} is empty"),
        }
    }

    /// The value named `id`, to change; it must be held.
    pub fn get_mut(&mut self, id: u32) -> &mut T {
        match &mut self.places[id as usize] {
            Place::Taken(value) => value,
            Place::Free { .. } => panic!("slot {id} is empty"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn reuses_holes_and_keeps_the_rest() {
        let mut slots = Slots::default();
        let ids: Vec<u32> = (0..10).map(|n| slots.insert(n)).collect();
        assert_eq!(slots.remove(ids[3]), 3);
        assert_eq!(slots.remove(ids[7]), 7);
        assert_eq!(slots.insert(70), ids[7]);
        assert_eq!(slots.insert(30), ids[3]);
        assert_eq!(*slots.get(ids[9]), 9);
        assert_eq!(slots.len(), 10);
        assert_eq!(slots.insert(11), 10);
    }
}
