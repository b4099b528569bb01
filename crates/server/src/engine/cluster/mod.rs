//! This server as one node of a cluster (`cluster_mode yes`): its id, its map, and the change from one map to the next.
//!
//! `route` is the check that every command passes, `changes` what a thread does when the map has changed, `sweep` removes
//! the keys of slots that are not ours. `map_store` and its `ledger` have the map: in a store that all nodes share, or in the
//! node's own `file` if it is pushed. Who leads a group of a shared map is decided in `replication::group`. `moving` looks at keys
//! that move one by one, `outgoing` moves slots as a whole, `leftovers` removes what that leaves behind. `handover` changes owners and leaders, `peer` asks other
//! nodes, `courier` brings messages to them, and `show` is for the console. A map comes from anywhere:
//! [`ClusterNode::adopt`] is the one door. Nothing here decides who owns a slot.

pub mod changes;
pub mod courier;
pub mod file;
pub mod handover;
mod ledger;
pub mod leftovers;
pub mod links;
pub mod map_store;
pub mod moving;
pub mod outgoing;
pub mod peer;
pub mod route;
pub mod show;
pub mod sweep;

use std::collections::HashMap;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use darter_cluster::{MapChange, PushedChange, RoutingRules, SlotHold, SlotMap, StoredMap};
use darter_config::{Cluster as Settings, ClusterMode, Live};

use self::courier::Courier;
use self::file::MapFile;
use self::ledger::MapLedger;
use self::map_store::MapStore;
use self::outgoing::SlotExports;
use crate::command_log::slots;
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;

/// What the threads share of the cluster.
pub struct ClusterNode {
    is_on: bool,
    /// The map that this node changes: one that all nodes share, or its own.
    pub store: Option<MapStore>,
    /// The revision of the store's map by which every thread routes.
    pub store_revision: AtomicU64,
    id: String,
    // keeps the file from other servers, which would take the id in it for theirs
    _claim: Option<File>,
    state: Mutex<MapState>,
    /// A map has come since the start, or was found on disk.
    is_configured: AtomicBool,
    /// Messages for subscribers at other nodes.
    pub courier: Courier,
    /// Slots that this node moves as a whole.
    pub outgoing: SlotExports,
    /// Commands that were sent elsewhere, and those that were refused for their slots.
    pub redirects: Redirects,
}

/// Counts of refusals.
#[derive(Default)]
pub struct Redirects {
    /// MOVED.
    pub moved: AtomicU64,
    /// CROSSSLOT.
    pub cross: AtomicU64,
    /// ASK.
    pub ask: AtomicU64,
    /// TRYAGAIN.
    pub try_again: AtomicU64,
    /// CLUSTERDOWN.
    pub down: AtomicU64,
}

struct MapState {
    // as its source made it, and as this server routes by it: with the slots that are held
    base: Arc<SlotMap>,
    map: Arc<SlotMap>,
    holds: HashMap<String, SlotHold>,
    /// Threads that have not taken the map yet.
    behind: usize,
    /// What follows once all threads have it.
    then: Vec<Then>,
}

/// What follows once all threads have a map.
pub type Then = Box<dyn FnOnce(&'static Shared) + Send>;

impl ClusterNode {
    /// The node as the settings and its file say, run by a process of this boot. Errors: the file is damaged, or cannot be
    /// read or written.
    pub fn start(live: &Live, run_id: &str, boot: &str) -> Result<ClusterNode, String> {
        let settings = &live.cluster;
        let is_on = settings.mode.has_slots();
        let claim = is_on.then(|| file::claim(&settings.config_file)).transpose()?;
        let kept = if is_on { file::read(&settings.config_file)? } else { None };
        let id = match &kept {
            _ if !settings.node_id.is_empty() => settings.node_id.clone(),
            Some(kept) => kept.id.clone(),
            None => run_id.to_owned(),
        };
        let mut cluster = ClusterNode::with(id, claim, settings);
        let unwritten =
            |why: String| format!("cluster-config-file {}: {why}", settings.config_file.display());
        if settings.mode == ClusterMode::Stored {
            cluster.store = Some(MapStore::new(live)?);
            // The file keeps the id alone: what a node serves is in the store.
            file::write(&settings.config_file, &cluster.id, 0, &StoredMap::default().to_json())
                .map_err(unwritten)?;
        } else if is_on {
            let kept = kept.map(|kept| (kept.revision, kept.map));
            let mut ledger = MapLedger::new(Box::new(MapFile::new(
                &settings.config_file,
                &cluster.id,
                kept.as_ref().map(|(revision, map)| (*revision, map)),
            )));
            if kept.is_some() {
                // What the process before has begun ends before anything is served.
                let start = PushedChange::Start { boot: boot.to_owned(), now_s: outgoing::now_s() };
                ledger
                    .change(&cluster.id, &[MapChange::Pushed(start)])
                    .map_err(|fault| unwritten(fault.to_string()))?;
                cluster.is_configured.store(true, Relaxed);
                let state = cluster.state.get_mut().unwrap_or_else(PoisonError::into_inner);
                state.base = Arc::new(ledger.map().view(&cluster.id, ledger.revision()));
                state.map = Arc::new(state.held(ledger.revision()));
            }
            cluster.store = Some(MapStore::of_node(ledger));
        }
        Ok(cluster)
    }

    fn with(id: String, claim: Option<File>, settings: &Settings) -> ClusterNode {
        let map = Arc::new(SlotMap::new(Vec::new(), &id, 0));
        ClusterNode {
            is_on: settings.mode.has_slots(),
            store: None,
            store_revision: AtomicU64::new(0),
            id,
            _claim: claim,
            state: Mutex::new(MapState {
                base: map.clone(),
                map,
                holds: HashMap::new(),
                behind: 0,
                then: Vec::new(),
            }),
            is_configured: AtomicBool::new(false),
            courier: Courier::default(),
            outgoing: SlotExports::default(),
            redirects: Redirects::default(),
        }
    }

    /// Returns the store that all nodes share; `None` if the map is pushed or missing.
    pub fn shared_store(&self) -> Option<&MapStore> {
        self.store.as_ref().filter(|store| store.is_shared())
    }

    /// Whether this server is one of several.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// The id of this node.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether there is a map.
    pub fn is_configured(&self) -> bool {
        self.is_configured.load(Relaxed)
    }

    /// The latest map.
    pub fn map(&self) -> Arc<SlotMap> {
        lock(&self.state).map.clone()
    }

    /// Replaces the map by the one that `make` returns for its revision. `then` runs when every thread routes by it: from
    /// then on nothing is done under the map before.
    pub fn adopt(&self, shared: &'static Shared, make: impl FnOnce(u64) -> SlotMap, then: Then) {
        let revision = {
            let mut state = lock(&self.state);
            let base = Arc::new(make(state.map.revision() + 1));
            slots::restart_changed(shared, &state.base, &base);
            state.base = base;
            self.is_configured.store(true, Relaxed);
            state.renew(shared, then)
        };
        shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::ClusterMap(revision)));
    }

    /// Has commands of slots wait, or ends that: `id` names the wait. `then` runs when every thread does so.
    pub fn hold(&self, shared: &'static Shared, id: &str, hold: Option<SlotHold>, then: Then) {
        let revision = {
            let mut state = lock(&self.state);
            match hold {
                Some(hold) => drop(state.holds.insert(id.to_owned(), hold)),
                None => drop(state.holds.remove(id)),
            }
            state.renew(shared, then)
        };
        shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::ClusterMap(revision)));
    }

    /// Runs `then` when every thread routes by the latest map: at once, or with the last of them.
    pub fn when_taken(&self, shared: &'static Shared, then: Then) {
        {
            let mut state = lock(&self.state);
            if state.behind > 0 {
                return state.then.push(then);
            }
        }
        then(shared);
    }

    /// Notes that a thread routes by the map of this revision. Runs what waits for the last of them.
    pub fn acknowledge(&self, shared: &'static Shared, revision: u64) {
        let then = {
            let mut state = lock(&self.state);
            if state.map.revision() != revision {
                // A later map came in between: its own messages follow.
                return;
            }
            state.behind = state.behind.saturating_sub(1);
            if state.behind > 0 {
                return;
            }
            std::mem::take(&mut state.then)
        };
        then.into_iter().for_each(|then| then(shared));
        sweep::begin(shared, revision);
    }
}

impl MapState {
    /// Makes the map that threads are to take, and returns its revision.
    fn renew(&mut self, shared: &'static Shared, then: Then) -> u64 {
        let revision = self.map.revision() + 1;
        let map = self.held(revision);
        tracing::debug!("the cluster has {} groups, map {revision}", map.groups().len());
        shared.router.hidden().set(map.hidden());
        self.map = Arc::new(map);
        self.behind = shared.handles.len();
        self.then.push(then);
        revision
    }

    /// The map with the slots that are held.
    fn held(&self, revision: u64) -> SlotMap {
        let holds = self.holds.values().cloned().chain(self.base.offered()).collect();
        (*self.base).clone().with_holds(holds, revision)
    }
}

/// The map as one thread routes by it.
pub struct ClusterView {
    /// The map.
    pub map: Arc<SlotMap>,
    /// The settings that routing depends on.
    pub rules: RoutingRules,
    /// The index of the group whose slots are served without a further question, or a number that no slot has.
    pub own: u16,
}

impl ClusterView {
    /// The view of the latest map under `settings`.
    pub fn new(cluster: &ClusterNode, settings: &Settings) -> ClusterView {
        let map = cluster.map();
        let rules = RoutingRules {
            needs_all: settings.requires_all,
            reads_when_down: settings.reads_when_down,
            messages_when_down: settings.messages_when_down,
            crosses_own: settings.crosses_own,
        };
        let own = rules.own(&map);
        ClusterView { map, rules, own }
    }
}
