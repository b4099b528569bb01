use crate::testing::Bed;

#[test]
fn items_are_counted_and_sketches_merged() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("CMS.INITBYDIM a 1000 5"), "+OK");
    assert_eq!(bed.run("CMS.INITBYDIM a 1000 5"), "-CMS: key already exists");
    assert_eq!(bed.run("CMS.INITBYPROB p 0.01 0.01"), "+OK");
    assert_eq!(bed.run("CMS.INFO p"), "*6|+width|:200|+depth|:7|+count|:0");
    assert_eq!(bed.run("CMS.INCRBY a foo 5 bar 3 foo 2"), "*3|:5|:3|:7");
    assert_eq!(bed.run("CMS.QUERY a foo bar baz"), "*3|:7|:3|:0");
    bed.run("CMS.INITBYDIM b 1000 5");
    bed.run("CMS.INITBYDIM c 1000 5");
    bed.run("CMS.INCRBY b foo 1");
    assert_eq!(bed.run("CMS.MERGE c 2 a b WEIGHTS 2 10"), "+OK");
    assert_eq!(bed.run("CMS.QUERY c foo bar"), "*2|:24|:6");
    assert_eq!(bed.run("CMS.MERGE c 1 c"), "+OK");
    assert_eq!(bed.run("CMS.INFO c"), "*6|+width|:1000|+depth|:5|+count|:30");
    assert_eq!(bed.run("CMS.MERGE c 1 c WEIGHTS -1"), "-CMS: MERGE overflow");
    assert_eq!(bed.run("CMS.INCRBY a foo 4294967295"), "*1|-CMS: INCRBY overflow");
    assert_eq!(bed.run("TYPE a"), "+CMSk-TYPE");
}

#[test]
fn bad_arguments_have_their_own_errors() {
    let mut bed = Bed::new();
    bed.run("CMS.INITBYDIM a 10 5");
    bed.run("CMS.INITBYDIM b 11 5");
    for (line, error) in [
        ("CMS.INITBYDIM x 0 5", "CMS: invalid width"),
        ("CMS.INITBYDIM x 5 y", "CMS: invalid depth"),
        ("CMS.INITBYDIM x 9223372036854775807 2", "CMS: invalid init arguments"),
        ("CMS.INITBYDIM x 9223372036854775807 1", "CMS: Insufficient memory to create the key"),
        ("CMS.INITBYPROB x nan 0.1", "CMS: invalid overestimation value"),
        ("CMS.INITBYPROB x 0.1 1", "CMS: invalid prob value"),
        ("CMS.INCRBY x a 1", "CMS: key does not exist"),
        ("CMS.INCRBY a a x", "CMS: Cannot parse number"),
        ("CMS.INCRBY a a -1", "CMS: Number cannot be negative"),
        ("CMS.INCRBY a a 1 b", "ERR wrong number of arguments for 'cms.incrby' command"),
        ("CMS.MERGE x 1 a", "CMS: key does not exist"),
        ("CMS.MERGE a x a", "CMS: invalid numkeys"),
        ("CMS.MERGE a 0 a", "CMS: Number of keys must be positive"),
        ("CMS.MERGE a 2 a", "CMS: wrong number of keys"),
        ("CMS.MERGE a 1 a WEIGHTS 1 2", "CMS: wrong number of keys/weights"),
        ("CMS.MERGE a 1 a WEIGHTS x", "CMS: invalid weight value"),
        ("CMS.MERGE a 1 b", "CMS: width/depth is not equal"),
    ] {
        assert_eq!(bed.run(line), format!("-{error}"), "{line}");
    }
}
