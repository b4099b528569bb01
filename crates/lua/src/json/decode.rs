//! `cjson.decode`.

use core::ffi::c_int;
use core::ptr;

use darter_base::number;
use mlua::ffi::{
    LUA_TNUMBER, LUA_TSTRING, lua_createtable, lua_gettop, lua_pushboolean, lua_pushlightuserdata,
    lua_pushnumber, lua_pushvalue, lua_rawset, lua_rawseti_, lua_setmetatable, lua_type,
};
use mlua::lua_State;

use super::{JsonSettings, MARK, settings};
use crate::{push, read, scratch};

/// Error of a JSON text.
#[derive(Clone, Copy)]
enum BadJson {
    /// Something else was expected than what was found at this byte.
    Expected { what: &'static str, found: &'static str, at: usize },
    /// Values in one another.
    Depth(usize),
}

pub(super) unsafe extern "C-unwind" fn decode(state: *mut lua_State) -> c_int {
    // SAFETY: `state` is the caller's, as Lua promises. The text is the first argument, so it stays where it is until
    // this returns; no frame holds what must be dropped.
    unsafe {
        if lua_gettop(state) != 1 || !matches!(lua_type(state, 1), LUA_TSTRING | LUA_TNUMBER) {
            read::complain(state, b"bad argument #1 to 'decode' (expected 1 argument)");
        }
        let mut decoder =
            JsonDecoder { state, settings: *settings(state), text: read::text(state, 1), at: 0 };
        match decoder.whole() {
            Ok(()) => 1,
            Err(BadJson::Depth(depth)) => {
                read::refuse(state, format_args!("Found too many nested data structures ({depth})"))
            }
            Err(BadJson::Expected { what, found, at }) => {
                let at = at + 1;
                read::refuse(state, format_args!("Expected {what} but found {found} at character {at}"))
            }
        }
    }
}

type Read<T> = Result<T, BadJson>;

struct JsonDecoder<'a> {
    state: *mut lua_State,
    settings: JsonSettings,
    text: &'a [u8],
    at: usize,
}

impl<'a> JsonDecoder<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn next_is(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    #[cold]
    fn expected(&self, what: &'static str) -> BadJson {
        let rest = self.rest();
        let found = match rest.first() {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b',') => "T_COMMA",
            Some(b':') => "T_COLON",
            Some(b'"') => "T_STRING",
            Some(b'-' | b'0'..=b'9') => "T_NUMBER",
            Some(_) if rest.starts_with(b"null") => "T_NULL",
            Some(_) if rest.starts_with(b"true") || rest.starts_with(b"false") => "T_BOOLEAN",
            Some(_) => "invalid token",
        };
        BadJson::Expected { what, found, at: self.at }
    }

    /// # Safety
    /// The state is that of a C function that runs, with the settings and the mark for its upvalues.
    unsafe fn whole(&mut self) -> Read<()> {
        // SAFETY: the caller's promise.
        unsafe { self.value(0)? };
        self.skip_space();
        if self.at < self.text.len() { Err(self.expected("the end")) } else { Ok(()) }
    }

    /// Reads one value and pushes it.
    ///
    /// # Safety
    /// As for [`JsonDecoder::whole`].
    unsafe fn value(&mut self, depth: usize) -> Read<()> {
        self.skip_space();
        let rest = self.rest();
        // SAFETY: the caller's promise; room for the value, and for a table's mark or key, is made first.
        unsafe {
            push::room(self.state, 3);
            match rest.first() {
                Some(b'{') => return self.object(depth + 1),
                Some(b'[') => return self.array(depth + 1),
                Some(b'"') => return self.string(),
                _ => {}
            }
            if rest.starts_with(b"null") {
                self.at += 4;
                lua_pushlightuserdata(self.state, ptr::null_mut());
            } else if rest.starts_with(b"true") {
                self.at += 4;
                lua_pushboolean(self.state, 1);
            } else if rest.starts_with(b"false") {
                self.at += 5;
                lua_pushboolean(self.state, 0);
            } else {
                let number = self.number()?;
                lua_pushnumber(self.state, number);
            }
        }
        Ok(())
    }

    fn number(&mut self) -> Read<f64> {
        let rest = self.rest();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let len = rest.iter().take_while(|byte| is_part(byte)).count();
        let (word, _) = rest.split_at(len);
        let digits = word.strip_prefix(b"-").unwrap_or(word);
        let starts =
            |with: &[u8]| digits.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
        let is_plain = digits.first().is_some_and(u8::is_ascii_digit);
        let is_hex = starts(b"0x");
        let is_special = self.settings.decodes_invalid && (starts(b"inf") || starts(b"nan") || is_hex);
        if !is_special && (!is_plain || is_hex) {
            return Err(self.expected("value"));
        }
        let value = match is_hex {
            true => hex(digits.get(2..).unwrap_or_default()),
            false if digits.eq_ignore_ascii_case(b"nan") => Some(f64::NAN),
            false => number::parse_f64(word),
        };
        match value {
            Some(value) => {
                self.at += len;
                Ok(value)
            }
            None => match self.expected("value") {
                BadJson::Expected { what, found: "T_NUMBER", at } => {
                    Err(BadJson::Expected { what, found: "invalid token", at })
                }
                fault => Err(fault),
            },
        }
    }

    fn check_depth(&self, depth: usize) -> Read<()> {
        if depth > self.settings.decode_depth_max { Err(BadJson::Depth(depth)) } else { Ok(()) }
    }

    /// # Safety
    /// As for [`JsonDecoder::value`], with room for two values.
    unsafe fn array(&mut self, depth: usize) -> Read<()> {
        self.at += 1;
        self.check_depth(depth)?;
        // SAFETY: `value` leaves one value above the table.
        unsafe {
            lua_createtable(self.state, 0, 0);
            if self.settings.marks_arrays {
                lua_pushvalue(self.state, MARK);
                lua_setmetatable(self.state, -2);
            }
            if self.next_is(b']') {
                return Ok(());
            }
            for at in 1..=c_int::MAX {
                self.value(depth)?;
                lua_rawseti_(self.state, -2, at);
                if self.next_is(b']') {
                    break;
                }
                if !self.next_is(b',') {
                    return Err(self.expected("comma or array end"));
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`JsonDecoder::array`].
    unsafe fn object(&mut self, depth: usize) -> Read<()> {
        self.at += 1;
        self.check_depth(depth)?;
        // SAFETY: a text and a value lie above the table when they are set.
        unsafe {
            lua_createtable(self.state, 0, 0);
            if self.next_is(b'}') {
                return Ok(());
            }
            loop {
                self.skip_space();
                if self.text.get(self.at) != Some(&b'"') {
                    return Err(self.expected("object key string"));
                }
                self.string()?;
                if !self.next_is(b':') {
                    return Err(self.expected("colon"));
                }
                self.value(depth)?;
                lua_rawset(self.state, -3);
                if self.next_is(b'}') {
                    return Ok(());
                }
                if !self.next_is(b',') {
                    return Err(self.expected("comma or object end"));
                }
            }
        }
    }

    /// Reads the text between quotes, the first of which is next, and pushes it.
    ///
    /// # Safety
    /// As for [`JsonDecoder::value`], with room for a value.
    unsafe fn string(&mut self) -> Read<()> {
        let start = self.at;
        let invalid = |found| Err(BadJson::Expected { what: "value", found, at: start });
        self.at += 1;
        let Some((len, end)) = plain(self.rest()) else { return invalid("unexpected end of string") };
        let text = self.rest();
        let head = text.get(..len).unwrap_or_default();
        self.at += len + 1;
        if end == b'"' {
            // SAFETY: the caller's promise.
            unsafe { push::text(self.state, head) };
            return Ok(());
        }
        // SAFETY: `decode` was called by Lua, and nothing before this uses the buffer; what is called while it is held
        // is `push::text`, last.
        let out = unsafe { scratch::take() };
        out.extend_from_slice(head);
        loop {
            let escape = self.text.get(self.at).copied().unwrap_or(0);
            self.at += 1;
            match escape {
                b'"' | b'\\' | b'/' => out.push(escape),
                b'b' => out.push(8),
                b'f' => out.push(12),
                b'n' => out.push(b'\n'),
                b'r' => out.push(b'\r'),
                b't' => out.push(b'\t'),
                b'u' => match self.unicode() {
                    Some(letter) => {
                        let mut bytes = [0; 4];
                        out.extend_from_slice(letter.encode_utf8(&mut bytes).as_bytes());
                    }
                    None => return invalid("invalid unicode escape code"),
                },
                _ => return invalid("invalid escape code"),
            }
            let rest = self.rest();
            let Some((len, end)) = plain(rest) else { return invalid("unexpected end of string") };
            out.extend_from_slice(rest.get(..len).unwrap_or_default());
            self.at += len + 1;
            if end == b'"' {
                // SAFETY: the caller's promise; Lua copies the text.
                unsafe { push::text(self.state, out) };
                return Ok(());
            }
        }
    }

    fn unicode(&mut self) -> Option<char> {
        let high = self.hex_digits()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high);
        }
        if self.text.get(self.at..self.at + 2)? != b"\\u" {
            return None;
        }
        self.at += 2;
        let low = self.hex_digits()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)
    }

    fn hex_digits(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |sum, byte| Some(sum << 4 | char::from(*byte).to_digit(16)?))
    }
}

/// The length of what has neither quote nor backslash, and which of them ends it.
fn plain(text: &[u8]) -> Option<(usize, u8)> {
    let len = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some((len, *text.get(len)?))
}

fn hex(digits: &[u8]) -> Option<f64> {
    let digits = core::str::from_utf8(digits).ok()?;
    u64::from_str_radix(digits, 16).ok().map(|value| value as f64)
}
