//! The one door to everything that is not `cargo run` or `cargo test`: `cargo xtask <verb>`.
#![forbid(unsafe_code)]

mod ci;
mod instructions;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <verb>
  tidy     house rules that no compiler checks: crate edges, file lengths, unsafe rooms, heads
  ci       everything CI does after `cargo test`: fmt, clippy, tidy, fuzz smoke, real servers and clients
  check    fmt, clippy and tidy
  instructions   commands in a pipeline against xtask/ceilings.tsv, by callgrind
";

fn main() -> ExitCode {
    let verb = std::env::args().nth(1).unwrap_or_default();
    let done = match verb.as_str() {
        "tidy" => tidy::run(),
        "check" => ci::check(),
        "instructions" => instructions::check(),
        "ci" => ci::run(),
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
