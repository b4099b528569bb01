//! What Dragonfly's own tests of JSON, filters and sketches expect: replies that are the same here, and those that are
//! not, which docs/differences.md names.

use crate::testing::Bed;

/// A command, and its reply: `=` and a text, or the reply as [`Bed::run`] shows it.
type ExpectedReply = (&'static str, &'static str);

fn check(rows: &[ExpectedReply]) {
    let mut bed = Bed::new();
    let mut wrong = Vec::new();
    for &(line, wanted) in rows {
        let wanted = match wanted.strip_prefix('=') {
            Some(text) => format!("${}|{text}", text.len()),
            None => wanted.to_owned(),
        };
        let reply = bed.run(line);
        if reply != wanted {
            wrong.push(format!("{line}\n    wanted {wanted}\n    got    {reply}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn documents_are_read_as_in_dragonfly() {
    check(&[
        (r#"json.set d . {"a":"first","b":{"a":"second"}}"#, "+OK"),
        (r#"json.get d $["a"]"#, r#"=["first"]"#),
        (r#"json.get d $..["a"]"#, r#"=["first","second"]"#),
        (r#"json.get d $.b["a"]"#, r#"=["second"]"#),
        (r#"json.get d ["a"]"#, r#"="first""#),
        (r#"json.get d $.bar"#, "=[]"),
        (r#"json.set d $ ["first",["second"]]"#, "+OK"),
        ("json.get d $..[0]", r#"=["first","second"]"#),
        ("json.get d [0]", r#"="first""#),
        (r#"json.get d $["first"]"#, "=[]"),
        (r#"json.set d $ {"a":{"b":{"c":"first"}},"b":{"b":{"c":"second"}},"c":{"b":{"c":"third"}}}"#, "+OK"),
        (r#"json.get d $["a"]['b']["c"]"#, r#"=["first"]"#),
        (r#"json.get d $..['b']["c"]"#, r#"=["first","second","third"]"#),
        (r#"json.set d $ [1,2.3,"foo",true,null,{},[]]"#, "+OK"),
        ("json.type d $[*]", "*7|$7|integer|$6|number|$6|string|$7|boolean|$4|null|$6|object|$5|array"),
        ("json.type d $[10]", "*0"),
        ("json.type none $[10]", "$-1"),
        (r#"json.set i $ {"sizes":{"8":"t","10":"m","a.b":"dots"}}"#, "+OK"),
        ("json.get i $.sizes.10", r#"=["m"]"#),
        (r#"json.get i $.sizes["8"]"#, r#"=["t"]"#),
        ("json.get i $['sizes']['a.b']", r#"=["dots"]"#),
    ]);
}

#[test]
fn arrays_are_searched_and_trimmed_as_in_dragonfly() {
    check(&[
        ("json.set a . [1,1,1,1,1]", "+OK"),
        ("json.arrindex a $ 1 -55 -55", "*1|:-1"),
        ("json.arrindex a $ 1 -55 -54", "*1|:-1"),
        ("json.arrindex a $ 1 -2", "*1|:3"),
        ("json.arrindex a $ 1 -2 -1", "*1|:3"),
        ("json.arrindex a $ 1 -2 -3", "*1|:-1"),
        ("json.arrindex a $ 1 55 56", "*1|:4"),
        ("json.arrindex a $ 1 55 54", "*1|:4"),
        ("json.arrindex a $ 1 5 4", "*1|:-1"),
        (r#"json.set a $ [[],["a"],["a","b"],["a","b","c"]]"#, "+OK"),
        ("json.arrtrim a $[*] 0 1", "*4|:0|:1|:2|:2"),
        ("json.get a", r#"=[[],["a"],["a","b"],["a","b"]]"#),
        (r#"json.set a $ {"a":[1,2,3,2],"nested":{"a":false}}"#, "+OK"),
        ("json.arrtrim a $..a 1 2", "*2|:2|$-1"),
        ("json.get a", r#"={"a":[2,3],"nested":{"a":false}}"#),
        ("json.set a $ [1,2,3,4,5,6,7]", "+OK"),
        ("json.arrtrim a $ 2 3", "*1|:2"),
        ("json.get a", "=[3,4]"),
        (r#"json.set o $ {"a":{},"b":{"a":1},"c":{"a":1,"b":2}}"#, "+OK"),
        ("json.del o $.c.*", ":2"),
        ("json.get o", r#"={"a":{},"b":{"a":1},"c":{}}"#),
        ("json.objkeys o $.b", "*1|*1|$1|a"),
        ("json.del none $", ":0"),
        (r#"json.set m $ {"a":"b","c":{"d":"e","f":"g"}}"#, "+OK"),
        (r#"json.merge m $ {"a":"z","c":{"f":null}}"#, "+OK"),
        ("json.get m", r#"={"a":"z","c":{"d":"e"}}"#),
    ]);
}

/// Dragonfly sorts members by name, answers the last of several values to a legacy path, reads and replaces strings by
/// JSON commands, counts fields by JSON.DEBUG FIELDS, and counts empty containers in JSON.CLEAR.
#[test]
fn documents_differ_from_dragonfly_as_the_docs_say() {
    check(&[
        (r#"json.set d $ {"b":1,"a":[2,3]}"#, "+OK"),
        ("json.get d", r#"={"b":1,"a":[2,3]}"#),
        ("json.get d .a[*]", "=2"),
        ("json.get d bar", "-ERR Path does not exist"),
        ("json.debug fields d $", "-ERR unknown subcommand - try `JSON.DEBUG HELP`"),
        (r#"json.set c $ [[],[0],[0,1],[0,1,2],1,true,null,"d"]"#, "+OK"),
        ("json.clear c $[*]", ":4"),
        ("json.get c", r#"=[[],[],[],[],0,true,null,"d"]"#),
        ("set s {}", "+OK"),
        ("json.get s", "-Existing key has wrong Redis type"),
        ("json.set s $ 1", "-Existing key has wrong Redis type"),
        ("json.mget d $[", "*1|$-1"),
    ]);
}

#[test]
fn filters_and_sketches_answer_as_in_dragonfly() {
    check(&[
        ("bf.reserve b 0.01 10", "+OK"),
        ("bf.add b x", ":1"),
        ("bf.add b x", ":0"),
        ("bf.mexists b x y", "*2|:1|:0"),
        ("bf.reserve b 0.01 10", "-ERR item exists"),
        ("cf.reserve c 1000", "+OK"),
        ("cf.addnx c foo", ":1"),
        ("cf.addnx c foo", ":0"),
        ("cf.add c foo", ":1"),
        ("cf.count c foo", ":2"),
        ("cf.del c foo", ":1"),
        ("cf.count c foo", ":1"),
        ("cf.del c none", ":0"),
        ("cms.initbydim m 100 5", "+OK"),
        ("cms.incrby m foo 5 bar 3", "*2|:5|:3"),
        ("cms.query m foo none", "*2|:5|:0"),
        ("cms.info m", "*6|+width|:100|+depth|:5|+count|:8"),
        ("topk.reserve t 2 8 7 0.9", "+OK"),
        ("topk.incrby t a 5 b 3", "*2|$-1|$-1"),
        ("topk.query t a none", "*2|:1|:0"),
        ("topk.count t a", "*1|:5"),
        ("topk.list t withcount", "*4|$1|a|:5|$1|b|:3"),
    ]);
}

/// Errors are those of the modules, where Dragonfly has its own; so are the limits of sizes.
#[test]
fn filters_and_sketches_differ_from_dragonfly_as_the_docs_say() {
    check(&[
        ("cms.initbydim m 100 5", "+OK"),
        ("cms.initbydim m 100 5", "-CMS: key already exists"),
        ("cms.initbydim n 0 5", "-CMS: invalid width"),
        ("cms.incrby m foo 0", "*1|:0"),
        ("cms.initbyprob p 0.000001 0.01", "+OK"),
        ("topk.add none x", "-TopK: key does not exist"),
        ("bf.info none", "-ERR not found"),
        ("bf.reserve b 0.01 10", "+OK"),
        ("bf.info b items", "*1|:0"),
        ("bf.info b bogus", "-Invalid information value"),
    ]);
}
