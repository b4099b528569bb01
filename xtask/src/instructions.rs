//! The guard of the hot path: instructions of a pipelined command, which callgrind counts alike on every run, against
//! the ceilings in `xtask/ceilings.tsv`.
//!
//! Called by CI. Runs where valgrind is; a count depends on the compiler, so a ceiling leaves some percent of air and
//! is lowered when the path gets shorter.

use std::path::PathBuf;
use std::process::Command;

/// Builds the example that runs commands without sockets and compares each row of the table.
///
/// Errors: the build fails, a run fails, or a count is above its ceiling.
pub fn check() -> Result<(), String> {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success()) {
        println!("== instructions: valgrind is not installed, skipped");
        return Ok(());
    }
    let build = ["build", "--release", "-p", "darter-server", "--example", "dispatch"];
    let built = Command::new("cargo").args(build).status().map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err("the example does not build".into());
    }
    let table =
        std::fs::read_to_string("xtask/ceilings.tsv").map_err(|error| format!("ceilings: {error}"))?;
    let mut broken = Vec::new();
    for row in rows(&table)? {
        let count = least_per_command(&row)?;
        println!("== instructions: {} {count:.0}, at most {}", row.mode.join(" "), row.at_most);
        if count > row.at_most {
            broken.push(format!("{} takes {count:.0} of at most {}", row.mode.join(" "), row.at_most));
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// The path of an example of a release build.
pub fn example(name: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join("release/examples").join(name)
}

/// A row of the table.
struct Row {
    mode: Vec<String>,
    at_most: f64,
}

/// The rows: verb, depth, distance, ceiling and perhaps a user's rules, tabs between them; `#` begins a comment.
fn rows(table: &str) -> Result<Vec<Row>, String> {
    let lines = table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            let ([verb, depth, distance, at_most], rules) = match fields[..] {
                [verb, depth, distance, at_most] => ([verb, depth, distance, at_most], None),
                [verb, depth, distance, at_most, rules] => ([verb, depth, distance, at_most], Some(rules)),
                _ => return Err(format!("not four or five fields: {line}")),
            };
            let at_most = at_most.parse().map_err(|_| format!("no number: {line}"))?;
            let mode = [verb, depth, distance].into_iter().chain(rules).map(str::to_owned).collect();
            Ok(Row { mode, at_most })
        })
        .collect()
}

/// Commands of a run.
const OPS: u32 = 90_000;

/// What a row takes. Clocks and interrupts only ever add to a count: one that is too high is taken again.
fn least_per_command(row: &Row) -> Result<f64, String> {
    let mut least = per_command(row)?;
    for _ in 0..2 {
        if least <= row.at_most {
            break;
        }
        least = least.min(per_command(row)?);
    }
    Ok(least)
}

fn per_command(row: &Row) -> Result<f64, String> {
    Ok(total(OPS, &row.mode)? as f64 / f64::from(OPS))
}

fn total(ops: u32, mode: &[String]) -> Result<u64, String> {
    // Addresses decide how bytes are copied: they are the same each time where the system can do that.
    let out = Command::new("setarch")
        .args(["--addr-no-randomize", "valgrind"])
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        // Not the setting up, in which threads make counts differ.
        .args(["--toggle-collect=*measured*"])
        .arg(example("dispatch"))
        .arg(ops.to_string())
        .args(mode)
        .output()
        .map_err(|error| format!("setarch: {error}"))?;
    let log = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        return Err(format!("{} fails under valgrind: {log}", mode.join(" ")));
    }
    let line = log.lines().rev().find(|line| line.contains("refs:")).ok_or("valgrind printed no total")?;
    let digits: String = line.rsplit(':').next().unwrap_or("").chars().filter(char::is_ascii_digit).collect();
    digits.parse().map_err(|_| format!("no number: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        let rows = rows(include_str!("../ceilings.tsv")).expect("four fields a row");
        assert!(rows.len() >= 4 && rows.iter().all(|row| row.at_most > 100.0));
        assert!(super::rows("get\t30\tnear").is_err() && super::rows("get\t30\tnear\tx").is_err());
    }
}
