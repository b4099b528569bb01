//! Changes of one node, for [`crate::rewrite`].

use crate::doc::{DocNode, Names};
use crate::form::{self, Container, FormView, InPieces};
use crate::stage::{Editor, Old, Splice};

/// A node that is being changed: the end of a buffer, where it may grow or shrink.
#[derive(Debug)]
pub struct EditedNode<'s, 'a> {
    pub(crate) out: &'s mut Vec<u8>,
    pub(crate) start: usize,
    pub(crate) names: Names<'a>,
    pub(crate) editor: &'s mut Editor<'a>,
    pub(crate) level: usize,
}

/// An index is outside an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfBounds;

/// Returns true if [`EditedNode::clear`] would change the node.
pub fn is_clearable(node: FormView<'_>) -> bool {
    match node {
        FormView::Array(count) | FormView::Object(count) => count > 0,
        FormView::Int(value) => value != 0,
        FormView::Uint(value) => value != 0,
        FormView::Float(value) => value != 0.0,
        FormView::Null | FormView::Bool(_) | FormView::Text(_) => false,
    }
}

impl<'a> EditedNode<'_, 'a> {
    /// The bytes of the node.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.out.get(self.start..).unwrap_or_default()
    }

    /// The node.
    pub fn node(&self) -> DocNode<'_> {
        DocNode::with(self.names, self.editor.source(), self.bytes())
    }

    /// Its content.
    pub fn view(&self) -> FormView<'_> {
        form::view(self.bytes())
    }

    fn branch(&self) -> Option<InPieces> {
        form::branch(self.bytes())
    }

    /// Containers around the node.
    pub fn level(&self) -> usize {
        self.level
    }

    /// Replaces the node by `node`.
    pub fn replace(&mut self, node: &[u8]) {
        self.editor.discard(self.out.get(self.start..).unwrap_or_default());
        self.out.truncate(self.start);
        self.out.extend_from_slice(node);
    }

    /// Replaces the node by what `write` appends.
    pub fn replace_by(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.replace(&[]);
        write(self.out);
    }

    /// Replaces some children of a container by others.
    pub(crate) fn splice(&mut self, splice: Splice<'_>) {
        let start = self.start;
        if let Some(branch) = self.branch() {
            self.out.truncate(start);
            return self.editor.splice(branch, splice, self.out);
        }
        let old = self.out.split_off(start);
        let (first, last) = form::inner(&old);
        let kind = Container::of(&old);
        let place = |number: usize| {
            let next = self.editor.children(&old, 0).from(number).next();
            let value = next.map_or(last, |child| child.spot.at as usize);
            value - next.and_then(|child| child.name).map_or(0, form::name_len)
        };
        let (from, to) = (place(splice.at), place(splice.at + splice.removed));
        let count = match form::view(&old) {
            FormView::Array(count) | FormView::Object(count) => count + splice.count - splice.removed,
            _ => 0,
        };
        if splice.old == Old::Dropped && splice.removed > 0 {
            let children = self.editor.children(&old, 0).from(splice.at).take(splice.removed);
            let gone: Vec<Vec<u8>> = children
                .map(|child| child.bytes.get(..form::node_len(child.bytes)).unwrap_or_default().to_vec())
                .collect();
            gone.iter().for_each(|node| self.editor.discard(node));
        }
        self.out.extend_from_slice(old.get(first..from).unwrap_or_default());
        self.out.extend_from_slice(splice.run);
        self.out.extend_from_slice(old.get(to..last).unwrap_or_default());
        form::close(self.out, start, kind.tag(), count);
    }

    /// Appends to a run of children, with its large containers in pieces.
    fn cut(&mut self, node: &[u8], run: &mut Vec<u8>) {
        let start = run.len();
        run.extend_from_slice(node);
        self.editor.settle(run, start);
    }

    /// Adds a member to an object; returns false if the node is not an object. The name must be new.
    pub fn add_member(&mut self, name: &[u8], value: &[u8]) -> bool {
        let FormView::Object(at) = self.view() else { return false };
        let mut run = Vec::new();
        form::write_name(&mut run, self.names.written(name));
        self.cut(value, &mut run);
        self.splice(Splice { at, removed: 0, old: Old::Dropped, run: &run, count: 1 });
        true
    }

    /// Appends to a text; returns its new length in bytes, `None` if the node is not a text.
    pub fn append_text(&mut self, more: &[u8]) -> Option<usize> {
        let FormView::Text(text) = self.view() else { return None };
        let text = [text, more].concat();
        self.out.truncate(self.start);
        form::write_text(self.out, &text);
        Some(text.len())
    }

    /// Inverts a boolean; returns its new value, `None` if the node is not a boolean.
    pub fn toggle(&mut self) -> Option<bool> {
        let FormView::Bool(old) = self.view() else { return None };
        self.replace(&[if old { form::FALSE } else { form::TRUE }]);
        Some(!old)
    }

    /// Empties a container, or sets a number to 0; returns false for other nodes.
    pub fn clear(&mut self) -> bool {
        let tag = match self.view() {
            FormView::Array(_) => Some(form::ARRAY),
            FormView::Object(_) => Some(form::OBJECT),
            FormView::Int(_) | FormView::Uint(_) | FormView::Float(_) => None,
            FormView::Null | FormView::Bool(_) | FormView::Text(_) => return false,
        };
        self.replace(&[]);
        match tag {
            Some(tag) => form::close(self.out, self.start, tag, 0),
            None => form::write_int(self.out, 0),
        }
        true
    }

    /// Puts nodes before item `index` of an array (negative from the end); returns the new length. `None`: not an
    /// array.
    ///
    /// Errors: the index is out of bounds.
    pub fn insert(&mut self, index: i64, nodes: &[Vec<u8>]) -> Option<Result<usize, OutOfBounds>> {
        let FormView::Array(count) = self.view() else { return None };
        let len = count as i64;
        let place = if index < 0 { index.saturating_add(len) } else { index };
        if !(0..=len).contains(&place) {
            return Some(Err(OutOfBounds));
        }
        let mut run = Vec::new();
        nodes.iter().for_each(|node| self.cut(node, &mut run));
        self.splice(Splice {
            at: place as usize,
            removed: 0,
            old: Old::Dropped,
            run: &run,
            count: nodes.len(),
        });
        Some(Ok(count + nodes.len()))
    }

    /// Appends nodes to an array; returns the new length, `None` if the node is not an array.
    pub fn append(&mut self, nodes: &[Vec<u8>]) -> Option<usize> {
        let FormView::Array(count) = self.view() else { return None };
        self.insert(count as i64, nodes)?.ok()
    }

    /// Removes an item of an array (negative from the end; out of range means the nearest item) and returns what `show`
    /// makes of it. `None`: not an array; `Some(None)`: an empty one.
    pub fn pop<R>(&mut self, index: i64, show: impl FnOnce(DocNode<'_>) -> R) -> Option<Option<R>> {
        let FormView::Array(count) = self.view() else { return None };
        let len = count as i64;
        if len == 0 {
            return Some(None);
        }
        let place = if index < 0 { index.saturating_add(len).max(0) } else { index.min(len - 1) };
        let shown = self.node().items_from(place as usize).next().map(show);
        self.splice(Splice { at: place as usize, removed: 1, old: Old::Dropped, run: &[], count: 0 });
        Some(shown)
    }

    /// Keeps items `first..=last` of an array (negative from the end); returns the new length, `None` if the node is
    /// not an array.
    pub fn trim(&mut self, first: i64, last: i64) -> Option<usize> {
        let FormView::Array(count) = self.view() else { return None };
        let len = count as i64;
        let place = |index: i64| if index < 0 { index.saturating_add(len).max(0) } else { index };
        let (first, end) = (place(first).min(len), place(last).saturating_add(1).min(len));
        let (first, end) = (first as usize, end.max(first) as usize);
        if end < count {
            self.splice(Splice { at: end, removed: count - end, old: Old::Dropped, run: &[], count: 0 });
        }
        if first > 0 {
            self.splice(Splice { at: 0, removed: first, old: Old::Dropped, run: &[], count: 0 });
        }
        Some(end - first)
    }

    /// Puts the patch of RFC 7396 over the node: a node that is written with the names of the document.
    pub fn merge(&mut self, patch: &[u8]) {
        let old = self.out.split_off(self.start);
        crate::merge::merge(self.editor, self.names, Some(&old), DocNode::new(self.names, patch), self.out);
    }
}
