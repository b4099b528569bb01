//! Reading the journal back at start: every record's parts run again, with the clock they ran with.
//!
//! Runs before any client is served, on one thread that holds all shards. Clients get LOADING meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use darter_command::Fault;
use darter_durability::base::ReadBack;
use darter_persist::entry::Entries;
use darter_persist::files::Disk;
use darter_persist::journal::ending::{Ending, Torn};
use darter_persist::journal::folder::{self, BrokenFile, JournalFolder as Files};
use darter_persist::journal::manifest::TAKEN_OVER;
use darter_persist::journal::part::{ArgList, Parts, RecordPart};
use darter_replica::history::ReplId;
use darter_store::Keyed;
use darter_txn::LockSet;
use darter_wire::{Args, OwnedArgs};

use crate::clock::unix_ms;
use crate::engine::apply::{Applied, Journalled, NotApplied};
use crate::engine::lease;
use crate::job::Shards;
use crate::journal::{redis, rewrite};
use crate::registry::CommandEntry;
use crate::replication::position::{FoundPosition, StreamPosition};
use crate::replication::track::StreamTrack;
use crate::shared::Shared;
use crate::snapshot::load::rest_after;
use crate::thread_state::ThreadState;

/// Runs commands again over all shards.
pub struct Player {
    local: ThreadState,
    grant: Shards,
    by_name: HashMap<&'static str, &'static CommandEntry>,
    reply: Vec<u8>,
    /// What was done.
    pub done: Replayed,
    // what the last record says of its place in a master's stream, once there was one
    position: Option<Option<StreamPosition>>,
}

/// What a replay did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Replayed {
    /// Records.
    pub records: u64,
    /// Commands in them.
    pub commands: u64,
    /// Commands that were refused though they had not been when they first ran.
    pub refused: u64,
}

/// Refusals that are logged one by one.
const REFUSALS_SHOWN: u64 = 10;
/// Records between two notes of how far it is.
const RECORDS_PER_LOOK: u64 = 256;
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(2);

impl Player {
    /// Takes all shards, which must be free.
    pub fn new(local: ThreadState) -> Option<Player> {
        let shared = local.shared;
        let all = LockSet::all(shared.router.shards_len());
        let grant = lease::take_patiently(shared, &all, u32::MAX).ok()?;
        let by_name = shared.registry.entries().iter().map(|entry| (entry.spec.name, *entry)).collect();
        Some(Player { local, grant, by_name, reply: Vec::new(), done: Replayed::default(), position: None })
    }

    /// Lets the shards go.
    pub fn finish(mut self) -> ThreadState {
        let now_ms = unix_ms();
        for part in self.grant.iter_mut() {
            // Records were played at the clock of each.
            part.shard.distrust_bounds(now_ms);
            part.shard.changes.take();
            // While the server runs shards tell the journal of changes, and these are in it.
            part.shard.changes.take_notes();
        }
        lease::release(&mut self.local, self.grant);
        self.local
    }

    /// What runs from now on runs at this time, Unix milliseconds.
    pub fn set_clock(&mut self, clock_ms: u64) {
        self.local.now_ms = clock_ms;
    }

    /// Does what a record's body says, at the clock it was done first.
    pub fn play(&mut self, clock_ms: u64, body: &[u8]) -> Result<(), Unplayable> {
        self.local.now_ms = clock_ms;
        self.done.records += 1;
        let mut position = None;
        let mut parts = Parts::new(body);
        while let Some(part) = parts.try_next().map_err(|damage| Unplayable(damage.to_string()))? {
            match part {
                RecordPart::Command { db, only_key, args } => {
                    let owned = owned(args);
                    self.command(db, only_key, owned.args())?;
                }
                RecordPart::Gone { db, key, .. } => {
                    self.at(db, key, |place| {
                        place.remove();
                    })?;
                }
                RecordPart::Value { db, entry } => self.put(db, clock_ms, entry)?,
                RecordPart::Message { .. } | RecordPart::Stream(_) => {}
                // What was received changes no data, and leaves it where it stands.
                RecordPart::Uncommitted(_) => return Ok(()),
                RecordPart::Position { id, offset, db } => {
                    let db = usize::try_from(db).unwrap_or(0);
                    position = ReplId::parse(id).map(|id| StreamPosition { id, offset, db });
                }
                RecordPart::Members { db, key } => {
                    self.at(db, key, |place| while place.expire_members(usize::MAX) > 0 {})?
                }
            }
        }
        self.position = Some(position);
        Ok(())
    }

    fn at(&mut self, db: u64, name: &[u8], act: impl FnOnce(&mut Keyed<'_>)) -> Result<(), Unplayable> {
        let db = self.db(db)?;
        let key = self.local.shared.router.key(name);
        let id = self.local.shared.router.shard_of(key.hash);
        if let Some(part) = self.grant.get_mut(id) {
            act(&mut Keyed::find(&mut part.shard, db, key, self.local.now_ms));
        }
        Ok(())
    }

    /// Puts a key in the place of whatever is there.
    fn put(&mut self, db: u64, clock_ms: u64, bytes: &[u8]) -> Result<(), Unplayable> {
        let damaged = || Unplayable("a value in it is damaged".to_owned());
        let entry = Entries::new(bytes).next().ok_or_else(damaged)?.map_err(|_| damaged())?;
        self.at(db, &entry.key, |place| {
            place.remove();
        })?;
        let (db, key) = (self.db(db)?, self.local.shared.router.key(&entry.key));
        let Some(part) = self.grant.get_mut(self.local.shared.router.shard_of(key.hash)) else {
            return Ok(());
        };
        let made = entry.load(&mut part.shard, db, key.hash, clock_ms);
        made.map(drop)
            .map_err(|refused| Unplayable(format!("a value in it cannot be made: {}", refused.what())))
    }

    fn db(&self, db: u64) -> Result<usize, Unplayable> {
        usize::try_from(db).ok().filter(|db| *db < self.local.live.dbnum as usize).ok_or_else(|| {
            Unplayable(format!(
                "it needs database {db}, and there are only {} (databases)",
                self.local.live.dbnum
            ))
        })
    }

    /// Runs one command; one that is refused now is counted and told.
    pub fn command(&mut self, db: u64, only_key: Option<&[u8]>, args: Args<'_>) -> Result<(), Unplayable> {
        let db = self.db(db)?;
        let Some(entry) = self.find(args) else {
            let name = String::from_utf8_lossy(args.at(0)).into_owned();
            return Err(Unplayable(format!(
                "it needs command '{}', which there is not",
                name.escape_debug()
            )));
        };
        self.done.commands += 1;
        self.reply.clear();
        let ended = if entry.spec.accepts(args.len()) {
            let applied = Applied { entry, args, db, only_key, hash: None };
            applied.run(&mut self.local, &mut self.grant, Journalled::No, &mut self.reply)
        } else {
            Err(NotApplied::Refused(Fault::Syntax))
        };
        if let Err(not_applied) = ended {
            let fault = match not_applied {
                NotApplied::Refused(fault) => fault,
                NotApplied::NoChange => Fault::text("ERR this is no command of a journal"),
            };
            self.done.refused += 1;
            if self.done.refused <= REFUSALS_SHOWN {
                let at = self.done.records;
                tracing::error!(
                    "record {at} of the journal: {} is refused: {}",
                    entry.spec.name,
                    fault.line()
                );
            }
        }
        Ok(())
    }

    fn find(&self, args: Args<'_>) -> Option<&'static CommandEntry> {
        let name = args.at(0).to_ascii_lowercase();
        let entry = *self.by_name.get(std::str::from_utf8(&name).ok()?)?;
        if entry.subs.is_empty() { Some(entry) } else { entry.sub(args.at(1)) }
    }
}

fn owned(args: ArgList<'_>) -> OwnedArgs {
    let mut owned = OwnedArgs::with_capacity(args.len().min(64), 64);
    args.iter().for_each(|arg| owned.push(arg));
    owned
}

/// Why a record that is whole cannot be done again: this server lacks something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unplayable(pub String);

impl fmt::Display for Unplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What was read back.
pub struct LoadedJournal {
    /// Generations and bytes.
    pub read_back: ReadBack,
    /// The base is what Redis left, and needs one of ours in its place.
    pub is_taken_over: bool,
    /// How its files ended. They are as they were.
    pub ending: Ending<Disk>,
}

/// Reads the journal in `dir` back, its base first; `None` when there is none.
///
/// Errors: what an operator has to know; nothing is to be served then. A torn end, or a file that is missing or damaged,
/// is no error unless `aof-load-truncated` says so: the log names it.
pub fn load(shared: &'static Shared, dir: &Path) -> Result<Option<LoadedJournal>, String> {
    let Some(mut files) = folder::open(&Disk, dir).map_err(|fault| fault.to_string())? else {
        return Ok(None);
    };
    let began = Instant::now();
    let mut local = ThreadState::new(shared, 0);
    let mut base_bytes = 0;
    let clock_ms = files.manifest.clock_ms;
    let is_taken_over = files.manifest.base.as_deref() == Some(TAKEN_OVER);
    if is_taken_over {
        let is_there = redis::load(shared, &shared.settings.live(), clock_ms)?;
        if !is_there {
            return Err("the journal goes on from the files of Redis, which are gone".to_owned());
        }
        // What follows in those files is no part of it.
        shared.snapshots.loading.find(FoundPosition::default());
    } else if let Some(base) = &files.manifest.base {
        base_bytes = rewrite::load_base(shared, &mut local, dir, base, clock_ms)?;
    }
    let at_dir = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut player = Player::new(local).ok_or("shards are busy before anything runs")?;
    let loading = &shared.snapshots.loading;
    let (mut told, mut track, mut rested) = (began, StreamTrack::default(), 0);
    let (bytes, generation_max) = (files.bytes, files.generation_max);
    for path in &files.baseless {
        tracing::warn!(
            "journal: {} is left out: written after the journal was switched on, before it had a base",
            path.display()
        );
    }
    while let Some((head, body)) = files.next_record().map_err(at_dir)? {
        let played = player.play(head.clock_ms, body);
        played.map_err(|cause| {
            format!("record {} of the journal cannot be done again: {cause}", head.sequence)
        })?;
        rest_after(shared, player.done.commands - rested);
        rested = player.done.commands;
        track.note(head, body, player.position.flatten());
        if player.done.records.is_multiple_of(RECORDS_PER_LOOK) {
            loading.loaded_bytes.store(base_bytes + files.bytes_read(), Relaxed);
        }
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            progress(&files, &player.done, began);
        }
    }
    let (base_generation, done) = (files.manifest.generation, player.done);
    shared.replication.keep_received(track.take_received());
    if let Some(last) = player.position {
        loading.find(last.map_or_else(FoundPosition::default, FoundPosition::from));
    }
    if let Some(found) = track.end() {
        let (id, offset) = (found.history.id, found.end.offset);
        loading.find(FoundPosition::from(StreamPosition { id, offset, db: 0 }));
        shared.replication.keep_found(found);
    }
    player.finish();
    let ending = files.end().map_err(at_dir)?;
    tracing::info!(
        "journal: {} commands of {} records in {:.3} s",
        done.commands,
        done.records,
        began.elapsed().as_secs_f64()
    );
    if done.refused > 0 {
        tracing::error!("journal: {} commands were refused that were not when they first ran", done.refused);
    }
    report(shared, &ending)?;
    let kept = bytes.saturating_sub(ending.torn.iter().map(|torn| torn.bytes).sum());
    Ok(Some(LoadedJournal {
        read_back: ReadBack {
            generation: generation_max + 1,
            base_generation,
            bytes: kept + base_bytes,
            base_bytes,
        },
        is_taken_over,
        ending,
    }))
}

fn progress(files: &Files<Disk>, done: &Replayed, began: Instant) {
    let (read, all) = (files.bytes_read() as f64, files.bytes.max(1) as f64);
    let share = read / all;
    let left_s = began.elapsed().as_secs_f64() * (1.0 - share) / share.max(1e-6);
    tracing::info!("journal: {:.0} % read, {} commands, {left_s:.0} s left", share * 100.0, done.commands);
}

/// Names what is missing, damaged or left out.
///
/// Errors: there is such a thing, and the settings have the server refuse it.
fn report(shared: &Shared, ending: &Ending<Disk>) -> Result<(), String> {
    if ending.is_sound() {
        return Ok(());
    }
    let Ending { torn, broken, sequence, .. } = ending;
    let places = broken.iter().map(BrokenFile::to_string).chain(torn.iter().map(Torn::to_string));
    if !shared.settings.live().persistence.aof_load_truncated {
        let places: Vec<String> = places.collect();
        return Err(format!("the journal is damaged and aof-load-truncated is no: {}", places.join("; ")));
    }
    for broken in broken {
        tracing::warn!("journal: {broken}; records from {sequence} on that were there alone are lost");
    }
    if !torn.is_empty() {
        let records: u64 = torn.iter().map(|torn| torn.records).sum();
        let bytes: u64 = torn.iter().map(|torn| torn.bytes).sum();
        tracing::warn!(
            "journal: record {sequence} is missing or damaged; {bytes} bytes after it ({records} whole records) are left out"
        );
    }
    torn.iter().for_each(|torn| tracing::warn!("journal: left out {torn}"));
    Ok(())
}
