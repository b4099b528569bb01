//! Bits of strings.

use super::{Family, Weighted};

/// The family.
pub const FAMILY: Family = Family::data("bitmaps", FORMS);

const FORMS: &[Weighted] = &[
    (10, "SETBIT <key> <bitoffset> <bit>"),
    (8, "GETBIT <key> <bitoffset>"),
    (5, "BITCOUNT <key> [ <index> <index> [ ( BIT | BYTE | x ) ] ]"),
    (6, "BITPOS <key> <bit> [ <index> [ <index> [ ( BIT | BYTE ) ] ] ]"),
    (5, "BITOP ( AND | OR | XOR | x ) <key> { <key> }"),
    (3, "BITOP NOT <key> <key>"),
    (1, "BITOP NOT <key> <key> <key>"),
    (
        8,
        "BITFIELD <key> { ( GET <bftype> <bitoffset> | SET <bftype> <bitoffset> <int> | INCRBY <bftype> <bitoffset> <int> | OVERFLOW ( WRAP | SAT | FAIL ) ) }",
    ),
    (3, "BITFIELD_RO <key> { GET <bftype> <bitoffset> }"),
    (1, "BITFIELD_RO <key> SET u8 0 1"),
    (5, "GET <key>"),
    (3, "SET <key> <value>"),
    (2, "STRLEN <key>"),
];
