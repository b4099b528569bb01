//! The way of values between replies and Lua.
//!
//! What a script gets from a command is read from the reply's own bytes; what it returns is written as a reply.

use darter_base::number;
use darter_wire::Reply;
use mlua::{Lua, Result, Table, Value};

use crate::library;

/// How deep tables of a script's result may lie.
const DEPTH_MAX: usize = 1000;

/// Reads one reply of this server's own from the start of `bytes`.
pub fn to_lua(lua: &Lua, bytes: &[u8]) -> Result<Value> {
    Cursor { lua, bytes }.value()
}

/// The table of an error with this line.
pub fn fault(lua: &Lua, line: &[u8]) -> Result<Value> {
    Cursor { lua, bytes: b"" }.field("err", Value::String(lua.create_string(line)?))
}

struct Cursor<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn line(&mut self) -> &'a [u8] {
        let end = self.bytes.windows(2).position(|pair| pair == b"\r\n").unwrap_or(self.bytes.len());
        let (line, rest) = self.bytes.split_at(end);
        self.bytes = rest.get(2..).unwrap_or_default();
        line
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (text, rest) = self.bytes.split_at(len.min(self.bytes.len()));
        self.bytes = rest.get(2..).unwrap_or_default();
        text
    }

    fn value(&mut self) -> Result<Value> {
        let line = self.line();
        let Some((kind, rest)) = line.split_first() else { return Ok(Value::Nil) };
        let number = || number::parse_i64(rest).unwrap_or(-1);
        let len = || usize::try_from(number()).ok();
        Ok(match kind {
            b'+' => self.field("ok", self.text(rest)?)?,
            b'-' => self.field("err", self.text(rest)?)?,
            b':' => Value::Number(number() as f64),
            b'$' => match len() {
                Some(len) => self.take_text(len)?,
                None => Value::Boolean(false),
            },
            b'*' | b'>' => match len() {
                Some(len) => self.array(len)?,
                None => Value::Boolean(false),
            },
            b'%' => {
                let map = self.lua.create_table()?;
                for _ in 0..len().unwrap_or(0) {
                    let (key, value) = (self.value()?, self.value()?);
                    if !key.is_nil() {
                        map.raw_set(key, value)?;
                    }
                }
                self.field("map", Value::Table(map))?
            }
            b'~' => {
                let set = self.lua.create_table()?;
                for _ in 0..len().unwrap_or(0) {
                    let member = self.value()?;
                    if !member.is_nil() {
                        set.raw_set(member, true)?;
                    }
                }
                self.field("set", Value::Table(set))?
            }
            b'#' => Value::Boolean(rest == b"t"),
            b',' => {
                let double = number::parse_f64(rest).unwrap_or(f64::NAN);
                self.field("double", Value::Number(double))?
            }
            b'(' => self.field("big_number", self.text(rest)?)?,
            b'=' => {
                let text = self.take(len().unwrap_or(0));
                let verbatim = self.lua.create_table()?;
                verbatim.raw_set("format", self.text(text.get(..3).unwrap_or_default())?)?;
                verbatim.raw_set("string", self.text(text.get(4..).unwrap_or_default())?)?;
                self.field("verbatim_string", Value::Table(verbatim))?
            }
            b'|' => {
                for _ in 0..len().unwrap_or(0) {
                    self.value()?;
                    self.value()?;
                }
                self.value()?
            }
            _ => Value::Nil,
        })
    }

    fn array(&mut self, len: usize) -> Result<Value> {
        let array = self.lua.create_table_with_capacity(len.min(self.bytes.len()), 0)?;
        for at in 1..=len {
            let item = self.value()?;
            array.raw_set(at, item)?;
        }
        Ok(Value::Table(array))
    }

    fn take_text(&mut self, len: usize) -> Result<Value> {
        let text = self.take(len);
        self.text(text)
    }

    fn text(&self, text: &[u8]) -> Result<Value> {
        Ok(Value::String(self.lua.create_string(text)?))
    }

    fn field(&self, name: &str, value: Value) -> Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }
}

/// Writes what a script returned. `resp3` is the protocol the script itself asked for.
pub fn write(value: &Value, resp3: bool, reply: &mut Reply<'_>) -> Result<()> {
    write_at(value, resp3, reply, DEPTH_MAX)
}

fn write_at(value: &Value, resp3: bool, reply: &mut Reply<'_>, depth: usize) -> Result<()> {
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Boolean(value) if resp3 => reply.boolean(*value),
        Value::Boolean(true) => reply.int(1),
        Value::Integer(value) => reply.int(*value),
        Value::Number(value) => reply.int(*value as i64),
        Value::Table(_) if depth == 0 => reply.error("ERR reached lua stack limit"),
        Value::Table(table) => write_table(table, resp3, reply, depth - 1)?,
        _ => reply.null(),
    }
    Ok(())
}

fn write_table(table: &Table, resp3: bool, reply: &mut Reply<'_>, depth: usize) -> Result<()> {
    if let Value::String(line) = table.raw_get("err")? {
        reply.error(line.as_bytes());
        return Ok(());
    }
    if let Value::String(line) = table.raw_get("ok")? {
        reply.status(line.as_bytes());
        return Ok(());
    }
    let double: Value = table.raw_get("double")?;
    if let Some(double) = library::as_number(&double).filter(|_| double.is_number() || double.is_integer()) {
        reply.double(double);
        return Ok(());
    }
    if let Value::Table(map) = table.raw_get("map")? {
        let begun = reply.begin_array();
        let mut pairs = 0;
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            write_at(&key, resp3, reply, depth)?;
            write_at(&value, resp3, reply, depth)?;
            pairs += 1;
        }
        reply.end_map(begun, pairs);
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get("set")? {
        let begun = reply.begin_array();
        let mut len = 0;
        for pair in set.pairs::<Value, Value>() {
            write_at(&pair?.0, resp3, reply, depth)?;
            len += 1;
        }
        reply.end_set(begun, len);
        return Ok(());
    }
    if let Value::String(digits) = table.raw_get("big_number")? {
        let digits: Vec<u8> = digits
            .as_bytes()
            .iter()
            .map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte })
            .collect();
        reply.big_number(&digits);
        return Ok(());
    }
    if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
        && let (Value::String(format), Value::String(text)) =
            (verbatim.raw_get("format")?, verbatim.raw_get("string")?)
    {
        let mut letters = *b"txt";
        letters.iter_mut().zip(format.as_bytes().iter()).for_each(|(to, from)| *to = *from);
        reply.verbatim(letters, &text.as_bytes());
        return Ok(());
    }
    write_array(table, resp3, reply, depth)
}

fn write_array(table: &Table, resp3: bool, reply: &mut Reply<'_>, depth: usize) -> Result<()> {
    let begun = reply.begin_array();
    let mut len = 0usize;
    loop {
        let item: Value = table.raw_get(len + 1)?;
        if item.is_nil() {
            break;
        }
        write_at(&item, resp3, reply, depth)?;
        len += 1;
    }
    reply.end_array(begun, len);
    Ok(())
}
