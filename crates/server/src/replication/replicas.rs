//! Replicas of this server, and how far each is.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use darter_replica::history::ReplId;

use super::flows::{Flows, ReplicaProgress};
use super::{Replication, ReplicationState};
use crate::clients::ClientInfo;
use crate::clock::unix_ms;
use crate::shared::{Shared, ThreadMessage};
use crate::sync::lock;
use darter_config::{Live, OutputLimit};

/// How far a replica is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaStage {
    /// Its snapshot is made.
    Waits,
    /// It gets its snapshot.
    Receives,
    /// It gets the stream.
    Online,
}

/// A replica of this server.
pub struct Replica {
    /// Its connection.
    pub info: Arc<ClientInfo>,
    /// The port it listens on.
    pub port: u16,
    /// The address it wants to be known by.
    pub address: Option<String>,
    /// How far it is.
    pub stage: ReplicaStage,
    /// The first byte of the stream that it was not sent.
    pub cursor: u64,
    /// What it has applied.
    pub acked: Option<u64>,
    /// What it has on disk.
    pub synced: u64,
    /// When it last said so, Unix ms.
    pub acked_ms: u64,
    /// For how long it had lacked something then, in milliseconds.
    pub lag_ms: u64,
    // bytes given to its thread, and what the connection had sent before
    pushed: u64,
    sent_before: u64,
    over_soft_since: Option<Instant>,
    /// Its snapshot, while it gets one.
    pub snapshot: Option<Snapshot>,
    /// Which start of a server it is, if it is one of ours.
    pub boot: Option<ReplId>,
    /// The connections of one of ours; others get RESP on the one that they came by.
    pub flows: Option<Flows>,
}

/// A snapshot on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Its bytes.
    pub total: u64,
    began: Instant,
    told: Instant,
    sent_before: u64,
}

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SyncProgress {
    /// Bytes that are there.
    pub done: u64,
    /// Bytes in all, 0 = not known.
    pub total: u64,
    /// Bytes a second so far.
    pub bytes_per_s: u64,
    /// Seconds left at that rate, if both are known.
    pub left_s: Option<u64>,
}

impl SyncProgress {
    /// Of a transfer that has taken so long.
    pub fn new(done: u64, total: u64, took: Duration) -> SyncProgress {
        let millis = took.as_millis().max(1);
        let bytes_per_s = (u128::from(done) * 1000 / millis) as u64;
        let left = (bytes_per_s > 0 && total > 0).then(|| total.saturating_sub(done) / bytes_per_s.max(1));
        SyncProgress { done, total, bytes_per_s, left_s: left }
    }
}

impl std::fmt::Display for SyncProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(f, "{:.1}", mib(self.done))?;
        if self.total > 0 {
            write!(
                f,
                " of {:.1} MiB ({:.0} %)",
                mib(self.total),
                self.done as f64 * 100.0 / self.total as f64
            )?;
        } else {
            write!(f, " MiB")?;
        }
        write!(f, ", {:.1} MiB/s", mib(self.bytes_per_s))?;
        self.left_s.map_or(Ok(()), |left_s| write!(f, ", {left_s} s left"))
    }
}

/// Time between two lines of progress in the log.
pub const TELL_EVERY: Duration = Duration::from_secs(5);
/// Bytes given to a replica's thread at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes given to it that the replica has not taken.
const AHEAD_BYTES_MAX: u64 = 1 << 20;

impl Replica {
    /// A replica that comes by this connection.
    pub fn new(
        info: Arc<ClientInfo>,
        port: u16,
        address: Option<String>,
        stage: ReplicaStage,
        cursor: u64,
    ) -> Replica {
        let sent_before = info.output_bytes.load(Relaxed);
        Replica {
            info,
            port,
            address,
            stage,
            cursor,
            acked: None,
            synced: 0,
            acked_ms: unix_ms(),
            lag_ms: 0,
            pushed: 0,
            sent_before,
            over_soft_since: None,
            snapshot: None,
            boot: None,
            flows: None,
        }
    }

    /// Begins to get the stream from its cursor on.
    pub fn go_online(&mut self) {
        self.stage = ReplicaStage::Online;
        self.snapshot = None;
        self.acked_ms = unix_ms();
        self.pushed = 0;
        self.sent_before = self.info.output_bytes.load(Relaxed);
    }

    /// Begins to get a snapshot of so many bytes.
    pub fn begin_snapshot(&mut self, total: u64) {
        let now = Instant::now();
        let sent_before = self.sent_bytes();
        self.snapshot = Some(Snapshot { total, began: now, told: now, sent_before });
    }

    /// How far its snapshot is.
    pub fn progress(&self) -> Option<SyncProgress> {
        let snapshot = self.snapshot.as_ref()?;
        let sent = self.sent_bytes().saturating_sub(snapshot.sent_before);
        let sent = if snapshot.total > 0 { sent.min(snapshot.total) } else { sent };
        Some(SyncProgress::new(sent, snapshot.total, snapshot.began.elapsed()))
    }

    /// Bytes that its connections have sent.
    fn sent_bytes(&self) -> u64 {
        self.flows.as_ref().map_or_else(|| self.info.output_bytes.load(Relaxed), Flows::sent_bytes)
    }

    /// Returns true if it follows and has said that it has everything before `offset`: what it was sent it may not have
    /// loaded yet.
    pub fn has(&self, offset: u64) -> bool {
        self.stage == ReplicaStage::Online && self.acked.is_some_and(|acked| acked >= offset)
    }

    /// The offset that it has acknowledged; 0 before it has said any.
    pub fn acked_offset(&self) -> u64 {
        self.acked.unwrap_or(0)
    }

    /// Bytes that wait in its connections.
    pub fn unsent_bytes(&self) -> u64 {
        let own = self.info.pending_bytes.load(Relaxed) as u64;
        own + self.flows.as_ref().map_or(0, Flows::unsent_bytes)
    }

    /// The address that others reach it by.
    pub fn ip(&self) -> String {
        let peer = || match self.info.peer.parse::<std::net::SocketAddr>() {
            Ok(at) => at.ip().to_canonical().to_string(),
            Err(_) => self.info.peer.clone(),
        };
        self.address.clone().unwrap_or_else(peer)
    }

    /// Whether it has acknowledged something within `lag_s` seconds.
    pub fn is_good(&self, now_ms: u64, lag_s: u64) -> bool {
        self.stage == ReplicaStage::Online && now_ms.saturating_sub(self.acked_ms) / 1000 <= lag_s
    }

    fn has_room(&self) -> bool {
        let taken = self.info.output_bytes.load(Relaxed).saturating_sub(self.sent_before);
        let unsent = self.info.pending_bytes.load(Relaxed) as u64;
        self.pushed.saturating_sub(taken) < AHEAD_BYTES_MAX && unsent < AHEAD_BYTES_MAX
    }

    fn push(&mut self, shared: &Shared, bytes: &[u8]) {
        self.pushed += bytes.len() as u64;
        self.cursor += bytes.len() as u64;
        let (token, client) = (self.info.token, self.info.id);
        shared.handle(self.info.thread).send(ThreadMessage::Push { token, client, bytes: bytes.into() });
    }

    /// Closes its connections.
    pub fn close(&self, shared: &Shared) {
        let flows = self.flows.iter().flat_map(Flows::pipes).map(|pipe| &pipe.info);
        for info in std::iter::once(&self.info).chain(flows) {
            let (token, client) = (info.token, info.id);
            shared.handle(info.thread).send(ThreadMessage::Kill { token, client });
        }
    }

    /// Why it is too slow, if it is.
    fn slowness(&mut self, behind: u64, limit: OutputLimit, backlog_bytes: u64) -> Option<String> {
        // What the backlog keeps anyway is no burden, as in Redis.
        if limit.hard_bytes != 0 && behind > limit.hard_bytes.max(backlog_bytes) {
            return Some(format!("{behind} bytes wait for it, more than client-output-buffer-limit lets"));
        }
        if limit.soft_bytes == 0 || behind <= limit.soft_bytes.max(backlog_bytes) {
            self.over_soft_since = None;
            return None;
        }
        let since = *self.over_soft_since.get_or_insert_with(Instant::now);
        (since.elapsed() > Duration::from_secs(limit.soft_s))
            .then(|| format!("{behind} bytes wait for it for too long"))
    }
}

impl ReplicationState {
    /// Gives replicas what has come; returns whether one of them has to be looked at again soon.
    pub fn distribute(&mut self, shared: &Shared) -> bool {
        let mut is_behind = false;
        for replica in &mut self.replicas {
            if let Some(flows) = &mut replica.flows {
                // A full sync too has records go first.
                is_behind |= flows.is_attached() && flows.send_records(shared, &self.records);
                continue;
            }
            if replica.stage != ReplicaStage::Online {
                continue;
            }
            while replica.cursor < self.backlog.end() && replica.has_room() {
                let bytes = self.backlog.read(replica.cursor, CHUNK_BYTES);
                if bytes.is_empty() {
                    break;
                }
                replica.push(shared, &bytes);
            }
            is_behind |= replica.cursor < self.backlog.end();
        }
        is_behind
    }

    /// Forgets bytes that nobody needs any more.
    pub fn trim(&mut self, len_max: u64) {
        let foreign = self.replicas.iter().filter(|replica| replica.flows.is_none());
        let needed = foreign.map(|replica| replica.cursor).min();
        self.backlog.trim(len_max, needed.unwrap_or(u64::MAX));
        let flows = || self.replicas.iter().filter_map(|replica| replica.flows.as_ref());
        self.records.trim(len_max, |lane| flows().map(|flows| flows.cursor(lane)).min().unwrap_or(u64::MAX));
    }

    /// Closes those for whom too much waits.
    pub fn drop_slow(&mut self, shared: &Shared, live: &Live) {
        let (end, backlog_bytes) = (self.backlog.end(), live.replication.backlog_bytes);
        let records = &self.records;
        self.replicas.retain_mut(|replica| {
            let behind = match &replica.flows {
                Some(flows) => flows.behind_bytes(records),
                None => end.saturating_sub(replica.cursor),
            };
            let why = replica.slowness(behind, live.output_limits.replica, backlog_bytes);
            if let Some(why) = &why {
                shared.replication.counts.dropped_slow.fetch_add(1, Relaxed);
                tracing::warn!("replica {}:{} is dropped: {why}", replica.ip(), replica.port);
                replica.close(shared);
            }
            why.is_none()
        });
    }

    /// Forgets those who have gone, and closes those who are silent.
    pub fn look_after(&mut self, shared: &Shared, now_ms: u64) {
        let timeout_s = shared.settings.live().replication.timeout_s;
        let mut gone = Vec::new();
        let clients = lock(&shared.clients);
        self.replicas.retain_mut(|replica| {
            let is_there = |info: &ClientInfo| clients.contains_key(&info.id);
            let has_flows = replica.flows.iter().flat_map(Flows::pipes).all(|pipe| is_there(&pipe.info));
            if !is_there(&replica.info) || !has_flows {
                tracing::info!("replica {}:{} has gone", replica.ip(), replica.port);
                gone.push((replica.info.clone(), replica.flows.take()));
                return false;
            }
            let silence_s = now_ms.saturating_sub(replica.acked_ms) / 1000;
            let progress = replica.progress();
            let (ip, port) = (replica.ip(), replica.port);
            if let (Some(snapshot), Some(progress)) = (&mut replica.snapshot, progress)
                && snapshot.told.elapsed() >= TELL_EVERY
            {
                snapshot.told = Instant::now();
                tracing::info!("replica {ip}:{port} gets its snapshot: {progress}");
            }
            // One of ours that gets a full sync has told nothing; one whose flows do not come never will.
            let is_expected = match &replica.flows {
                Some(flows) => !flows.is_attached() || replica.stage == ReplicaStage::Online,
                None => replica.stage == ReplicaStage::Online,
            };
            let is_silent = is_expected && silence_s > timeout_s;
            if is_silent {
                shared.replication.counts.dropped_silent.fetch_add(1, Relaxed);
                tracing::warn!("replica {ip}:{port} is dropped: it is silent for {silence_s} s");
                replica.close(shared);
            }
            !is_silent
        });
        drop(clients);
        for (info, flows) in gone {
            for info in
                std::iter::once(&info).chain(flows.iter().flat_map(Flows::pipes).map(|pipe| &pipe.info))
            {
                let (token, client) = (info.token, info.id);
                shared.handle(info.thread).send(ThreadMessage::Kill { token, client });
            }
        }
        self.beat(shared);
    }

    /// Says to those of ours that this server is alive, and what is committed.
    pub fn beat(&mut self, shared: &Shared) {
        let next = self.records.next();
        self.replicas
            .iter_mut()
            .filter_map(|one| one.flows.as_mut())
            .for_each(|flows| flows.beat(shared, next));
    }

    /// Connections of all who follow this server.
    pub fn connections(&self) -> usize {
        let flows = |replica: &Replica| replica.flows.as_ref().map_or(0, |flows| flows.pipes().count());
        self.replicas.iter().map(|replica| 1 + flows(replica)).sum()
    }

    /// Closes the connections of all who follow this server; they come back.
    pub fn drop_replicas(&mut self, shared: &Shared) {
        self.replicas.drain(..).for_each(|replica| replica.close(shared));
    }
}

impl Replication {
    /// Counts the replicas that writes may count on: those that have acknowledged something within `lag_s` seconds.
    pub(super) fn count_good(&self, state: &ReplicationState, lag_s: u64) {
        let now_ms = unix_ms();
        let good = state.replicas.iter().filter(|replica| replica.is_good(now_ms, lag_s)).count();
        self.good_replicas.store(good as u32, Relaxed);
    }

    /// As [`Replication::count_good`], by the settings as they are now.
    pub fn recount_good(&self, shared: &Shared) {
        self.count_good(&self.state(), shared.settings.live().replication.max_lag_s);
    }

    /// Notes what a replica of ours says, by sequences.
    pub fn note_said(&self, shared: &Shared, client: u64, said: ReplicaProgress) {
        let mut state = self.state();
        let replica = state.replicas.iter_mut().find(|replica| replica.info.id == client);
        let Some(replica) = replica else { return };
        if let Some(flows) = &mut replica.flows {
            flows.said = said;
        }
        let boot = replica.boot.filter(|_| replica.stage == ReplicaStage::Online);
        drop(state);
        if let (Some(group), Some(boot)) = (&shared.group, boot) {
            group.note_acked(shared, &boot, &said);
        }
    }

    /// Notes what a replica says it has applied, and has on disk.
    pub fn note_ack(&self, shared: &Shared, client: u64, offset: u64, synced: Option<u64>) {
        let mut state = self.state();
        let now_ms = unix_ms();
        let lag_ms = state.lag_ms(offset, now_ms);
        let Some(replica) = state.replicas.iter_mut().find(|replica| replica.info.id == client) else {
            return;
        };
        replica.acked = replica.acked.max(Some(offset));
        replica.synced = replica.synced.max(synced.unwrap_or(0));
        (replica.acked_ms, replica.lag_ms) = (now_ms, lag_ms);
        self.count_good(&state, shared.settings.live().replication.max_lag_s);
        drop(state);
        if self.has_waits() {
            shared.journal.intake.poke();
        }
    }
}
