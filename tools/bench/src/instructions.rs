//! Instructions per operation, by callgrind: the difference of two runs, so that start-up does not count.
//!
//! The counts repeat exactly from run to run on the same binary, so a change of the hot path shows at once.

use std::io;
use std::path::Path;
use std::process::Command;

/// Instructions of one operation of `binary ops mode`, as (run with 2N - run with N) / N.
/// Errors: valgrind is absent, the binary fails, or valgrind's output has no total.
pub fn per_operation(binary: &Path, mode: &[String], ops: u64) -> io::Result<f64> {
    let once = total(binary, mode, ops)?;
    let twice = total(binary, mode, ops * 2)?;
    Ok(twice.saturating_sub(once) as f64 / ops as f64)
}

fn total(binary: &Path, mode: &[String], ops: u64) -> io::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--quiet", "--trace-children=no"])
        .arg("-v")
        .arg(binary)
        .arg(ops.to_string())
        .args(mode)
        .output()?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        return Err(io::Error::other(format!(
            "{} failed under valgrind: {}",
            binary.display(),
            tail.join(" / ")
        )));
    }
    collected(&log).ok_or_else(|| io::Error::other("valgrind printed no instruction total"))
}

/// The total in callgrind's "Collected : N" or "I refs: N" line.
fn collected(log: &str) -> Option<u64> {
    let line = log.lines().rev().find(|l| l.contains("Collected :") || l.contains("refs:"))?;
    let number: String = line.rsplit(':').next()?.chars().filter(char::is_ascii_digit).collect();
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_found() {
        assert_eq!(collected("==1== Events    : Ir\n==1== Collected : 123456\n==1==\n"), Some(123_456));
        assert_eq!(collected("==1== I   refs:      1,234,567\n"), Some(1_234_567));
        assert_eq!(collected("nothing"), None);
    }
}
