//! Changes of role that the state machine asks for: follow, stop following, lead, step down.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use darter_replica::history::ReplId;

use super::{FailoverGroup, place};
use crate::replication::roles;
use crate::shared::{Shared, ThreadMessage};

/// Follows a member.
pub fn follow(shared: &'static Shared, name: &str) {
    let Some((host, port)) = place::find(shared, name) else {
        return tracing::error!("the leader has no address: {name}");
    };
    if let Err(error) = roles::follow(shared, &host, port) {
        tracing::error!("cannot follow {name}: {error}");
    }
}

/// Becomes the master. Returns false if the server ends meanwhile, or data of the master before cannot be applied.
pub fn lead(shared: &'static Shared, group: &'static FailoverGroup, term: u64, replid: &str) -> bool {
    let Some(id) = ReplId::parse(replid.as_bytes()) else {
        tracing::error!("the store names a history that is none: {replid}");
        return false;
    };
    if let Err(why) = roles::take_over(shared, id, move || {
        group.term.store(term, SeqCst);
        let (next, numbers) = shared.replication.stream_position(shared);
        // Known before anything is committed by it.
        group.note_synced(shared);
        group.commit.begin(next, &numbers);
        group.commit.wait_for(group.acks);
        group.is_cut_off.store(false, SeqCst);
        group.trust();
    }) {
        tracing::error!("this server cannot lead: {why}");
        return false;
    }
    group.counts.led.fetch_add(1, SeqCst);
    tracing::info!("this server leads its group in term {term}");
    true
}

/// Is the master no longer: nothing that waits is answered, and nobody sees what may be taken back.
pub fn step_down(shared: &'static Shared, group: &FailoverGroup) {
    if group.has_abdicated.load(SeqCst) {
        // All members have all of it, and writers wait.
        roles::abdicate(shared);
        group.commit.let_go();
        shared.journal.release(shared);
        return tracing::info!("this server gives the lead away");
    }
    leave(shared, group);
    group.counts.deposed.fetch_add(1, SeqCst);
    tracing::warn!("this server does not lead its group any more");
}

/// Is the master of nobody, and nothing that waits is answered.
pub fn leave(shared: &'static Shared, group: &FailoverGroup) {
    group.doubt();
    roles::abdicate(shared);
    shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Demoted));
}

/// Acknowledges nothing to the leader any more.
pub fn stop_following(shared: &Shared) {
    let master = shared.replication.state().master.clone();
    if let Some(master) = master {
        let master: Arc<_> = master;
        master.stop();
    }
    shared.replication.note_link_down();
}
