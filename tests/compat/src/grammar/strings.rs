//! Strings and counters.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("strings", FORMS);

const FORMS: &[Weighted] = &[
    (10, "SET <key> <value>"),
    (
        6,
        "SET <key> <value> [ ( NX | XX ) ] [ GET ] [ ( EX <secs> | PX <ms> | EXAT <at> | PXAT <atms> | KEEPTTL ) ]",
    ),
    (2, "SET <key> <value> [ ( EX <secs> | PX <ms> | KEEPTTL ) ] [ ( NX | XX ) ] [ GET ]"),
    (1, "SET <key> <value> { <flag> }"),
    (1, "SET <key> <value> PX <soon>"),
    (1, "SET <akey> <value>"),
    (1, "GET <akey>"),
    (12, "GET <key>"),
    (2, "GETSET <key> <value>"),
    (2, "GETDEL <key>"),
    (3, "GETEX <key> [ ( EX <secs> | PX <ms> | EXAT <at> | PXAT <atms> | PERSIST ) ]"),
    (1, "GETEX <key> PERSIST EX <secs>"),
    (2, "SETNX <key> <value>"),
    (2, "SETEX <key> <secs> <value>"),
    (2, "PSETEX <key> <ms> <value>"),
    (3, "MSET { <key> <value> }"),
    (2, "MSETNX { <key> <value> }"),
    (4, "MGET { <key> }"),
    (4, "APPEND <key> <value>"),
    (3, "STRLEN <key>"),
    (4, "SETRANGE <key> <offset> <value>"),
    (4, "GETRANGE <key> <index> <index>"),
    (1, "SUBSTR <key> <index> <index>"),
    (5, "INCR <key>"),
    (3, "DECR <key>"),
    (4, "INCRBY <key> <int>"),
    (3, "DECRBY <key> <int>"),
    (4, "INCRBYFLOAT <key> <float>"),
    (1, "SET <key> <int>"),
    (1, "SET <key> <float>"),
    (2, "LCS <key> <key> [ ( LEN | IDX [ MINMATCHLEN <count> ] [ WITHMATCHLEN ] ) ]"),
    (1, "LCS <key> <key> LEN IDX"),
    (1, "SET <key> <word>"),
];
