use crate::testing::Bed;

#[test]
fn places_are_set_read_and_removed() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("ARSET a 0 x y z"), ":3");
    assert_eq!(bed.run("ARSET a 1 Y 2nd 3rd"), ":1");
    assert_eq!(bed.run("ARMSET a 100 c 18446744073709551614 end"), ":2");
    assert_eq!(bed.run("ARMGET a 0 1 9 100"), "*4|$1|x|$1|Y|$-1|$1|c");
    assert_eq!(bed.run("ARLEN a"), ":18446744073709551615");
    assert_eq!(bed.run("ARCOUNT a"), ":6");
    assert_eq!(bed.run("ARDEL a 18446744073709551614 7"), ":1");
    assert_eq!(bed.run("ARLEN a"), ":101");
    assert_eq!(bed.run("ARGETRANGE a 2 5"), "*4|$3|2nd|$3|3rd|$-1|$-1");
    assert_eq!(bed.run("ARGETRANGE a 5 2"), "*4|$-1|$-1|$3|3rd|$3|2nd");
    assert_eq!(bed.run("ARGETRANGE none 1 0"), "*2|$-1|$-1");
    assert_eq!(bed.run("ARSCAN a 101 1 LIMIT 2"), "*2|*2|:100|$1|c|*2|:3|$3|3rd");
    assert_eq!(bed.run("ARDELRANGE a 0 2 1 50"), ":4");
    assert_eq!(bed.run("TYPE a"), "+array");
    assert_eq!(bed.run("OBJECT ENCODING a"), "$12|sliced-array");
    assert_eq!(bed.run("COPY a b"), ":1");
    assert_eq!(bed.run("ARSCAN b 0 1000"), "*1|*2|:100|$1|c");
    bed.events();
    assert_eq!(bed.run("ARDEL a 100"), ":1");
    assert_eq!(bed.events(), ["ardel a", "del a"]);
    assert_eq!(bed.run("EXISTS a"), ":0");
    for (line, error) in [
        ("ARSET b -1 x", "ERR invalid array index"),
        ("ARSET b 18446744073709551615 x", "ERR invalid array index"),
        ("ARSET b 18446744073709551614 x y", "ERR invalid array index"),
        ("ARDEL b 1 x", "ERR invalid array index"),
        ("ARGETRANGE b 0 1000000", "ERR range exceeds maximum of 1000000 items"),
        ("ARINFO none", "ERR no such key"),
        ("AROP b 0 1 MATCH", "ERR syntax error"),
        ("ARGREP b 0 1 RE (", "ERR invalid regular expression"),
    ] {
        assert_eq!(bed.run(line), format!("-{error}"), "{line}");
    }
    bed.run("SET s x");
    assert!(bed.run("ARSET s 0 x").starts_with("-WRONGTYPE"));
}

#[test]
fn a_ring_goes_round_and_changes_its_size() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("ARRING r 3 a b c d"), ":0");
    assert_eq!(bed.run("ARLASTITEMS r 9"), "*3|$1|b|$1|c|$1|d");
    assert_eq!(bed.run("ARRING r 5 e"), ":3");
    assert_eq!(bed.run("ARGETRANGE r 0 3"), "*4|$1|b|$1|c|$1|d|$1|e");
    assert_eq!(bed.run("ARRING r 2 f"), ":0");
    assert_eq!(bed.run("ARLASTITEMS r 2 REV"), "*2|$1|f|$1|e");
    assert_eq!(bed.run("ARLEN r"), ":2");
    assert_eq!(bed.run("ARSEEK r 18446744073709551614"), ":1");
    assert_eq!(bed.run("ARINSERT r z"), ":18446744073709551614");
    assert_eq!(bed.run("ARNEXT r"), "$-1");
    assert_eq!(bed.run("ARINSERT r z"), "-ERR insert index overflow");
    assert_eq!(bed.run("ARSEEK r 0"), ":1");
    assert_eq!(bed.run("ARNEXT r"), ":0");
    assert_eq!(bed.run("ARSEEK none 0"), ":0");
    // Places are not gone through one by one.
    bed.run("ARMSET far 0 a 9223372036854775808 b");
    assert_eq!(bed.run("ARRING far 9223372036854775807 c"), ":0");
    assert_eq!(bed.run("ARSCAN far 0 18446744073709551614"), "*2|*2|:0|$1|c|*2|:9223372036854775806|$1|b");
}

#[test]
fn elements_are_searched_and_added_up() {
    let mut bed = Bed::new();
    bed.run("ARSET a 0 1 two 3.5 Four 18");
    assert_eq!(bed.run("AROP a 4 0 SUM"), "$4|22.5");
    assert_eq!(bed.run("AROP a 0 4 MIN"), "$1|1");
    assert_eq!(bed.run("AROP a 0 4 OR"), ":19");
    assert_eq!(bed.run("AROP a 1 1 MAX"), "$-1");
    assert_eq!(bed.run("AROP a 0 9 USED"), ":5");
    assert_eq!(bed.run("AROP a 0 9 MATCH two"), ":1");
    assert_eq!(bed.run("ARGREP a - + MATCH o"), "*2|:1|:3");
    assert_eq!(bed.run("ARGREP a + - EXACT FOUR GLOB t* NOCASE"), "*2|:3|:1");
    assert_eq!(bed.run("ARGREP a 0 4 MATCH o RE ^t AND WITHVALUES"), "*1|*2|:1|$3|two");
    assert_eq!(bed.run("ARGREP a 0 4 RE ^[0-9.]+$ LIMIT 2"), "*2|:0|:2");
    let info = bed.run("ARINFO a FULL");
    assert!(info.contains("$5|count|:5|$3|len|:5|$17|next-insert-index|:0|"), "{info}");
}
