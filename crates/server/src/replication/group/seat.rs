//! Where this server sits: in which group, and under which name. The settings say so (`ha_store`, `ha_group`), or the map of
//! the cluster does, which may move a node from one group to another.
//!
//! The thread of the group asks. Nothing here changes a role.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use darter_config::Live;
use darter_quorum::etcd::Etcd;
use darter_quorum::store::GroupStore;

use super::{place, store};
use crate::shared::Shared;
use crate::sync::lock;

/// See above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The group's name in the store.
    pub group: String,
    /// This server's name in it.
    pub name: String,
}

/// How this server learns of its seat.
pub enum Seating {
    /// The settings name the group. The name is an address, perhaps our end of the connection to the store.
    Named(Etcd, Arc<Mutex<Option<IpAddr>>>),
    /// The map names the group, and the name is the id of the node.
    Mapped,
}

/// Time between two attempts to reach the store before this server knows its name.
const RETRY: Duration = Duration::from_millis(200);

impl Seating {
    /// As the settings have it.
    ///
    /// Errors: what is wrong with them.
    pub fn new(shared: &Shared, live: &Live) -> Result<Seating, String> {
        if shared.cluster.shared_store().is_some() {
            return Ok(Seating::Mapped);
        }
        let local = Arc::default();
        let etcd = store::open(live, Arc::clone(&local)).map_err(|why| format!("ha_store: {why}"))?;
        Ok(Seating::Named(etcd, local))
    }

    /// Waits for the seat that the settings name; `None`: the map names it.
    pub fn wait(self, shared: &Shared, live: &Live) -> Option<(Seat, Etcd)> {
        let Seating::Named(mut etcd, local) = self else { return None };
        let host = loop {
            let known = place::host(live).or_else(|| lock(&local).map(|at| at.to_string()));
            if let Some(host) = known {
                break host;
            }
            if let Err(fault) = etcd.read() {
                tracing::warn!("the store of the group: {fault}");
                thread::sleep(RETRY);
            }
        };
        let seat = Seat { group: live.replication.ha.group.clone(), name: place::name(shared, live, &host) };
        Some((seat, etcd))
    }
}

/// The seat that the map of the cluster gives to this node; `None`: the map does not have it.
pub fn in_map(shared: &Shared) -> Option<Seat> {
    let map = shared.cluster.map();
    let group = map.own_group()?.id.clone();
    Some(Seat { group, name: shared.cluster.id().to_owned() })
}
