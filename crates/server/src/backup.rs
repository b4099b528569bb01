//! A backup in the format of Redis' append-only files: an RDB file, the commands that follow it, a manifest (BACKUP).
//!
//! START takes a snapshot into a folder of its own. From its cut on, the thread that makes the stream of replicas writes
//! the same bytes to the file of commands, until SEAL names the last record. Backups of several servers can so be begun one
//! after another and sealed together. The folder loads as an `appendonlydir`, here and in Redis.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use darter_command::Fault;
use darter_persist::storage::name::NameFormat;
use darter_persist::storage::{Local, StorageDirectory};

use crate::clock::unix_ms;
use crate::pubsub;
use crate::shared::Shared;
use crate::snapshot::run::{Purpose, SnapshotOrder, SnapshotRun};
use crate::snapshot::start_or_schedule;
use crate::sync::lock;
use crate::thread_state::ThreadState;
use darter_config::Live;

/// The one backup that there can be.
#[derive(Default)]
pub struct Backups {
    state: Mutex<BackupState>,
}

#[derive(Default)]
struct BackupState {
    stage: BackupStage,
    // why it has failed
    error: String,
    began_s: u64,
    sealed_s: u64,
    // tells this backup from those before
    number: u64,
    files: Option<BackupFiles>,
    run: Option<Arc<SnapshotRun>>,
    increment: Option<Arc<Increment>>,
}

/// How far a backup has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackupStage {
    /// There is none.
    #[default]
    Idle,
    /// It waits for another snapshot to end.
    Pending,
    /// Its snapshot is being written.
    Snapshotting,
    /// Its snapshot is complete, commands follow.
    Incrementing,
    /// All its files are complete.
    Sealed,
    /// It was given up.
    Failed,
}

impl BackupStage {
    /// The name that STATUS answers.
    pub fn name(self) -> &'static str {
        match self {
            BackupStage::Idle => "idle",
            BackupStage::Pending => "pending",
            BackupStage::Snapshotting => "snapshotting",
            BackupStage::Incrementing => "incrementing",
            BackupStage::Sealed => "sealed",
            BackupStage::Failed => "failed",
        }
    }

    /// Whether it is being made.
    pub fn is_open(self) -> bool {
        matches!(self, BackupStage::Pending | BackupStage::Snapshotting | BackupStage::Incrementing)
    }
}

/// What STATUS answers.
pub struct BackupStatus {
    /// How far it has come.
    pub stage: BackupStage,
    /// Why it has failed; empty if it has not.
    pub error: String,
    /// When it began, Unix seconds; 0 is never.
    pub began_s: u64,
    /// When it was sealed; 0 is not yet.
    pub sealed_s: u64,
}

/// Names of the files of a backup.
#[derive(Clone, Debug)]
struct BackupFiles {
    folder: PathBuf,
    base: String,
    increment: String,
    manifest: String,
}

impl BackupFiles {
    fn new(live: &Live) -> BackupFiles {
        let name = &live.persistence.appendfilename;
        BackupFiles {
            folder: live.persistence.dir.join(&live.persistence.backupdirname),
            base: format!("{name}.1.base.rdb"),
            increment: format!("{name}.1.incr.aof"),
            manifest: format!("{name}.manifest"),
        }
    }

    /// Makes the folder if it is not there.
    ///
    /// Errors: it cannot be made, or there is something in it.
    fn prepare(&self) -> Result<(), Fault> {
        let place = self.folder.display();
        let failed = |error: io::Error| Fault::Text(format!("ERR {place}: {error}").into());
        fs::create_dir_all(&self.folder).map_err(failed)?;
        if fs::read_dir(&self.folder).map_err(failed)?.next().is_some() {
            return Err(Fault::Text(format!("ERR Backup directory {place} is not empty").into()));
        }
        Ok(())
    }

    fn remove(&self) {
        for name in [&self.base, &self.increment, &self.manifest] {
            match fs::remove_file(self.folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("{}: {error}", self.folder.join(name).display());
                }
                _ => {}
            }
        }
    }

    /// Writes the manifest, after which the backup is one.
    fn write_manifest(&self) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{}.unfinished", self.manifest));
        let mut file = File::create(&unfinished)?;
        write!(file, "file {} seq 1 type b\nfile {} seq 1 type i\n", self.base, self.increment)?;
        file.sync_all()?;
        fs::rename(&unfinished, self.folder.join(&self.manifest))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// The commands that follow a backup's snapshot, on their way to a file.
pub struct Increment {
    number: u64,
    part: Mutex<BackupPart>,
}

struct BackupPart {
    file: File,
    // Records of the journal from this sequence on, up to that one.
    from: u64,
    until: u64,
    failed: Option<String>,
}

impl Increment {
    /// Takes the commands of the record with this sequence.
    pub fn take(&self, sequence: u64, commands: &[u8]) {
        let mut part = lock(&self.part);
        if (part.from..part.until).contains(&sequence)
            && part.failed.is_none()
            && let Err(error) = part.file.write_all(commands)
        {
            part.failed = Some(error.to_string());
        }
    }
}

impl Backups {
    /// How far the backup has come.
    pub fn status(&self) -> BackupStatus {
        let state = lock(&self.state);
        let (stage, error) = (state.stage, state.error.clone());
        BackupStatus { stage, error, began_s: state.began_s, sealed_s: state.sealed_s }
    }

    /// The files that are complete, with their folder.
    pub fn files(&self) -> Vec<PathBuf> {
        let state = lock(&self.state);
        let Some(files) = &state.files else { return Vec::new() };
        let names: &[&String] = match state.stage {
            BackupStage::Incrementing => &[&files.base],
            BackupStage::Sealed => &[&files.base, &files.increment, &files.manifest],
            _ => &[],
        };
        names.iter().map(|name| files.folder.join(name)).collect()
    }

    /// Gives the backup up, if it is being made: what follows its snapshot is not known any more, or nobody wants it.
    pub fn give_up(&self, why: &str) {
        let mut state = lock(&self.state);
        if state.stage.is_open() {
            fail(&mut state, why);
        }
    }

    fn end_with(&self, number: u64, change: impl FnOnce(&mut BackupState)) {
        let mut state = lock(&self.state);
        if state.number == number && state.stage.is_open() {
            change(&mut state);
        }
    }

    /// Removes a sealed backup that has been kept for as long as the settings say.
    pub fn expire(&self, live: &Live, now_ms: u64) {
        let ttl_s = live.persistence.backup_sealed_ttl_s;
        if ttl_s == 0 {
            return;
        }
        let mut state = lock(&self.state);
        if state.stage == BackupStage::Sealed && now_ms / 1000 >= state.sealed_s.saturating_add(ttl_s) {
            tracing::info!("the backup is removed: backup-sealed-ttl is over");
            clean(&mut state);
        }
    }
}

fn fail(state: &mut BackupState, why: &str) {
    tracing::warn!("the backup has failed: {why}");
    state.stage = BackupStage::Failed;
    state.error = why.to_owned();
    state.increment = None;
    if let Some(run) = state.run.take() {
        run.cancel();
    }
    if let Some(files) = state.files.take() {
        files.remove();
    }
}

fn clean(state: &mut BackupState) {
    if let Some(files) = state.files.take() {
        files.remove();
    }
    *state = BackupState { number: state.number, ..BackupState::default() };
}

/// Begins a backup. The caller holds no shard.
///
/// Errors: one is being made or kept, its folder is not empty, or this server cannot make one now.
pub fn begin(local: &mut ThreadState) -> Result<(), Fault> {
    let (shared, live) = (local.shared, local.live.clone());
    if live.persistence.is_in_cloud() {
        return Err(Fault::text("ERR BACKUP needs a local folder: dir is in a cloud"));
    }
    if shared.replication.is_replica() {
        return Err(Fault::text("ERR BACKUP is for masters: a replica's stream is its master's"));
    }
    if shared.snapshots.loading.is_on() {
        return Err(Fault::text("LOADING Redis is loading the dataset in memory"));
    }
    let files = BackupFiles::new(&live);
    let (number, increment) = {
        let mut state = lock(&shared.backup.state);
        match state.stage {
            BackupStage::Idle | BackupStage::Failed => {}
            BackupStage::Sealed => {
                return Err(Fault::text("ERR A sealed backup is there: BACKUP CLEANUP removes it"));
            }
            _ => return Err(Fault::text("ERR Backup already in progress")),
        }
        files.prepare()?;
        let path = files.folder.join(&files.increment);
        let file = File::create(&path);
        let file = file.map_err(|error| Fault::Text(format!("ERR {}: {error}", path.display()).into()))?;
        let number = state.number + 1;
        // No record comes before the cut says where it begins.
        let part = Mutex::new(BackupPart { file, from: u64::MAX, until: u64::MAX, failed: None });
        let increment = Arc::new(Increment { number, part });
        *state = BackupState {
            stage: BackupStage::Pending,
            began_s: unix_ms() / 1000,
            number,
            files: Some(files.clone()),
            increment: Some(increment.clone()),
            ..BackupState::default()
        };
        (number, increment)
    };
    shared.replication.begin_feeding(shared, 0);
    pubsub::listen(local);
    if let Err(fault) = take(local, &live, &files, &increment) {
        shared.backup.end_with(number, |state| fail(state, &fault.line()));
        return Err(fault);
    }
    Ok(())
}

/// Takes the snapshot, or has it wait for the one under way.
fn take(
    local: &mut ThreadState,
    live: &Live,
    files: &BackupFiles,
    increment: &Arc<Increment>,
) -> Result<(), Fault> {
    let shared = local.shared;
    let (number, folder) = (increment.number, files.folder.clone());
    let increment = increment.clone();
    let at_cut = move |local: &mut ThreadState| {
        let shared = local.shared;
        lock(&increment.part).from = shared.journal.end();
        let is_fed = shared.replication.feed_too(increment);
        shared.backup.end_with(number, |state| match is_fed {
            true => state.stage = BackupStage::Snapshotting,
            false => fail(state, "this server no longer makes a stream of changes"),
        });
    };
    let order = SnapshotOrder {
        create: Box::new(move |name| Local::new(&folder).create(name)),
        name: files.base.clone(),
        format: NameFormat::Rdb,
        packs: live.persistence.rdbcompression,
        has_checksum: live.persistence.rdbchecksum,
        bytes_per_s_max: 0,
        purpose: Purpose::Copy,
        at_cut: Some(Box::new(at_cut)),
        then: vec![Box::new(move |shared: &'static Shared, outcome| {
            shared.backup.end_with(number, |state| {
                state.run = None;
                match outcome {
                    Ok(saved) => {
                        tracing::info!(
                            "the backup has its snapshot: {} keys, {} bytes",
                            saved.keys,
                            saved.bytes
                        );
                        state.stage = BackupStage::Incrementing;
                    }
                    Err(why) => fail(state, why),
                }
            });
        })],
    };
    if let Some(run) = start_or_schedule(local, order)? {
        shared.backup.end_with(number, |state| state.run = Some(run));
    }
    Ok(())
}

/// Gives the backup up that is being made.
///
/// Errors: none is.
pub fn abort(shared: &Shared) -> Result<(), Fault> {
    if !lock(&shared.backup.state).stage.is_open() {
        return Err(Fault::text("ERR No backup in progress"));
    }
    shared.backup.give_up("aborted by user");
    shared.replication.feed_no_backup();
    Ok(())
}

/// Removes the files of a backup that is sealed or has failed.
///
/// Errors: it is being made.
pub fn cleanup(shared: &Shared) -> Result<(), Fault> {
    let mut state = lock(&shared.backup.state);
    if state.stage.is_open() {
        return Err(Fault::text("ERR Backup in progress: BACKUP ABORT ends it"));
    }
    clean(&mut state);
    Ok(())
}

/// Ends the file of commands with the last change so far, completes the backup and calls `then`.
///
/// Errors: no backup has come so far.
pub fn seal(
    shared: &'static Shared,
    then: impl FnOnce(Result<(), String>) + Send + 'static,
) -> Result<(), Fault> {
    const NOT_READY: Fault = Fault::text("ERR No backup ready to seal");
    let (increment, files) = {
        let state = lock(&shared.backup.state);
        match (&state.increment, &state.files) {
            (Some(increment), Some(files)) if state.stage == BackupStage::Incrementing => {
                (increment.clone(), files.clone())
            }
            _ => return Err(NOT_READY),
        }
    };
    let end = shared.journal.end();
    {
        let mut part = lock(&increment.part);
        if part.until != u64::MAX {
            return Err(NOT_READY);
        }
        part.until = end;
    }
    let spawned = thread::Builder::new().name("darter-backup".to_owned()).spawn(move || {
        shared.snapshots.roam();
        let sealed = complete(shared, &increment, &files, end);
        shared.replication.feed_no_backup();
        shared.backup.end_with(increment.number, |state| match &sealed {
            Ok(()) => {
                state.stage = BackupStage::Sealed;
                state.sealed_s = unix_ms() / 1000;
                state.increment = None;
            }
            Err(why) => fail(state, why),
        });
        then(sealed);
    });
    spawned.map(drop).map_err(|error| Fault::Text(format!("ERR {error}").into()))
}

/// Time between two looks at how far the stream has come.
const LOOK: Duration = Duration::from_millis(1);

fn complete(shared: &Shared, increment: &Increment, files: &BackupFiles, end: u64) -> Result<(), String> {
    let shown = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    while shared.replication.is_feeding_before(end) {
        if !lock(&shared.backup.state).stage.is_open() {
            return Err("the backup was given up".to_owned());
        }
        shared.journal.intake.poke();
        thread::sleep(LOOK);
    }
    if !lock(&shared.backup.state).stage.is_open() {
        return Err("the backup was given up".to_owned());
    }
    let mut part = lock(&increment.part);
    if let Some(why) = part.failed.take() {
        return Err(why);
    }
    part.file.sync_all().map_err(|error| shown(&files.folder.join(&files.increment), error))?;
    files.write_manifest().map_err(|error| shown(&files.folder.join(&files.manifest), error))
}
