//! What CI runs after `cargo test`: checks of the source, then checks against other programs.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::tidy;

/// Formatting, lints, house rules.
pub fn check() -> Result<(), String> {
    cargo("fmt", &["fmt", "--all", "--check"])?;
    cargo("clippy", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])?;
    tidy::run()
}

/// Everything.
pub fn run() -> Result<(), String> {
    check()?;
    cargo(
        "tests of the tools",
        &[
            "test",
            "--quiet",
            "-p",
            "darter-bench",
            "-p",
            "darter-compat",
            "-p",
            "darter-cachesim",
            "-p",
            "darter-histcheck",
        ],
    )?;
    arm64()?;
    cargo("release build", &["build", "--release", "-p", "darter"])?;
    crate::sizes::check()?;
    crate::instructions::check()?;
    crate::sharing::check()?;
    soak()?;
    fuzz_smoke()?;
    histories()?;
    compare()?;
    clients()?;
    watched("the dashboard on a real Prometheus", "prometheus", "tests/monitoring/check.py")?;
    // The console in a real Chromium and the packaging are walks, too.
    watched("the first hour", "python3", "tests/walks/run.py")
}

/// The server for arm64, checked and not linked, where the target and a cross compiler for its C parts are installed.
fn arm64() -> Result<(), String> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let is_there = |program: &str, args: &[&str], wanted: &str| {
        let out = Command::new(program).args(args).output();
        out.is_ok_and(|out| out.status.success() && String::from_utf8_lossy(&out.stdout).contains(wanted))
    };
    if !is_there("rustup", &["target", "list", "--installed"], TARGET) {
        println!("== arm64: the target {TARGET} is not installed, skipped");
        return Ok(());
    }
    if !is_there("aarch64-linux-gnu-gcc", &["--version"], "gcc") {
        println!("== arm64: gcc-aarch64-linux-gnu is not installed, skipped");
        return Ok(());
    }
    cargo("arm64", &["check", "--quiet", "--target", TARGET, "-p", "darter"])
}

/// The tests of the crates that may contain `unsafe`, with AddressSanitizer: reads and writes beside what was allocated, or
/// after it was freed. The standard library is not instrumented, and leaks are not looked for: tests leak on purpose.
pub fn sanitizers() -> Result<(), String> {
    const TARGET: &str = "x86_64-unknown-linux-gnu";
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        println!("== sanitizers: not {TARGET}, skipped");
        return Ok(());
    }
    let packages = tidy::starred()?.into_iter().flat_map(|name| ["-p".to_owned(), format!("darter-{name}")]);
    step(
        "AddressSanitizer on the crates with unsafe code",
        Command::new("cargo")
            .args(["test", "--quiet", "--lib", "--target", TARGET, "--target-dir", "target/sanitizers"])
            .args(packages)
            // The compiler keeps the option from stable users, who may not rely on it; a test may.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=address")
            .env("ASAN_OPTIONS", "detect_leaks=0"),
    )
}

/// The memory limit under writes at full speed, for some seconds; `darter-bench soak` is the long form.
fn soak() -> Result<(), String> {
    const ARGS: &[&str] = &["run", "--quiet", "--release", "-p", "darter-bench", "--"];
    let short = ["soak", "--minutes", "0", "--seconds", "10", "--limit-mb", "1024"];
    cargo("soak of the memory limit", &[ARGS, &short].concat())
}

/// Clients at work on every number of threads and both drivers, then on slots that move between three groups: what they saw must
/// be strictly serializable.
fn histories() -> Result<(), String> {
    const RUN: &[&str] = &["run", "--quiet", "--release", "-p", "darter-histcheck", "--"];
    cargo("histories", &[RUN, &["--ops", "40000"]].concat())?;
    if !is_installed("etcd") {
        println!("== histories of slots that move: etcd is not installed, skipped");
        return Ok(());
    }
    cargo("histories of slots that move", &[RUN, &["--moves", "72"]].concat())
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
}

/// A script that starts the server itself and looks at it through another program, where that is installed.
fn watched(name: &str, program: &str, script: &str) -> Result<(), String> {
    if !is_installed(program) {
        println!("== {name}: {program} is not installed, skipped");
        return Ok(());
    }
    step(name, Command::new("python3").args([script, "target/release/darter"]))
}

/// Client libraries from their registries, against a server on a free port.
fn clients() -> Result<(), String> {
    let (port, memcached_port) = (free_port()?, free_port()?);
    let mut server = Command::new("target/release/darter")
        .args([
            "--bind",
            "127.0.0.1",
            "--port",
            &port,
            "--memcached_port",
            &memcached_port,
            "--dbfilename",
            "",
        ])
        .spawn()
        .map_err(|error| format!("target/release/darter: {error}"))?;
    let done = await_port(&mut server, &port).and_then(|()| {
        step(
            "real clients",
            Command::new("tests/clients/run.sh")
                .env("MEMCACHED_PORT", &memcached_port)
                .args(["127.0.0.1", &port]),
        )
    });
    let _ = server.kill();
    let _ = server.wait();
    done
}

/// Waits until a server listens. Errors: it has ended, or does not listen for a minute.
fn await_port(server: &mut Child, port: &str) -> Result<(), String> {
    let began = Instant::now();
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        let state = server.try_wait().map_err(|error| error.to_string())?;
        if state.is_some() || began.elapsed() > Duration::from_secs(60) {
            return Err(format!("the server does not listen on port {port}: {state:?}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A port on which nobody listens, another one each time, below those that the kernel gives to whoever connects.
fn free_port() -> Result<String, String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(611);
    (0..22_000)
        .map(|_| (10_000 + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 22_000) as u16)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .map_or_else(|| Err("no free port".to_owned()), |port| Ok(port.to_string()))
}

/// Random command streams, the same to Darter and to a real server; then to collections of every size.
fn compare() -> Result<(), String> {
    for family in COMPARED {
        compare_one(&format!("comparison: {family}"), &["--family", family, "--ops", "5000"])?;
    }
    for way in WAYS {
        let name = format!("comparison: direct and by {way}");
        compare_one(
            &name,
            &[
                "--family",
                WAYS_OF,
                "--resp",
                "2",
                "--ops",
                "5000",
                "--events",
                "KEAmn",
                "--without",
                "SELECT",
                "--redis-bin",
                "target/release/darter",
                "--peer-way",
                way,
            ],
        )?;
    }
    for (members, ops) in SIZES {
        let name = format!("comparison: collections of {members}");
        compare_one(&name, &["--family", COLLECTIONS, "--members", members, "--ops", ops])?;
    }
    Ok(())
}

fn compare_one(name: &str, args: &[&str]) -> Result<(), String> {
    const RUN: &[&str] = &["run", "--quiet", "--release", "-p", "darter-compat", "--", "--seed", "1"];
    cargo(name, &[RUN, args].concat())
}

/// Families of the differential test that must be equal.
const COMPARED: &[&str] =
    &["strings", "keys", "lists", "hashes", "sets", "zsets", "geo", "hll", "streams", "bitmaps", "memcached"];

/// Ways in that must give the replies, events and counts of direct commands; SELECT ends with its script.
const WAYS: &[&str] = &["exec", "script", "function"];
/// Families that are sent by each way.
const WAYS_OF: &str = "strings,lists,hashes,sets,zsets,streams,bitmaps,hll,geo,keys,sort";

/// Those whose keys are filled.
const COLLECTIONS: &str = "lists,hashes,sets,zsets,streams,bitmaps,hll,geo";
/// Members of each, and how many commands.
const SIZES: &[(&str, &str)] = &[("10", "2000"), ("1000", "2000"), ("100000", "400")];

/// A fixed number of inputs for every fuzz target, where cargo-fuzz and a nightly are installed.
fn fuzz_smoke() -> Result<(), String> {
    let is_there = Command::new("cargo")
        .args(["+nightly", "fuzz", "--version"])
        .output()
        .is_ok_and(|out| out.status.success());
    if !is_there {
        println!("== fuzz smoke: cargo-fuzz is not installed, skipped");
        return Ok(());
    }
    let targets = Command::new("cargo")
        .args(["+nightly", "fuzz", "list"])
        .output()
        .map_err(|error| format!("cargo fuzz list: {error}"))?;
    for target in String::from_utf8_lossy(&targets.stdout).lines() {
        let args = ["+nightly", "fuzz", "run", target, "--", "-runs=100000", "-max_total_time=20"];
        cargo(&format!("fuzz: {target}"), &args)?;
    }
    Ok(())
}

fn cargo(name: &str, args: &[&str]) -> Result<(), String> {
    step(name, Command::new("cargo").args(args))
}

fn step(name: &str, command: &mut Command) -> Result<(), String> {
    println!("== {name}");
    let began = Instant::now();
    let status = command.status().map_err(|error| format!("{name}: {error}"))?;
    println!(
        "== {name}: {} in {:.1} s",
        if status.success() { "ok" } else { "FAILED" },
        began.elapsed().as_secs_f64()
    );
    if status.success() { Ok(()) } else { Err(format!("{name} failed")) }
}
