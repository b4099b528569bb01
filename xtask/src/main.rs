//! The one door to everything that is not `cargo run` or `cargo test`: `cargo xtask <verb>`.
#![forbid(unsafe_code)]

mod ci;
mod docs;
mod house;
mod instructions;
mod prose;
mod repeat;
mod sharing;
mod sizes;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <verb>
  tidy     house rules that no compiler checks: crate edges, file lengths, unsafe rooms, heads, long sentences
  ci       everything CI does after `cargo test`: fmt, clippy, tidy, fuzz smoke, real servers and clients
  ci --repeat N [ARG ...]   `cargo test ARG ...` N times beside a busy loop for each core; ends at the first failure
  check    fmt, clippy and tidy
  docs     fills the tables of the translated READMEs from README.md; tidy fails if they differ
  house    lowers xtask/house.tsv to today's cycles of modules, types of one name, bool parameters and bare comments;
           tidy holds them
  instructions   commands in a pipeline against xtask/ceilings.tsv, by callgrind
  sanitizers     the tests of the crates with unsafe code, with AddressSanitizer
  sharing  lines of memory that threads share, by command, against xtask/sharing.tsv
  sizes    the stripped binary against xtask/sizes.tsv, with the package and the image against the table of README.md
";

fn main() -> ExitCode {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let done = match verb.as_str() {
        "tidy" => tidy::run(),
        "check" => ci::check(),
        "docs" => docs::run(),
        "house" => house::lower(&tidy::rust_files(std::path::Path::new("."))),
        "instructions" => instructions::check(),
        "sanitizers" => ci::sanitizers(),
        "sharing" => sharing::check(),
        "sizes" => sizes::check(),
        "ci" => match std::env::args().nth(2).as_deref() {
            None => ci::run(),
            Some("--repeat") => repeated(),
            Some(other) => Err(format!("ci: unknown flag {other}")),
        },
        _ => {
            eprint!("{HELP}");
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask {verb}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// `ci --repeat N [ARG ...]`
fn repeated() -> Result<(), String> {
    let mut args = std::env::args().skip(3);
    let rounds = args.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    let rounds = rounds.ok_or("ci --repeat: a number of rounds is missing")?;
    repeat::run(rounds, &args.collect::<Vec<_>>())
}
