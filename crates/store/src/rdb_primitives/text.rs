//! Lengths and strings in the form of RDB.

use darter_base::number;

/// Longer texts are never written as integers.
const INT_TEXT_MAX: usize = 11;

/// Appends a length.
pub fn write_length(out: &mut Vec<u8>, len: u64) {
    match len {
        0..0x40 => out.push(len as u8),
        0x40..0x4000 => out.extend_from_slice(&(0x4000 | len as u16).to_be_bytes()),
        0x4000..=0xffff_ffff => {
            out.push(0x80);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
        _ => {
            out.push(0x81);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Appends a string: as an integer where it is the text of a small one, else plainly.
pub fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    if text.len() <= INT_TEXT_MAX
        && let Some(value) = number::parse_i64(text)
        && write_int(out, value)
    {
        return;
    }
    write_length(out, text.len() as u64);
    out.extend_from_slice(text);
}

fn write_int(out: &mut Vec<u8>, value: i64) -> bool {
    if let Ok(value) = i8::try_from(value) {
        out.extend_from_slice(&[0xc0, value as u8]);
    } else if let Ok(value) = i16::try_from(value) {
        out.push(0xc1);
        out.extend_from_slice(&value.to_le_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        out.push(0xc2);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        return false;
    }
    true
}
