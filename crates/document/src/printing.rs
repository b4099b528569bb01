//! Printing in steps: the state between two of them holds places, no references.
//!
//! Called for long answers and for snapshots, which show one state of a document in pieces.

use crate::doc::{Doc, DocNode};
use crate::floats::FloatRuns;
use crate::form::{self, Container, FormView, MemberName};
use crate::places::ChildPlaces;
use crate::print::{PrintStyle, print_scalar, write_string};
use crate::tree::NodePlace;

/// The text of one node, in progress.
#[derive(Clone, Debug)]
pub struct Printing {
    start: Option<NodePlace>,
    level: usize,
    // The containers around the next child.
    open: Vec<PrintFrame>,
    // The formats of floats, if they are noted.
    floats: Option<FloatRuns>,
    // Bytes of the nodes and names printed so far.
    passed_bytes: usize,
}

/// A container that is being printed.
#[derive(Clone, Debug)]
struct PrintFrame {
    children: ChildPlaces,
    is_empty: bool,
}

impl Printing {
    /// Begins the text of the node at `spot`, whose container is at `level`.
    pub fn new(spot: NodePlace, level: usize) -> Printing {
        Printing { start: Some(spot), level, open: Vec::new(), floats: None, passed_bytes: 0 }
    }

    /// Notes the formats of the floats that are printed.
    pub fn noting_floats(self) -> Printing {
        Printing { floats: Some(FloatRuns::default()), ..self }
    }

    /// Appends the formats of the floats since the last call, if one of them has less than 64 bits; returns whether it
    /// did. Floats since the last such one may follow in a later call.
    pub fn take_floats(&mut self, out: &mut Vec<u8>) -> bool {
        self.floats.as_mut().is_some_and(|floats| floats.take(out))
    }

    /// Bytes of the document that have been printed: those of nodes and names, which are fewer than those of its text.
    pub fn passed_bytes(&self) -> usize {
        self.passed_bytes
    }

    /// Appends text until `out` has `bytes_max` bytes or a value more. Returns true if that was the end.
    pub fn step(&mut self, doc: Doc<'_>, style: PrintStyle<'_>, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let names = doc.names.all();
        if let Some(spot) = self.start.take() {
            self.value(doc, spot, out);
        }
        while out.len() < bytes_max {
            let level = self.level + self.open.len();
            let Some(open) = self.open.last_mut() else { return true };
            let Some((name, spot)) = open.children.next(doc) else {
                let is_plain = open.is_empty || style == PrintStyle::default();
                let close = if open.children.kind == Container::Object { b'}' } else { b']' };
                self.open.pop();
                if !is_plain {
                    style.line(out, level - 1);
                }
                out.push(close);
                continue;
            };
            if !std::mem::replace(&mut open.is_empty, false) {
                out.push(b',');
            }
            if style != PrintStyle::default() {
                style.line(out, level);
            }
            if let Some(name) = name {
                let text = match name {
                    MemberName::Known(place) if !names.is_empty() => {
                        names.get(usize::from(place)).copied().unwrap_or_default()
                    }
                    name => doc.names.text(name),
                };
                self.passed_bytes += if matches!(name, MemberName::Own(_)) { 1 + text.len() } else { 1 };
                write_string(text, out);
                out.push(b':');
                out.extend_from_slice(style.space);
            }
            self.value(doc, spot, out);
        }
        self.open.is_empty()
    }

    /// Appends a scalar, or opens a container.
    fn value(&mut self, doc: Doc<'_>, spot: NodePlace, out: &mut Vec<u8>) {
        let node = doc.node(spot);
        if !form::is_container(node.bytes()) {
            let view = node.view();
            self.passed_bytes += node.bytes().len();
            if let (Some(floats), FormView::Float(_)) = (&mut self.floats, view) {
                floats.note(node.bytes());
            }
            return print_scalar(view, out);
        }
        self.passed_bytes += 1;
        out.push(if form::is_object(node.bytes()) { b'{' } else { b'[' });
        self.open.push(PrintFrame { children: ChildPlaces::new(doc, spot, 0), is_empty: true });
    }
}

/// A walk over a node and all that is below it, in the order of its text, that can rest after any node.
#[derive(Clone, Debug)]
pub struct NodeWalk {
    start: Option<NodePlace>,
    open: Vec<ChildPlaces>,
}

impl NodeWalk {
    /// Begins with the node at `spot`.
    pub fn new(spot: NodePlace) -> NodeWalk {
        NodeWalk { start: Some(spot), open: Vec::new() }
    }

    /// The next node, and its name if it is a member.
    pub fn next<'a>(&mut self, doc: Doc<'a>) -> Option<(Option<&'a [u8]>, DocNode<'a>)> {
        let (name, spot) = match self.start.take() {
            Some(spot) => (None, spot),
            None => loop {
                match self.open.last_mut()?.next(doc) {
                    Some(child) => break child,
                    None => drop(self.open.pop()),
                }
            },
        };
        let node = doc.node(spot);
        if form::is_container(node.bytes()) {
            self.open.push(ChildPlaces::new(doc, spot, 0));
        }
        Some((name.map(|name| doc.names.text(name)), node))
    }
}
