//! Where a command's keys are and what it does to them, as COMMAND INFO, COMMAND GETKEYSANDFLAGS and ACL rules
//! need it. Locking goes by [`Keys`] alone; this is the finer picture for people and for key permissions.

use crate::spec::{Flags, Keys, Spec};

/// Where a group of keys begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begin {
    /// At this argument.
    Index(u16),
    /// After this word, looked for from an argument on; negative counts from the end, and backwards.
    Keyword(&'static str, i16),
    /// The arguments do not tell.
    Unknown,
}

/// Which arguments from there on are keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Find {
    /// Up to `last` (relative to the beginning, negative counts from the end) in steps; with a `limit` above 1 only
    /// the first of so many equal parts.
    Range {
        /// The last key.
        last: i16,
        /// Distance between keys.
        step: u16,
        /// Which part of the rest has keys: 0 and 1 all of it, 2 its first half.
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
    /// What happens to the keys, in Redis' words: `RW access update`.
    pub access: &'static str,
    /// Where they begin.
    pub begin: Begin,
    /// Which they are.
    pub find: Find,
    /// A remark for people, or nothing.
    pub notes: &'static str,
}

impl Spec {
    /// The groups of keys of the command.
    pub fn key_specs(&self) -> Vec<KeySpec> {
        if let Some((_, specs)) = SEVERAL.iter().find(|(name, _)| *name == self.name) {
            return specs.to_vec();
        }
        let (begin, find) = match self.keys {
            Keys::Range { first, last, step } => {
                let last = if last < 0 { last } else { last.saturating_sub_unsigned(first) };
                (Begin::Index(first), Find::Range { last, step, limit: 0 })
            }
            Keys::Count { at, .. } => (Begin::Index(at), Find::Count { step: 1 }),
            Keys::None | Keys::Find(_) => return Vec::new(),
        };
        vec![KeySpec { access: self.access(), begin, find, notes: self.notes() }]
    }

    fn access(&self) -> &'static str {
        let known = ACCESS.iter().find(|(_, names)| names.split(' ').any(|name| name == self.name));
        match known {
            Some((access, _)) => access,
            None if self.flags.any(Flags::WRITE) => "RW update",
            None => "RO access",
        }
    }

    fn notes(&self) -> &'static str {
        match self.name {
            "eval" | "evalsha" | "fcall" => {
                "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"
            }
            "set" => "RW and ACCESS due to the optional `GET` argument",
            "getex" => "RW and UPDATE because it changes the TTL",
            "eval_ro" | "fcall_ro" => {
                "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"
            }
            _ => "",
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

    /// Whether the simple part does not tell all: the keys of some calls are found elsewhere.
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

const fn one(at: u16, access: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Index(at), find: Find::Range { last: 0, step: 1, limit: 0 }, notes: "" }
}

const fn rest(at: u16, access: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Index(at), find: Find::Range { last: -1, step: 1, limit: 0 }, notes: "" }
}

const fn count(at: u16, access: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Index(at), find: Find::Count { step: 1 }, notes: "" }
}

const fn after(word: &'static str, from: i16, access: &'static str) -> KeySpec {
    KeySpec {
        access,
        begin: Begin::Keyword(word, from),
        find: Find::Range { last: 0, step: 1, limit: 0 },
        notes: "",
    }
}

const fn streams(from: i16) -> KeySpec {
    KeySpec {
        access: "RO access",
        begin: Begin::Keyword("STREAMS", from),
        find: Find::Range { last: -1, step: 1, limit: 2 },
        notes: "",
    }
}

const fn unknown(access: &'static str, notes: &'static str) -> KeySpec {
    KeySpec { access, begin: Begin::Unknown, find: Find::Unknown, notes }
}

const TAKEN: &str = "RW access delete";
const READ: &str = "RO access";
const WRITTEN: &str = "OW update";
const SORT_BY: KeySpec = unknown(
    READ,
    "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the key we sort",
);
const SORT_STORE: KeySpec = unknown(
    WRITTEN,
    "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument array",
);

/// Commands whose keys are not all alike, or do not stand where [`Keys`] could say.
const SEVERAL: &[(&str, &[KeySpec])] = &[
    ("bitop", &[one(2, WRITTEN), rest(3, READ)]),
    ("georadius", &[one(1, READ), after("STORE", 6, WRITTEN), after("STOREDIST", 6, WRITTEN)]),
    ("georadiusbymember", &[one(1, READ), after("STORE", 5, WRITTEN), after("STOREDIST", 5, WRITTEN)]),
    (
        "migrate",
        &[
            one(3, TAKEN),
            KeySpec {
                access: "RW access delete incomplete",
                begin: Begin::Keyword("KEYS", -2),
                find: Find::Range { last: -1, step: 1, limit: 0 },
                notes: "",
            },
        ],
    ),
    ("copy", &[one(1, READ), one(2, WRITTEN)]),
    ("rename", &[one(1, TAKEN), one(2, WRITTEN)]),
    ("renamenx", &[one(1, TAKEN), one(2, "OW insert")]),
    ("smove", &[one(1, TAKEN), one(2, "RW insert")]),
    ("lmove", &[one(1, TAKEN), one(2, "RW insert")]),
    ("lmovem", &[one(1, TAKEN), one(2, "RW insert")]),
    ("blmove", &[one(1, TAKEN), one(2, "RW insert")]),
    ("blmovem", &[one(1, TAKEN), one(2, "RW insert")]),
    ("rpoplpush", &[one(1, TAKEN), one(2, "RW insert")]),
    ("brpoplpush", &[one(1, TAKEN), one(2, "RW insert")]),
    ("sunionstore", &[one(1, WRITTEN), rest(2, READ)]),
    ("sdiffstore", &[one(1, WRITTEN), rest(2, READ)]),
    ("sinterstore", &[one(1, "RW update"), rest(2, READ)]),
    ("geosearchstore", &[one(1, WRITTEN), one(2, READ)]),
    ("zrangestore", &[one(1, WRITTEN), one(2, READ)]),
    ("zunionstore", &[one(1, WRITTEN), count(2, READ)]),
    ("zinterstore", &[one(1, WRITTEN), count(2, READ)]),
    ("zdiffstore", &[one(1, WRITTEN), count(2, READ)]),
    ("pfmerge", &[one(1, "RW access insert"), rest(2, READ)]),
    (
        "msetex",
        &[KeySpec { access: WRITTEN, begin: Begin::Index(1), find: Find::Count { step: 2 }, notes: "" }],
    ),
    ("sort", &[one(1, READ), SORT_BY, SORT_STORE]),
    ("sort_ro", &[one(1, READ), SORT_BY]),
    (
        "xadd",
        &[KeySpec {
            notes: "UPDATE instead of INSERT because of the optional trimming feature",
            ..one(1, "RW update")
        }],
    ),
    ("xread", &[streams(1)]),
    ("xreadgroup", &[streams(4)]),
];

/// What commands with one group of keys do to them, where reading alone or changing alone does not say it.
const ACCESS: &[(&str, &str)] = &[
    (
        TAKEN,
        "rpop blpop zmpop bzpopmax lpop bzpopmin blmpop zpopmax zpopmin lmpop getdel bzmpop brpop spop hgetdel",
    ),
    (
        "RO",
        "memory|usage hstrlen object|idletime object|freq object|encoding object|refcount scard exists sismember hlen \
         touch llen zcard type hexists strlen xlen watch",
    ),
    (
        "RW access update",
        "getset incrby eval incrbyfloat evalsha decrby hincrby zincrby setbit getex incr decr fcall move hincrbyfloat hgetex \
         increx",
    ),
    (WRITTEN, "restore mset psetex setex restore-asking msetex"),
    (
        "RW insert",
        "sadd append lpush hsetnx rpush lpushx rpushx xgroup|createconsumer xgroup|create linsert pfadd prepend saddex",
    ),
    ("not_key", "ssubscribe spublish sunsubscribe"),
    ("RW access", "pfdebug pfcount"),
    ("RW access update variable_flags", "set bitfield"),
    (
        "RW delete",
        "zremrangebyrank hdel srem zrem xtrim xdel zremrangebylex xautoclaim ltrim lrem xgroup|destroy xgroup|delconsumer \
         zremrangebyscore xdelex xackdel delifeq",
    ),
    ("OW insert", "setnx msetnx"),
    ("RM delete", "del unlink delex"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simple_range_joins_neighbouring_groups() {
        let of = |name, keys| Spec { keys, ..Spec::write(name, -3, Keys::None) }.key_range();
        assert_eq!(of("get", Keys::ONE), (1, 1, 1));
        assert_eq!(of("mset", Keys::PAIRS), (1, -1, 2));
        assert_eq!(of("bitop", Keys::Range { first: 2, last: -1, step: 1 }), (2, -1, 1));
        assert_eq!(of("rename", Keys::TWO), (1, 2, 1));
        assert_eq!(of("zunionstore", Keys::Count { at: 2, dest: 1 }), (1, 1, 1));
        assert_eq!(of("lmpop", Keys::Count { at: 1, dest: 0 }), (0, 0, 0));
        assert_eq!(of("ping", Keys::None), (0, 0, 0));
    }

    #[test]
    fn every_command_of_the_families_has_groups_when_it_has_keys() {
        for command in crate::FAMILIES.iter().copied().flatten() {
            let has_keys = !matches!(command.spec.keys, Keys::None);
            assert_eq!(!command.spec.key_specs().is_empty(), has_keys, "{}", command.spec.name);
        }
    }
}
