//! Amounts of memory as people write them: `100mb`, `12.5G`, `1.50M`.

use crate::number;

/// The number of bytes that `text` names, by the rules of Redis' configuration.
///
/// Shape: digits and one of `b k kb m mb g gb` in any case. `k` is 1000; `kb` and `kib` are 1024. Also `t tb p pb`,
/// powers of ten (`1e9`), and a fraction before a unit (`12.5G`), which then counts in 1024s. Errors: `None` for a
/// sign, an unknown unit, no digits or more than 64 bits.
pub fn parse_bytes(text: &[u8]) -> Option<u64> {
    if let Some(bytes) = parse_power(text) {
        return Some(bytes);
    }
    let (number, unit) = split_unit(text);
    if memchr::memchr(b'.', number).is_some() {
        return scale_fraction(number, SizeUnit::parse(unit)?.binary());
    }
    let unit = SizeUnit::parse(unit)?;
    let factor = if unit.bytes { unit.binary() } else { 1000u64.checked_pow(unit.power)? };
    number::parse_u64_digits(number)?.checked_mul(factor)
}

/// The number of bytes that `text` names, by the rules of Dragonfly's flags.
///
/// Shape: a number, whole or not, and one of `b k m g t p e` in any case, optionally closed by `b` or `ib`, always in
/// 1024s. Also powers of ten (`1e9`). Errors: `None` for a sign, an unknown unit, no digits or more than 64 bits.
pub fn parse_bytes_binary(text: &[u8]) -> Option<u64> {
    if let Some(bytes) = parse_power(text) {
        return Some(bytes);
    }
    let (number, unit) = split_unit(text);
    let factor = SizeUnit::parse(unit)?.binary();
    match number::parse_u64_digits(number) {
        Some(whole) => whole.checked_mul(factor),
        None => scale_fraction(number, factor),
    }
}

/// `bytes` as INFO prints amounts for people: `512B`, `1.50M`, `3.00G`.
pub fn format_bytes_human(bytes: u64) -> String {
    let in_units = |power: u32| bytes as f64 / 1024f64.powi(power as i32);
    match bytes {
        0..0x400 => format!("{bytes}B"),
        0x400..0x10_0000 => format!("{:.2}K", in_units(1)),
        0x10_0000..0x4000_0000 => format!("{:.2}M", in_units(2)),
        0x4000_0000..0x100_0000_0000 => format!("{:.2}G", in_units(3)),
        0x100_0000_0000..0x4_0000_0000_0000 => format!("{:.2}T", in_units(4)),
        0x4_0000_0000_0000..0x1000_0000_0000_0000 => format!("{:.2}P", in_units(5)),
        _ => format!("{bytes}B"),
    }
}

struct SizeUnit {
    // 0..=6 for b k m g t p e
    power: u32,
    /// Closed by a `b`.
    bytes: bool,
}

impl SizeUnit {
    fn parse(unit: &[u8]) -> Option<SizeUnit> {
        let (letter, bytes) = match unit {
            [] => return Some(SizeUnit { power: 0, bytes: false }),
            [letter] => (letter, false),
            [letter, b'b' | b'B'] | [letter, b'i' | b'I', b'b' | b'B']
                if !letter.eq_ignore_ascii_case(&b'b') =>
            {
                (letter, true)
            }
            _ => return None,
        };
        let power = b"bkmgtpe".iter().position(|known| known.eq_ignore_ascii_case(letter))?;
        Some(SizeUnit { power: power as u32, bytes })
    }

    fn binary(&self) -> u64 {
        1 << (10 * self.power)
    }
}

/// A whole number before `e` and a power of ten.
fn parse_power(text: &[u8]) -> Option<u64> {
    let at = text.iter().position(|byte| matches!(byte, b'e' | b'E'))?;
    let (number, power) = (text.get(..at)?, text.get(at + 1..)?);
    let power = u32::try_from(number::parse_u64_digits(power)?).ok()?;
    number::parse_u64_digits(number)?.checked_mul(10u64.checked_pow(power)?)
}

fn split_unit(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|b| !b.is_ascii_digit() && *b != b'.').unwrap_or(text.len());
    text.split_at(end)
}

fn scale_fraction(number: &[u8], factor: u64) -> Option<u64> {
    let amount = number::parse_f64(number)? * factor as f64;
    // 2^64 exactly; the cast below would saturate from there on.
    (amount < 18_446_744_073_709_551_616.0).then_some(amount as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_units() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("100", Some(100)),
            ("100b", Some(100)),
            ("1k", Some(1000)),
            ("1KB", Some(1024)),
            ("3m", Some(3_000_000)),
            ("3mB", Some(3 << 20)),
            ("2G", Some(2_000_000_000)),
            ("2gb", Some(2 << 30)),
            ("100GiB", Some(100 << 30)),
            ("1kib", Some(1024)),
            ("1bib", None),
            ("1e9", Some(1_000_000_000)),
            ("25E2", Some(2500)),
            ("1e20", None),
            ("e9", None),
            ("12.5G", Some(12_800 << 20)),
            ("1tb", Some(1 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("18446744073709551615k", None),
            ("-1", None),
            ("+1", None),
            ("", None),
            ("kb", None),
            ("1bb", None),
            ("1 kb", None),
            ("1kbb", None),
            ("1x", None),
            ("1.2.3k", None),
            (".", None),
            ("99999999999.0e", None),
        ] {
            assert_eq!(parse_bytes(text.as_bytes()), bytes.filter(|_| !text.is_empty()), "{text}");
        }
    }

    #[test]
    fn dragonfly_units_are_binary() {
        assert_eq!(parse_bytes_binary(b"1G"), Some(1 << 30));
        assert_eq!(parse_bytes_binary(b"1gb"), Some(1 << 30));
        assert_eq!(parse_bytes_binary(b"0.5k"), Some(512));
        assert_eq!(parse_bytes_binary(b"16E"), None);
        assert_eq!(parse_bytes_binary(b"nan"), None);
        assert_eq!(parse_bytes_binary(b""), None);
    }

    #[test]
    fn amounts_for_people() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (1_572_864, "1.50M"),
            (3 << 30, "3.00G"),
            (5 << 40, "5.00T"),
            (7 << 50, "7.00P"),
            (u64::MAX, "18446744073709551615B"),
        ] {
            assert_eq!(format_bytes_human(bytes), text);
        }
    }
}
