//! Positions of a command's keys and the access to them, for COMMAND INFO, COMMAND GETKEYSANDFLAGS and ACL rules.
//! Locking uses [`Keys`] alone; this is the finer description for people and for key permissions.

use crate::spec::{Flags, Keys, Spec};

/// The beginning of a group of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// At this argument.
    Index(u16),
    /// After this word, searched from an argument on; negative counts from the end, and backwards.
    Keyword(&'static str, i16),
    /// The arguments do not tell.
    Unknown,
}

/// The arguments from there on that are keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Find {
    /// Up to `last` (relative to the beginning, negative counts from the end) in steps. With a `limit` above 1, only
    /// the first of that many equal parts.
    Range {
        /// The last key.
        last: i16,
        /// Distance between keys.
        step: u16,
        /// The part of the rest that has keys: all of it for 0 and 1, its first half for 2.
        limit: u16,
    },
    /// The argument at the beginning is the number of keys, which follow it in steps.
    Count {
        /// Distance between keys.
        step: u16,
    },
    /// The arguments do not tell.
    Unknown,
}

/// One group of keys of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySpec {
    /// The access to the keys, in Redis' words: `RW access update`.
    pub access: &'static str,
    /// The beginning of the group.
    pub begin: Begin,
    /// The keys of the group.
    pub find: Find,
    /// A remark for people, or nothing.
    pub notes: &'static str,
}

impl Spec {
    /// The groups of keys of the command.
    pub fn key_specs(&self) -> Vec<KeySpec> {
        if !self.key_groups.is_empty() {
            return self.key_groups.to_vec();
        }
        let (begin, find) = match self.keys {
            Keys::Range { first, last, step } => {
                let last = if last < 0 { last } else { last.saturating_sub_unsigned(first) };
                (Begin::Index(first), Find::Range { last, step, limit: 0 })
            }
            Keys::Count { at, .. } => (Begin::Index(at), Find::Count { step: 1 }),
            Keys::None | Keys::Find(_) => return Vec::new(),
        };
        vec![KeySpec { access: self.access(), begin, find, notes: self.key_notes }]
    }

    fn access(&self) -> &'static str {
        match self.key_access {
            "" if self.flags.any(Flags::WRITE) => "RW update",
            "" => "RO access",
            access => access,
        }
    }

    /// The first key, the last and the distance between, as COMMAND INFO shows the simple part of the key groups.
    pub fn key_range(&self) -> (i64, i64, i64) {
        let specs = self.key_specs();
        if let [KeySpec { begin: Begin::Index(first), find: Find::Range { last, step, .. }, .. }] = specs[..]
        {
            let first = i64::from(first);
            return (first, absolute(first, last), i64::from(step));
        }
        let mut range: Option<(i64, i64)> = None;
        for spec in specs {
            let (Begin::Index(first), Find::Range { last, step: 1, .. }) = (spec.begin, spec.find) else {
                continue;
            };
            let first = i64::from(first);
            match range {
                None => range = Some((first, absolute(first, last))),
                Some((start, end)) if end + 1 == first => range = Some((start, absolute(first, last))),
                Some(_) => {}
            }
        }
        range.map_or((0, 0, 0), |(first, last)| (first, last, 1))
    }

    /// Returns true if the simple part is incomplete: some calls have keys elsewhere.
    pub fn has_movable_keys(&self) -> bool {
        self.key_specs().iter().any(|spec| {
            !matches!((spec.begin, spec.find), (Begin::Index(_), Find::Range { .. }))
                || spec.access.contains("incomplete")
        })
    }
}

fn absolute(first: i64, last: i16) -> i64 {
    if last < 0 { i64::from(last) } else { first + i64::from(last) }
}

/// The key at argument `at`.
pub const fn one(at: u16, access: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Index(at), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
}

/// The keys from argument `at` on.
pub const fn rest(at: u16, access: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Index(at), find: Find::Range { last: -1, step: 1, limit: 0 }, notes: "" }
}

/// The keys that follow their number, which is argument `at`.
pub const fn count(at: u16, access: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Index(at), find: Find::Count { step: 1 }, notes: "" }
}

/// The key after `word`, looked for from argument `from` on.
pub const fn after(word: &'static str, from: i16, access: &'static str) -> KeySpec {
    KeySpec {
        access,
        begin: Begin::Keyword(word, from),
        find: Find::Range { last: 0, step: 1, limit: 0 },
        notes: "",
    }
}

/// The keys between STREAMS and their ids.
pub const fn streams(from: i16) -> KeySpec {
    KeySpec {
        access: "RO access",
        begin: Begin::Keyword("STREAMS", from),
        find: Find::Range { last: -1, step: 1, limit: 2 },
        notes: "",
    }
}

/// Keys that the arguments do not tell.
pub const fn unknown(access: &'static str, notes: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Unknown, find: Find::Unknown, notes }
}

/// The key is read and removed.
pub const TAKEN: &str = "RW access delete";
/// The key is read.
pub const READ: &str = "RO access";
/// The key is overwritten.
pub const WRITTEN: &str = "OW update";
/// The keys that SORT's patterns name.
pub const SORT_BY: KeySpec = unknown(
    READ,
    "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
);
/// Where SORT stores.
pub const SORT_STORE: KeySpec = unknown(
    WRITTEN,
    "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simple_range_joins_neighbouring_groups() {
        let of =
            |keys, groups| Spec { keys, ..Spec::write("a", -3, Keys::None) }.key_groups(groups).key_range();
        assert_eq!(of(Keys::ONE, &[]), (1, 1, 1));
        assert_eq!(of(Keys::PAIRS, &[]), (1, -1, 2));
        assert_eq!(of(Keys::None, const { &[one(2, WRITTEN), rest(3, READ)] }), (2, -1, 1));
        assert_eq!(of(Keys::None, const { &[one(1, TAKEN), one(2, WRITTEN)] }), (1, 2, 1));
        assert_eq!(of(Keys::None, const { &[one(1, WRITTEN), count(2, READ)] }), (1, 1, 1));
        assert_eq!(of(Keys::Count { at: 1, dest: 0 }, &[]), (0, 0, 0));
        assert_eq!(of(Keys::None, &[]), (0, 0, 0));
    }

    #[test]
    fn every_command_of_the_families_has_groups_when_it_has_keys() {
        for command in crate::FAMILIES.iter().copied().flatten() {
            let has_keys = !matches!(command.spec.keys, Keys::None);
            assert_eq!(!command.spec.key_specs().is_empty(), has_keys, "{}", command.spec.name);
        }
    }
}
