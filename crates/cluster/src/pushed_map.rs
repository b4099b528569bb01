//! The map of a pushed cluster: each node has one of its own, so what two nodes must agree on is said by one to the other.
//!
//! Called by the server's thread of the map, as `change` is. A migration has an entry at its source and one at its target; the
//! source names it and its attempts. The target decides: once its entry is done, the slots are its own. The source notes
//! its question before it asks ([`PushedChange::Offer`]). From then on the slots wait at the source, over a restart too. The
//! wait ends with the target's answer, or with a configuration that names the owner. So at most one node serves a slot, unless
//! configurations contradict each other.

use crate::map::{NodeGroup, SlotMap, SlotRange};
use crate::migration::{MigrationState, SlotMigration, done, find, hand_over};
use crate::pushed::PushedConfig;
use crate::stored::StoredMap;

/// A change of the map of a pushed cluster, asked of the node `me` of [`PushedChange::apply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PushedChange {
    /// A process of this boot begins with the map that another has left.
    Start {
        /// The boot.
        boot: String,
        /// Unix seconds.
        now_s: u64,
    },
    /// A configuration replaces the map. Migrations that it has too go on.
    Configure {
        /// The configuration.
        config: PushedConfig,
        /// 40 hex digits that nobody has used before.
        id: String,
        /// The boot of this node.
        boot: String,
        /// Unix seconds.
        now_s: u64,
    },
    /// At the target: the source begins an attempt of a migration, unless what an earlier one has brought is still there.
    Take {
        /// The id of the source.
        source: String,
        /// The slots.
        slots: Vec<SlotRange>,
        /// What the source calls the migration.
        id: String,
        /// The number of the attempt.
        attempt: u64,
        /// The boot of the source.
        runner: String,
        /// Unix seconds.
        now_s: u64,
    },
    /// At the source: the target is about to be asked to take the slots.
    Offer {
        /// The name of the migration.
        id: String,
        /// The attempt.
        attempt: u64,
        /// Keys of the slots.
        keys: u64,
    },
    /// At the source: the target has taken them.
    Given {
        /// The name of the migration.
        id: String,
        /// The attempt.
        attempt: u64,
        /// Milliseconds for which writes have waited.
        pause_ms: u64,
        /// Unix seconds.
        now_s: u64,
    },
    /// At the source: it may begin again after this attempt.
    Again(String, u64),
}

impl PushedChange {
    /// Makes the change. Errors: why it is refused; the map may have been changed in part then and is to be dropped.
    pub fn apply(&self, map: &mut StoredMap, me: &str) -> Result<(), String> {
        match self {
            PushedChange::Start { boot, now_s } => {
                start(map, me, boot, *now_s);
                Ok(())
            }
            PushedChange::Configure { config, id, boot, now_s } => {
                configure(map, me, config, (id, boot, *now_s))
            }
            PushedChange::Take { source, slots, id, attempt, runner, now_s } => {
                let named = NamedAttempt { id, attempt: *attempt, runner };
                take(map, (source, me), slots, named, *now_s)
            }
            PushedChange::Offer { id, attempt, keys } => {
                let one = attempt_of(map, me, id, *attempt)?;
                (one.is_offered, one.keys) = (true, *keys);
                Ok(())
            }
            PushedChange::Given { id, attempt, pause_ms, now_s } => {
                let one = attempt_of(map, me, id, *attempt)?;
                if !one.is_offered {
                    return Err(format!("migration {id} is not offered"));
                }
                let keys = one.keys;
                done(map, id, *now_s, (*pause_ms, keys))
            }
            PushedChange::Again(id, attempt) => {
                let one = find(map, id).filter(|one| one.state == MigrationState::Retrying);
                let one = one.filter(|one| one.attempt == *attempt && one.source == me);
                let one = one.ok_or_else(|| format!("migration {id} does not wait"))?;
                one.state = MigrationState::Active;
                one.runner.clear();
                Ok(())
            }
        }
    }
}

/// An attempt of a migration as its source names it.
struct NamedAttempt<'a> {
    id: &'a str,
    attempt: u64,
    runner: &'a str,
}

/// The migration from `me` whose attempt is under way.
fn attempt_of<'m>(
    map: &'m mut StoredMap,
    me: &str,
    id: &str,
    attempt: u64,
) -> Result<&'m mut SlotMigration, String> {
    let found = find(map, id).filter(|one| one.is_active() && one.source == me && !one.runner.is_empty());
    found.filter(|one| one.attempt == attempt).ok_or_else(|| format!("no migration {id} is under way"))
}

fn set_boot(groups: &mut [NodeGroup], node: &str, boot: &str) {
    let nodes =
        groups.iter_mut().flat_map(|group| std::iter::once(&mut group.master).chain(&mut group.replicas));
    nodes.filter(|known| known.id == node).for_each(|known| boot.clone_into(&mut known.boot));
}

fn start(map: &mut StoredMap, me: &str, boot: &str, now_s: u64) {
    set_boot(&mut map.joined, me, boot);
    // Keys that have arrived may be gone, and keys that leave may be written from now on. Slots that were offered wait.
    for one in map.migrations.iter_mut().filter(|one| one.is_active() && !one.runner.is_empty()) {
        if one.source == me && !one.is_offered {
            one.end(MigrationState::Retrying, "the source was restarted", now_s);
        } else if one.target == me {
            one.end(MigrationState::Retrying, "the target was restarted", now_s);
        }
    }
}

fn configure(
    map: &mut StoredMap,
    me: &str,
    config: &PushedConfig,
    (id, boot, now_s): (&str, &str, u64),
) -> Result<(), String> {
    let epoch = map.epoch() + 1;
    let mut groups = config.groups.clone();
    groups.iter_mut().for_each(|group| group.epoch = epoch);
    set_boot(&mut groups, me, boot);
    let mut migrations = Vec::with_capacity(config.moves.len());
    for (at, wish) in config.moves.iter().enumerate() {
        let is_it = |one: &&SlotMigration| {
            (&one.source, &one.target, &one.slots) == (&wish.source, &wish.target, &wish.slots)
        };
        let mut one = map.migrations.iter().find(is_it).cloned().unwrap_or_else(|| {
            let (from, to) = ([&wish.source[..]; 2], [&wish.target[..]; 2]);
            let planned = SlotMigration::planned(numbered(id, at), wish.slots.clone(), from, to, now_s);
            SlotMigration { retries: u64::MAX, ..planned }
        });
        (one.ip, one.port) = (wish.ip.clone(), wish.port);
        if one.target == me && !one.runner.is_empty() {
            set_boot(&mut groups, &one.source, &one.runner);
        }
        if one.state == MigrationState::Done {
            hand_over(&mut groups, &one, epoch)?;
        }
        migrations.push(one);
    }
    (map.joined, map.migrations, map.is_pushed) = (groups, migrations, true);
    Ok(())
}

/// An id of 40 hex digits made of another one and a number.
fn numbered(id: &str, at: usize) -> String {
    let head: String = id.chars().take(ID_DIGITS - NUMBER_DIGITS).collect();
    format!("{head}{at:08x}")
}

const ID_DIGITS: usize = 40;
const NUMBER_DIGITS: usize = 8;

fn take(
    map: &mut StoredMap,
    (source, me): (&str, &str),
    slots: &[SlotRange],
    named: NamedAttempt<'_>,
    now_s: u64,
) -> Result<(), String> {
    let is_it = |one: &&mut SlotMigration| one.source == source && one.target == me && one.slots == slots;
    let one = map.migrations.iter_mut().find(is_it);
    let one = one.ok_or_else(|| format!("no migration of these slots from {source} is configured"))?;
    let has_begun = one.is_active() && !one.runner.is_empty();
    let is_free = match one.state {
        MigrationState::Active => !has_begun,
        MigrationState::Failed | MigrationState::Cancelled => one.is_swept,
        MigrationState::Retrying | MigrationState::Done => false,
    };
    if is_free {
        named.id.clone_into(&mut one.id);
        named.runner.clone_into(&mut one.runner);
        (one.state, one.attempt, one.begun_s, one.is_swept) =
            (MigrationState::Active, named.attempt, now_s, false);
        set_boot(&mut map.joined, source, named.runner);
    } else if has_begun && (one.id.as_str(), one.attempt) != (named.id, named.attempt) {
        one.end(MigrationState::Retrying, "the source has begun again", now_s);
    }
    Ok(())
}

/// What an attempt has come to at its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferOutcome {
    /// The slots are the target's.
    Taken,
    /// They are not, and will not be by this attempt.
    Refused,
    /// It is under way.
    Open,
}

/// What an attempt has come to at the node that routes by `map`, its target. If a configuration has removed the migration,
/// it decides: `slot` is one of those that were to move.
pub fn outcome_at_target(map: &SlotMap, id: &str, attempt: u64, slot: u16) -> OfferOutcome {
    match map.migration(id) {
        Some(one) if one.attempt == attempt && one.is_active() && !one.runner.is_empty() => {
            OfferOutcome::Open
        }
        Some(one) if one.attempt == attempt && one.state == MigrationState::Done => OfferOutcome::Taken,
        Some(_) => OfferOutcome::Refused,
        None if map.is_own(slot) => OfferOutcome::Taken,
        None => OfferOutcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::NodeRole;
    use crate::migration::MigrationChange;

    const CONFIG: &str = r#"[
        {"slot_ranges": [{"start": 0, "end": 8191}], "master": {"id": "a", "ip": "h", "port": 1},
         "migrations": [{"node_id": "b", "ip": "h", "port": 9, "slot_ranges": [{"start": 0, "end": 99}]}]},
        {"slot_ranges": [{"start": 8192, "end": 16383}], "master": {"id": "b", "ip": "h", "port": 2}}]"#;

    fn without_moves() -> PushedConfig {
        PushedConfig { moves: Vec::new(), ..config() }
    }

    fn config() -> PushedConfig {
        crate::parse(CONFIG.as_bytes()).expect("good")
    }

    /// A source `a` and a target `b`, each with its own map.
    struct Pair {
        a: StoredMap,
        b: StoredMap,
        pushes: u32,
    }

    impl Pair {
        fn new() -> Pair {
            let mut pair = Pair { a: StoredMap::default(), b: StoredMap::default(), pushes: 0 };
            pair.push("ab", config());
            pair
        }

        fn map(&mut self, me: &str) -> &mut StoredMap {
            if me == "a" { &mut self.a } else { &mut self.b }
        }

        fn make(&mut self, me: &str, change: &PushedChange) -> Result<(), String> {
            change.apply(self.map(me), me)
        }

        /// Pushes a configuration to the nodes whose names are in `to`.
        fn push(&mut self, to: &str, config: PushedConfig) {
            self.pushes += 1;
            for me in ["a", "b"].into_iter().filter(|me| to.contains(me)) {
                let id = format!("{:0<40}", format!("{me}{}", self.pushes));
                let boot = format!("{me}-1");
                let change = PushedChange::Configure { config: config.clone(), id, boot, now_s: 1 };
                assert_eq!(self.make(me, &change), Ok(()));
            }
        }

        fn one(&mut self, me: &str) -> SlotMigration {
            self.map(me).migrations[0].clone()
        }

        fn run(&mut self) -> (String, u64) {
            let one = self.one("a");
            let (id, attempt, runner) = (one.id.clone(), one.attempt + 1, "a-1".to_owned());
            let run = MigrationChange::Run { id: id.clone(), attempt, runner: runner.clone(), now_s: 2 };
            assert_eq!(run.apply(&mut self.a, "a"), Ok(()));
            self.take(&id, attempt, &runner);
            (id, attempt)
        }

        fn take(&mut self, id: &str, attempt: u64, runner: &str) {
            let take = PushedChange::Take {
                source: "a".to_owned(),
                slots: self.one("a").slots,
                id: id.to_owned(),
                attempt,
                runner: runner.to_owned(),
                now_s: 3,
            };
            assert_eq!(self.make("b", &take), Ok(()));
        }

        fn commit(&mut self, (id, attempt): &(String, u64)) -> Result<(), String> {
            let (id, attempt, boot) = (id.clone(), *attempt, "b-1".to_owned());
            MigrationChange::Commit { id, attempt, boot, now_s: 4, pause_ms: 5, keys: 6 }
                .apply(&mut self.b, "b")
        }

        fn offer(&mut self, (id, attempt): &(String, u64)) {
            let offer = PushedChange::Offer { id: id.clone(), attempt: *attempt, keys: 6 };
            assert_eq!(self.make("a", &offer), Ok(()));
        }

        fn given(&mut self, (id, attempt): &(String, u64)) -> Result<(), String> {
            let (id, attempt) = (id.clone(), *attempt);
            self.make("a", &PushedChange::Given { id, attempt, pause_ms: 5, now_s: 4 })
        }

        fn fail(&mut self, me: &str, (id, attempt): &(String, u64)) -> Result<(), String> {
            let (id, attempt, state) = (id.clone(), Some(*attempt), MigrationState::Retrying);
            MigrationChange::Fail { id, attempt, state, why: "lost".to_owned(), now_s: 4 }
                .apply(self.map(me), me)
        }

        /// Returns for each of the two if it serves slot 7.
        fn owners(&mut self) -> [bool; 2] {
            ["a", "b"].map(|me| {
                let map = self.map(me).view(me, 1);
                map.is_own(7) && map.offered().next().is_none()
            })
        }

        fn outcome(&mut self, (id, attempt): &(String, u64)) -> OfferOutcome {
            outcome_at_target(&self.b.view("b", 1), id, *attempt, 7)
        }
    }

    #[test]
    fn the_target_decides_and_the_source_learns_it() {
        let mut pair = Pair::new();
        let named = pair.run();
        assert_eq!(pair.owners(), [true, false]);
        assert!(pair.given(&named).is_err(), "it was not offered");
        pair.offer(&named);
        assert_eq!((pair.owners(), pair.outcome(&named)), ([false, false], OfferOutcome::Open));
        assert_eq!(pair.commit(&named), Ok(()));
        assert_eq!((pair.owners(), pair.outcome(&named)), ([false, true], OfferOutcome::Taken));
        assert!(pair.fail("b", &named).is_err());
        assert_eq!(pair.given(&named), Ok(()));
        assert_eq!(pair.owners(), [false, true]);
        // The same configuration again changes nothing, one without the migration decides.
        pair.push("ab", config());
        assert_eq!((pair.owners(), pair.one("b").keys), ([false, true], 6));
        pair.push("ab", without_moves());
        assert_eq!((pair.owners(), pair.outcome(&named)), ([true, false], OfferOutcome::Refused));
    }

    #[test]
    fn an_offer_outlives_the_source_and_is_asked_for() {
        for is_taken in [true, false] {
            let mut pair = Pair::new();
            let named = pair.run();
            pair.offer(&named);
            if is_taken {
                assert_eq!(pair.commit(&named), Ok(()));
            }
            let start = PushedChange::Start { boot: "a-2".to_owned(), now_s: 9 };
            assert_eq!(pair.make("a", &start), Ok(()));
            assert_eq!(pair.owners(), [false, is_taken]);
            if is_taken {
                assert!(pair.fail("b", &named).is_err());
                assert_eq!(pair.given(&named), Ok(()));
            } else {
                assert_eq!(pair.fail("b", &named), Ok(()));
                assert!(pair.commit(&named).is_err(), "a late one");
                assert_eq!(pair.fail("a", &named), Ok(()));
            }
            assert_eq!(pair.owners(), [!is_taken, is_taken]);
        }
    }

    #[test]
    fn a_late_commit_of_an_earlier_attempt_is_refused() {
        let mut pair = Pair::new();
        let first = pair.run();
        assert_eq!(pair.fail("a", &first), Ok(()));
        assert_eq!(pair.make("a", &PushedChange::Again(first.0.clone(), first.1)), Ok(()));
        // What the first has brought is removed before the second begins.
        let second = pair.run();
        assert_eq!((second.1, pair.one("b").state), (2, MigrationState::Retrying));
        assert!(pair.commit(&first).is_err());
        assert_eq!(MigrationChange::Swept(first.0.clone(), 1).apply(&mut pair.b, "b"), Ok(()));
        assert!(pair.commit(&first).is_err());
        pair.take(&second.0, 2, "a-1");
        assert!(pair.commit(&first).is_err());
        assert_eq!(pair.commit(&second), Ok(()));
    }

    #[test]
    fn a_migration_that_was_removed_and_comes_again_is_another() {
        let mut pair = Pair::new();
        let first = pair.run();
        pair.push("ab", without_moves());
        assert!(pair.commit(&first).is_err());
        pair.push("ab", config());
        let second = pair.run();
        assert_ne!(first.0, second.0);
        assert!(pair.commit(&first).is_err());
        // The source hears of it first: the target still has the second, and begins anew.
        pair.push("a", without_moves());
        pair.push("a", config());
        let third = pair.run();
        assert!(pair.commit(&second).is_err(), "its source has begun again");
        assert!(pair.commit(&third).is_err(), "what the second has brought is still there");
    }

    #[test]
    fn a_target_that_was_restarted_takes_nothing() {
        let mut pair = Pair::new();
        let named = pair.run();
        let start = PushedChange::Start { boot: "b-2".to_owned(), now_s: 9 };
        assert_eq!(pair.make("b", &start), Ok(()));
        assert!(pair.commit(&named).is_err());
        assert_eq!(pair.outcome(&named), OfferOutcome::Refused);
    }

    #[test]
    fn a_node_that_is_not_named_sees_the_others() {
        let pair = Pair::new();
        let seen = pair.a.view("c", 1);
        assert_eq!((seen.bound_len(), seen.place(), seen.migrations().len()), (16_384, NodeRole::Nowhere, 0));
    }

    #[test]
    fn it_is_kept_as_it_is() {
        let mut pair = Pair::new();
        let named = pair.run();
        pair.offer(&named);
        assert_eq!(StoredMap::parse(&pair.a.to_json()), Ok(pair.a.clone()));
        assert_eq!(StoredMap::parse(&pair.b.to_json()), Ok(pair.b));
    }
}
