//! Changing nodes of a document: one pass copies it, and passes each node that a path has found to a function.

use crate::doc::Doc;
use crate::form;

/// The result for a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// It stays, in its present form.
    Keep,
    /// It is removed from its container.
    Remove,
}

/// The result of changing a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rewritten {
    /// Nothing changed.
    Same,
    /// The same number of bytes differ from `at` on.
    Patch {
        /// The offset.
        at: usize,
        /// The bytes to write there.
        bytes: Vec<u8>,
    },
    /// The new document.
    Whole(Vec<u8>),
    /// The root was removed.
    Gone,
}

/// Changes the nodes at `hits`, which ascend. `change` gets the number of a hit, a buffer that ends with the node's
/// bytes, and their start. Nodes inside of that node have been changed before.
///
/// Cost: O(document), unless the only hit is a scalar that keeps its length.
pub fn rewrite<E>(
    doc: Doc<'_>,
    hits: &[usize],
    mut change: impl FnMut(usize, &mut Vec<u8>, usize) -> Result<Change, E>,
) -> Result<Rewritten, E> {
    if let &[at] = hits
        && !form::is_container(doc.node(at).bytes())
    {
        let old = doc.node(at).bytes();
        let mut new = old.to_vec();
        let done = change(0, &mut new, 0)?;
        if done == Change::Keep && new == old {
            return Ok(Rewritten::Same);
        }
        if done == Change::Keep && new.len() == old.len() {
            return Ok(Rewritten::Patch { at, bytes: new });
        }
        return pass(doc, hits, &mut |_, out, start| {
            out.truncate(start);
            out.extend_from_slice(&new);
            Ok(done)
        });
    }
    pass(doc, hits, &mut change)
}

/// Changes one node: its number, the buffer that ends with it, and its start there.
type ChangeOne<'c, E> = dyn FnMut(usize, &mut Vec<u8>, usize) -> Result<Change, E> + 'c;

fn pass<E>(doc: Doc<'_>, hits: &[usize], change: &mut ChangeOne<'_, E>) -> Result<Rewritten, E> {
    if hits.is_empty() {
        return Ok(Rewritten::Same);
    }
    let bytes = doc.bytes();
    let mut out = Vec::with_capacity(bytes.len() + 64);
    out.extend_from_slice(bytes.get(..doc.root_at()).unwrap_or_default());
    let mut pass = Pass { bytes, hits, next: 0, change };
    if pass.node(doc.root_at(), &mut out)? == Change::Remove {
        return Ok(Rewritten::Gone);
    }
    Ok(if out == bytes { Rewritten::Same } else { Rewritten::Whole(out) })
}

struct Pass<'p, 'c, E> {
    bytes: &'p [u8],
    hits: &'p [usize],
    next: usize,
    change: &'p mut ChangeOne<'c, E>,
}

impl<E> Pass<'_, '_, E> {
    fn has_hit_before(&self, end: usize) -> bool {
        self.hits.get(self.next).is_some_and(|hit| *hit < end)
    }

    fn copy(&self, from: usize, to: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes.get(from..to).unwrap_or_default());
    }

    fn node(&mut self, at: usize, out: &mut Vec<u8>) -> Result<Change, E> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let end = at + form::node_len(rest);
        let own = self.hits.get(self.next).filter(|hit| **hit == at).map(|_| self.next);
        self.next += usize::from(own.is_some());
        let start = out.len();
        if form::is_container(rest) && self.has_hit_before(end) {
            self.container(at, end, out)?;
        } else {
            self.copy(at, end, out);
        }
        match own {
            Some(number) => (self.change)(number, out, start),
            None => Ok(Change::Keep),
        }
    }

    fn container(&mut self, at: usize, end: usize, out: &mut Vec<u8>) -> Result<(), E> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let tag = rest.first().copied().unwrap_or(form::ARRAY);
        let (start, mut place, mut count) = (out.len(), at + form::inner(rest).0, 0);
        // children without a hit inside are copied together
        let mut copied = place;
        while place < end {
            let rest = self.bytes.get(place..).unwrap_or_default();
            let width = if tag == form::OBJECT { form::name(rest).1 } else { 0 };
            let value = place + width;
            let next = value + form::node_len(rest.get(width..).unwrap_or_default());
            if next <= place {
                break;
            }
            if self.has_hit_before(next) {
                self.copy(copied, place, out);
                let before = out.len();
                self.copy(place, value, out);
                if self.node(value, out)? == Change::Remove {
                    out.truncate(before);
                } else {
                    count += 1;
                }
                copied = next;
            } else {
                count += 1;
            }
            place = next;
        }
        self.copy(copied, end, out);
        form::close(out, start, tag, count);
        Ok(())
    }
}
