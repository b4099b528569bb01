//! The flows of one replica of ours: a connection for each lane of the stream, and what was sent on it.
//!
//! `flow_sync` opens them, the thread of `feed` sends records, a thread of its own the blocks of a full sync. Frames are
//! those of `darter_replica::frame`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use darter_replica::frame::{BODY_BYTES_MAX, BodySum, FrameHead, FrameKind, HEAD_BYTES, MORE};
use darter_replica::history::ReplId;
use darter_replica::records::Records;
use darter_replica::shared_bytes::SharedBytes;

use crate::clients::ClientInfo;
use crate::clock::unix_ms;
use crate::shared::{Shared, ThreadMessage};

/// Bytes of records that a flow may have unsent,
const RECORDS_AHEAD_MAX: u64 = 8 << 20;
/// and of blocks with them: records go first.
const BLOCKS_AHEAD_MAX: u64 = 2 << 20;

/// The flows of a replica.
pub struct Flows {
    /// What its connections name; nobody guesses it.
    pub session: ReplId,
    /// What it has said last.
    pub said: ReplicaProgress,
    /// It has what comes before its first records; else it gets that first.
    pub is_partial: bool,
    /// It gets its records from the journal's files: nothing in memory is kept for it.
    pub is_from_disk: bool,
    lanes: Vec<Flow>,
}

/// How far a replica of ours is, by sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaProgress {
    /// It has received every record below.
    pub dense: u64,
    /// It has applied every record below.
    pub applied: u64,
    /// Its disk has every record below.
    pub synced: u64,
}

/// A connection.
struct Flow {
    pipe: Option<FlowPipe>,
    // the chunk that is sent next
    cursor: u64,
}

/// A connection that takes frames, and how much it was given.
#[derive(Clone)]
pub struct FlowPipe {
    /// Its client.
    pub info: Arc<ClientInfo>,
    sent_before: u64,
    pushed: u64,
}

impl FlowPipe {
    fn new(info: Arc<ClientInfo>) -> FlowPipe {
        let sent_before = info.output_bytes.load(Relaxed);
        FlowPipe { info, sent_before, pushed: 0 }
    }

    /// Bytes that it was given and has not sent, of all who give it some.
    fn unsent(&self) -> u64 {
        let sent = self.info.output_bytes.load(Relaxed).saturating_sub(self.sent_before);
        self.pushed.saturating_sub(sent).max(self.info.pending_bytes.load(Relaxed) as u64)
    }

    /// Returns true while few bytes wait there, so that more records may be sent.
    pub fn has_room_for_records(&self) -> bool {
        self.unsent() < RECORDS_AHEAD_MAX
    }

    /// Whether a block may be sent.
    pub fn has_room_for_blocks(&self) -> bool {
        self.unsent() < BLOCKS_AHEAD_MAX
    }

    fn push(&mut self, shared: &Shared, head: Box<[u8]>, body: SharedBytes) {
        self.pushed += (head.len() + body.len()) as u64;
        let (token, client) = (self.info.token, self.info.id);
        shared.handle(self.info.thread).send(ThreadMessage::Frame { token, client, head, body });
    }

    /// Sends a frame whose body is shared: no byte of it is copied here unless it is longer than a frame may be.
    pub fn send_shared(&mut self, shared: &Shared, kind: FrameKind, flow: u16, body: SharedBytes) {
        if body.len() > BODY_BYTES_MAX {
            return self.send(shared, kind, flow, &body);
        }
        let sum = BodySum::of(&body);
        let mut head = head_of(shared, kind, flow);
        head.len = body.len() as u32;
        send_summed(self, shared, head, &sum, body);
    }

    /// Sends a frame.
    pub fn send(&mut self, shared: &Shared, kind: FrameKind, flow: u16, body: &[u8]) {
        let pieces = body.len().div_ceil(BODY_BYTES_MAX).max(1);
        for at in 0..pieces {
            let piece = body.chunks(BODY_BYTES_MAX).nth(at).unwrap_or_default();
            let mut head = head_of(shared, kind, flow);
            head.flags = if at + 1 < pieces { MORE } else { 0 };
            head.len = piece.len() as u32;
            send_summed(self, shared, head, &BodySum::of(piece), piece.to_vec().into());
        }
    }
}

fn head_of(shared: &Shared, kind: FrameKind, flow: u16) -> FrameHead {
    let (term, committed) = (shared.term(), shared.committed_stream());
    FrameHead { kind, flags: 0, flow, len: 0, term, committed, clock_ms: unix_ms() }
}

impl Flows {
    /// Flows that begin at these chunks, one for each lane; nobody is there yet.
    pub fn new(session: ReplId, cursors: Vec<u64>) -> Flows {
        let lanes = cursors.into_iter().map(|cursor| Flow { pipe: None, cursor }).collect();
        Flows { session, said: ReplicaProgress::default(), is_partial: false, is_from_disk: false, lanes }
    }

    /// Flows for a replica that gets its records from the journal's files first.
    pub fn from_disk(session: ReplId, lanes: usize) -> Flows {
        let flows = Flows::new(session, vec![u64::MAX; lanes]);
        Flows { is_partial: true, is_from_disk: true, ..flows }
    }

    /// Has these chunks and what follows stay in memory, while the replica gets what comes before them from files.
    pub fn keep_from(&mut self, cursors: Vec<u64>) {
        self.lanes.iter_mut().zip(cursors).for_each(|(flow, cursor)| flow.cursor = cursor);
    }

    /// Gets records from these chunks in memory on.
    pub fn begin_at(&mut self, cursors: Vec<u64>) {
        self.is_from_disk = false;
        self.keep_from(cursors);
    }

    /// Number of flows.
    pub fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Takes a connection for a flow; false: there is no such flow, or it has one.
    pub fn attach(&mut self, flow: usize, info: Arc<ClientInfo>) -> bool {
        match self.lanes.get_mut(flow) {
            Some(Flow { pipe: pipe @ None, .. }) => {
                *pipe = Some(FlowPipe::new(info));
                true
            }
            _ => false,
        }
    }

    /// Whether every flow has its connection.
    pub fn is_attached(&self) -> bool {
        self.lanes.iter().all(|flow| flow.pipe.is_some())
    }

    /// The connections.
    pub fn pipes(&self) -> impl Iterator<Item = &FlowPipe> {
        self.lanes.iter().filter_map(|flow| flow.pipe.as_ref())
    }

    /// Bytes that wait in its connections.
    pub fn unsent_bytes(&self) -> u64 {
        self.pipes().map(FlowPipe::unsent).sum()
    }

    /// Bytes that its connections have sent.
    pub fn sent_bytes(&self) -> u64 {
        self.pipes().map(|pipe| pipe.info.output_bytes.load(Relaxed).saturating_sub(pipe.sent_before)).sum()
    }

    /// The chunk of a lane that is sent next.
    pub fn cursor(&self, lane: usize) -> u64 {
        self.lanes.get(lane).map_or(0, |flow| flow.cursor)
    }

    /// Bytes of records that were not given to a connection.
    pub fn behind_bytes(&self, records: &Records) -> u64 {
        let cursors: Vec<u64> = self.lanes.iter().map(|flow| flow.cursor).collect();
        records.bytes_from(&cursors)
    }

    /// Gives connections what they lack; returns whether something is left. A lane that is full holds up no other: the replica
    /// may wait for what is in that one.
    pub fn send_records(&mut self, shared: &Shared, records: &Records) -> bool {
        if !self.is_attached() {
            return true;
        }
        if self.is_from_disk {
            return false;
        }
        let mut is_behind = false;
        for (lane, flow) in self.lanes.iter_mut().enumerate() {
            let Some(pipe) = &mut flow.pipe else { continue };
            while let Some(chunk) = records.chunk(lane, flow.cursor) {
                if pipe.unsent() >= RECORDS_AHEAD_MAX {
                    is_behind = true;
                    break;
                }
                flow.cursor += 1;
                if chunk.bytes.len() > BODY_BYTES_MAX {
                    pipe.send(shared, FrameKind::Records, lane as u16, &chunk.bytes);
                    continue;
                }
                let mut head = head_of(shared, FrameKind::Records, lane as u16);
                head.len = chunk.bytes.len() as u32;
                send_summed(pipe, shared, head, chunk.sum(), chunk.bytes.clone());
            }
        }
        is_behind
    }

    /// Says that this server is alive, and what its next record is.
    pub fn beat(&mut self, shared: &Shared, next: u64) {
        if let Some(pipe) = self.lanes.first_mut().and_then(|flow| flow.pipe.as_mut()) {
            pipe.send(shared, FrameKind::Heartbeat, 0, &next.to_le_bytes());
        }
    }
}

/// Sends a frame whose body is shared and summed already: no byte of it is copied here.
fn send_summed(pipe: &mut FlowPipe, shared: &Shared, head: FrameHead, sum: &BodySum, body: SharedBytes) {
    let mut out = Vec::with_capacity(HEAD_BYTES);
    head.write(sum, &mut out);
    pipe.push(shared, out.into(), body);
}
