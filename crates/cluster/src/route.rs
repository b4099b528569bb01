//! Routing: whether this node serves a command, or where its client is sent.
//!
//! Called by the server's admission for each command with keys. The order of the answers is that of the plan: the cluster
//! is down, keys of several slots, another node's slot.

use darter_base::slot::slot_of;

use crate::map::{MapNode, MoveWay, NodeRole, SlotMap, WhoWaits};

/// The slots of one command, or of all commands of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ask {
    /// The slot of the first key.
    pub slot: Option<u16>,
    /// There are keys of another slot.
    pub is_cross: bool,
    /// There are keys of slots that another group owns, or nobody.
    pub has_foreign: bool,
    /// Data may change.
    pub writes: bool,
    /// A script runs, which may change data.
    pub runs_script: bool,
    /// Only channels of slots are named.
    pub is_pubsub: bool,
    /// The client has sent READONLY.
    pub reads_replica: bool,
    /// The owner has sent the client here (ASKING).
    pub is_asking: bool,
    /// The command takes keys to another node itself.
    pub moves_keys: bool,
    /// There are keys of slots that move key by key.
    pub has_moving: bool,
    /// The source of a migration brings keys of slots that are arriving.
    pub imports: bool,
    /// Commands that wait because of one of the slots.
    pub waits: Option<WhoWaits>,
}

impl Ask {
    /// Returns true if one of its slots is held, and for such a command. Messages do not wait.
    fn must_wait(&self) -> bool {
        let waits =
            self.waits.is_some_and(|who| who == WhoWaits::Everybody || self.writes || self.runs_script);
        waits && !self.is_pubsub
    }

    /// Adds a key.
    #[inline]
    pub fn add(&mut self, map: &SlotMap, key: &[u8]) {
        self.add_slot(map, slot_of(key));
    }

    /// Adds a slot.
    #[inline]
    pub fn add_slot(&mut self, map: &SlotMap, slot: u16) {
        match self.slot {
            None => self.slot = Some(slot),
            Some(first) if first == slot => return,
            Some(_) => self.is_cross = true,
        }
        self.has_foreign |= !map.is_own(slot);
        self.has_moving |= map.move_of(slot).is_some();
        if map.is_holding() {
            self.waits = self.waits.max(map.who_waits(slot));
        }
    }
}

/// The settings that routing depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoutingRules {
    /// Nothing is served unless every slot has an owner (`cluster-require-full-coverage`).
    pub needs_all: bool,
    /// Reads go on without that (`cluster-allow-reads-when-down`).
    pub reads_when_down: bool,
    /// Sharded messages go on without that (`cluster-allow-pubsubshard-when-down`).
    pub messages_when_down: bool,
    /// One command may have keys of several slots of this group (`cluster_cross_slot own`).
    pub crosses_own: bool,
}

/// What becomes of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Routing<'a> {
    /// This node serves it.
    Serve,
    /// The cluster is down.
    Down,
    /// The cluster is down and serves reads alone.
    DownForWrites,
    /// Nobody owns the slot.
    Unbound,
    /// The keys have different slots.
    CrossSlot,
    /// Another node serves the slot.
    Moved(u16, &'a MapNode),
    /// Keys of the slot are leaving for a node, which is to be asked for those that are not here any more.
    Leaving(u16, &'a MapNode),
    /// Keys of the slot are arriving, and the owner has sent the client: several keys are served if all are here.
    Arriving,
    /// Keys of several slots, one of which moves.
    TryAgain,
    /// A slot is being handed over: this node serves the command, or another one, in a moment.
    Held,
}

impl RoutingRules {
    /// What becomes of a command under `map`.
    pub fn verdict<'a>(&self, map: &'a SlotMap, ask: &Ask) -> Routing<'a> {
        let Some(slot) = ask.slot else { return Routing::Serve };
        let Some(owner) = map.owner(slot) else { return Routing::Unbound };
        if ask.imports && !ask.is_cross && map.is_arriving(slot) && matches!(map.place(), NodeRole::Master(_))
        {
            return Routing::Serve;
        }
        if self.needs_all && !map.covers_all() {
            if ask.is_pubsub {
                if !self.messages_when_down {
                    return Routing::Down;
                }
            } else if !self.reads_when_down {
                return Routing::Down;
            } else if ask.writes {
                return Routing::DownForWrites;
            }
        }
        // Also when the slot is another group's already: that may not serve it yet.
        if ask.must_wait() && matches!(map.place(), NodeRole::Master(_)) {
            return Routing::Held;
        }
        if ask.is_cross && (ask.has_foreign || !self.crosses_own) {
            return Routing::CrossSlot;
        }
        if ask.is_cross && ask.has_moving {
            return Routing::TryAgain;
        }
        if ask.has_moving
            && let Some(routing) = self.moving(map, ask, slot)
        {
            return routing;
        }
        let serves = match map.place() {
            NodeRole::Master(own) => own == owner,
            NodeRole::Replica(own) => own == owner && (ask.reads_replica || ask.is_pubsub) && !ask.writes,
            NodeRole::Nowhere => false,
        };
        match map.groups().get(owner) {
            Some(group) if !serves => Routing::Moved(slot, &group.master),
            _ => Routing::Serve,
        }
    }

    /// What becomes of a command about a slot that moves; `None`: the same as if it did not.
    fn moving<'a>(&self, map: &'a SlotMap, ask: &Ask, slot: u16) -> Option<Routing<'a>> {
        let own = map.move_of(slot).filter(|_| matches!(map.place(), NodeRole::Master(_)))?;
        if ask.moves_keys {
            return Some(Routing::Serve);
        }
        match own.way {
            _ if ask.is_pubsub => None,
            MoveWay::Migrating if !ask.has_foreign => {
                Some(Routing::Leaving(slot, &map.group(&own.other)?.master))
            }
            MoveWay::Importing if ask.has_foreign && ask.is_asking => Some(Routing::Arriving),
            _ => None,
        }
    }

    /// The index of the group whose slots are served without a further question, or a number that no slot has.
    pub fn own(&self, map: &SlotMap) -> u16 {
        let is_down = self.needs_all && !map.covers_all();
        match map.place() {
            NodeRole::Master(own) if !is_down => own as u16,
            // Not the mark of slots without an owner.
            _ => crate::map::UNBOUND - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::SlotMove;
    use crate::map::tests::{group, node};

    const STRICT: RoutingRules = RoutingRules {
        needs_all: true,
        reads_when_down: false,
        messages_when_down: true,
        crosses_own: false,
    };

    fn ask(map: &SlotMap, slots: &[u16]) -> Ask {
        let mut ask = Ask::default();
        slots.iter().for_each(|&slot| ask.add_slot(map, slot));
        ask
    }

    fn whole(me: &str) -> SlotMap {
        let groups =
            vec![group("a", 1, &[(0, 8191)], &[node("ra", 3)]), group("b", 2, &[(8192, 16383)], &[])];
        SlotMap::new(groups, me, 1)
    }

    #[test]
    fn a_master_serves_its_slots_and_names_the_owner_of_others() {
        let map = whole("a");
        assert_eq!(STRICT.verdict(&map, &ask(&map, &[])), Routing::Serve);
        assert_eq!(STRICT.verdict(&map, &ask(&map, &[5, 5])), Routing::Serve);
        assert_eq!(STRICT.verdict(&map, &ask(&map, &[5, 6])), Routing::CrossSlot);
        assert_eq!(STRICT.verdict(&map, &ask(&map, &[9000, 6])), Routing::CrossSlot);
        let Routing::Moved(9000, node) = STRICT.verdict(&map, &ask(&map, &[9000])) else {
            panic!("not moved")
        };
        assert_eq!(node.id, "b");
        assert_eq!((STRICT.own(&map), STRICT.own(&whole("b")), STRICT.own(&whole("ra"))), (0, 1, 0xfffe));
    }

    #[test]
    fn several_slots_of_one_group_go_together_where_that_is_allowed() {
        let (map, rules) = (whole("a"), RoutingRules { crosses_own: true, ..STRICT });
        assert_eq!(rules.verdict(&map, &ask(&map, &[5, 6])), Routing::Serve);
        assert_eq!(rules.verdict(&map, &ask(&map, &[5, 9000])), Routing::CrossSlot);
        assert_eq!(rules.verdict(&map, &ask(&map, &[9000, 9001])), Routing::CrossSlot);
    }

    #[test]
    fn a_replica_serves_reads_of_those_who_asked() {
        let map = whole("ra");
        let read = Ask { reads_replica: true, ..ask(&map, &[5]) };
        assert_eq!(STRICT.verdict(&map, &read), Routing::Serve);
        let is_moved = |ask: &Ask| matches!(STRICT.verdict(&map, ask), Routing::Moved(..));
        assert!(is_moved(&ask(&map, &[5])));
        assert!(is_moved(&Ask { writes: true, ..read }));
        assert!(is_moved(&Ask { reads_replica: true, ..ask(&map, &[9000]) }));
    }

    #[test]
    fn keys_of_a_slot_that_moves_are_looked_at() {
        let moves = |group: &str, way, other: &str| {
            [SlotMove { slot: 5, group: group.to_owned(), way, other: other.to_owned() }]
        };
        let source = whole("a").with_moves(&moves("a", MoveWay::Migrating, "b"));
        let Routing::Leaving(5, node) = STRICT.verdict(&source, &ask(&source, &[5])) else { panic!("stays") };
        assert_eq!(node.id, "b");
        assert_eq!(STRICT.verdict(&source, &ask(&source, &[6])), Routing::Serve);
        assert_ne!(source.owners()[5], STRICT.own(&source), "the short way is shut");
        let migrate = Ask { moves_keys: true, ..ask(&source, &[5]) };
        assert_eq!(STRICT.verdict(&source, &migrate), Routing::Serve);
        let message = Ask { is_pubsub: true, ..ask(&source, &[5]) };
        assert_eq!(STRICT.verdict(&source, &message), Routing::Serve);
        let crossing = RoutingRules { crosses_own: true, ..STRICT };
        assert_eq!(crossing.verdict(&source, &ask(&source, &[5, 6])), Routing::TryAgain);
        assert_eq!(crossing.verdict(&source, &ask(&source, &[7, 6])), Routing::Serve);

        let target = whole("b").with_moves(&moves("b", MoveWay::Importing, "a"));
        assert!(matches!(STRICT.verdict(&target, &ask(&target, &[5])), Routing::Moved(5, _)));
        let asking = Ask { is_asking: true, ..ask(&target, &[5]) };
        assert_eq!(STRICT.verdict(&target, &asking), Routing::Arriving);
        let other = Ask { is_asking: true, ..ask(&target, &[6]) };
        assert!(matches!(STRICT.verdict(&target, &other), Routing::Moved(6, _)));
        let replica = whole("ra").with_moves(&moves("a", MoveWay::Migrating, "b"));
        let read = Ask { reads_replica: true, ..ask(&replica, &[5]) };
        assert_eq!(STRICT.verdict(&replica, &read), Routing::Serve);
    }

    #[test]
    fn a_hole_stops_all_or_its_own_slots() {
        let map = SlotMap::new(vec![group("a", 1, &[(0, 99)], &[])], "a", 1);
        assert_eq!(STRICT.verdict(&map, &ask(&map, &[5])), Routing::Down);
        assert_eq!(STRICT.verdict(&map, &ask(&map, &[100])), Routing::Unbound);
        assert_eq!(STRICT.own(&map), 0xfffe, "nothing is served without a question");
        let rules = RoutingRules { reads_when_down: true, ..STRICT };
        assert_eq!(rules.verdict(&map, &ask(&map, &[5])), Routing::Serve);
        let write = Ask { writes: true, ..ask(&map, &[5]) };
        assert_eq!(rules.verdict(&map, &write), Routing::DownForWrites);
        let message = Ask { is_pubsub: true, ..ask(&map, &[5]) };
        assert_eq!(STRICT.verdict(&map, &message), Routing::Serve);
        let rules = RoutingRules { needs_all: false, ..STRICT };
        assert_eq!(rules.verdict(&map, &write), Routing::Serve);
        assert_eq!(rules.verdict(&map, &ask(&map, &[100])), Routing::Unbound);
    }
}
