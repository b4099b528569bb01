//! The item codec: a tag byte and a payload for every field, member and value stored in a pack.
//!
//! Called by packs, tables and trees. An integer is stored as an integer only when it prints back byte
//! for byte, so that equal texts have equal encodings and comparing encodings compares texts.
//!
//! | tag | item |
//! |---|---|
//! | `00..=7F` | string of that many bytes, which follow |
//! | `80..=BF` | integer 0..=63, in the tag |
//! | `C0..=C7` | integer of 1..=8 bytes, two's complement, lowest byte first |
//! | `C8..=CF` | string of 128 + 256 * (tag & 7) + next byte bytes, which follow |
//! | `D0` | string in an arena block: handle, length, 4 bytes each |
//! | `D1` | string in the root's `Spill`: index, length, 4 bytes each |
//! | `F0` | not an item: 6 bytes of expiry time follow, then the entry it belongs to |

use darter_slab::{Arena, Handle};

use crate::decimal::{Digits, canonical_i64};
use crate::spill::Spill;

/// A field, member or value: an integer, or any other bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// The canonical decimal text of this integer.
    Int(i64),
    /// Any bytes; the codec turns canonical decimal text into `Int` by itself.
    Bytes(&'a [u8]),
}

impl<'a> Item<'a> {
    /// The item of `text`: `Int` when the text is canonical decimal.
    #[inline]
    pub fn of(text: &'a [u8]) -> Item<'a> {
        match canonical_i64(text) {
            Some(value) => Item::Int(value),
            None => Item::Bytes(text),
        }
    }

    /// The same item with canonical decimal text as `Int`.
    #[inline]
    pub fn canonical(self) -> Item<'a> {
        match self {
            Item::Int(_) => self,
            Item::Bytes(text) => Item::of(text),
        }
    }

    /// The text of the item; `digits` is where an integer is printed.
    #[inline]
    pub fn text<'t>(self, digits: &'t mut Digits) -> &'t [u8]
    where
        'a: 't,
    {
        match self {
            Item::Int(value) => digits.print(value),
            Item::Bytes(bytes) => bytes,
        }
    }

    /// Appends the text of the item to `out`.
    #[inline]
    pub fn write_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.text(&mut Digits::new()));
    }

    /// The text of the item in a new vector.
    pub fn to_vec(self) -> Vec<u8> {
        self.text(&mut Digits::new()).to_vec()
    }

    /// Length of the text in bytes.
    pub fn len(self) -> usize {
        match self {
            Item::Int(_) => self.text(&mut Digits::new()).len(),
            Item::Bytes(bytes) => bytes.len(),
        }
    }

    /// Returns true if the text is empty.
    pub fn is_empty(self) -> bool {
        matches!(self, Item::Bytes([]))
    }

    /// The integer the text spells, if it is canonical decimal within `i64`.
    #[inline]
    pub fn int(self) -> Option<i64> {
        match self {
            Item::Int(value) => Some(value),
            Item::Bytes(bytes) => canonical_i64(bytes),
        }
    }
}

/// An item encoded for writing or comparing: a short head and, for strings, the bytes after it.
#[derive(Clone, Copy, Debug)]
pub struct Coded<'a> {
    // Lowest byte first, zeros after the end: tag and payload of an integer or of a string out of line; tag and
    // length of another string.
    head: u64,
    // The ninth byte of the head, if it has one.
    ninth: u8,
    // 1..=9
    head_len: u8,
    // Longer than INLINE_BYTES_MAX: to be spilled before it can be written.
    long: bool,
    body: &'a [u8],
}

impl<'a> Coded<'a> {
    /// Encodes `text`, as an integer when it is canonical decimal.
    #[inline]
    pub fn of(text: &'a [u8]) -> Coded<'a> {
        Coded::of_item(Item::of(text))
    }

    /// Encodes `item`; `Bytes` must not be canonical decimal (see [`Item::of`]).
    #[inline]
    pub fn of_item(item: Item<'a>) -> Coded<'a> {
        match item {
            Item::Int(value) => Coded::of_int(value),
            Item::Bytes(bytes) => Coded::of_bytes(bytes),
        }
    }

    #[inline]
    fn of_int(value: i64) -> Coded<'a> {
        if (0..64).contains(&value) {
            let head = u64::from(TAG_SMALL) | value as u64;
            return Coded { head, ninth: 0, head_len: 1, long: false, body: &[] };
        }
        // One more than the magnitude's bits, for the sign.
        let bits = 65 - (value ^ (value >> 63)).leading_zeros();
        let width = bits.div_ceil(8);
        let payload = value as u64 & u64::MAX >> (64 - 8 * width);
        let head = u64::from(TAG_INT) | u64::from(width - 1) | payload << 8;
        Coded { head, ninth: (payload >> 56) as u8, head_len: 1 + width as u8, long: false, body: &[] }
    }

    #[inline]
    fn of_bytes(body: &'a [u8]) -> Coded<'a> {
        if body.len() < 128 {
            return Coded { head: body.len() as u64, ninth: 0, head_len: 1, long: false, body };
        }
        let over = (body.len() - 128) as u64;
        let head = u64::from(TAG_STRING) | over >> 8 & 7 | (over & 0xFF) << 8;
        Coded { head, ninth: 0, head_len: 2, long: body.len() > INLINE_BYTES_MAX, body }
    }

    /// Bytes the encoded item takes in a pack.
    #[inline]
    pub fn len(&self) -> usize {
        if self.long { SPILLED_BYTES } else { self.head_len as usize + self.body.len() }
    }

    /// Never: an encoded item has at least its tag.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns true if [`Coded::spill`] has to be called before writing.
    #[inline]
    pub fn is_long(&self) -> bool {
        self.long
    }

    /// Moves a long string out of line; `None` when the arena is exhausted. Others pass unchanged.
    pub fn spill(self, arena: &mut Arena, spill: &mut Spill) -> Option<Coded<'a>> {
        if !self.long {
            return Some(self);
        }
        let len = u32::try_from(self.body.len()).ok()?;
        let (tag, at) = if self.body.len() <= darter_slab::BLOCK_BYTES_MAX {
            let block = arena.alloc(self.body.len())?;
            arena.block_mut(block)[..self.body.len()].copy_from_slice(self.body);
            (TAG_BLOCK, block.raw())
        } else {
            (TAG_BOXED, spill.put(self.body))
        };
        let head = u64::from(tag) | u64::from(at) << 8 | u64::from(len) << 40;
        Some(Coded { head, ninth: (len >> 24) as u8, head_len: SPILLED_BYTES as u8, long: false, body: &[] })
    }

    /// Returns true if [`Coded::spill`] moved the string out of line.
    pub fn is_spilled(&self) -> bool {
        is_spilled(&self.head.to_le_bytes())
    }

    /// The arena block the string was spilled to, if it was.
    pub fn block(&self) -> Option<Handle> {
        (self.head as u8 == TAG_BLOCK).then(|| Handle::from_raw((self.head >> 8) as u32))
    }

    /// The number in its root's [`Spill`] that the string has, if it was spilled there.
    pub(crate) fn boxed(&self) -> Option<u32> {
        (self.head as u8 == TAG_BOXED).then_some((self.head >> 8) as u32)
    }

    /// Writes the encoded item to the front of `out`, which has room for [`Coded::len`] bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        debug_assert!(!self.long);
        let head_len = self.head_len as usize;
        if head_len == 1 {
            out[0] = self.head as u8;
        } else {
            let mut head = [0; 16];
            head[..8].copy_from_slice(&self.head.to_le_bytes());
            head[8] = self.ninth;
            copy_short(&mut out[..head_len], &head[..head_len]);
        }
        copy_short(&mut out[head_len..head_len + self.body.len()], self.body);
    }

    /// Returns true if this item can be written over the one that begins with `first`: both take the same few bytes,
    /// and neither is out of line.
    #[inline]
    pub(crate) fn fits_over(&self, first: u8) -> bool {
        first < TAG_STRING && !self.long && self.len() == SIZES[first as usize] as usize
    }

    /// Like [`Coded::write`], but the bytes of `out` after the item may be overwritten, which is shorter.
    #[inline]
    pub fn write_last(&self, out: &mut [u8]) {
        debug_assert!(!self.long);
        let Some(front) = out.first_chunk_mut::<9>() else {
            return self.write(out);
        };
        front[..8].copy_from_slice(&self.head.to_le_bytes());
        front[8] = self.ninth;
        let head_len = self.head_len as usize;
        copy_short(&mut out[head_len..head_len + self.body.len()], self.body);
    }

    /// Returns true if the item encoded at the front of `bytes` equals this one.
    #[inline]
    pub fn is_at(&self, bytes: &[u8], arena: &Arena, spill: &Spill) -> bool {
        if self.long {
            return self.is_spilled_at(bytes, arena, spill);
        }
        self.is_inline_at(bytes)
    }

    /// [`Coded::is_at`] of an item that is not long.
    #[inline(always)]
    pub(crate) fn is_inline_at(&self, bytes: &[u8]) -> bool {
        debug_assert!(!self.long);
        let head_len = self.head_len as usize;
        let Some(word) = bytes.first_chunk::<8>() else {
            return self.is_at_end(bytes);
        };
        // Bytes of the word past the head belong to something else.
        let unused = 64u32.saturating_sub(8 * head_len as u32);
        if (u64::from_le_bytes(*word) ^ self.head) << unused != 0 {
            return false;
        }
        if head_len == 9 && bytes.get(8) != Some(&self.ninth) {
            return false;
        }
        if self.body.is_empty() {
            return true;
        }
        match bytes.get(head_len..head_len + self.body.len()) {
            Some(body) => equal_short(body, self.body),
            None => false,
        }
    }

    /// [`Coded::is_at`] if fewer than eight bytes are left.
    #[cold]
    fn is_at_end(&self, bytes: &[u8]) -> bool {
        let head_len = self.head_len as usize;
        let Some((head, rest)) = bytes.split_at_checked(head_len) else { return false };
        head == &self.head.to_le_bytes()[..head_len] && rest.get(..self.body.len()) == Some(self.body)
    }

    #[cold]
    fn is_spilled_at(&self, bytes: &[u8], arena: &Arena, spill: &Spill) -> bool {
        match bytes.first() {
            Some(&TAG_BLOCK | &TAG_BOXED) => read(bytes, arena, spill).0 == Item::Bytes(self.body),
            _ => false,
        }
    }
}

/// The item encoded at the front of `bytes`, and how many bytes it takes there.
#[inline]
pub fn read<'a>(bytes: &'a [u8], arena: &'a Arena, spill: &'a Spill) -> (Item<'a>, usize) {
    let tag = bytes[0];
    if tag < TAG_SMALL {
        let end = 1 + tag as usize;
        return (Item::Bytes(&bytes[1..end]), end);
    }
    if tag < TAG_INT {
        return (Item::Int(i64::from(tag & 63)), 1);
    }
    if tag < TAG_STRING {
        let width = (tag & 7) as usize + 1;
        return (Item::Int(read_int(bytes, width)), 1 + width);
    }
    read_long(bytes, arena, spill)
}

fn read_long<'a>(bytes: &'a [u8], arena: &'a Arena, spill: &'a Spill) -> (Item<'a>, usize) {
    let tag = bytes[0];
    if tag < TAG_BLOCK {
        let end = size(bytes);
        return (Item::Bytes(&bytes[2..end]), end);
    }
    debug_assert!(tag == TAG_BLOCK || tag == TAG_BOXED, "tag {tag:#x}");
    let (at, len) = spilled_place(bytes);
    let text = match tag {
        TAG_BLOCK => &arena.seen(Handle::from_raw(at))[..len],
        _ => arena.seen_text(at).unwrap_or_else(|| spill.get(at)),
    };
    (Item::Bytes(text), SPILLED_BYTES)
}

/// The integer of `width` bytes after the tag.
#[inline]
fn read_int(bytes: &[u8], width: usize) -> i64 {
    // Reading past the integer is cheaper than reading byte by byte; only the end of a slice forbids it.
    let word = match bytes.get(1..9) {
        Some(wide) => u64::from_le_bytes(wide.try_into().unwrap_or_default()),
        None => {
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(&bytes[1..1 + width]);
            u64::from_le_bytes(wide)
        }
    };
    let gap = 64 - 8 * width as u32;
    (word << gap) as i64 >> gap
}

/// Bytes taken by the item encoded at the front of `bytes`.
#[inline]
pub fn size(bytes: &[u8]) -> usize {
    let short = SIZES[bytes[0] as usize];
    if short != 0 { short as usize } else { long_size(bytes[0], bytes[1]) }
}

/// Bytes taken by an item that starts with these two bytes; after a one-byte item, the second belongs to the next
/// item.
#[inline]
pub(crate) fn size_of(first: [u8; 2]) -> usize {
    let short = SIZES[first[0] as usize];
    if short != 0 { short as usize } else { long_size(first[0], first[1]) }
}

#[inline]
fn long_size(tag: u8, next: u8) -> usize {
    130 + ((tag & 7) as usize) * 256 + next as usize
}

/// Returns true if the item encoded at the front of `bytes` is out of line.
#[inline]
pub fn is_spilled(bytes: &[u8]) -> bool {
    matches!(bytes[0], TAG_BLOCK | TAG_BOXED)
}

/// Releases the out-of-line part of the item encoded at the front of `bytes`: returns the arena block, which the
/// caller frees, or removes the string from `spill`.
#[inline]
pub fn release(bytes: &[u8], spill: &mut Spill) -> Option<Handle> {
    match bytes[0] {
        TAG_BLOCK => Some(Handle::from_raw(spilled_place(bytes).0)),
        TAG_BOXED => {
            spill.remove(spilled_place(bytes).0);
            None
        }
        _ => None,
    }
}

/// The number in its root's [`Spill`] of the item encoded at the front of `bytes`, if it is there.
#[inline]
pub(crate) fn boxed(bytes: &[u8]) -> Option<u32> {
    (bytes[0] == TAG_BOXED).then(|| spilled_place(bytes).0)
}

/// The arena block of the item encoded at the front of `bytes`, if it is in one.
#[inline]
pub fn block(bytes: &[u8]) -> Option<Handle> {
    (bytes[0] == TAG_BLOCK).then(|| Handle::from_raw(spilled_place(bytes).0))
}

/// Updates the item encoded at the front of `bytes`, which is in an arena block, after the block has moved.
pub fn set_block(bytes: &mut [u8], moved: Handle) {
    debug_assert_eq!(bytes[0], TAG_BLOCK);
    bytes[1..5].copy_from_slice(&moved.raw().to_le_bytes());
}

/// Handle or index, and length in bytes, of a string out of line.
fn spilled_place(bytes: &[u8]) -> (u32, usize) {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (word(1), word(5) as usize)
}

/// Copies a slice that is usually shorter than 33 bytes without a call: by two words that may overlap.
#[inline]
pub(crate) fn copy_short(to: &mut [u8], from: &[u8]) {
    debug_assert_eq!(to.len(), from.len());
    let len = from.len();
    if len >= 16 {
        if len <= 32 {
            copy_ends::<16>(to, from);
        } else {
            to.copy_from_slice(from);
        }
    } else if len >= 8 {
        copy_ends::<8>(to, from);
    } else if len >= 4 {
        copy_ends::<4>(to, from);
    } else if len >= 2 {
        copy_ends::<2>(to, from);
    } else if len == 1 {
        to[0] = from[0];
    }
}

#[inline]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(head), Some(tail)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        let (head, tail) = (*head, *tail);
        if let Some(to) = to.first_chunk_mut::<N>() {
            *to = head;
        }
        if let Some(to) = to.last_chunk_mut::<N>() {
            *to = tail;
        }
    }
}

/// Compares slices that are usually shorter than 33 bytes without a call: by two words that may overlap.
#[inline]
pub(crate) fn equal_short(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let len = a.len();
    if len > 32 {
        return a == b;
    }
    if len >= 16 {
        equal_ends::<16>(a, b)
    } else if len >= 8 {
        equal_ends::<8>(a, b)
    } else if len >= 4 {
        equal_ends::<4>(a, b)
    } else if len >= 2 {
        equal_ends::<2>(a, b)
    } else {
        a.first() == b.first()
    }
}

#[inline]
fn equal_ends<const N: usize>(a: &[u8], b: &[u8]) -> bool {
    a.first_chunk::<N>() == b.first_chunk::<N>() && a.last_chunk::<N>() == b.last_chunk::<N>()
}

/// Longest string kept within a pack; longer ones are spilled.
pub const INLINE_BYTES_MAX: usize = 512;
/// Bytes of the expiry time before an entry that has one, tag included.
pub const EXPIRY_BYTES: usize = 7;
/// Tag of the expiry time in front of an entry.
pub const TAG_EXPIRY: u8 = 0xF0;
/// Latest expiry time an entry can carry, in Unix milliseconds.
pub const EXPIRY_MS_MAX: u64 = (1 << 48) - 2;

/// Bytes an item out of line takes in its pack.
pub const SPILLED_BYTES: usize = 9;

const TAG_SMALL: u8 = 0x80;
const TAG_INT: u8 = 0xC0;
const TAG_STRING: u8 = 0xC8;
const TAG_BLOCK: u8 = 0xD0;
const TAG_BOXED: u8 = 0xD1;

/// Encoded size by tag; 0 if the next byte counts too.
static SIZES: [u8; 256] = {
    let mut sizes = [1u8; 256];
    let mut tag = 0;
    while tag < 256 {
        sizes[tag] = match tag as u8 {
            0..TAG_SMALL => 1 + tag as u8,
            TAG_SMALL..TAG_INT => 1,
            TAG_INT..TAG_STRING => 2 + (tag as u8 & 7),
            TAG_STRING..TAG_BLOCK => 0,
            TAG_BLOCK | TAG_BOXED => SPILLED_BYTES as u8,
            _ => 1,
        };
        tag += 1;
    }
    sizes
};
