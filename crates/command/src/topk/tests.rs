use crate::testing::Bed;

#[test]
fn frequent_items_are_listed() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("TOPK.RESERVE t 2 50 4 0.9"), "+OK");
    assert_eq!(bed.run("TOPK.RESERVE t 2"), "-TopK: key already exists");
    assert_eq!(bed.run("TOPK.ADD t a b"), "*2|$-1|$-1");
    assert_eq!(bed.run("TOPK.INCRBY t a 5 c 3"), "*2|$-1|$1|b");
    assert_eq!(bed.run("TOPK.LIST t"), "*2|$1|a|$1|c");
    assert_eq!(bed.run("TOPK.LIST t WITHCOUNT"), "*4|$1|a|:6|$1|c|:3");
    assert_eq!(bed.run("TOPK.QUERY t a b"), "*2|:1|:0");
    assert_eq!(bed.run("TOPK.COUNT t a b c"), "*3|:6|:1|:3");
    assert_eq!(bed.run("TOPK.INFO t"), "*8|+k|:2|+width|:50|+depth|:4|+decay|$3|0.9");
    assert_eq!(bed.run("TYPE t"), "+TopK-TYPE");
    assert_eq!(bed.run("COPY t u"), ":1");
    assert_eq!(bed.run("TOPK.LIST u WITHCOUNT"), "*4|$1|a|:6|$1|c|:3");
}

#[test]
fn bad_arguments_have_their_own_errors() {
    let mut bed = Bed::new();
    bed.run("TOPK.RESERVE t 2");
    for (line, error) in [
        ("TOPK.RESERVE x 0", "TopK: invalid k"),
        ("TOPK.RESERVE x 1 0 1 1", "TopK: invalid width"),
        ("TOPK.RESERVE x 1 1 x 1", "TopK: invalid depth"),
        ("TOPK.RESERVE x 1 1 1 nan", "TopK: invalid decay value. must be '<= 1' & '> 0'"),
        ("TOPK.RESERVE x 1 1", "ERR wrong number of arguments for 'topk.reserve' command"),
        ("TOPK.RESERVE x 4294967295", "ERR Insufficient memory to create topk data structure"),
        ("TOPK.ADD x a", "TopK: key does not exist"),
        ("TOPK.LIST x", "TopK: key does not exist"),
        ("TOPK.LIST t x", "WITHCOUNT keyword expected"),
    ] {
        assert_eq!(bed.run(line), format!("-{error}"), "{line}");
    }
    let broken = bed.run("TOPK.INCRBY t a 1 b 100001 c 1");
    assert!(broken.starts_with("*2|$-1|-TopK: increment must be an integer"), "{broken}");
}
