//! The numbers of `math.random`: one sequence for all scripts of a thread, unless one sets its seed, as in Redis.

use std::cell::Cell;
use std::rc::Rc;

/// A 48-bit linear congruential generator.
#[derive(Clone)]
pub struct Random(Rc<Cell<u64>>);

const MASK: u64 = (1 << 48) - 1;
const FIRST_STATE: u64 = 0x1234_abcd_330e;
const LARGEST: u64 = i32::MAX as u64;

impl Random {
    pub fn new() -> Random {
        Random(Rc::new(Cell::new(FIRST_STATE)))
    }

    pub fn seed(&self, seed: i64) {
        self.0.set((((seed as u64) & 0xffff_ffff) << 16) + 0x330e);
    }

    /// A number from 0 up to but not including 1.
    pub fn next(&self) -> f64 {
        let state = self.0.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & MASK;
        self.0.set(state);
        ((state >> 17) % LARGEST) as f64 / LARGEST as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_sequence_again() {
        let random = Random::new();
        let shown = format!("{:.14} {:.14}", random.next(), random.next());
        assert_eq!(shown, "0.39646477363839 0.84048536971234", "as Redis 7.0.15 says");
        random.seed(0);
        let first: Vec<f64> = (0..10).map(|_| random.next()).collect();
        random.seed(0);
        let again: Vec<f64> = (0..10).map(|_| random.next()).collect();
        assert_eq!(first, again);
        random.seed(1);
        assert_ne!(random.next(), first[0]);
        assert!(first.iter().all(|n| (0.0..1.0).contains(n)));
    }
}
