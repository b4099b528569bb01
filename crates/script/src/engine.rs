//! A Lua state with its sandbox, and the run of a script in it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use darter_base::number;
use darter_wire::{Args, Reply, Span};
use mlua::chunk::ChunkMode;
use mlua::debug::HookTriggers;
use mlua::{Error, Function, Lua, LuaOptions, LuaString, MultiValue, Result, StdLib, Table, Value, VmState};

use crate::functions::Loaded;
use crate::host::Host;
use crate::library::{self, Raised};
use crate::random::Random;
use crate::reply;
use crate::script::Script;
use crate::watch::{Kind, Watch};

/// Bytes one thread's scripts may hold together.
const MEMORY_MAX: usize = 256 << 20;
/// A state that holds more than this after a run is tidied at once.
const MEMORY_KEPT: usize = 4 << 20;
/// What errors call the text of a script, and that of a library.
const SCRIPT_NAME: &str = "@user_script";
pub(crate) const FUNCTION_NAME: &str = "@user_function";
/// Compiled scripts one thread keeps; they are compiled again when needed.
const COMPILED_MAX: usize = 512;

/// What native functions and a run share.
#[derive(Clone)]
pub(crate) struct Shared {
    /// The numbers of `math.random`.
    pub random: Random,
    /// The script asked for RESP3 replies.
    pub resp3: Rc<Cell<bool>>,
    /// When a library that is being loaded has taken too long.
    pub deadline: Rc<Cell<Option<Instant>>>,
}

/// How keys and arguments reach what is run.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// As the variables `KEYS` and `ARGV`.
    Script,
    /// As its parameters.
    Function,
}

/// One thread's Lua.
pub struct Engine {
    pub(crate) lua: Lua,
    pub(crate) shared: Shared,
    pub(crate) base: Table,
    pub(crate) redis: Table,
    pub(crate) run: Function,
    pub(crate) late_call: Function,
    pub(crate) late_pcall: Function,
    pub(crate) loaded: HashMap<[u8; 40], Loaded>,
    compiled: HashMap<[u8; 40], Function>,
    watch: Arc<Watch>,
    // The compiler does not keep alive the name of what it reads; these do (CVE-2025-49844).
    _names: [LuaString; 2],
}

impl Engine {
    /// A fresh state. Errors: what Lua says, which only memory can be the cause of. Cost: some 50 us, 60 KB.
    pub fn new(watch: Arc<Watch>) -> std::result::Result<Engine, String> {
        Engine::build(watch).map_err(|error| error.to_string())
    }

    fn build(watch: Arc<Watch>) -> Result<Engine> {
        let libs = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::OS;
        let lua = Lua::new_with(libs, LuaOptions::default())?;
        let shared = Shared { random: Random::new(), resp3: Rc::default(), deadline: Rc::default() };
        let native = library::build(&lua, &shared)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        type World = (Table, Table, Table, Function, Function, Function);
        let (globals, base, redis, run, late_call, late_pcall): World = prelude.call(native)?;
        lua.set_globals(globals)?;
        set_hook(&lua, &watch, &shared.deadline, RARELY)?;
        lua.set_memory_limit(MEMORY_MAX)?;
        let (compiled, loaded) = (HashMap::new(), HashMap::new());
        let _names = [lua.create_string(SCRIPT_NAME)?, lua.create_string(FUNCTION_NAME)?];
        Ok(Engine { lua, shared, base, redis, run, late_call, late_pcall, loaded, compiled, watch, _names })
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
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        self.compiled.insert(script.sha, body.clone());
        Ok(body)
    }

    /// Runs a script and writes its reply. Errors: the error line for the client, of a script that failed.
    pub fn run(
        &mut self,
        host: &mut dyn Host,
        script: &Script,
        keys: Args<'_>,
        argv: Args<'_>,
        reply: &mut Reply<'_>,
    ) -> std::result::Result<(), Vec<u8>> {
        let body = self.body(script)?;
        let name = String::from_utf8_lossy(&script.sha);
        self.run_named(host, &body, &name, Form::Script, keys, argv, reply)
    }

    /// Runs a compiled script or function, which errors call `name`.
    #[allow(clippy::too_many_arguments, reason = "a run is what all of these make")]
    pub(crate) fn run_named(
        &mut self,
        host: &mut dyn Host,
        body: &Function,
        name: &str,
        form: Form,
        keys: Args<'_>,
        argv: Args<'_>,
        reply: &mut Reply<'_>,
    ) -> std::result::Result<(), Vec<u8>> {
        self.shared.random.seed(0);
        self.shared.resp3.set(false);
        let ended = self.run_body(host, body, form, (keys, argv), reply);
        if self.watch.is_killed() {
            self.hook_rarely();
        }
        if self.lua.used_memory() > MEMORY_KEPT {
            let _ = self.lua.gc_collect();
        }
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(failed)) => Err(failed.line(name)),
            Err(error) => Err(format!("ERR {}", library::root_of(&error)).into_bytes()),
        }
    }

    fn run_body(
        &self,
        host: &mut dyn Host,
        body: &Function,
        form: Form,
        (keys, argv): (Args<'_>, Args<'_>),
        reply: &mut Reply<'_>,
    ) -> Result<std::result::Result<(), Failed>> {
        let (keys, argv) = (Some(self.list(keys)?), Some(self.list(argv)?));
        let (named, passed) = match form {
            Form::Script => ((keys, argv), (None, None)),
            Form::Function => ((None, None), (keys, argv)),
        };
        self.base.raw_set("KEYS", named.0)?;
        self.base.raw_set("ARGV", named.1)?;
        let way = RefCell::new((host, Scratch::default()));
        let resp3 = &self.shared.resp3;
        let (is_fine, value) = self.lua.scope(|scope| {
            let call = scope.create_function(|lua, words: MultiValue| {
                let (host, scratch) = &mut *way.borrow_mut();
                match invoke(*host, &words, resp3.get(), scratch).strip_prefix(b"-") {
                    Some(line) => Err(Error::external(Raised(line.trim_ascii_end().into()))),
                    None => reply::to_lua(lua, &scratch.out),
                }
            })?;
            let pcall = scope.create_function(|lua, words: MultiValue| {
                let (host, scratch) = &mut *way.borrow_mut();
                reply::to_lua(lua, invoke(*host, &words, resp3.get(), scratch))
            })?;
            let check = scope.create_function(|_, words: MultiValue| {
                let (host, scratch) = &mut *way.borrow_mut();
                let raise = |line: &[u8]| Error::external(Raised(line.trim_ascii_end().into()));
                if words.is_empty() {
                    return Err(raise(b"ERR Please specify at least one argument for this redis lib call"));
                }
                read_words(&words, scratch).map_err(|line| raise(line.strip_prefix(b"-").unwrap_or(line)))?;
                let allowed = host.allows(Args::new(&scratch.bytes, &scratch.spans));
                allowed.ok_or_else(|| raise(b"ERR Invalid command passed to redis.acl_check_cmd()"))
            })?;
            self.redis.raw_set("acl_check_cmd", check)?;
            self.redis.raw_set("call", call)?;
            self.redis.raw_set("pcall", pcall)?;
            self.run.call::<(bool, Value)>((body, passed.0, passed.1))
        })?;
        if !is_fine {
            return Ok(Err(Failed::of(&value)?));
        }
        reply::write(&value, resp3.get(), reply)?;
        Ok(Ok(()))
    }

    /// Puts the hook back that a killed run has made to fire at every line.
    pub(crate) fn hook_rarely(&self) {
        let _ = set_hook(&self.lua, &self.watch, &self.shared.deadline, RARELY);
    }

    fn list(&self, words: Args<'_>) -> Result<Table> {
        let list = self.lua.create_table_with_capacity(words.len(), 0)?;
        for (at, word) in words.iter().enumerate() {
            list.raw_set(at + 1, self.lua.create_string(word)?)?;
        }
        Ok(list)
    }
}

/// A look at whether the script is to end every so many instructions.
const RARELY: HookTriggers = HookTriggers::new().every_nth_instruction(100_000);

fn set_hook(
    lua: &Lua,
    watch: &Arc<Watch>,
    deadline: &Rc<Cell<Option<Instant>>>,
    triggers: HookTriggers,
) -> Result<()> {
    let (held, until) = (watch.clone(), deadline.clone());
    lua.set_global_hook(triggers, move |lua, _| {
        let line = match until.get() {
            Some(deadline) if Instant::now() >= deadline => "ERR FUNCTION LOAD timeout",
            _ if held.is_killed() => killed(held.kind()),
            _ => return Ok(VmState::Continue),
        };
        // A script may catch the error; with each further line failing it gets nowhere.
        set_hook(lua, &held, &until, HookTriggers::EVERY_LINE)?;
        Err(Error::external(Raised(line.into())))
    })
}

/// The error a killed script or function ends with.
pub fn killed(kind: Kind) -> &'static str {
    match kind {
        Kind::Script => "ERR Error running script: Script killed by user with SCRIPT KILL.",
        Kind::Function => "ERR Error running script: Script killed by user with FUNCTION KILL.",
    }
}

/// Buffers that the commands of one run use again.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    out: Vec<u8>,
}

/// Runs one command for `redis.call`; returns its reply.
fn invoke<'a>(host: &mut dyn Host, words: &MultiValue, resp3: bool, scratch: &'a mut Scratch) -> &'a [u8] {
    scratch.out.clear();
    if words.is_empty() {
        return b"-ERR Please specify at least one argument for this redis.call() call\r\n";
    }
    if let Err(line) = read_words(words, scratch) {
        return line;
    }
    host.call(Args::new(&scratch.bytes, &scratch.spans), resp3, &mut scratch.out);
    &scratch.out
}

/// Takes a command's words as arguments. Errors: the error reply.
fn read_words(words: &MultiValue, scratch: &mut Scratch) -> std::result::Result<(), &'static [u8]> {
    scratch.bytes.clear();
    scratch.spans.clear();
    for word in words {
        let start = scratch.bytes.len();
        match word {
            Value::String(text) => scratch.bytes.extend_from_slice(&text.as_bytes()),
            Value::Integer(value) => number::write_i64(&mut scratch.bytes, *value),
            Value::Number(value) => number::write_f64(&mut scratch.bytes, *value),
            _ => return Err(b"-ERR Lua redis lib command arguments must be strings or integers\r\n"),
        }
        let (Ok(start), Ok(len)) = (u32::try_from(start), u32::try_from(scratch.bytes.len() - start)) else {
            return Err(b"-ERR the arguments of one command are longer than 4 GB\r\n");
        };
        scratch.spans.push(Span { start, len });
    }
    Ok(())
}

/// What made a script fail.
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
