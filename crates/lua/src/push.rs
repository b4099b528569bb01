//! A reply of this server's own as values on Lua's stack.
//!
//! Everything in here may raise an error of memory, so no frame holds anything that must be dropped.

use core::ffi::{CStr, c_int};

use darter_base::number;
use mlua::ffi::{
    lua_createtable, lua_isnil, lua_pop, lua_pushboolean, lua_pushlstring_, lua_pushnil, lua_pushnumber,
    lua_rawset, lua_rawseti_, luaL_checkstack,
};
use mlua::lua_State;

/// Pushes one reply: always one value.
///
/// # Safety
/// `state` is that of a C function that runs.
pub(crate) unsafe fn reply(state: *mut lua_State, bytes: &[u8]) {
    if let Some(bulk) = bulk_of(bytes) {
        // SAFETY: a C function has room for twenty values when it is called.
        return unsafe { text(state, bulk) };
    }
    let mut cursor = PushCursor { bytes };
    // SAFETY: the caller's promise.
    unsafe { cursor.push(state) }
}

/// The text of a reply that is one, of less than ten thousand bytes.
#[inline]
fn bulk_of(bytes: &[u8]) -> Option<&[u8]> {
    let (b'$', rest) = bytes.split_first()? else { return None };
    let mut len = 0;
    for at in 0..5 {
        match *rest.get(at)? {
            digit @ b'0'..=b'9' => len = len * 10 + usize::from(digit - b'0'),
            b'\r' if at > 0 => return rest.get(at + 2..at + 2 + len),
            _ => return None,
        }
    }
    None
}

/// Makes room for `slots` more values.
///
/// # Safety
/// See [`reply`].
pub(crate) unsafe fn room(state: *mut lua_State, slots: c_int) {
    // SAFETY: the caller's promise; the text is static.
    unsafe { luaL_checkstack(state, slots, c"reply".as_ptr()) }
}

/// The rest of a reply. It is the server's own, so it is not validated; an incomplete one reads as nil.
struct PushCursor<'a> {
    bytes: &'a [u8],
}

impl<'a> PushCursor<'a> {
    fn line(&mut self) -> &'a [u8] {
        let end = self.bytes.iter().position(|&byte| byte == b'\r').unwrap_or(self.bytes.len());
        let (line, rest) = self.bytes.split_at(end);
        self.bytes = rest.get(2..).unwrap_or_default();
        line
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (text, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest.get(2..).unwrap_or_default();
        text
    }

    /// # Safety
    /// See [`reply`].
    unsafe fn push(&mut self, state: *mut lua_State) {
        let line = self.line();
        // SAFETY: room for one level is made first: a table, a key and a value.
        unsafe {
            room(state, 4);
            let Some((&kind, rest)) = line.split_first() else { return lua_pushnil(state) };
            let len = || number::parse_i64(rest).and_then(|len| usize::try_from(len).ok());
            match kind {
                b'+' => field(state, c"ok", rest),
                b'-' => field(state, c"err", rest.trim_ascii_end()),
                b':' => lua_pushnumber(state, number::parse_i64(rest).unwrap_or(-1) as f64),
                b'$' => match len() {
                    Some(len) => text(state, self.take(len)),
                    None => lua_pushboolean(state, 0),
                },
                b'*' | b'>' => match len() {
                    Some(len) => self.push_array(state, len),
                    None => lua_pushboolean(state, 0),
                },
                b'%' => {
                    begin_field(state, c"map");
                    self.push_pairs(state, len().unwrap_or(0));
                    lua_rawset(state, -3);
                }
                b'~' => {
                    begin_field(state, c"set");
                    self.push_set(state, len().unwrap_or(0));
                    lua_rawset(state, -3);
                }
                b'#' => lua_pushboolean(state, c_int::from(rest == b"t")),
                b',' => {
                    begin_field(state, c"double");
                    lua_pushnumber(state, number::parse_f64(rest).unwrap_or(f64::NAN));
                    lua_rawset(state, -3);
                }
                b'(' => field(state, c"big_number", rest),
                b'=' => {
                    let whole = self.take(len().unwrap_or(0));
                    begin_field(state, c"verbatim_string");
                    field(state, c"format", whole.get(..3).unwrap_or_default());
                    add_field(state, c"string", whole.get(4..).unwrap_or_default());
                    lua_rawset(state, -3);
                }
                b'|' => {
                    for _ in 0..len().unwrap_or(0).saturating_mul(2) {
                        self.push(state);
                        lua_pop(state, 1);
                    }
                    self.push(state);
                }
                _ => lua_pushnil(state),
            }
        }
    }

    /// # Safety
    /// See [`reply`].
    unsafe fn push_array(&mut self, state: *mut lua_State, len: usize) {
        // SAFETY: `push` leaves one value above the table.
        unsafe {
            lua_createtable(state, c_int::try_from(len.min(self.bytes.len())).unwrap_or(0), 0);
            for at in 1..=c_int::try_from(len).unwrap_or(c_int::MAX) {
                self.push(state);
                lua_rawseti_(state, -2, at);
            }
        }
    }

    /// # Safety
    /// See [`reply`].
    unsafe fn push_pairs(&mut self, state: *mut lua_State, len: usize) {
        // SAFETY: `push` leaves one value each time; nil is no key.
        unsafe {
            lua_createtable(state, 0, 0);
            for _ in 0..len {
                self.push(state);
                self.push(state);
                if lua_isnil(state, -2) != 0 {
                    lua_pop(state, 2);
                } else {
                    lua_rawset(state, -3);
                }
            }
        }
    }

    /// # Safety
    /// See [`reply`].
    unsafe fn push_set(&mut self, state: *mut lua_State, len: usize) {
        // SAFETY: as above.
        unsafe {
            lua_createtable(state, 0, 0);
            for _ in 0..len {
                self.push(state);
                if lua_isnil(state, -1) != 0 {
                    lua_pop(state, 1);
                } else {
                    lua_pushboolean(state, 1);
                    lua_rawset(state, -3);
                }
            }
        }
    }
}

/// Pushes a table with one field.
///
/// # Safety
/// See [`reply`].
unsafe fn field(state: *mut lua_State, name: &CStr, value: &[u8]) {
    // SAFETY: room was made by `push`.
    unsafe {
        lua_createtable(state, 0, 1);
        add_field(state, name, value);
    }
}

/// Sets a field of the table on top.
///
/// # Safety
/// See [`reply`].
unsafe fn add_field(state: *mut lua_State, name: &CStr, value: &[u8]) {
    // SAFETY: a table is on top.
    unsafe {
        room(state, 3);
        text(state, name.to_bytes());
        text(state, value);
        lua_rawset(state, -3);
    }
}

/// Pushes a table and the name of a field; `lua_rawset(state, -3)` ends it once the value is on top.
///
/// # Safety
/// See [`reply`].
unsafe fn begin_field(state: *mut lua_State, name: &CStr) {
    // SAFETY: room was made by `push`.
    unsafe {
        lua_createtable(state, 0, 1);
        text(state, name.to_bytes());
        room(state, 4);
    }
}

/// Pushes a string; the caller must have made room for it.
///
/// # Safety
/// See [`reply`].
pub(crate) unsafe fn text(state: *mut lua_State, bytes: &[u8]) {
    // SAFETY: Lua copies the bytes; of an empty text it reads none.
    unsafe { lua_pushlstring_(state, bytes.as_ptr().cast(), bytes.len()) }
}
