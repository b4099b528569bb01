//! Keys to which clients of a writable replica have given a deadline: they expire here. The master removes all others.
//!
//! A shard of such a replica has a table. Commands that write note their keys, and housekeeping looks at some at a time.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use darter_store::{Keyed, Shard};

/// A database, and a key of it.
type Place = (usize, Box<[u8]>);

/// See above.
#[derive(Debug, Default)]
pub struct OwnDeadlines {
    keys: BTreeSet<Place>,
    // the one looked at last; `None`: the next is the first
    last: Option<Place>,
}

impl OwnDeadlines {
    /// Notes a key that has a deadline.
    pub fn note(&mut self, db: usize, key: &[u8]) {
        self.keys.insert((db, key.into()));
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Removes up to `keys_max` keys of the shard that are dead, and forgets those without a deadline.
    pub fn sweep(&mut self, shard: &mut Shard, now_ms: u64, keys_max: usize) {
        let begin = self.last.take().map_or(Unbounded, Excluded);
        let some: Vec<Place> = self.keys.range((begin, Unbounded)).take(keys_max).cloned().collect();
        for (db, name) in &some {
            let hash = shard.key(name).hash;
            let is_over = match *db < shard.dbs_len() {
                // A dead one is removed as it is looked for.
                true => {
                    let key = darter_store::Key { bytes: name, hash };
                    Keyed::find(shard, *db, key, now_ms).deadline_ms().is_none()
                }
                false => true,
            };
            if is_over {
                self.keys.remove(&(*db, name.clone()));
            }
        }
        self.last = some.into_iter().next_back().filter(|_| !self.keys.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use darter_base::hash::KeyHasher;
    use darter_store::Key;
    use darter_store::record::Expiry;

    use super::*;

    #[test]
    fn own_keys_die_and_others_stay() {
        let hasher = KeyHasher::new(2);
        let mut shard = Shard::new(2, 1, hasher).expect("address space");
        let mut own = OwnDeadlines::default();
        for n in 0..40 {
            let name = format!("k{n}");
            let key = Key { bytes: name.as_bytes(), hash: hasher.hash(name.as_bytes()) };
            let expiry = if n < 30 { Expiry::At(100) } else { Expiry::None };
            Keyed::find(&mut shard, n % 2, key, 1).put_text(b"v", expiry).expect("room");
            if n >= 10 {
                own.note(n % 2, name.as_bytes());
            }
        }
        // All are looked at, some at a time and again from the first.
        for _ in 0..6 {
            own.sweep(&mut shard, 50, 7);
        }
        assert_eq!((own.len(), shard.keys_len()), (20, 40), "those without a deadline are forgotten");
        for _ in 0..6 {
            own.sweep(&mut shard, 200, 7);
        }
        assert_eq!((own.len(), own.is_empty(), shard.keys_len()), (0, true, 20));
    }
}
