//! The walk over a document along the steps of a path. It can rest after any child, and holds places, no references.
//!
//! No recursion: the stack has a frame for each level of the document, and one more for each `..`.

use super::PathStep;
use super::trace::{Trace, Tracing};
use crate::doc::Doc;
use crate::form::{self, FormView, MemberName};
use crate::places::ChildPlaces;
use crate::tree::{Children, NodePlace};

/// The places of the nodes that `steps` lead to from the node at `spot`.
pub(super) fn find(doc: Doc<'_>, spot: NodePlace, steps: &[PathStep]) -> Vec<NodePlace> {
    if are_names(steps) {
        return find_each(doc, spot, names_of(steps)).into_iter().collect();
    }
    let mut found = Vec::new();
    PathWalk::new(spot).step(doc, steps, usize::MAX, &mut |_, spot| found.push(spot));
    found
}

/// The first of these places.
pub(super) fn first(doc: Doc<'_>, spot: NodePlace, steps: &[PathStep]) -> Option<NodePlace> {
    if are_names(steps) {
        return find_each(doc, spot, names_of(steps));
    }
    let (mut walk, mut found) = (PathWalk::new(spot), None);
    while found.is_none()
        && !walk.step(doc, steps, FIRST_AT_ONCE, &mut |_, spot| found = found.or(Some(spot)))
    {}
    found
}

/// Children that are looked at before the walk to the first node asks whether it is there.
const FIRST_AT_ONCE: usize = 64;

/// The same nodes, and what leads to them.
pub(super) fn trace(doc: Doc<'_>, spot: NodePlace, steps: &[PathStep]) -> Trace {
    let mut tracing = Tracing::default();
    let (mut gates, mut blocks) = (Vec::new(), Vec::new());
    if are_names(steps) {
        let found = find_named(doc, spot, steps, |at, children| {
            if children.is_in_pieces() {
                gates.push(at);
                children.way(&mut blocks);
            }
        });
        found.into_iter().for_each(|spot| tracing.note(spot, steps.len(), &gates, &blocks));
        return tracing.end();
    }
    PathWalk::new(spot).step(doc, steps, usize::MAX, &mut |frames, spot| {
        gates.clear();
        blocks.clear();
        let entered = frames.iter().filter(|frame| frame.is_entered);
        for frame in entered.clone().filter(|frame| frame.children.is_in_pieces()) {
            gates.push(frame.at);
            frame.children.way(&mut blocks);
        }
        tracing.note(spot, entered.count(), &gates, &blocks);
    });
    tracing.end()
}

/// The node that these names lead to, one after the other.
pub(super) fn find_each<'n>(
    doc: Doc<'_>,
    spot: NodePlace,
    mut names: impl Iterator<Item = &'n [u8]>,
) -> Option<NodePlace> {
    names.try_fold(spot, |spot, name| doc.member_at(spot, name))
}

fn names_of(steps: &[PathStep]) -> impl Iterator<Item = &[u8]> {
    steps.iter().map_while(|step| match step {
        PathStep::Name(name) => Some(&**name),
        _ => None,
    })
}

pub(super) fn are_names(steps: &[PathStep]) -> bool {
    steps.iter().all(|step| matches!(step, PathStep::Name(_)))
}

/// The node that a path of single names leads to: most paths are such, and need no stack. `pass` sees each container on
/// the way, and its children up to the next one.
fn find_named<'a>(
    doc: Doc<'a>,
    spot: NodePlace,
    steps: &[PathStep],
    mut pass: impl FnMut(NodePlace, &Children<'a>),
) -> Option<NodePlace> {
    let mut spot = spot;
    for step in steps {
        let PathStep::Name(name) = step else { return None };
        let (wanted, mut children) = (doc.names.written(name), doc.children(spot));
        let child = children.find(|child| child.name == Some(wanted))?;
        pass(spot, &children);
        spot = child.spot;
    }
    Some(spot)
}

/// A walk under way.
#[derive(Clone, Debug)]
pub(super) struct PathWalk {
    start: Option<NodePlace>,
    stack: Vec<WalkFrame>,
}

/// A node whose children are looked at.
#[derive(Clone, Debug)]
pub(super) struct WalkFrame {
    at: NodePlace,
    children: ChildPlaces,
    // The step that leads to the children.
    step: usize,
    // Names or indexes of the step that are done, children of a slice that were passed; of `..` 1 if the node itself is
    // done.
    nth: usize,
    // The present node is below one of the children.
    is_entered: bool,
}

impl PathWalk {
    /// Begins at the node at `spot`.
    pub fn new(spot: NodePlace) -> PathWalk {
        PathWalk { start: Some(spot), stack: Vec::new() }
    }

    /// Goes on until it has looked at about `children_max` children, and passes each node that `steps` lead to. Returns
    /// true if that was the end.
    pub fn step(
        &mut self,
        doc: Doc<'_>,
        steps: &[PathStep],
        children_max: usize,
        see: &mut dyn FnMut(&[WalkFrame], NodePlace),
    ) -> bool {
        if let Some(spot) = self.start.take() {
            self.enter(doc, (spot, 0), steps, see);
        }
        let mut left = children_max;
        while let Some(frame) = self.stack.last_mut() {
            if left == 0 {
                return false;
            }
            match frame.next(doc, steps, &mut left) {
                FrameNext::Node(spot, step) => self.enter(doc, (spot, step), steps, see),
                FrameNext::Later => {}
                FrameNext::Over => drop(self.stack.pop()),
            }
        }
        true
    }

    /// Passes the node at `spot` if no step is left, else prepares to look at its children.
    fn enter(
        &mut self,
        doc: Doc<'_>,
        (spot, step): (NodePlace, usize),
        steps: &[PathStep],
        see: &mut dyn FnMut(&[WalkFrame], NodePlace),
    ) {
        match steps.get(step) {
            None => see(&self.stack, spot),
            Some(PathStep::Deep) if !form::is_container(doc.node(spot).bytes()) => {
                // No step leads further from here.
                if step + 1 == steps.len() {
                    see(&self.stack, spot);
                }
            }
            Some(kind) => self.stack.extend(WalkFrame::new(doc, spot, (step, kind))),
        }
    }
}

/// What came of looking at children.
enum FrameNext {
    /// This node is next, for the step with this number.
    Node(NodePlace, usize),
    /// More children are to be looked at.
    Later,
    /// No child is left.
    Over,
}

impl WalkFrame {
    /// The children of the node at `at` for a step; `None` if the step leads to none of them.
    fn new(doc: Doc<'_>, at: NodePlace, (step, kind): (usize, &PathStep)) -> Option<WalkFrame> {
        let node = doc.node(at);
        let first = match kind {
            PathStep::Slice { start, .. } => bounds(node.view(), *start, None)?.0,
            PathStep::Indexes(_) => bounds(node.view(), None, None)?.0,
            _ if !form::is_container(node.bytes()) => return None,
            _ => 0,
        };
        let children = ChildPlaces::new(doc, at, first);
        Some(WalkFrame { at, children, step, nth: 0, is_entered: false })
    }

    fn next(&mut self, doc: Doc<'_>, steps: &[PathStep], left: &mut usize) -> FrameNext {
        let after = self.step + 1;
        match steps.get(self.step) {
            None => FrameNext::Over,
            Some(PathStep::Name(name)) => self.named(doc, std::slice::from_ref(name), left),
            Some(PathStep::Names(names)) => self.named(doc, names, left),
            Some(PathStep::Indexes(indexes)) => self.indexed(doc, indexes),
            Some(PathStep::Deep) if self.nth == 0 => {
                self.nth = 1;
                FrameNext::Node(self.at, after)
            }
            Some(PathStep::Deep) => self.each(doc, self.step, left, |_, _| true),
            Some(PathStep::All) => self.each(doc, after, left, |_, _| true),
            Some(PathStep::Filter(filter)) => {
                // A condition takes as long as some children.
                *left = left.saturating_sub(CHILDREN_PER_FILTER);
                self.each(doc, after, left, |_, spot| filter.holds(doc, spot))
            }
            Some(PathStep::Slice { start, end, step }) => {
                let Some((start, end)) = bounds(doc.node(self.at).view(), *start, *end) else {
                    return FrameNext::Over;
                };
                if self.nth >= end.saturating_sub(start) {
                    return FrameNext::Over;
                }
                self.each(doc, after, left, |nth, _| nth.is_multiple_of(*step))
            }
        }
    }

    /// The next child, if `fits` holds for its number and place.
    fn each(
        &mut self,
        doc: Doc<'_>,
        step: usize,
        left: &mut usize,
        fits: impl FnOnce(usize, NodePlace) -> bool,
    ) -> FrameNext {
        *left = left.saturating_sub(1);
        let Some((_, spot)) = self.children.next(doc) else { return FrameNext::Over };
        self.is_entered = true;
        let nth = self.nth;
        self.nth += 1;
        if fits(nth, spot) { FrameNext::Node(spot, step) } else { FrameNext::Later }
    }

    /// The member with the next of these names.
    fn named(&mut self, doc: Doc<'_>, names: &[Box<[u8]>], left: &mut usize) -> FrameNext {
        let Some(name) = names.get(self.nth) else { return FrameNext::Over };
        let wanted: MemberName<'_> = doc.names.written(name);
        if std::mem::replace(&mut self.is_entered, false) {
            self.children = ChildPlaces::new(doc, self.at, 0);
        }
        while *left > 0 {
            *left -= 1;
            match self.children.next(doc) {
                Some((name, _)) if name != Some(wanted) => {}
                child => {
                    self.nth += 1;
                    // The next name begins with the first member again.
                    self.is_entered = true;
                    return child.map_or(FrameNext::Later, |(_, spot)| FrameNext::Node(spot, self.step + 1));
                }
            }
        }
        FrameNext::Later
    }

    /// The item with the next of these indexes.
    fn indexed(&mut self, doc: Doc<'_>, indexes: &[i64]) -> FrameNext {
        let Some(&index) = indexes.get(self.nth) else { return FrameNext::Over };
        self.nth += 1;
        let Some((first, _)) = bounds(doc.node(self.at).view(), Some(index), None) else {
            return FrameNext::Over;
        };
        self.children = ChildPlaces::new(doc, self.at, first);
        self.is_entered = true;
        let child = self.children.next(doc);
        child.map_or(FrameNext::Later, |(_, spot)| FrameNext::Node(spot, self.step + 1))
    }
}

/// Children that are looked at in the time that a condition takes.
const CHILDREN_PER_FILTER: usize = 8;

/// The items of an array from index `start` to before `end`, counted from the back if negative; `None` of other nodes.
fn bounds(array: FormView<'_>, start: Option<i64>, end: Option<i64>) -> Option<(usize, usize)> {
    let FormView::Array(count) = array else { return None };
    let len = i64::try_from(count).ok()?;
    let absolute = |index: i64| if index >= 0 { index.min(len) } else { index.saturating_add(len).max(0) };
    let place = |index: Option<i64>, otherwise: i64| {
        usize::try_from(absolute(index.unwrap_or(otherwise))).unwrap_or(0)
    };
    Some((place(start, 0), place(end, len)))
}
