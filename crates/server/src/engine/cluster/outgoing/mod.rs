//! Slots that this node moves to another one as a whole: a thread from the first key to the change of the map.
//!
//! Begun by the thread of the store when the map has a migration from this node ([`attend`]). The keys are sent as values, and
//! those that change meanwhile again, over one connection: the target has each as it was last. Large ones go once, in pieces,
//! and what commands do to them follows. Then writers of these slots
//! wait, the rest is sent, everybody waits, and the target makes the one transaction that gives it the slots. While nobody knows what has become of
//! that, everybody goes on waiting. If anything else fails, the migration is marked as failed and nothing has changed.

mod copy;
mod handing;
pub mod offers;
mod peer;
mod pieces;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::change::MapAnswer;
use darter_cluster::{MapChange, MigrationChange, MigrationState, NodeRole, SlotMigration};

use self::copy::SlotCopy;
use self::handing::hand_over;
use self::peer::ImportTarget;
use super::leftovers;
use super::map_store::UNREACHED;
use crate::clock::unix_ms;
use crate::shared::Shared;
use crate::sync::lock;

/// What the threads share of migrations from this node, and of what is left behind by others.
#[derive(Default)]
pub struct SlotExports {
    running: Mutex<HashSet<String>>,
    progress: Mutex<HashMap<String, ExportProgress>>,
    /// Migrations from this node that have succeeded, and that have not.
    pub done: AtomicU64,
    /// See above.
    pub failed: AtomicU64,
    /// Attempts that have failed.
    pub errors: AtomicU64,
    /// Keys that were sent for the first time in an attempt.
    pub sent_keys: AtomicU64,
    /// Bytes of keys that were sent.
    pub sent_bytes: AtomicU64,
    /// Milliseconds for which writers waited, all in all.
    pub pause_ms: AtomicU64,
}

/// How far a migration from this node is.
#[derive(Clone, Copy, Default)]
pub struct ExportProgress {
    /// What it does.
    pub stage: ExportStage,
    /// Keys of the slots when it began, and those of them that were sent for the first time.
    pub total_keys: u64,
    /// See above.
    pub copied_keys: u64,
    /// Bytes that were sent, those of keys sent again too.
    pub sent_bytes: u64,
    /// When the target answered last, Unix seconds.
    pub heard_s: u64,
}

/// What a migration does at its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExportStage {
    /// It waits for its turn, or for the target.
    #[default]
    Connecting,
    /// It sends the keys.
    Copying,
    /// It sends what has changed.
    CatchingUp,
    /// Writers wait.
    Holding,
    /// The map is being changed.
    Committing,
}

/// Why a migration was not brought to its end here.
enum ExportStop {
    /// It is to be marked as failed for this reason.
    Failed(String),
    /// The same, but the reason passes: it may begin again.
    Passing(String),
    /// Somebody has ended it.
    Ended,
}

impl ExportStop {
    /// What the migration comes to by it, and why; `None`: somebody has said so already.
    fn outcome(self) -> Option<(MigrationState, String)> {
        match self {
            ExportStop::Failed(why) => Some((MigrationState::Failed, why)),
            ExportStop::Passing(why) => Some((MigrationState::Retrying, why)),
            ExportStop::Ended => None,
        }
    }
}

impl<T: Into<String>> From<T> for ExportStop {
    fn from(why: T) -> ExportStop {
        ExportStop::Failed(why.into())
    }
}

impl SlotExports {
    /// How far the migration `id` is; `None` if it does not run here.
    pub fn progress(&self, id: &str) -> Option<ExportProgress> {
        lock(&self.progress).get(id).copied()
    }

    fn note(&self, id: &str, change: impl FnOnce(&mut ExportProgress)) {
        change(lock(&self.progress).entry(id.to_owned()).or_default());
    }

    /// Begins `task`, unless it runs.
    fn begin(&self, task: &str) -> bool {
        lock(&self.running).insert(task.to_owned())
    }

    fn end(&self, task: &str) {
        lock(&self.running).remove(task);
    }

    fn runs(&self, task: &str) -> bool {
        lock(&self.running).contains(task)
    }
}

/// Does what the map says of migrations: begins those from this node, fails those that this node cannot go on with, and removes
/// what is left of those that have ended. Called by the thread of the store whenever it has looked at the map.
pub fn attend(shared: &'static Shared) {
    let map = shared.cluster.map();
    if map.migrations().is_empty()
        || !matches!(map.place(), NodeRole::Master(_))
        || shared.replication.is_replica()
    {
        return;
    }
    let Some(own) = map.own_group().map(|group| group.id.clone()) else { return };
    let is_pushed = offers::are_needed(shared);
    for one in map.migrations() {
        if !one.is_active() {
            // In a pushed cluster the source keeps its keys until a configuration has another owner for them.
            let is_kept = is_pushed && one.state == MigrationState::Done;
            if one.hider() == Some(&own) && !is_kept {
                attend_once(shared, &format!("sweep {}", one.id), one.clone(), leftovers::remove);
            } else if one.state == MigrationState::Retrying && one.source == map.me() {
                let watch = if is_pushed { offers::again } else { watch };
                attend_once(shared, &format!("watch {}", one.id), one.clone(), watch);
            }
        } else if one.from == own && one.source != map.me() {
            attend_once(shared, &format!("fail {}", one.id), one.clone(), |shared, one| {
                let why = "the source was replaced".to_owned();
                fail(shared, &one.id, None, (MigrationState::Failed, why));
            });
        } else if one.from == own && one.is_offered && !shared.cluster.outgoing.runs(&one.id) {
            attend_once(shared, &format!("ask {}", one.id), one.clone(), offers::resume);
        } else if one.from == own && !one.runner.is_empty() && !shared.cluster.outgoing.runs(&one.id) {
            attend_once(shared, &format!("fail {}", one.id), one.clone(), |shared, one| {
                let why = "the source has given up".to_owned();
                fail(shared, &one.id, Some(one.attempt), (MigrationState::Retrying, why));
            });
        } else if one.from == own && one.runner.is_empty() && !shared.snapshots.loading.is_on() {
            // While it loads, keys that are not there yet would stay behind and be removed.
            // One at a time to each target.
            attend_once(shared, &format!("export to {}", one.to), one.clone(), export);
        }
    }
}

/// Runs `body` on a thread of its own, unless the task runs.
fn attend_once(
    shared: &'static Shared,
    task: &str,
    one: SlotMigration,
    body: impl FnOnce(&'static Shared, &SlotMigration) + Send + 'static,
) {
    let outgoing = &shared.cluster.outgoing;
    if !outgoing.begin(task) {
        return;
    }
    let name = task.to_owned();
    let run = move || {
        shared.snapshots.roam();
        body(shared, &one);
        shared.cluster.outgoing.end(&name);
    };
    if let Err(error) = thread::Builder::new().name("darter-slots".to_owned()).spawn(run) {
        tracing::error!("no thread for a migration of slots: {error}");
        outgoing.end(task);
    }
}

/// Makes one change of the map and waits until this server routes by the result. Errors: it is refused, or the store cannot
/// say: [`ChangeFault`].
pub(super) fn change(shared: &'static Shared, change: MigrationChange) -> Result<MapAnswer, ChangeFault> {
    change_map(shared, MapChange::Migration(change))
}

fn change_map(shared: &'static Shared, change: MapChange) -> Result<MapAnswer, ChangeFault> {
    let (tell, hear) = sync_channel(1);
    let store = shared.cluster.store.as_ref().ok_or_else(|| ChangeFault::Unknown(UNREACHED.to_owned()))?;
    store.change(vec![change], Box::new(move |_, outcome| drop(tell.send(outcome))));
    ChangeFault::of(hear.recv().unwrap_or_else(|_| Err(UNREACHED.to_owned())))
}

/// Why a change of the map is not known to be made.
pub(super) enum ChangeFault {
    /// It is not made: the map does not allow it.
    Refused,
    /// It may be made.
    Unknown(String),
}

impl ChangeFault {
    fn of(outcome: super::map_store::Outcome) -> Result<MapAnswer, ChangeFault> {
        let answers = outcome.map_err(ChangeFault::Unknown)?;
        answers.into_iter().next().unwrap_or(Ok(MapAnswer::Done)).map_err(|_| ChangeFault::Refused)
    }
}

/// Now, in Unix seconds.
pub fn now_s() -> u64 {
    unix_ms() / 1000
}

/// Marks a migration or one attempt as failed, unless it has ended; waits for the store as long as that takes.
fn fail(shared: &'static Shared, id: &str, attempt: Option<u64>, (state, why): (MigrationState, String)) {
    let mark = || {
        let (id, why) = (id.to_owned(), why.clone());
        change(shared, MigrationChange::Fail { id, attempt, state, why, now_s: now_s() })
    };
    while let Err(ChangeFault::Unknown(why)) = mark() {
        tracing::warn!("migration {id} is not marked as failed yet: {why}");
        thread::sleep(PAUSE);
    }
}

/// Between attempts to reach the store.
const PAUSE: Duration = Duration::from_millis(200);
/// Before a migration begins for the second time; four times as long each time after that. Three retries outlast the restart of
/// a target, 1 + 4 + 16 s.
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(30);

/// The rest after `attempts` of them have failed.
fn rest_after(attempts: u64) -> Duration {
    let doublings = 2 * attempts.saturating_sub(1).min(8) as u32;
    REST.saturating_mul(1 << doublings).min(REST_MAX)
}

fn export(shared: &'static Shared, planned: &SlotMigration) {
    let outgoing = &shared.cluster.outgoing;
    outgoing.begin(&planned.id);
    outgoing.note(&planned.id, |_| ());
    let is_pushed = offers::are_needed(shared);
    if planned.attempt > 0 {
        rest(shared, planned, if is_pushed { offers::rest_before() } else { rest_after(planned.attempt) });
    }
    let runner = shared.replication.boot.as_str().to_owned();
    let one = &SlotMigration { attempt: planned.attempt + 1, runner, ..planned.clone() };
    let slots = one.slots_len();
    match run(shared, one) {
        Ok(()) => {
            outgoing.done.fetch_add(1, Relaxed);
            tracing::info!("migration {}: {slots} slots are at {} now", one.id, one.target);
        }
        Err(stop) => {
            if let Some(mut failure) = stop.outcome() {
                outgoing.errors.fetch_add(1, Relaxed);
                if is_pushed {
                    failure = offers::outcome(failure);
                }
                let (state, why) = failure;
                tracing::warn!("migration {} of {slots} slots to {} failed: {why}", one.id, one.target);
                if is_pushed && state == MigrationState::Failed {
                    let _ = offers::give_up(shared, one, state, &why);
                }
                fail(shared, &one.id, Some(one.attempt), (state, why));
            } else {
                tracing::info!("migration {} of {slots} slots to {} was ended", one.id, one.target);
            }
            count_failure(shared, &one.id);
        }
    }
    lock(&outgoing.progress).remove(&one.id);
    outgoing.end(&one.id);
}

/// Counts a migration that is over without success.
fn count_failure(shared: &Shared, id: &str) {
    let is_ended = shared.cluster.map().migration(id).is_none_or(SlotMigration::is_ended);
    shared.cluster.outgoing.failed.fetch_add(u64::from(is_ended), Relaxed);
}

/// Rests; returns false as soon as the migration has gone on: it is not as it was planned, or this node is its source no more.
fn rest(shared: &Shared, one: &SlotMigration, time: Duration) -> bool {
    let began = Instant::now();
    loop {
        let map = shared.cluster.map();
        let is_same = map.migration(&one.id).is_some_and(|found| {
            (found.state, found.attempt, &found.runner) == (one.state, one.attempt, &one.runner)
        });
        if !is_same || shared.replication.is_replica() {
            return false;
        }
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(PAUSE));
    }
}

/// Waits until the target has removed what an attempt has brought. A target that cannot be reached uses up the attempts that
/// are left, at their times; then this node alone gives the migration up, and the target finds that in the map when it is back.
fn watch(shared: &'static Shared, one: &SlotMigration) {
    let mut missed = 0;
    while rest(shared, one, rest_after(one.attempt + missed)) {
        let map = shared.cluster.map();
        let Some((_, node)) = map.find(one.target.as_bytes()) else { break };
        match super::peer::must_answer(shared, node) {
            Ok(()) => missed = 0,
            Err(_) if missed < one.retries => missed += 1,
            Err(why) => fail(shared, &one.id, Some(one.attempt), (MigrationState::Failed, why)),
        }
    }
    count_failure(shared, &one.id);
}

fn run(shared: &'static Shared, one: &SlotMigration) -> Result<(), ExportStop> {
    // A target that cannot be reached gets nothing, so nothing is left there.
    let mut target = ImportTarget::connect(shared, one)?;
    let (id, runner) = (one.id.clone(), one.runner.clone());
    match change(shared, MigrationChange::Run { id, attempt: one.attempt, runner, now_s: now_s() }) {
        Ok(_) => {}
        Err(ChangeFault::Refused) => return Err(ExportStop::Ended),
        Err(ChangeFault::Unknown(why)) => return Err(ExportStop::Passing(why)),
    }
    target.introduce(one)?;
    let copying = SlotCopy::begin(shared, one)?;
    let outcome = copying
        .copy(&mut target)
        .and_then(|()| copying.catch_up(&mut target))
        .and_then(|()| hand_over(&copying, &mut target));
    copying.end();
    outcome
}
