//! The connection's own commands.

use super::{Family, Mode, Weighted};

/// The family.
pub const FAMILY: Family = Family {
    name: "connection",
    mode: Mode::Direct,
    connections: 2,
    spoilt_percent: 15,
    forms: FORMS,
    mixed_types: false,
    waits: false,
    needs: "",
};

const FORMS: &[Weighted] = &[
    (4, "PING"),
    (4, "PING <value>"),
    (1, "PING <value> <value>"),
    (4, "ECHO <value>"),
    (4, "SELECT <db>"),
    (3, "HELLO [ ( 2 | 3 | 4 | abc | 1 ) ]"),
    (1, "HELLO 3 SETNAME <name>"),
    (1, "HELLO 2 AUTH default wrong"),
    (1, "HELLO 3 AUTH x"),
    (2, "AUTH ( x | default x | x y )"),
    (3, "CLIENT SETNAME ( <name> | with·blank | \"\" )"),
    (3, "CLIENT GETNAME"),
    (1, "CLIENT ID"),
    (1, "CLIENT INFO"),
    (1, "CLIENT LIST [ ( TYPE normal | TYPE x | ID 1 | x ) ]"),
    (1, "CLIENT KILL ( 1.2.3.4:5 | ID 99999999 | TYPE x | ADDR | SKIPME maybe )"),
    (1, "CLIENT NO-EVICT ( on | off | x )"),
    (1, "CLIENT REPLY ( ON | x )"),
    (1, "CLIENT PAUSE ( 0 | abc | -1 )"),
    (1, "CLIENT UNPAUSE"),
    (1, "CLIENT UNBLOCK ( 99999999 | x | 99999999 ERROR | 99999999 x )"),
    (1, "CLIENT ( GETREDIR | TRACKINGINFO | NONSENSE | CACHING·YES )"),
    (2, "RESET"),
    (1, "QUIT"),
    (2, "SET <key> <value>"),
    (2, "GET <key>"),
    (1, "NOSUCHCOMMAND { <value> }"),
    (1, "<value>"),
    (1, "MULTI"),
    (1, "EXEC"),
    (1, "DISCARD"),
    (1, "UNWATCH"),
];
