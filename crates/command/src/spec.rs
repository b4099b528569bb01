//! The properties of a command that are known before it runs.
//!
//! Dispatch, locking, COMMAND INFO and DOCS, ACL categories and the fuzz grammar all read this table.

use darter_wire::Args;

use crate::category::Categories;
use crate::keyspec::KeySpec;

/// A command and its body; the server's own commands have bodies of another type.
#[derive(Clone, Copy, Debug)]
pub struct Command<F: 'static> {
    /// Its row of properties.
    pub spec: Spec,
    /// The body.
    pub run: F,
}

impl<F: Copy> Command<F> {
    /// [`Spec::tips`] of its row.
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Command<F> {
        self.spec = self.spec.tips(tips);
        self
    }
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
    /// Refused while an asynchronous load runs.
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

    /// Returns true if any of `other` is set.
    #[inline]
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

/// Properties of a command that the server acts on and no client sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks(u32);

/// Gives each property a bit.
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
    /// Counts as a use of its keys even with CLIENT NO-TOUCH.
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
    /// So cheap with one key, or with none, that only a sample of its calls is timed. FAST commands with one key are
    /// treated the same.
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
    /// Reads keys that it finds by the labels in their values.
    READS_BY_LABEL,
    /// A server command without effects: the console may run it in read-only mode.
    ONLY_TELLS,
    /// Its documentation group is no ACL category of it.
    NO_GROUP_CATEGORY,
    /// May say a time that counts from when it runs.
    SAYS_TIMES,
    /// Changes the map of the cluster in its store; an EXEC of such commands alone is one change.
    CHANGES_MAP,
    /// Takes keys of a moving slot to another node, or gets them: it runs whatever keys are there.
    MOVES_KEYS,
    /// Removes and counts dead keys too, where these wait for the word of a master.
    COUNTS_DEAD,
}

impl Marks {
    /// No property.
    pub const NONE: Marks = Marks(0);

    /// Both sets together.
    pub const fn with(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }

    /// Returns true if any of `other` is set.
    #[inline]
    pub const fn any(self, other: Marks) -> bool {
        self.0 & other.0 != 0
    }
}

/// The journal's record of a command that changed something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The command itself if it is a write, else nothing: run again with the same clock it does the same.
    ByFlags,
    /// The command itself.
    Itself,
    /// Nothing: its body notes its effects.
    Nothing,
    /// What its body reports with `Ctx::journal_as`, and nothing if it reports nothing. What the body of another command
    /// reports is written in that command's place as well.
    Reported,
    /// The value at its first key as it is afterwards.
    FirstValue,
    /// The value at its last key after the command.
    LastValue,
}

/// What replicas get of a command that changed something, unless its body reports it: words that Redis 7.0 knows, and that
/// do the same at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaForm {
    /// What the journal writes, unless the command changes data of an old type and Redis 7.0 lacks it; then the values of
    /// its keys.
    ByAge,
    /// What the journal writes, with any server that follows.
    Words,
    /// The values of its keys, as they are afterwards.
    Values,
    /// What XCLAIM has claimed.
    Claims,
    /// What XAUTOCLAIM has claimed.
    AutoClaims,
    /// What XREADGROUP has delivered.
    Deliveries,
    /// Itself, with the time that the clock has chosen for `*` at this word.
    Time(usize),
    /// The same, for each third word from there on.
    Times(usize),
    /// The same for the word behind TIMESTAMP, which may be missing.
    TimeOption,
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

/// The arguments of a command that are channels.
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

/// The databases that a command reaches beside or in place of the selected one.
#[derive(Clone, Copy, Debug)]
pub enum DatabaseReach {
    /// The selected one.
    Selected,
    /// The one named by the first argument, in place of the selected one.
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
            // All families of Redis' modules are one group there.
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

/// The positions of a command's keys among its arguments.
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
    /// The argument at `at` is the number of keys after it; `dest` is the position of one more key, or 0.
    Count {
        /// Index of the number of keys.
        at: u16,
        /// Index of a destination key, or 0.
        dest: u16,
    },
    /// Found by a function that reports each key's index; it must accept any arguments.
    Find(fn(Args<'_>, &mut dyn FnMut(usize))),
}

/// The shards that a command needs beyond those of its keys.
#[derive(Clone, Copy, Debug)]
pub enum Reach {
    /// The shards of its keys.
    Keys,
    /// Every shard (FLUSHALL, SWAPDB).
    All,
    /// Every shard if the arguments ask for it (SORT with patterns), else those of the keys.
    AllIf(fn(Args<'_>) -> bool),
    /// The shards of its keys, and of the keys that their values name, if its arguments require it. If that is
    /// seldom, a script that names its keys runs with their shards alone.
    Linked(fn(Args<'_>) -> bool, Rarity),
    /// A contiguous run of shards, computed from the arguments (SCAN): start and length.
    Run(fn(Args<'_>, u16) -> (u16, u16)),
    /// The shard of a slot that the arguments name; every shard if shards do not follow slots.
    Slot(fn(Args<'_>) -> Option<u16>),
}

/// The frequency of needing more than the shards of the keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rarity {
    /// Often: a plan made in advance takes all shards.
    Often,
    /// Seldom: a plan made in advance takes those of the keys. The command then fails in a script.
    Seldom,
}

/// A command's row.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Lower-case name; `container|sub` for a subcommand.
    pub name: &'static str,
    /// Number of arguments including the name; negative: at least that number.
    pub arity: i16,
    /// Properties that COMMAND INFO shows.
    pub flags: Flags,
    /// Properties that it does not show.
    pub marks: Marks,
    /// The journal's record of it.
    pub effect: Effect,
    /// Its inlined body, if any.
    pub inlined: Inlined,
    /// The arguments that are channels.
    pub channels: ChannelArgs,
    /// The databases that it reaches.
    pub databases: DatabaseReach,
    /// The access of a call to its key at an argument, in Redis' words, if the arguments decide.
    pub access: Option<fn(Args<'_>) -> &'static str>,
    /// The arguments of a call that are secrets, which MONITOR and the slow log hide.
    pub secret: Option<fn(Args<'_>, usize) -> bool>,
    /// The positions of the keys.
    pub keys: Keys,
    /// The shards held while it runs.
    pub reach: Reach,
    /// Documentation group.
    pub group: Group,
    /// Version of Redis (or of the server named) that introduced it.
    pub since: &'static str,
    /// One line for COMMAND DOCS.
    pub summary: &'static str,
    /// Arguments in the notation of the reference: `key [NX | XX] [EX seconds]`.
    pub syntax: &'static str,
    /// Growth of cost, for COMMAND DOCS.
    pub complexity: &'static str,
    /// What replicas get of it.
    pub replica_form: ReplicaForm,
    /// What it does to its keys, in Redis' words, if they are alike; empty: reads or changes them, as its flags say.
    pub key_access: &'static str,
    /// A remark about its keys.
    pub key_notes: &'static str,
    /// Its keys, if they are not all alike or do not stand where `keys` could say.
    pub key_groups: &'static [KeySpec],
    /// ACL categories beside those that flags and group tell.
    pub category: Categories,
    /// What proxies and clients should know of it, in Redis' words.
    pub tips: &'static [&'static str],
    /// The version since which another command is better, and which one.
    pub deprecated: Option<(&'static str, &'static str)>,
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
            replica_form: ReplicaForm::ByAge,
            key_access: "",
            key_notes: "",
            key_groups: &[],
            category: Categories::NONE,
            tips: &[],
            deprecated: None,
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

    /// Replicas get this of it.
    pub const fn replica_form(mut self, form: ReplicaForm) -> Spec {
        self.replica_form = form;
        self
    }

    /// It does this to its keys, in Redis' words.
    pub const fn key_access(mut self, access: &'static str) -> Spec {
        self.key_access = access;
        self
    }

    /// A remark about its keys.
    pub const fn key_notes(mut self, notes: &'static str) -> Spec {
        self.key_notes = notes;
        self
    }

    /// Its keys are these.
    pub const fn key_groups(mut self, groups: &'static [KeySpec]) -> Spec {
        self.key_groups = groups;
        self
    }

    /// It is in these ACL categories as well.
    pub const fn category(mut self, categories: Categories) -> Spec {
        self.category = self.category.with(categories);
        self
    }

    /// Proxies and clients should know this of it.
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Spec {
        self.tips = tips;
        self
    }

    /// Another command is better since this version.
    pub const fn deprecated(mut self, since: &'static str, instead: &'static str) -> Spec {
        self.deprecated = Some((since, instead));
        self
    }

    /// Sets its inlined body.
    pub const fn inlined(mut self, inlined: Inlined) -> Spec {
        self.inlined = inlined;
        self
    }

    /// These arguments are channels.
    pub const fn channels(mut self, channels: ChannelArgs) -> Spec {
        self.channels = channels;
        self
    }

    /// Sets the databases that it reaches.
    pub const fn databases(mut self, databases: DatabaseReach) -> Spec {
        self.databases = databases;
        self
    }

    /// Sets the function by which the arguments decide the access.
    pub const fn access_by(mut self, access: fn(Args<'_>) -> &'static str) -> Spec {
        self.access = Some(access);
        self
    }

    /// Some arguments of a call are secrets.
    pub const fn secret(mut self, secret: fn(Args<'_>, usize) -> bool) -> Spec {
        self.secret = Some(secret);
        self
    }

    /// Returns true if any of `marks` is set.
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

    /// Growth of the cost, unless it is constant.
    pub const fn cost(mut self, complexity: &'static str) -> Spec {
        self.complexity = complexity;
        self
    }

    /// Returns true if `args_len` arguments (with the name) fit the arity.
    #[inline]
    pub const fn accepts(&self, args_len: usize) -> bool {
        if self.arity >= 0 {
            args_len == self.arity as usize
        } else {
            args_len >= self.arity.unsigned_abs() as usize
        }
    }

    /// Whether a server may follow that has the command's type and not the command: Redis 7.0. A server without the
    /// types of modules, or without arrays, can take neither their commands nor their values.
    pub fn adds_to_an_old_type(&self) -> bool {
        let mut version = self.since.split('.').map(|part| part.parse::<u32>().unwrap_or(u32::MAX));
        let since = (version.next().unwrap_or(u32::MAX), version.next().unwrap_or(0));
        self.group.name() != "module" && self.group != Group::Array && since > (7, 0)
    }

    /// Returns true if a call claims more keys than it has arguments, or no key although one is required. It will
    /// fail, and Redis sees no keys in it.
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

/// The number of keys that the argument at `at` claims.
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
