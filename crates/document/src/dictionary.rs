//! Names that occur more than once in a document, kept once in its table.

use std::sync::LazyLock;

use darter_base::hash::KeyHasher;
use darter_base::varint;
use hashbrown::HashTable;

use crate::doc::{Doc, NAMES_MAX, Node};
use crate::form::{self, Name, View};

/// A table is made only if it saves this part of the document.
const WORTH_PART: usize = 64;
/// Room for names before it grows.
const NAMES_FEW: usize = 56;

/// The document with a table of its repeated names; `None` if that saves nothing. It must not have one.
pub(crate) fn share(doc: Doc<'_>) -> Option<Vec<u8>> {
    let mut counts = NameNumbers(HashTable::with_capacity(NAMES_FEW));
    count(doc.root(), &mut counts);
    let counted = counts.0.into_iter().map(|(name, count)| (name, saved_bytes(name.len(), count)));
    let mut shared: Vec<(&[u8], usize)> = counted.filter(|(_, saved)| *saved > 0).collect();
    // the best first; names decide between equals, so that equal texts make equal documents
    shared.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    shared.truncate(NAMES_MAX);
    let saved: usize = shared.iter().map(|(_, saved)| saved).sum();
    if saved * WORTH_PART < doc.bytes().len() {
        return None;
    }
    let mut out = Vec::with_capacity(doc.bytes().len());
    varint::write(&mut out, shared.len() as u64);
    let mut places = NameNumbers::default();
    for (place, (name, _)) in shared.iter().enumerate() {
        varint::write(&mut out, name.len() as u64);
        out.extend_from_slice(name);
        *places.at(name) = place;
    }
    copy(doc.root(), &places, &mut out);
    Some(out)
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

fn count<'a>(node: Node<'a>, counts: &mut NameNumbers<'a>) {
    match node.view() {
        View::Array(_) => {
            node.items().filter(|item| form::is_container(item.bytes())).for_each(|item| count(item, counts))
        }
        View::Object(_) => node.members().for_each(|(name, value)| {
            *counts.at(name) += 1;
            count(value, counts);
        }),
        _ => {}
    }
}

fn copy(node: Node<'_>, places: &NameNumbers<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    match node.view() {
        View::Array(count) => {
            node.items().for_each(|item| copy(item, places, out));
            form::close(out, start, form::ARRAY, count);
        }
        View::Object(count) => {
            for (name, value) in node.members() {
                form::write_name(
                    out,
                    places.get(name).map_or(Name::Own(name), |place| Name::Known(place as u8)),
                );
                copy(value, places, out);
            }
            form::close(out, start, form::OBJECT, count);
        }
        _ => out.extend_from_slice(node.bytes()),
    }
}
