//! `docs/commands.md` is the registry in print; `DARTER_BLESS=1` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use darter_server::registry::{CommandEntry, Registry};

#[test]
fn the_list_of_commands_is_what_the_registry_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let wanted = reference(&Registry::build());
    if std::env::var_os("DARTER_BLESS").is_some() {
        std::fs::write(&path, &wanted).expect("docs/commands.md can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == wanted,
        "docs/commands.md is out of date: DARTER_BLESS=1 cargo test -p darter-server --test commands_doc"
    );
}

fn reference(registry: &Registry) -> String {
    let mut groups: BTreeMap<&str, Vec<&CommandEntry>> = BTreeMap::new();
    for entry in registry.commands() {
        groups.entry(entry.spec.group.name()).or_default().push(entry);
    }
    let count: usize = registry.entries().len();
    let mut out = format!(
        "# Commands\n\nThis page is generated from the command tables: {count} commands and subcommands. \
         Any other command is answered `ERR unknown command`.\n"
    );
    for (group, mut entries) in groups {
        entries.sort_by_key(|entry| entry.spec.name);
        let _ = writeln!(
            out,
            "\n## {group}\n\n| command | arguments | since | what it does |\n|---|---|---|---|"
        );
        for entry in entries {
            row(&mut out, entry);
            let mut subs = entry.subs.clone();
            subs.sort_by_key(|sub| sub.spec.name);
            subs.into_iter().for_each(|sub| row(&mut out, sub));
        }
    }
    out
}

fn row(out: &mut String, entry: &CommandEntry) {
    let spec = &entry.spec;
    let name = spec.name.replace('|', " ").to_uppercase();
    let syntax = spec.syntax.replace('|', "\\|").replace('<', "&lt;");
    let _ = writeln!(out, "| {name} | {syntax} | {} | {} |", spec.since, spec.summary);
}
