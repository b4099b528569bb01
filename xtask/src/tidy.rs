//! House rules that no compiler checks. Each finding is one line: file, place, what is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Lines of code of a file, tests apart.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function of a crate, tests apart: those of the longest there is (`Conn::process_resp`), to be lowered with it.
/// The next one has 66.
const FUNCTION_LINES_MAX: usize = 83;

/// Lines of ARCHITECTURE.md.
const PAGE_LINES_MAX: usize = 250;
/// Characters of a commit's subject.
const SUBJECT_CHARS_MAX: usize = 72;
/// The last commit before subjects were bounded.
const SUBJECTS_SINCE: &str = "543954dce6bebc1f9e1e230c30df9f48140d69b2";

/// Text that only some files may contain: the text, the files (their beginnings), and why.
const ROOMS: &[(&str, &[&str], &str)] = &[
    (
        ".take_spinning(",
        &["./crates/latch/", "./crates/engine/src/lease.rs"],
        "shards are taken by engine::lease",
    ),
    (
        ".try_take()",
        &["./crates/latch/", "./crates/engine/src/lease.rs"],
        "shards are taken by engine::lease",
    ),
    ("queue_for(", &["./crates/latch/", "./crates/engine/src/lease.rs"], "jobs are queued by engine::lease"),
    (
        "drive_waiting(",
        &["./crates/latch/", "./crates/engine/src/lease.rs"],
        "shards are released by engine::lease",
    ),
    (
        "tracking::invalidate(",
        &["./crates/server/src/engine/sinks.rs"],
        "changes are published by engine::commit",
    ),
    ("pubsub::notify(", &["./crates/server/src/engine/sinks.rs"], "changes are published by engine::commit"),
    (
        "waiting::serve(",
        &["./crates/server/src/engine/sinks.rs"],
        "waiting clients are served by engine::commit",
    ),
    ("relief::settle_all(", &["./crates/server/src/engine/sinks.rs"], "room is made by engine::commit"),
    ("spec.name == \"", &[], "a row says what the server does (Marks), not its name"),
    ("spec.name != \"", &[], "a row says what the server does (Marks), not its name"),
    ("spec.name, \"", &[], "a row says what the server does (Marks), not its name"),
    ("match self.name {", &[], "a row says what it is, no list of names"),
    ("spec.name {", &[], "a row says what the server does (Marks), no match of names"),
    ("contains(&spec.name)", &[], "a row says what it is, no list of names"),
    ("== self.name", &[], "a row says what it is, no list of names"),
];

/// Looks at everything; errors with the number of findings.
pub fn run() -> Result<(), String> {
    let mut findings = Vec::new();
    let page = fs::read_to_string("ARCHITECTURE.md").map_err(|error| format!("ARCHITECTURE.md: {error}"))?;
    let plan = plan(&page);
    check_edges(&plan, &mut findings)?;
    if page.lines().count() > PAGE_LINES_MAX {
        findings.push(format!("ARCHITECTURE.md: more than {PAGE_LINES_MAX} lines"));
    }
    check_subjects(&mut findings);
    let files = rust_files(Path::new("."));
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        check_file(file, &text, &plan, &mut findings);
    }
    crate::house::check(&files, &mut findings)?;
    crate::docs::check(&mut findings)?;
    crate::prose::check(&mut findings)?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to complain about", files.len());
        Ok(())
    } else {
        Err(format!("{} findings", findings.len()))
    }
}

/// The crates that may contain `unsafe`, by the table of ARCHITECTURE.md.
pub fn starred() -> Result<Vec<String>, String> {
    let page = fs::read_to_string("ARCHITECTURE.md").map_err(|error| format!("ARCHITECTURE.md: {error}"))?;
    let starred = plan(&page).into_iter().filter(|(_, planned)| planned.may_be_unsafe);
    Ok(starred.map(|(name, _)| name.to_owned()).collect())
}

/// A crate, as the table of ARCHITECTURE.md has it.
struct Planned<'p> {
    may_be_unsafe: bool,
    may_name: Vec<&'p str>,
}

/// The table of crates on `page`: rows of a name (and a star), what it holds, and whom it may name.
fn plan(page: &str) -> BTreeMap<&str, Planned<'_>> {
    let mut plan = BTreeMap::new();
    let rows = page.lines().skip_while(|line| !line.starts_with("| crate |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let mut cells = row.split(" | ");
        let name = cells.next().unwrap_or("");
        let may_name = cells.next().and(cells.next()).unwrap_or("").trim_end_matches(" |");
        let may_name = may_name.split(", ").filter(|&name| name != "-").collect();
        let may_be_unsafe = name.contains('★');
        plan.insert(name.split('`').nth(1).unwrap_or(""), Planned { may_be_unsafe, may_name });
    }
    plan
}

/// Whether crates name those that the plan lets them name, and no others.
fn check_edges(plan: &BTreeMap<&str, Planned<'_>>, findings: &mut Vec<String>) -> Result<(), String> {
    let out = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value =
        serde_json::from_slice(&out.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let no_packages = Vec::new();
    for package in metadata["packages"].as_array().unwrap_or(&no_packages) {
        let manifest = package["manifest_path"].as_str().unwrap_or("");
        let Some((_, from)) = manifest.rsplit_once("/crates/") else { continue };
        let from = from.trim_end_matches("/Cargo.toml");
        let Some(planned) = plan.get(from) else {
            findings.push(format!("{manifest}: crate {from} is not in the table of ARCHITECTURE.md"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().unwrap_or(&no_packages);
        let named: Vec<&str> = dependencies
            .iter()
            .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
            .filter_map(|dependency| dependency["name"].as_str()?.strip_prefix("darter-"))
            .collect();
        let differ = |a: &[&str], b: &[&str]| {
            a.iter().filter(|name| !b.contains(name)).map(|name| name.to_string()).collect::<Vec<_>>()
        };
        for to in differ(&named, &planned.may_name) {
            findings.push(format!("{manifest}: {from} must not name {to}"));
        }
        for to in differ(&planned.may_name, &named) {
            findings.push(format!("ARCHITECTURE.md: {from} does not name {to}"));
        }
    }
    Ok(())
}

/// Whether the subjects of commits are short enough. A clone without history says nothing.
fn check_subjects(findings: &mut Vec<String>) {
    let range = format!("{SUBJECTS_SINCE}..HEAD");
    let Ok(out) = Command::new("git").args(["log", "--format=%h %s", &range]).output() else { return };
    for line in String::from_utf8_lossy(&out.stdout).lines() {
        let Some((commit, subject)) = line.split_once(' ') else { continue };
        if subject.chars().count() > SUBJECT_CHARS_MAX {
            findings.push(format!("commit {commit}: a subject of more than {SUBJECT_CHARS_MAX} characters"));
        }
    }
}

/// Every Rust file under a folder, in order; what is built and what is hidden apart.
pub fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if name != "target" && name != "node_modules" && !name.to_string_lossy().starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn check_file(file: &Path, text: &str, plan: &BTreeMap<&str, Planned<'_>>, findings: &mut Vec<String>) {
    let shown = file.display();
    let place = file.to_string_lossy();
    let is_test = place.contains("/tests/") || place.ends_with("tests.rs") || place.ends_with("testing.rs");
    if !is_test && !text.starts_with("//!") && !text.starts_with("#![no_main]") {
        findings.push(format!("{shown}:1: no `//!` head that says what the file holds"));
    }
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().count();
    if lines > FILE_LINES_MAX && !is_test {
        findings.push(format!("{shown}: {lines} lines, more than {FILE_LINES_MAX}"));
    }
    if place.starts_with("./crates/") && place.contains("/src/") && !is_test {
        for (at, lines) in long_functions(code) {
            findings
                .push(format!("{shown}:{at}: a function of {lines} lines, more than {FUNCTION_LINES_MAX}"));
        }
    }
    if place.starts_with("./crates/") && place.contains("/src/") && !is_test {
        for (at, line) in code.lines().enumerate().filter(|(_, line)| !line.trim().starts_with("//")) {
            let broken = ROOMS.iter().filter(|(words, rooms, _)| {
                line.contains(words) && !rooms.iter().any(|room| place.starts_with(room))
            });
            findings.extend(broken.map(|(_, _, why)| format!("{shown}:{}: {why}", at + 1)));
        }
    }
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("pub use") && line.ends_with("::*;") {
            findings.push(format!("{shown}:{}: `pub use *` hides where a name lives", at + 1));
        }
        if line.starts_with("#[ignore") {
            findings.push(format!("{shown}:{}: an ignored test", at + 1));
        }
    }
    if let Some(rest) = place.strip_prefix("./crates/")
        && let Some((name, rest)) = rest.split_once('/')
        && (rest == "src/lib.rs" || rest == "src/main.rs")
        && plan.get(name).is_some_and(|planned| !planned.may_be_unsafe)
        && !text.contains("#![forbid(unsafe_code)]")
    {
        findings.push(format!("{shown}: a safe crate must say #![forbid(unsafe_code)]"));
    }
}

/// The line, and the number of lines, of each function that is too long. In formatted code a function ends with a brace
/// that stands as far in as its first line.
fn long_functions(code: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let is_function = |line: &str| {
        line.trim_start().split_once("fn ").is_some_and(|(before, _)| {
            let is_qualifier = |word: &str| {
                ["const", "unsafe", "async", "extern"].contains(&word)
                    || word.starts_with("pub")
                    || word.starts_with('"')
            };
            before.split_whitespace().all(is_qualifier)
        })
    };
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_function(line)) {
        let rest = &lines[at..];
        let has_body =
            rest.iter().find(|line| line.ends_with(['{', '}', ';'])).is_some_and(|end| end.ends_with('{'));
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = rest.iter().position(|line| line.strip_prefix(indent) == Some("}"));
        if let Some(end) = end.filter(|end| has_body && *end >= FUNCTION_LINES_MAX) {
            found.push((at + 1, end + 1));
        }
    }
    found
}
