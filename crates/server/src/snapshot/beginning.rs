//! What the server begins with: its journal, a snapshot, or nothing. Clients get LOADING while either is loaded.

use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use crate::journal::rewrite;
use crate::shared::Shared;
use darter_config::Live;

use super::ending;
use super::load::{self, LoadOnto, Then};
use super::naming::{self, Source};

/// Where the data comes from.
pub enum Beginning {
    /// Nothing is there, or nothing is wanted.
    Empty,
    /// The journal, with its base, or the one of Redis that is taken over.
    Journal,
    /// A snapshot.
    Snapshot(Source),
}

/// Finds out what there is, and begins its load, so that no client is served before. An empty journal is begun.
///
/// Errors: a folder cannot be read, or the journal cannot be begun.
pub fn find(shared: &'static Shared, live: &Live) -> io::Result<Beginning> {
    if live.persistence.appendonly {
        let bytes = rewrite::bytes_there(live).map_err(io::Error::other)?;
        if bytes > 0 {
            shared.snapshots.loading.begin_replay(bytes);
            return Ok(Beginning::Journal);
        }
        rewrite::start(shared).map_err(io::Error::other)?;
        if shared.journal.is_on() {
            return Ok(Beginning::Empty);
        }
    }
    if !live.persistence.dbfilename.is_empty() {
        naming::directory(live)?.sweep()?;
    }
    let Some(source) = naming::newest(live)? else { return Ok(Beginning::Empty) };
    if live.may_follow() {
        // Nothing goes by itself on a replica.
        shared.snapshots.loading.begin_replay(source.1.len);
    } else {
        shared.snapshots.loading.begin(source.1.len);
    }
    // A journal without a base holds nothing.
    shared.snapshots.hold_until_base(live.persistence.appendonly);
    Ok(Beginning::Snapshot(source))
}

/// Loads what [`find`] found. Files that cannot be loaded end the server: to serve without the data, or with a part of
/// it, would be worse.
///
/// Errors: there can be no more threads.
pub fn load(shared: &'static Shared, from: Beginning) -> io::Result<()> {
    match from {
        Beginning::Empty => {
            ready(shared);
            Ok(())
        }
        Beginning::Snapshot(source) => {
            tracing::info!("loading {}: {} bytes", source.1.name, source.1.len);
            crate::notify::status("Loading a snapshot");
            let file = source.1.name.clone();
            let then: Then = Box::new(|shared, outcome| end(shared, "snapshot", Some(file), outcome));
            load::spawn(shared, source, LoadOnto::Nothing, then)
        }
        Beginning::Journal => {
            let bytes = shared.snapshots.loading.total_bytes.load(Relaxed);
            tracing::info!("loading the journal: {bytes} bytes");
            crate::notify::status("Loading the journal");
            let body = move || {
                shared.snapshots.roam();
                end(shared, "journal", None, &rewrite::start(shared));
            };
            thread::Builder::new().name("darter-load".to_owned()).spawn(body).map(drop)
        }
    }
}

/// Says that clients are served from now on.
fn ready(shared: &Shared) {
    let took_ms = shared.started.elapsed().as_millis();
    tracing::info!("Ready to accept connections after {took_ms} ms");
    crate::notify::ready();
}

fn end(shared: &'static Shared, what: &str, file: Option<String>, outcome: &Result<(), String>) {
    match outcome {
        Ok(()) => {
            if let Some(group) = shared.group.as_ref().filter(|_| shared.journal.is_on()) {
                group.recovers.store(what == "journal", Relaxed);
            }
            if let Some(position) = shared.snapshots.loading.position() {
                shared.replication.resume(shared, position);
            }
            shared.snapshots.note_loaded(shared, file);
            ready(shared);
        }
        Err(why) => {
            tracing::error!("the {what} cannot be loaded, so the server does not start: {why}");
            shared.snapshots.loading.fail(format!("cannot load {why}"));
            ending::stop(shared);
        }
    }
}
