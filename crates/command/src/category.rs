//! ACL categories of a command, derived from its flags and its group, and the tips COMMAND INFO gives proxies.

use crate::spec::{Flags, Group, Marks, Spec};

/// A set of ACL categories, one bit each in the order of [`Categories::NAMES`]. First those of Redis, then those of
/// Dragonfly for families that may have no commands here, so that its users can be imported.
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
    /// No category.
    pub const NONE: Categories = Categories(0);

    /// The category called `name`, without the `@`, in any case.
    pub fn named(name: &[u8]) -> Option<Categories> {
        let at = Categories::NAMES.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(name))?;
        Some(Categories(1 << at))
    }

    /// Returns true if any of `other` is in it.
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
        let mut all = self.own_category().with(self.category);
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
        all
    }

    fn own_category(&self) -> Categories {
        if self.has(Marks::NO_GROUP_CATEGORY) {
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
            Group::Server | Group::Pubsub | Group::Cluster => Categories::default(),
        }
    }
}

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
        let both = Categories::DANGEROUS.with(Categories::KEYSPACE);
        let flushall =
            Spec::shrink("flushall", -1, Keys::None).category(both).doc(Group::Server, "1.0.0", "", "");
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
