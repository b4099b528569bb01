//! Members in order of their scores and texts: sorted in short runs, which are merged while they are answered.
//!
//! No step sorts more than one run. Called by code that gathers answers.

use std::cmp::Ordering;

use super::members::{TextAt, Texts};

/// An element to sort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scored {
    /// The primary order. No NaN.
    pub score: f64,
    /// The order of equal scores.
    pub text: TextAt,
}

/// An element with an order.
pub(super) trait InOrder: Copy {
    /// The order of two elements.
    fn order(&self, other: &Self, texts: &Texts, is_descending: bool) -> Ordering;
}

/// Runs, and the one being filled.
pub(super) struct Sorted<T = Scored> {
    runs: Vec<Vec<T>>,
    open: Vec<T>,
    is_descending: bool,
    // While merging: the runs that are left, the one with the next member first, as a heap.
    heap: Vec<usize>,
    len: usize,
}

/// Members sorted at once: some 100 microseconds.
const RUN_LEN: usize = 1024;

impl<T: InOrder> Sorted<T> {
    pub fn new(is_descending: bool) -> Sorted<T> {
        Sorted { runs: Vec::new(), open: Vec::new(), is_descending, heap: Vec::new(), len: 0 }
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Adds a member.
    pub fn push(&mut self, texts: &Texts, member: T) {
        self.len += 1;
        self.open.push(member);
        if self.open.len() >= RUN_LEN {
            self.close_run(texts);
        }
    }

    /// Ends adding: from now on members can be taken.
    pub fn seal(&mut self, texts: &Texts) {
        self.close_run(texts);
        self.heap = (0..self.runs.len()).collect();
        for at in (0..self.heap.len() / 2).rev() {
            self.sift(texts, at);
        }
    }

    /// Returns true if all were taken, after [`Sorted::seal`].
    pub fn is_over(&self) -> bool {
        self.heap.is_empty()
    }

    /// Takes the next member. Cost: O(log runs).
    pub fn next(&mut self, texts: &Texts) -> Option<T> {
        let run = *self.heap.first()?;
        let member = self.runs.get_mut(run)?.pop()?;
        if self.runs.get(run).is_none_or(Vec::is_empty) {
            self.runs[run] = Vec::new();
            self.heap.swap_remove(0);
        }
        self.sift(texts, 0);
        Some(member)
    }

    /// Runs are sorted with their first members last, to be popped.
    fn close_run(&mut self, texts: &Texts) {
        let mut run = std::mem::take(&mut self.open);
        if run.is_empty() {
            return;
        }
        let is_descending = self.is_descending;
        run.sort_unstable_by(|a, b| b.order(a, texts, is_descending));
        self.runs.push(run);
    }

    /// Moves the run at `at` of the heap down to its place.
    fn sift(&mut self, texts: &Texts, mut at: usize) {
        loop {
            let mut first = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_before(texts, child, first) {
                    first = child;
                }
            }
            if first == at {
                return;
            }
            self.heap.swap(at, first);
            at = first;
        }
    }

    fn is_before(&self, texts: &Texts, a: usize, b: usize) -> bool {
        let next = |at: usize| self.heap.get(at).and_then(|run| self.runs.get(*run)?.last());
        match (next(a), next(b)) {
            (Some(a), Some(b)) => a.order(b, texts, self.is_descending) == Ordering::Less,
            _ => false,
        }
    }
}

impl InOrder for Scored {
    fn order(&self, other: &Scored, texts: &Texts, is_descending: bool) -> Ordering {
        // 0.0 and -0.0 are equal.
        let by_score = (self.score + 0.0).total_cmp(&(other.score + 0.0));
        let order = by_score.then_with(|| texts.get(self.text).cmp(texts.get(other.text)));
        if is_descending { order.reverse() } else { order }
    }
}
