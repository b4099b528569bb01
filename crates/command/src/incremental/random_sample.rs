//! Members drawn at random, for SRANDMEMBER, HRANDFIELD and ZRANDMEMBER: with repetition out of all of them, or
//! different ones up to a third of all.
//!
//! The members are walked in their state at the start of the command, and drawn ones are kept ([`RandomSample`]). If
//! there are many more members than draws, they are drawn one after the other with the key watched ([`Picking`]). A
//! change of the key then restarts the draws, as for stored results ([`super::staged`]). Called by the bodies of
//! these commands. Memory: each drawn member once, and 12 bytes for each draw, or for each member if they are fewer.

use std::sync::{Arc, Mutex, PoisonError};

use darter_base::hash::KeyHasher;
use darter_base::rng::Rng;
use darter_pack::tree::Direction;
use darter_pack::tree::window::{SeenLeaf, Tell};
use darter_store::{Arena, Object, Shard, Type};
use darter_wire::{Args, Reply};

use super::TOLD_BYTES;
use super::building::{Build, BuildingPlace};
use super::members::{MembersOperation, TextAt, Texts};
use super::operation::{FoundValue, Operation};
use super::pieces::Pieces;
use crate::member_scan::check_count;
use crate::slices::{self, LEN_MAX};
use crate::{Ctx, Fault};

/// The parameters of the draws and the form of their answer.
struct Draws {
    kind: Type,
    count: u64,
    // None of them twice.
    is_distinct: bool,
    // The part of the reply before the members.
    head: Vec<u8>,
    // Answers a member.
    tell: Tell,
}

/// This many draws are made at once: each may wait for memory twice.
const DRAWS_MAX: u64 = 64;
const DRAWS_PER_SLICE: u64 = 32;
/// Passing a member costs a sixth of a draw. With more members than this for each draw, they are not walked.
const MEMBERS_PER_DRAW: u64 = 8;
/// With fewer members than this for each different one, the answer may be written during the walk.
const DISTINCT_PER_DRAW: u64 = 3;

impl Ctx<'_> {
    /// Leaves drawing from the collection of this type at `name` to slices, or answers when the draws are done.
    /// Returns false if the body must do it now. A negative count asks for draws with repetition, a positive one for
    /// different members. `head` writes the start of a reply with this many members, `tell` a member.
    pub fn draw(
        &mut self,
        (name, kind): (&[u8], Type),
        count: i64,
        head: impl FnOnce(&mut Reply<'_>, u64),
        tell: impl FnOnce() -> Tell,
        reply: &mut Reply<'_>,
    ) -> bool {
        if self.take_answer(reply) {
            return true;
        }
        // A reply that is refused as too long by the body is refused here too.
        let (is_distinct, count) = (count > 0, count.unsigned_abs());
        if !self.may_slice || count <= DRAWS_MAX || check_count(count, self.env).is_err() {
            return false;
        }
        let mut draws = Draws { kind, count, is_distinct, head: Vec::new(), tell: tell() };
        head(&mut Reply::new(&mut draws.head, reply.is_resp3()), count);
        self.leave_draws(name, draws, reply.is_resp3())
    }

    #[cold]
    fn leave_draws(&mut self, name: &[u8], draws: Draws, resp3: bool) -> bool {
        let now_ms = self.now_ms;
        let mut place = self.at(name);
        let rng = Rng::new(place.random());
        let Some((object, arena)) = place.object().filter(|(object, _)| object.kind() == draws.kind) else {
            return false;
        };
        let Some(whole) = slices::whole_of(object) else { return false };
        let is_most = draws.count.saturating_mul(DISTINCT_PER_DRAW) > whole.len;
        if draws.is_distinct && (is_most || whole.len <= LEN_MAX)
            || whole.due_ms.is_some_and(|ms| ms <= now_ms)
        {
            return false;
        }
        let is_left = if whole.len <= LEN_MAX {
            let mut sample = RandomSample::new(draws, 0, rng);
            see_all(object, arena, &mut |seen| sample.keep(seen));
            self.answer_later(&[], Box::new(sample), resp3)
        } else if whole.len <= draws.count.saturating_mul(MEMBERS_PER_DRAW) {
            let sample = RandomSample::new(draws, whole.len, rng);
            self.answer_later(&[(name, whole.stretch)], Box::new(sample), resp3)
        } else if whole.due_ms.is_none() {
            let hasher = *self.shards_mut().router().hasher();
            let picking = Picking::new(BuildingPlace::new(self, name), draws, rng, hasher);
            self.build_answer(name, &[name], Box::new(picking));
            true
        } else {
            false
        };
        if is_left {
            // A hit, and a use.
            self.read(name);
        }
        is_left
    }
}

/// Draws from walked members.
struct RandomSample {
    draws: Draws,
    // Draws that are not answered yet.
    left: u64,
    // Members still to come; those present already count 0.
    len: u64,
    rng: Rng,
    texts: Texts,
    // Each draw, in no order; each member if they are not more than the draws.
    drawn: Vec<TextAt>,
}

impl RandomSample {
    fn new(draws: Draws, len: u64, rng: Rng) -> RandomSample {
        let left = draws.count;
        RandomSample { draws, left, len, rng, texts: Texts::default(), drawn: Vec::new() }
    }

    /// Keeps a member of a short collection.
    fn keep(&mut self, seen: SeenLeaf<'_>) {
        let mut told = Vec::new();
        (self.draws.tell)(seen, &mut told);
        self.drawn.push(self.texts.push(&told));
    }

    /// Returns true if every member is kept, and the draws are made for the answer.
    fn keeps_all(&self) -> bool {
        self.len <= self.draws.count && !self.draws.is_distinct
    }

    /// The member of the next draw.
    fn next(&mut self) -> Option<TextAt> {
        let at = self.rng.below(self.drawn.len() as u64) as usize;
        match self.drawn.get(at) {
            Some(&text) if self.keeps_all() => Some(text),
            Some(_) => Some(self.drawn.swap_remove(at)),
            None => None,
        }
    }
}

impl Operation for RandomSample {
    /// Writes the number of draws of a member, and then its answer.
    fn tell(&self) -> Tell {
        let tell = self.draws.tell.clone();
        let (count, len, rng) = (self.draws.count, self.len, Rng::new(self.rng.clone().next_u64()));
        let tally = Mutex::new(if self.keeps_all() {
            SampleTally::All
        } else if self.draws.is_distinct {
            SampleTally::Distinct(count, len, rng)
        } else {
            SampleTally::Even(Even::new(count, len, rng))
        });
        Arc::new(move |seen, out| {
            let times = tally.lock().unwrap_or_else(PoisonError::into_inner).next();
            out.extend_from_slice(&times.to_le_bytes());
            if times > 0 {
                let at = out.len();
                out.extend_from_slice(&[0; 4]);
                tell(seen, out);
                let len = (out.len() - at - 4) as u32;
                out[at..at + 4].copy_from_slice(&len.to_le_bytes());
            }
        })
    }

    /// Eight bytes for each member that is not drawn.
    fn told_max(&self) -> usize {
        TOLD_BYTES / 2
    }

    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        let mut told = told;
        while let Some((times, rest)) = told.split_first_chunk::<8>() {
            told = rest;
            let times = u64::from_le_bytes(*times);
            if times == 0 {
                continue;
            }
            let Some((len, rest)) = told.split_first_chunk::<4>() else { return Vec::new() };
            let Some((text, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else {
                return Vec::new();
            };
            told = rest;
            let text = self.texts.push(text);
            self.drawn.extend(std::iter::repeat_n(text, times as usize));
        }
        Vec::new()
    }

    fn bytes(&self) -> usize {
        self.texts.bytes() + self.drawn.capacity() * size_of::<TextAt>()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        reply.raw(&std::mem::take(&mut self.draws.head));
        while self.left > 0 && reply.len() < bytes_max {
            self.left -= 1;
            let text = self.next();
            debug_assert!(text.is_some(), "as many were told as there were");
            text.into_iter().for_each(|text| reply.raw(self.texts.get(text)));
        }
        self.left == 0
    }
}

/// Number of draws of each of the members that come.
enum SampleTally {
    /// Once: the draws are made later.
    All,
    /// Once or not at all: this many of the members that are left.
    Distinct(u64, u64, Rng),
    /// As often as drawn.
    Even(Even),
}

impl SampleTally {
    /// Number of draws of the next member.
    fn next(&mut self) -> u64 {
        match self {
            SampleTally::All => 1,
            SampleTally::Distinct(wanted, left, rng) => {
                let is_drawn = rng.below(*left) < *wanted;
                *left = left.saturating_sub(1);
                *wanted -= u64::from(is_drawn);
                is_drawn.into()
            }
            SampleTally::Even(even) => even.next(),
        }
    }
}

/// Draws with repetition, all members equally likely, in the order in which members come.
struct Even {
    passed: u64,
    len: u64,
    left: u64,
    // The position of the first remaining draw among the members; the first member covers 0 to 1.
    next: f64,
    rng: Rng,
}

impl Even {
    fn new(count: u64, len: u64, rng: Rng) -> Even {
        let mut even = Even { passed: 0, len, left: count, next: 0.0, rng };
        even.advance();
        even
    }

    /// Number of draws of the next member. The last one takes all remaining draws.
    fn next(&mut self) -> u64 {
        self.passed += 1;
        let end = if self.passed >= self.len { f64::INFINITY } else { self.passed as f64 };
        let mut times = 0;
        while self.left > 0 && self.next < end {
            (times, self.left) = (times + 1, self.left - 1);
            self.advance();
        }
        times
    }

    /// The least of n random numbers from 0 to 1 is distributed as 1 minus the n-th root of one of them.
    fn advance(&mut self) {
        let random = self.rng.unit_f64();
        let share = -((-random).ln_1p() / self.left.max(1) as f64).exp_m1();
        self.next += (self.len as f64 - self.next) * share;
    }
}

/// Draws from the present collection.
struct Picking {
    place: BuildingPlace,
    draws: Draws,
    left: u64,
    rng: Rng,
    // The members drawn so far, if none may be drawn twice.
    seen: Option<MembersOperation>,
    pieces: Pieces,
}

impl Picking {
    fn new(place: BuildingPlace, draws: Draws, rng: Rng, hasher: KeyHasher) -> Picking {
        let left = draws.count;
        let seen = draws.is_distinct.then(|| MembersOperation::new(left, hasher));
        Picking { place, draws, left, rng, seen, pieces: Pieces::default() }
    }
}

impl Build for Picking {
    fn step(&mut self, shard: &mut Shard, _draft: Option<u32>) -> Result<bool, Fault> {
        let place = self.place.find(shard);
        // A value of another type has changed.
        let Some((object, arena)) = place.object().filter(|(object, _)| object.kind() == self.draws.kind)
        else {
            return Ok(true);
        };
        let mut piece = Vec::new();
        for _ in 0..DRAWS_PER_SLICE {
            let from = piece.len();
            see_one(object, arena, &mut self.rng, &mut |seen| (self.draws.tell)(seen, &mut piece));
            let is_new = self.seen.as_mut().is_none_or(|seen| seen.find_or_add(&piece[from..]).1);
            if is_new {
                self.left -= 1;
            } else {
                piece.truncate(from);
            }
            if self.left == 0 || piece.len() > TOLD_BYTES {
                break;
            }
        }
        self.pieces.push(piece);
        Ok(self.left == 0)
    }

    /// Its key is watched.
    fn is_stale(&self, _shard: &mut Shard) -> bool {
        false
    }

    fn finish(&mut self) -> bool {
        self.pieces.join(&mut self.draws.head)
    }

    fn bytes(&self) -> usize {
        let seen = self.seen.as_ref().map_or(0, MembersOperation::bytes);
        self.pieces.bytes() + self.draws.head.capacity() + seen
    }

    fn found(&mut self) -> FoundValue {
        FoundValue { bytes: std::mem::take(&mut self.draws.head), ..FoundValue::default() }
    }
}

/// Shows every member of a short collection without expired members.
fn see_all(object: &Object, arena: &Arena, see: &mut dyn FnMut(SeenLeaf<'_>)) {
    match object {
        Object::Set(set) => set.iter(arena, 0).for_each(|member| see(SeenLeaf::Item(member))),
        Object::Hash(table) => {
            table.iter(arena).for_each(|entry| see(SeenLeaf::Field(entry.key(), entry.value())));
        }
        Object::Zset(zset) => {
            zset.iter(arena, 0, Direction::Up)
                .for_each(|(member, score)| see(SeenLeaf::Scored(member, score)));
        }
        Object::List(_) | Object::Stream(_) | Object::Module(_) => {
            debug_assert!(false, "these types have no random samples")
        }
    }
}

/// Shows a member at random, each as likely as any other.
fn see_one(object: &Object, arena: &Arena, rng: &mut Rng, see: &mut dyn FnMut(SeenLeaf<'_>)) {
    match object {
        Object::Set(set) => {
            set.random(arena, rng.next_u64()).into_iter().for_each(|member| see(SeenLeaf::Item(member)))
        }
        Object::Hash(table) => {
            let entry = table.random(arena, rng.next_u64());
            entry.into_iter().for_each(|entry| see(SeenLeaf::Field(entry.key(), entry.value())));
        }
        Object::Zset(zset) => {
            let member = zset.nth(arena, rng.below(zset.len()));
            member.into_iter().for_each(|(member, score)| see(SeenLeaf::Scored(member, score)));
        }
        Object::List(_) | Object::Stream(_) | Object::Module(_) => {
            debug_assert!(false, "these types have no random samples")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_draws_are_what_draws_one_by_one_would_give() {
        for (count, len) in [(1, 1u64), (1, 7), (5, 3), (300, 40), (40, 300)] {
            let rounds = 60_000 / count;
            let mut hits = vec![0u64; len as usize];
            // Pairs of equal draws: few if draws are spread too evenly.
            let mut twice = 0u64;
            for round in 0..rounds {
                let mut even = Even::new(count, len, Rng::new(round * 1000 + len));
                let times: Vec<u64> = (0..len).map(|_| even.next()).collect();
                assert_eq!(times.iter().sum::<u64>(), count);
                times.iter().zip(&mut hits).for_each(|(times, hits)| *hits += times);
                twice += times.iter().map(|times| times * times.saturating_sub(1)).sum::<u64>();
            }
            let draws = (rounds * count) as f64;
            let (each, off) = (draws / len as f64, 6.0 * (draws / len as f64).sqrt());
            assert!(hits.iter().all(|&hits| (hits as f64 - each).abs() <= off), "{count} of {len}: {hits:?}");
            let pairs = draws * (count - 1) as f64 / len as f64;
            assert!((twice as f64 - pairs).abs() <= 10.0 * pairs.sqrt() + 1.0, "{count} of {len}: {twice}");
        }
    }
}
