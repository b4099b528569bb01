//! Which command of Redis stands for one of memcached's where all commands are treated alike: statistics, MONITOR,
//! CLIENT PAUSE, the memory limit, access rights.

use darter_wire::memcache::{Command, MetaVerb, Store};

use crate::registry::{Entry, Registry};

/// The commands that stand for memcached's.
pub struct Verbs {
    get: &'static Entry,
    get_many: &'static Entry,
    gat: &'static Entry,
    set: &'static Entry,
    append: &'static Entry,
    prepend: &'static Entry,
    delete: &'static Entry,
    count: &'static Entry,
    touch: &'static Entry,
    flush: &'static Entry,
    info: &'static Entry,
    list: &'static Entry,
    ping: &'static Entry,
    quit: &'static Entry,
}

impl Verbs {
    /// Looks them up; `rename-command` does not change what they are. Panics when one is missing from the tables.
    pub fn new(registry: &Registry) -> Verbs {
        let named = |name: &str| match registry.row(name) {
            Some(entry) => entry,
            None => panic!("no command {name}"),
        };
        Verbs {
            get: named("get"),
            get_many: named("mget"),
            gat: named("getex"),
            set: named("set"),
            append: named("append"),
            prepend: named("prepend"),
            delete: named("del"),
            count: named("incrby"),
            touch: named("expire"),
            flush: named("flushdb"),
            info: named("info"),
            list: named("keys"),
            ping: named("ping"),
            quit: named("quit"),
        }
    }

    /// The command that stands for `get` of one key.
    #[inline]
    pub(super) fn get(&self) -> &'static Entry {
        self.get
    }

    /// The command that stands for `set`.
    #[inline]
    pub(super) fn set(&self) -> &'static Entry {
        self.set
    }

    /// The command that deletes everything.
    pub(super) fn flush(&self) -> &'static Entry {
        self.flush
    }

    /// The command that stands for `command`.
    #[inline]
    pub(super) fn of(&self, command: &Command<'_>) -> &'static Entry {
        match command {
            Command::Get { touch: None, keys, .. } if keys.is_one() => self.get,
            Command::Get { touch: None, .. } => self.get_many,
            Command::MetaDebug { .. } => self.get,
            Command::Get { touch: Some(_), .. } => self.gat,
            Command::Store { store: Store::Append, .. } => self.append,
            Command::Store { store: Store::Prepend, .. } => self.prepend,
            Command::Store { .. } => self.set,
            Command::Delete { .. } => self.delete,
            Command::Count { .. } => self.count,
            Command::Touch { .. } => self.touch,
            Command::FlushAll { .. } => self.flush,
            Command::Meta(meta) => match meta.verb {
                MetaVerb::Get if meta.vivify.is_some() => self.set,
                MetaVerb::Get if meta.ttl.is_some() => self.gat,
                MetaVerb::Get => self.get,
                MetaVerb::Set => self.set,
                MetaVerb::Delete => self.delete,
                MetaVerb::Count => self.count,
            },
            Command::Admin { name: b"lru_crawler", words, .. }
                if words.clone().next().is_some_and(|word| word.ends_with(b"dump")) =>
            {
                self.list
            }
            Command::Stats(_) | Command::Admin { .. } | Command::Verbosity { .. } => self.info,
            Command::Version | Command::MetaNoop => self.ping,
            Command::Quit => self.quit,
        }
    }
}
