//! Unions, intersections and differences of long sets and sorted sets.
//!
//! Called by `Gather`, member by member, one collection after the other.

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_wire::Reply;

use hashbrown::HashTable;
use hashbrown::hash_table::IntoIter;

use super::members::{Member, Members};
use super::sorted::{Scored, Sorted};
use crate::slices::LEN_MAX;
use crate::zset::aggregate::Aggregate;

/// What is made of several collections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// The members of all.
    Unite,
    /// The members that all have.
    Intersect,
    /// The members of the first that no other has.
    Subtract,
}

/// How the result is told.
#[derive(Clone, Debug)]
pub enum Scoring {
    /// As a set, in no order.
    None,
    /// In order of scores, which are told too or not. One weight for each collection, in the order of reading.
    Scores {
        /// How the scores of a member become one.
        aggregate: Aggregate,
        /// What each collection's scores are multiplied by.
        weights: Vec<f64>,
        /// Whether they are told.
        are_told: bool,
    },
    /// Only the number of its members, up to a limit; 0 is none.
    Count(u64),
}

/// The members so far, and what is asked for.
pub struct Combining {
    operation: Operation,
    scoring: Scoring,
    sources_len: u32,
    members: Members,
    // Members of the result, as far as everything is read.
    len: usize,
    sorted: Sorted,
    // The part that is arranged or told next.
    part: usize,
    // What is left of the part that is being told.
    telling: IntoIter<Member>,
}

/// A member that is not in the result.
const GONE: u32 = 0;
/// Parts of the table gone through at once, in search of members of the result.
pub(super) const PARTS_AT_ONCE: usize = 2;
/// Combining fewer members than this is done in one go.
const TOTAL_MIN: u64 = 2 * LEN_MAX;
/// Where one collection is that much smaller than all together, looking its members up in the others is better.
const SKEW_MAX: u64 = 32;

/// In which order to read collections of these lengths, when slices are better than one go.
pub fn reading_order(operation: Operation, lens: &[u64]) -> Option<Vec<usize>> {
    let total: u64 = lens.iter().sum();
    let mut order: Vec<usize> = (0..lens.len()).collect();
    let led_by = match operation {
        Operation::Unite => total,
        Operation::Intersect => *lens.iter().min()?,
        Operation::Subtract => *lens.first()?,
    };
    if total < TOTAL_MIN || led_by <= LEN_MAX || total > led_by.saturating_mul(SKEW_MAX) {
        return None;
    }
    if operation != Operation::Subtract {
        order.sort_by_key(|at| lens.get(*at));
    }
    order.retain(|at| lens.get(*at).is_some_and(|len| *len > 0));
    Some(order)
}

impl Combining {
    /// Of `sources_len` collections, with about `len` members to keep.
    pub fn new(
        operation: Operation,
        scoring: Scoring,
        sources_len: usize,
        (len, hasher): (u64, KeyHasher),
    ) -> Combining {
        Combining {
            operation,
            scoring,
            sources_len: sources_len as u32,
            members: Members::new(len, hasher),
            len: 0,
            sorted: Sorted::new(false),
            part: 0,
            telling: HashTable::new().into_iter(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.members.bytes() + self.sorted.bytes()
    }

    /// Takes in a member of the `nth` collection.
    pub(super) fn add(&mut self, nth: u32, score: f64, text: &[u8]) {
        let (aggregate, weight) = match &self.scoring {
            Scoring::Scores { aggregate, weights, .. } => {
                (*aggregate, weights.get(nth as usize).copied().unwrap_or(1.0))
            }
            Scoring::None | Scoring::Count(_) => (Aggregate::Sum, 1.0),
        };
        if nth == 0 || self.operation == Operation::Unite {
            let (member, is_new) = self.members.find_or_add(text);
            let score = aggregate.first(score, weight);
            member.score = if is_new { score } else { aggregate.add(member.score, score) };
            member.seen = 1;
            // An intersection of one is that one.
            let is_result = self.operation != Operation::Intersect || self.sources_len == 1;
            self.len += usize::from(is_new && is_result);
            return;
        }
        let Some(member) = self.members.find(text) else { return };
        if self.operation == Operation::Subtract {
            self.len -= usize::from(member.seen != GONE);
            member.seen = GONE;
        } else if member.seen == nth {
            // It was in all that were read before.
            member.seen += 1;
            member.score = aggregate.add(member.score, aggregate.weighted(score, weight));
            self.len += usize::from(member.seen == self.sources_len);
        }
    }

    /// Puts the members of a part in order, where that is asked for; whether all are.
    pub(super) fn arrange(&mut self) -> bool {
        if !matches!(self.scoring, Scoring::Scores { .. }) {
            return true;
        }
        if self.part == self.members.parts_len() {
            self.sorted.seal(&self.members.texts);
            return true;
        }
        let wanted = self.seen_wanted();
        for member in self.members.take_part(self.part) {
            if member.seen == wanted {
                self.sorted.push(&self.members.texts, Scored { score: member.score, text: member.text });
            }
        }
        self.part += 1;
        false
    }

    /// Begins the answer.
    pub(super) fn head(&self, reply: &mut Reply<'_>) {
        match self.scoring {
            Scoring::None => reply.set(self.len),
            Scoring::Scores { are_told, .. } => crate::zset::reply_head(reply, self.len as u64, are_told),
            Scoring::Count(limit) => {
                let limit = if limit == 0 { u64::MAX } else { limit };
                reply.int((self.len as u64).min(limit) as i64);
            }
        }
    }

    /// Goes on with the answer; whether that was all.
    pub(super) fn tell(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if let Scoring::Count(_) = self.scoring {
            return true;
        }
        let are_told = matches!(self.scoring, Scoring::Scores { are_told: true, .. });
        let mut parts_left = PARTS_AT_ONCE;
        while reply.len() < bytes_max {
            let Some((text, score)) = self.next(&mut parts_left) else { return self.is_over() };
            crate::zset::reply_member(reply, (Item::Bytes(text), score), are_told);
        }
        false
    }

    /// Whether all members of the result were taken out.
    pub(super) fn is_over(&self) -> bool {
        match self.scoring {
            Scoring::Scores { .. } => self.sorted.is_over(),
            Scoring::None => self.telling.len() == 0 && self.part >= self.members.parts_len(),
            Scoring::Count(_) => true,
        }
    }

    /// Takes the next member of the result out; `None` at the end, and when so many parts were begun.
    pub(super) fn next(&mut self, parts_left: &mut usize) -> Option<(&[u8], f64)> {
        let (text, score) = match self.scoring {
            Scoring::Scores { .. } => {
                let member = self.sorted.next(&self.members.texts)?;
                (member.text, member.score)
            }
            Scoring::None | Scoring::Count(_) => {
                let wanted = self.seen_wanted();
                loop {
                    match self.telling.next() {
                        Some(member) if member.seen == wanted => break (member.text, member.score),
                        Some(_) => {}
                        None if *parts_left == 0 || self.part >= self.members.parts_len() => return None,
                        None => {
                            *parts_left -= 1;
                            self.telling = self.members.take_part(self.part).into_iter();
                            self.part += 1;
                        }
                    }
                }
            }
        };
        Some((self.members.texts.get(text), score))
    }

    /// What was seen of a member of the result.
    fn seen_wanted(&self) -> u32 {
        if self.operation == Operation::Intersect { self.sources_len } else { 1 }
    }
}
