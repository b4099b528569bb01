//! HyperLogLogs.

use super::{Family, Weighted};

/// The family. GET shows the representation, byte for byte.
pub const FAMILY: Family = Family::data("hll", FORMS);

const FORMS: &[Weighted] = &[
    (12, "PFADD <key> { <member> }"),
    (4, "PFADD <key> { <value> }"),
    (1, "PFADD <key>"),
    (6, "PFCOUNT { <key> }"),
    (4, "PFMERGE <key> { <key> }"),
    (3, "GET <key>"),
    (3, "STRLEN <key>"),
    (1, "PFADD <akey> <value>"),
];
