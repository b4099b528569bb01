//! Publish and subscribe on three connections.

use super::{Family, Mode, Weighted};

/// The family.
pub const FAMILY: Family = Family {
    name: "pubsub",
    mode: Mode::Settled,
    connections: 3,
    spoilt_percent: 3,
    forms: FORMS,
    mixed_types: false,
    waits: false,
    needs: "",
};

const FORMS: &[Weighted] = &[
    (8, "SUBSCRIBE { <channel> }"),
    (4, "PSUBSCRIBE ( ch* | ch[12] | * | ch? | x* )"),
    (3, "SSUBSCRIBE <channel>"),
    (4, "UNSUBSCRIBE [ <channel> ]"),
    (3, "PUNSUBSCRIBE [ ( ch* | ch[12] | * ) ]"),
    (2, "SUNSUBSCRIBE [ <channel> ]"),
    (20, "PUBLISH <channel> <value>"),
    (3, "SPUBLISH <channel> <value>"),
    (2, "PUBSUB CHANNELS [ <pattern> ]"),
    (2, "PUBSUB NUMSUB { <channel> }"),
    (2, "PUBSUB NUMPAT"),
    (1, "PUBSUB SHARDCHANNELS"),
    (1, "PUBSUB SHARDNUMSUB <channel>"),
    (2, "PING"),
    (2, "PING <word>"),
    (2, "GET <key>"),
    (2, "SET <key> <value>"),
    (1, "RESET"),
];
