//! Streams; ids are given, because an automatic one is the time.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("streams", FORMS);

const FORMS: &[Weighted] = &[
    (12, "XADD <key> <sidadd> { <field> <value> }"),
    (
        3,
        "XADD <key> [ NOMKSTREAM ] [ ( MAXLEN [ = ] <count> | MINID [ = ] <sid> ) ] <sidadd> <field> <value>",
    ),
    (1, "XADD <key> MAXLEN ~ 1000 LIMIT <count> <sidadd> <field> <value>"),
    (3, "XLEN <key>"),
    (5, "XRANGE <key> ( - | <sid> ) ( + | <sid> ) [ COUNT <count> ]"),
    (4, "XREVRANGE <key> ( + | <sid> ) ( - | <sid> ) [ COUNT <count> ]"),
    (3, "XDEL <key> { <sid> }"),
    (2, "XTRIM <key> ( MAXLEN | MINID ) [ = ] <count>"),
    (
        4,
        "XREAD [ COUNT <count> ] STREAMS ( <key> ( 0 | $ | 4-5 | 20 | abc | > ) | <key> <key> ( 0 | 30-3 ) ( 4-5 | $ ) | <key> )",
    ),
    (4, "XGROUP CREATE <key> ( g1 | g2 ) ( $ | 0 | <sid> ) [ MKSTREAM ] [ ENTRIESREAD <int> ]"),
    (
        1,
        "XGROUP ( DESTROY <key> g1 | CREATECONSUMER <key> g1 c1 | DELCONSUMER <key> g1 c1 | SETID <key> g1 <sid> )",
    ),
    (1, "XGROUP ( NONSENSE <key> | HELP )"),
    (
        6,
        "XREADGROUP GROUP ( g1 | g2 | nog ) ( c1 | c2 ) [ COUNT <count> ] [ NOACK ] STREAMS <key> ( > | > | <sid> )",
    ),
    (3, "XACK <key> ( g1 | g2 ) { <sid> }"),
    (3, "XPENDING <key> ( g1 | g2 ) [ - + <count> [ c1 ] ]"),
    (1, "XPENDING <key> g1 IDLE 0 <sid> <sid> <count>"),
    (3, "XCLAIM <key> g1 ( c1 | c2 ) 0 { <sid> } [ JUSTID ] [ FORCE ] [ RETRYCOUNT <count> ]"),
    (3, "XAUTOCLAIM <key> g1 ( c1 | c2 ) 0 ( 0 | <sid> ) [ COUNT <count> ] [ JUSTID ]"),
    (2, "XINFO STREAM <key> [ FULL [ COUNT <count> ] ]"),
    (2, "XINFO GROUPS <key>"),
    (1, "XINFO CONSUMERS <key> g1"),
    // 7.0 does not mind ids below the highest that was deleted
    (1, "XSETID <key> ( 60-0 | 60-5 | 61 | abc ) [ ENTRIESADDED <int> MAXDELETEDID ( 0-0 | 3 | 50-9 | x ) ]"),
    (1, "COPY <key> <key> REPLACE"),
];
