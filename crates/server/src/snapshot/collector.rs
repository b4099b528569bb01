//! Writes the keys of one shard as entries, as its cut hands them out.

use std::sync::Arc;

use darter_persist::entry;
use darter_store::cut::{Body, Entry, Keeper};
use darter_store::{Text, rdb};

use super::pipe::Batch;
use super::run::Run;

/// A batch is sent when it is longer.
pub const BATCH_BYTES: usize = 256 << 10;

/// One shard's side of a snapshot.
pub struct Collector {
    run: Arc<Run>,
    batch: Batch,
}

impl Collector {
    /// Collects the keys of shard `shard` for `run`.
    pub fn new(run: Arc<Run>, shard: u16) -> Collector {
        Collector { run, batch: Batch { shard, ..Batch::default() } }
    }

    fn send(&mut self) {
        if self.batch.entries == 0 {
            return;
        }
        self.run.count_keys(u64::from(self.batch.entries));
        let next = Batch { db: self.batch.db, shard: self.batch.shard, ..Batch::default() };
        let batch = std::mem::replace(&mut self.batch, next);
        self.batch.bytes = self.run.pipe.send(batch);
    }
}

impl Keeper for Collector {
    fn keep(&mut self, entry: Entry<'_>) {
        if self.batch.db as usize != entry.db || self.batch.bytes.len() >= BATCH_BYTES {
            self.send();
            self.batch.db = entry.db as u32;
        }
        if self.run.pipe.is_broken() {
            return;
        }
        self.batch.entries += 1;
        let out = &mut self.batch.bytes;
        match entry.value {
            Body::Text(text) => {
                entry::write_head(entry.record, rdb::TYPE_STRING, None, out);
                match text {
                    Text::Plain(bytes) => rdb::write_text(out, bytes),
                    packed => {
                        rdb::write_length(out, packed.len() as u64);
                        packed.write_to(out);
                    }
                }
            }
            Body::Object(object, arena) => {
                entry::write_head(entry.record, rdb::type_of(object), None, out);
                rdb::write_object(object, arena, out);
            }
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.send();
    }
}
