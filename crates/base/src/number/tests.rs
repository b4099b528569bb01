//! Texts and numbers, both ways.

use super::*;
use crate::rng::Rng;

fn printed(value: f64) -> String {
    let mut out = Vec::new();
    write_f64(&mut out, value);
    String::from_utf8(out).unwrap()
}

#[test]
fn integers_are_taken_in_canonical_form_only() {
    for (text, value) in [
        ("0", Some(0)),
        ("7", Some(7)),
        ("-1", Some(-1)),
        ("9223372036854775807", Some(i64::MAX)),
        ("-9223372036854775808", Some(i64::MIN)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("18446744073709551616", None),
        ("99999999999999999999999", None),
        ("", None),
        ("-", None),
        ("-0", None),
        ("+1", None),
        ("01", None),
        ("00", None),
        (" 1", None),
        ("1 ", None),
        ("1.0", None),
        ("0x10", None),
        ("--1", None),
        ("1\0", None),
        (":", None),
        ("/", None),
    ] {
        assert_eq!(parse_i64(text.as_bytes()), value, "{text:?}");
    }
    assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(parse_u64(b"18446744073709551616"), None);
    assert_eq!(parse_u64(b"-1"), None);
    assert_eq!(parse_u64_digits(b"000000000000000000000012"), Some(12));
}

#[test]
fn any_bytes_are_digits_or_not_at_every_length() {
    let mut rng = Rng::new(5);
    for round in 0..200_000 {
        let len = 1 + rng.below(24) as usize;
        let mut text: Vec<u8> = (0..len).map(|_| b'0' + rng.below(10) as u8).collect();
        if round % 2 == 0 {
            text[rng.below(len as u64) as usize] = rng.next_u64() as u8;
        }
        let is_digits = text.iter().all(u8::is_ascii_digit);
        let wanted = std::str::from_utf8(&text).ok().filter(|_| is_digits).and_then(|text| text.parse().ok());
        assert_eq!(parse_u64_digits(&text), wanted, "{:?}", text.escape_ascii().to_string());
        let shown = String::from_utf8_lossy(&text);
        if is_digits && len <= 17 {
            let minus = format!("-{shown}");
            assert_eq!(parse_f64(&text).map(f64::to_bits), shown.parse().ok().map(f64::to_bits), "{shown}");
            let wanted = minus.parse().ok().map(f64::to_bits);
            assert_eq!(parse_f64(minus.as_bytes()).map(f64::to_bits), wanted, "{minus}");
        }
    }
}

#[test]
fn integers_of_every_length_come_back() {
    let mut rng = Rng::new(1);
    for _ in 0..20_000 {
        let value = (rng.next_u64() >> rng.below(64)) as i64;
        for value in [value, value.wrapping_neg()] {
            let mut out = Vec::new();
            write_i64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
            assert_eq!(parse_i64(&out), Some(value));
            assert_eq!(text_len(value), out.len());
        }
    }
    assert_eq!((digits(0), digits(9), digits(10), digits(u64::MAX)), (1, 1, 2, 20));
}

#[test]
fn doubles_are_read_as_strtod_reads_a_whole_text() {
    for (text, value) in [
        ("1", Some(1.0)),
        ("+1.5", Some(1.5)),
        ("-.5", Some(-0.5)),
        ("5.", Some(5.0)),
        ("1e3", Some(1000.0)),
        ("1E+3", Some(1000.0)),
        ("inf", Some(f64::INFINITY)),
        ("+InF", Some(f64::INFINITY)),
        ("-Infinity", Some(f64::NEG_INFINITY)),
        ("0x10", Some(16.0)),
        ("-0X1.8p1", Some(-3.0)),
        ("0x.8", Some(0.5)),
        ("0x1p-1074", Some(5e-324)),
        ("0x1p-1075", None),
        ("0x1.8p-1075", Some(5e-324)),
        ("0x1.fffffffffffffp1023", Some(f64::MAX)),
        ("0x1.fffffffffffff8p1023", None),
        ("0x0p99999", Some(0.0)),
        ("0x1p99999999999999999999", None),
        ("0x0.000000000000000000000000000001p120", Some(1.0)),
        ("0x1000000000000000000000000000001p-120", Some(1.0)),
        ("4.9e-324", Some(5e-324)),
        ("1e-400", None),
        ("0e-400", Some(0.0)),
        ("-0.000", Some(-0.0)),
        ("1e400", None),
        ("1e309", None),
        ("infinit", None),
        ("nan", None),
        ("-nan", None),
        ("nan(1)", None),
        ("", None),
        (" 1", None),
        ("1 ", None),
        ("1e", None),
        ("1e+", None),
        (".", None),
        ("0x", None),
        ("0x.", None),
        ("0xp1", None),
        ("0x1p", None),
        ("0x1g", None),
        ("1\0", None),
        ("1_0", None),
        ("--1", None),
        ("e5", None),
    ] {
        let got = parse_f64(text.as_bytes());
        assert_eq!(got.map(f64::to_bits), value.map(f64::to_bits), "{text:?} gave {got:?}");
    }
}

#[test]
fn doubles_are_laid_out_as_redis_does() {
    for (value, text) in [
        (3.0, "3"),
        (-3.0, "-3"),
        (0.0, "0"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (1.5, "1.5"),
        (-123.456, "-123.456"),
        (1e18, "1000000000000000000"),
        (4.611686018427388e18, "4611686018427387904"),
        (5e18, "5e+18"),
        (1e20, "1e+20"),
        (1e21, "1e+21"),
        (1.5e25, "1.5e+25"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (12345678901234568000000.0, "12345678901234568000000"),
        (1e-5, "0.00001"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.2e-6, "1.2e-6"),
        (1.2e-5, "0.000012"),
        (1.23e-5, "1.23e-5"),
        (1.234567e-9, "1.234567e-9"),
        (5e-324, "5e-324"),
        (0.00012345678, "1.2345678e-4"),
        (0.012345678901234, "0.012345678901234"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(printed(value), text, "{value:?}");
    }
}

#[test]
fn printed_doubles_read_back_as_themselves() {
    let mut rng = Rng::new(2);
    for _ in 0..100_000 {
        let value = f64::from_bits(rng.next_u64());
        if value.is_finite() {
            assert_eq!(parse_f64(printed(value).as_bytes()).map(f64::to_bits), Some(value.to_bits()));
        }
        let short = rng.below(1_000_000) as f64 / 10f64.powi(rng.below(12) as i32);
        assert_eq!(parse_f64(printed(short).as_bytes()), Some(short));
    }
}

#[test]
fn fixed_point_has_the_digits_asked_for() {
    let mut out = Vec::new();
    write_f64_fixed(&mut out, 166274.15156960033, 4);
    assert_eq!(out, b"166274.1516");
}
