//! Values on Lua's stack as C functions of this crate take them, and the error they raise.

use core::ffi::{c_char, c_int};
use core::slice;

use darter_base::number;
use mlua::ffi::{
    LUA_TNUMBER, LUA_TSTRING, lua_concat, lua_error, lua_tolstring, lua_tonumber, lua_type, luaL_where,
};
use mlua::lua_State;

use crate::push;

/// The bytes of a string, where they lie.
///
/// # Safety
/// A string is at `at`, and stays on the stack or in a table that does while the bytes are used.
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
    // SAFETY: what is not there is of another type.
    unsafe {
        match lua_type(state, at) {
            LUA_TNUMBER => Some(lua_tonumber(state, at)),
            LUA_TSTRING => number::parse_f64(text(state, at)),
            _ => None,
        }
    }
}

/// Raises an error with the place of the caller in front, as libraries do.
///
/// # Safety
/// As for [`number`]; no frame up to the next protected call holds what must be dropped.
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
