use darter_base::rng::Rng;
use darter_slab::Arena;
use serde_json::{Map, Value, json};

use crate::compare::is_equal;
use crate::dictionary::{alone, share};
use crate::doc::{Doc, Names};
use crate::edit::{EditedNode, OutOfBounds};
use crate::number::{Number, NumberOperation};
use crate::path::{JsonPath, PathQuery, PlainPath};
use crate::print::{PrintStyle, print, print_styled};
use crate::{DocChange, Rewritten, Trace, parse, parse_for, parse_into, remove, rewrite};

fn text_of(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    print(Doc::new(bytes).root(), &mut out);
    String::from_utf8(out).expect("UTF-8")
}

fn doc(value: &Value) -> Vec<u8> {
    parse(value.to_string().as_bytes()).expect("JSON")
}

fn random(rng: &mut Rng, depth: usize) -> Value {
    let kinds = if depth == 0 { 6 } else { 9 };
    match rng.next_u64() % kinds {
        0 => Value::Null,
        1 => Value::Bool(rng.next_u64().is_multiple_of(2)),
        2 => json!((rng.next_u64() >> (rng.next_u64() % 64)) as i64),
        3 => json!(rng.next_u64()),
        4 => match rng.next_u64() % 3 {
            0 => json!((rng.next_u64() % 100_000) as f64 / 100.0),
            1 => json!(-((rng.next_u64() % 1000) as f64)),
            _ => json!(f64::from_bits(rng.next_u64() & !(1 << 62))),
        },
        5 => Value::String(random_text(rng)),
        6 => (0..rng.next_u64() % 5).map(|_| random(rng, depth - 1)).collect(),
        _ => {
            let len = if rng.next_u64().is_multiple_of(8) { 30 } else { rng.next_u64() % 5 };
            let members =
                (0..len).map(|n| (format!("k{}", n * (rng.next_u64() % 3 + 1)), random(rng, depth - 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

fn random_text(rng: &mut Rng) -> String {
    let len = if rng.next_u64().is_multiple_of(10) { 200 } else { rng.next_u64() % 40 };
    (0..len)
        .map(|_| ['a', 'ü', '"', '\\', '\n', '\u{1}', '☃', '\u{7f}', ' '][(rng.next_u64() % 9) as usize])
        .collect()
}

/// Each node of a value as a path and a pointer.
fn places(value: &Value, path: &str, pointer: &str, out: &mut Vec<(String, String)>) {
    out.push((path.to_owned(), pointer.to_owned()));
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| places(item, &format!("{path}[{n}]"), &format!("{pointer}/{n}"), out)),
        Value::Object(members) => members.iter().for_each(|(name, item)| {
            places(item, &format!("{path}['{name}']"), &format!("{pointer}/{name}"), out)
        }),
        _ => {}
    }
}

#[test]
fn random_documents_read_back_as_serde_json_prints_them() {
    let mut rng = Rng::new(7);
    for _ in 0..3000 {
        let value = random(&mut rng, 4);
        let text = value.to_string();
        let bytes = parse(text.as_bytes()).expect("JSON");
        let back = serde_json::from_str::<Value>(&text_of(&bytes)).expect("JSON");
        assert_eq!(
            back.to_string(),
            serde_json::from_str::<Value>(&text).expect("JSON").to_string(),
            "{text}"
        );
        assert_eq!(Doc::new(&bytes).bytes().len(), bytes.len());
    }
}

#[test]
fn a_table_of_names_is_made_wherever_it_saves() {
    let mut rng = Rng::new(13);
    let mut tables = 0;
    for _ in 0..3000 {
        let text = random(&mut rng, 4).to_string();
        let mut whole = vec![0];
        parse_into(text.as_bytes(), Names::default(), &mut whole).expect("JSON");
        let shared = share(Doc::new(&whole));
        tables += usize::from(shared.is_some());
        assert_eq!(parse(text.as_bytes()).expect("JSON"), shared.unwrap_or(whole), "{text}");
    }
    assert!(tables > 100, "{tables}");
}

#[test]
fn a_random_node_is_found_replaced_and_removed_as_in_a_tree() {
    let mut rng = Rng::new(11);
    let mut plains = 0;
    for _ in 0..1500 {
        let value = random(&mut rng, 4);
        let value: Value = serde_json::from_str(&value.to_string()).expect("JSON");
        let (bytes, mut all) = (doc(&value), Vec::new());
        places(&value, "$", "", &mut all);
        let (steps, pointer) = &all[(rng.next_u64() % all.len() as u64) as usize];
        let path = JsonPath::parse(steps.as_bytes()).expect("a path");
        let found = path.find(Doc::new(&bytes));
        if let Some(plain) = PlainPath::of(format!("${}", pointer.replace('/', ".")).as_bytes()) {
            // An index is no name.
            let wanted = if steps.replace("['", "").contains('[') { None } else { Some(found[0]) };
            assert_eq!(plain.find(Doc::new(&bytes)), wanted, "{pointer} in {value}");
            plains += 1;
        }
        let trace = path.trace(Doc::new(&bytes));
        assert_eq!(found, trace.spots(), "{path:?} in {value}");
        assert_eq!(found.len(), 1, "{path:?} in {value}");
        let mut shown = Vec::new();
        print(Doc::new(&bytes).node(found[0]), &mut shown);
        let wanted = value.pointer(pointer).expect("a node");
        assert_eq!(String::from_utf8_lossy(&shown), wanted.to_string());
        let new = random(&mut rng, 2);
        let new: Value = serde_json::from_str(&new.to_string()).expect("JSON");
        let mut node = Vec::new();
        parse_into(new.to_string().as_bytes(), Doc::new(&bytes).names, &mut node).expect("JSON");
        let done = rewrite(Doc::new(&bytes), &trace, |_, slot| {
            slot.replace(&node);
            Ok::<_, ()>(DocChange::Keep)
        });
        let mut expected = value.clone();
        *expected.pointer_mut(pointer).expect("a node") = new;
        assert_eq!(text_of(&applied(&bytes, done.expect("no fault"))), expected.to_string());
        let (removed, count) = remove(Doc::new(&bytes), &trace);
        assert_eq!(count, 1);
        let mut expected = value.clone();
        match pointer.rsplit_once('/') {
            None => assert_eq!(removed, Rewritten::Gone),
            Some((parent, last)) => {
                match expected.pointer_mut(parent) {
                    Some(Value::Array(items)) => _ = items.remove(last.parse().expect("an index")),
                    Some(Value::Object(members)) => _ = members.remove(last),
                    _ => panic!("no container"),
                }
                assert_eq!(text_of(&applied(&bytes, removed)), expected.to_string());
            }
        }
    }
    assert!(plains > 300, "{plains}");
    let bytes = doc(&json!({"a": {"b": 1}}));
    for text in
        ["$", "$.", "$..a", "$.a.", "$.a..b", "$.a[0]", "$.*", "$.a b", "a.b", ".a.b", "$['a']", "$.a + 1"]
    {
        assert!(PlainPath::of(text.as_bytes()).is_none(), "{text}");
    }
    assert_eq!(PlainPath::of(b"$.a.b.c").and_then(|path| path.find(Doc::new(&bytes))), None);
}

fn applied(bytes: &[u8], done: Rewritten) -> Vec<u8> {
    match done {
        Rewritten::Same => bytes.to_vec(),
        Rewritten::Whole(new) => new,
        Rewritten::Gone => Vec::new(),
        Rewritten::Patch { at, bytes: new } => {
            let mut all = bytes.to_vec();
            all[at..at + new.len()].copy_from_slice(&new);
            all
        }
        Rewritten::Pieces { .. } => panic!("one block"),
    }
}

/// The document after a change of the root.
fn changed(bytes: &[u8], change: impl FnOnce(&mut EditedNode<'_, '_>)) -> Vec<u8> {
    let (doc, mut change) = (Doc::new(bytes), Some(change));
    let done = rewrite(doc, &JsonPath::root().trace(doc), |_, slot| {
        if let Some(change) = change.take() {
            change(slot);
        }
        Ok::<_, ()>(DocChange::Keep)
    });
    applied(bytes, done.expect("no fault"))
}

fn found(value: &Value, path: &str) -> String {
    let bytes = doc(value);
    let doc = Doc::new(&bytes);
    let mut out = Vec::new();
    for at in JsonPath::parse(path.as_bytes()).expect("a path").find(doc) {
        print(doc.node(at), &mut out);
        out.push(b' ');
    }
    String::from_utf8(out).expect("UTF-8").trim_end().to_owned()
}

#[test]
fn paths_lead_to_what_the_reference_finds() {
    let store = json!({"store": {"book": [
        {"title": "Sayings", "price": 8.95, "tags": ["a", "b"]},
        {"title": "Sword", "price": 12.99, "isbn": "1"},
        {"title": "Moby", "price": 8.99, "isbn": "2"},
        {"title": "Lord", "price": 22.99},
    ], "bicycle": {"price": 19.95, "a-b": 1, "x y": 2}}, "limit": 10});
    for (path, wanted) in [
        ("$.store.book[0].title", "\"Sayings\""),
        ("$..price", "19.95 8.95 12.99 8.99 22.99"),
        ("$.store..price", "19.95 8.95 12.99 8.99 22.99"),
        ("$.store.book[-1].price", "22.99"),
        ("$.store.book[9].price", ""),
        ("$.store.book[-9].price", "8.95"),
        ("$.store.book[0,2].price", "8.95 8.99"),
        ("$.store.book[1:3].price", "12.99 8.99"),
        ("$.store.book[::2].price", "8.95 8.99"),
        ("$.store.book[:-2].price", "8.95 12.99"),
        ("$.store.book[-2:].price", "8.99 22.99"),
        ("$.store.book[*].isbn", "\"1\" \"2\""),
        ("$.store.book[?(@.price<10)].title", "\"Sayings\" \"Moby\""),
        ("$.store.book[?(@.price<10 && @.isbn)].title", "\"Moby\""),
        ("$.store.book[?(@.price>20||@.isbn=='1')].title", "\"Sword\" \"Lord\""),
        ("$.store.book[?(!@.isbn)].title", "\"Sayings\" \"Lord\""),
        ("$.store.book[?(@.price<$.limit)].title", "\"Sayings\" \"Moby\""),
        ("$.store.book[?(@.title=~'^S.*')].title", "\"Sayings\" \"Sword\""),
        ("$.store.book[?(@.title =~ \"(?i)LORD\")].title", "\"Lord\""),
        ("$.store.book[?@.tags==[\"a\",\"b\"]].title", "\"Sayings\""),
        ("$.store.book[?(@.price!=8.95)].title", "\"Sword\" \"Moby\" \"Lord\""),
        ("$.store.book[?(@['title']==\"Lord\")].price", "22.99"),
        ("$.store.bicycle.a-b", "1"),
        ("$.store.bicycle['x y','a-b']", "2 1"),
        ("$['store']['bicycle'][\"price\"]", "19.95"),
        ("$.store.bicycle[?(@>10)]", "19.95"),
        ("$.limit[?(@>1)]", ""),
        ("$.store.*.price", "19.95"),
        (".store.bicycle.price", "19.95"),
        ("store.bicycle.price", "19.95"),
        ("limit", "10"),
        ("$..book..tags[0]", "\"a\""),
        ("$.store.book..[1]", "{\"isbn\":\"1\",\"price\":12.99,\"title\":\"Sword\"} \"b\""),
    ] {
        assert_eq!(found(&store, path), wanted, "{path}");
    }
    assert_eq!(found(&json!([[1], [2]]), ".[1][0]"), "2");
    assert_eq!(found(&json!([[1], [2]]), "[1][0]"), "2");
    assert_eq!(found(&json!({"a": {"a": 5}}), "$..a"), "{\"a\":5} 5");
}

/// The values of an expression, one after the other.
fn computed(value: &Value, text: &str) -> String {
    let bytes = doc(value);
    let doc = Doc::new(&bytes);
    let PathQuery::Computed(computed) = PathQuery::parse(text.as_bytes()).expect("an expression") else {
        panic!("{text} is a path")
    };
    let shown = |node: &Vec<u8>| crate::DocNode::new(doc.names, node).view_text();
    computed.values(doc).iter().map(shown).collect::<Vec<_>>().join(" ")
}

#[test]
fn expressions_compute_values() {
    let value = json!({"a": 2, "b": 4, "arr": [1, 2, 3], "s": "hi", "nums": [3, 1, 2], "big": 1e308,
        "x": {"k": 1, "l": [{"k": 2}]}, "rows": [{"k": 5, "m": 1}, {"k": 6}], "min": i64::MIN, "none": []});
    for (text, wanted) in [
        ("$.a + 1", "3"),
        ("$.a * $.b - 3", "5"),
        ("$.a + $.b * 2", "10"),
        ("($.a + $.b) * 2", "12"),
        ("($.a + $.b) / 2", "3.0"),
        ("$.b % 3", "1"),
        ("-$.a", "-2"),
        ("- $.a", "-2"),
        ("-$.min", "9.223372036854776e18"),
        ("$.min % -1", ""),
        ("$.a / 0", ""),
        ("$.a % 0", ""),
        ("$.s * 2", ""),
        ("$.missing + 1", ""),
        ("$.big * $.big", ""),
        ("$.arr.length()", "3"),
        ("$.s.length()", "2"),
        ("$.a.length()", ""),
        ("$.arr.length(9)", ""),
        ("$.a.bogus()", ""),
        ("length($.arr)", "3"),
        ("length ( $.arr )", "3"),
        ("$..k.count()", "4"),
        ("$.nope.count()", "0"),
        ("$.nums.min()", "1.0"),
        ("$.nums.max() + 1", "4.0"),
        ("$.nums.sum()", "6.0"),
        ("$.nums.avg()", "2.0"),
        ("$..k.sum()", "14.0"),
        ("$.none.sum()", ""),
        ("$.arr.append([-1, 'x', {'y': true}])", "1 2 3 [-1,\"x\",{\"y\":true}]"),
        ("$.arr.index(1)", "2"),
        ("$.arr.index(-1)", "3"),
        ("$.arr.index(9)", ""),
        ("$.arr.first()", "1"),
        ("$.arr.last()", "3"),
        ("$.rows.first()", "{\"k\":5,\"m\":1}"),
        ("value($.arr)", "[1,2,3]"),
        ("value($..k)", ""),
        ("ceiling(2.1)", "3"),
        ("floor(-2.1)", "-3"),
        ("abs(-5)", "5"),
        ("abs($.min)", ""),
        ("concat($.s, \"!\")", "\"hi!\""),
        ("concat($.s, 1)", ""),
        ("$.x~", "\"k\" \"l\""),
        ("$.x.keys()", "\"k\" \"l\""),
        ("$.rows[*]~", "\"k\" \"m\" \"k\""),
        ("$.rows~", ""),
        ("$.x.keys().count()", "2"),
        ("$.x.keys().index(1)", "\"l\""),
        ("$.arr.append(9)", "1 2 3 9"),
        ("$.arr[*].append(9)", "1 2 3 9"),
        ("$.arr.append($.nums)", "1 2 3 [3,1,2]"),
        ("$.arr.append($.missing)", ""),
        ("$.rows[?(@.k>=6)].append({\"t\":\"X\"})", "{\"k\":6} {\"t\":\"X\"}"),
        ("match($.s, \"h.\")", "true"),
        ("match($.s, \"h\")", "false"),
        ("search($.s, \"h\")", "true"),
    ] {
        assert_eq!(computed(&value, text), wanted, "{text}");
    }
    assert_eq!(computed(&value, "a + 1"), "3");
    assert_eq!(found(&json!({"a+1": 7, "-$x": 8, "a~b": 5}), "$.a+1"), "7");
    assert_eq!(found(&json!({"a+1": 7, "-$x": 8, "a~b": 5}), "-$x"), "8");
    assert_eq!(found(&json!({"a+1": 7, "-$x": 8, "a~b": 5}), "$[\"a~b\"]"), "5");
    assert_eq!(found(&json!({"x": {"x": 1}}), "($..x)"), "{\"x\":1} 1");
    assert!(JsonPath::parse(b"$.a + 1").expect_err("computed").text.contains("only supported by JSON.GET"));
    for wrong in ["$.a +", "$.arr.length(", "($.a", "$.a * * 2", "$.obj.keys()~", "$.a~b", "$.a~~"] {
        assert!(PathQuery::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
    let deep = |n: usize| format!("{}$.a{}", "(".repeat(n), ")".repeat(n));
    assert!(PathQuery::parse(deep(100).as_bytes()).is_ok());
    assert!(PathQuery::parse(deep(5000).as_bytes()).is_err());
    assert!(PathQuery::parse(format!("$.a{}", " + 1".repeat(5000)).as_bytes()).is_err());
    assert!(PathQuery::parse(format!("$.a{}", ".abs()".repeat(5000)).as_bytes()).is_err());
    assert!(PathQuery::parse(format!("{}1{}", "abs(".repeat(5000), ")".repeat(5000)).as_bytes()).is_err());
    assert_eq!(computed(&value, &format!("$.a{}", " + 1".repeat(200))), "202");
}

#[test]
fn conditions_take_operators_and_functions_of_redis_8() {
    let value = json!({"a": [1, 2, 3, 4], "f": [1.0, 2.0, 9.5], "allow": [2, 3], "nested": [[1], [2], [3], []],
        "words": ["ab", "xy", "", "abc"], "rows": [{"n": [3, 1, 2], "v": 2, "t": true, "s": "x", "p": "^x$"},
        {"n": [], "v": 8, "t": false, "s": "y"}], "mixed": [[], "", {}, [1], "x", {"k": 1}, 5]});
    for (path, wanted) in [
        ("$.a[?@ in [2,4]]", "2 4"),
        ("$.a[?@ nin [2,4]]", "1 3"),
        ("$.a[?@ in $.allow]", "2 3"),
        ("$.f[?@ in [1,2]]", "1.0 2.0"),
        ("$.nested[?@ in [[1],[2]]]", "[1] [2]"),
        ("$.nested[?@ subsetof [1,2]]", "[1] [2] []"),
        ("$.nested[?@ anyof [1,2]]", "[1] [2]"),
        ("$.nested[?@ noneof [1,2]]", "[3] []"),
        ("$.words[?@ size 2]", "\"ab\" \"xy\""),
        ("$.words[?@ sizeof 2.9]", "\"ab\" \"xy\""),
        ("$.mixed[?@ empty true]", "[] \"\" {}"),
        ("$.mixed[?@ empty false]", "[1] \"x\" {\"k\":1}"),
        ("$.rows[?@.v * 2 == 4].s", "\"x\""),
        ("$.rows[?(@.v + 1) * 2 == 18].s", "\"y\""),
        ("$.rows[?-@.v == -8].s", "\"y\""),
        ("$.rows[?@.v / 0 == 0].s", ""),
        ("$.rows[?sum(@.n) == 6].s", "\"x\""),
        ("$.rows[?@.n.length() == 0].s", "\"y\""),
        ("$.rows[?first(@.n) == 3 && (@.v < 5)].s", "\"x\""),
        ("$.rows[?match(@.s, \"[xy]\")].v", "2 8"),
        ("$.rows[?!search(@.s, \"x\")].v", "8"),
        ("$.rows[?@.s =~ @.p].v", "2"),
        ("$.rows[?@.t].v", "2 8"),
        ("$.rows[?@.t == true].v", "2"),
        ("$.rows[?count(@.*) > 4].v", "2"),
        ("$.rows[?concat(@.s, 'z') == 'yz'].v", "8"),
        ("$.rows[?(@.v == 2) || (@.v == 8)].v", "2 8"),
        ("$.rows[?((@.v))].v", "2 8"),
        ("$.rows[?keys(@) anyof ['p']].v", "2"),
    ] {
        assert_eq!(found(&value, path), wanted, "{path}");
    }
}

#[test]
fn a_wrong_path_is_refused_with_its_place() {
    for path in [
        "$.",
        "$[",
        "$.a[",
        "$.a[1",
        "$.a['x",
        "$.a[?(",
        "$.a[?(@.x==)]",
        "$..",
        "$.a b",
        "a..",
        "$[1:2:0]",
        "",
    ] {
        assert!(JsonPath::parse(path.as_bytes()).is_err(), "{path}");
    }
    let text = JsonPath::parse(b"$.a[&]").expect_err("wrong").text;
    assert!(
        text.starts_with("Error occurred on position 4, \"$.a[ ---->>>> &]\", expected one of"),
        "{text}"
    );
    assert!(JsonPath::parse("$.a".repeat(70_000).as_bytes()).is_err());
    assert!(JsonPath::parse(format!("$[?{}@.a{}]", "(".repeat(5000), ")".repeat(5000)).as_bytes()).is_err());
    assert!(JsonPath::parse(format!("$[?{}@.a]", "!".repeat(5000)).as_bytes()).is_err());
}

#[test]
fn a_repeated_name_keeps_its_first_place_and_its_last_value() {
    let bytes = parse(br#"{"a":1,"b":2,"a":[3,4],"c":5,"b":{}}"#).expect("JSON");
    assert_eq!(text_of(&bytes), r#"{"a":[3,4],"b":{},"c":5}"#);
    let many: String = (0..100).map(|n| format!("\"k{}\":{n},", n % 60)).collect();
    let bytes = parse(format!("{{{}\"z\":0}}", many).as_bytes()).expect("JSON");
    assert_eq!(Doc::new(&bytes).root().len(), Some(61));
    let k5 = JsonPath::parse(b"$.k5").expect("a path").find(Doc::new(&bytes));
    assert_eq!(Doc::new(&bytes).node(k5[0]).view_text(), "65");
}

impl crate::DocNode<'_> {
    fn view_text(self) -> String {
        let mut out = Vec::new();
        print(self, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }
}

#[test]
fn names_that_repeat_are_kept_once() {
    let rows: Vec<_> = (0..50).map(|n| json!({"identifier": n, "description": "x", "price": 1.5})).collect();
    let value = json!({"rows": rows});
    let (bytes, text) = (doc(&value), value.to_string());
    assert!(bytes.len() * 4 < text.len(), "{} of {}", bytes.len(), text.len());
    assert_eq!(text_of(&bytes), text);
    assert_eq!(found(&value, "$.rows[49].identifier"), "49");
}

#[test]
fn a_deep_text_is_refused_and_the_deepest_allowed_is_printed() {
    let text = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let refused = parse(text(128).as_bytes()).expect_err("too deep").reason;
    assert!(refused.starts_with("recursion limit exceeded at line 1 column 1"), "{refused}");
    assert!(parse("[".repeat(1_000_000).as_bytes()).is_err());
    assert!(parse("{\"a\":".repeat(1_000_000).as_bytes()).is_err());
    let deep = parse(text(127).as_bytes()).expect("JSON");
    assert_eq!(text_of(&deep), text(127));
    assert_eq!(Doc::new(&deep).root().depth(), 127);
    assert_eq!(parse(b"\"\xff\"").expect_err("no UTF-8").reason, "Couldn't parse as UTF-8 string");
    let doc = Doc::new(&deep);
    let path = format!("$.{}", "[0]".repeat(100));
    let trace: Trace = JsonPath::parse(path.as_bytes()).expect("a path").trace(doc);
    assert_eq!((trace.spots().len(), trace.level(0)), (1, 100));
}

#[test]
fn texts_are_refused_as_serde_json_refuses_them() {
    for text in ["", "{", "[1,]", "nul", "01", "\"\\x\"", "{\"a\":}", "1 2", "{1:2}", "\u{0}", "[1e999]"] {
        let expected = serde_json::from_str::<Value>(text).expect_err("wrong").to_string();
        assert_eq!(parse(text.as_bytes()).expect_err("wrong").reason, expected, "{text}");
    }
}

#[test]
fn blanks_are_put_where_they_are_asked_for() {
    let bytes = doc(&json!({"a": [1, {}, []], "b": {"c": "d"}}));
    let mut out = Vec::new();
    let style = PrintStyle { indent: b"  ", newline: b"\n", space: b" " };
    print_styled(Doc::new(&bytes).root(), style, 0, &mut out);
    let wanted = "{\n  \"a\": [\n    1,\n    {},\n    []\n  ],\n  \"b\": {\n    \"c\": \"d\"\n  }\n}";
    assert_eq!(String::from_utf8(out).expect("UTF-8"), wanted);
}

/// The rule of RFC 7396, over a tree.
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
fn merging_follows_the_rfc() {
    let mut rng = Rng::new(3);
    for _ in 0..2000 {
        let (target, patch) = (random(&mut rng, 3), random(&mut rng, 3));
        let bytes = doc(&target);
        let names = Doc::new(&bytes).names;
        let mut node = Vec::new();
        parse_into(patch.to_string().as_bytes(), names, &mut node).expect("JSON");
        let out = changed(&bytes, |slot| slot.merge(&node));
        let mut expected: Value = serde_json::from_str(&target.to_string()).expect("JSON");
        merged(&mut expected, &serde_json::from_str(&patch.to_string()).expect("JSON"));
        let back: Value = serde_json::from_str(&text_of(&out)).expect("JSON");
        assert_eq!(back, expected, "{target} with {patch}");
    }
}

#[test]
fn arrays_are_edited_by_places_from_both_ends() {
    let start = doc(&json!([0, 1, 2, 3]));
    let one = {
        let mut node = Vec::new();
        parse_into(b"\"x\"", Default::default(), &mut node).expect("JSON");
        vec![node]
    };
    let text = |node: crate::DocNode<'_>| node.view_text();
    let all = changed(&start, |slot| {
        assert_eq!(slot.insert(-1, &one), Some(Ok(5)));
        assert_eq!(text(slot.node()), "[0,1,2,\"x\",3]");
        assert_eq!(slot.insert(6, &one), Some(Err(OutOfBounds)));
        assert_eq!(slot.insert(-6, &one), Some(Err(OutOfBounds)));
        assert_eq!(slot.append(&one), Some(6));
        assert_eq!(slot.pop(-100, text).flatten(), Some("0".to_owned()));
        assert_eq!(slot.pop(100, text).flatten(), Some("\"x\"".to_owned()));
    });
    assert_eq!(text_of(&all), "[1,2,\"x\",3]");
    for (first, last, wanted) in [
        (1, 2, "[1,2]"),
        (-1, 3, "[3]"),
        (3, 99, "[3]"),
        (9, 1, "[]"),
        (2, 1, "[]"),
        (0, -2, "[0,1,2]"),
        (-9, -9, "[0]"),
    ] {
        let trimmed = changed(&start, |slot| _ = slot.trim(first, last));
        assert_eq!(text_of(&trimmed), wanted, "{first} {last}");
    }
    let filled = changed(&doc(&json!([])), |slot| {
        assert_eq!(slot.pop(0, text), Some(None));
        assert_eq!(slot.append(&one), Some(1));
    });
    assert_eq!(text_of(&filled), "[\"x\"]");
}

#[test]
fn numbers_stay_integers_while_they_fit() {
    let int = Number::Int;
    assert_eq!(int(2).combine(NumberOperation::Add, int(3)), Ok(int(5)));
    assert_eq!(int(i64::MAX).combine(NumberOperation::Add, int(1)), Err(crate::number::NoResult::Overflow));
    assert_eq!(int(2).combine(NumberOperation::Multiply, Number::Float(2.5)), Ok(Number::Float(5.0)));
    assert!(Number::Float(1e308).combine(NumberOperation::Multiply, int(10)).is_err());
    assert_eq!(int(2).combine(NumberOperation::Power, int(10)), Ok(int(1024)));
}

#[test]
fn values_are_equal_whatever_the_order_of_members() {
    let (a, b) = (
        doc(&json!({"a": [1, 2.5, "x"], "b": null})),
        parse(br#"{"b":null,"a":[1,2.5,"x"]}"#).expect("JSON"),
    );
    assert!(is_equal(Doc::new(&a).root(), Doc::new(&b).root()));
    let c = parse(br#"{"b":null,"a":[1.0,2.5,"x"]}"#).expect("JSON");
    assert!(!is_equal(Doc::new(&a).root(), Doc::new(&c).root()));
}

/// Many documents that refer to the words of one arena, as it gets more of them: each reads as its reference.
#[test]
fn documents_with_the_words_of_an_arena_read_and_change_as_their_references() {
    let mut rng = Rng::new(17);
    let mut arena = Arena::with_reserve(64 << 20).expect("address space");
    let mut all: Vec<(Value, Vec<u8>)> = vec![(Value::Null, vec![0, 0]); 40];
    arena.refer();
    let (mut with_words, mut wide) = (0, 0);
    let pick = |rng: &mut Rng, len: usize| rng.below(len as u64) as usize;
    for round in 0..6000 {
        let number = pick(&mut rng, all.len());
        let (mut value, mut bytes) = all[number].clone();
        let member = |rng: &mut Rng| match rng.below(10) {
            // Words that come later, and often; names that occur once.
            0..=5 => format!("late {}", rng.below(1 + round / 15)),
            6 => format!("once {round}"),
            7 => format!("\"quoted\" {}\n", rng.below(9)),
            _ => format!("k{}", rng.below(9)),
        };
        let kind = rng.below(6);
        if kind <= 1 {
            value = random(&mut rng, 4);
            for _ in 0..rng.below(60) {
                let name = member(&mut rng);
                if let Value::Object(members) = &mut value {
                    members.insert(name, random(&mut rng, 1));
                }
            }
            value = serde_json::from_str(&value.to_string()).expect("JSON");
            bytes = parse_for(value.to_string().as_bytes(), &mut arena).expect("JSON");
        } else {
            let doc = Doc::in_block(&bytes, &arena);
            let mut places_of = Vec::new();
            places(&value, "$", "", &mut places_of);
            let (path, pointer) = &places_of[pick(&mut rng, places_of.len())];
            let trace = JsonPath::parse(path.as_bytes()).expect("a path").trace(doc);
            assert_eq!(trace.spots().len(), 1, "{path} in {value}");
            let mut new = random(&mut rng, 2);
            let name = member(&mut rng);
            if let Value::Object(members) = &mut new {
                members.insert(member(&mut rng), json!([null, {"k1": 1}]));
            }
            let new: Value = serde_json::from_str(&new.to_string()).expect("JSON");
            let mut node = Vec::new();
            parse_into(new.to_string().as_bytes(), doc.names, &mut node).expect("JSON");
            let place = value.pointer_mut(pointer).expect("a node");
            let done = rewrite(doc, &trace, |_, slot| {
                match kind {
                    2 => slot.replace(&node),
                    3 => slot.merge(&node),
                    _ => {
                        _ = slot.node().member(name.as_bytes()).is_none()
                            && slot.add_member(name.as_bytes(), &node)
                    }
                }
                Ok::<_, ()>(DocChange::Keep)
            });
            match kind {
                2 => *place = new,
                3 => merged(place, &new),
                _ => {
                    if let Value::Object(members) = place {
                        members.entry(name).or_insert(new);
                    }
                }
            }
            bytes = applied(&bytes, done.expect("no fault"));
        }
        let doc = Doc::in_block(&bytes, &arena);
        let of = |doc: Doc<'_>| {
            let mut text = Vec::new();
            print(doc.root(), &mut text);
            serde_json::from_slice::<Value>(&text).expect("JSON").to_string()
        };
        assert_eq!(of(doc), value.to_string());
        let alone = alone(doc);
        assert_eq!(of(Doc::new(&alone)), value.to_string());
        assert!(
            is_equal(doc.root(), Doc::new(&alone).root()) && is_equal(Doc::new(&alone).root(), doc.root())
        );
        let (mut printing, mut text) = (crate::Printing::new(doc.root_spot(), 0), Vec::new());
        while !{
            let until = text.len() + 1;
            printing.step(doc, PrintStyle::default(), &mut text, until)
        } {}
        assert_eq!(serde_json::from_slice::<Value>(&text).expect("JSON").to_string(), value.to_string());
        with_words += usize::from(doc.names.are_of_lexicon() && alone.len() > bytes.len());
        wide = wide.max(doc.names.iter().count());
        all[number] = (value, bytes);
    }
    assert!(with_words > 1000 && wide > 200, "{with_words} with words, of {wide}");
    let bytes = arena.lexicon().expect("a document").bytes();
    assert!(bytes > 1000 && bytes < 40_000, "{bytes}");
    // An arena without such blocks has no words either.
    arena.refer_less();
    assert!(arena.lexicon().is_none());
}
