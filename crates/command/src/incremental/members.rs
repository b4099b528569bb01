//! Texts in few allocations, and a table of them that grows a part at a time.
//!
//! Called by code that gathers answers. A million members are freed in some hundred steps instead of a million.

use darter_base::hash::KeyHasher;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Texts, one behind the other in pieces.
#[derive(Default)]
pub(super) struct Texts {
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

/// The position of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextAt {
    piece: u32,
    at: u32,
    len: u32,
}

const PIECE_BYTES: usize = 64 << 10;

impl Texts {
    /// Keeps a copy of `text`.
    pub fn push(&mut self, text: &[u8]) -> TextAt {
        if self.pieces.last().is_none_or(|piece| piece.capacity() - piece.len() < text.len()) {
            let bytes = text.len().max(PIECE_BYTES);
            self.pieces.push(Vec::with_capacity(bytes));
            self.bytes += bytes;
        }
        let piece = self.pieces.len() - 1;
        let last = &mut self.pieces[piece];
        let at = TextAt { piece: piece as u32, at: last.len() as u32, len: text.len() as u32 };
        last.extend_from_slice(text);
        at
    }

    /// A text that was pushed.
    #[inline]
    pub fn get(&self, text: TextAt) -> &[u8] {
        let piece = self.pieces.get(text.piece as usize).map_or(&[][..], Vec::as_slice);
        piece.get(text.at as usize..).and_then(|rest| rest.get(..text.len as usize)).unwrap_or_default()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A member, and its state.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberOf {
    /// Its text.
    pub text: TextAt,
    /// Number of collections that have it, or a mark of the caller's.
    pub seen: u32,
    /// Its score so far.
    pub score: f64,
}

/// Members by their texts, in parts by hash.
pub(super) struct MembersOperation {
    /// The texts.
    pub texts: Texts,
    parts: Vec<HashTable<MemberOf>>,
    len: usize,
    hasher: KeyHasher,
}

/// Approximate members of a part: growing and sorting it take some hundred microseconds at most.
const PART_LEN: u64 = 2048;
const PARTS_MAX: u64 = 8192;

impl MembersOperation {
    /// A table for about `len` members.
    pub fn new(len: u64, hasher: KeyHasher) -> MembersOperation {
        let parts = (len / PART_LEN).clamp(1, PARTS_MAX).next_power_of_two();
        let parts = (0..parts).map(|_| HashTable::new()).collect();
        MembersOperation { texts: Texts::default(), parts, len: 0, hasher }
    }

    /// The member with this text, if it is there.
    pub fn find(&mut self, text: &[u8]) -> Option<&mut MemberOf> {
        let hash = self.hasher.hash(text);
        let (texts, at) = (&self.texts, self.part_of(hash));
        self.parts[at].find_mut(hash, |member| texts.get(member.text) == text)
    }

    /// The member with this text, and whether it is new, with its state empty.
    pub fn find_or_add(&mut self, text: &[u8]) -> (&mut MemberOf, bool) {
        let hash = self.hasher.hash(text);
        let at = self.part_of(hash);
        let (texts, hasher) = (&mut self.texts, self.hasher);
        let is_same = |member: &MemberOf| texts.get(member.text) == text;
        let rehash = |member: &MemberOf| hasher.hash(texts.get(member.text));
        match self.parts[at].entry(hash, is_same, rehash) {
            Entry::Occupied(found) => (found.into_mut(), false),
            Entry::Vacant(place) => {
                let none = TextAt { piece: 0, at: 0, len: 0 };
                let member = place.insert(MemberOf { text: none, seen: 0, score: 0.0 }).into_mut();
                member.text = texts.push(text);
                self.len += 1;
                (member, true)
            }
        }
    }

    /// Number of parts.
    pub fn parts_len(&self) -> usize {
        self.parts.len()
    }

    /// Takes the members of a part.
    pub fn take_part(&mut self, part: usize) -> HashTable<MemberOf> {
        self.parts.get_mut(part).map(std::mem::take).unwrap_or_default()
    }

    /// Bytes held, about.
    pub fn bytes(&self) -> usize {
        self.texts.bytes() + self.len * 2 * size_of::<MemberOf>()
    }

    fn part_of(&self, hash: u64) -> usize {
        // Tables use the lowest and the highest bits.
        (hash >> 32) as usize & (self.parts.len() - 1)
    }
}
