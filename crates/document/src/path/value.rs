//! The value of an expression, and how values relate.

use std::borrow::Cow;

use super::filter::is_same;
use crate::doc::{DocNode, Names};
use crate::form::{self, FormView};
use crate::number::Number;
use crate::tree::PieceSource;

/// The value of an expression.
#[derive(Clone, Debug)]
pub(super) enum Operand<'v> {
    /// None.
    Nothing,
    /// A node of the document.
    Node(DocNode<'v>),
    /// A node that was written into the path or computed.
    Made(Made<'v>),
    /// Several nodes of the document.
    Nodes(Vec<DocNode<'v>>),
    /// A list that was computed.
    List(Vec<Made<'v>>),
}

/// The elements that must be so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Quantifier {
    All,
    Any,
}

/// A node outside the document, or a copy of one.
#[derive(Clone, Debug)]
pub(super) struct Made<'v> {
    names: Names<'v>,
    source: PieceSource<'v>,
    bytes: Cow<'v, [u8]>,
}

impl<'v> Made<'v> {
    /// A node that is written into the path.
    pub fn written(bytes: &'v [u8]) -> Made<'v> {
        Made { names: Names::default(), source: PieceSource::default(), bytes: Cow::Borrowed(bytes) }
    }

    /// A node of a document.
    pub fn of(node: DocNode<'v>) -> Made<'v> {
        Made { names: node.names, source: node.source(), bytes: Cow::Borrowed(node.bytes()) }
    }

    /// The node that `write` appends.
    pub fn by(write: impl FnOnce(&mut Vec<u8>)) -> Made<'v> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        Made { names: Names::default(), source: PieceSource::default(), bytes: Cow::Owned(bytes) }
    }

    /// An array of these.
    pub fn array(items: &[Made<'_>]) -> Made<'v> {
        Made::by(|out| {
            items.iter().for_each(|item| copy(item.node(), out));
            form::close(out, 0, form::ARRAY, items.len());
        })
    }

    /// The node.
    pub fn node(&self) -> DocNode<'_> {
        DocNode::with(self.names, self.source, &self.bytes)
    }

    /// Its content.
    pub fn view(&self) -> FormView<'_> {
        form::view(&self.bytes)
    }

    /// Its bytes, on their own: without pieces and without the names of a document.
    pub fn into_bytes(self) -> Vec<u8> {
        let mut out = Vec::new();
        copy(self.node(), &mut out);
        out
    }
}

/// Appends a node without pieces and without the names of its document.
fn copy(node: DocNode<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    match node.view() {
        FormView::Array(count) => {
            node.items().for_each(|item| copy(item, out));
            form::close(out, start, form::ARRAY, count);
        }
        FormView::Object(count) => {
            for (name, value) in node.members() {
                form::write_name(out, form::MemberName::Own(name));
                copy(value, out);
            }
            form::close(out, start, form::OBJECT, count);
        }
        _ => out.extend_from_slice(node.bytes()),
    }
}

/// The whole number of a node, with what is behind the point cut off.
pub(super) fn whole_of(node: DocNode<'_>) -> Option<i64> {
    match Number::of(node.view())? {
        Number::Int(value) => Some(value),
        other => whole(other.as_float().trunc()),
    }
}

/// A float without a fraction as an integer, if it fits.
pub(super) fn whole(value: f64) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    (-END..END).contains(&value).then_some(value as i64)
}

/// Characters of a text, children of a container.
pub(super) fn len_of(node: DocNode<'_>) -> Option<usize> {
    match node.view() {
        FormView::Text(text) => Some(String::from_utf8_lossy(text).chars().count()),
        FormView::Array(count) | FormView::Object(count) => Some(count),
        _ => None,
    }
}

impl<'v> Operand<'v> {
    /// A computed number; one that is not finite is nothing.
    pub fn of_number(number: Number) -> Operand<'v> {
        match number {
            Number::Float(value) if !value.is_finite() => Operand::Nothing,
            number => Operand::Made(Made::by(|out| number.write(out))),
        }
    }

    /// The node, if it is one.
    pub fn single(&self) -> Option<DocNode<'_>> {
        match self {
            Operand::Node(node) => Some(*node),
            Operand::Made(made) => Some(made.node()),
            Operand::Nothing | Operand::Nodes(_) | Operand::List(_) => None,
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<Number> {
        Number::of(self.single()?.view())
    }

    /// Returns true if `is_such` holds for any of its nodes.
    pub fn any(&self, mut is_such: impl FnMut(DocNode<'_>) -> bool) -> bool {
        match self {
            Operand::Nothing => false,
            Operand::Node(node) => is_such(*node),
            Operand::Made(made) => is_such(made.node()),
            Operand::Nodes(nodes) => nodes.iter().any(|node| is_such(*node)),
            Operand::List(list) => list.iter().any(|made| is_such(made.node())),
        }
    }

    /// Returns true if `is_such` holds for the length of any of its nodes, or for that of its list.
    pub fn any_len(&self, mut is_such: impl FnMut(usize) -> bool) -> bool {
        match self {
            Operand::List(list) => is_such(list.len()),
            other => other.any(|node| len_of(node).is_some_and(&mut is_such)),
        }
    }

    /// Its elements, if it is an array, several nodes or a list.
    pub fn elements(&self) -> Option<Box<dyn Iterator<Item = DocNode<'_>> + '_>> {
        match self {
            Operand::Nodes(nodes) => Some(Box::new(nodes.iter().copied())),
            Operand::List(list) => Some(Box::new(list.iter().map(Made::node))),
            Operand::Nothing => None,
            one => match one.single()? {
                node if matches!(node.view(), FormView::Array(_)) => Some(Box::new(node.items())),
                _ => None,
            },
        }
    }

    fn has(&self, node: DocNode<'_>) -> bool {
        self.elements().is_some_and(|mut all| all.any(|own| is_same(node, own)))
    }

    /// Returns true if it is one of the elements of `other`.
    pub fn is_in(&self, other: &Operand<'_>) -> bool {
        !matches!(self, Operand::List(_)) && self.any(|node| other.has(node))
    }

    /// Returns true if all or any of its elements are elements of `other`; of several nodes, one must be so.
    pub fn relates(&self, other: &Operand<'_>, joined: Quantifier) -> bool {
        let of = |one: &Operand<'_>| {
            one.elements().is_some_and(|mut all| match joined {
                Quantifier::All => all.all(|node| other.has(node)),
                Quantifier::Any => all.any(|node| other.has(node)),
            })
        };
        match self {
            Operand::Nodes(nodes) => nodes.iter().any(|node| of(&Operand::Node(*node))),
            one => of(one),
        }
    }

    /// The nodes that a path answers.
    pub fn into_answer(self) -> Vec<Vec<u8>> {
        match self {
            Operand::Nothing => Vec::new(),
            Operand::Node(node) => vec![Made::of(node).into_bytes()],
            Operand::Made(made) => vec![made.into_bytes()],
            Operand::Nodes(nodes) => {
                let all: Vec<Made<'_>> = nodes.into_iter().map(Made::of).collect();
                vec![Made::array(&all).into_bytes()]
            }
            Operand::List(list) => list.into_iter().map(Made::into_bytes).collect(),
        }
    }
}
