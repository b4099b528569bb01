//! Decimal text to `i64` and back, for items that are stored as integers.
//!
//! Called by the entry codec on every field, member and value. Never accepts a form that would not
//! print back byte for byte.

/// Scratch space in which an integer item is printed.
pub struct Digits(itoa::Buffer);

impl Digits {
    /// Empty scratch space; costs nothing to make.
    #[inline]
    pub fn new() -> Digits {
        Digits(itoa::Buffer::new())
    }

    /// Prints `value` in canonical decimal; at most 20 bytes.
    #[inline]
    pub fn print(&mut self, value: i64) -> &[u8] {
        self.0.format(value).as_bytes()
    }
}

impl Default for Digits {
    fn default() -> Self {
        Digits::new()
    }
}

/// The integer that prints back as exactly `text`, if there is one: no sign but `-`, no leading zero,
/// no `-0`, no blank. Cost: about 25 instructions for a positive one of up to 16 digits.
#[inline(always)]
pub fn canonical_i64(text: &[u8]) -> Option<i64> {
    let first = *text.first()?;
    if first.wrapping_sub(b'1') >= 9 {
        return if first > b'0' { None } else { zero_or_negative(text) };
    }
    if text.len() > 16 {
        return long_magnitude(text).and_then(|m| i64::try_from(m).ok());
    }
    // At most 16 digits are far below 2^63.
    magnitude(text).map(|m| m as i64)
}

#[inline(never)]
fn zero_or_negative(text: &[u8]) -> Option<i64> {
    if text == b"0" {
        return Some(0);
    }
    let digits = text.strip_prefix(b"-")?;
    if digits.first()?.wrapping_sub(b'1') >= 9 {
        return None;
    }
    let magnitude = if digits.len() > 16 { long_magnitude(digits) } else { magnitude(digits) };
    0i64.checked_sub_unsigned(magnitude?)
}

/// Value of 1..=16 decimal digits; `None` when there is another byte among them.
#[inline(always)]
fn magnitude(digits: &[u8]) -> Option<u64> {
    let len = digits.len();
    if let (Some(head), Some(tail)) = (digits.first_chunk::<8>(), digits.last_chunk::<8>()) {
        let low = eight_digits(u64::from_le_bytes(*tail))?;
        if len == 8 {
            return Some(low);
        }
        let high = eight_digits(padded(*head, len - 8))?;
        return Some(high * 100_000_000 + low);
    }
    let text = if let (Some(head), Some(tail)) = (digits.first_chunk::<4>(), digits.last_chunk::<4>()) {
        let (head, tail) = (u32::from_le_bytes(*head), u32::from_le_bytes(*tail));
        u64::from(head) | u64::from(tail) << (8 * (len - 4))
    } else {
        // First, middle and last byte cover one to three digits.
        u64::from(digits[0])
            | u64::from(digits[len / 2]) << (8 * (len / 2))
            | u64::from(digits[len - 1]) << (8 * (len - 1))
    };
    eight_digits(padded(text.to_le_bytes(), len))
}

/// The first `len` (1..=8) digits of `text`, moved to the end of an eight-byte word filled with '0'.
#[inline(always)]
fn padded(text: [u8; 8], len: usize) -> u64 {
    let gap = 64 - 8 * len as u32;
    // Two shifts, since all eight may be digits.
    u64::from_le_bytes(text) << gap | ZEROS >> 8 >> (8 * len as u32 - 8)
}

/// Value of eight ASCII digits, first digit in the lowest byte, eight at a time.
#[inline(always)]
fn eight_digits(text: u64) -> Option<u64> {
    let below = text.wrapping_sub(ZEROS);
    let above = text.wrapping_add(0x4646_4646_4646_4646);
    if (below | above) & 0x8080_8080_8080_8080 != 0 {
        return None;
    }
    let pairs = below.wrapping_mul(10).wrapping_add(below >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_FFFF_0000_FFFF;
    Some((fours.wrapping_mul(10_000).wrapping_add(fours >> 32)) & 0xFFFF_FFFF)
}

#[cold]
fn long_magnitude(digits: &[u8]) -> Option<u64> {
    if digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &d| {
        let digit = d.wrapping_sub(b'0');
        (digit < 10).then_some(sum * 10 + u64::from(digit))
    })
}

const ZEROS: u64 = 0x3030_3030_3030_3030;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_exactly_what_prints_back() {
        let mut cases: Vec<Vec<u8>> = Vec::new();
        for text in
            ["0", "7", "-1", "10", "012", "-0", "", "-", "+1", " 1", "1 ", "1a", "00", "a", "9:", "1/"]
        {
            cases.push(text.into());
        }
        for exponent in 0..19u32 {
            for delta in [-1i64, 0, 1] {
                let value = 10i64.pow(exponent) + delta;
                cases.push(value.to_string().into_bytes());
                cases.push((-value).to_string().into_bytes());
            }
        }
        for text in [
            i64::MAX.to_string(),
            i64::MIN.to_string(),
            "9223372036854775808".into(),
            "-9223372036854775809".into(),
        ] {
            cases.push(text.into_bytes());
        }
        cases.push(b"99999999999999999999".to_vec());
        for good in cases.clone() {
            for at in 0..good.len() {
                let mut bad = good.clone();
                bad[at] = b'x';
                cases.push(bad);
                let mut other = good.clone();
                other[at] = 0xB1;
                cases.push(other);
            }
        }
        for text in cases {
            let plain = std::str::from_utf8(&text).ok().and_then(|t| t.parse::<i64>().ok());
            let expected = plain.filter(|v| v.to_string().as_bytes() == text);
            assert_eq!(canonical_i64(&text), expected, "{:?}", String::from_utf8_lossy(&text));
        }
    }
}
