//! How connections of a cluster are made, plain or encrypted: it decides which of a node's two ports is used or told.
//!
//! Called by routing, by the CLUSTER commands and by whatever reaches another node.

use darter_cluster::LinkKind;
use darter_config::Live;

use crate::session::Session;
use crate::thread_state::ThreadState;
use crate::tls;

/// A client that may be sent to another node.
#[derive(Clone, Copy, Debug)]
pub struct Routed {
    /// Its database.
    pub db: usize,
    /// How it is connected.
    pub link: LinkKind,
}

impl Routed {
    /// The client of a session.
    pub fn of(local: &ThreadState, session: &Session) -> Routed {
        Routed { db: session.db, link: of_client(local, session) }
    }
}

/// The connection of a client.
pub fn of_client(local: &ThreadState, session: &Session) -> LinkKind {
    match tls::is_required(&local.live, session.listener) {
        true => LinkKind::Tls,
        false => LinkKind::Plain,
    }
}

/// Connections to other nodes.
pub fn of_nodes(live: &Live) -> LinkKind {
    if live.tls.encrypts_nodes() { LinkKind::Tls } else { LinkKind::Plain }
}

/// The connection of a replica to its master.
pub fn of_replicas(live: &Live) -> LinkKind {
    if live.tls.replication { LinkKind::Tls } else { LinkKind::Plain }
}
