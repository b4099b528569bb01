//! The configuration: one table of settings, their values, and the plain fields the server reads.
//!
//! `Settings::parse` turns the command line, the environment and files into a `Settings` at start-up; CONFIG GET, SET
//! and REWRITE use it later; worker threads read a `Live` through a `SettingsWatch`. Nothing here opens a socket or touches
//! data. The caller that changes a setting with further effects gets `Changes` and carries them out.

#![forbid(unsafe_code)]

mod check;
mod compound;
mod help;
mod live;
mod load;
mod rewrite;
mod setting;
mod table;
#[cfg(test)]
mod tests;
mod value;
mod words;

pub use compound::{Events, OutputLimit, OutputLimits, SavePoint};
pub use help::reference;
pub use live::{
    Admin, Allowed, CallerLimits, Cluster, ClusterMode, Encoding, Endpoint, EvictionPolicy, Fsync,
    HighAvailability, Http, Live, LogLevel, LogSettings, Measure, OnSignal, OomScore, Persistence,
    ReplicationSettings, Share, Shutdown, Slowlog, SyncLoad, Tcp, Tls,
};
pub use load::{CommandLine, Startup};
pub use rewrite::WantedSettings;
pub use setting::{
    Secrecy, Setting, SettingChange, SettingGroup, SettingKind, SettingStatus, Spelling, Visibility,
};
pub use table::{find, settings};

use darter_base::glob;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use table::{SettingId, Values};

/// Separates the words of a user in [`Live::users`], because words may contain spaces.
pub const USER_SEPARATOR: char = '\u{1f}';

/// The configuration of a running server.
#[derive(Debug)]
pub struct Settings {
    // changes happen one at a time, under this lock
    state: Mutex<SettingsState>,
    live: RwLock<Arc<Live>>,
    // version == live.version, except for the moment between the two stores of a change
    version: AtomicU64,
}

#[derive(Debug)]
struct SettingsState {
    values: Values,
    file: Option<rewrite::ConfigFile>,
}

/// The changes made by a CONFIG SET.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The settings whose value has changed, in the order given.
    pub names: Vec<&'static str>,
    /// The fields before.
    pub before: Arc<Live>,
    /// The fields after.
    pub after: Arc<Live>,
}

/// The reason why a change could not be carried out.
#[derive(Debug, Clone)]
pub struct SettingRefusal {
    /// The setting to blame.
    pub name: &'static str,
    /// The fault, in Redis' words.
    pub text: String,
}

impl Settings {
    /// Reads the command line as `std::env::args_os` gives it (program name first), the environment and the files they
    /// name.
    ///
    /// Errors: `CommandLine` is one clear line about the first thing that is wrong.
    pub fn parse(
        arguments: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Startup, CommandLine> {
        load::load(arguments.into_iter().skip(1).collect(), environment.into_iter().collect())
    }

    /// Settings with these values, to be rewritten into `file`.
    fn new(values: Values, file: Option<rewrite::ConfigFile>) -> Settings {
        let live = Arc::new(Live::new(&values, 1));
        Settings {
            version: AtomicU64::new(live.version),
            live: RwLock::new(live),
            state: Mutex::new(SettingsState { values, file }),
        }
    }

    /// The present fields. Cost: a lock; threads that read often keep a `SettingsWatch`.
    pub fn live(&self) -> Arc<Live> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A reader for one thread.
    pub fn watch(&self) -> SettingsWatch {
        SettingsWatch::new(self)
    }

    /// The file that `rewrite` writes to, as INFO shows it.
    pub fn config_file(&self) -> Option<std::path::PathBuf> {
        self.state().file.as_ref().map(|file| file.path().to_owned())
    }

    /// CONFIG GET: names and values of every setting that one of `patterns` names or matches, each once.
    pub fn config_get<P: AsRef<[u8]>>(&self, patterns: &[P]) -> Vec<(String, String)> {
        let state = self.state();
        let mut found: Vec<(String, String)> = Vec::new();
        let mut add = |name: &str, id: SettingId| {
            if !found.iter().any(|(known, _)| known == name) {
                let value = state.values.get(id).print(table::setting(id).spelling);
                found.push((name.to_owned(), value));
            }
        };
        for pattern in patterns {
            let pattern = pattern.as_ref();
            if !pattern.iter().any(|b| b"[*?".contains(b)) {
                let name = std::str::from_utf8(pattern).unwrap_or_default();
                let known = table::find_id(name)
                    .filter(|id| table::setting(*id).visibility != Visibility::DirectiveOnly);
                if let Some(id) = known {
                    add(name, id);
                }
                continue;
            }
            for id in table::ids() {
                let setting = table::setting(id);
                if setting.visibility == Visibility::Shown {
                    for name in std::iter::once(&setting.name).chain(setting.aliases) {
                        if matches_either_spelling(pattern, name) {
                            add(name, id);
                        }
                    }
                }
            }
        }
        found
    }

    /// CONFIG SET: all of `pairs` or none. `apply` carries out further effects (listening sockets, the log) before
    /// any other thread sees the values. If it refuses, it must have undone its effects, and nothing has changed. It
    /// runs under the lock of the settings, so it must not read them.
    ///
    /// Errors: the error reply, starting with `ERR`.
    pub fn config_set<N, V>(
        &self,
        pairs: &[(N, V)],
        caller: CallerLimits,
        apply: impl FnOnce(&Changes) -> Result<(), SettingRefusal>,
    ) -> Result<Changes, String>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut state = self.state();
        let before = self.live();
        let wanted = find_pairs(pairs, &state.values, before.enable_protected_configs.lets(caller))?;
        let mut values = state.values.clone();
        let mut names = Vec::new();
        for (id, text) in wanted {
            let setting = table::setting(id);
            let value = setting
                .parse_text(text, Some(values.get(id)))
                .and_then(|value| refuse_missing_feature(id, &value).map(|()| value))
                .map_err(|error| set_failed(setting.name, &error))?;
            if value != *values.get(id) {
                names.push(setting.name);
                values.set(id, value);
            }
        }
        if names.is_empty() {
            return Ok(Changes { names, after: before.clone(), before });
        }
        let after = Arc::new(Live::new(&values, before.version + 1));
        let changes = Changes { names, before, after };
        apply(&changes).map_err(|refusal| set_failed(refusal.name, &refusal.text))?;
        state.values = values;
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = changes.after.clone();
        self.version.store(changes.after.version, Ordering::Release);
        Ok(changes)
    }

    /// CONFIG REWRITE: brings the file the server was started with up to date, keeping its comments and order.
    /// `users` are the lines that replace its `user` lines; `None` leaves those unchanged.
    ///
    /// Errors: the error reply, starting with `ERR`; the file is then unchanged.
    pub fn rewrite(&self, users: Option<&[String]>, wanted: WantedSettings) -> Result<(), String> {
        let state = self.state();
        let file = state.file.as_ref().ok_or("ERR The server is running without a config file")?;
        file.rewrite(&state.values, users, wanted)
            .map_err(|error| format!("ERR Rewriting config file: {error}"))
    }

    /// Changes a setting that CONFIG SET may not change, on behalf of the command that changes it.
    ///
    /// Errors: there is no such setting, or the text is not a value of it.
    pub fn note(&self, name: &str, text: &str) -> Result<(), String> {
        let mut state = self.state();
        let id = table::find_id(name).ok_or_else(|| format!("there is no setting {name}"))?;
        let value = table::setting(id).parse_text(text, Some(state.values.get(id)))?;
        state.values.set(id, value);
        let before = self.live();
        let after = Arc::new(Live::new(&state.values, before.version + 1));
        let version = after.version;
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = after;
        self.version.store(version, Ordering::Release);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, SettingsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's view of the settings.
#[derive(Debug, Clone)]
pub struct SettingsWatch {
    live: Arc<Live>,
}

impl SettingsWatch {
    /// A view of the present `settings`.
    pub fn new(settings: &Settings) -> SettingsWatch {
        SettingsWatch { live: settings.live() }
    }

    /// The fields at the last `refresh`.
    pub fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// Catches up with `settings`; returns whether anything is new. Cost: one atomic load while nothing is.
    #[inline]
    pub fn refresh(&mut self, settings: &Settings) -> bool {
        if settings.version.load(Ordering::Acquire) == self.live.version {
            return false;
        }
        self.live = settings.live();
        true
    }
}

/// The settings that `pairs` name and the texts they are to get.
fn find_pairs<'a, N, V>(
    pairs: &'a [(N, V)],
    values: &Values,
    may_set_protected: bool,
) -> Result<Vec<(SettingId, &'a str)>, String>
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    let mut wanted: Vec<(SettingId, &str)> = Vec::with_capacity(pairs.len());
    // the first fault decides, but an unknown name precedes all others
    let mut fault = None;
    for (given, text) in pairs {
        let name = String::from_utf8_lossy(given.as_ref());
        let known =
            table::find_id(&name).filter(|id| table::setting(*id).visibility != Visibility::DirectiveOnly);
        let Some(id) = known else {
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'"));
        };
        let problem = match std::str::from_utf8(text.as_ref()) {
            Err(_) => Some("argument must be UTF-8"),
            Ok(text) if wanted.iter().any(|(other, _)| *other == id) => {
                wanted.push((id, text));
                Some("duplicate parameter")
            }
            Ok(text) => {
                wanted.push((id, text));
                may_not_change(id, text, values, may_set_protected)
            }
        };
        if let Some(problem) = problem {
            fault.get_or_insert_with(|| set_failed(&name, problem));
        }
    }
    match fault {
        Some(fault) => Err(fault),
        None => Ok(wanted),
    }
}

/// Settings that Valkey has, or can change, and Redis not.
const VALKEYS: [&str; 2] = ["unixsocketgroup", "io-threads-do-reads"];

/// The reason why CONFIG SET may not change the setting at `id`, if any.
fn may_not_change(
    id: SettingId,
    text: &str,
    values: &Values,
    may_set_protected: bool,
) -> Option<&'static str> {
    let setting = table::setting(id);
    match setting.change {
        SettingChange::Runtime | SettingChange::Applied => None,
        SettingChange::Protected if may_set_protected => None,
        SettingChange::Protected => Some("can't set protected config"),
        // tools set the values that CONFIG GET * returned; names that Redis lacks must not disturb them
        SettingChange::Startup
            if setting.spelling == Spelling::Dragonfly || VALKEYS.contains(&setting.name) =>
        {
            let same = setting.parse_text(text, None).is_ok_and(|value| value == *values.get(id));
            (!same).then_some("can't set immutable config")
        }
        SettingChange::Startup => Some("can't set immutable config"),
    }
}

/// Refuses a value that requires a missing feature.
fn refuse_missing_feature(id: SettingId, value: &value::SettingValue) -> Result<(), String> {
    match table::setting(id).status {
        SettingStatus::NotYet(feature) if value != table::default_of(id) => {
            Err(format!("{feature} is not in this version of Darter yet"))
        }
        SettingStatus::NotYet(_) | SettingStatus::NoEffect(_) | SettingStatus::Works => Ok(()),
    }
}

fn set_failed(name: &str, error: &str) -> String {
    format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {error}")
}

fn matches_either_spelling(pattern: &[u8], name: &str) -> bool {
    let matches = |name: &str| glob::matches(pattern, name.as_bytes(), true);
    matches(name) || matches(&name.replace('-', "_")) || matches(&name.replace('_', "-"))
}
