//! House checks that only ever get stricter: cycles of modules, type names with two meanings, `bool` parameters, and doc
//! comments that begin with a bare pronoun.
//!
//! What is allowed stands in xtask/house.tsv, a line each: kind, name, number. `tidy` complains if there is more, and if
//! there is less, so that the allowance follows; `cargo xtask house` lowers it. A line that is missing allows
//! [`CYCLE_MAX`] modules in a cycle, one type of a name, and no `bool`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules of a crate that may need each other in a circle without an allowance.
const CYCLE_MAX: usize = 8;
const ALLOWED: &str = "xtask/house.tsv";

/// A number that is counted: its kind and what it is of.
type Count = (&'static str, String);

/// Compares today's numbers with the allowance.
pub fn check(files: &[PathBuf], findings: &mut Vec<String>) -> Result<(), String> {
    let allowed = read()?;
    let today = count(files)?;
    for ((kind, name), &n) in &today {
        let may = allowance(&allowed, kind, name);
        if n > may {
            findings.push(format!("{}: {n}, {may} allowed", told(kind, name)));
        }
    }
    for ((kind, name), &may) in &allowed {
        let n = today.iter().find(|((k, of), _)| k == kind && of == name).map_or(0, |(_, n)| *n);
        if n < may {
            findings.push(format!(
                "{ALLOWED}: {}: {n}, {may} allowed: `cargo xtask house` lowers it",
                told(kind, name)
            ));
        }
    }
    Ok(())
}

/// Lowers the allowance to today's numbers; without a file it writes them down.
pub fn lower(files: &[PathBuf]) -> Result<(), String> {
    let is_new = !Path::new(ALLOWED).exists();
    let allowed = read()?;
    let mut text = String::from("# kind\tname\tallowed; see xtask/src/house.rs\n");
    for ((kind, name), n) in count(files)? {
        let n = if is_new { n } else { n.min(allowance(&allowed, kind, &name)) };
        if n > default(kind) {
            text.push_str(&format!("{kind}\t{name}\t{n}\n"));
        }
    }
    fs::write(ALLOWED, text).map_err(|error| format!("{ALLOWED}: {error}"))
}

fn told(kind: &str, name: &str) -> String {
    match kind {
        "cycle" => format!("crates/{name}: modules in the largest cycle"),
        "bool" => format!("crates/{name}: bool parameters"),
        "comment" => format!("{name} doc comments that begin with Who, What is or Whether so"),
        _ => format!("types called {name}"),
    }
}

fn default(kind: &str) -> usize {
    match kind {
        "cycle" => CYCLE_MAX,
        "type" => 1,
        _ => 0,
    }
}

fn allowance(allowed: &BTreeMap<(String, String), usize>, kind: &str, name: &str) -> usize {
    allowed.get(&(kind.to_owned(), name.to_owned())).copied().unwrap_or(default(kind))
}

fn read() -> Result<BTreeMap<(String, String), usize>, String> {
    let mut allowed = BTreeMap::new();
    let text = fs::read_to_string(ALLOWED).unwrap_or_default();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        let words: Vec<&str> = line.split('\t').collect();
        match words.as_slice() {
            [kind, name, n] if n.parse::<usize>().is_ok() => {
                allowed.insert(((*kind).to_owned(), (*name).to_owned()), n.parse().unwrap_or(0));
            }
            _ => return Err(format!("{ALLOWED}:{}: three words are wanted", at + 1)),
        }
    }
    Ok(allowed)
}

/// Today's numbers of the crates without their tests, and of comments in all files.
fn count(files: &[PathBuf]) -> Result<BTreeMap<Count, usize>, String> {
    let mut counts: BTreeMap<Count, usize> = BTreeMap::new();
    let mut needs: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for file in files {
        let place = file.to_string_lossy();
        let text = fs::read_to_string(file).map_err(|error| format!("{place}: {error}"))?;
        *counts.entry(("comment", "all".to_owned())).or_default() += crate::prose::bare_heads(&text);
        let Some((of, path)) = place.strip_prefix("./crates/").and_then(|rest| rest.split_once("/src/"))
        else {
            continue;
        };
        if path.contains("tests/") || path.ends_with("tests.rs") || path.ends_with("testing.rs") {
            continue;
        }
        let code = code_of(&text);
        for name in types(&code) {
            *counts.entry(("type", name)).or_default() += 1;
        }
        *counts.entry(("bool", of.to_owned())).or_default() += bool_parameters(&code);
        let module = path.trim_end_matches(".rs").split('/').next().unwrap_or_default();
        if module != "lib" && module != "main" {
            let needed = needs.entry(of.to_owned()).or_default().entry(module.to_owned()).or_default();
            needed.extend(modules_named(&code).into_iter().filter(|other| other != module));
        }
    }
    for (of, graph) in needs {
        counts.insert(("cycle", of), largest_cycle(&graph));
    }
    Ok(counts)
}

/// A file without its tests and its comments.
fn code_of(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Names of the types that are declared.
fn types(code: &str) -> Vec<String> {
    let declared = |line: &str| {
        let line = line.trim_start();
        let line =
            line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub(super) ")).unwrap_or(line);
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let rest =
            ["struct ", "enum ", "trait ", "union "].iter().find_map(|word| line.strip_prefix(word))?;
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        (!name.is_empty()).then_some(name)
    };
    code.lines().filter_map(declared).collect()
}

/// Parameters of functions that are a `bool`.
fn bool_parameters(code: &str) -> usize {
    let mut count = 0;
    for (at, _) in code.match_indices("fn ") {
        let is_word = at == 0 || !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let Some(open) = code[at..].find('(').map(|open| at + open) else { continue };
        if !is_word || code[at..open].contains(['{', ';', '\n']) {
            continue;
        }
        let mut depth = 0_usize;
        let end = code[open..].char_indices().find_map(|(offset, c)| {
            depth = match c {
                '(' => depth + 1,
                ')' => depth - 1,
                _ => depth,
            };
            (depth == 0).then_some(open + offset)
        });
        let parameters = end.map_or("", |end| &code[open + 1..end]);
        count += parameters
            .split(',')
            .filter(|parameter| parameter.split_once(':').is_some_and(|(_, kind)| kind.trim() == "bool"))
            .count();
    }
    count
}

/// Modules of the crate that a file names, by their first word.
fn modules_named(code: &str) -> BTreeSet<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut named = BTreeSet::new();
    for (at, path) in code.match_indices("crate::") {
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or_default();
                named.extend(list.split(',').map(|part| word(part.trim())));
            }
            None => {
                named.insert(word(rest));
            }
        }
    }
    // What begins with a capital is re-exported by the crate's root.
    named.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    named
}

/// The number of modules in the largest circle, 1 if there is none.
fn largest_cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> usize {
    let reach = |from: &String| {
        let mut seen: BTreeSet<&String> = BTreeSet::new();
        let mut open: Vec<&String> = graph.get(from).into_iter().flatten().collect();
        while let Some(next) = open.pop() {
            if graph.contains_key(next) && seen.insert(next) {
                open.extend(graph.get(next).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|name| (name, reach(name))).collect();
    let circle = |name: &String| {
        reached[name]
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(name)))
            .count()
    };
    graph.keys().map(circle).max().unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_bools_and_modules_are_found() {
        let code = code_of(
            "use crate::{one, two::Two};\n// struct Comment;\npub(crate) struct Name<'a> {}\nenum Other {}\n\
             fn f(a: bool, b: &dyn Fn(bool) -> bool,\n    c: Option<bool>, d: bool) -> bool { crate::three::g() }\n\
             \n#[cfg(test)]\nmod tests {\n    struct Test;\n}\n",
        );
        assert_eq!(types(&code), ["Name", "Other"]);
        assert_eq!(bool_parameters(&code), 2);
        assert_eq!(modules_named(&code).into_iter().collect::<Vec<_>>(), ["one", "three", "two"]);
    }

    #[test]
    fn the_largest_cycle_is_counted() {
        let graph = |edges: &[(&str, &[&str])]| {
            edges
                .iter()
                .map(|(from, to)| ((*from).to_owned(), to.iter().map(|to| (*to).to_owned()).collect()))
                .collect::<BTreeMap<String, BTreeSet<String>>>()
        };
        assert_eq!(largest_cycle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])), 1);
        assert_eq!(largest_cycle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])])), 3);
        assert_eq!(
            largest_cycle(&graph(&[("a", &["b"]), ("b", &["a"]), ("c", &["d"]), ("d", &["c", "a"])])),
            2
        );
    }
}
