//! Which command of Redis stands for one of memcached's where all commands are treated alike: statistics, MONITOR,
//! CLIENT PAUSE, the memory limit, access rights.

use darter_wire::memcache::{MemcacheCommand, MetaVerb, Store};

use crate::registry::{CommandEntry, Registry};

/// The commands that stand for memcached's.
pub struct Verbs {
    get: &'static CommandEntry,
    get_many: &'static CommandEntry,
    gat: &'static CommandEntry,
    set: &'static CommandEntry,
    append: &'static CommandEntry,
    prepend: &'static CommandEntry,
    delete: &'static CommandEntry,
    count: &'static CommandEntry,
    touch: &'static CommandEntry,
    flush: &'static CommandEntry,
    info: &'static CommandEntry,
    list: &'static CommandEntry,
    ping: &'static CommandEntry,
    quit: &'static CommandEntry,
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
    pub(super) fn get(&self) -> &'static CommandEntry {
        self.get
    }

    /// The command that stands for `set`.
    #[inline]
    pub(super) fn set(&self) -> &'static CommandEntry {
        self.set
    }

    /// The command that deletes everything.
    pub(super) fn flush(&self) -> &'static CommandEntry {
        self.flush
    }

    /// The command that stands for `command`.
    #[inline]
    pub(super) fn of(&self, command: &MemcacheCommand<'_>) -> &'static CommandEntry {
        match command {
            MemcacheCommand::Get { touch: None, keys, .. } if keys.is_one() => self.get,
            MemcacheCommand::Get { touch: None, .. } => self.get_many,
            MemcacheCommand::MetaDebug { .. } => self.get,
            MemcacheCommand::Get { touch: Some(_), .. } => self.gat,
            MemcacheCommand::Store { store: Store::Append, .. } => self.append,
            MemcacheCommand::Store { store: Store::Prepend, .. } => self.prepend,
            MemcacheCommand::Store { .. } => self.set,
            MemcacheCommand::Delete { .. } => self.delete,
            MemcacheCommand::Count { .. } => self.count,
            MemcacheCommand::Touch { .. } => self.touch,
            MemcacheCommand::FlushAll { .. } => self.flush,
            MemcacheCommand::Meta(meta) => match meta.verb {
                MetaVerb::Get if meta.vivify.is_some() => self.set,
                MetaVerb::Get if meta.ttl.is_some() => self.gat,
                MetaVerb::Get => self.get,
                MetaVerb::Set => self.set,
                MetaVerb::Delete => self.delete,
                MetaVerb::Count => self.count,
            },
            MemcacheCommand::Admin { name: b"lru_crawler", words, .. }
                if words.clone().next().is_some_and(|word| word.ends_with(b"dump")) =>
            {
                self.list
            }
            MemcacheCommand::Stats(_) | MemcacheCommand::Admin { .. } | MemcacheCommand::Verbosity { .. } => {
                self.info
            }
            MemcacheCommand::Version | MemcacheCommand::MetaNoop => self.ping,
            MemcacheCommand::Quit => self.quit,
        }
    }
}
