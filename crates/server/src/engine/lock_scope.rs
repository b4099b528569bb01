//! Which of the shards that a script or a transaction holds one of its commands needs.
//!
//! Called for each command of either; it takes no shard itself.

use darter_store::Key;
use darter_txn::{LockSet, Router, ShardPart, ShardSet};
use darter_wire::Args;

use crate::engine::plan;
use crate::job::Shards;
use crate::registry::{CommandEntry, RunKind};

/// The shards that one command needs, of those held for all.
pub enum LockScope<'a> {
    /// That of its only key.
    One(u16, Key<'a>),
    /// Those of its keys.
    Some(LockSet),
    /// Whichever a command of the server changes.
    Any,
}

impl<'a> LockScope<'a> {
    /// What `entry` needs for `args`.
    #[inline]
    pub fn of(entry: &CommandEntry, args: Args<'a>, router: &Router) -> LockScope<'a> {
        if entry.is_single_of(args.len() as u32) {
            let key = router.key(args.at(1));
            return LockScope::One(router.shard_of(key.hash), key);
        }
        match entry.run {
            RunKind::Data(_) => LockScope::Some(plan::lock_set(&entry.spec, args, router)),
            _ => LockScope::Any,
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
            LockScope::One(id, key) => Some((ShardSet::one(router, *id, grant.get_mut(*id)?), Some(*key))),
            LockScope::Some(ids) if !grant.covers(ids.ids()) => None,
            LockScope::Some(_) | LockScope::Any => Some((plan::set_of(router, grant), None)),
        }
    }

    /// Whether the journal listens to one of them.
    #[inline]
    pub fn is_journalled(&self, grant: &mut Shards) -> bool {
        let is = |part: &ShardPart| part.shard.changes.is_journalled();
        match self {
            LockScope::One(id, _) => grant.get(*id).is_some_and(is),
            LockScope::Some(ids) => ids.ids().iter().any(|id| grant.get(*id).is_some_and(is)),
            LockScope::Any => grant.iter_mut().any(|held| is(held)),
        }
    }
}
