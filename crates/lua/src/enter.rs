//! One run of a script: pushes its keys and arguments onto Lua's stack, runs its body, and writes its result as a
//! reply.
//!
//! All of it is one protected call: a memory error anywhere in it ends the run, and no frame in here holds a value
//! with a destructor.

use core::ffi::c_int;

use darter_wire::{Args, Reply};
use mlua::ffi::{
    lua_createtable, lua_pcall, lua_pushnil, lua_pushvalue, lua_rawset, lua_rawseti_, lua_replace, lua_settop,
};
use mlua::{Function, Lua, Table, Value, lua_State};

use crate::{push, result, run};

/// The code of a run and its environment.
pub struct ScriptEntry<'a> {
    /// The compiled script or function.
    pub body: &'a Function,
    /// Its variables.
    pub globals: &'a Table,
    /// Called with the raised value at the place of the error; returns the value with which the run ends.
    pub explain: &'a Function,
    /// Keys and arguments are passed as parameters, instead of as the variables `KEYS` and `ARGV`.
    pub takes_lists: bool,
}

/// Runs `entry` and writes its result. `Some` is the value that it raised instead, after `explain`.
///
/// Errors: a memory error outside of the script's own code. Part of a reply may have been written then.
pub fn enter(
    lua: &Lua,
    entry: &ScriptEntry<'_>,
    keys: Args<'_>,
    argv: Args<'_>,
    reply: &mut Reply<'_>,
) -> mlua::Result<Option<Value>> {
    let takes_lists = entry.takes_lists;
    // SAFETY: the closure takes three values from the stack of its own frame and leaves one. It captures only
    // references and numbers, so a jump over it loses nothing.
    let raised: Value = unsafe {
        lua.exec_raw((entry.explain, entry.globals, entry.body), |state| {
            list(state, keys);
            list(state, argv);
            for (name, at) in [(&b"KEYS"[..], KEYS), (b"ARGV", ARGV)] {
                push::text(state, name);
                if takes_lists {
                    lua_pushnil(state)
                } else {
                    lua_pushvalue(state, at)
                }
                lua_rawset(state, GLOBALS);
            }
            let passed = if takes_lists { 2 } else { 0 };
            lua_settop(state, BODY + passed);
            if lua_pcall(state, passed, 1, EXPLAIN) != 0 {
                lua_replace(state, 1);
                lua_settop(state, 1);
                return;
            }
            result::write(state, run::is_resp3(), reply);
            lua_settop(state, 0);
            lua_pushnil(state);
        })?
    };
    Ok(if raised.is_nil() { None } else { Some(raised) })
}

const EXPLAIN: c_int = 1;
const GLOBALS: c_int = 2;
const BODY: c_int = 3;
const KEYS: c_int = 4;
const ARGV: c_int = 5;

/// Pushes a table of texts.
///
/// # Safety
/// `state` is that of a C function that runs.
unsafe fn list(state: *mut lua_State, words: Args<'_>) {
    // SAFETY: room for the table and one word is made first.
    unsafe {
        push::room(state, 4);
        lua_createtable(state, c_int::try_from(words.len()).unwrap_or(0), 0);
        for (at, word) in (1..).zip(words.iter()) {
            push::text(state, word);
            lua_rawseti_(state, -2, at);
        }
    }
}
