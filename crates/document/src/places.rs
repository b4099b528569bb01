//! A walk over the children of a container that holds places, no references: it goes on while others change the document.
//!
//! Called by the walk along a path (`path::select`), and by printing in steps.

use crate::doc::Doc;
use crate::form::{self, BlockRef, Container, MemberName};
use crate::tree::{self, NodePlace};

/// The children of a container, from the next one on.
#[derive(Clone, Debug)]
pub(crate) struct ChildPlaces {
    pub kind: Container,
    // Inner blocks of a container in pieces, from the top, each with its next entry.
    inner: Vec<(u32, usize)>,
    height: usize,
    is_pieced: bool,
    // The children at `at..end` of this block are next.
    block: u32,
    at: usize,
    end: usize,
}

impl ChildPlaces {
    /// The children of the container at `spot` from number `first` on. Cost: some blocks, and the children of one that
    /// are before it.
    pub fn new(doc: Doc<'_>, spot: NodePlace, first: usize) -> ChildPlaces {
        let node = doc.node(spot);
        let kind = Container::of(node.bytes());
        let mut places = ChildPlaces {
            kind,
            inner: Vec::new(),
            height: 0,
            is_pieced: false,
            block: spot.block,
            at: 0,
            end: 0,
        };
        let mut skipped = first;
        match form::branch(node.bytes()) {
            Some(branch) => {
                (places.height, places.is_pieced) = (usize::from(branch.height), true);
                skipped = places.descend(branch.root, first, doc);
            }
            None => {
                let (first, last) = form::inner(node.bytes());
                (places.at, places.end) = (spot.at as usize + first, spot.at as usize + last);
            }
        }
        for _ in 0..skipped {
            if places.next(doc).is_none() {
                break;
            }
        }
        places
    }

    /// Continues with the leaf below a block that has child `left` of it; returns the number of children before it there.
    fn descend(&mut self, piece: BlockRef, mut left: usize, doc: Doc<'_>) -> usize {
        let mut piece = piece;
        while self.inner.len() < self.height {
            let BlockRef::Kept(raw) = piece else { return 0 };
            let block = doc.source().block(piece);
            let (mut at, len) = (0, tree::entries_len(block));
            while at + 1 < len && tree::entry(block, at).count <= left {
                left -= tree::entry(block, at).count;
                at += 1;
            }
            self.inner.push((raw, at + 1));
            piece = tree::entry(block, at).piece;
        }
        if let BlockRef::Kept(raw) = piece {
            let len = tree::leaf(doc.source().block(piece)).0.len();
            (self.block, self.at, self.end) = (raw, tree::LEAF_HEAD, tree::LEAF_HEAD + len);
        }
        left
    }

    /// The next child: its name, if it is a member, and its place.
    #[inline]
    pub fn next<'a>(&mut self, doc: Doc<'a>) -> Option<(Option<MemberName<'a>>, NodePlace)> {
        while self.at >= self.end {
            let (raw, at) = self.inner.last_mut()?;
            let block = doc.source().block(BlockRef::Kept(*raw));
            if *at >= tree::entries_len(block) {
                self.inner.pop();
                continue;
            }
            let next = tree::entry(block, *at).piece;
            *at += 1;
            self.descend(next, 0, doc);
        }
        let block = doc.block(NodePlace { block: self.block, at: 0 });
        let rest = block.get(self.at..)?;
        let (name, width) = self.kind.name(rest);
        let spot = NodePlace { block: self.block, at: (self.at + width) as u32 };
        self.at += width + form::node_len(rest.get(width..)?).max(1);
        Some((name, spot))
    }

    /// Returns true if the container lies in pieces.
    pub fn is_in_pieces(&self) -> bool {
        self.is_pieced
    }

    /// Appends the numbers of the blocks that lead to the child last passed within a container in pieces.
    pub fn way(&self, out: &mut Vec<u32>) {
        if self.is_pieced {
            out.extend(self.inner.iter().map(|(raw, _)| *raw));
            out.push(self.block);
        }
    }
}
