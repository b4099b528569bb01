//! The command line: `--x=v`, `--x v`, `-x v`, `-x=v`, `--x`, `--nox`, `"--x v"`, and several words for settings that
//! take them.

use super::{CommandLine, Loader, is_bool, unknown_name};
use crate::setting::SettingKind;
use crate::table::{self, SettingId};
use crate::words;
use std::ffi::OsString;

/// The arguments as text.
pub(super) fn texts(arguments: Vec<OsString>) -> Result<Vec<String>, CommandLine> {
    let text = |argument: OsString| {
        argument
            .into_string()
            .map_err(|bad| CommandLine(format!("the argument '{}' is not UTF-8", bad.to_string_lossy())))
    };
    arguments.into_iter().map(text).collect()
}

impl Loader {
    /// Reads flags until there is no argument left.
    pub(super) fn read_arguments(&mut self, mut rest: &[String]) -> Result<(), CommandLine> {
        let mut before = None;
        while let [argument, after @ ..] = rest {
            let body = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            let Some(body) = body.filter(|body| !body.is_empty()) else {
                return Err(CommandLine(unexpected(before, argument)));
            };
            rest = self.read_flag(argument, body, after)?;
            // It has taken no argument.
            before = (rest.len() == after.len()).then_some(body);
        }
        Ok(())
    }

    /// Reads one flag, `body` without its dashes, and returns the arguments it leaves.
    fn read_flag<'a>(
        &mut self,
        argument: &str,
        body: &str,
        after: &'a [String],
    ) -> Result<&'a [String], CommandLine> {
        let (name, value) = match body.split_once('=') {
            Some((name, value)) if !name.contains(char::is_whitespace) => (name, Some(value)),
            _ if body.contains(char::is_whitespace) => return self.read_one_argument(argument, body, after),
            _ => (body, None),
        };
        if let Some(rest) = self.read_file_flag(name, value, after)? {
            return Ok(rest);
        }
        let Some(id) = table::find_id(name) else {
            return self.read_unknown(argument, name, value, after);
        };
        let blame = |error| CommandLine(format!("--{name}: {error}"));
        if let Some(value) = value {
            self.give_text(id, value).map_err(blame)?;
            return Ok(after);
        }
        let (words, rest) = take_values(id, after).map_err(blame)?;
        self.give(id, &words).map_err(blame)?;
        Ok(rest)
    }

    /// Reads `"--name word word"`, an argument as Redis takes it.
    fn read_one_argument<'a>(
        &mut self,
        argument: &str,
        body: &str,
        after: &'a [String],
    ) -> Result<&'a [String], CommandLine> {
        let words = words::split(body).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| CommandLine(format!("unbalanced quotes in '{argument}'")))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (name, values) =
            words.split_first().map_or(("", [].as_slice()), |(name, values)| (*name, values));
        let id = table::find_id(name).ok_or_else(|| unknown_name(&format!("flag '--{name}'"), name, "--"))?;
        self.give(id, values).map_err(|error| CommandLine(format!("--{name}: {error}")))?;
        Ok(after)
    }

    /// Reads the flags that are not settings: they name files or other flags. `None`: not one of them.
    fn read_file_flag<'a>(
        &mut self,
        name: &str,
        value: Option<&str>,
        after: &'a [String],
    ) -> Result<Option<&'a [String]>, CommandLine> {
        let flags = ["flagfile", "fromenv", "tryfromenv", "undefok"];
        let Some(flag) = flags.into_iter().find(|flag| *flag == name) else {
            return Ok(None);
        };
        let (value, rest) = match (value, after) {
            (Some(value), _) => (value, after),
            (None, [value, rest @ ..]) => (value.as_str(), rest),
            (None, []) => return Err(CommandLine(format!("--{flag} needs a value"))),
        };
        let names = || value.split(',').map(str::trim).filter(|name| !name.is_empty());
        match flag {
            "flagfile" => self.read_flag_file(value)?,
            "undefok" => self.undefok.extend(names().map(str::to_owned)),
            "fromenv" => names().try_for_each(|name| self.read_flags_variable(name, true))?,
            _ => names().try_for_each(|name| self.read_flags_variable(name, false))?,
        }
        Ok(Some(rest))
    }

    /// `--nox` turns a boolean off; anything else is an error unless `--undefok` names it, which may still come.
    fn read_unknown<'a>(
        &mut self,
        argument: &str,
        name: &str,
        value: Option<&str>,
        after: &'a [String],
    ) -> Result<&'a [String], CommandLine> {
        if let Some(id) = find_negated(name) {
            if value.is_some() {
                return Err(CommandLine(format!("--{name} takes no value")));
            }
            self.give(id, &["no"]).map_err(|error| CommandLine(format!("--{name}: {error}")))?;
            return Ok(after);
        }
        let shown = argument.split('=').next().unwrap_or(argument);
        self.unknown.push((name.to_owned(), unknown_name(&format!("flag '{shown}'"), name, "--")));
        // the value of an unknown flag must not be taken for another argument
        let skip = usize::from(value.is_none() && after.first().is_some_and(|next| !looks_like_flag(next)));
        Ok(after.get(skip..).unwrap_or_default())
    }
}

/// The error for an argument that is not a flag, after a flag that takes on or off.
fn unexpected(before: Option<&str>, argument: &str) -> String {
    let on_or_off = before.filter(|name| table::find_id(name).is_some_and(is_bool));
    match on_or_off {
        Some(name) => format!("--{name}: '{argument}' is neither yes nor no"),
        None => format!("unexpected argument '{argument}'; flags look like --name=value"),
    }
}

/// The boolean that `name` turns off, if it is `no` and the name of one.
pub(super) fn find_negated(name: &str) -> Option<SettingId> {
    let positive = name.strip_prefix("no")?;
    let positive = positive.strip_prefix(['-', '_']).unwrap_or(positive);
    table::find_id(positive).filter(|id| is_bool(*id))
}

/// The values that follow a flag without `=`, and the arguments after them.
fn take_values(id: SettingId, after: &[String]) -> Result<(Vec<&str>, &[String]), String> {
    let setting = table::setting(id);
    if setting.takes_words() {
        let len = after.iter().position(|next| looks_like_flag(next)).unwrap_or(after.len());
        let (mine, rest) = after.split_at(len);
        let mut words: Vec<&str> = Vec::new();
        for text in mine {
            match text.is_empty() {
                true => words.push(""),
                false => words.extend(text.split_ascii_whitespace()),
            }
        }
        if words.is_empty() {
            // `--save` and `--save ""` say the same; nothing else may be left out
            if mine.is_empty() && !matches!(setting.kind, SettingKind::Save) {
                return Err("needs a value".to_owned());
            }
            words.push("");
        }
        return Ok((words, rest));
    }
    match after {
        [next, rest @ ..] if !is_bool(id) || setting.reads_bool(next) => {
            if next.starts_with("--") && looks_like_flag(next) && is_known(next) {
                return Err(format!("needs a value, but '{next}' follows"));
            }
            Ok((vec![next.as_str()], rest))
        }
        _ if is_bool(id) => Ok((vec!["yes"], after)),
        _ => Err("needs a value".to_owned()),
    }
}

/// Returns true if `argument` is a flag rather than a word that starts with a dash, like the address `-::1`.
fn looks_like_flag(argument: &str) -> bool {
    argument.starts_with("--") || (argument.starts_with('-') && is_known(argument))
}

/// Returns true if `argument` is the flag of a setting.
fn is_known(argument: &str) -> bool {
    let body = argument.trim_start_matches('-');
    let name = body.split(['=', ' ']).next().unwrap_or(body);
    table::find_id(name).is_some() || find_negated(name).is_some() || name == "flagfile"
}
