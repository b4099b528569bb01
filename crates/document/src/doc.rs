//! A document to read: its table of names, and its root.
//!
//! ```text
//! varint count, then each name: varint length, text      the names that several members share
//! the root's node
//! ```

use darter_base::varint;

use crate::form::{self, Name, View};

/// The names that members of one document share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    bytes: &'a [u8],
    count: usize,
}

/// Most names in a table: their places take seven bits.
pub(crate) const NAMES_MAX: usize = 127;

impl<'a> Names<'a> {
    /// The names in order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.bytes;
        (0..self.count).map(move |_| {
            let len = varint::take(&mut rest).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
            let (name, after) = rest.split_at_checked(len).unwrap_or_default();
            rest = after;
            name
        })
    }

    /// The text of a name.
    #[inline]
    pub fn text(self, name: Name<'a>) -> &'a [u8] {
        match name {
            Name::Own(text) => text,
            Name::Known(place) => self.iter().nth(usize::from(place)).unwrap_or_default(),
        }
    }

    /// The form of `text` as a name in this document.
    #[inline]
    pub fn written<'t>(self, text: &'t [u8]) -> Name<'t> {
        if self.count == 0 {
            return Name::Own(text);
        }
        match self.iter().position(|name| name == text) {
            Some(place) => Name::Known(place as u8),
            None => Name::Own(text),
        }
    }

    /// All names at once, for a walk over many members.
    pub fn all(self) -> Vec<&'a [u8]> {
        self.iter().collect()
    }
}

/// A document to read.
#[derive(Clone, Copy, Debug)]
pub struct Doc<'a> {
    /// Its names.
    pub names: Names<'a>,
    bytes: &'a [u8],
    root: usize,
}

impl<'a> Doc<'a> {
    /// The document at the start of `bytes`, which may be longer.
    pub fn new(bytes: &'a [u8]) -> Doc<'a> {
        if let Some(([0], root)) = bytes.split_first_chunk::<1>() {
            return Doc {
                names: Names::default(),
                bytes: bytes.get(..1 + form::node_len(root)).unwrap_or(bytes),
                root: 1,
            };
        }
        let mut rest = bytes;
        let count = varint::take(&mut rest).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        let table = rest;
        for _ in 0..count {
            let len = varint::take(&mut rest).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
            rest = rest.get(len..).unwrap_or_default();
        }
        let names = Names { bytes: table.get(..table.len() - rest.len()).unwrap_or_default(), count };
        let root = bytes.len() - rest.len();
        let end = root + form::node_len(rest);
        Doc { names, bytes: bytes.get(..end).unwrap_or(bytes), root }
    }

    /// The bytes of the whole document.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Offset of the root.
    pub fn root_at(self) -> usize {
        self.root
    }

    /// The root.
    pub fn root(self) -> Node<'a> {
        self.node(self.root)
    }

    /// Containers around the node at `at`, which a path has found.
    pub fn level(self, at: usize) -> usize {
        let (mut place, mut level) = (self.root, 0);
        while place < at {
            let rest = self.bytes.get(place..).unwrap_or_default();
            let is_object = rest.first() == Some(&form::OBJECT);
            let mut child = place + form::inner(rest).0;
            // the child that reaches past `at`
            loop {
                let rest = self.bytes.get(child..).unwrap_or_default();
                let width = if is_object { form::name(rest).1 } else { 0 };
                let len = form::node_len(rest.get(width..).unwrap_or_default());
                if len == 0 || child + width + len > at {
                    child += width;
                    break;
                }
                child += width + len;
            }
            if child <= place {
                break;
            }
            place = child;
            level += 1;
        }
        level
    }

    /// The node at `at`, which a path has found.
    pub fn node(self, at: usize) -> Node<'a> {
        Node { names: self.names, bytes: self.bytes.get(at..).unwrap_or_default() }
    }
}

/// A node to read.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    /// The names of its document.
    pub names: Names<'a>,
    // the node, and perhaps the bytes after it
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// The node that `bytes` starts with, in a document with `names`.
    pub fn new(names: Names<'a>, bytes: &'a [u8]) -> Node<'a> {
        Node { names, bytes }
    }

    /// Its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes.get(..form::node_len(self.bytes)).unwrap_or_default()
    }

    /// Its content.
    #[inline]
    pub fn view(self) -> View<'a> {
        form::view(self.bytes)
    }

    /// The name of its type as JSON.TYPE answers.
    pub fn kind(self) -> &'static str {
        match self.view() {
            View::Null => "null",
            View::Bool(_) => "boolean",
            View::Int(_) | View::Uint(_) => "integer",
            View::Float(_) => "number",
            View::Text(_) => "string",
            View::Array(_) => "array",
            View::Object(_) => "object",
        }
    }

    /// Number of children of a container, bytes of a text; `None` for other scalars.
    pub fn len(self) -> Option<usize> {
        match self.view() {
            View::Text(text) => Some(text.len()),
            View::Array(children) | View::Object(children) => Some(children.count),
            _ => None,
        }
    }

    /// Returns true if it is an empty container or text.
    pub fn is_empty(self) -> bool {
        self.len() == Some(0)
    }

    /// The items of an array; nothing for other nodes.
    pub fn items(self) -> impl Iterator<Item = Node<'a>> {
        let children = match self.view() {
            View::Array(children) => Some(children),
            _ => None,
        };
        let names = self.names;
        children.into_iter().flat_map(form::Children::items).map(move |bytes| Node { names, bytes })
    }

    /// The names and values of an object; nothing for other nodes.
    pub fn members(self) -> impl Iterator<Item = (&'a [u8], Node<'a>)> {
        let children = match self.view() {
            View::Object(children) => Some(children),
            _ => None,
        };
        let names = self.names;
        let members = children.into_iter().flat_map(form::Children::members);
        members.map(move |(name, bytes)| (names.text(name), Node { names, bytes }))
    }

    /// The value of the member called `name`.
    pub fn member(self, name: &[u8]) -> Option<Node<'a>> {
        let View::Object(children) = self.view() else { return None };
        let wanted = self.names.written(name);
        let (_, bytes) = children.members().find(|(own, _)| *own == wanted)?;
        Some(Node { names: self.names, bytes })
    }

    /// Levels of containers in it: 0 for a scalar.
    pub fn depth(self) -> usize {
        match self.view() {
            View::Array(children) => {
                1 + children.items().map(|bytes| Node { bytes, ..self }.depth()).max().unwrap_or(0)
            }
            View::Object(children) => {
                1 + children.members().map(|(_, bytes)| Node { bytes, ..self }.depth()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }
}
