//! Fields of hashes that expire, as since Redis 7.4 and 8.0.

use super::{Family, Weighted};

/// The family, for a reference that knows it.
pub const FAMILY: Family = Family::data("fields", FORMS).needing("HGETEX");

const FORMS: &[Weighted] = &[
    (8, "HSET <key> { <field> <value> }"),
    (2, "HSETNX <key> <field> <value>"),
    (
        8,
        "( HEXPIRE <key> <secs> | HPEXPIRE <key> <ms> | HEXPIREAT <key> <at> | HPEXPIREAT <key> <atms> ) [ ( NX | XX | GT | LT ) ] FIELDS ( 1 <field> | 2 <field> <field> | 3 <field> <field> <field> )",
    ),
    (1, "HEXPIRE <key> <secs> ( NX | XX | GT | LT | x ) ( NX | XX | GT | LT ) FIELDS 1 <field>"),
    (1, "HPEXPIRE <key> <soon> FIELDS 1 <field>"),
    (1, "HSETEX <key> PX <soon> FIELDS 1 <field> <value>"),
    (
        6,
        "( HTTL | HPTTL | HEXPIRETIME | HPEXPIRETIME ) <key> FIELDS ( 1 <field> | 2 <field> <field> | 3 <field> <field> <field> )",
    ),
    (3, "HPERSIST <key> FIELDS ( 1 <field> | 2 <field> <field> )"),
    (
        5,
        "HGETEX <key> [ ( EX <secs> | PX <ms> | EXAT <at> | PXAT <atms> | PERSIST ) ] FIELDS ( 1 <field> | 2 <field> <field> )",
    ),
    (
        5,
        "HSETEX <key> [ ( FNX | FXX ) ] [ ( EX <secs> | PX <ms> | EXAT <at> | PXAT <atms> | KEEPTTL ) ] FIELDS ( 1 <field> <value> | 2 <field> <value> <field> <value> )",
    ),
    (1, "HSETEX <key> ( FNX FXX | EX 100 PX 100 | KEEPTTL EX 100 | x ) FIELDS 1 <field> <value>"),
    (1, "HSETEX <key> FIELDS ( 0 | 1 | 3 | x ) <field> <value> <field> <value>"),
    (1, "HGETEX <key> ( EX 100 PERSIST | PX | x | KEEPTTL ) FIELDS 1 <field>"),
    (4, "HGETDEL <key> FIELDS ( 1 <field> | 2 <field> <field> )"),
    (1, "( HTTL | HPTTL | HGETDEL | HPERSIST | HGETEX ) <key> FIELDS ( 0 | -1 | 2 | x | 99 ) <field>"),
    (1, "( HTTL | HGETDEL | HGETEX | HEXPIRE ) <key> ( <field> | FIELDS | FIELDS 1 | 1 <field> )"),
    (1, "HEXPIRE <key> <secs> FIELDS ( 0 | 1 | 3 | x ) <field> <field>"),
    (3, "HGET <key> <field>"),
    (2, "HMGET <key> { <field> }"),
    (3, "HGETALL <key>"),
    (2, "HKEYS <key>"),
    (2, "HVALS <key>"),
    (3, "HLEN <key>"),
    (3, "HDEL <key> { <field> }"),
    (2, "HEXISTS <key> <field>"),
    (2, "HSTRLEN <key> <field>"),
    (3, "HINCRBY <key> <field> <int>"),
    (2, "HINCRBYFLOAT <key> <field> <float>"),
    (1, "HRANDFIELD <key> [ <count> [ WITHVALUES ] ]"),
    (2, "HSCAN <key> 0 [ MATCH <pattern> ] [ COUNT <count> ] [ NOVALUES ]"),
    (2, "COPY <key> <key> [ REPLACE ]"),
    (2, "( RENAME | RENAMENX ) <key> <key>"),
    (1, "SORT <key> BY nosort GET k*->f1"),
];
