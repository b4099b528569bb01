//! The map of the cluster in a store (`cluster_store`), or a pushed one in the node's file: one thread that reads it, and
//! changes it by compare-and-set.
//!
//! Commands leave changes with [`MapStore::change`]; a change is answered when every thread of this server routes by it.
//! Others tell of their changes, and what is missed is found by looking. While the store cannot be asked, changes are refused and the map stays as it is.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::change::HEARD_WITHIN_S;
use darter_cluster::stored::GroupPlace;
use darter_cluster::{Health, MapChange, MapNode};
use darter_config::Live;
use darter_quorum::etcd::{Etcd, EtcdPlace};

use super::ledger::{Answers, LedgerFault, MapLedger};
use super::{courier, outgoing};
use crate::replication::store_route::{OwnAddress, StoreRoute};
use crate::shared::Shared;
use crate::sync::lock;

/// Answers of changes, one by one, or the line that refuses all.
pub type Outcome = Result<Answers, String>;
/// Receives an outcome.
pub type AfterChange = Box<dyn FnOnce(&'static Shared, Outcome) + Send>;

/// The refusal while the store cannot be asked.
pub const UNREACHED: &str = "CLUSTERDOWN the cluster's store cannot be reached";

/// Changes that are made together, or none: then the map is only read again.
struct Work {
    changes: Vec<MapChange>,
    when: AnswerTime,
    then: AfterChange,
}

/// What the thread is asked for.
enum MapOrder {
    Change(Work),
    Look,
}

/// When a change is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AnswerTime {
    /// Once every thread of this server routes by it.
    Routed,
    /// Once it is in the store: this server goes on as before for up to [`GRACE`].
    Written,
}

/// What the threads share of the store.
pub struct MapStore {
    // Until the thread starts.
    ledger: Mutex<Option<MapLedger>>,
    // where nodes share it
    shared: Option<SharedPlace>,
    sender: Sender<MapOrder>,
    receiver: Mutex<Option<Receiver<MapOrder>>>,
    /// The last question was answered.
    pub is_reached: AtomicBool,
    /// Questions that were not answered.
    pub errors: AtomicU64,
    /// When the map was last known to be the latest, Unix ms.
    pub seen_ms: AtomicU64,
}

/// An etcd, the way there, and the beginning of the keys of this cluster.
struct SharedPlace {
    place: EtcdPlace,
    route: StoreRoute,
    prefix: String,
}

impl SharedPlace {
    fn at(&self, key: &str, patience: Duration) -> Etcd {
        let key = format!("{}/{key}", self.prefix);
        Etcd::new(self.place.clone(), &key, patience, self.route.dial(OwnAddress::default()))
    }
}

/// Between looks at the map, while the store tells of changes, and while slots move.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_WHILE_TOLD: Duration = Duration::from_secs(1);
const LOOK_WHILE_MOVING: Duration = Duration::from_millis(20);
/// Between words of a node that has met nobody.
const TELLS_EVERY: Duration = Duration::from_secs(HEARD_WITHIN_S / 5);
/// The new owner of a slot takes the map within this time, before the old one does.
const GRACE: Duration = Duration::from_secs(1);
/// The store answers within this time.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for a question about who leads a group.
const GROUP_PATIENCE: Duration = Duration::from_secs(1);

impl MapStore {
    /// The map that the settings name. Errors: what is wrong with its place, or with the files of TLS.
    pub fn new(live: &Live) -> Result<MapStore, String> {
        let wrong = |why: String| format!("cluster_store: {why}");
        let place = EtcdPlace::parse(&live.cluster.store).map_err(wrong)?;
        let route = StoreRoute::new(&place, live, PATIENCE, PATIENCE).map_err(wrong)?;
        let shared = SharedPlace { place, route, prefix: format!("/darter/{}", live.cluster.name) };
        let ledger = MapLedger::new(Box::new(shared.at("map", PATIENCE)));
        Ok(MapStore { shared: Some(shared), ..MapStore::of_node(ledger) })
    }

    /// The map that this node alone changes, read already if there is one.
    pub fn of_node(ledger: MapLedger) -> MapStore {
        let (sender, receiver) = channel();
        MapStore {
            ledger: Mutex::new(Some(ledger)),
            shared: None,
            sender,
            receiver: Mutex::new(Some(receiver)),
            is_reached: AtomicBool::new(false),
            errors: AtomicU64::new(0),
            seen_ms: AtomicU64::new(0),
        }
    }

    /// Returns true if all nodes of the cluster have this one map.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Makes changes of this node in one step: `then` gets what each answers. A refused change leaves the others in force
    /// and itself undone. Without changes the map is read again.
    pub fn change(&self, changes: Vec<MapChange>, then: AfterChange) {
        // The thread that receives lives as long as the process.
        let _ = self.sender.send(MapOrder::Change(Work { changes, when: AnswerTime::Routed, then }));
    }

    /// As [`MapStore::change`], but answered before this server routes by it: others may do so first. The next call, or a
    /// second, ends that.
    pub fn change_early(&self, changes: Vec<MapChange>, then: AfterChange) {
        let _ = self.sender.send(MapOrder::Change(Work { changes, when: AnswerTime::Written, then }));
    }

    /// Returns the store of a group's state: its leader and its members. `None` if nodes do not share the map.
    pub fn of_group(&self, group: &str) -> Option<Etcd> {
        Some(self.shared.as_ref()?.at(&format!("group/{group}/state"), GROUP_PATIENCE))
    }

    /// The store of all keys of the cluster, to listen to. `None` if nodes do not share the map.
    pub fn of_all(&self) -> Option<Etcd> {
        Some(self.shared.as_ref()?.at("", PATIENCE))
    }

    /// Has the map read if there is a newer one: somebody has changed it.
    pub fn look_soon(&self) {
        let _ = self.sender.send(MapOrder::Look);
    }

    /// Starts the thread; to be called once, when the port is known.
    ///
    /// Errors: there can be no more threads.
    pub fn start(&'static self, shared: &'static Shared) -> io::Result<()> {
        let Some(receiver) = lock(&self.receiver).take() else { return Ok(()) };
        let Some(ledger) = lock(&self.ledger).take() else { return Ok(()) };
        let body = move || {
            shared.snapshots.roam();
            let mut keeper = MapKeeper {
                shared,
                own: self,
                // A map of its own is in force since the start.
                routed: ledger.revision(),
                is_introduced: !self.is_shared(),
                ledger,
                held_until: None,
                looked: Instant::now(),
                told: Instant::now(),
            };
            keeper.look();
            loop {
                keeper.work(&receiver);
            }
        };
        thread::Builder::new().name("darter-map".to_owned()).spawn(body).map(drop)
    }
}

/// The thread's own.
struct MapKeeper {
    shared: &'static Shared,
    own: &'static MapStore,
    ledger: MapLedger,
    // the revision that this server routes by, and until when it keeps to that
    routed: u64,
    held_until: Option<Instant>,
    // when it looked last, and when it told of itself
    looked: Instant,
    told: Instant,
    // the store knows this run of the node
    is_introduced: bool,
}

impl MapKeeper {
    fn work(&mut self, receiver: &Receiver<MapOrder>) {
        let map = self.ledger.map();
        let is_moving = !map.moves.is_empty() || map.migrations.iter().any(|one| !one.is_ended());
        let tells = self.own.is_reached.load(Relaxed)
            && self.shared.group.as_ref().is_some_and(|group| group.store_tells.load(Relaxed));
        let every = match (is_moving, tells) {
            (true, _) => LOOK_WHILE_MOVING,
            (false, true) => LOOK_WHILE_TOLD,
            (false, false) => LOOK,
        };
        let left = (self.looked + every).saturating_duration_since(Instant::now());
        if left.is_zero() {
            // However much there is to do: migrations depend on it.
            return self.look();
        }
        match receiver.recv_timeout(left) {
            Ok(MapOrder::Change(Work { changes, when, then })) => self.change(&changes, when, then),
            Ok(MapOrder::Look) | Err(RecvTimeoutError::Timeout) => self.look(),
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
        }
    }

    /// Makes this run of the node known, if it is not yet. This server routes by no map before: so the store has ended what
    /// the process before has begun. Errors: the store cannot be asked.
    fn introduce(&mut self) -> Result<(), String> {
        if self.is_introduced {
            return Ok(());
        }
        let introduced = self.ledger.change(self.shared.cluster.id(), &[registration(self.shared)]);
        self.note(introduced)?;
        self.is_introduced = true;
        courier::tell_of_map(self.shared, &self.ledger.map().joined);
        Ok(())
    }

    /// Has this server route by a map that others have made, and makes this node known under its address.
    fn look(&mut self) {
        let looked = self.introduce().and_then(|()| {
            let looked = self.ledger.look();
            self.note(looked)
        });
        self.looked = Instant::now();
        if looked.is_err() || self.held_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.settle(Box::new(outgoing::attend));
        if !self.own.is_shared() {
            return;
        }
        let node = own_node(self.shared);
        let map = self.ledger.map();
        let known = map.place_of(&node.id).and_then(|place| map.group(place));
        let known = known.and_then(|group| group.nodes().find(|known| known.id == node.id));
        let is_known = known.is_some_and(|known| {
            let ip = if node.ip.is_empty() { known.ip.clone() } else { node.ip.clone() };
            *known == MapNode { ip, ..node.clone() }
        });
        // One that has met nobody is in the map as long as it tells of itself.
        let is_alone = matches!(map.place_of(&node.id), Some(GroupPlace::Waiting(_)));
        let is_due = is_alone && self.told.elapsed() > TELLS_EVERY;
        if !is_known || is_due {
            self.told = Instant::now();
            self.change(&[registration(self.shared)], AnswerTime::Routed, Box::new(|_, _| ()));
        }
    }

    fn change(&mut self, changes: &[MapChange], when: AnswerTime, then: AfterChange) {
        if let Err(line) = self.introduce() {
            return then(self.shared, Err(line));
        }
        let before = self.ledger.revision();
        let changed = self.ledger.change(self.shared.cluster.id(), changes);
        match self.note(changed) {
            Ok(answers) => {
                // A word to the others saves them the time until they look.
                if self.own.is_shared() && !changes.is_empty() && self.ledger.revision() != before {
                    courier::tell_of_map(self.shared, &self.ledger.map().joined);
                }
                if when == AnswerTime::Written {
                    self.held_until = Some(Instant::now() + GRACE);
                    return then(self.shared, Ok(answers));
                }
                self.settle(Box::new(move |shared| then(shared, Ok(answers))));
            }
            Err(line) => {
                self.settle(Box::new(|_| ()));
                then(self.shared, Err(line));
            }
        }
    }

    /// Runs `then` when this server routes by the map that was read last.
    fn settle(&mut self, then: super::Then) {
        let cluster = &self.shared.cluster;
        let revision = self.ledger.revision();
        self.held_until = None;
        if revision == self.routed {
            return cluster.when_taken(self.shared, then);
        }
        self.routed = revision;
        let map = self.ledger.map();
        let taken: super::Then = Box::new(move |shared| {
            shared.cluster.store_revision.fetch_max(revision, Relaxed);
            then(shared);
        });
        cluster.adopt(self.shared, |number| map.view(cluster.id(), number), taken);
    }

    /// Notes whether the store has answered. Errors: the line for those who asked.
    fn note<T>(&self, answer: Result<T, LedgerFault>) -> Result<T, String> {
        let is_reached = !matches!(answer, Err(LedgerFault::Unreached(_)));
        let was_reached = self.own.is_reached.swap(is_reached, Relaxed);
        if is_reached {
            self.own.seen_ms.store(crate::clock::unix_ms(), Relaxed);
            if !was_reached && self.own.is_shared() {
                tracing::info!("the cluster's store answers");
            }
        }
        answer.map_err(|fault| match fault {
            LedgerFault::Unreached(why) if !self.own.is_shared() => {
                self.own.errors.fetch_add(1, Relaxed);
                format!("ERR the configuration cannot be written: {why}")
            }
            LedgerFault::Unreached(why) => {
                if self.own.errors.fetch_add(1, Relaxed) == 0 || was_reached {
                    tracing::warn!("the cluster's store cannot be reached: {why}");
                }
                UNREACHED.to_owned()
            }
            LedgerFault::Damaged(why) => {
                if self.own.errors.fetch_add(1, Relaxed) == 0 {
                    tracing::error!("the map of the cluster is damaged: {why}");
                }
                format!("ERR the map of the cluster is damaged: {why}")
            }
            LedgerFault::Lost => {
                if self.own.errors.fetch_add(1, Relaxed) == 0 {
                    tracing::error!(
                        "the cluster's store has lost changes: it has an older map than this node"
                    );
                }
                "ERR the cluster's store has lost changes: it has an older map than this node".to_owned()
            }
            LedgerFault::Contended => "TRYAGAIN the map of the cluster changes all the time".to_owned(),
        })
    }
}

/// The change that makes this node known.
fn registration(shared: &Shared) -> MapChange {
    MapChange::Register { node: own_node(shared), now_s: outgoing::now_s() }
}

/// This node as the settings describe it. Its address is empty if nothing names it: then it is the one that others meet.
fn own_node(shared: &Shared) -> MapNode {
    let live = shared.settings.live();
    let settings = &live.cluster;
    let is_one = |word: &str| word.parse::<std::net::IpAddr>().is_ok_and(|ip| !ip.is_unspecified());
    let bound = match live.bind.as_slice() {
        [one] if is_one(one) => one.clone(),
        _ => String::new(),
    };
    let ip = if settings.announce_ip.is_empty() { bound } else { settings.announce_ip.clone() };
    let (port, tls_port) = own_ports(shared, &live);
    let bus_port = match settings.announce_bus_port {
        0 => port.wrapping_add(10_000),
        bus_port => bus_port,
    };
    let (hostname, boot) = (settings.announce_hostname.clone(), shared.replication.boot.to_string());
    let id = shared.cluster.id().to_owned();
    MapNode { id, ip, port, tls_port, bus_port, hostname, health: Health::Online, boot }
}

/// The ports of this node that clients are told: the one there is, or the plain one, and the one with TLS.
pub fn own_ports(shared: &Shared, live: &Live) -> (u16, u16) {
    let told = |announced: u16, real: &AtomicU32| match announced {
        0 => u16::try_from(real.load(Relaxed)).unwrap_or(0),
        announced => announced,
    };
    let port = told(live.cluster.announce_port, &shared.port);
    let tls_port = told(live.cluster.announce_tls_port, &shared.tls_port);
    // The main port is encrypted, or the encrypted one is the only one.
    let is_one = live.tls.enabled || live.port.is_none();
    (port, if is_one && live.cluster.announce_tls_port == 0 { port } else { tls_port })
}
