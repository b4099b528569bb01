//! Sorted sets. Ranges by name are only defined where all scores are equal, so they have keys of their own.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("zsets", FORMS);

const FORMS: &[Weighted] = &[
    (12, "ZADD <key> { <score> <member> }"),
    (5, "ZADD <key> [ ( NX | XX ) ] [ ( GT | LT ) ] [ CH ] { <score> <member> }"),
    (3, "ZADD <key> [ ( NX | XX ) ] [ ( GT | LT ) ] [ CH ] INCR <score> <member>"),
    (3, "ZADD <lexkey> 0 m1 0 m2 0 m3 0 a 0 z"),
    (4, "ZADD <lexkey> 0 <member> 0 <member>"),
    (2, "ZREM <lexkey> { <member> }"),
    (4, "ZINCRBY <key> <score> <member>"),
    (4, "ZREM <key> { <member> }"),
    (2, "ZCARD <key>"),
    (4, "ZSCORE <key> <member>"),
    (3, "ZMSCORE <key> { <member> }"),
    (4, "ZRANK <key> <member>"),
    (3, "ZREVRANK <key> <member>"),
    (3, "ZCOUNT <key> <zmin> <zmax>"),
    (3, "ZLEXCOUNT <lexkey> <lexmin> <lexmax>"),
    (6, "ZRANGE <key> <index> <index> [ REV ] [ WITHSCORES ]"),
    (4, "ZRANGE <key> <zmin> <zmax> BYSCORE [ REV ] [ LIMIT <index> <index> ] [ WITHSCORES ]"),
    (3, "ZRANGE <lexkey> <lexmin> <lexmax> BYLEX [ REV ] [ LIMIT <index> <index> ]"),
    (1, "ZRANGE <key> <index> <index> LIMIT 0 1"),
    (2, "ZREVRANGE <key> <index> <index> [ WITHSCORES ]"),
    (3, "ZRANGEBYSCORE <key> <zmin> <zmax> [ WITHSCORES ] [ LIMIT <index> <index> ]"),
    (3, "ZREVRANGEBYSCORE <key> <zmax> <zmin> [ WITHSCORES ] [ LIMIT <index> <index> ]"),
    (2, "ZRANGEBYLEX <lexkey> <lexmin> <lexmax> [ LIMIT <index> <index> ]"),
    (2, "ZREVRANGEBYLEX <lexkey> <lexmax> <lexmin> [ LIMIT <index> <index> ]"),
    (
        2,
        "ZRANGESTORE <key> <key> ( <index> <index> | <zmin> <zmax> BYSCORE ) [ REV ] [ LIMIT <index> <index> ]",
    ),
    (2, "ZREMRANGEBYRANK <key> <index> <index>"),
    (2, "ZREMRANGEBYSCORE <key> <zmin> <zmax>"),
    (2, "ZREMRANGEBYLEX <lexkey> <lexmin> <lexmax>"),
    (3, "ZPOPMIN <key> [ <count> ]"),
    (3, "ZPOPMAX <key> [ <count> ]"),
    (3, "ZMPOP ( 1 <key> | 2 <key> <key> | 0 <key> ) ( MIN | MAX | x ) [ COUNT <count> ]"),
    (2, "ZRANDMEMBER <key> [ <count> [ WITHSCORES ] ]"),
    (
        3,
        "ZUNION 2 <key> <key> [ WEIGHTS <score> <score> ] [ AGGREGATE ( SUM | MIN | MAX | x ) ] [ WITHSCORES ]",
    ),
    (
        3,
        "ZINTER 2 <key> <key> [ WEIGHTS <score> <score> ] [ AGGREGATE ( SUM | MIN | MAX | x ) ] [ WITHSCORES ]",
    ),
    (3, "ZUNIONSTORE <key> 2 <key> <key> [ WEIGHTS <score> <score> ] [ AGGREGATE ( SUM | MIN | MAX ) ]"),
    (3, "ZINTERSTORE <key> 2 <key> <key> [ WEIGHTS <score> <score> ] [ AGGREGATE ( SUM | MIN | MAX ) ]"),
    (2, "ZDIFF 2 <key> <key> [ WITHSCORES ]"),
    (2, "ZDIFFSTORE <key> 2 <key> <key>"),
    (2, "ZINTERCARD ( 1 <key> | 2 <key> <key> | 0 <key> ) [ LIMIT <count> ]"),
    (2, "ZSCAN <key> 0 [ MATCH <pattern> ] [ COUNT <count> ]"),
];
