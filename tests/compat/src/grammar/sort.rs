//! SORT over lists, sets and sorted sets, with weights and values in other keys.

use super::{Family, Weighted};

/// The family. BY with ALPHA leaves the order of ties open in Redis, so the two are not combined.
pub const FAMILY: Family = Family::data("sort", FORMS);

const FORMS: &[Weighted] = &[
    (8, "RPUSH <key> { <index> }"),
    (4, "SADD <key> { <index> }"),
    (4, "ZADD <key> <index> <index> <index> <index>"),
    (2, "RPUSH <key> { <word> }"),
    (3, "SET w_<index> <index>"),
    (2, "HSET h_<index> <field> <value>"),
    (2, "SET o_<index> <value>"),
    (6, "SORT <key> [ LIMIT <index> <index> ] [ ( ASC | DESC ) ]"),
    (4, "SORT <key> [ LIMIT <index> <index> ] [ ( ASC | DESC ) ] ALPHA"),
    (
        5,
        "SORT <key> BY w_* [ LIMIT <index> <index> ] [ ( ASC | DESC ) ] [ GET o_* ] [ GET # ] [ GET h_*->f1 ]",
    ),
    (2, "SORT <key> BY h_*->f1"),
    (2, "SORT <key> BY nosort"),
    (3, "SORT <key> [ ( ASC | DESC ) ] STORE <key>"),
    (2, "SORT_RO <key> [ ( ASC | DESC ) ] ALPHA"),
    (1, "SORT_RO <key> STORE <key>"),
    (2, "LRANGE <key> 0 -1"),
];
