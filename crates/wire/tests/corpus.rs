//! Replays `tests/corpus/wire`: the bad inputs we know of, and every input that ever broke a codec.

mod split_rule;

use std::path::Path;

fn replay(folder: &str, check: impl Fn(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/wire").join(folder);
    let mut files = 0;
    for entry in std::fs::read_dir(&path).expect("the corpus is there") {
        let path = entry.expect("the corpus can be listed").path();
        println!("{}", path.display());
        check(&std::fs::read(&path).expect("the input can be read"));
        files += 1;
    }
    assert!(files >= 10, "{folder} has lost inputs: {files}");
}

#[test]
fn requests() {
    replay("parser", |bytes| {
        for piece in [0, 1, 2, 6, 40, 255] {
            split_rule::parser(bytes, piece);
        }
    });
}

#[test]
fn replies() {
    replay("decoder", split_rule::decoder);
}

#[test]
fn memcache_lines() {
    replay("memcache", |bytes| {
        for piece in [0, 1, 2, 6, 40, 255] {
            split_rule::memcache(bytes, piece);
        }
    });
}
