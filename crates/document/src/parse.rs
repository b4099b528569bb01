//! Text to document: serde_json reads, and a visitor writes the form directly.

use std::collections::HashSet;
use std::fmt;

use darter_slab::{Arena, Lexicon};
use serde_core::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::DEPTH_MAX;
use crate::dictionary::NameCensus;
use crate::doc::{Names, lexicon_head};
use crate::form::{self, MemberName};
use crate::stage::WHOLE_BYTES_MAX;

/// An error in a JSON text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The reason and the position, in the words of serde_json.
    pub reason: String,
}

const NO_UTF8: &str = "Couldn't parse as UTF-8 string";
const TOO_DEEP: &str = "recursion limit exceeded";
/// Members up to which a repeated name is searched one by one.
const FEW_MEMBERS: usize = 16;

/// Texts above this make documents without names of a lexicon, bytes: most of them are kept in pieces.
const LEXICON_TEXT_MAX: usize = 2 * WHOLE_BYTES_MAX;

/// The document of a JSON text. Names that several members share are kept once.
///
/// Errors: the text is not JSON, or deeper than [`DEPTH_MAX`] levels.
pub fn parse(text: &[u8]) -> Result<Vec<u8>, Invalid> {
    parse_with(text, None)
}

/// The document of a JSON text, to be put into a block of `arena`: its names may be words of that.
///
/// Errors: as [`parse`].
pub fn parse_for(text: &[u8], arena: &mut Arena) -> Result<Vec<u8>, Invalid> {
    parse_with(text, arena.lexicon_mut().filter(|_| text.len() <= LEXICON_TEXT_MAX))
}

fn parse_with(text: &[u8], lexicon: Option<&mut Lexicon>) -> Result<Vec<u8>, Invalid> {
    let mut out = Vec::with_capacity(text.len() / 8 * 7 + 16);
    let mut census = NameCensus::new(lexicon);
    match census.known() {
        0 => out.push(0),
        known => out.extend_from_slice(&lexicon_head(known)),
    }
    read(text, Names::default(), &mut out, Some(&mut census))?;
    Ok(census.end(out))
}

/// Appends the node of a JSON text, to be put into a document with `names`.
///
/// Errors: as [`parse`]; `out` is unchanged then.
pub fn parse_into(text: &[u8], names: Names<'_>, out: &mut Vec<u8>) -> Result<(), Invalid> {
    let before = out.len();
    let done = read(text, names, out, None);
    if done.is_err() {
        out.truncate(before);
    }
    done
}

/// Appends the node of a JSON text without names of a table, for a place with `levels_left` further levels.
///
/// Errors: as [`parse`].
pub(crate) fn parse_part(text: &[u8], levels_left: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
    let mut source = serde_json::Deserializer::from_slice(text);
    source.disable_recursion_limit();
    let sink = DocSink { out, names: Names::default(), census: None, levels_left };
    sink.deserialize(&mut source).map_err(|_| NotJson)?;
    source.end().map_err(|_| NotJson)
}

/// Appends a name without a table, of a JSON text in quotes.
///
/// Errors: it is no such text.
pub(crate) fn parse_name(text: &[u8], out: &mut Vec<u8>) -> Result<(), NotJson> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let sink = DocSink { out, names: Names::default(), census: None, levels_left: 0 };
    NameSink(sink).deserialize(&mut source).map_err(|_| NotJson)?;
    source.end().map_err(|_| NotJson)
}

/// A part of a text is not JSON.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotJson;

/// Appends a node. Its names have the forms that `census` gives them, if there is one.
fn read(
    text: &[u8],
    names: Names<'_>,
    out: &mut Vec<u8>,
    census: Option<&mut NameCensus<'_>>,
) -> Result<(), Invalid> {
    let invalid = |error: serde_json::Error| Invalid { reason: error.to_string() };
    let text = std::str::from_utf8(text).map_err(|_| Invalid { reason: NO_UTF8.to_owned() })?;
    let mut source = serde_json::Deserializer::from_str(text);
    // The visitor counts levels itself, for those of the document that a node comes into.
    source.disable_recursion_limit();
    DocSink { out, names, census, levels_left: DEPTH_MAX }.deserialize(&mut source).map_err(invalid)?;
    source.end().map_err(invalid)
}

/// The destination of the next node.
struct DocSink<'o, 'l> {
    out: &'o mut Vec<u8>,
    names: Names<'o>,
    census: Option<&'o mut NameCensus<'l>>,
    levels_left: usize,
}

impl<'l> DocSink<'_, 'l> {
    /// The same, one level below.
    ///
    /// Errors: a document has no further level.
    fn below<E: Error>(&mut self) -> Result<DocSink<'_, 'l>, E> {
        let levels_left = self.levels_left.checked_sub(1).ok_or_else(|| E::custom(TOO_DEEP))?;
        Ok(DocSink { levels_left, ..self.again() })
    }

    fn again(&mut self) -> DocSink<'_, 'l> {
        let census = self.census.as_deref_mut();
        DocSink { out: self.out, names: self.names, census, levels_left: self.levels_left }
    }
}

impl<'de> DeserializeSeed<'de> for DocSink<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocSink<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.out.push(form::NULL);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.out.push(if value { form::TRUE } else { form::FALSE });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        form::write_int(self.out, value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        form::write_uint(self.out, value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        form::write_float(self.out, value);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        form::write_text(self.out, text.as_bytes());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        let mut below = self.below::<A::Error>()?;
        let (start, mut count) = (below.out.len(), 0);
        while items.next_element_seed(below.again())?.is_some() {
            count += 1;
        }
        form::close(below.out, start, form::ARRAY, count);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let mut below = self.below::<A::Error>()?;
        let (start, mut count) = (below.out.len(), 0);
        let mut seen = SeenNames::default();
        loop {
            let at = below.out.len();
            let name = NameSink(below.again());
            if members.next_key_seed(name)?.is_none() {
                break;
            }
            let known = seen.note(below.out, start, at, count);
            members.next_value_seed(below.again())?;
            count += 1;
            if known
                && replace_repeated(below.out, start, at)
                    .ok_or_else(|| A::Error::custom("a damaged object"))?
            {
                count -= 1;
                seen = SeenNames::of(below.out, start, count);
            }
        }
        form::close(below.out, start, form::OBJECT, count);
        Ok(())
    }
}

/// Writes a name.
struct NameSink<'o, 'l>(DocSink<'o, 'l>);

impl<'de> DeserializeSeed<'de> for NameSink<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<(), D::Error> {
        source.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSink<'_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a string key")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        let NameSink(DocSink { out, names, census, .. }) = self;
        let name = match census {
            Some(census) => census.note(text.as_bytes()),
            None => names.written(text.as_bytes()),
        };
        form::write_name(out, name);
        Ok(())
    }
}

/// The names of an object that is being written.
#[derive(Default)]
struct SeenNames {
    starts: [usize; FEW_MEMBERS],
    many: HashSet<Box<[u8]>>,
}

impl SeenNames {
    /// Notes the name at `at`, the last one in `out`. Returns true if the object, which begins at `start` and has
    /// `count` members, has that name already.
    fn note(&mut self, out: &[u8], start: usize, at: usize, count: usize) -> bool {
        let name = out.get(at..).unwrap_or_default();
        if count < FEW_MEMBERS {
            let starts = self.starts.get(..count).unwrap_or_default();
            let known =
                starts.iter().any(|&other| out.get(other..at).is_some_and(|own| own.starts_with(name)));
            if let Some(place) = self.starts.get_mut(count) {
                *place = at;
            }
            return known;
        }
        if self.many.is_empty() {
            let body = out.get(start..at).unwrap_or_default();
            each_member(body, count, |own, _, _| _ = self.many.insert(own.into()));
        }
        !self.many.insert(name.into())
    }

    /// The names of an object of `count` members that begins at `start`.
    fn of(out: &[u8], start: usize, count: usize) -> SeenNames {
        let mut seen = SeenNames::default();
        let body = out.get(start..).unwrap_or_default();
        let mut n = 0;
        each_member(body, count, |own, at, _| {
            if let Some(place) = seen.starts.get_mut(n) {
                *place = start + at;
            }
            if count > FEW_MEMBERS {
                seen.many.insert(own.into());
            }
            n += 1;
        });
        seen
    }
}

/// Shows the bytes of each name, its place, and the end of the member.
fn each_member(body: &[u8], count: usize, mut show: impl FnMut(&[u8], usize, usize)) {
    let mut at = 0;
    for _ in 0..count {
        let rest = body.get(at..).unwrap_or_default();
        let (_, width) = form::name(rest);
        let end = at + width + form::node_len(rest.get(width..).unwrap_or_default());
        show(rest.get(..width).unwrap_or_default(), at, end);
        at = end;
    }
}

/// Moves the value of the last member in `out`, which is at `at`, to an earlier member of the same name. `None` if
/// there is none.
fn replace_repeated(out: &mut Vec<u8>, start: usize, at: usize) -> Option<bool> {
    let last = out.get(at..)?.to_vec();
    let (wanted, width) = form::name(&last);
    let mut place = start;
    while place < at {
        let rest = out.get(place..)?;
        let (name, own_width): (MemberName<'_>, usize) = form::name(rest);
        let end = place + own_width + form::node_len(rest.get(own_width..)?);
        if name == wanted {
            out.truncate(at);
            out.splice(place + own_width..end, last.get(width..)?.iter().copied());
            return Some(true);
        }
        place = end;
    }
    Some(false)
}
