//! HOLD and COMMIT: writers of the slots wait, the rest is sent, everybody waits, and the target changes the map by one transaction.
//!
//! Nobody is let go before the outcome is known and this server routes by it. If the target does not say that it did, or the
//! store does not answer, the migration is marked as failed there; only when the mark is refused has it been committed.
//! `darter_cluster::SlotMigration` says why the target's own process makes the transaction.

use crate::engine::cluster::links;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::{MigrationChange, MigrationState, SlotHold, SlotMigration, WhoWaits};

use super::copy::SlotCopy;
use super::peer::ImportTarget;
use super::{ChangeFault, ExportStage, ExportStop, PAUSE, change, now_s, offers};
use crate::engine::cluster::handover::make_known;
use crate::shared::Shared;

/// What the store has made of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Committed {
    /// The slots are the target's.
    Yes,
    /// They are not.
    No,
}

/// Gives the slots to the target. Errors: why not; the slots are served here as before then.
pub fn hand_over(copying: &SlotCopy, target: &mut ImportTarget) -> Result<(), ExportStop> {
    let began = Instant::now();
    let outcome = hold_and_commit(copying, target, began);
    hold(copying, None, began).unwrap_or(());
    let pause_ms = began.elapsed().as_millis() as u64;
    copying.shared.cluster.outgoing.pause_ms.fetch_add(pause_ms, Relaxed);
    outcome
}

fn hold_and_commit(copying: &SlotCopy, target: &mut ImportTarget, began: Instant) -> Result<(), ExportStop> {
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
        if copying.leaving.is_settled() {
            break;
        }
        must_be_soon(shared, began)?;
    }
    hold(copying, Some(WhoWaits::Everybody), began)?;
    copying.must_be_active()?;
    copying.note(ExportStage::Committing);
    let keys = copying.keys_len()?;
    let is_pushed = offers::are_needed(shared);
    if is_pushed {
        offers::offer(shared, one, keys)?;
    }
    let pause_ms = began.elapsed().as_millis() as u64;
    let said = target.commit(pause_ms, keys);
    if let Some((state, why)) = said.err().and_then(ExportStop::outcome) {
        let found =
            if is_pushed { offers::find_out(shared, one, &why) } else { find_out(shared, one, state, &why) };
        if found == Committed::No {
            return Err(ExportStop::Ended);
        }
    } else if is_pushed {
        offers::given(shared, one, pause_ms);
    }
    settle(shared, one);
    Ok(())
}

/// The time for which commands wait at most before the map is changed.
fn pause_max(shared: &Shared) -> Duration {
    Duration::from_millis(shared.settings.live().cluster.pause_ms_max)
}

fn must_be_soon(shared: &Shared, began: Instant) -> Result<(), ExportStop> {
    if began.elapsed() > pause_max(shared) { Err(ExportStop::Passing(LATE.to_owned())) } else { Ok(()) }
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
    hear.recv_timeout(left).map_err(|_| ExportStop::Passing(LATE.to_owned()))
}

/// What has become of a commit whose answer is missing. Returns when it is known, however long that takes.
fn find_out(shared: &'static Shared, one: &SlotMigration, state: MigrationState, why: &str) -> Committed {
    tracing::warn!("migration {}: whether it is committed is not known ({why}), its slots wait", one.id);
    loop {
        let (id, attempt, why) = (one.id.clone(), Some(one.attempt), why.to_owned());
        match change(shared, MigrationChange::Fail { id, attempt, state, why, now_s: now_s() }) {
            Ok(_) => return Committed::No,
            Err(ChangeFault::Unknown(_)) => thread::sleep(PAUSE),
            Err(ChangeFault::Refused) => {
                // This server routes by the map that refuses it.
                let map = shared.cluster.map();
                let is_done = map.migration(&one.id).map(|found| found.state == MigrationState::Done);
                if !is_done.unwrap_or_else(|| !is_own(shared, one)) {
                    return Committed::No;
                }
                // The target may not know yet what it owns.
                if let Some((_, node)) = map.find(one.target.as_bytes()) {
                    make_known(shared, &node.ip, node.port_for(links::of_nodes(&shared.settings.live())));
                }
                return Committed::Yes;
            }
        }
    }
}

/// Returns true if the slots are this node's by the map that it routes by.
fn is_own(shared: &Shared, one: &SlotMigration) -> bool {
    let map = shared.cluster.map();
    one.slots.first().is_some_and(|range| map.is_own(range.start))
}

/// Has this server send clients of the slots to their owner. Returns when it does: until then it would serve them itself.
fn settle(shared: &'static Shared, one: &SlotMigration) {
    let Some(store) = shared.cluster.shared_store() else { return };
    loop {
        let (tell, hear) = sync_channel(1);
        store.change(Vec::new(), Box::new(move |_, outcome| drop(tell.send(outcome))));
        match hear.recv() {
            Ok(Ok(_)) => return,
            _ if !is_own(shared, one) => return,
            _ => thread::sleep(PAUSE),
        }
    }
}
