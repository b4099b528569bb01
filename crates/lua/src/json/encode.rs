//! `cjson.encode`.

use core::ffi::{CStr, c_int};
use std::io::Write as _;

use darter_base::number;
use mlua::ffi::{
    LUA_TBOOLEAN, LUA_TLIGHTUSERDATA, LUA_TNIL, LUA_TNUMBER, LUA_TSTRING, LUA_TTABLE, lua_getmetatable,
    lua_gettop, lua_next, lua_objlen, lua_pop, lua_pushnil, lua_rawequal, lua_rawget_, lua_rawgeti_,
    lua_toboolean, lua_tonumber, lua_touserdata, lua_type, lua_typename,
};
use mlua::lua_State;

use super::{JsonSettings, MARK, settings};
use crate::{push, read, scratch};

/// What keeps a value from being JSON.
#[derive(Clone, Copy)]
enum Unencodable {
    /// A type that JSON lacks.
    Type(c_int),
    Number,
    Depth(usize),
    /// A key of this type.
    Key(c_int),
    Sparse,
}

pub(super) unsafe extern "C-unwind" fn encode(state: *mut lua_State) -> c_int {
    // SAFETY: `state` is the caller's, as Lua promises. Nothing that is called here runs code of a script, and no frame
    // holds what must be dropped.
    unsafe {
        if lua_gettop(state) != 1 {
            read::complain(state, b"bad argument #1 to 'encode' (expected 1 argument)");
        }
        let mut encoder = Encoder { state, settings: *settings(state), out: scratch::take() };
        if let Err(fault) = encoder.value(0) {
            raise(state, fault);
        }
        push::room(state, 1);
        push::text(state, encoder.out);
        scratch::shrink();
    }
    1
}

/// # Safety
/// As for [`read::complain`].
unsafe fn raise(state: *mut lua_State, fault: Unencodable) -> ! {
    // SAFETY: the caller's promise. Names of types are static.
    unsafe {
        let name = |kind| CStr::from_ptr(lua_typename(state, kind)).to_str().unwrap_or("value");
        match fault {
            Unencodable::Number => {
                read::complain(state, b"Cannot serialise number: must not be NaN or Inf");
            }
            Unencodable::Sparse => {
                read::complain(state, b"Cannot serialise table: excessively sparse array");
            }
            Unencodable::Depth(depth) => {
                read::refuse(state, format_args!("Cannot serialise, excessive depth ({depth})"));
            }
            Unencodable::Type(kind) => {
                read::refuse(state, format_args!("Cannot serialise {}: type not supported", name(kind)));
            }
            Unencodable::Key(kind) => {
                let name = name(kind);
                let message = format_args!("Cannot serialise {name}: table key must be a number or string");
                read::refuse(state, message);
            }
        }
    }
}

struct Encoder<'a> {
    state: *mut lua_State,
    settings: JsonSettings,
    out: &'a mut Vec<u8>,
}

impl Encoder<'_> {
    /// Writes the value on top, and leaves it there.
    ///
    /// # Safety
    /// The state is that of a C function that runs, with a value on its stack.
    unsafe fn value(&mut self, depth: usize) -> Result<(), Unencodable> {
        let state = self.state;
        // SAFETY: the caller's promise; each arm reads what the type says is there.
        unsafe {
            match lua_type(state, -1) {
                LUA_TSTRING => write_text(self.out, read::text(state, -1)),
                LUA_TNUMBER => return self.number(-1),
                LUA_TTABLE => return self.table(depth + 1),
                LUA_TBOOLEAN => {
                    let word: &[u8] = if lua_toboolean(state, -1) != 0 { b"true" } else { b"false" };
                    self.out.extend_from_slice(word);
                }
                LUA_TNIL => self.out.extend_from_slice(b"null"),
                LUA_TLIGHTUSERDATA if lua_touserdata(state, -1).is_null() => {
                    self.out.extend_from_slice(b"null");
                }
                kind => return Err(Unencodable::Type(kind)),
            }
        }
        Ok(())
    }

    /// # Safety
    /// As for [`Encoder::value`]; a number is at `at`.
    unsafe fn number(&mut self, at: c_int) -> Result<(), Unencodable> {
        // SAFETY: the caller's promise.
        let value = unsafe { lua_tonumber(self.state, at) };
        if !value.is_finite() && !self.settings.encodes_invalid {
            return Err(Unencodable::Number);
        }
        write_general(self.out, value, self.settings.precision);
        Ok(())
    }

    /// # Safety
    /// As for [`Encoder::value`]; a table is on top.
    unsafe fn table(&mut self, depth: usize) -> Result<(), Unencodable> {
        let state = self.state;
        if depth > self.settings.encode_depth_max {
            return Err(Unencodable::Depth(depth));
        }
        // SAFETY: room for a key, a value and a copy; each step takes off what it put on top of the key.
        unsafe {
            push::room(state, 3);
            if is_marked(state) {
                return self.array(lua_objlen(state, -1), depth);
            }
            let (mut count, mut largest) = (0usize, 0.0f64);
            lua_pushnil(state);
            while lua_next(state, -2) != 0 {
                let key = if lua_type(state, -2) == LUA_TNUMBER { lua_tonumber(state, -2) } else { 0.0 };
                if key < 1.0 || key.floor() != key {
                    lua_pop(state, 2);
                    return self.object(depth);
                }
                count += 1;
                largest = largest.max(key);
                lua_pop(state, 1);
            }
            if count == 0 {
                return self.object(depth);
            }
            let JsonSettings { sparse_ratio, sparse_safe, converts_sparse, .. } = self.settings;
            let largest = largest as usize;
            if sparse_ratio > 0 && largest > count.saturating_mul(sparse_ratio) && largest > sparse_safe {
                return if converts_sparse { self.object(depth) } else { Err(Unencodable::Sparse) };
            }
            self.array(largest, depth)
        }
    }

    /// # Safety
    /// As for [`Encoder::table`], with room for a value.
    unsafe fn array(&mut self, len: usize, depth: usize) -> Result<(), Unencodable> {
        let len = c_int::try_from(len).map_err(|_| Unencodable::Sparse)?;
        self.out.push(b'[');
        for at in 1..=len {
            if at > 1 {
                self.out.push(b',');
            }
            // SAFETY: the table is on top again when the item is off.
            unsafe {
                lua_rawgeti_(self.state, -1, at);
                self.value(depth)?;
                lua_pop(self.state, 1);
            }
        }
        self.out.push(b']');
        Ok(())
    }

    /// # Safety
    /// As for [`Encoder::table`], with room for a key and a value.
    unsafe fn object(&mut self, depth: usize) -> Result<(), Unencodable> {
        let state = self.state;
        let mut separator = b'{';
        // SAFETY: keys are read without being converted, so that `lua_next` finds them.
        unsafe {
            lua_pushnil(state);
            while lua_next(state, -2) != 0 {
                self.out.push(separator);
                separator = b',';
                match lua_type(state, -2) {
                    LUA_TSTRING => write_text(self.out, read::text(state, -2)),
                    LUA_TNUMBER => {
                        self.out.push(b'"');
                        self.number(-2)?;
                        self.out.push(b'"');
                    }
                    kind => return Err(Unencodable::Key(kind)),
                }
                self.out.push(b':');
                self.value(depth)?;
                lua_pop(state, 1);
            }
        }
        if separator == b'{' {
            self.out.push(b'{');
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// Whether the table on top has the mark, or its metatable says itself that it is an array, empty or not. The mark keeps
/// its field where scripts cannot change it, so it is known by what it is.
///
/// # Safety
/// `state` is that of [`encode`], with room for two values.
unsafe fn is_marked(state: *mut lua_State) -> bool {
    // SAFETY: the caller's promise; the metatable and its field are taken off again.
    unsafe {
        if lua_getmetatable(state, -1) == 0 {
            return false;
        }
        let is_mark = lua_rawequal(state, -1, MARK) != 0;
        push::text(state, b"__is_cjson_array");
        lua_rawget_(state, -2);
        let is_marked = is_mark || lua_toboolean(state, -1) != 0;
        lua_pop(state, 2);
        is_marked
    }
}

/// What stands behind the backslash for a byte that needs one: a letter, `u` for a number, or 0 for none.
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut at = 0;
    while at < 32 {
        escapes[at] = b'u';
        at += 1;
    }
    escapes[127] = b'u';
    escapes[8] = b'b';
    escapes[9] = b't';
    escapes[10] = b'n';
    escapes[12] = b'f';
    escapes[13] = b'r';
    escapes[b'"' as usize] = b'"';
    escapes[b'\\' as usize] = b'\\';
    escapes[b'/' as usize] = b'/';
    escapes
};

fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| ESCAPES[usize::from(byte)] != 0) {
        let (plain, escaped) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&byte, left)) = escaped.split_first() else { break };
        match ESCAPES[usize::from(byte)] {
            b'u' => {
                const DIGITS: &[u8; 16] = b"0123456789abcdef";
                let (high, low) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
            }
            letter => out.extend_from_slice(&[b'\\', letter]),
        }
        rest = left;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Below this, an integer has no more digits than any precision that is set lets it show.
const WHOLE: [f64; 15] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14];

/// Writes a number as C's `%.*g` does. `precision` is at most 14.
fn write_general(out: &mut Vec<u8>, value: f64, precision: usize) {
    let whole = value as i64;
    let limit = WHOLE.get(precision).copied().unwrap_or(1.0);
    if whole as f64 == value && value.abs() < limit && (whole != 0 || value.is_sign_positive()) {
        return number::write_i64(out, whole);
    }
    if !value.is_finite() {
        let text = if value.is_nan() {
            "nan"
        } else if value > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return out.extend_from_slice(text.as_bytes());
    }
    let mut buffer = [0; 40];
    // The shortest digits that mean this number, if they are few enough: to so many digits it rounds to just them. Among
    // the smallest numbers a few digits may stand for many more.
    let mut science = print(&mut buffer, format_args!("{value:e}"));
    if science.digits > precision || !value.is_normal() {
        science = print(&mut buffer, format_args!("{value:.*e}", precision - 1));
    }
    let Science { is_negative, digits, exponent } = science;
    let digits = trimmed(&mut buffer, usize::from(is_negative), digits);
    if is_negative {
        out.push(b'-');
    }
    let (first, rest) = digits.split_at(1.min(digits.len()));
    if exponent < -4 || exponent >= precision as i32 {
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        // A vector takes all of it.
        let _ = write!(out, "e{sign}{:02}", exponent.abs());
    } else if exponent < 0 {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + (-1 - exponent) as usize, b'0');
        out.extend_from_slice(digits);
    } else {
        let whole_len = exponent as usize + 1;
        let (whole, decimals) = digits.split_at(whole_len.min(digits.len()));
        out.extend_from_slice(whole);
        out.resize(out.len() + (whole_len - whole.len()), b'0');
        if !decimals.is_empty() {
            out.push(b'.');
            out.extend_from_slice(decimals);
        }
    }
}

/// A number in a buffer as `-d.ddde-x`.
#[derive(Clone, Copy)]
struct Science {
    is_negative: bool,
    digits: usize,
    exponent: i32,
}

/// Prints a number with an exponent, and takes its point out.
fn print(buffer: &mut [u8; 40], number: core::fmt::Arguments<'_>) -> Science {
    let mut rest = &mut buffer[..];
    // The longest is `-d.ddddddddddddddddde-324`.
    let _ = rest.write_fmt(number);
    let left = rest.len();
    let len = buffer.len() - left;
    let text = &buffer[..len];
    let is_negative = text.first() == Some(&b'-');
    let end = text.iter().position(|&byte| byte == b'e').unwrap_or(len);
    let exponent = number::parse_i64(text.get(end + 1..).unwrap_or_default()).unwrap_or(0) as i32;
    let start = usize::from(is_negative);
    let digits = if end > start + 1 { end - start - 1 } else { 1 };
    if end > start + 1 {
        buffer.copy_within(start + 2..end, start + 1);
    }
    Science { is_negative, digits, exponent }
}

/// The digits that [`print`] left from byte `start` on, without zeros at the end.
fn trimmed(buffer: &mut [u8; 40], start: usize, digits: usize) -> &[u8] {
    let all = buffer.get(start..start + digits).unwrap_or_default();
    let zeros = all.iter().skip(1).rev().take_while(|&&byte| byte == b'0').count();
    &all[..all.len() - zeros]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn general(value: f64, precision: usize) -> String {
        let mut out = Vec::new();
        write_general(&mut out, value, precision);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn numbers_are_as_printf_writes_them() {
        for (value, precision, text) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1.0, 1, "1"),
            (10.0, 1, "1e+01"),
            (15.0, 1, "2e+01"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (100_000_000_000_000.0, 14, "1e+14"),
            (-123_456_789.0, 14, "-123456789"),
            (123_456_789.0, 5, "1.2346e+08"),
            (0.1, 14, "0.1"),
            (1.0 / 3.0, 14, "0.33333333333333"),
            (2.0 / 3.0, 3, "0.667"),
            (-1234.5, 14, "-1234.5"),
            (1e20, 14, "1e+20"),
            (1.5e-9, 14, "1.5e-09"),
            (0.0001, 14, "0.0001"),
            (0.00001, 14, "1e-05"),
            (123_456_789_012_345.0, 14, "1.2345678901234e+14"),
            (0.1 + 0.2, 14, "0.3"),
            (999_999.999_999_999_9, 14, "1000000"),
            (5e-324, 14, "4.9406564584125e-324"),
            (f64::MAX, 14, "1.7976931348623e+308"),
            (f64::NAN, 14, "nan"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            assert_eq!(general(value, precision), text, "{value:e} {precision}");
        }
    }

    #[test]
    fn shortest_digits_are_what_rounding_to_them_gives() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = match state % 3 {
                0 => f64::from_bits(state),
                1 => (state >> 20) as f64 / 1000.0,
                _ => (state >> 40) as f64 / 128.0,
            };
            if !value.is_finite() {
                continue;
            }
            let (all, mut buffer) = (general(value, 14), [0; 40]);
            let science = print(&mut buffer, format_args!("{value:.13e}"));
            let digits = trimmed(&mut buffer, usize::from(science.is_negative), science.digits).to_vec();
            let shown: Vec<u8> =
                all.bytes().take_while(|&byte| byte != b'e').filter(u8::is_ascii_digit).collect();
            let shown: Vec<u8> = shown.iter().copied().skip_while(|&byte| byte == b'0').collect();
            let shown = String::from_utf8(shown).expect("ASCII");
            let digits = String::from_utf8(digits).expect("ASCII");
            let is_same = shown.trim_end_matches('0') == digits.trim_end_matches('0');
            assert!(is_same || value == 0.0, "{value:e}: {all}, {digits}");
        }
    }

    #[test]
    fn texts_are_escaped_as_cjson_does() {
        let mut out = Vec::new();
        write_text(&mut out, b"a\"b\\c/d\n\r\t\x08\x0c\x00\x1f\x7f\xc3\xa9");
        let text = "\"a\\\"b\\\\c\\/d\\n\\r\\t\\b\\f\\u0000\\u001f\\u007f\u{e9}\"";
        assert_eq!(String::from_utf8(out).expect("UTF-8"), text);
    }
}
