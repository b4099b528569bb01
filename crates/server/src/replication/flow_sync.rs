//! A replica of ours comes: DARTER HELLO, SYNC and FLOW, and the full sync that some of them need.
//!
//! The connection that has said SYNC is the replica's for all else: its acknowledgements come there, and when it goes the
//! flows go. A full sync is a snapshot whose blocks go to the flows as they are made. What a flow does not take at once
//! goes to a file without a name, so that neither the cut nor any writer waits for a slow replica.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use darter_command::Fault;
use darter_persist::native;
use darter_persist::storage::name::NameFormat;
use darter_persist::storage::{NewFile, Spool};
use darter_replica::frame::{FrameKind, SyncEnd};
use darter_replica::shared_bytes::SharedBytes;
use darter_wire::Reply;

use super::disk::DiskSync;
use super::flows::{FlowPipe, Flows};
use super::new_id;
use super::replicas::{Replica, ReplicaStage};
use crate::pubsub;
use crate::shared::Shared;
use crate::snapshot;
use crate::snapshot::copy::{self, CopyWish};
use crate::snapshot::run::{Purpose, SnapshotOrder};
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// Version of the conversation.
const VERSION: i64 = 1;
/// Blocks in memory that no flow has taken,
const BLOCKS_BYTES_MAX: usize = 4 << 20;
/// and keys on their way into blocks: walkers rest at half of it (`snapshot::pipe`), so what goes beyond is of changes.
const PUSHED_BYTES_MAX: u64 = 16 << 20;

/// Answers DARTER HELLO.
///
/// Errors: another version, or this server cannot serve flows now.
pub fn hello(shared: &Shared, version: i64, reply: &mut Reply<'_>) -> Result<(), Fault> {
    if version != VERSION {
        return Err(Fault::text("ERR this version of flows is not known here"));
    }
    let replication = &shared.replication;
    let state = replication.state();
    if replication.is_replica() && !(state.knows_sequences && replication.link_is_up()) {
        return Err(Fault::text("ERR this server follows a master without flows, or none that is up"));
    }
    reply.array(6);
    reply.int(VERSION);
    reply.bulk(replication.boot.as_str().as_bytes());
    reply.bulk(state.history.id.as_str().as_bytes());
    reply.int(i64::try_from(shared.term()).unwrap_or(i64::MAX));
    reply.int(i64::try_from(state.records.next()).unwrap_or(i64::MAX));
    reply.int_len(lanes(shared, &state.records));
    Ok(())
}

fn lanes(shared: &Shared, records: &darter_replica::records::Records) -> usize {
    let own = if shared.replication.is_replica() { 1 } else { shared.handles.len() + 1 };
    records.lanes().max(own)
}

/// Answers DARTER SYNC of the client `id`: what follows byte `next` - 1 of a history, or everything. Its flows are to come.
///
/// Errors: this server has nothing to give.
pub fn begin(
    local: &mut ThreadState,
    id: u64,
    wish: &CopyWish,
    (history, next): (&[u8], i64),
) -> Result<Vec<u8>, Fault> {
    let shared = local.shared;
    let replication = &shared.replication;
    if replication.is_replica() && !replication.link_is_up() {
        return Err(Fault::text("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    let info = lock(&shared.clients).get(&id).cloned().ok_or(Fault::text("ERR no such client"))?;
    if !replication.is_replica() {
        replication.begin_feeding(shared, 0);
        pubsub::listen(local);
    }
    replication.start_feeder(shared);
    replication.feed_now(shared);
    let (session, address) = (new_id(), wish.address.clone().map(|address| address.to_string()));
    let mut state = replication.state();
    if !state.knows_sequences {
        return Err(Fault::text("ERR this server follows a master without flows"));
    }
    let lanes = lanes(shared, &state.records);
    state.records.widen(lanes);
    let offset = u64::try_from(next).ok().and_then(|next| next.checked_sub(1));
    let is_known = offset.is_some_and(|offset| state.history.covers(history, offset + 1));
    let from = offset.filter(|_| is_known).and_then(|offset| state.records.sequence_at(offset));
    if from.is_none() && is_known && offset.is_some_and(|offset| state.backlog.has(offset)) {
        return Err(Fault::text("ERR what it lacks is kept as RESP"));
    }
    let own = state.history.id;
    let place = offset.filter(|_| is_known && from.is_none() && !replication.is_replica());
    let place = place.filter(|offset| *offset < state.offset());
    let place = place.and_then(|offset| Some((offset, state.disk.before(offset)?)));
    let cursors = match from {
        Some(sequence) => state.records.cursors(sequence),
        None => state.records.ends(),
    };
    let mut replica = Replica::new(info.clone(), wish.port, address, ReplicaStage::Waits, 0);
    replica.acked = offset.filter(|_| from.is_some());
    replica.boot = wish.boot;
    let (ip, port) = (replica.ip(), replica.port);
    let mut flows = Flows::new(session, cursors);
    flows.is_partial = from.is_some();
    let count = flows.count();
    if let Some((offset, _)) = place {
        flows = Flows::from_disk(session, lanes);
        replica.acked = Some(offset);
    }
    replica.flows = Some(flows);
    state.replicas.push(replica);
    drop(state);
    info.is_replica.store(true, Relaxed);
    if let Some((offset, place)) = place {
        let answer = format!("{session} {count} {own}");
        return begin_from_disk(DiskSync { shared, info, place, offset, answer });
    }
    let line = match (from, offset) {
        (Some(sequence), Some(offset)) => {
            replication.counts.partial.fetch_add(1, Relaxed);
            tracing::info!("replica {ip}:{port} continues at sequence {sequence}, offset {offset}");
            format!("+PARTIAL {session} {count} {own} {sequence}\r\n")
        }
        _ => {
            if offset.is_some() {
                replication.counts.partial_refused.fetch_add(1, Relaxed);
                let history = history.escape_ascii();
                tracing::info!(
                    "replica {ip}:{port} asks for what follows byte {next} of {history}: not here"
                );
            }
            replication.counts.full.fetch_add(1, Relaxed);
            tracing::info!("replica {ip}:{port} gets everything");
            format!("+FULL {session} {count} {own}\r\n")
        }
    };
    Ok(line.into_bytes())
}

/// Has a replica served from the journal's files. It is answered when its place there is found.
///
/// Errors: there can be no more threads.
fn begin_from_disk(sync: DiskSync) -> Result<Vec<u8>, Fault> {
    let (shared, client) = (sync.shared, sync.info.id);
    let begun = sync.spawn();
    begun.map(|()| Vec::new()).map_err(|error| {
        shared.replication.state().replicas.retain(|one| one.info.id != client);
        Fault::Text(format!("ERR {error}").into())
    })
}

/// Answers DARTER FLOW: the client `id` is flow number `flow` of a session. With the last of them the sync begins.
///
/// Errors: nobody has such a session, or the flow is there; the full sync cannot begin.
pub fn attach(local: &mut ThreadState, id: u64, session: &[u8], flow: i64) -> Result<(), Fault> {
    let shared = local.shared;
    let unknown = || Fault::text("ERR no such session");
    let info = lock(&shared.clients).get(&id).cloned().ok_or_else(unknown)?;
    let (control, is_full) = {
        let mut state = shared.replication.state();
        let is_it = |flows: &Flows| flows.session.as_str().as_bytes() == session;
        let replica = state.replicas.iter_mut().find(|one| one.flows.as_ref().is_some_and(is_it));
        let replica = replica.ok_or_else(unknown)?;
        let Some(flows) = &mut replica.flows else { return Err(unknown()) };
        let flow = usize::try_from(flow).map_err(|_| unknown())?;
        if !flows.attach(flow, info.clone()) {
            return Err(unknown());
        }
        info.is_replica.store(true, Relaxed);
        info.is_flow.store(true, Relaxed);
        if !flows.is_attached() {
            return Ok(());
        }
        let is_full = !flows.is_partial;
        if !is_full {
            replica.go_online();
        }
        (replica.info.id, is_full)
    };
    shared.journal.intake.poke();
    if is_full {
        copy_all(local, control).inspect_err(|_| {
            let mut state = shared.replication.state();
            state
                .replicas
                .iter()
                .filter(|replica| replica.info.id == control)
                .for_each(|one| one.close(shared));
            state.replicas.retain(|replica| replica.info.id != control);
        })?;
    }
    Ok(())
}

/// Begins the full sync of the replica whose connection is `control`.
fn copy_all(local: &mut ThreadState, control: u64) -> Result<(), Fault> {
    let shared = local.shared;
    let pipes: Vec<FlowPipe> = {
        let state = shared.replication.state();
        let replica = state.replicas.iter().find(|replica| replica.info.id == control);
        replica.and_then(|one| one.flows.as_ref()).into_iter().flat_map(Flows::pipes).cloned().collect()
    };
    let blocks = Arc::new(OutgoingBlocks::default());
    let (tell, hear) = channel();
    let is_replica = shared.replication.is_replica();
    let at_cut = Box::new(move |local: &mut ThreadState| {
        let replication = &local.shared.replication;
        let end = local.shared.journal.end();
        match replication.stream_sequence(local.shared, end).filter(|_| !is_replica) {
            Some(sequence) => {
                let (offset_to, offset) = channel();
                replication.mark(local.shared, end, offset_to);
                let _ = tell.send((sequence, CutOffset::Made(offset)));
            }
            None => {
                // Batches of a master hold shards: between them this is the offset of the data.
                let state = replication.state();
                let _ = tell.send((state.records.next(), CutOffset::Known(state.offset())));
            }
        }
        local.shared.journal.intake.poke();
    });
    let persistence = &local.live.persistence;
    let temporary = std::env::temp_dir();
    let folder = if persistence.is_in_cloud() { temporary } else { persistence.dir.clone() };
    let (made, ended) = (blocks.clone(), blocks.clone());
    let order = SnapshotOrder {
        create: Box::new(move |_| {
            let (id, open) = ([0; 8], Vec::new());
            Ok(Box::new(BlockSink { shared, blocks: made, folder, id, open, open_len: 0 })
                as Box<dyn NewFile>)
        }),
        name: format!("a full sync for replica {control}"),
        format: NameFormat::Native,
        packs: false,
        has_checksum: true,
        bytes_per_s_max: 0,
        purpose: Purpose::Copy,
        at_cut: Some(at_cut),
        then: vec![Box::new(move |_, outcome| ended.end(outcome.as_ref().err().cloned()))],
    };
    snapshot::start_or_schedule(local, order)?;
    copy::spawn(move || Sending { shared, control, pipes, blocks }.run(&hear))
}

/// Where the offset of a cut comes from.
enum CutOffset {
    /// The stream tells it when it has come there.
    Made(Receiver<u64>),
    /// It is known.
    Known(u64),
}

/// Blocks on their way from the snapshot to the flows.
#[derive(Default)]
struct OutgoingBlocks {
    queue: Mutex<BlockQueue>,
    news: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct BlockQueue {
    // the file's id in front of each
    waiting: VecDeque<SharedBytes>,
    bytes: usize,
    // what was stored after them: lengths of blocks, and where the first begins
    stored: VecDeque<u64>,
    stored_at: u64,
    file: Option<(File, Spool)>,
    end: Option<Result<(), String>>,
    is_given_up: bool,
}

impl OutgoingBlocks {
    /// Takes a block. While many wait the snapshot goes no further; what changes push out ahead of it is stored.
    fn put(&self, shared: &Shared, block: SharedBytes, folder: &std::path::Path) -> io::Result<()> {
        let pushed_bytes = || shared.snapshots.current().map_or(0, |run| run.pipe.waiting_bytes());
        let mut queue = lock(&self.queue);
        while queue.bytes >= BLOCKS_BYTES_MAX
            && queue.stored.is_empty()
            && !queue.is_given_up
            && pushed_bytes() < PUSHED_BYTES_MAX
        {
            queue = match self.room.wait_timeout(queue, PAUSE_MAX) {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        if queue.is_given_up {
            return Err(io::Error::other("the replica has gone"));
        }
        if queue.bytes < BLOCKS_BYTES_MAX && queue.stored.is_empty() {
            queue.bytes += block.len();
            queue.waiting.push_back(block);
        } else {
            if queue.file.is_none() {
                let (spool, file) =
                    Spool::new(folder).map_err(|fault| io::Error::other(fault.to_string()))?;
                queue.file = Some((file, spool));
            }
            if let Some((_, spool)) = &mut queue.file {
                spool.write_all(&block)?;
            }
            queue.stored.push_back(block.len() as u64);
        }
        drop(queue);
        self.news.notify_one();
        Ok(())
    }

    fn end(&self, why_not: Option<String>) {
        lock(&self.queue).end = Some(why_not.map_or(Ok(()), Err));
        self.news.notify_one();
    }

    /// The next block, if there is one within a moment; `Ok(None)` with `is_over`: there will be none.
    fn take(&self) -> Result<NextBlock, String> {
        let mut queue = lock(&self.queue);
        if queue.waiting.is_empty() && queue.stored.is_empty() && queue.end.is_none() {
            queue = match self.news.wait_timeout(queue, LOOK) {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        if let Some(block) = queue.waiting.pop_front() {
            queue.bytes = queue.bytes.saturating_sub(block.len());
            drop(queue);
            self.room.notify_one();
            return Ok(NextBlock::Block(block));
        }
        if let Some(len) = queue.stored.pop_front() {
            let mut block = vec![0; usize::try_from(len).unwrap_or(0)];
            let at = queue.stored_at;
            if let Some((file, _)) = &queue.file {
                file.read_exact_at(&mut block, at).map_err(|error| error.to_string())?;
            }
            queue.stored_at += len;
            return Ok(NextBlock::Block(block.into()));
        }
        match &queue.end {
            Some(Err(why)) => Err(why.clone()),
            Some(Ok(())) => Ok(NextBlock::End),
            None => Ok(NextBlock::Nothing),
        }
    }
}

enum NextBlock {
    Block(SharedBytes),
    Nothing,
    End,
}

/// The file that the snapshot is written to: each block goes on its way, and nothing else.
struct BlockSink {
    shared: &'static Shared,
    blocks: Arc<OutgoingBlocks>,
    folder: std::path::PathBuf,
    // of the file, for the checksums of its blocks
    id: [u8; 8],
    // the id and what has come of a block, and its length with the id
    open: Vec<u8>,
    open_len: usize,
}

impl Write for BlockSink {
    /// Takes what the writer of snapshots writes at once: the header, a block or the rest of one, the trailer.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.open.is_empty() {
            if let Some(id) = native::id_of(bytes) {
                self.id = id.to_le_bytes();
            }
            let Some(len) = native::block_len(bytes) else { return Ok(bytes.len()) };
            // One copy from the snapshot to the kernel.
            self.open_len = self.id.len() + len;
            self.open = Vec::with_capacity(self.open_len);
            self.open.extend_from_slice(&self.id);
        }
        self.open.extend_from_slice(bytes);
        if self.open.len() >= self.open_len {
            let block = std::mem::take(&mut self.open);
            self.blocks.put(self.shared, block.into(), &self.folder)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for BlockSink {
    fn finish(self: Box<Self>) -> Result<(), darter_persist::storage::StorageFault> {
        Ok(())
    }
}

const LOOK: Duration = Duration::from_millis(100);
/// The longest pause between two looks at flows that are full.
const PAUSE_MAX: Duration = Duration::from_millis(1);

/// The thread of a full sync.
struct Sending {
    shared: &'static Shared,
    control: u64,
    pipes: Vec<FlowPipe>,
    blocks: Arc<OutgoingBlocks>,
}

impl Sending {
    fn run(mut self, hear: &Receiver<(u64, CutOffset)>) {
        let sent = self.send(hear);
        if let Err(why) = sent {
            lock(&self.blocks.queue).is_given_up = true;
            let mut state = self.shared.replication.state();
            if let Some(replica) = state.replicas.iter().find(|replica| replica.info.id == self.control) {
                tracing::error!("replica {}:{} gets no full sync: {why}", replica.ip(), replica.port);
                replica.close(self.shared);
            }
            state.replicas.retain(|replica| replica.info.id != self.control);
        }
    }

    fn send(&mut self, hear: &Receiver<(u64, CutOffset)>) -> Result<(), String> {
        let (shared, mut blocks, mut bytes) = (self.shared, 0, 0);
        self.note(|replica| {
            replica.stage = ReplicaStage::Receives;
            replica.begin_snapshot(0);
        })?;
        loop {
            match self.blocks.take()? {
                NextBlock::End => break,
                NextBlock::Nothing => self.note(|_| {})?,
                NextBlock::Block(block) => {
                    bytes += block.len() as u64;
                    let flow = self.flow_for(&block)?;
                    blocks += 1;
                    if let Some(pipe) = self.pipes.get_mut(flow) {
                        pipe.send_shared(shared, FrameKind::Block, flow as u16, block);
                    }
                }
            }
        }
        let (sequence, offset) = hear.recv().map_err(|_| "the cut was not made".to_owned())?;
        let offset = match offset {
            CutOffset::Known(offset) => offset,
            CutOffset::Made(hear) => hear.recv().map_err(|_| "the stream has ended".to_owned())?,
        };
        let cut = SyncEnd { blocks, sequence, offset };
        if let Some(pipe) = self.pipes.first_mut() {
            pipe.send(shared, FrameKind::Blocks, 0, &cut.to_bytes());
        }
        self.note(|replica| {
            // What it was sent it has loaded when it says so.
            replica.go_online();
            let (ip, port) = (replica.ip(), replica.port);
            tracing::info!(
                "replica {ip}:{port} was sent {blocks} blocks of {bytes} bytes, up to sequence {sequence}"
            );
        })?;
        shared.replication.recount_good(shared);
        shared.journal.intake.poke();
        Ok(())
    }

    /// The flow that takes a block next, as soon as there is one with room: those that are to be read in order go to the first.
    fn flow_for(&self, block: &[u8]) -> Result<usize, String> {
        let mut pause = Duration::from_micros(100);
        loop {
            let count = if native::is_ordered_block(block.get(8..).unwrap_or_default()) {
                1
            } else {
                self.pipes.len()
            };
            let free = self.pipes.iter().take(count).position(FlowPipe::has_room_for_blocks);
            if let Some(flow) = free {
                return Ok(flow);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            self.note(|_| {})?;
        }
    }

    /// Does something about the replica.
    ///
    /// Errors: it has gone.
    fn note(&self, act: impl FnOnce(&mut Replica)) -> Result<(), String> {
        let mut state = self.shared.replication.state();
        let found = state.replicas.iter_mut().find(|replica| replica.info.id == self.control);
        found.map(act).ok_or_else(|| "it has gone".to_owned())
    }
}
