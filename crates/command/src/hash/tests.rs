use crate::testing::Bed;

fn bed() -> Bed {
    let mut bed = Bed::new();
    assert_eq!(bed.run("hset h a 1 b two c 3.5"), ":3");
    bed.events();
    bed
}

#[test]
fn fields_are_set_read_and_deleted() {
    let mut bed = bed();
    assert_eq!(bed.run("hset h a 9 d 4"), ":1");
    assert_eq!(bed.events(), ["hset h"]);
    assert_eq!(bed.run("hset h a 1 b"), "-ERR wrong number of arguments for 'hset' command");
    assert_eq!(bed.run("hmset h a 1 b"), "-ERR wrong number of arguments for 'hmset' command");
    assert_eq!(bed.run("hmset h e 5"), "+OK");
    assert_eq!(bed.run("hmget h a x b"), "*3|$1|9|$-1|$3|two");
    assert_eq!(bed.run("hlen h"), ":5");
    assert_eq!(bed.run("hstrlen h b"), ":3");
    assert_eq!(bed.run("hstrlen h nope"), ":0");
    assert_eq!(bed.run("hexists h a"), ":1");
    assert_eq!(bed.run("hsetnx h a 1"), ":0");
    assert_eq!(bed.run("hsetnx h f 1"), ":1");
    bed.events();
    assert_eq!(bed.run("hdel h a a nope"), ":1");
    assert_eq!(bed.run("hdel h b c d e f"), ":5");
    assert_eq!(bed.events(), ["hdel h", "hdel h", "del h"]);
    assert_eq!(bed.run("hgetall h"), "*0");
    assert_eq!(bed.run("hdel h a"), ":0");
    assert_eq!(bed.run("exists h"), ":0");
}

#[test]
fn a_hash_is_shown_in_both_protocols() {
    let mut bed = Bed::new();
    bed.run("hset h a 1 b 2");
    assert_eq!(bed.run("hgetall h"), "*4|$1|a|$1|1|$1|b|$1|2");
    assert_eq!(bed.run("hkeys h"), "*2|$1|a|$1|b");
    assert_eq!(bed.run("hvals h"), "*2|$1|1|$1|2");
    assert_eq!(bed.run("hrandfield h 5 withvalues"), "*4|$1|a|$1|1|$1|b|$1|2");
    bed.resp3 = true;
    assert_eq!(bed.run("hgetall h"), "%2|$1|a|$1|1|$1|b|$1|2");
    assert_eq!(bed.run("hrandfield h 5 withvalues"), "*2|*2|$1|a|$1|1|*2|$1|b|$1|2");
    assert_eq!(bed.run("hget h x"), "_");
    assert_eq!(bed.run("hgetall none"), "%0");
}

#[test]
fn another_type_is_refused_and_a_string_is_left_alone() {
    let mut bed = Bed::new();
    bed.run("set s 1");
    for line in [
        "hset s a 1",
        "hget s a",
        "hincrby s a 1",
        "hscan s 0",
        "hexpire s 1 fields 1 a",
        "httl s fields 1 x",
    ] {
        assert!(bed.run(line).starts_with("-WRONGTYPE"), "{line}");
    }
    assert_eq!(bed.run("get s"), "$1|1");
}

#[test]
fn counting_follows_redis_to_the_error_texts() {
    let mut bed = bed();
    assert_eq!(bed.run("hincrby h a 41"), ":42");
    assert_eq!(bed.run("hincrby h b 1"), "-ERR hash value is not an integer");
    assert_eq!(bed.run("hincrby h a x"), "-ERR value is not an integer or out of range");
    assert_eq!(bed.run("hincrby h a 9223372036854775807"), "-ERR increment or decrement would overflow");
    assert_eq!(bed.run("hincrbyfloat h c 0.1"), "$3|3.6");
    assert_eq!(bed.run("hincrbyfloat h a 0.5"), "$4|42.5");
    assert_eq!(bed.run("hincrbyfloat h b 1"), "-ERR hash value is not a float");
    assert_eq!(bed.run("hincrbyfloat h b inf"), "-ERR value is NaN or Infinity");
    assert_eq!(bed.run("hincrbyfloat new x 5"), "$1|5");
    assert_eq!(bed.run("hincrby new y -3"), ":-3");
    assert_eq!(bed.events().last().map(String::as_str), Some("hincrby new"));
    // what fails creates nothing
    assert_eq!(bed.run("hincrby none a x"), "-ERR value is not an integer or out of range");
    assert_eq!(bed.run("exists none"), ":0");
}

#[test]
fn random_fields_have_the_bounds_of_redis() {
    let mut bed = bed();
    assert_eq!(bed.run("hrandfield none"), "$-1");
    assert_eq!(bed.run("hrandfield none 3"), "*0");
    assert_eq!(bed.run("hrandfield h 0"), "*0");
    assert!(bed.run("hrandfield h 2").starts_with("*2|"));
    assert!(bed.run("hrandfield h -7").starts_with("*7|"));
    assert!(bed.run("hrandfield h -7 withvalues").starts_with("*14|"));
    assert_eq!(bed.run("hrandfield h 1 nope"), "-ERR syntax error");
    assert_eq!(bed.run("hrandfield h x"), "-ERR value is not an integer or out of range");
    assert!(bed.run("hrandfield h -9223372036854775808").starts_with("-ERR value is out of range"));
    assert_eq!(bed.run("hrandfield h -9223372036854775807 withvalues"), "-ERR value is out of range");
    // a reply larger than any string may be
    assert_eq!(bed.run("hrandfield h -1000000000"), "-ERR value is out of range");
    for _ in 0..20 {
        let reply = bed.run("hrandfield h 2");
        let fields: Vec<_> = reply.split('|').skip(2).step_by(2).collect();
        assert!(fields.len() == 2 && fields[0] != fields[1], "{reply}");
    }
}

#[test]
fn a_scan_shows_every_field_once_however_it_is_cut() {
    let mut bed = Bed::new();
    for n in 0..2000 {
        bed.run(&format!("hset h field{n} {n}"));
    }
    let (mut cursor, mut seen, mut calls) = ("0".to_owned(), Vec::new(), 0);
    loop {
        let reply = bed.run(&format!("hscan h {cursor} count 50 novalues"));
        let mut words = reply.split('|').skip(2);
        cursor = words.next().expect("a cursor").to_owned();
        seen.extend(words.filter(|word| word.starts_with("field")).map(str::to_owned));
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2000);
    assert!((20..=60).contains(&calls), "{calls}");
    // A call ends soon for any count.
    let first = bed.run("hscan h 0 count 100000 novalues");
    let mut words = first.split('|').skip(2);
    cursor = words.next().expect("a cursor").to_owned();
    let first: Vec<_> = words.filter(|word| word.starts_with("field")).collect();
    assert!((1000..1100).contains(&first.len()), "{}", first.len());
    let second = bed.run(&format!("hscan h {cursor} count 100000 novalues"));
    assert!(second.starts_with("*2|$1|0|") && second.matches("|field").count() >= 2000 - first.len());
    let one = bed.run(&format!("hscan h 0 count 100000 match {}", first[0]));
    assert!(one.contains(&format!("|*2|${}|{}|", first[0].len(), first[0])), "{one}");
    assert_eq!(bed.run("hscan h x"), "-ERR invalid cursor");
    assert_eq!(bed.run("hscan none -5"), "*2|$1|0|*0");
    assert_eq!(bed.run("hscan h 0 count 0"), "-ERR syntax error");
    assert_eq!(bed.run("hscan h 0 bogus"), "-ERR syntax error");
}

#[test]
fn fields_expire_alone_and_take_the_hash_with_the_last() {
    let mut bed = bed();
    assert_eq!(bed.run("hexpire h 10 fields 2 a nope"), "*2|:1|:-2");
    assert_eq!(bed.events(), ["hexpire h"]);
    assert_eq!(bed.run("httl h fields 3 a b nope"), "*3|:10|:-1|:-2");
    assert_eq!(bed.run("hpttl h fields 1 a"), "*1|:10000");
    assert_eq!(bed.run("hpexpiretime h fields 1 a"), "*1|:1800000010000");
    assert_eq!(bed.run("hexpiretime h fields 1 a"), "*1|:1800000010");
    bed.now_ms += 9_999;
    assert_eq!(bed.run("hget h a"), "$1|1");
    bed.now_ms += 1;
    assert_eq!(bed.run("hget h a"), "$-1");
    assert_eq!(bed.run("hlen h"), ":2");
    assert_eq!(bed.events(), ["hexpired h"]);
    assert_eq!(bed.run("hpexpire h 5 fields 2 b c"), "*2|:1|:1");
    bed.now_ms += 5;
    bed.events();
    assert_eq!(bed.run("hgetall h"), "*0");
    assert_eq!(bed.events(), ["hexpired h", "del h"]);
    assert_eq!(bed.run("exists h"), ":0");
}

#[test]
fn conditions_compare_with_the_time_a_field_has() {
    let mut bed = bed();
    assert_eq!(bed.run("hexpire h 10 xx fields 1 a"), "*1|:0");
    assert_eq!(bed.run("hexpire h 10 gt fields 1 a"), "*1|:0");
    assert_eq!(bed.run("hexpire h 10 nx fields 1 a"), "*1|:1");
    assert_eq!(bed.run("hexpire h 20 nx fields 1 a"), "*1|:0");
    assert_eq!(bed.run("hexpire h 10 gt fields 1 a"), "*1|:0");
    assert_eq!(bed.run("hexpire h 11 gt fields 1 a"), "*1|:1");
    assert_eq!(bed.run("hexpire h 11 lt fields 1 a"), "*1|:0");
    assert_eq!(bed.run("hexpire h 5 lt fields 2 a b"), "*2|:1|:1");
    assert_eq!(bed.run("hpersist h fields 3 a c nope"), "*3|:1|:-1|:-2");
    bed.events();
    // a time that has passed deletes
    assert_eq!(bed.run("hexpireat h 1 fields 1 a"), "*1|:2");
    assert_eq!(bed.events(), ["hdel h"]);
    assert_eq!(bed.run("hpexpire h 0 fields 2 b c"), "*2|:2|:2");
    assert_eq!(bed.events(), ["hdel h", "del h"]);
}

#[test]
fn wrong_orders_are_refused_in_redis_words() {
    let mut bed = bed();
    let no_fields = "-ERR Mandatory argument FIELDS is missing or not at the right position";
    let mismatch = "-ERR The `numfields` parameter must match the number of arguments";
    assert_eq!(bed.run("hexpire h 1 nx nx 1 a"), "-ERR unknown argument: 1");
    assert_eq!(bed.run("hexpire h 1 nx nx nx nx"), "-ERR missing FIELDS argument");
    assert_eq!(bed.run("hexpire h 1 nx xx fields 1 a"), "-ERR Multiple condition flags specified");
    assert_eq!(bed.run("hexpire h 1 fields 1 a fields 1 b"), "-ERR FIELDS keyword specified multiple times");
    let too_few = "-ERR FIELDS requires at least numfields and one field argument";
    assert_eq!(bed.run("hexpire h 1 nx fields 1"), too_few);
    assert_eq!(bed.run("hexpire h 1 fields 2 a"), "-ERR wrong number of arguments");
    assert_eq!(bed.run("hexpire h 1 fields 1 a b"), "-ERR unknown argument: b");
    assert_eq!(bed.run("hexpire h 1 fields 0 a"), "-ERR Parameter `numFields` should be greater than 0");
    assert_eq!(bed.run("httl h fields 0 a"), "-ERR Number of fields must be a positive integer");
    assert_eq!(bed.run("httl h nope 1 a"), no_fields);
    assert_eq!(bed.run("hpersist h fields 3 a"), mismatch);
    assert_eq!(bed.run("hexpire h -1 fields 1 a"), "-ERR invalid expire time, must be >= 0");
    assert_eq!(bed.run("hexpire h x fields 1 a"), "-ERR value is not an integer or out of range");
    let invalid = "-ERR invalid expire time in 'hexpire' command";
    assert_eq!(bed.run("hexpire h 9223372036854775807 fields 1 a"), invalid);
    assert_eq!(bed.run("hexpire h 70368744177 fields 1 a"), invalid);
    assert_eq!(bed.run("hpexpireat h 70368744177663 fields 1 a"), "*1|:1");
    assert_eq!(bed.run("hexpire none 1 fields 2 a b"), "*2|:-2|:-2");
    assert_eq!(bed.run("hgetdel h fields 2 a"), mismatch);
    assert_eq!(bed.run("hgetex h ex 5 nope 1 a"), "-ERR unknown argument: nope");
    assert_eq!(bed.run("hgetex h ex 5 persist fields 1 a"), ONE_TIME);
    assert_eq!(bed.run("hgetex h persist px 5 fields 1 a"), ONE_TIME);
    assert_eq!(bed.run("hgetex h fields 1 a px"), "-ERR missing expire time");
    assert_eq!(bed.run("hgetex h persist px 5"), ONE_TIME);
    assert_eq!(bed.run("hgetex h px 5 fields"), "-ERR wrong number of arguments for 'hgetex' command");
    assert_eq!(bed.run("hgetex h px 5 fields 0 a"), "-ERR invalid number of fields");
    assert_eq!(bed.run("hgetex h fields 2 a"), "-ERR wrong number of arguments");
    assert_eq!(bed.run("hgetex h fields 1 a fields 1 a"), "-ERR FIELDS keyword specified multiple times");
}

const ONE_TIME: &str = "-ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified";

#[test]
fn options_come_in_any_order() {
    let mut bed = bed();
    assert_eq!(bed.run("hexpire h 10 fields 2 a b nx"), "*2|:1|:1");
    assert_eq!(bed.run("hexpire h 20 fields 1 a nx"), "*1|:0");
    assert_eq!(bed.run("hgetex h fields 1 a persist"), "*1|$1|1");
    assert_eq!(bed.run("hgetex h fields 1 c ex 30"), "*1|$3|3.5");
    assert_eq!(bed.run("hsetex h fields 1 b 7 keepttl"), ":1");
    assert_eq!(bed.run("hsetex h ex 40 fields 2 d 1 e 2 fnx"), ":1");
    assert_eq!(bed.run("hsetex h ex 40 fields 2 d 1 f 2 fnx"), ":0");
    assert_eq!(bed.run("httl h fields 5 a b c d f"), "*5|:-1|:10|:30|:40|:-2");
}

#[test]
fn writing_a_field_drops_its_time_and_counting_keeps_it() {
    let mut bed = bed();
    bed.run("hexpire h 10 fields 2 a b");
    bed.run("hset h b 5");
    bed.run("hincrby h a 1");
    assert_eq!(bed.run("httl h fields 2 a b"), "*2|:10|:-1");
    bed.run("hincrbyfloat h a 0.5");
    assert_eq!(bed.run("httl h fields 1 a"), "*1|:10");
}

#[test]
fn many_dead_fields_are_hidden_before_they_are_removed() {
    let mut bed = Bed::new();
    for n in 0..20_000 {
        bed.run(&format!("hset h f{n} {n}"));
    }
    for chunk in 0..20 {
        let fields: Vec<String> = (0..1000).map(|n| format!("f{}", chunk * 1000 + n)).collect();
        if chunk != 7 {
            bed.run(&format!("hpexpire h 100 fields 1000 {}", fields.join(" ")));
        }
    }
    bed.now_ms += 100;
    // a large hash counts fields that wait for removal
    assert_ne!(bed.run("hlen h"), ":1000");
    assert!(bed.run("hkeys h").starts_with("*1000|"));
    assert_eq!(bed.run("hget h f5"), "$-1");
    assert_eq!(bed.run("hget h f7001"), "$4|7001");
    assert_eq!(bed.run("hset h f19999 x"), ":1");
    assert_eq!(bed.run("hdel h f6000 f7000"), ":1");
    assert!(bed.run("hvals h").starts_with("*1000|"));
    assert_eq!(bed.run("hsetnx h f12 x"), ":1");
    let reply = bed.run("hrandfield h 50");
    assert_eq!(
        reply.matches("|f7").count(),
        50 - reply.matches("|f19999").count() - reply.matches("|f12|").count()
    );
}

#[test]
fn reading_can_set_clear_and_delete() {
    let mut bed = bed();
    assert_eq!(bed.run("hgetex h fields 2 a nope"), "*2|$1|1|$-1");
    assert_eq!(bed.events(), [""; 0]);
    assert_eq!(bed.run("hgetex h ex 10 fields 1 a"), "*1|$1|1");
    assert_eq!(bed.run("httl h fields 1 a"), "*1|:10");
    assert_eq!(bed.run("hgetex h persist fields 2 a b"), "*2|$1|1|$3|two");
    assert_eq!(bed.events(), ["hexpire h", "hpersist h"]);
    assert_eq!(bed.run("hgetex h pxat 1 fields 1 a"), "*1|$1|1");
    assert_eq!(bed.run("hgetdel h fields 3 b nope b"), "*3|$3|two|$-1|$-1");
    assert_eq!(bed.run("hgetdel h fields 1 c"), "*1|$3|3.5");
    assert_eq!(bed.events(), ["hdel h", "hdel h", "hdel h", "del h"]);
    assert_eq!(bed.run("hgetdel h fields 2 a b"), "*2|$-1|$-1");
    assert_eq!(bed.run("hgetex h fields 1 a"), "*1|$-1");
}

#[test]
fn hsetex_in_redis_grammar() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("hsetex h ex 10 fields 2 a 1 b 2"), ":1");
    assert_eq!(bed.events(), ["new h", "hset h", "hexpire h"]);
    assert_eq!(bed.run("httl h fields 2 a b"), "*2|:10|:10");
    assert_eq!(bed.run("hsetex h keepttl fields 1 a 3"), ":1");
    assert_eq!(bed.run("hsetex h fields 1 b 3"), ":1");
    assert_eq!(bed.run("httl h fields 2 a b"), "*2|:10|:-1");
    assert_eq!(bed.run("hsetex h fnx fields 2 a 9 c 9"), ":0");
    assert_eq!(bed.run("hsetex h fxx fields 2 a 9 c 9"), ":0");
    assert_eq!(bed.run("hsetex h fxx fields 2 a 9 b 9"), ":1");
    assert_eq!(bed.run("hsetex none fxx fields 1 a 9"), ":0");
    assert_eq!(bed.run("exists none"), ":0");
    assert_eq!(bed.run("hsetex h nx fields 1 z 9"), ":0");
    assert_eq!(bed.run("hsetex none xx fields 1 z 9"), ":0");
    // Valkey: of the key and of its fields at once.
    assert_eq!(bed.run("hsetex h nx fnx fields 1 z 9"), ":0");
    assert_eq!(bed.run("hsetex h xx fxx fields 2 a 9 z 9"), ":0");
    assert_eq!(bed.run("hsetex h xx fnx ex 100 fields 1 z 9"), ":1");
    assert_eq!(bed.run("hsetex new nx fnx fields 1 z 9"), ":1");
    assert_eq!(bed.run("hdel h z"), ":1");
    bed.events();
    assert_eq!(bed.run("hsetex h pxat 1 fields 2 a 9 b 9"), ":1");
    assert_eq!(bed.events(), ["hset h", "hdel h", "del h"]);
    for (line, error) in [
        ("hsetex h fnx fxx fields 1 a 1", "Only one of FXX or FNX arguments can be specified"),
        ("hsetex h nx xx fields 1 a 1", "Only one of XX or NX arguments can be specified"),
        (
            "hsetex h ex 1 keepttl fields 1 a 1",
            "Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
        ),
        ("hsetex h bogus fields 1 a 1", "unknown argument: bogus"),
        ("hsetex h ex 1 px 2 ex", "Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"),
        ("hsetex h fnx keepttl fields 2 a 1", "wrong number of arguments"),
        ("hsetex h keepttl fields 1 a 1 b", "unknown argument: b"),
        ("hsetex h fields 1 a 1 7", "unknown argument: 7"),
        ("hsetex h fields 1 a 1 fields 1 a 1", "FIELDS keyword specified multiple times"),
        ("hsetex h fnx keepttl fnx", "Only one of FXX or FNX arguments can be specified"),
        ("hsetex h fnx keepttl nx", "missing FIELDS argument"),
        ("hsetex h fnx keepttl fields", "wrong number of arguments for 'hsetex' command"),
        ("hsetex h fields x a 1", "invalid number of fields"),
        ("hsetex h ex -1 fields 1 a 1", "invalid expire time, must be >= 0"),
    ] {
        assert_eq!(bed.run(line), format!("-ERR {error}"), "{line}");
    }
}

#[test]
fn hsetex_in_dragonfly_grammar() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("hsetex h 10 a 1 b 2"), ":2");
    assert_eq!(bed.run("hsetex h nx 20 a 5 c 3"), ":1");
    assert_eq!(bed.run("hmget h a c"), "*2|$1|1|$1|3");
    assert_eq!(bed.run("httl h fields 3 a b c"), "*3|:10|:10|:20");
    assert_eq!(bed.run("hsetex h keepttl 30 a 7 d 8"), ":1");
    assert_eq!(bed.run("httl h fields 2 a d"), "*2|:10|:30");
    assert_eq!(bed.run("hsetex h fnx 30 a 7 e 8"), ":0");
    assert_eq!(bed.run("hsetex h 30 a 1 b"), "-ERR wrong number of arguments for 'hsetex' command");
    assert_eq!(bed.run("fieldttl h a"), ":10");
    assert_eq!(bed.run("fieldttl h nope"), ":-3");
    assert_eq!(bed.run("fieldttl none a"), ":-2");
    assert_eq!(bed.run("fieldexpire h 99 a nope"), "*2|:1|:-2");
    assert_eq!(bed.run("fieldttl h a"), ":99");
    bed.run("hset h plain 1");
    assert_eq!(bed.run("fieldttl h plain"), ":-1");
}

#[test]
fn encodings_follow_the_thresholds() {
    let mut bed = bed();
    assert_eq!(bed.run("object encoding h"), "$8|listpack");
    bed.run("hexpire h 100 fields 1 a");
    assert_eq!(bed.run("object encoding h"), "$10|listpackex");
    bed.run(&format!("hset h long {}", "x".repeat(65)));
    assert_eq!(bed.run("object encoding h"), "$9|hashtable");
}

#[test]
fn batches_that_are_asked_for_ahead_miss_no_field() {
    for len in [15, 16, 17, 31, 32, 33, 63, 64, 65, 400] {
        let mut bed = Bed::new();
        let fields: Vec<String> = (0..len).map(|n| format!("field:{n}")).collect();
        let pairs: Vec<String> = fields.iter().enumerate().map(|(n, field)| format!("{field} {n}")).collect();
        assert_eq!(bed.run(&format!("hset h {}", pairs.join(" "))), format!(":{len}"));
        // The last one twice, and one that is not there.
        let asked = format!("{0} field:{1} none", fields.join(" "), len - 1);
        let values: Vec<String> =
            (0..len).chain([len - 1]).map(|n| format!("${}|{n}", n.to_string().len())).collect();
        assert_eq!(bed.run(&format!("hmget h {asked}")), format!("*{}|{}|$-1", len + 2, values.join("|")));
        assert_eq!(bed.run(&format!("hset h {} new 1", pairs.join(" "))), ":1");
        assert_eq!(bed.run(&format!("hdel h {asked}")), format!(":{len}"));
        assert_eq!(bed.run("hgetall h"), "*2|$3|new|$1|1");
    }
}
