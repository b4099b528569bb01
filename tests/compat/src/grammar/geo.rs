//! Geo indexes.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("geo", FORMS);

const FORMS: &[Weighted] = &[
    (12, "GEOADD <key> [ ( NX | XX ) ] [ CH ] { <lon> <lat> <member> }"),
    (2, "GEOADD <key> 13.361389 38.115556 m1 15.087269 37.502669 m2"),
    (1, "GEOADD <key> ( 181 0 | 0 86 | x 0 | 0 ) m1"),
    (4, "GEODIST <key> <member> <member> [ ( m | km | mi | ft | x ) ]"),
    (3, "GEOHASH <key> { <member> }"),
    (4, "GEOPOS <key> { <member> }"),
    (
        6,
        "GEOSEARCH <key> ( FROMMEMBER <member> | FROMLONLAT <lon> <lat> ) ( BYRADIUS <radius> km | BYBOX <radius> <radius> km ) ( ASC | DESC ) [ COUNT <count> ] [ WITHCOORD ] [ WITHDIST ] [ WITHHASH ]",
    ),
    (2, "GEOSEARCH <key> FROMLONLAT <lon> <lat> BYRADIUS <radius> km"),
    (2, "GEOSEARCHSTORE <key> <key> FROMLONLAT <lon> <lat> BYRADIUS <radius> km ASC [ STOREDIST ]"),
    (3, "GEORADIUS <key> <lon> <lat> <radius> km ASC [ WITHCOORD ] [ WITHDIST ] [ COUNT <count> ]"),
    (2, "GEORADIUS <key> <lon> <lat> <radius> km ( STORE | STOREDIST ) <key>"),
    (2, "GEORADIUSBYMEMBER <key> <member> <radius> km DESC [ WITHHASH ]"),
    (2, "GEORADIUS <key> <lon> <lat> <radius> ( m | km | mi | ft | x ) ASC [ COUNT <count> ]"),
    (1, "GEORADIUS_RO <key> <lon> <lat> <radius> km ASC [ WITHCOORD ] [ STORE <key> ]"),
    (1, "GEORADIUSBYMEMBER_RO <key> <member> <radius> km ASC [ WITHDIST ] [ ANY ]"),
    (1, "GEORADIUSBYMEMBER <key> <member> <radius> km STOREDIST <key>"),
    (
        2,
        "GEOSEARCHSTORE <key> <key> FROMMEMBER <member> BYBOX <radius> <radius> ( km | mi ) [ COUNT <count> ] [ STOREDIST ]",
    ),
    (
        1,
        "GEOSEARCH <key> ( FROMMEMBER <member> | FROMLONLAT <lon> <lat> FROMMEMBER <member> ) [ BYRADIUS -1 m ] [ BYBOX x 1 m ] [ ANY ]",
    ),
    (
        1,
        "GEOSEARCHSTORE <key> <key> FROMLONLAT <lon> <lat> BYRADIUS <radius> km ( WITHDIST | WITHCOORD | STORE <key> | x )",
    ),
    (1, "ZRANGE <key> 0 -1 WITHSCORES"),
    (2, "ZRANGE <key> 0 -1 WITHSCORES"),
    (1, "ZREM <key> <member>"),
];
