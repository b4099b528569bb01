use crate::testing::Bed;

/// The events since the last call, without misses.
fn events(bed: &mut Bed) -> Vec<String> {
    bed.events().into_iter().filter(|event| !event.starts_with("keymiss")).collect()
}

/// A bed with a document at each of these keys.
fn with(documents: &[(&str, &str)]) -> Bed {
    let mut bed = Bed::new();
    for (key, text) in documents {
        assert_eq!(bed.run(&format!("json.set {key} $ {text}")), "+OK");
    }
    events(&mut bed);
    bed
}

const STORE: &str = r#"{"a":["foo"],"nested1":{"a":["hello",null,"world"]},"nested2":{"a":31}}"#;

#[test]
fn a_value_is_set_and_read_by_both_kinds_of_paths() {
    let mut bed = with(&[("d", r#"{"a":1,"b":{"a":2.5}}"#)]);
    assert_eq!(bed.run("type d"), "+ReJSON-RL");
    assert_eq!(bed.run("object encoding d"), "$3|raw");
    assert_eq!(bed.run("json.get d"), r#"$21|{"a":1,"b":{"a":2.5}}"#);
    assert_eq!(bed.run("json.get d $"), r#"$23|[{"a":1,"b":{"a":2.5}}]"#);
    assert_eq!(bed.run("json.get d $..a"), "$7|[1,2.5]");
    assert_eq!(bed.run("json.get d ..a"), "$1|1");
    assert_eq!(bed.run("json.get d b.a"), "$3|2.5");
    assert_eq!(bed.run("json.get d $.x"), "$2|[]");
    assert_eq!(bed.run("json.get d .x"), "-ERR Path does not exist");
    assert_eq!(bed.run("json.get d .a .b"), r#"$23|{".a":1,".b":{"a":2.5}}"#);
    assert_eq!(bed.run("json.get d $.a .b"), r#"$28|{"$.a":[1],".b":[{"a":2.5}]}"#);
    assert_eq!(bed.run("json.get d .a .x"), "-ERR Path does not exist");
    assert_eq!(bed.run("json.get none"), "$-1");
    assert_eq!(bed.run("json.get d indent _ newline ; space ~ $.b"), "$20|[;_{;__\"a\":~2.5;_};]");
    assert_eq!(bed.run("json.get d format expand"), "-ERR FORMAT argument is not supported on RESP2");
    assert!(
        bed.run("json.get d $[").starts_with("-Error occurred on position 2, \"$[ ---->>>> \", expected")
    );
    assert_eq!(events(&mut bed), Vec::<String>::new());
}

#[test]
fn set_creates_what_its_path_names_and_nothing_else() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("json.set d $.a 1"), "-ERR new objects must be created at the root");
    assert_eq!(bed.run("json.set d $ 1 xx"), "$-1");
    assert_eq!(bed.run("json.set d $.a 1 xx"), "$-1");
    assert_eq!(bed.run("json.set d . {\"a\":1} nx"), "+OK");
    assert_eq!(events(&mut bed), ["new d", "json.set d"]);
    assert_eq!(bed.run("json.set d $ 2 nx"), "$-1");
    assert_eq!(bed.run("json.set d $.b [] nx"), "+OK");
    assert_eq!(bed.run("json.set d $.b 2 nx"), "$-1");
    assert_eq!(bed.run("json.set d $.c 2 xx"), "$-1");
    assert_eq!(bed.run("json.set d $.x.y 2"), "$-1");
    assert_eq!(bed.run("json.set d $.a.y 2"), "$-1");
    assert_eq!(bed.run("json.set d $.b[3] 2"), "-ERR array index out of range");
    assert_eq!(bed.run("json.set d $.*.z 2"), "-Err wrong static path");
    assert_eq!(bed.run("json.set d $.a {"), "-EOF while parsing an object at line 1 column 1");
    assert_eq!(bed.run("json.set d $.a 1 zz"), "-ERR syntax error");
    assert_eq!(bed.run("json.set d $.a 1 nx xx"), "-ERR syntax error");
    events(&mut bed);
    assert_eq!(bed.run("json.set d $.* 7"), "+OK");
    assert_eq!(bed.run("json.get d"), r#"$13|{"a":7,"b":7}"#);
    assert_eq!(events(&mut bed), ["json.set d"]);
    bed.run("set s x");
    for line in
        ["json.set s $ 1", "json.get s", "json.del s", "json.type s", "json.arrlen s", "json.numincrby s $ 1"]
    {
        assert_eq!(bed.run(line), "-Existing key has wrong Redis type", "{line}");
    }
}

#[test]
fn a_new_document_keeps_the_deadline_of_the_old_one() {
    let mut bed = with(&[("d", "[1]")]);
    bed.run("expire d 100");
    bed.run("json.set d $ [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]");
    assert_eq!(bed.run("ttl d"), ":100");
    bed.run("json.arrappend d $ 1 2 3");
    assert_eq!(bed.run("ttl d"), ":100");
}

#[test]
fn several_keys_are_set_together_or_not_at_all() {
    let mut bed = with(&[("a", r#"{"x":1}"#)]);
    assert_eq!(bed.run("json.mset a $.x 2 b $ [] c . 3"), "+OK");
    assert_eq!(bed.run("json.mget a b c none $"), r#"*4|$9|[{"x":2}]|$4|[[]]|$3|[3]|$-1"#);
    assert_eq!(bed.run("json.mget a b x"), "*2|$1|2|$-1");
    let mut events = events(&mut bed);
    events.sort();
    assert_eq!(events, ["json.mset a", "json.mset b", "json.mset c", "new b", "new c"]);
    for (line, error) in [
        ("json.mset a $.x 3 d $.y 1", "-ERR new objects must be created at the root"),
        ("json.mset a $.x 3 b $ {", "-EOF while parsing an object at line 1 column 1"),
        ("json.mset a $.x 3 b", "-ERR wrong number of arguments for 'json.mset' command"),
    ] {
        assert_eq!(bed.run(line), error);
    }
    assert_eq!(bed.run("json.get a $.x"), "$3|[2]");
    bed.run("set s x");
    assert_eq!(bed.run("json.mset a $.x 3 s $ 1"), "-Existing key has wrong Redis type");
    assert_eq!(bed.run("json.mget a s $.x"), "*2|$3|[2]|$-1");
    assert_eq!(bed.run("json.mset a $.y 3 a $.x.z 1"), "$-1");
    assert_eq!(bed.run("json.get a"), r#"$13|{"x":2,"y":3}"#);
}

#[test]
fn deleting_counts_outermost_values_and_removes_empty_documents() {
    let mut bed = with(&[("d", r#"{"a":{"a":2,"b":3},"b":["a","b"],"n":{"b":[true]}}"#)]);
    assert_eq!(bed.run("json.del d $..a"), ":1");
    assert_eq!(bed.run("json.get d"), r#"$32|{"b":["a","b"],"n":{"b":[true]}}"#);
    assert_eq!(bed.run("json.forget d $.b[*]"), ":2");
    assert_eq!(bed.run("json.del d $.x"), ":0");
    assert_eq!(events(&mut bed), ["json.del d", "json.del d"]);
    assert_eq!(bed.run("json.del d $.*"), ":2");
    assert_eq!(bed.run("exists d"), ":0");
    assert_eq!(bed.run("json.del d"), ":0");
    bed.run("json.set d $ 5");
    assert_eq!(bed.run("json.del d"), ":1");
    assert_eq!(bed.run("exists d"), ":0");
}

#[test]
fn numbers_are_counted_and_multiplied() {
    let mut bed = with(&[("d", r#"{"a":"b","b":[{"a":2},{"a":5.0},{"a":"c"}]}"#)]);
    assert_eq!(bed.run("json.numincrby d $..a 2"), "$17|[null,4,7.0,null]");
    assert_eq!(bed.run("json.numincrby d $..a 2.5"), "$19|[null,6.5,9.5,null]");
    assert_eq!(bed.run("json.nummultby d $.b[1].a 2"), "$6|[19.0]");
    assert_eq!(bed.run("json.numincrby d .b[0].a 3"), "$3|9.5");
    assert_eq!(bed.run("json.numpowby d .b[0].a 2"), "$5|90.25");
    assert_eq!(bed.run("json.numincrby d .x 3"), "-ERR Path does not exist or does not contains a number");
    assert_eq!(
        bed.run("json.numincrby none $ 3"),
        "-ERR could not perform this operation on a key that doesn't exist"
    );
    assert_eq!(bed.run("json.numincrby d $.b x"), "-expected value at line 1 column 1");
    assert_eq!(bed.run("json.numincrby d $.b \"x\""), "-ERR result is not a number");
    bed.run("json.set d $ [9223372036854775807,1e308]");
    assert_eq!(bed.run("json.numincrby d $[0] 1"), "-ERR numeric overflow");
    assert_eq!(bed.run("json.nummultby d $[1] 10"), "-ERR result is not a number");
    assert_eq!(bed.run("json.get d"), "$27|[9223372036854775807,1e308]");
    events(&mut bed);
    bed.resp3 = true;
    assert_eq!(bed.run("json.numincrby d $[0] -7"), "*1|:9223372036854775800");
    assert_eq!(bed.run("json.numincrby d .[0] 0.5"), "*1|,9223372036854776000");
    assert_eq!(bed.run("json.numincrby d $.x 1"), "*0");
    assert_eq!(events(&mut bed), ["json.numincrby d", "json.numincrby d"]);
}

#[test]
fn texts_and_booleans_are_changed_in_place() {
    let mut bed = with(&[("d", r#"{"a":"foo","n":{"a":"hello"},"m":{"a":31},"t":true}"#)]);
    assert_eq!(bed.run("json.strappend d $..a \"bar\""), "*3|:6|:8|$-1");
    assert_eq!(bed.run("json.strlen d $..a"), "*3|:6|:8|$-1");
    assert_eq!(bed.run("json.strappend d ..a \"z\""), ":9");
    assert_eq!(bed.run("json.strlen d .a"), ":7");
    assert_eq!(bed.run("json.strlen d .m.a"), "-WRONGTYPE wrong type of path value - expected string");
    assert_eq!(bed.run("json.strappend d $.a 5"), "-WRONGTYPE wrong type of path value - expected string");
    assert_eq!(bed.run("json.strappend d \"x\""), "-ERR Path does not exist or not a string");
    assert_eq!(bed.run("json.strlen none"), "$-1");
    assert_eq!(
        bed.run("json.strlen none $"),
        "-ERR could not perform this operation on a key that doesn't exist"
    );
    assert_eq!(bed.run("json.toggle d $.*"), "*4|$-1|$-1|$-1|:0");
    assert_eq!(bed.run("json.toggle d .t"), "$4|true");
    assert_eq!(bed.run("json.toggle d .a"), "-ERR Path does not exist or not a bool");
    assert_eq!(events(&mut bed), ["json.strappend d", "json.strappend d", "json.toggle d", "json.toggle d"]);
    bed.run("json.set s $ \"a\"");
    assert_eq!(bed.run("json.strappend s \"bc\""), ":3");
}

#[test]
fn arrays_grow_and_shrink_at_every_place() {
    let mut bed = with(&[("d", STORE)]);
    assert_eq!(bed.run("json.arrappend d $..a 1 {\"x\":2}"), "*3|:3|:5|$-1");
    assert_eq!(bed.run("json.arrappend d ..a 0"), ":6");
    assert_eq!(bed.run("json.arrappend d .nested2 0"), "-ERR Path does not exist or not an array");
    assert_eq!(bed.run("json.arrinsert d $..a 1 \"n\""), "*3|:5|:7|$-1");
    assert_eq!(bed.run("json.arrinsert d $.a 9 1"), "-ERR index out of bounds");
    assert_eq!(bed.run("json.arrinsert d $.a x 1"), "-ERR value is not an integer or out of range");
    assert_eq!(bed.run("json.arrlen d $..a"), "*3|:5|:7|$-1");
    assert_eq!(bed.run("json.arrlen d .a"), ":5");
    assert_eq!(bed.run("json.arrlen d .x"), "-ERR Path does not exist");
    assert_eq!(bed.run("json.arrlen d .nested2"), "-ERR Path does not exist or not an array");
    assert_eq!(
        bed.run("json.arrpop d $..a 3"),
        "*3|$7|{\"x\":2}|$4|null".replace("$4|null", "$7|\"world\"") + "|$-1"
    );
    assert_eq!(bed.run("json.arrpop d .a"), "$1|0");
    assert_eq!(bed.run("json.arrtrim d $..a 1 -1"), "*3|:2|:5|$-1");
    assert_eq!(bed.run("json.arrtrim d .nested1.a 9 1"), ":0");
    assert_eq!(bed.run("json.arrpop d $.nested1.a"), "*1|$-1");
    assert_eq!(bed.run("json.arrpop d .x"), "-ERR Path does not exist or not an array");
    assert_eq!(bed.run("json.get d"), r#"$51|{"a":["n",1],"nested1":{"a":[]},"nested2":{"a":31}}"#);
    bed.resp3 = true;
    bed.run("json.set r $ [1,[2],\"x\"]");
    assert_eq!(bed.run("json.arrpop r format expand $"), "*1|$1|x");
    assert_eq!(bed.run("json.arrpop r format expand $"), "*1|*1|:2");
    assert_eq!(bed.run("json.arrpop r format strings $"), "*1|$1|1");
    assert_eq!(bed.run("json.arrpop r format string $"), "-ERR wrong reply format");
    assert_eq!(
        bed.run("json.arrpop r format expand ."),
        "-Legacy paths are supported only with FORMAT STRINGS"
    );
}

#[test]
fn an_item_is_found_between_two_places() {
    let mut bed = with(&[("d", r#"{"n":[0,1,3.0,3,2,1,0,3],"s":"3","e":[],"o":[{"b":1,"a":2},[1]]}"#)]);
    assert_eq!(bed.run("json.arrindex d $.* 3"), "*4|:3|$-1|:-1|:-1");
    assert_eq!(bed.run("json.arrindex d $.n 3.0"), "*1|:2");
    assert_eq!(bed.run("json.arrindex d .n 3 4 7"), ":-1");
    assert_eq!(bed.run("json.arrindex d .n 3 -1"), ":7");
    assert_eq!(bed.run("json.arrindex d .n 3 4 0"), ":7");
    assert_eq!(bed.run("json.arrindex d .n 3 0 -5"), ":-1");
    assert_eq!(bed.run("json.arrindex d .o {\"a\":2,\"b\":1}"), ":0");
    assert_eq!(bed.run("json.arrindex d .o [1]"), ":1");
    assert_eq!(bed.run("json.arrindex d .s 3"), "-WRONGTYPE wrong type of path value - expected array");
    assert_eq!(bed.run("json.arrindex d .x 3"), "-ERR Path does not exist");
    assert_eq!(bed.run("json.arrindex none $ 3"), "-ERR Path does not exist");
}

#[test]
fn objects_are_listed_and_measured() {
    let mut bed = with(&[("d", r#"{"x":{"a":{"foo":10,"bar":20}},"a":["foo"],"z":{"a":{"baz":50}}}"#)]);
    assert_eq!(bed.run("json.objkeys d $..a"), "*3|$-1|*2|$3|foo|$3|bar|*1|$3|baz");
    assert_eq!(bed.run("json.objkeys d .*.a"), "*2|$3|foo|$3|bar");
    assert_eq!(bed.run("json.objkeys d .a"), "-ERR Path does not exist or not an object");
    assert_eq!(bed.run("json.objkeys d .q"), "$-1");
    assert_eq!(bed.run("json.objkeys none"), "$-1");
    assert_eq!(bed.run("json.objlen d $..a"), "*3|$-1|:2|:1");
    assert_eq!(bed.run("json.objlen d"), ":3");
    assert_eq!(bed.run("json.objlen d .a"), "-WRONGTYPE wrong type of path value - expected object");
    assert_eq!(bed.run("json.objlen d .q"), "$-1");
    assert_eq!(bed.run("json.objlen none $"), "-ERR Path does not exist or not an object");
    assert_eq!(bed.run("json.clear d $..a"), ":3");
    assert_eq!(bed.run("json.clear d $..a"), ":0");
    assert_eq!(bed.run("json.clear d"), ":1");
    assert_eq!(bed.run("json.get d"), "$2|{}");
    assert_eq!(events(&mut bed), ["json.clear d", "json.clear d"]);
    assert_eq!(
        bed.run("json.clear none"),
        "-ERR could not perform this operation on a key that doesn't exist"
    );
    assert_eq!(bed.run("json.clear d . x"), "-ERR wrong number of arguments for 'json.clear' command");
}

#[test]
fn types_are_told_in_both_protocols() {
    let mut bed = with(&[("d", r#"[{},[],"s",42,1.2,false,null,18446744073709551615]"#)]);
    let kinds = "$6|object|$5|array|$6|string|$7|integer|$6|number|$7|boolean|$4|null|$7|integer";
    assert_eq!(bed.run("json.type d $[*]"), format!("*8|{kinds}"));
    assert_eq!(bed.run("json.type d"), "$5|array");
    assert_eq!(bed.run("json.type d .x"), "$-1");
    assert_eq!(bed.run("json.type none"), "$-1");
    bed.resp3 = true;
    assert_eq!(bed.run("json.type d $[*]"), format!("*1|*8|{kinds}"));
    assert_eq!(bed.run("json.type d"), "*1|$5|array");
    assert_eq!(bed.run("json.type none $"), "*1|_");
    assert_eq!(
        bed.run("json.get d format expand $[*]"),
        "*1|*8|%0|*0|$1|s|:42|,1.2|#f|_|,18446744073709552000"
    );
    assert_eq!(bed.run("json.get d format expand1 $[0,2] $[1]"), "*2|*2|$2|{}|$3|\"s\"|*1|$2|[]");
    assert_eq!(bed.run("json.get d format json"), "-ERR wrong reply format");
    assert_eq!(bed.run("json.get d $[3]"), "$4|[42]");
}

#[test]
fn resp_shows_a_document_as_arrays() {
    let mut bed = with(&[("d", r#"{"a":[1,-19.5,"x",true,null],"b":{}}"#)]);
    assert_eq!(bed.run("json.resp d"), "*5|+{|$1|a|*6|+[|:1|$5|-19.5|$1|x|+true|$-1|$1|b|*1|+{");
    assert_eq!(bed.run("json.resp d $.b"), "*1|*1|+{");
    assert_eq!(bed.run("json.resp d .a[0]"), ":1");
    assert_eq!(bed.run("json.resp d .x"), "-ERR Path does not exist");
    assert_eq!(bed.run("json.resp none"), "$-1");
}

#[test]
fn merging_changes_deletes_and_adds() {
    let mut bed = with(&[("d", r#"{"p":{"name":"John","x":[1]}}"#)]);
    assert_eq!(bed.run(r#"json.merge d $.p {"name":null,"age":5}"#), "+OK");
    assert_eq!(bed.run("json.get d"), r#"$23|{"p":{"x":[1],"age":5}}"#);
    assert_eq!(bed.run(r#"json.merge d $.p.x [2]"#), "+OK");
    assert_eq!(bed.run(r#"json.merge d $.q {"a":null,"b":1}"#), "+OK");
    assert_eq!(bed.run("json.merge d $.u.v 1"), "$-1");
    assert_eq!(bed.run("json.merge none $.a 1"), "-ERR new objects must be created at the root");
    assert_eq!(bed.run("json.merge new $ {\"a\":1}"), "+OK");
    assert_eq!(bed.run("json.get d $.p.x"), "$5|[[2]]");
    let mut events = events(&mut bed);
    events.sort();
    assert_eq!(events, ["json.merge d", "json.merge d", "json.merge d", "json.merge new", "new new"]);
}

#[test]
fn a_document_never_has_more_levels_than_can_be_read() {
    let deep = "[".repeat(100) + &"]".repeat(100);
    let mut bed = with(&[("d", &format!("{{\"a\":{deep}}}"))]);
    let path = format!("$.a{}", "[0]".repeat(98));
    for line in [format!("json.arrappend d {path} {deep}"), format!("json.arrinsert d {path} 0 {deep}")] {
        assert_eq!(bed.run(&line), "-ERR recursion limit exceeded", "{line}");
    }
    // these keep values that would be too deep
    for line in [format!("json.set d {path} {deep}"), format!("json.merge d {path} {deep}")] {
        assert_eq!(bed.run(&line), "$-1", "{line}");
    }
    let deeper = deep.replace("[]", &deep);
    assert!(bed.run(&format!("json.set x $ {deeper}")).starts_with("-recursion limit exceeded at"));
    assert_eq!(bed.run("json.get d"), format!("${}|{{\"a\":{deep}}}", deep.len() + 6));
    assert_eq!(bed.run(&format!("json.arrappend d {path} [1]")), "*1|:2");
}

#[test]
fn a_document_is_dumped_restored_copied_and_moved() {
    let mut bed = with(&[("d", STORE)]);
    let dump = bed.run_words(&[b"dump", b"d"]);
    let start = dump.iter().position(|byte| *byte == b'\n').expect("a bulk string") + 1;
    let payload = &dump[start..dump.len() - 2];
    assert_eq!(bed.run_words(&[b"restore", b"r", b"0", payload]), b"+OK\r\n");
    for (line, key) in [("copy d c", "c"), ("rename c e", "e"), ("object encoding r", "r")] {
        bed.run(line);
        assert_eq!(bed.run(&format!("json.get {key}")), bed.run("json.get d"), "{line}");
    }
    for at in 0..payload.len() {
        let mut bad = payload.to_vec();
        bad[at] ^= 0x20;
        assert!(bed.run_words(&[b"restore", b"bad", b"0", &bad]).starts_with(b"-"), "byte {at}");
    }
    assert!(bed.run("memory usage d").starts_with(':') || bed.run("json.debug memory d").starts_with(':'));
    assert!(bed.run("json.debug memory d $.a").starts_with("*1|:"));
    assert_eq!(bed.run("json.debug memory none"), ":0");
    assert_eq!(bed.run("json.debug x"), "-ERR unknown subcommand - try `JSON.DEBUG HELP`");
    assert!(bed.run("scan 0 type rejson-rl count 100").contains("$1|d"));
}

#[test]
fn floats_are_kept_in_the_precision_that_is_asked_for() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("json.set d $ [0.3,0.1,100.0] fpha fp16"), "+OK");
    assert_eq!(bed.run("json.get d"), "$15|[0.3,0.1,100.0]");
    assert_eq!(bed.run("json.set d $ [1e100] fpha FP16"), "-ERR value out of range");
    assert_eq!(bed.run("json.set d $ [1e100] fpha x"), "-ERR invalid FPHA type");
    assert_eq!(bed.run("json.set d $ [1] fpha"), "-ERR wrong number of arguments for 'json.set' command");
}

#[test]
fn a_large_document_is_changed_piece_by_piece() {
    let rows: Vec<String> = (0..2000).map(|n| format!("{{\"id\":{n},\"price\":1.5}}")).collect();
    let text = format!("{{\"rows\":[{}]}}", rows.join(","));
    let mut bed = with(&[("d", &text), ("small", "{\"a\":[1]}")]);
    let bulk = |text: &str| format!("${}|{text}", text.len());
    assert_eq!(bed.run("json.get d"), bulk(&text));
    assert_eq!(bed.run("json.numincrby d $.rows[1234].id 5"), "$6|[1239]");
    assert_eq!(bed.run("json.get d $.rows[1234]"), bulk("[{\"id\":1239,\"price\":1.5}]"));
    assert_eq!(bed.run("json.arrappend d $.rows 7 [8]"), "*1|:2002");
    assert_eq!(bed.run("json.arrpop d $.rows"), "*1|$3|[8]");
    assert_eq!(bed.run("json.arrinsert d $.rows 0 \"first\""), "*1|:2002");
    assert_eq!(bed.run("json.get d $.rows[0,1,-1]"), bulk("[\"first\",{\"id\":0,\"price\":1.5},7]"));
    assert_eq!(bed.run("json.arrindex d $.rows 7"), "*1|:2001");
    assert_eq!(bed.run("json.del d $.rows[?@.id>1000]"), ":999");
    assert_eq!(bed.run("json.arrlen d $.rows"), "*1|:1003");
    assert_eq!(bed.run("json.merge d $ {\"new\":{\"x\":null,\"y\":1}}"), "+OK");
    assert_eq!(bed.run("json.get d $.new"), bulk("[{\"y\":1}]"));
    assert_eq!(bed.run("json.arrtrim d $.rows 0 0"), "*1|:1");
    assert_eq!(bed.run("json.get d"), bulk("{\"rows\":[\"first\"],\"new\":{\"y\":1}}"));
    assert_eq!(bed.run("json.set small $.a[0] [1,2,3]"), "+OK");
    assert_eq!(bed.run("json.get small"), bulk("{\"a\":[[1,2,3]]}"));
}

#[test]
fn a_value_that_would_be_too_deep_is_refused_in_pieces_too() {
    let text = format!("[{},{}]", "0,".repeat(5000) + "0", "[".repeat(125) + &"]".repeat(125));
    let mut bed = with(&[("d", &text)]);
    let innermost = format!("$[-1]{}", "[0]".repeat(124));
    assert_eq!(bed.run(&format!("json.arrappend d {innermost} []")), "*1|:1");
    let deeper = format!("{innermost}[0]");
    assert_eq!(bed.run(&format!("json.arrappend d {deeper} []")), "-ERR recursion limit exceeded");
    assert_eq!(bed.run(&format!("json.set d {deeper} [[]]")), "$-1");
}

/// Documents whose names are kept once in their shard answer as those that have them themselves.
#[test]
fn documents_with_the_names_of_their_shard_answer_as_others() {
    let text = r#"{"name":"x","address":{"street":"y","number":[1,2.5,{"name":null}]},"own":{"name":7}}"#;
    let (mut alone, mut bed) = (Bed::new(), Bed::new());
    (0..400).for_each(|n| assert_eq!(bed.run(&format!("json.set t{n} $ {text}")), "+OK"));
    let memory = |bed: &mut Bed| bed.run("json.debug memory d $");
    for bed in [&mut alone, &mut bed] {
        assert_eq!(bed.run(&format!("json.set d $ {text}")), "+OK");
    }
    assert_ne!(memory(&mut alone), memory(&mut bed), "the names are not shared");
    for line in [
        "json.get d",
        "json.get d $..name",
        "json.get d .address.street $.own.name",
        "json.get d indent _ newline ; space ~",
        "json.get d $['address','own']",
        "json.get d $..[?(@.name==7)]",
        "json.resp d",
        "json.objkeys d $..*",
        "json.type d $.address.number",
        "json.mget d none $.address",
        "json.set d $.address.name 5",
        "json.set d $.address {\"name\":1,\"new\":{\"street\":2,\"newer\":3}}",
        "json.get d",
        "json.merge d $ {\"own\":null,\"address\":{\"street\":\"z\",\"number\":{\"name\":3}}}",
        "json.get d",
        "json.mset d $.address.street {\"name\":1} e $ {\"name\":2,\"street\":{\"own\":3}}",
        "json.get d",
        "json.get e",
        "dump d",
        "dump e",
        "copy d f",
        "rename f g",
        "json.set g $.list [{\"name\":1}]",
        "json.arrappend g $.list {\"name\":2,\"other\":[]} 4",
        "json.arrinsert g $.list 0 {\"address\":2}",
        "json.arrindex g $.list {\"address\":2}",
        "json.arrpop g $.list",
        "json.numincrby g $..name 2",
        "json.strappend g $.name \"more\"",
        "json.clear g $.address",
        "json.del g $.name",
        "json.get g",
        "json.set e $ {\"name\":1,\"name\":2,\"k\":{\"name\":3}}",
        "json.get e",
        "dump g",
    ] {
        assert_eq!(bed.run(line), alone.run(line), "{line}");
    }
}
