//! Unions, intersections and differences of long sets and sorted sets.
//!
//! Called by `Incremental`, member by member, one collection after the other.

use darter_base::hash::KeyHasher;
use darter_pack::entry::Item;
use darter_wire::{Args, Reply};

use hashbrown::HashTable;
use hashbrown::hash_table::IntoIter;

use super::members::{MemberOf, MembersOperation};
use super::operation::{Operation, OperationStage, ResultTo};
use super::sorted::{Scored, Sorted};
use super::{told_members, write_told};
use crate::slices::LEN_MAX;
use crate::zset::aggregate::Aggregate;

/// The operation on several collections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetOperation {
    /// The members of all.
    Unite,
    /// The members that all have.
    Intersect,
    /// The members of the first that are in no other.
    Subtract,
}

/// The form of the result.
#[derive(Clone, Debug)]
pub enum Scoring {
    /// A set, in no order.
    None,
    /// In order of scores, with or without them in the reply. One weight for each collection, in reading order.
    Scores {
        /// The function that combines the scores of a member.
        aggregate: Aggregate,
        /// The factor for each collection's scores.
        weights: Vec<f64>,
        /// True if the reply contains the scores.
        are_told: bool,
    },
    /// Only the number of members, up to a limit; 0 means no limit.
    Count(u64),
}

/// The members so far, and the parameters.
pub struct Combining {
    operation: SetOperation,
    scoring: Scoring,
    sources_len: u32,
    members: MembersOperation,
    // Members of the result, as far as the collections were read.
    len: usize,
    sorted: Sorted,
    // The part that is sorted or answered next.
    part: usize,
    // The rest of the part that is being answered.
    telling: IntoIter<MemberOf>,
}

/// A member that is not in the result.
const GONE: u32 = 0;
/// Parts of the table that are searched at once for members of the result.
const PARTS_AT_ONCE: usize = 2;
/// Fewer members than this are combined at once.
const TOTAL_MIN: u64 = 2 * LEN_MAX;
/// If one collection is this much smaller than all together, it is cheaper to look up its members in the others.
const SKEW_MAX: u64 = 32;

/// The order in which to read collections of these lengths, if slices are better than one hold.
pub fn reading_order(operation: SetOperation, lens: &[u64]) -> Option<Vec<usize>> {
    let total: u64 = lens.iter().sum();
    let mut order: Vec<usize> = (0..lens.len()).collect();
    let led_by = match operation {
        SetOperation::Unite => total,
        SetOperation::Intersect => *lens.iter().min()?,
        SetOperation::Subtract => *lens.first()?,
    };
    if total < TOTAL_MIN || led_by <= LEN_MAX || total > led_by.saturating_mul(SKEW_MAX) {
        return None;
    }
    if operation != SetOperation::Subtract {
        order.sort_by_key(|at| lens.get(*at));
    }
    order.retain(|at| lens.get(*at).is_some_and(|len| *len > 0));
    Some(order)
}

impl Combining {
    /// A combination of `sources_len` collections, with about `len` members to keep.
    pub fn new(
        operation: SetOperation,
        scoring: Scoring,
        sources_len: usize,
        (len, hasher): (u64, KeyHasher),
    ) -> Combining {
        Combining {
            operation,
            scoring,
            sources_len: sources_len as u32,
            members: MembersOperation::new(len, hasher),
            len: 0,
            sorted: Sorted::new(false),
            part: 0,
            telling: HashTable::new().into_iter(),
        }
    }

    /// Adds a member of the `nth` collection.
    fn add(&mut self, nth: u32, score: f64, text: &[u8]) {
        let (aggregate, weight) = match &self.scoring {
            Scoring::Scores { aggregate, weights, .. } => {
                (*aggregate, weights.get(nth as usize).copied().unwrap_or(1.0))
            }
            Scoring::None | Scoring::Count(_) => (Aggregate::Sum, 1.0),
        };
        if nth == 0 || self.operation == SetOperation::Unite {
            let (member, is_new) = self.members.find_or_add(text);
            let score = aggregate.first(score, weight);
            member.score = if is_new { score } else { aggregate.add(member.score, score) };
            member.seen = 1;
            // An intersection of one is that one.
            let is_result = self.operation != SetOperation::Intersect || self.sources_len == 1;
            self.len += usize::from(is_new && is_result);
            return;
        }
        let Some(member) = self.members.find(text) else { return };
        if self.operation == SetOperation::Subtract {
            self.len -= usize::from(member.seen != GONE);
            member.seen = GONE;
        } else if member.seen == nth {
            // It was in all collections read so far.
            member.seen += 1;
            member.score = aggregate.add(member.score, aggregate.weighted(score, weight));
            self.len += usize::from(member.seen == self.sources_len);
        }
    }

    /// Sorts the members of a part, if required; returns true if all parts are sorted.
    fn sort_part(&mut self) -> bool {
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
    fn head(&self, reply: &mut Reply<'_>) {
        match self.scoring {
            Scoring::None => reply.set(self.len),
            Scoring::Scores { are_told, .. } => crate::zset::reply_head(reply, self.len as u64, are_told),
            Scoring::Count(limit) => {
                let limit = if limit == 0 { u64::MAX } else { limit };
                reply.int((self.len as u64).min(limit) as i64);
            }
        }
    }

    /// Returns true if all members of the result were taken out.
    fn is_over(&self) -> bool {
        match self.scoring {
            Scoring::Scores { .. } => self.sorted.is_over(),
            Scoring::None => self.telling.len() == 0 && self.part >= self.members.parts_len(),
            Scoring::Count(_) => true,
        }
    }

    /// Takes the next member of the result; `None` at the end, and after `parts_left` parts were begun.
    fn next(&mut self, parts_left: &mut usize) -> Option<(&[u8], f64)> {
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

    /// The value of `seen` of a member of the result.
    fn seen_wanted(&self) -> u32 {
        if self.operation == SetOperation::Intersect { self.sources_len } else { 1 }
    }
}

impl Operation for Combining {
    fn take(&mut self, nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        told_members(told).for_each(|member| self.add(nth, member.score, member.text));
        Vec::new()
    }

    fn end_reading(
        &mut self,
        _target: ResultTo,
        _reply: &mut Reply<'_>,
        _bytes_max: usize,
    ) -> OperationStage {
        OperationStage::Arranging
    }

    fn arrange(&mut self, target: ResultTo, reply: &mut Reply<'_>) -> OperationStage {
        match (self.sort_part(), target) {
            (false, _) => OperationStage::Arranging,
            (true, ResultTo::Key) => OperationStage::Storing,
            (true, ResultTo::Reply) => {
                self.head(reply);
                OperationStage::Answering
            }
        }
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
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

    fn store(&mut self, _args: Args<'_>, members_max: usize, told: &mut Vec<u8>) -> bool {
        let mut parts_left = PARTS_AT_ONCE;
        for _ in 0..members_max {
            let Some((text, score)) = self.next(&mut parts_left) else { break };
            write_told(told, text, score);
        }
        self.is_over()
    }

    fn bytes(&self) -> usize {
        self.members.bytes() + self.sorted.bytes()
    }
}
