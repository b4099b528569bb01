//! Names that are kept once: in the table of a document those that occur more than once in it, in the lexicon of an arena
//! those that many documents have.

use std::borrow::Cow;
use std::sync::LazyLock;

use darter_base::hash::KeyHasher;
use darter_base::varint;
use darter_slab::Lexicon;
use hashbrown::HashTable;

use crate::doc::{Doc, DocNode, LEXICON_HEAD, NAMES_MAX};
use crate::escape::escaped_at;
use crate::form::{self, FormView, MemberName};

/// A table is made only if it saves this part of the document.
const WORTH_PART: usize = 64;
/// Room for names before it grows.
const NAMES_FEW: usize = 56;

/// The document with a table of its repeated names; `None` if that saves nothing. It must not have one, nor pieces.
pub(crate) fn share(doc: Doc<'_>) -> Option<Vec<u8>> {
    let mut counts = NameNumbers(HashTable::with_capacity(NAMES_FEW));
    count(doc.root(), &mut counts);
    let shared = worthwhile(counts.0.into_iter(), doc.bytes().len())?;
    let mut out = Vec::with_capacity(doc.bytes().len());
    write_table(&shared, &mut out);
    let mut places = NameNumbers::default();
    shared.iter().enumerate().for_each(|(place, name)| *places.at(name) = place);
    copy(doc.root(), &|name| places.get(name), &mut out);
    Some(out)
}

/// The names of a table for a document of `len` bytes, out of names and the numbers of their members; `None` if that
/// saves nothing.
fn worthwhile<'a>(counts: impl Iterator<Item = (&'a [u8], usize)>, len: usize) -> Option<Vec<&'a [u8]>> {
    let counted = counts.map(|(name, count)| (name, saved_bytes(name.len(), count)));
    let mut shared: Vec<(&[u8], usize)> = counted.filter(|(_, saved)| *saved > 0).collect();
    // the best first; names decide between equals, so that equal texts make equal documents
    shared.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    shared.truncate(NAMES_MAX);
    let saved: usize = shared.iter().map(|(_, saved)| saved).sum();
    let is_worth = saved > 0 && saved * WORTH_PART >= len;
    is_worth.then(|| shared.into_iter().map(|(name, _)| name).collect())
}

fn write_table(names: &[&[u8]], out: &mut Vec<u8>) {
    varint::write(out, names.len() as u64);
    for name in names {
        varint::write(out, name.len() as u64);
        out.extend_from_slice(name);
    }
}

/// The names of the first part of a text, which decide about the table of a document that is made in steps.
#[derive(Debug, Default)]
pub(crate) struct NameTally {
    counts: HashTable<(Box<[u8]>, usize)>,
    bytes: usize,
}

impl NameTally {
    /// Counts the names of `node`, which is not in pieces, and its bytes.
    pub fn add(&mut self, node: DocNode<'_>) {
        let mut counts = NameNumbers(HashTable::with_capacity(NAMES_FEW));
        count(node, &mut counts);
        counts.0.into_iter().for_each(|(name, count)| self.add_name(name, count));
        self.bytes += node.bytes().len();
    }

    /// Counts a name of `count` members.
    pub fn add_name(&mut self, name: &[u8], count: usize) {
        let hash = |name: &[u8]| HASHER.hash(name);
        let entry = self.counts.entry(hash(name), |(own, _)| **own == *name, |(own, _)| hash(own));
        entry.or_insert_with(|| (name.into(), 0)).into_mut().1 += count;
        self.bytes += name.len();
    }

    /// The table.
    pub fn table(&self) -> NameTable {
        let counts = self.counts.iter().map(|(name, count)| (&**name, *count));
        let names = worthwhile(counts, self.bytes).unwrap_or_default();
        let mut table = NameTable::default();
        table.bytes.clear();
        write_table(&names, &mut table.bytes);
        for (place, name) in names.into_iter().enumerate() {
            table.places.insert_unique(HASHER.hash(name), (name.into(), place), |(own, _)| HASHER.hash(own));
        }
        table
    }
}

/// A table of names, and the place of each.
#[derive(Debug)]
pub(crate) struct NameTable {
    /// As a document begins with it.
    pub bytes: Vec<u8>,
    places: HashTable<(Box<[u8]>, usize)>,
}

impl Default for NameTable {
    fn default() -> NameTable {
        NameTable { bytes: vec![0], places: HashTable::new() }
    }
}

impl NameTable {
    /// The table that the document `doc` has, or that it would have [`alone`].
    pub fn of(doc: Doc<'_>) -> NameTable {
        if doc.names.are_of_lexicon() {
            return NameTable::of(Doc::new(&alone(doc)));
        }
        let bytes = doc.bytes().get(..doc.root_at()).unwrap_or_default().to_vec();
        let mut table = NameTable { bytes, places: HashTable::new() };
        for (place, name) in doc.names.iter().enumerate() {
            table.places.insert_unique(HASHER.hash(name), (name.into(), place), |(own, _)| HASHER.hash(own));
        }
        table
    }

    /// The form of a name.
    pub fn written<'n>(&self, name: &'n [u8]) -> MemberName<'n> {
        self.place(name).map_or(MemberName::Own(name), |place| MemberName::Known(place as u16))
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        self.places.find(HASHER.hash(name), |(own, _)| **own == *name).map(|(_, place)| *place)
    }

    /// Appends `node`, which has no table, with the names of this one.
    pub fn copy(&self, node: DocNode<'_>, out: &mut Vec<u8>) {
        match self.places.is_empty() {
            true => out.extend_from_slice(node.bytes()),
            false => copy(node, &|name| self.place(name), out),
        }
    }
}

/// The document, which has no pieces, with no names of a lexicon; for itself alone, that is.
pub fn alone(doc: Doc<'_>) -> Cow<'_, [u8]> {
    if !doc.names.are_of_lexicon() {
        return Cow::Borrowed(doc.bytes());
    }
    Cow::Owned(share(doc).unwrap_or_else(|| {
        let mut out = vec![0];
        copy(doc.root(), &|_| None, &mut out);
        out
    }))
}

/// The root of `from`, which may be in pieces, in one run and with the names of `doc`.
pub fn renamed(from: Doc<'_>, doc: Doc<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    if doc.names.are_of_lexicon() {
        copy(from.root(), &|name| doc.names.number(name).map(usize::from), &mut out);
    } else {
        let table = NameTable::of(doc);
        copy(from.root(), &|name| table.place(name), &mut out);
    }
    out
}

/// Hashes a name, otherwise in each process.
pub(crate) fn hash_of_name(name: &[u8]) -> u64 {
    HASHER.hash(name)
}

/// Returns the bytes that a table saves for a name with this many members.
fn saved_bytes(name_len: usize, count: usize) -> usize {
    let own = varint::len(name_len as u64) + name_len;
    (own * count).saturating_sub(own + count)
}

/// A number for each name.
#[derive(Default)]
struct NameNumbers<'a>(HashTable<(&'a [u8], usize)>);

// Random, so that nobody can choose names that collide.
static HASHER: LazyLock<KeyHasher> = LazyLock::new(KeyHasher::random);

impl<'a> NameNumbers<'a> {
    /// The number of `name`, 0 at first.
    fn at(&mut self, name: &'a [u8]) -> &mut usize {
        let hash = |name: &[u8]| HASHER.hash(name);
        let entry = self.0.entry(hash(name), |(own, _)| *own == name, |(own, _)| hash(own));
        &mut entry.or_insert((name, 0)).into_mut().1
    }

    fn get(&self, name: &[u8]) -> Option<usize> {
        self.0.find(HASHER.hash(name), |(own, _)| *own == name).map(|(_, number)| *number)
    }
}

/// The names of a text while it is read: their forms, and whether a table of them may be worth its bytes.
#[derive(Default)]
pub(crate) struct NameCensus<'l> {
    // The words that members are named by if they can be.
    lexicon: Option<&'l mut Lexicon>,
    known: usize,
    // A name is one of these words.
    is_of_lexicon: bool,
    // Hash and length of each other one.
    names: Vec<(u64, usize)>,
}

/// Names of a text beyond which they are counted one by one in any case.
const CENSUS_MAX: usize = 4096;

impl<'l> NameCensus<'l> {
    /// Begins a text, with the words of `lexicon` that there are now.
    pub fn new(mut lexicon: Option<&'l mut Lexicon>) -> NameCensus<'l> {
        let known = lexicon.as_deref_mut().map_or(0, |lexicon| {
            lexicon.begin_text();
            lexicon.len()
        });
        NameCensus { lexicon, known, ..NameCensus::default() }
    }

    /// Number of the lexicon's words that count.
    pub fn known(&self) -> usize {
        self.known
    }

    /// Notes the name of a member and returns its form. Cost: 40 instructions.
    pub fn note<'n>(&mut self, name: &'n [u8]) -> MemberName<'n> {
        let hash = HASHER.hash(name);
        if let Some(lexicon) = &mut self.lexicon {
            match lexicon.number(hash, name) {
                Some(number) if usize::from(number) < self.known => {
                    self.is_of_lexicon = true;
                    return MemberName::Known(number);
                }
                // Words are written into texts as they are.
                None if escaped_at(name).is_none() => lexicon.count(hash, name),
                _ => {}
            }
        }
        if self.names.len() <= CENSUS_MAX {
            self.names.push((hash, name.len()));
        }
        MemberName::Own(name)
    }

    /// The document of the text, out of what was written: the head for the words of the lexicon, and the root.
    pub fn end(mut self, mut out: Vec<u8>) -> Vec<u8> {
        if !self.is_of_lexicon && self.known > 0 {
            out.splice(..LEXICON_HEAD, [0]);
        }
        if !self.may_save(out.len()) {
            return out;
        }
        let doc = Doc::of_lexicon(&out, self.lexicon.as_deref());
        share(doc).filter(|shared| !self.is_of_lexicon || shared.len() < out.len()).unwrap_or(out)
    }

    /// Returns false if [`share`] makes no table for a document of `len` bytes. Names of one hash count as one here.
    fn may_save(&mut self, len: usize) -> bool {
        if self.names.len() > CENSUS_MAX {
            return true;
        }
        self.names.sort_unstable();
        let groups = self.names.chunk_by(|a, b| a == b);
        let saved = groups.map(|group| saved_bytes(group.first().map_or(0, |(_, len)| *len), group.len()));
        let saved: usize = saved.sum();
        saved > 0 && saved * WORTH_PART >= len
    }
}

fn count<'a>(node: DocNode<'a>, counts: &mut NameNumbers<'a>) {
    match node.view() {
        FormView::Array(_) => {
            node.items().filter(|item| form::is_container(item.bytes())).for_each(|item| count(item, counts))
        }
        FormView::Object(_) => node.members().for_each(|(name, value)| {
            *counts.at(name) += 1;
            count(value, counts);
        }),
        _ => {}
    }
}

fn copy(node: DocNode<'_>, place_of: &dyn Fn(&[u8]) -> Option<usize>, out: &mut Vec<u8>) {
    let start = out.len();
    match node.view() {
        FormView::Array(count) => {
            node.items().for_each(|item| copy(item, place_of, out));
            form::close(out, start, form::ARRAY, count);
        }
        FormView::Object(count) => {
            for (name, value) in node.members() {
                form::write_name(
                    out,
                    place_of(name).map_or(MemberName::Own(name), |place| MemberName::Known(place as u16)),
                );
                copy(value, place_of, out);
            }
            form::close(out, start, form::OBJECT, count);
        }
        _ => out.extend_from_slice(node.bytes()),
    }
}
