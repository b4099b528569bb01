//! The body of a stream entry: its fields and values, or its values alone when its names are those its leaf shares.
//!
//! ```text
//! u8 kind, 128 if anything is out of line | SHARED: values' codes | OWN: pairs (varint), codes of names and values in turn
//!                                         | FAR: the code of a string out of line that holds what follows OWN
//! ```

use darter_base::varint;
use darter_slab::Arena;

use crate::entry::{self, Coded, Item};
use crate::spill::Spill;
use crate::tree::TreeFull;
use crate::tree::owned::OwnedEntry;

/// Sizes of an entry to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyPlan {
    pub(super) pairs: usize,
    pub(super) names_bytes: usize,
    values_bytes: usize,
    // True if it has a string that must be moved out of line.
    long: bool,
}

impl BodyPlan {
    #[inline]
    pub(super) fn of<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> BodyPlan {
        let mut plan = BodyPlan { pairs: 0, names_bytes: 0, values_bytes: 0, long: false };
        for (name, value) in pairs {
            let (name, value) = (Coded::of(name), Coded::of(value));
            plan.pairs += 1;
            plan.names_bytes += name.len();
            plan.values_bytes += value.len();
            plan.long |= name.is_long() || value.is_long();
        }
        plan
    }

    /// Bytes of the body when the leaf shares the names, or else holds them itself.
    pub(super) fn bytes(&self, shares: bool) -> usize {
        if shares {
            return 1 + self.values_bytes;
        }
        1 + varint::len(self.pairs as u64) + self.names_bytes + self.values_bytes
    }

    /// Returns true if the body can be written straight into a leaf.
    pub(super) fn is_short(&self) -> bool {
        !self.long && self.bytes(false) <= INLINE_BYTES_MAX
    }
}

/// Returns true if `shared`, the codes of names, are the names of `pairs`.
#[inline]
pub(super) fn shares<'a>(
    shared: &[u8],
    names: usize,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    arena: &Arena,
    spill: &Spill,
) -> bool {
    let mut rest = shared;
    let mut left = names;
    for (name, _) in pairs {
        if left == 0 || !Coded::of(name).is_at(rest, arena, spill) {
            return false;
        }
        rest = &rest[entry::size(rest)..];
        left -= 1;
    }
    left == 0
}

/// Writes the codes of the names.
pub(super) fn write_names<'a>(out: &mut [u8], pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
    let mut at = 0;
    for (name, _) in pairs {
        let name = Coded::of(name);
        name.write(&mut out[at..]);
        at += name.len();
    }
}

/// Writes a short body.
#[inline]
pub(super) fn write<'a>(
    out: &mut [u8],
    plan: &BodyPlan,
    shares: bool,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) {
    let mut at = 1;
    out[0] = if shares { SHARED } else { OWN };
    if !shares {
        // Short bodies have fewer than 2^14 pairs.
        let pairs = plan.pairs;
        if pairs >= 128 {
            out[at] = pairs as u8 | 128;
            at += 1;
        }
        out[at] = if pairs >= 128 { (pairs >> 7) as u8 } else { pairs as u8 };
        at += 1;
    }
    for (name, value) in pairs {
        if !shares {
            let name = Coded::of(name);
            name.write(&mut out[at..]);
            at += name.len();
        }
        let value = Coded::of(value);
        value.write(&mut out[at..]);
        at += value.len();
    }
}

/// A body of any length, with long strings, or all of it, out of line. Errors: nothing is kept.
pub(super) fn far<'a>(
    arena: &mut Arena,
    owned: &mut OwnedEntry,
    spill: &mut Spill,
    plan: &BodyPlan,
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Vec<u8>, TreeFull> {
    let mut body = vec![OWN];
    varint::write(&mut body, plan.pairs as u64);
    for text in pairs.flat_map(|(name, value)| [name, value]) {
        let mut code = Coded::of(text);
        if code.is_long() {
            body[0] |= HOLDS;
            code = match owned.spill(arena, spill, code) {
                Ok(code) => code,
                Err(full) => {
                    release_codes(arena, owned, spill, &body[1 + varint::len(plan.pairs as u64)..]);
                    return Err(full);
                }
            };
        }
        let at = body.len();
        body.resize(at + code.len(), 0);
        code.write(&mut body[at..]);
    }
    if body.len() <= INLINE_BYTES_MAX {
        return Ok(body);
    }
    let inner = Coded::of_item(Item::Bytes(&body[1..]));
    match owned.spill(arena, spill, inner) {
        Ok(code) => {
            let mut outer = vec![FAR | HOLDS; 1 + code.len()];
            code.write(&mut outer[1..]);
            Ok(outer)
        }
        Err(full) => {
            release(arena, owned, spill, &body);
            Err(full)
        }
    }
}

/// Returns true if a body holds anything out of line.
#[inline]
pub(super) fn holds(body: &[u8]) -> bool {
    body[0] & HOLDS != 0
}

/// Frees the out-of-line strings of a body; returns their number.
pub(super) fn release(arena: &mut Arena, owned: &mut OwnedEntry, spill: &mut Spill, body: &[u8]) -> usize {
    match body[0] {
        kind if kind & HOLDS == 0 => 0,
        kind if kind & !HOLDS == FAR => {
            let inner = entry::read(&body[1..], arena, spill).0.to_vec();
            let released = release_own(arena, owned, spill, &inner);
            owned.release(arena, spill, &body[1..]);
            released + 1
        }
        _ => release_own(arena, owned, spill, &body[1..]),
    }
}

/// Frees the out-of-line strings of the codes after a number of pairs. Only such bodies have any.
fn release_own(arena: &mut Arena, owned: &mut OwnedEntry, spill: &mut Spill, bytes: &[u8]) -> usize {
    let start = varint::read(bytes).map_or(0, |(_, len)| len);
    release_codes(arena, owned, spill, &bytes[start..])
}

fn release_codes(arena: &mut Arena, owned: &mut OwnedEntry, spill: &mut Spill, codes: &[u8]) -> usize {
    let (mut rest, mut released) = (codes, 0);
    while !rest.is_empty() {
        let code;
        (code, rest) = rest.split_at(entry::size(rest));
        let before = owned.bytes();
        owned.release(arena, spill, code);
        released += usize::from(owned.bytes() != before);
    }
    released
}

/// The fields of an entry, in order: names and values.
#[derive(Clone, Copy)]
pub struct StreamFields<'a> {
    arena: &'a Arena,
    spill: &'a Spill,
    // None when names and values alternate in `codes`.
    names: Option<&'a [u8]>,
    codes: &'a [u8],
    left: usize,
}

impl<'a> StreamFields<'a> {
    #[inline]
    pub(super) fn new(
        arena: &'a Arena,
        spill: &'a Spill,
        shared: &'a [u8],
        names: usize,
        body: &'a [u8],
    ) -> StreamFields<'a> {
        let own = |bytes: &'a [u8]| {
            let (pairs, len) = varint::read(bytes).unwrap_or((0, 0));
            StreamFields { arena, spill, names: None, codes: &bytes[len..], left: pairs as usize }
        };
        match body[0] & !HOLDS {
            SHARED => StreamFields { arena, spill, names: Some(shared), codes: &body[1..], left: names },
            OWN => own(&body[1..]),
            _ => match entry::read(&body[1..], arena, spill).0 {
                Item::Bytes(bytes) => own(bytes),
                Item::Int(_) => own(&[]),
            },
        }
    }

    #[inline]
    fn take(codes: &mut &'a [u8], arena: &'a Arena, spill: &'a Spill) -> Item<'a> {
        let (item, size) = entry::read(codes, arena, spill);
        *codes = &codes[size..];
        item
    }
}

impl<'a> Iterator for StreamFields<'a> {
    type Item = (Item<'a>, Item<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => Self::take(names, self.arena, self.spill),
            None => Self::take(&mut self.codes, self.arena, self.spill),
        };
        Some((name, Self::take(&mut self.codes, self.arena, self.spill)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for StreamFields<'_> {}

const SHARED: u8 = 0;
const OWN: u8 = 1;
const FAR: u8 = 2;
const HOLDS: u8 = 128;
/// Longest body kept within a leaf.
const INLINE_BYTES_MAX: usize = 512;
