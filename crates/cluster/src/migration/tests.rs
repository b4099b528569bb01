//! The changes of a migration on small maps: what each refuses, and who owns the slots after it.

use super::*;
use crate::map::WhoWaits;
use crate::map::tests::{group, node};
use crate::map::{SlotHold, SlotMove};
use crate::{Ask, MapChange, MoveWay, Routing, RoutingRules};

fn map() -> StoredMap {
    let joined = vec![
        group("a", 1, &[(0, 8191)], &[node("ra", 4)]),
        group("b", 2, &[(8192, 16_383)], &[]),
        group("c", 3, &[], &[]),
    ];
    StoredMap { joined, ..StoredMap::default() }
}

fn slots(start: u16, end: u16) -> Vec<SlotRange> {
    vec![SlotRange { start, end }]
}

fn export(id: &str, slots: Vec<SlotRange>, target: &str) -> MigrationChange {
    MigrationChange::Export { id: id.to_owned(), slots, target: target.to_owned(), retries: 0, now_s: 5 }
}

fn run(id: &str, runner: &str) -> MigrationChange {
    MigrationChange::Run { id: id.to_owned(), attempt: 1, runner: runner.to_owned(), now_s: 6 }
}

fn commit(id: &str, boot: &str) -> MigrationChange {
    MigrationChange::Commit {
        id: id.to_owned(),
        attempt: 1,
        boot: boot.to_owned(),
        now_s: 7,
        pause_ms: 3,
        keys: 2,
    }
}

/// The node `id` is there with another boot.
fn restart(map: &mut StoredMap, id: &str, boot: &str) {
    let known = map.joined.iter().flat_map(|group| group.nodes()).find(|node| node.id == id);
    let node = crate::MapNode { boot: boot.to_owned(), ..known.expect("it is known").clone() };
    MapChange::Register { node, now_s: 9 }.apply(map, id).expect("it is made");
}

fn fail(id: &str) -> MigrationChange {
    let state = MigrationState::Failed;
    MigrationChange::Fail { id: id.to_owned(), attempt: None, state, why: "no room".to_owned(), now_s: 8 }
}

fn export_with_a_retry() -> MigrationChange {
    let (id, target) = ("m".to_owned(), "c".to_owned());
    MigrationChange::Export { id, slots: slots(100, 199), target, retries: 1, now_s: 5 }
}

fn fail_for_now(attempt: u64, why: &str) -> MigrationChange {
    let (id, why) = ("m".to_owned(), why.to_owned());
    MigrationChange::Fail { id, attempt: Some(attempt), state: MigrationState::Retrying, why, now_s: 8 }
}

fn refused(map: &StoredMap, me: &str, change: &MigrationChange) -> String {
    change.apply(&mut map.clone(), me).expect_err("it is refused")
}

#[test]
fn a_commit_gives_the_slots_away_and_nothing_before_it_does() {
    let mut map = map();
    assert_eq!(export("m", slots(100, 199), "c").apply(&mut map, "a"), Ok(()));
    assert_eq!(refused(&map, "c", &commit("m", "c-1")), "the migration has begun again");
    assert_eq!(run("m", "a-1").apply(&mut map, "a"), Ok(()));
    assert_eq!(refused(&map, "a", &run("m", "later")), "the migration is another node's");
    assert_eq!(map.view("a", 1).owner(100), Some(0));
    let target = map.view("c", 1);
    assert!(target.is_arriving(150) && !target.is_arriving(200) && !map.view("a", 1).is_arriving(150));
    assert_eq!(target.hidden().count(), 100);
    assert!(target.gets("m", 1) && !target.gets("m", 2) && !target.gets("n", 1));
    assert!(!map.view("a", 1).gets("m", 1));
    for other in ["a", "b"] {
        assert_eq!(refused(&map, other, &commit("m", "c-1")), "a master of the migration was replaced");
    }
    assert_eq!(refused(&map, "c", &commit("m", "c-0")), "a master of the migration was restarted");
    assert_eq!(commit("m", "c-1").apply(&mut map, "c"), Ok(()));
    let (source, target) = (map.view("a", 2), map.view("c", 2));
    assert_eq!((source.owner(99), source.owner(100), source.owner(200)), (Some(0), Some(2), Some(0)));
    assert_eq!((source.hidden().count(), target.hidden().count()), (100, 0));
    assert_eq!(refused(&map, "c", &commit("m", "c-1")), "no migration m is under way");
    assert_eq!(refused(&map, "a", &fail("m")), "no migration m is under way", "what is committed stays");
    let again = export("n", slots(150, 150), "a");
    assert_eq!(refused(&map, "c", &again), "keys of migration m are being removed, try again later");
    assert_eq!(MigrationChange::Swept("m".to_owned(), 1).apply(&mut map, "a"), Ok(()));
    assert_eq!(map.view("a", 3).hidden().count(), 0);
    assert_eq!(again.apply(&mut map, "c"), Ok(()));
    assert_eq!(StoredMap::parse(&map.to_json()), Ok(map));
}

#[test]
fn a_plan_needs_free_slots_of_one_owner() {
    let mut map = map();
    for (change, why) in [
        (export("m", slots(8000, 8200), "c"), "slots 8000-8200 are not all of one node"),
        (export("m", slots(1, 1), "x"), "Unknown node x"),
        (export("m", slots(1, 1), "ra"), "Target node is not a master"),
        (export("m", slots(1, 1), "a"), "Target node can not be this node"),
        (export("m", [slots(1, 3), slots(3, 4)].concat(), "c"), "Slot 3 specified multiple times"),
    ] {
        assert_eq!(refused(&map, "a", &change), why);
    }
    assert!(refused(&map, "ra", &export("m", slots(1, 1), "c")).contains("replica"));
    let import =
        MigrationChange::Import { id: "i".to_owned(), slots: slots(9000, 9001), retries: 0, now_s: 1 };
    assert_eq!(refused(&map, "b", &import), "this node is already the owner of the slot range");
    assert_eq!(import.apply(&mut map, "c"), Ok(()));
    assert_eq!(map.migrations.last().map(|one| one.source.as_str()), Some("b"));
    assert_eq!(refused(&map, "b", &export("m", slots(9001, 9002), "a")), "slots are moving by migration i");
    for change in [
        MapChange::DelSlots(slots(9000, 9000)),
        MapChange::SetSlot(9000, crate::change::SlotState::Migrating("c".to_owned())),
        MapChange::FlushSlots,
    ] {
        let refused = change.apply(&mut map.clone(), "b");
        assert_eq!(refused, Err("slots are moving by migration i".to_owned()), "{change:?}");
    }
    map.moves.push(SlotMove {
        slot: 5,
        group: "a".to_owned(),
        way: MoveWay::Migrating,
        other: "b".to_owned(),
    });
    assert_eq!(refused(&map, "a", &export("m", slots(0, 9), "c")), "Slot 5 moves key by key");
}

#[test]
fn a_failed_one_changes_no_owner_and_a_replaced_master_ends_it() {
    let mut map = map();
    assert_eq!(export("m", slots(0, 8191), "b").apply(&mut map, "a"), Ok(()));
    assert_eq!(run("m", "a-1").apply(&mut map, "a"), Ok(()));
    let (before, mut replaced) = (map.view("b", 1), map.clone());
    assert_eq!(MapChange::Lead(8).apply(&mut replaced, "ra"), Ok(crate::change::MapAnswer::Done));
    assert_eq!(refused(&replaced, "b", &commit("m", "b-1")), "no migration m is under way");
    let ended = replaced.view("b", 2).migration("m").cloned().expect("it is known");
    assert_eq!((ended.state, ended.why.as_str()), (MigrationState::Failed, "the source was replaced"));
    assert_eq!(fail("m").apply(&mut map, "b"), Ok(()));
    let after = map.view("b", 2);
    assert_eq!((before.owner(5), after.owner(5)), (Some(0), Some(0)));
    assert_eq!(after.hidden().count(), 8192, "what it has got is hidden until it is removed");
    assert_eq!(after.migration("m").map(|one| one.why.as_str()), Some("no room"));
    assert_eq!(refused(&map, "b", &commit("m", "b-1")), "no migration m is under way");
    let mut map = replaced;
    assert_eq!(MigrationChange::Swept("m".to_owned(), 1).apply(&mut map, "b"), Ok(()));
    assert_eq!(map.view("b", 3).hidden().count(), 0);
    for n in 0..300 {
        let id = format!("n{n}");
        assert_eq!(export(&id, slots(0, 0), "b").apply(&mut map, "ra"), Ok(()));
        assert_eq!(fail(&id).apply(&mut map, "ra"), Ok(()), "it has not begun, so nothing is left of it");
    }
    assert_eq!(map.migrations.len(), ENDED_MAX);
}

#[test]
fn a_process_that_was_restarted_commits_nothing_that_began_before() {
    for (restarted, why) in [("a", "the source was restarted"), ("c", "the target was restarted")] {
        let mut map = map();
        assert_eq!(export("m", slots(100, 199), "c").apply(&mut map, "a"), Ok(()));
        restart(&mut map, restarted, "2");
        assert!(map.migrations[0].is_active(), "nothing has been sent");
        let boot = |of: &str, usual: &str| if of == restarted { "2".to_owned() } else { usual.to_owned() };
        assert_eq!(run("m", &boot("a", "a-1")).apply(&mut map, "a"), Ok(()));
        restart(&mut map, restarted, "2");
        assert!(map.migrations[0].is_active(), "it is the same process");
        let wish = commit("m", &boot("c", "c-1"));
        assert_eq!(wish.apply(&mut map.clone(), "c"), Ok(()));
        restart(&mut map, restarted, "3");
        assert_eq!((map.migrations[0].state, map.migrations[0].why.as_str()), (MigrationState::Failed, why));
        assert_eq!(refused(&map, "c", &wish), "no migration m is under way");
        assert_eq!((map.view("a", 2).owner(100), map.view("c", 2).hidden().count()), (Some(0), 100));
    }
}

#[test]
fn a_passing_failure_begins_again_as_often_as_was_planned() {
    let mut map = map();
    let plan = export_with_a_retry();
    assert_eq!(plan.apply(&mut map, "a"), Ok(()));
    let failed = |attempt| fail_for_now(attempt, "late");
    let swept = |attempt| MigrationChange::Swept("m".to_owned(), attempt);
    let state = |map: &StoredMap| map.migrations[0].state;
    assert_eq!(refused(&map, "a", &failed(2)), "no migration m is under way", "the first has not been");
    assert_eq!(run("m", "a-1").apply(&mut map, "a"), Ok(()));
    assert_eq!(failed(1).apply(&mut map, "a"), Ok(()));
    assert_eq!((state(&map), map.migrations[0].why.as_str()), (MigrationState::Retrying, "late"));
    assert_eq!(map.view("c", 1).hidden().count(), 100);
    assert!(!map.view("c", 1).gets("m", 1) && !map.view("c", 1).gets_slots());
    assert_eq!(refused(&map, "a", &failed(1)), "no migration m is under way", "it counts once");
    for early in [commit("m", "c-1"), run("m", "a-1")] {
        assert_eq!(refused(&map, "c", &early), "no migration m is under way");
    }
    assert_eq!(refused(&map, "a", &export("n", slots(150, 150), "b")), "slots are moving by migration m");
    assert_eq!(swept(0).apply(&mut map, "c"), Ok(()));
    assert_eq!(state(&map), MigrationState::Retrying, "another attempt was swept");
    assert_eq!(swept(1).apply(&mut map, "c"), Ok(()));
    assert_eq!(state(&map), MigrationState::Active);
    assert_eq!(
        refused(&map, "a", &run("m", "a-1")),
        "the migration is another node's",
        "a late first attempt"
    );
    let again = MigrationChange::Run { id: "m".to_owned(), attempt: 2, runner: "a-1".to_owned(), now_s: 9 };
    assert_eq!(again.apply(&mut map, "a"), Ok(()));
    assert_eq!(refused(&map, "c", &commit("m", "c-1")), "the migration has begun again");
    assert_eq!(refused(&map, "a", &failed(1)), "no migration m is under way");
    assert!(map.view("c", 2).gets("m", 2));
    assert_eq!(StoredMap::parse(&map.to_json()).as_ref(), Ok(&map));
    assert_eq!(failed(2).apply(&mut map, "a"), Ok(()));
    assert_eq!(state(&map), MigrationState::Failed, "it may not begin again");
}

#[test]
fn attempts_that_never_reach_their_target_are_counted_once_and_leave_nothing() {
    let mut map = map();
    let plan = export_with_a_retry();
    assert_eq!(plan.apply(&mut map, "a"), Ok(()));
    let failed = |attempt| fail_for_now(attempt, "nobody is there");
    assert_eq!(failed(1).apply(&mut map, "a"), Ok(()));
    assert_eq!(refused(&map, "a", &failed(1)), "no migration m is under way", "it counts once");
    assert_eq!(
        refused(&map, "a", &run("m", "a-1")),
        "the migration is another node's",
        "a late first attempt"
    );
    assert!(map.migrations[0].is_active());
    assert_eq!(failed(2).apply(&mut map, "a"), Ok(()));
    assert_eq!((map.migrations[0].state, map.migrations[0].hider()), (MigrationState::Failed, None));
}

/// A migration of slots 100 to 199 from `a` to `c` that has begun and failed; `c` does not know it yet.
fn left_at_c() -> StoredMap {
    let mut map = map();
    assert_eq!(export("m", slots(100, 199), "c").apply(&mut map, "a"), Ok(()));
    assert_eq!(run("m", "a-1").apply(&mut map, "a"), Ok(()));
    assert_eq!(fail("m").apply(&mut map, "a"), Ok(()));
    map
}

#[test]
fn what_a_dead_target_has_left_holds_nobody_else_up() {
    use crate::change::SlotState::{Importing, Migrating, Owner};
    const LEFT: &str = "keys of migration m are being removed, try again later";
    let map = left_at_c();
    let set = |state| MapChange::SetSlot(150, state);
    let (b, c) = (|| "b".to_owned(), || "c".to_owned());
    for (me, change) in [
        ("a", MapChange::DelSlots(slots(150, 150))),
        ("a", MapChange::FlushSlots),
        ("a", set(Migrating(b()))),
        ("b", set(Importing("a".to_owned()))),
        ("a", set(Owner(b()))),
        ("a", MapChange::Migration(export("n", slots(150, 160), "b"))),
    ] {
        let mut free = map.clone();
        assert!(change.apply(&mut free, me).is_ok(), "{change:?}");
        assert_eq!(free.view("c", 2).hidden().count(), 100, "{change:?}");
    }
    let mut unbound = map.clone();
    assert!(MapChange::DelSlots(slots(150, 150)).apply(&mut unbound, "a").is_ok());
    for (of, me, change) in [
        (&unbound, "c", MapChange::AddSlots(slots(150, 150))),
        (&map, "a", set(Migrating(c()))),
        (&map, "c", set(Importing("a".to_owned()))),
        (&map, "a", set(Owner(c()))),
        (&map, "a", MapChange::Migration(export("n", slots(199, 200), "c"))),
    ] {
        assert_eq!(change.apply(&mut of.clone(), me), Err(LEFT.to_owned()), "{change:?}");
    }
    assert!(export("n", slots(200, 201), "c").apply(&mut map.clone(), "a").is_ok(), "others of the target");

    // The slots may be a third one's by the time that the target has removed its keys.
    let mut moved = map;
    assert_eq!(export("n", slots(150, 160), "b").apply(&mut moved, "a"), Ok(()));
    assert_eq!(run("n", "a-1").apply(&mut moved, "a"), Ok(()));
    assert_eq!(commit("n", "b-1").apply(&mut moved, "b"), Ok(()));
    assert_eq!(moved.view("c", 3).hidden().count(), 100);
    assert_eq!(MigrationChange::Swept("m".to_owned(), 1).apply(&mut moved, "c"), Ok(()));
    assert_eq!((moved.view("c", 3).hidden().count(), moved.view("a", 3).hidden().count()), (0, 11));
}

#[test]
fn a_node_that_was_forgotten_still_hides_what_it_has_left() {
    let mut map = left_at_c();
    let forget = |id: &str| MapChange::Forget(id.to_owned());
    assert!(forget("c").apply(&mut map, "a").is_ok());
    let register = |map: &mut StoredMap, id: &str| {
        let node = node(id, 3);
        assert!(MapChange::Register { node, now_s: 9 }.apply(map, id).is_ok());
    };
    register(&mut map, "c");
    assert_eq!(map.view("c", 2).hidden().count(), 100);
    let refused = MapChange::AddSlots(slots(100, 100)).apply(&mut map.clone(), "c");
    assert_eq!(refused, Err("keys of migration m are being removed, try again later".to_owned()));
    assert_eq!(MigrationChange::Swept("m".to_owned(), 1).apply(&mut map, "c"), Ok(()));
    assert_eq!(map.view("c", 3).hidden().count(), 0);

    // A source that goes amid a migration leaves its target with keys.
    let mut map = self::map();
    assert_eq!(export("m", slots(100, 199), "c").apply(&mut map, "a"), Ok(()));
    assert_eq!(run("m", "a-1").apply(&mut map, "a"), Ok(()));
    map.joined[0].replicas.clear();
    assert!(forget("a").apply(&mut map, "b").is_ok());
    assert_eq!(map.migrations[0].why, "the source has left the cluster");
    assert_eq!(map.view("c", 2).hidden().count(), 100);
    // One that has become another's replica has the keys of its master alone.
    assert!(MapChange::Replicate("b".to_owned()).apply(&mut map, "c").is_ok());
    assert_eq!(map.migrations, []);
}

#[test]
fn commands_of_a_held_slot_wait_and_the_source_alone_writes_what_arrives() {
    const RULES: RoutingRules =
        RoutingRules { needs_all: true, reads_when_down: false, messages_when_down: true, crosses_own: true };
    let mut stored = map();
    assert_eq!(export("m", slots(100, 199), "c").apply(&mut stored, "a"), Ok(()));
    let ask = |map: &crate::SlotMap, slots: &[u16], writes: bool| {
        let mut ask = Ask { writes, ..Ask::default() };
        slots.iter().for_each(|slot| ask.add_slot(map, *slot));
        ask
    };
    let hold = |who| SlotHold { slots: slots(100, 199), who };
    let writers = stored.view("a", 1).with_holds(vec![hold(WhoWaits::Writers)], 2);
    assert_eq!(RULES.verdict(&writers, &ask(&writers, &[100], true)), Routing::Held);
    assert_eq!(RULES.verdict(&writers, &ask(&writers, &[50, 199], true)), Routing::Held);
    assert_eq!(RULES.verdict(&writers, &ask(&writers, &[100], false)), Routing::Serve);
    assert_eq!(RULES.verdict(&writers, &ask(&writers, &[99], true)), Routing::Serve);
    assert_ne!(writers.owners()[100], RULES.own(&writers), "the short way is shut");
    assert_eq!(writers.owners()[99], RULES.own(&writers));
    let all = stored.view("a", 1).with_holds(vec![hold(WhoWaits::Everybody)], 2);
    assert_eq!(RULES.verdict(&all, &ask(&all, &[100], false)), Routing::Held);
    let message = Ask { is_pubsub: true, ..ask(&all, &[100], true) };
    assert_eq!(RULES.verdict(&all, &message), Routing::Serve);

    assert_eq!(run("m", "a-1").apply(&mut stored, "a"), Ok(()));
    let mut given = stored.clone();
    assert_eq!(commit("m", "c-1").apply(&mut given, "c"), Ok(()));
    let early = given.view("a", 3).with_holds(vec![hold(WhoWaits::Everybody)], 4);
    assert_eq!(
        RULES.verdict(&early, &ask(&early, &[100], false)),
        Routing::Held,
        "the target may not know yet"
    );
    let late = given.view("a", 3);
    assert!(matches!(RULES.verdict(&late, &ask(&late, &[100], false)), Routing::Moved(100, _)));

    let target = stored.view("c", 1);
    assert!(matches!(RULES.verdict(&target, &ask(&target, &[100], true)), Routing::Moved(100, _)));
    let brought = Ask { imports: true, ..ask(&target, &[100], true) };
    assert_eq!(RULES.verdict(&target, &brought), Routing::Serve);
    let other = Ask { imports: true, ..ask(&target, &[200], true) };
    assert!(matches!(RULES.verdict(&target, &other), Routing::Moved(200, _)));
}
