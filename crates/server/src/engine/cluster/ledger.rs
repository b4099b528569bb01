//! The map of a store as one node reads and changes it: compare-and-set, and again if another was faster.
//!
//! The thread of the store calls it. It knows no thread and no socket, so it runs on a fake store in tests.

use std::fmt;

use darter_cluster::change::MapAnswer;
use darter_cluster::{MapChange, StoredMap};
use darter_quorum::store::{GroupStore, StoreFault, StoreWritten, Versioned};

/// See above.
pub struct MapLedger {
    store: Box<dyn GroupStore>,
    // revision 0: nothing has been read
    revision: u64,
    map: StoredMap,
}

/// Why the map is neither read nor changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LedgerFault {
    /// The store cannot be asked; a change may have been made.
    Unreached(StoreFault),
    /// The value is no map.
    Damaged(String),
    /// The store has an older map than was read, or none: it has lost changes.
    Lost,
    /// Others change the map all the time.
    Contended,
}

impl fmt::Display for LedgerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerFault::Unreached(why) => why.fmt(f),
            LedgerFault::Damaged(why) => f.write_str(why),
            LedgerFault::Lost => f.write_str("the store has lost changes"),
            LedgerFault::Contended => f.write_str("it changes all the time"),
        }
    }
}

/// Answers of changes, one by one.
pub type Answers = Vec<Result<MapAnswer, String>>;

/// Times that a change begins again because another came first.
const TRIES_MAX: usize = 64;

impl MapLedger {
    /// The map in `store`, not read yet.
    pub fn new(store: Box<dyn GroupStore>) -> MapLedger {
        MapLedger { store, revision: 0, map: StoredMap::default() }
    }

    /// The revision of the map that was read last; 0: none was.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The map that was read last.
    pub fn map(&self) -> &StoredMap {
        &self.map
    }

    /// Reads the map if there is a newer one.
    pub fn look(&mut self) -> Result<(), LedgerFault> {
        let known = self.revision;
        let found = if known == 0 { self.store.read() } else { self.store.read_newer(known) };
        self.take(found)
    }

    /// Reads the map as it is now.
    pub fn reread(&mut self) -> Result<(), LedgerFault> {
        let found = self.store.read();
        if let Ok(found) = &found
            && found.as_ref().map_or(0, |found| found.revision) < self.revision
        {
            return Err(LedgerFault::Lost);
        }
        self.take(found)
    }

    fn take(&mut self, found: Result<Option<Versioned>, StoreFault>) -> Result<(), LedgerFault> {
        let Some(found) = found.map_err(LedgerFault::Unreached)? else { return Ok(()) };
        if found.revision > self.revision {
            self.map = StoredMap::parse(&found.value).map_err(LedgerFault::Damaged)?;
            self.revision = found.revision;
        }
        Ok(())
    }

    /// Makes changes of the node `me` in one step. A refused one leaves the others in force; it is refused by the map as it is
    /// now, never by an old one.
    pub fn change(&mut self, me: &str, changes: &[MapChange]) -> Result<Answers, LedgerFault> {
        let mut is_fresh = false;
        if self.revision == 0 || changes.is_empty() {
            self.reread()?;
            is_fresh = true;
        }
        for _ in 0..TRIES_MAX {
            let (map, answers) = apply(&self.map, changes, me);
            let is_refused = answers.iter().any(Result::is_err);
            if is_fresh && map == self.map {
                return Ok(answers);
            }
            if map != self.map && (is_fresh || !is_refused) {
                let written = self.store.compare_and_set(self.revision, &map.to_json());
                if let StoreWritten::Done(revision) = written.map_err(LedgerFault::Unreached)? {
                    (self.revision, self.map) = (revision, map);
                    return Ok(answers);
                }
            }
            self.reread()?;
            is_fresh = true;
        }
        Err(LedgerFault::Contended)
    }
}

/// The map after changes of the node `me`, and what each answers.
fn apply(old: &StoredMap, changes: &[MapChange], me: &str) -> (StoredMap, Answers) {
    let mut map = old.clone();
    let answers = changes.iter().map(|change| {
        let mut next = map.clone();
        let answer = change.apply(&mut next, me)?;
        map = next;
        Ok(answer)
    });
    let answers = answers.collect();
    (map, answers)
}

#[cfg(test)]
mod tests {
    use darter_cluster::{Health, MapNode, SlotRange};
    use darter_quorum::fake::{FakeStore, StoreTrouble};

    use super::*;

    fn node(id: &str, port: u16) -> MapChange {
        let (id, ip, hostname) = (id.to_owned(), "10.0.0.1".to_owned(), String::new());
        let node = MapNode {
            id,
            ip,
            port,
            tls_port: 0,
            bus_port: port + 1,
            hostname,
            health: Health::Online,
            boot: String::new(),
        };
        MapChange::Register { node, now_s: 1 }
    }

    fn slots(start: u16, end: u16) -> MapChange {
        MapChange::AddSlots(vec![SlotRange { start, end }])
    }

    fn meet(other: &str) -> MapChange {
        let ip = || "10.0.0.1".to_owned();
        MapChange::Meet { other: other.to_owned(), other_ip: ip(), own_ip: ip() }
    }

    fn done(ledger: &mut MapLedger, me: &str, change: MapChange) {
        assert_eq!(ledger.change(me, &[change]), Ok(vec![Ok(MapAnswer::Done)]));
    }

    #[test]
    fn nodes_find_each_others_changes() {
        let store = FakeStore::default();
        let open = || MapLedger::new(Box::new(store.clone()));
        let (mut a, mut b) = (open(), open());
        done(&mut a, "a", node("a", 1));
        done(&mut b, "b", node("b", 2));
        done(&mut a, "a", slots(0, 100));
        done(&mut b, "b", slots(101, 16_383));
        done(&mut b, "b", meet("a"));
        a.look().expect("an answer");
        assert_eq!((a.revision(), a.map()), (b.revision(), b.map()));
        assert!(a.map().view("a", 1).covers_all());
        // What an old map would refuse is asked again.
        done(&mut b, "b", MapChange::DelSlots(vec![SlotRange { start: 200, end: 200 }]));
        done(&mut a, "a", slots(200, 200));
        let refused = b.change("b", &[slots(200, 200), MapChange::BumpEpoch]);
        assert_eq!(
            refused,
            Ok(vec![Err("Slot 200 is already busy".to_owned()), Ok(MapAnswer::Bumped(1))]),
            "the others are made"
        );
    }

    #[test]
    fn a_store_that_is_away_changes_nothing_and_one_that_is_deaf_is_read() {
        let store = FakeStore::default();
        let mut ledger = MapLedger::new(Box::new(store.clone()));
        done(&mut ledger, "a", node("a", 1));
        store.set_trouble(StoreTrouble::Away);
        assert!(matches!(ledger.change("a", &[slots(1, 1)]), Err(LedgerFault::Unreached(_))));
        assert!(matches!(ledger.look(), Err(LedgerFault::Unreached(_))));
        store.set_trouble(StoreTrouble::Deaf);
        assert!(matches!(ledger.change("a", &[slots(2, 2)]), Err(LedgerFault::Unreached(_))));
        assert_eq!(ledger.map().view("a", 1).bound_len(), 0, "it is not known to be made");
        store.set_trouble(StoreTrouble::None);
        ledger.look().expect("an answer");
        let seen = ledger.map().view("a", 1);
        assert_eq!((seen.owner(1), seen.owner(2)), (None, Some(0)), "it was made all the same");
    }

    /// A restored etcd has an older map, an empty one has none. A node that knows the latest map neither takes nor replaces them.
    #[test]
    fn a_store_that_has_lost_changes_is_neither_believed_nor_changed() {
        let store = FakeStore::default();
        let mut ledger = MapLedger::new(Box::new(store.clone()));
        done(&mut ledger, "a", node("a", 1));
        let kept = store.kept_value();
        done(&mut ledger, "a", slots(0, 100));
        let known = ledger.map().clone();
        for value in [kept, None] {
            store.lose(value.clone());
            assert_eq!(ledger.change("a", &[slots(200, 300)]), Err(LedgerFault::Lost));
            assert_eq!(ledger.change("a", &[]), Err(LedgerFault::Lost));
            assert_eq!((ledger.map(), store.kept_value()), (&known, value));
        }
    }

    #[test]
    fn of_many_who_take_a_slot_one_gets_it() {
        let store = FakeStore::default();
        let open = || MapLedger::new(Box::new(store.clone()));
        let ids: Vec<String> = (0..8).map(|at| format!("n{at}")).collect();
        for (at, id) in ids.iter().enumerate() {
            let mut ledger = open();
            done(&mut ledger, id, node(id, at as u16 + 1));
            done(&mut ledger, id, meet("n0"));
        }
        let taken: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = ids
                .iter()
                .map(|id| {
                    let mut ledger = open();
                    scope.spawn(move || {
                        let answers = ledger.change(id, &[slots(7, 7)]).expect("an answer");
                        answers[0].is_ok()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
        });
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    }

    #[test]
    fn a_damaged_value_is_neither_read_nor_overwritten() {
        let mut store = FakeStore::default();
        store.compare_and_set(0, b"{}").expect("it is empty");
        let mut ledger = MapLedger::new(Box::new(store.clone()));
        assert!(matches!(ledger.change("a", &[node("a", 1)]), Err(LedgerFault::Damaged(_))));
        assert_eq!(store.read().expect("an answer").expect("a value").value, b"{}");
    }
}
