//! The whole of `cargo test`, many times over beside a busy neighbour: a test that depends on a clock's grain or on the
//! scheduler shows itself here.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Runs `cargo test` with `args` behind it `rounds` times, with a busy loop for each core. The tests are built before the
/// loops begin.
///
/// Errors: the first round that fails; its whole output is printed.
pub fn run(rounds: u32, args: &[String]) -> Result<(), String> {
    println!("== building the tests");
    let built = cargo_test(args, &["--no-run"]).status().map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err("the tests do not build".to_owned());
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!("== {rounds} rounds of cargo test beside {cores} busy loops");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let outcome = (1..=rounds).try_for_each(|round| run_once(round, rounds, args));
        is_over.store(true, Ordering::Relaxed);
        outcome
    })
}

fn run_once(round: u32, rounds: u32, args: &[String]) -> Result<(), String> {
    let began = Instant::now();
    let out = cargo_test(args, &[]).output().map_err(|error| format!("cargo: {error}"))?;
    let took_s = began.elapsed().as_secs_f64();
    if out.status.success() {
        println!("== round {round} of {rounds}: ok in {took_s:.0} s");
        return Ok(());
    }
    // Whoever reads may stop early.
    let _ = std::io::stdout().write_all(&out.stdout);
    let _ = std::io::stderr().write_all(&out.stderr);
    Err(format!("round {round} of {rounds} failed after {took_s:.0} s"))
}

fn cargo_test(args: &[String], flags: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.arg("test").args(flags).args(args);
    command
}
