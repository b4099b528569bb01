//! A change of a document in pieces: the blocks that it makes and those that it gives up.
//!
//! Called by `crate::rewrite` and `crate::edit`. Blocks are never changed: a change of one child makes its leaf and the
//! blocks above anew, some 3 KiB. Nothing in the arena changes before [`StagedPieces::store`], so a change that fails leaves
//! no trace.

use darter_slab::{Arena, Handle};

use crate::form::{self, BlockRef, Container, InPieces};
use crate::storing::Storing;
use crate::tree::{self, BlockContent, Children, Fresh, NodePlace, PieceSource, Subtree};

/// Documents above this are cut into pieces, bytes.
pub const WHOLE_BYTES_MAX: usize = 2048;
/// Containers above this lie in pieces of their own.
pub(crate) const INLINE_BYTES_MAX: usize = 1024;
/// Children of a leaf, unless it has only one.
const LEAF_BYTES_MAX: usize = 2048;
/// A leaf below this joins the next one.
const LEAF_BYTES_LOW: usize = 512;
const LEAF_BYTES_JOINED: usize = 1536;
/// Entries of an inner block.
const ENTRIES_MAX: usize = 64;

/// There is no room in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom;

/// Blocks made and given up.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct StagedPieces {
    // A block is behind those that it refers to.
    fresh: Vec<Fresh>,
    gone: Vec<u32>,
    doomed: Doomed,
}

/// Trees to be freed.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Doomed {
    // The block, the levels below it, and whether its leaves hold members.
    stack: Vec<(u32, u8, Container)>,
}

/// The treatment of a child that is taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Old {
    /// It is given up with its pieces.
    Dropped,
    /// Its pieces are used elsewhere.
    Reused,
}

/// The number of the first child that changes, that of children taken out, and the children put there.
pub(crate) struct Splice<'s> {
    pub at: usize,
    pub removed: usize,
    pub old: Old,
    pub run: &'s [u8],
    pub count: usize,
}

/// Makes blocks.
#[derive(Debug)]
pub(crate) struct Editor<'a> {
    base: PieceSource<'a>,
    stage: StagedPieces,
    is_pieced: bool,
}

/// Leaves being filled with children.
#[derive(Debug)]
pub(crate) struct Filling {
    sort: BlockContent,
    run: Vec<u8>,
    count: usize,
    entries: Vec<Subtree>,
}

fn sort_of(kind: Container) -> BlockContent {
    match kind {
        Container::Array => BlockContent::Items,
        Container::Object => BlockContent::Members,
    }
}

fn kind_of(content: BlockContent) -> Container {
    if content == BlockContent::Members { Container::Object } else { Container::Array }
}

/// The bytes of the child that `bytes` starts with: a value, or a name and a value.
fn child_len(bytes: &[u8], kind: Container) -> usize {
    let width = kind.name(bytes).1;
    width + form::node_len(bytes.get(width..).unwrap_or_default()).max(1)
}

/// The children in a run of bytes.
fn split(mut run: &[u8], kind: Container) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        if run.is_empty() {
            return None;
        }
        let (child, rest) = run.split_at(child_len(run, kind).min(run.len()));
        run = rest;
        Some(child)
    })
}

impl Filling {
    /// No children yet.
    pub fn new(kind: Container) -> Filling {
        Filling { sort: sort_of(kind), run: Vec::new(), count: 0, entries: Vec::new() }
    }

    /// Adds a child: a value, or a name and a value.
    pub fn push(&mut self, stage: &mut StagedPieces, child: &[u8]) {
        if self.count > 0 && self.run.len() + child.len() > LEAF_BYTES_MAX {
            self.flush(stage);
        }
        self.run.extend_from_slice(child);
        self.count += 1;
    }

    fn flush(&mut self, stage: &mut StagedPieces) {
        if self.count > 0 {
            let piece = stage.put(tree::leaf_of(&self.run, self.count), self.sort);
            self.entries.push(Subtree { piece, count: self.count });
            self.run.clear();
            self.count = 0;
        }
    }

    /// The leaves.
    pub fn end(mut self, stage: &mut StagedPieces) -> Vec<Subtree> {
        self.flush(stage);
        self.entries
    }
}

impl StagedPieces {
    fn put(&mut self, bytes: Vec<u8>, sort: BlockContent) -> BlockRef {
        self.fresh.push(Fresh { bytes, sort });
        BlockRef::Fresh(self.fresh.len() as u32 - 1)
    }

    /// Bytes of the new blocks.
    pub fn fresh_bytes(&self) -> usize {
        self.fresh.iter().map(|fresh| fresh.bytes.len()).sum()
    }

    /// The new blocks.
    pub(crate) fn into_fresh(self) -> Vec<Fresh> {
        self.fresh
    }

    /// Puts the blocks into `arena` and corrects what `first`, the document's first block, says of them. Returns the
    /// bytes of new blocks, and those of the blocks freed. Trees that are given up are added to `doomed`.
    ///
    /// Errors: no room; nothing changed.
    pub fn store(
        mut self,
        first: &mut [u8],
        arena: &mut Arena,
        doomed: &mut Doomed,
    ) -> Result<(usize, usize), NoRoom> {
        let mut storing =
            Storing::new(StagedPieces { fresh: std::mem::take(&mut self.fresh), ..Default::default() });
        if storing.step(arena, usize::MAX).is_err() {
            storing.free_step(arena, usize::MAX);
            return Err(NoRoom);
        }
        let made = storing.made_bytes();
        storing.end(first);
        let mut freed = 0;
        for raw in self.gone {
            freed += free(arena, raw);
        }
        doomed.stack.append(&mut self.doomed.stack);
        Ok((made, freed))
    }
}

fn free(arena: &mut Arena, raw: u32) -> usize {
    let block = Handle::from_raw(raw);
    let bytes = arena.size(block);
    arena.give_up(block);
    bytes
}

/// Replaces numbers of fresh blocks by their handles.
pub(crate) fn resolve(bytes: &mut [u8], sort: BlockContent, handles: &[u32]) {
    if sort == BlockContent::Inner {
        let entries: Vec<Subtree> = tree::entries(bytes).map(|entry| kept(entry, handles)).collect();
        bytes.copy_from_slice(&tree::inner_of(&entries));
        return;
    }
    let end = tree::LEAF_HEAD + tree::leaf(bytes).0.len();
    resolve_run(bytes, (tree::LEAF_HEAD, end), kind_of(sort), handles);
}

fn kept(entry: Subtree, handles: &[u32]) -> Subtree {
    match entry.piece {
        BlockRef::Kept(_) => entry,
        BlockRef::Fresh(at) => {
            Subtree { piece: BlockRef::Kept(handles.get(at as usize).copied().unwrap_or(0)), ..entry }
        }
    }
}

fn resolve_run(bytes: &mut [u8], (mut at, end): (usize, usize), kind: Container, handles: &[u32]) {
    if !bytes.get(at..end).is_some_and(form::may_have_fresh) {
        return;
    }
    while at < end {
        let rest = bytes.get(at..).unwrap_or_default();
        let width = kind.name(rest).1;
        let len = child_len(rest, kind);
        resolve_node(bytes, at + width, handles);
        at += len;
    }
}

pub(crate) fn resolve_node(bytes: &mut [u8], at: usize, handles: &[u32]) {
    let node = bytes.get(at..).unwrap_or_default();
    if let Some(branch) = form::branch(node) {
        if let BlockRef::Fresh(number) = branch.root {
            let root = BlockRef::Kept(handles.get(number as usize).copied().unwrap_or(0));
            let mut new = Vec::with_capacity(form::BRANCH_BYTES);
            form::write_branch(&mut new, InPieces { root, ..branch });
            if let Some(place) = bytes.get_mut(at..at + new.len()) {
                place.copy_from_slice(&new);
            }
        }
        return;
    }
    if form::is_container(node) {
        let (first, last) = form::inner(node);
        let kind = Container::of(node);
        resolve_run(bytes, (at + first, at + last), kind, handles);
    }
}

impl Doomed {
    /// Adds the pieces of the node that `bytes` starts with.
    pub fn add_node(&mut self, bytes: &[u8]) {
        each_branch(bytes, &mut |branch| self.add(branch));
    }

    fn add(&mut self, branch: InPieces) {
        if let BlockRef::Kept(raw) = branch.root {
            self.stack.push((raw, branch.height, branch.kind));
        }
    }

    /// Returns true if there is nothing to free.
    pub fn is_empty(&self) -> bool {
        self.stack.is_empty()
    }

    /// Frees up to `blocks_max` blocks; returns their bytes.
    pub fn free_step(&mut self, arena: &mut Arena, blocks_max: usize) -> usize {
        let mut freed = 0;
        for _ in 0..blocks_max {
            let Some((raw, height, kind)) = self.stack.pop() else { break };
            let block = arena.block(Handle::from_raw(raw));
            if height > 0 {
                let below = tree::entries(block).filter_map(|entry| match entry.piece {
                    BlockRef::Kept(raw) => Some((raw, height - 1, kind)),
                    BlockRef::Fresh(_) => None,
                });
                self.stack.extend(below);
            } else {
                each_branch_of_run(tree::leaf(block).0, kind, &mut |branch| {
                    if let BlockRef::Kept(raw) = branch.root {
                        self.stack.push((raw, branch.height, branch.kind));
                    }
                });
            }
            freed += free(arena, raw);
        }
        freed
    }
}

/// Shows the containers in pieces that are in a node, but not those within others.
fn each_branch(node: &[u8], show: &mut dyn FnMut(InPieces)) {
    if let Some(branch) = form::branch(node) {
        return show(branch);
    }
    if form::is_container(node) {
        let (first, last) = form::inner(node);
        each_branch_of_run(node.get(first..last).unwrap_or_default(), Container::of(node), show);
    }
}

fn each_branch_of_run(run: &[u8], kind: Container, show: &mut dyn FnMut(InPieces)) {
    if !form::may_have_branches(run) {
        return;
    }
    for child in split(run, kind) {
        let width = kind.name(child).1;
        each_branch(child.get(width..).unwrap_or_default(), show);
    }
}

impl<'a> Editor<'a> {
    /// Makes blocks for a document whose blocks are in `base`. One without pieces stays in one block.
    pub fn new(base: PieceSource<'a>) -> Editor<'a> {
        Editor { base, stage: StagedPieces::default(), is_pieced: base.has_arena() }
    }

    /// Makes more blocks of a document that is made in steps, beside those of `stage`.
    pub fn again(stage: StagedPieces) -> Editor<'static> {
        Editor { base: PieceSource::default(), stage, is_pieced: true }
    }

    /// The blocks so far.
    pub fn stage_mut(&mut self) -> &mut StagedPieces {
        &mut self.stage
    }

    /// All blocks.
    pub fn source(&self) -> PieceSource<'_> {
        self.base.with(&self.stage.fresh)
    }

    /// The result.
    pub fn end(self) -> StagedPieces {
        self.stage
    }

    fn drop_piece(&mut self, piece: BlockRef) {
        match piece {
            BlockRef::Kept(raw) => self.stage.gone.push(raw),
            BlockRef::Fresh(at) => {
                if let Some(fresh) = self.stage.fresh.get_mut(at as usize) {
                    fresh.bytes = Vec::new();
                }
            }
        }
    }

    /// Gives up the pieces of a node.
    pub fn discard(&mut self, node: &[u8]) {
        let mut branches = Vec::new();
        each_branch(node, &mut |branch| branches.push(branch));
        branches.into_iter().for_each(|branch| self.discard_tree(branch));
    }

    fn discard_tree(&mut self, branch: InPieces) {
        let BlockRef::Fresh(at) = branch.root else { return self.stage.doomed.add(branch) };
        let Some(fresh) = self.stage.fresh.get_mut(at as usize) else { return };
        let block = std::mem::take(&mut fresh.bytes);
        if let Some(height) = branch.height.checked_sub(1) {
            let below = tree::entries(&block).map(|entry| InPieces { root: entry.piece, height, ..branch });
            below.for_each(|below| self.discard_tree(below));
        } else {
            let mut inside = Vec::new();
            each_branch_of_run(tree::leaf(&block).0, branch.kind, &mut |branch| inside.push(branch));
            inside.into_iter().for_each(|branch| self.discard_tree(branch));
        }
    }

    /// Cuts the node at the end of `out`, which begins at `start`, if it is a large container.
    pub fn settle(&mut self, out: &mut Vec<u8>, start: usize) {
        if self.is_pieced && out.len() - start > INLINE_BYTES_MAX {
            let node = out.split_off(start);
            self.cut(&node, out);
        }
    }

    /// Appends a node, with its large containers in pieces.
    pub fn cut(&mut self, node: &[u8], out: &mut Vec<u8>) {
        let (first, last) = form::inner(node);
        if node.len() <= INLINE_BYTES_MAX || !form::is_container(node) || first == last {
            out.extend_from_slice(node);
            return;
        }
        let kind = Container::of(node);
        let mut filling = Filling::new(kind);
        let mut child = Vec::new();
        for whole in split(node.get(first..last).unwrap_or_default(), kind) {
            if whole.len() <= INLINE_BYTES_MAX {
                filling.push(&mut self.stage, whole);
                continue;
            }
            let width = kind.name(whole).1;
            let (name, value) = whole.split_at(width.min(whole.len()));
            child.clear();
            child.extend_from_slice(name);
            self.cut(value, &mut child);
            filling.push(&mut self.stage, &child);
        }
        let entries = filling.end(&mut self.stage);
        self.close(kind, entries, 0, out);
    }

    /// Blocks of up to [`ENTRIES_MAX`] of the entries each.
    fn pack(&mut self, entries: &[Subtree]) -> Vec<Subtree> {
        let blocks = entries.len().div_ceil(ENTRIES_MAX).max(1);
        let packed = entries.chunks(entries.len().div_ceil(blocks).max(1)).map(|chunk| {
            let piece = self.stage.put(tree::inner_of(chunk), BlockContent::Inner);
            Subtree { piece, count: chunk.iter().map(|entry| entry.count).sum() }
        });
        packed.collect()
    }

    /// Appends the container whose tree has these tops, `height` levels above the leaves.
    pub fn close(&mut self, kind: Container, mut entries: Vec<Subtree>, mut height: u8, out: &mut Vec<u8>) {
        while entries.len() > 1 {
            entries = self.pack(&entries);
            height += 1;
        }
        let Some(&top) = entries.first() else { return write_empty(kind, out) };
        let mut top = top;
        while let Some(below) = height.checked_sub(1) {
            let block = self.source().block(top.piece);
            if tree::entries_len(block) != 1 {
                break;
            }
            let only = tree::entry(block, 0);
            self.drop_piece(top.piece);
            (top, height) = (only, below);
        }
        if height == 0 {
            let run = tree::leaf(self.source().block(top.piece)).0.to_vec();
            if run.len() <= LEAF_BYTES_LOW {
                self.drop_piece(top.piece);
                let start = out.len();
                out.extend_from_slice(&run);
                form::close(out, start, kind.tag(), top.count);
                return;
            }
        }
        form::write_branch(out, InPieces { kind, root: top.piece, height, count: top.count });
    }

    /// Appends the container `branch` with some of its children replaced.
    pub fn splice(&mut self, branch: InPieces, mut splice: Splice<'_>, out: &mut Vec<u8>) {
        let top = Subtree { piece: branch.root, count: branch.count };
        let tops = self.splice_below(top, branch, branch.height, &mut splice);
        self.close(branch.kind, tops, branch.height, out);
    }

    fn splice_below(
        &mut self,
        top: Subtree,
        branch: InPieces,
        height: u8,
        splice: &mut Splice<'_>,
    ) -> Vec<Subtree> {
        let Some(below) = height.checked_sub(1) else { return self.splice_leaf(top, branch, splice) };
        let entries: Vec<Subtree> = tree::entries(self.source().block(top.piece)).collect();
        self.drop_piece(top.piece);
        let (mut start, mut new) = (0, Vec::with_capacity(entries.len() + 1));
        let (from, to) = (splice.at, splice.at + splice.removed);
        for entry in entries {
            let end = start + entry.count;
            let overlap = to.min(end).saturating_sub(from.max(start));
            let takes_run = splice.count > 0 && from <= end;
            if overlap == 0 && !takes_run {
                new.push(entry);
            } else if overlap == entry.count && !takes_run && splice.old == Old::Dropped {
                self.discard_tree(InPieces { root: entry.piece, height: below, ..branch });
            } else {
                let (run, count) = if takes_run { (splice.run, splice.count) } else { (&[][..], 0) };
                let at = from.saturating_sub(start);
                let mut part = Splice { at, removed: overlap, old: splice.old, run, count };
                new.append(&mut self.splice_below(entry, branch, below, &mut part));
                if takes_run {
                    splice.count = 0;
                }
            }
            start = end;
        }
        if below == 0 {
            self.join_leaves(&mut new, branch.kind);
        }
        if new.is_empty() { new } else { self.pack(&new) }
    }

    fn splice_leaf(&mut self, top: Subtree, branch: InPieces, splice: &Splice<'_>) -> Vec<Subtree> {
        let run = tree::leaf(self.source().block(top.piece)).0.to_vec();
        self.drop_piece(top.piece);
        let mut filling = Filling::new(branch.kind);
        let put = |filling: &mut Filling, stage: &mut StagedPieces| {
            split(splice.run, branch.kind).for_each(|child| filling.push(stage, child));
        };
        let taken = splice.at..splice.at + splice.removed;
        let mut len = 0;
        for (number, child) in split(&run, branch.kind).enumerate() {
            if number == splice.at {
                put(&mut filling, &mut self.stage);
            }
            if !taken.contains(&number) {
                filling.push(&mut self.stage, child);
            } else if splice.old == Old::Dropped {
                let width = branch.kind.name(child).1;
                self.discard(child.get(width..).unwrap_or_default());
            }
            len = number + 1;
        }
        if splice.at >= len {
            put(&mut filling, &mut self.stage);
        }
        filling.end(&mut self.stage)
    }

    /// Joins small leaves that are new with the next ones.
    pub fn join_leaves(&mut self, entries: &mut Vec<Subtree>, kind: Container) {
        let bytes =
            |editor: &Editor<'_>, entry: &Subtree| tree::leaf(editor.source().block(entry.piece)).0.len();
        let mut at = 0;
        while at + 1 < entries.len() {
            let (Some(&left), Some(&right)) = (entries.get(at), entries.get(at + 1)) else { break };
            let is_new = |entry: Subtree| matches!(entry.piece, BlockRef::Fresh(_));
            let is_low = (is_new(left) && bytes(self, &left) < LEAF_BYTES_LOW)
                || (is_new(right) && bytes(self, &right) < LEAF_BYTES_LOW);
            if !is_low || bytes(self, &left) + bytes(self, &right) > LEAF_BYTES_JOINED {
                at += 1;
                continue;
            }
            let run =
                [left, right].map(|entry| tree::leaf(self.source().block(entry.piece)).0.to_vec()).concat();
            self.drop_piece(left.piece);
            self.drop_piece(right.piece);
            let count = left.count + right.count;
            let piece = self.stage.put(tree::leaf_of(&run, count), sort_of(kind));
            entries.splice(at..at + 2, [Subtree { piece, count }]);
        }
    }

    /// Appends the container `branch`, whose blocks for which `is_touched` holds are made anew: `remake` gets the number
    /// of a leaf's block, the block, and the function that takes its new children.
    pub fn remake<E>(
        &mut self,
        branch: InPieces,
        is_touched: &dyn Fn(u32) -> bool,
        remake: &mut Remake<'_, 'a, E>,
        out: &mut Vec<u8>,
    ) -> Result<(), E> {
        let top = Subtree { piece: branch.root, count: branch.count };
        let tops = self.remake_below(top, branch, branch.height, is_touched, remake)?;
        self.close(branch.kind, tops, branch.height, out);
        Ok(())
    }

    fn remake_below<E>(
        &mut self,
        top: Subtree,
        branch: InPieces,
        height: u8,
        is_touched: &dyn Fn(u32) -> bool,
        remake: &mut Remake<'_, 'a, E>,
    ) -> Result<Vec<Subtree>, E> {
        let BlockRef::Kept(raw) = top.piece else { return Ok(vec![top]) };
        if !is_touched(raw) {
            return Ok(vec![top]);
        }
        let block = self.base.block(top.piece);
        self.drop_piece(top.piece);
        let Some(below) = height.checked_sub(1) else {
            let mut children = Vec::new();
            remake(self, raw, block, &mut children)?;
            let mut filling = Filling::new(branch.kind);
            split(&children, branch.kind).for_each(|child| filling.push(&mut self.stage, child));
            return Ok(filling.end(&mut self.stage));
        };
        let mut new = Vec::with_capacity(tree::entries_len(block));
        for entry in tree::entries(block) {
            new.append(&mut self.remake_below(entry, branch, below, is_touched, remake)?);
        }
        if below == 0 {
            self.join_leaves(&mut new, branch.kind);
        }
        Ok(if new.is_empty() { new } else { self.pack(&new) })
    }

    /// The children of a container that lies at the end of `out` from `start` on.
    pub fn children<'s>(&'s self, out: &'s [u8], start: usize) -> Children<'s> {
        Children::new(self.source(), out, NodePlace::first(start))
    }
}

/// Writes the new children of a leaf: its number, its block, and the place for them.
pub(crate) type Remake<'r, 'a, E> =
    dyn FnMut(&mut Editor<'a>, u32, &'a [u8], &mut Vec<u8>) -> Result<(), E> + 'r;

fn write_empty(kind: Container, out: &mut Vec<u8>) {
    let start = out.len();
    form::close(out, start, kind.tag(), 0);
}

/// Returns true if containers of the document whose first block this is lie in pieces.
pub fn has_pieces(doc: crate::Doc<'_>) -> bool {
    has_branches(doc.root().bytes())
}

/// Returns true if a node lies in pieces, or a container within it.
pub(crate) fn has_branches(node: &[u8]) -> bool {
    let mut has_any = false;
    each_branch(node, &mut |_| has_any = true);
    has_any
}

/// Cuts a document of one block: the blocks, and the first of them.
pub fn cut(doc: crate::Doc<'_>) -> (StagedPieces, Vec<u8>) {
    let mut editor = Editor::again(StagedPieces::default());
    let mut first = doc.bytes().get(..doc.root_at()).unwrap_or_default().to_vec();
    editor.cut(doc.root().bytes(), &mut first);
    (editor.end(), first)
}
