//! What tells about the server and its commands.

use super::{Family, Mode, Weighted};

/// The family.
pub const FAMILY: Family = Family {
    name: "server",
    mode: Mode::Direct,
    connections: 1,
    spoilt_percent: 15,
    forms: FORMS,
    mixed_types: false,
    waits: false,
    needs: "",
};

const FORMS: &[Weighted] = &[
    (1, "COMMAND COUNT"),
    (2, "COMMAND GETKEYS SET <key> <value>"),
    (2, "COMMAND GETKEYS MSET { <key> <value> }"),
    (1, "COMMAND GETKEYS MGET { <key> }"),
    // 7.2 takes a command of one word, 7.0 does not
    (1, "COMMAND GETKEYS PING x"),
    (1, "COMMAND GETKEYS GET k x"),
    (1, "COMMAND GETKEYS NOSUCH <key>"),
    (1, "COMMAND GETKEYSANDFLAGS ( GET <key> | SET <key> x | COPY k1 k2 | RENAME k1 k2 | MSET k1 a k2 b )"),
    (1, "COMMAND INFO ( get | set | nosuch | mget )"),
    (1, "COMMAND LIST FILTERBY ( PATTERN xyz* | MODULE none | ACLCAT nosuch | x y )"),
    (1, "COMMAND DOCS nosuch"),
    (1, "COMMAND NONSENSE"),
    (2, "CONFIG GET ( maxmemory-policy | databases | nosuchparameter | timeout x | timeout )"),
    (2, "CONFIG SET ( timeout ( 0 | abc | -1 ) | nosuch 1 | maxmemory-policy ( noeviction | x ) )"),
    (1, "CONFIG SET"),
    (1, "CONFIG RESETSTAT"),
    (1, "CONFIG NONSENSE"),
    (1, "TIME"),
    (1, "LASTSAVE"),
    (1, "LOLWUT"),
    (1, "INFO [ ( server | clients | memory | keyspace | nosuchsection ) ]"),
    (1, "MEMORY USAGE <key> [ SAMPLES <count> ]"),
    (1, "MEMORY ( DOCTOR | NONSENSE | USAGE )"),
    (1, "SLOWLOG ( RESET | NONSENSE | GET -2 | GET abc )"),
    (1, "CONFIG ( HELP | GET save | SET save x y z )"),
    (1, "LATENCY ( HISTORY | GRAPH none | RESET a b )"),
    (
        1,
        "DEBUG PROTOCOL ( string | integer | double | null | array | set | map | verbatim | bignum | true | false | x )",
    ),
    (
        1,
        "DEBUG ( OBJECT nosuch | SET-ACTIVE-EXPIRE 1 | CHANGE-REPL-ID | SLEEP | POPULATE x | POPULATE 3 k -1 )",
    ),
    (1, "MODULE ( LIST | NONSENSE )"),
    (1, "ROLE"),
    (1, "LATENCY ( LATEST | RESET | HISTORY x | NONSENSE )"),
    (1, "DEBUG ( SLEEP 0 | NONSENSE )"),
    (1, "DBSIZE"),
    (1, "FLUSHALL [ ( ASYNC | SYNC | x ) ]"),
    (2, "SET <key> <value>"),
    (1, "GET <key>"),
    (1, "ACL WHOAMI"),
    (1, "WAIT ( 0 0 | -1 0 | 0 -1 | abc 0 )"),
    (1, "SWAPDB <db> <db>"),
];
