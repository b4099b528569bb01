use darter_base::hash::KeyHasher;

use super::*;
use crate::record::Expiry;
use crate::{Key, Keyed, Shard, rdb};

const NOW: u64 = 1_700_000_000_000;
const TEXT: &str = r#"{"a":[1,2.5,"x"],"b":{"a":null}}"#;

fn place<'a>(shard: &'a mut Shard, name: &'a str) -> Keyed<'a> {
    let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
    Keyed::find(shard, 0, key, NOW)
}

fn put(shard: &mut Shard, name: &str, text: &str) {
    let bytes = darter_document::parse(text.as_bytes()).expect("JSON");
    let mut place = place(shard, name);
    let json = Json::new(&bytes, place.arena_mut()).expect("room");
    place.put_object(json.wrap(), Expiry::None).expect("room");
}

fn text_at(shard: &mut Shard, name: &str) -> Option<String> {
    let place = place(shard, name);
    let view = place.view::<Json>().expect("a document")?;
    let mut out = Vec::new();
    darter_document::print::print(view.root.doc(view.arena).root(), &mut out);
    Some(String::from_utf8(out).expect("UTF-8"))
}

fn shard() -> Shard {
    Shard::new(1, 1, KeyHasher::new(5)).expect("address space")
}

#[test]
fn a_document_is_put_changed_renamed_copied_and_removed() {
    let mut shard = shard();
    put(&mut shard, "j", TEXT);
    assert_eq!(shard.objects.len(), 0);
    assert_eq!(place(&mut shard, "j").kind(), Some(Type::Json));
    assert_eq!(text_at(&mut shard, "j").as_deref(), Some(TEXT));
    let longer = darter_document::parse(format!("[{TEXT},{TEXT},{TEXT}]").as_bytes()).expect("JSON");
    let done = place(&mut shard, "j").edit(|json: &mut Json, arena, _| json.replace(&longer, arena));
    done.expect("a document").expect("there").result.expect("room");
    let copy = place(&mut shard, "j").copy().expect("there");
    place(&mut shard, "k").put_copy(&copy).expect("room");
    assert_eq!(text_at(&mut shard, "k"), text_at(&mut shard, "j"));
    assert!(place(&mut shard, "k").set_deadline(Some(NOW + 5)).expect("room"));
    assert!(place(&mut shard, "k").memory_bytes().expect("there") > 60);
    place(&mut shard, "j").put_text(b"x", Expiry::None).expect("room");
    assert!(place(&mut shard, "j").view::<Json>().is_err());
    assert!(place(&mut shard, "k").remove() && place(&mut shard, "j").remove());
    assert_eq!((shard.objects.len(), shard.arena.used_bytes()), (0, 0));
}

#[test]
fn a_dumped_value_is_what_the_module_writes() {
    let mut shard = shard();
    put(&mut shard, "j", "[1]");
    let (object, arena) = (place(&mut shard, "j"), &mut Vec::new());
    let (object, from) = object.object().expect("there");
    assert_eq!(rdb::type_of(object), TYPE_MODULE);
    rdb::write_object(object, from, arena);
    let mut wanted = vec![0x81];
    wanted.extend_from_slice(&number_of(b"ReJSON-RL", 3).to_be_bytes());
    wanted.extend_from_slice(&[5, 3, b'[', b'1', b']', 0]);
    assert_eq!(*arena, wanted);
}

#[test]
fn damaged_values_leave_nothing_behind() {
    let mut arena = Arena::new().expect("address space");
    let whole = |version: u16, rest: &[u8]| {
        let mut bytes = Vec::new();
        write_length(&mut bytes, number_of(b"ReJSON-RL", version));
        bytes.extend_from_slice(rest);
        bytes
    };
    for bad in [
        whole(3, &[5, 1, b'[', 0]),
        whole(3, &[5, 2, b'[', b']', 1, 0]),
        whole(3, &[5, 2, b'[', b']']),
        whole(3, &[2, 2, 0]),
        whole(0, &[5, 2, b'[', b']', 0]),
        whole(0, &[2, 64, 2, 1, 0]),
        whole(4, &[5, 2, 0x82, 1, 0]),
        whole(1, &[5, 2, b'[', b']', 0]),
        whole(1023, &[2, 0, 5, 2, b'[', b']', 0]),
        vec![0x81, 1, 2, 3, 4, 5, 6, 7, 8, 0],
    ] {
        let read = rdb::read_object(TYPE_MODULE, &mut RdbSource::new(&bad), &mut arena, KeyHasher::new(1));
        assert!(read.is_err(), "{bad:?}");
    }
    assert_eq!(arena.used_bytes(), 0);
    let good = whole(2, &[5, 2, b'[', b']', 2, 1, 5, 1, b'a', 5, 1, b'b', 0]);
    let read = rdb::read_object(TYPE_MODULE, &mut RdbSource::new(&good), &mut arena, KeyHasher::new(1));
    read.expect("a value").clear(&mut arena);
    assert_eq!(arena.used_bytes(), 0);
}

#[test]
fn tidying_moves_documents_and_keeps_them() {
    let mut shard = shard();
    let names: Vec<String> = (0..2000).map(|n| format!("j{n}")).collect();
    names.iter().for_each(|name| put(&mut shard, name, &format!("[\"{}\"]", name.repeat(30))));
    for name in names.iter().skip(1).step_by(2) {
        place(&mut shard, name).remove();
    }
    while shard.squeeze(64) {}
    for name in names.iter().step_by(2) {
        assert_eq!(text_at(&mut shard, name), Some(format!("[\"{}\"]", name.repeat(30))));
    }
    names.iter().step_by(2).for_each(|name| _ = place(&mut shard, name).remove());
    assert_eq!(shard.arena.used_bytes(), 0);
}

#[test]
fn documents_of_other_versions_are_read() {
    let mut arena = Arena::new().expect("address space");
    for (version, fields, text) in [
        // array (2): object (1): member "a": integer 7; boolean
        (
            0,
            &[2, 0x40, 64, 2, 2, 2, 32, 2, 1, 2, 0x40, 128, 5, 1, b'a', 2, 8, 2, 7, 2, 16, 5, 1, b'1', 0][..],
            "[{\"a\":7},true]",
        ),
        (4, &[5, 4, 0x82, 1, 0x61, b'x', 0], "[1,\"x\"]"),
    ] {
        let mut bytes = Vec::new();
        write_length(&mut bytes, number_of(b"ReJSON-RL", version));
        bytes.extend_from_slice(fields);
        let read = rdb::read_object(TYPE_MODULE, &mut RdbSource::new(&bytes), &mut arena, KeyHasher::new(1));
        let mut object = read.expect("a document");
        let mut out = Vec::new();
        let json = Json::of(&object).expect("a document");
        darter_document::print::print(json.doc(&arena).root(), &mut out);
        assert_eq!(String::from_utf8(out).expect("UTF-8"), text);
        object.clear(&mut arena);
    }
    assert_eq!(arena.used_bytes(), 0);
}
