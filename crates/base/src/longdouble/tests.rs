//! Sums as Debian's Redis 7.0.15 gives them on x86-64; `examples/redis_check.rs` compares more of them.

use super::*;
use crate::rng::Rng;

fn add(a: &str, b: &str) -> Option<String> {
    let sum = LongDouble::parse(a.as_bytes())?.plus(LongDouble::parse(b.as_bytes())?);
    Some(text(sum))
}

fn text(value: LongDouble) -> String {
    let mut out = Vec::new();
    value.write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn sums_have_the_digits_of_redis() {
    for (a, b, sum) in [
        ("10.50", "0.1", "10.6"),
        ("5.0e3", "2.0e2", "5200"),
        ("0.1", "0.2", "0.3"),
        ("3.0", "1.1", "4.1"),
        ("1.23", "-1.23", "0"),
        ("-0", "0", "0"),
        ("-0", "-0", "0"),
        ("-1e-20", "0", "0"),
        ("1e-17", "0", "0.00000000000000001"),
        ("0.5e-17", "0", "0"),
        ("0.50001e-17", "0", "0.00000000000000001"),
        ("0x1f.ffffffffffffff7ffp0", "0", "31.99999999999999999"),
        ("1.5e-17", "0", "0.00000000000000002"),
        ("1", "1e-19", "1"),
        ("1", "1e-17", "1.00000000000000001"),
        ("9223372036854775807", "1", "9223372036854775808"),
        ("18446744073709551615", "1", "18446744073709551616"),
        ("18446744073709551616", "1", "18446744073709551616"),
        ("18446744073709551617", "1", "18446744073709551616"),
        ("1e30", "1", "1000000000000000000024696061952"),
        ("0.99999999999999999999", "0", "1"),
        ("12345678901234567890.123456", "0", "12345678901234567890"),
        ("0x1p-3", "0x10", "16.125"),
        ("3.6e-4951", "0", "0"),
        ("1e4900", "-1e4900", "0"),
        ("123456789.123456789", "987654321.987654321", "1111111111.11111110995989293"),
    ] {
        assert_eq!(add(a, b).as_deref(), Some(sum), "{a} + {b}");
        assert_eq!(add(b, a).as_deref(), Some(sum), "{b} + {a}");
    }
}

#[test]
fn what_strtold_does_not_take_whole_is_refused() {
    for bad in [
        "",
        " 1",
        "1 ",
        "abc",
        "1x",
        ".",
        "e5",
        "1e",
        "1e+",
        "nan",
        "infinit",
        "1e4933",
        "1.2e4932",
        "1e-4952",
        "1.8e-4951",
        "0x",
        "0x1p20000",
        "1\0",
        "--1",
        "0x1p-16446",
        "1e99999999999999999999",
    ] {
        assert_eq!(LongDouble::parse(bad.as_bytes()), None, "{bad:?}");
    }
    for good in
        ["1.18973149535723176502e4932", "1.9e-4951", "0e99999999999999999999", "0x1p-16445", "+.5", "5."]
    {
        assert!(LongDouble::parse(good.as_bytes()).is_some(), "{good:?}");
    }
    assert!(LongDouble::parse(&[b'1'; 5119]).is_none());
    let mut long = b"0.".to_vec();
    long.resize(5119, b'3');
    assert_eq!(LongDouble::parse(&long).map(text).as_deref(), Some("0.33333333333333333"));
    long.push(b'3');
    assert!(LongDouble::parse(&long).is_none());
}

#[test]
fn infinities_do_not_stay_finite() {
    let infinite = LongDouble::parse(b"-inf").unwrap();
    assert_eq!(text(infinite), "-inf");
    assert!(!infinite.plus(LongDouble::from_i64(1)).is_finite());
    assert!(!LongDouble::from_i64(1).plus(infinite).is_finite());
    assert_eq!(text(infinite.plus(LongDouble::parse(b"inf").unwrap())), "nan");
    let largest = LongDouble::parse(b"1.18973149535723176502e4932").unwrap();
    assert_eq!(text(largest.plus(largest)), "inf");
    assert_eq!(text(largest).len(), 4933);
    assert_eq!(text(LongDouble::from_f64(f64::NAN).plus(largest)), "nan");
}

#[test]
fn integers_and_doubles_enter_exactly() {
    for value in [0, 1, -1, i64::MAX, i64::MIN, 123456789] {
        assert_eq!(text(LongDouble::from_i64(value)), value.to_string());
    }
    assert_eq!(text(LongDouble::from_f64(0.1)), "0.10000000000000001");
    assert_eq!(text(LongDouble::from_f64(-1.5)), "-1.5");
    assert_eq!(text(LongDouble::from_f64(13.361389338970184)), "13.36138933897018433");
    assert_eq!(text(LongDouble::from_f64(f64::MAX)), format!("{:.0}", f64::MAX));
    assert_eq!(text(LongDouble::from_f64(5e-324)), "0");
}

#[test]
fn short_and_long_reading_agree() {
    // Many zeros behind make the same number take the slow way.
    let mut rng = Rng::new(31);
    for _ in 0..5_000 {
        let digits = rng.next_u64() >> rng.below(64);
        let power = rng.below(54) as i64 - 27;
        let short = LongDecimal::parse(format!("{digits}e{power}").as_bytes()).unwrap();
        if short.digits.is_empty() || short.exponent.abs() > 27 || short.digits.len() > 19 {
            continue;
        }
        let power = short.exponent.unsigned_abs() as u32;
        let by = |exact| LongDouble::rounded_non_zero(false, exact);
        assert_eq!(by(short.exact_short(power)), by(short.exact_long(power)), "{digits}e{power}");
    }
}

#[test]
fn doubles_read_as_long_doubles_are_the_doubles() {
    // A double's shortest text, read here and rounded to 53 bits, is the double again.
    let mut rng = Rng::new(32);
    for _ in 0..5_000 {
        let value = f64::from_bits(rng.next_u64() >> 1);
        if !value.is_normal() {
            continue;
        }
        let read = LongDouble::parse(format!("{value:e}").as_bytes()).unwrap();
        let Magnitude::Finite { mantissa, exponent } = read.magnitude else { panic!("{value:e} is finite") };
        let (whole, rest) = (mantissa >> 11, mantissa & 0x7ff);
        let rounded = whole + u64::from(rest > 0x400 || (rest == 0x400 && whole & 1 == 1));
        assert_eq!(
            rounded as f64 * 2f64.powi((exponent + 11) / 2) * 2f64.powi(exponent + 11 - (exponent + 11) / 2),
            value
        );
    }
}
