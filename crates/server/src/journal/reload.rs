//! DEBUG LOADAOF: empties everything and reads the journal back while the server runs, as a restart would.

use std::thread;
use std::time::{Duration, Instant};

use crate::engine::lease;
use crate::journal::{replay, rewrite};
use crate::replication::replace;
use crate::script_run::know_libraries;
use crate::shared::{Shared, ThreadMessage};
use crate::snapshot::load;
use crate::thread_state::ThreadState;

/// Called at the end, on the thread that read.
pub type Then = Box<dyn FnOnce(&'static Shared, &Result<(), String>) + Send>;

/// Begins a reload. From its next turn on, each thread answers clients that the server is loading.
///
/// Errors: a new base is being written, a load is under way, or there can be no more threads.
pub fn spawn(shared: &'static Shared, then: Then) -> Result<(), String> {
    let loading = &shared.snapshots.loading;
    if loading.is_on() || shared.journal.is_rewriting() {
        return Err("a load or a rewrite is under way".to_owned());
    }
    let bytes = rewrite::bytes_there(&shared.settings.live())?;
    if bytes == 0 {
        return Err("there is no journal".to_owned());
    }
    let turns = shared.turns();
    if !replace::begin_other_load(shared, |loading| loading.begin_replay(bytes)) {
        return Err("a load or a rewrite is under way".to_owned());
    }
    let body = move || {
        shared.snapshots.roam();
        let outcome = run(shared, &turns);
        loading.end();
        then(shared, &outcome);
    };
    thread::Builder::new().name("darter-load".to_owned()).spawn(body).map(drop).map_err(|error| {
        loading.end();
        error.to_string()
    })
}

fn run(shared: &'static Shared, turns: &[u64]) -> Result<(), String> {
    let journal = &shared.journal;
    wait_for_turns(shared, turns)?;
    let dir = rewrite::dir_of(&shared.settings.live())?;
    let paused = {
        // While all shards are held nothing changes: neither commands nor clients that are served note anything.
        let held: Vec<_> = shared.cells.iter().map(lease::take_asleep).collect();
        // What is read is not to be noted again: a record that nobody writes would be a gap.
        let paused = write_out(shared).map(|()| journal.pause());
        held.into_iter().for_each(|held| lease::release_as_stranger(shared, held));
        paused?
    };
    load::empty(shared);
    know_libraries(&mut ThreadState::new(shared, 0), &[]);
    let loaded = replay::load(shared, &dir);
    journal.resume(paused);
    let loaded = loaded?.ok_or_else(|| format!("there is no journal in {}", dir.display()))?;
    if !loaded.ending.is_sound() {
        return Err("the journal is damaged; the log says where".to_owned());
    }
    shared.snapshots.note_loaded(shared, None);
    shared.replication.begin_anew(shared);
    Ok(())
}

/// Has everything that is noted written and synced. The caller holds all shards.
fn write_out(shared: &Shared) -> Result<(), String> {
    // What a thread has noted is written at the end of its turn.
    wait_for_turns(shared, &shared.turns())?;
    let journal = &shared.journal;
    if !journal.is_on() {
        return Ok(());
    }
    let end = journal.end();
    journal.ask_for_sync();
    wait(shared, || journal.durable_before() >= end)
}

/// Waits until each thread has begun another turn.
fn wait_for_turns(shared: &Shared, then: &[u64]) -> Result<(), String> {
    wait(shared, || shared.has_turned(then, 1))
}

/// Waits for what other threads do; sleeping ones are woken.
fn wait(shared: &Shared, is_done: impl Fn() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !is_done() {
        if began.elapsed() > PATIENCE {
            return Err("other threads are busy for too long".to_owned());
        }
        shared.handles.iter().for_each(|handle| handle.send(ThreadMessage::Unpaused));
        thread::sleep(LOOK);
    }
    Ok(())
}

const PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(1);
