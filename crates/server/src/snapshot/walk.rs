//! The part of housekeeping that writes what no change has written: each thread goes over the shards it is home to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use darter_latch::Held;
use darter_txn::ShardPart;

use crate::engine::lease;
use crate::job::Job;
use crate::thread_state::ThreadState;

use super::run::SnapshotRun;

/// Index lines written between two looks at the clock: some microseconds.
const HOMES_PER_STEP: usize = 4;
/// One visit to a shard while clients are served, and the rest after it, as a multiple.
const VISIT_MAX: Duration = Duration::from_micros(50);
const REST: u32 = 3;
/// One visit when the thread serves nobody; others on its core get a chance after it.
const IDLE_VISIT_MAX: Duration = Duration::from_micros(200);
const IDLE_REST: Duration = Duration::from_micros(50);
/// Rest while the file is behind.
const CROWDED_REST: Duration = Duration::from_micros(500);

/// One thread's walk over its shards.
#[derive(Default)]
pub struct Walker {
    run: Option<Arc<SnapshotRun>>,
    generation: u64,
    // shards that are not written yet
    left: Vec<u16>,
    next_at: Option<Instant>,
}

impl Walker {
    /// How long the thread may sleep before the walk goes on; `None` when there is none.
    pub fn sleep(&self, now: Instant) -> Option<Duration> {
        self.next_at.map(|at| at.saturating_duration_since(now))
    }

    /// Goes on for one visit if it is time.
    pub fn step(&mut self, local: &mut ThreadState, rooms: impl Iterator<Item = u16>) {
        let generation = local.shared.snapshots.generation();
        if generation == self.generation && self.run.is_none() {
            return;
        }
        if generation != self.generation {
            self.generation = generation;
            self.run = local.shared.snapshots.current();
            self.left = if self.run.is_some() { rooms.collect() } else { Vec::new() };
        }
        let Some(run) = self.run.clone() else {
            self.next_at = None;
            return;
        };
        let (now, was_idle) = (Instant::now(), local.is_quiet);
        if self.next_at.is_some_and(|at| at > now) && !run.is_cancelled() {
            return;
        }
        if !run.is_cut() || run.pipe.is_crowded() {
            self.next_at = Some(now + CROWDED_REST);
            return;
        }
        let budget = if was_idle { IDLE_VISIT_MAX } else { VISIT_MAX };
        self.visit(local, &run, now + budget);
        if self.left.is_empty() {
            self.run = None;
            self.next_at = None;
        } else {
            let ended = Instant::now();
            self.next_at = Some(if was_idle { ended + IDLE_REST } else { ended + (ended - now) * REST });
        }
    }

    /// Writes keys of one shard, or of several small ones, until the time is up.
    fn visit(&mut self, local: &mut ThreadState, run: &Arc<SnapshotRun>, until: Instant) {
        for _ in 0..self.left.len() {
            let Some(id) = self.left.pop() else { return };
            let Some(mut part) = lease::try_one(&local.shared.cells[usize::from(id)]) else {
                self.left.insert(0, id);
                continue;
            };
            let is_done = walk(&mut part, run, until);
            if is_done {
                end(&mut part, run);
            } else {
                self.left.push(id);
            }
            lease::release_one(local, part);
            if !is_done || Instant::now() >= until {
                return;
            }
        }
    }
}

/// Walks over one shard; true when all of it is written, or needs not be.
fn walk(part: &mut Held<ShardPart, Job>, run: &SnapshotRun, until: Instant) -> bool {
    loop {
        if run.pipe.is_broken() || part.shard.walk_cut(HOMES_PER_STEP) {
            return true;
        }
        if Instant::now() >= until || run.pipe.is_crowded() {
            return false;
        }
    }
}

fn end(part: &mut Held<ShardPart, Job>, run: &SnapshotRun) {
    let Some((keeper, early)) = part.shard.end_cut() else { return };
    // It sends what it still has.
    drop(keeper);
    run.end_shard(early);
}
