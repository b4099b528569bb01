//! The thread that puts a snapshot into its file.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use darter_base::rng::Rng;
use darter_persist::PersistError;
use darter_persist::file::{FileOptions, FileWriter};
use darter_reactor::cpu;

use crate::clock::unix_ms;
use crate::replication::position::StreamPosition;
use crate::shared::Shared;

use super::delay::{self, NAP};
use super::pipe::PipedBatch;
use super::run::{Purpose, Saved, SnapshotOrder, SnapshotRun};

/// How far the thread steps back behind those that serve: at the same time they get twice as much of a core.
const NICE: i32 = 3;

/// Starts the thread, which ends the run.
///
/// Errors: there can be no more threads.
pub(super) fn spawn(shared: &'static Shared, run: Arc<SnapshotRun>, order: SnapshotOrder) -> io::Result<()> {
    let body = move || {
        shared.snapshots.roam();
        let _ = cpu::step_back(NICE);
        let outcome = write(shared, &run, order);
        match &outcome {
            Ok(saved) => tracing::info!(
                "snapshot saved: {}, {} keys, {} bytes in {:.2} s",
                saved.name,
                saved.keys,
                saved.bytes,
                run.began.elapsed().as_secs_f64(),
            ),
            Err(_) if run.is_cancelled() => tracing::info!("snapshot called off"),
            Err(error) => tracing::error!("snapshot failed: {error}"),
        }
        // No other may begin before every shard has ended this one.
        run.pipe.break_off();
        while run.pipe.take().is_some() {}
        super::end(shared, &run, outcome);
    };
    thread::Builder::new().name("darter-save".to_owned()).spawn(body).map(drop)
}

fn write(shared: &'static Shared, run: &SnapshotRun, order: SnapshotOrder) -> Result<Saved, String> {
    let SnapshotOrder { create, name, format, packs, has_checksum, bytes_per_s_max, .. } = order;
    let new = create(&name).map_err(|fault| fault.to_string())?;
    let failed = |error: PersistError| format!("{name}: {error}");
    let now_ms = unix_ms();
    // Not a secret: it tells blocks of this file from those of others.
    let id = Rng::new(now_ms ^ u64::from(run.epoch) << 48 ^ u64::from(std::process::id()) << 20).next_u64();
    let options = FileOptions { format, packs, has_checksum, now_ms, id };
    let mut writer = FileWriter::new(new, options).map_err(failed)?;
    if !shared.settings.live().persistence.rdb_modules {
        writer.leave_modules_out();
    }
    let position = fill(shared, run, bytes_per_s_max, &mut writer).map_err(failed)?;
    if writer.left_out() > 0 {
        tracing::warn!(
            "{name} lacks {} keys that need modules or Redis 8.8 (rdb_modules)",
            writer.left_out()
        );
    }
    if run.pipe.is_broken() {
        return Err("called off".to_owned());
    }
    let (new, bytes) = writer.finish().map_err(failed)?;
    new.finish().map_err(|fault| fault.to_string())?;
    Ok(Saved { name: name.clone(), bytes, keys: run.keys_total(), position })
}

/// Writes it all; returns where it stands in a history of changes.
fn fill<W: io::Write>(
    shared: &'static Shared,
    run: &SnapshotRun,
    bytes_per_s_max: u64,
    writer: &mut FileWriter<W>,
) -> Result<Option<StreamPosition>, PersistError> {
    let used = crate::limit::used_bytes(shared);
    writer.aux(b"used-mem", used.to_string().as_bytes())?;
    writer.aux(b"aof-base", if run.purpose == Purpose::Base { b"1" } else { b"0" })?;
    let throttle = Throttle { began: Instant::now(), bytes_per_s_max };
    // What is known at the cut is known when the first batch comes.
    let mut first = run.pipe.take();
    let facts = run.take_facts();
    let position = run.take_position();
    for (name, value) in position.iter().flat_map(StreamPosition::facts) {
        writer.aux(name, &value)?;
    }
    for code in &facts.functions {
        writer.function(code)?;
    }
    for (db, &(keys, expiring)) in facts.sizes.iter().enumerate().filter(|(_, (keys, _))| *keys > 0) {
        writer.sizes(db as u32, keys, expiring)?;
    }
    while let Some(batch) = first.take().or_else(|| run.pipe.take()) {
        let PipedBatch { db, shard, entries, is_ordered, bytes } = batch;
        if is_ordered {
            writer.entries_in_order(db, u32::from(shard), entries, &bytes)?;
        } else {
            writer.entries(db, u32::from(shard), entries, &bytes)?;
        }
        run.pipe.written(bytes);
        rest_after(shared, run, entries);
        throttle.wait(run, writer.bytes());
    }
    Ok(position)
}

/// Sleeps for `rdb-key-save-delay`.
fn rest_after(shared: &Shared, run: &SnapshotRun, keys: u32) {
    let delay = || shared.settings.live().persistence.key_save_delay_us;
    delay::sleep(u64::from(keys), delay, || run.pipe.is_broken() || run.is_cancelled());
}

/// Keeps the speed of writing under a limit.
struct Throttle {
    began: Instant,
    bytes_per_s_max: u64,
}

impl Throttle {
    /// Sleeps until the rate allows this number of bytes, or the run is given up.
    fn wait(&self, run: &SnapshotRun, bytes: u64) {
        if self.bytes_per_s_max == 0 {
            return;
        }
        let due = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s_max as f64);
        while !run.pipe.is_broken() && !run.is_cancelled() {
            let left = due.saturating_sub(self.began.elapsed());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(NAP));
        }
    }
}
