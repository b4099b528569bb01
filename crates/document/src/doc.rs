//! A document to read: its table of names, and its root.
//!
//! ```text
//! varint count, then each name: varint length, text      the names that several members share
//! the root's node
//! ```
//!
//! Or its names are the first ones of the arena's lexicon: their number, in 15 bits of two bytes with the top bit of the
//! first one set, stands in place of the table. A name with a number is never written as text in such a document, so the
//! number stays although the lexicon grows.

use darter_base::varint;
use darter_slab::{Arena, Lexicon};

use crate::dictionary::hash_of_name;
use crate::form::{self, FormView, MemberName};
use crate::stage;
use crate::tree::{self, Children, Leaves, NodePlace, PieceSource};

/// The names that members of one document share: those of its table, or the first ones of a lexicon.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    bytes: &'a [u8],
    count: usize,
    lexicon: Option<&'a Lexicon>,
}

/// Most names in a table.
pub(crate) const NAMES_MAX: usize = 127;
/// The bit of the first byte of a document whose names are those of a lexicon.
const OF_LEXICON: u8 = 0x80;
/// Bytes in front of the root of such a document.
pub(crate) const LEXICON_HEAD: usize = 2;

impl<'a> Names<'a> {
    /// Returns true if they are not in the document itself.
    pub(crate) fn are_of_lexicon(self) -> bool {
        self.lexicon.is_some()
    }

    /// The lexicon, if they are its words.
    pub(crate) fn words(self) -> Option<&'a Lexicon> {
        self.lexicon
    }

    /// The names in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.bytes;
        (0..self.count).map(move |number| {
            if let Some(lexicon) = self.lexicon {
                return lexicon.word(number as u16);
            }
            let len = varint::take(&mut rest).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
            let (name, after) = rest.split_at_checked(len).unwrap_or_default();
            rest = after;
            name
        })
    }

    /// The text of a name.
    #[inline]
    pub fn text(self, name: MemberName<'a>) -> &'a [u8] {
        match name {
            MemberName::Own(text) => text,
            MemberName::Known(number) => match self.lexicon {
                Some(lexicon) => lexicon.word(number),
                None => self.iter().nth(usize::from(number)).unwrap_or_default(),
            },
        }
    }

    /// The form of `text` as a name in this document.
    #[inline]
    pub fn written<'t>(self, text: &'t [u8]) -> MemberName<'t> {
        if self.count == 0 {
            return MemberName::Own(text);
        }
        self.number(text).map_or(MemberName::Own(text), MemberName::Known)
    }

    /// The number of `text` among the names.
    pub(crate) fn number(self, text: &[u8]) -> Option<u16> {
        match self.lexicon {
            Some(_) if !Lexicon::may_have(text) => None,
            Some(lexicon) => {
                lexicon.number(hash_of_name(text), text).filter(|number| usize::from(*number) < self.count)
            }
            None => self.iter().position(|name| name == text).map(|place| place as u16),
        }
    }

    /// All names of a table at once, for a walk over many members.
    pub fn all(self) -> Vec<&'a [u8]> {
        if self.are_of_lexicon() { Vec::new() } else { self.iter().collect() }
    }
}

/// A document to read.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    /// Its names.
    pub names: Names<'a>,
    source: PieceSource<'a>,
    bytes: &'a [u8],
    root: usize,
    is_pieced: bool,
}

/// The first bytes of a document whose names are the first `count` ones of a lexicon.
pub(crate) fn lexicon_head(count: usize) -> [u8; LEXICON_HEAD] {
    (count as u16 | u16::from(OF_LEXICON) << 8).to_be_bytes()
}

impl<'a> Doc<'a> {
    /// The document at the start of `bytes`, which may be longer. It has no pieces, and no names of a lexicon that
    /// are read.
    pub fn new(bytes: &'a [u8]) -> Doc<'a> {
        Doc::with(bytes, PieceSource::default(), None)
    }

    /// The document in a block of `arena`. It has no pieces.
    #[inline]
    pub fn in_block(bytes: &'a [u8], arena: &'a Arena) -> Doc<'a> {
        Doc::of_lexicon(bytes, arena.lexicon())
    }

    /// The document whose names may be those of `lexicon`. It has no pieces.
    #[inline]
    pub(crate) fn of_lexicon(bytes: &'a [u8], lexicon: Option<&'a Lexicon>) -> Doc<'a> {
        Doc::with(bytes, PieceSource::default(), lexicon)
    }

    /// The document whose first block is `bytes`; its pieces are in `arena`. Such a document has no names of a lexicon.
    pub fn in_pieces(bytes: &'a [u8], arena: &'a Arena) -> Doc<'a> {
        Doc { is_pieced: true, ..Doc::with(bytes, PieceSource::new(arena), None) }
    }

    #[inline]
    fn with(bytes: &'a [u8], source: PieceSource<'a>, lexicon: Option<&'a Lexicon>) -> Doc<'a> {
        if let Some((&[high, low], root)) = bytes.split_first_chunk::<LEXICON_HEAD>()
            && high >= OF_LEXICON
        {
            let count = usize::from(u16::from_be_bytes([high & !OF_LEXICON, low]));
            return Doc {
                names: Names { bytes: &[], count, lexicon },
                source,
                bytes: bytes.get(..LEXICON_HEAD + form::node_len(root)).unwrap_or(bytes),
                root: LEXICON_HEAD,
                is_pieced: false,
            };
        }
        if let Some(([0], root)) = bytes.split_first_chunk::<1>() {
            return Doc {
                names: Names::default(),
                source,
                bytes: bytes.get(..1 + form::node_len(root)).unwrap_or(bytes),
                root: 1,
                is_pieced: false,
            };
        }
        let mut rest = bytes;
        let count = varint::take(&mut rest).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let table = rest;
        for _ in 0..count {
            let len = varint::take(&mut rest).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
            rest = rest.get(len..).unwrap_or_default();
        }
        let names =
            Names { bytes: table.get(..table.len() - rest.len()).unwrap_or_default(), count, lexicon: None };
        let root = bytes.len() - rest.len();
        let end = root + form::node_len(rest);
        Doc { names, source, bytes: bytes.get(..end).unwrap_or(bytes), root, is_pieced: false }
    }

    /// The same document, whose pieces are in `source`.
    pub(crate) fn with_source(self, source: PieceSource<'a>) -> Doc<'a> {
        Doc { source, is_pieced: true, ..self }
    }

    /// Returns false if it has lost its names, which were those of a lexicon.
    pub fn has_names(self) -> bool {
        self.names.bytes.len() >= self.names.count
            || self.names.lexicon.is_some_and(|lexicon| lexicon.len() >= self.names.count)
    }

    /// The bytes of its first block; of all of it if it has no pieces.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Offset of the root.
    pub(crate) fn root_at(self) -> usize {
        self.root
    }

    /// The blocks of its pieces.
    pub(crate) fn source(self) -> PieceSource<'a> {
        self.source
    }

    /// Returns true if some of its containers lie in pieces.
    pub fn is_pieced(self) -> bool {
        self.is_pieced
    }

    /// The place of the root.
    pub fn root_spot(self) -> NodePlace {
        NodePlace::first(self.root)
    }

    /// The root.
    pub fn root(self) -> DocNode<'a> {
        self.node(self.root_spot())
    }

    /// The bytes of the block with a place.
    #[inline]
    pub(crate) fn block(self, spot: NodePlace) -> &'a [u8] {
        if spot.block == 0 { self.bytes } else { self.source.block(form::BlockRef::Kept(spot.block)) }
    }

    /// The node at `spot`, which a path has found.
    #[inline]
    pub fn node(self, spot: NodePlace) -> DocNode<'a> {
        DocNode {
            names: self.names,
            source: self.source,
            bytes: self.block(spot).get(spot.at as usize..).unwrap_or_default(),
        }
    }

    /// The place of the member called `name` of the object at `spot`.
    pub(crate) fn member_at(self, spot: NodePlace, name: &[u8]) -> Option<NodePlace> {
        let (wanted, block) = (self.names.written(name), self.block(spot));
        let node = block.get(spot.at as usize..)?;
        if !form::is_object(node) {
            return None;
        }
        if form::branch(node).is_some() {
            return self.children(spot).find(|child| child.name == Some(wanted)).map(|child| child.spot);
        }
        let (first, last) = form::inner(node);
        let at = form::member(node.get(first..last)?, wanted)?;
        Some(NodePlace { at: spot.at + (first + at) as u32, ..spot })
    }

    /// The children of the node at `spot`.
    #[inline]
    pub(crate) fn children(self, spot: NodePlace) -> Children<'a> {
        Children::new(self.source, self.block(spot), spot)
    }
}

/// A node to read.
#[derive(Clone, Copy, Debug)]
pub struct DocNode<'a> {
    /// The names of its document.
    pub names: Names<'a>,
    source: PieceSource<'a>,
    // the node, and perhaps the bytes after it
    bytes: &'a [u8],
}

impl<'a> DocNode<'a> {
    /// The node that `bytes` starts with, in a document with `names`. It has no pieces.
    pub fn new(names: Names<'a>, bytes: &'a [u8]) -> DocNode<'a> {
        DocNode { names, source: PieceSource::default(), bytes }
    }

    /// The node that `bytes` starts with, whose pieces are in `source`.
    pub(crate) fn with(names: Names<'a>, source: PieceSource<'a>, bytes: &'a [u8]) -> DocNode<'a> {
        DocNode { names, source, bytes }
    }

    /// The blocks of its pieces.
    pub(crate) fn source(self) -> PieceSource<'a> {
        self.source
    }

    /// Its bytes; those of its pieces are elsewhere.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes.get(..form::node_len(self.bytes)).unwrap_or_default()
    }

    /// The number of its bytes, pieces included.
    pub fn size(self) -> usize {
        let own = self.bytes().len();
        if !form::is_container(self.bytes) || !self.source.has_arena() {
            return own;
        }
        let below: usize = self
            .children()
            .map(|child| DocNode { bytes: child.bytes, ..self })
            .map(|node| if form::is_container(node.bytes) { node.size() - node.bytes().len() } else { 0 })
            .sum();
        let leaves = form::branch(self.bytes).into_iter().flat_map(|branch| Leaves::new(self.source, branch));
        own + below + leaves.map(|(_, block)| tree::leaf(block).0.len() + tree::LEAF_HEAD).sum::<usize>()
    }

    /// Returns true if it is a container in pieces, or one of those within it is.
    pub fn has_pieces(self) -> bool {
        stage::has_branches(self.bytes())
    }

    /// Its content.
    #[inline]
    pub fn view(self) -> FormView<'a> {
        form::view(self.bytes)
    }

    /// The name of its type as JSON.TYPE answers.
    pub fn kind(self) -> &'static str {
        match self.view() {
            FormView::Null => "null",
            FormView::Bool(_) => "boolean",
            FormView::Int(_) | FormView::Uint(_) => "integer",
            FormView::Float(_) => "number",
            FormView::Text(_) => "string",
            FormView::Array(_) => "array",
            FormView::Object(_) => "object",
        }
    }

    /// Number of children of a container, bytes of a text; `None` for other scalars.
    pub fn len(self) -> Option<usize> {
        match self.view() {
            FormView::Text(text) => Some(text.len()),
            FormView::Array(count) | FormView::Object(count) => Some(count),
            _ => None,
        }
    }

    /// Returns true if it is an empty container or text.
    pub fn is_empty(self) -> bool {
        self.len() == Some(0)
    }

    /// The children of a container.
    #[inline]
    pub(crate) fn children(self) -> Children<'a> {
        Children::new(self.source, self.bytes, NodePlace::first(0))
    }

    /// The items of an array; nothing for other nodes.
    pub fn items(self) -> impl Iterator<Item = DocNode<'a>> {
        self.items_from(0)
    }

    /// The items of an array from number `index` on.
    pub fn items_from(self, index: usize) -> impl Iterator<Item = DocNode<'a>> {
        let children = matches!(self.view(), FormView::Array(_)).then(|| self.children().from(index));
        children.into_iter().flatten().map(move |child| DocNode { bytes: child.bytes, ..self })
    }

    /// The names and values of an object; nothing for other nodes.
    pub fn members(self) -> impl Iterator<Item = (&'a [u8], DocNode<'a>)> {
        let children = matches!(self.view(), FormView::Object(_)).then(|| self.children());
        let names = self.names;
        children.into_iter().flatten().map(move |child| {
            (names.text(child.name.unwrap_or(MemberName::Own(&[]))), DocNode { bytes: child.bytes, ..self })
        })
    }

    /// The value of the member called `name`.
    pub fn member(self, name: &[u8]) -> Option<DocNode<'a>> {
        let FormView::Object(_) = self.view() else { return None };
        let wanted = self.names.written(name);
        let child = self.children().find(|child| child.name == Some(wanted))?;
        Some(DocNode { bytes: child.bytes, ..self })
    }

    /// Levels of containers in it: 0 for a scalar.
    pub fn depth(self) -> usize {
        if !form::is_container(self.bytes) {
            return 0;
        }
        1 + self.children().map(|child| DocNode { bytes: child.bytes, ..self }.depth()).max().unwrap_or(0)
    }
}
