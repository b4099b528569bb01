//! Random members: common parts of HRANDFIELD, SRANDMEMBER and SPOP.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use darter_base::number;
use darter_base::rng::Rng;
use darter_pack::tree::window::Tell;

use crate::fault::Fault;

/// Draws after which a live member is searched in order: nearly all members must have expired by then.
pub(crate) const DRAWS_MAX: usize = 100;

/// A count of random members; negative asks for repetition.
pub(crate) fn count(arg: &[u8]) -> Result<i64, Fault> {
    match number::parse_i64(arg).ok_or(Fault::NotInteger)? {
        i64::MIN => Err(Fault::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// The method of choosing members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// Every one.
    All,
    /// This number of draws, with repetition.
    Repeated(u64),
    /// This number of different members, a large part of all: walk all members.
    Most(u64),
    /// This number of different members, few: draw until there are enough.
    Few(u64),
}

impl Choice {
    /// The way to choose `count` of `len` members.
    pub fn of(count: i64, len: u64) -> Choice {
        let n = count.unsigned_abs();
        if count < 0 {
            Choice::Repeated(n)
        } else if n >= len {
            Choice::All
        } else if n.saturating_mul(3) > len || len <= SMALL_LEN {
            Choice::Most(n)
        } else {
            Choice::Few(n)
        }
    }

    /// Number of members chosen of `len`, if all members are walked for it.
    pub fn going_through(self, len: u64) -> Option<u64> {
        match self {
            Choice::All => Some(len),
            Choice::Most(n) => Some(n),
            Choice::Repeated(_) | Choice::Few(_) => None,
        }
    }

    /// Number of members chosen of `len`.
    pub fn len(self, len: u64) -> u64 {
        match self {
            Choice::All => len,
            Choice::Repeated(n) | Choice::Most(n) | Choice::Few(n) => n,
        }
    }
}

/// Walking this many members is as cheap as drawing some.
const SMALL_LEN: u64 = 64;

/// `wanted` of the `len` members in `all`, each as likely as any other.
pub(crate) fn choose<T>(
    all: impl Iterator<Item = T>,
    wanted: u64,
    len: u64,
    rng: &mut Rng,
) -> impl Iterator<Item = T> {
    let (mut wanted, mut left) = (wanted, len);
    all.filter(move |_| {
        let is_taken = rng.below(left) < wanted;
        left -= 1;
        wanted -= u64::from(is_taken);
        is_taken
    })
}

/// Passes `wanted` of `len` members to `tell`, each with equal probability, in the order in which they come.
pub(crate) fn tell_some(tell: Tell, (wanted, len): (u64, u64), rng: Rng) -> Tell {
    if wanted >= len {
        return tell;
    }
    let state = Mutex::new((wanted, len, rng));
    Arc::new(move |seen, out| {
        let is_taken = {
            let (wanted, left, rng) = &mut *state.lock().unwrap_or_else(PoisonError::into_inner);
            let is_taken = *left > 0 && rng.below(*left) < *wanted;
            *left = left.saturating_sub(1);
            *wanted -= u64::from(is_taken);
            is_taken
        };
        if is_taken {
            tell(seen, out);
        }
    })
}

/// `wanted` different results of `draw`, distinguished by `name`. `None` if draws repeat or miss so often that
/// walking all members is cheaper.
pub(crate) fn distinct<T>(
    wanted: u64,
    mut draw: impl FnMut() -> Option<T>,
    name: impl Fn(&T) -> Vec<u8>,
) -> Option<Vec<T>> {
    let mut seen = HashSet::new();
    let mut drawn = Vec::new();
    for _ in 0..wanted.saturating_mul(4).saturating_add(64) {
        if drawn.len() as u64 == wanted {
            break;
        }
        let Some(one) = draw() else { continue };
        if seen.insert(name(&one)) {
            drawn.push(one);
        }
    }
    (drawn.len() as u64 == wanted).then_some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choosing_gives_exactly_so_many_and_prefers_none() {
        let mut rng = Rng::new(1);
        let mut counts = [0; 20];
        for _ in 0..20_000 {
            let chosen: Vec<usize> = choose(0..20, 5, 20, &mut rng).collect();
            assert_eq!(chosen.len(), 5);
            chosen.iter().for_each(|&n| counts[n] += 1);
        }
        assert!(counts.iter().all(|&n| (4_700..5_300).contains(&n)), "{counts:?}");
    }

    #[test]
    fn counts_have_the_range_of_redis() {
        assert_eq!(count(b"-9223372036854775807"), Ok(-i64::MAX));
        assert!(matches!(count(b"-9223372036854775808"), Err(Fault::Text(_))));
        assert_eq!(count(b"x"), Err(Fault::NotInteger));
        assert_eq!(Choice::of(-3, 1), Choice::Repeated(3));
        assert_eq!(Choice::of(3, 3), Choice::All);
        assert_eq!(Choice::of(5, 1000), Choice::Few(5));
        assert_eq!(Choice::of(999, 1000).len(1000), 999);
    }
}
