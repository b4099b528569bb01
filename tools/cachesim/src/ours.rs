//! Darter's own table as a cache: a shard of crate `store`, read and written as GET and SET do.

use darter_base::hash::KeyHasher;
use darter_store::change::{Event, Listeners};
use darter_store::evict::{EvictionOrder, EvictionRule};
use darter_store::expiry::ExpirySweep;
use darter_store::{Expiry, Key, Keyed, Shard};

use crate::policy::Cache;
use crate::trace::Trace;

/// Keys evicted together, as in the server, where one write pays for some.
const BATCH: usize = 8;
/// Milliseconds from one request to the next.
const REQUEST_MS: u64 = 10;
/// Housekeeping sweeps so many index lines after so many requests: seldom for an idle server.
const SWEEP_EVERY: usize = 1000;
const SWEEP_LINES: usize = 512;
const START_MS: u64 = 1_700_000_000_000;

/// A shard that holds objects of so many bytes.
pub struct Ours {
    shard: Shard,
    hasher: KeyHasher,
    capacity: u64,
    held: u64,
    now_ms: u64,
    rule: EvictionRule,
    sweep: ExpirySweep,
}

impl Ours {
    /// An empty shard for objects of `capacity` bytes.
    pub fn new(capacity: u64, order: EvictionOrder) -> Ours {
        let hasher = KeyHasher::new(1);
        let mut shard = Shard::new(1, 1, hasher).unwrap_or_else(|error| panic!("no address space: {error}"));
        shard.changes.listen(Listeners::NOTIFY, true);
        shard.remember_uses(order == EvictionOrder::LeastUsed);
        let rule = EvictionRule { order, only_expiring: false };
        Ours { shard, hasher, capacity, held: 0, now_ms: START_MS, rule, sweep: ExpirySweep::default() }
    }

    /// Forgets what has left the shard.
    fn settle(&mut self, trace: &Trace) {
        for change in self.shard.changes.take() {
            if change.event == Event::EVICTED || change.event == Event::EXPIRED {
                let mut id = [0; 4];
                id.copy_from_slice(&change.key);
                self.held -= u64::from(trace.sizes[u32::from_le_bytes(id) as usize]);
            }
        }
    }
}

impl Cache for Ours {
    fn request(&mut self, trace: &Trace, at: usize, id: u32) -> bool {
        self.now_ms += REQUEST_MS;
        if at.is_multiple_of(SWEEP_EVERY) {
            self.shard.sweep(&mut self.sweep, self.now_ms, SWEEP_LINES);
            self.settle(trace);
        }
        let name = id.to_le_bytes();
        let key = Key { bytes: &name, hash: self.hasher.hash(&name) };
        let is_hit = matches!(self.shard.read_text(0, key, self.now_ms), Ok(Some(_)));
        if !is_hit {
            const SET: Event = Event::new(darter_store::change::Class::STRING, "set");
            let done = match trace.deadlines[id as usize] {
                0 => self.shard.set_text(0, key, b"value", self.now_ms, SET),
                deadline => {
                    let at_ms = START_MS + u64::from(deadline) * REQUEST_MS;
                    Keyed::find(&mut self.shard, 0, key, self.now_ms).put_text(b"value", Expiry::At(at_ms))
                }
            };
            assert!(done.is_ok(), "the address space of a shard is full");
            self.held += u64::from(trace.sizes[id as usize]);
            while self.held > self.capacity {
                self.shard.evict(self.rule, self.now_ms, usize::MAX, BATCH);
                self.settle(trace);
            }
        }
        self.settle(trace);
        is_hit
    }
}
