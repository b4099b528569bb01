use crate::testing::Bed;

#[test]
fn items_are_added_counted_and_deleted() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("CF.RESERVE f 1000 BUCKETSIZE 4 MAXITERATIONS 50 EXPANSION 3"), "+OK");
    assert_eq!(bed.run("CF.RESERVE f 1000"), "-ERR item exists");
    assert_eq!(bed.run("CF.ADD f a"), ":1");
    assert_eq!(bed.run("CF.ADD f a"), ":1");
    assert_eq!(bed.run("CF.ADDNX f a"), ":0");
    assert_eq!(bed.run("CF.COUNT f a"), ":2");
    assert_eq!(bed.run("CF.INSERT f ITEMS a b"), "*2|:1|:1");
    assert_eq!(bed.run("CF.INSERTNX f ITEMS b c"), "*2|:0|:1");
    assert_eq!(bed.run("CF.DEL f a"), ":1");
    assert_eq!(bed.run("CF.DEL f zz"), ":0");
    assert_eq!(bed.run("CF.DEL none a"), "-Not found");
    assert_eq!(bed.run("CF.MEXISTS f a c x"), "*3|:1|:1|:0");
    let info = "*16|+Size|:1080|+Number of buckets|:256|+Number of filters|:1|+Number of items inserted|:4|\
                +Number of items deleted|:1|+Bucket size|:4|+Expansion rate|:4|+Max iterations|:50";
    assert_eq!(bed.run("CF.INFO f"), info);
    assert_eq!(bed.run("CF.COMPACT f"), "+OK");
    assert_eq!(bed.run("TYPE f"), "+MBbloomCF");
    bed.resp3 = true;
    assert_eq!(bed.run("CF.ADD f a"), "#t");
    assert_eq!(bed.run("CF.INSERTNX f ITEMS a"), "*1|:0");
    assert_eq!(bed.run("CF.EXISTS f a"), "#t");
}

#[test]
fn bad_arguments_have_their_own_errors() {
    let mut bed = Bed::new();
    for (line, error) in [
        ("CF.RESERVE f x", "Bad capacity"),
        ("CF.RESERVE f 1", "Capacity must be in the range [2 * BUCKETSIZE, 1073741824]"),
        ("CF.RESERVE f 9 BUCKETSIZE x", "Couldn't parse BUCKETSIZE"),
        ("CF.RESERVE f 9 BUCKETSIZE 256", "BUCKETSIZE: value must be in the range [1, 255]"),
        ("CF.RESERVE f 9 MAXITERATIONS 0", "MAXITERATIONS: value must be in the range [1, 65535]"),
        ("CF.RESERVE f 9 EXPANSION 32769", "EXPANSION: value must be in the range [0, 32768]"),
        ("CF.RESERVE f 9 EXPANSION", "ERR wrong number of arguments for 'cf.reserve' command"),
        ("CF.INSERT f NOCREATE ITEMS a", "ERR not found"),
        ("CF.INSERT f CAPACITY x ITEMS a", "Bad capacity"),
        ("CF.LOADCHUNK f 0 x", "Invalid position"),
        ("CF.LOADCHUNK f 1 x", "Invalid header"),
        ("CF.LOADCHUNK f 5 x", "ERR not found"),
        ("CF.SCANDUMP f -1", "Invalid position"),
        ("CF.INFO f", "ERR not found"),
    ] {
        assert_eq!(bed.run(line), format!("-{error}"), "{line}");
    }
}

#[test]
fn a_filter_that_does_not_grow_is_full() {
    let mut bed = Bed::new();
    bed.run("CF.RESERVE f 4 BUCKETSIZE 2 EXPANSION 0");
    let answers: Vec<String> = (0..40).map(|n| bed.run(&format!("CF.ADD f item{n}"))).collect();
    assert!(answers.iter().any(|answer| answer == "-Filter is full"), "{answers:?}");
    assert!(bed.run("CF.INSERT f ITEMS y y y y y y").ends_with(":-1"));
}
