//! Sorted sets: replies, errors and events of the family, over RESP2 and RESP3.

use darter_base::rng::Rng;

use crate::testing::Bed;

fn filled() -> Bed {
    let mut bed = Bed::new();
    assert_eq!(bed.run("ZADD z 1 a 2 b 3 c"), ":3");
    bed.events();
    bed
}

/// The reply as words: lengths and markers left out.
fn words(bed: &mut Bed, line: &str) -> String {
    let reply = bed.run(line);
    reply.split('|').filter(|part| !part.starts_with(['$', '*'])).collect::<Vec<_>>().join(" ")
}

#[test]
fn zadd_obeys_its_conditions() {
    let mut bed = filled();
    assert_eq!(bed.run("ZADD z NX 9 a 9 d"), ":1");
    assert_eq!(bed.run("ZADD z XX CH 8 a 9 e"), ":1");
    assert_eq!(bed.run("ZADD z GT CH 7 a 9 b"), ":1");
    assert_eq!(bed.run("ZADD z LT CH 7 a 9 b"), ":1");
    assert_eq!(words(&mut bed, "ZRANGE z 0 -1 WITHSCORES"), "c 3 a 7 b 9 d 9");
    assert_eq!(bed.run("ZADD z INCR 2.5 a"), "$3|9.5");
    assert_eq!(bed.run("ZADD z NX INCR 2.5 a"), "$-1");
    assert_eq!(bed.run("ZADD z GT INCR -1 a"), "$-1");
    assert_eq!(bed.run("ZADD missing XX 1 a"), ":0");
    assert_eq!(bed.run("ZADD missing XX INCR 1 a"), "$-1");
    assert_eq!(bed.run("EXISTS missing"), ":0");
}

#[test]
fn zadd_checks_all_before_it_adds() {
    let mut bed = filled();
    for (line, error) in [
        ("ZADD z 1", None),
        ("ZADD z 1 a 2", Some("-ERR syntax error")),
        ("ZADD z NX CH", Some("-ERR syntax error")),
        ("ZADD z 5 a x b", Some("-ERR value is not a valid float")),
        ("ZADD z nan a", Some("-ERR value is not a valid float")),
        ("ZADD z NX XX 1 a", Some("-ERR XX and NX options at the same time are not compatible")),
        ("ZADD z GT LT 1 a", Some("-ERR GT, LT, and/or NX options at the same time are not compatible")),
        ("ZADD z NX GT 1 a", Some("-ERR GT, LT, and/or NX options at the same time are not compatible")),
        ("ZADD z INCR 1 a 2 b", Some("-ERR INCR option supports a single increment-element pair")),
    ] {
        if let Some(error) = error {
            assert_eq!(bed.run(line), error, "{line}");
        }
    }
    assert_eq!(words(&mut bed, "ZRANGE z 0 -1 WITHSCORES"), "a 1 b 2 c 3");
    assert_eq!(bed.run("ZADD z inf a"), ":0");
    assert_eq!(bed.run("ZINCRBY z -inf a"), "-ERR resulting score is not a number (NaN)");
    assert_eq!(bed.run("ZSCORE z a"), "$3|inf");
}

#[test]
fn changes_are_reported_once_and_nothing_is_not() {
    let mut bed = filled();
    bed.run("ZADD z 1 a");
    bed.run("ZADD z XX 5 nobody");
    bed.run("ZREM z nobody");
    bed.run("ZREMRANGEBYSCORE z 50 60");
    assert!(bed.events().is_empty());
    bed.run("ZADD z 7 a 8 b");
    bed.run("ZINCRBY z 1 a");
    bed.run("ZREM z a b");
    bed.run("ZPOPMIN z");
    assert_eq!(bed.events(), ["zadd z", "zincr z", "zrem z", "zpopmin z", "del z"]);
    bed.run("ZADD z 1 a 2 b");
    bed.events();
    bed.run("ZREMRANGEBYRANK z 0 0");
    bed.run("ZREMRANGEBYLEX z - +");
    assert_eq!(bed.events(), ["zremrangebyrank z", "zremrangebylex z", "del z"]);
}

#[test]
fn ranges_of_every_kind() {
    let mut bed = filled();
    bed.run("ZADD z 3 d");
    for (line, members) in [
        ("ZRANGE z 0 -1", "a b c d"),
        ("ZRANGE z 1 2 REV", "c b"),
        ("ZREVRANGE z 0 0 WITHSCORES", "d 3"),
        ("ZRANGE z (1 3 BYSCORE", "b c d"),
        ("ZRANGE z 3 (1 BYSCORE REV LIMIT 1 2", "c b"),
        ("ZRANGE z inf 2 BYSCORE REV WITHSCORES LIMIT 0 1", "d 3"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT 1 -1", "b c d"),
        ("ZRANGEBYSCORE z -inf +inf LIMIT -1 5", ""),
        ("ZREVRANGEBYSCORE z 2 1", "b a"),
        ("ZRANGEBYSCORE z 5 1", ""),
        ("ZRANGE z 5 9", ""),
        ("ZRANGE missing 0 -1", ""),
    ] {
        assert_eq!(words(&mut bed, line), members, "{line}");
    }
    bed.run("ZADD lex 0 a 0 b 0 c 0 10 0 9");
    for (line, members) in [
        ("ZRANGE lex - + BYLEX", "10 9 a b c"),
        ("ZRANGE lex (b [9 BYLEX REV", "a 9"),
        ("ZRANGEBYLEX lex [1 (b", "10 9 a"),
        ("ZREVRANGEBYLEX lex + - LIMIT 1 1", "b"),
        ("ZRANGEBYLEX lex + -", ""),
    ] {
        assert_eq!(words(&mut bed, line), members, "{line}");
    }
    assert_eq!(bed.run("ZLEXCOUNT lex [9 [b"), ":3");
    assert_eq!(bed.run("ZCOUNT z (1 3"), ":3");
    assert_eq!(bed.run("ZREMRANGEBYLEX lex - (a"), ":2");
    // Texts that are in order although scores differ are found, in small sets and in large ones.
    assert_eq!(words(&mut bed, "ZRANGE z [b [c BYLEX"), "b c");
    for n in 100..400 {
        bed.run(&format!("ZADD mixed {n} m{n}"));
    }
    assert_eq!(bed.run("ZLEXCOUNT mixed [m150 (m250"), ":100");
    assert_eq!(words(&mut bed, "ZRANGE mixed (m251 [m249 BYLEX REV"), "m250 m249");
}

#[test]
fn range_errors_come_in_the_order_of_redis() {
    let mut bed = filled();
    bed.run("SET s v");
    for (line, error) in [
        (
            "ZRANGE z 0 -1 LIMIT 0 1",
            "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
        (
            "ZRANGE z - + BYLEX WITHSCORES",
            "-ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ),
        ("ZRANGE z x 1", "-ERR value is not an integer or out of range"),
        ("ZRANGE z x 1 BYSCORE", "-ERR min or max is not a float"),
        ("ZRANGE z a [b BYLEX", "-ERR min or max not valid string range item"),
        ("ZRANGE z 0 1 BYLEX BYSCORE", "-ERR syntax error"),
        ("ZREVRANGE z 0 1 REV", "-ERR syntax error"),
        ("ZRANGESTORE d z 0 1 WITHSCORES", "-ERR syntax error"),
        ("ZRANGE s x 1", "-ERR value is not an integer or out of range"),
        ("ZRANGE s 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("ZRANK z a b c", "-ERR wrong number of arguments for 'zrank' command"),
        ("ZINCRBY z NX a", "-ERR syntax error"),
        ("ZRANK z a b", "-ERR syntax error"),
        ("ZSCAN z x", "-ERR invalid cursor"),
        ("ZSCAN z 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
        ("ZSCAN z 0 COUNT 0", "-ERR syntax error"),
        ("ZSCAN missing 0 NONSENSE", "*2|$1|0|*0"),
        ("ZPOPMIN z -1", "-ERR value is out of range, must be positive"),
        ("ZPOPMIN z 1 2", "-ERR syntax error"),
        ("ZMPOP 0 z MIN", "-ERR numkeys should be greater than 0"),
        ("ZMPOP 1 z MIN COUNT 0", "-ERR count should be greater than 0"),
        ("ZMPOP 2 z MIN", "-ERR syntax error"),
        ("ZUNION 0 z", "-ERR at least 1 input key is needed for 'zunion' command"),
        ("ZDIFFSTORE d 0 z", "-ERR at least 1 input key is needed for 'zdiffstore' command"),
        ("ZUNION 2 z", "-ERR syntax error"),
        ("ZUNION 1 z WEIGHTS x", "-ERR weight value is not a float"),
        ("ZINTERCARD 1 z LIMIT -1", "-ERR LIMIT can't be negative"),
        ("ZDIFF 1 z WEIGHTS 1", "-ERR syntax error"),
        ("ZRANDMEMBER z -9223372036854775807 WITHSCORES", "-ERR value is out of range"),
        ("ZRANDMEMBER z -9223372036854775807", "-ERR value is out of range"),
    ] {
        assert_eq!(bed.run(line), error, "{line}");
    }
}

#[test]
fn ranks_count_from_both_ends() {
    let mut bed = filled();
    assert_eq!(bed.run("ZRANK z b"), ":1");
    assert_eq!(bed.run("ZREVRANK z a"), ":2");
    assert_eq!(bed.run("ZRANK z b WITHSCORE"), "*2|:1|$1|2");
    assert_eq!(bed.run("ZRANK z x"), "$-1");
    assert_eq!(bed.run("ZRANK z x WITHSCORE"), "*-1");
    assert_eq!(bed.run("ZRANK missing x WITHSCORE"), "*-1");
}

#[test]
fn resp3_pairs_and_doubles() {
    let mut bed = filled();
    bed.resp3 = true;
    assert_eq!(bed.run("ZSCORE z a"), ",1");
    assert_eq!(bed.run("ZRANGE z 0 0 WITHSCORES"), "*1|*2|$1|a|,1");
    assert_eq!(bed.run("ZUNION 1 z WITHSCORES"), "*3|*2|$1|a|,1|*2|$1|b|,2|*2|$1|c|,3");
    assert_eq!(bed.run("ZPOPMIN z"), "*2|$1|a|,1");
    assert_eq!(bed.run("ZPOPMIN z 1"), "*1|*2|$1|b|,2");
    assert_eq!(bed.run("ZSCAN z 0"), "*2|$1|0|*2|$1|c|$1|3");
    assert_eq!(bed.run("ZMPOP 1 z MAX"), "*2|$1|z|*1|*2|$1|c|,3");
    assert_eq!(bed.run("ZMPOP 1 z MAX"), "_");
}

#[test]
fn pops_in_resp2() {
    let mut bed = filled();
    assert_eq!(bed.run("ZPOPMAX z 2"), "*4|$1|c|$1|3|$1|b|$1|2");
    assert_eq!(bed.run("ZPOPMAX z 0"), "*0");
    assert_eq!(bed.run("BZPOPMIN missing z 0"), "*3|$1|z|$1|a|$1|1");
    assert_eq!(bed.run("ZPOPMIN z"), "*0");
    bed.run("ZADD z 1 a 2 b 3 c 4 d 5 e");
    assert_eq!(bed.run("ZPOPMAX z 2"), "*4|$1|e|$1|5|$1|d|$1|4");
    assert_eq!(bed.run("ZPOPMIN z 1"), "*2|$1|a|$1|1");
    bed.run("ZADD z 1 a");
    assert_eq!(bed.run("ZREMRANGEBYRANK z -1 -1"), ":1");
    assert_eq!(bed.run("BZMPOP 0 2 missing z MAX COUNT 9"), "*2|$1|z|*2|*2|$1|b|$1|2|*2|$1|a|$1|1");
    assert_eq!(bed.run("BZPOPMIN z x"), "-ERR timeout is not a float or out of range");
}

#[test]
fn unions_intersections_and_differences() {
    let mut bed = filled();
    bed.run("ZADD y 10 b 20 c 30 d");
    bed.run("SADD s c d e");
    for (line, members) in [
        ("ZUNION 2 z y WITHSCORES", "a 1 b 12 c 23 d 30"),
        ("ZUNION 2 z s WITHSCORES WEIGHTS 2 5", "a 2 b 4 d 5 e 5 c 11"),
        ("ZINTER 2 z y WITHSCORES AGGREGATE MIN", "b 2 c 3"),
        ("ZINTER 2 z y WITHSCORES AGGREGATE MAX", "b 10 c 20"),
        ("ZUNION 3 z y s WITHSCORES AGGREGATE COUNT", "a 1 e 1 b 2 d 2 c 3"),
        ("ZINTER 3 z y s WITHSCORES", "c 24"),
        ("ZDIFF 2 z s WITHSCORES", "a 1 b 2"),
        ("ZDIFF 2 s z", "d e"),
        ("ZINTER 2 z missing", ""),
        ("ZUNION 2 missing z WITHSCORES WEIGHTS inf 0", "a 0 b 0 c 0"),
    ] {
        assert_eq!(words(&mut bed, line), members, "{line}");
    }
    assert_eq!(bed.run("ZINTERCARD 2 z y"), ":2");
    assert_eq!(bed.run("ZINTERCARD 2 z y LIMIT 1"), ":1");
    bed.events();
    assert_eq!(bed.run("ZUNIONSTORE z 2 z y WEIGHTS 1 0"), ":4");
    assert_eq!(words(&mut bed, "ZRANGE z 0 -1 WITHSCORES"), "d 0 a 1 b 2 c 3");
    assert_eq!(bed.run("ZINTERSTORE z 2 z missing"), ":0");
    assert_eq!(bed.run("ZDIFFSTORE d 1 y"), ":3");
    assert_eq!(bed.run("ZRANGESTORE d d 0 0"), ":1");
    assert_eq!(
        bed.events(),
        ["new d", "zdiffstore d", "zrangestore d", "zunionstore z", "keymiss missing", "del z"]
    );
    bed.run("SET t v");
    assert_eq!(bed.run("ZUNION 2 y t"), "-WRONGTYPE Operation against a key holding the wrong kind of value");
}

#[test]
fn inputs_that_are_missing_are_told() {
    let mut bed = filled();
    bed.run("ZUNION 2 z missing");
    bed.run("ZINTERCARD 2 z missing");
    assert_eq!(bed.events(), ["keymiss missing", "keymiss missing"]);
}

#[test]
fn infinities_of_both_signs_make_zero() {
    let mut bed = Bed::new();
    bed.run("ZADD p inf m");
    bed.run("ZADD n -inf m");
    assert_eq!(words(&mut bed, "ZUNION 2 p n WITHSCORES"), "m 0");
    assert_eq!(words(&mut bed, "ZINTER 2 p n WITHSCORES WEIGHTS 0 1"), "m -inf");
}

#[test]
fn random_members_are_members_and_different() {
    let mut bed = Bed::new();
    for n in 0..1000 {
        bed.run(&format!("ZADD z {n} m{n}"));
    }
    for count in [1, 5, 100, 200, 999, 1000, 2000] {
        let reply = words(&mut bed, &format!("ZRANDMEMBER z {count}"));
        let mut members: Vec<&str> = reply.split(' ').collect();
        assert_eq!(members.len(), count.min(1000));
        members.sort_unstable();
        members.dedup();
        assert_eq!(members.len(), count.min(1000));
    }
    assert_eq!(words(&mut bed, "ZRANDMEMBER z -2500").split(' ').count(), 2500);
    assert_eq!(bed.run("ZRANDMEMBER missing"), "$-1");
    assert_eq!(bed.run("ZRANDMEMBER missing 3"), "*0");
}

#[test]
fn a_scan_shows_every_member_of_a_large_set() {
    let mut bed = Bed::new();
    for n in 0..3000 {
        bed.run(&format!("ZADD z {n} m{n}"));
    }
    let (mut cursor, mut seen) = (String::from("0"), std::collections::BTreeSet::new());
    for _ in 0..10_000 {
        let reply = words(&mut bed, &format!("ZSCAN z {cursor} COUNT 50 NOSCORES"));
        let mut members = reply.split(' ').filter(|word| !word.is_empty());
        cursor = members.next().unwrap().to_string();
        seen.extend(members.map(str::to_string));
        if cursor == "0" {
            break;
        }
    }
    assert_eq!((cursor.as_str(), seen.len()), ("0", 3000));
    // A call ends soon for any count.
    let (mut cursor, mut seen) = (String::from("0"), Vec::new());
    for call in 0.. {
        let reply = words(&mut bed, &format!("ZSCAN z {cursor} MATCH m77* COUNT 10000"));
        let mut found = reply.split(' ').map(str::to_string);
        cursor = found.next().unwrap();
        seen.extend(found);
        if cursor == "0" {
            assert!((3000 / 1000 - 1..3000 / 1000 + 2).contains(&call), "{call} calls");
            break;
        }
    }
    assert!(seen.contains(&"m77".to_string()) && seen.contains(&"m779".to_string()));
    assert_eq!(seen.len(), 2 * 11);
}

#[test]
fn encodings_follow_the_thresholds() {
    let mut bed = Bed::new();
    bed.run("ZADD z 1 a");
    assert_eq!(bed.run("OBJECT ENCODING z"), "$8|listpack");
    bed.run(&format!("ZADD long 1 {}", "x".repeat(65)));
    assert_eq!(bed.run("OBJECT ENCODING long"), "$8|skiplist");
    for n in 0..128 {
        bed.run(&format!("ZADD z 1 {n}"));
    }
    assert_eq!(bed.run("OBJECT ENCODING z"), "$8|skiplist");
}

#[test]
fn copies_and_dumps_keep_scores() {
    let mut bed = Bed::new();
    bed.run("ZADD z 1.5 a -inf b 3 77");
    assert_eq!(bed.run("COPY z y"), ":1");
    assert_eq!(words(&mut bed, "ZRANGE y 0 -1 WITHSCORES"), "b -inf a 1.5 77 3");
    let dump = bed.run_words(&[b"DUMP", b"z"]);
    let payload = &dump[dump.iter().position(|&byte| byte == b'\n').unwrap() + 1..dump.len() - 2];
    assert_eq!(bed.run_words(&[b"RESTORE", b"x", b"0", payload]), b"+OK\r\n");
    assert_eq!(words(&mut bed, "ZRANGE x 0 -1 WITHSCORES"), "b -inf a 1.5 77 3");
}

#[test]
fn many_pops_at_once_leave_the_others() {
    for (pop, left) in [("ZPOPMIN z 700", "m700 m999"), ("ZPOPMAX z 700", "m0 m299")] {
        let mut bed = Bed::new();
        for n in 0..1000 {
            bed.run(&format!("ZADD z {n} m{n}"));
        }
        assert_eq!(words(&mut bed, pop).split(' ').count(), 1400);
        let (low, high) = (words(&mut bed, "ZRANGE z 0 0"), words(&mut bed, "ZRANGE z -1 -1"));
        assert_eq!((format!("{low} {high}"), bed.run("ZCARD z")), (left.to_string(), ":300".to_string()));
        assert_eq!(bed.run("ZREMRANGEBYSCORE z -inf inf"), ":300");
        assert_eq!(bed.run("EXISTS z"), ":0");
    }
}

#[test]
fn a_model_agrees_after_many_changes() {
    let mut bed = Bed::new();
    let mut model: Vec<(f64, String)> = Vec::new();
    let mut rng = Rng::new(7);
    for _ in 0..4000 {
        let (member, score) = (format!("m{}", rng.below(300)), rng.below(50) as f64);
        let old = model.iter().position(|(_, name)| *name == member);
        if rng.below(3) == 0 {
            assert_eq!(bed.run(&format!("ZREM z {member}")), format!(":{}", u8::from(old.is_some())));
            old.map(|at| model.remove(at));
        } else {
            assert_eq!(bed.run(&format!("ZADD z {score} {member}")), format!(":{}", u8::from(old.is_none())));
            old.map(|at| model.remove(at));
            model.push((score, member));
        }
    }
    model.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let all: Vec<String> = model.iter().map(|(score, name)| format!("{name} {score}")).collect();
    assert_eq!(words(&mut bed, "ZRANGE z 0 -1 WITHSCORES"), all.join(" "));
    for low in 0..50 {
        let count = model.iter().filter(|(score, _)| *score >= f64::from(low) && *score < 25.0).count();
        assert_eq!(bed.run(&format!("ZCOUNT z {low} (25")), format!(":{count}"));
    }
}

/// Runs `line` on sorted sets of which two of five members expire after ten seconds and one after twenty.
fn timed() -> Bed {
    let mut bed = Bed::new();
    bed.run("ZADD z 1 a 2 b 3 c 4 55 5 e");
    assert_eq!(bed.run("FIELDEXPIRE z 10 b 55 nope"), "*3|:1|:1|:-2");
    assert_eq!(bed.run("FIELDEXPIRE z 20 e"), "*1|:1");
    bed
}

#[test]
fn members_live_to_the_millisecond() {
    let mut bed = timed();
    assert_eq!(bed.run("FIELDTTL z b"), ":10");
    assert_eq!(bed.run("FIELDTTL z a"), ":-1");
    assert_eq!(bed.run("FIELDTTL z nope"), ":-3");
    bed.now_ms += 9_999;
    bed.events();
    assert_eq!(bed.run("ZCARD z"), ":5");
    assert_eq!(bed.run("FIELDTTL z b"), ":1");
    assert_eq!(bed.events(), Vec::<String>::new());
    bed.now_ms += 1;
    assert_eq!(bed.run("ZCARD z"), ":3");
    assert_eq!(bed.events(), ["zexpired z"]);
    assert_eq!(bed.run("FIELDTTL z b"), ":-3");
    bed.now_ms += 10_000;
    assert_eq!(words(&mut bed, "ZRANGE z 0 -1 WITHSCORES"), "a 1 c 3");
    bed.run("FIELDEXPIRE z 1 a c");
    bed.events();
    bed.now_ms += 1_000;
    assert_eq!(bed.run("ZSCORE z a"), "$-1");
    assert_eq!(bed.events(), ["zexpired z", "del z"]);
    assert_eq!(bed.run("EXISTS z"), ":0");
}

#[test]
fn no_command_sees_a_dead_member() {
    for (line, reply) in [
        ("ZSCORE z b", "$-1"),
        ("ZMSCORE z 55 a", "*2|$-1|$1|1"),
        ("ZRANK z c", ":1"),
        ("ZREVRANK z c", ":1"),
        ("ZCOUNT z 2 4", ":1"),
        ("ZLEXCOUNT z - +", ":3"),
        ("ZRANGE z 1 1", "*1|$1|c"),
        ("ZRANGEBYSCORE z 2 4", "*1|$1|c"),
        ("ZREVRANGE z 1 1", "*1|$1|c"),
        ("ZRANGESTORE to z 0 -1", ":3"),
        ("ZREM z b c", ":1"),
        ("ZREMRANGEBYRANK z 1 1", ":1"),
        ("ZREMRANGEBYSCORE z 2 4", ":1"),
        ("ZPOPMAX z 2", "*4|$1|e|$1|5|$1|c|$1|3"),
        ("ZMPOP 1 z MIN COUNT 2", "*2|$1|z|*2|*2|$1|a|$1|1|*2|$1|c|$1|3"),
        ("BZPOPMAX z 0", "*3|$1|z|$1|e|$1|5"),
        ("ZRANDMEMBER z 9 WITHSCORES", "*6|$1|a|$1|1|$1|c|$1|3|$1|e|$1|5"),
        ("ZSCAN z 0", "*2|$1|0|*6|$1|a|$1|1|$1|c|$1|3|$1|e|$1|5"),
        ("ZUNION 1 z", "*3|$1|a|$1|c|$1|e"),
        ("ZINTERCARD 2 z z", ":3"),
        ("ZDIFFSTORE to 1 z", ":3"),
        ("ZADD z XX CH 7 b", ":0"),
        ("ZADD z 7 b", ":1"),
        ("ZINCRBY z 1 b", "$1|1"),
        ("ZADD z NX 7 55", ":1"),
        ("FIELDEXPIRE z 5 b", "*1|:-2"),
        ("SORT z BY nosort GET #", "*3|$1|a|$1|c|$1|e"),
        ("GEOPOS z b", "*1|*-1"),
        ("GEOHASH z b", "*1|$-1"),
    ] {
        let mut bed = timed();
        bed.now_ms += 10_000;
        assert_eq!(bed.run(line), reply, "{line}");
    }
}

#[test]
fn deadlines_of_members_stay_with_them() {
    let mut bed = timed();
    bed.run("ZADD z 9 b");
    bed.run("ZINCRBY z 1 55");
    assert_eq!(bed.run("FIELDTTL z b"), ":10");
    bed.run("ZREM z 55");
    bed.run("ZADD z 4 55");
    assert_eq!(bed.run("FIELDTTL z 55"), ":-1");
    bed.run("COPY z copy");
    bed.run("RENAME copy other");
    let payload = bed.run_words(&[b"DUMP", b"z"]);
    let start = payload.iter().position(|&byte| byte == b'\n').expect("a length") + 1;
    let restored = bed.run_words(&[b"RESTORE", b"back", b"0", &payload[start..payload.len() - 2]]);
    assert_eq!(restored, b"+OK\r\n");
    bed.run("ZUNIONSTORE plain 1 z");
    bed.now_ms += 10_000;
    for key in ["z", "other", "back"] {
        assert_eq!(words(&mut bed, &format!("ZRANGE {key} 0 -1")), "a c 55 e", "{key}");
        assert_eq!(bed.run(&format!("FIELDTTL {key} e")), ":10");
    }
    assert_eq!(bed.run("ZCARD plain"), ":5");
}

#[test]
fn many_members_die_at_once() {
    let mut bed = Bed::new();
    let add: Vec<String> = (0..3000).map(|n| format!("{n} m{n}")).collect();
    bed.run(&format!("ZADD z {}", add.join(" ")));
    let dying: Vec<String> = (0..2990).map(|n| format!("m{n}")).collect();
    bed.run(&format!("FIELDEXPIRE z 1 {}", dying.join(" ")));
    bed.now_ms += 1000;
    assert_eq!(bed.run("ZRANGE z 0 0"), "*1|$5|m2990");
    assert_eq!(bed.run("ZCARD z"), ":10");
}
