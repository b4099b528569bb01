//! Long strings walked piece by piece, for BITCOUNT, BITOP and similar commands.
//!
//! The keys are watched meanwhile, and the command's body runs again in the end, as for stored results
//! ([`super::staged`]). A changed string restarts the walk. Called by `Incremental`, with the shard of one string
//! held.

use darter_store::Key;
use darter_txn::ShardPart;
use darter_wire::{Args, Reply};

use super::operation::{FoundValue, NextSlice, Operation, OperationStage, ResultTo};
use crate::Ctx;

/// Bytes of a string that are walked with its shard held: some 10 microseconds.
pub const PIECE_BYTES: usize = 64 << 10;
/// Strings up to this length, all together, are walked at once.
pub const AT_ONCE_BYTES: usize = 4 * PIECE_BYTES;

/// The operation on the pieces.
pub trait Fold: Send {
    /// Takes the piece of string `nth` that begins at byte `from`. It is shorter than a piece, or empty, at the end.
    /// Returns true if no more pieces are needed.
    fn take(&mut self, nth: usize, from: usize, bytes: &[u8]) -> bool;

    /// The result.
    fn found(&mut self) -> FoundValue;

    /// Bytes held.
    fn bytes(&self) -> usize;
}

/// The strings of a fold in progress: the first piece of each, then the second of each.
pub struct Reduction {
    fold: Box<dyn Fold>,
    // The shard and the hash of each key.
    keys: Vec<(u16, u64, Box<[u8]>)>,
    db: usize,
    nth: usize,
    from: usize,
    to: usize,
    is_done: bool,
}

impl Reduction {
    /// The bytes `from..to` of the strings at `names`.
    pub fn new(
        ctx: &mut Ctx<'_>,
        names: &[&[u8]],
        (from, to): (usize, usize),
        fold: Box<dyn Fold>,
    ) -> Reduction {
        let mut place = |name: &&[u8]| {
            let hash = ctx.key(name).hash;
            (ctx.shards_mut().router().shard_of(hash), hash, Box::from(*name))
        };
        let keys: Vec<_> = names.iter().map(&mut place).collect();
        let is_done = keys.is_empty() || from >= to;
        Reduction { fold, keys, db: ctx.db, nth: 0, from, to, is_done }
    }
}

impl Operation for Reduction {
    fn next(&self, _draft_shard: Option<u16>) -> NextSlice {
        match self.keys.get(self.nth) {
            Some((shard, ..)) if !self.is_done => NextSlice::Step(*shard),
            _ => NextSlice::Work,
        }
    }

    fn take(&mut self, _nth: u32, _told: &[u8], _args: Args<'_>) -> Vec<u8> {
        Vec::new()
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        OperationStage::Done
    }

    /// Takes the next piece, with its shard held.
    fn step(&mut self, part: &mut ShardPart, _draft: Option<u32>) {
        let Some((_, hash, name)) = self.keys.get(self.nth).filter(|_| !self.is_done) else { return };
        // A string removed or expired meanwhile makes the result useless; that is checked later.
        let record = part.shard.peek(self.db, Key { bytes: name, hash: *hash }, 0);
        let to = self.from.saturating_add(PIECE_BYTES).min(self.to);
        let bytes = record.and_then(|record| record.text()).map(|text| text.range(self.from, to));
        self.is_done = self.fold.take(self.nth, self.from, bytes.as_deref().unwrap_or_default());
        self.nth += 1;
        if self.nth == self.keys.len() {
            self.nth = 0;
            self.from = to;
            self.is_done |= self.from >= self.to;
        }
    }

    fn bytes(&self) -> usize {
        self.fold.bytes()
    }

    fn found(&mut self) -> FoundValue {
        self.fold.found()
    }
}
