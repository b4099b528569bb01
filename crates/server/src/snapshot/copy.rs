//! Copies for clients: what SYNC sends, an RDB file, at the pace of whoever reads it.
//!
//! The snapshot goes into a file without a name first, so that neither its cut nor anybody's writes wait for a slow
//! reader. A thread of its own then hands the file to the client's thread, some megabytes ahead of what the client has
//! taken, and the connection is closed behind it. This is for backups: nothing that changes later is sent.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use darter_command::Fault;
use darter_persist::ReadAt;
use darter_persist::file::{Options, Writer};
use darter_persist::storage::name::Format;
use darter_persist::storage::{NewFile, Spool};
use darter_wire::Reply;

use crate::clients::ClientCard;
use crate::core::{Core, unix_ms};
use crate::shared::{Mail, Shared};
use crate::worker::lock;

use super::run::{Order, Purpose, Run, Saved};
use super::{Refused, start};

/// What a client wants a copy of; a connection keeps it from REPLCONF to SYNC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wish {
    /// What is in it.
    pub contents: Contents,
    /// It said that it is a replica, which would want to hear of changes too.
    pub is_replica: bool,
    /// The copy is on its way.
    pub is_begun: bool,
}

/// What is in a copy.
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
struct Target {
    shared: &'static Shared,
    card: Arc<ClientCard>,
}

impl Target {
    fn is_there(&self) -> bool {
        lock(&self.shared.clients).contains_key(&self.card.id)
    }

    fn push(&self, bytes: &[u8]) {
        let (token, client) = (self.card.token, self.card.id);
        self.shared.door(self.card.thread).send(Mail::Push { token, client, bytes: bytes.into() });
    }

    /// The last that is sent: its connection is closed behind it.
    fn end(&self, reply: Vec<u8>) {
        let (token, client) = (self.card.token, self.card.id);
        self.shared.door(self.card.thread).send(Mail::Served { token, client, reply });
    }

    fn refuse(&self, why: &str) {
        tracing::error!("client {} gets no copy: {why}", self.card.id);
        let mut reply = Vec::new();
        Reply::new(&mut reply, false).error(format!("ERR {why}"));
        self.end(reply);
    }
}

/// Begins a copy for the client `id`, or has it wait for the snapshot under way. The caller holds no shard, and has the
/// client wait; its connection is closed after the copy or an error.
///
/// Errors: no file can be written, or too many copies wait.
pub fn begin(core: &mut Core, id: u64, contents: Contents) -> Result<(), Fault> {
    let shared = core.shared;
    let failed = |why: String| Fault::Text(format!("ERR {why}").into());
    let card = lock(&shared.clients).get(&id).cloned().ok_or_else(|| failed("no such client".into()))?;
    let persistence = &core.live.persistence;
    let temporary = std::env::temp_dir();
    let folder = if persistence.is_in_cloud() { &temporary } else { &persistence.dir };
    let (spool, file) = Spool::new(folder).map_err(|fault| failed(fault.to_string()))?;
    let target = Target { shared, card };
    if contents != Contents::All {
        let options = options(core.live.persistence.rdbcompression, core.live.persistence.rdbchecksum);
        return spawn(move || match write_functions(shared, spool, contents, options) {
            Ok(bytes) => send(&target, &file, bytes),
            Err(why) => target.refuse(&why),
        });
    }
    let (teller, told) = channel();
    let order = Order {
        create: Box::new(move |_| Ok(Box::new(spool))),
        name: format!("a copy for client {id}"),
        format: Format::Rdb,
        packs: persistence.rdbcompression,
        has_checksum: persistence.rdbchecksum,
        bytes_per_s_max: 0,
        purpose: Purpose::Copy,
        at_cut: None,
        then: vec![Box::new(move |_, outcome| drop(teller.send(outcome.clone())))],
    };
    let run = if shared.snapshots.current().is_some() {
        shared.snapshots.schedule(order).map_err(|_| failed("too many snapshots wait already".into()))?;
        None
    } else {
        Some(start(core, order).map_err(|refused| match refused {
            Refused::Busy => failed("another snapshot was begun, try again".into()),
            Refused::NoThread(error) => failed(error.to_string()),
        })?)
    };
    spawn(move || serve(&target, &file, run.as_deref(), &told))
}

fn spawn(body: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    let spawned = thread::Builder::new().name("darter-copy".to_owned()).spawn(body);
    spawned.map(drop).map_err(|error| Fault::Text(format!("ERR {error}").into()))
}

fn options(packs: bool, has_checksum: bool) -> Options {
    Options { format: Format::Rdb, packs, has_checksum, now_ms: unix_ms(), id: 0 }
}

/// Writes a copy without keys; returns its length in bytes.
fn write_functions(
    shared: &Shared,
    spool: Spool,
    contents: Contents,
    options: Options,
) -> Result<u64, String> {
    let write = || {
        let mut writer = Writer::new(spool, options)?;
        if contents == Contents::Functions {
            let libraries: Vec<_> = shared.scripts.libraries().iter().cloned().collect();
            libraries.iter().try_for_each(|library| writer.function(&library.source))?;
        }
        writer.finish()
    };
    let (spool, bytes) = write().map_err(|error: darter_persist::Error| error.to_string())?;
    Box::new(spool).finish().map_err(|fault| fault.to_string())?;
    Ok(bytes)
}

/// Waits for the snapshot and sends it.
fn serve(target: &Target, file: &File, run: Option<&Run>, told: &Receiver<Result<Saved, String>>) {
    loop {
        match told.recv_timeout(SIGN_OF_LIFE) {
            Ok(Ok(saved)) => return send(target, file, saved.bytes),
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

/// Sends `bytes` bytes of the file, as fast as the client takes them.
fn send(target: &Target, file: &File, bytes: u64) {
    let card = &target.card;
    let taken_before = card.output_bytes.load(Relaxed);
    target.push(format!("${bytes}\r\n").as_bytes());
    let (mut at, mut chunk) = (0, vec![0; CHUNK_BYTES]);
    while at < bytes {
        let len = (bytes - at).min(CHUNK_BYTES as u64);
        let part = &mut chunk[..len as usize];
        if let Err(error) = file.read_at(at, part) {
            // In the middle of a file there is no way to say more than that it ends.
            tracing::error!("the copy for client {} cannot be read: {error}", card.id);
            return target.end(Vec::new());
        }
        at += len;
        if at == bytes {
            tracing::info!("client {} has its copy: {bytes} bytes", card.id);
            return target.end(part.to_vec());
        }
        target.push(part);
        let mut pause = Duration::from_micros(250);
        loop {
            let taken = card.output_bytes.load(Relaxed).saturating_sub(taken_before);
            let unsent = card.pending_bytes.load(Relaxed) as u64;
            if at.saturating_sub(taken) < AHEAD_BYTES_MAX && unsent < AHEAD_BYTES_MAX {
                break;
            }
            if !target.is_there() {
                return;
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }
}
