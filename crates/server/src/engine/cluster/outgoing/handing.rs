//! HOLD and COMMIT: writers of the slots wait, the rest is sent, everybody waits, and the map is changed by one transaction.
//!
//! Nobody is let go before the outcome is known. If the store does not answer, the migration is marked as failed there; only
//! when the mark is refused has it been committed.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::{MapChange, MigrationChange, MigrationState, SlotHold, SlotMigration, WhoWaits};

use super::copy::SlotCopy;
use super::peer::ImportTarget;
use super::{ChangeFault, ExportStage, ExportStop, PAUSE, change, now_s};
use crate::engine::cluster::handover::make_known;
use crate::engine::cluster::map_store::UNREACHED;
use crate::shared::Shared;

/// What the store has made of a commit.
enum Committed {
    Yes,
    No(String),
}

/// Gives the slots to the target. Errors: why not; the slots are served here as before then.
pub fn hand_over(copying: &SlotCopy, target: &mut ImportTarget, runner: &str) -> Result<(), ExportStop> {
    let began = Instant::now();
    let outcome = hold_and_commit(copying, target, runner, began);
    hold(copying, None, began).unwrap_or(());
    let pause_ms = began.elapsed().as_millis() as u64;
    copying.shared.cluster.outgoing.pause_ms.fetch_add(pause_ms, Relaxed);
    outcome
}

fn hold_and_commit(
    copying: &SlotCopy,
    target: &mut ImportTarget,
    runner: &str,
    began: Instant,
) -> Result<(), ExportStop> {
    let (shared, one) = (copying.shared, &copying.one);
    copying.note(ExportStage::Holding);
    hold(copying, Some(WhoWaits::Writers), began)?;
    // A key on its way by MIGRATE is removed here once the other server has it, without a question.
    while shared.migrations.has_custody_of(|name| copying.leaving.has(name)) {
        must_be_soon(shared, began)?;
        thread::sleep(Duration::from_millis(1));
    }
    target.must_answer_until(began + pause_max(shared));
    copying.pass_all()?;
    loop {
        copying.send_changed(target)?;
        target.flush()?;
        if copying.leaving.changed_len() == 0 {
            break;
        }
        must_be_soon(shared, began)?;
    }
    hold(copying, Some(WhoWaits::Everybody), began)?;
    copying.must_be_active()?;
    target.must_live()?;
    copying.note(ExportStage::Committing);
    match commit(shared, one, runner, began) {
        Committed::No(why) => Err(why.into()),
        Committed::Yes => {
            settle(shared, one);
            Ok(())
        }
    }
}

/// The time for which commands wait at most before the map is changed.
fn pause_max(shared: &Shared) -> Duration {
    Duration::from_millis(shared.settings.live().cluster.pause_ms_max)
}

fn must_be_soon(shared: &Shared, began: Instant) -> Result<(), ExportStop> {
    if began.elapsed() > pause_max(shared) { Err(LATE.into()) } else { Ok(()) }
}

const LATE: &str = "commands of the slots did not end in time";

/// Has commands of the slots wait, or nobody, and waits until every thread does so. Errors: that takes too long.
fn hold(copying: &SlotCopy, who: Option<WhoWaits>, began: Instant) -> Result<(), ExportStop> {
    let (tell, hear) = sync_channel(1);
    let wanted = who.map(|who| SlotHold { slots: copying.one.slots.clone(), who });
    let shared = copying.shared;
    shared.cluster.hold(shared, &copying.one.id, wanted, Box::new(move |_| tell.send(()).unwrap_or(())));
    if who.is_none() {
        // Nothing depends on it.
        return Ok(());
    }
    let left = pause_max(shared).saturating_sub(began.elapsed());
    hear.recv_timeout(left).map_err(|_| LATE.into())
}

fn commit(shared: &'static Shared, one: &SlotMigration, runner: &str, began: Instant) -> Committed {
    let pause_ms = began.elapsed().as_millis() as u64;
    let (id, runner) = (one.id.clone(), runner.to_owned());
    let wish = MigrationChange::Commit { id, runner, now_s: now_s(), pause_ms };
    match change_early(shared, wish) {
        Ok(()) => Committed::Yes,
        Err(ChangeFault::Refused(why)) => Committed::No(why),
        Err(ChangeFault::Unknown(why)) => find_out(shared, one, &why),
    }
}

/// What has become of a commit whose answer is lost. Returns when it is known, however long that takes.
fn find_out(shared: &'static Shared, one: &SlotMigration, why: &str) -> Committed {
    tracing::warn!("migration {}: whether it is committed is not known ({why}), its slots wait", one.id);
    loop {
        let (id, state) = (one.id.clone(), MigrationState::Failed);
        let why = format!("the store did not answer: {why}");
        match change(shared, MigrationChange::Fail { id, state, why: why.clone(), now_s: now_s() }) {
            Ok(_) => return Committed::No(why),
            Err(ChangeFault::Unknown(_)) => thread::sleep(PAUSE),
            Err(ChangeFault::Refused(_)) => {
                // This server routes by the map that refuses it.
                let map = shared.cluster.map();
                let is_given = one.slots.first().is_some_and(|range| !map.is_own(range.start));
                let is_done = map.migration(&one.id).map(|found| found.state == MigrationState::Done);
                return match is_done.unwrap_or(is_given) {
                    true => Committed::Yes,
                    false => Committed::No(why),
                };
            }
        }
    }
}

/// Changes the map, and is answered before this server routes by it.
fn change_early(shared: &'static Shared, wish: MigrationChange) -> Result<(), ChangeFault> {
    let (tell, hear) = sync_channel(1);
    let store = shared.cluster.store.as_ref().ok_or_else(|| ChangeFault::Unknown(UNREACHED.to_owned()))?;
    let changes = vec![MapChange::Migration(wish)];
    store.change_early(changes, Box::new(move |_, outcome| drop(tell.send(outcome))));
    ChangeFault::of(hear.recv().unwrap_or_else(|_| Err(UNREACHED.to_owned()))).map(drop)
}

/// Has the target serve the slots, and then this server send its clients there.
fn settle(shared: &'static Shared, one: &SlotMigration) {
    let map = shared.cluster.map();
    if let Some((_, node)) = map.find(one.target.as_bytes()) {
        make_known(shared, &node.ip, node.port);
    }
    let (tell, hear) = sync_channel(1);
    if let Some(store) = &shared.cluster.store {
        store.change(Vec::new(), Box::new(move |_, outcome| drop(tell.send(outcome))));
        let _ = hear.recv();
    }
}
