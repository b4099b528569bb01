//! A divided batch run by several threads: the one that has its shards, and those that have time.
//!
//! A part is run with the shards it needs and no others. What it has to say to the journal is put together with that of the
//! other parts, by the thread that has all shards again (`apply`): nothing of a batch is seen before all of it has run.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_txn::Crew;

use super::apply::run_steps;
use super::batch::ApplyBatch;
use super::split::{SplitPart, StepRun, THREADS_MAX};
use crate::job::Shards;
use crate::shared::ThreadMessage;
use crate::thread_state::ThreadState;

/// The threads that run parts.
pub type ApplyCrew = Crew<BatchPart, PartEnd>;

/// A part that is to be run.
pub struct BatchPart {
    // its run, and its place there
    number: (usize, usize),
    batch: Arc<ApplyBatch>,
    grant: Shards,
    db: usize,
}

/// A part that has run.
pub struct PartEnd {
    number: (usize, usize),
    grant: Shards,
    // for the journal
    notes: Vec<u8>,
    ran: Result<(), String>,
}

/// Another thread is called for so many commands.
const STEPS_EACH: usize = 64;

/// Runs a divided batch over `grant`, from the database `db` on. What is for the journal goes to its open record, if one is
/// open. The caller alone applies anything meanwhile.
///
/// Errors: a command cannot be run; what came before it was run.
pub fn run(
    local: &mut ThreadState,
    grant: &mut Shards,
    batch: &Arc<ApplyBatch>,
    db: &mut usize,
) -> Result<(), String> {
    let runs = batch.split.iter().flat_map(|split| &split.runs);
    for (number, run) in runs.enumerate() {
        match run {
            StepRun::InOrder(range) => {
                run_steps(local, grant, batch, db, |at| batch.steps.get(range.clone())?.get(at))?;
            }
            StepRun::Divided { parts, db: selected } => {
                run_divided(local, grant, batch, (number, parts), *db)?;
                *db = selected.unwrap_or(*db);
            }
        }
    }
    Ok(())
}

fn run_divided(
    local: &mut ThreadState,
    grant: &mut Shards,
    batch: &Arc<ApplyBatch>,
    (run, parts): (usize, &[SplitPart]),
    db: usize,
) -> Result<(), String> {
    let (mut steps_len, mut waiting) = (0, Vec::with_capacity(parts.len()));
    for (at, part) in parts.iter().enumerate().rev() {
        let (number, grant) = ((run, at), grant.split_off(part.first));
        waiting.push(BatchPart { number, batch: batch.clone(), grant, db });
        steps_len += part.steps.len();
    }
    let shared = local.shared;
    let crew = &shared.replication.crew;
    crew.begin(waiting);
    let threads = shared.handles.len();
    for other in 1..threads.min(THREADS_MAX).min(steps_len / STEPS_EACH) {
        let other = (usize::from(local.thread) + other) % threads;
        if crew.should_call(other) {
            shared.handles[other].send(ThreadMessage::Help);
        }
    }
    run_parts(local, PartOf::Own);
    let mut ends = crew.wait();
    ends.sort_unstable_by_key(|end| end.number);
    let mut ran = Ok(());
    for end in ends {
        grant.append(end.grant);
        if !end.notes.is_empty() {
            local.journal.append(&shared.journal, 0, |out| out.extend_from_slice(&end.notes));
        }
        ran = ran.and(end.ran);
    }
    ran
}

/// Runs parts that nobody has begun, on a thread that was called.
pub fn help(local: &mut ThreadState) {
    local.shared.replication.crew.come(usize::from(local.thread));
    run_parts(local, PartOf::Others);
}

/// The batch of a part.
#[derive(Clone, Copy)]
enum PartOf {
    Own,
    Others,
}

fn run_parts(local: &mut ThreadState, whose: PartOf) {
    let replication = &local.shared.replication;
    while let Some(part) = replication.crew.take(usize::from(local.thread)) {
        replication.counts.parts[whose as usize].fetch_add(1, Relaxed);
        replication.crew.end(part.run(local));
    }
}

impl BatchPart {
    fn run(self, local: &mut ThreadState) -> PartEnd {
        let BatchPart { number, batch, mut grant, mut db } = self;
        let own = batch.split.as_ref().and_then(|split| split.runs.get(number.0));
        let numbers = match own {
            Some(StepRun::Divided { parts, .. }) => parts.get(number.1).map_or(&[][..], |part| &part.steps),
            _ => &[],
        };
        // They lie apart: fetched together, they are waited for once.
        for step in numbers.iter().filter_map(|number| batch.steps.get(*number as usize)) {
            black_box(batch.args(step).at(1).first().copied());
        }
        let open = local.journal.set_group_aside();
        if local.shared.journal.is_on() {
            local.journal.begin_group();
        }
        let nth = |at: usize| numbers.get(at).and_then(|number| batch.steps.get(*number as usize));
        let ran = run_steps(local, &mut grant, &batch, &mut db, nth);
        let notes = local.journal.set_group_aside().unwrap_or_default();
        local.journal.resume_group(open);
        PartEnd { number, grant, notes, ran }
    }
}
