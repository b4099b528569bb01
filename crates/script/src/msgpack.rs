//! The library `cmsgpack`: values as MessagePack and back.

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::library::{complain, number_at};

/// Tables deeper than this are packed as nil.
const PACKED_DEPTH_MAX: usize = 16;
/// Arrays and maps in one another that are unpacked.
const UNPACKED_DEPTH_MAX: usize = 128;

/// The library's table.
pub fn build(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(|lua, args| unpack(lua, args, Form::All))?)?;
    library.raw_set("unpack_one", lua.create_function(|lua, args| unpack(lua, args, Form::One))?)?;
    library.raw_set("unpack_limit", lua.create_function(|lua, args| unpack(lua, args, Form::Limit))?)?;
    library.raw_set("_NAME", "cmsgpack")?;
    library.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(library)
}

fn pack(lua: &Lua, args: MultiValue) -> Result<mlua::LuaString> {
    if args.is_empty() {
        return Err(complain(lua, "bad argument #0 to 'pack' (MessagePack pack needs input.)"));
    }
    let mut out = Vec::new();
    for value in &args {
        put(value, &mut out, 0)?;
    }
    lua.create_string(out)
}

fn put(value: &Value, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    match value {
        Value::Boolean(value) => out.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Integer(value) => put_int(*value, out),
        Value::Number(value) if *value == (*value as i64) as f64 && value.abs() < 9.2e18 => {
            put_int(*value as i64, out);
        }
        Value::Number(value) if f64::from(*value as f32) == *value => {
            out.push(0xca);
            out.extend_from_slice(&(*value as f32).to_be_bytes());
        }
        Value::Number(value) => {
            out.push(0xcb);
            out.extend_from_slice(&value.to_be_bytes());
        }
        Value::String(text) => {
            let text = text.as_bytes();
            put_head(text.len(), out, Head { fixed: 0xa0, fixed_max: 31, eight: Some(0xd9), sixteen: 0xda });
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < PACKED_DEPTH_MAX => put_table(table, out, depth + 1)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

fn put_table(table: &Table, out: &mut Vec<u8>, depth: usize) -> Result<()> {
    let (mut count, mut is_array, mut largest) = (0usize, true, 0i64);
    for pair in table.pairs::<Value, Value>() {
        count += 1;
        match pair?.0 {
            Value::Integer(at) if at > 0 => largest = largest.max(at),
            _ => is_array = false,
        }
    }
    if is_array && usize::try_from(largest) == Ok(count) {
        put_head(count, out, Head { fixed: 0x90, fixed_max: 15, eight: None, sixteen: 0xdc });
        for at in 1..=count {
            put(&table.raw_get(at)?, out, depth)?;
        }
        return Ok(());
    }
    put_head(count, out, Head { fixed: 0x80, fixed_max: 15, eight: None, sixteen: 0xde });
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        put(&key, out, depth)?;
        put(&value, out, depth)?;
    }
    Ok(())
}

/// The first bytes of the forms of a length: within one byte, with one, with two, and four after that.
struct Head {
    fixed: u8,
    fixed_max: usize,
    eight: Option<u8>,
    sixteen: u8,
}

fn put_head(len: usize, out: &mut Vec<u8>, head: Head) {
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
enum Form {
    All,
    One,
    Limit,
}

fn unpack(lua: &Lua, args: MultiValue, form: Form) -> Result<MultiValue> {
    let Some(Value::String(text)) = args.front() else {
        return Err(complain(lua, "bad argument #1 to 'unpack' (string expected)"));
    };
    let number = |at: usize, default: f64| if args.len() > at { number_at(&args, at) } else { Some(default) };
    let (limit, offset) = match form {
        Form::All => (Some(0.0), Some(0.0)),
        Form::One => (Some(1.0), number(1, 0.0)),
        Form::Limit => (number_at(&args, 1), number(2, 0.0)),
    };
    let (Some(limit), Some(offset)) = (limit, offset) else {
        return Err(complain(lua, "bad argument to 'unpack' (number expected)"));
    };
    let text = text.as_bytes();
    if offset < 0.0 || limit < 0.0 {
        let message = format!("Invalid request to unpack with offset of {offset} and limit of {limit}.");
        return Err(complain(lua, &message));
    }
    let start = offset as usize;
    if start > text.len() {
        let message = format!("Start offset {start} greater than input length {}.", text.len());
        return Err(complain(lua, &message));
    }
    let limit = if limit < 1.0 { usize::MAX } else { limit as usize };
    let mut reader = Unpacker { lua, text: &text, at: start };
    let mut values = Vec::new();
    while reader.at < text.len() && values.len() < limit {
        match reader.value(UNPACKED_DEPTH_MAX)? {
            Ok(value) => values.push(value),
            Err(message) => return Err(complain(lua, message)),
        }
    }
    if form != Form::All {
        let next = if reader.at >= text.len() { -1 } else { i64::try_from(reader.at).unwrap_or(-1) };
        values.insert(0, Value::Integer(next));
    }
    Ok(MultiValue::from_iter(values))
}

type Read<T> = std::result::Result<T, &'static str>;

const MISSING: &str = "Missing bytes in input.";
const BAD: &str = "Bad data format in input.";

struct Unpacker<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
}

impl<'a> Unpacker<'a> {
    fn take(&mut self, len: usize) -> Read<&'a [u8]> {
        let end = self.at.checked_add(len).ok_or(MISSING)?;
        let bytes = self.text.get(self.at..end).ok_or(MISSING)?;
        self.at = end;
        Ok(bytes)
    }

    fn unsigned(&mut self, width: usize) -> Read<u64> {
        Ok(self.take(width)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, width: usize) -> Read<Value> {
        let shift = 64 - 8 * width as u32;
        Ok(Value::Number(((self.unsigned(width)? << shift) as i64 >> shift) as f64))
    }

    fn len(&mut self, width: usize) -> Read<usize> {
        usize::try_from(self.unsigned(width)?).map_err(|_| MISSING)
    }

    /// The outer error is Lua's, the inner one the input's.
    fn value(&mut self, depth: usize) -> Result<Read<Value>> {
        let kind = match self.unsigned(1) {
            Ok(kind) => kind as u8,
            Err(message) => return Ok(Err(message)),
        };
        let len = match kind {
            0xa0..=0xbf => Ok(usize::from(kind & 31)),
            0x80..=0x9f => Ok(usize::from(kind & 15)),
            0xc4 | 0xd9 => self.len(1),
            0xc5 | 0xda | 0xdc | 0xde => self.len(2),
            0xc6 | 0xdb | 0xdd | 0xdf => self.len(4),
            _ => return Ok(self.scalar(kind)),
        };
        let len = match len {
            Ok(len) => len,
            Err(message) => return Ok(Err(message)),
        };
        match kind {
            0x90..=0x9f | 0xdc | 0xdd => self.array(len, depth),
            0x80..=0x8f | 0xde | 0xdf => self.map(len, depth),
            _ => match self.take(len) {
                Ok(text) => Ok(Ok(Value::String(self.lua.create_string(text)?))),
                Err(message) => Ok(Err(message)),
            },
        }
    }

    fn scalar(&mut self, kind: u8) -> Read<Value> {
        Ok(match kind {
            0..=0x7f => Value::Integer(i64::from(kind)),
            0xe0.. => Value::Integer(i64::from(kind as i8)),
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xca => Value::Number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (kind - 0xcc))? as f64),
            0xd0..=0xd3 => self.signed(1 << (kind - 0xd0))?,
            _ => return Err(BAD),
        })
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<Read<Value>> {
        if depth == 0 || len > self.text.len() - self.at {
            return Ok(Err(if depth == 0 { BAD } else { MISSING }));
        }
        let table = self.lua.create_table_with_capacity(len, 0)?;
        for at in 1..=len {
            match self.value(depth - 1)? {
                Ok(value) => table.raw_set(at, value)?,
                Err(message) => return Ok(Err(message)),
            }
        }
        Ok(Ok(Value::Table(table)))
    }

    fn map(&mut self, len: usize, depth: usize) -> Result<Read<Value>> {
        if depth == 0 {
            return Ok(Err(BAD));
        }
        let table = self.lua.create_table()?;
        for _ in 0..len {
            match (self.value(depth - 1)?, self.value(depth - 1)?) {
                (Ok(Value::Nil), Ok(_)) => return Ok(Err(BAD)),
                (Ok(Value::Number(key)), Ok(_)) if key.is_nan() => return Ok(Err(BAD)),
                (Ok(key), Ok(value)) => table.raw_set(key, value)?,
                (Err(message), _) | (_, Err(message)) => return Ok(Err(message)),
            }
        }
        Ok(Ok(Value::Table(table)))
    }
}
