//! Names that occur more than once in a document, kept once in its table.

use std::sync::LazyLock;

use darter_base::hash::KeyHasher;
use darter_base::varint;
use hashbrown::HashTable;

use crate::doc::{Doc, DocNode, NAMES_MAX};
use crate::form::{self, FormView, MemberName};

/// A table is made only if it saves this part of the document.
const WORTH_PART: usize = 64;
/// Room for names before it grows.
const NAMES_FEW: usize = 56;

/// The document with a table of its repeated names; `None` if that saves nothing. It must not have one.
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
    /// The table that the document `doc` has.
    pub fn of(doc: Doc<'_>) -> NameTable {
        let bytes = doc.bytes().get(..doc.root_at()).unwrap_or_default().to_vec();
        let mut table = NameTable { bytes, places: HashTable::new() };
        for (place, name) in doc.names.iter().enumerate() {
            table.places.insert_unique(HASHER.hash(name), (name.into(), place), |(own, _)| HASHER.hash(own));
        }
        table
    }

    /// The form of a name.
    pub fn written<'n>(&self, name: &'n [u8]) -> MemberName<'n> {
        self.place(name).map_or(MemberName::Own(name), |place| MemberName::Known(place as u8))
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

/// The root of `from`, which may be in pieces, in one run and with the names of `doc`.
pub fn renamed(from: Doc<'_>, doc: Doc<'_>) -> Vec<u8> {
    let (table, mut out) = (NameTable::of(doc), Vec::new());
    copy(from.root(), &|name| table.place(name), &mut out);
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

/// The names of a text while it is read: whether a table of them may be worth its bytes.
#[derive(Default)]
pub(crate) struct NameCensus {
    // hash and length of each
    names: Vec<(u64, usize)>,
}

/// Names of a text beyond which they are counted one by one in any case.
const CENSUS_MAX: usize = 4096;

impl NameCensus {
    /// Notes the name of a member. Cost: 40 instructions.
    pub fn note(&mut self, name: &[u8]) {
        if self.names.len() <= CENSUS_MAX {
            self.names.push((HASHER.hash(name), name.len()));
        }
    }

    /// Returns false if [`share`] makes no table for a document of `len` bytes. Names of one hash count as one here.
    pub fn may_save(&mut self, len: usize) -> bool {
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
                    place_of(name).map_or(MemberName::Own(name), |place| MemberName::Known(place as u8)),
                );
                copy(value, place_of, out);
            }
            form::close(out, start, form::OBJECT, count);
        }
        _ => out.extend_from_slice(node.bytes()),
    }
}
