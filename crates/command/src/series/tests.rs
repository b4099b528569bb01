use crate::testing::Bed;

#[test]
fn samples_are_added_changed_and_removed() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("TS.CREATE t RETENTION 60000 DUPLICATE_POLICY max LABELS id 2 area a"), "+OK");
    assert_eq!(bed.run("TS.CREATE t"), "-ERR TSDB: key already exists");
    assert_eq!(bed.run("TS.ADD t 1000 26.5"), ":1000");
    assert_eq!(bed.run("TS.ADD t 1000 20"), ":1000");
    assert_eq!(bed.run("TS.GET t"), "*2|:1000|+26.5");
    assert_eq!(bed.run("TS.ADD t 1000 20 ON_DUPLICATE last"), ":1000");
    assert_eq!(bed.run("TS.GET t"), "*2|:1000|+20");
    assert_eq!(
        bed.run("TS.MADD t 2000 1 none 1 1 t 3000 x"),
        "*3|:2000|-ERR TSDB: the key is not a TSDB key|-ERR TSDB: invalid value"
    );
    assert_eq!(bed.run("TS.INCRBY t 5 TIMESTAMP 3000"), ":3000");
    assert_eq!(bed.run("TS.DECRBY t 2 TIMESTAMP 3000"), ":3000");
    assert_eq!(bed.run("TS.RANGE t - +"), "*3|*2|:1000|+20|*2|:2000|+1|*2|:3000|+4");
    assert_eq!(bed.run("TS.REVRANGE t - + COUNT 1"), "*1|*2|:3000|+4");
    assert_eq!(bed.run("TS.DEL t 1500 2500"), ":1");
    assert_eq!(bed.run("TS.RANGE t 1001 +"), "*1|*2|:3000|+4");
    assert_eq!(bed.run("TS.ADD t 100000 1"), ":100000");
    assert_eq!(bed.run("TS.ADD t 1000 1"), "-ERR TSDB: Timestamp is older than retention");
    assert_eq!(bed.run("TS.ADD n * 1"), format!(":{}", bed.now_ms));
    assert_eq!(bed.run("TYPE n"), "+TSDB-TYPE");
    assert_eq!(bed.run("COPY t u"), ":1");
    assert_eq!(bed.run("TS.RANGE u - +"), bed.run("TS.RANGE t - +"));
    assert_eq!(bed.run("TS.ALTER t RETENTION 0 LABELS x ("), "-ERR TSDB: Couldn't parse LABELS");
    assert_eq!(bed.run("TS.ALTER t RETENTION 0 LABELS x y"), "+OK");
    let info = bed.run("TS.INFO t");
    assert!(info.contains("+retentionTime|:0|") && info.contains("+labels|*1|*2|$1|x|$1|y|"), "{info}");
    bed.resp3 = true;
    assert_eq!(bed.run("TS.GET t"), "*2|:100000|,1");
}

/// The examples of the docs of TS.RANGE.
#[test]
fn buckets_are_answered() {
    let mut bed = Bed::new();
    bed.run("TS.CREATE s");
    bed.run("TS.MADD s 1000 100 s 1010 110 s 1020 120 s 2000 200 s 2010 210 s 2020 220 s 3000 300 s 3010 310 s 3020 320");
    assert_eq!(
        bed.run("TS.RANGE s - + AGGREGATION min 20"),
        "*6|*2|:1000|+100|*2|:1020|+120|*2|:2000|+200|*2|:2020|+220|*2|:3000|+300|*2|:3020|+320"
    );
    assert_eq!(
        bed.run("TS.RANGE s - + ALIGN 10 AGGREGATION min 20 COUNT 2"),
        "*2|*2|:990|+100|*2|:1010|+110"
    );
    assert_eq!(bed.run("TS.RANGE s 5 30 ALIGN - AGGREGATION min 20"), "*0");
    assert_eq!(
        bed.run("TS.REVRANGE s 1000 1999 AGGREGATION min,max 1000 BUCKETTIMESTAMP end"),
        "*1|*3|:2000|+100|+120"
    );
    assert_eq!(bed.run("TS.RANGE s - + FILTER_BY_TS 1000 2010 FILTER_BY_VALUE 200 300"), "*1|*2|:2010|+210");
}

#[test]
fn bad_arguments_have_their_own_errors() {
    let mut bed = Bed::new();
    bed.run("TS.CREATE t");
    bed.run("TS.ADD t 5 5");
    for (line, error) in [
        ("TS.CREATE x RETENTION -1", "ERR TSDB: Couldn't parse RETENTION"),
        (
            "TS.CREATE x CHUNK_SIZE 50",
            "ERR TSDB: CHUNK_SIZE value must be a multiple of 8 in the range [48 .. 1048576]",
        ),
        ("TS.CREATE x CHUNK_SIZE y", "ERR TSDB: Couldn't parse CHUNK_SIZE"),
        ("TS.CREATE x ENCODING y", "ERR TSDB: unknown ENCODING parameter"),
        ("TS.CREATE x DUPLICATE_POLICY y", "ERR TSDB: Unknown DUPLICATE_POLICY"),
        ("TS.CREATE x LABELS y ,", "ERR TSDB: Couldn't parse LABELS"),
        ("TS.CREATE x LABELS y z RETENTION -2", "ERR TSDB: Couldn't parse RETENTION"),
        ("TS.CREATE x LABELS y z CHUNK_SIZE abc", "ERR TSDB: Couldn't parse CHUNK_SIZE"),
        ("TS.CREATE x IGNORE -1 1", "ERR TSDB: IGNORE arguments cannot be negative"),
        ("TS.ADD x y 1", "ERR TSDB: invalid timestamp"),
        ("TS.ADD x -1 1", "ERR TSDB: invalid timestamp, must be a nonnegative integer"),
        ("TS.ADD x 1 y", "ERR TSDB: invalid value"),
        ("TS.ADD x 1 1.", "ERR TSDB: invalid value"),
        ("TS.ADD x 1 .5", "ERR TSDB: invalid value"),
        ("TS.ADD x 1 +1", "ERR TSDB: invalid value"),
        ("TS.ADD x 1 01", "ERR TSDB: invalid value"),
        ("TS.ADD x 1 0x1", "ERR TSDB: invalid value"),
        ("TS.ADD x 1 inf", "ERR TSDB: invalid value"),
        ("TS.ADD x 1 1e", "ERR TSDB: invalid value"),
        ("TS.ALTER x RETENTION 1", "ERR TSDB: the key does not exist"),
        ("TS.INCRBY x y", "ERR TSDB: invalid increase/decrease value"),
        (
            "TS.INCRBY t 1 TIMESTAMP 4",
            "TSDB: timestamp must be equal to or higher than the maximum existing timestamp",
        ),
        ("TS.GET x", "ERR TSDB: the key does not exist"),
        ("TS.RANGE t x +", "ERR TSDB: wrong fromTimestamp"),
        ("TS.RANGE t - x", "ERR TSDB: wrong toTimestamp"),
        ("TS.RANGE t - + COUNT", "ERR TSDB: COUNT argument is missing"),
        ("TS.RANGE t - + COUNT -1", "ERR TSDB: Invalid COUNT value"),
        ("TS.RANGE t - + AGGREGATION x 5", "ERR TSDB: Unknown aggregation type"),
        ("TS.RANGE t - + AGGREGATION sum 0", "ERR TSDB: bucketDuration must be greater than zero"),
        ("TS.RANGE t - + ALIGN 5", "ERR TSDB: ALIGN parameter can only be used with AGGREGATION"),
        (
            "TS.RANGE t - + ALIGN - AGGREGATION sum 5",
            "ERR TSDB: start alignment can only be used with explicit start timestamp",
        ),
        (
            "TS.RANGE t - + ALIGN + AGGREGATION sum 5",
            "ERR TSDB: end alignment can only be used with explicit end timestamp",
        ),
        ("TS.RANGE t - + FILTER_BY_TS", "ERR TSDB: FILTER_BY_TS one or more arguments are missing"),
        ("TS.RANGE t - + FILTER_BY_VALUE 1", "ERR TSDB: FILTER_BY_VALUE one or more arguments are missing"),
    ] {
        assert_eq!(bed.run(line), format!("-{error}"), "{line}");
    }
    assert!(bed.run("TS.ADD t 5 6").starts_with("-ERR TSDB: Error at upsert"));
}

/// A source and the series it feeds, in any shards.
fn fed(bed: &mut Bed) {
    for line in [
        "TS.CREATE src LABELS kind raw",
        "TS.CREATE dst LABELS kind sum",
        "TS.CREATERULE src dst AGGREGATION sum 10",
    ] {
        assert_eq!(bed.run(line), "+OK", "{line}");
    }
    for line in
        ["TS.ADD src 1 1", "TS.ADD src 5 2", "TS.MADD src 12 4 src 15 8", "TS.INCRBY src 1 TIMESTAMP 21"]
    {
        assert!(!bed.run(line).contains("-ERR"), "{line}");
    }
}

#[test]
fn a_rule_feeds_another_series() {
    let mut bed = Bed::new();
    fed(&mut bed);
    assert_eq!(bed.run("TS.RANGE dst - +"), "*2|*2|:0|+3|*2|:10|+12");
    assert_eq!(bed.run("TS.GET dst LATEST"), "*2|:20|+9");
    assert_eq!(bed.run("TS.REVRANGE dst - + LATEST COUNT 1"), "*1|*2|:20|+9");
    assert_eq!(bed.run("TS.MGET LATEST FILTER kind=sum"), "*1|*3|$3|dst|*0|*2|:20|+9");
    assert_eq!(bed.run("TS.ADD src 6 7"), ":6");
    assert_eq!(bed.run("TS.GET dst"), "*2|:10|+12");
    assert_eq!(bed.run("TS.RANGE dst 0 9"), "*1|*2|:0|+10");
    assert_eq!(bed.run("TS.DEL src 12 12"), ":1");
    assert_eq!(bed.run("TS.GET dst"), "*2|:10|+8");
    assert!(bed.events().contains(&"ts.add:dest dst".to_owned()));
    for (line, error) in [
        ("TS.CREATERULE src src AGGREGATION sum 1", "the source key and destination key should be different"),
        ("TS.CREATERULE dst x AGGREGATION sum 1", "the source key already has a source rule"),
        ("TS.CREATERULE n src AGGREGATION sum 1", "the key does not exist"),
        ("TS.CREATERULE src dst AGGREGATION sum 1", "the destination key already has a src rule"),
        ("TS.CREATERULE src dst AGGREGATION sum 0", "bucketDuration must be greater than zero"),
        ("TS.CREATERULE src dst AGGREGATION sum,min 1", "CREATERULE requires exactly one aggregation type"),
        ("TS.DELETERULE src x", "compaction rule does not exist"),
    ] {
        assert_eq!(bed.run(line), format!("-ERR TSDB: {error}"), "{line}");
    }
    assert_eq!(bed.run("TS.DELETERULE src dst"), "+OK");
    assert_eq!(bed.run("TS.ADD src 500 1"), ":500");
    assert_eq!(bed.run("TS.GET dst LATEST"), "*2|:10|+8");
    assert!(bed.run("TS.INFO dst").contains("+sourceKey|$-1|"));
}

#[test]
fn rules_follow_names_and_forget_copies() {
    // Names whose shards differ and agree.
    for n in 0..12 {
        let mut bed = Bed::new();
        fed(&mut bed);
        assert_eq!(bed.run(&format!("RENAME src s{n}")), "+OK");
        assert_eq!(bed.run(&format!("RENAME dst d{n}")), "+OK");
        assert_eq!(bed.run(&format!("TS.ADD s{n} 31 5")), ":31");
        assert_eq!(bed.run(&format!("TS.GET d{n}")), "*2|:20|+9");
        assert!(
            bed.run(&format!("TS.INFO d{n}"))
                .contains(&format!("+sourceKey|${}|s{n}|", 1 + n.to_string().len()))
        );
        assert!(bed.run(&format!("TS.INFO s{n}")).contains(&format!("d{n}|:10|+SUM|:0|")));
        assert_eq!(bed.run("TS.QUERYINDEX kind=sum"), format!("*1|${}|d{n}", 1 + n.to_string().len()));
        assert_eq!(bed.run(&format!("COPY s{n} copy")), ":1");
        assert!(bed.run("TS.INFO copy").contains("+rules|*0|"));
        assert_eq!(bed.run(&format!("DEL d{n}")), ":1");
        assert!(bed.run(&format!("TS.INFO s{n}")).contains("+rules|*0|"));
        assert_eq!(bed.run(&format!("TS.CREATE d{n}")), "+OK");
        assert_eq!(bed.run(&format!("TS.ADD s{n} 41 5")), ":41");
        assert_eq!(bed.run(&format!("TS.GET d{n}")), "*0");
        assert_eq!(bed.run(&format!("TS.CREATERULE s{n} d{n} AGGREGATION max 10")), "+OK");
        assert_eq!(bed.run("FLUSHALL"), "+OK");
        assert_eq!(bed.run("TS.QUERYINDEX kind=sum"), "*0");
    }
}

#[test]
fn series_are_found_by_labels() {
    let mut bed = Bed::new();
    for (name, labels, value) in
        [("a", "team x city 1", 1), ("b", "team x city 2", 2), ("c", "team y city 1", 4), ("d", "team y", 8)]
    {
        bed.run(&format!("TS.CREATE {name} LABELS {labels}"));
        bed.run(&format!("TS.MADD {name} 10 {value} {name} 20 {}", value * 10));
    }
    for (filter, keys) in [
        ("team=x", "ab"),
        ("team=(x,y)", "abcd"),
        ("team=(x,y) city=1", "ac"),
        ("team=x city!=1", "b"),
        ("team=(x,y) city=", "d"),
        ("team=(x,y) city!=", "abc"),
        ("team=y city!=(1,2)", "d"),
        ("team=z", ""),
        ("team=()", ""),
    ] {
        let keys: Vec<String> = keys.chars().map(|key| format!("|$1|{key}")).collect();
        assert_eq!(
            bed.run(&format!("TS.QUERYINDEX {filter}")),
            format!("*{}{}", keys.len(), keys.concat()),
            "{filter}"
        );
    }
    assert_eq!(bed.run("TS.QUERYINDEX team!=x"), "-ERR TSDB: please provide at least one matcher");
    assert_eq!(bed.run("TS.QUERYINDEX team"), "-ERR TSDB: failed parsing labels");
    assert_eq!(bed.run("TS.QUERYINDEX team=(x"), "-ERR TSDB: failed parsing labels");
    assert_eq!(bed.run("TS.QUERYLABELS LABELS"), "*2|$4|city|$4|team");
    assert_eq!(bed.run("TS.QUERYLABELS VALUES city FILTER team=x"), "*2|$1|1|$1|2");
    assert_eq!(
        bed.run("TS.MGET SELECTED_LABELS city none FILTER team=x city=2"),
        "*1|*3|$1|b|*2|*2|$4|city|$1|2|*2|$4|none|$-1|*2|:20|+20"
    );
    assert_eq!(
        bed.run("TS.MRANGE - + WITHLABELS FILTER team=y city!="),
        "*1|*3|$1|c|*2|*2|$4|team|$1|y|*2|$4|city|$1|1|*2|*2|:10|+4|*2|:20|+40"
    );
    assert_eq!(
        bed.run("TS.MREVRANGE - + COUNT 1 FILTER team=(x,y) GROUPBY team REDUCE sum"),
        "*2|*3|$6|team=x|*0|*1|*2|:20|+30|*3|$6|team=y|*0|*1|*2|:20|+120"
    );
    assert_eq!(
        bed.run("TS.MRANGE - + WITHLABELS COUNT 1 FILTER team=x GROUPBY team REDUCE max"),
        "*1|*3|$6|team=x|*3|*2|$4|team|$1|x|*2|$11|__reducer__|$3|max|*2|$10|__source__|$3|a,b|*1|*2|:10|+2"
    );
    assert_eq!(bed.run("TS.MRANGE 15 16 FILTER team=x EXCLUDEEMPTY"), "*0");
    assert_eq!(bed.run("TS.NRANGE 2 a b - + AGGREGATION min sum,max 100"), "*1|*2|:0|*3|+1|+22|+20");
    assert_eq!(bed.run("TS.ALTER a LABELS team z"), "+OK");
    assert_eq!(bed.run("TS.QUERYINDEX team=z"), "*1|$1|a");
    assert_eq!(bed.run("TS.QUERYINDEX team=x"), "*1|$1|b");
    assert_eq!(bed.run("SET b text"), "+OK");
    assert_eq!(bed.run("MOVE c 1"), ":1");
    assert_eq!(bed.run("TS.QUERYINDEX team=(x,y,z)"), "*2|$1|a|$1|d");
    assert_eq!(bed.run("SWAPDB 0 1"), "+OK");
    assert_eq!(bed.run("TS.QUERYINDEX team=(x,y,z)"), "*1|$1|c");
    bed.resp3 = true;
    assert_eq!(
        bed.run("TS.MRANGE - + WITHLABELS AGGREGATION sum 100 FILTER team=y"),
        "%1|$1|c|*3|%2|$4|team|$1|y|$4|city|$1|1|%1|$11|aggregators|*1|$3|sum|*1|*2|:0|,44"
    );
    assert_eq!(bed.run("TS.QUERYINDEX team=y"), "~1|$1|c");
}

#[test]
fn samples_are_read_from_a_time_on() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("TS.READ t -"), "*0");
    bed.run("TS.CREATE t");
    bed.run("TS.MADD t 1 1 t 2 2 t 3 3");
    assert_eq!(bed.run("TS.READ t 2"), "*2|*2|:2|+2|*2|:3|+3");
    assert_eq!(bed.run("TS.READ t + BLOCK 0 1"), "*1|*2|:3|+3");
    assert_eq!(bed.run("TS.READ t $"), "*0");
    assert_eq!(bed.run("TS.READ t - MAX_COUNT 1"), "*1|*2|:1|+1");
    assert_eq!(bed.run("TS.READ t x"), "-TSDB: invalid timestamp");
    assert_eq!(bed.run("TS.READ t - BLOCK 1 3 MAX_COUNT 2"), "-TSDB: BLOCK min_count must be <= MAX_COUNT");
}

#[test]
fn options_count_among_labels_too_and_an_odd_word_is_ignored() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("TS.CREATE t LABELS a b RETENTION 5000 odd"), "+OK");
    let info = bed.run("TS.INFO t");
    assert!(info.contains("+retentionTime|:5000|"), "{info}");
    assert_eq!(bed.run("TS.QUERYINDEX RETENTION=5000 a=b"), "*1|$1|t");
}

#[test]
fn numbers_are_written_as_redistimeseries_writes_them() {
    let mut bed = Bed::new();
    for (at, (number, shown)) in [
        ("1.7976931348623157E+308", "1.7976931348623157E308"),
        ("21001.0000002", "21001.0000002"),
        ("1e-20", "1E-20"),
        ("-0.5", "-0.5"),
        ("40", "40"),
        ("nan", "NaN"),
    ]
    .into_iter()
    .enumerate()
    {
        bed.run(&format!("TS.ADD t {at} {number}"));
        assert_eq!(bed.run(&format!("TS.RANGE t {at} {at}")), format!("*1|*2|:{at}|+{shown}"));
    }
}

#[test]
fn a_group_whose_series_have_no_number_has_none() {
    let mut bed = Bed::new();
    for (key, samples) in [("a", "1 1 51 3"), ("b", "2 2 51 4")] {
        bed.run(&format!("TS.CREATE {key} LABELS of all"));
        let words: Vec<&str> = samples.split(' ').collect();
        words.chunks(2).for_each(|pair| _ = bed.run(&format!("TS.ADD {key} {} {}", pair[0], pair[1])));
    }
    let line = "TS.MRANGE 0 59 AGGREGATION max 25 EMPTY FILTER of=all GROUPBY of REDUCE";
    let rows = |reply: String| reply.split("*3|*2|").nth(1).unwrap_or_default().to_owned();
    assert_eq!(rows(bed.run(&format!("{line} sum"))), ":0|+3|*2|:25|+NaN|*2|:50|+7");
}
