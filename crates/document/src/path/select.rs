//! The walk over a document along the steps of a path.
//!
//! Each step but `..` leads one level down, and a document has at most 128: the recursion is as deep as that.

use super::PathStep;
use super::trace::{Trace, Tracing};
use crate::doc::Doc;
use crate::form;
use crate::tree::{Child, Children, NodePlace};

/// The places of the nodes that `steps` lead to from the node at `spot`.
pub(super) fn find(doc: Doc<'_>, spot: NodePlace, steps: &[PathStep]) -> Vec<NodePlace> {
    let mut found = Vec::new();
    SelectWalk { doc, see: &mut |_, spot, _| found.push(spot), way: NodeWay::default(), traces: None }
        .step(spot, 0, steps);
    found
}

/// The same nodes, and what leads to them.
pub(super) fn trace(doc: Doc<'_>, spot: NodePlace, steps: &[PathStep]) -> Trace {
    let mut tracing = Tracing::default();
    let mut see =
        |way: &NodeWay, spot: NodePlace, level: usize| tracing.note(spot, level, &way.gates, &way.blocks);
    SelectWalk { doc, see: &mut see, way: NodeWay::default(), traces: Some(()) }.step(spot, 0, steps);
    tracing.end()
}

/// The containers in pieces that lead to a node, and their blocks.
#[derive(Default)]
struct NodeWay {
    gates: Vec<NodePlace>,
    blocks: Vec<u32>,
}

struct SelectWalk<'a, 'f> {
    doc: Doc<'a>,
    see: &'f mut dyn FnMut(&NodeWay, NodePlace, usize),
    way: NodeWay,
    // Set if `way` is needed.
    traces: Option<()>,
}

impl<'a> SelectWalk<'a, '_> {
    fn step(&mut self, at: NodePlace, level: usize, steps: &[PathStep]) {
        let Some((step, rest)) = steps.split_first() else {
            return (self.see)(&self.way, at, level);
        };
        match step {
            PathStep::Name(name) => self.name(at, level, name, rest),
            PathStep::Names(names) => names.iter().for_each(|name| self.name(at, level, name, rest)),
            PathStep::Indexes(indexes) => self.indexes(at, level, indexes, rest),
            PathStep::Slice { start, end, step } => self.slice(at, level, (*start, *end, *step), rest),
            PathStep::All => self.each(at, &mut |walk, child| walk.step(child.spot, level + 1, rest)),
            PathStep::Deep => self.deep(at, level, rest),
            PathStep::Filter(filter) => {
                let doc = self.doc;
                self.each(at, &mut |walk, child| {
                    if filter.holds(doc, child.spot) {
                        walk.step(child.spot, level + 1, rest);
                    }
                });
            }
        }
    }

    /// Calls `go` for each child of the node at `at`.
    fn each(&mut self, at: NodePlace, go: &mut dyn FnMut(&mut Self, Child<'a>)) {
        let mut children = self.doc.children(at);
        while let Some(child) = children.next() {
            self.go(at, &children, &mut |walk| go(walk, child));
        }
    }

    /// Calls `go` with the way to the child of the node at `at` that `children` has just passed.
    fn go(&mut self, at: NodePlace, children: &Children<'a>, go: &mut dyn FnMut(&mut Self)) {
        if self.traces.is_none() || !children.is_in_pieces() {
            return go(self);
        }
        let (gates, blocks) = (self.way.gates.len(), self.way.blocks.len());
        self.way.gates.push(at);
        children.way(&mut self.way.blocks);
        go(self);
        self.way.gates.truncate(gates);
        self.way.blocks.truncate(blocks);
    }

    fn name(&mut self, at: NodePlace, level: usize, name: &[u8], rest: &[PathStep]) {
        let wanted = self.doc.names.written(name);
        let mut children = self.doc.children(at);
        while let Some(child) = children.next() {
            if child.name == Some(wanted) {
                return self.go(at, &children, &mut |walk| walk.step(child.spot, level + 1, rest));
            }
        }
    }

    /// Number of items of the array at `at`.
    fn items_len(&self, at: NodePlace) -> Option<i64> {
        match self.doc.node(at).view() {
            form::FormView::Array(count) => i64::try_from(count).ok(),
            _ => None,
        }
    }

    fn indexes(&mut self, at: NodePlace, level: usize, indexes: &[i64], rest: &[PathStep]) {
        let Some(len) = self.items_len(at) else { return };
        for &index in indexes {
            let Ok(index) = usize::try_from(absolute(index, len)) else { continue };
            let mut children = self.doc.children(at).from(index);
            if let Some(child) = children.next() {
                self.go(at, &children, &mut |walk| walk.step(child.spot, level + 1, rest));
            }
        }
    }

    fn slice(
        &mut self,
        at: NodePlace,
        level: usize,
        (start, end, step): (Option<i64>, Option<i64>, usize),
        rest: &[PathStep],
    ) {
        let Some(len) = self.items_len(at) else { return };
        let place = |index: Option<i64>, otherwise: i64| {
            usize::try_from(absolute(index.unwrap_or(otherwise), len)).unwrap_or(0)
        };
        let (start, end) = (place(start, 0), place(end, len));
        let mut children = self.doc.children(at).from(start);
        for number in start..end {
            let Some(child) = children.next() else { break };
            if (number - start).is_multiple_of(step) {
                self.go(at, &children, &mut |walk| walk.step(child.spot, level + 1, rest));
            }
        }
    }

    fn deep(&mut self, at: NodePlace, level: usize, rest: &[PathStep]) {
        self.step(at, level, rest);
        if form::is_container(self.doc.node(at).bytes()) {
            self.each(at, &mut |walk, child| walk.deep(child.spot, level + 1, rest));
        }
    }
}

/// An index from the front, within 0 and `len`.
fn absolute(index: i64, len: i64) -> i64 {
    if index >= 0 { index.min(len) } else { index.saturating_add(len).max(0) }
}
