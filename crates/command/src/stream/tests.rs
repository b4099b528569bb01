//! Streams command by command, with the replies that Redis gives.

use darter_store::change::JournalReaders;

use crate::testing::Bed;

fn bed() -> Bed {
    Bed::new()
}

/// Runs lines; the reply to the last.
fn run(bed: &mut Bed, lines: &[&str]) -> String {
    lines.iter().map(|line| bed.run(line)).last().unwrap_or_default()
}

const TOO_SMALL: &str = "-ERR The ID specified in XADD is equal or smaller than the target stream top item";

#[test]
fn ids_rise_and_are_made_from_the_time() {
    let mut b = bed();
    assert_eq!(b.run("XADD s * f v"), "$15|1800000000000-0");
    assert_eq!(b.run("XADD s * f v"), "$15|1800000000000-1");
    assert_eq!(b.run("XADD s 1800000000000-* f v"), "$15|1800000000000-2");
    assert_eq!(b.run("XADD s 1-1 f v"), TOO_SMALL);
    assert_eq!(b.run("XADD s 1-* f v"), TOO_SMALL);
    assert_eq!(b.run("XADD t 0-* f v"), "$3|0-1");
    assert_eq!(b.run("XADD u 0-0 f v"), "-ERR The ID specified in XADD must be greater than 0-0");
    assert_eq!(b.run("XADD u 1-1 f v g"), "-ERR wrong number of arguments for 'xadd' command");
    assert_eq!(b.run("XADD u NOMKSTREAM 1-1 f v"), "$-1");
    assert_eq!(b.run("XLEN u"), ":0");
    let last = "18446744073709551615-18446744073709551615";
    b.run(&format!("XADD u {last} f v"));
    let line = b.run("XADD u * f v");
    assert_eq!(line, "-ERR The stream has exhausted the last possible ID, unable to add more items");
}

#[test]
fn a_refused_entry_leaves_no_stream_behind() {
    let mut b = bed();
    assert!(b.run("XADD s x f v").starts_with("-ERR Invalid stream ID"));
    assert_eq!(b.run("EXISTS s"), ":0");
    b.run("SET k v");
    assert!(b.run("XADD k * f v").starts_with("-WRONGTYPE"));
}

#[test]
fn ranges_go_both_ways_and_leave_ends_out() {
    let mut b = bed();
    for n in 1..=5 {
        b.run(&format!("XADD s {n}-0 n {n}"));
    }
    let entry = |n: u32| format!("*2|$3|{n}-0|*2|$1|n|$1|{n}");
    assert_eq!(b.run("XRANGE s (1-0 3"), format!("*2|{}|{}", entry(2), entry(3)));
    assert_eq!(b.run("XREVRANGE s + - COUNT 2"), format!("*2|{}|{}", entry(5), entry(4)));
    assert_eq!(b.run("XREVRANGE s (5-0 4"), format!("*1|{}", entry(4)));
    assert_eq!(b.run("XRANGE s - + COUNT 0"), "*-1");
    assert_eq!(b.run("XRANGE none - +"), "*0");
    assert_eq!(b.run("XRANGE s (- +"), "-ERR Invalid stream ID specified as stream command argument");
    assert_eq!(b.run("XREAD COUNT 1 STREAMS s none 3 0"), format!("*1|*2|$1|s|*1|{}", entry(4)));
    assert_eq!(b.run("XREAD STREAMS s $"), "*-1");
    assert_eq!(b.run("XREAD STREAMS s +"), format!("*1|*2|$1|s|*1|{}", entry(5)));
    b.run("XADD gone 1-0 f v");
    b.run("XADD gone 2-0 f v");
    b.run("XDEL gone 2-0");
    assert_eq!(b.run("XREAD STREAMS gone +"), "*1|*2|$4|gone|*1|*2|$3|1-0|*2|$1|f|$1|v");
    b.run("XDEL gone 1-0");
    assert_eq!(b.run("XREAD STREAMS gone +"), b.run("XREAD STREAMS none +"));
    b.run("XGROUP CREATE empty g $ MKSTREAM");
    assert_eq!(b.run("XREAD STREAMS empty +"), b.run("XREAD STREAMS none +"));
    b.resp3 = true;
    assert_eq!(b.run("XREAD STREAMS s 4"), format!("%1|$1|s|*1|{}", entry(5)));
    assert_eq!(b.run("XREAD STREAMS s 5"), "_");
}

#[test]
fn rough_trims_go_by_the_bytes_of_a_node_too() {
    let mut b = Bed::new();
    let value = "v".repeat(1000);
    for n in 1..=300 {
        b.run(&format!("XADD s MAXLEN ~ 10 {n}-1 f {value}"));
    }
    // Four fill a node of 4,096 bytes.
    let len: u64 = b.run("XLEN s")[1..].parse().expect("a number");
    assert!((10..=14).contains(&len), "{len}");
    b.env.stream_node_max_bytes = 0;
    for n in 301..=400 {
        b.run(&format!("XADD s MAXLEN ~ 10 {n}-1 f {value}"));
    }
    let len: u64 = b.run("XLEN s")[1..].parse().expect("a number");
    assert!((10..=110).contains(&len), "{len}");
    // A hundred of these do not fill a node.
    b.env.stream_node_max_bytes = 4096;
    for n in 1..=300 {
        b.run(&format!("XADD t MAXLEN ~ 10 {n}-1 f {n}"));
    }
    let len: u64 = b.run("XLEN t")[1..].parse().expect("a number");
    assert_eq!(len, 100);
}

#[test]
fn rough_trims_take_whole_nodes() {
    let mut b = bed();
    for n in 1..=1000 {
        b.run(&format!("XADD s {n}-0 n {n}"));
    }
    assert_eq!(b.run("XTRIM s MAXLEN 555"), ":445");
    assert_eq!(b.run("XTRIM s MAXLEN ~ 444"), ":55");
    assert_eq!(b.run("XTRIM s MAXLEN ~ 0 LIMIT 99"), ":0");
    assert_eq!(b.run("XTRIM s MINID ~ 701-0 LIMIT 100"), ":100");
    assert_eq!(b.run("XTRIM s MINID 700-0"), ":99");
    assert!(b.run("XTRIM s MAXLEN 1 LIMIT 1").contains("without the special ~ option"));
    assert!(b.run("XTRIM s LIMIT 1").contains("without specifying a trimming strategy"));
    assert!(b.run("XTRIM s MAXLEN 1 MINID 1").contains("not compatible"));
    assert_eq!(b.run("XADD s MAXLEN 2 2000-0 n 1"), "$6|2000-0");
    assert_eq!(b.run("XLEN s"), ":2");
}

#[test]
fn deleted_ids_are_remembered() {
    let mut b = bed();
    run(&mut b, &["XADD s 1-0 f v", "XADD s 2-0 f v", "XADD s 3-0 f v"]);
    b.events();
    assert_eq!(b.run("XDEL s 2-0 2-0 9-9"), ":1");
    assert_eq!(b.events(), ["xdel s"]);
    assert!(b.run("XDEL s 1-0 x").starts_with("-ERR Invalid stream ID"));
    assert_eq!(b.run("XLEN s"), ":2");
    assert_eq!(b.run("XDEL s 1-0 3-0"), ":2");
    assert_eq!(b.run("EXISTS s"), ":1");
    assert_eq!(b.run("XADD s 3-0 f v"), TOO_SMALL);
    assert!(b.run("XSETID s 2-0").contains("smaller than current max_deleted_entry_id"));
    assert_eq!(b.run("XSETID s 7-0 ENTRIESADDED 100 MAXDELETEDID 5-0"), "+OK");
    let info = b.run("XINFO STREAM s");
    assert!(info.contains("$17|last-generated-id|$3|7-0|$20|max-deleted-entry-id|$3|5-0"), "{info}");
    assert!(info.contains("$13|entries-added|:100|$23|recorded-first-entry-id|$3|0-0"), "{info}");
    assert_eq!(b.run("XSETID none 1-0"), "-ERR no such key");
}

/// A stream of three entries and a group that has read none.
fn grouped() -> Bed {
    let mut b = bed();
    run(&mut b, &["XADD s 1-0 f 1", "XADD s 2-0 f 2", "XADD s 3-0 f 3", "XGROUP CREATE s g 0"]);
    b
}

#[test]
fn a_group_gives_each_entry_to_one_consumer() {
    let mut b = grouped();
    b.events();
    let first = b.run("XREADGROUP GROUP g alice COUNT 2 STREAMS s >");
    assert_eq!(first, "*1|*2|$1|s|*2|*2|$3|1-0|*2|$1|f|$1|1|*2|$3|2-0|*2|$1|f|$1|2");
    assert_eq!(b.events(), ["xgroup-createconsumer s", "xreadgroup s"]);
    assert_eq!(b.run("XREADGROUP GROUP g bob STREAMS s >"), "*1|*2|$1|s|*1|*2|$3|3-0|*2|$1|f|$1|3");
    assert_eq!(b.run("XREADGROUP GROUP g bob STREAMS s >"), "*-1");
    assert_eq!(b.run("XPENDING s g"), "*4|:3|$3|1-0|$3|3-0|*2|*2|$5|alice|$1|2|*2|$3|bob|$1|1");
    b.now_ms += 500;
    assert_eq!(b.run("XPENDING s g - + 10 bob"), "*1|*4|$3|3-0|$3|bob|:500|:1");
    assert_eq!(b.run("XPENDING s g IDLE 501 - + 10"), "*0");
    assert_eq!(b.run("XACK s g 1-0 1-0 3-0"), ":2");
    b.run("XDEL s 2-0");
    assert_eq!(b.run("XREADGROUP GROUP g alice STREAMS s 0"), "*1|*2|$1|s|*1|*2|$3|2-0|*-1");
    assert_eq!(b.run("XGROUP DELCONSUMER s g alice"), ":1");
    assert_eq!(b.run("XPENDING s g"), "*4|:0|$-1|$-1|*-1");
}

#[test]
fn claims_move_entries_that_are_idle() {
    let mut b = grouped();
    b.run("XREADGROUP GROUP g alice STREAMS s >");
    assert_eq!(b.run("XCLAIM s g bob 10 1-0 JUSTID"), "*0");
    b.now_ms += 10;
    assert_eq!(b.run("XCLAIM s g bob 10 1-0"), "*1|*2|$3|1-0|*2|$1|f|$1|1");
    assert_eq!(b.run("XPENDING s g - + 10 bob"), "*1|*4|$3|1-0|$3|bob|:0|:2");
    b.run("XDEL s 2-0");
    assert_eq!(b.run("XAUTOCLAIM s g bob 10 - COUNT 2 JUSTID"), "*3|$3|0-0|*1|$3|3-0|*1|$3|2-0");
    assert_eq!(b.run("XAUTOCLAIM s g bob 0 - COUNT 1 JUSTID"), "*3|$3|3-0|*1|$3|1-0|*0");
    assert!(b.run("XAUTOCLAIM s g bob 0 - COUNT 0").starts_with("-ERR COUNT must be > 0"));
    assert!(b.run("XCLAIM s none bob 0 1-0").starts_with("-NOGROUP No such key 's'"));
    assert!(b.run("XCLAIM s g bob x 1-0").contains("Invalid min-idle-time"));
    assert!(b.run("XCLAIM s g bob 0 1-0 NOPE").contains("Unrecognized XCLAIM option 'NOPE'"));
    assert_eq!(b.run("XCLAIM s g bob 0 9-9 FORCE"), "*0");
    assert_eq!(b.run("XACK s g 1-0"), ":1");
    assert_eq!(b.run("XCLAIM s g bob 0 1-0 FORCE JUSTID RETRYCOUNT 7"), "*1|$3|1-0");
    assert_eq!(b.run("XPENDING s g 1 1 1"), "*1|*4|$3|1-0|$3|bob|:0|:7");
}

#[test]
fn lag_is_told_where_it_can_be() {
    let lag = |b: &mut Bed| b.run("XINFO GROUPS s").rsplit("|lag|").next().unwrap_or_default().to_owned();
    let mut b = grouped();
    assert_eq!(lag(&mut b), ":3");
    b.run("XREADGROUP GROUP g a COUNT 1 STREAMS s >");
    assert_eq!(lag(&mut b), ":2");
    b.run("XDEL s 2-0");
    assert_eq!(lag(&mut b), "$-1");
    b.run("XDEL s 1-0");
    assert_eq!(lag(&mut b), ":1", "the gap lies before all that is left");
    b.run("XGROUP SETID s g $");
    assert_eq!(lag(&mut b), ":0");
    b.run("XADD s 9-0 f v");
    b.run("XADD s 10-0 f v");
    b.run("XADD s 11-0 f v");
    b.run("XGROUP SETID s g 9-0 ENTRIESREAD 4");
    b.run("XTRIM s MAXLEN 1");
    assert_eq!(lag(&mut b), ":1");
    // Entries trimmed unread count as read, together with the first entry after them.
    b.run("XREADGROUP GROUP g a STREAMS s >");
    let groups = b.run("XINFO GROUPS s");
    assert!(groups.contains("|entries-read|:6|") && lag(&mut b) == ":0", "{groups}");
    // Nothing is left to be seen.
    b.run("XADD s 12-0 f v");
    b.run("XTRIM s MAXLEN 0");
    assert_eq!(lag(&mut b), ":0");
}

#[test]
fn groups_refuse_what_redis_refuses() {
    let mut b = grouped();
    assert_eq!(b.run("XGROUP CREATE s g $"), "-BUSYGROUP Consumer Group name already exists");
    assert!(b.run("XGROUP CREATE none g $").contains("requires the key to exist"));
    assert_eq!(b.run("XGROUP CREATE new g $ MKSTREAM"), "+OK");
    assert_eq!(b.run("XLEN new"), ":0");
    assert_eq!(b.run("XGROUP SETID s none 0"), "-NOGROUP No such consumer group 'none' for key name 's'");
    assert_eq!(b.run("XGROUP CREATECONSUMER s g a"), ":1");
    assert_eq!(b.run("XGROUP CREATECONSUMER s g a"), ":0");
    assert_eq!(b.run("XGROUP DESTROY s none"), ":0");
    assert!(b.run("XREADGROUP GROUP none a STREAMS s >").contains("in XREADGROUP with GROUP option"));
    assert!(b.run("XREADGROUP GROUP g a STREAMS s $").starts_with("-ERR The $ ID is meaningless"));
    assert!(b.run("XREADGROUP GROUP g a COUNT 1 STREAMS s").contains("Unbalanced 'xreadgroup'"));
    assert!(b.run("XREAD GROUP g a STREAMS s 0").contains("only supported by XREADGROUP"));
    assert_eq!(b.run("XREAD BLOCK -1 STREAMS s 0"), "-ERR timeout is negative");
    assert_eq!(b.run("XGROUP DESTROY s g"), ":1");
}

#[test]
fn entries_go_with_what_is_pending_of_them_where_asked() {
    let mut b = grouped();
    b.run("XREADGROUP GROUP g a COUNT 2 STREAMS s >");
    assert_eq!(b.run("XDELEX s ACKED IDS 4 1-0 3-0 9-9 2-0"), "*4|:2|:2|:-1|:2");
    assert_eq!(b.run("XACKDEL s g ACKED IDS 2 1-0 3-0"), "*2|:1|:-1");
    assert_eq!(b.run("XDELEX s DELREF IDS 1 2-0"), "*1|:1");
    assert_eq!(b.run("XPENDING s g"), "*4|:0|$-1|$-1|*-1");
    assert_eq!(b.run("XLEN s"), ":1");
    assert!(b.run("XDELEX s IDS 2 1-0").contains("`numids`"));
    b.run("XADD s 4-0 f v");
    assert_eq!(b.run("XTRIM s MAXLEN 0 ACKED"), ":0");
    b.run("XREADGROUP GROUP g a STREAMS s >");
    assert_eq!(b.run("XTRIM s MAXLEN 0 DELREF"), ":2");
    assert_eq!(b.run("XPENDING s g"), "*4|:0|$-1|$-1|*-1");
}

#[test]
fn a_reader_of_a_group_may_take_over_what_is_idle() {
    let mut b = grouped();
    b.run("XREADGROUP GROUP g a COUNT 1 STREAMS s >");
    b.now_ms += 100;
    let read = b.run("XREADGROUP GROUP g b COUNT 2 CLAIM 100 STREAMS s >");
    assert_eq!(read, "*1|*2|$1|s|*2|*4|$3|1-0|*2|$1|f|$1|1|:100|:1|*4|$3|2-0|*2|$1|f|$1|2|:0|:0");
    assert_eq!(b.run("XPENDING s g - + 9 b"), "*2|*4|$3|1-0|$1|b|:0|:2|*4|$3|2-0|$1|b|:0|:1");
    assert_eq!(b.run("XNACK s g FAIL IDS 1 1-0"), ":1");
    assert_eq!(b.run("XAUTOCLAIM s g a 1000 - JUSTID"), "*3|$3|0-0|*1|$3|1-0|*0");
}

#[test]
fn copies_hold_everything() {
    let mut b = grouped();
    for n in 4..400 {
        b.run(&format!("XADD s {n}-7 f{} v{n} n {n}", n % 3));
    }
    b.run("XADD s 999-1 f value:with:text g -5");
    run(
        &mut b,
        &["XREADGROUP GROUP g a COUNT 50 STREAMS s >", "XGROUP CREATECONSUMER s g idle", "XDEL s 60-7"],
    );
    assert_eq!(b.run("COPY s t"), ":1");
    for what in ["XINFO STREAM", "XINFO GROUPS", "XRANGE", "XPENDING"] {
        let line = |key: &str| match what {
            "XRANGE" => format!("XRANGE {key} - +"),
            "XPENDING" => format!("XPENDING {key} g - + 100"),
            "XINFO STREAM" => format!("XINFO STREAM {key} FULL COUNT 0"),
            _ => format!("{what} {key}"),
        };
        assert_eq!(b.run(&line("s")), b.run(&line("t")), "{what}");
    }
}

#[test]
fn what_is_given_back_belongs_to_nobody() {
    let mut b = grouped();
    b.run("XREADGROUP GROUP g a COUNT 1 STREAMS s >");
    assert_eq!(b.run("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT 7"), ":1");
    assert_eq!(b.run("XPENDING s g - + 9"), "*1|*4|$3|1-0|$0||:-1|:7");
    assert_eq!(b.run("XPENDING s g - + 9 a"), "*0");
    // FORCE makes entries of the stream pending, and no others
    assert_eq!(b.run("XNACK s g SILENT IDS 2 2-0 9-9 FORCE"), ":1");
    assert_eq!(b.run("XNACK s g SILENT IDS 1 3-0"), ":0");
    assert_eq!(b.run("XPENDING s g - + 9"), "*2|*4|$3|1-0|$0||:-1|:7|*4|$3|2-0|$0||:-1|:0");
    let full = b.run("XINFO STREAM s FULL COUNT 0");
    assert!(full.contains("*16|$4|name") && full.contains("|$9|pel-count|:2|$12|nacked-count|:2|"), "{full}");
    assert_eq!(b.run("COPY s t"), ":1");
    assert_eq!(b.run("XINFO STREAM t FULL COUNT 0"), full);
    b.run("XCLAIM t g a 0 1-0 2-0");
    let full = b.run("XINFO STREAM t FULL");
    assert!(full.contains("*14|$4|name") && !full.contains("nacked"), "{full}");
    assert_eq!(b.run("XGROUP DELCONSUMER s g a"), ":0");
    assert_eq!(b.run("XCLAIM s g b 5 1-0 JUSTID"), "*1|$3|1-0");
    assert_eq!(b.run("XACK s g 2-0"), ":1");
    assert_eq!(b.run("XPENDING s g - + 9"), "*1|*4|$3|1-0|$1|b|:0|:7");
    for (line, error) in [
        ("XNACK s g FATAL IDS 1 1-0 NONSENSE", "Unrecognized XNACK option 'NONSENSE'"),
        ("XNACK s g NONSENSE IDS 1 1-0", "mode must be SILENT, FAIL, or FATAL"),
        ("XNACK s g FAIL FORCE FORCE FORCE", "syntax error, expected IDS keyword"),
        ("XNACK s g FAIL IDS 0 1-0", "numids must be a positive integer"),
        ("XNACK s g FAIL IDS 2 1-0", "number of IDs doesn't match numids"),
        ("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT -1", "Invalid RETRYCOUNT value, must be >= 0"),
        ("XNACK s g FAIL IDS 1 1-0 RETRYCOUNT", "Unrecognized XNACK option 'RETRYCOUNT'"),
        ("XNACK s g FAIL IDS 1 x", "Invalid stream ID specified as stream command argument"),
        ("XDELEX s KEEPREF KEEPREF IDS 1 1-0", "syntax error"),
        ("XDELEX s IDS 0 1-0", "Number of IDs must be a positive integer"),
        ("XDELEX s IDS 2 1-0", "The `numids` parameter must match the number of arguments"),
        ("XACKDEL s g DELREF IDS 1 x", "Invalid stream ID specified as stream command argument"),
        (
            "XREAD CLAIM 1 STREAMS s 0",
            "The CLAIM option is only supported by XREADGROUP. You called XREAD instead.",
        ),
        ("XREADGROUP GROUP g b CLAIM x STREAMS s >", "min-idle-time is not an integer or out of range"),
        ("XREADGROUP GROUP g b CLAIM -1 STREAMS s >", "min-idle-time must be a positive integer"),
    ] {
        assert_eq!(b.run(line), format!("-ERR {error}"), "{line}");
    }
    assert_eq!(b.run("XNACK s none FAIL NONSENSE 1 1"), "-NOGROUP No such key 's' or consumer group 'none'");
    assert_eq!(b.run("XDELEX none IDS 2 x 1-0"), "*2|:-1|:-1");
    assert_eq!(b.run("XACKDEL s none IDS 1 x"), "*1|:-1");
}

/// The value of a number in XINFO STREAM.
fn told(b: &mut Bed, name: &str) -> String {
    let info = b.run("XINFO STREAM s");
    info.split(&format!("|{name}|:")).nth(1).and_then(|rest| rest.split('|').next()).unwrap_or("none").into()
}

#[test]
fn an_entry_that_is_sent_twice_is_added_once() {
    let mut b = bed();
    assert_eq!(b.run("XADD s IDMP p a * f v"), "$15|1800000000000-0");
    b.now_ms += 50;
    b.events();
    assert_eq!(b.run("XADD s MAXLEN ~ 9 IDMP p a * other x"), "$15|1800000000000-0");
    assert_eq!(b.events(), Vec::<String>::new());
    assert_eq!(b.run("XADD s IDMP q a * f v"), "$15|1800000000050-0");
    assert_eq!(b.run("XADD s IDMPAUTO p * f v g w"), "$15|1800000000050-1");
    assert_eq!(b.run("XADD s IDMPAUTO p * g w f v"), "$15|1800000000050-1");
    assert_eq!(b.run("XADD s IDMPAUTO p * fv g w f"), "$15|1800000000050-2");
    assert_eq!(b.run("XADD s IDMPAUTO p * f v f v"), "$15|1800000000050-3");
    assert_eq!(told(&mut b, "pids-tracked"), "2");
    assert_eq!(told(&mut b, "iids-tracked"), "5");
    assert_eq!(told(&mut b, "iids-added"), "5");
    assert_eq!(told(&mut b, "iids-duplicates"), "2");
    b.run("XDEL s 1800000000000-0");
    assert_eq!(b.run("XADD s IDMP p a * f v"), "$15|1800000000000-0", "the entry is gone, its name is not");
    assert_eq!(b.run("COPY s t"), ":1");
    assert_eq!(b.run("XADD t IDMP p a * f v"), "$15|1800000000000-0");
    b.now_ms += 99_950;
    assert_eq!(b.run("XADD s IDMP p a * f v"), "$15|1800000100000-0");
    assert_eq!(b.run("XADD s IDMP q a * f v"), "$15|1800000000050-0");
}

#[test]
fn what_is_remembered_of_producers_is_bounded() {
    let mut b = bed();
    assert_eq!(b.run("XCFGSET s IDMP-DURATION 5"), "-ERR no such key");
    b.run("XADD s IDMP p a * f v");
    assert_eq!(told(&mut b, "idmp-duration"), "100");
    assert_eq!(b.run("XCFGSET s IDMP-DURATION 100"), "+OK");
    assert_eq!(told(&mut b, "iids-tracked"), "1");
    assert_eq!(b.run("XCFGSET s IDMP-MAXSIZE 2 IDMP-DURATION 7"), "+OK");
    assert_eq!(told(&mut b, "iids-tracked"), "0");
    run(&mut b, &["XADD s IDMP p a * f v", "XADD s IDMP p b * f v", "XADD s IDMP p c * f v"]);
    assert_eq!(told(&mut b, "iids-tracked"), "2");
    assert_eq!(told(&mut b, "idmp-maxsize"), "2");
    assert_eq!(b.run("XADD s IDMP p b * f v"), "$15|1800000000000-2");
    for (line, error) in [
        ("XADD s IDMP p a 1-1 f v", "syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("XADD s IDMP p a 1-* f v", "syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs"),
        ("XADD s IDMP p a IDMPAUTO  * f v", "syntax error, IDMP/IDMPAUTO specified multiple times"),
        ("XADD s IDMP  a * f v", "syntax error, IDMP requires a non-empty producer ID"),
        ("XADD s IDMP p  * f v", "syntax error, IDMP requires a non-empty idempotent ID"),
        ("XADD s IDMPAUTO  * f v", "syntax error, IDMPAUTO requires a non-empty producer ID"),
        ("XADD s IDMP p * f v", "Invalid stream ID specified as stream command argument"),
        ("XCFGSET s", "At least one parameter must be specified"),
        ("XCFGSET none IDMP-DURATION", "no such key"),
        ("XCFGSET s IDMP-DURATION", "syntax error"),
        ("XCFGSET s IDMP-DURATION 1 IDMP-DURATION 0", "IDMP-DURATION specified multiple times"),
        ("XCFGSET s IDMP-MAXSIZE 1 IDMP-MAXSIZE 1", "IDMP-MAXSIZE specified multiple times"),
        ("XCFGSET s IDMP-DURATION 0", "IDMP-DURATION must be between 1 and 86400 seconds"),
        ("XCFGSET s IDMP-MAXSIZE 10001", "IDMP-MAXSIZE must be between 1 and 10000 entries"),
        ("XCFGSET s IDMP-MAXSIZE 00", "value is not an integer or out of range"),
        ("XIDMPRECORD s  x 1-x", "Invalid stream ID specified as stream command argument"),
        ("XIDMPRECORD s  x 1-1", "producer ID must be non-empty"),
        ("XIDMPRECORD s p  1-1", "idempotent ID must be non-empty"),
        ("XIDMPRECORD s p x 1-1", "No such message in stream"),
        (
            "XIDMPRECORD s p b 1800000000000-1",
            "IID already exists for this producer with a different stream ID",
        ),
    ] {
        assert_eq!(b.run(line), format!("-ERR {error}"), "{line}");
    }
    assert_eq!(b.run("XIDMPRECORD s p b 1800000000000-2"), "+OK");
    assert_eq!(b.run("XIDMPRECORD s r b 1800000000000-2"), "+OK");
    assert_eq!(b.run("XADD s IDMP r b * f v"), "$15|1800000000000-2");
}

#[test]
fn reads_of_several_streams_end_at_a_number_and_at_a_size() {
    let mut b = Bed::new();
    run(&mut b, &["XADD s 1-1 f a", "XADD s 1-2 f b", "XADD t 1-1 f c", "XADD t 1-2 f d"]);
    let entries = |reply: &str| reply.matches("|$1|f|").count();
    for (options, count) in [
        ("MAXCOUNT 3", 3),
        ("COUNT 1 MAXCOUNT 9", 2),
        ("COUNT 2 MAXCOUNT 2", 2),
        ("MAXSIZE 1", 1),
        ("MAXSIZE 40", 2),
        ("MAXSIZE 100000 MAXCOUNT 4", 4),
    ] {
        assert_eq!(entries(&b.run(&format!("XREAD {options} STREAMS s t 0 0"))), count, "{options}");
        run(&mut b, &["XGROUP CREATE s g 0", "XGROUP CREATE t g 0"]);
        let read = format!("XREADGROUP GROUP g c {options} STREAMS s t");
        assert_eq!(entries(&b.run(&format!("{read} > >"))), count, "{options}");
        // Entries not answered are neither pending nor skipped.
        let summary =
            |b: &mut Bed, key: &str| b.run(&format!("XPENDING {key} g - + 9")).matches("|$1|c|").count();
        assert_eq!(summary(&mut b, "s") + summary(&mut b, "t"), count, "{options}");
        assert_eq!(entries(&b.run(&format!("{read} 0 0"))), count, "{options}");
        let rest = b.run("XREADGROUP GROUP g c STREAMS s t > >");
        assert_eq!(entries(&rest), 4 - count, "{options}");
        let claimed = b.run(&format!("XREADGROUP GROUP g d CLAIM 0 {options} STREAMS s t > >"));
        assert_eq!(entries(&claimed), count, "{options}");
        run(&mut b, &["XGROUP DESTROY s g", "XGROUP DESTROY t g"]);
    }
    for options in ["MAXCOUNT 0", "MAXCOUNT -1", "MAXSIZE 0", "MAXSIZE x", "COUNT 3 MAXCOUNT 2", "MAXCOUNT"] {
        assert!(b.run(&format!("XREAD {options} STREAMS s t 0 0")).starts_with("-ERR"), "{options}");
    }
}

#[test]
fn the_journal_gets_ids_and_lengths_that_were_chosen() {
    let mut bed = Bed::new();
    bed.journal_for(JournalReaders::Files);
    bed.run("XADD s * f v");
    bed.run("XADD s MAXLEN 5 * f v");
    assert!(bed.said().is_empty(), "a file's record has the clock that * goes by");
    bed.run("XADD s NOMKSTREAM MAXLEN ~ 1 LIMIT 0 1900000000000-7 f v");
    assert_eq!(bed.said(), ["Old: xadd s NOMKSTREAM MAXLEN = 3 1900000000000-7 f v"]);
    bed.run("XTRIM s MAXLEN 3");
    bed.run("XTRIM s MAXLEN ~ 2");
    assert_eq!(bed.said(), Vec::<String>::new(), "nothing was taken out");
    bed.journal_for(JournalReaders::Replicas);
    assert_eq!(bed.run("XADD s * f v"), "$15|1900000000000-8");
    assert_eq!(bed.said(), ["Old: xadd s 1900000000000-8 f v"]);
    bed.run("XADD s MINID = 1900000000000-7 1900000000000-* f v");
    assert_eq!(bed.said(), ["Old: xadd s MINID 1900000000000-7 1900000000000-9 f v"]);
    bed.run("XADD s 1900000000000-10 f v");
    assert!(bed.said().is_empty(), "the words say it all");
    bed.run("XADD s DELREF MAXLEN 2 1900000000000-11 f v");
    assert_eq!(bed.said(), ["New: xadd s DELREF MAXLEN = 2 1900000000000-11 f v"]);
    bed.run("XADD s IDMP me first * f v");
    assert_eq!(bed.said(), ["New: xadd s IDMP me first * f v"]);
    bed.run("XADD s IDMP me first * f v");
    assert!(bed.said().is_empty(), "nothing was added");
    bed.run("XTRIM s MAXLEN 1 ACKED");
    assert_eq!(bed.said(), ["New: xtrim s ACKED MAXLEN = 1"]);
}
