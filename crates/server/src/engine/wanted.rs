//! Which of the shards that a script or a transaction holds one of its commands needs.
//!
//! Called for each command of either; it takes no shard itself.

use darter_store::Key;
use darter_txn::{LockSet, Part, Router, ShardSet};
use darter_wire::Args;

use crate::exec;
use crate::job::Shards;
use crate::registry::{Entry, Run};

/// The shards that one command needs, of those held for all.
pub enum Wanted<'a> {
    /// That of its only key.
    One(u16, Key<'a>),
    /// Those of its keys.
    Some(LockSet),
    /// Whichever a command of the server changes.
    Any,
}

impl<'a> Wanted<'a> {
    /// What `entry` needs for `args`.
    #[inline]
    pub fn of(entry: &Entry, args: Args<'a>, router: &Router) -> Wanted<'a> {
        if entry.is_single_of(args.len() as u32) {
            let key = router.key(args.at(1));
            return Wanted::One(router.shard_of(key.hash), key);
        }
        match entry.run {
            Run::Data(_) => Wanted::Some(exec::lock_set(&entry.spec, args, router)),
            _ => Wanted::Any,
        }
    }

    /// The shards as the command sees them, and its only key; `None`: one is not held.
    #[inline]
    pub fn set<'s>(
        &self,
        router: &'s Router,
        grant: &'s mut Shards,
    ) -> Option<(ShardSet<'s>, Option<Key<'a>>)> {
        match self {
            Wanted::One(id, key) => Some((ShardSet::one(router, *id, grant.get_mut(*id)?), Some(*key))),
            Wanted::Some(ids) if !grant.covers(ids.ids()) => None,
            Wanted::Some(_) | Wanted::Any => Some((exec::set_of(router, grant), None)),
        }
    }

    /// Whether the journal listens to one of them.
    #[inline]
    pub fn is_journalled(&self, grant: &mut Shards) -> bool {
        let is = |part: &Part| part.shard.changes.is_journalled();
        match self {
            Wanted::One(id, _) => grant.get(*id).is_some_and(is),
            Wanted::Some(ids) => ids.ids().iter().any(|id| grant.get(*id).is_some_and(is)),
            Wanted::Any => grant.iter_mut().any(|held| is(held)),
        }
    }
}
