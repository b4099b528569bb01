//! The table `dragonfly` of scripts: texts of random letters, and a sum over texts. Called by the prelude, which
//! passes `ihash` its command's reply. Neither affects the results of other functions.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

use darter_base::crc::Crc64;
use darter_base::rng::Rng;
use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use crate::library::number_at;

/// The largest text, in bytes.
const BYTES_MAX: f64 = 16_777_216.0;
/// The most texts of one call.
const TEXTS_MAX: f64 = 32_768.0;
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// Bits of a sum, which every number of Lua 5.1 can hold.
const SUM_BITS: u32 = 53;

/// The functions for the prelude.
pub fn build(lua: &Lua) -> Result<Table> {
    let table = lua.create_table()?;
    // Not the numbers of `math.random`, which restart with each script.
    let rng = RefCell::new(Rng::new(RandomState::new().hash_one(0)));
    table.raw_set("randstr", lua.create_function(move |lua, args| randstr(lua, &rng, &args))?)?;
    table.raw_set("sum", lua.create_function(|_, (sum, text): (f64, LuaString)| Ok(sum_of(sum, &text)))?)?;
    Ok(table)
}

/// `randstr(size)` is a text, `randstr(size, count)` a table of them.
fn randstr(lua: &Lua, rng: &RefCell<Rng>, args: &MultiValue) -> Result<Value> {
    let Some(size) = number_at(args, 0).filter(|_| args.len() <= 2) else {
        return fault("randstr: expected randstr(size) or randstr(size, count)");
    };
    if !(1.0..=BYTES_MAX).contains(&size) {
        return fault("randstr: size must be between 1 and 16777216");
    }
    let mut rng = rng.borrow_mut();
    let mut text = || {
        let letter = |_| LETTERS[rng.below(LETTERS.len() as u64) as usize];
        lua.create_string((0..size as usize).map(letter).collect::<Vec<u8>>())
    };
    if args.len() == 1 {
        return Ok(Value::String(text()?));
    }
    let count = number_at(args, 1).unwrap_or(0.0);
    if !(1.0..=TEXTS_MAX).contains(&count) {
        return fault("randstr: count must be between 1 and 32768");
    }
    let texts = lua.create_table()?;
    for _ in 0..count as usize {
        texts.raw_push(text()?)?;
    }
    Ok(Value::Table(texts))
}

fn fault(why: &str) -> Result<Value> {
    Err(Error::RuntimeError(why.to_owned()))
}

/// Continues a sum with a text.
fn sum_of(sum: f64, text: &LuaString) -> f64 {
    let mut crc = Crc64::new();
    crc.update(&(sum as i64).to_le_bytes());
    crc.update(&text.as_bytes());
    (crc.value() >> (u64::BITS - SUM_BITS)) as f64
}
