//! Parsing a long text in steps, straight into pieces: the state between two steps holds no references.
//!
//! Called for texts that would hold a thread for long. Containers of up to [`PART_BYTES`] of text, and scalars, are left
//! to [`crate::parse`]; only what is around them is read here. A text that is no JSON, or that repeats a name in a
//! large object, is [`Unsliced`]: [`crate::parse`] has the answer.

use std::collections::HashSet;

use crate::DEPTH_MAX;
use crate::dictionary::{NameTable, NameTally, hash_of_name, renamed};
use crate::doc::{Doc, DocNode, Names};
use crate::form::{self, Container, MemberName};
use crate::parse::{NotJson, parse_name, parse_part};
use crate::stage::{Editor, Filling, INLINE_BYTES_MAX, StagedPieces};
use crate::tree::PieceSource;

/// The text must be parsed as a whole: it is not JSON, or an object has a name twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsliced;

impl From<NotJson> for Unsliced {
    fn from(NotJson: NotJson) -> Unsliced {
        Unsliced
    }
}

/// A text that is being parsed.
#[derive(Debug)]
pub struct Parsing {
    // The next byte of the text; and of a string, the bytes that are known to be within it.
    at: usize,
    within: usize,
    expected: Expected,
    open: Vec<OpenContainer>,
    stage: StagedPieces,
    // The name of the next value.
    name: Vec<u8>,
    root: Vec<u8>,
    depth: usize,
    table: NameTable,
    // While the names of the first bytes are counted.
    tally: Option<NameTally>,
}

/// A container whose end has not been read.
#[derive(Debug)]
struct OpenContainer {
    kind: Container,
    // Its own name, if it is a member.
    name: Vec<u8>,
    filling: Filling,
    // Hashes of the names so far.
    names: HashSet<u64>,
}

/// What the text must go on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Value,
    /// A value, or the end of the array.
    ItemOrEnd,
    /// A name, or the end of the object.
    NameOrEnd,
    Name,
    Colon,
    /// A comma, or the end of the container.
    CommaOrEnd,
    /// Blanks.
    Nothing,
}

/// A document that was parsed in steps.
#[derive(Debug)]
pub struct Parsed {
    /// Its first block: the names and the root.
    pub first: Vec<u8>,
    /// Its other blocks.
    pub stage: StagedPieces,
    /// Levels of containers in it.
    pub depth: usize,
}

impl Parsed {
    /// The same document in one run.
    pub fn into_form(self) -> Vec<u8> {
        let fresh = self.stage.into_fresh();
        let source = PieceSource::default().with(&fresh);
        let doc = Doc::new(&self.first);
        let mut form = self.first.get(..doc.root_at()).unwrap_or_default().to_vec();
        form.extend(renamed(doc.with_source(source), doc));
        form
    }
}

/// Containers of up to this much text are parsed at once: some 20 microseconds.
const PART_BYTES: usize = 4 << 10;
/// Bytes of a string whose end is searched in one step.
const STRING_BYTES: usize = 32 << 10;
/// Longer numbers are left to a parse of the whole text.
const NUMBER_BYTES_MAX: usize = 4 << 10;
/// The part of a text whose names decide about the table, and its bounds, bytes.
const SAMPLE_PART: usize = 16;
const SAMPLE_BYTES_MIN: usize = 8 << 10;
const SAMPLE_BYTES_MAX: usize = 1 << 20;

impl Parsing {
    /// Begins a document, whose names are counted first.
    pub fn of_document() -> Parsing {
        Parsing { tally: Some(NameTally::default()), ..Parsing::with(NameTable::default()) }
    }

    /// Begins a value for a place in `doc`, with the names of that.
    pub fn of_value(doc: Doc<'_>) -> Parsing {
        Parsing::with(NameTable::of(doc))
    }

    fn with(table: NameTable) -> Parsing {
        Parsing {
            at: 0,
            within: 0,
            expected: Expected::Value,
            open: Vec::new(),
            stage: StagedPieces::default(),
            name: Vec::new(),
            root: Vec::new(),
            depth: 0,
            table,
            tally: None,
        }
    }

    /// Parses about `bytes_max` bytes of `text`, which is the same each time. Returns true if that was the end.
    ///
    /// Errors: the text must be parsed as a whole.
    pub fn step(&mut self, text: &[u8], bytes_max: usize) -> Result<bool, Unsliced> {
        let until = self.at.saturating_add(bytes_max);
        let mut editor = Editor::again(std::mem::take(&mut self.stage));
        while self.at < until {
            if self.tally.is_some() && self.at >= sample_bytes(text.len()) {
                self.count_ends();
                editor = Editor::again(StagedPieces::default());
                break;
            }
            self.at += blanks(text.get(self.at..).unwrap_or_default());
            let Some(&next) = text.get(self.at) else { break };
            if !self.token(text, next, &mut editor)? {
                break;
            }
        }
        self.stage = editor.end();
        if self.at < text.len() {
            return Ok(false);
        }
        if self.expected != Expected::Nothing {
            return Err(Unsliced);
        }
        if self.tally.is_some() {
            self.count_ends();
            return Ok(false);
        }
        Ok(true)
    }

    /// Begins the text again, with a table of the names that were counted.
    fn count_ends(&mut self) {
        let table = self.tally.take().unwrap_or_default().table();
        *self = Parsing::with(table);
    }

    /// The document, after [`Parsing::step`] has returned true.
    pub fn end(self) -> Parsed {
        let mut first = self.table.bytes;
        first.extend_from_slice(&self.root);
        Parsed { first, stage: self.stage, depth: self.depth }
    }

    /// Bytes held: the text so far is not much longer than its form.
    pub fn bytes(&self) -> usize {
        self.at + self.root.len()
    }

    /// Reads what begins with the byte `next`. Returns false if the end of a string was not found yet.
    fn token(&mut self, text: &[u8], next: u8, editor: &mut Editor<'static>) -> Result<bool, Unsliced> {
        let kind = self.open.last().map(|open| open.kind);
        match (self.expected, next) {
            (Expected::ItemOrEnd, b']') | (Expected::NameOrEnd, b'}') => self.close(editor)?,
            (Expected::CommaOrEnd, b']') if kind == Some(Container::Array) => self.close(editor)?,
            (Expected::CommaOrEnd, b'}') if kind == Some(Container::Object) => self.close(editor)?,
            (Expected::CommaOrEnd, b',') => {
                self.at += 1;
                let is_array = kind == Some(Container::Array);
                self.expected = if is_array { Expected::Value } else { Expected::Name };
            }
            (Expected::Colon, b':') => {
                self.at += 1;
                self.expected = Expected::Value;
            }
            (Expected::NameOrEnd | Expected::Name, b'"') => {
                let Some(end) = self.string_end(text)? else { return Ok(false) };
                self.member_name(text.get(self.at..end).unwrap_or_default())?;
                self.at = end;
                self.expected = Expected::Colon;
            }
            (Expected::Value | Expected::ItemOrEnd, b'{' | b'[') => self.container(text, next, editor)?,
            (Expected::Value | Expected::ItemOrEnd, b'"') => {
                let Some(end) = self.string_end(text)? else { return Ok(false) };
                self.part(text, end, editor)?;
            }
            (Expected::Value | Expected::ItemOrEnd, _) => {
                let end = self.at + scalar_len(text.get(self.at..).unwrap_or_default());
                if end - self.at > NUMBER_BYTES_MAX {
                    return Err(Unsliced);
                }
                self.part(text, end, editor)?;
            }
            _ => return Err(Unsliced),
        }
        Ok(true)
    }

    /// The end of the string at the present place; `None` if it has not been found yet.
    fn string_end(&mut self, text: &[u8]) -> Result<Option<usize>, Unsliced> {
        let mut at = self.at + self.within.max(1);
        let until = at + STRING_BYTES;
        while let Some(byte) = text.get(at) {
            match byte {
                b'"' => {
                    self.within = 0;
                    return Ok(Some(at + 1));
                }
                b'\\' => at += 2,
                _ => at += 1,
            }
            if at >= until {
                self.within = at - self.at;
                return Ok(None);
            }
        }
        Err(Unsliced)
    }

    /// Reads the name of a member.
    ///
    /// Errors: the object has it already.
    fn member_name(&mut self, quoted: &[u8]) -> Result<(), Unsliced> {
        let mut own = Vec::with_capacity(quoted.len());
        parse_name(quoted, &mut own)?;
        let (MemberName::Own(name), _) = form::name(&own) else { return Err(Unsliced) };
        let open = self.open.last_mut().ok_or(Unsliced)?;
        if !open.names.insert(hash_of_name(name)) {
            return Err(Unsliced);
        }
        if let Some(tally) = &mut self.tally {
            tally.add_name(name, 1);
        }
        self.name.clear();
        form::write_name(&mut self.name, self.table.written(name));
        Ok(())
    }

    /// Reads a container if it is short, else its first byte.
    fn container(&mut self, text: &[u8], next: u8, editor: &mut Editor<'static>) -> Result<(), Unsliced> {
        if let Some(len) = short_container(text.get(self.at..).unwrap_or_default()) {
            return self.part(text, self.at + len, editor);
        }
        if self.open.len() == DEPTH_MAX {
            return Err(Unsliced);
        }
        let (kind, expected) = match next {
            b'{' => (Container::Object, Expected::NameOrEnd),
            _ => (Container::Array, Expected::ItemOrEnd),
        };
        let (name, filling) = (std::mem::take(&mut self.name), Filling::new(kind));
        self.open.push(OpenContainer { kind, name, filling, names: HashSet::new() });
        self.depth = self.depth.max(self.open.len());
        self.at += 1;
        self.expected = expected;
        Ok(())
    }

    /// Reads a value that ends at `end`.
    fn part(&mut self, text: &[u8], end: usize, editor: &mut Editor<'static>) -> Result<(), Unsliced> {
        let mut plain = Vec::new();
        parse_part(text.get(self.at..end).ok_or(Unsliced)?, DEPTH_MAX - self.open.len(), &mut plain)?;
        self.at = end;
        let node = DocNode::new(Names::default(), &plain);
        if !form::is_container(&plain) {
            self.child(&plain, editor);
            return Ok(());
        }
        self.depth = self.depth.max(self.open.len() + node.depth());
        if let Some(tally) = &mut self.tally {
            tally.add(node);
        }
        let mut own = Vec::with_capacity(plain.len());
        self.table.copy(node, &mut own);
        self.child(&own, editor);
        Ok(())
    }

    /// Ends the innermost container.
    fn close(&mut self, editor: &mut Editor<'static>) -> Result<(), Unsliced> {
        let OpenContainer { kind, name, filling, .. } = self.open.pop().ok_or(Unsliced)?;
        self.at += 1;
        self.name = name;
        let entries = filling.end(editor.stage_mut());
        let mut node = Vec::new();
        editor.close(kind, entries, 0, &mut node);
        self.child(&node, editor);
        Ok(())
    }

    /// Adds a value, whose name is noted, to the innermost container.
    fn child(&mut self, node: &[u8], editor: &mut Editor<'static>) {
        let mut child = std::mem::take(&mut self.name);
        if node.len() > INLINE_BYTES_MAX {
            editor.cut(node, &mut child);
        } else {
            child.extend_from_slice(node);
        }
        match self.open.last_mut() {
            Some(open) => {
                open.filling.push(editor.stage_mut(), &child);
                self.expected = Expected::CommaOrEnd;
                child.clear();
                self.name = child;
            }
            None => {
                self.root = child;
                self.expected = Expected::Nothing;
            }
        }
    }
}

/// Bytes of a text of `len` whose names are counted.
fn sample_bytes(len: usize) -> usize {
    (len / SAMPLE_PART).clamp(SAMPLE_BYTES_MIN, SAMPLE_BYTES_MAX)
}

fn blanks(text: &[u8]) -> usize {
    text.iter().take_while(|byte| matches!(byte, b' ' | b'\n' | b'\t' | b'\r')).count()
}

/// Bytes of a number or a word.
fn scalar_len(text: &[u8]) -> usize {
    let is_end = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\t' | b'\r');
    text.iter().take(NUMBER_BYTES_MAX + 1).take_while(|byte| !is_end(byte)).count()
}

/// Bytes of the container that `text` begins with, if it has at most [`PART_BYTES`]. Brackets of the wrong kind are
/// found by the parser.
fn short_container(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth, mut is_text) = (0, 0_usize, false);
    while at < PART_BYTES {
        match text.get(at)? {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => depth += 1,
            b'}' | b']' if !is_text => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use darter_base::rng::Rng;
    use darter_slab::Arena;

    use super::*;
    use crate::{Storing, parse, print};

    fn parsed(text: &[u8], bytes_max: usize) -> Result<Parsed, Unsliced> {
        let mut parsing = Parsing::of_document();
        while !parsing.step(text, bytes_max)? {}
        Ok(parsing.end())
    }

    /// The text of a document that was parsed in steps and stored in steps.
    fn printed(parsed: Parsed, arena: &mut Arena) -> Vec<u8> {
        let Parsed { mut first, stage, .. } = parsed;
        let mut storing = Storing::new(stage);
        while !storing.step(arena, 3).expect("room") {}
        let made = storing.made_bytes();
        assert_eq!(made, arena.used_bytes());
        storing.end(&mut first);
        let doc = Doc::in_pieces(&first, arena);
        let mut text = Vec::new();
        print::print(doc.root(), &mut text);
        let mut doomed = crate::stage::Doomed::default();
        doomed.add_node(doc.root().bytes());
        doomed.free_step(arena, usize::MAX);
        assert_eq!(arena.used_bytes(), 0);
        text
    }

    /// A number below two to the power of `bits`, often a small one.
    fn skewed(rng: &mut Rng, bits: u64) -> usize {
        let power = rng.below(bits);
        rng.below(1 << power) as usize
    }

    fn text_of(rng: &mut Rng, depth: u32, out: &mut String) {
        match rng.below(if depth == 0 { 6 } else { 9 }) {
            0 => out.push_str(["true", "false", "null"][rng.below(3) as usize]),
            1 => out.push_str(&format!("{}", rng.next_u64() as i64 >> rng.below(60))),
            2 => out.push_str(&format!("{:?}", rng.below(1 << 20) as f64 / 64.0)),
            3 => out.push_str("\"\\u00e9\\n\\\"[{,\""),
            4 => out.push_str(&format!("\"{}\"", "text é ".repeat(skewed(rng, 11)))),
            5 => out.push_str(["[]", "{}", " [ ] ", "{ }"][rng.below(4) as usize]),
            6 | 7 => {
                out.push('[');
                for nth in 0..skewed(rng, 7) {
                    out.push_str(if nth > 0 { " ,\n" } else { "" });
                    text_of(rng, depth - 1, out);
                }
                out.push(']');
            }
            _ => {
                out.push('{');
                for nth in 0..skewed(rng, 7) {
                    out.push_str(if nth > 0 { "," } else { "" });
                    out.push_str(&format!("\"name {nth}\" : "));
                    text_of(rng, depth - 1, out);
                }
                out.push('}');
            }
        }
    }

    #[test]
    fn a_text_in_steps_makes_the_same_document() {
        let mut rng = Rng::new(7);
        let mut arena = Arena::with_reserve(256 << 20).expect("address space");
        let mut pieced = 0;
        for round in 0..400 {
            let mut text = String::new();
            text_of(&mut rng, 5, &mut text);
            let document = parse(text.as_bytes()).expect("JSON");
            let mut wanted = Vec::new();
            print::print(Doc::new(&document).root(), &mut wanted);
            let bytes_max = 1 + rng.below(1 << (1 + round % 16)) as usize;
            let parsed = parsed(text.as_bytes(), bytes_max).expect("JSON");
            assert_eq!(parsed.depth, Doc::new(&document).root().depth());
            pieced += usize::from(parsed.stage != StagedPieces::default());
            assert!(printed(parsed, &mut arena) == wanted, "{text}");
            // In one run, and with the names of another document.
            let form = self::parsed(text.as_bytes(), bytes_max).expect("JSON").into_form();
            let other = parse(br#"[{"a":1,"bb":2},{"a":1,"bb":2},{"a":1,"bb":2}]"#).expect("JSON");
            let node = renamed(Doc::new(&form), Doc::new(&other));
            for root in [Doc::new(&form).root(), DocNode::new(Doc::new(&other).names, &node)] {
                let mut text = Vec::new();
                print::print(root, &mut text);
                assert!(text == wanted, "{}", String::from_utf8_lossy(&text));
            }
        }
        assert!(pieced > 50, "{pieced} documents in pieces");
    }

    /// The names of the first part decide, and the table takes no more than that of the whole text.
    #[test]
    fn names_are_kept_once() {
        let rows = "{\"a name that is long\":1,\"another name\":[2,3]},".repeat(5000);
        let text = format!("[{rows}0]");
        let whole = parse(text.as_bytes()).expect("JSON");
        let parsed = parsed(text.as_bytes(), 10_000).expect("JSON");
        assert!(parsed.first.starts_with(whole.get(..20).unwrap_or_default()));
        assert!(parsed.stage.fresh_bytes() < whole.len() * 11 / 10);
    }

    #[test]
    fn what_is_damaged_or_repeated_is_left_to_the_whole_parse() {
        let long = format!("[{}0]", "[1,2,{\"a\":\"b\"}],".repeat(2000));
        let members: String = (0..2000).map(|n| format!("\"m{n}\":{n},")).collect();
        for text in [
            String::new(),
            " ".to_owned(),
            "\"".to_owned(),
            "[1,".to_owned(),
            "[1 2]".to_owned(),
            "[,]".to_owned(),
            "{\"a\"}".to_owned(),
            "{1:2}".to_owned(),
            "nul".to_owned(),
            format!("{long}1"),
            long.replacen("[1,2", "[1,,2", 1),
            long[..long.len() - 1].to_owned(),
            format!("{}}}", &long[..long.len() - 1]),
            format!("{{{members}}}"),
            format!("{{{members}\"m7\":0}}"),
            format!("{{{members}\"m\\u0037\":0}}"),
            format!("[{}1]", "9".repeat(5000)),
            "[".repeat(200_000),
            format!("[\"{}\",\"\n\"]", "x".repeat(9000)),
        ] {
            assert_eq!(parsed(text.as_bytes(), 100).err(), Some(Unsliced), "{:.40}", text);
        }
        let not_utf8 = [b"[\"", &[b'x'; 9000][..], b"\xff\"]"].concat();
        assert_eq!(parsed(&not_utf8, 100).err(), Some(Unsliced));
        let deep = |levels: usize| [b"[".repeat(levels), b" ".repeat(9000), b"]".repeat(levels)].concat();
        assert!(parsed(&deep(DEPTH_MAX), 100).is_ok());
        assert!(parsed(&deep(DEPTH_MAX + 1), 100).is_err());
    }

    /// What a connection that closes has begun is freed.
    #[test]
    fn what_is_stored_half_is_freed() {
        let mut arena = Arena::with_reserve(64 << 20).expect("address space");
        let text = format!("[{}0]", "\"some text\",".repeat(5000));
        let mut storing = Storing::new(parsed(text.as_bytes(), 1000).expect("JSON").stage);
        assert!(!storing.step(&mut arena, 5).expect("room"));
        assert_eq!(storing.made_bytes(), arena.used_bytes());
        while !storing.free_step(&mut arena, 2) {}
        assert_eq!((storing.made_bytes(), arena.used_bytes()), (0, 0));
    }
}
