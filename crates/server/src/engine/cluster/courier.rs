//! Messages for subscribers at other nodes: PUBLISH of any node reaches the subscribers of all.
//!
//! Called by PUBLISH in `cluster_mode yes`, and by the thread of the store to tell of a change. A message goes to the master of each other group, which passes it to its replicas
//! by replication. A thread for each master sends in order; what a node that cannot be reached misses is dropped and
//! counted, as messages of Redis are. Nobody waits here.

use super::links;
use std::collections::HashMap;
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use darter_cluster::{MapNode, NodeGroup, NodeRole, SlotMap};
use darter_replica::stream;

use crate::replication::link;
use crate::replication::wire::Wire;
use crate::shared::Shared;
use crate::sync::lock;

/// What the threads share of the messages to other nodes.
#[derive(Default)]
pub struct Courier {
    // by `host:port`
    ways: Mutex<HashMap<String, SyncSender<Arc<[u8]>>>>,
    /// Messages that a node has not got.
    pub dropped: AtomicU64,
}

/// Messages that wait for one node, and bytes that are sent at once.
const WAITING_MAX: usize = 16 << 10;
const BATCH_BYTES: usize = 64 << 10;
/// A node without messages for this long loses its thread.
const IDLE: Duration = Duration::from_secs(60);
/// Between attempts to reach a node.
const REST: Duration = Duration::from_millis(200);

/// Returns true if this node's own subscribers get a message by replication: a replica's come from its master.
pub fn comes_back(map: &SlotMap) -> bool {
    matches!(map.place(), NodeRole::Replica(_))
}

/// Sends a message to the masters of other groups; from a replica also to its own.
pub fn send(shared: &'static Shared, map: &SlotMap, channel: &[u8], payload: &[u8]) {
    let own = map.own_group().filter(|_| !comes_back(map)).map(|group| &group.id);
    let others: Vec<&NodeGroup> = map.groups().iter().filter(|group| Some(&group.id) != own).collect();
    if others.is_empty() {
        return;
    }
    let mut bytes = Vec::new();
    stream::write(&mut bytes, &[b"DARTER", b"PUBLISH", channel, payload]);
    let message: Arc<[u8]> = bytes.into();
    for group in others {
        shared.cluster.courier.hand_over(shared, &group.master, message.clone());
    }
}

/// Tells the other nodes of a cluster that its map has changed in the store.
pub fn tell_of_map(shared: &'static Shared, groups: &[NodeGroup]) {
    let mut bytes = Vec::new();
    stream::write(&mut bytes, &[b"DARTER", b"MAP"]);
    let message: Arc<[u8]> = bytes.into();
    let nodes = groups.iter().flat_map(NodeGroup::nodes);
    for node in nodes.filter(|node| node.id != shared.cluster.id() && !node.ip.is_empty()) {
        shared.cluster.courier.hand_over(shared, node, message.clone());
    }
}

impl Courier {
    fn hand_over(&self, shared: &'static Shared, node: &MapNode, message: Arc<[u8]>) {
        let (host, port) = (node.ip.as_str(), node.port_for(links::of_nodes(&shared.settings.live())));
        let place = format!("{host}:{port}");
        let mut ways = lock(&self.ways);
        let message = match ways.get(&place).map(|way| way.try_send(message.clone())) {
            Some(Ok(())) => return,
            Some(Err(TrySendError::Full(_))) => {
                self.dropped.fetch_add(1, Relaxed);
                return;
            }
            // Its thread has ended in idleness, or there was none.
            Some(Err(TrySendError::Disconnected(message))) => message,
            None => message,
        };
        let (way, messages) = sync_channel(WAITING_MAX);
        let _ = way.try_send(message);
        let host = host.to_owned();
        let body = move || carry(shared, &host, port, &messages);
        match thread::Builder::new().name("darter-courier".to_owned()).spawn(body) {
            Ok(_) => drop(ways.insert(place, way)),
            Err(_) => drop(self.dropped.fetch_add(1, Relaxed)),
        }
    }
}

/// Sends messages to one node until there have been none for a while.
fn carry(shared: &'static Shared, host: &str, port: u16, messages: &Receiver<Arc<[u8]>>) {
    let mut wire: Option<Wire> = None;
    while let Ok(first) = messages.recv_timeout(IDLE) {
        let mut batch = first.to_vec();
        let mut count = 1;
        while batch.len() < BATCH_BYTES
            && let Ok(next) = messages.try_recv()
        {
            batch.extend_from_slice(&next);
            count += 1;
        }
        // A connection that was closed there takes a write without a fault.
        if wire.as_ref().is_some_and(Wire::is_closed) {
            wire = None;
        }
        let sent = match &mut wire {
            Some(open) => open.send(&batch),
            None => connect(shared, host, port).and_then(|open| wire.insert(open).send(&batch)),
        };
        if let Err(error) = sent {
            tracing::debug!("messages for {host}:{port} are lost: {error}");
            shared.cluster.courier.dropped.fetch_add(count, Relaxed);
            wire = None;
            thread::sleep(REST);
        }
    }
    if let Some(socket) = wire.and_then(|wire| wire.handle().ok()) {
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// A connection on which nothing is answered.
fn connect(shared: &'static Shared, host: &str, port: u16) -> std::io::Result<Wire> {
    let live = shared.settings.live();
    let mut wire = Wire::to_node(host, port, &live.tls)?;
    let mut bytes = link::login_request(&live);
    stream::write(&mut bytes, &[b"CLIENT", b"REPLY", b"OFF"]);
    wire.send(&bytes)?;
    Ok(wire)
}
