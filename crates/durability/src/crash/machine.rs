//! A simulated machine: threads of which one runs at a time, by a seed, and files that say each step before it is done.
//!
//! A thread may lose its turn before each operation on files and whenever it waits for a lock. At the operation that a test has
//! chosen the process is killed: that operation is done, done in part or not at all, and every thread unwinds.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use darter_base::rng::Rng;

use super::disk::SimulatedDisk;

/// Something that the simulated files leave out, so that a test sees that it is missed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mutant {
    #[default]
    None,
    /// Segments are not synced.
    SegmentSync,
    /// The manifest is renamed before it is synced.
    ManifestSync,
    /// A base is renamed before it is synced.
    BaseSync,
    /// The head of a tail is not synced.
    TailSync,
    /// Folders are not synced.
    FolderSync,
    /// A sync that fails says nothing.
    SyncError,
    /// Stores to a mapped file are lost with the process.
    MappedStores,
    /// Writes are answered before they are synced.
    EarlyAnswer,
    /// Every third sync does nothing.
    ThirdSync,
}

/// The payload with which threads of a killed process unwind.
struct Killed;

/// How much of the last operation is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationFate {
    Whole,
    Part,
}

/// What all threads see.
pub struct MachineState {
    pub disk: SimulatedDisk,
    pub rng: Rng,
    pub mutant: Mutant,
    /// Something did not fit the disk since the process began.
    pub was_full: bool,
    /// A sync of a segment has failed, and the process has not noted it yet.
    pub has_failed: bool,
    /// Syncs that fail from now on.
    pub failing_syncs: u32,
    pub syncs: u64,
    /// The file system gives blocks once.
    pub keeps_blocks: bool,
    pub boot: u8,
    pub clock_ms: u64,
    /// Operations since the process began.
    pub operations: u64,
    stop_at: u64,
    is_dead: bool,
    alive: Vec<bool>,
    current: usize,
    idle: u64,
    /// A thread keeps its turn this many times out of 16.
    pub patience: u64,
    /// What was done, if somebody wants to know.
    pub told: Option<VecDeque<String>>,
}

struct Inner {
    state: Mutex<MachineState>,
    turns: Vec<Condvar>,
}

/// A simulated machine.
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

/// No process has more threads.
pub const THREADS_MAX: usize = 16;
/// Lines of what was done that are kept.
const TOLD_MAX: usize = 500;

thread_local! {
    static SEAT: RefCell<Option<(Machine, usize)>> = const { RefCell::new(None) };
}

/// A record has got this sequence.
pub fn took(sequence: u64) {
    if let Some(seen) = SEQUENCES.with_borrow(Clone::clone) {
        seen(sequence);
    }
}

type SeesSequence = std::rc::Rc<dyn Fn(u64)>;

thread_local! {
    static SEQUENCES: RefCell<Option<SeesSequence>> = const { RefCell::new(None) };
}

/// Calls `sees` with each sequence that a record of this thread gets while `body` runs.
pub fn with_sequences<R>(sees: SeesSequence, body: impl FnOnce() -> R) -> R {
    SEQUENCES.set(Some(sees));
    let out = body();
    SEQUENCES.set(None);
    out
}

/// Locks a mutex; a simulated thread lets others run while it waits.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    use std::sync::TryLockError::{Poisoned, WouldBlock};
    loop {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(WouldBlock) if wait() => {}
            Err(WouldBlock) => return mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner()),
        }
    }
}

/// Lets other threads run; false if this is no simulated thread, or it is unwinding.
pub fn wait() -> bool {
    let Some((machine, seat)) = SEAT.with_borrow(Clone::clone) else { return false };
    if thread::panicking() {
        return false;
    }
    let mut state = machine.state();
    state.idle += 1;
    assert!(state.idle < 100_000, "no thread gets on: a deadlock");
    drop(machine.pass(state, seat, 16));
    true
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Machine")
    }
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        let state = MachineState {
            disk: SimulatedDisk::with_room(usize::MAX / 2),
            rng: Rng::new(seed),
            mutant: Mutant::None,
            was_full: false,
            has_failed: false,
            failing_syncs: 0,
            syncs: 0,
            keeps_blocks: true,
            boot: 1,
            clock_ms: 1_000_000,
            operations: 0,
            stop_at: u64::MAX,
            is_dead: false,
            alive: Vec::new(),
            current: 0,
            idle: 0,
            patience: 10,
            told: None,
        };
        let turns = (0..THREADS_MAX).map(|_| Condvar::new()).collect();
        Machine(Arc::new(Inner { state: Mutex::new(state), turns }))
    }

    pub fn state(&self) -> MutexGuard<'_, MachineState> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A number below `n`, by the seed.
    pub fn below(&self, n: u64) -> u64 {
        self.state().rng.below(n)
    }

    /// Notes something for whoever reads how it failed.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        self.state().tell(what);
    }

    /// Does an operation, unless the process is killed before it.
    pub fn operate<R>(
        &self,
        what: impl FnOnce() -> String,
        operation: impl FnOnce(&mut MachineState, OperationFate) -> R,
    ) -> R {
        let seat = SEAT.with_borrow(|seat| seat.as_ref().map(|(_, seat)| *seat));
        let mut state = self.state();
        // A value that is dropped while its thread unwinds, or a test that looks at the files.
        let Some(seat) = seat.filter(|_| !thread::panicking()) else {
            if state.is_dead && seat.is_some() {
                let mut nothing = MachineState { disk: state.disk.clone(), ..MachineState::inert() };
                return operation(&mut nothing, OperationFate::Whole);
            }
            return operation(&mut state, OperationFate::Whole);
        };
        state = self.perhaps_pass(state, seat);
        state.idle = 0;
        state.operations += 1;
        state.clock_ms += 1;
        let is_last = state.operations == state.stop_at;
        state.tell(|| format!("{seat}: {}{}", what(), if is_last { " - killed" } else { "" }));
        if !is_last {
            return operation(&mut state, OperationFate::Whole);
        }
        match state.rng.below(3) {
            0 => {}
            1 => drop(operation(&mut state, OperationFate::Part)),
            _ => drop(operation(&mut state, OperationFate::Whole)),
        }
        self.kill(state);
        resume_unwind(Box::new(Killed))
    }

    fn kill(&self, mut state: MutexGuard<'_, MachineState>) {
        state.is_dead = true;
        drop(state);
        self.0.turns.iter().for_each(Condvar::notify_all);
    }

    fn perhaps_pass<'a>(
        &'a self,
        state: MutexGuard<'a, MachineState>,
        seat: usize,
    ) -> MutexGuard<'a, MachineState> {
        let share = 16 - state.patience;
        self.pass(state, seat, share)
    }

    /// Lets another thread run `share` times out of 16, and comes back when it is this one's turn.
    fn pass<'a>(
        &'a self,
        mut state: MutexGuard<'a, MachineState>,
        seat: usize,
        share: u64,
    ) -> MutexGuard<'a, MachineState> {
        if state.is_dead {
            drop(state);
            resume_unwind(Box::new(Killed));
        }
        if state.rng.below(16) < share
            && let Some(next) = state.choose(Some(seat))
        {
            state.current = next;
            self.0.turns[next].notify_all();
            state = self.await_turn(state, seat);
        }
        state
    }

    fn await_turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, MachineState>,
        seat: usize,
    ) -> MutexGuard<'a, MachineState> {
        while state.current != seat && !state.is_dead {
            state = self.0.turns[seat].wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if state.is_dead {
            drop(state);
            resume_unwind(Box::new(Killed));
        }
        state
    }

    /// Runs the threads of a process until all have ended, or it is killed at operation `stop_at`; returns whether it was.
    /// A thread that panics otherwise ends the test.
    pub fn run(&self, stop_at: u64, bodies: Vec<Box<dyn FnOnce() + Send + '_>>) -> bool {
        {
            let mut state = self.state();
            (state.operations, state.stop_at, state.is_dead, state.idle) = (0, stop_at, false, 0);
            state.alive = vec![true; bodies.len()];
            state.current = state.rng.below(bodies.len() as u64) as usize;
        }
        let mut failed = None;
        if bodies.len() == 1 {
            failed = bodies.into_iter().next().and_then(|body| self.sit(0, body).err());
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> = bodies
                    .into_iter()
                    .enumerate()
                    .map(|(seat, body)| {
                        thread::Builder::new()
                            .stack_size(256 << 10)
                            .spawn_scoped(scope, move || self.sit(seat, body))
                            .expect("a thread")
                    })
                    .collect();
                for thread in threads {
                    if let Err(payload) = thread.join().unwrap_or_else(Err) {
                        failed.get_or_insert(payload);
                    }
                }
            });
        }
        if let Some(payload) = failed {
            resume_unwind(payload);
        }
        let mut state = self.state();
        let was_killed = state.is_dead;
        (state.is_dead, state.stop_at) = (false, u64::MAX);
        was_killed
    }

    fn sit(&self, seat: usize, body: Box<dyn FnOnce() + Send + '_>) -> thread::Result<()> {
        SEAT.set(Some((self.clone(), seat)));
        let ended = catch_unwind(AssertUnwindSafe(|| {
            drop(self.await_turn(self.state(), seat));
            body();
        }));
        SEAT.set(None);
        SEQUENCES.set(None);
        let mut state = self.state();
        state.alive[seat] = false;
        match ended {
            Err(payload) if payload.is::<Killed>() => Ok(()),
            Err(payload) => {
                self.kill(state);
                Err(payload)
            }
            Ok(()) => {
                if let Some(next) = state.choose(None) {
                    state.current = next;
                    self.0.turns[next].notify_all();
                }
                Ok(())
            }
        }
    }

    /// The machine loses its power, and begins again.
    pub fn lose_power(&self) {
        let state = &mut *self.state();
        state.disk.lose_power(&mut state.rng);
        state.boot += 1;
    }
}

impl MachineState {
    fn inert() -> MachineState {
        MachineState {
            disk: SimulatedDisk::default(),
            rng: Rng::new(0),
            mutant: Mutant::None,
            was_full: false,
            has_failed: false,
            failing_syncs: 0,
            syncs: 0,
            keeps_blocks: true,
            boot: 0,
            clock_ms: 0,
            operations: 0,
            stop_at: 0,
            is_dead: true,
            alive: Vec::new(),
            current: 0,
            idle: 0,
            patience: 16,
            told: None,
        }
    }

    fn choose(&mut self, but: Option<usize>) -> Option<usize> {
        let is_other = |seat: &usize| self.alive[*seat] && Some(*seat) != but;
        let others = (0..self.alive.len()).filter(is_other).count() as u64;
        let at = self.rng.below(others) as usize;
        (0..self.alive.len()).filter(|seat| self.alive[*seat] && Some(*seat) != but).nth(at)
    }

    pub fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told {
            told.push_back(what());
            if told.len() > TOLD_MAX {
                told.pop_front();
            }
        }
    }
}
