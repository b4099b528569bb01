//! The cluster as the console draws it: groups with their slots, and migrations from or to this node's group.
//!
//! Called by `http::stats`. It reads the map and the progress of migrations, and asks no shard.

use std::sync::atomic::Ordering::Relaxed;

use darter_cluster::{MigrationState, NodeGroup, NodeRole, SlotMap, SlotMigration, SlotRange};
use serde_json::{Value, json};

use super::outgoing::ExportStage;
use crate::shared::Shared;

/// See above; null if this server is no node of a cluster.
pub fn console(shared: &Shared) -> Value {
    let cluster = &shared.cluster;
    if !cluster.is_on() {
        return Value::Null;
    }
    let map = cluster.map();
    let groups: Vec<Value> = map.groups().iter().map(|one| group(&map, one)).collect();
    let migrations: Vec<Value> =
        map.migrations().iter().rev().map(|one| migration(shared, &map, one)).collect();
    let store = cluster.shared_store().map(|store| json!({ "is_reached": store.is_reached.load(Relaxed) }));
    json!({
        "leads": matches!(map.place(), NodeRole::Master(_)),
        "store": store,
        "moving": map.moves().len(),
        "redirects": cluster.redirects.moved.load(Relaxed) + cluster.redirects.ask.load(Relaxed),
        "groups": groups,
        "migrations": migrations,
    })
}

fn group(map: &SlotMap, one: &NodeGroup) -> Value {
    let place = |node: &darter_cluster::MapNode| format!("{}:{}", node.ip, node.port);
    json!({
        "id": one.id,
        "is_own": map.own_group().is_some_and(|own| own.id == one.id),
        "master": place(&one.master),
        "replicas": one.replicas.iter().map(place).collect::<Vec<_>>(),
        "slots": ranges(&one.slots),
    })
}

fn ranges(slots: &[SlotRange]) -> Vec<[u16; 2]> {
    slots.iter().map(|range| [range.start, range.end]).collect()
}

fn migration(shared: &Shared, map: &SlotMap, one: &SlotMigration) -> Value {
    let gives = map.own_group().is_some_and(|own| own.id == one.from);
    let progress = shared.cluster.outgoing.progress(&one.id).unwrap_or_default();
    let state = match (one.state, progress.stage) {
        (MigrationState::Active, _) if !gives => "arriving",
        (MigrationState::Active, _) if one.runner.is_empty() => "waiting",
        (MigrationState::Active, ExportStage::Connecting) => "connecting",
        (MigrationState::Active, ExportStage::Copying) => "copying",
        (MigrationState::Active, ExportStage::CatchingUp) => "catching_up",
        (MigrationState::Active, ExportStage::Holding) => "holding",
        (MigrationState::Active, ExportStage::Committing) => "committing",
        (other, _) => other.name(),
    };
    // A node that has left is shown by its id.
    let address = |id: &str| {
        let found = map.find(id.as_bytes());
        found.map_or_else(|| id.to_owned(), |(_, node)| format!("{}:{}", node.ip, node.port))
    };
    json!({
        "id": one.id, "slots": ranges(&one.slots), "gives": gives, "state": state, "why": one.why, "to": one.to,
        "source": address(&one.source), "target": address(&one.target),
        "retries": one.attempt.saturating_sub(1),
        "total_keys": progress.total_keys, "copied_keys": progress.copied_keys, "sent_bytes": progress.sent_bytes,
    })
}
