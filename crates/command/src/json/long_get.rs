//! JSON.GET of a large part of a document, in slices: the text is that of the moment the command ran.
//!
//! Called by JSON.GET (to begin) and by `Incremental`. The pieces of a document never change, so writers wait for
//! nobody. Memory: the text, until the client has it.

use std::collections::VecDeque;

use darter_document::path::PathQuery;
use darter_document::print::{PrintStyle, print_styled};
use darter_document::{Doc, NodePlace, Printing};
use darter_store::{Arena, Json};
use darter_wire::{Args, Reply};

use crate::Ctx;
use crate::incremental::Operation;

/// The blanks of a text, beyond the command's words.
#[derive(Default)]
struct OwnedStyle {
    indent: Vec<u8>,
    newline: Vec<u8>,
    space: Vec<u8>,
}

/// A part of the answer.
enum TextPart {
    Text(Vec<u8>),
    Node(NodePlace, usize),
}

/// The text of an answer: written at once, or noted to be written in slices.
pub(super) enum JsonText {
    Now(Vec<u8>),
    Later(Vec<LaterPart>),
}

/// A part of a text that is written later.
pub(super) struct LaterPart(TextPart);

impl JsonText {
    /// A text of values of `doc` that is written at once.
    pub fn now(doc: Doc<'_>, paths: &[(&[u8], PathQuery)]) -> JsonText {
        let is_whole =
            paths.iter().any(|(_, query)| matches!(query, PathQuery::Path(path) if path.is_root()));
        JsonText::Now(Vec::with_capacity(if is_whole { doc.bytes().len() * 5 / 4 } else { 64 }))
    }

    /// The place for text that is no value of the document.
    pub fn between(&mut self) -> &mut Vec<u8> {
        match self {
            JsonText::Now(text) => text,
            JsonText::Later(parts) => {
                if !matches!(parts.last(), Some(LaterPart(TextPart::Text(_)))) {
                    parts.push(LaterPart(TextPart::Text(Vec::new())));
                }
                match parts.last_mut() {
                    Some(LaterPart(TextPart::Text(text))) => text,
                    _ => unreachable!("put there above"),
                }
            }
        }
    }

    /// Adds the value at `spot`, whose container is at `level`.
    pub fn value(&mut self, doc: Doc<'_>, spot: NodePlace, style: PrintStyle<'_>, level: usize) {
        match self {
            JsonText::Now(text) => print_styled(doc.node(spot), style, level, text),
            JsonText::Later(parts) => parts.push(LaterPart(TextPart::Node(spot, level))),
        }
    }
}

/// Leaves writing the parts of a text, values of the document at `name`, to slices; false if that is impossible.
pub(super) fn leave(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    parts: Vec<LaterPart>,
    style: PrintStyle<'_>,
    reply: &Reply<'_>,
) -> bool {
    let mut parts: VecDeque<TextPart> = parts.into_iter().map(|LaterPart(part)| part).collect();
    let owned = OwnedStyle {
        indent: style.indent.to_vec(),
        newline: style.newline.to_vec(),
        space: style.space.to_vec(),
    };
    let mut printing: Option<Printing> = None;
    let mut step = Some(move |json: &Json, arena: &Arena, out: &mut Vec<u8>, bytes_max: usize| {
        let doc = json.doc(arena);
        let style = PrintStyle { indent: &owned.indent, newline: &owned.newline, space: &owned.space };
        while out.len() < bytes_max {
            if let Some(open) = &mut printing {
                if !open.step(doc, style, out, bytes_max) {
                    return false;
                }
                printing = None;
            }
            match parts.pop_front() {
                None => return true,
                Some(TextPart::Text(mut text)) => out.append(&mut text),
                Some(TextPart::Node(spot, level)) => printing = Some(Printing::new(spot, level)),
            }
        }
        false
    });
    ctx.read_later(
        &[name],
        &mut |_, shard, db, key| shard.begin_frozen(db, key, step.take()?),
        Box::<TextAnswer>::default(),
        reply,
    )
}

/// The text so far, and how much of it is answered.
#[derive(Default)]
struct TextAnswer {
    text: Vec<u8>,
    sent: usize,
}

impl Operation for TextAnswer {
    fn take(&mut self, _nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        self.text.extend_from_slice(told);
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if self.sent == 0 {
            reply.bulk_header(self.text.len());
        }
        let room = bytes_max.saturating_sub(reply.len()).max(1);
        let end = self.text.len().min(self.sent + room);
        reply.raw(self.text.get(self.sent..end).unwrap_or_default());
        self.sent = end;
        if end < self.text.len() {
            return false;
        }
        reply.bulk_end();
        true
    }

    fn bytes(&self) -> usize {
        self.text.capacity()
    }
}
