//! Changes of role: REPLICAOF, and its end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use darter_replica::form::Former;
use darter_replica::history::{History, ReplId};

use super::applier::Applier;
use super::apply;
use super::batch::ApplyBatch;
use super::group::FailoverGroup;
use super::link::{self, LinkCard, WasMaster};
use super::new_id;
use crate::pubsub;
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// What a wish to follow came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Followed {
    /// This server follows that master from now on.
    Now,
    /// It did so already.
    Already,
}

/// Follows a master, in the place of the one that is followed now. Nothing waits here.
///
/// Errors: there can be no more threads.
pub fn follow(shared: &'static Shared, host: &str, port: u16) -> std::io::Result<Followed> {
    follow_by(shared, LinkCard::new(host.to_owned(), port))
}

/// Follows a replica of this server, which is to take over.
///
/// Errors: there can be no more threads.
pub fn hand_over(shared: &'static Shared, host: &str, port: u16) -> std::io::Result<Followed> {
    follow_by(shared, LinkCard::to_successor(host.to_owned(), port))
}

/// Goes on as the master that this server was before [`hand_over`]. For a thread that serves nobody.
pub fn take_back(shared: &'static Shared) {
    apply::with_all_shards(shared, |local, grant| {
        let shared = local.shared;
        let replication = &shared.replication;
        let _applying = lock(&replication.applying);
        let Some(old) = replication.state().master.take() else { return };
        old.stop();
        replication.keeps_dead.store(false, Relaxed);
        replication.begin_feeding(shared, 0);
        grant.iter_mut().for_each(|part| pubsub::settle(local, part));
        replication.is_replica.store(false, Relaxed);
    });
    note(shared, "");
}

fn follow_by(shared: &'static Shared, info: LinkCard) -> std::io::Result<Followed> {
    let replication = &shared.replication;
    let (host, port) = (info.host.clone(), info.port);
    let info = Arc::new(info);
    let was_master = {
        let _applying = lock(&replication.applying);
        let mut state = replication.state();
        if state.master.as_ref().is_some_and(|old| old.host == host && old.port == port && !old.is_stopped())
        {
            return Ok(Followed::Already);
        }
        if let Some(old) = state.master.replace(info.clone()) {
            old.stop();
        }
        replication.link_is_up.store(false, Relaxed);
        // A step down that was broken off is done again.
        let was_master = !replication.is_replica() || !replication.keeps_dead();
        replication.is_replica.store(true, Relaxed);
        if was_master { WasMaster::Yes } else { WasMaster::No }
    };
    if was_master == WasMaster::Yes {
        shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Demoted));
    }
    note(shared, &format!("{host} {port}"));
    tracing::info!("following {host}:{port}");
    link::spawn(shared, info, was_master)?;
    Ok(Followed::Now)
}

/// Follows nobody any more: what is here goes on under a new id.
pub fn stand_alone(local: &mut ThreadState) {
    let shared = local.shared;
    let replication = &shared.replication;
    {
        let _applying = lock(&replication.applying);
        let mut state = replication.state();
        let Some(old) = state.master.take() else {
            replication.is_replica.store(false, Relaxed);
            return;
        };
        old.stop();
        let (offset, is_continuous) = (state.offset(), state.is_continuous);
        if is_continuous {
            state.history.turn(new_id(), offset);
        } else {
            state.history = darter_replica::history::History::new(new_id());
            state.has_backlog = false;
        }
        state.alone_since_s = local.now_ms / 1000;
        // Those who follow this server come back and learn the new id.
        state.drop_replicas(shared);
        let selected = std::mem::take(&mut state.db);
        drop(state);
        replication.keeps_dead.store(false, Relaxed);
        if is_continuous {
            replication.begin_feeding(shared, selected);
        }
    }
    // Shards tell of changes before the first client may make one.
    pubsub::listen(local);
    replication.is_replica.store(false, Relaxed);
    replication.link_is_up.store(false, Relaxed);
    local.refresh_gate();
    note(shared, "");
    tracing::info!("this server is a master now");
}

/// Leads a group: what was received and not applied is applied, and a history with this id begins. `at_switch` runs with
/// all shards held, before the first write. For a thread that serves nobody.
///
/// Errors: a change that was received cannot be applied, or the server ends.
pub fn take_over(
    shared: &'static Shared,
    id: ReplId,
    at_switch: impl FnOnce() + Send + 'static,
) -> Result<(), String> {
    let replication = &shared.replication;
    let old = replication.state().master.clone();
    if let Some(old) = old {
        old.stop();
    }
    // A batch that was being applied is applied now, and none follows it.
    drop(lock(&replication.applying));
    apply_uncommitted(shared)?;
    let done = apply::with_all_shards(shared, move |local, grant| {
        let shared = local.shared;
        let replication = &shared.replication;
        let _applying = lock(&replication.applying);
        let (selected, is_continuous) = {
            let mut state = replication.state();
            state.master = None;
            let (offset, is_continuous) = (state.offset(), state.is_continuous);
            match is_continuous {
                true => state.history.turn(id, offset),
                false => state.history = History::new(id),
            }
            state.drop_replicas(shared);
            (std::mem::take(&mut state.db), is_continuous)
        };
        replication.keeps_dead.store(false, Relaxed);
        // Where nobody waits for members, a stream begins with the first of them.
        if is_continuous || shared.group.as_ref().is_some_and(|group| group.acks > 0) {
            replication.begin_feeding(shared, selected);
        }
        grant.iter_mut().for_each(|part| pubsub::settle(local, part));
        at_switch();
        replication.is_replica.store(false, Relaxed);
        replication.link_is_up.store(false, Relaxed);
        local.refresh_gate();
    });
    done.ok_or_else(|| "the server ends".to_owned())
}

/// Applies what was acknowledged, committed or not: whoever leads now keeps it.
fn apply_uncommitted(shared: &'static Shared) -> Result<(), String> {
    let replication = &shared.replication;
    let mut former = Former::default();
    let applier = Applier::new(shared, Arc::new(LinkCard::new(String::new(), 0)));
    loop {
        let (history, applied) = {
            let state = replication.state();
            (state.history.id, state.records.next())
        };
        let reader = lock(&replication.uncommitted).reader(history, applied, u64::MAX);
        let Some(mut reader) = reader else { break };
        let Some(batch) = ApplyBatch::of_records(&mut reader, &mut former, applier.threads())? else { break };
        applier.submit(batch).and_then(|()| applier.settle()).map_err(|end| end.to_string())?;
    }
    lock(&replication.uncommitted).clear();
    if shared.group.as_ref().is_some_and(FailoverGroup::acks_disk) {
        wait_for_disk(shared);
    }
    Ok(())
}

/// Waits until everything here is on disk: to members it counts as committed when this server leads. A disk that fails is
/// waited for no longer than the others take to call another leader.
fn wait_for_disk(shared: &Shared) {
    let (end, began) = (shared.journal.end(), Instant::now());
    shared.journal.ask_for_sync();
    while shared.journal.durable_before() < end && began.elapsed() < SYNCS {
        thread::sleep(Duration::from_millis(1));
    }
}

/// A sync ends within this time, or the disk does not work.
const SYNCS: Duration = Duration::from_secs(10);

/// Is a replica of nobody until it is known whom to follow. Nothing waits here.
pub fn abdicate(shared: &Shared) {
    let replication = &shared.replication;
    let _applying = lock(&replication.applying);
    replication.is_replica.store(true, Relaxed);
    replication.link_is_up.store(false, Relaxed);
    let mut state = replication.state();
    if state.master.is_none() {
        let nobody = LinkCard::new("none".to_owned(), 0);
        nobody.stop();
        state.master = Some(Arc::new(nobody));
    }
}

/// Has CONFIG GET and CONFIG REWRITE tell of the master, unless a group says who that is.
fn note(shared: &Shared, place: &str) {
    if shared.group.is_some() {
        return;
    }
    if let Err(why) = shared.settings.note("replicaof", place) {
        tracing::warn!("replicaof: {why}");
    }
}

/// Follows the master that the settings name, as soon as what is on disk is loaded; to be called once.
///
/// Errors: there can be no more threads.
pub fn start_after_load(shared: &'static Shared) -> std::io::Result<()> {
    let Some((host, port)) = shared.settings.live().replication.master.clone() else { return Ok(()) };
    let replication = &shared.replication;
    // From the first client on nobody writes, and everybody sees whom this server follows.
    let info = Arc::new(LinkCard::new(host.clone(), port));
    replication.state().master = Some(info.clone());
    replication.is_replica.store(true, Relaxed);
    let body = move || {
        while shared.snapshots.loading.is_on() {
            thread::sleep(LOOK);
        }
        if info.is_stopped() {
            return;
        }
        // What was loaded with its place in the master's history is a replica's already.
        let was_master = if replication.keeps_dead() { WasMaster::No } else { WasMaster::Yes };
        tracing::info!("following {host}:{port}");
        if let Err(error) = link::spawn(shared, info, was_master) {
            tracing::error!("cannot follow {host}:{port}: {error}");
        }
    };
    thread::Builder::new().name("darter-link".to_owned()).spawn(body).map(drop)
}

const LOOK: Duration = Duration::from_millis(10);
