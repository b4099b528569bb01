//! CONFIG REWRITE: brings a file up to date with the settings and leaves the rest unchanged.

use super::setting::{Setting, Visibility};
use super::table::{self, SettingId, Values};
use super::value::SettingValue;
use super::words;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file a server was started with.
#[derive(Debug, Clone)]
pub(super) struct ConfigFile {
    path: PathBuf,
    style: RewriteStyle,
}

/// The form of settings in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RewriteStyle {
    /// `name value...`, as Redis.
    Directives,
    /// `--name=value`, as Dragonfly's flag files.
    Flags,
}

impl ConfigFile {
    /// The file at `path`, which is absolute.
    pub(super) fn new(path: PathBuf, style: RewriteStyle) -> ConfigFile {
        ConfigFile { path, style }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes `values` into it, and `users` in the place of its `user` lines: all of it, or nothing on an error.
    pub(super) fn rewrite(
        &self,
        values: &Values,
        users: Option<&[String]>,
        wanted: WantedSettings,
    ) -> io::Result<()> {
        let old = match std::fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        let text = self.style.rewritten(&old, values, wanted)?;
        let text = users.map_or(text.clone(), |users| self.style.with_users(&text, users));
        replace(&self.path, text.as_bytes())
    }
}

/// The settings in a rewritten file besides those it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WantedSettings {
    /// Those that are not at their defaults.
    Changed,
    /// All.
    All,
}

impl RewriteStyle {
    /// `old` with the lines of every setting brought up to date: a setting keeps its place, a missing one is added at
    /// the end if it is not at its default, and comments stay.
    pub(super) fn rewritten(self, old: &str, values: &Values, wanted: WantedSettings) -> io::Result<String> {
        let read: Vec<_> = old.lines().map(|line| (line, self.read(line))).collect();
        let mut counts: HashMap<SettingId, usize> = HashMap::new();
        for (id, _) in read.iter().filter_map(|(_, found)| found.as_ref()) {
            *counts.entry(*id).or_default() += 1;
        }
        let mut lines: Vec<String> = Vec::new();
        let mut done: HashSet<SettingId> = HashSet::new();
        for (line, found) in read {
            let Some((id, value)) = found else {
                lines.push(line.to_owned());
                continue;
            };
            if !done.insert(id) {
                continue;
            }
            // a line with the same meaning in other words stays unchanged
            if counts.get(&id) == Some(&1) && value.as_ref() == Some(values.get(id)) {
                lines.push(line.to_owned());
            } else {
                lines.extend(self.print(table::setting(id), values.get(id))?);
            }
        }
        let missing = table::ids().filter(|id| {
            !done.contains(id)
                && (wanted == WantedSettings::All || !values.is_default(*id))
                && table::setting(*id).visibility != Visibility::DirectiveOnly
        });
        let mut added = Vec::new();
        for id in missing {
            added.extend(self.print(table::setting(id), values.get(id))?);
        }
        if !added.is_empty() && !lines.iter().any(|line| line == SIGNATURE) {
            lines.push(SIGNATURE.to_owned());
        }
        lines.append(&mut added);
        lines.push(String::new());
        Ok(lines.join("\n"))
    }

    /// `text` with these users instead of its own: each a line, at the place of the first one or at the end.
    fn with_users(self, text: &str, users: &[String]) -> String {
        let mark = if self == RewriteStyle::Flags { "--user=" } else { "user " };
        let mut new = users.iter().map(|line| match self {
            RewriteStyle::Directives => line.clone(),
            RewriteStyle::Flags => format!("{mark}{}", line.trim_start_matches("user ")),
        });
        let mut lines: Vec<String> = Vec::new();
        for line in text.lines() {
            if line.trim_start().get(..mark.len()).is_some_and(|head| head.eq_ignore_ascii_case(mark)) {
                lines.extend(&mut new);
            } else {
                lines.push(line.to_owned());
            }
        }
        lines.extend(new);
        lines.push(String::new());
        lines.join("\n")
    }

    /// The setting that `line` sets, and its value if one line holds all of it.
    fn read(self, line: &str) -> Option<(SettingId, Option<SettingValue>)> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("//") {
            return None;
        }
        let (name, values) = match self {
            RewriteStyle::Directives => {
                let mut words = words::split(line)?;
                let values = words.split_off(1.min(words.len()));
                (words.pop()?, values)
            }
            RewriteStyle::Flags => {
                let body = line.trim_start_matches('-');
                let (name, value) = body.split_once('=').unwrap_or((body, "yes"));
                (name.trim_end().to_owned(), vec![value.to_owned()])
            }
        };
        let negated = || name.strip_prefix("no").and_then(table::find_id);
        let id = table::find_id(&name).or_else(negated)?;
        let setting = table::setting(id);
        if setting.visibility == Visibility::DirectiveOnly {
            return None;
        }
        let is_negated = table::find_id(&name).is_none();
        let words: Vec<&str> = match self {
            _ if is_negated => vec!["no"],
            RewriteStyle::Flags if setting.takes_words() => {
                values.iter().flat_map(|v| v.split_ascii_whitespace()).collect()
            }
            _ => values.iter().map(String::as_str).collect(),
        };
        let value = setting.parse(&words, None).ok();
        Some((id, value.filter(|value| !matches!(value, SettingValue::OutputLimits(_)))))
    }

    /// The lines that give `setting` this value.
    fn print(self, setting: &Setting, value: &SettingValue) -> io::Result<Vec<String>> {
        let text = value.print_for_file(setting.spelling);
        if self == RewriteStyle::Flags {
            let flat = text.chars().any(char::is_control);
            let unreadable = || {
                let fault = format!("a flag file cannot hold the value of {}", setting.name);
                io::Error::new(io::ErrorKind::InvalidData, fault)
            };
            return if flat { Err(unreadable()) } else { Ok(vec![format!("--{}={text}", setting.name)]) };
        }
        let name = setting.name;
        Ok(match value {
            SettingValue::Endpoint(None) => Vec::new(),
            SettingValue::OutputLimits(limits) => limits
                .classes()
                .map(|(class, limit)| {
                    let bytes = |bytes| SettingValue::Bytes(bytes).print_for_file(setting.spelling);
                    let (hard, soft) = (bytes(limit.hard_bytes), bytes(limit.soft_bytes));
                    let class = if class == "slave" { "replica" } else { class };
                    format!("{name} {class} {hard} {soft} {}", limit.soft_s)
                })
                .into(),
            _ if text.is_empty() || !setting.takes_words() => vec![format!("{name} {}", words::quote(&text))],
            _ => vec![format!("{name} {text}")],
        })
    }
}

/// Puts `bytes` in the place of the file at `path` in one step.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // a link stays a link
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut new_name = name.to_owned();
    new_name.push(format!(".{}.tmp", std::process::id()));
    let new = path.with_file_name(new_name);
    let written = write_new(&new, &path, bytes).and_then(|()| std::fs::rename(&new, &path));
    if written.is_err() {
        // an error of writing matters more than one of removing
        let _ = std::fs::remove_file(&new);
    }
    written?;
    let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::File::open(dir)?.sync_all()
}

/// Writes `bytes` to `new` with the permissions of `like`, down to the disk.
fn write_new(new: &Path, like: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::File::create(new)?;
    if let Ok(found) = std::fs::metadata(like) {
        file.set_permissions(found.permissions())?;
    }
    file.write_all(bytes)?;
    file.sync_all()
}

const SIGNATURE: &str = "# Generated by CONFIG REWRITE";
