//! Making room: which keys go when a shard may not grow, and how much a shard may grow before it has to ask.
//!
//! Called by the server when [`Shard::is_pressed`] says so, and by housekeeping. What goes is told to the change log as
//! `evicted`; large collections are freed piece by piece afterwards.

use darter_index::{Position, Slot};

use crate::change::Event;
use crate::record::Record;
use crate::shard::{Key, Shard};

/// What goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// What is least likely to be asked for again, by the uses that the index counts.
    LeastUsed,
    /// Anything.
    Random,
    /// What expires soonest.
    SoonestExpiry,
}

/// What may be evicted, and in which order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What goes first.
    pub order: Order,
    /// Keys without a deadline stay.
    pub only_expiring: bool,
}

/// What one call evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evicted {
    /// Keys, those whose time was up included.
    pub keys: usize,
    /// Bytes of their blocks that are free now.
    pub bytes: usize,
}

/// How much one call of [`Shard::relieve`] may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Keys evicted at most.
    pub keys_max: usize,
    /// Index lines whose records are moved together at most.
    pub lines_max: usize,
}

/// A shard's part in the memory limit, and where eviction goes on.
#[derive(Debug)]
pub(crate) struct Pressure {
    // Resident bytes of the arena, and bytes of its live blocks, above which the shard has to ask.
    resident_max: usize,
    used_max: usize,
    // Bytes of live blocks that are left when it has paid. used_goal <= used_max
    used_goal: usize,
    db: usize,
    at: Position,
    chosen: Vec<Slot>,
    name: Vec<u8>,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure {
            resident_max: usize::MAX,
            used_max: usize::MAX,
            used_goal: usize::MAX,
            db: 0,
            at: Position::START,
            chosen: Vec::new(),
            name: Vec::new(),
        }
    }
}

/// Blocks of deleted collections freed in one call.
const GRAVE_BLOCKS: usize = 256;
/// Empty pages given back in one call.
const PAGES_PER_CALL: usize = 256;
const PAGE_BYTES: usize = 4096;
/// A shard that has paid for its growth keeps this part of its pages empty at most, for the next write.
const EMPTY_PART: usize = 64;
/// Free blocks that are kept between the live ones: what sizes vary by. A small shard has less room for that.
const SLACK_BYTES: usize = 32 << 10;
const SLACK_PART: usize = 32;
const SLACK_PART_MAX: usize = 4;
/// In an arena of fewer bytes what is kept at hand is a part worth giving back.
const KEPT_MATTERS_BYTES: usize = 1 << 20;
/// Keys looked at for one that is evicted by chance, or by its deadline.
const TRIES: usize = 32;
/// Keys with a deadline among which the soonest goes.
const SOONEST_OF: usize = 10;
/// Visits of index segments in one call: past them the caller may ask again.
const VISITS_MAX: usize = 48;

impl Shard {
    /// Whether the shard has grown past what it was allowed. Cost: three loads and two comparisons.
    #[inline]
    pub fn is_pressed(&self) -> bool {
        self.arena.used_bytes() > self.pressure.used_max
            || self.arena.occupied_bytes() > self.pressure.resident_max
    }

    /// Lets the shard grow by `bytes` from now on before [`Shard::is_pressed`] says so.
    pub fn allow_growth(&mut self, bytes: usize) {
        self.pressure.used_max = self.arena.used_bytes().saturating_add(bytes);
        self.pressure.used_goal = self.pressure.used_max;
        self.pressure.resident_max = self.arena.occupied_bytes().saturating_add(bytes);
    }

    /// From now on the shard may take back what it has lost since it was last allowed to grow; it is asked for what more it
    /// takes once that is more than `batch_bytes`.
    pub fn hold_growth(&mut self, batch_bytes: usize) {
        self.pressure.resident_max = self.arena.occupied_bytes();
        self.pressure.used_max = self.pressure.used_goal.saturating_add(batch_bytes);
    }

    /// Makes [`Shard::is_pressed`] say so until growth is held or allowed.
    pub fn allow_nothing(&mut self) {
        self.pressure.resident_max = 0;
    }

    /// Starts or stops counting uses of keys and remembering those that were evicted, which [`Order::LeastUsed`] goes
    /// by. Cost: a look at each index segment when that changes.
    pub fn remember_uses(&mut self, on: bool) {
        if self.remembers != on {
            self.remembers = on;
            self.counts_uses = on;
            self.dbs.iter_mut().for_each(|db| db.index.remember(on));
        }
    }

    /// Stops noting uses for the time of one command, or goes on with it.
    #[inline]
    pub fn pause_uses(&mut self, on: bool) {
        self.counts_uses = self.remembers && !on;
        self.pauses_uses = on;
    }

    /// Whether it does.
    pub fn pauses_uses(&self) -> bool {
        self.pauses_uses
    }

    /// Gives memory back while the whole process has `over_bytes` too many, or 0 when it just may not grow: pages that
    /// are empty, then what this shard has gained since it was last asked, then, where free blocks are spread over
    /// pages that hold others, by moving records together, else by evicting more.
    ///
    /// Without a rule nothing is evicted. Returns the keys that were. Cost: bounded by `effort`.
    pub fn relieve(&mut self, rule: Option<Rule>, over_bytes: usize, now_ms: u64, effort: Effort) -> usize {
        let resident = self.arena.occupied_bytes();
        self.bury(GRAVE_BLOCKS);
        // This looks at every size class for free blocks that are kept at hand: much only where the shard is small.
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
        // What this shard has gained is part of what the process has too much.
        let wanted = gained.max(left);
        if wanted == 0 || effort.keys_max == 0 || self.graves_len() > 0 {
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
        // What stayed here as empty pages would be too much as before, and other keys would go for it.
        let kept = if left > 0 { 0 } else { self.arena.committed_bytes() / EMPTY_PART };
        let empty = self.arena.empty_bytes();
        if empty > kept {
            self.arena.release_empty((empty - kept).div_ceil(PAGE_BYTES).min(PAGES_PER_CALL));
        }
        evicted.keys
    }

    /// Evicts by `rule` until `bytes` of blocks are free or `keys_max` keys have gone; dead keys met on the way go
    /// first. Evicting nothing does not mean that there is nothing: ask again, as many times as
    /// [`Shard::evict_calls_max`] says.
    pub fn evict(&mut self, rule: Rule, now_ms: u64, bytes: usize, keys_max: usize) -> Evicted {
        let before = self.arena.used_bytes();
        let mut evicted = Evicted::default();
        if self.keys_len() == 0 {
            return evicted;
        }
        for _ in 0..VISITS_MAX.max(keys_max) {
            let keys = match rule.order {
                Order::LeastUsed => self.evict_least_used(rule, now_ms, keys_max - evicted.keys),
                Order::Random | Order::SoonestExpiry => match self.sample_victim(rule) {
                    Some((db, slot)) => self.evict_at(db, slot, now_ms),
                    // Those with a deadline are too few to be met by chance.
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

    /// Calls of [`Shard::evict`] after which every key has been looked at.
    pub fn evict_calls_max(&self) -> usize {
        2 + 2 * self.index_bytes() / 4096 / VISITS_MAX
    }

    /// Keys of all databases.
    pub fn keys_len(&self) -> usize {
        self.filled_dbs().iter().map(|db| db.index.len()).sum()
    }

    fn evict_least_used(&mut self, rule: Rule, now_ms: u64, keys_max: usize) -> usize {
        let (db, at) = (self.pressure.db, self.pressure.at);
        let mut chosen = std::mem::take(&mut self.pressure.chosen);
        chosen.clear();
        let (arena, place) = (&self.arena, &mut self.dbs[db]);
        let next = if place.index.is_empty() || rule.only_expiring && place.expiring == 0 {
            Position::START
        } else {
            let may_go = |handle| {
                let record = Record { tail: arena.tail(handle) };
                !record.is_sticky() && (!rule.only_expiring || record.deadline_ms().is_some())
            };
            place.index.choose(at, may_go, &mut chosen)
        };
        self.pressure.at = next;
        if next == Position::START {
            self.pressure.db = (db + 1) % self.filled_dbs().len().max(1);
        }
        let keys = chosen.iter().take(keys_max).map(|&slot| self.evict_at(db, slot, now_ms)).sum();
        self.pressure.chosen = chosen;
        keys
    }

    /// A key that may go, by chance or by its deadline among some.
    fn sample_victim(&mut self, rule: Rule) -> Option<(usize, Slot)> {
        let wanted = |record: Record<'_>| {
            !record.is_sticky() && (!rule.only_expiring || record.deadline_ms().is_some())
        };
        let db = self.random_db(rule.only_expiring)?;
        let mut soonest: Option<(u64, Slot)> = None;
        let mut seen = 0;
        for _ in 0..TRIES {
            let slot = self.dbs[db].index.sample(self.rng.next_u64())?;
            let record = self.record_at(db, slot);
            if !wanted(record) {
                continue;
            }
            if rule.order == Order::Random {
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

    /// A database by chance, the more likely the more keys it has.
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

    /// Removes a key to make room. Returns the keys that went, which is one.
    fn evict_at(&mut self, db: usize, slot: Slot, now_ms: u64) -> usize {
        let mut name = std::mem::take(&mut self.pressure.name);
        let record = self.record_at(db, slot);
        name.clear();
        name.extend_from_slice(record.key());
        let is_dead = record.is_expired(now_ms);
        let key = Key { bytes: &name, hash: self.hasher.hash(&name) };
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
