//! Transactions on two connections.

use super::{Family, Mode, Weighted};

/// The family.
pub const FAMILY: Family = Family {
    name: "multi",
    mode: Mode::Direct,
    connections: 2,
    spoilt_percent: 5,
    forms: FORMS,
    mixed_types: false,
    waits: false,
    needs: "",
};

const FORMS: &[Weighted] = &[
    (10, "MULTI"),
    (10, "EXEC"),
    (2, "DISCARD"),
    (6, "WATCH { <key> }"),
    (2, "UNWATCH"),
    (10, "SET <key> <value>"),
    (8, "GET <key>"),
    (6, "INCR <key>"),
    (4, "MSET { <key> <value> }"),
    (3, "MGET { <key> }"),
    (3, "DEL <key>"),
    (2, "EXPIRE <key> <secs>"),
    (1, "PERSIST <key>"),
    (2, "RENAME <key> <key>"),
    (2, "APPEND <key> <value>"),
    (1, "SELECT ( 0 | 0 | 1 | 99 )"),
    (1, "SWAPDB 0 1"),
    (1, "FLUSHDB"),
    (1, "FLUSHALL"),
    (1, "RESET"),
    (1, "NOSUCHCOMMAND x"),
    (1, "GET"),
    (1, "PING"),
    (1, "DBSIZE"),
    (1, "KEYS *"),
    (1, "COPY <key> <key> REPLACE"),
];
