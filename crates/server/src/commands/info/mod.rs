//! INFO: the server's numbers as text, section by section. Field names are Redis' own; some of Dragonfly's follow them.

mod activity;
mod commands;
mod keysizes;
mod replication;
mod system;

use darter_command::category::Categories;
use std::collections::HashMap;
use std::fmt::{Display, Write as _};

use darter_command::spec::Group;
use darter_command::{Fault, Flags, Marks, Spec};
use darter_wire::{Args, Reply};

use super::{ServerCommand, row};
use crate::dispatch::Caller;
use crate::job::Shards;
use crate::report::Report;
use crate::shared::Shared;
use darter_config::Live;

/// The family's commands.
pub const FAMILY: &[ServerCommand] = &[row(
    Spec::other("info", -1)
        .category(Categories::DANGEROUS)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .flag(Flags::LOADING.with(Flags::STALE))
        .mark(Marks::ONLY_TELLS)
        .doc(
            Group::Server,
            "1.0.0",
            "[section [section ...]]",
            "Returns information and statistics about the server.",
        ),
    info,
)];

/// The data for a section.
struct InfoSource<'a> {
    shared: &'a Shared,
    live: &'a Live,
    report: Report,
    now_ms: u64,
    /// The mean time to live of each database, if requested.
    ttls_ms: Vec<u64>,
}

impl<'a> InfoSource<'a> {
    fn new(
        shared: &'a Shared,
        live: &'a Live,
        report: Report,
        asked: &[&[u8]],
        mut held: Option<&mut Shards>,
    ) -> Self {
        let now_ms = crate::clock::unix_ms();
        let mut ttls_ms = Vec::new();
        if is_asked(&KEYSPACE, asked) {
            let mean = |(db, &expiring): (usize, &usize)| match expiring {
                0 => 0,
                _ => shared.average_ttl_ms(db, now_ms, held.as_deref_mut()),
            };
            ttls_ms = report.shards.expiring.iter().enumerate().map(mean).collect();
        }
        InfoSource { shared, live, report, now_ms, ttls_ms }
    }
}

/// When a section is shown without being named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShownSections {
    /// Always.
    Default,
    /// With `all` and `everything`.
    All,
}

struct Section {
    name: &'static str,
    shown: ShownSections,
    write: fn(&InfoSource<'_>, &mut InfoText),
}

const fn section(
    name: &'static str,
    shown: ShownSections,
    write: fn(&InfoSource<'_>, &mut InfoText),
) -> Section {
    Section { name, shown, write }
}

const KEYSPACE: Section = section("Keyspace", ShownSections::Default, activity::keyspace);

/// Every section, in the order they are written.
const SECTIONS: &[Section] = &[
    section("Server", ShownSections::Default, system::server),
    section("Clients", ShownSections::Default, system::clients),
    section("Memory", ShownSections::Default, system::memory),
    section("Persistence", ShownSections::Default, activity::persistence),
    section("Stats", ShownSections::Default, activity::stats),
    section("Replication", ShownSections::Default, replication::replication),
    section("CPU", ShownSections::Default, system::cpu),
    section("Modules", ShownSections::Default, |_, out| {
        super::modules::lines().for_each(|line| out.field("module", line));
    }),
    section("Commandstats", ShownSections::All, commands::commandstats),
    section("Errorstats", ShownSections::Default, commands::errorstats),
    section("Latencystats", ShownSections::All, commands::latencystats),
    section("Cluster", ShownSections::Default, activity::cluster),
    KEYSPACE,
    section("Transaction", ShownSections::All, activity::transaction),
    section("Tiered", ShownSections::All, activity::tiered),
    section("Search", ShownSections::All, activity::search),
    section("Acl", ShownSections::All, activity::acl),
];

fn info(caller: &mut Caller<'_>, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), Fault> {
    let asked: Vec<&[u8]> = args.iter().skip(1).collect();
    let local = &caller.local;
    let report = Report::gather(local.shared, caller.held.as_deref_mut());
    let source = InfoSource::new(local.shared, &local.live, report, &asked, caller.held.as_deref_mut());
    let text = render(&source, &asked);
    if asked.iter().any(|word| word.eq_ignore_ascii_case(keysizes::NAME.as_bytes())) {
        return keysizes::answer_later(caller, text);
    }
    reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

/// The fields of some sections, from numbers that were gathered before.
pub(crate) fn fields(
    shared: &Shared,
    live: &Live,
    report: &Report,
    sections: &[&[u8]],
) -> HashMap<String, String> {
    let text = render(&InfoSource::new(shared, live, report.clone(), sections, None), sections);
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn render(source: &InfoSource<'_>, asked: &[&[u8]]) -> String {
    let mut text = InfoText(String::with_capacity(8 << 10));
    for section in SECTIONS.iter().filter(|section| is_asked(section, asked)) {
        if !text.0.is_empty() {
            text.0.push_str("\r\n");
        }
        let _ = write!(text.0, "# {}\r\n", section.name);
        (section.write)(source, &mut text);
    }
    text.0
}

fn is_asked(section: &Section, asked: &[&[u8]]) -> bool {
    let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    let is_default = section.shown == ShownSections::Default;
    if asked.is_empty() {
        return is_default;
    }
    asked.iter().any(|word| {
        is(word, section.name)
            || is(word, "all")
            || is(word, "everything")
            || (is(word, "default") && is_default)
    })
}

/// The text under construction.
struct InfoText(String);

impl InfoText {
    /// A line `name:value`.
    fn field(&mut self, name: &str, value: impl Display) {
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// Several fields.
    fn fields(&mut self, fields: &[(&str, u64)]) {
        fields.iter().for_each(|(name, value)| self.field(name, value));
    }

    /// Fields that stay zero because their feature is missing.
    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.field(name, 0));
    }

    /// An amount of bytes, as a number and for people.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.field(name, bytes);
        let human = darter_base::units::format_bytes_human(bytes);
        let _ = write!(self.0, "{name}_human:{human}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&[u8]]) -> Vec<&'static str> {
        SECTIONS.iter().filter(|section| is_asked(section, asked)).map(|section| section.name).collect()
    }

    #[test]
    fn sections_are_chosen_by_name_or_by_kind() {
        assert!(names(&[]).contains(&"Server") && !names(&[]).contains(&"Commandstats"));
        assert_eq!(names(&[]), names(&[b"default"]));
        assert_eq!(names(&[b"ALL"]).len(), SECTIONS.len());
        assert_eq!(names(&[b"cpu", b"SERVER", b"cpu"]), ["Server", "CPU"]);
        assert_eq!(names(&[b"default", b"commandstats"]).len(), names(&[]).len() + 1);
        assert!(names(&[b"nothing"]).is_empty());
    }

    #[test]
    fn fields_end_as_the_protocol_wants() {
        let mut text = InfoText(String::new());
        text.bytes("used_memory", 1536);
        assert_eq!(text.0, "used_memory:1536\r\nused_memory_human:1.50K\r\n");
    }
}
