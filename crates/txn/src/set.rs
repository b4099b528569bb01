//! The shards a command holds while it runs.

use darter_store::Key;
use smallvec::SmallVec;

use crate::part::ShardPart;
use crate::route::Router;

/// Shards held for the length of one command, script or transaction.
pub struct ShardSet<'a> {
    router: &'a Router,
    held: HeldSet<'a>,
}

enum HeldSet<'a> {
    One(u16, &'a mut ShardPart),
    Many(SmallVec<[(u16, &'a mut ShardPart); 8]>),
}

impl<'a> ShardSet<'a> {
    /// A set of the one shard `id`.
    #[inline]
    pub fn one(router: &'a Router, id: u16, part: &'a mut ShardPart) -> ShardSet<'a> {
        ShardSet { router, held: HeldSet::One(id, part) }
    }

    /// Several shards, ids ascending.
    pub fn many(router: &'a Router, parts: impl Iterator<Item = (u16, &'a mut ShardPart)>) -> ShardSet<'a> {
        ShardSet { router, held: HeldSet::Many(parts.collect()) }
    }

    /// The mapping of keys to shards.
    pub fn router(&self) -> &Router {
        self.router
    }

    /// The part that `key` belongs to.
    ///
    /// Panics if that shard is not held: the command's key specification is wrong.
    #[inline]
    pub fn part_mut(&mut self, key: Key<'_>) -> &mut ShardPart {
        match &mut self.held {
            HeldSet::One(id, part) => {
                debug_assert_eq!(*id, self.router.shard_of(key.hash), "key outside the lock set");
                part
            }
            HeldSet::Many(parts) => {
                let id = self.router.shard_of(key.hash);
                match parts.binary_search_by_key(&id, |(id, _)| *id) {
                    Ok(at) => parts[at].1,
                    Err(_) => panic!("key outside the lock set"),
                }
            }
        }
    }

    /// The part that `key` belongs to, to read.
    #[inline]
    pub fn part(&self, key: Key<'_>) -> &ShardPart {
        match &self.held {
            HeldSet::One(id, part) => {
                debug_assert_eq!(*id, self.router.shard_of(key.hash), "key outside the lock set");
                part
            }
            HeldSet::Many(parts) => {
                let id = self.router.shard_of(key.hash);
                match parts.binary_search_by_key(&id, |(id, _)| *id) {
                    Ok(at) => parts[at].1,
                    Err(_) => panic!("key outside the lock set"),
                }
            }
        }
    }

    /// Returns true if the shard of `key` is held.
    pub fn covers(&self, key: Key<'_>) -> bool {
        let id = self.router.shard_of(key.hash);
        match &self.held {
            HeldSet::One(held, _) => *held == id,
            HeldSet::Many(parts) => parts.binary_search_by_key(&id, |(id, _)| *id).is_ok(),
        }
    }

    /// Every held part with its shard id, ascending.
    pub fn each_mut(&mut self, mut visit: impl FnMut(u16, &mut ShardPart)) {
        match &mut self.held {
            HeldSet::One(id, part) => visit(*id, part),
            HeldSet::Many(parts) => parts.iter_mut().for_each(|(id, part)| visit(*id, part)),
        }
    }

    /// The part of shard `id`, if held.
    pub fn by_id(&mut self, id: u16) -> Option<&mut ShardPart> {
        match &mut self.held {
            HeldSet::One(held, part) => (*held == id).then_some(&mut **part),
            HeldSet::Many(parts) => {
                let at = parts.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                Some(&mut *parts[at].1)
            }
        }
    }
}
