//! Making room: the choice of victims when a shard may not grow, and the amount that a shard may grow before it must ask.
//!
//! Called by the server when [`Shard::is_over_quota`] returns true, and by housekeeping. Removed keys are reported to the
//! change log as `evicted`. Large collections are freed in steps afterwards.

use darter_index::{IndexSlot, ScanPosition};

use crate::change::Event;
use crate::record::Record;
use crate::shard::{Key, Shard};

/// The order of eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictionOrder {
    /// The key that is least likely to be used again, by the uses that the index counts.
    LeastUsed,
    /// Anything.
    Random,
    /// The key that expires soonest.
    SoonestExpiry,
}

/// The keys that may be evicted, and the order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictionRule {
    /// The order.
    pub order: EvictionOrder,
    /// Keys without a deadline stay.
    pub only_expiring: bool,
}

/// The result of one call of [`Shard::evict`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evicted {
    /// Keys, those that had expired included.
    pub keys: usize,
    /// Bytes of their blocks that are free now.
    pub bytes: usize,
}

/// Bounds of one call of [`Shard::evict_over_quota`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Keys evicted at most.
    pub keys_max: usize,
    /// Index lines whose records are moved together at most.
    pub lines_max: usize,
}

/// A shard's part in the memory limit, and the position of eviction.
#[derive(Debug)]
pub(crate) struct Pressure {
    // Resident bytes of the arena, and bytes of its live blocks, above which the shard must ask.
    resident_max: usize,
    used_max: usize,
    // Bytes of live blocks after it has evicted enough. used_goal <= used_max
    used_goal: usize,
    db: usize,
    at: ScanPosition,
    chosen: Vec<IndexSlot>,
    name: Vec<u8>,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure {
            resident_max: usize::MAX,
            used_max: usize::MAX,
            used_goal: usize::MAX,
            db: 0,
            at: ScanPosition::START,
            chosen: Vec::new(),
            name: Vec::new(),
        }
    }
}

/// Blocks of deleted collections freed in one call.
const LAZY_BLOCKS: usize = 256;
/// Empty pages given back in one call.
const PAGES_PER_CALL: usize = 256;
const PAGE_BYTES: usize = 4096;
/// The empty pages that a shard keeps for the next write after it has evicted enough: at most this part of its pages.
const EMPTY_PART: usize = 64;
/// Free blocks that are kept between the live ones: the variation of sizes. A small shard has less room for that.
const SLACK_BYTES: usize = 32 << 10;
const SLACK_PART: usize = 32;
const SLACK_PART_MAX: usize = 4;
/// In an arena of fewer bytes the kept free blocks are a part worth giving back.
const KEPT_MATTERS_BYTES: usize = 1 << 20;
/// Keys looked at for one that is evicted at random, or by its deadline.
const TRIES: usize = 32;
/// Number of keys with a deadline among which the soonest is chosen.
const SOONEST_OF: usize = 10;
/// Visits of index segments in one call: past them the caller may ask again.
const VISITS_MAX: usize = 48;

impl Shard {
    /// Returns true if the shard has grown beyond its allowance. Cost: three loads and two comparisons.
    #[inline]
    pub fn is_over_quota(&self) -> bool {
        self.arena.used_bytes() > self.pressure.used_max
            || self.arena.occupied_bytes() > self.pressure.resident_max
    }

    /// Allows the shard to grow by `bytes` before [`Shard::is_over_quota`] returns true.
    pub fn allow_growth(&mut self, bytes: usize) {
        self.pressure.used_max = self.arena.used_bytes().saturating_add(bytes);
        self.pressure.used_goal = self.pressure.used_max;
        self.pressure.resident_max = self.arena.occupied_bytes().saturating_add(bytes);
    }

    /// From now on [`Shard::is_over_quota`] returns true if the resident bytes grow, or if the used bytes exceed their
    /// goal by more than `batch_bytes`.
    pub fn hold_growth(&mut self, batch_bytes: usize) {
        self.pressure.resident_max = self.arena.occupied_bytes();
        self.pressure.used_max = self.pressure.used_goal.saturating_add(batch_bytes);
    }

    /// Makes [`Shard::is_over_quota`] return true until growth is held or allowed.
    pub fn allow_nothing(&mut self) {
        self.pressure.resident_max = 0;
    }

    /// Starts or stops counting uses of keys and keeping fingerprints of evicted ones, which [`EvictionOrder::LeastUsed`]
    /// needs. Cost: a visit of each index segment on a change.
    pub fn remember_uses(&mut self, on: bool) {
        if self.remembers != on {
            self.remembers = on;
            self.counts_uses = on;
            self.dbs.iter_mut().chain(&mut self.aside).for_each(|db| db.index.remember(on));
        }
    }

    /// Pauses counting uses for one command, or resumes it.
    #[inline]
    pub fn pause_uses(&mut self, on: bool) {
        self.counts_uses = self.remembers && !on;
        self.pauses_uses = on;
    }

    /// Returns true if it does.
    pub fn pauses_uses(&self) -> bool {
        self.pauses_uses
    }

    /// Frees memory while the process is `over_bytes` over its limit; 0 means that it may not grow. First gives back
    /// empty pages. Then reclaims what this shard has gained since the last call: by moving records together if free
    /// blocks are spread over used pages, else by evicting more.
    ///
    /// Without a rule nothing is evicted. Returns the number of evicted keys. Cost: bounded by `effort`.
    pub fn evict_over_quota(
        &mut self,
        rule: Option<EvictionRule>,
        over_bytes: usize,
        now_ms: u64,
        effort: Effort,
    ) -> usize {
        let resident = self.arena.occupied_bytes();
        self.free_some(LAZY_BLOCKS);
        // This searches every size class for kept free blocks, which is worthwhile only in a small shard.
        if over_bytes > 0 || self.arena.committed_bytes() < KEPT_MATTERS_BYTES {
            self.arena.release_empty(PAGES_PER_CALL);
            self.merge_segments();
        }
        let gained = self.arena.used_bytes().saturating_sub(self.pressure.used_goal);
        let mut left = over_bytes.saturating_sub(resident.saturating_sub(self.arena.occupied_bytes()));
        let committed = self.arena.committed_bytes();
        let slack = committed / SLACK_PART + SLACK_BYTES.min(committed / SLACK_PART_MAX).max(PAGE_BYTES);
        if self.is_tidying() || self.movable_waste_bytes() > slack + left.clamp(slack / 2, slack) {
            self.squeeze(effort.lines_max);
            left = 0;
        }
        let Some(rule) = rule else { return 0 };
        // The growth of this shard is part of the excess of the process.
        let wanted = gained.max(left);
        if wanted == 0 || effort.keys_max == 0 || self.lazy_free_len() > 0 {
            return 0;
        }
        let evicted = self.evict(rule, now_ms, wanted, effort.keys_max);
        if left > 0 {
            self.pressure.used_goal = self.pressure.used_goal.min(self.arena.used_bytes());
            self.pressure.used_max = self.pressure.used_goal;
        }
        if self.keys_len() == 0 {
            self.merge_segments();
        }
        // Empty pages kept here would count as excess again, and other keys would be evicted for them.
        let kept = if left > 0 { 0 } else { self.arena.committed_bytes() / EMPTY_PART };
        let empty = self.arena.empty_bytes();
        if empty > kept {
            self.arena.release_empty((empty - kept).div_ceil(PAGE_BYTES).min(PAGES_PER_CALL));
        }
        evicted.keys
    }

    /// Evicts by `rule` until `bytes` of blocks are free or `keys_max` keys were removed. Expired keys found on the
    /// way are removed first. Evicting nothing does not mean that no key is left: call again, up to
    /// [`Shard::evict_calls_max`] times.
    pub fn evict(&mut self, rule: EvictionRule, now_ms: u64, bytes: usize, keys_max: usize) -> Evicted {
        let before = self.arena.used_bytes();
        let mut evicted = Evicted::default();
        if self.keys_len() == 0 {
            return evicted;
        }
        for _ in 0..VISITS_MAX.max(keys_max) {
            let keys = match rule.order {
                EvictionOrder::LeastUsed => self.evict_least_used(rule, now_ms, keys_max - evicted.keys),
                EvictionOrder::Random | EvictionOrder::SoonestExpiry => match self.sample_victim(rule) {
                    Some((db, slot)) => self.evict_at(db, slot, now_ms),
                    // Keys with a deadline are too few for random samples.
                    None => self.evict_least_used(rule, now_ms, 1),
                },
            };
            evicted.keys += keys;
            evicted.bytes = before.saturating_sub(self.arena.used_bytes());
            if evicted.bytes >= bytes || evicted.keys >= keys_max || keys > 0 && self.keys_len() == 0 {
                break;
            }
        }
        evicted
    }

    /// Calls of [`Shard::evict`] after which every key has been examined.
    pub fn evict_calls_max(&self) -> usize {
        2 + 2 * self.index_bytes() / 4096 / VISITS_MAX
    }

    /// Keys of all databases.
    pub fn keys_len(&self) -> usize {
        self.filled_dbs().iter().map(|db| db.index.len()).sum()
    }

    fn evict_least_used(&mut self, rule: EvictionRule, now_ms: u64, keys_max: usize) -> usize {
        let (db, at) = (self.pressure.db, self.pressure.at);
        let mut chosen = std::mem::take(&mut self.pressure.chosen);
        chosen.clear();
        let (arena, hidden, place) = (&self.arena, &self.hidden, &mut self.dbs[db]);
        let next = if place.index.is_empty() || rule.only_expiring && place.expiring == 0 {
            ScanPosition::START
        } else {
            let may_go = |handle| {
                let record = Record { tail: arena.tail(handle) };
                !record.is_sticky()
                    && (!rule.only_expiring || record.deadline_ms().is_some())
                    && !hidden.hides(record.key())
            };
            place.index.choose(at, may_go, &mut chosen)
        };
        self.pressure.at = next;
        if next == ScanPosition::START {
            self.pressure.db = (db + 1) % self.filled_dbs().len().max(1);
        }
        let keys = chosen.iter().take(keys_max).map(|&slot| self.evict_at(db, slot, now_ms)).sum();
        self.pressure.chosen = chosen;
        keys
    }

    /// A key that may be evicted: a random one, or the one with the soonest deadline of several.
    fn sample_victim(&mut self, rule: EvictionRule) -> Option<(usize, IndexSlot)> {
        let wanted = |record: Record<'_>| {
            !record.is_sticky() && (!rule.only_expiring || record.deadline_ms().is_some())
        };
        let db = self.random_db(rule.only_expiring)?;
        let mut soonest: Option<(u64, IndexSlot)> = None;
        let mut seen = 0;
        for _ in 0..TRIES {
            let slot = self.dbs[db].index.sample(self.rng.next_u64())?;
            let record = self.record_at(db, slot);
            if !wanted(record) || self.is_hidden(record) {
                continue;
            }
            if rule.order == EvictionOrder::Random {
                return Some((db, slot));
            }
            let deadline_ms = record.deadline_ms().unwrap_or(u64::MAX);
            if soonest.is_none_or(|(ms, _)| deadline_ms < ms) {
                soonest = Some((deadline_ms, slot));
            }
            seen += 1;
            if seen == SOONEST_OF {
                break;
            }
        }
        soonest.map(|(_, slot)| (db, slot))
    }

    /// A random database, weighted by its number of keys.
    fn random_db(&mut self, only_expiring: bool) -> Option<usize> {
        let weight = |db: &crate::db::Db| if only_expiring { db.expiring } else { db.index.len() };
        let all: usize = self.filled_dbs().iter().map(weight).sum();
        let mut left = self.rng.below(all.max(1) as u64) as usize;
        self.filled_dbs().iter().position(|db| {
            let here = weight(db);
            let is_it = left < here;
            left = left.saturating_sub(here);
            is_it
        })
    }

    /// Removes a key to make room. Returns the number of removed keys, which is one.
    fn evict_at(&mut self, db: usize, slot: IndexSlot, now_ms: u64) -> usize {
        let mut name = std::mem::take(&mut self.pressure.name);
        let record = self.record_at(db, slot);
        name.clear();
        name.extend_from_slice(record.key());
        let is_dead = record.is_expired(now_ms);
        let key = Key { bytes: &name, hash: self.hasher.hash_key(&name) };
        if is_dead {
            self.expire(db, key, slot);
        } else {
            self.dbs[db].index.note_eviction(slot, key.hash);
            self.remove_at(db, key, slot);
            self.counters.evicted += 1;
            self.changes.push(db, &name, Event::EVICTED);
        }
        self.pressure.name = name;
        1
    }
}

#[cfg(test)]
mod tests;
