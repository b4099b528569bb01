//! The memcached decoder: any bytes, cut anywhere. Seeds: tests/corpus/wire/memcache.
#![no_main]

#[path = "../../crates/wire/tests/split_rule/mod.rs"]
#[allow(dead_code)]
mod split_rule;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The last byte says how long the pieces are, so that seeds are plain lines.
    split_rule::memcache(bytes, bytes.last().copied().unwrap_or(0));
});
