//! House rules that no compiler checks. Each finding is one line: file, place, what is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Who may name whom: lower crates never name higher ones.
const EDGES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("latch", &["base"]),
    ("slab", &["base"]),
    ("pack", &["base", "slab"]),
    ("index", &["base", "slab"]),
    ("store", &["base", "slab", "index", "pack"]),
    ("txn", &["base", "latch", "store"]),
    ("wire", &["base"]),
    ("command", &["base", "pack", "store", "txn", "wire"]),
    ("lua", &["base", "wire"]),
    ("script", &["base", "lua", "wire"]),
    ("persist", &["base", "pack", "store"]),
    ("reactor", &["base"]),
    ("server", &["base", "latch", "pack", "store", "txn", "wire", "command", "script", "persist", "reactor"]),
    ("darter", &["server", "slab", "persist"]),
];

/// Crates where `unsafe` may stand.
const UNSAFE_ROOMS: &[&str] = &["latch", "slab", "pack", "index", "lua", "reactor"];

/// Lines of code of a file, tests apart.
const FILE_LINES_MAX: usize = 800;

/// Looks at everything; errors with the number of findings.
pub fn run() -> Result<(), String> {
    let mut findings = Vec::new();
    check_edges(&mut findings)?;
    let files = rust_files(Path::new("."));
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        check_file(file, &text, &mut findings);
    }
    check_docs(&mut findings);
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

fn check_edges(findings: &mut Vec<String>) -> Result<(), String> {
    let out = Command::new("cargo")
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let metadata: Value =
        serde_json::from_slice(&out.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let no_packages = Vec::new();
    for package in metadata["packages"].as_array().unwrap_or(&no_packages) {
        let manifest = package["manifest_path"].as_str().unwrap_or("");
        let Some(from) = manifest.rsplit("/crates/").next().and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let Some(may) = allowed.get(from) else {
            if manifest.contains("/crates/") {
                findings.push(format!(
                    "{manifest}: crate {from} has no place in the house plan (xtask/src/tidy.rs)"
                ));
            }
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap_or(&no_packages) {
            let name = dependency["name"].as_str().unwrap_or("");
            let is_dev = dependency["kind"].as_str() == Some("dev");
            if let Some(to) = name.strip_prefix("darter-")
                && !is_dev
                && !may.contains(&to)
            {
                findings.push(format!("{manifest}: {from} must not name {to}"));
            }
        }
    }
    Ok(())
}

fn rust_files(root: &Path) -> Vec<PathBuf> {
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

fn check_file(file: &Path, text: &str, findings: &mut Vec<String>) {
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
        && let Some((room, rest)) = rest.split_once('/')
        && (rest == "src/lib.rs" || rest == "src/main.rs")
        && !UNSAFE_ROOMS.contains(&room)
        && !text.contains("#![forbid(unsafe_code)]")
    {
        findings.push(format!("{shown}: a safe crate must say #![forbid(unsafe_code)]"));
    }
}

fn check_docs(findings: &mut Vec<String>) {
    let Ok(architecture) = fs::read_to_string("ARCHITECTURE.md") else {
        findings.push("ARCHITECTURE.md is missing".into());
        return;
    };
    for folder in fs::read_dir("crates").into_iter().flatten().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !architecture.contains(&format!("`{name}`")) {
            findings.push(format!("ARCHITECTURE.md does not mention the crate `{name}`"));
        }
    }
}
