//! What the map of a store says of this node's role: a replica follows its group's master, a master follows nobody.
//!
//! Called by thread 0 when it takes a map. A pushed cluster leaves roles to REPLICAOF.

use darter_cluster::{NodeRole, SlotMap};
use darter_config::ClusterMode;

use crate::replication::roles;
use crate::thread_state::ThreadState;

/// Takes the role that the map gives to this node, if it differs from the role that the map `before` gave: while a replica takes
/// over, roles are ahead of the map.
pub fn settle(local: &mut ThreadState, before: &SlotMap) {
    if local.live.cluster.mode != ClusterMode::Stored {
        return;
    }
    let (shared, map) = (local.shared, local.cluster.map.clone());
    let (now, then) = (master_of(&map), master_of(before));
    if now == then {
        return;
    }
    match now {
        Some((host, port)) => {
            if let Err(error) = roles::follow(shared, host, port) {
                tracing::error!("cannot follow {host}:{port}: {error}");
            }
            local.refresh_gate();
        }
        None if matches!(map.place(), NodeRole::Master(_)) && shared.replication.is_replica() => {
            roles::stand_alone(local);
        }
        None => {}
    }
}

/// The address of the master that this node follows by a map.
fn master_of(map: &SlotMap) -> Option<(&str, u16)> {
    let group = map.own_group().filter(|_| matches!(map.place(), NodeRole::Replica(_)))?;
    let master = &group.master;
    (!master.ip.is_empty()).then_some((master.ip.as_str(), master.port))
}
