//! Configuration files: Redis' (`name value...`, quotes, `include`) and flag files (`name=value`, no quotes).

use super::arguments::find_negated;
use super::{CommandLine, Loader, is_bool, unknown_name};
use crate::rewrite::{ConfigFile, RewriteStyle};
use crate::table;
use crate::value::absolute;
use crate::words;
use darter_base::glob;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A longer file is no configuration.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Deepest nesting of included files; a loop ends here.
const DEPTH_MAX: usize = 16;

impl Loader {
    /// Reads a file as Redis writes it.
    pub(super) fn read_config_file(&mut self, path: &str) -> Result<(), CommandLine> {
        self.remember(path, RewriteStyle::Directives);
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        self.is_of_redis |= name.starts_with("redis");
        self.read_lines(path, |loader, line, blame| loader.read_directive(line).map_err(blame))
    }

    /// Reads a file of flags.
    pub(super) fn read_flag_file(&mut self, path: &str) -> Result<(), CommandLine> {
        self.remember(path, RewriteStyle::Flags);
        self.read_lines(path, |loader, line, blame| loader.read_flag_line(line).map_err(blame))
    }

    /// CONFIG REWRITE writes to the first file named.
    fn remember(&mut self, path: &str, style: RewriteStyle) {
        let path = absolute(path);
        self.file.get_or_insert_with(|| ConfigFile::new(path, style));
    }

    /// Passes every line of a file that is neither blank nor a comment to `read`.
    fn read_lines(
        &mut self,
        path: &str,
        read: impl Fn(&mut Self, &str, &dyn Fn(String) -> CommandLine) -> Result<(), CommandLine>,
    ) -> Result<(), CommandLine> {
        if self.files_open == DEPTH_MAX {
            return Err(CommandLine(format!("{path}: files include each other more than {DEPTH_MAX} deep")));
        }
        let text = read_text(path)?;
        self.files_open += 1;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start().trim_end_matches('\r');
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // an included file blames its own line
            read(self, line, &|error| match error.strip_prefix(NESTED) {
                Some(error) => CommandLine(error.to_owned()),
                None => CommandLine(format!("{path}:{}: {error}", number + 1)),
            })?;
        }
        self.files_open -= 1;
        Ok(())
    }

    fn read_directive(&mut self, line: &str) -> Result<(), String> {
        let words = words::split(line).ok_or("unbalanced quotes")?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((name, values)) = words.split_first() else { return Ok(()) };
        if name.eq_ignore_ascii_case("include") {
            let [pattern] = values else { return Err("include: wrong number of arguments".to_owned()) };
            for path in files_that_match(pattern)? {
                self.read_config_file(&path).map_err(|error| format!("{NESTED}{error}"))?;
            }
            return Ok(());
        }
        let id = table::find_id(name)
            .ok_or_else(|| unknown_name(&format!("directive '{name}'"), name, "").to_string())?;
        self.give(id, values).map_err(|error| format!("{name}: {error}"))
    }

    fn read_flag_line(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with("//") {
            return Ok(());
        }
        let body = line.trim_start_matches('-');
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value)),
            None => (body.trim_end(), None),
        };
        if name == "flagfile" {
            let path = value.ok_or("flagfile: needs a value")?.trim();
            return self.read_flag_file(path).map_err(|error| format!("{NESTED}{error}"));
        }
        if name.contains(char::is_whitespace) {
            return Err(format!("'{}' needs the form name=value", name.split(' ').next().unwrap_or(name)));
        }
        let given = match (table::find_id(name), value) {
            (Some(id), Some(value)) => self.give_text(id, value),
            (Some(id), None) if is_bool(id) => self.give(id, &["yes"]),
            (Some(_), None) => Err("needs a value".to_owned()),
            (None, _) => match find_negated(name) {
                Some(id) if value.is_none() => self.give(id, &["no"]),
                _ => return Err(unknown_name(&format!("flag '{name}'"), name, "").to_string()),
            },
        };
        given.map_err(|error| format!("{name}: {error}"))
    }
}

/// Marks an error that already names its file and line.
const NESTED: &str = "\0";

fn read_text(path: &str) -> Result<String, CommandLine> {
    let fault =
        |error: std::io::Error| CommandLine(format!("can't read the configuration file '{path}': {error}"));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(fault)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(fault)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(CommandLine(format!(
            "the configuration file '{path}' is longer than {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

/// The files that an `include` names: itself, or in order every file whose name matches its last part.
fn files_that_match(pattern: &str) -> Result<Vec<String>, String> {
    let path = Path::new(pattern);
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !name.contains(['*', '?', '[']) {
        return Ok(vec![pattern.to_owned()]);
    }
    let dir =
        path.parent().filter(|dir| !dir.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_owned);
    let fault = |error: std::io::Error| format!("include: can't list '{}': {error}", dir.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir).map_err(fault)? {
        let entry = entry.map_err(fault)?.file_name();
        if let Some(entry) = entry.to_str()
            && glob::matches(name.as_bytes(), entry.as_bytes(), false)
        {
            found.push(dir.join(entry).display().to_string());
        }
    }
    found.sort_unstable();
    Ok(found)
}
