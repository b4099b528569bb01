//! Making room: what happens when a shard has grown past what it was allowed.
//!
//! Called after a command with its shard still held, and by housekeeping. A write pays at once for what it took, by
//! evicting as much, most often from its own shard; what one write cannot pay the next ones and housekeeping do.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use darter_store::Shard;
use darter_store::evict::{Effort, EvictionOrder, EvictionRule};
use darter_txn::{ShardPart, ShardSet};

use super::{GROWTH_BYTES_MAX, MemoryLimit, NEAR_PART, client_bytes, overrun, rule, used_bytes};
use crate::engine::origin::ChangedBy;
use crate::engine::{commit, lease};
use crate::job::Shards;
use crate::journal::note as journal;
use crate::thread_state::ThreadState;

/// What one write does at most: some tens of microseconds.
const WRITE_EFFORT: Effort = Effort { keys_max: 32, lines_max: 128 };
/// What one step of housekeeping does at most.
const HOUSE_EFFORT: Effort = Effort { keys_max: 256, lines_max: 512 };
/// What one call frees at most, so that a limit that was lowered is reached step by step.
const STEP_BYTES_MAX: usize = 1 << 20;
/// Of what is held back near the limit, so much may be taken by batches of all shards together.
const BATCHES_PART: u64 = 4;
/// A batch is as many bytes at most, a dozen keys of 300 bytes; less than the least is none.
const BATCH_BYTES_MAX: usize = 4 << 10;
const BATCH_BYTES_MIN: usize = 1 << 10;
/// Shards looked at for one that has more than its share.
const SHARES_LOOKED_AT: usize = 4;
/// Shards that pay for one write at most.
const SHARDS_PAYING_MAX: usize = 4;
/// Shards tried before a command is refused.
const SHARDS_TRIED: usize = 64;
/// What the command that changes the limit takes for its first step.
const BEGIN_TIME_MAX: Duration = Duration::from_millis(1);
/// Steps without an eviction after which it goes on to the next shard.
const IDLE_STEPS_MAX: usize = 4;
/// How long a thread goes without counting all shards again before it refuses a command.
const RECOUNT_EVERY: Duration = Duration::from_micros(100);

/// Where the process stands against its limit.
struct EvictionBudget {
    max_bytes: u64,
    /// What counts beside the shards.
    others_bytes: u64,
    /// Below the limit by less, nothing more may come without something else going.
    margin_bytes: u64,
}

impl EvictionBudget {
    fn of(local: &ThreadState) -> EvictionBudget {
        let max_bytes = local.shared.limit.max_bytes(&local.live);
        let clients = client_bytes(local.shared);
        let most = if local.client_bytes_max > 0 { local.client_bytes_max } else { u64::MAX };
        // Clients that have too much go themselves: no key is to go for them.
        let others_bytes =
            local.shared.startup_bytes.load(Relaxed) + local.shared.scripts.lua_bytes() + clients.min(most);
        // Without eviction there is nothing to hold back for.
        let margin_bytes = if local.evicts { max_bytes / NEAR_PART } else { 0 };
        EvictionBudget { max_bytes, others_bytes, margin_bytes }
    }

    fn used_bytes(&self, limit: &MemoryLimit) -> u64 {
        self.others_bytes + limit.keyspace_bytes()
    }

    /// Too much by this.
    fn over_bytes(&self, limit: &MemoryLimit) -> usize {
        self.used_bytes(limit).saturating_sub(self.max_bytes) as usize
    }

    /// As [`EvictionBudget::over_bytes`], where that is more than batches may take together.
    fn excess_bytes(&self, limit: &MemoryLimit) -> u64 {
        let over_bytes = self.over_bytes(limit) as u64;
        if over_bytes > self.margin_bytes / BATCHES_PART { over_bytes } else { 0 }
    }

    /// What may still come before something else has to go.
    fn free_bytes(&self, limit: &MemoryLimit) -> u64 {
        self.max_bytes.saturating_sub(self.margin_bytes).saturating_sub(self.used_bytes(limit))
    }

    /// What one of the shards may grow, of so many bytes.
    fn growth_bytes(free_bytes: u64, limit: &MemoryLimit) -> usize {
        let part = free_bytes / (2 * limit.shares.len() as u64);
        usize::try_from(part).unwrap_or(usize::MAX).min(GROWTH_BYTES_MAX)
    }

    /// What a shard takes near the limit before it pays for all of it at once. With all of them that is a fraction of the
    /// margin; near a small limit it is nothing.
    fn batch_bytes(&self, limit: &MemoryLimit) -> usize {
        let part = (self.margin_bytes / BATCHES_PART) as usize / limit.shares.len().max(1);
        if part < BATCH_BYTES_MIN { 0 } else { part.min(BATCH_BYTES_MAX) }
    }
}

/// Settles with a shard that has grown past what it was allowed: allows it more, or makes room, here or elsewhere.
#[cold]
#[inline(never)]
pub fn settle(local: &mut ThreadState, part: &mut ShardPart, id: u16) {
    settle_with(local, part, id, WRITE_EFFORT);
}

/// What may be evicted: nothing on a replica, whose master does that.
fn rule_of(local: &ThreadState) -> Option<EvictionRule> {
    // The master, or the server that data is imported from, says what goes.
    let is_led = local.shared.replication.is_replica() || local.live.import_mode;
    if is_led { None } else { rule(&local.live) }
}

/// Settles with every shard of a grant.
pub fn settle_all(local: &mut ThreadState, grant: &mut Shards) {
    for held in grant.iter_mut() {
        if held.shard.is_over_quota() {
            let id = held.id();
            settle(local, held, id);
        }
    }
}

/// What housekeeping does for a shard that it holds, whether it has grown or not, until `ends`; returns whether more has
/// to go.
pub fn keep(local: &mut ThreadState, part: &mut ShardPart, id: u16, ends: Instant) -> bool {
    loop {
        let is_over = settle_with(local, part, id, HOUSE_EFFORT) && local.evicts;
        if !is_over || Instant::now() >= ends {
            return is_over;
        }
    }
}

/// As [`settle`]; returns whether there is still too much.
fn settle_with(local: &mut ThreadState, part: &mut ShardPart, id: u16, effort: Effort) -> bool {
    let limit = &local.shared.limit;
    let rule = rule_of(local);
    part.shard.remember_uses(rule.is_some_and(|rule| rule.order == EvictionOrder::LeastUsed));
    limit.tell(id, &part.shard);
    let budget = EvictionBudget::of(local);
    let free_bytes = budget.free_bytes(limit);
    if free_bytes > 0 {
        part.shard.allow_growth(EvictionBudget::growth_bytes(free_bytes, limit));
        limit.is_stuck.store(false, Relaxed);
        return false;
    }
    let mut evicted = 0;
    let pays_itself = rule.is_none_or(|rule| !others_pay(limit, part, id, rule));
    if pays_itself {
        evicted = evict_over_quota(local, part, id, rule, budget.over_bytes(limit), effort);
    } else if budget.over_bytes(limit) == 0 {
        part.shard.allow_growth(0);
    }
    let mut over_bytes = budget.over_bytes(limit);
    if over_bytes > 0
        && evicted == 0
        && let Some(rule) = rule
        && !part.shard.is_tidying()
        && part.shard.lazy_free_len() == 0
    {
        evicted = elsewhere(local, id, rule, effort);
        over_bytes = budget.over_bytes(limit);
        if evicted == 0 || over_bytes > 0 && !pays_itself {
            evicted += evict_over_quota(local, part, id, Some(rule), over_bytes, effort);
            over_bytes = budget.over_bytes(limit);
        }
    }
    let batch_bytes = budget.batch_bytes(limit);
    // While as much goes as comes, what batches may take together needs no haste.
    let is_little = batch_bytes > 0 && budget.excess_bytes(limit) == 0;
    if over_bytes == 0 || evicted > 0 && is_little {
        limit.is_stuck.store(false, Relaxed);
        part.shard.hold_growth(batch_bytes);
        return over_bytes > 0;
    }
    part.shard.allow_nothing();
    if evicted > 0 {
        limit.is_stuck.store(false, Relaxed);
    } else if rule.is_none_or(|rule| !limit.may_evict(rule)) {
        limit.is_stuck.store(true, Relaxed);
        local.is_gated = true;
    }
    true
}

fn evict_over_quota(
    local: &mut ThreadState,
    part: &mut ShardPart,
    id: u16,
    rule: Option<EvictionRule>,
    over: usize,
    effort: Effort,
) -> usize {
    let evicted = part.shard.evict_over_quota(rule, over.min(STEP_BYTES_MAX), local.now_ms, effort);
    local.shared.limit.tell(id, &part.shard);
    if part.shard.changes.is_journalled() {
        // What a command did before it is in the journal already.
        journal::note(local, ShardSet::one(&local.shared.router, id, part), None);
    }
    evicted
}

/// Whether what this shard takes is paid by others if it can be: it has less than they have, or so few keys that what
/// has just come would go too.
fn others_pay(limit: &MemoryLimit, part: &ShardPart, id: u16, rule: EvictionRule) -> bool {
    let is_small = limit.share(id) < limit.fair_share() / 4 * 3;
    is_small || part.shard.keys_len() <= WRITE_EFFORT.keys_max && limit.shares_that_may(rule).nth(1).is_some()
}

/// Evicts in shards that have more than others, as far as they are free, until there is not too much or `effort` is
/// spent. The caller may hold shard `but`. Returns the keys that went.
fn elsewhere(local: &mut ThreadState, but: u16, rule: EvictionRule, effort: Effort) -> usize {
    let limit = &local.shared.limit;
    let shards = limit.shares.len() as u64;
    let mut evicted = 0;
    for _ in 0..SHARDS_PAYING_MAX {
        let over_bytes = EvictionBudget::of(local).over_bytes(limit);
        let keys_max = effort.keys_max - evicted.min(effort.keys_max);
        if over_bytes == 0 || keys_max == 0 {
            break;
        }
        let may = |&id: &u16| id != but && limit.shares[usize::from(id)].may_evict(rule);
        let fullest = (0..SHARES_LOOKED_AT)
            .map(|_| local.rng.below(shards) as u16)
            .filter(may)
            .max_by_key(|&id| limit.share(id));
        // Where few have what may go, chance is not enough.
        let Some(id) = fullest.or_else(|| (0..shards as u16).find(may)) else { break };
        evicted += evict_in(local, id, rule, over_bytes, Effort { keys_max, ..effort });
    }
    evicted
}

/// Evicts in shard `id` if it is free, and tells of it. Returns the keys that went.
fn evict_in(
    local: &mut ThreadState,
    id: u16,
    rule: EvictionRule,
    over_bytes: usize,
    effort: Effort,
) -> usize {
    let shared = local.shared;
    let Some(mut held) = lease::try_one(&shared.cells[usize::from(id)]) else { return 0 };
    // This shard is let go before a transaction that runs meanwhile ends: what happens here is no part of it.
    let group = local.journal.set_group_aside();
    let evicted = evict_over_quota(local, &mut held, id, Some(rule), over_bytes, effort);
    if !held.shard.changes.has_pending() {
        local.journal.resume_group(group);
        lease::release_as_stranger(shared, held);
        return evicted;
    }
    let mut grant = Shards::from(held);
    commit::changes(local, &mut grant, ChangedBy::SERVER);
    local.journal.resume_group(group);
    // Nobody's command is run in between: the caller may hold another shard.
    lease::release_among_others(local, grant);
    evicted
}

/// Whether a command that needs memory must be refused: there is too much, and nothing can go. Tries to make room
/// before it says so. The caller holds no shard.
#[cold]
pub fn refuses(local: &mut ThreadState) -> bool {
    if !local.is_over_memory() {
        return false;
    }
    let Some(rule) = rule_of(local) else {
        recount(local);
        return local.is_over_memory();
    };
    let shards = local.shared.limit.shares.len();
    let first = local.rng.below(shards as u64) as usize;
    let mut evicted = 0;
    for step in 0..shards.min(SHARDS_TRIED) {
        let over_bytes = EvictionBudget::of(local).over_bytes(&local.shared.limit);
        if over_bytes == 0 || evicted >= WRITE_EFFORT.keys_max {
            break;
        }
        evicted += evict_in(local, ((first + step) % shards) as u16, rule, over_bytes, WRITE_EFFORT);
    }
    if evicted > 0 {
        local.shared.limit.is_stuck.store(false, Relaxed);
    }
    local.refresh_gate();
    local.is_over_memory()
}

/// To be called when the limit was changed: makes a first step towards it. What is left is done by writes and by
/// housekeeping, so that nobody waits for a limit that was lowered by much.
pub fn begin(local: &mut ThreadState) {
    // What shards may still grow was reckoned from the old limit.
    each_shard(local, Shard::allow_nothing);
    let over_bytes = EvictionBudget::of(local).over_bytes(&local.shared.limit) as u64;
    if let Some(rule) = rule_of(local).filter(|_| over_bytes > 0) {
        // Clients that are told what goes take memory for it until they are sent it, which is not to be paid as well.
        let wanted = local.shared.limit.keyspace_bytes().saturating_sub(over_bytes);
        let ends = Instant::now() + BEGIN_TIME_MAX;
        for id in 0..local.shared.limit.shares.len() as u16 {
            // In between what is left is moved together, which evicts nothing.
            let mut idle = 0;
            while idle < IDLE_STEPS_MAX && Instant::now() < ends {
                let left = local.shared.limit.keyspace_bytes().saturating_sub(wanted) as usize;
                if left == 0 {
                    break;
                }
                idle = if evict_in(local, id, rule, left, WRITE_EFFORT) > 0 { 0 } else { idle + 1 };
            }
        }
    }
    local.refresh_gate();
    overrun::note_change(local);
}

/// Bytes that are used above the limit, 0 where it is no more than writes may be ahead of what they pay.
pub fn excess_bytes(local: &ThreadState) -> u64 {
    EvictionBudget::of(local).excess_bytes(&local.shared.limit)
}

/// Counts the memory of all shards that are free, unless this thread has just done so.
fn recount(local: &mut ThreadState) {
    if local.recounted.elapsed() < RECOUNT_EVERY {
        return;
    }
    each_shard(local, |shard| {
        shard.purge();
    });
    local.recounted = Instant::now();
}

/// Shows `visit` every shard that is free, and counts its memory afterwards. The caller holds no shard.
pub fn each_shard(local: &ThreadState, mut visit: impl FnMut(&mut Shard)) {
    let shared = local.shared;
    for cell in shared.cells {
        let Some(mut held) = lease::take_one_patiently(cell, SPINS) else { continue };
        visit(&mut held.shard);
        shared.limit.tell(held.id(), &held.shard);
        lease::release_as_stranger(shared, held);
    }
}

/// Looks at a busy shard before it is left out.
const SPINS: u32 = 2000;

impl ThreadState {
    /// Whether commands that need memory are refused, as far as is known: more is used than `maxmemory` allows, and
    /// nothing can be evicted.
    pub fn is_over_memory(&self) -> bool {
        let max = self.shared.limit.max_bytes(&self.live);
        used_bytes(self.shared) > max && (!self.evicts || self.shared.limit.is_stuck.load(Relaxed))
    }
}
