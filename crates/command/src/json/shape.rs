//! The forms of documents in replies: as text, or with RESP3's own types.

use darter_document::path::Computed;
use darter_document::print::{PrintStyle, print_scalar, print_styled, write_string};
use darter_document::{Doc, DocNode, FormView};
use darter_wire::Reply;

use super::fault::BAD_FORMAT;
use super::long_get::JsonText;
use crate::{Fault, reader};

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JsonFormat {
    /// A text.
    Text,
    /// Containers as text, scalars as RESP3 types.
    Scalars,
    /// All as RESP3 has it.
    Types,
}

impl JsonFormat {
    /// The format of that name; `text` is the name of [`JsonFormat::Text`].
    ///
    /// Errors: unknown name.
    pub fn named(name: &[u8], text: &str) -> Result<JsonFormat, Fault> {
        match name {
            name if reader::is(name, "expand") => Ok(JsonFormat::Types),
            name if reader::is(name, "expand1") => Ok(JsonFormat::Scalars),
            name if reader::is(name, text) => Ok(JsonFormat::Text),
            _ => Err(BAD_FORMAT),
        }
    }
}

/// The text of a node.
pub(super) fn text_of(node: DocNode<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    print_styled(node, PrintStyle::default(), 0, &mut text);
    text
}

/// Appends the values of an expression, as an array at `level`.
pub(super) fn print_computed(
    doc: Doc<'_>,
    computed: &Computed,
    style: PrintStyle<'_>,
    level: usize,
    out: &mut JsonText,
) {
    let (values, out) = (computed.values(doc), out.between());
    out.push(b'[');
    for (number, value) in values.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        style.line(out, level + 1);
        print_styled(DocNode::new(doc.names, value), style, level + 1, out);
    }
    if !values.is_empty() {
        style.line(out, level);
    }
    out.push(b']');
}

/// Appends the name of a member at `level` and its colon.
pub(super) fn print_name(name: &[u8], style: PrintStyle<'_>, level: usize, out: &mut Vec<u8>) {
    style.line(out, level);
    write_string(name, out);
    out.push(b':');
    out.extend_from_slice(style.space);
}

/// Answers a node in RESP3's types.
pub(super) fn reply_node(node: DocNode<'_>, format: JsonFormat, reply: &mut Reply<'_>) {
    match node.view() {
        FormView::Null => reply.null(),
        FormView::Bool(value) => reply.boolean(value),
        FormView::Int(value) => reply.int(value),
        FormView::Uint(value) => reply.double(value as f64),
        FormView::Float(value) => reply.double(value),
        FormView::Array(count) if format == JsonFormat::Types => {
            reply.array(count);
            node.items().for_each(|item| reply_node(item, format, reply));
        }
        FormView::Object(count) if format == JsonFormat::Types => {
            reply.map(count);
            for (name, value) in node.members() {
                reply.bulk(name);
                reply_node(value, format, reply);
            }
        }
        FormView::Text(text) if format == JsonFormat::Types => reply.bulk(text),
        scalar @ FormView::Text(_) => {
            let mut text = Vec::new();
            print_scalar(scalar, &mut text);
            reply.bulk(&text);
        }
        FormView::Array(_) | FormView::Object(_) => reply.bulk(&text_of(node)),
    }
}
