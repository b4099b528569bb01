//! SORT of a long list, set or sorted set by its own elements.
//!
//! Called by `Gather`, element by element.

use darter_wire::Reply;

use super::members::Texts;
use super::sorted::{Scored, Sorted};
use crate::Fault;

/// The elements so far, and what is asked for.
pub struct Sorting {
    texts: Texts,
    sorted: Sorted,
    // None: by their texts.
    score_of: Option<ScoreOf>,
    offset: i64,
    count: i64,
    // Elements still to be told.
    left: usize,
    fault: Option<Fault>,
}

/// The number an element is sorted by.
pub type ScoreOf = fn(&[u8]) -> Result<f64, Fault>;

impl Sorting {
    /// By numbers, or by texts where there is no `score_of`; `range` is the offset and the count, negative for all.
    pub fn new(score_of: Option<ScoreOf>, is_descending: bool, (offset, count): (i64, i64)) -> Sorting {
        let sorted = Sorted::new(is_descending);
        Sorting { texts: Texts::default(), sorted, score_of, offset, count, left: 0, fault: None }
    }

    pub(super) fn bytes(&self) -> usize {
        self.texts.bytes() + self.sorted.bytes()
    }

    /// Whether an element is no number: nothing more need be read.
    pub(super) fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    pub(super) fn add(&mut self, text: &[u8]) {
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

    /// What is wrong with an element.
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Begins the answer; false when that was all of it.
    pub(super) fn head(&mut self, reply: &mut Reply<'_>) -> bool {
        if let Some(fault) = &self.fault {
            reply.error(fault.line().as_bytes());
            return false;
        }
        reply.array(self.seal());
        true
    }

    /// Ends reading; returns how many elements there are to tell.
    pub(super) fn seal(&mut self) -> usize {
        self.sorted.seal(&self.texts);
        let len = self.sorted.len();
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        self.left = (len - start).min(usize::try_from(self.count).unwrap_or(usize::MAX));
        // From here on what is before the range.
        self.offset = start as i64;
        self.left
    }

    /// Goes on with the answer; whether that was all.
    pub(super) fn tell(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        self.go_on(|text| {
            reply.bulk(text);
            reply.len() < bytes_max
        })
    }

    /// Shows elements to `emit` as long as it answers true, a few hundred at most; whether that was all.
    pub(super) fn go_on(&mut self, mut emit: impl FnMut(&[u8]) -> bool) -> bool {
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

/// Elements taken at once, told or not.
const STEPS_MAX: usize = 512;
