//! Document to text, with the blanks that JSON.GET asks for.

use darter_base::number;
use darter_slab::Lexicon;

use crate::doc::DocNode;
use crate::escape::escaped_at;
use crate::form::{self, FormView, MemberName};
use crate::tree::{Children, NodePlace, PieceSource};

/// The blanks between the parts of containers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrintStyle<'a> {
    /// Repeated for each level at the beginning of a line.
    pub indent: &'a [u8],
    /// Behind each child and each opening bracket.
    pub newline: &'a [u8],
    /// Behind the colon.
    pub space: &'a [u8],
}

impl PrintStyle<'_> {
    fn is_plain(&self) -> bool {
        self.indent.is_empty() && self.newline.is_empty() && self.space.is_empty()
    }

    /// Begins a line at `level`.
    pub fn line(&self, out: &mut Vec<u8>, level: usize) {
        out.extend_from_slice(self.newline);
        for _ in 0..level {
            out.extend_from_slice(self.indent);
        }
    }
}

/// Appends the text of `node`.
pub fn print(node: DocNode<'_>, out: &mut Vec<u8>) {
    print_styled(node, PrintStyle::default(), 0, out);
}

/// Appends the text of `node`, whose container is at `level`.
pub fn print_styled(node: DocNode<'_>, style: PrintStyle<'_>, level: usize, out: &mut Vec<u8>) {
    let names = if form::is_container(node.bytes()) { node.names.all() } else { Vec::new() };
    let printer = Printer {
        names: &names,
        words: node.names.words(),
        source: node.source(),
        style,
        is_plain: style.is_plain(),
    };
    printer.node(node.bytes(), level, out);
}

struct Printer<'a> {
    names: &'a [&'a [u8]],
    words: Option<&'a Lexicon>,
    source: PieceSource<'a>,
    style: PrintStyle<'a>,
    is_plain: bool,
}

impl Printer<'_> {
    fn node(&self, bytes: &[u8], level: usize, out: &mut Vec<u8>) {
        let (open, close) = match form::view(bytes) {
            FormView::Array(_) => (b'[', b']'),
            FormView::Object(_) => (b'{', b'}'),
            scalar => return print_scalar(scalar, out),
        };
        out.push(open);
        let mut is_first = true;
        for child in Children::new(self.source, bytes, NodePlace::first(0)) {
            self.before(&mut is_first, level, out);
            if let Some(name) = child.name {
                self.name(name, out);
                out.push(b':');
                out.extend_from_slice(self.style.space);
            }
            self.node(child.bytes, level + 1, out);
        }
        self.after(is_first, level, out);
        out.push(close);
    }

    fn name(&self, name: MemberName<'_>, out: &mut Vec<u8>) {
        match (name, self.words) {
            (MemberName::Own(text), _) => write_string(text, out),
            (MemberName::Known(number), Some(words)) => write_plain(words.word(number), out),
            (MemberName::Known(place), None) => {
                write_string(self.names.get(usize::from(place)).copied().unwrap_or_default(), out);
            }
        }
    }

    fn before(&self, is_first: &mut bool, level: usize, out: &mut Vec<u8>) {
        if !std::mem::replace(is_first, false) {
            out.push(b',');
        }
        if !self.is_plain {
            self.style.line(out, level + 1);
        }
    }

    fn after(&self, is_empty: bool, level: usize, out: &mut Vec<u8>) {
        if !is_empty && !self.is_plain {
            self.style.line(out, level);
        }
    }
}

/// Appends the text of a scalar; nothing for a container.
pub fn print_scalar(scalar: FormView<'_>, out: &mut Vec<u8>) {
    match scalar {
        FormView::Null => out.extend_from_slice(b"null"),
        FormView::Bool(true) => out.extend_from_slice(b"true"),
        FormView::Bool(false) => out.extend_from_slice(b"false"),
        FormView::Int(value) => number::write_i64(out, value),
        FormView::Uint(value) => number::write_u64(out, value),
        FormView::Float(value) => write_float(value, out),
        FormView::Text(text) => write_string(text, out),
        FormView::Array(_) | FormView::Object(_) => {}
    }
}

/// Appends a float with as few digits as it needs.
pub fn write_float(value: f64, out: &mut Vec<u8>) {
    if value.is_finite() {
        // RedisJSON writes no sign before a positive exponent.
        let mut digits = zmij::Buffer::new();
        let digits = digits.format_finite(value).bytes().filter(|byte| *byte != b'+');
        out.extend(digits);
    } else {
        out.extend_from_slice(b"null");
    }
}

/// Appends a text without escapes in quotes.
fn write_plain(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

/// Appends a text in quotes.
pub fn write_string(text: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    while let Some(plain) = escaped_at(rest) {
        let (before, from) = rest.split_at(plain);
        out.extend_from_slice(before);
        let Some((&byte, after)) = from.split_first() else { break };
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x08 => b'b',
            0x0c => b'f',
            _ => 0,
        };
        if short != 0 {
            out.extend_from_slice(&[b'\\', short]);
        } else {
            let digits =
                [byte >> 4, byte & 15].map(|half| HEX.get(usize::from(half)).copied().unwrap_or(b'0'));
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&digits);
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}
