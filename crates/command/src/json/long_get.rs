//! JSON.GET and JSON.MGET of large parts of documents, in slices: the text is that of the moment the command ran.
//!
//! Called by these commands (to begin) and by `Incremental`. The pieces of a document never change, so writers wait for
//! nobody. A document without pieces is copied. Memory: the text, until the client has it.

use std::collections::VecDeque;

use darter_document::path::PathQuery;
use darter_document::print::{PrintStyle, print_styled};
use darter_document::{Doc, FormView, JsonPath, NodePlace, PathSearch, Printing};
use darter_store::{Arena, Json};
use darter_wire::{Args, Reply};

use super::get::print_one;
use crate::Ctx;
use crate::incremental::Operation;

/// Nodes that are looked at in one slice: some 20 microseconds.
pub(super) const NODES_AT_ONCE: usize = 1024;
/// Nodes that are written in one slice.
pub(super) const WRITTEN_AT_ONCE: usize = 256;

/// The blanks of a text, beyond the command's words.
#[derive(Default)]
struct OwnedStyle {
    indent: Vec<u8>,
    newline: Vec<u8>,
    space: Vec<u8>,
}

impl OwnedStyle {
    fn borrowed(&self) -> PrintStyle<'_> {
        PrintStyle { indent: &self.indent, newline: &self.newline, space: &self.space }
    }
}

/// A part of the answer.
enum TextPart {
    Text(Vec<u8>),
    Node(NodePlace, usize),
    // All that a path leads to, as an array at this level.
    Found(JsonPath, usize),
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
        JsonText::Now(Vec::with_capacity(if is_whole { doc.bytes().len() * 2 } else { 64 }))
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

    /// Adds the values that `path` leads to, as an array at `level`.
    pub fn found(&mut self, doc: Doc<'_>, path: &JsonPath, style: PrintStyle<'_>, level: usize) {
        let text = match self {
            JsonText::Now(text) => text,
            JsonText::Later(parts) => {
                return parts.push(LaterPart(TextPart::Found(path.clone(), level)));
            }
        };
        let mut showing = Showing { found: path.find(doc), at: 0, level };
        text.push(b'[');
        while let Some(spot) = showing.next(style, text) {
            print_styled(doc.node(spot), style, level + 1, text);
        }
    }
}

/// Values of an array that are being written.
struct Showing {
    found: Vec<NodePlace>,
    at: usize,
    level: usize,
}

impl Showing {
    /// Writes what is in front of the next value, or behind the last one.
    fn next(&mut self, style: PrintStyle<'_>, out: &mut Vec<u8>) -> Option<NodePlace> {
        let next = self.found.get(self.at).copied();
        if next.is_some() && self.at > 0 {
            out.push(b',');
        }
        if !self.found.is_empty() {
            style.line(out, self.level + usize::from(next.is_some()));
        }
        if next.is_none() {
            out.push(b']');
        }
        self.at += 1;
        next
    }
}

/// A text that is written in slices.
struct TextWriter {
    parts: VecDeque<TextPart>,
    style: OwnedStyle,
    finding: Option<(PathSearch, usize)>,
    showing: Option<Showing>,
    printing: Option<Printing>,
}

impl TextWriter {
    fn new(parts: Vec<LaterPart>, style: PrintStyle<'_>) -> TextWriter {
        TextWriter {
            parts: parts.into_iter().map(|LaterPart(part)| part).collect(),
            style: OwnedStyle {
                indent: style.indent.to_vec(),
                newline: style.newline.to_vec(),
                space: style.space.to_vec(),
            },
            finding: None,
            showing: None,
            printing: None,
        }
    }

    /// Writes until `out` has `bytes_max` bytes or a value more; looks for nodes in slices of their own. Returns true if
    /// that was all.
    fn step(&mut self, doc: Doc<'_>, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let style = self.style.borrowed();
        let mut nodes_left = WRITTEN_AT_ONCE;
        while out.len() < bytes_max && nodes_left > 0 {
            if let Some(open) = &mut self.printing {
                if !open.step(doc, style, out, bytes_max) {
                    return false;
                }
                self.printing = None;
            }
            if let Some((finding, level)) = &mut self.finding {
                if !finding.step(doc, NODES_AT_ONCE) {
                    return false;
                }
                let level = *level;
                out.push(b'[');
                self.showing = self.finding.take().map(|(finding, _)| Showing {
                    found: finding.into_found(),
                    at: 0,
                    level,
                });
            }
            let (spot, level) = if let Some(showing) = &mut self.showing {
                match showing.next(style, out) {
                    Some(spot) => (spot, showing.level + 1),
                    None => {
                        self.showing = None;
                        continue;
                    }
                }
            } else {
                match self.parts.pop_front() {
                    None => return true,
                    Some(TextPart::Text(mut text)) => {
                        out.append(&mut text);
                        continue;
                    }
                    Some(TextPart::Found(path, level)) => {
                        self.finding = Some((PathSearch::new(doc, path), level));
                        continue;
                    }
                    Some(TextPart::Node(spot, level)) => (spot, level),
                }
            };
            nodes_left -= 1;
            match doc.node(spot).view() {
                FormView::Array(_) | FormView::Object(_) => self.printing = Some(Printing::new(spot, level)),
                _ => print_styled(doc.node(spot), style, level, out),
            }
        }
        false
    }
}

/// A text of the document at a key: read in slices, or made of a copy.
pub(super) enum WantedText {
    /// The key is missing.
    Missing,
    /// These parts, of a document in pieces.
    Parts(Vec<LaterPart>),
    /// What a query finds in a copy of the document.
    Copied(Vec<u8>),
}

/// Leaves writing a text, of the document at `name`, to slices; false if that is impossible.
pub(super) fn leave(
    ctx: &mut Ctx<'_>,
    name: &[u8],
    parts: Vec<LaterPart>,
    style: PrintStyle<'_>,
    reply: &Reply<'_>,
) -> bool {
    let text = vec![(name, WantedText::Parts(parts))];
    leave_texts(ctx, text, style, None, reply)
}

/// Leaves writing texts, of the documents at these keys, to slices; false if that is impossible. With `query` they are the
/// items of an array, and it makes those of copies.
pub(super) fn leave_texts(
    ctx: &mut Ctx<'_>,
    wanted: Vec<(&[u8], WantedText)>,
    style: PrintStyle<'_>,
    query: Option<PathQuery>,
    reply: &Reply<'_>,
) -> bool {
    let (mut names, mut writers) = (Vec::new(), Vec::new());
    let mut answer = TextAnswers { query, ..TextAnswers::default() };
    for (nth, (name, text)) in wanted.into_iter().enumerate() {
        answer.texts.push(match text {
            WantedText::Missing => FoundText::Missing,
            WantedText::Copied(form) => {
                answer.bytes += form.len();
                FoundText::Copied(form)
            }
            WantedText::Parts(parts) => {
                names.push(name);
                writers.push(Some(TextWriter::new(parts, style)));
                answer.read_texts.push(nth);
                FoundText::Text(Vec::new())
            }
        });
    }
    ctx.read_later(
        &names,
        &mut |nth, shard, db, key| {
            let mut writer = writers.get_mut(nth)?.take()?;
            let step = move |json: &Json, arena: &Arena, out: &mut Vec<u8>, bytes_max: usize| {
                writer.step(json.doc(arena), out, bytes_max)
            };
            shard.begin_frozen(db, key, step)
        },
        Box::new(answer),
        reply,
    )
}

/// A text of an answer.
enum FoundText {
    Missing,
    Text(Vec<u8>),
    // A document.
    Copied(Vec<u8>),
}

/// The texts so far, and how much of them is answered.
#[derive(Default)]
struct TextAnswers {
    texts: Vec<FoundText>,
    // The text of each read.
    read_texts: Vec<usize>,
    // They are the items of an array if there is one.
    query: Option<PathQuery>,
    bytes: usize,
    has_begun: bool,
    // The text that is answered, and bytes of it sent; `None` before its head.
    nth: usize,
    sent: Option<usize>,
}

impl Operation for TextAnswers {
    fn take(&mut self, nth: u32, told: &[u8], _args: Args<'_>) -> Vec<u8> {
        let text = self.read_texts.get(nth as usize).and_then(|at| self.texts.get_mut(*at));
        if let Some(FoundText::Text(text)) = text {
            text.extend_from_slice(told);
            self.bytes += told.len();
        }
        Vec::new()
    }

    fn answer(&mut self, reply: &mut Reply<'_>, bytes_max: usize) -> bool {
        if !std::mem::replace(&mut self.has_begun, true) && self.query.is_some() {
            reply.array(self.texts.len());
        }
        while reply.len() < bytes_max {
            let Some(text) = self.texts.get_mut(self.nth) else { return true };
            if let (FoundText::Copied(form), Some(query)) = (&mut *text, &self.query) {
                let mut made = JsonText::Now(Vec::with_capacity(form.len() * 5 / 4));
                let is_made = print_one(Doc::new(form), query, PrintStyle::default(), &mut made).is_ok();
                *text = match made {
                    JsonText::Now(made) if is_made => FoundText::Text(made),
                    _ => FoundText::Missing,
                };
            }
            let FoundText::Text(text) = text else {
                reply.null();
                self.nth += 1;
                continue;
            };
            let sent = self.sent.unwrap_or_else(|| {
                reply.bulk_header(text.len());
                0
            });
            let end = text.len().min(sent + bytes_max.saturating_sub(reply.len()).max(1));
            reply.raw(text.get(sent..end).unwrap_or_default());
            self.sent = Some(end);
            if end == text.len() {
                reply.bulk_end();
                (self.nth, self.sent, *text) = (self.nth + 1, None, Vec::new());
            }
        }
        self.nth == self.texts.len()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
