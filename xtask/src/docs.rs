//! The READMEs in other languages: their tables are filled from README.md, and their code must be that of README.md.
//!
//! A table stands between `<!-- table NAME -->` and `<!-- end -->`. Cells with words are translated by xtask/words.tsv,
//! whose first column is the English text; cells of numbers are copied.

use std::collections::BTreeMap;
use std::fs;

const SOURCE: &str = "README.md";
const WORDS: &str = "xtask/words.tsv";

/// Writes the tables of every translation.
///
/// Errors: a cell without translation, a missing table, or code that differs from README.md.
pub fn run() -> Result<(), String> {
    let mut findings = Vec::new();
    for (path, text, wanted) in translations(&mut findings)? {
        if text != wanted {
            fs::write(&path, wanted).map_err(|error| format!("{path}: {error}"))?;
            println!("docs: {path} written");
        }
    }
    report(&findings)
}

/// Appends what differs to the findings of `cargo xtask tidy`, and changes nothing.
///
/// Errors: a file that cannot be read.
pub fn check(findings: &mut Vec<String>) -> Result<(), String> {
    for (path, text, wanted) in translations(findings)? {
        if text != wanted {
            findings.push(format!("{path}: its tables are not those of {SOURCE}; run `cargo xtask docs`"));
        }
    }
    Ok(())
}

fn report(findings: &[String]) -> Result<(), String> {
    findings.iter().for_each(|finding| println!("{finding}"));
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}

/// Path, text, and text with the right tables of each translation.
fn translations(findings: &mut Vec<String>) -> Result<Vec<(String, String, String)>, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let (source, words) = (read(SOURCE)?, read(WORDS)?);
    let mut lines = words.lines();
    let languages: Vec<&str> = lines.next().unwrap_or_default().split('\t').skip(1).collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    let mut all = Vec::new();
    for (at, language) in languages.iter().enumerate() {
        let path = format!("README.{language}.md");
        let text = read(&path)?;
        let known: BTreeMap<&str, &str> =
            rows.iter().filter_map(|row| Some((*row.first()?, *row.get(at + 1)?))).collect();
        if code(&text) != code(&source) {
            findings.push(format!("{path}: its code is not that of {SOURCE}"));
        }
        let headings = |text: &str| prose(text).filter(|line| line.starts_with('#')).count();
        if headings(&text) != headings(&source) {
            findings.push(format!("{path}: it has not the headings of {SOURCE}"));
        }
        let wanted = filled(&text, &source, &known, &path, findings);
        all.push((path, text, wanted));
    }
    Ok(all)
}

/// `text` with every table of `source` in its place, in the words of `known`.
fn filled(
    text: &str,
    source: &str,
    known: &BTreeMap<&str, &str>,
    path: &str,
    findings: &mut Vec<String>,
) -> String {
    let mut out = text.to_owned();
    for (name, table) in tables(source) {
        let begin = format!("<!-- table {name} -->\n");
        let place = out.find(&begin).map(|at| at + begin.len());
        let Some((from, length)) = place.and_then(|from| Some((from, out[from..].find("<!-- end -->")?)))
        else {
            findings.push(format!("{path}: the table {name} is missing"));
            continue;
        };
        let translated = translate(table, known, path, findings);
        out.replace_range(from..from + length, &translated);
    }
    out
}

/// Names and texts of the tables.
pub fn tables(source: &str) -> Vec<(&str, &str)> {
    let parts = source.split("<!-- table ").skip(1);
    parts
        .filter_map(|part| part.split_once(" -->\n"))
        .filter_map(|(name, rest)| Some((name, rest.split_once("<!-- end -->")?.0)))
        .collect()
}

fn translate(table: &str, known: &BTreeMap<&str, &str>, path: &str, findings: &mut Vec<String>) -> String {
    let mut out = String::new();
    for line in table.lines() {
        let cells: Vec<String> = line
            .split('|')
            .map(|cell| match known.get(cell.trim()) {
                Some(word) if !cell.trim().is_empty() => format!(" {word} "),
                _ => {
                    if cell.chars().any(char::is_alphabetic) {
                        findings.push(format!("{path}: no translation of \"{}\" in {WORDS}", cell.trim()));
                    }
                    cell.to_owned()
                }
            })
            .collect();
        out.push_str(&cells.join("|"));
        out.push('\n');
    }
    out
}

/// Lines of code blocks without their comments.
fn code(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            let line = line.split_once("  #").map_or(line, |(line, _)| line);
            lines.push(line.trim_end().to_owned());
        }
    }
    lines
}

/// Lines outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        is_code ^= line.starts_with("```");
        !is_code
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE_TEXT: &str =
        "# A\n<!-- table t -->\n| | Redis |\n|---|---|\n| keys | 1.5 |\n<!-- end -->\n```sh\nx  # y\n```\n";

    #[test]
    fn numbers_are_copied_and_words_translated() {
        let known = BTreeMap::from([("keys", "chaves"), ("Redis", "Redis")]);
        let mut findings = Vec::new();
        let text = "# B\n<!-- table t -->\nold\n<!-- end -->\n";
        let made = filled(text, SOURCE_TEXT, &known, "p", &mut findings);
        assert_eq!(made, "# B\n<!-- table t -->\n| | Redis |\n|---|---|\n| chaves | 1.5 |\n<!-- end -->\n");
        assert!(findings.is_empty());
    }

    #[test]
    fn what_is_missing_is_found() {
        let mut findings = Vec::new();
        filled("# B\n", SOURCE_TEXT, &BTreeMap::new(), "p", &mut findings);
        filled("<!-- table t -->\n<!-- end -->\n", SOURCE_TEXT, &BTreeMap::new(), "p", &mut findings);
        assert_eq!(findings.len(), 3, "{findings:?}");
    }

    #[test]
    fn comments_of_code_may_differ() {
        assert_eq!(code(SOURCE_TEXT), code("```sh\nx    # z\n```\n"));
        assert_ne!(code(SOURCE_TEXT), code("```sh\ny\n```\n"));
        assert_eq!(prose(SOURCE_TEXT).filter(|line| line.starts_with('#')).count(), 1);
    }
}
