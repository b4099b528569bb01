//! The library `struct`: values as the bytes of a C struct and back.

use mlua::{Lua, MultiValue, Result, Table, Value};

use crate::library::{complain, number_at};

/// Widest integer, in bytes.
const WIDTH_MAX: usize = 32;
/// Alignment when `!` gives none.
const ALIGN: usize = 8;
/// Bytes one value may take up.
const BYTES_MAX: usize = 512 << 20;

/// The library's table.
pub fn build(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    library.raw_set("pack", lua.create_function(pack)?)?;
    library.raw_set("unpack", lua.create_function(unpack)?)?;
    library.raw_set("size", lua.create_function(size)?)?;
    Ok(library)
}

type Said<T> = std::result::Result<T, String>;

/// One item of a format.
#[derive(Clone, Copy)]
enum LayoutItem {
    Pad,
    Int {
        width: usize,
        is_signed: bool,
    },
    Float,
    Double,
    Text,
    /// Of fixed length; 0 is the whole string, or as long as the number before says.
    Bytes(usize),
}

struct LayoutFormat<'a> {
    text: &'a [u8],
    is_little: bool,
    align_max: usize,
}

impl LayoutFormat<'_> {
    fn new(text: &[u8]) -> LayoutFormat<'_> {
        LayoutFormat { text, is_little: cfg!(target_endian = "little"), align_max: 1 }
    }

    fn number(&mut self) -> Said<Option<usize>> {
        let len = self.text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.text.split_at(len);
        self.text = rest;
        if digits.is_empty() {
            return Ok(None);
        }
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        match number {
            Some(number) if number <= BYTES_MAX => Ok(Some(number)),
            _ => Err("integral size overflow".into()),
        }
    }

    fn width(&mut self, default: usize) -> Said<usize> {
        match self.number()? {
            None => Ok(default),
            Some(width) if (1..=WIDTH_MAX).contains(&width) => Ok(width),
            Some(width) => Err(format!("integral size {width} is larger than limit of {WIDTH_MAX}")),
        }
    }

    fn next(&mut self) -> Said<Option<LayoutItem>> {
        while let Some((&letter, rest)) = self.text.split_first() {
            self.text = rest;
            let int = |width| LayoutItem::Int { width, is_signed: letter.is_ascii_lowercase() };
            return Ok(Some(match letter {
                b' ' => continue,
                b'<' | b'>' => {
                    self.is_little = letter == b'<';
                    continue;
                }
                b'!' => {
                    let align = self.number()?.unwrap_or(ALIGN);
                    if !align.is_power_of_two() {
                        return Err("alignment is not a power of 2".into());
                    }
                    self.align_max = align;
                    continue;
                }
                b'x' => LayoutItem::Pad,
                b'b' | b'B' => int(1),
                b'h' | b'H' => int(2),
                b'l' | b'L' => int(8),
                b'T' => LayoutItem::Int { width: 8, is_signed: false },
                b'i' | b'I' => int(self.width(4)?),
                b'f' => LayoutItem::Float,
                b'd' => LayoutItem::Double,
                b's' => LayoutItem::Text,
                b'c' => LayoutItem::Bytes(self.number()?.unwrap_or(1)),
                other => return Err(format!("invalid format option '{}'", char::from(other))),
            }));
        }
        Ok(None)
    }

    /// Bytes to leave free before an item at `at`.
    fn gap(&self, item: LayoutItem, at: usize) -> usize {
        let width = match item {
            LayoutItem::Int { width, .. } => width,
            LayoutItem::Float => 4,
            LayoutItem::Double => 8,
            LayoutItem::Pad | LayoutItem::Text | LayoutItem::Bytes(_) => return 0,
        };
        let align = width.min(self.align_max);
        if align > 1 && align.is_power_of_two() { (align - (at & (align - 1))) & (align - 1) } else { 0 }
    }
}

fn pack(lua: &Lua, args: MultiValue) -> Result<mlua::LuaString> {
    let Some(Value::String(text)) = args.front() else {
        return Err(complain(lua, "bad argument #1 to 'pack' (string expected)"));
    };
    let mut out = Vec::new();
    match pack_all(lua, &text.as_bytes(), &args, &mut out)? {
        Ok(()) => lua.create_string(out),
        Err(message) => Err(complain(lua, &message)),
    }
}

fn pack_all(lua: &Lua, text: &[u8], args: &MultiValue, out: &mut Vec<u8>) -> Result<Said<()>> {
    let mut format = LayoutFormat::new(text);
    let mut at = 1;
    loop {
        let item = match format.next() {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(Ok(())),
            Err(message) => return Ok(Err(message)),
        };
        out.resize(out.len() + format.gap(item, out.len()), 0);
        let wrong = |kind: &str| Err(format!("bad argument #{} to 'pack' ({kind} expected)", at + 1));
        match item {
            LayoutItem::Pad => {
                out.push(0);
                continue;
            }
            LayoutItem::Int { width, .. } => {
                let Some(number) = number_at(args, at) else { return Ok(wrong("number")) };
                let value = if number < 0.0 { (number as i64) as u64 } else { number as u64 };
                let fill = if number < 0.0 { 0xff } else { 0 };
                put(
                    out,
                    format.is_little,
                    (0..width).map(|n| value.to_le_bytes().get(n).copied().unwrap_or(fill)),
                );
            }
            LayoutItem::Float => {
                let Some(number) = number_at(args, at) else { return Ok(wrong("number")) };
                put(out, format.is_little, (number as f32).to_le_bytes().into_iter());
            }
            LayoutItem::Double => {
                let Some(number) = number_at(args, at) else { return Ok(wrong("number")) };
                put(out, format.is_little, number.to_le_bytes().into_iter());
            }
            LayoutItem::Text | LayoutItem::Bytes(_) => {
                let value = args.get(at).cloned().unwrap_or(Value::Nil);
                let Some(value) = lua.coerce_string(value)? else { return Ok(wrong("string")) };
                let bytes = value.as_bytes();
                let len = if let LayoutItem::Bytes(len @ 1..) = item { len } else { bytes.len() };
                let Some(bytes) = bytes.get(..len) else {
                    return Ok(Err(format!("bad argument #{} to 'pack' (string too short)", at + 1)));
                };
                out.extend_from_slice(bytes);
                if matches!(item, LayoutItem::Text) {
                    out.push(0);
                }
            }
        }
        at += 1;
    }
}

fn put(out: &mut Vec<u8>, is_little: bool, bytes: impl Iterator<Item = u8>) {
    let start = out.len();
    out.extend(bytes);
    if !is_little {
        out[start..].reverse();
    }
}

fn unpack(lua: &Lua, args: MultiValue) -> Result<MultiValue> {
    let (Some(Value::String(text)), Some(Value::String(data))) = (args.front(), args.get(1)) else {
        return Err(complain(lua, "bad argument to 'unpack' (string expected)"));
    };
    let start = if args.len() > 2 { number_at(&args, 2).unwrap_or(0.0) } else { 1.0 };
    if start.is_nan() || start < 1.0 {
        return Err(complain(lua, "bad argument #3 to 'unpack' (offset must be 1 or greater)"));
    }
    match unpack_all(lua, &text.as_bytes(), &data.as_bytes(), start as usize - 1)? {
        Ok(values) => Ok(MultiValue::from_iter(values)),
        Err(message) => Err(complain(lua, &message)),
    }
}

fn unpack_all(lua: &Lua, text: &[u8], data: &[u8], start: usize) -> Result<Said<Vec<Value>>> {
    const SHORT: &str = "bad argument #2 to 'unpack' (data string too short)";
    let mut format = LayoutFormat::new(text);
    let mut at = start;
    let mut values: Vec<Value> = Vec::new();
    loop {
        let item = match format.next() {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(message) => return Ok(Err(message)),
        };
        at = at.saturating_add(format.gap(item, at));
        let rest = data.get(at..).unwrap_or_default();
        let len = match item {
            LayoutItem::Pad => 1,
            LayoutItem::Int { width, .. } => width,
            LayoutItem::Float => 4,
            LayoutItem::Double => 8,
            LayoutItem::Bytes(len @ 1..) => len,
            LayoutItem::Bytes(_) => match values.pop().as_ref().and_then(Value::as_f64) {
                Some(len) if len >= 0.0 => len as usize,
                _ => return Ok(Err("format 'c0' needs a previous size".into())),
            },
            LayoutItem::Text => match rest.iter().position(|&byte| byte == 0) {
                Some(len) => len,
                None => return Ok(Err("unfinished string in data".into())),
            },
        };
        let Some(bytes) = rest.get(..len) else { return Ok(Err(SHORT.into())) };
        at += len + usize::from(matches!(item, LayoutItem::Text));
        let mut ordered = bytes.to_vec();
        if format.is_little {
            ordered.reverse();
        }
        values.push(match item {
            LayoutItem::Pad => continue,
            LayoutItem::Int { is_signed, .. } => Value::Number(integer(&ordered, is_signed)),
            LayoutItem::Float => Value::Number(f64::from(f32::from_bits(integer(&ordered, false) as u32))),
            LayoutItem::Double => Value::Number(f64::from_be_bytes(ordered.try_into().unwrap_or_default())),
            LayoutItem::Text | LayoutItem::Bytes(_) => Value::String(lua.create_string(bytes)?),
        });
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(Ok(values))
}

/// A number from its bytes, the highest first; of more than eight the lowest count.
fn integer(bytes: &[u8], is_signed: bool) -> f64 {
    let value = bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let bits = 8 * bytes.len().clamp(1, 8) as u32;
    if is_signed { ((value << (64 - bits)) as i64 >> (64 - bits)) as f64 } else { value as f64 }
}

fn size(lua: &Lua, args: MultiValue) -> Result<usize> {
    let Some(Value::String(text)) = args.front() else {
        return Err(complain(lua, "bad argument #1 to 'size' (string expected)"));
    };
    let text = text.as_bytes();
    let mut format = LayoutFormat::new(&text);
    let mut total = 0usize;
    loop {
        let item = match format.next() {
            Ok(Some(item)) => item,
            Ok(None) => return Ok(total),
            Err(message) => return Err(complain(lua, &message)),
        };
        total = total.saturating_add(format.gap(item, total));
        total = total.saturating_add(match item {
            LayoutItem::Pad => 1,
            LayoutItem::Int { width, .. } => width,
            LayoutItem::Float => 4,
            LayoutItem::Double => 8,
            LayoutItem::Bytes(len @ 1..) => len,
            LayoutItem::Bytes(_) => return Err(complain(lua, "variable-length format")),
            LayoutItem::Text => return Err(complain(lua, "variable-size format in struct.size")),
        });
    }
}
