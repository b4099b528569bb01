//! ACL categories of a command, derived from its flags and its group, and the tips COMMAND INFO gives proxies.

use crate::spec::{Flags, Group, Spec};

/// A set of ACL categories, one bit each in the order of [`Categories::NAMES`]: those of Redis, then those of Dragonfly
/// for families that may have no commands here, so that its users can be taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Categories(u32);

macro_rules! categories {
    ($($name:ident = $bit:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names are the field's own")]
        impl Categories {
            $(pub const $name: Categories = Categories(1 << $bit);)*
            /// Every category's name, without the `@`, in the order ACL CAT lists them.
            pub const NAMES: &'static [&'static str] = &[$($text),*];
        }
    };
}

categories! {
    KEYSPACE = 0, "keyspace";
    READ = 1, "read";
    WRITE = 2, "write";
    SET = 3, "set";
    SORTEDSET = 4, "sortedset";
    LIST = 5, "list";
    HASH = 6, "hash";
    STRING = 7, "string";
    BITMAP = 8, "bitmap";
    HYPERLOGLOG = 9, "hyperloglog";
    GEO = 10, "geo";
    STREAM = 11, "stream";
    PUBSUB = 12, "pubsub";
    ADMIN = 13, "admin";
    FAST = 14, "fast";
    SLOW = 15, "slow";
    BLOCKING = 16, "blocking";
    DANGEROUS = 17, "dangerous";
    CONNECTION = 18, "connection";
    TRANSACTION = 19, "transaction";
    SCRIPTING = 20, "scripting";
    BLOOM = 21, "bloom";
    FT_SEARCH = 22, "ft_search";
    THROTTLE = 23, "throttle";
    JSON = 24, "json";
    CUCKOO = 25, "cuckoo";
    CMS = 26, "cms";
    TOPK = 27, "topk";
    TDIGEST = 28, "tdigest";
    TIMESERIES = 29, "timeseries";
    ARRAY = 30, "array";
}

impl Categories {
    /// The category called `name`, without the `@`, in any case.
    pub fn named(name: &[u8]) -> Option<Categories> {
        let at = Categories::NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
        Some(Categories(1 << at))
    }

    /// Whether any of `other` is in it.
    pub const fn any(self, other: Categories) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    pub const fn with(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }

    /// Its names, without the `@`.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Categories::NAMES
            .iter()
            .enumerate()
            .filter(move |(bit, _)| self.0 >> bit & 1 == 1)
            .map(|(_, name)| *name)
    }
}

impl Spec {
    /// The ACL categories the command is in.
    pub fn categories(&self) -> Categories {
        let flags = self.flags;
        let mut all = self.own_category();
        let mut add = |on: bool, category: Categories| {
            if on {
                all = all.with(category);
            }
        };
        add(flags.any(Flags::WRITE), Categories::WRITE);
        add(flags.any(Flags::READONLY) && self.group != Group::Scripting, Categories::READ);
        add(flags.any(Flags::ADMIN), Categories::ADMIN.with(Categories::DANGEROUS));
        add(flags.any(Flags::PUBSUB), Categories::PUBSUB);
        add(flags.any(Flags::BLOCKING), Categories::BLOCKING);
        let is_fast = flags.any(Flags::FAST);
        add(true, if is_fast { Categories::FAST } else { Categories::SLOW });
        for (name, categories) in OTHERS {
            add(*name == self.name, *categories);
        }
        add(is_one_of(DANGEROUS, self.name), Categories::DANGEROUS);
        add(is_one_of(KEYSPACE, self.name), Categories::KEYSPACE);
        all
    }

    fn own_category(&self) -> Categories {
        if is_one_of(WITHOUT_GROUP, self.name) {
            return Categories::default();
        }
        match self.group {
            Group::Generic => Categories::KEYSPACE,
            Group::String => Categories::STRING,
            Group::List => Categories::LIST,
            Group::Set => Categories::SET,
            Group::SortedSet => Categories::SORTEDSET,
            Group::Hash => Categories::HASH,
            Group::Stream => Categories::STREAM,
            Group::Bitmap => Categories::BITMAP,
            Group::Hyperloglog => Categories::HYPERLOGLOG,
            Group::Geo => Categories::GEO,
            Group::Connection => Categories::CONNECTION,
            Group::Transactions => Categories::TRANSACTION,
            Group::Scripting => Categories::SCRIPTING,
            Group::Json => Categories::JSON,
            Group::Bloom => Categories::BLOOM,
            Group::Cuckoo => Categories::CUCKOO,
            Group::CountMin => Categories::CMS,
            Group::TopK => Categories::TOPK,
            Group::Digest => Categories::TDIGEST,
            Group::Series => Categories::TIMESERIES,
            Group::Array => Categories::ARRAY,
            Group::Server if self.name.starts_with("command") => Categories::CONNECTION,
            Group::Server | Group::Pubsub | Group::Cluster => Categories::default(),
        }
    }

    /// What proxies and clients should know of it, in Redis' words.
    pub fn tips(&self) -> impl Iterator<Item = &'static str> {
        let name = self.name;
        TIPS.iter().filter(move |(_, names)| is_one_of(names, name)).map(|(tip, _)| *tip)
    }

    /// The version since which another command is better, and which one.
    pub fn deprecated(&self) -> Option<(&'static str, &'static str)> {
        let (_, since, instead) = DEPRECATED.iter().find(|(name, ..)| *name == self.name)?;
        Some((since, instead))
    }
}

fn is_one_of(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == name)
}

/// Commands whose group is no category: containers, which only name their subcommands, and odd ones.
const WITHOUT_GROUP: &str = "wait waitaof sort sort_ro client object xgroup xinfo script function";
/// Commands in categories that neither flags nor group tell.
const OTHERS: &[(&str, Categories)] = &[
    ("wait", Categories::CONNECTION),
    ("waitaof", Categories::CONNECTION),
    ("lastsave", Categories::ADMIN),
    ("role", Categories::ADMIN),
    ("sort", Categories::LIST.with(Categories::SET).with(Categories::SORTEDSET)),
    ("sort_ro", Categories::LIST.with(Categories::SET).with(Categories::SORTEDSET)),
];
/// Commands that can do harm without being an administrator's.
const DANGEROUS: &str = "keys sort sort_ro flushall flushdb swapdb info migrate restore restore-asking sflush trimslots role lastsave";
/// Commands that concern keys as such outside their group.
const KEYSPACE: &str = "flushall flushdb swapdb dbsize stick restore-asking sflush trimslots";

/// Tips, and the commands they are for.
const TIPS: &[(&str, &str)] = &[
    (
        "nondeterministic_output",
        "memory|doctor memory|malloc-stats memory|stats slowlog|len slowlog|get commandlog|len commandlog|get object|idletime object|freq \
         object|encoding object|refcount xinfo|consumers migrate function|stats scan xpending zrandmember lastsave xadd \
         randomkey cluster|slaves cluster|replicas cluster|shards cluster|bumpepoch cluster|links cluster|nodes \
         cluster|slots cluster|getkeysinslot cluster|count-failure-reports cluster|info latency|histogram latency|doctor \
         latency|graph latency|latest latency|history xtrim ttl xclaim xautoclaim time hscan srandmember zscan spop \
         client|info client|list pttl dump sscan hrandfield info",
    ),
    (
        "nondeterministic_output_order",
        "function|list smembers keys sunion hvals command command|docs command|list command|info sinter hgetall sdiff \
         module|list hkeys",
    ),
    (
        "request_policy:all_nodes",
        "script|flush script|load slowlog|reset slowlog|len slowlog|get commandlog|reset commandlog|len commandlog|get latency|reset latency|histogram latency|doctor \
         latency|graph latency|latest latency|history config|set",
    ),
    (
        "request_policy:all_shards",
        "script|exists script|kill memory|doctor memory|malloc-stats memory|stats memory|purge function|kill \
         function|flush function|restore function|delete function|load function|stats dbsize ping randomkey keys wait \
         waitaof flushdb flushall info",
    ),
    ("request_policy:special", "scan"),
    ("request_policy:multi_shard", "exists mset mget touch del msetnx unlink"),
    (
        "response_policy:all_succeeded",
        "script|flush script|load memory|purge slowlog|reset commandlog|reset function|flush function|restore function|delete \
         function|load ping mset latency|reset config|set flushdb flushall",
    ),
    ("response_policy:agg_logical_and", "script|exists"),
    ("response_policy:one_succeeded", "script|kill function|kill"),
    (
        "response_policy:special",
        "memory|doctor memory|malloc-stats memory|stats function|stats latency|histogram latency|doctor latency|graph \
         latency|latest latency|history info",
    ),
    ("response_policy:agg_sum", "slowlog|len commandlog|len dbsize exists touch del unlink"),
    ("response_policy:agg_min", "wait waitaof msetnx"),
];

/// Commands kept for old clients: since when, and what to use instead.
const DEPRECATED: &[(&str, &str, &str)] = &[
    ("getset", "6.2.0", "`SET` with the `GET` argument"),
    ("setnx", "2.6.12", "`SET` with the `NX` argument"),
    ("setex", "2.6.12", "`SET` with the `EX` argument"),
    ("psetex", "2.6.12", "`SET` with the `PX` argument"),
    ("substr", "2.0.0", "`GETRANGE`"),
    ("hmset", "4.0.0", "`HSET` with multiple field-value pairs"),
    ("rpoplpush", "6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments"),
    ("brpoplpush", "6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments"),
    ("zrangebyscore", "6.2.0", "`ZRANGE` with the `BYSCORE` argument"),
    ("zrevrangebyscore", "6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments"),
    ("zrangebylex", "6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    ("zrevrangebylex", "6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments"),
    ("zrevrange", "6.2.0", "`ZRANGE` with the `REV` argument"),
    ("georadius", "6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument"),
    (
        "georadiusbymember",
        "6.2.0",
        "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
    ),
    ("georadius_ro", "6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument"),
    ("georadiusbymember_ro", "6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments"),
    ("slaveof", "5.0.0", "`REPLICAOF`"),
    ("quit", "7.2.0", "just closing the connection"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Keys;

    fn names(spec: Spec) -> Vec<&'static str> {
        spec.categories().names().collect()
    }

    #[test]
    fn flags_and_group_make_the_categories() {
        let get = Spec::read("get", 2, Keys::ONE).fast().doc(Group::String, "1.0.0", "key", "");
        assert_eq!(names(get), ["read", "string", "fast"]);
        let flushall = Spec::shrink("flushall", -1, Keys::None).doc(Group::Server, "1.0.0", "", "");
        assert_eq!(names(flushall), ["keyspace", "write", "slow", "dangerous"]);
        let config = Spec::other("config|get", -3).flag(Flags::ADMIN).doc(Group::Server, "2.0.0", "", "");
        assert_eq!(names(config), ["admin", "slow", "dangerous"]);
    }

    #[test]
    fn a_category_is_found_by_name_in_any_case() {
        assert_eq!(Categories::named(b"SortedSet"), Some(Categories::SORTEDSET));
        assert_eq!(Categories::named(b"nothing"), None);
        assert_eq!(Categories::NAMES.len(), 31);
    }
}
