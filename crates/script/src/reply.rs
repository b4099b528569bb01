//! What a script returns, as a reply; and the tables of errors.

use darter_wire::Reply;
use mlua::{Lua, Result, Table, Value};

use crate::library;

/// How deep tables of a script's result may lie.
const DEPTH_MAX: usize = 1000;

/// The table of an error with this line.
pub fn fault(lua: &Lua, line: &[u8]) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(line)?)?;
    Ok(Value::Table(table))
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
