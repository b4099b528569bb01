//! The value of a setting: read from words, printed for CONFIG GET and for files.
//!
//! `Setting::parse` is the only place where text becomes a value, whether it comes from the command line, the
//! environment, a file or CONFIG SET; its error texts are those of Redis.

use super::check;
use super::compound::{self, Events, OutputLimits, SavePoint};
use super::setting::{Setting, SettingKind, Spelling};
use darter_base::units;
use darter_persist::storage::is_cloud;
use std::path::PathBuf;

/// A value that fits the kind of its setting.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SettingValue {
    /// Of `SettingKind::Bool`.
    Bool(bool),
    /// Of `SettingKind::Int` and `SettingKind::Clamped`.
    Int(i64),
    /// Of `SettingKind::Octal`.
    Octal(u32),
    /// Of `SettingKind::Memory` and of `SettingKind::MemoryOrPercent` if it is an amount, in bytes.
    Bytes(u64),
    /// Of `SettingKind::MemoryOrPercent` if it is a share, 0 to 100.
    Percent(u8),
    /// Of `SettingKind::Real`.
    Real(f64),
    /// Of `SettingKind::Choice`.
    Choice(&'static str),
    /// Of `SettingKind::Choices`, in the order of the kind.
    Choices(Vec<&'static str>),
    /// Of `SettingKind::Text`.
    Text(String),
    /// Of `SettingKind::Dir`, as given.
    Dir(String),
    /// Of `SettingKind::Words`.
    Words(Vec<String>),
    /// Of `SettingKind::Endpoint`.
    Endpoint(Option<(String, u16)>),
    /// Of `SettingKind::Save`.
    Save(Vec<SavePoint>),
    /// Of `SettingKind::OutputLimits`.
    OutputLimits(OutputLimits),
    /// Of `SettingKind::Events`.
    Events(Events),
    /// Of `SettingKind::Percentiles`.
    Percentiles(Vec<f64>),
    /// Of `SettingKind::OomScores`.
    OomScores([i32; 3]),
}

impl Setting {
    /// Reads a value from `words`; `before` is the old value, for settings that are changed in part.
    ///
    /// Errors: Redis' text for the fault.
    pub(super) fn parse(
        &self,
        words: &[&str],
        before: Option<&SettingValue>,
    ) -> Result<SettingValue, String> {
        if !self.takes_words() {
            return match words {
                [word] => self.parse_word(word),
                _ => Err("wrong number of arguments".to_owned()),
            };
        }
        match self.kind {
            SettingKind::Words(most) => parse_words(words, most),
            SettingKind::Choices(choices) => parse_choices(words, choices),
            SettingKind::Endpoint => Ok(SettingValue::Endpoint(compound::parse_endpoint(words)?)),
            SettingKind::Save => Ok(SettingValue::Save(SavePoint::parse_all(words)?)),
            SettingKind::Percentiles => Ok(SettingValue::Percentiles(compound::parse_percentiles(words)?)),
            SettingKind::OomScores => Ok(SettingValue::OomScores(compound::parse_oom_scores(words)?)),
            SettingKind::OutputLimits => {
                let from = match before {
                    Some(SettingValue::OutputLimits(limits)) => *limits,
                    _ => OutputLimits::default(),
                };
                Ok(SettingValue::OutputLimits(from.with(words)?))
            }
            _ => Err("wrong number of arguments".to_owned()),
        }
    }

    /// Reads a value from one text, as CONFIG SET gets it.
    pub(super) fn parse_text(
        &self,
        text: &str,
        before: Option<&SettingValue>,
    ) -> Result<SettingValue, String> {
        if !self.takes_words() {
            return self.parse(&[text], before);
        }
        let mut words: Vec<_> = text.split_ascii_whitespace().collect();
        if words.is_empty() {
            words.push("");
        }
        self.parse(&words, before)
    }

    /// Returns true if `word` reads as a value of a boolean setting, so that `--x word` is one argument and not two.
    pub(super) fn reads_bool(&self, word: &str) -> bool {
        parse_bool(word, self.spelling).is_some()
    }

    fn parse_word(&self, word: &str) -> Result<SettingValue, String> {
        match self.kind {
            SettingKind::Bool => match parse_bool(word, self.spelling) {
                Some(on) => Ok(SettingValue::Bool(on)),
                None => Err("argument must be 'yes' or 'no'".to_owned()),
            },
            SettingKind::Int(min, max) => {
                let number = parse_int(word).ok_or("argument couldn't be parsed into an integer")?;
                within(number, min, max).map(SettingValue::Int)
            }
            SettingKind::Clamped(low, high) => {
                let number = parse_int(word).ok_or("argument couldn't be parsed into an integer")?;
                within(number, 0, i64::from(i32::MAX)).map(|n| SettingValue::Int(n.clamp(low, high)))
            }
            SettingKind::Dir => {
                check::dir(word)?;
                Ok(SettingValue::Dir(word.to_owned()))
            }
            SettingKind::Octal(min, max) => {
                let number = u32::from_str_radix(word, 8)
                    .map_err(|_| "argument couldn't be parsed as an octal number")?;
                if (min..=max).contains(&number) {
                    return Ok(SettingValue::Octal(number));
                }
                Err(format!("argument must be between {min:o} and {max:o} inclusive"))
            }
            SettingKind::Memory(min, max) => {
                let bytes = self.parse_bytes(word).ok_or("argument must be a memory value")?;
                within(bytes, min, max).map(SettingValue::Bytes)
            }
            SettingKind::MemoryOrPercent => self.parse_share(word),
            SettingKind::Real(min, max) => {
                let number = word.parse().map_err(|_| "argument couldn't be parsed into a number")?;
                within(number, min, max).map(SettingValue::Real)
            }
            SettingKind::Choice(choices) => find_choice(word, choices).map(SettingValue::Choice),
            SettingKind::Events => Events::parse(word).map(SettingValue::Events),
            SettingKind::Text(check) => {
                check(word)?;
                Ok(SettingValue::Text(word.to_owned()))
            }
            _ => Err("wrong number of arguments".to_owned()),
        }
    }

    fn parse_bytes(&self, word: &str) -> Option<u64> {
        match self.spelling {
            Spelling::Redis => units::parse_bytes(word.as_bytes()),
            Spelling::Dragonfly => units::parse_bytes_binary(word.as_bytes()),
        }
    }

    fn parse_share(&self, word: &str) -> Result<SettingValue, String> {
        if let Some(bytes) = self.parse_bytes(word) {
            return within(bytes, 0, i64::MAX.cast_unsigned()).map(SettingValue::Bytes);
        }
        let percent = word.strip_suffix('%').and_then(parse_int).filter(|p| *p >= 0);
        let percent = percent.ok_or("argument must be a memory or percent value")?;
        match u8::try_from(percent) {
            Ok(percent) if percent <= 100 => Ok(SettingValue::Percent(percent)),
            _ => Err("percentage argument must be less or equal to 100".to_owned()),
        }
    }
}

impl SettingValue {
    /// The value as CONFIG GET prints it.
    pub(super) fn print(&self, spelling: Spelling) -> String {
        match self {
            SettingValue::Bool(on) => print_bool(*on, spelling).to_owned(),
            SettingValue::Int(number) => number.to_string(),
            SettingValue::Octal(number) => format!("{number:o}"),
            SettingValue::Bytes(bytes) => bytes.to_string(),
            SettingValue::Percent(percent) => format!("{percent}%"),
            SettingValue::Real(number) => number.to_string(),
            SettingValue::Choice(word) => (*word).to_owned(),
            SettingValue::Choices(words) => words.join(" "),
            SettingValue::Text(text) => text.clone(),
            SettingValue::Dir(dir) => absolute(dir).display().to_string(),
            SettingValue::Words(words) => words.join(" "),
            SettingValue::Endpoint(None) => String::new(),
            SettingValue::Endpoint(Some((host, port))) => format!("{host} {port}"),
            SettingValue::Save(points) => SavePoint::print_all(points),
            SettingValue::OutputLimits(limits) => limits.print(),
            SettingValue::Events(events) => events.print(),
            SettingValue::Percentiles(list) => join(list),
            SettingValue::OomScores(list) => join(list),
        }
    }

    /// The value as people write it in a file: amounts of memory in the largest unit that is exact.
    pub(super) fn print_for_file(&self, spelling: Spelling) -> String {
        match self {
            SettingValue::Bytes(bytes) => print_bytes(*bytes),
            _ => self.print(spelling),
        }
    }
}

/// `dir` as an absolute path; empty is the current folder. An address in a cloud stays unchanged.
pub(super) fn absolute(dir: &str) -> PathBuf {
    if is_cloud(dir) {
        return PathBuf::from(dir);
    }
    let dir = if dir.is_empty() { "." } else { dir };
    let found = std::path::absolute(dir);
    // "/a/./" becomes "/a"
    found.map_or_else(|_| PathBuf::from(dir), |path| path.components().collect())
}

fn parse_bool(word: &str, spelling: Spelling) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|w| word.eq_ignore_ascii_case(w));
    match spelling {
        _ if is(&["yes", "true"]) => Some(true),
        _ if is(&["no", "false"]) => Some(false),
        Spelling::Dragonfly if is(&["1", "t", "y"]) => Some(true),
        Spelling::Dragonfly if is(&["0", "f", "n"]) => Some(false),
        _ => None,
    }
}

fn print_bool(on: bool, spelling: Spelling) -> &'static str {
    match (spelling, on) {
        (Spelling::Redis, true) => "yes",
        (Spelling::Redis, false) => "no",
        (Spelling::Dragonfly, true) => "true",
        (Spelling::Dragonfly, false) => "false",
    }
}

/// An integer written the one way Redis takes it: no plus sign, no leading zero, no spaces.
fn parse_int(word: &str) -> Option<i64> {
    let digits = word.strip_prefix('-').unwrap_or(word).as_bytes();
    match digits {
        [b'0'] if digits.len() == word.len() => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => word.parse().ok(),
        _ => None,
    }
}

fn within<T: PartialOrd + std::fmt::Display>(value: T, min: T, max: T) -> Result<T, String> {
    if value >= min && value <= max {
        return Ok(value);
    }
    Err(format!("argument must be between {min} and {max} inclusive"))
}

fn find_choice(word: &str, choices: &'static [&'static str]) -> Result<&'static str, String> {
    let found = choices.iter().find(|c| c.eq_ignore_ascii_case(word));
    found.copied().ok_or_else(|| format!("argument(s) must be one of the following: {}", choices.join(", ")))
}

fn parse_choices(words: &[&str], choices: &'static [&'static str]) -> Result<SettingValue, String> {
    let mut on = Vec::new();
    for word in if words.is_empty() { &[""] } else { words } {
        on.push(find_choice(word, choices)?);
    }
    if on.contains(&"save") && on.contains(&"nosave") {
        return Err("shutdown options SAVE and NOSAVE can't be used simultaneously".to_owned());
    }
    let none = choices.first().copied();
    let mut kept: Vec<_> = choices.iter().copied().filter(|c| on.contains(c) && Some(*c) != none).collect();
    if kept.is_empty() {
        kept.extend(none);
    }
    Ok(SettingValue::Choices(kept))
}

fn parse_words(words: &[&str], most: usize) -> Result<SettingValue, String> {
    if words.len() > most {
        return Err(format!("at most {most} words are allowed"));
    }
    let words = if words == [""] { &[] } else { words };
    Ok(SettingValue::Words(words.iter().map(|&w| w.to_owned()).collect()))
}

fn print_bytes(bytes: u64) -> String {
    for (shift, unit) in [(30, "gb"), (20, "mb"), (10, "kb")] {
        let whole = bytes >> shift;
        if whole != 0 && whole << shift == bytes {
            return format!("{whole}{unit}");
        }
    }
    bytes.to_string()
}

fn join<T: std::fmt::Display>(list: &[T]) -> String {
    let words: Vec<_> = list.iter().map(ToString::to_string).collect();
    words.join(" ")
}
