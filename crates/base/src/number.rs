//! Numbers as text, with exactly the texts that Redis reads and prints.
//!
//! Called by the codecs, every command that takes a number, and the value encoder. Long doubles are in `longdouble`.

use crate::hex_float::HexFloat;
use crate::short;

/// Longest text of an `i64`, in bytes.
pub const I64_TEXT_MAX: usize = 20;

/// The integer that `text` is the canonical form of: no spaces, no `+`, no leading zeros, no `-0`.
///
/// Errors: `None` for anything else and past 64 bits, so that printing the answer gives `text` back.
/// Source: Redis string2ll.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (&first, rest) = text.split_first()?;
    if first == b'-' {
        // Wrapping, for the one value whose magnitude is not an i64.
        return match parse_u64(rest)? {
            0 => None,
            magnitude if magnitude <= 1 << 63 => Some((magnitude as i64).wrapping_neg()),
            _ => None,
        };
    }
    i64::try_from(parse_u64(text)?).ok()
}

/// The unsigned integer that `text` is the canonical form of: digits only, no leading zero.
///
/// Errors: `None` for anything else and past 64 bits.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => parse_u64_digits(text),
        _ => None,
    }
}

/// The unsigned integer of `text`, which is one or more digits and may start with zeros.
///
/// Errors: `None` for any other byte, an empty text and past 64 bits.
#[inline]
pub fn parse_u64_digits(text: &[u8]) -> Option<u64> {
    // Nineteen digits always fit, so the common case has no overflow checks.
    if let 1..=8 = text.len() {
        return eight_digits(text);
    }
    if let 9..=19 = text.len() {
        let (head, tail) = text.split_at(text.len() - 8);
        let head = if head.len() <= 8 { eight_digits(head)? } else { digits_of(head)? };
        return Some(head * 100_000_000 + eight_digits(tail)?);
    }
    digits_of(text)
}

/// The number of one to eight digits, all at once.
#[inline]
fn eight_digits(text: &[u8]) -> Option<u64> {
    let word = short::word(text)?;
    // Digits to the end of the word, zeros before them.
    let spare = 64 - 8 * text.len() as u32;
    let digits = (word ^ (0x3030_3030_3030_3030 >> spare)) << spare;
    if (digits | digits.wrapping_add(0x7676_7676_7676_7676)) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    // Pairs, fours, and all of them. No sum overflows its part of the word.
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let (odd, even) = (pairs & 0xff_0000_00ff, (pairs >> 16) & 0xff_0000_00ff);
    let sum = odd.wrapping_mul(100 + (1_000_000 << 32)).wrapping_add(even.wrapping_mul(1 + (10_000 << 32)));
    Some(sum >> 32)
}

/// The number of any digits.
fn digits_of(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// The number of at most fifteen digits, which a double holds exactly, and a minus before them.
#[inline]
fn small_whole(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.len() > 15 {
        return None;
    }
    let value = parse_u64_digits(digits)? as f64;
    Some(if digits.len() < text.len() { -value } else { value })
}

/// The number of `text` as C's `strtod` reads it, if it takes all of `text`, correctly rounded. Accepts decimal,
/// hexadecimal, and `inf` and `infinity` in any case.
///
/// Errors: `None` for spaces, NaN, trailing bytes, overflow, and a non-zero number that rounds to zero. Source: Redis
/// string2d.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    if let Some(whole) = small_whole(text) {
        return Some(whole);
    }
    if let Some(hex) = HexFloat::parse(text) {
        return hex.to_f64();
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    if value.is_normal() {
        return Some(value);
    }
    let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    let ok = if value.is_infinite() {
        // Not a number so large that it became infinite.
        unsigned.first().is_some_and(|b| b.eq_ignore_ascii_case(&b'i'))
    } else if value == 0.0 {
        let mantissa = unsigned.split(|b| b.eq_ignore_ascii_case(&b'e')).next().unwrap_or(unsigned);
        mantissa.iter().all(|b| matches!(b, b'0' | b'.'))
    } else {
        !value.is_nan()
    };
    ok.then_some(value)
}

/// Appends the decimal text of `value`.
#[inline]
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the decimal text of `value`.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends the shortest text that reads back as `value`, laid out as Redis does since 7.2: `3`, `0.1`, `-0`,
/// `1e+20`, `1.5e-9`, `inf`, `-inf`, `nan`.
pub fn write_f64(out: &mut Vec<u8>, value: f64) {
    // Redis prints doubles up to half of the i64 range as integers when they are whole.
    const WHOLE_MAX: f64 = (i64::MAX / 2) as f64;
    if value.is_nan() {
        out.extend_from_slice(b"nan");
    } else if value.is_infinite() {
        out.extend_from_slice(if value < 0.0 { b"-inf" } else { b"inf" });
    } else if value == 0.0 {
        out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    } else if (-WHOLE_MAX..=WHOLE_MAX).contains(&value) && value == value.trunc() {
        write_i64(out, value as i64);
    } else {
        let mut buffer = zmij::Buffer::new();
        Decimal::of_text(buffer.format_finite(value).as_bytes()).write(out);
    }
}

/// Appends `value` with exactly `decimals` (at most 17) digits after the point, rounded to nearest, as `printf("%.4f")`.
pub fn write_f64_fixed(out: &mut Vec<u8>, value: f64, decimals: usize) {
    use std::io::Write;
    // Writing into a Vec cannot fail.
    let _ = write!(out, "{:.*}", decimals.min(17), value);
}

/// Number of decimal digits of `value`: 1 to 20.
#[inline]
pub const fn digits(value: u64) -> usize {
    match value.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

/// Length of the decimal text of `value` in bytes, sign included: 1 to 20.
#[inline]
pub const fn text_len(value: i64) -> usize {
    digits(value.unsigned_abs()) + (value < 0) as usize
}

/// A finite non-zero number as decimal digits: digits * 10^exponent.
struct Decimal {
    negative: bool,
    // No leading or trailing zero; a double needs at most 17.
    digits: [u8; 24],
    len: usize,
    exponent: i32,
}

impl Decimal {
    /// From a text like `-12.5`, `0.001`, `1.5e-9`, as the shortest-digits printer makes them.
    fn of_text(text: &[u8]) -> Decimal {
        let mut decimal = Decimal { negative: false, digits: [0; 24], len: 0, exponent: 0 };
        let mut after_point = false;
        for (at, &byte) in text.iter().enumerate() {
            match byte {
                b'-' => decimal.negative = true,
                b'.' => after_point = true,
                b'0'..=b'9' => {
                    decimal.exponent -= i32::from(after_point);
                    if byte != b'0' || decimal.len > 0 {
                        decimal.digits[decimal.len] = byte;
                        decimal.len += 1;
                    }
                }
                _ => {
                    let exponent = std::str::from_utf8(&text[at + 1..]).unwrap_or_default();
                    decimal.exponent += exponent.parse::<i32>().unwrap_or(0);
                    break;
                }
            }
        }
        while decimal.len > 1 && decimal.digits[decimal.len - 1] == b'0' {
            decimal.len -= 1;
            decimal.exponent += 1;
        }
        decimal
    }

    fn write(&self, out: &mut Vec<u8>) {
        let digits = &self.digits[..self.len];
        let len = self.len as i32;
        let scientific = self.exponent + len - 1;
        if self.negative {
            out.push(b'-');
        }
        if self.exponent >= 0 && scientific < len + 7 {
            out.extend_from_slice(digits);
            out.resize(out.len() + self.exponent as usize, b'0');
        } else if self.exponent < 0 && (self.exponent > -7 || scientific.abs() < 4) {
            let whole = len + self.exponent;
            if whole <= 0 {
                out.extend_from_slice(b"0.");
                out.resize(out.len() + whole.unsigned_abs() as usize, b'0');
                out.extend_from_slice(digits);
            } else {
                let (whole, fraction) = digits.split_at(whole as usize);
                out.extend_from_slice(whole);
                out.push(b'.');
                out.extend_from_slice(fraction);
            }
        } else {
            out.push(digits[0]);
            if len > 1 {
                out.push(b'.');
                out.extend_from_slice(&digits[1..]);
            }
            out.extend_from_slice(if scientific < 0 { b"e-" } else { b"e+" });
            write_u64(out, u64::from(scientific.unsigned_abs()));
        }
    }
}

#[cfg(test)]
mod tests;
