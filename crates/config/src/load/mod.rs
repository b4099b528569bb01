//! Start-up: the configuration file, the environment, then the command line; the later wins.

mod arguments;
mod environment;
mod file;

use super::rewrite::ConfigFile;
use super::setting::{SettingKind, SettingStatus};
use super::table::{self, SettingId, Values};
use super::value::SettingValue;
use super::{Settings, USER_SEPARATOR, help, refuse_missing_feature};
use std::collections::HashSet;
use std::ffi::OsString;

/// The request of the command line.
#[derive(Debug)]
pub enum Startup {
    /// Serve with these settings, after logging the notes, a line each.
    Serve {
        /// The settings.
        settings: Box<Settings>,
        /// Notes for the operator: settings that were accepted and have no effect.
        notes: Vec<String>,
    },
    /// Print this text to stdout and exit with 0.
    Print(String),
}

/// Something is wrong with the command line, the environment or a file: print the line to stderr and exit with
/// `CommandLine::EXIT_CODE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine(String);

impl CommandLine {
    /// The exit code of the process.
    pub const EXIT_CODE: u8 = 1;
}

impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandLine {}

/// Does what `Settings::parse` says; `arguments` without the program's name.
pub(super) fn load(
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
) -> Result<Startup, CommandLine> {
    let arguments = arguments::texts(arguments)?;
    if let Some(text) = wants_text(&arguments) {
        return Ok(Startup::Print(text));
    }
    let mut loader = Loader::new(environment);
    let mut arguments = arguments.as_slice();
    if let [path, rest @ ..] = arguments
        && !path.starts_with('-')
    {
        loader.read_config_file(path)?;
        arguments = rest;
    }
    loader.read_environment()?;
    loader.read_arguments(arguments)?;
    loader.finish()
}

/// The text that `--help` and similar flags print.
fn wants_text(arguments: &[String]) -> Option<String> {
    let asked = |names: &[&str]| arguments.iter().any(|a| names.contains(&a.as_str()));
    if asked(&["--version", "-version"]) || arguments == ["-v"] {
        return Some(help::version());
    }
    if asked(&["--helpfull", "-helpfull"]) {
        return Some(help::full());
    }
    let part =
        |a: &String| a.strip_prefix("--help=").or_else(|| a.strip_prefix("--helpon=")).map(help::about);
    asked(&["--help", "-help", "-h"]).then(help::usual).or_else(|| arguments.iter().find_map(part))
}

/// The settings as far as they have been read.
struct Loader {
    values: Values,
    given: HashSet<SettingId>,
    file: Option<ConfigFile>,
    environment: Vec<(OsString, OsString)>,
    password: Option<String>,
    // names that --undefok lets pass, and the unknown ones that need it, with the error they cause otherwise
    undefok: Vec<String>,
    unknown: Vec<(String, CommandLine)>,
    files_open: usize,
    // A file written for Redis was read.
    is_of_redis: bool,
}

impl Loader {
    fn new(environment: Vec<(OsString, OsString)>) -> Self {
        Loader {
            values: Values::defaults(),
            given: HashSet::new(),
            file: None,
            environment,
            password: None,
            undefok: Vec::new(),
            unknown: Vec::new(),
            files_open: 0,
            is_of_redis: false,
        }
    }

    /// Sets the value of the setting at `id`. Errors: the fault, in Redis' words.
    fn give(&mut self, id: SettingId, words: &[&str]) -> Result<(), String> {
        let setting = table::setting(id);
        let first = self.given.insert(id);
        let joined = words.join(USER_SEPARATOR.encode_utf8(&mut [0; 4]));
        let words = if setting.name == "user" { &[joined.as_str()] } else { words };
        let value = setting.parse(words, Some(self.values.get(id)))?;
        refuse_missing_feature(id, &value)?;
        let value = match (value, self.values.get(id)) {
            // rules add up until an empty one, but the first takes the place of the defaults
            (SettingValue::Save(more), SettingValue::Save(sofar)) if !first && !more.is_empty() => {
                SettingValue::Save([sofar.as_slice(), &more].concat())
            }
            (SettingValue::Words(more), SettingValue::Words(sofar))
                if !first && matches!(setting.name, "rename-command" | "user") =>
            {
                SettingValue::Words([sofar.as_slice(), &more].concat())
            }
            (value, _) => value,
        };
        if setting.name == "rename-command" && words.len() != 2 {
            return Err("wrong number of arguments".to_owned());
        }
        self.values.set(id, value);
        Ok(())
    }

    /// Sets the setting at `id` to a value that is one text, of several words if its kind takes them.
    fn give_text(&mut self, id: SettingId, text: &str) -> Result<(), String> {
        if !table::setting(id).takes_words() {
            return self.give(id, &[text]);
        }
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        self.give(id, if words.is_empty() { &[""] } else { &words })
    }

    fn finish(mut self) -> Result<Startup, CommandLine> {
        let tolerated = |name: &String| self.undefok.iter().any(|ok| table::plain(ok) == table::plain(name));
        if let Some((_, error)) = self.unknown.iter().find(|(name, _)| !tolerated(name)) {
            return Err(error.clone());
        }
        if let (Some(password), Some(id)) = (self.password.take(), table::find_id("requirepass"))
            && self.values.is_default(id)
        {
            self.values.set(id, SettingValue::Text(password));
        }
        let of_redis = self.settle_defaults();
        let mut given: Vec<_> = self.given.iter().copied().collect();
        given.sort_unstable();
        let notes = given.into_iter().filter_map(|id| match table::setting(id).status {
            SettingStatus::NoEffect(reason) if !self.values.is_default(id) => {
                Some(format!("{} has no effect: {reason}", table::setting(id).name))
            }
            SettingStatus::NoEffect(_) | SettingStatus::NotYet(_) | SettingStatus::Works => None,
        });
        let notes = notes.chain(of_redis).chain(self.doubt_memory()).collect();
        let settings = Settings::new(self.values, self.file);
        settings.live().check_admin().map_err(CommandLine)?;
        Ok(Startup::Serve { settings: Box::new(settings), notes })
    }
}

impl Loader {
    /// Sets the values that depend on other settings; returns a note for the log.
    fn settle_defaults(&mut self) -> Option<String> {
        let find = |name| table::find_id(name).map(|id| (id, table::setting(id)));
        let is_cache = find("cache_mode").is_some_and(|(id, _)| !self.values.is_default(id));
        if let Some((id, policy)) =
            find("maxmemory-policy").filter(|&(id, _)| is_cache && self.values.is_default(id))
            && let Ok(value) = policy.parse_text("allkeys-lfu", None)
        {
            self.values.set(id, value);
        }
        let (id, save) = find("save").filter(|(id, _)| self.is_of_redis && !self.given.contains(id))?;
        self.values.set(id, save.parse_text(SAVE_POINTS_OF_REDIS, None).ok()?);
        Some(format!(
            "the configuration file is one of Redis and has no save points: its default ones apply, {SAVE_POINTS_OF_REDIS}"
        ))
    }

    /// A note about a memory limit that leaves hardly any room.
    fn doubt_memory(&self) -> Option<String> {
        let SettingValue::Bytes(bytes) = self.values.get(table::find_id("maxmemory")?) else { return None };
        (1..MEMORY_DOUBTED).contains(bytes).then(|| {
            format!("You specified a maxmemory value of {bytes} bytes, and an empty server takes some 8 MiB. Are you sure this is what you really want?")
        })
    }
}

/// A smaller memory limit is considered a mistake.
const MEMORY_DOUBTED: u64 = 16 << 20;
/// Redis' save points without any in its file.
const SAVE_POINTS_OF_REDIS: &str = "3600 1 300 100 60 10000";

/// The error for an unknown name.
fn unknown_name(shown: &str, name: &str, prefix: &str) -> CommandLine {
    match table::nearest(name) {
        Some(near) => CommandLine(format!("unknown {shown}; did you mean {prefix}{near}?")),
        None => CommandLine(format!("unknown {shown}; --help lists all")),
    }
}

/// Returns true if the setting at `id` is a boolean.
fn is_bool(id: SettingId) -> bool {
    matches!(table::setting(id).kind, SettingKind::Bool)
}
