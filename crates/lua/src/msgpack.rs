//! The library `cmsgpack`: values as MessagePack and back, as plain C functions.

use core::ffi::c_int;

use mlua::ffi::{
    LUA_TBOOLEAN, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, lua_createtable, lua_gettop, lua_next,
    lua_pop, lua_pushboolean, lua_pushnil, lua_pushnumber, lua_pushvalue, lua_rawgeti_, lua_rawset,
    lua_rawseti_, lua_replace, lua_toboolean, lua_tonumber, lua_type,
};
use mlua::{Lua, Table, lua_State};

use crate::{push, read, scratch};

/// Tables deeper than this are packed as nil.
const PACKED_DEPTH_MAX: usize = 16;
/// Arrays and maps in one another that are unpacked.
const UNPACKED_DEPTH_MAX: usize = 128;

/// The library's table. Errors: memory.
pub fn msgpack(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    // SAFETY: the functions follow the rules for C functions of Lua, and no frame of theirs holds a value with a
    // destructor during a call that may raise.
    unsafe {
        library.raw_set("pack", lua.create_c_function(pack)?)?;
        library.raw_set("unpack", lua.create_c_function(unpack_all)?)?;
        library.raw_set("unpack_one", lua.create_c_function(unpack_one)?)?;
        library.raw_set("unpack_limit", lua.create_c_function(unpack_limit)?)?;
    }
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(library)
}

unsafe extern "C-unwind" fn pack(state: *mut lua_State) -> c_int {
    // SAFETY: `state` is the caller's. The buffer belongs to this thread and is not used by others before this
    // returns or jumps: nothing called here runs code of a script.
    unsafe {
        let len = lua_gettop(state);
        if len == 0 {
            read::complain(state, b"bad argument #0 to 'pack' (MessagePack pack needs input.)");
        }
        let out = scratch::take();
        for at in 1..=len {
            push::room(state, 1);
            lua_pushvalue(state, at);
            put(state, out, 0);
            lua_pop(state, 1);
        }
        push::text(state, out);
        scratch::shrink();
    }
    1
}

/// Packs the value on top, and leaves it there.
///
/// # Safety
/// `state` is that of a C function that runs, with a value on its stack.
unsafe fn put(state: *mut lua_State, out: &mut Vec<u8>, depth: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match lua_type(state, -1) {
            LUA_TBOOLEAN => out.push(if lua_toboolean(state, -1) != 0 { 0xc3 } else { 0xc2 }),
            LUA_TNUMBER => put_number(lua_tonumber(state, -1), out),
            LUA_TSTRING => {
                let text = read::text(state, -1);
                put_head(
                    text.len(),
                    out,
                    MsgpackHead { fixed: 0xa0, fixed_max: 31, eight: Some(0xd9), sixteen: 0xda },
                );
                out.extend_from_slice(text);
            }
            LUA_TTABLE if depth < PACKED_DEPTH_MAX => put_table(state, out, depth + 1),
            _ => out.push(0xc0),
        }
    }
}

fn put_number(value: f64, out: &mut Vec<u8>) {
    if value == (value as i64) as f64 && value.abs() < 9.2e18 {
        put_int(value as i64, out);
    } else if f64::from(value as f32) == value {
        out.push(0xca);
        out.extend_from_slice(&(value as f32).to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// # Safety
/// See [`put`]; the value is a table.
unsafe fn put_table(state: *mut lua_State, out: &mut Vec<u8>, depth: usize) {
    // SAFETY: `lua_next` finds the key it pushed before, because each step pops the values it pushed above.
    unsafe {
        push::room(state, 3);
        let (mut count, mut is_array, mut largest) = (0usize, true, 0.0f64);
        lua_pushnil(state);
        while lua_next(state, -2) != 0 {
            count += 1;
            let key = if lua_type(state, -2) == LUA_TNUMBER { lua_tonumber(state, -2) } else { 0.0 };
            is_array &= key > 0.0 && key.floor() == key;
            largest = largest.max(key);
            lua_pop(state, 1);
        }
        if is_array && largest == count as f64 {
            put_head(count, out, MsgpackHead { fixed: 0x90, fixed_max: 15, eight: None, sixteen: 0xdc });
            for at in 1..=c_int::try_from(count).unwrap_or(c_int::MAX) {
                lua_rawgeti_(state, -1, at);
                put(state, out, depth);
                lua_pop(state, 1);
            }
            return;
        }
        put_head(count, out, MsgpackHead { fixed: 0x80, fixed_max: 15, eight: None, sixteen: 0xde });
        lua_pushnil(state);
        while lua_next(state, -2) != 0 {
            lua_pushvalue(state, -2);
            put(state, out, depth);
            lua_pop(state, 1);
            put(state, out, depth);
            lua_pop(state, 1);
        }
    }
}

/// The first bytes of the forms of a length: within one byte, with one, with two, and four after that.
struct MsgpackHead {
    fixed: u8,
    fixed_max: usize,
    eight: Option<u8>,
    sixteen: u8,
}

fn put_head(len: usize, out: &mut Vec<u8>, head: MsgpackHead) {
    match (u8::try_from(len), u16::try_from(len), head.eight) {
        (Ok(len8), _, _) if len <= head.fixed_max => out.push(head.fixed | len8),
        (Ok(len8), _, Some(eight)) => out.extend_from_slice(&[eight, len8]),
        (_, Ok(len16), _) => {
            out.push(head.sixteen);
            out.extend_from_slice(&len16.to_be_bytes());
        }
        _ => {
            out.push(head.sixteen + 1);
            out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        }
    }
}

fn put_int(value: i64, out: &mut Vec<u8>) {
    let bytes = value.to_be_bytes();
    let (kind, width) = match value {
        -32..=127 => return out.push(value as u8),
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -128.. => (0xd0, 1),
        -32_768.. => (0xd1, 2),
        -2_147_483_648.. => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(kind);
    out.extend_from_slice(&bytes[8 - width..]);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MsgpackForm {
    All,
    One,
    Limit,
}

unsafe extern "C-unwind" fn unpack_all(state: *mut lua_State) -> c_int {
    // SAFETY: `state` is the caller's, as Lua promises.
    unsafe { unpack(state, MsgpackForm::All) }
}

unsafe extern "C-unwind" fn unpack_one(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { unpack(state, MsgpackForm::One) }
}

unsafe extern "C-unwind" fn unpack_limit(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe { unpack(state, MsgpackForm::Limit) }
}

/// # Safety
/// `state` is that of a C function that has just been called.
unsafe fn unpack(state: *mut lua_State, form: MsgpackForm) -> c_int {
    // SAFETY: the text is the first argument, so it does not move until this returns.
    unsafe {
        if lua_type(state, 1) != LUA_TSTRING {
            read::complain(state, b"bad argument #1 to 'unpack' (string expected)");
        }
        let text = read::text(state, 1);
        let top = lua_gettop(state);
        let offset = |at| if top < at { Some(0.0) } else { read::number(state, at) };
        let (limit, offset) = match form {
            MsgpackForm::All => (Some(0.0), Some(0.0)),
            MsgpackForm::One => (Some(1.0), offset(2)),
            MsgpackForm::Limit => (read::number(state, 2), offset(3)),
        };
        let (Some(limit), Some(offset)) = (limit, offset) else {
            read::complain(state, b"bad argument to 'unpack' (number expected)");
        };
        if offset < 0.0 || limit < 0.0 {
            read::refuse(
                state,
                format_args!("Invalid request to unpack with offset of {offset} and limit of {limit}."),
            );
        }
        let start = offset as usize;
        if start > text.len() {
            let len = text.len();
            read::refuse(state, format_args!("Start offset {start} greater than input length {len}."));
        }
        let limit = if limit < 1.0 { usize::MAX } else { limit as usize };
        if form != MsgpackForm::All {
            push::room(state, 1);
            lua_pushnil(state);
        }
        let mut reader = MsgpackUnpacker { text, at: start };
        let mut count = 0;
        while reader.at < text.len() && count < limit {
            if let Err(message) = reader.value(state, UNPACKED_DEPTH_MAX) {
                read::complain(state, message);
            }
            count += 1;
        }
        if form != MsgpackForm::All {
            push::room(state, 1);
            lua_pushnumber(state, if reader.at >= text.len() { -1.0 } else { reader.at as f64 });
            lua_replace(state, top + 1);
        }
        lua_gettop(state) - top
    }
}

type Read<T> = Result<T, &'static [u8]>;

const MISSING: &[u8] = b"Missing bytes in input.";
const BAD: &[u8] = b"Bad data format in input.";

struct MsgpackUnpacker<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> MsgpackUnpacker<'a> {
    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(len).ok_or(MISSING)?;
        let bytes = self.text.get(self.at..end).ok_or(MISSING)?;
        self.at = end;
        Ok(bytes)
    }

    fn unsigned(&mut self, width: usize) -> Read<u64> {
        Ok(self.take(width)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, width: usize) -> Read<f64> {
        let shift = 64 - 8 * width as u32;
        Ok(((self.unsigned(width)? << shift) as i64 >> shift) as f64)
    }

    fn len(&mut self, width: usize) -> Read<usize> {
        usize::try_from(self.unsigned(width)?).map_err(|_| MISSING)
    }

    /// Bytes that are left.
    fn left(&self) -> usize {
        self.text.len() - self.at
    }

    /// Reads one value and pushes it. Errors: the input's.
    ///
    /// # Safety
    /// `state` is that of a C function that runs.
    unsafe fn value(&mut self, state: *mut lua_State, depth: usize) -> Read<()> {
        let kind = self.unsigned(1)? as u8;
        let len = match kind {
            0xa0..=0xbf => usize::from(kind & 31),
            0x80..=0x9f => usize::from(kind & 15),
            0xc4 | 0xd9 => self.len(1)?,
            0xc5 | 0xda | 0xdc | 0xde => self.len(2)?,
            0xc6 | 0xdb | 0xdd | 0xdf => self.len(4)?,
            // SAFETY: the caller's promise.
            _ => return unsafe { self.scalar(state, kind) },
        };
        // SAFETY: the caller's promise; room for the text is made.
        unsafe {
            match kind {
                0x90..=0x9f | 0xdc | 0xdd => self.array(state, len, depth),
                0x80..=0x8f | 0xde | 0xdf => self.map(state, len, depth),
                _ => {
                    let text = self.take(len)?;
                    push::room(state, 1);
                    push::text(state, text);
                    Ok(())
                }
            }
        }
    }

    /// # Safety
    /// See [`MsgpackUnpacker::value`].
    unsafe fn scalar(&mut self, state: *mut lua_State, kind: u8) -> Read<()> {
        let number = match kind {
            0..=0x7f => f64::from(kind),
            0xe0.. => f64::from(kind as i8),
            0xc0 | 0xc2 | 0xc3 => 0.0,
            0xca => f64::from(f32::from_bits(self.unsigned(4)? as u32)),
            0xcb => f64::from_bits(self.unsigned(8)?),
            0xcc..=0xcf => self.unsigned(1 << (kind - 0xcc))? as f64,
            0xd0..=0xd3 => self.signed(1 << (kind - 0xd0))?,
            _ => return Err(BAD),
        };
        // SAFETY: the caller's promise; room is made.
        unsafe {
            push::room(state, 1);
            match kind {
                0xc0 => lua_pushnil(state),
                0xc2 | 0xc3 => lua_pushboolean(state, c_int::from(kind == 0xc3)),
                _ => lua_pushnumber(state, number),
            }
        }
        Ok(())
    }

    /// # Safety
    /// See [`MsgpackUnpacker::value`].
    unsafe fn array(&mut self, state: *mut lua_State, len: usize, depth: usize) -> Read<()> {
        // Each item takes a byte at least.
        if depth == 0 || len > self.left() {
            return Err(if depth == 0 { BAD } else { MISSING });
        }
        let len = c_int::try_from(len).map_err(|_| MISSING)?;
        // SAFETY: `value` leaves one value above the table.
        unsafe {
            push::room(state, 1);
            lua_createtable(state, len, 0);
            for at in 1..=len {
                self.value(state, depth - 1)?;
                lua_rawseti_(state, -2, at);
            }
        }
        Ok(())
    }

    /// # Safety
    /// See [`MsgpackUnpacker::value`].
    unsafe fn map(&mut self, state: *mut lua_State, len: usize, depth: usize) -> Read<()> {
        if depth == 0 {
            return Err(BAD);
        }
        let room = c_int::try_from(len.min(self.left() / 2)).map_err(|_| MISSING)?;
        // SAFETY: as above, a key and its value; what cannot be a key is refused.
        unsafe {
            push::room(state, 1);
            lua_createtable(state, 0, room);
            for _ in 0..len {
                self.value(state, depth - 1)?;
                self.value(state, depth - 1)?;
                let key = lua_type(state, -2);
                if key == LUA_TNIL || (key == LUA_TNUMBER && lua_tonumber(state, -2).is_nan()) {
                    return Err(BAD);
                }
                lua_rawset(state, -3);
            }
        }
        Ok(())
    }
}
