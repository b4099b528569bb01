use darter_store::change::JournalReaders;

use crate::testing::Bed;

fn members(reply: &str) -> Vec<String> {
    let mut members: Vec<String> = reply.split('|').skip(2).step_by(2).map(str::to_owned).collect();
    members.sort();
    members
}

#[test]
fn members_are_added_found_and_removed() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("sadd s 3 1 2 1"), ":3");
    assert_eq!(bed.run("sadd s 1"), ":0");
    assert_eq!(bed.events(), ["new s", "sadd s"]);
    assert_eq!(bed.run("smembers s"), "*3|$1|1|$1|2|$1|3");
    assert_eq!(bed.run("object encoding s"), "$6|intset");
    assert_eq!(bed.run("sadd s x 007"), ":2");
    assert_eq!(bed.run("object encoding s"), "$8|listpack");
    assert_eq!(bed.run("scard s"), ":5");
    assert_eq!(bed.run("sismember s 7"), ":0");
    assert_eq!(bed.run("smismember s 007 1 y"), "*3|:1|:1|:0");
    assert_eq!(bed.run("smismember none 1 2"), "*2|:0|:0");
    bed.resp3 = true;
    assert!(bed.run("smembers s").starts_with("~5|$1|1|$1|2|$1|3|"));
    bed.events();
    assert_eq!(bed.run("srem s nope"), ":0");
    assert_eq!(bed.run("srem s 1 2 3 x 007 1"), ":5");
    assert_eq!(bed.events(), ["srem s", "del s"]);
    assert_eq!(bed.run("smembers s"), "~0");
    bed.run("set str 1");
    for line in ["sadd str 1", "srem str 1", "smembers str", "spop str", "srandmember str", "sinter none str"]
    {
        assert!(bed.run(line).starts_with("-WRONGTYPE"), "{line}");
    }
}

#[test]
fn encodings_follow_the_thresholds() {
    let mut bed = Bed::new();
    for n in 0..513 {
        bed.run(&format!("sadd ints {n}"));
    }
    assert_eq!(bed.run("object encoding ints"), "$9|hashtable");
    bed.run("srem ints 5");
    assert_eq!(bed.run("object encoding ints"), "$6|intset");
    bed.run("sadd mixed 1 2 text");
    bed.run("srem mixed text");
    assert_eq!(bed.run("object encoding mixed"), "$8|listpack", "it was no set of integers");
    bed.run("srem mixed 1 2");
    bed.run("sadd mixed 1");
    assert_eq!(bed.run("object encoding mixed"), "$6|intset");
    bed.run(&format!("sadd long {}", "x".repeat(65)));
    assert_eq!(bed.run("object encoding long"), "$9|hashtable");
}

#[test]
fn a_member_moves() {
    let mut bed = Bed::new();
    bed.run("sadd a 1 x");
    bed.run("sadd b 2 x");
    bed.run("set str 1");
    bed.events();
    assert_eq!(bed.run("smove a b 1"), ":1");
    let mut events = bed.events();
    events.sort();
    assert_eq!(events, ["sadd b", "srem a"]);
    assert_eq!(bed.run("smove a b nope"), ":0");
    assert_eq!(bed.run("smove a a x"), ":1");
    assert_eq!(bed.run("smove none str x"), ":0");
    assert!(bed.run("smove a str x").starts_with("-WRONGTYPE"));
    assert!(bed.run("smove a str nope").starts_with("-WRONGTYPE"));
    assert!(bed.run("smove str a x").starts_with("-WRONGTYPE"));
    assert_eq!(bed.run("smove a b x"), ":1");
    let mut events = bed.events();
    events.sort();
    assert_eq!(events, ["del a", "srem a"]);
    assert_eq!(members(&bed.run("smembers b")), ["1", "2", "x"]);
}

#[test]
fn algebra_over_integers_and_texts() {
    let mut bed = Bed::new();
    bed.run("sadd a 1 2 3 x y");
    bed.run("sadd b 2 3 4 y z");
    bed.run("sadd c 3 y");
    assert_eq!(members(&bed.run("sinter a b")), ["2", "3", "y"]);
    assert_eq!(members(&bed.run("sinter a b c")), ["3", "y"]);
    assert_eq!(members(&bed.run("sunion a b none")), ["1", "2", "3", "4", "x", "y", "z"]);
    assert_eq!(members(&bed.run("sunion a a")), ["1", "2", "3", "x", "y"]);
    assert_eq!(members(&bed.run("sdiff a b")), ["1", "x"]);
    assert_eq!(members(&bed.run("sdiff a none c")), ["1", "2", "x"]);
    assert_eq!(bed.run("sdiff none a"), "*0");
    assert_eq!(bed.run("sinter a none"), "*0");
    assert_eq!(bed.run("sintercard 2 a b"), ":3");
    assert_eq!(bed.run("sintercard 2 a b limit 2"), ":2");
    assert_eq!(bed.run("sunioncard 2 a b approx"), ":7");
    assert_eq!(bed.run("sdiffcard 2 a b limit 1"), ":1");
    assert_eq!(bed.run("sintercard 0 a"), "-ERR numkeys should be greater than 0");
    assert_eq!(bed.run("sintercard 3 a b"), "-ERR Number of keys can't be greater than number of args");
    assert_eq!(bed.run("sintercard 1 a limit -1"), "-ERR LIMIT can't be negative");
    assert_eq!(bed.run("sintercard 1 a bogus"), "-ERR syntax error");
    bed.resp3 = true;
    assert_eq!(bed.run("sinter a c"), "~2|$1|3|$1|y");
}

#[test]
fn results_are_stored_over_anything_and_an_empty_one_deletes() {
    let mut bed = Bed::new();
    bed.run("sadd a 1 2 x");
    bed.run("sadd b 2 x");
    bed.run("set dest old");
    bed.events();
    assert_eq!(bed.run("sinterstore dest a b"), ":2");
    assert_eq!(bed.events(), ["sinterstore dest"]);
    assert_eq!(members(&bed.run("smembers dest")), ["2", "x"]);
    assert_eq!(bed.run("sunionstore a a b"), ":3");
    assert_eq!(bed.run("sdiffstore dest a a"), ":0");
    let mut events = bed.events();
    events.sort();
    assert_eq!(events, ["del dest", "sunionstore a"]);
    assert_eq!(bed.run("sdiffstore dest none"), ":0");
    assert_eq!(bed.events(), ["keymiss none"]);
    bed.run("set str 1");
    assert!(bed.run("sunionstore dest a str").starts_with("-WRONGTYPE"));
    assert_eq!(bed.run("sunionstore str a"), ":3");
}

#[test]
fn random_members_have_the_bounds_of_redis() {
    let mut bed = Bed::new();
    bed.run("sadd s 1 2 3 x y");
    assert_eq!(bed.run("srandmember none"), "$-1");
    assert_eq!(bed.run("srandmember none 5"), "*0");
    assert_eq!(bed.run("srandmember s 0"), "*0");
    assert_eq!(members(&bed.run("srandmember s 100")), ["1", "2", "3", "x", "y"]);
    assert!(bed.run("srandmember s -8").starts_with("*8|"));
    for _ in 0..30 {
        let mut three = members(&bed.run("srandmember s 3"));
        three.dedup();
        assert_eq!(three.len(), 3);
    }
    assert_eq!(bed.run("srandmember s x"), "-ERR value is not an integer or out of range");
    assert!(bed.run("srandmember s -9223372036854775808").starts_with("-ERR value is out of range"));
    assert_eq!(bed.run("srandmember s -1000000000"), "-ERR value is out of range");
    assert_eq!(bed.run("srandmember s 1 2"), "-ERR syntax error");
}

#[test]
fn popping_takes_out_what_it_shows() {
    let mut bed = Bed::new();
    bed.run("sadd s 1 2 3 x y");
    bed.events();
    assert_eq!(bed.run("spop s 0"), "*0");
    assert_eq!(bed.run("spop s -1"), "-ERR value is out of range, must be positive");
    assert_eq!(bed.run("spop s 1 2"), "-ERR syntax error");
    assert_eq!(bed.events(), [""; 0]);
    let popped = bed.run("spop s");
    let member = popped.split('|').nth(1).expect("a member").to_owned();
    assert_eq!(bed.run(&format!("sismember s {member}")), ":0");
    let two = members(&bed.run("spop s 2"));
    assert_eq!((two.len(), bed.run("scard s").as_str()), (2, ":2"));
    bed.resp3 = true;
    assert!(bed.run("spop s 9").starts_with("~2|"));
    assert_eq!(bed.events(), ["spop s", "spop s", "spop s", "del s"]);
    assert_eq!(bed.run("spop s"), "_");
    assert_eq!(bed.run("spop s 3"), "~0");
    bed.run("sadd one x");
    bed.events();
    assert_eq!(bed.run("spop one"), "$1|x");
    assert_eq!(bed.events(), ["spop one", "del one"]);
}

#[test]
fn a_scan_shows_both_sorts_of_members() {
    let mut bed = Bed::new();
    for n in 0..1000 {
        bed.run(&format!("sadd s {n} text{n}"));
    }
    let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
    loop {
        let reply = bed.run(&format!("sscan s {cursor} count 30"));
        let mut words = reply.split('|').skip(2);
        cursor = words.next().expect("a cursor").to_owned();
        seen.extend(words.skip(2).step_by(2).map(str::to_owned));
        if cursor == "0" {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2000);
    assert_eq!(bed.run("sscan s 0 novalues"), "-ERR NOVALUES option can only be used in HSCAN");
    assert_eq!(bed.run("sscan s 0 match 77? count 10000").matches("|77").count(), 10);
}

#[test]
fn members_expire_alone_integers_too() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("saddex s 10 1 x"), ":2");
    assert_eq!(bed.run("sadd s 2 y"), ":2");
    assert_eq!(bed.run("saddex s 20 2 x"), ":0");
    assert_eq!(bed.run("saddex s keepttl 99 x"), ":0");
    assert_eq!(bed.run("fieldttl s x"), ":20");
    assert_eq!(bed.run("fieldttl s 2"), ":20");
    assert_eq!(bed.run("fieldttl s y"), ":-1");
    assert_eq!(bed.run("fieldexpire s 30 y nope"), "*2|:1|:-2");
    bed.events();
    bed.now_ms += 10_000;
    assert_eq!(members(&bed.run("smembers s")), ["2", "x", "y"]);
    assert_eq!(bed.events(), ["sexpired s"]);
    bed.now_ms += 10_000;
    assert_eq!(bed.run("sinter s s"), "*1|$1|y");
    assert_eq!(bed.run("sismember s 2"), ":0");
    bed.now_ms += 10_000;
    bed.events();
    assert_eq!(bed.run("scard s"), ":0");
    assert_eq!(bed.events(), ["sexpired s", "del s"]);
    // more expired members than one command removes
    for n in 0..5000 {
        bed.run(&format!("saddex big 10 text{n}"));
    }
    bed.now_ms += 10_000;
    assert_eq!(bed.run("spop big"), "$-1");
    assert_eq!(bed.run("srandmember big"), "$-1");
    assert_eq!(bed.run("saddex s 0 a"), "-ERR value is not an integer or out of range");
    assert_eq!(bed.run("saddex s keepttl 5"), "-ERR wrong number of arguments for 'saddex' command");
}

#[test]
fn batches_that_are_asked_for_ahead_miss_no_member() {
    for len in [31, 32, 33, 63, 64, 65, 400] {
        let mut bed = Bed::new();
        let members: Vec<String> = (0..len).map(|n| format!("member:{n} {n}")).collect();
        let members = members.join(" ");
        assert_eq!(bed.run(&format!("sadd s {members}")), format!(":{}", 2 * len));
        assert_eq!(bed.run(&format!("sadd s {members} new")), ":1");
        let found = vec![":1"; 2 * len].join("|");
        assert_eq!(bed.run(&format!("smismember s {members} none")), format!("*{}|{found}|:0", 2 * len + 1));
        assert_eq!(bed.run(&format!("srem s {members} none")), format!(":{}", 2 * len));
        assert_eq!(bed.run("smembers s"), "*1|$3|new");
    }
}

#[test]
fn the_journal_gets_the_members_that_chance_has_chosen() {
    let mut bed = Bed::new();
    bed.journal_for(JournalReaders::Files);
    bed.run("SADD s 1 2 3 a");
    assert!(bed.said().is_empty());
    let popped = bed.run("SPOP s").split('|').next_back().unwrap_or_default().to_owned();
    assert_eq!(bed.said(), [format!("Old: srem s {popped}")]);
    let popped = bed.run("SPOP s 2").replace('|', " ");
    let popped: Vec<&str> = popped.split(' ').skip(2).step_by(2).collect();
    assert_eq!(bed.said(), [format!("Old: srem s {}", popped.join(" "))]);
    bed.run("SPOP s 9");
    assert_eq!(bed.said(), ["Removed s"]);
    bed.run("SPOP s");
    bed.run("SPOP s 3");
    assert!(bed.said().is_empty());
    bed.run("SADD s x");
    bed.run("SPOP s");
    assert_eq!(bed.said(), ["Removed s"]);
}
