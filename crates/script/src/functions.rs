//! Libraries of functions: FUNCTION LOAD, and the run of one function.
//!
//! Each thread's state loads a library when it first runs a function of it. Variables of a library therefore belong
//! to the thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use darter_lua::Host;
use darter_wire::{Args, Reply};
use mlua::{Error, Function, LuaString, MultiValue, Table, Value};

use crate::engine::{Engine, FUNCTION_NAME, ScriptForm};
use crate::library::{self, raise};
use crate::script::ScriptFlags;
use darter_base::sha1;

/// Longest run of a library's code while it is loaded; no other client is served meanwhile.
const LOADING_MAX: Duration = Duration::from_millis(500);
/// Libraries a thread keeps loaded.
const LOADED_MAX: usize = 128;

/// A function as its library declares it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Declared {
    /// Its name, unique among all libraries.
    pub name: String,
    /// Its author's description.
    pub description: Option<String>,
    /// Its flags, as written.
    pub flag_names: Vec<String>,
    /// Its flags, parsed.
    pub flags: ScriptFlags,
}

/// A library's text and its declarations.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its name.
    pub name: String,
    /// SHA-1 of its text.
    pub sha: [u8; 40],
    /// The text, unchanged.
    pub source: Box<[u8]>,
    /// Its functions, in the order of their registration.
    pub functions: Vec<Declared>,
}

/// Functions of a library that is loaded, by name.
pub(crate) type Loaded = HashMap<String, Function>;

/// The functions registered so far by a library that is being loaded; `None` while nothing is loaded.
pub(crate) type Registering = Rc<RefCell<Option<Vec<(Declared, Function)>>>>;

const NAMES: &str = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name in a library's first line. Errors: the error line for the client.
fn name_of(source: &[u8]) -> Result<String, String> {
    if !source.starts_with(b"#!") {
        return Err("ERR Missing library metadata".into());
    }
    let end = source.iter().position(|&byte| byte == b'\n').ok_or("ERR Invalid library metadata")?;
    let line = String::from_utf8_lossy(&source[2..end]);
    let (engine, rest) = line.split_once([' ', '\t']).unwrap_or((line.trim_end(), ""));
    let words = rest.split_ascii_whitespace();
    if !engine.eq_ignore_ascii_case("lua") {
        return Err(format!("ERR Engine '{engine}' not found"));
    }
    let mut name = None;
    for word in words {
        match word.get(..5).filter(|head| head.eq_ignore_ascii_case("name=")) {
            Some(_) if name.is_some() => {
                return Err("ERR Invalid metadata value, name argument was given multiple times".into());
            }
            Some(_) => name = word.get(5..).map(|name| name.trim_matches('"').to_owned()),
            None => return Err(format!("ERR Invalid metadata value given: {word}")),
        }
    }
    let name = name.ok_or("ERR Library name was not given")?;
    if is_name(&name) { Ok(name) } else { Err(format!("ERR {NAMES}")) }
}

impl Engine {
    /// Reads and runs a library's text. Errors: the error line for the client.
    pub fn load_library(&mut self, source: &[u8]) -> Result<Library, String> {
        let name = name_of(source)?;
        let registered = self.run_library(source)?;
        if registered.is_empty() {
            return Err("ERR No functions registered".into());
        }
        let sha = sha1::sha1_hex(source);
        let functions = registered.iter().map(|(declared, _)| declared.clone()).collect();
        self.keep(sha, registered);
        Ok(Library { name, sha, source: source.into(), functions })
    }

    fn keep(&mut self, sha: [u8; 40], registered: Vec<(Declared, Function)>) {
        if self.loaded.len() >= LOADED_MAX {
            self.loaded.clear();
        }
        let functions = registered.into_iter().map(|(declared, body)| (declared.name, body)).collect();
        self.loaded.insert(sha, functions);
    }

    fn run_library(&mut self, source: &[u8]) -> Result<Vec<(Declared, Function)>, String> {
        let start = source.iter().position(|&byte| byte == b'\n').unwrap_or(source.len());
        let chunk = self.lua.load(&source[start..]).set_name(FUNCTION_NAME);
        let chunk =
            chunk.set_mode(mlua::chunk::ChunkMode::Text).set_environment(self.library.globals.clone());
        let body = chunk
            .into_function()
            .map_err(|error| format!("ERR Error compiling function: {}", library::syntax_of(&error)))?;
        self.shared.registering.replace(Some(Vec::new()));
        self.shared.deadline.set(Instant::now().checked_add(LOADING_MAX));
        let ended = self.run_loading(&body);
        self.shared.deadline.set(None);
        self.hook_rarely();
        let registered = self.shared.registering.take().unwrap_or_default();
        match ended {
            Ok(None) => {}
            Ok(Some(line)) => {
                let cause = line.strip_prefix("ERR ").unwrap_or(&line);
                return Err(format!("ERR Error registering functions: {cause}"));
            }
            Err(error) => {
                return Err(format!("ERR Error registering functions: {}", library::root_of(&error)));
            }
        }
        for (_, function) in &registered {
            self.settle_globals(function);
        }
        Ok(registered)
    }

    /// Runs a library's text with the globals of loading; the inner text is the error it raised.
    fn run_loading(&self, body: &Function) -> mlua::Result<Option<String>> {
        self.base.raw_set("KEYS", Value::Nil)?;
        self.base.raw_set("ARGV", Value::Nil)?;
        // Set without Lua code: a script that is being ended may not run any.
        self.library.meta.raw_set("__index", &self.library.loading)?;
        let ended = self.run.call::<(bool, Value)>(body);
        self.library.meta.raw_set("__index", &self.base)?;
        let (is_fine, value) = ended?;
        if is_fine {
            return Ok(None);
        }
        Ok(Some(match &value {
            Value::Table(table) => table
                .raw_get::<Option<LuaString>>("err")?
                .map_or_else(String::new, |line| line.to_string_lossy()),
            other => other.to_string()?,
        }))
    }

    /// Runs a function and writes its reply. Errors: the error line for the client, if the function fails.
    pub fn run_function(
        &mut self,
        host: &mut dyn Host,
        library: &Library,
        function: &str,
        keys: Args<'_>,
        argv: Args<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Vec<u8>> {
        if !self.loaded.contains_key(&library.sha) {
            let registered = self.run_library(&library.source)?;
            self.keep(library.sha, registered);
        }
        let found = self.loaded.get(&library.sha).and_then(|functions| functions.get(function)).cloned();
        let body = found.ok_or_else(|| b"ERR Function not found".to_vec())?;
        self.run_named(host, &body, function, ScriptForm::Function, keys, argv, reply)
    }
}

/// `register_function` of the prelude: gets the table it was called on, `redis` or `server`, and its arguments.
pub(crate) fn register(registering: &Registering, mut args: MultiValue) -> mlua::Result<()> {
    let api = args.pop_front().map_or_else(String::new, |api| api.to_string().unwrap_or_default());
    let mut slot = registering.borrow_mut();
    let Some(all) = slot.as_mut() else {
        return Err(raise(&format!("{api}.register_function can only be called on FUNCTION LOAD command")));
    };
    let entry = read_registration(&api, args)?;
    if all.iter().any(|(other, _)| other.name.eq_ignore_ascii_case(&entry.0.name)) {
        return Err(raise("Function already exists in the library"));
    }
    all.push(entry);
    Ok(())
}

fn read_registration(api: &str, args: MultiValue) -> mlua::Result<(Declared, Function)> {
    let mut args = args.into_iter();
    let refuse = |what: &str| Err(raise(&what.replace('@', &format!("{api}.register_function"))));
    match (args.next(), args.next(), args.next()) {
        (Some(Value::Table(named)), None, None) => read_named(api, &named),
        (Some(_), None, None) => refuse(
            "calling @ with a single argument is only applicable to Lua table (representing named arguments).",
        ),
        (Some(Value::String(name)), Some(Value::Function(body)), None) => {
            let declared = declared(name.to_string_lossy(), None, Vec::new())?;
            Ok((declared, body))
        }
        (Some(Value::String(_)), Some(_), None) => refuse("second argument to @ must be a function"),
        (Some(_), Some(_), None) => refuse("first argument to @ must be a string"),
        _ => refuse("wrong number of arguments to @"),
    }
}

fn read_named(api: &str, named: &Table) -> mlua::Result<(Declared, Function)> {
    let refusal = |what: &str| raise(&what.replace('@', &format!("{api}.register_function")));
    let (mut name, mut body, mut description, mut flags) = (None, None, None, Vec::new());
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Value::String(key) = key else {
            return Err(refusal("named argument key given to @ is not a string"));
        };
        match (&*key.as_bytes(), value) {
            (b"function_name", Value::String(text)) => name = Some(text.to_string_lossy()),
            (b"function_name", _) => {
                return Err(refusal("function_name argument given to @ must be a string"));
            }
            (b"description", Value::String(text)) => description = Some(text.to_string_lossy()),
            (b"description", _) => return Err(refusal("description argument given to @ must be a string")),
            (b"callback", Value::Function(function)) => body = Some(function),
            (b"callback", _) => return Err(refusal("callback argument given to @ must be a function")),
            (b"flags", Value::Table(list)) => flags = read_flags(&list)?,
            (b"flags", _) => {
                return Err(refusal("flags argument to @ must be a table representing function flags"));
            }
            _ => return Err(refusal("unknown argument given to @")),
        }
    }
    let name = name.ok_or_else(|| refusal("@ must get a function name argument"))?;
    let body = body.ok_or_else(|| refusal("@ must get a callback argument"))?;
    Ok((declared(name, description, flags)?, body))
}

fn read_flags(list: &Table) -> mlua::Result<Vec<String>> {
    let mut flags = Vec::new();
    for at in 1.. {
        match list.raw_get(at)? {
            Value::Nil => break,
            Value::String(flag) => flags.push(flag.to_string_lossy()),
            _ => return Err(raise("unknown flag given")),
        }
    }
    Ok(flags)
}

fn declared(name: String, description: Option<String>, flag_names: Vec<String>) -> Result<Declared, Error> {
    if !is_name(&name) {
        return Err(raise(NAMES));
    }
    let mut flags = ScriptFlags { is_declared: true, ..ScriptFlags::default() };
    for flag in &flag_names {
        match flag.as_str() {
            "no-writes" => flags.no_writes = true,
            "allow-oom" => flags.allow_oom = true,
            "no-cluster" => flags.no_cluster = true,
            "allow-cross-slot-keys" => flags.crosses_slots = true,
            "allow-stale" => {}
            _ => return Err(raise("unknown flag given")),
        }
    }
    Ok(Declared { name, description, flag_names, flags })
}
