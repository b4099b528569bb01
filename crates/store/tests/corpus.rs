//! Replays `tests/corpus/values`, and thousands of inputs cut and changed from it: values of modules' types and
//! arrays. The fuzz target `module_values` does the same without end. An input that ever broke it is added there as a
//! file.

use std::path::Path;

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_store::module::{TYPE_ARRAY, TYPE_MODULE};
use darter_store::{Arena, rdb};

/// Reads a value, writes it, and reads that again; true if it is one.
fn check(bytes: &[u8], arena: &mut Arena) -> bool {
    let Some((&first, body)) = bytes.split_first() else { return false };
    let kind = if first & 1 == 0 { TYPE_MODULE } else { TYPE_ARRAY };
    let hasher = KeyHasher::new(3);
    let Ok(mut object) = rdb::read_object(kind, &mut rdb::RdbSource::new(body), arena, hasher) else {
        assert_eq!(arena.used_bytes(), 0, "a refusal leaves blocks: {}", bytes.escape_ascii());
        return false;
    };
    let (mut written, mut second) = (Vec::new(), Vec::new());
    rdb::write_object(&object, arena, &mut written);
    let again = rdb::read_object(rdb::type_of(&object), &mut rdb::RdbSource::new(&written), arena, hasher);
    let Ok(mut again) = again else { panic!("what was written is not read: {}", bytes.escape_ascii()) };
    rdb::write_object(&again, arena, &mut second);
    assert!(written == second, "written otherwise: {}", bytes.escape_ascii());
    object.clear(arena);
    again.clear(arena);
    assert_eq!(arena.used_bytes(), 0, "a value leaves blocks: {}", bytes.escape_ascii());
    true
}

#[test]
fn values_and_what_is_left_of_them() {
    let mut arena = Arena::with_reserve(1 << 30).expect("address space");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/values");
    let files = std::fs::read_dir(path).expect("the corpus").flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).collect();
    paths.sort();
    assert!(paths.len() >= 12, "the corpus has lost inputs");
    let mut rng = Rng::new(11);
    for path in paths {
        let bytes = std::fs::read(&path).expect("an input");
        assert!(check(&bytes, &mut arena), "{} is no value", path.display());
        for len in 0..bytes.len().min(400) {
            check(&bytes[..len], &mut arena);
        }
        for _ in 0..500 {
            let mut changed = bytes.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.below(changed.len() as u64) as usize;
                changed[at] = match rng.below(3) {
                    0 => rng.next_u64() as u8,
                    1 => changed[at] ^ 1 << rng.below(8),
                    _ => [0, 1, 0x3f, 0x40, 0x80, 0x81, 0xff][rng.below(7) as usize],
                };
            }
            check(&changed, &mut arena);
        }
    }
}
