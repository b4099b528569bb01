//! The library `cjson`: values as JSON and back, and its settings, as plain C functions.
//!
//! The settings lie in a block of Lua's, which each function has for its first upvalue. No function runs code of a
//! script: fields of tables and metatables are read raw.

mod decode;
mod encode;

use core::ffi::{c_int, c_void};
use core::ptr;

use mlua::ffi::{
    LUA_TSTRING, lua_CFunction, lua_createtable, lua_gettop, lua_insert, lua_newuserdata, lua_pop,
    lua_pushboolean, lua_pushcclosure, lua_pushlightuserdata, lua_pushnumber, lua_pushvalue, lua_rawset,
    lua_toboolean, lua_touserdata, lua_type, lua_upvalueindex,
};
use mlua::{Lua, Table, lua_State};

use crate::{push, read};

/// No setting passes this: deeper values would use up the stack.
const DEPTH_LIMIT: usize = 1000;
/// Digits of a number; more would not survive a double.
const PRECISION_MAX: usize = 14;

#[derive(Clone, Copy)]
struct JsonSettings {
    encode_depth_max: usize,
    decode_depth_max: usize,
    encodes_invalid: bool,
    decodes_invalid: bool,
    /// Whether decoded arrays are marked, so that they stay arrays when they are empty.
    marks_arrays: bool,
    converts_sparse: bool,
    sparse_ratio: usize,
    sparse_safe: usize,
    // 1 <= precision <= PRECISION_MAX
    precision: usize,
}

const DEFAULTS: JsonSettings = JsonSettings {
    encode_depth_max: DEPTH_LIMIT,
    decode_depth_max: DEPTH_LIMIT,
    encodes_invalid: false,
    decodes_invalid: true,
    marks_arrays: false,
    converts_sparse: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    precision: PRECISION_MAX,
};

const FUNCTIONS: [(&str, lua_CFunction); 10] = [
    ("encode", encode::encode),
    ("decode", decode::decode),
    ("encode_max_depth", encode_max_depth),
    ("decode_max_depth", decode_max_depth),
    ("encode_number_precision", encode_number_precision),
    ("encode_invalid_numbers", encode_invalid_numbers),
    ("decode_invalid_numbers", decode_invalid_numbers),
    ("decode_array_with_array_mt", decode_array_with_array_mt),
    ("encode_sparse_array", encode_sparse_array),
    ("encode_keep_buffer", encode_keep_buffer),
];

/// Where a function finds the metatable of marked arrays, behind the settings.
const MARK: c_int = lua_upvalueindex(2);

/// The library's table; its settings last as long as the Lua state. `mark` is the metatable of marked arrays.
/// Errors: memory.
pub fn json(lua: &Lua, mark: &Table) -> mlua::Result<Table> {
    // SAFETY: the closure runs in a protected call, with `mark` alone on the stack. It holds nothing that must be dropped,
    // and leaves one value. A block of Lua's is aligned for any of its numbers.
    unsafe {
        lua.exec_raw(mark, |state| {
            const { assert!(align_of::<JsonSettings>() <= align_of::<f64>()) };
            push::room(state, 6);
            let settings: *mut c_void = lua_newuserdata(state, size_of::<JsonSettings>());
            settings.cast::<JsonSettings>().write(DEFAULTS);
            lua_createtable(state, 0, FUNCTIONS.len() as c_int + 3);
            for (name, function) in FUNCTIONS {
                push::text(state, name.as_bytes());
                lua_pushvalue(state, -3);
                lua_pushvalue(state, -5);
                lua_pushcclosure(state, function, 2);
                lua_rawset(state, -3);
            }
            push::text(state, b"null");
            lua_pushlightuserdata(state, ptr::null_mut());
            lua_rawset(state, -3);
            for (name, value) in [("_NAME", "cjson"), ("_VERSION", "2.1.0")] {
                push::text(state, name.as_bytes());
                push::text(state, value.as_bytes());
                lua_rawset(state, -3);
            }
            lua_insert(state, -3);
            lua_pop(state, 2);
        })
    }
}

/// The settings of the library whose function runs.
///
/// # Safety
/// `state` is that of a function of [`FUNCTIONS`], which has just been called.
unsafe fn settings<'a>(state: *mut lua_State) -> &'a mut JsonSettings {
    // SAFETY: the first upvalue is the block that `json` made, which lives as long as the function. No other reference
    // to it is used while one of these functions runs.
    unsafe { &mut *lua_touserdata(state, lua_upvalueindex(1)).cast::<JsonSettings>() }
}

unsafe extern "C-unwind" fn encode_max_depth(state: *mut lua_State) -> c_int {
    // SAFETY: `state` is the caller's, as Lua promises.
    unsafe { number(state, "encode_max_depth", DEPTH_LIMIT, &mut settings(state).encode_depth_max) }
}

unsafe extern "C-unwind" fn decode_max_depth(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { number(state, "decode_max_depth", DEPTH_LIMIT, &mut settings(state).decode_depth_max) }
}

unsafe extern "C-unwind" fn encode_number_precision(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { number(state, "encode_number_precision", PRECISION_MAX, &mut settings(state).precision) }
}

unsafe extern "C-unwind" fn encode_invalid_numbers(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { switch(state, &mut settings(state).encodes_invalid) }
}

unsafe extern "C-unwind" fn decode_invalid_numbers(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { switch(state, &mut settings(state).decodes_invalid) }
}

unsafe extern "C-unwind" fn decode_array_with_array_mt(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { switch(state, &mut settings(state).marks_arrays) }
}

unsafe extern "C-unwind" fn encode_keep_buffer(state: *mut lua_State) -> c_int {
    // SAFETY: as above; a C function has room for twenty values.
    unsafe { lua_pushboolean(state, 1) };
    1
}

unsafe extern "C-unwind" fn encode_sparse_array(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let settings = settings(state);
        if lua_gettop(state) > 0 {
            settings.converts_sparse = is_on(state);
        }
        let count = |at| read::number(state, at).map(|value| value as usize);
        settings.sparse_ratio = count(2).unwrap_or(settings.sparse_ratio);
        settings.sparse_safe = count(3).unwrap_or(settings.sparse_safe);
        push::room(state, 3);
        lua_pushboolean(state, c_int::from(settings.converts_sparse));
        lua_pushnumber(state, settings.sparse_ratio as f64);
        lua_pushnumber(state, settings.sparse_safe as f64);
    }
    3
}

/// Sets a number if there is an argument, and returns it.
///
/// # Safety
/// As for [`settings`].
unsafe fn number(state: *mut lua_State, name: &str, max: usize, field: &mut usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if lua_gettop(state) > 0 {
            match read::number(state, 1) {
                Some(value) if value >= 1.0 => *field = (value as usize).min(max),
                _ => {
                    read::refuse(state, format_args!("bad argument #1 to '{name}' (expected integer)"));
                }
            }
        }
        push::room(state, 1);
        lua_pushnumber(state, *field as f64);
    }
    1
}

/// Sets a switch if there is an argument, and returns it.
///
/// # Safety
/// As for [`settings`].
unsafe fn switch(state: *mut lua_State, field: &mut bool) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if lua_gettop(state) > 0 {
            *field = is_on(state);
        }
        push::room(state, 1);
        lua_pushboolean(state, c_int::from(*field));
    }
    1
}

/// Returns true if the first argument turns a switch on.
///
/// # Safety
/// As for [`settings`]; there is an argument.
unsafe fn is_on(state: *mut lua_State) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match lua_type(state, 1) {
            LUA_TSTRING => matches!(read::text(state, 1), b"on" | b"null"),
            _ => lua_toboolean(state, 1) != 0,
        }
    }
}
