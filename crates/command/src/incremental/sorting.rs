//! SORT of a long list, set or sorted set by its own elements.
//!
//! Called by `Incremental`, element by element.

use darter_wire::{Args, Reply};

use super::members::Texts;
use super::operation::{Operation, OperationStage, ResultTo};
use super::sorted::{Scored, Sorted};
use super::{told_members, write_told};
use crate::Fault;

/// The elements so far, and the parameters.
pub struct Sorting {
    texts: Texts,
    sorted: Sorted,
    // None: by their texts.
    score_of: Option<ScoreOf>,
    offset: i64,
    count: i64,
    // Elements still to be answered.
    left: usize,
    fault: Option<Fault>,
}

/// The number an element is sorted by.
pub type ScoreOf = fn(&[u8]) -> Result<f64, Fault>;

impl Sorting {
    /// Sorts by numbers, or by texts without `score_of`; `range` is the offset and the count, negative for all.
    pub fn new(score_of: Option<ScoreOf>, is_descending: bool, (offset, count): (i64, i64)) -> Sorting {
        let sorted = Sorted::new(is_descending);
        Sorting { texts: Texts::default(), sorted, score_of, offset, count, left: 0, fault: None }
    }

    fn add(&mut self, text: &[u8]) {
        let score = match self.score_of {
            Some(score_of) => score_of(text),
            None => Ok(0.0),
        };
        match score {
            Ok(score) => {
                let text = self.texts.push(text);
                self.sorted.push(&self.texts, Scored { score, text });
            }
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Begins the answer; returns false if it is complete already.
    fn head(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(fault) = &self.fault {
            reply.error(fault.line().as_bytes());
            return false;
        }
        reply.array(self.seal());
        true
    }

    /// Ends reading; returns the number of elements to answer.
    fn seal(&mut self) -> usize {
        self.sorted.seal(&self.texts);
        let len = self.sorted.len();
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        self.left = (len - start).min(usize::try_from(self.count).unwrap_or(usize::MAX));
        // From here on the number of elements before the range.
        self.offset = start as i64;
        self.left
    }

    /// Shows elements to `emit` while it returns true, a few hundred at most. Returns true if those were all.
    fn go_on(&mut self, mut emit: impl FnMut(&[u8]) -> bool) -> bool {
        for _ in 0..STEPS_MAX {
            if self.left == 0 {
                break;
            }
            let Some(element) = self.sorted.next(&self.texts) else { return true };
            if self.offset > 0 {
                self.offset -= 1;
                continue;
            }
            self.left -= 1;
            if !emit(self.texts.get(element.text)) {
                break;
            }
        }
        self.left == 0
    }
}

impl Operation for Sorting {
    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        told_members(told).for_each(|member| self.add(member.text));
        Vec::new()
    }

    /// If an element is no number, nothing more need be read.
    fn is_decided(&self) -> bool {
        self.fault.is_some()
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
        match target {
            ResultTo::Key if self.fault.is_some() => OperationStage::Done,
            ResultTo::Key => {
                self.seal();
                OperationStage::Storing
            }
            ResultTo::Reply if self.head(reply) => OperationStage::Answering,
            ResultTo::Reply => OperationStage::Done,
        }
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        self.go_on(|text| {
            reply.bulk(text);
            reply.len() < bytes_max
        })
    }

    fn store(&mut self, _args: Args<'_>, members_max: usize, told: &mut Vec<u8>) -> bool {
        let mut left = members_max;
        self.go_on(|text| {
            write_told(told, text, 0.0);
            left -= 1;
            left > 0
        })
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn bytes(&self) -> usize {
        self.texts.bytes() + self.sorted.bytes()
    }
}

/// Elements taken at once, answered or not.
const STEPS_MAX: usize = 512;
