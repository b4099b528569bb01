//! Lists.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("lists", FORMS);

const FORMS: &[Weighted] = &[
    (8, "RPUSH <key> { <elem> }"),
    (8, "LPUSH <key> { <elem> }"),
    (2, "LPUSHX <key> { <elem> }"),
    (2, "RPUSHX <key> { <elem> }"),
    (3, "LPOP <key> [ <count> ]"),
    (3, "RPOP <key> [ <count> ]"),
    (3, "LLEN <key>"),
    (5, "LINDEX <key> <index>"),
    (5, "LSET <key> <index> <value>"),
    (8, "LRANGE <key> <index> <index>"),
    (3, "LRANGE <key> 0 -1"),
    (3, "LTRIM <key> <index> <index>"),
    (4, "LREM <key> <index> <elem>"),
    (4, "LINSERT <key> ( BEFORE | AFTER | x ) <elem> <value>"),
    (4, "LPOS <key> <elem> [ RANK <index> ] [ COUNT <count> ] [ MAXLEN <count> ]"),
    (3, "LMOVE <key> <key> ( LEFT | RIGHT ) ( LEFT | RIGHT )"),
    (2, "RPOPLPUSH <key> <key>"),
    (3, "LMPOP ( 1 <key> | 2 <key> <key> | 0 <key> | 3 <key> ) ( LEFT | RIGHT | x ) [ COUNT <count> ]"),
    (1, "( BLPOP | BRPOP ) <key> <key> ( 0.01 | -1 | x )"),
    (1, "BLMOVE <key> <key> ( LEFT | RIGHT ) ( LEFT | RIGHT ) ( 0.01 | -1 | x )"),
    (1, "BRPOPLPUSH <key> <key> ( 0.01 | -1 | x )"),
    (1, "BLMPOP ( 0.01 | -1 | x ) ( 1 <key> | 2 <key> <key> ) ( LEFT | RIGHT ) [ COUNT <count> ]"),
    (1, "COPY <key> <key> REPLACE"),
    (1, "RENAME <key> <key>"),
];
