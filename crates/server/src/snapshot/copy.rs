//! Copies for clients: what SYNC sends, an RDB file, at the pace of whoever reads it.
//!
//! The snapshot goes into a file without a name first, so that neither its cut nor anybody's writes wait for a slow
//! reader. A thread of its own then hands the file to the client's thread, some megabytes ahead of what the client has
//! taken. A backup's connection is closed behind it; a replica gets the stream of changes then (`replication::sync`).

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use darter_command::Fault;
use darter_persist::ReadAt;
use darter_persist::file::{FileOptions, FileWriter};
use darter_persist::storage::name::NameFormat;
use darter_persist::storage::{NewFile, Spool};
use darter_replica::history::ReplId;
use darter_wire::Reply;

use crate::clients::ClientInfo;
use crate::clock::unix_ms;
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use crate::thread_state::ThreadState;

use super::run::{AtCut, Purpose, Saved, SnapshotOrder, SnapshotRun};
use super::start_or_schedule;

/// What a client wants a copy of; a connection keeps it from REPLCONF to SYNC.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopyWish {
    /// Its contents.
    pub contents: Contents,
    /// A copy once, and no changes after it.
    pub is_backup: bool,
    /// The copy is on its way, or the stream of changes.
    pub is_begun: bool,
    /// The port it listens on as a server.
    pub port: u16,
    /// The address it wants to be known by as a server.
    pub address: Option<Box<str>>,
    /// Which start of a server of ours it is.
    pub boot: Option<ReplId>,
    /// It understands a new replication id (`capa psync2`).
    pub knows_ids: bool,
}

/// Contents of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Contents {
    /// Everything.
    #[default]
    All,
    /// Functions, but no keys.
    Functions,
    /// Neither.
    Nothing,
}

/// Bytes handed to the client's thread at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes handed to it that the client has not taken.
const AHEAD_BYTES_MAX: u64 = 4 << 20;
/// A client that waits for its copy gets an empty line so often, as Redis sends it.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Where a copy goes.
pub struct Target {
    /// The server.
    pub shared: &'static Shared,
    /// The client.
    pub info: Arc<ClientInfo>,
}

impl Target {
    /// Whether the client is still there.
    pub fn is_there(&self) -> bool {
        lock(&self.shared.clients).contains_key(&self.info.id)
    }

    /// Sends bytes.
    pub fn push(&self, bytes: &[u8]) {
        let (token, client) = (self.info.token, self.info.id);
        self.shared.handle(self.info.thread).send(ThreadMessage::Push { token, client, bytes: bytes.into() });
    }

    /// The last that is sent: its connection is closed behind it.
    fn end(&self, reply: Vec<u8>) {
        let (token, client) = (self.info.token, self.info.id);
        self.shared.handle(self.info.thread).send(ThreadMessage::Served { token, client, reply });
    }

    /// Says why there is no copy, and closes the connection.
    pub fn refuse(&self, why: &str) {
        tracing::error!("client {} gets no copy: {why}", self.info.id);
        let mut reply = Vec::new();
        Reply::new(&mut reply, false).error(format!("ERR {why}"));
        self.push(&reply);
        // A replica does not wait for a reply.
        let (token, client) = (self.info.token, self.info.id);
        self.end(Vec::new());
        self.shared.handle(self.info.thread).send(ThreadMessage::Kill { token, client });
    }
}

/// Begins a copy for the client `id`, or has it wait for the snapshot under way. The caller holds no shard, and has the
/// client wait; its connection is closed after the copy or an error.
///
/// Errors: no file can be written, or too many copies wait.
pub fn begin(local: &mut ThreadState, id: u64, contents: Contents) -> Result<(), Fault> {
    let shared = local.shared;
    let failed = |why: String| Fault::Text(format!("ERR {why}").into());
    let info = lock(&shared.clients).get(&id).cloned().ok_or_else(|| failed("no such client".into()))?;
    let target = Target { shared, info };
    if let Some(keyless) = Keyless::new(local, contents)? {
        return spawn(move || match keyless.write(shared) {
            Ok((file, bytes)) => {
                send(&target, &file, bytes, Last::End);
            }
            Err(why) => target.refuse(&why),
        });
    }
    let (file, run, told) = take(local, format!("a copy for client {id}"), None)?;
    spawn(move || serve(&target, &file, run.as_deref(), &told))
}

/// What [`take`] returns: the file, the snapshot if it has begun, and who tells of its end.
pub type Taken = (File, Option<Arc<SnapshotRun>>, Receiver<Result<Saved, String>>);

/// Takes a snapshot in a file without a name, or has it wait for the one under way.
///
/// Errors: no file can be written, or too many copies wait.
pub fn take(local: &mut ThreadState, name: String, at_cut: Option<AtCut>) -> Result<Taken, Fault> {
    let (spool, file) = spool(local)?;
    let persistence = &local.live.persistence;
    let (teller, told) = channel();
    let order = SnapshotOrder {
        create: Box::new(move |_| Ok(Box::new(spool))),
        name,
        format: NameFormat::Rdb,
        packs: persistence.rdbcompression,
        has_checksum: persistence.rdbchecksum,
        bytes_per_s_max: 0,
        purpose: Purpose::Copy,
        at_cut,
        then: vec![Box::new(move |_, outcome| drop(teller.send(outcome.clone())))],
    };
    let run = start_or_schedule(local, order)?;
    Ok((file, run, told))
}

fn spool(local: &ThreadState) -> Result<(Spool, File), Fault> {
    let persistence = &local.live.persistence;
    let temporary = std::env::temp_dir();
    let folder = if persistence.is_in_cloud() { &temporary } else { &persistence.dir };
    Spool::new(folder).map_err(|fault| Fault::Text(format!("ERR {fault}").into()))
}

/// Has a thread of its own do something about a copy.
///
/// Errors: there can be no more threads.
pub fn spawn(body: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    let spawned = thread::Builder::new().name("darter-copy".to_owned()).spawn(body);
    spawned.map(drop).map_err(|error| Fault::Text(format!("ERR {error}").into()))
}

/// A copy without keys, before it is written.
pub struct Keyless {
    spool: Spool,
    file: File,
    has_functions: bool,
    options: FileOptions,
}

impl Keyless {
    /// A copy of `contents`; `None` if keys are in them.
    ///
    /// Errors: no file can be written.
    pub fn new(local: &ThreadState, contents: Contents) -> Result<Option<Keyless>, Fault> {
        if contents == Contents::All {
            return Ok(None);
        }
        let (spool, file) = spool(local)?;
        let persistence = &local.live.persistence;
        let options = FileOptions {
            format: NameFormat::Rdb,
            packs: persistence.rdbcompression,
            has_checksum: persistence.rdbchecksum,
            now_ms: unix_ms(),
            id: 0,
        };
        Ok(Some(Keyless { spool, file, has_functions: contents == Contents::Functions, options }))
    }

    /// Writes it; returns the file and its length in bytes.
    ///
    /// Errors: of the file.
    pub fn write(self, shared: &Shared) -> Result<(File, u64), String> {
        let Keyless { spool, file, has_functions, options } = self;
        let write = || {
            let mut writer = FileWriter::new(spool, options)?;
            if has_functions {
                let libraries: Vec<_> = shared.scripts.libraries().iter().cloned().collect();
                libraries.iter().try_for_each(|library| writer.function(&library.source))?;
            }
            writer.finish()
        };
        let (spool, bytes) = write().map_err(|error: darter_persist::PersistError| error.to_string())?;
        Box::new(spool).finish().map_err(|fault| fault.to_string())?;
        Ok((file, bytes))
    }
}

/// Waits for the snapshot and sends it.
fn serve(target: &Target, file: &File, run: Option<&SnapshotRun>, told: &Receiver<Result<Saved, String>>) {
    loop {
        match told.recv_timeout(SIGN_OF_LIFE) {
            Ok(Ok(saved)) => {
                send(target, file, saved.bytes, Last::End);
                return;
            }
            Ok(Err(why)) => return target.refuse(&why),
            Err(RecvTimeoutError::Disconnected) => return target.refuse("the snapshot was not begun"),
            Err(RecvTimeoutError::Timeout) if target.is_there() => target.push(b"\n"),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(run) = run {
                    run.cancel();
                }
                return;
            }
        }
    }
}

/// What becomes of the connection behind the last piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// It is closed.
    End,
    /// Something else is sent.
    Push,
}

/// Sends `bytes` bytes of the file, as fast as the client takes them; false: it has gone, or the file cannot be read.
pub fn send(target: &Target, file: &File, bytes: u64, last: Last) -> bool {
    let info = &target.info;
    let taken_before = info.output_bytes.load(Relaxed);
    target.push(format!("${bytes}\r\n").as_bytes());
    let (mut at, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    while at < bytes {
        let len = (bytes - at).min(CHUNK_BYTES as u64);
        let part = &mut chunk[..len as usize];
        if let Err(error) = file.read_at(at, part) {
            // In the middle of a file there is no way to say more than that it ends.
            tracing::error!("the copy for client {} cannot be read: {error}", info.id);
            target.end(Vec::new());
            let (token, client) = (info.token, info.id);
            target.shared.handle(info.thread).send(ThreadMessage::Kill { token, client });
            return false;
        }
        at += len;
        if at == bytes && last == Last::End {
            tracing::info!("client {} has its copy: {bytes} bytes", info.id);
            target.end(part.to_vec());
            return true;
        }
        target.push(part);
        let mut pause = Duration::from_micros(250);
        loop {
            let taken = info.output_bytes.load(Relaxed).saturating_sub(taken_before);
            let unsent = info.pending_bytes.load(Relaxed) as u64;
            if at.saturating_sub(taken) < AHEAD_BYTES_MAX && unsent < AHEAD_BYTES_MAX {
                break;
            }
            if !target.is_there() {
                return false;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }
    true
}
