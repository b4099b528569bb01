//! What Darter weighs: the stripped binary, the Debian package and the image, as the table `sizes` of README.md shows it.
//!
//! Called by CI and by hand. The binary is always measured and has a ceiling in `xtask/sizes.tsv`. The package needs
//! cargo-deb, the image needs a running docker that has built `darter`; without them they are skipped. It never
//! builds an image and never changes README.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::docs;

/// Builds, measures, prints, and compares with the ceiling and with README.md.
///
/// Errors: the build fails, the binary is above its ceiling, or README.md shows another size.
pub fn check() -> Result<(), String> {
    run("cargo", &["build", "--release", "--locked", "-p", "darter"])?;
    let bytes = stripped()?;
    let at_most = ceiling(&read("xtask/sizes.tsv")?, "binary")?;
    println!("== sizes: stripped binary {bytes} bytes, at most {at_most}");
    let mut measured = vec![("stripped binary", bytes)];
    measured.extend(package()?.map(|bytes| ("Debian package", bytes)));
    measured.extend(image().map(|bytes| ("image on disk", bytes)));
    let readme = read("README.md")?;
    let mut findings: Vec<String> = measured.iter().filter_map(|row| difference(&readme, row)).collect();
    if bytes > at_most {
        findings.push(format!("the stripped binary has {bytes} bytes of at most {at_most}"));
    }
    if findings.is_empty() { Ok(()) } else { Err(findings.join("; ")) }
}

/// Bytes of the release binary without its symbols, which stay in the binary itself.
fn stripped() -> Result<u64, String> {
    let (whole, bare) = (target().join("release/darter"), target().join("release/darter.stripped"));
    run("strip", &["-o", &bare.to_string_lossy(), &whole.to_string_lossy()])?;
    length(&bare)
}

/// Bytes of the package of that binary, where cargo-deb is installed.
fn package() -> Result<Option<u64>, String> {
    if !Command::new("cargo").args(["deb", "--version"]).output().is_ok_and(|out| out.status.success()) {
        println!("== sizes: cargo-deb is not installed, the package is skipped");
        return Ok(None);
    }
    let path = target().join("darter.deb");
    run("cargo", &["deb", "-p", "darter", "--strip", "--no-build", "--output", &path.to_string_lossy()])?;
    length(&path).map(Some)
}

/// Bytes on disk of the image `darter`, where docker runs and has it.
fn image() -> Option<u64> {
    let args = ["image", "inspect", "--format", "{{.Size}}", "darter"];
    let out = Command::new("docker").args(args).output().ok().filter(|out| out.status.success());
    let size = out.and_then(|out| String::from_utf8_lossy(&out.stdout).trim().parse().ok());
    if size.is_none() {
        println!("== sizes: docker has no image `darter`, it is skipped");
    }
    size
}

/// The part by which README.md may differ: builds of other compilers and small changes of the code do.
const TOLERANCE: f64 = 0.03;

/// Prints a size, and says so if README.md shows another one.
fn difference(readme: &str, (name, bytes): &(&str, u64)) -> Option<String> {
    let mb = *bytes as f64 / 1e6;
    println!("== sizes: {name}, MB: {mb:.1}");
    match shown(readme, name) {
        Some(shown) if (shown - mb).abs() <= shown * TOLERANCE => None,
        Some(shown) => Some(format!("README.md says that the {name} has {shown} MB, but it has {mb:.1}")),
        None => Some(format!("README.md has no row \"{name}, MB\" in its table sizes")),
    }
}

/// The number of the row `NAME, MB` in the table `sizes`.
fn shown(readme: &str, name: &str) -> Option<f64> {
    let (_, table) = docs::tables(readme).into_iter().find(|(table, _)| *table == "sizes")?;
    let label = format!("{name}, MB");
    let mut rows = table.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    rows.find(|cells| cells.get(1) == Some(&label.as_str()))?.get(2)?.parse().ok()
}

/// What `table` allows `name`, in bytes; `#` begins a comment.
fn ceiling(table: &str, name: &str) -> Result<u64, String> {
    let mut rows =
        table.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('\t'));
    let found = rows.find(|(row, _)| *row == name).and_then(|(_, bytes)| bytes.trim().parse().ok());
    found.ok_or_else(|| format!("xtask/sizes.tsv has no number for {name}"))
}

/// Where cargo builds.
fn target() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn length(path: &Path) -> Result<u64, String> {
    fs::metadata(path).map(|facts| facts.len()).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let status = Command::new(program).args(args).status().map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} {} failed", args.join(" "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str =
        "<!-- table sizes -->\n| | |\n|---|---|\n| stripped binary, MB | 10.4 |\n<!-- end -->\n";

    #[test]
    fn the_ceilings_can_be_read() {
        assert!(ceiling(include_str!("../sizes.tsv"), "binary").is_ok_and(|bytes| bytes > 1_000_000));
        assert!(ceiling("# x\nbinary\tmany\n", "binary").is_err() && ceiling("", "binary").is_err());
    }

    #[test]
    fn what_readme_shows_is_compared() {
        assert_eq!(difference(README, &("stripped binary", 10_440_000)), None);
        assert!(difference(README, &("stripped binary", 10_800_000)).is_some());
        assert!(difference(README, &("Debian package", 4_000_000)).is_some());
    }
}
