//! The active side of expiry: a sweep that opens only index lines whose bound has passed.

use darter_index::Position;

use crate::record::Record;
use crate::shard::{Key, Shard};

/// Where a shard's sweep goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sweep {
    db: usize,
    at: Position,
}

/// What one step of a sweep did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Index lines looked at.
    pub lines: usize,
    /// Keys removed because their time was up.
    pub expired: usize,
}

impl Shard {
    /// Looks at up to `lines_max` index lines from `sweep` on and removes keys that are dead at `now_ms`.
    ///
    /// Cost: a few nanoseconds a line, plus the removal of each dead key.
    pub fn sweep(&mut self, sweep: &mut Sweep, now_ms: u64, lines_max: usize) -> Swept {
        let mut swept = Swept::default();
        let mut skipped = 0;
        while self.dbs[sweep.db].expiring == 0 {
            *sweep = self.next_db(sweep.db);
            skipped += 1;
            if skipped > self.dbs.len() {
                return swept;
            }
        }
        let mut due = Vec::new();
        let arena = &self.arena;
        let (next, lines) = self.dbs[sweep.db].index.sweep(
            sweep.at,
            now_ms,
            lines_max,
            |handle| Record { tail: arena.tail(handle) }.deadline_ms(),
            |handle| due.push(handle),
        );
        swept.lines = lines;
        let db = sweep.db;
        for handle in due {
            let name = Record { tail: self.arena.tail(handle) }.key().to_vec();
            let key = Key { bytes: &name, hash: self.hasher.hash(&name) };
            if let Some(slot) = self.locate(db, key)
                && self.record_at(db, slot).is_expired(now_ms)
            {
                self.expire(db, key, slot);
                swept.expired += 1;
            }
        }
        *sweep = if next == Position::default() { self.next_db(db) } else { Sweep { db, at: next } };
        swept
    }

    fn next_db(&self, db: usize) -> Sweep {
        Sweep { db: (db + 1) % self.dbs.len(), at: Position::default() }
    }

    /// Number of keys with a deadline, over all databases.
    pub fn expiring(&self) -> usize {
        self.dbs.iter().map(|db| db.expiring).sum()
    }
}
