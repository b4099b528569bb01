//! Values of modules' types and arrays out of any bytes: no panic, nothing is left behind by a refusal, and what is
//! written of a value is read as the same.
#![no_main]

use darter_base::hash::KeyHasher;
use darter_store::{Arena, rdb};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The first byte chooses between a value of a module and an array.
    let Some((&first, body)) = bytes.split_first() else { return };
    let kind =
        if first & 1 == 0 { darter_store::module::TYPE_MODULE } else { darter_store::module::TYPE_ARRAY };
    let hasher = KeyHasher::new(3);
    let mut arena = Arena::with_reserve(256 << 20).expect("address space");
    let Ok(mut object) = rdb::read_object(kind, &mut rdb::RdbSource::new(body), &mut arena, hasher) else {
        assert_eq!(arena.used_bytes(), 0);
        return;
    };
    let mut written = Vec::new();
    rdb::write_object(&object, &arena, &mut written);
    let kind = rdb::type_of(&object);
    let mut again = rdb::read_object(kind, &mut rdb::RdbSource::new(&written), &mut arena, hasher)
        .expect("what was written");
    let mut second = Vec::new();
    rdb::write_object(&again, &arena, &mut second);
    assert!(written == second);
    object.clear(&mut arena);
    again.clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
});
