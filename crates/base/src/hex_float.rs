//! Hexadecimal floating-point text (`0x1.8p3`), which C's `strtod` and `strtold` take and Rust's parser does not.

/// mantissa * 2^exponent, plus a little more when `sticky`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HexFloat {
    pub(crate) negative: bool,
    // Either zero, exact; or at least the top 125 bits of the number, the highest of them set.
    pub(crate) mantissa: u128,
    pub(crate) exponent: i64,
    /// Non-zero bits were left out below the mantissa.
    pub(crate) sticky: bool,
}

impl HexFloat {
    /// The number of `text`, or `None` when `text` as a whole is not one (`0x` prefix and a digit are needed).
    pub(crate) fn parse(text: &[u8]) -> Option<HexFloat> {
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let [b'0', b'x' | b'X', rest @ ..] = unsigned else { return None };
        let mut number = HexFloat { negative, mantissa: 0, exponent: 0, sticky: false };
        let (mut digits_len, mut after_point, mut at) = (0usize, false, 0);
        for &byte in rest {
            match (byte as char).to_digit(16) {
                Some(digit) => {
                    digits_len += 1;
                    number.push(u128::from(digit), after_point);
                }
                None if byte == b'.' && !after_point => after_point = true,
                None => break,
            }
            at += 1;
        }
        if digits_len == 0 {
            return None;
        }
        number.exponent = number.exponent.saturating_add(parse_exponent(rest.get(at..)?)?);
        let shift = number.mantissa.leading_zeros();
        if number.mantissa != 0 {
            number.mantissa <<= shift;
            number.exponent = number.exponent.saturating_sub(i64::from(shift));
        }
        Some(number)
    }

    /// The nearest double, ties to even. Errors: `None` on overflow and when a non-zero number becomes zero.
    pub(crate) fn to_f64(self) -> Option<f64> {
        let sign = if self.negative { -1.0 } else { 1.0 };
        if self.mantissa == 0 {
            return Some(0.0f64.copysign(sign));
        }
        // Exponent of the highest bit; doubles reach from 2^-1075 (rounding up) to 2^1024 (excluded).
        let top = self.exponent.saturating_add(127);
        if !(-1075..=1023).contains(&top) {
            return None;
        }
        // 53 bits are kept, fewer below the normal range.
        let kept = (top + 1075).min(53) as u32;
        let (whole, rest) = match kept {
            0 => (0, self.mantissa),
            _ => ((self.mantissa >> (128 - kept)) as u64, self.mantissa << kept),
        };
        let half = 1u128 << 127;
        let up = rest > half || (rest == half && (self.sticky || whole & 1 == 1));
        let whole = whole + u64::from(up);
        // Exact: at most 54 bits, the last of which is then zero, times a power of two made in two steps.
        let power = top + 1 - i64::from(kept);
        let value = whole as f64 * 2f64.powi((power / 2) as i32) * 2f64.powi((power - power / 2) as i32);
        (value.is_finite() && value != 0.0).then_some(value.copysign(sign))
    }

    fn push(&mut self, digit: u128, after_point: bool) {
        if self.mantissa >> 124 == 0 {
            self.mantissa = self.mantissa << 4 | digit;
            self.exponent -= if after_point { 4 } else { 0 };
        } else {
            // Full: digits are dropped, and only matter to rounding.
            self.sticky |= digit != 0;
            self.exponent += if after_point { 0 } else { 4 };
        }
    }
}

/// `p`, an optional sign and digits; or nothing, which is 0. Saturates far beyond any float's range.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let digits = match text {
        [] => return Some(0),
        [b'p' | b'P', b'-' | b'+', digits @ ..] => digits,
        [b'p' | b'P', digits @ ..] => digits,
        _ => return None,
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0i64, |n, b| n.saturating_mul(10).saturating_add(i64::from(b - b'0')));
    Some(if text[1] == b'-' { -magnitude } else { magnitude })
}
