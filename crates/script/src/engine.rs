//! A Lua state with its sandbox, and the run of a script in it.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use darter_lua::{Host, ScriptEntry, enter, with_host};
use darter_wire::{Args, Reply};
use mlua::chunk::ChunkMode;
use mlua::debug::HookTriggers;
use mlua::{Error, Function, Lua, LuaOptions, LuaString, Result, StdLib, Table, Value, VmState};

use crate::functions::{Loaded, Registering};
use crate::globals::sets_globals;
use crate::library::{self, Raised};
use crate::random::Random;
use crate::script::Script;
use crate::watch::{ScriptKind, ScriptWatch};

/// A state that holds more than this after a run is garbage-collected immediately.
const MEMORY_KEPT: usize = 4 << 20;
/// The names of a script's text and of a library's in errors.
const SCRIPT_NAME: &str = "@user_script";
pub(crate) const FUNCTION_NAME: &str = "@user_function";
/// Compiled scripts one thread keeps; they are compiled again when needed.
const COMPILED_MAX: usize = 512;

/// Data shared by native functions and a run.
#[derive(Clone)]
pub(crate) struct SharedEngine {
    /// The numbers of `math.random`.
    pub random: Random,
    /// The deadline of a library that is being loaded.
    pub deadline: Rc<Cell<Option<Instant>>>,
    /// The functions registered by that library.
    pub registering: Registering,
}

/// The world of a library's text.
pub(crate) struct LibraryWorld {
    /// Its globals: those of loading, then those that scripts have. They cannot be set.
    pub globals: Table,
    /// Selects one of the two by `__index`.
    pub meta: Table,
    /// Those of loading.
    pub loading: Table,
}

/// The way in which code receives keys and arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptForm {
    /// As the variables `KEYS` and `ARGV`.
    Script,
    /// As its parameters.
    Function,
}

/// One thread's Lua.
pub struct Engine {
    pub(crate) lua: Lua,
    pub(crate) shared: SharedEngine,
    pub(crate) base: Table,
    pub(crate) library: LibraryWorld,
    pub(crate) run: Function,
    explain: Function,
    pub(crate) loaded: HashMap<[u8; 40], Loaded>,
    compiled: HashMap<[u8; 40], Function>,
    watch: Arc<ScriptWatch>,
    memory_max: usize,
    // The compiler does not keep the name of its input alive; these references do (CVE-2025-49844).
    _names: [LuaString; 2],
}

impl Engine {
    /// A fresh state. Errors: Lua's, only if memory is exhausted. Cost: some 50 us, 60 KB.
    pub fn new(watch: Arc<ScriptWatch>) -> std::result::Result<Engine, String> {
        Engine::build(watch).map_err(|error| error.to_string())
    }

    fn build(watch: Arc<ScriptWatch>) -> Result<Engine> {
        let libs = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libs, LuaOptions::default())?;
        let shared = SharedEngine {
            random: Random::new(),
            deadline: Rc::default(),
            registering: Registering::default(),
        };
        let native = library::build(&lua, &shared)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        type Made = (Table, Table, Function, Function, Table, Table, Table);
        let (globals, base, run, explain, library_globals, meta, loading): Made = prelude.call(native)?;
        let library = LibraryWorld { globals: library_globals, meta, loading };
        lua.set_globals(globals)?;
        set_hook(&lua, &watch, &shared.deadline, (INSTRUCTIONS_FIRST, 0))?;
        let (compiled, loaded) = (HashMap::new(), HashMap::new());
        let _names = [lua.create_string(SCRIPT_NAME)?, lua.create_string(FUNCTION_NAME)?];
        Ok(Engine {
            lua,
            shared,
            base,
            library,
            run,
            explain,
            loaded,
            compiled,
            watch,
            memory_max: 0,
            _names,
        })
    }

    /// Limits the memory of one thread's scripts together; 0 is no limit. Cost: a comparison if nothing changes.
    pub fn limit_memory(&mut self, bytes_max: usize) {
        if self.memory_max != bytes_max && self.lua.set_memory_limit(bytes_max).is_ok() {
            self.memory_max = bytes_max;
        }
    }

    /// Compiles a script, if this thread has not yet. Errors: the error line for the client.
    pub fn compile(&mut self, script: &Script) -> std::result::Result<(), String> {
        self.body(script).map(|_| ())
    }

    fn body(&mut self, script: &Script) -> std::result::Result<Function, String> {
        if let Some(body) = self.compiled.get(&script.sha) {
            return Ok(body.clone());
        }
        let chunk = self.lua.load(script.code()).set_name(SCRIPT_NAME).set_mode(ChunkMode::Text);
        let compiled = chunk.into_function();
        let body = compiled.map_err(|error| {
            format!("ERR Error compiling script (new function): {}", library::syntax_of(&error))
        })?;
        self.settle_globals(&body);
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(script.sha, body.clone());
        self.watch.note_memory(self.lua.used_memory());
        Ok(body)
    }

    /// Gives code that sets no global the real table of globals. Other code has a view of it, which refuses changes.
    pub(crate) fn settle_globals(&self, body: &Function) {
        if !sets_globals(&body.dump(true)) {
            // It keeps the view if this fails.
            let _ = body.set_environment(self.base.clone());
        }
    }

    /// Runs a script and writes its reply. Errors: the error line for the client, if the script fails.
    pub fn run(
        &mut self,
        host: &mut dyn Host,
        script: &Script,
        keys: Args<'_>,
        argv: Args<'_>,
        reply: &mut Reply<'_>,
    ) -> std::result::Result<(), Vec<u8>> {
        let body = self.body(script)?;
        let name = str::from_utf8(&script.sha).unwrap_or_default();
        self.run_named(host, &body, name, ScriptForm::Script, keys, argv, reply)
    }

    /// Runs a compiled script or function, which errors call `name`.
    #[allow(clippy::too_many_arguments, reason = "a run is what all of these make")]
    pub(crate) fn run_named(
        &mut self,
        host: &mut dyn Host,
        body: &Function,
        name: &str,
        form: ScriptForm,
        keys: Args<'_>,
        argv: Args<'_>,
        reply: &mut Reply<'_>,
    ) -> std::result::Result<(), Vec<u8>> {
        darter_lua::set_resp3(false);
        let globals = &self.base;
        let entry =
            ScriptEntry { body, globals, explain: &self.explain, takes_lists: form == ScriptForm::Function };
        let ended = with_host(host, || enter(&self.lua, &entry, keys, argv, reply));
        if self.watch.is_killed() {
            self.hook_rarely();
        }
        if self.lua.used_memory() > MEMORY_KEPT {
            let _ = self.lua.gc_collect();
        }
        self.watch.note_memory(self.lua.used_memory());
        match ended.and_then(|raised| raised.map(|value| Failed::of(&value)).transpose()) {
            Ok(None) => Ok(()),
            Ok(Some(failed)) => Err(failed.line(name)),
            Err(error) => Err(format!("ERR {}", library::root_of(&error)).into_bytes()),
        }
    }

    /// Puts the hook back that a killed run has made to fire at every line.
    pub(crate) fn hook_rarely(&self) {
        let _ = set_hook(&self.lua, &self.watch, &self.shared.deadline, (INSTRUCTIONS_MAX, 0));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.watch.note_memory(0);
    }
}

/// Instructions between two checks of whether the script must end: at first, and at most. A loop of long calls may
/// follow short ones, and nothing is known before the first check: 2,000 instructions are some 300 calls. A check
/// takes some hundred nanoseconds, these instructions some ten thousand.
const INSTRUCTIONS_FIRST: u32 = 1_000;
const INSTRUCTIONS_MAX: u32 = 2_000;
/// If checks are further apart than this, they become more frequent, up to about this interval: an instruction may
/// call a C function that takes milliseconds (`string.rep`).
const LOOK_MAX: Duration = Duration::from_millis(4);
/// If checks are closer than this, they become less frequent.
const LOOK_MIN: Duration = Duration::from_micros(500);

/// The number of instructions until the next check, if `count` of them have taken `took`.
fn paced(count: u32, took: Duration) -> u32 {
    if took > LOOK_MAX {
        let share = LOOK_MAX.as_nanos() * u128::from(count) / took.as_nanos();
        return u32::try_from(share).unwrap_or(count).clamp(1, count);
    }
    if took < LOOK_MIN { count.saturating_mul(2).min(INSTRUCTIONS_MAX) } else { count }
}

/// Checks every `count` instructions whether the script must end. The script that began at `run` was checked just
/// now.
fn set_hook(
    lua: &Lua,
    watch: &Arc<ScriptWatch>,
    deadline: &Rc<Cell<Option<Instant>>>,
    (count, run): (u32, u64),
) -> Result<()> {
    let (held, until) = (watch.clone(), deadline.clone());
    // The run that was checked last, and the time: time between two runs does not belong to the script.
    let last = Cell::new((run, Instant::now()));
    let triggers = HookTriggers::new().every_nth_instruction(count);
    lua.set_global_hook(triggers, move |lua, _| {
        let (run, at) = last.get();
        let next = if run == held.since_ms() { paced(count, at.elapsed()) } else { count };
        held.note_memory(lua.used_memory());
        if !held.is_killed() {
            darter_lua::breathe();
        }
        let line = match until.get() {
            Some(deadline) if Instant::now() >= deadline => "ERR FUNCTION LOAD timeout",
            _ if held.is_killed() => killed(held.kind()),
            _ => {
                last.set((held.since_ms(), Instant::now()));
                if next != count {
                    set_hook(lua, &held, &until, (next, held.since_ms()))?;
                }
                return Ok(VmState::Continue);
            }
        };
        // A script may catch the error, so every further line fails too.
        set_failing_hook(lua, &held, &until)?;
        Err(Error::external(Raised(line.into())))
    })
}

/// Makes every further line fail in a script that was killed, or whose library has taken too long to load.
fn set_failing_hook(lua: &Lua, watch: &Arc<ScriptWatch>, deadline: &Rc<Cell<Option<Instant>>>) -> Result<()> {
    let (held, until) = (watch.clone(), deadline.clone());
    lua.set_global_hook(HookTriggers::EVERY_LINE, move |_, _| match until.get() {
        Some(deadline) if Instant::now() >= deadline => {
            Err(Error::external(Raised("ERR FUNCTION LOAD timeout".into())))
        }
        _ if held.is_killed() => Err(Error::external(Raised(killed(held.kind()).into()))),
        _ => Ok(VmState::Continue),
    })
}

/// The error a killed script or function ends with.
pub fn killed(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::Script => "ERR Error running script: Script killed by user with SCRIPT KILL.",
        ScriptKind::Function => "ERR Error running script: Script killed by user with FUNCTION KILL.",
    }
}

/// The error of a failed script.
struct Failed {
    message: Vec<u8>,
    place: Option<(String, i64)>,
}

impl Failed {
    fn of(value: &Value) -> Result<Failed> {
        let Value::Table(table) = value else {
            let cause = value.to_string()?;
            return Ok(Failed { message: format!("ERR {cause}").into_bytes(), place: None });
        };
        let message = match table.raw_get("err")? {
            Value::String(text) => text.as_bytes().to_vec(),
            _ => b"ERR unknown error".to_vec(),
        };
        let place = match (table.raw_get("source")?, table.raw_get("line")?) {
            (Value::String(source), Value::Integer(line)) => Some((source.to_string_lossy(), line)),
            (Value::String(source), Value::Number(line)) => Some((source.to_string_lossy(), line as i64)),
            _ => None,
        };
        Ok(Failed { message, place })
    }

    fn line(mut self, script: &str) -> Vec<u8> {
        if let Some((source, line)) = self.place {
            self.message.extend_from_slice(format!(" script: {script}, on {source}:{line}.").as_bytes());
        }
        self.message
    }
}

#[cfg(test)]
mod tests;
