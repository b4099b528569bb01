//! Users, their rules, and commands under them.

use super::{Family, Mode, Weighted};

/// The family.
pub const FAMILY: Family = Family {
    name: "acl",
    mode: Mode::Direct,
    connections: 3,
    // A spoilt name would make a user that stays.
    spoilt_percent: 0,
    forms: FORMS,
    mixed_types: false,
    waits: false,
    needs: "",
};

const FORMS: &[Weighted] = &[
    (8, "ACL SETUSER <user> on nopass { <rule> }"),
    (4, "ACL SETUSER <user> { <rule> }"),
    (4, "ACL SETUSER <user> reset on nopass { <rule> }"),
    (2, "ACL SETUSER <user> on ( >pw | <pw | resetpass | nopass | off | >pw·x | #xyz | !xyz )"),
    (1, "ACL SETUSER <user> ( <rule> (<rule> <rule>) | clearselectors | (<rule>) | ( | ) | () )"),
    (1, "ACL SETUSER u·x on"),
    (1, "ACL DELUSER ( <user> | <user> <user> | default | nosuch )"),
    (4, "ACL GETUSER ( <user> | default | nosuch )"),
    (3, "ACL LIST"),
    (1, "ACL USERS"),
    (1, "ACL CAT [ nosuch ]"),
    (2, "ACL LOG [ ( 1 | 3 | 100 | x | -1 | RESET ) ]"),
    (2, "ACL WHOAMI"),
    (1, "ACL GENPASS [ ( 1 | 5 | 4096 | 4097 | 0 | x ) ]"),
    (1, "ACL ( LOAD | SAVE | NONSENSE )"),
    (20, "ACL DRYRUN <user> <call>"),
    (1, "ACL DRYRUN ( nosuch | <user> ) ( nosuch | get | get·k )"),
    (6, "AUTH <user> ( x | pw | pw·x )"),
    (3, "AUTH default x"),
    (1, "HELLO 2 AUTH <user> x"),
    (1, "CLIENT KILL USER ( nosuch )"),
    (30, "<call>"),
    (1, "EXEC"),
    (1, "DISCARD"),
    (2, "EVAL return·redis.pcall(unpack(ARGV)) 0 <call>"),
];
