//! `Grant`, the shards a job owns, and `acquire`, which takes several in ascending order.
//!
//! An owner only ever asks for shards above those it owns, so no circle of waiters can form.

use core::fmt;
use core::slice;

use smallvec::SmallVec;

use crate::cell::{Cell, Held};

/// Shards owned together, in ascending order of id. Up to two are kept inline.
pub struct Grant<T: 'static, W: 'static> {
    held: SmallVec<[Held<T, W>; 2]>, // ids strictly ascending
}

impl<T, W> Grant<T, W> {
    /// A grant of nothing; does not allocate.
    #[inline]
    pub fn empty() -> Self {
        Self { held: SmallVec::new() }
    }

    /// Number of owned shards.
    #[inline]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns true if no shard is owned.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The data of shard `id`, if it is owned. Cost: O(log shards).
    #[inline]
    pub fn get_mut(&mut self, id: u16) -> Option<&mut T> {
        let at = self.position(id)?;
        self.held.get_mut(at).map(|held| &mut **held)
    }

    /// The data of shard `id`, if it is owned, to be read. Cost: O(log shards).
    #[inline]
    pub fn get(&self, id: u16) -> Option<&T> {
        let at = self.position(id)?;
        self.held.get(at).map(|held| &**held)
    }

    /// Every owned shard, ascending; `id()` names it.
    #[inline]
    pub fn iter_mut(&mut self) -> slice::IterMut<'_, Held<T, W>> {
        self.held.iter_mut()
    }

    /// Adds a shard, whose id must be above those owned: taking one out of order is how deadlocks start.
    #[inline]
    pub fn push(&mut self, held: Held<T, W>) {
        assert!(
            self.held.last().is_none_or(|last| last.id() < held.id()),
            "shards are taken in ascending order"
        );
        self.held.push(held);
    }

    /// Adds a shard that was taken without waiting ([`Cell::try_take`]), in order of its id.
    ///
    /// Panics: the shard is owned already. Cost: O(shards owned).
    pub fn insert(&mut self, held: Held<T, W>) {
        let at = self.held.partition_point(|other| other.id() < held.id());
        assert!(self.held.get(at).is_none_or(|other| other.id() != held.id()), "a shard is owned once");
        self.held.insert(at, held);
    }

    /// Removes the shard with the highest id.
    #[inline]
    pub fn pop(&mut self) -> Option<Held<T, W>> {
        self.held.pop()
    }

    /// Splits off the shards from `id` on.
    pub fn split_off(&mut self, id: u16) -> Self {
        let at = self.held.partition_point(|held| held.id() < id);
        Self { held: self.held.drain(at..).collect() }
    }

    /// Adds the shards of another grant, whose ids must be above those owned.
    pub fn append(&mut self, mut others: Self) {
        others.held.drain(..).for_each(|held| self.push(held));
    }

    /// Returns true if every one of `ids` is owned.
    pub fn covers(&self, ids: &[u16]) -> bool {
        ids.iter().all(|&id| self.position(id).is_some())
    }

    #[inline]
    fn position(&self, id: u16) -> Option<usize> {
        match self.held.as_slice() {
            [] => None,
            [only] => (only.id() == id).then_some(0),
            // Who owns all shards finds one at its number.
            many if many.get(usize::from(id)).is_some_and(|held| held.id() == id) => Some(usize::from(id)),
            many => many.binary_search_by_key(&id, Held::id).ok(),
        }
    }
}

impl<T, W> From<Held<T, W>> for Grant<T, W> {
    #[inline]
    fn from(held: Held<T, W>) -> Self {
        let mut grant = Self::empty();
        grant.held.push(held);
        grant
    }
}

impl<T, W> Default for Grant<T, W> {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T, W> fmt::Debug for Grant<T, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.held.iter().map(Held::id)).finish()
    }
}

/// Takes the shards of `wanted` that `grant` lacks, in order, polling each busy one up to `spins` times.
///
/// Shape: `wanted` strictly ascending, each an index into `cells`; the shards in `grant` are the beginning of
/// `wanted`. Errors: the id of the first busy shard; shards taken so far stay in `grant` for the next try. Panics:
/// `wanted` is not ascending, or names no cell. Cost: a compare-and-swap each; one allocation beyond two shards.
#[inline]
pub fn acquire<T, W>(
    cells: &'static [Cell<T, W>],
    wanted: &[u16],
    grant: &mut Grant<T, W>,
    spins: u32,
) -> Result<(), u16> {
    debug_assert!(
        grant.len() <= wanted.len() && grant.held.iter().zip(wanted).all(|(held, &id)| held.id() == id),
        "a grant grows along the list it was begun with"
    );
    let mut missing = wanted.get(grant.len()..).unwrap_or_default();
    if wanted.len() > grant.held.inline_size() {
        grant.held.reserve_exact(missing.len()); // once, instead of in steps of two
    }
    // Checked on the way: that `wanted` is ascending, and with it what `Grant::push` would check.
    while let [id, rest @ ..] = missing {
        if let [next, ..] = rest {
            assert!(id < next, "shards are taken in ascending order");
            cells[usize::from(*next)].prefetch();
        }
        match cells[usize::from(*id)].take_spinning(spins) {
            Some(held) => grant.held.push(held),
            None => return Err(*id),
        }
        missing = rest;
    }
    Ok(())
}
