//! Members as a sorted set compares, hashes and writes them.

use std::cmp::Ordering;

use darter_base::hash::KeyHasher;
use darter_base::number::text_len;
use darter_slab::Arena;

use crate::decimal::Digits;
use crate::entry::{Coded, INLINE_BYTES_MAX, Item};
use crate::spill::Spill;
use crate::tree::TreeFull;
use crate::tree::owned::OwnedEntry;

/// The hash of a member, of which the index keeps 32 bits.
#[inline]
pub(super) fn hash(hasher: &KeyHasher, member: Item<'_>) -> u32 {
    let hash = match member {
        Item::Int(value) => hasher.hash(&value.to_le_bytes()),
        Item::Bytes(bytes) => hasher.hash(bytes),
    };
    (hash >> 32) as u32
}

/// The order of two members: byte by byte as text.
#[inline]
pub(super) fn compare(a: Item<'_>, b: Item<'_>) -> Ordering {
    if let (Item::Int(a), Item::Int(b)) = (a, b)
        && a >= 0
        && b >= 0
        && text_len(a) == text_len(b)
    {
        return a.cmp(&b);
    }
    let (mut left, mut right) = (Digits::new(), Digits::new());
    a.text(&mut left).cmp(b.text(&mut right))
}

/// The first eight bytes of a member's text as a number that sorts as they do.
#[inline]
pub(super) fn prefix(member: Item<'_>) -> u64 {
    let mut digits = Digits::new();
    let text = member.text(&mut digits);
    let mut first = [0; 8];
    let len = text.len().min(8);
    first[..len].copy_from_slice(&text[..len]);
    u64::from_be_bytes(first)
}

/// A member ready to be written: spilled already when it is long.
#[derive(Clone, Copy)]
pub(super) struct NewMember<'a> {
    pub(super) item: Item<'a>,
    // The encoded reference to a long member's text.
    spilled: Option<[u8; SPILLED_BYTES]>,
}

impl<'a> NewMember<'a> {
    #[inline(always)]
    pub(super) fn of(item: Item<'a>) -> NewMember<'a> {
        debug_assert!(
            item == Item::of(item.text(&mut Digits::new())),
            "an integer's text is given as an integer"
        );
        NewMember { item, spilled: None }
    }

    /// The code of the member, long or not. Leaves of integers never ask for it.
    #[inline]
    pub(super) fn coded(&self) -> Coded<'a> {
        Coded::of_item(self.item)
    }

    #[inline(always)]
    fn is_long(&self) -> bool {
        matches!(self.item, Item::Bytes(bytes) if bytes.len() > INLINE_BYTES_MAX)
    }

    /// The code as written; it is the one already there for a member that only moves.
    pub(super) fn keeping(self, code: &[u8]) -> NewMember<'a> {
        let spilled = if self.is_long() { code[..SPILLED_BYTES].try_into().ok() } else { None };
        NewMember { spilled, ..self }
    }

    /// Moves the text of a long member out of line. Errors: nothing is kept.
    #[inline(always)]
    pub(super) fn spill(
        &mut self,
        arena: &mut Arena,
        owned: &mut OwnedEntry,
        spill: &mut Spill,
    ) -> Result<(), TreeFull> {
        if !self.is_long() {
            return Ok(());
        }
        let mut code = [0; SPILLED_BYTES];
        owned.spill(arena, spill, self.coded())?.write(&mut code);
        self.spilled = Some(code);
        Ok(())
    }

    /// Frees the out-of-line text that [`NewMember::spill`] made, for a member that found no room.
    pub(super) fn unspill(&self, arena: &mut Arena, owned: &mut OwnedEntry, spill: &mut Spill) {
        if let Some(code) = self.spilled {
            owned.release(arena, spill, &code);
        }
    }

    /// The mark of its code, see [`super::leaf::mark`].
    pub(super) fn mark(&self) -> usize {
        if self.is_long() {
            return 0;
        }
        match self.item {
            // The last bytes of a code are those of the text, unless the text is shorter.
            Item::Bytes(text) if text.len() >= 8 => super::leaf::mark_of_last(text),
            _ => {
                let mut code = [0; 16];
                self.coded().write(&mut code);
                super::leaf::mark(&code[..self.len()])
            }
        }
    }

    /// Bytes of the code.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.coded().len()
    }

    #[inline]
    pub(super) fn write(&self, out: &mut [u8]) {
        match self.spilled {
            None => self.coded().write(out),
            Some(code) => out[..SPILLED_BYTES].copy_from_slice(&code),
        }
    }
}

/// Bytes of the code of a spilled member.
const SPILLED_BYTES: usize = 9;
