//! 80-bit extended floating point in software, for INCRBYFLOAT and HINCRBYFLOAT.
//!
//! Redis computes these in C's `long double`, which on x86 has a 64-bit mantissa; users see its digits. This gives the
//! same digits on every machine: parse as `strtold`, add rounding to nearest even, print as `%.17Lf` without the
//! trailing zeros.

use crate::hex_float::HexFloat;
use crate::natural::Natural;

/// An x87 extended number: 64 bits of mantissa, 15 of exponent, a sign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LongDouble {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Magnitude {
    /// mantissa * 2^exponent. The highest mantissa bit is set, unless exponent == EXPONENT_MIN.
    Finite {
        mantissa: u64,
        exponent: i32,
    },
    Infinite,
    Nan,
}

impl LongDouble {
    /// The largest finite number.
    pub const MAX: LongDouble = LongDouble {
        negative: false,
        magnitude: Magnitude::Finite { mantissa: u64::MAX, exponent: EXPONENT_MAX },
    };

    /// The number of `text` as `strtold` reads it, when it takes all of `text`: decimal, hexadecimal, `inf`.
    ///
    /// Shape: at most 5,119 bytes. Errors: `None` for spaces, NaN, trailing bytes, overflow, and a non-zero number that
    /// rounds to zero. Cost: about 100 ns up to 19 digits, under 1 ms for any. Source: Redis string2ld.
    pub fn parse(text: &[u8]) -> Option<LongDouble> {
        if text.len() > TEXT_MAX {
            return None;
        }
        if let Some(hex) = HexFloat::parse(text) {
            return LongDouble::of_hex(hex);
        }
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Some(LongDouble { negative, magnitude: Magnitude::Infinite });
        }
        LongDecimal::parse(unsigned)?.to_long_double(negative)
    }

    /// `value` exactly.
    pub fn from_i64(value: i64) -> LongDouble {
        LongDouble::rounded(
            value < 0,
            Exact { top: u128::from(value.unsigned_abs()), exponent: 0, sticky: false },
        )
    }

    /// `value` exactly.
    pub fn from_f64(value: f64) -> LongDouble {
        let negative = value.is_sign_negative();
        if value.is_nan() {
            return LongDouble { negative, magnitude: Magnitude::Nan };
        }
        if value.is_infinite() {
            return LongDouble { negative, magnitude: Magnitude::Infinite };
        }
        let bits = value.to_bits();
        let (field, fraction) = ((bits >> 52 & 0x7ff) as i64, bits & ((1 << 52) - 1));
        let (mantissa, exponent) =
            if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
        LongDouble::rounded(negative, Exact { top: u128::from(mantissa), exponent, sticky: false })
    }

    /// Returns true if it is neither infinite nor NaN.
    pub fn is_finite(self) -> bool {
        matches!(self.magnitude, Magnitude::Finite { .. })
    }

    /// True if it is neither infinite nor NaN.
    pub fn negated(self) -> LongDouble {
        LongDouble { negative: !self.negative, ..self }
    }

    /// The difference, as [`LongDouble::plus`].
    pub fn minus(self, other: LongDouble) -> LongDouble {
        self.plus(other.negated())
    }

    /// Returns true if it is greater than `other`, false if either is NaN.
    pub fn exceeds(self, other: LongDouble) -> bool {
        // A difference is rounded to zero only between equal numbers.
        let LongDouble { negative, magnitude } = self.minus(other);
        !negative
            && match magnitude {
                Magnitude::Finite { mantissa, .. } => mantissa != 0,
                Magnitude::Infinite => true,
                Magnitude::Nan => false,
            }
    }

    /// Returns true if it is less than zero, or the zero of that sign.
    pub fn is_negative(self) -> bool {
        self.negative
    }

    /// The sum, rounded to nearest, ties to even; infinite past the range, NaN for opposite infinities.
    pub fn plus(self, other: LongDouble) -> LongDouble {
        use Magnitude::{Finite, Infinite, Nan};
        match (self.magnitude, other.magnitude) {
            (Nan, _) | (_, Finite { .. }) if !self.is_finite() => self,
            (Infinite, Infinite) if self.negative != other.negative => {
                LongDouble { negative: false, magnitude: Nan }
            }
            (Finite { mantissa: a, exponent: ea }, Finite { mantissa: b, exponent: eb }) => {
                // By exponent, and by mantissa for equal ones, the larger first.
                if (ea, a) >= (eb, b) {
                    sum(self.negative, (a, ea), other.negative, (b, eb))
                } else {
                    sum(other.negative, (b, eb), self.negative, (a, ea))
                }
            }
            _ => other,
        }
    }

    /// Appends the number with up to 17 digits after the point, without trailing zeros: `10.5`, `3`, `0`, `inf`.
    ///
    /// Cost: 1 to 20 digits about 100 ns; under 1 ms for the largest, of 4,933 digits. Source: Redis ld2string, human mode.
    pub fn write(self, out: &mut Vec<u8>) {
        let (mantissa, exponent) = match self.magnitude {
            Magnitude::Nan => return out.extend_from_slice(b"nan"),
            Magnitude::Infinite => {
                return out.extend_from_slice(if self.negative { b"-inf" } else { b"inf" });
            }
            Magnitude::Finite { mantissa, exponent } => (mantissa, exponent),
        };
        if exponent > 0 && mantissa != 0 {
            if self.negative {
                out.push(b'-');
            }
            return Natural::new(mantissa).shifted_left(exponent as u32).write(out);
        }
        let (whole, fraction) = split_decimal(mantissa, exponent.unsigned_abs());
        // "-0" is printed as "0".
        if self.negative && (whole, fraction) != (0, 0) {
            out.push(b'-');
        }
        crate::number::write_u64(out, whole);
        if fraction != 0 {
            let digits = format!(".{fraction:017}");
            out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
        }
    }

    /// The nearest number to an exact one.
    fn rounded(negative: bool, exact: Exact) -> LongDouble {
        let bits = i64::from(128 - exact.top.leading_zeros());
        let drop = (bits - 64).max(EXPONENT_MIN - exact.exponent);
        // The precision is sufficient: bits are left out only if at least one is dropped here.
        debug_assert!(drop > 0 || !exact.sticky);
        let mut exponent = exact.exponent + drop;
        let mantissa = if drop <= 0 {
            (exact.top << -drop) as u64
        } else {
            let drop = drop as u32;
            let whole = exact.top.checked_shr(drop).unwrap_or(0);
            let rest = exact.top.checked_shl(128 - drop.min(128)).unwrap_or(exact.top);
            // Beyond 128 bits the number is far below half of the last place.
            let rest = if drop > 128 { u128::from(exact.top != 0) } else { rest };
            let half = 1u128 << 127;
            let up = rest > half || (rest == half && (exact.sticky || whole & 1 == 1));
            let whole = whole + u128::from(up);
            if whole >> 64 != 0 {
                exponent += 1;
                1 << 63
            } else {
                whole as u64
            }
        };
        let magnitude = match (mantissa, i32::try_from(exponent)) {
            (0, _) => Magnitude::Finite { mantissa, exponent: EXPONENT_MIN as i32 },
            (_, Ok(exponent)) if exponent <= EXPONENT_MAX => Magnitude::Finite { mantissa, exponent },
            _ => Magnitude::Infinite,
        };
        LongDouble { negative, magnitude }
    }

    fn of_hex(hex: HexFloat) -> Option<LongDouble> {
        if hex.mantissa == 0 {
            return Some(LongDouble::zero(hex.negative));
        }
        let exact = Exact { top: hex.mantissa, exponent: hex.exponent, sticky: hex.sticky };
        LongDouble::rounded_non_zero(hex.negative, exact)
    }

    /// As `rounded`, but `None` if a non-zero number becomes zero or infinite.
    fn rounded_non_zero(negative: bool, exact: Exact) -> Option<LongDouble> {
        // Far outside the range either way, and no number to shift by.
        if !(-40_000..=40_000).contains(&exact.exponent) {
            return None;
        }
        let value = LongDouble::rounded(negative, exact);
        (value.is_finite() && !value.is_zero()).then_some(value)
    }

    fn zero(negative: bool) -> LongDouble {
        LongDouble { negative, magnitude: Magnitude::Finite { mantissa: 0, exponent: EXPONENT_MIN as i32 } }
    }

    fn is_zero(self) -> bool {
        matches!(self.magnitude, Magnitude::Finite { mantissa: 0, .. })
    }
}

/// top * 2^exponent, plus something less than the last bit of `top` when `sticky`.
struct Exact {
    top: u128,
    exponent: i64,
    sticky: bool,
}

/// The sum of two finite numbers, the first of which is not smaller in magnitude.
fn sum(negative: bool, large: (u64, i32), small_negative: bool, small: (u64, i32)) -> LongDouble {
    // Working bits below the larger mantissa: one for rounding, the others exact. Lower bits are sticky.
    const SPACE: u32 = 62;
    let wide = u128::from(large.0) << SPACE;
    let apart = (large.1 - small.1).unsigned_abs();
    let unshifted = u128::from(small.0) << SPACE;
    let shifted = unshifted.checked_shr(apart).unwrap_or(0);
    let sticky = shifted.checked_shl(apart).unwrap_or(0) != unshifted;
    let top = if negative == small_negative {
        wide + shifted
    } else {
        // The bits that were left out are part of the subtrahend too.
        wide - shifted - u128::from(sticky)
    };
    if top == 0 {
        // Opposite numbers give plus zero; minus zero takes two of them.
        return LongDouble::zero(negative && small_negative);
    }
    LongDouble::rounded(negative, Exact { top, exponent: i64::from(large.1) - i64::from(SPACE), sticky })
}

/// mantissa / 2^shift in decimal: the whole part, and the fraction times 10^17, rounded to nearest, ties to even.
fn split_decimal(mantissa: u64, shift: u32) -> (u64, u64) {
    let whole = mantissa.checked_shr(shift).unwrap_or(0);
    let fraction = mantissa - whole.checked_shl(shift).unwrap_or(0);
    // Below 2^64 * 2^57.
    let scaled = u128::from(fraction) * u128::from(DECIMALS_SCALE);
    let kept = scaled.checked_shr(shift).unwrap_or(0);
    let rest = scaled - kept.checked_shl(shift).unwrap_or(0);
    // From 128 on, `scaled` is less than half of the last place.
    let half = 1u128.checked_shl(shift.wrapping_sub(1)).unwrap_or(u128::MAX);
    let up = shift > 0 && (rest > half || (rest == half && kept & 1 == 1));
    let kept = kept as u64 + u64::from(up);
    if kept == DECIMALS_SCALE { (whole + 1, 0) } else { (whole, kept) }
}

/// digits * 10^exponent.
struct LongDecimal {
    // Values 0 to 9, without leading or trailing zeros; none for zero.
    digits: Vec<u8>,
    exponent: i64,
}

impl LongDecimal {
    /// Digits with at most one point among them, at least one digit, and an exponent or none.
    fn parse(text: &[u8]) -> Option<LongDecimal> {
        let mut decimal = LongDecimal { digits: Vec::with_capacity(text.len()), exponent: 0 };
        let (mut after_point, mut any, mut at) = (false, false, 0);
        for &byte in text {
            match byte {
                b'0'..=b'9' => {
                    any = true;
                    decimal.exponent -= i64::from(after_point);
                    if byte != b'0' || !decimal.digits.is_empty() {
                        decimal.digits.push(byte - b'0');
                    }
                }
                b'.' if !after_point => after_point = true,
                _ => break,
            }
            at += 1;
        }
        if !any {
            return None;
        }
        decimal.exponent = decimal.exponent.saturating_add(parse_exponent(&text[at..])?);
        while decimal.digits.last() == Some(&0) {
            decimal.digits.pop();
            decimal.exponent = decimal.exponent.saturating_add(1);
        }
        Some(decimal)
    }

    fn to_long_double(&self, negative: bool) -> Option<LongDouble> {
        if self.digits.is_empty() {
            return Some(LongDouble::zero(negative));
        }
        // The number is below 10^top and at least a tenth of that.
        let top = self.exponent.saturating_add(self.digits.len() as i64);
        if !(-4951..=4933).contains(&top) {
            return None;
        }
        // In range now: `top` is, and there are at most `TEXT_MAX` digits.
        let power = self.exponent.unsigned_abs() as u32;
        let exact = if self.digits.len() <= 19 && power <= 27 {
            self.exact_short(power)
        } else {
            self.exact_long(power)
        };
        LongDouble::rounded_non_zero(negative, exact)
    }

    /// Digits and power of five fit 64 bits each.
    fn exact_short(&self, power: u32) -> Exact {
        let value = self.digits.iter().fold(0, |n, &digit| n * 10 + u64::from(digit));
        let five = 5u64.pow(power);
        if self.exponent >= 0 {
            return Exact {
                top: u128::from(value) * u128::from(five),
                exponent: self.exponent,
                sticky: false,
            };
        }
        // At least 65 bits of quotient, since the divisor has at most 63.
        let shift = 64 + value.leading_zeros();
        let wide = u128::from(value) << shift;
        let (top, rest) = (wide / u128::from(five), wide % u128::from(five));
        Exact { top, exponent: self.exponent - i64::from(shift), sticky: rest != 0 }
    }

    fn exact_long(&self, power: u32) -> Exact {
        let value = Natural::from_digits(&self.digits);
        let five = Natural::power_of_5(power);
        if self.exponent >= 0 {
            let (top, left_out, sticky) = value.times(&five).top_128();
            return Exact { top, exponent: self.exponent + i64::from(left_out), sticky };
        }
        let (top, exponent, sticky) = value.divided_by(&five);
        Exact { top, exponent: exponent + self.exponent, sticky }
    }
}

/// `e`, an optional sign and digits; or nothing, which is 0. Saturates far beyond the range.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let digits = match text {
        [] => return Some(0),
        [b'e' | b'E', b'-' | b'+', digits @ ..] => digits,
        [b'e' | b'E', digits @ ..] => digits,
        _ => return None,
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits.iter().fold(0i64, |n, b| n.saturating_mul(10).saturating_add(i64::from(b - b'0')));
    Some(if text[1] == b'-' { -magnitude } else { magnitude })
}

// Redis reads into a buffer of 5 KiB with its terminator.
const TEXT_MAX: usize = 5 * 1024 - 1;
const DECIMALS_SCALE: u64 = 10u64.pow(17);
// Of the lowest mantissa bit: 2^-16445 is the smallest subnormal, 2^16384 the first power that does not fit.
const EXPONENT_MIN: i64 = -16445;
const EXPONENT_MAX: i32 = 16383 - 63;

#[cfg(test)]
mod tests;
