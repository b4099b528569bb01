//! What source and target of a pushed cluster say to each other beyond the keys, for each has a map of its own: who has the
//! slots once the target was asked to take them, and that a migration is given up.
//!
//! Called by the thread of a migration, and by `attend` for what a process before has left. `darter_cluster::pushed_map`
//! says why no slot has two owners.

use crate::engine::cluster::links;
use std::thread;
use std::time::Duration;

use darter_cluster::{MapChange, MigrationChange, MigrationState, PushedChange, SlotMigration};

use super::handing::Committed;
use super::{ChangeFault, ExportStop, PAUSE, change_map, now_s, rest};
use crate::engine::cluster::peer;
use crate::shared::Shared;

/// Before a migration begins again.
const REST: Duration = Duration::from_millis(500);
/// The answers to `DARTER FAIL`.
pub const TAKEN: &str = "TAKEN";
/// See above.
pub const REFUSED: &str = "REFUSED";

/// Returns true if the nodes have no store of one map.
pub(super) fn are_needed(shared: &Shared) -> bool {
    shared.cluster.shared_store().is_none()
}

fn make(shared: &'static Shared, change: PushedChange) -> Result<(), ChangeFault> {
    change_map(shared, MapChange::Pushed(change)).map(drop)
}

/// Notes that the target is about to be asked. Errors: the migration was ended, or that cannot be noted.
pub(super) fn offer(shared: &'static Shared, one: &SlotMigration, keys: u64) -> Result<(), ExportStop> {
    match make(shared, PushedChange::Offer { id: one.id.clone(), attempt: one.attempt, keys }) {
        Ok(()) => Ok(()),
        Err(ChangeFault::Refused) => Err(ExportStop::Ended),
        Err(ChangeFault::Unknown(why)) => Err(ExportStop::Passing(why)),
    }
}

/// Notes that the target has taken the slots. Returns when this server sends clients there, or a configuration has decided.
pub(super) fn given(shared: &'static Shared, one: &SlotMigration, pause_ms: u64) {
    loop {
        let (id, attempt) = (one.id.clone(), one.attempt);
        match make(shared, PushedChange::Given { id, attempt, pause_ms, now_s: now_s() }) {
            Ok(()) | Err(ChangeFault::Refused) => return,
            Err(ChangeFault::Unknown(why)) => {
                tracing::warn!("migration {}: that its slots are given away is not noted yet: {why}", one.id);
                thread::sleep(PAUSE);
            }
        }
    }
}

/// What has become of an offer whose answer is missing: asks the target until it is known, or until a configuration has
/// decided. The slots wait meanwhile.
pub(super) fn find_out(shared: &'static Shared, one: &SlotMigration, why: &str) -> Committed {
    tracing::warn!(
        "migration {}: the target has not said whether it took the slots ({why}), they wait",
        one.id
    );
    loop {
        let map = shared.cluster.map();
        let found = map.migration(&one.id).filter(|found| found.is_offered && found.attempt == one.attempt);
        if found.is_none() {
            let is_own = one.slots.first().is_some_and(|range| map.is_own(range.start));
            return if is_own { Committed::No } else { Committed::Yes };
        }
        match give_up(shared, one, MigrationState::Retrying, why).as_deref() {
            Ok(TAKEN) => {
                given(shared, one, 0);
                return Committed::Yes;
            }
            Ok(REFUSED) => {
                super::fail(shared, &one.id, Some(one.attempt), (MigrationState::Retrying, why.to_owned()));
                return Committed::No;
            }
            Ok(other) => tracing::warn!("migration {}: the target says {other}", one.id),
            Err(error) => tracing::debug!("migration {}: {error}", one.id),
        }
        thread::sleep(PAUSE);
    }
}

/// Ends an attempt at its target, unless that has taken the slots. Returns which. Errors: it does not answer.
pub(super) fn give_up(
    shared: &'static Shared,
    one: &SlotMigration,
    state: MigrationState,
    why: &str,
) -> Result<String, String> {
    let map = shared.cluster.map();
    let (host, port) =
        one.place(&map, links::of_nodes(&shared.settings.live())).ok_or("the target is not in the map")?;
    let slot = one.slots.first().map_or(0, |range| range.start).to_string();
    let attempt = one.attempt.to_string();
    let (id, state) = (one.id.as_bytes(), state.name().as_bytes());
    let words: [&[u8]; 7] =
        [b"DARTER", b"FAIL", id, attempt.as_bytes(), slot.as_bytes(), state, why.as_bytes()];
    peer::ask(shared, host, port, &words).map(|(said, _)| said)
}

/// Ends what a process before has left open.
pub(super) fn resume(shared: &'static Shared, one: &SlotMigration) {
    find_out(shared, one, "the source was restarted");
}

/// Begins again after a rest.
pub(super) fn again(shared: &'static Shared, one: &SlotMigration) {
    if rest(shared, one, REST)
        && let Err(ChangeFault::Unknown(why)) = make(shared, PushedChange::Again(one.id.clone(), one.attempt))
    {
        tracing::warn!("migration {} does not begin again yet: {why}", one.id);
    }
}

/// What a failure of an attempt comes to: it begins again, until a configuration ends it or the target has no memory for it.
pub(super) fn outcome((state, why): (MigrationState, String)) -> (MigrationState, String) {
    let is_fatal = state == MigrationState::Failed && why.contains("OOM");
    if is_fatal { (state, why) } else { (MigrationState::Retrying, why) }
}

/// The rest before an attempt of a pushed migration.
pub(super) fn rest_before() -> Duration {
    REST
}

/// Makes the change that a source asks of its target, with the word for it.
pub fn failure(words: (&str, u64), state: &[u8], why: &str) -> MigrationChange {
    let fatal = MigrationState::Failed;
    let state = if state == fatal.name().as_bytes() { fatal } else { MigrationState::Retrying };
    let (id, attempt) = words;
    MigrationChange::Fail {
        id: id.to_owned(),
        attempt: Some(attempt),
        state,
        why: why.to_owned(),
        now_s: now_s(),
    }
}
