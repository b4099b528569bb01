//! Containers in pieces: leaves of children under a counted tree, to read.
//!
//! ```text
//! leaf    bytes of the children (4), their number (4), the children
//! inner   number of entries (4), then each: handle (4), children below it (4, the top bit: not in the arena yet)
//! ```
//!
//! Called by everything that reads a document. Blocks never change: a change makes other ones (`crate::stage`).

use std::fmt;

use darter_slab::{Arena, Handle};

use crate::form::{self, BlockRef, Container, InPieces, MemberName};

/// Bytes before the children of a leaf.
pub(crate) const LEAF_HEAD: usize = 8;
const INNER_HEAD: usize = 4;
const ENTRY_BYTES: usize = 8;
const FRESH_BIT: u32 = 1 << 31;

/// The blocks of a document.
#[derive(Clone, Copy, Default)]
pub struct PieceSource<'a> {
    arena: Option<&'a Arena>,
    fresh: &'a [Fresh],
}

/// A block that is not in the arena yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fresh {
    /// Its bytes; empty if it is not needed any more.
    pub bytes: Vec<u8>,
    /// Its content.
    pub sort: BlockContent,
}

/// The content of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BlockContent {
    /// Entries of a tree.
    Inner,
    /// Items of an array.
    Items,
    /// Members of an object.
    Members,
}

impl fmt::Debug for PieceSource<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("PieceSource").field("fresh", &self.fresh.len()).finish_non_exhaustive()
    }
}

impl<'a> PieceSource<'a> {
    /// The blocks of `arena`.
    pub fn new(arena: &'a Arena) -> PieceSource<'a> {
        PieceSource { arena: Some(arena), fresh: &[] }
    }

    /// The same, and those that a change has made.
    pub(crate) fn with<'b>(self, fresh: &'b [Fresh]) -> PieceSource<'b>
    where
        'a: 'b,
    {
        PieceSource { arena: self.arena, fresh }
    }

    /// Returns true if the document may have pieces.
    pub(crate) fn has_arena(self) -> bool {
        self.arena.is_some()
    }

    /// The bytes of a block.
    pub(crate) fn block(self, piece: BlockRef) -> &'a [u8] {
        match piece {
            BlockRef::Kept(raw) => self.arena.map_or(&[], |arena| arena.seen(Handle::from_raw(raw))),
            BlockRef::Fresh(at) => self.fresh.get(at as usize).map_or(&[], |fresh| &fresh.bytes),
        }
    }
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// The children in a leaf, and their number.
pub(crate) fn leaf(block: &[u8]) -> (&[u8], usize) {
    let end = LEAF_HEAD.saturating_add(word_at(block, 0) as usize);
    (block.get(LEAF_HEAD..end).unwrap_or_default(), word_at(block, 4) as usize)
}

/// The bytes of a leaf.
pub(crate) fn leaf_of(children: &[u8], count: usize) -> Vec<u8> {
    let mut block = Vec::with_capacity(LEAF_HEAD + children.len());
    block.extend_from_slice(&(children.len() as u32).to_le_bytes());
    block.extend_from_slice(&(count as u32).to_le_bytes());
    block.extend_from_slice(children);
    block
}

/// A subtree: its top, and the children below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Subtree {
    pub piece: BlockRef,
    pub count: usize,
}

/// Number of entries of an inner block.
pub(crate) fn entries_len(block: &[u8]) -> usize {
    word_at(block, 0) as usize
}

/// Subtree `at` of an inner block.
pub(crate) fn entry(block: &[u8], at: usize) -> Subtree {
    let start = INNER_HEAD + at * ENTRY_BYTES;
    let (raw, count) = (word_at(block, start), word_at(block, start + 4));
    let piece = if count & FRESH_BIT == 0 { BlockRef::Kept(raw) } else { BlockRef::Fresh(raw) };
    Subtree { piece, count: (count & !FRESH_BIT) as usize }
}

/// The entries of an inner block.
pub(crate) fn entries(block: &[u8]) -> impl Iterator<Item = Subtree> {
    (0..entries_len(block)).map(move |at| entry(block, at))
}

/// The bytes of an inner block.
pub(crate) fn inner_of(entries: &[Subtree]) -> Vec<u8> {
    let mut block = Vec::with_capacity(INNER_HEAD + entries.len() * ENTRY_BYTES);
    block.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        let (raw, fresh) = match entry.piece {
            BlockRef::Kept(raw) => (raw, 0),
            BlockRef::Fresh(raw) => (raw, FRESH_BIT),
        };
        block.extend_from_slice(&raw.to_le_bytes());
        block.extend_from_slice(&(entry.count as u32 | fresh).to_le_bytes());
    }
    block
}

/// The number of a block of the arena, 0 for others.
fn raw_of(piece: BlockRef) -> u32 {
    match piece {
        BlockRef::Kept(raw) => raw,
        BlockRef::Fresh(_) => 0,
    }
}

/// The place of a node: its block, 0 for the document's first one, and its offset there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodePlace {
    pub(crate) block: u32,
    pub(crate) at: u32,
}

impl NodePlace {
    /// Offset `at` of the document's first block.
    pub(crate) fn first(at: usize) -> NodePlace {
        NodePlace { block: 0, at: at as u32 }
    }
}

/// A child of a container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child<'a> {
    /// Its name, if it is a member.
    pub name: Option<MemberName<'a>>,
    /// The place of its value.
    pub spot: NodePlace,
    /// Its value, and the bytes after it.
    pub bytes: &'a [u8],
}

/// A walk over the children of a container.
#[derive(Debug)]
pub(crate) struct Children<'a> {
    kind: Container,
    block: u32,
    // The present run of children lies at `at..end` of these bytes.
    bytes: &'a [u8],
    at: usize,
    end: usize,
    rest: Option<Box<Leaves<'a>>>,
}

impl<'a> Children<'a> {
    /// The children of the node at `spot`, whose block is `bytes`. None if it is no container.
    pub fn new(source: PieceSource<'a>, bytes: &'a [u8], spot: NodePlace) -> Children<'a> {
        let at = spot.at as usize;
        let node = bytes.get(at..).unwrap_or_default();
        let kind = Container::of(node);
        if let Some(branch) = form::branch(node) {
            let rest = Some(Box::new(Leaves::new(source, branch)));
            return Children { kind, block: 0, bytes: &[], at: 0, end: 0, rest };
        }
        let (first, last) = form::inner(node);
        Children { kind, block: spot.block, bytes, at: at + first, end: at + last, rest: None }
    }

    /// The children in a leaf of a container in pieces.
    pub fn of_leaf(raw: u32, block: &'a [u8], kind: Container) -> Children<'a> {
        let end = LEAF_HEAD + leaf(block).0.len();
        Children { kind, block: raw, bytes: block, at: LEAF_HEAD, end, rest: None }
    }

    /// Returns true if the container lies in pieces.
    pub fn is_in_pieces(&self) -> bool {
        self.rest.is_some()
    }

    /// Appends the numbers of the blocks that lead to the present child within a container in pieces.
    pub fn way(&self, out: &mut Vec<u32>) {
        if let Some(leaves) = &self.rest {
            out.extend(leaves.stack.iter().map(|(raw, _, _)| *raw));
            out.push(self.block);
        }
    }

    /// The children from number `index` on. Cost: some blocks, and the children of one that are before it.
    pub fn from(mut self, index: usize) -> Children<'a> {
        let mut skipped = index;
        if let Some(leaves) = &mut self.rest {
            skipped = leaves.skip_to(index);
        }
        for _ in 0..skipped {
            if self.next().is_none() {
                break;
            }
        }
        self
    }

    fn next_leaf(&mut self) -> bool {
        let Some((piece, block)) = self.rest.as_mut().and_then(|leaves| leaves.next()) else { return false };
        self.block = raw_of(piece);
        let children = leaf(block).0.len();
        (self.bytes, self.at, self.end) = (block, LEAF_HEAD, LEAF_HEAD + children);
        true
    }
}

impl<'a> Iterator for Children<'a> {
    type Item = Child<'a>;

    #[inline]
    fn next(&mut self) -> Option<Child<'a>> {
        while self.at >= self.end {
            if !self.next_leaf() {
                return None;
            }
        }
        let rest = self.bytes.get(self.at..)?;
        let (name, width) = self.kind.name(rest);
        let value = self.at + width;
        let bytes = self.bytes.get(value..)?;
        self.at = value + form::node_len(bytes).max(1);
        let spot = NodePlace { block: self.block, at: value as u32 };
        Some(Child { name, spot, bytes })
    }
}

/// A walk over the leaves of a container in pieces.
#[derive(Debug)]
pub(crate) struct Leaves<'a> {
    source: PieceSource<'a>,
    // Inner blocks from the top, each with its number and its next entry.
    stack: Vec<(u32, &'a [u8], usize)>,
    top: Option<InPieces>,
}

impl<'a> Leaves<'a> {
    /// The leaves of `branch`.
    pub fn new(source: PieceSource<'a>, branch: InPieces) -> Leaves<'a> {
        Leaves { source, stack: Vec::new(), top: Some(branch) }
    }

    /// Leaves out the leaves before child `index`; returns the number of children before it in the next leaf. Only
    /// before the first leaf.
    fn skip_to(&mut self, index: usize) -> usize {
        let Some(branch) = self.top.filter(|branch| branch.height > 0) else { return index };
        self.top = None;
        let (mut piece, mut left) = (branch.root, index);
        for level in 0..branch.height {
            let block = self.source.block(piece);
            let len = entries_len(block);
            let mut at = 0;
            while at + 1 < len && entry(block, at).count <= left {
                left -= entry(block, at).count;
                at += 1;
            }
            let is_above_leaf = level + 1 == branch.height;
            self.stack.push((raw_of(piece), block, if is_above_leaf { at } else { at + 1 }));
            piece = entry(block, at).piece;
        }
        left
    }

    /// Levels of inner blocks above the leaves that the present stack leads to.
    fn descend(&mut self, piece: BlockRef, height: usize) -> (BlockRef, &'a [u8]) {
        let mut piece = piece;
        for _ in 0..height {
            let block = self.source.block(piece);
            self.stack.push((raw_of(piece), block, 1));
            piece = entry(block, 0).piece;
        }
        (piece, self.source.block(piece))
    }
}

impl<'a> Iterator for Leaves<'a> {
    type Item = (BlockRef, &'a [u8]);

    fn next(&mut self) -> Option<(BlockRef, &'a [u8])> {
        if let Some(branch) = self.top.take() {
            self.stack.reserve(usize::from(branch.height));
            return Some(self.descend(branch.root, usize::from(branch.height)));
        }
        let height = self.stack.len();
        while let Some((_, block, at)) = self.stack.last_mut() {
            if *at < entries_len(block) {
                let next = entry(block, *at).piece;
                *at += 1;
                let below = height - self.stack.len();
                return Some(self.descend(next, below));
            }
            self.stack.pop();
        }
        None
    }
}
