//! Changing nodes of a document: one pass makes anew what leads to the nodes that a path has found, and passes each to a
//! function.
//!
//! A document of one block is copied. Of one in pieces only the blocks on the way to these nodes are.

use crate::doc::Doc;
use crate::edit::EditedNode;
use crate::form::{self, Container};
use crate::path::Trace;
use crate::stage::{Editor, StagedPieces};
use crate::tree::{self, Children, NodePlace};

/// The result for a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DocChange {
    /// It stays, in its present form.
    Keep,
    /// It is removed from its container.
    Remove,
}

/// The result of changing a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rewritten {
    /// Nothing changed.
    Same,
    /// The same number of bytes differ from `at` on.
    Patch {
        /// The offset.
        at: usize,
        /// The bytes to write there.
        bytes: Vec<u8>,
    },
    /// The new document.
    Whole(Vec<u8>),
    /// The new first block of a document in pieces, and the other blocks.
    Pieces {
        /// The first block.
        first: Vec<u8>,
        /// The blocks.
        stage: StagedPieces,
    },
    /// The root was removed.
    Gone,
}

/// Changes the nodes that `trace` leads to, those within others first. `change` gets the number of a node, in the
/// order of [`Trace::spots`], and the node.
///
/// Cost: O(document) for one block, else O(log n) for each node; less if the only node is a scalar that keeps its
/// length.
pub fn rewrite<E>(
    doc: Doc<'_>,
    trace: &Trace,
    mut change: impl FnMut(usize, &mut EditedNode<'_, '_>) -> Result<DocChange, E>,
) -> Result<Rewritten, E> {
    let editor = Editor::new(doc.source());
    let mut pass = RewritePass { doc, trace, editor, change: &mut change, removed: None };
    if let &[spot] = trace.spots()
        && spot.block == 0
        && !form::is_container(doc.node(spot).bytes())
        && !doc.is_pieced()
    {
        return pass.scalar(spot);
    }
    pass.run()
}

/// [`rewrite`] of one scalar, within `level` containers of a document of one block. `None` if its length changes, or it is
/// none: nothing has been changed then.
///
/// Cost: O(scalar).
pub fn rewrite_scalar<E>(
    doc: Doc<'_>,
    (spot, level): (NodePlace, usize),
    change: impl FnOnce(&mut EditedNode<'_, '_>) -> Result<(), E>,
) -> Result<Option<Rewritten>, E> {
    let old = doc.node(spot).bytes();
    if doc.is_pieced() || form::is_container(old) {
        return Ok(None);
    }
    let (mut new, mut editor) = (old.to_vec(), Editor::new(doc.source()));
    change(&mut EditedNode { out: &mut new, start: 0, names: doc.names, editor: &mut editor, level })?;
    Ok((new.len() == old.len()).then(|| match new == old {
        true => Rewritten::Same,
        false => Rewritten::Patch { at: spot.at as usize, bytes: new },
    }))
}

/// Removes the nodes that `trace` leads to; of those within others, only the outer ones. Returns their number.
pub fn remove(doc: Doc<'_>, trace: &Trace) -> (Rewritten, usize) {
    let editor = Editor::new(doc.source());
    let change: &mut ChangeOne<'_, '_, std::convert::Infallible> = &mut |_, _| Ok(DocChange::Remove);
    let mut pass = RewritePass { doc, trace, editor, change, removed: Some(0) };
    let Ok(done) = pass.run();
    let removed = pass.removed.unwrap_or(0);
    (done, removed)
}

/// Changes one node.
type ChangeOne<'c, 'a, E> = dyn FnMut(usize, &mut EditedNode<'_, 'a>) -> Result<DocChange, E> + 'c;

struct RewritePass<'a, 'c, E> {
    doc: Doc<'a>,
    trace: &'a Trace,
    editor: Editor<'a>,
    change: &'c mut ChangeOne<'c, 'a, E>,
    // Nodes removed, if all are to be removed without a look inside.
    removed: Option<usize>,
}

impl<'a, E> RewritePass<'a, '_, E> {
    fn scalar(&mut self, spot: NodePlace) -> Result<Rewritten, E> {
        let old = self.doc.node(spot).bytes();
        let mut new = old.to_vec();
        let done = self.change_at(0, &mut new, 0)?;
        if done == DocChange::Keep && new == old {
            return Ok(Rewritten::Same);
        }
        let at = spot.at as usize;
        if done == DocChange::Keep && new.len() == old.len() {
            return Ok(Rewritten::Patch { at, bytes: new });
        }
        // The node has been changed already: a pass over the document puts the result there.
        let editor = Editor::new(self.doc.source());
        let mut put = |_: usize, slot: &mut EditedNode<'_, 'a>| {
            slot.replace(&new);
            Ok(done)
        };
        RewritePass { doc: self.doc, trace: self.trace, editor, change: &mut put, removed: None }.run()
    }

    fn run(&mut self) -> Result<Rewritten, E> {
        if self.trace.spots().is_empty() {
            return Ok(Rewritten::Same);
        }
        let (doc, root_at) = (self.doc, self.doc.root_at());
        let bytes = doc.bytes();
        let mut out = Vec::with_capacity(bytes.len() + 64);
        out.extend_from_slice(bytes.get(..root_at).unwrap_or_default());
        if self.node(bytes, doc.root_spot(), &mut out)? == DocChange::Remove {
            return Ok(Rewritten::Gone);
        }
        if doc.is_pieced() {
            let editor = std::mem::replace(&mut self.editor, Editor::new(doc.source()));
            return Ok(Rewritten::Pieces { first: out, stage: editor.end() });
        }
        Ok(if out == bytes { Rewritten::Same } else { Rewritten::Whole(out) })
    }

    fn change_at(&mut self, number: usize, out: &mut Vec<u8>, start: usize) -> Result<DocChange, E> {
        let level = self.trace.level(number);
        let mut slot = EditedNode { out, start, names: self.doc.names, editor: &mut self.editor, level };
        (self.change)(number, &mut slot)
    }

    /// Appends the node at `spot` of `block`, changed.
    fn node(&mut self, block: &'a [u8], spot: NodePlace, out: &mut Vec<u8>) -> Result<DocChange, E> {
        let rest = block.get(spot.at as usize..).unwrap_or_default();
        let node = rest.get(..form::node_len(rest)).unwrap_or_default();
        let own = self.trace.number_of(spot);
        if let (Some(_), Some(removed)) = (own, &mut self.removed) {
            *removed += 1;
            self.editor.discard(node);
            return Ok(DocChange::Remove);
        }
        let start = out.len();
        if form::is_container(node) && self.trace.leads_into(spot, node.len()) {
            self.container(block, spot, out)?;
        } else {
            out.extend_from_slice(node);
        }
        let done = match own {
            Some(number) => self.change_at(number, out, start)?,
            None => DocChange::Keep,
        };
        match done {
            DocChange::Keep => self.editor.settle(out, start),
            DocChange::Remove => self.editor.discard(out.get(start..).unwrap_or_default()),
        }
        Ok(done)
    }

    fn container(&mut self, block: &'a [u8], spot: NodePlace, out: &mut Vec<u8>) -> Result<(), E> {
        let at = spot.at as usize;
        let node = block.get(at..).unwrap_or_default();
        let Some(branch) = form::branch(node) else {
            let tag = Container::of(node).tag();
            let (first, last) = form::inner(node);
            let start = out.len();
            let count = self.run_of(
                Children::new(self.doc.source(), block, spot),
                block,
                (at + first, at + last),
                out,
            )?;
            form::close(out, start, tag, count);
            return Ok(());
        };
        let trace = self.trace;
        let mut editor = std::mem::replace(&mut self.editor, Editor::new(self.doc.source()));
        let done = editor.remake(
            branch,
            &|raw| trace.touches(raw),
            &mut |editor, raw, leaf, out| {
                std::mem::swap(editor, &mut self.editor);
                let end = tree::LEAF_HEAD + tree::leaf(leaf).0.len();
                let children = Children::of_leaf(raw, leaf, branch.kind);
                let done = self.run_of(children, leaf, (tree::LEAF_HEAD, end), out);
                std::mem::swap(editor, &mut self.editor);
                done.map(|_| ())
            },
            out,
        );
        self.editor = editor;
        done
    }

    /// Appends the children that lie at `span` of `block`, changed; returns their number.
    fn run_of(
        &mut self,
        children: Children<'a>,
        block: &'a [u8],
        (first, last): (usize, usize),
        out: &mut Vec<u8>,
    ) -> Result<usize, E> {
        // Children that nothing leads to are copied together.
        let (mut copied, mut place, mut count) = (first, first, 0);
        for child in children {
            let end = child.spot.at as usize + form::node_len(child.bytes).max(1);
            if self.trace.leads_to(child.spot, end - child.spot.at as usize) {
                out.extend_from_slice(block.get(copied..place).unwrap_or_default());
                let before = out.len();
                out.extend_from_slice(block.get(place..child.spot.at as usize).unwrap_or_default());
                if self.node(block, child.spot, out)? == DocChange::Remove {
                    out.truncate(before);
                } else {
                    count += 1;
                }
                copied = end;
            } else {
                count += 1;
            }
            place = end;
        }
        out.extend_from_slice(block.get(copied..last).unwrap_or_default());
        Ok(count)
    }
}
