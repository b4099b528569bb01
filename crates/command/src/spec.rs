//! What is known about a command before it runs.
//!
//! Dispatch, locking, COMMAND INFO and DOCS, ACL categories and the fuzz grammar all read this table.

use darter_wire::Args;

/// A command and its body; the server's own commands have bodies of another type.
#[derive(Clone, Copy, Debug)]
pub struct Command<F: 'static> {
    /// What is known about it.
    pub spec: Spec,
    /// The body.
    pub run: F,
}

/// Properties of a command, with the names COMMAND INFO gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flags(pub u32);

macro_rules! flags {
    ($($(#[doc = $doc:literal])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl Flags {
            $($(#[doc = $doc])* pub const $name: Flags = Flags(1 << $bit);)*
            /// Every flag with its COMMAND INFO name.
            pub const ALL: &'static [(Flags, &'static str)] = &[$((Flags::$name, $text)),*];
        }
    };
}

flags! {
    /// May change data.
    WRITE = 0, "write";
    /// Never changes data.
    READONLY = 1, "readonly";
    /// Refused when memory is full.
    DENYOOM = 2, "denyoom";
    /// An administrator's command.
    ADMIN = 3, "admin";
    /// Concerns messages, not data.
    PUBSUB = 4, "pubsub";
    /// Refused in scripts.
    NOSCRIPT = 5, "noscript";
    /// May wait.
    BLOCKING = 6, "blocking";
    /// Allowed while a snapshot is loading.
    LOADING = 7, "loading";
    /// Allowed on a replica without its master.
    STALE = 8, "stale";
    /// Not shown to MONITOR.
    SKIP_MONITOR = 9, "skip_monitor";
    /// Not put into the slow log.
    SKIP_SLOWLOG = 10, "skip_slowlog";
    /// Constant or logarithmic time.
    FAST = 11, "fast";
    /// Allowed before AUTH.
    NO_AUTH = 12, "no_auth";
    /// May change data though not a write (PUBLISH, scripts).
    MAY_REPLICATE = 13, "may_replicate";
    /// Keys are not found by position alone.
    MOVABLEKEYS = 14, "movablekeys";
    /// Refused inside MULTI.
    NO_MULTI = 15, "no_multi";
    /// Allowed while a script is over its time.
    ALLOW_BUSY = 16, "allow_busy";
    /// Counts its keys and may have none.
    NO_MANDATORY_KEYS = 17, "no_mandatory_keys";
    /// Refused while an asynchronous load goes on.
    NO_ASYNC_LOADING = 18, "no_async_loading";
    /// Takes part in an ASK redirection.
    ASKING = 19, "asking";
}

impl Flags {
    /// No flag.
    pub const NONE: Flags = Flags(0);

    /// Both sets together.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    #[inline]
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Properties of a command that the server acts on and no client sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks(u32);

/// Gives each property a bit of its own.
macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names of the constants, numbered")]
        enum Bit { $($name,)* }

        impl Marks {
            $($(#[$doc])* pub const $name: Marks = Marks(1 << Bit::$name as u32);)*
        }
    };
}

marks! {
    /// May change every key at once, without a change of each key being reported.
    FLUSHES,
    /// Leaves the request of CLIENT CACHING to the next command.
    KEEPS_CACHING,
    /// Counts as a use of its keys whatever CLIENT NO-TOUCH says.
    COUNTS_USE,
    /// Empties every database: snapshots of the data before are void.
    EMPTIES,
    /// Runs the commands that MULTI has queued.
    RUNS_QUEUE,
    /// Runs inside MULTI instead of being queued.
    NOT_QUEUED,
    /// Allowed to a RESP2 client that is subscribed.
    ALLOWED_SUBSCRIBED,
    /// Answers with messages, which CLIENT REPLY OFF lets through.
    ANSWERS_BY_PUSH,
    /// Refused like a write while snapshots fail.
    FAILS_WITH_SNAPSHOTS,
    /// Selects the database that its first argument names.
    SELECTS,
    /// A client that waits with it is answered when its key is removed.
    ENDS_WITH_KEY,
    /// So cheap with one key, or with none, that only a sample of its calls is timed; FAST commands with one key are too.
    CHEAP,
    /// Never left to slices because of the number of its words.
    WORDS_ARE_FEW,
    /// Completed from the connection's fieldsets before it takes a shard.
    IMPORTS,
    /// Has more subcommands than the registry knows, and refuses unknown ones itself; a setting keeps it from clients.
    DEBUG,
    /// A command about the server that the journal runs again.
    REPLAYED,
    /// Changes a connection, waits for messages or belongs to a protocol: it has no meaning over HTTP.
    NOT_OVER_HTTP,
    /// Reads keys that its arguments make of other values.
    READS_BY_PATTERN,
    /// Reads keys that it finds by what is in their values.
    READS_BY_LABEL,
    /// A command about the server that only tells: the console may run it where it is to change nothing.
    ONLY_TELLS,
}

impl Marks {
    /// No property.
    pub const NONE: Marks = Marks(0);

    /// Both sets together.
    pub const fn with(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    #[inline]
    pub const fn any(self, other: Marks) -> bool {
        self.0 & other.0 != 0
    }
}

/// What the journal writes of a command that changed something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The command itself if it is a write, else nothing: run again with the same clock it does the same.
    ByFlags,
    /// The command itself.
    Itself,
    /// Nothing: its body notes what is to be noted.
    Nothing,
    /// The removal of the members in its reply.
    Removal,
    /// Itself, with the exact number of entries to keep in place of an approximate one.
    Trim,
    /// The value at its first key as it is afterwards.
    FirstValue,
    /// The value at its last key as it is afterwards.
    LastValue,
}

/// A command whose body the server inlines into its loop over a pipeline, for calls without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inlined {
    /// None.
    No,
    /// GET.
    Get,
    /// SET with three words.
    Set,
    /// MGET, each key as GET.
    GetMany,
    /// MSET, each pair as SET.
    SetMany,
}

/// Which arguments of a command are channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelArgs {
    /// None.
    None,
    /// The first.
    First,
    /// All.
    Names,
    /// All, and they are patterns.
    Patterns,
}

/// Which databases a command reaches beside or in place of the selected one.
#[derive(Clone, Copy, Debug)]
pub enum DatabaseReach {
    /// The selected one.
    Selected,
    /// The one that the first argument names, in place of the selected one.
    First,
    /// The two that its arguments name, and so the clients of other users.
    Exchanged,
    /// The selected one and the one that the second argument names, and so the clients of other users.
    Moved,
    /// The selected one and the one behind the word DB.
    Copied,
    /// All.
    All,
}

/// The documentation group of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the field's own")]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Stream,
    Bitmap,
    Hyperloglog,
    Geo,
    Connection,
    Server,
    Transactions,
    Scripting,
    Pubsub,
    Cluster,
    Json,
    Bloom,
    Cuckoo,
    CountMin,
    TopK,
    Digest,
    Series,
    Array,
}

impl Group {
    /// The name COMMAND DOCS gives it.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::Stream => "stream",
            Group::Bitmap => "bitmap",
            Group::Hyperloglog => "hyperloglog",
            Group::Geo => "geo",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Transactions => "transactions",
            Group::Scripting => "scripting",
            Group::Pubsub => "pubsub",
            Group::Cluster => "cluster",
            Group::Array => "array",
            // What Redis keeps in modules is one group there.
            Group::Json
            | Group::Bloom
            | Group::Cuckoo
            | Group::CountMin
            | Group::TopK
            | Group::Digest
            | Group::Series => "module",
        }
    }
}

/// Where a command's keys stand among its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// There are none.
    None,
    /// From `first` to `last` (negative counts from the end) in steps of `step`.
    Range {
        /// Index of the first key.
        first: u16,
        /// Index of the last key; -1 is the last argument.
        last: i16,
        /// Distance between keys.
        step: u16,
    },
    /// The argument at `at` says how many keys follow it; `dest` is one more key's place, or 0.
    Count {
        /// Index of the number of keys.
        at: u16,
        /// Index of a destination key, or 0.
        dest: u16,
    },
    /// Found by a function that reports each key's index; it must accept any arguments.
    Find(fn(Args<'_>, &mut dyn FnMut(usize))),
}

/// How far a command reaches beyond its keys.
#[derive(Clone, Copy, Debug)]
pub enum Reach {
    /// The shards of its keys.
    Keys,
    /// Every shard (FLUSHALL, SWAPDB).
    All,
    /// Every shard if the arguments ask for it (SORT with patterns), else those of the keys.
    AllIf(fn(Args<'_>) -> bool),
    /// The shards of its keys, and of the keys that their values name, if its arguments ask for it. The last says whether
    /// that is so rare that a script which names its keys runs with their shards alone.
    Linked(fn(Args<'_>) -> bool, Rarity),
    /// A contiguous run of shards, computed from the arguments (SCAN): start and length.
    Run(fn(Args<'_>, u16) -> (u16, u16)),
}

/// How often a command needs more than the shards of its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rarity {
    /// Often enough that whoever plans ahead takes all shards.
    Often,
    /// So seldom that whoever plans ahead takes those of the keys; the command fails in a script then.
    Seldom,
}

/// A command's row.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Lower-case name; `container|sub` for a subcommand.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i16,
    /// Properties that COMMAND INFO shows.
    pub flags: Flags,
    /// Properties that it does not show.
    pub marks: Marks,
    /// What the journal writes of it.
    pub effect: Effect,
    /// Which inlined body it has.
    pub inlined: Inlined,
    /// Which of its arguments are channels.
    pub channels: ChannelArgs,
    /// Which databases it reaches.
    pub databases: DatabaseReach,
    /// What a call does to its key at an argument, in Redis' words, when the arguments decide.
    pub access: Option<fn(Args<'_>) -> &'static str>,
    /// Which arguments of a call are secrets, which MONITOR and the slow log hide.
    pub secret: Option<fn(Args<'_>, usize) -> bool>,
    /// Where the keys are.
    pub keys: Keys,
    /// What is held while it runs.
    pub reach: Reach,
    /// Documentation group.
    pub group: Group,
    /// Version of Redis (or of the server named) that had it first.
    pub since: &'static str,
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// Arguments in the notation of the reference: `key [NX | XX] [EX seconds]`.
    pub syntax: &'static str,
    /// Growth of cost, for COMMAND DOCS.
    pub complexity: &'static str,
}

impl Spec {
    const fn new(name: &'static str, arity: i16, flags: Flags, keys: Keys) -> Spec {
        Spec {
            name,
            arity,
            flags,
            marks: Marks::NONE,
            effect: Effect::ByFlags,
            inlined: Inlined::No,
            channels: ChannelArgs::None,
            databases: DatabaseReach::Selected,
            access: None,
            secret: None,
            keys,
            reach: Reach::Keys,
            group: Group::Generic,
            since: "1.0.0",
            summary: "",
            syntax: "",
            complexity: "O(1)",
        }
    }

    /// A command that reads data.
    pub const fn read(name: &'static str, arity: i16, keys: Keys) -> Spec {
        Spec::new(name, arity, Flags::READONLY, keys)
    }

    /// A command that changes data and may need memory.
    pub const fn write(name: &'static str, arity: i16, keys: Keys) -> Spec {
        Spec::new(name, arity, Flags::WRITE.with(Flags::DENYOOM), keys)
    }

    /// A command that changes data and never needs memory.
    pub const fn shrink(name: &'static str, arity: i16, keys: Keys) -> Spec {
        Spec::new(name, arity, Flags::WRITE, keys)
    }

    /// A command about the server or the connection.
    pub const fn other(name: &'static str, arity: i16) -> Spec {
        Spec::new(name, arity, Flags::NONE, Keys::None)
    }

    /// Adds properties.
    pub const fn flag(mut self, flags: Flags) -> Spec {
        self.flags = self.flags.with(flags);
        self
    }

    /// Adds properties that no client sees.
    pub const fn mark(mut self, marks: Marks) -> Spec {
        self.marks = self.marks.with(marks);
        self
    }

    /// The journal writes this of it.
    pub const fn effect(mut self, effect: Effect) -> Spec {
        self.effect = effect;
        self
    }

    /// It has this inlined body.
    pub const fn inlined(mut self, inlined: Inlined) -> Spec {
        self.inlined = inlined;
        self
    }

    /// These arguments are channels.
    pub const fn channels(mut self, channels: ChannelArgs) -> Spec {
        self.channels = channels;
        self
    }

    /// It reaches these databases.
    pub const fn databases(mut self, databases: DatabaseReach) -> Spec {
        self.databases = databases;
        self
    }

    /// Its arguments decide what a call does to its key.
    pub const fn access_by(mut self, access: fn(Args<'_>) -> &'static str) -> Spec {
        self.access = Some(access);
        self
    }

    /// Some arguments of a call are secrets.
    pub const fn secret(mut self, secret: fn(Args<'_>, usize) -> bool) -> Spec {
        self.secret = Some(secret);
        self
    }

    /// Whether any of `marks` is set.
    #[inline]
    pub const fn has(&self, marks: Marks) -> bool {
        self.marks.any(marks)
    }

    /// Constant or logarithmic time.
    pub const fn fast(self) -> Spec {
        self.flag(Flags::FAST)
    }

    /// Holds more than the shards of the keys.
    pub const fn reach(mut self, reach: Reach) -> Spec {
        self.reach = reach;
        self
    }

    /// Documentation: group, first version, arguments, one line.
    pub const fn doc(
        mut self,
        group: Group,
        since: &'static str,
        syntax: &'static str,
        summary: &'static str,
    ) -> Spec {
        self.group = group;
        self.since = since;
        self.syntax = syntax;
        self.summary = summary;
        self
    }

    /// Growth of cost where it is not constant.
    pub const fn cost(mut self, complexity: &'static str) -> Spec {
        self.complexity = complexity;
        self
    }

    /// Whether `args_len` arguments (with the name) fit the arity.
    #[inline]
    pub const fn accepts(&self, args_len: usize) -> bool {
        if self.arity >= 0 {
            args_len == self.arity as usize
        } else {
            args_len >= self.arity.unsigned_abs() as usize
        }
    }

    /// Whether a call says that it has more keys than it has arguments, or none where there must be one: it will fail,
    /// and Redis sees no keys in it.
    pub fn counts_too_many(&self, args: Args<'_>) -> bool {
        matches!(self.keys, Keys::Count { at, .. } if said_keys(args, at) >= args.len().saturating_sub(usize::from(at)))
    }

    /// Calls `visit` with the index of each key among `args`; out-of-range places are left out.
    pub fn each_key(&self, args: Args<'_>, visit: &mut dyn FnMut(usize)) {
        match self.keys {
            Keys::None => {}
            Keys::Range { first, last, step } => {
                let end = if last < 0 { args.len() as i64 + last as i64 } else { last as i64 };
                let mut at = first as i64;
                while at <= end && (at as usize) < args.len() {
                    visit(at as usize);
                    at += step as i64;
                }
            }
            Keys::Count { at, dest } => {
                if dest != 0 && (dest as usize) < args.len() {
                    visit(dest as usize);
                }
                let first = at as usize + 1;
                let n = said_keys(args, at).min(args.len().saturating_sub(first));
                (first..first + n).for_each(visit);
            }
            Keys::Find(find) => find(args, visit),
        }
    }
}

/// Keys that the argument at `at` says there are.
fn said_keys(args: Args<'_>, at: u16) -> usize {
    let said = args.get(usize::from(at)).and_then(darter_base::number::parse_i64).unwrap_or(0);
    usize::try_from(said.max(0)).unwrap_or(usize::MAX)
}

impl Keys {
    /// One key at index 1.
    pub const ONE: Keys = Keys::Range { first: 1, last: 1, step: 1 };
    /// Two keys at indexes 1 and 2.
    pub const TWO: Keys = Keys::Range { first: 1, last: 2, step: 1 };
    /// Keys from index 1 to the end.
    pub const REST: Keys = Keys::Range { first: 1, last: -1, step: 1 };
    /// Keys at every second index from 1 to the end.
    pub const PAIRS: Keys = Keys::Range { first: 1, last: -1, step: 2 };
}
