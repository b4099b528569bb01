//! A running script as seen by other threads: its start, whether it has written, whether it must end.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};
use std::sync::{Mutex, MutexGuard};

use darter_wire::{Args, OwnedArgs};

/// One thread's script, if one runs.
#[derive(Debug, Default)]
pub struct ScriptWatch {
    since_ms: AtomicU64,
    state: AtomicU8,
    kind: AtomicU8,
    function: Mutex<RunningScript>,
    memory_bytes: AtomicU64,
}

const IDLE: u8 = 0;
const CLEAN: u8 = 1;
const WRITTEN: u8 = 2;
const KILLED: u8 = 3;
/// Killed although it may have written: the server ends.
const FORCED: u8 = 4;

/// The kind of running code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptKind {
    /// A script of EVAL and similar commands.
    Script,
    /// A function of a library.
    Function,
}

/// A function that runs, and the command that called it.
#[derive(Clone, Debug, Default)]
pub struct RunningScript {
    /// Its name.
    pub name: String,
    /// The command, its own name first.
    pub command: OwnedArgs,
}

/// The result of an attempt to end a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Killing {
    /// It ends.
    Done,
    /// It has written already.
    Refused,
    /// No script runs.
    Idle,
}

impl ScriptWatch {
    /// Notes that a script begins at `now_ms`, Unix milliseconds.
    pub fn begin(&self, now_ms: u64) {
        self.start(now_ms, ScriptKind::Script);
    }

    /// Notes that a function begins. Cost: a copy of `command`.
    pub fn begin_function(&self, now_ms: u64, name: &str, command: Args<'_>) {
        *self.function() = RunningScript { name: name.to_owned(), command: command.to_owned() };
        self.start(now_ms, ScriptKind::Function);
    }

    fn start(&self, now_ms: u64, kind: ScriptKind) {
        self.since_ms.store(now_ms, Release);
        self.kind.store(kind as u8, Release);
        self.state.store(CLEAN, Release);
    }

    /// Notes its end; returns true if it was killed.
    pub fn end(&self) -> bool {
        self.state.swap(IDLE, AcqRel) >= KILLED
    }

    /// Notes that it is about to write; returns false if it has been killed, and must not write.
    pub fn note_write(&self) -> bool {
        self.state.compare_exchange(CLEAN, WRITTEN, AcqRel, Acquire).is_ok()
            || self.state.load(Acquire) == WRITTEN
    }

    /// Ends it, if it has written nothing.
    pub fn kill(&self) -> Killing {
        match self.state.compare_exchange(CLEAN, KILLED, AcqRel, Acquire) {
            Ok(_) | Err(KILLED | FORCED) => Killing::Done,
            Err(WRITTEN) => Killing::Refused,
            Err(_) => Killing::Idle,
        }
    }

    /// Ends it even if it has written: the process will keep nothing of it.
    pub fn force(&self) {
        let _ = self.state.fetch_update(AcqRel, Acquire, |state| (state != IDLE).then_some(FORCED));
    }

    /// Returns true if it must end.
    pub fn is_killed(&self) -> bool {
        self.state.load(Acquire) >= KILLED
    }

    /// Returns true if it ends because the server does, so that its effects are incomplete.
    pub fn is_forced(&self) -> bool {
        self.state.load(Acquire) == FORCED
    }

    /// Notes the present memory of the thread's Lua state.
    pub fn note_memory(&self, bytes: usize) {
        self.memory_bytes.store(bytes as u64, Release);
    }

    /// The memory of the thread's Lua state when last noted, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Acquire)
    }

    /// The start of the running or last script, Unix milliseconds.
    pub fn since_ms(&self) -> u64 {
        self.since_ms.load(Acquire)
    }

    /// The kind of the running or last script.
    pub fn kind(&self) -> ScriptKind {
        if self.kind.load(Acquire) == ScriptKind::Script as u8 {
            ScriptKind::Script
        } else {
            ScriptKind::Function
        }
    }

    /// Returns true if one runs that began before `ms_ago` milliseconds.
    pub fn runs_for(&self, ms_ago: u64, now_ms: u64) -> bool {
        self.state.load(Acquire) != IDLE && now_ms.saturating_sub(self.since_ms.load(Acquire)) > ms_ago
    }

    /// The running function, and its running time in milliseconds.
    pub fn running_function(&self, now_ms: u64) -> Option<(RunningScript, u64)> {
        let function = self.function();
        let runs = self.state.load(Acquire) != IDLE && self.kind() == ScriptKind::Function;
        runs.then(|| (function.clone(), now_ms.saturating_sub(self.since_ms.load(Acquire))))
    }

    fn function(&self) -> MutexGuard<'_, RunningScript> {
        self.function.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_written_is_not_killed_and_what_is_killed_does_not_write() {
        let watch = ScriptWatch::default();
        assert_eq!(watch.kill(), Killing::Idle);
        watch.begin(1000);
        assert!(watch.runs_for(500, 2000) && !watch.runs_for(5000, 2000));
        assert!(watch.note_write() && watch.note_write());
        assert_eq!(watch.kill(), Killing::Refused);
        assert!(!watch.end() && !watch.runs_for(0, 9000));
        watch.begin(1000);
        assert_eq!((watch.kill(), watch.kill()), (Killing::Done, Killing::Done));
        assert!(!watch.note_write() && watch.is_killed() && watch.end() && !watch.is_killed());
    }

    #[test]
    fn the_end_of_the_server_ends_what_has_written() {
        let watch = ScriptWatch::default();
        watch.force();
        assert!(!watch.is_killed());
        watch.begin(1);
        assert!(watch.note_write() && watch.running_function(9).is_none());
        watch.force();
        assert!(watch.is_killed() && watch.is_forced() && !watch.note_write() && watch.end());
        watch.begin_function(1, "f", OwnedArgs::from_slices(&[b"FCALL", b"f", b"0"]).args());
        let (running, for_ms) = watch.running_function(9).expect("a function");
        assert_eq!((running.name.as_str(), running.command.args().len(), for_ms), ("f", 3, 8));
        assert_eq!((watch.kind(), watch.end()), (ScriptKind::Function, false));
    }
}
