//! Values on Lua's stack as C functions of this crate take them, and the error they raise.

use core::ffi::{c_char, c_int};
use core::slice;
use std::io::Write as _;

use darter_base::number;
use mlua::ffi::{
    LUA_TNUMBER, LUA_TSTRING, lua_concat, lua_error, lua_tolstring, lua_tonumber, lua_type, luaL_where,
};
use mlua::lua_State;

use crate::push;

/// The bytes of a string, without a copy.
///
/// # Safety
/// A string is at `at`. While the bytes are used, it stays on the stack, or in a table that does.
pub(crate) unsafe fn text<'a>(state: *mut lua_State, at: c_int) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the caller's promise.
    unsafe {
        let bytes: *const c_char = lua_tolstring(state, at, &mut len);
        slice::from_raw_parts(bytes.cast(), len)
    }
}

/// A number, or a text that reads as one.
///
/// # Safety
/// `state` is that of a C function that runs.
pub(crate) unsafe fn number(state: *mut lua_State, at: c_int) -> Option<f64> {
    // SAFETY: a missing value is of another type.
    unsafe {
        match lua_type(state, at) {
            LUA_TNUMBER => Some(lua_tonumber(state, at)),
            LUA_TSTRING => number::parse_f64(text(state, at)),
            _ => None,
        }
    }
}

/// Raises an error with the place of the caller in front, as in Lua's libraries.
///
/// # Safety
/// See [`number`]; no frame up to the next protected call holds a value with a destructor.
pub(crate) unsafe fn complain(state: *mut lua_State, message: &[u8]) -> ! {
    // SAFETY: the caller's promise.
    unsafe {
        push::room(state, 3);
        luaL_where(state, 1);
        push::text(state, message);
        lua_concat(state, 2);
        lua_error(state)
    }
}

/// Raises an error with numbers in it.
///
/// # Safety
/// As for [`complain`].
pub(crate) unsafe fn refuse(state: *mut lua_State, message: core::fmt::Arguments<'_>) -> ! {
    let mut line = [0u8; 160];
    let mut rest = &mut line[..];
    // What does not fit is left out.
    let _ = rest.write_fmt(message);
    let left = rest.len();
    let len = line.len() - left;
    // SAFETY: the caller's promise; an array of bytes needs no drop.
    unsafe { complain(state, line.get(..len).unwrap_or_default()) }
}
