//! The binary: flags, start-up, exit codes.
#![forbid(unsafe_code)]

mod files;
mod ping;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use darter_config::{CommandLine, Settings, Startup};

#[global_allocator]
static ALLOCATOR: darter_slab::global::Allocator = darter_slab::global::Allocator;

fn main() -> ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if let Some(code) = files::run(&args).or_else(|| ping::run(&args)) {
        return code;
    }
    let (settings, notes) = match Settings::parse(args, std::env::vars_os()) {
        Ok(Startup::Serve { settings, notes }) => (Arc::new(*settings), notes),
        Ok(Startup::Print(text)) => {
            // whoever reads may stop early, as `head` does
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(usage) => {
            eprintln!("darter: {usage}");
            return ExitCode::from(CommandLine::EXIT_CODE);
        }
    };
    if let Err(error) = darter_server::logging::start(&settings.live().log) {
        eprintln!("darter: cannot open the log: {error}");
        return ExitCode::from(CommandLine::EXIT_CODE);
    }
    for note in notes {
        tracing::warn!("{note}");
    }
    match darter_server::start::serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("darter: {error}");
            ExitCode::FAILURE
        }
    }
}
