//! The end of the server: at once, or after a last snapshot that holds everything that was acknowledged.
//!
//! For that, writing commands are held back as CLIENT PAUSE does, every thread is given a turn to notice, and only then
//! is the cut made. Where nothing has changed since the last snapshot none is taken. If the snapshot fails, the server
//! goes on where snapshots are asked for by a client or by save points, and ends where only a signal asked for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use darter_reactor::Token;
use darter_reactor::signal::Signal;
use darter_script::{Killing, ScriptWatch};
use darter_wire::Reply;

use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::OnSignal;

use super::run::{Saved, SnapshotOrder};
use super::schedule;

/// A client that asked for the end and hears of it only if it does not come.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Its thread.
    pub thread: u16,
    /// Its connection there.
    pub token: Token,
    /// Its id.
    pub client: u64,
}

/// An end that is under way.
#[derive(Debug, Default)]
pub struct SnapshotEnding {
    is_on: AtomicBool,
    // the log says that a script is waited for
    told: AtomicBool,
    // SIGINTs since the start, or since an end was taken back
    interrupts: AtomicU32,
    state: Mutex<Option<EndingState>>,
    failure: Mutex<Option<String>>,
}

/// When the end takes a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Saving {
    /// In any case.
    Always,
    /// Where something has changed since the last one.
    Changes,
}

/// What becomes of an end whose snapshot fails. Of two who ask for an end, the later variant wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Failing {
    /// The server stays.
    Stays,
    /// It ends, and its exit code says that the data was not saved.
    Ends,
    /// It ends as if all were well.
    Ignored,
}

#[derive(Debug)]
struct EndingState {
    // turns of each thread when writers were held back; none once the snapshot has begun
    turns: Option<Vec<u64>>,
    saving: Saving,
    failing: Failing,
    asking: Vec<Asking>,
}

/// The error for a client that asked for an end that does not come.
const NO_END: &[u8] = b"ERR Errors trying to SHUTDOWN. Check logs.";

impl SnapshotEnding {
    /// Whether an end is under way.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Takes the reason why the data was not saved though it was to be.
    pub fn failure(&self) -> Option<String> {
        lock(&self.failure).take()
    }
}

/// Ends the server now.
pub fn stop(shared: &'static Shared) {
    crate::notify::stopping();
    shared.is_stopping.store(true, Relaxed);
    shared.handle(0).send(ThreadMessage::Stop);
}

/// Ends the server because of a signal. While it saves, another SIGTERM changes nothing, since whoever sends them may send
/// several (`timeout` does). A second SIGINT, of a person at the keyboard, always ends it, without the snapshot.
pub fn on_signal(local: &mut ThreadState, how: OnSignal, signal: Signal) {
    let ending = &local.shared.snapshots.ending;
    let is_first = signal != Signal::Interrupt || ending.interrupts.fetch_add(1, Relaxed) == 0;
    if !is_first || signal == Signal::Interrupt && ending.is_on() {
        tracing::warn!("You insist... exiting without the snapshot");
        stop(local.shared);
        local.shared.scripts.force_all();
        return;
    }
    tracing::info!("Received {}, shutting down", signal.name());
    let failing = match how {
        OnSignal { force: true, .. } => Failing::Ignored,
        OnSignal { save: None, .. } if !schedule::is_automatic(&local.live) => Failing::Ends,
        _ => Failing::Stays,
    };
    let saves = how.save.unwrap_or_else(|| schedule::saves_at_end(&local.live));
    if !saves && !how.force && may_not_end(local.shared) {
        return;
    }
    if saves && !local.shared.snapshots.loading.is_on() {
        let saving = if how.save.is_some() { Saving::Always } else { Saving::Changes };
        save_and_stop(local, saving, failing, None);
    } else {
        stop(local.shared);
    }
}

/// Ends the script that `watch` sees, which is overdue, if the end of the server waits for it. A snapshot is not to have
/// the half of what a script does: one that has written is waited for, as in Redis, until somebody wants the end without.
pub fn hurry(shared: &Shared, watch: &ScriptWatch) {
    let ending = &shared.snapshots.ending;
    if shared.is_stopping.load(Relaxed) {
        watch.force();
    } else if ending.is_on() && watch.kill() == Killing::Refused && !ending.told.swap(true, Relaxed) {
        tracing::warn!(
            "the end waits for a script that has written: SHUTDOWN NOSAVE, or SIGINT once more, ends it with no snapshot"
        );
    }
}

/// Whether an end without a snapshot would lose what is there: the journal was switched on, and its first base is still
/// being written. The log says so.
pub fn may_not_end(shared: &Shared) -> bool {
    let lacks_base = shared.journal.lacks_base();
    if lacks_base {
        tracing::warn!("Writing initial AOF, can't exit");
    }
    lacks_base
}

/// Ends the server after a snapshot. Where such an end is under way, `asking` waits for that.
pub fn save_and_stop(local: &mut ThreadState, saving: Saving, failing: Failing, asking: Option<Asking>) {
    let shared = local.shared;
    let mut state = lock(&shared.snapshots.ending.state);
    if let Some(state) = &mut *state {
        state.asking.extend(asking);
        state.failing = state.failing.max(failing);
        return;
    }
    crate::notify::status("Saving before the end");
    let turns = shared.turns();
    *state = Some(EndingState { turns: Some(turns), saving, failing, asking: asking.into_iter().collect() });
    shared.snapshots.ending.told.store(false, Relaxed);
    shared.snapshots.ending.is_on.store(true, Relaxed);
    drop(state);
    shared.pause.hold();
    local.refresh_gate();
    shared.snapshots.unschedule();
    shared.snapshots.cancel();
    wake(shared);
}

/// Goes on with an end that is under way; called by thread 0 once a turn.
pub fn step(local: &mut ThreadState) {
    let shared = local.shared;
    if !shared.snapshots.ending.is_on() {
        return;
    }
    {
        let mut state = lock(&shared.snapshots.ending.state);
        let Some(EndingState { turns: Some(turns), saving, .. }) = &*state else { return };
        let has_turned = shared.has_turned(turns, 1);
        // Looked at again soon: the threads have been woken, and whoever still writes needs the processor.
        if !has_turned || shared.snapshots.current().is_some() {
            return;
        }
        // A shard that is busy is looked at in the next turn.
        let is_saved = match saving {
            Saving::Always => Some(false),
            Saving::Changes => shared.snapshots.is_saved(shared, &local.live),
        };
        match is_saved {
            None => return,
            Some(true) => {
                tracing::info!("nothing has changed since the last snapshot, none is taken");
                return stop(shared);
            }
            Some(false) => {}
        }
        if let Some(state) = &mut *state {
            state.turns = None;
        }
    }
    let order = SnapshotOrder::of(&local.live).unwrap_or_else(|| Err("dbfilename is empty".to_owned()));
    let mut order = match order {
        Ok(order) => order,
        Err(why) => return finish(shared, &Err(why)),
    };
    order.then.push(Box::new(finish));
    if let Err(refused) = super::start(local, order) {
        finish(shared, &Err(refused.to_string()));
    }
}

/// What becomes of the end now that the snapshot is written, or not.
fn finish(shared: &'static Shared, outcome: &Result<Saved, String>) {
    let Some(state) = lock(&shared.snapshots.ending.state).take() else { return };
    let Err(why) = outcome else { return stop(shared) };
    match state.failing {
        Failing::Ignored => stop(shared),
        Failing::Ends => {
            tracing::error!("Error trying to save the DB: {why}; no save points are set, exiting without it");
            *lock(&shared.snapshots.ending.failure) = Some(format!("the data was not saved: {why}"));
            stop(shared);
        }
        Failing::Stays => {
            tracing::error!(
                "Error trying to save the DB, can't exit: {why}; SHUTDOWN NOSAVE or a second SIGINT exits without it"
            );
            resume(shared, state);
        }
    }
}

/// Takes an end back; false when none is under way.
pub fn abort(shared: &'static Shared) -> bool {
    let Some(state) = lock(&shared.snapshots.ending.state).take() else { return false };
    shared.snapshots.cancel();
    shared.snapshots.ending.interrupts.store(0, Relaxed);
    tracing::warn!("Shutdown manually aborted");
    resume(shared, state);
    true
}

fn resume(shared: &'static Shared, state: EndingState) {
    shared.snapshots.ending.is_on.store(false, Relaxed);
    shared.pause.release();
    let mut reply = Vec::new();
    Reply::new(&mut reply, false).error(NO_END);
    for Asking { thread, token, client } in state.asking {
        shared.handle(thread).send(ThreadMessage::Served { token, client, reply: reply.clone() });
    }
    wake(shared);
}

fn wake(shared: &Shared) {
    shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
}
