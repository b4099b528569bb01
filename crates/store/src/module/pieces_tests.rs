//! Values of `sketches` in the pieces of a snapshot, changed while they are written.

use darter_series::{DuplicatePolicy, Sample, Series, SeriesSettings};
use darter_sketch::bloom::Scaling;
use darter_sketch::cuckoo::{CuckooSettings, hash};
use darter_sketch::{Bloom, Cms, Cuckoo, TopK};
use darter_slab::Past;

use super::*;
use crate::object::Object;

/// Writes `value` in pieces while `change` changes it. The pieces must read back as the former value.
fn check<T: ModuleType>(
    name: &str,
    mut value: T,
    arena: &mut Arena,
    change: impl FnOnce(&mut T, &mut Arena),
) {
    let mut before = Vec::new();
    write(&value, arena, &mut before);
    let frozen = ModuleValue::frozen(&value).expect("written in pieces");
    arena.keep_into(Box::new(Past::new()));
    change(&mut value, arena);
    let past = arena.end_past().expect("kept");
    assert!(past.bytes() < 100 << 10, "{name}: {} bytes were kept", past.bytes());
    arena.look_back(past);
    let mut pieces = Vec::new();
    for number in 0..frozen.pieces() {
        let mut piece = Vec::new();
        write_piece(&*frozen, number, arena, &mut piece);
        pieces.push(piece);
    }
    arena.end_past();
    let mut other = Arena::with_reserve(64 << 20).expect("address space");
    let mut pieces = pieces.iter();
    let first = pieces.next().expect("a root");
    let mut object = Object::Module(read(&mut RdbSource::new(first), &mut other).expect("a root"));
    for piece in pieces {
        object.read_piece(&mut RdbSource::new(piece), &mut other).expect("a piece");
    }
    let Object::Module(loaded) = &object else { panic!("{name} is a module's value") };
    let mut after = Vec::new();
    write(&**loaded, &other, &mut after);
    assert!(before == after, "{name}: {} and {} bytes", before.len(), after.len());
    object.clear(&mut other);
    assert_eq!(other.used_bytes(), 0, "{name}");
    while !ModuleValue::free_step(&mut value, arena, 10) {}
    assert_eq!(arena.used_bytes(), 0, "{name}");
}

fn arena() -> Arena {
    Arena::with_reserve(64 << 20).expect("address space")
}

#[test]
fn documents_are_written_as_they_were() {
    let mut arena = arena();
    let rows: Vec<String> = (0..3000).map(|n| format!("{{\"id\":{n},\"name\":\"item {n}\"}}")).collect();
    let text = format!("{{\"rows\":[{}],\"text\":\"{}\"}}", rows.join(","), "x".repeat(50_000));
    let bytes = darter_document::parse(text.as_bytes()).expect("JSON");
    let json = Json::new(&bytes, &mut arena).expect("room");
    assert_eq!(ModuleValue::memory_bytes(&json), arena.used_bytes());
    assert!(ModuleValue::fold(&json, &arena).is_none());
    check("a document", json, &mut arena, |json, arena| {
        for path in ["$.rows[7].id", "$.rows[2999].name", "$.rows[1000:1200]"] {
            let path = darter_document::JsonPath::parse(path.as_bytes()).expect("a path");
            let (done, _) = darter_document::remove(json.doc(arena), &path.trace(json.doc(arena)));
            json.apply(done, arena).expect("room");
        }
        while !ModuleValue::sweep(json, arena, 1) {}
        assert_eq!(ModuleValue::memory_bytes(json), arena.used_bytes());
    });
}

/// Their text does not tell the formats of floats.
#[test]
fn short_floats_are_written_as_they_were() {
    for name in [&b"FP16"[..], b"BF16", b"FP32"] {
        let mut arena = arena();
        let row = |n: usize| format!("{{\"id\":{n},\"price\":{n}.25,\"v\":[0.1,-{n}.5,7e-6,0.0]}}");
        let rows: Vec<String> = (0..3000).map(row).collect();
        let text = format!("[[{}],{}]", "0.125,".repeat(20_000) + "1.5", rows.join(","));
        let precision = darter_document::precision::Precision::named(name).expect("a format");
        let bytes = darter_document::precision::parse_in(text.as_bytes(), precision).expect("fits");
        let json = Json::new(&bytes, &mut arena).expect("room");
        assert_eq!(ModuleValue::own_version(&json, &arena), Some(4));
        check("a document of short floats", json, &mut arena, |json, arena| {
            let path = darter_document::JsonPath::parse(b"$[1:200]").expect("a path");
            let (done, _) = darter_document::remove(json.doc(arena), &path.trace(json.doc(arena)));
            json.apply(done, arena).expect("room");
        });
    }
}

/// Names that are kept once make a text many times as long as the document.
#[test]
fn pieces_of_a_document_are_alike() {
    let mut arena = arena();
    let name = "a name of thirty-two characters.";
    let rows = format!("{{\"{name}\":1}},").repeat(60_000);
    let bytes = darter_document::parse(format!("[{rows}0]").as_bytes()).expect("JSON");
    let mut json = Json::new(&bytes, &mut arena).expect("room");
    let frozen = ModuleValue::frozen(&json).expect("written in pieces");
    let longest = (0..frozen.pieces()).map(|number| {
        let mut piece = Vec::new();
        write_piece(&*frozen, number, &arena, &mut piece);
        piece.len()
    });
    let longest = longest.max().expect("a piece");
    assert!(longest < 128 << 10, "{longest} bytes");
    while !ModuleValue::free_step(&mut json, &mut arena, 1000) {}
}

#[test]
fn a_document_has_pieces_only_while_it_is_large() {
    let mut arena = arena();
    let small = darter_document::parse(b"{\"a\":1}").expect("JSON");
    let mut json = Json::new(&small, &mut arena).expect("room");
    assert!(ModuleValue::fold(&json, &arena).is_some());
    let large = darter_document::parse(format!("[{}0]", "1000000,".repeat(5000)).as_bytes()).expect("JSON");
    json.replace(&large, &mut arena).expect("room");
    assert!(ModuleValue::fold(&json, &arena).is_none());
    json.replace(&small, &mut arena).expect("room");
    while !ModuleValue::sweep(&mut json, &mut arena, 1) {}
    assert_eq!(ModuleValue::memory_bytes(&json), arena.used_bytes());
    assert!(ModuleValue::fold(&json, &arena).is_some());
    json.replace(&large, &mut arena).expect("room");
    let path = darter_document::JsonPath::parse(b"$[1:]").expect("a path");
    let (done, removed) = darter_document::remove(json.doc(&arena), &path.trace(json.doc(&arena)));
    assert_eq!(removed, 5000);
    json.apply(done, &mut arena).expect("room");
    assert!(ModuleValue::fold(&json, &arena).is_some(), "one item is left");
    assert_eq!(ModuleValue::memory_bytes(&json), arena.used_bytes());
    assert!(ModuleValue::free_step(&mut json, &mut arena, 1));
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn filters_are_written_as_they_were() {
    let mut arena = arena();
    let mut bloom = Bloom::new(50_000, 0.01, Scaling::By(2)).expect("valid");
    for n in 0..70_000_u32 {
        let hash = bloom.hash(&n.to_le_bytes());
        bloom.add(&mut arena, hash).expect("room");
    }
    check("Bloom filter", bloom, &mut arena, |bloom, arena| {
        let hash = bloom.hash(b"another");
        bloom.add(arena, hash).expect("room");
    });
    let settings = CuckooSettings { bucket_size: 2, iterations_max: 20, expansion: 1 };
    let mut cuckoo = Cuckoo::new(100_000, settings).expect("small");
    (0..90_000_u32).for_each(|n| cuckoo.add(&mut arena, hash(&n.to_le_bytes())).expect("room"));
    check("cuckoo filter", cuckoo, &mut arena, |cuckoo, arena| {
        assert_eq!(cuckoo.remove(arena, hash(&5_u32.to_le_bytes())), Ok(true));
    });
}

#[test]
fn sketches_and_series_are_written_as_they_were() {
    let mut arena = arena();
    let mut cms = Cms::new(50_000, 5).expect("small");
    for n in 0..5_000_u32 {
        cms.add(&mut arena, &n.to_le_bytes(), 3).expect("room");
    }
    check("count-min sketch", cms, &mut arena, |cms, arena| {
        cms.add(arena, b"another", 5).expect("room");
    });
    let mut list = TopK::new(100, 5_000, 5, 0.9).expect("small");
    for n in 0..20_000_u32 {
        list.add(&mut arena, &(n % 500).to_le_bytes(), 1).expect("room");
    }
    check("top-k list", list, &mut arena, |list, arena| {
        list.add(arena, b"another", 1000).expect("room");
    });
    let mut series = Series::new(SeriesSettings::default());
    for n in 0..20_000 {
        series
            .add(&mut arena, Sample::new(n * 10, (n * 7 % 100) as f64), DuplicatePolicy::Block)
            .expect("newer");
    }
    check("series", series, &mut arena, |series, arena| {
        series.add(arena, Sample::new(55, 1.0), DuplicatePolicy::Last).expect("room");
        series.add(arena, Sample::new(1 << 40, 1.0), DuplicatePolicy::Last).expect("room");
    });
}
