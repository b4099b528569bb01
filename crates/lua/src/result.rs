//! The result of a script, as a reply.
//!
//! Values are read from Lua's stack with raw access; no code of the script runs here.

use core::ffi::c_int;

use darter_wire::Reply;
use mlua::ffi::{
    LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, lua_gettop, lua_next, lua_pop, lua_pushnil,
    lua_pushvalue, lua_rawget_, lua_rawgeti_, lua_toboolean, lua_tonumber, lua_type,
};
use mlua::lua_State;

use crate::push;
use crate::read;

/// Deepest nesting of tables in a result.
const DEPTH_MAX: usize = 1000;

/// Writes the value on top of the stack. `resp3` is the protocol requested by the script itself.
///
/// # Safety
/// `state` is that of a C function that runs, with a value on its stack.
pub(crate) unsafe fn write(state: *mut lua_State, resp3: bool, reply: &mut Reply<'_>) {
    // SAFETY: the caller's promise; room for the names and a value is made.
    unsafe {
        let mut writer = ResultWriter { state, resp3, reply, names: 0 };
        if lua_type(state, -1) == LUA_TTABLE {
            push::room(state, NAMES.len() as c_int + 2);
            let value = lua_gettop(state);
            NAMES.iter().for_each(|name| push::text(state, name));
            writer.names = value + 1;
            lua_pushvalue(state, value);
        }
        writer.value(DEPTH_MAX);
    }
}

/// The fields that make a table more than an array, in the order in which they are checked.
const NAMES: [&[u8]; 9] =
    [b"err", b"ok", b"double", b"map", b"set", b"big_number", b"verbatim_string", b"format", b"string"];
const ERR: c_int = 0;
const OK: c_int = 1;
const DOUBLE: c_int = 2;
const MAP: c_int = 3;
const SET: c_int = 4;
const BIG_NUMBER: c_int = 5;
const VERBATIM: c_int = 6;
const FORMAT: c_int = 7;
const STRING: c_int = 8;

struct ResultWriter<'a, 'b> {
    state: *mut lua_State,
    resp3: bool,
    reply: &'a mut Reply<'b>,
    /// Stack index of the first of `NAMES`; the others follow it.
    names: c_int,
}

impl ResultWriter<'_, '_> {
    /// Writes the value on top, and leaves it there.
    ///
    /// # Safety
    /// See [`write`].
    unsafe fn value(&mut self, depth: usize) {
        let state = self.state;
        // SAFETY: a value is on top.
        unsafe {
            match lua_type(state, -1) {
                LUA_TSTRING => self.reply.bulk(read::text(state, -1)),
                LUA_TBOOLEAN if self.resp3 => self.reply.boolean(lua_toboolean(state, -1) != 0),
                LUA_TBOOLEAN if lua_toboolean(state, -1) != 0 => self.reply.int(1),
                LUA_TNUMBER => self.reply.int(lua_tonumber(state, -1) as i64),
                LUA_TTABLE if depth == 0 => self.reply.error("ERR reached lua stack limit"),
                LUA_TTABLE => self.table(depth - 1),
                _ => self.reply.null(),
            }
        }
    }

    /// Pushes a field of the table on top; returns true if it is of the wanted type. Otherwise pops it again.
    ///
    /// # Safety
    /// See [`write`]; a table is on top, and room for two values.
    unsafe fn field(&self, name: c_int, wanted: c_int) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            lua_pushvalue(self.state, self.names + name);
            lua_rawget_(self.state, -2);
            let is_wanted = lua_type(self.state, -1) == wanted;
            if !is_wanted {
                lua_pop(self.state, 1);
            }
            is_wanted
        }
    }

    /// # Safety
    /// See [`write`]; a table is on top.
    unsafe fn table(&mut self, depth: usize) {
        let state = self.state;
        // SAFETY: each field that is pushed is popped after it is written.
        unsafe {
            push::room(state, 6);
            if self.field(ERR, LUA_TSTRING) {
                self.reply.error(read::text(state, -1));
            } else if self.field(OK, LUA_TSTRING) {
                self.reply.status(read::text(state, -1));
            } else if self.field(DOUBLE, LUA_TNUMBER) {
                self.reply.double(lua_tonumber(state, -1));
            } else if self.field(MAP, LUA_TTABLE) {
                self.pairs(depth, true);
            } else if self.field(SET, LUA_TTABLE) {
                self.pairs(depth, false);
            } else if self.field(BIG_NUMBER, LUA_TSTRING) {
                let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
                let spaced = |byte: &u8| if is_break(byte) { b' ' } else { *byte };
                let digits: Vec<u8> = read::text(state, -1).iter().map(spaced).collect();
                self.reply.big_number(&digits);
            } else if !self.field(VERBATIM, LUA_TTABLE) {
                return self.array(depth);
            } else if !self.verbatim() {
                lua_pop(state, 1);
                return self.array(depth);
            }
            lua_pop(state, 1);
        }
    }

    /// Writes a map, or the keys of a set, from the table on top.
    ///
    /// # Safety
    /// See [`write`]; a table is on top.
    unsafe fn pairs(&mut self, depth: usize, is_map: bool) {
        let state = self.state;
        // SAFETY: `lua_next` finds the key it pushed before, because each step pops the values it pushed above.
        unsafe {
            let begun = self.reply.begin_array();
            let mut len = 0;
            lua_pushnil(state);
            while lua_next(state, -2) != 0 {
                lua_pushvalue(state, -2);
                self.value(depth);
                lua_pop(state, 1);
                if is_map {
                    self.value(depth);
                }
                lua_pop(state, 1);
                len += 1;
            }
            if is_map { self.reply.end_map(begun, len) } else { self.reply.end_set(begun, len) }
        }
    }

    /// Writes a text with its format from the table on top; returns false if one of them is missing.
    ///
    /// # Safety
    /// See [`write`]; a table is on top.
    unsafe fn verbatim(&mut self) -> bool {
        let state = self.state;
        // SAFETY: as above; both texts stay on the stack until they are written.
        unsafe {
            if !self.field(FORMAT, LUA_TSTRING) {
                return false;
            }
            let mut letters = *b"txt";
            letters.iter_mut().zip(read::text(state, -1)).for_each(|(to, from)| *to = *from);
            lua_pop(state, 1);
            let has_text = self.field(STRING, LUA_TSTRING);
            if has_text {
                self.reply.verbatim(letters, read::text(state, -1));
                lua_pop(state, 1);
            }
            has_text
        }
    }

    /// # Safety
    /// See [`write`]; a table is on top.
    unsafe fn array(&mut self, depth: usize) {
        let state = self.state;
        // SAFETY: as above.
        unsafe {
            let begun = self.reply.begin_array();
            let mut len = 0;
            for at in 1.. {
                lua_rawgeti_(state, -1, at);
                if lua_type(state, -1) == LUA_TNIL {
                    lua_pop(state, 1);
                    break;
                }
                self.value(depth);
                lua_pop(state, 1);
                len += 1;
            }
            self.reply.end_array(begun, len);
        }
    }
}
