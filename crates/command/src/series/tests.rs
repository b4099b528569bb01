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
    assert_eq!(bed.run("TS.ALTER t RETENTION 0 LABELS x"), "-ERR TSDB: Couldn't parse LABELS");
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
        ("TS.CREATE x LABELS y", "ERR TSDB: Couldn't parse LABELS"),
        ("TS.CREATE x IGNORE -1 1", "ERR TSDB: IGNORE arguments cannot be negative"),
        ("TS.ADD x y 1", "ERR TSDB: invalid timestamp"),
        ("TS.ADD x -1 1", "ERR TSDB: invalid timestamp, must be a nonnegative integer"),
        ("TS.ADD x 1 y", "ERR TSDB: invalid value"),
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
