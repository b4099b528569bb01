//! CBOR out of any bytes: no panic, and what is read is a document that is written and read again alike.
#![no_main]

use darter_document::{Doc, cbor};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = cbor::read(bytes) {
        let mut again = Vec::new();
        if cbor::write(Doc::new(&document).root(), &mut again) {
            assert_eq!(cbor::read(&again).as_ref(), Ok(&document));
        }
    }
});
