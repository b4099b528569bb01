//! Sets.

use super::{Family, Weighted};

/// The family. SPOP without a count answers by chance, so only counts that empty the set are used.
pub const FAMILY: Family = Family::data("sets", FORMS);

const FORMS: &[Weighted] = &[
    (12, "SADD <key> { <member> }"),
    (3, "SADD <key> { <int> }"),
    (5, "SREM <key> { <member> }"),
    (3, "SCARD <key>"),
    (4, "SISMEMBER <key> <member>"),
    (3, "SMISMEMBER <key> { <member> }"),
    (5, "SMEMBERS <key>"),
    (3, "SMOVE <key> <key> <member>"),
    (1, "SPOP <key> 1000000"),
    (1, "SPOP <key> ( -1 | abc | 0 )"),
    (2, "SRANDMEMBER <key> [ <count> ]"),
    (3, "SINTER { <key> }"),
    (3, "SUNION { <key> }"),
    (3, "SDIFF { <key> }"),
    (2, "SINTERSTORE <key> { <key> }"),
    (2, "SUNIONSTORE <key> { <key> }"),
    (2, "SDIFFSTORE <key> { <key> }"),
    (3, "SINTERCARD ( 1 <key> | 2 <key> <key> | 0 <key> | 3 <key> ) [ LIMIT <count> ]"),
    (2, "SSCAN <key> 0 [ MATCH <pattern> ] [ COUNT <count> ]"),
    (1, "COPY <key> <key> REPLACE"),
];
