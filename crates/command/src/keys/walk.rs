//! KEYS of a large database, shard by shard in slices: `KeyWalk`, which the server drives.
//!
//! No shard is held for long, and never two together. Every key present from the beginning to the end is answered, as
//! by a whole SCAN. A key that is added, removed or renamed meanwhile may be missing.

use darter_base::glob;
use darter_store::{ScanPosition, Shard};
use darter_wire::Reply;

/// Smaller databases are answered completely at one point in time.
pub const KEYS_MAX: usize = 4096;
/// Index lines examined in one slice: some tens of microseconds.
const LINES_PER_SLICE: usize = 192;

/// The progress of a KEYS.
#[derive(Debug)]
pub struct KeyWalk {
    pattern: Box<[u8]>,
    db: usize,
    limit: u64,
    shards_len: u16,
    // The next shard, `shards_len` at the end, and the position in it.
    shard: u16,
    at: ScanPosition,
    found: Vec<u8>,
    count: u64,
    // A key was found beyond the limit.
    is_cut: bool,
}

impl KeyWalk {
    /// A walk over database `db` of `shards_len` shards that answers up to `limit` keys; 0 for all.
    pub fn new(pattern: &[u8], db: usize, limit: u64, shards_len: u16) -> KeyWalk {
        let limit = if limit == 0 { u64::MAX } else { limit };
        let (pattern, at) = (pattern.into(), ScanPosition::START);
        KeyWalk { pattern, db, limit, shards_len, shard: 0, at, found: Vec::new(), count: 0, is_cut: false }
    }

    /// The shard of the next slice; `None` at the end.
    pub fn shard(&self) -> Option<u16> {
        (self.shard < self.shards_len && !self.is_cut).then_some(self.shard)
    }

    /// Returns true if the limit has left a key out.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Bytes of the keys found so far.
    pub fn found_bytes(&self) -> usize {
        self.found.len()
    }

    /// Examines a slice of its shard, which is held.
    pub fn step(&mut self, shard: &Shard, now_ms: u64) {
        let takes_all = &*self.pattern == b"*";
        for _ in 0..LINES_PER_SLICE {
            let (pattern, limit, found, count, is_cut) =
                (&self.pattern, self.limit, &mut self.found, &mut self.count, &mut self.is_cut);
            let next = shard.scan(self.db, self.at, |record| {
                let is_match = !*is_cut
                    && !record.is_expired(now_ms)
                    && (takes_all || glob::matches(pattern, record.key(), false));
                if is_match && *count < limit {
                    Reply::new(found, false).bulk(record.key());
                    *count += 1;
                } else {
                    *is_cut |= is_match;
                }
            });
            match next {
                Some(next) if !self.is_cut => self.at = next,
                _ => {
                    (self.shard, self.at) = (self.shard + 1, ScanPosition::START);
                    return;
                }
            }
        }
    }

    /// Writes the answer.
    pub fn finish(&self, out: &mut Vec<u8>) {
        Reply::new(out, false).array(usize::try_from(self.count).unwrap_or(usize::MAX));
        out.extend_from_slice(&self.found);
    }
}
