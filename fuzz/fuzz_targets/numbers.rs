//! Numbers, patterns, units and varints out of any bytes: no panic, and what is printed reads back.
#![no_main]

use darter_base::longdouble::LongDouble;
use darter_base::{crc, glob, number, units, varint};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut out = Vec::new();
    if let Some(value) = number::parse_i64(bytes) {
        number::write_i64(&mut out, value);
        assert_eq!(out, bytes);
    }
    if let Some(value) = number::parse_f64(bytes) {
        out.clear();
        number::write_f64(&mut out, value);
        assert_eq!(number::parse_f64(&out).map(f64::to_bits), Some(value.to_bits()));
    }
    if let Some(value) = LongDouble::parse(bytes) {
        out.clear();
        value.plus(value).write(&mut out);
        assert!(LongDouble::parse(&out).is_some() || out == b"nan");
    }
    if let Some((value, len)) = varint::read(bytes) {
        out.clear();
        varint::write(&mut out, value);
        assert_eq!(out, bytes[..len]);
    }
    let _ = (units::parse_bytes(bytes), units::parse_bytes_binary(bytes), crc::key_slot(bytes));
    let (pattern, text) = bytes.split_at(bytes.len() / 2);
    let _ = (glob::matches(pattern, text, false), glob::matches(pattern, text, true));
});
