//! Small numbers for the clients that track, by which the shards' tables know them.
//!
//! The number of a client that has gone is given to another one only when no shard knows it any more: housekeeping
//! goes over all tables for many of them at once (a sweep).

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use darter_txn::Reader;
use darter_txn::readers::READER_MAX;

use crate::sync::lock;

/// The numbers that are in use, free, or to be swept out.
#[derive(Debug, Default)]
pub struct Numbers {
    state: Mutex<NumbersState>,
    // of the sweep that is on; 0: none is
    round: AtomicU64,
}

#[derive(Debug, Default)]
struct NumbersState {
    // below this all numbers have been in use
    next: Reader,
    free: BTreeSet<Reader>,
    gone: HashSet<Reader>,
    swept: Arc<HashSet<Reader>>,
    rounds: u64,
    // shards that have not been swept in this round
    shards_left: usize,
}

/// So many that have gone are worth a sweep.
const GONE_MIN: usize = 16;

impl Numbers {
    /// A number for a client: the smallest there is. Where all are in use, the largest belongs to several.
    pub fn take(&self) -> Reader {
        let mut state = lock(&self.state);
        if let Some(number) = state.free.pop_first() {
            return number;
        }
        let number = state.next.min(READER_MAX);
        state.next = number + 1;
        number
    }

    /// Takes a number back from a client that has gone.
    pub fn give_back(&self, number: Reader) {
        if number < READER_MAX {
            lock(&self.state).gone.insert(number);
        }
    }

    /// Begins a sweep of `shards_len` shards, if none is on and enough clients have gone, or any and `is_last`.
    pub fn begin_sweep(&self, shards_len: usize, is_last: bool) {
        let mut state = lock(&self.state);
        let gone_min = if is_last { 1 } else { GONE_MIN };
        if state.shards_left > 0 || state.gone.len() < gone_min {
            return;
        }
        state.swept = Arc::new(std::mem::take(&mut state.gone));
        state.rounds += 1;
        state.shards_left = shards_len;
        self.round.store(state.rounds, Ordering::Release);
    }

    /// The number of the sweep that is on, and whom it is about. Cost: a look where there is none.
    #[inline]
    pub fn sweep(&self) -> Option<(u64, Arc<HashSet<Reader>>)> {
        if self.round.load(Ordering::Acquire) == 0 {
            return None;
        }
        let state = lock(&self.state);
        (state.shards_left > 0).then(|| (state.rounds, state.swept.clone()))
    }

    /// Notes that one more shard has been swept; with the last of them the numbers are free.
    pub fn end_shard(&self) {
        let mut state = lock(&self.state);
        state.shards_left = state.shards_left.saturating_sub(1);
        if state.shards_left == 0 {
            self.round.store(0, Ordering::Release);
            let swept = std::mem::take(&mut state.swept);
            state.free.extend(swept.iter());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_when_every_shard_has_been_swept() {
        let numbers = Numbers::default();
        let all: Vec<Reader> = (0..20).map(|_| numbers.take()).collect();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
        (3..18).for_each(|number| numbers.give_back(number));
        numbers.begin_sweep(2, false);
        assert!(numbers.sweep().is_none(), "fifteen are too few");
        numbers.give_back(18);
        numbers.begin_sweep(2, false);
        numbers.give_back(1);
        let (round, gone) = numbers.sweep().expect("a sweep");
        assert_eq!((round, gone.len(), gone.contains(&1)), (1, 16, false));
        numbers.begin_sweep(2, true);
        assert_eq!(numbers.take(), 20);
        numbers.end_shard();
        assert_eq!((numbers.take(), numbers.sweep().map(|(round, _)| round)), (21, Some(1)));
        numbers.end_shard();
        assert!(numbers.sweep().is_none());
        assert_eq!((numbers.take(), numbers.take()), (3, 4));
        numbers.begin_sweep(1, true);
        assert_eq!(numbers.sweep().map(|(round, gone)| (round, gone.len())), Some((2, 1)));
        numbers.end_shard();
        assert_eq!(numbers.take(), 1);
    }

    #[test]
    fn the_largest_number_is_shared_and_never_free() {
        let numbers = Numbers::default();
        lock(&numbers.state).next = READER_MAX;
        assert_eq!((numbers.take(), numbers.take()), (READER_MAX, READER_MAX));
        numbers.give_back(READER_MAX);
        numbers.begin_sweep(1, true);
        assert!(numbers.sweep().is_none());
    }
}
