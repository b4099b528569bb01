//! Printing in steps: the state between two of them holds places, no references.
//!
//! Called for long answers and for snapshots, which show one state of a document in pieces.

use crate::doc::Doc;
use crate::floats::FloatRuns;
use crate::form::{self, BlockRef, Container, FormView, MemberName};
use crate::print::{PrintStyle, print_scalar, write_string};
use crate::tree::{self, NodePlace};

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
    kind: Container,
    is_empty: bool,
    // Inner blocks of a container in pieces, from the top, each with its next entry.
    inner: Vec<(u32, usize)>,
    height: usize,
    // The children at `at..end` of this block are next.
    block: u32,
    at: usize,
    end: usize,
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
            let Some((name, spot)) = open.next(doc) else {
                let is_plain = open.is_empty || style == PrintStyle::default();
                let close = if open.kind == Container::Object { b'}' } else { b']' };
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
                    MemberName::Known(place) => names.get(usize::from(place)).copied().unwrap_or_default(),
                    MemberName::Own(text) => text,
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
        self.open.push(PrintFrame::new(node.bytes(), spot, doc));
    }
}

impl PrintFrame {
    fn new(node: &[u8], spot: NodePlace, doc: Doc<'_>) -> PrintFrame {
        let (kind, inner) = (Container::of(node), Vec::new());
        let Some(branch) = form::branch(node) else {
            let (first, last) = form::inner(node);
            let at = spot.at as usize;
            return PrintFrame {
                kind,
                is_empty: true,
                inner,
                height: 0,
                block: spot.block,
                at: at + first,
                end: at + last,
            };
        };
        let mut open = PrintFrame {
            kind,
            is_empty: true,
            inner,
            height: usize::from(branch.height),
            block: 0,
            at: 0,
            end: 0,
        };
        open.descend(branch.root, doc);
        open
    }

    /// Continues with the first leaf below a block.
    fn descend(&mut self, piece: BlockRef, doc: Doc<'_>) {
        let mut piece = piece;
        while self.inner.len() < self.height {
            let BlockRef::Kept(raw) = piece else { return };
            self.inner.push((raw, 1));
            piece = tree::entry(doc.source().block(piece), 0).piece;
        }
        if let BlockRef::Kept(raw) = piece {
            let len = tree::leaf(doc.source().block(piece)).0.len();
            (self.block, self.at, self.end) = (raw, tree::LEAF_HEAD, tree::LEAF_HEAD + len);
        }
    }

    fn next<'a>(&mut self, doc: Doc<'a>) -> Option<(Option<MemberName<'a>>, NodePlace)> {
        while self.at >= self.end {
            let (raw, at) = self.inner.last_mut()?;
            let block = doc.source().block(BlockRef::Kept(*raw));
            if *at >= tree::entries_len(block) {
                self.inner.pop();
                continue;
            }
            let next = tree::entry(block, *at).piece;
            *at += 1;
            self.descend(next, doc);
        }
        let block = doc.block(NodePlace { block: self.block, at: 0 });
        let rest = block.get(self.at..)?;
        let (name, width) = self.kind.name(rest);
        let spot = NodePlace { block: self.block, at: (self.at + width) as u32 };
        self.at += width + form::node_len(rest.get(width..)?).max(1);
        Some((name, spot))
    }
}
