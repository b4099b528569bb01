use crate::testing::Bed;

#[test]
fn quantiles_and_ranks_of_few_values_are_exact() {
    let mut bed = Bed::new();
    assert_eq!(bed.run("TDIGEST.CREATE t COMPRESSION 1000"), "+OK");
    assert_eq!(bed.run("TDIGEST.CREATE t"), "-ERR T-Digest: key already exists");
    assert_eq!(bed.run("TDIGEST.MIN t"), "$3|nan");
    assert_eq!(bed.run("TDIGEST.QUANTILE t 0.5"), "*1|$3|nan");
    assert_eq!(bed.run("TDIGEST.RANK t 0.5"), "*1|:-2");
    assert_eq!(bed.run("TDIGEST.ADD t 1 2 2 3 3 3 4 4 4 4 5 5 5 5 5"), "+OK");
    assert_eq!(bed.run("TDIGEST.MIN t"), "$1|1");
    assert_eq!(bed.run("TDIGEST.MAX t"), "$1|5");
    assert_eq!(bed.run("TDIGEST.QUANTILE t 0 0.1 0.5 0.9 1"), "*5|$1|1|$1|2|$1|4|$1|5|$1|5");
    assert_eq!(bed.run("TDIGEST.RANK t 0 1 2 6"), "*4|:-1|:0|:2|:15");
    assert_eq!(bed.run("TDIGEST.REVRANK t 0 5 6"), "*3|:15|:2|:-1");
    assert_eq!(bed.run("TDIGEST.BYRANK t 0 14 15"), "*3|$1|1|$1|5|$3|inf");
    assert_eq!(bed.run("TDIGEST.BYREVRANK t 0 14 15"), "*3|$1|5|$1|1|$4|-inf");
    assert_eq!(bed.run("TDIGEST.CDF t 0 6"), "*2|$1|0|$1|1");
    assert_eq!(bed.run("TDIGEST.TRIMMED_MEAN t 0.2 0.8"), "$17|3.888888888888889");
    let info = bed.run("TDIGEST.INFO t");
    assert!(
        info.starts_with("*18|+Compression|:1000|+Capacity|:6010|+Merged nodes|:15|+Unmerged nodes|:0"),
        "{info}"
    );
    assert_eq!(bed.run("TDIGEST.RESET t"), "+OK");
    assert_eq!(bed.run("TDIGEST.MAX t"), "$3|nan");
    assert_eq!(bed.run("TYPE t"), "+TDIS-TYPE");
}

#[test]
fn digests_are_merged() {
    let mut bed = Bed::new();
    for (key, compression, values) in [("a", 100, "1 2 3"), ("b", 200, "4 5 6")] {
        bed.run(&format!("TDIGEST.CREATE {key} COMPRESSION {compression}"));
        bed.run(&format!("TDIGEST.ADD {key} {values}"));
    }
    let compression = |bed: &mut Bed| bed.run("TDIGEST.INFO d").split('|').nth(2).map(str::to_owned);
    assert_eq!(bed.run("TDIGEST.MERGE d 2 a b"), "+OK");
    assert_eq!(compression(&mut bed).as_deref(), Some(":200"));
    assert_eq!(bed.run("TDIGEST.BYRANK d 0 1 2 3 4 5"), "*6|$1|1|$1|2|$1|3|$1|4|$1|5|$1|6");
    assert_eq!(bed.run("TDIGEST.MERGE d 1 a"), "+OK");
    assert_eq!(bed.run("TDIGEST.RANK d 7"), "*1|:9");
    assert_eq!(bed.run("TDIGEST.MERGE d 1 a COMPRESSION 50 OVERRIDE"), "+OK");
    assert_eq!((compression(&mut bed).as_deref(), &*bed.run("TDIGEST.RANK d 7")), (Some(":50"), "*1|:3"));
}

#[test]
fn bad_arguments_have_their_own_errors() {
    let mut bed = Bed::new();
    bed.run("TDIGEST.CREATE t");
    bed.run("SET s x");
    for (line, error) in [
        ("TDIGEST.CREATE x COMPRESSION y", "ERR T-Digest: error parsing compression parameter"),
        (
            "TDIGEST.CREATE x COMPRESSION 0",
            "ERR T-Digest: compression parameter needs to be a positive integer",
        ),
        ("TDIGEST.CREATE x COMPRESSION 9223372036854775807", "ERR T-Digest: allocation failed"),
        ("TDIGEST.CREATE x y 1", "ERR T-Digest: wrong keyword"),
        ("TDIGEST.CREATE x 1", "ERR wrong number of arguments for 'tdigest.create' command"),
        ("TDIGEST.ADD x 1", "ERR T-Digest: key does not exist"),
        ("TDIGEST.ADD t y", "ERR T-Digest: error parsing val parameter"),
        ("TDIGEST.ADD t inf", "ERR T-Digest: val parameter needs to be a finite number"),
        ("TDIGEST.QUANTILE t y", "ERR T-Digest: error parsing quantile"),
        ("TDIGEST.QUANTILE t 1.1", "ERR T-Digest: quantile should be in [0,1]"),
        ("TDIGEST.RANK t y", "ERR T-Digest: error parsing value"),
        ("TDIGEST.BYRANK t y", "ERR T-Digest: error parsing rank"),
        ("TDIGEST.BYRANK t -1", "ERR T-Digest: rank needs to be non negative"),
        ("TDIGEST.CDF t y", "ERR T-Digest: error parsing cdf"),
        (
            "TDIGEST.TRIMMED_MEAN t 0.5 0.5",
            "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
        ),
        ("TDIGEST.MERGE t 0 t", "ERR T-Digest: numkeys needs to be a positive integer"),
        ("TDIGEST.MERGE t 1 t y", "ERR T-Digest: wrong keyword"),
        ("TDIGEST.MERGE t 1 x", "ERR T-Digest: key does not exist"),
    ] {
        assert_eq!(bed.run(line), format!("-{error}"), "{line}");
    }
    assert!(bed.run("TDIGEST.CREATE s").starts_with("-WRONGTYPE"));
}
