//! The library `bit`: operations on 32-bit words.

use mlua::{Lua, MultiValue, Result, Table};

use crate::library::{complain, number_at};

/// The library's table.
pub fn build(lua: &Lua) -> Result<Table> {
    let bit = lua.create_table()?;
    for (name, body) in UNARY {
        let body = move |lua: &Lua, args: MultiValue| Ok(body(word_at(lua, &args, 0, name)?));
        bit.raw_set(*name, lua.create_function(body)?)?;
    }
    for (name, body) in FOLDED {
        let body = move |lua: &Lua, args: MultiValue| {
            let first = word_at(lua, &args, 0, name)?;
            (1..args.len()).try_fold(first, |sum, at| Ok(body(sum, word_at(lua, &args, at, name)?)))
        };
        bit.raw_set(*name, lua.create_function(body)?)?;
    }
    for (name, body) in SHIFTS {
        let body = move |lua: &Lua, args: MultiValue| {
            let by = word_at(lua, &args, 1, name)? as u32 & 31;
            Ok(body(word_at(lua, &args, 0, name)?, by))
        };
        bit.raw_set(*name, lua.create_function(body)?)?;
    }
    bit.raw_set("tohex", lua.create_function(tohex)?)?;
    Ok(bit)
}

type Unary = fn(i32) -> i32;
type Folded = fn(i32, i32) -> i32;
type Shift = fn(i32, u32) -> i32;

const UNARY: &[(&str, Unary)] = &[("tobit", |a| a), ("bnot", |a| !a), ("bswap", i32::swap_bytes)];
const FOLDED: &[(&str, Folded)] = &[("band", |a, b| a & b), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)];
const SHIFTS: &[(&str, Shift)] = &[
    ("lshift", |a, by| a << by),
    ("rshift", |a, by| ((a as u32) >> by) as i32),
    ("arshift", |a, by| a >> by),
    ("rol", |a, by| a.rotate_left(by)),
    ("ror", |a, by| a.rotate_right(by)),
];

fn word_at(lua: &Lua, args: &MultiValue, at: usize, name: &str) -> Result<i32> {
    match number_at(args, at) {
        Some(number) => Ok(word(number)),
        None => {
            let message = format!("bad argument #{} to '{name}' (number expected, got no value)", at + 1);
            Err(complain(lua, &message))
        }
    }
}

/// The low 32 bits of a number, rounded to a whole one.
fn word(number: f64) -> i32 {
    number.round_ties_even().rem_euclid(4_294_967_296.0) as u32 as i32
}

fn tohex(lua: &Lua, args: MultiValue) -> Result<String> {
    let value = word_at(lua, &args, 0, "tohex")?;
    let digits = if args.len() > 1 { word_at(lua, &args, 1, "tohex")? } else { 8 };
    let shown = digits.unsigned_abs().min(8) as usize;
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    Ok(text[8 - shown..].to_owned())
}
