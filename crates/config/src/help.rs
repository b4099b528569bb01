//! `--help`, `--helpfull`, `--version` and docs/flags.md, all made from the table.

use super::setting::{Setting, SettingGroup, SettingKind, SettingStatus, Visibility};
use super::table;
use std::fmt::Write;

/// `--version`.
pub(super) fn version() -> String {
    format!("darter {}\n", env!("CARGO_PKG_VERSION"))
}

/// `--help`: the settings with an effect, by group.
pub(super) fn usual() -> String {
    let mut text = usage();
    print_groups(&mut text, |setting| !matches!(setting.status, SettingStatus::NoEffect(_)));
    text.push_str(
        "\n--helpfull also lists the settings of Redis and Dragonfly that are taken and have no effect.\n",
    );
    text
}

/// `--helpfull`: everything.
pub(super) fn full() -> String {
    let mut text = usage();
    print_groups(&mut text, |_| true);
    text
}

/// `--help=part`: the settings whose name or group contains `part`.
pub(super) fn about(part: &str) -> String {
    let part = part.to_ascii_lowercase();
    let mut text = String::new();
    let has = |name: &str| table::plain(name).contains(&table::plain(&part));
    print_groups(&mut text, |setting| {
        has(setting.name)
            || setting.aliases.iter().any(|alias| has(alias))
            || setting.group.title().to_ascii_lowercase().contains(&part)
    });
    if text.is_empty() {
        return format!("no setting has '{part}' in its name; --help lists all\n");
    }
    text
}

/// docs/flags.md, in full. Cost: a few hundred lines of text.
pub fn reference() -> String {
    let mut text = REFERENCE_INTRODUCTION.to_owned();
    for group in SettingGroup::ALL {
        let _ = write!(
            text,
            "\n## {}\n\n| name | default | value | set at run time | meaning |\n",
            group.title()
        );
        text.push_str("|---|---|---|---|---|\n");
        for setting in table::settings().filter(|s| s.group == group) {
            let aliases: String = setting.aliases.iter().map(|a| format!(", `{a}`")).collect();
            let default = if setting.default.is_empty() { "" } else { &format!("`{}`", setting.default) };
            let change = match setting.visibility {
                Visibility::DirectiveOnly => "no (start-up only)",
                Visibility::Shown | Visibility::Hidden => change(setting),
            };
            let _ = writeln!(
                text,
                "| `{}`{aliases} | {default} | {} | {change} | {}{} |",
                setting.name,
                kind(setting.kind).replace('|', "\\|"),
                setting.help.replace('|', "\\|"),
                remark(setting),
            );
        }
    }
    text
}

fn usage() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "darter {version}: an in-memory data store that speaks Redis

Usage: darter [CONFIG-FILE] [--name=value | --name value | -name value | --name | --noname]...

CONFIG-FILE is a file as redis.conf; --flagfile=FILE reads one name=value per line.
The environment variable DFLY_name gives a setting too; DFLY_PASSWORD is the password when requirepass is empty.
Order: CONFIG-FILE, environment, command line; what comes later wins. Dashes and underscores are the same.

  --help                   this text; --help=part shows the settings with that in their name
  --helpfull               the same with every setting that is taken for compatibility
  --version                the version
  --ping [[HOST:]PORT]     ask a server whether it serves, for health checks
  --check FILE|FOLDER      check a snapshot, an RDB file or a journal; --convert IN OUT rewrites one
  --flagfile=FILE          read flags from FILE; CONFIG REWRITE writes there
  --fromenv=a,b            take a and b from the variables FLAGS_a and FLAGS_b; --tryfromenv if they exist
  --undefok=a,b            do not mind if a and b are unknown
"
    )
}

fn print_groups(text: &mut String, wanted: impl Fn(&Setting) -> bool) {
    for group in SettingGroup::ALL {
        let mut heading = format!("\n{}\n", group.title());
        for setting in table::settings().filter(|s| s.group == group && wanted(s)) {
            text.push_str(&std::mem::take(&mut heading));
            let flag = format!("--{}={}", setting.name, setting.default);
            let gap = if flag.len() > 24 { "\n                          " } else { "" };
            let _ = writeln!(text, "  {flag:24}{gap} {}{}", setting.help, remark(setting));
        }
    }
}

/// The real effect of a setting, if it differs from its description.
fn remark(setting: &Setting) -> String {
    match setting.status {
        SettingStatus::Works => String::new(),
        SettingStatus::NoEffect(reason) => format!(" (no effect: {reason})"),
        SettingStatus::NotYet(_) => " (not yet: refused)".to_owned(),
    }
}

fn change(setting: &Setting) -> &'static str {
    use super::setting::SettingChange;
    match setting.change {
        SettingChange::Runtime | SettingChange::Applied => "yes",
        SettingChange::Protected => "if `enable-protected-configs` lets",
        SettingChange::Startup => "no",
    }
}

fn kind(kind: SettingKind) -> String {
    match kind {
        SettingKind::Bool => "boolean".to_owned(),
        SettingKind::Int(min, max) | SettingKind::Clamped(min, max) => match max {
            2_147_483_647.. => format!("number from {min}"),
            _ => format!("{min} to {max}"),
        },
        SettingKind::Octal(min, max) => format!("octal, {min:o} to {max:o}"),
        SettingKind::Memory(0, _) => "memory".to_owned(),
        SettingKind::Memory(min, _) => format!("memory from {min} bytes"),
        SettingKind::MemoryOrPercent => "memory or percent".to_owned(),
        SettingKind::Real(min, max) => format!("{min} to {max}"),
        SettingKind::Choice(words) | SettingKind::Choices(words) => {
            let words: Vec<_> = words.iter().map(|w| if w.is_empty() { "\"\"" } else { w }).collect();
            words.join(", ")
        }
        SettingKind::Text(_) | SettingKind::Dir => "text".to_owned(),
        SettingKind::Words(_) => "words".to_owned(),
        SettingKind::Endpoint => "host and port".to_owned(),
        SettingKind::Save => "pairs of seconds and changes".to_owned(),
        SettingKind::OutputLimits => "class, bytes, bytes, seconds".to_owned(),
        SettingKind::Events => "letters".to_owned(),
        SettingKind::Percentiles => "percentiles".to_owned(),
        SettingKind::OomScores => "three scores".to_owned(),
    }
}

const REFERENCE_INTRODUCTION: &str = "# Settings

This page is generated from the settings table (`crates/config/src/table`). `DARTER_BLESS=1 cargo test -p
darter-config reference` writes it.

A setting can be given in four places:

* on the command line: `--name=value`, `--name value`, `-name value`; `--name` and `--noname` for booleans
* in the environment: `DFLY_name`
* in a file in the format of redis.conf, which is the first argument
* in a flag file: `--flagfile`, with one `name=value` per line

Dashes, underscores and dots in names are equal. The configuration file is read first, then the environment, then the command
line; the last value wins. CONFIG GET and CONFIG SET accept every name and alias.

*no effect* marks names of Redis and Dragonfly that are accepted so that existing configurations start. They change nothing, and
the log names those that are not at their default. *not yet* marks missing features: their default is accepted, and any other
value is refused with a clear line.

Memory is written as `100mb` or `12gb`. Settings with dashes (Redis) count `1k` as 1000 bytes and `1kb` as 1024. Settings with
underscores (Dragonfly) count both as 1024.
";
