//! Hashes.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("hashes", FORMS);

const FORMS: &[Weighted] = &[
    (10, "HSET <key> { <field> <value> }"),
    (3, "HMSET <key> { <field> <value> }"),
    (3, "HSET <key> { <member> <value> }"),
    (3, "HSETNX <key> <field> <value>"),
    (6, "HGET <key> <field>"),
    (4, "HMGET <key> { <field> }"),
    (4, "HGETALL <key>"),
    (3, "HKEYS <key>"),
    (3, "HVALS <key>"),
    (3, "HLEN <key>"),
    (4, "HDEL <key> { <field> }"),
    (3, "HEXISTS <key> <field>"),
    (3, "HSTRLEN <key> <field>"),
    (4, "HINCRBY <key> <field> <int>"),
    (4, "HINCRBYFLOAT <key> <field> <float>"),
    (2, "HRANDFIELD <key> [ <count> [ WITHVALUES ] ]"),
    (2, "HSCAN <key> 0 [ MATCH <pattern> ] [ COUNT <count> ]"),
    (1, "COPY <key> <key> REPLACE"),
];
