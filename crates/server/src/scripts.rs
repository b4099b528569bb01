//! The scripts all threads know, by their SHA-1.
//!
//! SCRIPT LOAD and EVAL put them here; a thread compiles one when it first runs it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use darter_command::Fault;
use darter_script::{Killing, Library, Script, ScriptKind, ScriptWatch};

use crate::libraries::Libraries;

/// Scripts that came by EVAL alone are forgotten beyond this number, the oldest first.
const EVALUATED_MAX: usize = 500;

/// A script that has run for so long is one that somebody may mean who sends SCRIPT KILL.
const KILLABLE_MS: u64 = 500;

/// What others are answered while a script, or a function, runs for too long.
pub fn busy_line(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::Script => {
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
        }
        ScriptKind::Function => {
            "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE."
        }
    }
}

/// A script and what is known of it.
pub struct Cached {
    /// The script.
    pub script: Script,
    /// It cannot touch a key that its caller did not name: its source shows it.
    pub is_contained: bool,
}

/// All scripts.
pub struct Scripts {
    /// The script each thread runs, if it does.
    pub watches: Vec<Arc<ScriptWatch>>,
    libraries: RwLock<Libraries>,
    known: RwLock<Known>,
    flushes: AtomicU64,
    kills: AtomicU32,
    /// Scripts may call DEBUG (DEBUG SET-DISABLE-DENY-SCRIPTS).
    pub may_debug: AtomicBool,
}

#[derive(Default)]
struct Known {
    by_sha: HashMap<[u8; 40], Arc<Cached>>,
    evaluated: VecDeque<[u8; 40]>,
    bytes: usize,
}

impl Scripts {
    /// No scripts yet, for so many threads.
    pub fn new(threads: usize) -> Scripts {
        let watches = (0..threads).map(|_| Arc::default()).collect();
        Scripts {
            watches,
            libraries: RwLock::default(),
            known: RwLock::default(),
            flushes: AtomicU64::new(0),
            kills: AtomicU32::new(0),
            may_debug: AtomicBool::new(false),
        }
    }

    /// Whether thread `thread` runs a script for longer than `busy_ms`; 0 is never too long.
    pub fn is_busy(&self, thread: usize, busy_ms: u64, now_ms: u64) -> bool {
        busy_ms > 0 && self.watches.get(thread).is_some_and(|watch| watch.runs_for(busy_ms, now_ms))
    }

    /// What one of the threads runs for longer than `busy_ms`, if one does; 0 is never too long.
    pub fn busy(&self, busy_ms: u64, now_ms: u64) -> Option<ScriptKind> {
        (0..self.watches.len())
            .find(|&thread| self.is_busy(thread, busy_ms, now_ms))
            .map(|thread| self.watches[thread].kind())
    }

    /// Bytes that the threads' Lua held when it was last looked at.
    pub fn lua_bytes(&self) -> u64 {
        self.watches.iter().map(|watch| watch.memory_bytes()).sum()
    }

    /// Ends all that runs, whatever it has written, because the server ends and keeps nothing.
    pub fn force_all(&self) {
        self.watches.iter().for_each(|watch| watch.force());
    }

    /// Ends the scripts, or functions, that have written nothing, if one of them is overdue or has at least run for
    /// [`KILLABLE_MS`]. Errors: there is none, or none that may end.
    pub fn kill(&self, kind: ScriptKind, busy_ms: u64, now_ms: u64) -> Result<(), Fault> {
        const IDLE: Fault = Fault::text("NOTBUSY No scripts in execution right now.");
        let overdue = self.kill_since(kind, busy_ms, now_ms, true);
        // Where one runs at a time the command would be read when that is overdue, and end it then.
        let ended = overdue.or_else(|| self.kill_since(kind, KILLABLE_MS.min(busy_ms), now_ms, false));
        ended.unwrap_or(Err(IDLE))
    }

    /// The same for what has run for longer than `for_ms`; `None` when nothing has.
    fn kill_since(
        &self,
        kind: ScriptKind,
        for_ms: u64,
        now_ms: u64,
        is_overdue: bool,
    ) -> Option<Result<(), Fault>> {
        const WRITTEN: Fault = Fault::text(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        );
        let mut ended = None;
        for watch in self.watches.iter().filter(|watch| watch.runs_for(for_ms, now_ms)) {
            if watch.kind() != kind {
                ended = ended.or(Some(Err(Fault::Text(busy_line(watch.kind()).into()))));
                continue;
            }
            if is_overdue {
                // First: nothing that waits for what it holds may begin.
                self.note_kill(kind);
            }
            match watch.kill() {
                Killing::Done => ended = Some(Ok(())),
                Killing::Refused if !matches!(ended, Some(Ok(()))) => ended = Some(Err(WRITTEN)),
                Killing::Refused | Killing::Idle => {}
            }
        }
        if is_overdue && matches!(ended, Some(Ok(()))) {
            // What runs beside it began before anybody was told; where one runs at a time it would not have begun.
            for watch in self.watches.iter().filter(|watch| watch.kind() == kind) {
                watch.kill();
            }
        }
        ended
    }

    /// A number that changes with each attempt to kill something overdue.
    pub fn kills(&self) -> u32 {
        self.kills.load(Acquire)
    }

    /// What was overdue and to be killed last, if that was since `kills` was read.
    pub fn killed_since(&self, kills: u32) -> Option<ScriptKind> {
        let now = self.kills();
        let kind =
            if now & 1 == ScriptKind::Script as u32 { ScriptKind::Script } else { ScriptKind::Function };
        (now != kills).then_some(kind)
    }

    // The lowest bit is the kind; the others count.
    fn note_kill(&self, kind: ScriptKind) {
        let next = |kills: u32| Some((kills & !1).wrapping_add(2) | kind as u32);
        let _ = self.kills.fetch_update(Release, Acquire, next);
    }

    /// All libraries of functions, by name.
    pub fn libraries(&self) -> RwLockReadGuard<'_, Libraries> {
        self.libraries.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The same, to change them.
    pub fn libraries_mut(&self) -> RwLockWriteGuard<'_, Libraries> {
        self.libraries.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The library of the function called `name`, and its place there.
    pub fn function(&self, name: &[u8]) -> Option<(Arc<Library>, usize)> {
        self.libraries().function(name)
    }

    /// The script called `sha`, in hexadecimal digits of any case.
    pub fn find(&self, sha: &[u8]) -> Option<Arc<Cached>> {
        let mut sha: [u8; 40] = sha.try_into().ok()?;
        sha.make_ascii_lowercase();
        self.read().by_sha.get(&sha).cloned()
    }

    /// Adds a script, unless it is there. One that came `by_eval` alone may be forgotten later.
    pub fn add(&self, cached: impl Into<Arc<Cached>>, by_eval: bool) -> Arc<Cached> {
        let cached = cached.into();
        let mut known = self.write();
        let sha = cached.script.sha;
        if let Some(there) = known.by_sha.get(&sha).cloned() {
            if !by_eval {
                known.evaluated.retain(|other| *other != sha);
            }
            return there;
        }
        if by_eval {
            if known.evaluated.len() >= EVALUATED_MAX
                && let Some(oldest) = known.evaluated.pop_front()
                && let Some(gone) = known.by_sha.remove(&oldest)
            {
                known.bytes -= gone.script.source.len();
            }
            known.evaluated.push_back(sha);
        }
        known.bytes += cached.script.source.len();
        known.by_sha.insert(sha, cached.clone());
        cached
    }

    /// Forgets all scripts; threads start over with a fresh state.
    pub fn flush(&self) {
        *self.write() = Known::default();
        self.flushes.fetch_add(1, Relaxed);
    }

    /// How often [`Scripts::flush`] was called.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// Number of scripts, and the bytes of their texts.
    pub fn size(&self) -> (usize, usize) {
        let known = self.read();
        (known.by_sha.len(), known.bytes)
    }

    /// Number of libraries, of their functions, and the bytes of their texts. Cost: a look at each library.
    pub fn libraries_size(&self) -> (usize, usize, usize) {
        let libraries = self.libraries();
        let bytes = libraries.iter().map(|library| library.source.len()).sum();
        (libraries.len(), libraries.functions_len(), bytes)
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(text: &str) -> Cached {
        Cached { script: Script::new(text.as_bytes()).expect("a script"), is_contained: false }
    }

    #[test]
    fn evaluated_scripts_are_forgotten_and_loaded_ones_stay() {
        let scripts = Scripts::new(1);
        let first = scripts.add(cached("return 1"), true).script.sha;
        let kept = scripts.add(cached("return 2"), true).script.sha;
        scripts.add(cached("return 2"), false);
        (0..EVALUATED_MAX).for_each(|n| drop(scripts.add(cached(&format!("return '{n}'")), true)));
        assert!(scripts.find(&first).is_none() && scripts.find(&kept.to_ascii_uppercase()).is_some());
        assert_eq!(scripts.size().0, EVALUATED_MAX + 1);
        scripts.flush();
        assert_eq!((scripts.size(), scripts.flushes()), ((0, 0), 1));
    }
}
