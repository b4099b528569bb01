//! The guard of scale: lines of memory that two threads share though they have no shard in common, counted from every
//! address that each of them touches, against the ceilings in `xtask/sharing.tsv`.
//!
//! Called by CI. Runs where valgrind is, whose tool `lackey` lists the addresses. A line that both threads touch in most of
//! their turns, and one of them writes, moves from core to core: with 64 threads it is what all of them wait for.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Builds the example in which two threads take turns and compares each row of the table.
///
/// Errors: the build fails, a run fails, or a batch writes more shared lines than its ceiling.
pub fn check() -> Result<(), String> {
    if !Command::new("valgrind").arg("--version").output().is_ok_and(|out| out.status.success()) {
        println!("== sharing: valgrind is not installed, skipped");
        return Ok(());
    }
    let build = ["build", "--release", "-p", "darter-server", "--example", "sharing"];
    let built = Command::new("cargo").args(build).status().map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err("the example does not build".into());
    }
    let table = std::fs::read_to_string("xtask/sharing.tsv").map_err(|error| format!("sharing: {error}"))?;
    let mut broken = Vec::new();
    for (mode, at_most) in rows(&table)? {
        let trace = least_shared(&mode, at_most)?;
        let (lines, per_batch) = (trace.shared().count(), trace.per_batch());
        let mode = mode.join(" ");
        println!("== sharing: {mode}: {lines} lines, {per_batch:.2} written a batch, at most {at_most}");
        if per_batch > at_most {
            broken.push(format!("a batch of {mode} writes {per_batch:.2} shared lines of at most {at_most}"));
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("; ")) }
}

/// The rows: verb, depth and ceiling, tabs between them; `#` begins a comment.
fn rows(table: &str) -> Result<Vec<([String; 2], f64)>, String> {
    let lines = table.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split('\t').collect::<Vec<_>>()[..] {
            [verb, depth, at_most] => {
                let at_most = at_most.parse().map_err(|_| format!("no number: {line}"))?;
                Ok(([verb.to_owned(), depth.to_owned()], at_most))
            }
            _ => Err(format!("not three fields: {line}")),
        })
        .collect()
}

/// Addresses of the example's four marks, once it has printed them.
type Marks = Arc<[AtomicU64; 4]>;

/// What a row writes. A clock that passes a bound, and a thread of the system that is late, only ever add: a trace with too
/// much is taken again, up to twice.
fn least_shared(mode: &[String], at_most: f64) -> Result<Trace, String> {
    let mut least = run(mode)?;
    for _ in 0..2 {
        if least.per_batch() <= at_most {
            break;
        }
        let again = run(mode)?;
        if again.per_batch() < least.per_batch() {
            least = again;
        }
    }
    Ok(least)
}

fn run(mode: &[String]) -> Result<Trace, String> {
    let mut child = Command::new("setarch")
        .args(["--addr-no-randomize", "valgrind", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .arg(crate::instructions::example("sharing"))
        .args(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("setarch: {error}"))?;
    let marks = Marks::default();
    let trace = child.stderr.take().map(|trace| {
        let marks = marks.clone();
        std::thread::spawn(move || Trace::of(trace, &marks))
    });
    let told = tell(&mut child, &marks);
    let trace = trace.and_then(|thread| thread.join().ok()).ok_or("no trace")?;
    let status = child.wait().map_err(|error| error.to_string())?;
    told?;
    if !status.success() || trace.batches == 0 {
        return Err(format!("{} fails under valgrind", mode.join(" ")));
    }
    Ok(trace)
}

/// Reads where the marks lie, and lets the example go on: until then it sets none.
fn tell(child: &mut Child, marks: &Marks) -> Result<(), String> {
    let (Some(stdout), Some(mut stdin)) = (child.stdout.take(), child.stdin.take()) else {
        return Err("no pipes".into());
    };
    let mut line = String::new();
    let mut stdout = BufReader::new(stdout);
    stdout.read_line(&mut line).map_err(|error| error.to_string())?;
    let places = line.split_whitespace().map(|word| u64::from_str_radix(word, 16));
    for (mark, place) in marks.iter().zip(places) {
        mark.store(place.map_err(|error| format!("{line}: {error}"))?, SeqCst);
    }
    stdin.write_all(b"\n").map_err(|error| error.to_string())?;
    stdout.read_to_string(&mut line).map(drop).map_err(|error| error.to_string())
}

/// What a thread did with a line.
#[derive(Clone, Copy, Default)]
struct Use {
    turns: u32,
    last_turn: u32,
    is_written: bool,
}

/// A line of memory.
#[derive(Default)]
struct Line {
    threads: [Use; 2],
    batches: u32,
    last_batch: u32,
}

/// Every line that was touched while a thread had its turn.
#[derive(Default)]
struct Trace {
    lines: HashMap<u64, Line>,
    turns: u32,
    batches: u32,
}

impl Trace {
    fn of(log: ChildStderr, marks: &Marks) -> Trace {
        let mut trace = Trace::default();
        let (mut log, mut line, mut runs) = (BufReader::with_capacity(1 << 20, log), Vec::new(), None);
        loop {
            line.clear();
            if !log.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
                return trace;
            }
            // ` S 1ffefff8a0,8`: a load, a store, or both (M); `I` is an instruction.
            let [b' ', kind @ (b'L' | b'S' | b'M'), b' ', place @ ..] = &line[..] else { continue };
            let Some(address) = address(place) else { continue };
            let mark = marks.iter().position(|mark| mark.load(SeqCst) == address);
            match (mark, runs) {
                (Some(_), _) if *kind == b'L' => {}
                (Some(thread @ 0..2), _) => {
                    trace.turns += 1;
                    runs = Some(thread);
                }
                (Some(2), _) => trace.batches += 1,
                (Some(_), _) => runs = None,
                (None, Some(thread)) => trace.note(thread, address, *kind != b'L'),
                (None, None) => {}
            }
        }
    }

    fn note(&mut self, thread: usize, address: u64, is_write: bool) {
        let line = self.lines.entry(address / 64).or_default();
        let using = &mut line.threads[thread];
        if using.last_turn != self.turns {
            using.turns += 1;
            using.last_turn = self.turns;
        }
        using.is_written |= is_write;
        if is_write && line.last_batch != self.batches {
            line.batches += 1;
            line.last_batch = self.batches;
        }
    }

    /// Lines that both threads touch in at least half of their turns, and one of them writes.
    fn shared(&self) -> impl Iterator<Item = &Line> {
        let turns = self.turns / 2;
        self.lines.values().filter(move |line| {
            line.threads.iter().all(|using| 2 * using.turns >= turns)
                && line.threads.iter().any(|using| using.is_written)
        })
    }

    /// Shared lines that a batch writes.
    fn per_batch(&self) -> f64 {
        let writes: u32 = self.shared().map(|line| line.batches).sum();
        f64::from(writes) / f64::from(self.batches)
    }
}

fn address(text: &[u8]) -> Option<u64> {
    let end = text.iter().position(|&byte| byte == b',')?;
    u64::from_str_radix(str::from_utf8(text.get(..end)?).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        let rows = rows(include_str!("../sharing.tsv")).expect("three fields a row");
        assert!(rows.len() >= 4, "GET, SET, HSET and a journalled SET");
        assert!(super::rows("get\t16").is_err() && super::rows("get\t16\tx").is_err());
    }

    #[test]
    fn a_line_counts_if_both_threads_touch_it_all_the_time_and_one_writes() {
        let mut trace = Trace::default();
        for turn in 0..8 {
            let thread = turn % 2;
            trace.turns += 1;
            for _ in 0..2 {
                trace.batches += 1;
                // Its own line, one that is only read, one that thread 1 writes twice a batch, and one touched once.
                trace.note(thread, 0x1000 + 64 * thread as u64, true);
                trace.note(thread, 0x2000, false);
                trace.note(thread, 0x3000, thread == 1);
                trace.note(thread, 0x3008, thread == 1);
            }
            if turn < 2 {
                trace.note(thread, 0x4000, true);
            }
        }
        assert_eq!(trace.shared().count(), 1);
        assert_eq!(trace.per_batch(), 0.5);
        assert_eq!(address(b"1ffefff8a0,8\n"), Some(0x1f_fefff8a0));
    }
}
