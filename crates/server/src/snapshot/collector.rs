//! Writes the keys of one shard as entries, as its cut hands them out.

use std::sync::Arc;

use darter_persist::entry::{self, PartHead};
use darter_store::Record;
use darter_store::cut::{CutEntry, Keeper, PieceKeeper};

use super::pipe::PipedBatch;
use super::run::SnapshotRun;

/// A batch is sent when it is longer.
pub const BATCH_BYTES: usize = 256 << 10;

/// One shard's side of a snapshot.
pub struct Collector {
    run: Arc<SnapshotRun>,
    batch: PipedBatch,
}

impl Collector {
    /// Collects the keys of shard `shard` for `run`.
    pub fn new(run: Arc<SnapshotRun>, shard: u16) -> Collector {
        Collector { run, batch: PipedBatch { shard, ..PipedBatch::default() } }
    }

    fn send(&mut self) {
        if self.batch.entries == 0 {
            return;
        }
        self.run.count_keys(u64::from(self.batch.entries));
        let next = PipedBatch { db: self.batch.db, shard: self.batch.shard, ..PipedBatch::default() };
        let batch = std::mem::replace(&mut self.batch, next);
        self.batch.bytes = self.run.pipe.send(batch);
    }
}

impl Keeper for Collector {
    fn keep(&mut self, entry: CutEntry<'_>) {
        if self.batch.db as usize != entry.db || self.batch.bytes.len() >= BATCH_BYTES {
            self.send();
            self.batch.db = entry.db as u32;
        }
        if self.run.pipe.is_broken() {
            return;
        }
        self.batch.entries += 1;
        entry::write_body(entry.record, entry.value, &mut self.batch.bytes);
    }

    fn keep_in_pieces(
        &mut self,
        db: usize,
        record: Record<'_>,
        kind: u8,
        total: u64,
    ) -> Box<dyn PieceKeeper> {
        self.run.count_keys(1);
        let head = PartHead::new(record, kind, total);
        Box::new(CollectedPieces { run: self.run.clone(), db: db as u32, shard: self.batch.shard, head })
    }

    fn note_kept(&mut self, bytes: isize) {
        self.run.pipe.note_kept(bytes);
    }
}

/// The way of one large value's pieces.
struct CollectedPieces {
    run: Arc<SnapshotRun>,
    db: u32,
    shard: u16,
    head: PartHead,
}

impl PieceKeeper for CollectedPieces {
    fn keep(&mut self, before: u64, piece: &[u8]) {
        let mut bytes = Vec::with_capacity(piece.len() + HEAD_BYTES);
        self.head.write(before, &mut bytes);
        bytes.extend_from_slice(piece);
        let (db, shard, is_ordered) = (self.db, self.shard, self.head.is_ordered);
        let spare = self.run.pipe.send(PipedBatch { db, shard, entries: 1, is_ordered, bytes });
        self.run.pipe.give_back(spare);
    }

    fn another(&self) -> Box<dyn PieceKeeper> {
        let (run, head) = (self.run.clone(), self.head.clone());
        Box::new(CollectedPieces { run, db: self.db, shard: self.shard, head })
    }
}

/// More than most names of keys take.
const HEAD_BYTES: usize = 128;

impl Drop for Collector {
    fn drop(&mut self) {
        self.send();
    }
}
