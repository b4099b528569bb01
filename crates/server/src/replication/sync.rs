//! Bringing a replica up to date: by what it lacks, or by a snapshot and what follows it.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use darter_command::Fault;

use super::replicas::{Replica, ReplicaStage};
use crate::pubsub;
use crate::shared::Shared;
use crate::snapshot::copy::{self, Contents, CopyWish, Keyless, Last, Target};
use crate::snapshot::run::{Saved, SnapshotRun};
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// What a replica asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asks<'a> {
    /// Everything, without a word before it (SYNC).
    All,
    /// What follows on a history: its id and the number of the first byte (PSYNC).
    After(&'a [u8], i64),
}

/// Where the offset of a snapshot comes from.
enum Offset {
    /// The stream is made here: known as soon as it has come to the cut.
    Made(Receiver<u64>),
    /// The stream comes from a master: known at the cut.
    AtCut(Receiver<u64>),
}

/// A replica gets a sign of life so often while its snapshot is made.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Serves the client `id` as a replica. Returns what it is answered at once; empty: it is answered later. The caller holds
/// no shard.
///
/// Errors: this server has nothing to give, or cannot make a snapshot.
pub fn serve(local: &mut ThreadState, id: u64, wish: &CopyWish, asks: Asks<'_>) -> Result<Vec<u8>, Fault> {
    let shared = local.shared;
    let replication = &shared.replication;
    if replication.is_replica() && !replication.link_is_up() {
        return Err(Fault::text("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    let info = lock(&shared.clients).get(&id).cloned().ok_or(Fault::text("ERR no such client"))?;
    info.is_replica.store(true, Relaxed);
    let address = wish.address.clone().map(|address| address.to_string());
    replication.start_feeder(shared);
    if let Asks::After(history, next) = asks
        && let Ok(next) = u64::try_from(next)
    {
        // Nothing is appended meanwhile.
        let feeding = lock(&replication.feeding);
        let mut state = replication.state();
        let cursor = next.saturating_sub(1);
        if state.has_backlog && state.history.covers(history, next) {
            state.form(cursor);
        }
        if state.has_backlog && state.history.covers(history, next) && state.backlog.has(cursor) {
            let mut replica = Replica::new(info, wish.port, address, ReplicaStage::Online, cursor);
            replica.acked = Some(cursor);
            replica.go_online();
            tracing::info!("replica {}:{} continues at offset {cursor}", replica.ip(), replica.port);
            state.replicas.push(replica);
            replication.counts.partial.fetch_add(1, Relaxed);
            let line = match wish.knows_ids {
                true => format!("+CONTINUE {}\r\n", state.history.id),
                false => "+CONTINUE\r\n".to_owned(),
            };
            drop(state);
            drop(feeding);
            shared.journal.intake.poke();
            return Ok(line.into_bytes());
        }
        replication.counts.partial_refused.fetch_add(1, Relaxed);
        tracing::info!(
            "client {id} asks for what follows byte {cursor} of {}: not here",
            history.escape_ascii()
        );
    }
    replication.counts.full.fetch_add(1, Relaxed);
    let target = Target { shared, info: info.clone() };
    // In the table before the cut: what follows it is kept.
    let end = {
        let mut state = replication.state();
        let end = state.offset();
        state.replicas.push(Replica::new(info, wish.port, address, ReplicaStage::Waits, end));
        end
    };
    let known = target.info.clone();
    begin(local, target, wish.contents, asks).inspect_err(|_| {
        forget(shared, id);
        known.is_replica.store(false, Relaxed);
    })?;
    tracing::info!("client {id} gets a snapshot as replica, from offset {end} on");
    Ok(Vec::new())
}

fn forget(shared: &Shared, id: u64) {
    shared.replication.state().replicas.retain(|replica| replica.info.id != id);
}

/// Begins the snapshot, or has it wait for the one under way.
fn begin(local: &mut ThreadState, target: Target, contents: Contents, asks: Asks<'_>) -> Result<(), Fault> {
    let (shared, id) = (local.shared, target.info.id);
    let keyless = Keyless::new(local, contents)?;
    let (tell, hear) = channel();
    let is_replica = shared.replication.is_replica();
    if !is_replica {
        shared.replication.begin_feeding(shared, 0);
        pubsub::listen(local);
    }
    let at_cut = Box::new(move |local: &mut ThreadState| {
        let replication = &local.shared.replication;
        let end = local.shared.journal.end();
        // Batches of a master hold all shards: between them the offset is that of the data.
        if !replication.mark(local.shared, end, tell.clone()) {
            let _ = tell.send(replication.state().offset());
        }
        local.shared.journal.intake.poke();
    });
    let (file, run, told) = copy::take(local, format!("a snapshot for replica {id}"), Some(at_cut))?;
    let offset = if is_replica { Offset::AtCut(hear) } else { Offset::Made(hear) };
    let by_sync = asks == Asks::All;
    copy::spawn(move || send(&target, (file, keyless), run.as_deref(), &told, &offset, by_sync))
}

/// Waits for the snapshot, sends it or the copy without keys, and has the stream follow.
fn send(
    target: &Target,
    (file, keyless): (File, Option<Keyless>),
    run: Option<&SnapshotRun>,
    told: &Receiver<Result<Saved, String>>,
    offset: &Offset,
    by_sync: bool,
) {
    let (shared, id) = (target.shared, target.info.id);
    let (Offset::Made(hear) | Offset::AtCut(hear)) = offset;
    let Some(offset) = wait(target, run, hear, false) else { return forget(shared, id) };
    {
        let mut state = shared.replication.state();
        let history = state.history.id;
        let Some(replica) = state.replicas.iter_mut().find(|replica| replica.info.id == id) else { return };
        replica.cursor = offset;
        replica.stage = ReplicaStage::Receives;
        if !by_sync {
            target.push(format!("+FULLRESYNC {history} {offset}\r\n").as_bytes());
        }
    }
    let saved = match wait(target, run, told, true) {
        Some(Ok(saved)) => saved,
        Some(Err(why)) => {
            forget(shared, id);
            return target.refuse(&why);
        }
        None => return forget(shared, id),
    };
    let (file, bytes) = match keyless.map_or(Ok((file, saved.bytes)), |keyless| keyless.write(shared)) {
        Ok(copy) => copy,
        Err(why) => {
            forget(shared, id);
            return target.refuse(&why);
        }
    };
    if let Some(replica) = shared.replication.state().replicas.iter_mut().find(|one| one.info.id == id) {
        replica.begin_snapshot(bytes);
    }
    if !copy::send(target, &file, bytes, Last::Push) {
        return forget(shared, id);
    }
    let mut state = shared.replication.state();
    if let Some(replica) = state.replicas.iter_mut().find(|replica| replica.info.id == id) {
        // What it was sent it has loaded when it says so.
        replica.go_online();
        tracing::info!("replica {}:{} has its snapshot of {bytes} bytes", replica.ip(), replica.port);
    }
    drop(state);
    shared.replication.recount_good(shared);
    shared.journal.intake.poke();
}

/// Waits for something about the snapshot, with signs of life for the client if it may have them; `None`: the client
/// has gone, or there is no snapshot.
fn wait<T>(target: &Target, run: Option<&SnapshotRun>, hear: &Receiver<T>, shows_life: bool) -> Option<T> {
    loop {
        match hear.recv_timeout(SIGN_OF_LIFE) {
            Ok(what) => return Some(what),
            Err(RecvTimeoutError::Disconnected) => {
                target.refuse("the snapshot was not begun");
                return None;
            }
            Err(RecvTimeoutError::Timeout) if target.is_there() => {
                if shows_life {
                    target.push(b"\n");
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(run) = run {
                    run.cancel();
                }
                return None;
            }
        }
    }
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Option<Arc<SnapshotRun>>>();
    is_send::<Contents>();
};
