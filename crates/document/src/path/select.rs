//! The walk over a document along the steps of a path.
//!
//! Each step but `..` leads one level down, and a document has at most 128: the recursion is as deep as that.

use super::Step;
use crate::doc::Doc;
use crate::form::{self, Name};

/// The starts of the nodes that `steps` lead to from the node at `at`.
pub(super) fn find(doc: Doc<'_>, at: usize, steps: &[Step]) -> Vec<usize> {
    let mut walk = Walk { doc, found: Vec::new() };
    walk.step(at, steps);
    walk.found
}

struct Walk<'a> {
    doc: Doc<'a>,
    found: Vec<usize>,
}

/// A child: its name if it is a member, and the start of its value.
struct Child<'a> {
    name: Option<Name<'a>>,
    at: usize,
}

/// The children of the node at `at`.
fn children<'a>(doc: Doc<'a>, at: usize) -> impl Iterator<Item = Child<'a>> {
    let bytes = doc.bytes();
    let node = bytes.get(at..).unwrap_or_default();
    let is_object = node.first() == Some(&form::OBJECT);
    let (first, last) = form::inner(node);
    let (mut place, end) = (at + first, at + last);
    std::iter::from_fn(move || {
        if place >= end {
            return None;
        }
        let rest = bytes.get(place..)?;
        let (name, width) = if is_object { form::name(rest) } else { (Name::Own(&[]), 0) };
        let value = place + width;
        place = value + form::node_len(bytes.get(value..)?).max(1);
        Some(Child { name: is_object.then_some(name), at: value })
    })
}

impl Walk<'_> {
    fn step(&mut self, at: usize, steps: &[Step]) {
        let Some((step, rest)) = steps.split_first() else {
            self.found.push(at);
            return;
        };
        match step {
            Step::Names(names) => self.names(at, names, rest),
            Step::Indexes(indexes) => self.indexes(at, indexes, rest),
            Step::Slice { start, end, step } => self.slice(at, (*start, *end, *step), rest),
            Step::All => children(self.doc, at).for_each(|child| self.step(child.at, rest)),
            Step::Deep => self.deep(at, rest),
            Step::Filter(filter) => {
                let doc = self.doc;
                children(doc, at)
                    .filter(|child| filter.holds(doc, child.at))
                    .for_each(|child| self.step(child.at, rest));
            }
        }
    }

    fn names(&mut self, at: usize, names: &[Box<[u8]>], rest: &[Step]) {
        for name in names {
            let wanted = self.doc.names.written(name);
            if let Some(child) = children(self.doc, at).find(|child| child.name == Some(wanted)) {
                self.step(child.at, rest);
            }
        }
    }

    /// Number of items of the array at `at`.
    fn items_len(&self, at: usize) -> Option<i64> {
        match self.doc.node(at).view() {
            form::View::Array(children) => i64::try_from(children.count).ok(),
            _ => None,
        }
    }

    fn indexes(&mut self, at: usize, indexes: &[i64], rest: &[Step]) {
        let Some(len) = self.items_len(at) else { return };
        for &index in indexes {
            let index = absolute(index, len);
            if let Some(child) =
                usize::try_from(index).ok().and_then(|index| children(self.doc, at).nth(index))
            {
                self.step(child.at, rest);
            }
        }
    }

    fn slice(&mut self, at: usize, (start, end, step): (Option<i64>, Option<i64>, usize), rest: &[Step]) {
        let Some(len) = self.items_len(at) else { return };
        let place = |index: Option<i64>, otherwise: i64| {
            usize::try_from(absolute(index.unwrap_or(otherwise), len)).unwrap_or(0)
        };
        let (start, end) = (place(start, 0), place(end, len));
        let chosen = children(self.doc, at).take(end).skip(start).step_by(step);
        chosen.for_each(|child| self.step(child.at, rest));
    }

    fn deep(&mut self, at: usize, rest: &[Step]) {
        self.step(at, rest);
        if form::is_container(self.doc.node(at).bytes()) {
            children(self.doc, at).for_each(|child| self.deep(child.at, rest));
        }
    }
}

/// An index from the front, within 0 and `len`.
fn absolute(index: i64, len: i64) -> i64 {
    if index >= 0 { index.min(len) } else { index.saturating_add(len).max(0) }
}
