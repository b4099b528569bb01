//! Rules of plain English that a program can check: the first words of doc comments, and long sentences in docs/.
//!
//! `house` counts the comments, which may only get fewer; `tidy` refuses the sentences.

use std::fs;
use std::path::Path;

/// Words of a sentence in docs/.
const SENTENCE_WORDS_MAX: usize = 40;
/// First words of doc comments whose subject is not a noun.
const HEADS: &[&str] = &["Who ", "What is ", "Whether so"];

/// Number of doc comments that begin with one of [`HEADS`].
pub fn bare_heads(text: &str) -> usize {
    let mut last = "";
    let mut count = 0;
    for line in text.lines().map(str::trim_start) {
        let marker = ["///", "//!"].into_iter().find(|marker| line.starts_with(marker)).unwrap_or("");
        let is_first = !marker.is_empty() && marker != last;
        let words = line[marker.len()..].trim_start();
        count += usize::from(is_first && HEADS.iter().any(|head| words.starts_with(head)));
        last = marker;
    }
    count
}

/// Appends the sentences in docs/*.md that are too long to the findings.
///
/// Errors: a file that cannot be read.
pub fn check(findings: &mut Vec<String>) -> Result<(), String> {
    let entries = fs::read_dir(Path::new("docs")).map_err(|error| format!("docs: {error}"))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for (at, words) in long_sentences(&text) {
            findings.push(format!(
                "{}:{at}: a sentence of {words} words, more than {SENTENCE_WORDS_MAX}",
                path.display()
            ));
        }
    }
    Ok(())
}

/// The line of each paragraph with a sentence that is too long, and the words of the sentence.
///
/// Tables, code, headings and notes in italics, which list dates and runs, do not count. A code span is one word, and a
/// semicolon ends a sentence.
fn long_sentences(page: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let (mut paragraph, mut first, mut is_code) = (String::new(), 0, false);
    for (at, line) in page.lines().chain([""]).enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let item = line.strip_prefix("* ").or_else(|| line.strip_prefix("- "));
        let is_break = line.is_empty() || is_fence || is_code || line.starts_with(['|', '#', '<', '!']);
        if is_break || item.is_some() || paragraph.is_empty() {
            if !paragraph.starts_with('*') || paragraph.starts_with("**") {
                let longest = sentences(&paragraph).into_iter().max().unwrap_or(0);
                found.extend((longest > SENTENCE_WORDS_MAX).then_some((first, longest)));
            }
            paragraph.clear();
            first = at + 1;
        }
        if !is_break {
            paragraph.push_str(item.unwrap_or(line));
            paragraph.push(' ');
        }
    }
    found
}

/// The numbers of words of a paragraph's sentences.
fn sentences(paragraph: &str) -> Vec<usize> {
    let mut lengths = vec![0];
    let (mut is_over, mut last) = (false, ' ');
    for (at, part) in paragraph.split('`').enumerate() {
        if at % 2 == 1 {
            // A code span is one word, whatever is in it.
            if is_over {
                lengths.push(0);
            }
            *lengths.last_mut().unwrap_or(&mut 0) += 1;
            is_over = false;
            continue;
        }
        for word in part.split_whitespace() {
            let begins = |c: char| c.is_uppercase() || c.is_ascii_digit() || "(*[".contains(c);
            if is_over && (last == ';' || word.starts_with(begins)) {
                lengths.push(0);
            }
            if word.contains(char::is_alphanumeric) {
                *lengths.last_mut().unwrap_or(&mut 0) += 1;
            }
            last = word.trim_end_matches([')', '*', '"']).chars().last().unwrap_or(' ');
            is_over = ".!?;".contains(last);
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_heads_are_counted_once() {
        let text = "//! What is here.\n//! Who is there.\n\n/// The name.\n/// What is more.\nfn f() {\n    /// Who waits.\n}\n";
        assert_eq!(bare_heads(text), 2);
        assert_eq!(bare_heads("/// Whole parts.\n// Who reads this.\n/// Whatever.\n"), 0);
    }

    #[test]
    fn long_sentences_are_found_in_prose_only() {
        let long = "word ".repeat(41);
        let short = "word ".repeat(40);
        assert_eq!(long_sentences(&format!("A.\n\n{long}\n")), [(3, 41)]);
        assert_eq!(long_sentences(&format!("{short}. Word. `code of {long}` {short}\n")).len(), 1);
        let fine = [
            format!("{short}\n"),
            format!("{short}. Word {short}\n").replacen("Word word", "Word", 1),
            format!("| {long} |\n"),
            format!("```text\n{long}\n```\n"),
            format!("*Runs: {long}*\n"),
            format!("* {short}\n* {short}\n"),
        ];
        for page in fine {
            assert_eq!(long_sentences(&page), [], "{page}");
        }
        assert_eq!(long_sentences(&format!("* **A.** Word {short}\n")), [(1, 41)]);
    }
}
