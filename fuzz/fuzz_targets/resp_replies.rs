//! The reply decoder: any bytes. Seeds: tests/corpus/wire/decoder.
#![no_main]

#[path = "../../crates/wire/tests/split_rule/mod.rs"]
#[allow(dead_code)]
mod split_rule;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| split_rule::decoder(bytes));
