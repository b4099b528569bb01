//! CBOR out of any bytes: no panic, and what is read is JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = darter_document::cbor::to_json(bytes) {
        // A text may be deeper than a document by the innermost value alone.
        let _ = darter_document::parse(&text);
        assert!(std::str::from_utf8(&text).is_ok());
    }
});
