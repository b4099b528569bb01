//! The library `cjson`: values as JSON and back.

use std::cell::Cell;
use std::rc::Rc;

use darter_base::number;
use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::library::{complain, number_at};

/// No setting goes beyond this: what nests deeper would use up the stack.
const DEPTH_LIMIT: usize = 1000;

#[derive(Clone, Copy)]
struct Settings {
    encode_depth_max: usize,
    decode_depth_max: usize,
    encodes_invalid: bool,
    decodes_invalid: bool,
    /// Whether arrays that are decoded are marked, so that they stay arrays when they are empty.
    marks_arrays: bool,
    converts_sparse: bool,
    sparse_ratio: usize,
    sparse_safe: usize,
    precision: usize,
}

const DEFAULTS: Settings = Settings {
    encode_depth_max: DEPTH_LIMIT,
    decode_depth_max: DEPTH_LIMIT,
    encodes_invalid: false,
    decodes_invalid: true,
    marks_arrays: false,
    converts_sparse: false,
    sparse_ratio: 2,
    sparse_safe: 10,
    precision: 14,
};

/// The library's table; its settings last as long as the Lua state. `mark` is the metatable of arrays that are marked.
pub fn build(lua: &Lua, mark: Table) -> Result<Table> {
    let settings = Rc::new(Cell::new(DEFAULTS));
    let library = lua.create_table()?;
    library.raw_set("null", Value::NULL)?;
    library.raw_set("_NAME", "cjson")?;
    library.raw_set("_VERSION", "2.1.0")?;
    let held = settings.clone();
    let encode = move |lua: &Lua, args: MultiValue| {
        let (1, Some(value)) = (args.len(), args.front()) else {
            return Err(complain(lua, "bad argument #1 to 'encode' (expected 1 argument)"));
        };
        let mut encoder = Encoder { settings: held.get(), out: Vec::new() };
        match encoder.value(value, 0)? {
            Ok(()) => lua.create_string(encoder.out),
            Err(message) => Err(complain(lua, &message)),
        }
    };
    library.raw_set("encode", lua.create_function(encode)?)?;
    let held = settings.clone();
    let decode = move |lua: &Lua, args: MultiValue| {
        let text = match (args.len(), args.front()) {
            (1, Some(value)) => lua.coerce_string(value.clone())?,
            _ => None,
        };
        let Some(text) = text else {
            return Err(complain(lua, "bad argument #1 to 'decode' (expected 1 argument)"));
        };
        let text = text.as_bytes();
        let mut decoder = Decoder { lua, mark: &mark, settings: held.get(), text: &text, at: 0 };
        match decoder.whole()? {
            Ok(value) => Ok(value),
            Err(message) => Err(complain(lua, &message)),
        }
    };
    library.raw_set("decode", lua.create_function(decode)?)?;
    add_settings(lua, &library, &settings)?;
    Ok(library)
}

type Held = Rc<Cell<Settings>>;

fn add_settings(lua: &Lua, library: &Table, settings: &Held) -> Result<()> {
    type Depth = fn(&mut Settings) -> &mut usize;
    type Switch = fn(&mut Settings) -> &mut bool;
    let numbers: [(&str, usize, Depth); 3] = [
        ("encode_max_depth", DEPTH_LIMIT, |s| &mut s.encode_depth_max),
        ("decode_max_depth", DEPTH_LIMIT, |s| &mut s.decode_depth_max),
        ("encode_number_precision", 14, |s| &mut s.precision),
    ];
    for (name, max, field) in numbers {
        let held = settings.clone();
        let set = move |lua: &Lua, args: MultiValue| {
            let mut all = held.get();
            if !args.is_empty() {
                match number_at(&args, 0) {
                    Some(value) if value >= 1.0 => *field(&mut all) = (value as usize).min(max),
                    _ => {
                        return Err(complain(
                            lua,
                            &format!("bad argument #1 to '{name}' (expected integer)"),
                        ));
                    }
                }
                held.set(all);
            }
            Ok(*field(&mut all))
        };
        library.raw_set(name, lua.create_function(set)?)?;
    }
    let switches: [(&str, Switch); 3] = [
        ("encode_invalid_numbers", |s| &mut s.encodes_invalid),
        ("decode_invalid_numbers", |s| &mut s.decodes_invalid),
        ("decode_array_with_array_mt", |s| &mut s.marks_arrays),
    ];
    for (name, field) in switches {
        let held = settings.clone();
        let set = move |_: &Lua, args: MultiValue| {
            let mut all = held.get();
            if let Some(value) = args.front() {
                *field(&mut all) = is_on(value);
                held.set(all);
            }
            Ok(*field(&mut all))
        };
        library.raw_set(name, lua.create_function(set)?)?;
    }
    let held = settings.clone();
    let sparse = move |_: &Lua, args: MultiValue| {
        let mut all = held.get();
        if let Some(value) = args.front() {
            all.converts_sparse = is_on(value);
        }
        all.sparse_ratio = number_at(&args, 1).map_or(all.sparse_ratio, |ratio| ratio as usize);
        all.sparse_safe = number_at(&args, 2).map_or(all.sparse_safe, |safe| safe as usize);
        held.set(all);
        Ok((all.converts_sparse, all.sparse_ratio, all.sparse_safe))
    };
    library.raw_set("encode_sparse_array", lua.create_function(sparse)?)?;
    library.raw_set("encode_keep_buffer", lua.create_function(|_, _: MultiValue| Ok(true))?)
}

fn is_on(value: &Value) -> bool {
    match value {
        Value::String(text) => matches!(&*text.as_bytes(), b"on" | b"null"),
        value => !matches!(value, Value::Nil | Value::Boolean(false)),
    }
}

type Said<T> = std::result::Result<T, String>;

struct Encoder {
    settings: Settings,
    out: Vec<u8>,
}

impl Encoder {
    /// The outer error is Lua's, the inner one the value's.
    fn value(&mut self, value: &Value, depth: usize) -> Result<Said<()>> {
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(at) if at.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::Boolean(value) => self.out.extend_from_slice(if *value { b"true" } else { b"false" }),
            Value::String(text) => self.text(&text.as_bytes()),
            Value::Integer(value) => return Ok(self.number(*value as f64)),
            Value::Number(value) => return Ok(self.number(*value)),
            Value::Table(table) => return self.table(table, depth + 1),
            other => return Ok(Err(format!("Cannot serialise {}: type not supported", other.type_name()))),
        }
        Ok(Ok(()))
    }

    fn number(&mut self, value: f64) -> Said<()> {
        if !value.is_finite() && !self.settings.encodes_invalid {
            return Err("Cannot serialise number: must not be NaN or Inf".into());
        }
        write_general(&mut self.out, value, self.settings.precision);
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Said<()>> {
        if depth > self.settings.encode_depth_max {
            return Ok(Err(format!("Cannot serialise, excessive depth ({depth})")));
        }
        if is_marked(table)? {
            return self.array(table, table.raw_len(), depth);
        }
        let (mut count, mut largest, mut is_array) = (0usize, 0usize, true);
        for pair in table.pairs::<Value, Value>() {
            count += 1;
            match pair?.0 {
                Value::Integer(at) if at > 0 => largest = largest.max(at as usize),
                _ => is_array = false,
            }
        }
        if !is_array || count == 0 {
            return self.object(table, depth);
        }
        let Settings { sparse_ratio, sparse_safe, converts_sparse, .. } = self.settings;
        if sparse_ratio > 0 && largest > count.saturating_mul(sparse_ratio) && largest > sparse_safe {
            if converts_sparse {
                return self.object(table, depth);
            }
            return Ok(Err("Cannot serialise table: excessively sparse array".into()));
        }
        self.array(table, largest, depth)
    }

    fn array(&mut self, table: &Table, len: usize, depth: usize) -> Result<Said<()>> {
        self.out.push(b'[');
        for at in 1..=len {
            if at > 1 {
                self.out.push(b',');
            }
            if let Err(message) = self.value(&table.raw_get(at)?, depth)? {
                return Ok(Err(message));
            }
        }
        self.out.push(b']');
        Ok(Ok(()))
    }

    fn object(&mut self, table: &Table, depth: usize) -> Result<Said<()>> {
        self.out.push(b'{');
        let start = self.out.len();
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if self.out.len() > start {
                self.out.push(b',');
            }
            match &key {
                Value::String(text) => self.text(&text.as_bytes()),
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    let number = match key {
                        Value::Integer(number) => number as f64,
                        _ => key.as_f64().unwrap_or_default(),
                    };
                    if let Err(message) = self.number(number) {
                        return Ok(Err(message));
                    }
                    self.out.push(b'"');
                }
                other => {
                    let kind = other.type_name();
                    return Ok(Err(format!("Cannot serialise {kind}: table key must be a number or string")));
                }
            }
            self.out.push(b':');
            if let Err(message) = self.value(&value, depth)? {
                return Ok(Err(message));
            }
        }
        self.out.push(b'}');
        Ok(Ok(()))
    }

    fn text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for &byte in text {
            match byte {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                8 => self.out.extend_from_slice(b"\\b"),
                12 => self.out.extend_from_slice(b"\\f"),
                0..32 | 127 => self.out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }
}

/// Whether the table's metatable says that it is an array, empty or not.
fn is_marked(table: &Table) -> Result<bool> {
    let Some(meta) = table.metatable() else { return Ok(false) };
    Ok(!matches!(meta.get("__is_cjson_array")?, Value::Nil | Value::Boolean(false)))
}

/// Writes a number as C's `%.*g` does.
fn write_general(out: &mut Vec<u8>, value: f64, precision: usize) {
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
    let science = format!("{value:.*e}", precision - 1);
    let (digits, exponent) = science.split_once('e').unwrap_or((&science, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| -> String {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        let text = format!("{}e{sign}{:02}", trim(digits), exponent.abs());
        return out.extend_from_slice(text.as_bytes());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    out.extend_from_slice(trim(&format!("{value:.decimals$}")).as_bytes());
}

struct Decoder<'a> {
    lua: &'a Lua,
    mark: &'a Table,
    settings: Settings,
    text: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn whole(&mut self) -> Result<Said<Value>> {
        let value = match self.value(0)? {
            Ok(value) => value,
            Err(message) => return Ok(Err(message)),
        };
        self.skip_space();
        Ok(if self.at < self.text.len() { Err(self.expected("the end")) } else { Ok(value) })
    }

    fn skip_space(&mut self) {
        while self.text.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn next_is(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expected(&self, what: &str) -> String {
        let found = match self.text.get(self.at) {
            None => "T_END",
            Some(b'{') => "T_OBJ_BEGIN",
            Some(b'}') => "T_OBJ_END",
            Some(b'[') => "T_ARR_BEGIN",
            Some(b']') => "T_ARR_END",
            Some(b',') => "T_COMMA",
            Some(b':') => "T_COLON",
            Some(b'"') => "T_STRING",
            Some(b'-' | b'0'..=b'9') => "T_NUMBER",
            Some(_) if self.text[self.at..].starts_with(b"null") => "T_NULL",
            Some(_) if self.text[self.at..].starts_with(b"true") => "T_BOOLEAN",
            Some(_) if self.text[self.at..].starts_with(b"false") => "T_BOOLEAN",
            Some(_) => "invalid token",
        };
        format!("Expected {what} but found {found} at character {}", self.at + 1)
    }

    fn value(&mut self, depth: usize) -> Result<Said<Value>> {
        self.skip_space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        Ok(match rest.first() {
            Some(b'{') => return self.object(depth + 1),
            Some(b'[') => return self.array(depth + 1),
            Some(b'"') => match self.string() {
                Ok(text) => Ok(Value::String(self.lua.create_string(text)?)),
                Err(message) => Err(message),
            },
            _ => {
                for (word, value) in [
                    (&b"null"[..], Value::NULL),
                    (b"true", Value::Boolean(true)),
                    (b"false", Value::Boolean(false)),
                ] {
                    if rest.starts_with(word) {
                        self.at += word.len();
                        return Ok(Ok(value));
                    }
                }
                self.number()
            }
        })
    }

    fn number(&mut self) -> Said<Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let len = rest.iter().take_while(|byte| is_part(byte)).count();
        let word = rest.get(..len).unwrap_or_default();
        let digits = word.strip_prefix(b"-").unwrap_or(word);
        let lower = digits.to_ascii_lowercase();
        let is_plain = digits.first().is_some_and(u8::is_ascii_digit);
        let is_special = self.settings.decodes_invalid
            && (lower.starts_with(b"inf") || lower.starts_with(b"nan") || lower.starts_with(b"0x"));
        let is_hex = lower.starts_with(b"0x");
        if !is_special && (!is_plain || is_hex) {
            return Err(self.expected("value"));
        }
        let value = match is_hex {
            true => u64::from_str_radix(&String::from_utf8_lossy(&lower[2..]), 16).ok().map(|n| n as f64),
            false if lower == b"nan" => Some(f64::NAN),
            false => number::parse_f64(word),
        };
        match value {
            Some(value) => {
                self.at += len;
                Ok(Value::Number(value))
            }
            None => Err(self.expected("value").replace("T_NUMBER", "invalid token")),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Said<Value>> {
        self.at += 1;
        if let Err(message) = self.check_depth(depth) {
            return Ok(Err(message));
        }
        let table = self.lua.create_table()?;
        if self.settings.marks_arrays {
            table.set_metatable(Some(self.mark.clone()))?;
        }
        if self.next_is(b']') {
            return Ok(Ok(Value::Table(table)));
        }
        for at in 1usize.. {
            match self.value(depth)? {
                Ok(value) => table.raw_set(at, value)?,
                Err(message) => return Ok(Err(message)),
            }
            if self.next_is(b']') {
                break;
            }
            if !self.next_is(b',') {
                return Ok(Err(self.expected("comma or array end")));
            }
        }
        Ok(Ok(Value::Table(table)))
    }

    fn object(&mut self, depth: usize) -> Result<Said<Value>> {
        self.at += 1;
        if let Err(message) = self.check_depth(depth) {
            return Ok(Err(message));
        }
        let table = self.lua.create_table()?;
        if self.next_is(b'}') {
            return Ok(Ok(Value::Table(table)));
        }
        loop {
            self.skip_space();
            if self.text.get(self.at) != Some(&b'"') {
                return Ok(Err(self.expected("object key string")));
            }
            let key = match self.string() {
                Ok(key) => self.lua.create_string(key)?,
                Err(message) => return Ok(Err(message)),
            };
            if !self.next_is(b':') {
                return Ok(Err(self.expected("colon")));
            }
            match self.value(depth)? {
                Ok(value) => table.raw_set(key, value)?,
                Err(message) => return Ok(Err(message)),
            }
            if self.next_is(b'}') {
                return Ok(Ok(Value::Table(table)));
            }
            if !self.next_is(b',') {
                return Ok(Err(self.expected("comma or object end")));
            }
        }
    }

    fn check_depth(&self, depth: usize) -> Said<()> {
        if depth > self.settings.decode_depth_max {
            return Err(format!("Found too many nested data structures ({depth})"));
        }
        Ok(())
    }

    /// The text between quotes, the first of which is next.
    fn string(&mut self) -> Said<Vec<u8>> {
        let start = self.at;
        let invalid = |what: &str| format!("Expected value but found {what} at character {}", start + 1);
        self.at += 1;
        let mut out = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else { return Err(invalid("unexpected end of string")) };
            self.at += 1;
            match byte {
                b'"' => return Ok(out),
                b'\\' => {}
                _ => {
                    out.push(byte);
                    continue;
                }
            }
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
                    None => return Err(invalid("invalid unicode escape code")),
                },
                _ => return Err(invalid("invalid escape code")),
            }
        }
    }

    fn unicode(&mut self) -> Option<char> {
        let high = self.hex()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high);
        }
        if self.text.get(self.at..self.at + 2)? != b"\\u" {
            return None;
        }
        self.at += 2;
        let low = self.hex()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0, |sum, byte| Some(sum << 4 | char::from(*byte).to_digit(16)?))
    }
}
