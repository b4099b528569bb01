//! Blocking commands on four connections; all end by a push, by a timeout of 50-100 ms, or with the run.

use super::{Family, Mode, Weighted};

/// The family. Spoiling could turn a timeout into a wait without end, so nothing is spoilt.
pub const FAMILY: Family = Family {
    name: "blocking",
    mode: Mode::Settled,
    connections: 4,
    spoilt_percent: 0,
    forms: FORMS,
    mixed_types: false,
    waits: true,
    needs: "",
};

const FORMS: &[Weighted] = &[
    (4, "BLPOP <key> 0"),
    (2, "BLPOP <key> <key> 0"),
    (3, "BRPOP <key> 0"),
    (3, "BLMOVE <key> <key> ( LEFT | RIGHT ) ( LEFT | RIGHT ) 0"),
    (1, "BRPOPLPUSH <key> <key> 0"),
    (2, "BLMPOP 0 2 <key> <key> ( LEFT | RIGHT ) [ COUNT <count> ]"),
    (2, "BZPOPMIN <key> 0"),
    (1, "BZPOPMAX <key> <key> 0"),
    (1, "BZMPOP 0 2 <key> <key> ( MIN | MAX )"),
    (1, "BLPOP <key> ( -1 | abc | nan )"),
    (8, "RPUSH <key> { <elem> }"),
    (4, "LPUSH <key> { <elem> }"),
    (4, "ZADD <key> <score> <member>"),
    (2, "DEL <key>"),
    (1, "SET <key> <value>"),
    (1, "RENAME <key> <key>"),
    (2, "LRANGE <key> 0 -1"),
    (1, "TYPE <key>"),
];
