//! The checks of text settings, with Redis' error texts.

use std::net::{Ipv4Addr, Ipv6Addr};

use darter_persist::storage::{HAS_CLOUD, is_cloud};

/// A folder that exists, or a place in an object store.
pub(super) fn dir(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    if is_cloud(text) {
        return match HAS_CLOUD {
            true => Ok(()),
            false => Err("this program was built without snapshots in object stores".to_owned()),
        };
    }
    match std::fs::metadata(text) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err("Not a directory".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err("No such file or directory".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A file name, or nothing to turn saving off.
pub(super) fn dbfilename(text: &str) -> Result<(), String> {
    no_path(text, "dbfilename can't be a path, just a filename")
}

/// A file name.
pub(super) fn appendfilename(text: &str) -> Result<(), String> {
    not_empty(text, "appendfilename can't be empty")?;
    no_path(text, "appendfilename can't be a path, just a filename")
}

/// A folder name.
pub(super) fn appenddirname(text: &str) -> Result<(), String> {
    not_empty(text, "appenddirname can't be empty")?;
    no_path(text, "appenddirname can't be a path, just a dirname")
}

/// A folder name.
pub(super) fn backupdirname(text: &str) -> Result<(), String> {
    not_empty(text, "backupdirname can't be empty")?;
    no_path(text, "backupdirname can't be a path, just a dirname")
}

/// Dragonfly's flags of scripts.
pub(super) fn script_flags(text: &str) -> Result<(), String> {
    darter_script::script::check_flags(text).map_err(|line| line.trim_start_matches("ERR ").to_owned())
}

/// Any name.
pub(super) fn cluster_config_file(text: &str) -> Result<(), String> {
    not_empty(text, "cluster-config-file can't be empty")
}

/// A host name.
pub(super) fn hostname(text: &str) -> Result<(), String> {
    if text.len() >= 256 {
        return Err("Hostnames must be less than 256 characters".to_owned());
    }
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.') {
        return Ok(());
    }
    Err("Hostnames may only contain alphanumeric characters, hyphens or dots".to_owned())
}

/// The name of a node.
pub(super) fn nodename(text: &str) -> Result<(), String> {
    hostname(text).map_err(|_| "Announced human node name contained invalid character".to_owned())
}

/// An IPv4 address or nothing.
pub(super) fn ipv4(text: &str) -> Result<(), String> {
    if text.is_empty() || text.parse::<Ipv4Addr>().is_ok() {
        return Ok(());
    }
    Err("Invalid IPv4 address".to_owned())
}

/// An IPv6 address or nothing.
pub(super) fn ipv6(text: &str) -> Result<(), String> {
    if text.is_empty() || text.parse::<Ipv6Addr>().is_ok() {
        return Ok(());
    }
    Err("Invalid IPv6 address".to_owned())
}

/// Text without spaces and control characters, because it becomes part of a line of INFO.
pub(super) fn printable(text: &str) -> Result<(), String> {
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("argument can't contain spaces or control characters".to_owned());
    }
    Ok(())
}

/// Words in braces that Redis' process titles know.
pub(super) fn title_template(text: &str) -> Result<(), String> {
    const WORDS: [&str; 7] =
        ["title", "listen-addr", "server-mode", "port", "tls-port", "unixsocket", "config-file"];
    let invalid = "template format is invalid or contains unknown variables";
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('{') {
        let (word, after) = after.split_once('}').ok_or(invalid)?;
        if !WORDS.contains(&word) {
            return Err(invalid.to_owned());
        }
        rest = after;
    }
    Ok(())
}

/// Five fields of cron: numbers, names of months and days, `*`, ranges, steps and lists.
pub(super) fn cron(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let fields: Vec<_> = text.split_ascii_whitespace().collect();
    let fits = |(field, rule): (&&str, &CronRule)| field.split(',').all(|part| rule.fits(part));
    if fields.len() == CRON.len() && fields.iter().zip(&CRON).all(fits) {
        return Ok(());
    }
    Err(format!("'{text}' is not a cron expression of five fields"))
}

/// `HH:MM`; `*` matches any digit.
pub(super) fn save_schedule(text: &str) -> Result<(), String> {
    let fits = |field: &str, max: u32| {
        field == "*"
            || (field.len() <= 2
                && field.bytes().all(|b| b.is_ascii_digit())
                && field.parse::<u32>().is_ok_and(|n| n <= max))
    };
    match text.split_once(':') {
        _ if text.is_empty() => Ok(()),
        Some((hours, minutes)) if fits(hours, 23) && fits(minutes, 59) => Ok(()),
        _ => Err(format!("'{text}' is not a time like 23:45, *:30 or *:*")),
    }
}

/// The valid content of one field of cron.
struct CronRule {
    min: u32,
    max: u32,
    // names[0] means `min`
    names: &'static [&'static str],
}

const CRON: [CronRule; 5] = [
    CronRule { min: 0, max: 59, names: &[] },
    CronRule { min: 0, max: 23, names: &[] },
    CronRule { min: 1, max: 31, names: &[] },
    CronRule {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    CronRule { min: 0, max: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

impl CronRule {
    fn fits(&self, part: &str) -> bool {
        let (range, step) = part.split_once('/').map_or((part, None), |(r, s)| (r, Some(s)));
        if step.is_some_and(|s| !s.parse::<u32>().is_ok_and(|n| n >= 1)) {
            return false;
        }
        match range.split_once('-') {
            Some((from, to)) => matches!((self.number(from), self.number(to)), (Some(a), Some(b)) if a <= b),
            None => range == "*" || self.number(range).is_some(),
        }
    }

    fn number(&self, text: &str) -> Option<u32> {
        if let Some(place) = self.names.iter().position(|n| n.eq_ignore_ascii_case(text)) {
            return u32::try_from(place).ok().map(|p| p + self.min);
        }
        text.parse().ok().filter(|n| (self.min..=self.max).contains(n))
    }
}

fn not_empty(text: &str, error: &str) -> Result<(), String> {
    if text.is_empty() { Err(error.to_owned()) } else { Ok(()) }
}

fn no_path(text: &str, error: &str) -> Result<(), String> {
    if text.contains('/') { Err(error.to_owned()) } else { Ok(()) }
}
