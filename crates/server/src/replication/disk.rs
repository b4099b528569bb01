//! What a replica of ours lacks and memory no longer has, read from the journal's segments by a thread of its own.
//!
//! `flow_sync` begins it when a replica comes back, `feed` notes places of the stream in the journal, and replay finds those
//! of the run before (`track`). It never takes a shard, and holds no more than some MiB for a replica.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use darter_persist::files::Disk;
use darter_persist::journal::folder::{self, RecordsFrom};
use darter_persist::journal::record::{HEAD_BYTES, RecordDraft};
use darter_replica::form::Former;
use darter_replica::frame::FrameKind;

use super::ReplicationState;
use super::flows::FlowPipe;
use super::replicas::Replica;
use crate::clients::ClientInfo;
use crate::shared::{Shared, ThreadMessage};

/// A record of the journal, and where the stream stands before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPoint {
    /// Its sequence in the journal.
    pub journal: u64,
    /// Its sequence in the stream.
    pub stream: u64,
    /// Bytes of the RESP stream before it.
    pub offset: u64,
}

/// Places of the stream in the journal's files, oldest first.
#[derive(Debug, Default)]
pub struct DiskIndex {
    places: VecDeque<StreamPoint>,
    /// The journal itself tells about one: a start after a kill goes on there.
    pub is_noted: bool,
}

/// Bytes of the stream between two places.
const PLACES_APART: u64 = 256 << 10;
/// Places that are kept: those of 16 GiB.
const PLACES_MAX: usize = 64 << 10;

impl DiskIndex {
    /// Notes a place, unless the last one is near.
    pub fn note(&mut self, place: StreamPoint) {
        let is_near = |last: &StreamPoint| place.offset < last.offset.saturating_add(PLACES_APART);
        if self.places.back().is_some_and(is_near) {
            return;
        }
        if self.places.len() >= PLACES_MAX {
            self.places.pop_front();
        }
        self.places.push_back(place);
    }

    /// The last place at or before an offset.
    pub fn before(&self, offset: u64) -> Option<StreamPoint> {
        let after = self.places.partition_point(|place| place.offset <= offset);
        self.places.get(after.checked_sub(1)?).copied()
    }

    /// The first offset that is found, if a start after a kill finds it too.
    pub fn first_noted(&self) -> Option<u64> {
        self.places.front().filter(|_| self.is_noted).map(|place| place.offset)
    }

    /// Forgets the places before a sequence of the stream: what follows them cannot be read.
    fn forget_before(&mut self, stream: u64) {
        while self.places.front().is_some_and(|place| place.stream < stream) {
            self.places.pop_front();
        }
    }
}

/// A replica that comes back, and what it is answered.
pub struct DiskSync {
    /// The server.
    pub shared: &'static Shared,
    /// The connection that has asked.
    pub info: Arc<ClientInfo>,
    /// A place before what it lacks.
    pub place: StreamPoint,
    /// The offset that it has.
    pub offset: u64,
    /// The words of the answer behind its first: session, flows and history.
    pub answer: String,
}

/// Bytes of a frame of records.
const CHUNK_BYTES: usize = 256 << 10;
/// Time between two looks at a flow that is full, or at files that end.
const PAUSE: Duration = Duration::from_millis(2);
/// Looks at files that end before what memory has, after which a record counts as missing.
const LOOKS_MAX: u32 = 500;

/// Where the reader of a replica is.
struct DiskReader {
    records: RecordsFrom<Disk>,
    at: StreamPoint,
    former: Former,
}

impl DiskSync {
    /// Starts the thread.
    ///
    /// Errors: there can be no more threads.
    pub fn spawn(self) -> std::io::Result<()> {
        let body = move || {
            self.shared.snapshots.roam();
            self.run();
        };
        std::thread::Builder::new().name("darter-disk".to_owned()).spawn(body).map(drop)
    }

    fn run(self) {
        let reader = self.find();
        if let Err(why) = &reader {
            tracing::info!("client {} needs what follows byte {}: {why}", self.info.id, self.offset);
        }
        let Some(reader) = reader.ok() else { return self.give_everything() };
        let counts = &self.shared.replication.counts;
        let at = reader.at;
        let is_there = self.with_replica(|replica, _| {
            let (ip, port) = (replica.ip(), replica.port);
            tracing::info!(
                "replica {ip}:{port} continues at sequence {}, offset {} from disk",
                at.stream,
                at.offset
            );
        });
        if is_there.is_none() {
            return;
        }
        counts.partial.fetch_add(1, Relaxed);
        counts.partial_from_disk.fetch_add(1, Relaxed);
        self.say(&format!("+PARTIAL {} {}\r\n", self.answer, at.stream));
        if let Err(why) = self.send(reader) {
            self.with_replica(|replica, _| {
                tracing::warn!("replica {}:{} is dropped: {why}", replica.ip(), replica.port);
                replica.close(self.shared);
            });
            self.shared.replication.state().replicas.retain(|one| one.info.id != self.info.id);
        }
    }

    /// The record that the replica lacks first.
    fn find(&self) -> Result<DiskReader, String> {
        let mut reader = open(self.shared, self.place)?;
        while reader.at.offset < self.offset {
            let found = reader.next(|_, _, _| {})?;
            if !found {
                return Err("the journal's files do not go that far".to_owned());
            }
        }
        if reader.at.offset != self.offset {
            return Err("no change begins there".to_owned());
        }
        Ok(reader)
    }

    /// Sends records until memory has those that follow.
    fn send(&self, mut reader: DiskReader) -> Result<(), String> {
        let mut pipe = self.wait_for_flows()?;
        let (mut chunk, mut looks) = (Vec::new(), 0);
        loop {
            let mut found = true;
            while found && chunk.len() < CHUNK_BYTES {
                let stream = reader.at.stream;
                found = reader.next(|clock_ms, body, _| {
                    let draft = RecordDraft::begin(&mut chunk);
                    chunk.extend_from_slice(body);
                    draft.end(&mut chunk, stream, clock_ms);
                })?;
            }
            if chunk.is_empty() {
                looks += 1;
                if looks > LOOKS_MAX {
                    self.shared.replication.state().disk.forget_before(reader.at.stream + 1);
                    return Err(format!("it needs record {}, which is not in the files", reader.at.stream));
                }
            } else {
                looks = 0;
                while !pipe.has_room_for_records() {
                    std::thread::sleep(PAUSE);
                    self.with_replica(|_, _| {}).ok_or(GONE)?;
                }
                pipe.send(self.shared, FrameKind::Records, 0, &chunk);
                chunk.clear();
            }
            if self.go_on_from_memory(reader.at.stream).ok_or(GONE)? {
                self.shared.journal.intake.poke();
                return Ok(());
            }
            if !found {
                // More has come since the files were opened. What comes from here on stays in memory, or this would never end
                // under load: to open a long file again takes longer than memory lasts.
                self.keep_memory().ok_or(GONE)?;
                std::thread::sleep(PAUSE);
                reader = open(self.shared, reader.at)?;
            }
        }
    }

    /// The connection of the first flow, as soon as all are there.
    fn wait_for_flows(&self) -> Result<FlowPipe, String> {
        loop {
            let pipe = self.with_replica(|replica, _| {
                let flows = replica.flows.as_ref().filter(|flows| flows.is_attached());
                flows.and_then(|flows| flows.pipes().next().cloned())
            });
            if let Some(pipe) = pipe.ok_or(GONE)? {
                return Ok(pipe);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Has the replica get what follows from memory, if it is there. Returns whether it is; `None`: the replica has gone.
    fn go_on_from_memory(&self, sequence: u64) -> Option<bool> {
        let mut state = self.shared.replication.state();
        let ReplicationState { replicas, records, .. } = &mut *state;
        let replica = replicas.iter_mut().find(|replica| replica.info.id == self.info.id)?;
        let is_there = records.has(sequence);
        if is_there && let Some(flows) = &mut replica.flows {
            flows.begin_at(records.cursors(sequence));
        }
        Some(is_there)
    }

    /// Has all that is in memory stay there for the replica; `None`: it has gone.
    fn keep_memory(&self) -> Option<()> {
        let mut state = self.shared.replication.state();
        let ReplicationState { replicas, records, .. } = &mut *state;
        let replica = replicas.iter_mut().find(|replica| replica.info.id == self.info.id)?;
        let flows = replica.flows.as_mut().filter(|flows| flows.cursor(0) == u64::MAX);
        if let Some(flows) = flows {
            flows.keep_from(records.cursors(records.first()));
        }
        Some(())
    }

    /// Has the replica get a full sync, because the files lack a record that it needs.
    fn give_everything(&self) {
        let counts = &self.shared.replication.counts;
        let is_there = self.with_replica(|replica, ends| {
            if let Some(flows) = &mut replica.flows {
                flows.begin_at(ends);
                flows.is_partial = false;
            }
            replica.acked = None;
        });
        if is_there.is_some() {
            counts.partial_refused.fetch_add(1, Relaxed);
            counts.full.fetch_add(1, Relaxed);
            self.say(&format!("+FULL {}\r\n", self.answer));
        }
    }

    /// Does something about the replica, and the chunks behind all that is in memory; `None`: it has gone.
    fn with_replica<T>(&self, act: impl FnOnce(&mut Replica, Vec<u64>) -> T) -> Option<T> {
        let mut state = self.shared.replication.state();
        let ends = state.records.ends();
        let replica = state.replicas.iter_mut().find(|replica| replica.info.id == self.info.id);
        replica.map(|replica| act(replica, ends))
    }

    fn say(&self, line: &str) {
        let (token, client) = (self.info.token, self.info.id);
        let bytes = line.as_bytes().into();
        self.shared.handle(self.info.thread).send(ThreadMessage::Push { token, client, bytes });
    }
}

const GONE: &str = "it has gone";

/// Opens the journal's files at a place.
fn open(shared: &Shared, at: StreamPoint) -> Result<DiskReader, String> {
    let dir: PathBuf = shared.journal.folder().ok_or("there is no journal")?;
    let records = folder::records_from(&Disk, &dir, at.journal).map_err(|error| error.to_string())?;
    Ok(DiskReader { records, at, former: Former::default() })
}

impl DiskReader {
    /// Shows `take` the clock, the body and the sequence of the next record; false: the files have no more.
    fn next(&mut self, take: impl FnOnce(u64, &[u8], u64)) -> Result<bool, String> {
        let DiskReader { records, at, former } = self;
        let Some((head, body)) = records.next_record().map_err(|error| error.to_string())? else {
            return Ok(false);
        };
        // A record that has no form has no bytes, here and everywhere.
        let len = former.commands(body, head.clock_ms, |_| {}).unwrap_or(0);
        take(head.clock_ms, body, head.sequence);
        *at = StreamPoint { journal: head.sequence + 1, stream: at.stream + 1, offset: at.offset + len };
        Ok(true)
    }
}

const _: () = assert!(CHUNK_BYTES > HEAD_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_before_an_offset_is_found() {
        let mut index = DiskIndex::default();
        assert_eq!(index.before(7), None);
        let place = |n: u64| StreamPoint { journal: 10 + n, stream: n, offset: 100 + n * PLACES_APART };
        for n in 0..5 {
            index.note(place(n));
            index.note(StreamPoint { offset: place(n).offset + 1, ..place(n) });
        }
        assert_eq!(index.places.len(), 5, "no two are near each other");
        assert_eq!((index.before(99), index.before(100)), (None, Some(place(0))));
        assert_eq!(index.before(place(3).offset - 1), Some(place(2)));
        assert_eq!(index.before(u64::MAX), Some(place(4)));
        index.forget_before(3);
        assert_eq!((index.before(place(2).offset), index.before(u64::MAX)), (None, Some(place(4))));
    }
}
