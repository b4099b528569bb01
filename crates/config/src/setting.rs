//! One row of the settings table: a name, its valid values, its default and its effect.
//!
//! The rows themselves live in `table`. Parsing, CONFIG GET and SET, `--help` and docs/flags.md all read them;
//! nothing else in the server knows the names of settings except `live`, which turns values into plain fields.

/// A setting: everything the server knows about one configuration name.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// The name CONFIG GET answers with: Redis' spelling (dashes), or Dragonfly's (underscores) when Redis has none.
    pub name: &'static str,
    /// Other names for the same value; dashes, underscores and dots never need an alias.
    pub aliases: &'static [&'static str],
    /// The valid values.
    pub kind: SettingKind,
    /// The value at start-up if it is not set, as text that `kind` accepts.
    pub default: &'static str,
    /// The conventions for printing and reading the value.
    pub spelling: Spelling,
    /// When the value may change.
    pub change: SettingChange,
    /// Visibility in patterns of CONFIG GET and in `--help`.
    pub visibility: Visibility,
    /// Secrecy of the value in logs and MONITOR.
    pub secrecy: Secrecy,
    /// The server's present use of it.
    pub status: SettingStatus,
    /// Its heading in `--help`.
    pub group: SettingGroup,
    /// One line for people.
    pub help: &'static str,
}

/// The valid values of a setting.
#[derive(Debug, Clone, Copy)]
pub enum SettingKind {
    /// True or false.
    Bool,
    /// A whole number, both ends included.
    Int(i64, i64),
    /// A whole number from 0 on that is kept within these bounds, both included.
    Clamped(i64, i64),
    /// A whole number written in base 8, both ends included.
    Octal(u32, u32),
    /// An amount of memory in bytes, both ends included.
    Memory(u64, u64),
    /// An amount of memory in bytes, or a share in percent of the memory limit.
    MemoryOrPercent,
    /// A fraction, both ends included.
    Real(f64, f64),
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
    /// Several of these words, the first of which means none.
    Choices(&'static [&'static str]),
    /// Any text that passes the check; the error is the text of Redis.
    Text(fn(&str) -> Result<(), String>),
    /// A folder that exists; empty is the current one.
    Dir,
    /// Up to this number of words.
    Words(usize),
    /// A host and a port.
    Endpoint,
    /// Snapshot rules: pairs of seconds and changes.
    Save,
    /// Output buffer limits by client class.
    OutputLimits,
    /// Classes of keyspace events, a letter each.
    Events,
    /// Percentiles, each 0 to 100.
    Percentiles,
    /// Three scores, each -2000 to 2000.
    OomScores,
}

/// The conventions of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// `yes` and `no`, dashes, `1k` is 1000 bytes.
    Redis,
    /// `true` and `false`, underscores, `1k` is 1024 bytes.
    Dragonfly,
}

/// When a value may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingChange {
    /// At any time, by CONFIG SET.
    Runtime,
    /// At any time, and the caller of CONFIG SET also carries the change out (listening sockets).
    Applied,
    /// By CONFIG SET if `enable-protected-configs` allows it to the caller.
    Protected,
    /// At start-up only.
    Startup,
}

/// The visibility of a setting in patterns and `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Shown.
    Shown,
    /// Answered only when asked for by its exact name.
    Hidden,
    /// A directive of configuration files and the command line; CONFIG does not know it.
    DirectiveOnly,
}

/// The secrecy of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrecy {
    /// Everyone who may read the configuration may read it.
    Open,
    /// Logs and MONITOR show `(redacted)`.
    Secret,
}

/// The server's present use of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingStatus {
    /// It works as described.
    Works,
    /// Any value is accepted and changes nothing, for this reason.
    NoEffect(&'static str),
    /// The feature is missing: any value but the default is refused, naming the feature.
    NotYet(&'static str),
}

/// A heading of `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingGroup {
    /// Ports, sockets, threads.
    Network,
    /// Passwords, ACL, rights of remote clients.
    Security,
    /// The memory limit and the effects of reaching it.
    Memory,
    /// Sizes and counts that bound a client or a command.
    Limits,
    /// The layout of values.
    Encoding,
    /// Snapshots and the append-only file.
    Persistence,
    /// Masters and replicas.
    Replication,
    /// Cluster mode.
    Cluster,
    /// Encryption.
    Tls,
    /// The log, the slow log, latency.
    Logging,
    /// Scripts.
    Scripting,
    /// The process and its machine.
    System,
    /// Spilling values to disk.
    Tiering,
    /// Search indexes and probabilistic types.
    Search,
    /// Knobs of the engine itself.
    Tuning,
}

impl SettingGroup {
    /// Every group, in the order of `--help`.
    pub const ALL: [SettingGroup; 15] = [
        SettingGroup::Network,
        SettingGroup::Security,
        SettingGroup::Memory,
        SettingGroup::Persistence,
        SettingGroup::Logging,
        SettingGroup::Limits,
        SettingGroup::Tls,
        SettingGroup::Replication,
        SettingGroup::Cluster,
        SettingGroup::Encoding,
        SettingGroup::Scripting,
        SettingGroup::System,
        SettingGroup::Tiering,
        SettingGroup::Search,
        SettingGroup::Tuning,
    ];

    /// The heading.
    pub const fn title(self) -> &'static str {
        match self {
            SettingGroup::Network => "Network and threads",
            SettingGroup::Security => "Security",
            SettingGroup::Memory => "Memory and eviction",
            SettingGroup::Limits => "Limits",
            SettingGroup::Encoding => "Encoding of values",
            SettingGroup::Persistence => "Snapshots and append-only file",
            SettingGroup::Replication => "Replication",
            SettingGroup::Cluster => "Cluster",
            SettingGroup::Tls => "TLS",
            SettingGroup::Logging => "Logging, slow log and latency",
            SettingGroup::Scripting => "Scripts",
            SettingGroup::System => "Process and system",
            SettingGroup::Tiering => "Tiering to disk",
            SettingGroup::Search => "Search and probabilistic types",
            SettingGroup::Tuning => "Engine tuning",
        }
    }
}

impl Setting {
    /// A setting that works, may change at run time and has no help yet; the builders below set the rest.
    pub(super) const fn new(name: &'static str, kind: SettingKind, default: &'static str) -> Self {
        Setting {
            name,
            aliases: &[],
            kind,
            default,
            spelling: Spelling::Redis,
            change: SettingChange::Runtime,
            visibility: Visibility::Shown,
            secrecy: Secrecy::Open,
            status: SettingStatus::Works,
            group: SettingGroup::System,
            help: "",
        }
    }

    /// A yes/no setting of Redis.
    pub(super) const fn bool(name: &'static str, default: &'static str) -> Self {
        Setting::new(name, SettingKind::Bool, default)
    }

    /// A number.
    pub(super) const fn int(name: &'static str, min: i64, max: i64, default: &'static str) -> Self {
        Setting::new(name, SettingKind::Int(min, max), default)
    }

    /// An amount of memory.
    pub(super) const fn memory(name: &'static str, min: u64, max: u64, default: &'static str) -> Self {
        Setting::new(name, SettingKind::Memory(min, max), default)
    }

    /// A word from a list.
    pub(super) const fn choice(
        name: &'static str,
        words: &'static [&'static str],
        default: &'static str,
    ) -> Self {
        Setting::new(name, SettingKind::Choice(words), default)
    }

    /// Any text.
    pub(super) const fn text(name: &'static str, default: &'static str) -> Self {
        Setting::new(name, SettingKind::Text(anything), default)
    }

    /// Text that `check` lets pass.
    pub(super) const fn checked(
        name: &'static str,
        default: &'static str,
        check: fn(&str) -> Result<(), String>,
    ) -> Self {
        Setting::new(name, SettingKind::Text(check), default)
    }

    /// Other names of the same value.
    pub(super) const fn alias(mut self, names: &'static [&'static str]) -> Self {
        self.aliases = names;
        self
    }

    /// Read and printed by Dragonfly's conventions.
    pub(super) const fn dragonfly(mut self) -> Self {
        self.spelling = Spelling::Dragonfly;
        self
    }

    /// When the value may change.
    pub(super) const fn change(mut self, change: SettingChange) -> Self {
        self.change = change;
        self
    }

    /// Fixed at start-up.
    pub(super) const fn fixed(self) -> Self {
        self.change(SettingChange::Startup)
    }

    /// Answered only when asked for by name.
    pub(super) const fn hidden(mut self) -> Self {
        self.visibility = Visibility::Hidden;
        self
    }

    /// A directive that CONFIG does not know; fixed at start-up.
    pub(super) const fn directive(mut self) -> Self {
        self.visibility = Visibility::DirectiveOnly;
        self.fixed()
    }

    /// A secret.
    pub(super) const fn secret(mut self) -> Self {
        self.secrecy = Secrecy::Secret;
        self
    }

    /// Taken, without effect, for this reason.
    pub(super) const fn no_effect(mut self, reason: &'static str) -> Self {
        self.status = SettingStatus::NoEffect(reason);
        self
    }

    /// Refused unless it has its default value, because this feature is missing.
    pub(super) const fn not_yet(mut self, feature: &'static str) -> Self {
        self.status = SettingStatus::NotYet(feature);
        self
    }

    /// The heading and the line for people.
    pub(super) const fn help(mut self, group: SettingGroup, line: &'static str) -> Self {
        self.group = group;
        self.help = line;
        self
    }

    /// Returns true if one setting may be given as several words (`save 3600 1`).
    pub fn takes_words(&self) -> bool {
        match self.kind {
            SettingKind::Words(_)
            | SettingKind::Choices(_)
            | SettingKind::Endpoint
            | SettingKind::Save
            | SettingKind::OutputLimits
            | SettingKind::Percentiles
            | SettingKind::OomScores => true,
            SettingKind::Bool
            | SettingKind::Int(..)
            | SettingKind::Clamped(..)
            | SettingKind::Dir
            | SettingKind::Octal(..)
            | SettingKind::Memory(..)
            | SettingKind::MemoryOrPercent
            | SettingKind::Real(..)
            | SettingKind::Choice(_)
            | SettingKind::Text(_)
            | SettingKind::Events => false,
        }
    }

    /// Returns true if `value` may not be shown in logs and MONITOR.
    pub fn is_secret(&self) -> bool {
        self.secrecy == Secrecy::Secret
    }
}

/// The check of settings that take any text.
fn anything(_: &str) -> Result<(), String> {
    Ok(())
}
