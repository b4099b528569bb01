//! The thread that asks the store: one request at a time, each answered or given up within a second. A server that moves to
//! another group has another key asked for; answers say which of its seats had asked.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use darter_config::Live;
use darter_quorum::etcd::{Etcd, EtcdPlace};
use darter_quorum::state::GroupState;
use darter_quorum::store::GroupStore;

use super::GroupEvent;
use crate::replication::store_route::{OwnAddress, StoreRoute};
use crate::shared::Shared;
use crate::sync::lock;

/// A question to the store.
pub enum StoreRequest {
    /// What follows is about the group at this key, for the seat of this number.
    Open(u64, Etcd),
    /// The state.
    Read,
    /// To take another state.
    Write(u64, GroupState),
}

/// A request is answered within this time, or its outcome is not known.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time to connect.
const CONNECT: Duration = Duration::from_millis(500);

/// The store that the settings name. `local` becomes our side of the connection to it.
///
/// Errors: what is wrong with them.
pub fn open(live: &Live, local: OwnAddress) -> Result<Etcd, String> {
    let ha = &live.replication.ha;
    let place = EtcdPlace::parse(&ha.store)?;
    let route = StoreRoute::new(&place, live, CONNECT, PATIENCE)?;
    Ok(Etcd::new(place, &format!("/darter/{}/state", ha.group), PATIENCE, route.dial(local)))
}

/// Answers requests until the thread of the group has ended.
pub fn run(shared: &'static Shared, requests: &Receiver<StoreRequest>) {
    let Some(group) = &shared.group else { return };
    let mut open = None;
    while let Ok(request) = requests.recv() {
        let (event, fault) = match (request, &mut open) {
            (StoreRequest::Open(seat, store), _) => {
                open = Some((seat, store));
                continue;
            }
            (_, None) => continue,
            (StoreRequest::Read, Some((seat, store))) => {
                let answer = store.read();
                let fault = answer.as_ref().err().map(ToString::to_string);
                (GroupEvent::Read(*seat, answer), fault)
            }
            (StoreRequest::Write(expected, state), Some((seat, store))) => {
                let answer = store.compare_and_set(expected, &state.to_json());
                let fault = answer.as_ref().err().map(ToString::to_string);
                (GroupEvent::Written(*seat, answer), fault)
            }
        };
        note_fault(&mut lock(&group.store_fault), fault);
        group.tell(event);
    }
}

/// Logs a store that fails, and one that has come back, once.
fn note_fault(known: &mut Option<String>, fault: Option<String>) {
    match (&*known, &fault) {
        (None, Some(why)) => tracing::warn!("the store of the group: {why}"),
        (Some(_), None) => tracing::info!("the store of the group answers again"),
        _ => {}
    }
    *known = fault;
}
