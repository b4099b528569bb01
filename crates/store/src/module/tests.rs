use darter_base::hash::KeyHasher;

use super::*;
use crate::record::Expiry;
use crate::{Collection, Key, Keyed, Shard, rdb};

const NOW: u64 = 1_700_000_000_000;
const TEXT: &str = r#"{"a":[1,2.5,"x"],"b":{"a":null}}"#;

fn place<'a>(shard: &'a mut Shard, name: &'a str) -> Keyed<'a> {
    let key = Key { bytes: name.as_bytes(), hash: shard.hasher.hash(name.as_bytes()) };
    Keyed::find(shard, 0, key, NOW)
}

fn put(shard: &mut Shard, name: &str, text: &str) {
    let mut place = place(shard, name);
    let bytes = darter_document::parse_for(text.as_bytes(), place.arena_mut()).expect("JSON");
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

/// Names that most documents have are kept once in a shard, and go with the last document.
#[test]
fn documents_share_the_names_of_their_shard() {
    let mut shard = shard();
    let text = |n: usize| {
        format!("{{\"a long name\":{n},\"another one\":{{\"a third name\":[{n}]}},\"own {n}\":1}}")
    };
    let key = |n: usize| format!("key {n}");
    put(&mut shard, "other", "1");
    place(&mut shard, "other").remove();
    place(&mut shard, "text").put_text(b"x", Expiry::None).expect("room");
    (0..200).for_each(|n| put(&mut shard, &key(n), &text(n)));
    (0..200).for_each(|n| assert!(place(&mut shard, &key(n)).remove()));
    let before = shard.memory_bytes();
    for is_flushed in [false, true] {
        (0..200).for_each(|n| put(&mut shard, &key(n), &text(n)));
        let bytes = |shard: &mut Shard, n: usize| place(shard, &key(n)).memory_bytes().expect("there");
        // The first one was put before the names had numbers.
        let alone = bytes(&mut shard, 0);
        put(&mut shard, &key(0), &text(0));
        assert!(bytes(&mut shard, 0) + 25 <= alone, "{} of {alone}", bytes(&mut shard, 0));
        let lexicon = shard.arena.lexicon().expect("words");
        let others = shard.arena.occupied_bytes()
            + shard.arena.page_record_bytes()
            + shard.index_bytes()
            + shard.objects.bytes();
        assert_eq!((lexicon.len(), shard.memory_bytes()), (3, others + lexicon.bytes()));
        for n in 0..200 {
            assert_eq!(text_at(&mut shard, &key(n)), Some(text(n)));
        }
        match is_flushed {
            false => (0..200).for_each(|n| assert!(place(&mut shard, &key(n)).remove())),
            true => _ = shard.flush_db(0),
        }
        assert!(shard.arena.lexicon().is_none() && shard.memory_bytes() <= before);
    }
}

/// What leaves a shard has the names in full: each of these ways puts a document into a shard that lacks the words.
#[test]
fn documents_have_their_names_in_every_shard() {
    let (mut shard, mut other) = (shard(), Shard::new(1, 2, KeyHasher::new(5)).expect("address space"));
    let text = |n: usize| format!("{{\"a long name\":{n},\"another one\":{{\"a third name\":[{n}]}}}}");
    for n in 0..100 {
        let (name, to) = (format!("key {n}"), format!("renamed {n}"));
        put(&mut shard, &name, &text(n));
        let copy = place(&mut shard, &name).copy().expect("there");
        place(&mut other, &name).put_copy(&copy).expect("room");
        let hash_of = |name: &str| shard.hasher.hash(name.as_bytes());
        let from = Key { hash: hash_of(&name), bytes: name.as_bytes() };
        let to_key = Key { hash: hash_of(&to), bytes: to.as_bytes() };
        assert!(shard.rename((0, from), (0, to_key), NOW).expect("room"));
        assert_eq!(text_at(&mut shard, &to), Some(text(n)));
    }
    assert!(shard.arena.lexicon().is_some_and(|lexicon| lexicon.len() == 3));
    shard.flush_db(0);
    (0..100).for_each(|n| assert_eq!(text_at(&mut other, &format!("key {n}")), Some(text(n))));
}

/// A document with words that grows above a block has its names itself, whichever way it grows.
#[test]
fn large_documents_have_no_words() {
    let mut shard = shard();
    let text = |n: usize| format!("{{\"a long name\":{n},\"another one\":{{\"a third name\":[{n}]}}}}");
    (0..20).for_each(|n| put(&mut shard, &format!("key {n}"), &text(n)));
    let long = format!("[{}0]", "\"an item\",".repeat(500));
    let wanted = text(19).replace("[19]", &long);
    let path = darter_document::JsonPath::parse(b"$.*.*").expect("a path");
    let done = place(&mut shard, "key 19").edit(|json: &mut Json, arena, _| {
        let doc = json.doc(arena);
        let mut node = Vec::new();
        darter_document::parse_into(long.as_bytes(), doc.names, &mut node).expect("JSON");
        let done = darter_document::rewrite(doc, &path.trace(doc), |_, slot| {
            slot.replace(&node);
            Ok::<_, ()>(darter_document::DocChange::Keep)
        });
        json.apply(done.expect("no fault"), arena)
    });
    done.expect("a document").expect("there").result.expect("room");
    assert_eq!(text_at(&mut shard, "key 19"), Some(wanted));
    // One that was read in pieces is put into a document with words.
    let done = place(&mut shard, "key 18").edit(|json: &mut Json, arena, _| {
        let bytes = darter_document::parse(long.as_bytes()).expect("JSON");
        let mut value = Json::new(&bytes, arena).expect("room");
        let mut own = Vec::new();
        let (doc, node) = (json.doc_in_pieces(arena, &mut own), value.doc(arena));
        let done = darter_document::rewrite(doc, &path.trace(doc), |_, slot| {
            slot.replace(node.root().bytes());
            Ok::<_, ()>(darter_document::DocChange::Keep)
        });
        json.apply(done.expect("no fault"), arena).expect("room");
        json.adopt(&mut value, arena);
    });
    done.expect("a document").expect("there");
    assert_eq!(text_at(&mut shard, "key 18"), Some(text(18).replace("[18]", &long)));
    (0..20).for_each(|n| assert!(place(&mut shard, &format!("key {n}")).remove()));
    while !shard.free_some(100) {}
    assert!(shard.arena.lexicon().is_none() && shard.arena.used_bytes() == 0);
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
