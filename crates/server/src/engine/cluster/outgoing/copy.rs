//! COPY and CATCH-UP: every key of the slots is read with its shard held and sent, and sent again after each change.
//!
//! A key that changes is noted in [`LeavingKeys`] with its shard held. It is taken out there when its value is read, with the
//! shard held again: so what the target has last is what the key was last. A large value is sent once, and what commands do
//! to it follows as records.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use darter_cluster::SlotMigration;
use darter_command::keys::dump;
use darter_latch::Grant;
use darter_replica::form::{Formed, Former};
use darter_store::change::{Listeners, next_order};
use darter_store::{Keyed, ScanPosition, Shard, Type};
use darter_txn::leaving::{FollowingRecord, NamedKey};
use darter_txn::{LeavingKeys, LockSet};

use super::peer::{ImportTarget, SentKey, SentValue};
use super::pieces::OpenPieces;
use super::{ExportStage, ExportStop};
use crate::engine::commit;
use crate::engine::origin::{ChangedBy, Origin};
use crate::job::{Job, JobBody, Shards};
use crate::shared::Shared;
use crate::thread_state::ThreadState;

/// The keys of a migration, as its thread sends them.
pub struct SlotCopy {
    /// The server.
    pub shared: &'static Shared,
    /// The migration.
    pub one: SlotMigration,
    /// Keys that have changed since they were sent.
    pub leaving: Arc<LeavingKeys>,
    // those that have one of the slots
    shards: Vec<u16>,
    // how often each was emptied as a whole before
    flushes: HashMap<u16, u64>,
}

/// Bytes of values, index lines, and keys that are read with a shard held.
const BYTES_AT_ONCE: usize = 256 << 10;
const LINES_AT_ONCE: usize = 64;
const KEYS_AT_ONCE: usize = 256;
/// Changed keys, and bytes of records, that may wait while other keys are copied.
const CHANGED_MAX: usize = 1024;
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Values of at least this many bytes are sent once, and records follow them.
const FOLLOWED_BYTES_MIN: usize = 64 << 10;
/// Writers may be held once all that has changed was sent in this time,
const SHORT: Duration = Duration::from_millis(5);
/// and what has changed does not become less for this long at most.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(60);

/// Keys of a shard that were read, and where to go on.
struct ScannedKeys {
    keys: Vec<SentKey>,
    next: Option<ScanPosition>,
}

impl SlotCopy {
    /// Has changes of the slots noted from now on. Errors: the server ends.
    pub fn begin(shared: &'static Shared, one: &SlotMigration) -> Result<SlotCopy, ExportStop> {
        let slots = || one.slots.iter().flat_map(|range| range.start..=range.end);
        let leaving = Arc::new(LeavingKeys::new(slots()));
        let mut shards: Vec<u16> = slots().filter_map(|slot| shared.router.shard_of_slot(slot)).collect();
        shards.sort_unstable();
        shards.dedup();
        let mut copying = SlotCopy { shared, one: one.clone(), leaving, shards, flushes: HashMap::new() };
        for shard in copying.shards.clone() {
            let leaving = copying.leaving.clone();
            let begun = copying.with(shard, move |_, grant| {
                let part = grant.get_mut(shard)?;
                let keys = keys_of(&part.shard, &leaving);
                part.leaving.push(leaving);
                part.shard.changes.listen(Listeners::LEAVING, true);
                Some((part.shard.flushes(), keys))
            });
            match begun.map(Option::unwrap_or_default) {
                Ok((flushes, keys)) => {
                    copying.flushes.insert(shard, flushes);
                    shared.cluster.outgoing.note(&one.id, |progress| progress.total_keys += keys);
                }
                Err(stop) => {
                    copying.end();
                    return Err(stop);
                }
            }
        }
        Ok(copying)
    }

    /// Has changes noted no more.
    pub fn end(&self) {
        for shard in self.shards.iter().copied() {
            let own = self.leaving.clone();
            let _ = self.with(shard, move |_, grant| {
                if let Some(part) = grant.get_mut(shard) {
                    part.leaving.retain(|other| !Arc::ptr_eq(other, &own));
                    let is_any = !part.leaving.is_empty();
                    part.shard.changes.listen(Listeners::LEAVING, is_any);
                }
            });
        }
    }

    /// Sends every key. Errors: see [`ImportTarget::send`]; the migration was ended, or keys are gone that nobody has named.
    pub fn copy(&self, target: &mut ImportTarget) -> Result<(), ExportStop> {
        self.note(ExportStage::Copying);
        let dbs = self.shared.settings.live().dbnum as usize;
        for shard in self.shards.iter().copied() {
            for db in 0..dbs {
                let mut next = Some(ScanPosition::START);
                while let Some(at) = next {
                    let batch = self.read_lines(shard, db, at)?;
                    let len = batch.keys.len() as u64;
                    self.send(target, batch.keys)?;
                    let outgoing = &self.shared.cluster.outgoing;
                    outgoing.sent_keys.fetch_add(len, Relaxed);
                    outgoing.note(&self.one.id, |progress| progress.copied_keys += len);
                    next = batch.next;
                    if len > 0 {
                        self.rest(target)?;
                    }
                    if self.leaving.changed_len() > CHANGED_MAX
                        || self.leaving.record_bytes() > RECORD_BYTES_MAX
                    {
                        self.send_changed(target)?;
                    }
                }
            }
        }
        target.flush()
    }

    /// Sends what has changed, until that takes a short time. Errors: the same; it does not become less.
    pub fn catch_up(&self, target: &mut ImportTarget) -> Result<(), ExportStop> {
        self.note(ExportStage::CatchingUp);
        let began = Instant::now();
        loop {
            let round = Instant::now();
            self.send_changed(target)?;
            target.flush()?;
            if round.elapsed() <= SHORT {
                return Ok(());
            }
            if began.elapsed() > CATCHES_UP_WITHIN {
                return Err("the keys change faster than they can be sent".into());
            }
        }
    }

    /// Sends the keys that have changed until now, and what has followed others. Errors: the same.
    pub fn send_changed(&self, target: &mut ImportTarget) -> Result<(), ExportStop> {
        self.send_records(target)?;
        let mut left = self.leaving.changed_len();
        while left > 0 {
            let names = self.leaving.some(KEYS_AT_ONCE.min(left));
            if names.is_empty() {
                break;
            }
            for (shard, names) in self.by_shard(names) {
                let keys = self.read_named(shard, names)?;
                left = left.saturating_sub(keys.len());
                self.send(target, keys)?;
            }
        }
        Ok(())
    }

    /// Sends what has been done to values that were sent.
    fn send_records(&self, target: &mut ImportTarget) -> Result<(), ExportStop> {
        self.must_be_active()?;
        let mut former = Former::default();
        for FollowingRecord { clock_ms, body } in self.leaving.take_records() {
            let mut sent = Ok(());
            let formed = former.commands(&body, clock_ms, |command: Formed<'_>| {
                if sent.is_ok() {
                    sent = target.command(command.db as usize, command.words);
                }
            });
            sent?;
            formed.map_err(|damage| format!("a change cannot be sent: {damage}"))?;
        }
        Ok(())
    }

    /// Rests as the settings say.
    fn rest(&self, target: &mut ImportTarget) -> Result<(), ExportStop> {
        let throttle_us = self.shared.settings.live().cluster.throttle_us;
        if throttle_us > 0 {
            target.flush()?;
            thread::sleep(Duration::from_micros(throttle_us));
        }
        Ok(())
    }

    /// Waits until each command has ended that had a shard before, and looks whether keys are gone that nobody has named.
    pub fn pass_all(&self) -> Result<(), ExportStop> {
        let known = self.flushes.clone();
        let all = LockSet::all(self.shared.router.shards_len());
        let is_whole = self.with_all(all, move |_, grant| {
            let mut known = known.into_iter();
            known.all(|(id, before)| grant.get_mut(id).is_some_and(|part| part.shard.flushes() == before))
        })?;
        if is_whole { Ok(()) } else { Err(FLUSHED.into()) }
    }

    /// Counts the keys of the slots.
    pub fn keys_len(&self) -> Result<u64, ExportStop> {
        let mut keys = 0;
        for shard in self.shards.iter().copied() {
            let leaving = self.leaving.clone();
            let count = move |_: &mut ThreadState, grant: &mut Shards| {
                grant.get_mut(shard).map_or(0, |part| keys_of(&part.shard, &leaving))
            };
            keys += self.with(shard, count)?;
        }
        Ok(keys)
    }

    /// Notes what the migration does.
    pub fn note(&self, stage: ExportStage) {
        self.shared.cluster.outgoing.note(&self.one.id, |progress| progress.stage = stage);
    }

    /// Errors: somebody has ended the migration.
    pub fn must_be_active(&self) -> Result<(), ExportStop> {
        let map = self.shared.cluster.map();
        if self.shared.replication.is_replica() {
            return Err("the source was replaced".into());
        }
        let found = map.migration(&self.one.id).filter(|found| found.is_active());
        let is_this =
            found.is_some_and(|found| found.attempt == self.one.attempt && !found.runner.is_empty());
        if is_this { Ok(()) } else { Err(ExportStop::Ended) }
    }

    fn by_shard(&self, names: Vec<NamedKey>) -> HashMap<u16, Vec<NamedKey>> {
        let router = &self.shared.router;
        let mut by_shard: HashMap<u16, Vec<NamedKey>> = HashMap::new();
        for named in names {
            by_shard.entry(router.shard_of(router.key(&named.1).hash)).or_default().push(named);
        }
        by_shard
    }

    fn send(&self, target: &mut ImportTarget, keys: Vec<SentKey>) -> Result<(), ExportStop> {
        self.must_be_active()?;
        keys.iter().try_for_each(|key| target.send(self, key))
    }

    fn read_lines(&self, shard: u16, db: usize, at: ScanPosition) -> Result<ScannedKeys, ExportStop> {
        let (leaving, before) = (self.leaving.clone(), self.flushes.get(&shard).copied());
        let batch = self.with(shard, move |local, grant| {
            let is_whole = grant.get_mut(shard).map(|part| part.shard.flushes()) == before;
            let (mut keys, mut bytes, mut next, mut lines) = (Vec::new(), 0, Some(at), 0);
            while let Some(at) = next.filter(|_| bytes < BYTES_AT_ONCE && lines < LINES_AT_ONCE) {
                lines += 1;
                let mut names: Vec<Box<[u8]>> = Vec::new();
                next = grant.get_mut(shard)?.shard.scan(db, at, |record| {
                    if leaving.has(record.key()) {
                        names.push(record.key().into());
                    }
                });
                for name in names {
                    let key = read(local, grant, shard, &leaving, (db, name));
                    bytes += key.value.read_bytes();
                    // One that has just expired was never sent.
                    keys.push(key);
                }
            }
            commit::changes(local, grant, ChangedBy::SERVER);
            is_whole.then_some(ScannedKeys { keys, next })
        });
        batch?.ok_or_else(|| FLUSHED.into())
    }

    fn read_named(&self, shard: u16, names: Vec<NamedKey>) -> Result<Vec<SentKey>, ExportStop> {
        let (leaving, before) = (self.leaving.clone(), self.flushes.get(&shard).copied());
        let keys = self.with(shard, move |local, grant| {
            let is_whole = grant.get_mut(shard).map(|part| part.shard.flushes()) == before;
            // Those that are left out are among the changed ones still.
            let (mut keys, mut bytes) = (Vec::new(), 0);
            for named in names {
                if bytes >= BYTES_AT_ONCE {
                    break;
                }
                let key = read(local, grant, shard, &leaving, named);
                bytes += key.value.read_bytes();
                keys.push(key);
            }
            commit::changes(local, grant, ChangedBy::SERVER);
            is_whole.then_some(keys)
        });
        keys?.ok_or_else(|| FLUSHED.into())
    }

    /// Runs `act` with one shard held, on whichever thread that is. Errors: the server ends.
    pub fn with<T: Send + 'static>(
        &self,
        shard: u16,
        act: impl FnOnce(&mut ThreadState, &mut Shards) -> T + Send + 'static,
    ) -> Result<T, ExportStop> {
        self.with_all(LockSet::one(shard), act)
    }

    fn with_all<T: Send + 'static>(
        &self,
        wanted: LockSet,
        act: impl FnOnce(&mut ThreadState, &mut Shards) -> T + Send + 'static,
    ) -> Result<T, ExportStop> {
        let (tell, hear) = sync_channel(1);
        let call = move |local: &mut ThreadState, grant: &mut Shards| {
            let _ = tell.send(act(local, grant));
        };
        let home = self.shared.home_of(wanted.ids().first().copied().unwrap_or_default());
        let body = JobBody::Call(Some(Box::new(call)));
        Job::new(Origin::nobody(home), body, wanted, Grant::empty()).enqueue_from_outside(self.shared);
        hear.recv().map_err(|_| "the server ends".into())
    }
}

/// Keys of the slots in one shard. Cost: O(slots of the shard) for each database with keys.
fn keys_of(shard: &Shard, leaving: &LeavingKeys) -> u64 {
    let dbs = (0..shard.dbs_len()).filter(|db| !shard.db(*db).is_empty());
    let slots: Vec<u16> = leaving.slots().filter(|slot| shard.has_slot(*slot)).collect();
    let keys = |db: usize| slots.iter().filter_map(|slot| shard.slot_keys(db, *slot)).sum::<usize>();
    dbs.map(|db| keys(db) as u64).sum()
}

const FLUSHED: &str = "the source was flushed";

/// Reads a key as it is now.
fn read(
    local: &ThreadState,
    grant: &mut Shards,
    shard: u16,
    leaving: &LeavingKeys,
    named: NamedKey,
) -> SentKey {
    leaving.settle(&named);
    let (value, is_followed) = grant.get_mut(shard).map_or((SentValue::Missing, false), |part| {
        if let Some(pieces) = OpenPieces::begin(local, shard, part, &named) {
            return (SentValue::Pieces(pieces), true);
        }
        let key = local.shared.router.key(&named.1);
        let place = Keyed::find(&mut part.shard, named.0, key, local.now_ms);
        let Some(payload) = dump::payload(&place) else { return (SentValue::Missing, false) };
        // A sample changes the series of a compaction, too: its record would come there a second time.
        let is_alone = place.kind() != Some(Type::Series);
        let is_followed = payload.len() >= FOLLOWED_BYTES_MIN && is_alone;
        let (mut marks, deadline_ms) = (dump::marks(&place), place.deadline_ms().unwrap_or(0));
        if place.has_links() {
            // The series of its rules are in the same slot.
            marks.push(b"LINKS".to_vec());
        }
        (SentValue::Whole { payload, deadline_ms, marks }, is_followed)
    });
    if is_followed {
        leaving.follow(&named, next_order());
    }
    let (db, name) = named;
    SentKey { db, name, value }
}
