//! Long strings gone through piece by piece, such as BITCOUNT and BITOP do.
//!
//! The keys are watched meanwhile, and the command's body runs again in the end, as for results that are stored
//! ([`super::keeping`]): a string that changes makes it begin anew. Called by `Gather`, with the shard of one string held.

use darter_store::{Key, Shard};

use super::sifting::Found;
use crate::Ctx;

/// Bytes of a string that are gone through with its shard held: some 10 microseconds' worth.
pub const PIECE_BYTES: usize = 64 << 10;
/// Strings up to this length, all together, are gone through in one go.
pub const AT_ONCE_BYTES: usize = 4 * PIECE_BYTES;

/// What is done with the pieces.
pub trait Fold: Send {
    /// Takes the piece of string `nth` that begins at byte `from`; shorter than a piece, or empty, past its end. Whether
    /// nothing more is needed.
    fn take(&mut self, nth: usize, from: usize, bytes: &[u8]) -> bool;

    /// What came of it.
    fn found(&mut self) -> Found;

    /// Bytes held.
    fn bytes(&self) -> usize;
}

/// Strings on their way through a fold: the first piece of each, then the second of each.
pub struct Folding {
    fold: Box<dyn Fold>,
    // With the shard and the hash of each key.
    keys: Vec<(u16, u64, Box<[u8]>)>,
    db: usize,
    nth: usize,
    from: usize,
    to: usize,
    is_done: bool,
}

impl Folding {
    /// The bytes `from..to` of the strings at `names`.
    pub fn new(
        ctx: &mut Ctx<'_>,
        names: &[&[u8]],
        (from, to): (usize, usize),
        fold: Box<dyn Fold>,
    ) -> Folding {
        let mut place = |name: &&[u8]| {
            let hash = ctx.key(name).hash;
            (ctx.shards_mut().router().shard_of(hash), hash, Box::from(*name))
        };
        let keys: Vec<_> = names.iter().map(&mut place).collect();
        let is_done = keys.is_empty() || from >= to;
        Folding { fold, keys, db: ctx.db, nth: 0, from, to, is_done }
    }

    /// The shard of the next piece.
    pub(super) fn shard(&self) -> Option<u16> {
        let (shard, ..) = self.keys.get(self.nth).filter(|_| !self.is_done)?;
        Some(*shard)
    }

    /// Takes the next piece, with its shard held.
    pub(super) fn step(&mut self, shard: &Shard) {
        let Some((_, hash, name)) = self.keys.get(self.nth).filter(|_| !self.is_done) else { return };
        // One that has gone or died meanwhile makes the result useless; nobody looks at it here.
        let record = shard.peek(self.db, Key { bytes: name, hash: *hash }, 0);
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

    pub(super) fn bytes(&self) -> usize {
        self.fold.bytes()
    }

    pub(super) fn found(&mut self) -> Found {
        self.fold.found()
    }
}
