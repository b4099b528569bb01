//! The C functions: `redis.call`, `redis.pcall`, Dragonfly's `redis.acall` and `redis.apcall`, and
//! `redis.acl_check_cmd`.
//!
//! An error of Lua 5.1 is a jump over all frames up to the next protected call. So no frame in here that calls a
//! raising function holds a value with a destructor: arguments and replies are in buffers of the thread.

use core::ffi::{c_char, c_int};
use core::slice;

use darter_base::number;
use mlua::ffi::{
    LUA_TNUMBER, LUA_TSTRING, lua_error, lua_gettop, lua_pushboolean, lua_settop, lua_tolstring,
    lua_tonumber, lua_type,
};
use mlua::{Function, Lua, lua_State};

use crate::host::NoCall;
use crate::push;
use crate::run::{self, NotRun, ScriptWords};

/// The functions, made for one state.
pub struct Functions {
    /// `redis.call`: raises the error of a command that fails.
    pub call: Function,
    /// `redis.pcall`: returns it.
    pub pcall: Function,
    /// Dragonfly's `redis.acall`: as `call`, but without the reply.
    pub acall: Function,
    /// Dragonfly's `redis.apcall`: as `acall`, also without the error.
    pub apcall: Function,
    /// `redis.acl_check_cmd`: returns whether the user may run a command.
    pub check: Function,
}

/// Makes the functions. Errors: memory.
pub fn functions(lua: &Lua) -> mlua::Result<Functions> {
    // SAFETY: the functions follow the rules for C functions of Lua. They take their arguments from the given stack,
    // push at most as much as they made room for, and return the number of pushed values, or raise.
    unsafe {
        Ok(Functions {
            call: lua.create_c_function(call)?,
            pcall: lua.create_c_function(pcall)?,
            acall: lua.create_c_function(acall)?,
            apcall: lua.create_c_function(apcall)?,
            check: lua.create_c_function(check)?,
        })
    }
}

const NO_WORDS: &[u8] = b"-ERR Please specify at least one argument for this redis lib call\r\n";
const NO_TEXT: &[u8] = b"-ERR Lua redis lib command arguments must be strings or integers\r\n";
const TOO_LONG: &[u8] = b"-ERR the arguments of one command are longer than 4 GB\r\n";
const NO_RUN: &[u8] = b"-ERR redis.call/pcall can only be called inside a script invocation\r\n";
const NO_COMMAND: &[u8] = b"-ERR Invalid command passed to redis.acl_check_cmd()\r\n";
const NO_ARITY: &[u8] = b"-ERR Wrong number of args for redis.acl_check_cmd()\r\n";

unsafe extern "C-unwind" fn call(state: *mut lua_State) -> c_int {
    // SAFETY: `state` is the caller's, as Lua promises.
    unsafe {
        let reply = ask(state);
        push::reply(state, reply);
        if reply.first() == Some(&b'-') { lua_error(state) } else { 1 }
    }
}

unsafe extern "C-unwind" fn pcall(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let reply = ask(state);
        push::reply(state, reply);
    }
    1
}

unsafe extern "C-unwind" fn acall(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let reply = ask(state);
        if reply.first() == Some(&b'-') {
            push::reply(state, reply);
            lua_error(state)
        }
    }
    0
}

unsafe extern "C-unwind" fn apcall(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { ask(state) };
    0
}

unsafe extern "C-unwind" fn check(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let line = match run::with_command(|words| read(state, words), |host, args, _| host.allows(args)) {
            Ok(Ok(allows)) => {
                push::room(state, 1);
                lua_pushboolean(state, c_int::from(allows));
                return 1;
            }
            Ok(Err(NoCall::Unknown)) => NO_COMMAND,
            Ok(Err(NoCall::Arity)) => NO_ARITY,
            Err(NotRun::Unread(line)) => line,
            Err(NotRun::NoHost) => NO_RUN,
        };
        push::reply(state, line);
        lua_error(state)
    }
}

/// Runs the command whose words are on the stack; returns its reply, which lasts until the next one.
///
/// # Safety
/// `state` is that of a C function that has just been called.
unsafe fn ask<'a>(state: *mut lua_State) -> &'a [u8] {
    // SAFETY: the caller's promise.
    let asked = run::call(|words| unsafe { read(state, words) });
    // SAFETY: the words were copied. As many as the stack takes leave no room for a reply.
    unsafe { lua_settop(state, 0) };
    match asked {
        // SAFETY: the buffer belongs to the thread and changes only with the next command. The reply is pushed before
        // that, which runs no command: a state of scripts has no finalizers that could.
        Ok((bytes, len)) => unsafe { slice::from_raw_parts(bytes, len) },
        Err(NotRun::Unread(line)) => line,
        Err(NotRun::NoHost) => NO_RUN,
    }
}

/// Copies the arguments to `words`. Never raises. Errors: the error reply.
///
/// # Safety
/// As for [`ask`].
#[inline]
unsafe fn read(state: *mut lua_State, words: &mut ScriptWords) -> Result<(), &'static [u8]> {
    // SAFETY: reads the type, number or text of existing arguments; a text does not move while it is on the stack.
    unsafe {
        let len = lua_gettop(state);
        if len == 0 {
            return Err(NO_WORDS);
        }
        for at in 1..=len {
            let start = words.bytes.len();
            match lua_type(state, at) {
                LUA_TSTRING => {
                    let mut bytes_len = 0;
                    let text: *const c_char = lua_tolstring(state, at, &mut bytes_len);
                    words.bytes.extend_from_slice(slice::from_raw_parts(text.cast(), bytes_len));
                }
                LUA_TNUMBER => write_number(words, lua_tonumber(state, at)),
                _ => return Err(NO_TEXT),
            }
            words.end_word(start).map_err(|_| TOO_LONG)?;
        }
        Ok(())
    }
}

fn write_number(words: &mut ScriptWords, value: f64) {
    let whole = value as i64;
    if whole as f64 == value {
        number::write_i64(&mut words.bytes, whole);
    } else {
        number::write_f64(&mut words.bytes, value);
    }
}
