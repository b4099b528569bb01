//! The functions in Rust that the prelude offers to scripts.
//!
//! Their errors reach a script as a text with its place, or as a table with `err` for the functions of `redis`.

use darter_base::number;
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::engine::SharedEngine;
use crate::{bit, dragonfly, functions, layout, reply};
use darter_base::sha1;

/// The table `native` of the prelude.
pub fn build(lua: &Lua, shared: &SharedEngine) -> Result<Table> {
    let native = lua.create_table()?;
    native.raw_set("redis", redis(lua)?)?;
    native.raw_set("constants", constants(lua)?)?;
    let libraries = lua.create_table()?;
    libraries.raw_set("bit", bit::build(lua)?)?;
    let mark = lua.create_table()?;
    native.raw_set("array_mark", &mark)?;
    libraries.raw_set("cjson", darter_lua::json(lua, &mark)?)?;
    libraries.raw_set("cmsgpack", darter_lua::msgpack(lua)?)?;
    libraries.raw_set("struct", layout::build(lua)?)?;
    native.raw_set("libraries", libraries)?;
    native.raw_set("dragonfly", dragonfly::build(lua)?)?;
    native.raw_set("cause", lua.create_function(|lua, cause: Value| cause_of(lua, &cause))?)?;
    native.raw_set("place", lua.create_function(|lua, ()| Ok(place(lua)))?)?;
    let random = shared.random.clone();
    let draw = move |lua: &Lua, bounds: MultiValue| {
        let numbers: Vec<f64> = bounds.iter().filter_map(as_number).collect();
        if numbers.len() != bounds.len() {
            return Err(complain(lua, "bad argument to 'random' (number expected)"));
        }
        within(random.next(), &numbers).map_err(|message| complain(lua, message))
    };
    native.raw_set("random", lua.create_function(draw)?)?;
    let registering = shared.registering.clone();
    let register = move |_: &Lua, args: MultiValue| functions::register(&registering, args);
    native.raw_set("register", lua.create_function(register)?)?;
    let random = shared.random.clone();
    let seed = move |_: &Lua, seed: f64| {
        random.seed(seed as i64);
        Ok(())
    };
    native.raw_set("randomseed", lua.create_function(seed)?)?;
    Ok(native)
}

/// An error with its code, raised as a table.
#[derive(Debug)]
pub struct Raised(pub Vec<u8>);

impl std::fmt::Display for Raised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::error::Error for Raised {}

/// The error of a function of `redis`.
pub fn raise(message: &str) -> Error {
    Error::external(Raised(format!("ERR {message}").into_bytes()))
}

/// The error of a library's function, with the place of its caller in front.
pub fn complain(lua: &Lua, message: &str) -> Error {
    let place = lua.inspect_stack(1, |debug| {
        let line = debug.current_line()?;
        Some(format!("{}:{line}: ", debug.source().short_src?))
    });
    Error::RuntimeError(place.flatten().unwrap_or_default() + message)
}

/// The value that a script sees of an error raised in Rust.
fn cause_of(lua: &Lua, cause: &Value) -> Result<Value> {
    let Value::Error(error) = cause else { return Ok(cause.clone()) };
    if let Some(raised) = error.downcast_ref::<Raised>() {
        return reply::fault(lua, &raised.0);
    }
    Ok(Value::String(lua.create_string(root_of(error))?))
}

/// Argument `at` as a number, if it is one or reads as one.
pub fn number_at(args: &MultiValue, at: usize) -> Option<f64> {
    args.get(at).and_then(as_number)
}

/// A number, or a text that reads as one.
pub fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        Value::String(text) => number::parse_f64(&text.as_bytes()),
        _ => None,
    }
}

/// A number of `math.random` for one from 0 to 1 and the bounds given.
fn within(one: f64, bounds: &[f64]) -> std::result::Result<f64, &'static str> {
    match *bounds {
        [] => Ok(one),
        [high] if high >= 1.0 => Ok((one * high).floor() + 1.0),
        [_] => Err("bad argument #1 to 'random' (interval is empty)"),
        [low, high] if low <= high => Ok((one * (high - low + 1.0)).floor() + low),
        [_, _] => Err("bad argument #2 to 'random' (interval is empty)"),
        _ => Err("wrong number of arguments"),
    }
}

fn redis(lua: &Lua) -> Result<Table> {
    let redis = lua.create_table()?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("log", lua.create_function(log)?)?;
    redis.raw_set("error_reply", lua.create_function(error_reply)?)?;
    redis.raw_set("status_reply", lua.create_function(status_reply)?)?;
    let functions = darter_lua::functions(lua)?;
    redis.raw_set("call", functions.call)?;
    redis.raw_set("pcall", functions.pcall)?;
    redis.raw_set("acall", functions.acall)?;
    redis.raw_set("apcall", functions.apcall)?;
    redis.raw_set("acl_check_cmd", functions.check)?;
    let setresp = |_: &Lua, args: MultiValue| {
        if args.len() != 1 {
            return Err(raise("redis.setresp() requires one argument."));
        }
        match args.front().and_then(as_number) {
            Some(version) if version == 2.0 || version == 3.0 => darter_lua::set_resp3(version == 3.0),
            _ => return Err(raise("RESP version must be 2 or 3.")),
        }
        Ok(())
    };
    redis.raw_set("setresp", lua.create_function(setresp)?)?;
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    Ok(redis)
}

/// The journal always notes all effects of a script. The argument is validated, but has no effect.
fn set_repl(_: &Lua, args: MultiValue) -> Result<()> {
    if args.len() != 1 {
        return Err(raise("redis.set_repl() requires two arguments."));
    }
    // A value that is not a number is 0 to Redis.
    let flags = args.front().and_then(as_number).unwrap_or_default();
    if (flags as i64) & !REPL_ALL != 0 {
        return Err(raise("Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."));
    }
    Ok(())
}

const REPL_ALL: i64 = 3;

/// The only argument, if it is one text.
fn only_text(args: &MultiValue) -> Option<&LuaString> {
    match args.front() {
        Some(Value::String(text)) if args.len() == 1 => Some(text),
        _ => None,
    }
}

fn error_reply(lua: &Lua, args: MultiValue) -> Result<Value> {
    match only_text(&args) {
        Some(text) => reply::fault(lua, &error_line(&text.as_bytes())),
        None => reply::fault(lua, b"ERR wrong number or type of arguments"),
    }
}

fn status_reply(lua: &Lua, args: MultiValue) -> Result<Value> {
    match only_text(&args) {
        Some(text) => {
            let table = lua.create_table()?;
            table.raw_set("ok", text)?;
            Ok(Value::Table(table))
        }
        None => reply::fault(lua, b"ERR wrong number or type of arguments"),
    }
}

fn sha1hex(lua: &Lua, args: MultiValue) -> Result<LuaString> {
    if args.len() != 1 {
        return Err(raise("wrong number of arguments"));
    }
    let text = args.into_iter().next().map(|value| lua.coerce_string(value)).transpose()?.flatten();
    let sum = text.map_or_else(|| sha1::sha1_hex(b""), |text| sha1::sha1_hex(&text.as_bytes()));
    lua.create_string(sum)
}

fn log(lua: &Lua, args: MultiValue) -> Result<()> {
    if args.len() < 2 {
        return Err(raise("redis.log() requires two arguments or more."));
    }
    let mut args = args.into_iter();
    let level = match args.next() {
        Some(Value::Integer(level)) => level,
        Some(Value::Number(level)) => level as i64,
        _ => return Err(raise("First argument must be a number (log level).")),
    };
    let mut line = String::new();
    for value in args {
        if let Some(text) = lua.coerce_string(value)? {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&text.to_string_lossy());
        }
    }
    match level {
        0 => tracing::trace!(target: "script", "{line}"),
        1 => tracing::debug!(target: "script", "{line}"),
        2 => tracing::info!(target: "script", "{line}"),
        3 => tracing::warn!(target: "script", "{line}"),
        _ => return Err(raise("Invalid log level.")),
    }
    Ok(())
}

fn constants(lua: &Lua) -> Result<Table> {
    let constants = lua.create_table()?;
    for (name, value) in [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", REPL_ALL),
        ("REDIS_VERSION_NUM", VERSION_NUM),
    ] {
        constants.raw_set(name, value)?;
    }
    constants.raw_set("REDIS_VERSION", VERSION)?;
    Ok(constants)
}

/// The version of Redis reported to scripts; the server reports the same to its clients.
const VERSION: &str = "7.4.0";
const VERSION_NUM: i64 = 0x0007_0400;

/// The line of an error a script makes: its code is the first word after a `-`, or `ERR`.
pub fn error_line(text: &[u8]) -> Vec<u8> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let mut line = if text.contains(&b' ') { Vec::new() } else { b"ERR ".to_vec() };
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
    line.extend_from_slice(&text[..end]);
    line
}

/// Lua's message for a text it cannot compile.
pub fn syntax_of(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } => message.clone(),
        other => root_of(other),
    }
}

/// The message of the innermost error.
pub fn root_of(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => root_of(cause),
        Error::BadArgument { cause, .. } | Error::WithContext { cause, .. } => root_of(cause),
        Error::RuntimeError(text) | Error::MemoryError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Source and line of the innermost function that is the script's own.
fn place(lua: &Lua) -> (Option<String>, Option<usize>) {
    for level in 2..PLACE_LEVELS_MAX {
        let found = lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let is_script = source.what != "C"
                && source.what != "tail"
                && source.source.as_deref().is_some_and(|name| name != "=prelude");
            is_script.then(|| (source.source.map(|name| name.into_owned()), debug.current_line()))
        });
        match found {
            Some(Some(place)) => return place,
            Some(None) => {}
            None => break,
        }
    }
    (None, None)
}

const PLACE_LEVELS_MAX: usize = 12;
