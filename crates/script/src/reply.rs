//! The table of an error.

use mlua::{Lua, Result, Value};

/// The table of an error with this line.
pub fn fault(lua: &Lua, line: &[u8]) -> Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(line)?)?;
    Ok(Value::Table(table))
}
