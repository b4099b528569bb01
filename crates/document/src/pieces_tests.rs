//! Documents in pieces against trees of serde_json, and the blocks that they hold.

use darter_base::rng::Rng;
use darter_slab::{Arena, Handle, Past};
use serde_json::{Value, json};

use crate::edit::EditedNode;
use crate::print::{PrintStyle, print, print_styled};
use crate::stage::{Doomed, cut};
use crate::{Doc, DocChange, JsonPath, Printing, Rewritten, parse, parse_into, remove, rewrite};

/// A document in pieces.
struct Stored {
    first: Vec<u8>,
    held: usize,
    arena: Arena,
}

impl Stored {
    fn new(value: &Value) -> Stored {
        let whole = parse(value.to_string().as_bytes()).expect("JSON");
        let (stage, mut first) = cut(Doc::new(&whole));
        let mut arena = Arena::with_reserve(64 << 20).expect("address space");
        let stored = stage.store(&mut first, &mut arena, &mut Doomed::default());
        Stored { first, held: stored.expect("room").0, arena }
    }

    fn doc(&self) -> Doc<'_> {
        Doc::in_pieces(&self.first, &self.arena)
    }

    fn text(&self) -> String {
        let mut out = Vec::new();
        print(self.doc().root(), &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    fn value(&self) -> Value {
        serde_json::from_str(&self.text()).expect("JSON")
    }

    fn apply(&mut self, done: Rewritten) {
        let Rewritten::Pieces { first, stage } = done else { return };
        let mut doomed = Doomed::default();
        self.first = first;
        let (made, freed) = stage.store(&mut self.first, &mut self.arena, &mut doomed).expect("room");
        let mut freed = freed;
        while !doomed.is_empty() {
            freed += doomed.free_step(&mut self.arena, 10);
        }
        self.held = self.held + made - freed;
        assert_eq!(self.held, self.arena.used_bytes(), "no block is lost");
    }

    fn change(&mut self, path: &str, mut change: impl FnMut(&mut EditedNode<'_, '_>)) {
        let path = JsonPath::parse(path.as_bytes()).expect("a path");
        let done = rewrite(self.doc(), &path.trace(self.doc()), |_, slot| {
            change(slot);
            Ok::<_, ()>(DocChange::Keep)
        });
        self.apply(done.expect("no fault"));
    }

    fn node(&self, value: &Value) -> Vec<u8> {
        let mut node = Vec::new();
        parse_into(value.to_string().as_bytes(), self.doc().names, &mut node).expect("JSON");
        node
    }

    fn free(mut self) {
        let mut doomed = Doomed::default();
        doomed.add_node(self.doc().root().bytes());
        while !doomed.is_empty() {
            doomed.free_step(&mut self.arena, 3);
        }
        assert_eq!(self.arena.used_bytes(), 0);
    }
}

fn row(rng: &mut Rng, n: u64) -> Value {
    let len = [3, 40, 400, 3000][(rng.next_u64() % 4) as usize];
    match rng.next_u64() % 4 {
        0 => json!(n),
        1 => json!("x".repeat(len)),
        2 => json!({"id": n, "name": format!("item {n}"), "tags": vec![n; len / 10]}),
        _ => json!(
            (0..len as u64 / 20).map(|k| (format!("k{k}"), json!(k * n))).collect::<serde_json::Map<_, _>>()
        ),
    }
}

fn large(rng: &mut Rng) -> Value {
    let rows: Vec<Value> = (0..100 + rng.next_u64() % 400).map(|n| row(rng, n)).collect();
    let members: serde_json::Map<_, _> = (0..300u64).map(|n| (format!("m{n}"), row(rng, n))).collect();
    json!({"rows": rows, "members": members, "small": [1, 2, 3]})
}

#[test]
fn a_large_document_reads_as_one_of_one_block() {
    let mut rng = Rng::new(5);
    for _ in 0..10 {
        let value: Value = serde_json::from_str(&large(&mut rng).to_string()).expect("JSON");
        let stored = Stored::new(&value);
        assert_eq!(stored.text(), value.to_string());
        assert_eq!(stored.held, stored.arena.used_bytes());
        for style in [PrintStyle::default(), PrintStyle { indent: b" ", newline: b"\n", space: b" " }] {
            let (mut text, mut all) = (Vec::new(), Vec::new());
            let mut printing = Printing::new(stored.doc().root_spot(), 0);
            loop {
                let mut part = Vec::new();
                let is_done = printing.step(stored.doc(), style, &mut part, 100);
                text.append(&mut part);
                if is_done {
                    break;
                }
            }
            print_styled(stored.doc().root(), style, 0, &mut all);
            assert!(text == all);
        }
        let whole = parse(value.to_string().as_bytes()).expect("JSON");
        let whole = Doc::new(&whole);
        assert!(crate::compare::is_equal(stored.doc().root(), whole.root()));
        assert_eq!(stored.doc().root().depth(), whole.root().depth());
        for path in [
            "$..id",
            "$.rows[-1]",
            "$.rows[50]",
            "$.rows[10:200:7]",
            "$.members.m299",
            "$..*",
            "$.rows[?@.id>90].name",
        ] {
            let path = JsonPath::parse(path.as_bytes()).expect("a path");
            let shown = |doc: Doc<'_>| {
                let mut out = Vec::new();
                for spot in path.find(doc) {
                    print(doc.node(spot), &mut out);
                }
                out
            };
            assert!(shown(stored.doc()) == shown(whole), "{path:?}");
        }
        stored.free();
    }
}

#[test]
fn changes_of_pieces_are_those_of_a_tree() {
    let mut rng = Rng::new(17);
    for _ in 0..4 {
        let mut value = large(&mut rng);
        let mut stored = Stored::new(&value);
        for _ in 0..120 {
            step(&mut rng, &mut value, &mut stored);
            let len = value["rows"].as_array().map_or(0, Vec::len);
            assert_eq!(stored.value(), value, "{len} rows");
        }
        stored.free();
    }
}

/// One random change of both.
fn step(rng: &mut Rng, value: &mut Value, stored: &mut Stored) {
    let new = {
        let n = rng.next_u64() % 1000;
        row(rng, n)
    };
    let node = stored.node(&new);
    let len = value["rows"].as_array().map_or(0, Vec::len).max(1) as u64;
    let at = (rng.next_u64() % len) as usize;
    let rows = |value: &mut Value| value["rows"].as_array_mut().map(std::mem::take).unwrap_or_default();
    match rng.next_u64() % 10 {
        0 => {
            stored.change(&format!("$.rows[{at}]"), |slot| slot.replace(&node));
            if let Some(row) = value["rows"].get_mut(at) {
                *row = new;
            }
        }
        1 => {
            let nodes = vec![node; 30];
            stored.change("$.rows", |slot| _ = slot.insert(at as i64, &nodes));
            let mut all = rows(value);
            let at = at.min(all.len());
            all.splice(at..at, vec![new; 30]);
            value["rows"] = json!(all);
        }
        2 => {
            stored.change("$.rows", |slot| _ = slot.append(std::slice::from_ref(&node)));
            let mut all = rows(value);
            all.push(new);
            value["rows"] = json!(all);
        }
        3 => {
            stored.change("$.rows", |slot| _ = slot.pop(at as i64, |_| ()));
            let mut all = rows(value);
            if at < all.len() {
                all.remove(at);
            }
            value["rows"] = json!(all);
        }
        4 => {
            let (first, last) = (len as i64 / 20, -1 - len as i64 / 20);
            stored.change("$.rows", |slot| _ = slot.trim(first, last));
            let all = rows(value);
            let end = (all.len() as i64 + last + 1).max(0) as usize;
            value["rows"] = json!(all.into_iter().take(end).skip(first as usize).collect::<Vec<_>>());
        }
        5 => {
            let name = format!("new{}", rng.next_u64());
            stored.change("$.members", |slot| assert!(slot.add_member(name.as_bytes(), &node)));
            value["members"][&name] = new;
        }
        6 => {
            let patch = json!({"m1": null, (format!("m{at}")): {"id": 7, "deep": [1]}, "m9": new, (format!("n{at}")): {"a": null, "b": 1}});
            let patch_node = stored.node(&patch);
            stored.change("$.members", |slot| slot.merge(&patch_node));
            merged(&mut value["members"], &patch);
        }
        7 => {
            stored.change("$..id", |slot| slot.replace(&[0x41]));
            each_id(value);
        }
        8 => {
            let path = JsonPath::parse(format!("$.rows[{at}:{}]", at + 40).as_bytes()).expect("a path");
            let (done, count) = remove(stored.doc(), &path.trace(stored.doc()));
            stored.apply(done);
            let mut all = rows(value);
            let end = (at + 40).min(all.len());
            let at = at.min(end);
            assert_eq!(all.drain(at..end).count(), count);
            value["rows"] = json!(all);
        }
        _ => {
            stored.change(&format!("$.rows[{at}]"), |slot| _ = slot.clear());
            match value["rows"].get_mut(at) {
                Some(Value::Array(items)) => items.clear(),
                Some(Value::Object(members)) => members.clear(),
                Some(number @ Value::Number(_)) => *number = json!(0),
                _ => {}
            }
        }
    }
}

fn each_id(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(each_id),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                each_id(member);
                if name == "id" {
                    *member = json!(-15);
                }
            }
        }
        _ => {}
    }
}

fn merged(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(members) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            members.remove(name);
        } else {
            merged(members.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

#[test]
fn a_fault_in_the_middle_leaves_everything() {
    let mut rng = Rng::new(23);
    let value = large(&mut rng);
    let stored = Stored::new(&value);
    let path = JsonPath::parse(b"$..id").expect("a path");
    let mut left = 20;
    let done = rewrite(stored.doc(), &path.trace(stored.doc()), |_, slot| {
        left -= 1;
        slot.replace(&[0x41]);
        if left == 0 { Err(()) } else { Ok(DocChange::Keep) }
    });
    assert_eq!(done, Err(()));
    assert_eq!(stored.value(), value);
    stored.free();
}

#[test]
fn a_full_arena_leaves_everything() {
    let value = json!((0..200).map(|n| json!({"id": n, "text": "x".repeat(90)})).collect::<Vec<_>>());
    let mut stored = Stored::new(&value);
    let text = format!("\"{}\"", "y".repeat(70 << 20));
    let mut node = Vec::new();
    parse_into(text.as_bytes(), stored.doc().names, &mut node).expect("JSON");
    let path = JsonPath::parse(b"$[100].text").expect("a path");
    let done = rewrite(stored.doc(), &path.trace(stored.doc()), |_, slot| {
        slot.replace(&node);
        Ok::<_, ()>(DocChange::Keep)
    });
    let Ok(Rewritten::Pieces { mut first, stage }) = done else { panic!("pieces") };
    let full = stage.store(&mut first, &mut stored.arena, &mut Doomed::default());
    assert!(full.is_err());
    assert_eq!(stored.held, stored.arena.used_bytes());
    assert_eq!(stored.value(), value);
    stored.free();
}

#[test]
fn a_write_in_a_large_document_copies_little_and_leaves_the_past() {
    let rows: Vec<Value> =
        (0..60_000).map(|n| json!({"id": n, "name": format!("item {n}"), "price": 1.5})).collect();
    let mut stored = Stored::new(&json!({ "rows": rows }));
    let (before, old_first) = (stored.held, stored.first.clone());
    stored.arena.keep_into(Box::new(Past::new()));
    stored.change("$.rows[31234].price", |slot| slot.replace(&[0x41]));
    assert!(stored.held.abs_diff(before) < 4096);
    let past = stored.arena.end_past().expect("it was kept");
    assert!(past.bytes() < 4096, "{} bytes kept", past.bytes());
    let price = |doc: Doc<'_>| {
        let spot = JsonPath::parse(b"$.rows[31234].price").expect("a path").find(doc)[0];
        let mut out = Vec::new();
        print(doc.node(spot), &mut out);
        String::from_utf8(out).expect("UTF-8")
    };
    assert_eq!(price(stored.doc()), "-15");
    stored.arena.look_back(past);
    assert_eq!(price(Doc::in_pieces(&old_first, &stored.arena)), "1.5");
    stored.arena.end_past();
    assert_eq!(stored.arena.size(Handle::NONE), 0);
    stored.free();
}
