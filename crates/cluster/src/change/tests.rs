//! Each verb on small maps; and any row of verbs leaves a map that can be read back.

use proptest::prelude::*;

use super::*;
use crate::map::tests::node;

fn register(node: MapNode) -> MapChange {
    MapChange::Register { node, now_s: 1 }
}

/// A node that has told of itself.
fn registered(ids: &[&str]) -> StoredMap {
    let mut map = StoredMap::default();
    for (at, id) in ids.iter().enumerate() {
        register(node(id, at as u16 + 1)).apply(&mut map, id).expect("it is new");
    }
    map
}

fn meet(other: &str) -> MapChange {
    MapChange::Meet { other: other.to_owned(), other_ip: "9".to_owned(), own_ip: "8".to_owned() }
}

fn range(start: u16, end: u16) -> Vec<SlotRange> {
    vec![SlotRange { start, end }]
}

fn done(map: &mut StoredMap, me: &str, change: MapChange) {
    assert_eq!(change.apply(map, me), Ok(MapAnswer::Done), "{change:?}");
}

fn refused(map: &StoredMap, me: &str, change: &MapChange) -> String {
    change.apply(&mut map.clone(), me).expect_err("it is refused")
}

/// `redis-cli --cluster create` of three masters.
fn three() -> StoredMap {
    let mut map = registered(&["a", "b", "c"]);
    for (me, first, last, epoch) in [("a", 0, 5460, 1), ("b", 5461, 10922, 2), ("c", 10923, 16383, 3)] {
        done(&mut map, me, MapChange::AddSlots(range(first, last)));
        done(&mut map, me, MapChange::SetEpoch(epoch));
    }
    done(&mut map, "b", meet("a"));
    done(&mut map, "c", meet("a"));
    map
}

#[test]
fn nodes_that_meet_bring_their_slots() {
    let map = three();
    assert!(map.waiting.is_empty());
    let seen = map.view("b", 1);
    assert!(seen.covers_all());
    assert_eq!(seen.groups().iter().map(|group| group.epoch).collect::<Vec<_>>(), [2, 1, 3]);
}

#[test]
fn a_slot_that_two_claim_is_the_later_ones() {
    for (epochs, owner) in [((1, 2), "b"), ((2, 1), "a"), ((1, 1), "b")] {
        let mut map = registered(&["a", "b"]);
        for (me, first, last, epoch) in [("a", 0, 100, epochs.0), ("b", 50, 60, epochs.1)] {
            done(&mut map, me, MapChange::AddSlots(range(first, last)));
            done(&mut map, me, MapChange::SetEpoch(epoch));
        }
        done(&mut map, "b", meet("a"));
        let seen = map.view("a", 1);
        let at = seen.owner(55).expect("an owner");
        assert_eq!((seen.groups()[at].id.as_str(), seen.bound_len()), (owner, 101), "{epochs:?}");
    }
}

#[test]
fn an_address_comes_from_those_who_meet() {
    let mut map = StoredMap::default();
    for id in ["a", "b"] {
        let unknown = MapNode { ip: String::new(), ..node(id, 1) };
        done(&mut map, id, register(unknown.clone()));
        done(&mut map, id, register(unknown));
    }
    done(&mut map, "b", meet("a"));
    let ip = |map: &StoredMap, at: usize| map.joined[at].master.ip.clone();
    assert_eq!((ip(&map, 0), ip(&map, 1)), ("8".to_owned(), "9".to_owned()));
    done(&mut map, "b", register(MapNode { ip: String::new(), port: 77, ..node("b", 1) }));
    assert_eq!((ip(&map, 0), map.joined[0].master.port), ("8".to_owned(), 77));
    assert_eq!(refused(&map, "b", &meet("z")), "the node z does not use this store");
}

#[test]
fn slots_are_added_and_removed() {
    let mut map = three();
    assert_eq!(refused(&map, "a", &MapChange::AddSlots(range(1, 1))), "Slot 1 is already busy");
    done(&mut map, "a", MapChange::DelSlots(range(6000, 6000)));
    assert!(map.view("a", 1).covers_all(), "it is another node's");
    done(&mut map, "a", MapChange::DelSlots(range(10, 20)));
    assert_eq!(map.view("a", 1).bound_len(), 16_373);
    assert_eq!(refused(&map, "a", &MapChange::DelSlots(range(15, 15))), "Slot 15 is already unassigned");
    done(&mut map, "b", MapChange::AddSlots(range(15, 16)));
    let seen = map.view("b", 1);
    assert_eq!(
        seen.own_group().map(|group| group.slots.clone()),
        Some([range(15, 16), range(5461, 10922)].concat())
    );
    done(&mut map, "b", MapChange::FlushSlots);
    assert_eq!(map.view("b", 1).own_group().map(NodeGroup::slots_len), Some(0));
}

#[test]
fn a_replica_follows_leads_and_leaves() {
    let mut map = three();
    done(&mut map, "r", register(node("r", 9)));
    assert_eq!(refused(&map, "r", &MapChange::Replicate("a".to_owned())), "Unknown node a");
    done(&mut map, "r", meet("a"));
    let replicate = |id: &str| MapChange::Replicate(id.to_owned());
    assert_eq!(refused(&map, "r", &replicate("r")), "Can't replicate myself");
    assert_eq!(refused(&map, "b", &replicate("a")), NOT_EMPTY);
    done(&mut map, "r", replicate("a"));
    done(&mut map, "r", replicate("a"));
    assert_eq!(refused(&map, "b", &replicate("r")), "I can only replicate a master, not a replica.");
    assert_eq!(refused(&map, "r", &MapChange::AddSlots(range(1, 1))), "Slot 1 is already busy");
    assert_eq!(refused(&map, "b", &MapChange::Forget("a".to_owned())), HAS_REPLICAS);
    assert_eq!(refused(&map, "r", &MapChange::Forget("a".to_owned())), "Can't forget my master!");
    done(&mut map, "r", MapChange::Lead(1));
    let seen = map.view("r", 1);
    let group = seen.own_group().expect("a group");
    assert_eq!((group.master.id.as_str(), group.replicas[0].id.as_str(), group.epoch), ("r", "a", 4));
    assert_eq!(group.slots, range(0, 5460));
    assert_eq!(refused(&map, "r", &MapChange::Lead(1)), "You should send CLUSTER FAILOVER to a replica");
    done(&mut map, "a", MapChange::ReplicateNoOne);
    assert_eq!(map.view("a", 1).groups().len(), 4);
    done(&mut map, "b", MapChange::Forget("a".to_owned()));
    done(&mut map, "c", MapChange::Forget("a".to_owned()));
    assert_eq!(refused(&map, "c", &MapChange::Forget("x".to_owned())), "Unknown node x");
    done(&mut map, "a", register(node("a", 1)));
    assert_eq!(map.view("a", 1).groups().len(), 1, "it is new again");
    done(&mut map, "a", MapChange::Reset);
    done(&mut map, "unknown", MapChange::Reset);
}

#[test]
fn a_founder_that_left_its_group_founds_another() {
    let mut map = three();
    done(&mut map, "r", register(node("r", 9)));
    done(&mut map, "r", meet("a"));
    done(&mut map, "r", MapChange::Replicate("a".to_owned()));
    // The group that `a` has founded is led by `r` from now on, and is called `a` still.
    done(&mut map, "r", MapChange::Lead(1));
    done(&mut map, "a", MapChange::ReplicateNoOne);
    let seen = map.view("a", 1);
    let own = seen.own_group().expect("a group").id.clone();
    let ids: Vec<&str> = seen.groups().iter().map(|group| group.id.as_str()).collect();
    assert_eq!(ids.iter().filter(|id| **id == own).count(), 1, "{ids:?}");
    assert_eq!(seen.group("a").map(|group| group.master.id.as_str()), Some("r"));
    // What moves to the one does not move to the other.
    let plan = MigrationChange::Export {
        id: "m".to_owned(),
        slots: range(5461, 5470),
        target: "a".to_owned(),
        retries: 0,
        now_s: 1,
    };
    done(&mut map, "b", MapChange::Migration(plan));
    assert!(map.view("a", 1).is_arriving(5461) && !map.view("r", 1).is_arriving(5461));
    done(&mut map, "a", MapChange::Reset);
    assert!(map.view("a", 1).own_group().is_some_and(|group| group.id != "a"));
}

#[test]
fn a_node_that_was_forgotten_and_is_dead_leaves_the_map() {
    let mut map = three();
    let tells = |map: &mut StoredMap, id: &str, now_s: u64| {
        done(map, id, MapChange::Register { node: node(id, 7), now_s });
    };
    for id in ["x", "y", "z"] {
        tells(&mut map, id, 100);
        done(&mut map, id, meet("a"));
        done(&mut map, "a", MapChange::Forget(id.to_owned()));
        // It lives, and does not know that it was forgotten.
        tells(&mut map, id, 100);
    }
    done(&mut map, "z", MapChange::Reset);
    done(&mut map, "y", MapChange::DelSlots(Vec::new()));
    let waiting = |map: &StoredMap| map.waiting.iter().map(|group| group.id.clone()).collect::<Vec<_>>();
    assert_eq!(waiting(&map), ["x", "y", "z"]);
    tells(&mut map, "x", 100 + HEARD_WITHIN_S);
    assert_eq!(waiting(&map).len(), 3, "they may be slow");
    let now_s = 101 + HEARD_WITHIN_S;
    tells(&mut map, "a", now_s);
    assert_eq!((waiting(&map), map.heard.len()), (vec!["x".to_owned()], 1), "one still tells of itself");
    assert_eq!(map.joined.len(), 3, "a node of the cluster stays, however long it is away");
    // Slots that it is to bring are kept.
    tells(&mut map, "w", now_s);
    done(&mut map, "x", MapChange::Meet { other: "a".into(), other_ip: "1".into(), own_ip: "2".into() });
    done(&mut map, "a", MapChange::DelSlots(range(7, 7)));
    done(&mut map, "w", MapChange::AddSlots(range(7, 7)));
    tells(&mut map, "a", now_s + 2 * HEARD_WITHIN_S);
    assert_eq!(waiting(&map), ["w"]);
}

const HAS_REPLICAS: &str = "the node has replicas: let one of them take over, or replicate another master";

#[test]
fn a_slot_moves_by_its_owner_alone() {
    let mut map = three();
    let set = |slot: u16, state: SlotState| MapChange::SetSlot(slot, state);
    let (to_b, from_a) = (SlotState::Migrating("b".to_owned()), SlotState::Importing("a".to_owned()));
    assert_eq!(refused(&map, "b", &set(5, to_b.clone())), "I'm not the owner of hash slot 5");
    assert_eq!(refused(&map, "a", &set(5, from_a.clone())), "I'm already the owner of hash slot 5");
    assert_eq!(
        refused(&map, "a", &set(5, SlotState::Migrating("z".to_owned()))),
        "I don't know about node z"
    );
    done(&mut map, "b", set(5, from_a.clone()));
    done(&mut map, "a", set(5, to_b.clone()));
    done(&mut map, "a", set(6, to_b));
    assert_eq!(map.view("a", 1).moves().len(), 2);
    assert_eq!(map.view("b", 1).move_of(5).map(|one| one.way), Some(MoveWay::Importing));
    assert_eq!(map.view("c", 1).moves(), []);
    let owner = |id: &str| SlotState::Owner(id.to_owned());
    assert_eq!(refused(&map, "b", &set(5, owner("b"))), "I'm not the owner of hash slot 5");
    assert_eq!(refused(&map, "a", &set(5, owner("z"))), "Unknown node z");
    done(&mut map, "a", set(5, owner("b")));
    let seen = map.view("b", 1);
    assert_eq!(seen.owner(5), seen.place().group());
    assert_eq!((seen.moves(), seen.own_group().map(|group| group.epoch)), (&[][..], Some(4)));
    for me in ["b", "a", "c"] {
        done(&mut map, me, set(5, owner("b")));
    }
    done(&mut map, "a", set(6, SlotState::Stable));
    assert_eq!(map.moves, []);
}

#[test]
fn a_slot_on_its_way_may_be_claimed_by_its_target() {
    let mut map = three();
    let import = MapChange::SetSlot(5, SlotState::Importing("a".to_owned()));
    done(&mut map, "b", import);
    done(&mut map, "b", MapChange::DelSlots(range(5, 5)));
    assert_eq!(refused(&map, "b", &MapChange::AddSlots(range(5, 5))), "Slot 5 is already busy");
    done(&mut map, "a", MapChange::SetSlot(5, SlotState::Migrating("b".to_owned())));
    done(&mut map, "c", MapChange::DelSlots(range(5, 5)));
    assert_eq!(refused(&map, "c", &MapChange::AddSlots(range(5, 5))), "Slot 5 is already busy");
    done(&mut map, "b", MapChange::DelSlots(range(5, 5)));
    done(&mut map, "b", MapChange::AddSlots(range(5, 5)));
    let seen = map.view("b", 1);
    assert_eq!((seen.owner(5), map.moves.len()), (seen.place().group(), 0));
}

#[test]
fn epochs_grow() {
    let mut map = three();
    assert_eq!(MapChange::BumpEpoch.apply(&mut map, "c"), Ok(MapAnswer::Still(3)));
    assert_eq!(MapChange::BumpEpoch.apply(&mut map, "a"), Ok(MapAnswer::Bumped(4)));
    let why = "The user can assign a config epoch only when the node does not know any other node.";
    assert_eq!(refused(&map, "a", &MapChange::SetEpoch(9)), why);
}

fn any_change() -> impl Strategy<Value = (usize, MapChange)> {
    let id = || (0usize..4).prop_map(|at| ["a", "b", "c", "d"][at].to_owned());
    let ranges = || (0u16..16_384, 0u16..16_384).prop_map(|(a, b)| range(a.min(b), a.max(b)));
    let state = prop_oneof![
        id().prop_map(SlotState::Migrating),
        id().prop_map(SlotState::Importing),
        Just(SlotState::Stable),
        id().prop_map(SlotState::Owner),
    ];
    let change = prop_oneof![
        (0usize..4).prop_map(|at| register(node(["a", "b", "c", "d"][at], 1 + at as u16))),
        id().prop_map(|id| meet(&id)),
        ranges().prop_map(MapChange::AddSlots),
        ranges().prop_map(MapChange::DelSlots),
        Just(MapChange::FlushSlots),
        (0u64..9).prop_map(MapChange::SetEpoch),
        Just(MapChange::BumpEpoch),
        id().prop_map(MapChange::Replicate),
        Just(MapChange::ReplicateNoOne),
        Just(MapChange::Lead(1)),
        id().prop_map(MapChange::Forget),
        Just(MapChange::Reset),
        (0u16..16_384, state).prop_map(|(slot, state)| MapChange::SetSlot(slot, state)),
    ];
    (0usize..4, change)
}

proptest! {
    #[test]
    fn any_row_of_changes_leaves_a_sound_map(changes in proptest::collection::vec(any_change(), 0..60)) {
        let mut map = registered(&["a", "b", "c", "d"]);
        for (me, change) in changes {
            let mut next = map.clone();
            if change.apply(&mut next, ["a", "b", "c", "d"][me]).is_ok() {
                let read = StoredMap::parse(&next.to_json());
                prop_assert_eq!(read.as_ref(), Ok(&next), "{:?}", change);
                next.view("a", 1);
                map = next;
            }
        }
    }
}
