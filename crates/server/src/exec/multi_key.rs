//! MGET and MSET of several keys: the batch path over more than one shard.
//!
//! Called by dispatch for a call of up to [`WORDS_MAX`] words that nothing stands before. It does what
//! `exec::run_multi` and the commands' bodies do, with each key hashed once, its memory asked for ahead, and no vector
//! made; a call that finds a shard busy it leaves to them.

use darter_command::spec::Inlined;
use darter_command::string::kernel::{self, KernelPlace};
use darter_latch::{Grant, Held};
use darter_store::Key;
use darter_txn::ShardPart;
use darter_wire::{Args, Reply, ReplyBuffer};

use crate::engine::origin::ChangedBy;
use crate::engine::{commit, lease};
use crate::exec::{self, CommandCall};
use crate::job::Job;
use crate::journal::note as journal;
use crate::registry::CommandEntry;
use crate::session::{Gate, Session};
use crate::thread_state::ThreadState;

/// Calls of more words, the name included, take the general way.
pub const WORDS_MAX: usize = 256;

/// What a thread keeps from call to call, so that none allocates.
#[derive(Default)]
pub struct MultiKeyScratch {
    // Hash and shard of each key.
    keys: Vec<(u64, u16)>,
    // A bit for each shard that is wanted.
    wanted: Vec<u64>,
    // By shard: its place in `held`, where it is held.
    places: Vec<u16>,
    // Ascending.
    held: Vec<Held<ShardPart, Job>>,
    reply_buffer: ReplyBuffer,
}

/// Whether a call may be run here. Others' caches and uses that do not count are left to the general way.
#[inline]
pub fn is_for(entry: &CommandEntry, session: &Session, args: Args<'_>) -> bool {
    let is_whole = match entry.inlined {
        Inlined::GetMany => true,
        Inlined::SetMany => args.len() % 2 == 1,
        _ => return false,
    };
    is_whole && args.len() <= WORDS_MAX && !session.gate.has(Gate::TRACKING) && !session.no_touch
}

/// Runs a call that [`is_for`] has let through; false when a shard is busy: nothing was done.
#[inline(never)]
pub fn run(
    local: &mut ThreadState,
    call: &mut CommandCall<'_>,
    entry: &'static CommandEntry,
    args: Args<'_>,
) -> bool {
    let mut scratch = local.many.take().unwrap_or_default();
    let is_set = entry.inlined == Inlined::SetMany;
    scratch.want(local, args, if is_set { 2 } else { 1 });
    let is_held = scratch.take(local);
    if is_held {
        if local.looks_ahead {
            scratch.prefetch(call.session.db);
        }
        let mark = call.out.len();
        if is_set {
            scratch.set(local, call, entry, args);
        } else {
            scratch.get(local, call, args);
        }
        let heard =
            |held: &Held<ShardPart, Job>| held.shard.changes.has_pending() || held.shard.is_over_quota();
        if scratch.held.iter().any(heard) {
            scratch.pass(local, call, entry, args, mark);
        }
    }
    lease::release_each(local, &mut scratch.held);
    local.many = Some(scratch);
    is_held
}

impl MultiKeyScratch {
    /// Hashes the keys, one in `step` words, and notes their shards.
    #[inline]
    fn want(&mut self, local: &ThreadState, args: Args<'_>, step: usize) {
        let shared = local.shared;
        let shards_len = shared.cells.len();
        if self.places.len() != shards_len {
            self.places = vec![0; shards_len];
            self.wanted = vec![0; shards_len.div_ceil(64)];
        }
        self.keys.clear();
        for name in args.tail(1).iter().step_by(step) {
            let hash = shared.router.hasher().hash_key(name);
            let id = shared.router.shard_of(hash);
            if let Some(bits) = self.wanted.get_mut(usize::from(id / 64)) {
                *bits |= 1 << (id % 64);
            }
            self.keys.push((hash, id));
        }
    }

    /// Takes the shards that are wanted, in ascending order; false when one is busy.
    #[inline]
    fn take(&mut self, local: &ThreadState) -> bool {
        let mut is_held = true;
        for (word, bits) in self.wanted.iter_mut().enumerate() {
            let mut bits = std::mem::take(bits);
            while bits != 0 && is_held {
                let id = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                match local.shared.cells.get(id).and_then(lease::take_one) {
                    Some(held) => {
                        if let Some(place) = self.places.get_mut(id) {
                            // Below the number of shards, which is a u16.
                            *place = self.held.len() as u16;
                        }
                        self.held.push(held);
                    }
                    None => is_held = false,
                }
            }
        }
        is_held
    }

    /// Asks for the index lines of all keys, then for their records.
    #[inline]
    fn prefetch(&self, db: usize) {
        let part = |id: u16| self.held.get(usize::from(*self.places.get(usize::from(id))?));
        for &(hash, id) in &self.keys {
            part(id).inspect(|held| held.shard.prefetch_line(db, hash));
        }
        for &(hash, id) in &self.keys {
            part(id).inspect(|held| held.shard.prefetch_record(db, hash));
        }
    }

    /// MGET, with all shards held.
    #[inline]
    fn get(&mut self, local: &ThreadState, call: &mut CommandCall<'_>, args: Args<'_>) {
        let MultiKeyScratch { keys, places, held, reply_buffer, .. } = self;
        let at = KernelPlace { db: call.session.db, now_ms: local.now_ms };
        let resp3 = call.session.resp3;
        Reply::new(call.out, resp3).array(keys.len());
        for (bytes, &(hash, id)) in args.tail(1).iter().zip(keys.iter()) {
            let Some(held) = part_of(held, places, id) else { continue };
            let key = Key { bytes, hash };
            let Some(look) = kernel::get(&mut held.shard, at.db, key, reply_buffer) else { continue };
            // No plain value of a few bytes, or no room for it beside the output.
            reply_buffer.flush(call.out);
            let mut reply = Reply::new(call.out, resp3);
            if kernel::get_looked(&mut held.shard, at, key, look, &mut reply).is_err() {
                reply.null();
            }
        }
        reply_buffer.flush(call.out);
    }

    /// MSET, with all shards held.
    #[inline]
    fn set(
        &mut self,
        local: &ThreadState,
        call: &mut CommandCall<'_>,
        entry: &'static CommandEntry,
        args: Args<'_>,
    ) {
        let MultiKeyScratch { keys, places, held, .. } = self;
        let at = KernelPlace { db: call.session.db, now_ms: local.now_ms };
        let mut reply = Reply::new(call.out, call.session.resp3);
        let mark = reply.len();
        for (nth, &(hash, id)) in keys.iter().enumerate() {
            let Some(held) = part_of(held, places, id) else { continue };
            let key = Key { bytes: args.at(1 + 2 * nth), hash };
            if let Err(fault) = kernel::set_any(&mut held.shard, at, key, args.at(2 + 2 * nth)) {
                return exec::refuse(local, entry, &fault, &mut reply, mark);
            }
        }
        reply.ok();
    }

    /// Tells of what changed, or was found dead, and makes room.
    #[cold]
    #[inline(never)]
    fn pass(
        &mut self,
        local: &mut ThreadState,
        call: &mut CommandCall<'_>,
        entry: &'static CommandEntry,
        args: Args<'_>,
        mark: usize,
    ) {
        let mut grant = Grant::empty();
        self.held.drain(..).for_each(|held| grant.push(held));
        let reply = call.out.get(mark..).unwrap_or_default();
        let ran = journal::Ran { entry, args, db: call.session.db, served: None, reply };
        commit::command(local, &mut grant, ChangedBy(call.session.id), ran);
        lease::release(local, grant);
    }
}

#[inline(always)]
fn part_of<'h>(
    held: &'h mut [Held<ShardPart, Job>],
    places: &[u16],
    id: u16,
) -> Option<&'h mut Held<ShardPart, Job>> {
    held.get_mut(usize::from(*places.get(usize::from(id))?))
}
