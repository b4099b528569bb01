//! Plan: from a command's row and arguments to the shards it needs.
//!
//! Called before a lease, and for each command of a script or transaction whose shards are held. It takes no shard.

use darter_command::{Reach, Spec};
use darter_latch::{Grant, LatchJob};
use darter_txn::{LockSet, Router, ShardPart, ShardSet};
use darter_wire::Args;

/// The shards `spec` needs for `args`.
pub fn lock_set(spec: &Spec, args: Args<'_>, router: &Router) -> LockSet {
    let mut set = LockSet::new();
    add_locks(spec, args, router, &mut set);
    set.seal();
    set
}

/// Adds the shards `spec` needs for `args`; the caller seals the set.
pub fn add_locks(spec: &Spec, args: Args<'_>, router: &Router, set: &mut LockSet) {
    match spec.reach {
        Reach::Keys => {
            spec.each_key(args, &mut |at| set.add(router.shard_of(router.key(args.at(at)).hash)));
        }
        Reach::AllIf(needs_all) if !needs_all(args) => {
            spec.each_key(args, &mut |at| set.add(router.shard_of(router.key(args.at(at)).hash)));
        }
        Reach::Linked(asks, _) => add_linked(spec, args, router, set, asks),
        Reach::All | Reach::AllIf(_) => (0..router.shards_len()).for_each(|id| set.add(id)),
        Reach::Run(find) => {
            let (first, len) = find(args, router.shards_len());
            (first..first.saturating_add(len).min(router.shards_len())).for_each(|id| set.add(id));
        }
        Reach::Slot(find) => match find(args).map(|slot| router.shard_of_slot(slot)) {
            Some(Some(id)) => set.add(id),
            _ => (0..router.shards_len()).for_each(|id| set.add(id)),
        },
    }
}

/// Adds the shards of the keys, and of those that their values name if the arguments ask for them.
fn add_linked(spec: &Spec, args: Args<'_>, router: &Router, set: &mut LockSet, asks: fn(Args<'_>) -> bool) {
    let asked = asks(args) && router.links().is_any();
    spec.each_key(args, &mut |at| {
        let name = args.at(at);
        set.add(router.shard_of(router.key(name).hash));
        if asked {
            router.links().each(name, &mut |other| set.add(router.shard_of(router.key(other).hash)));
        }
    });
}

/// The shards that a command needs beside those of `grant`, which it has taken: what its keys name may have changed while
/// it waited for them. While the shards of the keys are held it stands still.
pub fn lacks<J: LatchJob<Shard = ShardPart>>(
    spec: &Spec,
    args: Args<'_>,
    router: &Router,
    grant: &Grant<ShardPart, J>,
) -> Option<LockSet> {
    if !matches!(spec.reach, Reach::Linked(..)) || !router.links().is_any() {
        return None;
    }
    let wanted = lock_set(spec, args, router);
    (!grant.covers(wanted.ids())).then_some(wanted)
}

/// The shards of a grant as commands see them.
pub fn set_of<'a, J: LatchJob<Shard = ShardPart>>(
    router: &'a Router,
    grant: &'a mut Grant<ShardPart, J>,
) -> ShardSet<'a> {
    let is_one = grant.len() == 1;
    let mut held = grant.iter_mut().map(|held| (held.id(), &mut **held));
    match held.next() {
        Some((id, part)) if is_one => ShardSet::one(router, id, part),
        first => ShardSet::many(router, first.into_iter().chain(held)),
    }
}

#[cfg(test)]
mod tests {
    use darter_command::FAMILIES;
    use darter_wire::OwnedArgs;

    use super::*;
    use crate::testing::router;

    /// The shards of a command of words without spaces.
    fn shards(line: &str) -> Vec<u16> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let owned = OwnedArgs::from_slices(&words);
        let rows = || FAMILIES.iter().flat_map(|family| family.iter());
        let row = rows().find(|row| row.spec.name.as_bytes() == words[0]).expect("a data command");
        lock_set(&row.spec, owned.args(), router()).ids().to_vec()
    }

    #[test]
    fn a_command_needs_the_shards_of_its_keys_each_once_and_ascending() {
        let of = |name: &str| router().shard_of(router().key(name.as_bytes()).hash);
        let (low, high) = (
            ["a", "b", "c", "d", "e"].into_iter().find(|name| of(name) == 0).expect("one of five"),
            ["a", "b", "c", "d", "e"].into_iter().find(|name| of(name) == 1).expect("one of five"),
        );
        assert_eq!(shards(&format!("get {high}")), [1]);
        assert_eq!(shards(&format!("mget {high} {low} {high}")), [0, 1]);
        assert_eq!(shards(&format!("rename {low} {low}")), [0]);
        assert_eq!(shards(&format!("sort {low}")), [0]);
        assert_eq!(shards(&format!("sort {low} by w_*")), [0, 1], "patterns name any key");
        assert_eq!(shards("flushall"), [0, 1]);
    }
}
