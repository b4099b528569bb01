//! Headers and chunks of BF.LOADCHUNK and CF.LOADCHUNK out of any bytes: no panic, nothing larger than the bytes say.
#![no_main]

use darter_sketch::{Bloom, Cuckoo};
use darter_slab::Arena;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&split, rest)) = bytes.split_first() else { return };
    let (header, chunk) = rest.split_at(usize::from(split).min(rest.len()));
    let mut arena = Arena::with_reserve(256 << 20).expect("address space");
    if let Ok(mut bloom) = Bloom::of_header(header) {
        let _ = bloom.load_chunk(&mut arena, 1 + chunk.len() as i64, chunk);
        while !bloom.free_step(&mut arena, usize::MAX) {}
    }
    if let Ok(mut cuckoo) = Cuckoo::of_header(header) {
        let _ = cuckoo.load_chunk(&mut arena, 1 + chunk.len() as i64, chunk);
        while !cuckoo.free_step(&mut arena, usize::MAX) {}
    }
    assert_eq!(arena.used_bytes(), 0);
});
