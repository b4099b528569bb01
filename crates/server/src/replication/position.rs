//! Where the data stands in a history of changes, as snapshots and journals keep it: a server that starts from them goes on
//! by what it lacks.
//!
//! Snapshots hold it as Redis' do (`repl-id`, `repl-offset`, `repl-stream-db`). In a journal each batch of a master ends
//! with it, and a master's last record is one. Any other record makes it void: it tells of changes that the history lacks.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use darter_persist::journal::part;
use darter_replica::history::{History, ReplId};
use darter_replica::records::Records;

use super::track::FoundStream;
use super::{Replication, new_id};
use crate::engine::lease;
use crate::pubsub;
use crate::shared::Shared;
use crate::sync::lock;
use crate::thread_state::ThreadState;

/// A place in a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamPosition {
    /// Which history.
    pub id: ReplId,
    /// Bytes of its stream.
    pub offset: u64,
    /// The database that the stream has selected.
    pub db: usize,
}

/// Where a cut stands.
pub enum AtCut {
    /// That is known.
    Known(StreamPosition),
    /// The stream is made here, and tells its offset when it has come to the cut.
    Made(ReplId, Receiver<u64>),
}

/// Names of facts in snapshots: those of Redis.
const ID: &[u8] = b"repl-id";
const OFFSET: &[u8] = b"repl-offset";
const DB: &[u8] = b"repl-stream-db";
/// The stream is made within this time, or it has stopped.
const MADE: Duration = Duration::from_secs(10);

impl AtCut {
    /// The position; waits for the stream if need be.
    pub fn wait(self) -> Option<StreamPosition> {
        match self {
            AtCut::Known(position) => Some(position),
            AtCut::Made(id, hear) => {
                let offset = hear.recv_timeout(MADE).ok()?;
                Some(StreamPosition { id, offset, db: 0 })
            }
        }
    }
}

impl StreamPosition {
    /// As facts of a snapshot: names and texts.
    pub fn facts(&self) -> [(&'static [u8], Vec<u8>); 3] {
        [
            (DB, self.db.to_string().into_bytes()),
            (ID, self.id.as_str().as_bytes().to_vec()),
            (OFFSET, self.offset.to_string().into_bytes()),
        ]
    }
}

/// A position as it is read, fact by fact.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoundPosition {
    id: Option<ReplId>,
    offset: Option<u64>,
    db: usize,
}

impl FoundPosition {
    /// Takes a fact of a snapshot, if it is about this.
    pub fn take(&mut self, name: &[u8], value: &[u8]) {
        let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
        match name {
            ID => self.id = ReplId::parse(value),
            OFFSET => self.offset = number(),
            DB => self.db = number().and_then(|db| usize::try_from(db).ok()).unwrap_or(0),
            _ => {}
        }
    }

    /// The position, if all of it was there.
    pub fn position(&self) -> Option<StreamPosition> {
        let id = self.id.filter(|id| *id != ReplId::NONE)?;
        Some(StreamPosition { id, offset: self.offset?, db: self.db })
    }
}

impl From<StreamPosition> for FoundPosition {
    fn from(position: StreamPosition) -> FoundPosition {
        FoundPosition { id: Some(position.id), offset: Some(position.offset), db: position.db }
    }
}

impl Replication {
    /// Where the data stands at a cut; the caller holds all shards.
    pub fn position_at_cut(&self, local: &ThreadState) -> Option<AtCut> {
        let (id, position) = {
            let state = self.state();
            if !state.is_continuous || !state.has_backlog {
                return None;
            }
            let id = state.history.id;
            (id, StreamPosition { id, offset: state.offset(), db: state.db })
        };
        if self.is_replica() && !self.is_feeding() {
            // Batches hold shards: between them the offset is that of the data.
            return Some(AtCut::Known(position));
        }
        let (tell, hear) = channel();
        let is_made = self.mark(local.shared, local.shared.journal.end(), tell);
        local.shared.journal.intake.poke();
        is_made.then_some(AtCut::Made(id, hear))
    }

    /// Returns true if a start from `kept` goes on where replicas are now, or if there is no history to go on with. A replica
    /// asks its master for what is later.
    pub fn stands_at(&self, kept: Option<StreamPosition>) -> bool {
        let state = self.state();
        if !state.is_continuous || !state.has_backlog {
            return true;
        }
        kept.is_some_and(|kept| {
            kept.id == state.history.id && (self.is_replica() || kept.offset == state.offset())
        })
    }

    /// Notes in the journal where the data stands behind what is noted now. The caller has a record open.
    pub fn note_position(&self, local: &mut ThreadState, id: ReplId, offset: u64, db: usize) {
        let journal = &local.shared.journal;
        // Until there is a base of what was loaded, records are about something else.
        let id = if self.is_journal_whole(local.shared) { id } else { ReplId::NONE };
        local.journal.append(journal, 0, |out| {
            part::write_position(out, id.as_str().as_bytes(), offset, db);
        });
    }

    /// Notes that the data was loaded from elsewhere: the journal does not lead to it before it has a new base.
    pub fn note_loaded(&self, shared: &Shared) {
        self.loaded_generation.store(shared.journal.generation(), SeqCst);
    }

    /// Returns true if the journal leads to what is here.
    pub(super) fn is_journal_whole(&self, shared: &Shared) -> bool {
        shared.journal.base_generation() > self.loaded_generation.load(SeqCst)
    }

    /// Notes where a master's data stands, as the last record of its journal. No thread serves clients any more.
    pub fn note_end(&self, shared: &Shared) {
        let end = shared.journal.end();
        if !shared.journal.is_on() || !self.is_feeding() || !self.is_journal_whole(shared) {
            return;
        }
        let began = Instant::now();
        while self.is_feeding_before(end) {
            if began.elapsed() > MADE {
                return;
            }
            shared.journal.intake.poke();
            std::thread::sleep(Duration::from_millis(1));
        }
        let (id, offset) = {
            let state = self.state();
            (state.history.id, state.offset())
        };
        let fsync = shared.settings.live().persistence.appendfsync;
        shared.journal.note_alone(fsync, |out| {
            part::write_position(out, id.as_str().as_bytes(), offset, 0);
        });
    }

    /// Goes on where what was loaded at the start stands. A replica asks its master for what follows; a master begins a
    /// new history there, so that replicas that had no more than that go on. No client is served yet.
    pub fn resume(&self, shared: &'static Shared, position: StreamPosition) {
        let follows = shared.settings.live().may_follow();
        {
            let found = lock(&self.found).take();
            let is_it =
                |found: &FoundStream| found.history.id == position.id && found.end.offset == position.offset;
            let found = found.filter(is_it);
            let mut state = self.state();
            state.history = History::new(position.id);
            state.restart(position.offset);
            if let Some(found) = found {
                state.history = found.history;
                state.records = Records::new(found.end.stream, position.offset);
                if !follows {
                    state.knows_sequences = true;
                    state.disk = found.index;
                }
            }
            if let Some((next, kept)) = std::mem::take(&mut *lock(&self.received)).behind(&position) {
                state.records = Records::new(next, position.offset);
                state.knows_sequences = true;
                *lock(&self.uncommitted) = kept;
            }
            state.has_backlog = true;
            state.is_continuous = true;
            if follows {
                state.db = position.db;
            } else {
                state.history.turn(new_id(), position.offset);
            }
        }
        let selected = position.db;
        tracing::info!("the loaded data is at offset {} of history {}", position.offset, position.id);
        if follows {
            self.is_replica.store(true, Relaxed);
            self.keeps_dead.store(true, Relaxed);
        } else {
            self.begin_feeding(shared, selected);
        }
        let mut local = ThreadState::new(shared, 0);
        for cell in shared.cells {
            let mut held = lease::take_asleep(cell);
            pubsub::settle(&mut local, &mut held);
            lease::release_as_stranger(shared, held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_back() {
        let id = ReplId::parse(&[b'e'; 40]).expect("an id");
        let position = StreamPosition { id, offset: 42, db: 3 };
        let mut found = FoundPosition::default();
        assert_eq!(found.position(), None);
        for (name, value) in position.facts() {
            found.take(name, &value);
        }
        found.take(b"used-mem", b"7");
        assert_eq!(found.position(), Some(position));
        found.take(b"repl-offset", b"-1");
        assert_eq!(found.position(), None, "Redis says so when it has none");
        assert_eq!(FoundPosition::from(position).position(), Some(position));
    }
}
