//! One place of the table of readers: a key and its readers, in 24 bytes.
//!
//! Made, compared and changed by `Readers` alone, which keeps the parts that do not fit here (long names, many
//! readers).

use std::collections::HashSet;

use darter_store::slots::SlotKeys;

use super::Reader;

/// A key and its readers, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReaderPlace {
    name: [u64; 2],
    // bits 0..5: code of the name, 0 if vacant; 5..7: form of the readers; from 8: the readers
    rest: u64,
}

/// The encoded form of a key in a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReaderName {
    words: [u64; 2],
    code: u64,
}

/// The readers of keys that have more than a place can hold.
pub type Crowds = SlotKeys<HashSet<Reader>>;

const CODE: u64 = 0x1f;
/// The name is kept elsewhere: its words are its hash and its number there. Codes of short names are their length
/// plus one.
const LONG: u64 = 0x1f;
/// The longest name that a place holds.
pub const NAME_BYTES_MAX: usize = 16;

const FORM: u64 = 0x3 << 5;
/// A bit for each reader below [`BITS`].
const BITMAP: u64 = 0;
/// Up to [`FEW`] readers of any number, plus one each.
const LIST: u64 = 1 << 5;
/// The number of a crowd.
const CROWD: u64 = 2 << 5;

const READERS_AT: u32 = 8;
const BITS: Reader = 64 - READERS_AT;
const FEW: u32 = 3;
const LIST_BITS: u32 = 18;
/// The largest number of a reader.
pub const READER_MAX: Reader = (1 << LIST_BITS) - 2;

impl ReaderName {
    /// The encoded form of `key` in the place itself; `None` if it is too long for that.
    #[inline(always)]
    pub fn short(key: &[u8]) -> Option<ReaderName> {
        if key.len() > NAME_BYTES_MAX {
            return None;
        }
        let code = key.len() as u64 + 1;
        let words = match (key.first_chunk(), key.last_chunk()) {
            (Some(head), Some(tail)) => [u64::from_le_bytes(*head), u64::from_le_bytes(*tail)],
            _ => [key.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0],
        };
        Some(ReaderName { words, code })
    }

    /// A key of this hash whose bytes are kept under `number`.
    pub fn long(hash: u64, number: u32) -> ReaderName {
        ReaderName { words: [hash, u64::from(number)], code: LONG }
    }
}

impl ReaderPlace {
    /// A key that `reader` has read.
    pub fn new(name: ReaderName, reader: Reader) -> ReaderPlace {
        let readers = match 1u64.checked_shl(reader.saturating_add(READERS_AT)) {
            Some(bit) => bit | BITMAP,
            None => listed(0, reader) | LIST,
        };
        ReaderPlace { name: name.words, rest: readers | name.code }
    }

    /// Returns true if there is no key.
    #[inline(always)]
    pub fn is_vacant(&self) -> bool {
        self.rest & CODE == 0
    }

    /// Returns true if this is the key called `name`, which must be a short one.
    #[inline(always)]
    pub fn is(&self, name: ReaderName) -> bool {
        // One branch: it does not matter which of them differs.
        let differs = (self.name[0] ^ name.words[0]) | (self.name[1] ^ name.words[1]);
        differs | ((self.rest & CODE) ^ name.code) == 0
    }

    /// The key's hash and the number of its name, if that is a long one.
    #[inline]
    pub fn long_name(&self) -> Option<(u64, u32)> {
        (self.rest & CODE == LONG).then_some((self.name[0], self.name[1] as u32))
    }

    /// The bytes of a short name, and their number; 0 for a long one.
    pub fn short_name(&self) -> ([u8; NAME_BYTES_MAX], usize) {
        let mut bytes = [0; NAME_BYTES_MAX];
        let len = match self.rest & CODE {
            0 | LONG => 0,
            code => (code - 1) as usize,
        };
        bytes[..8].copy_from_slice(&self.name[0].to_le_bytes());
        if let Some(tail) = len.checked_sub(8) {
            bytes[tail..len].copy_from_slice(&self.name[1].to_le_bytes());
        }
        (bytes, len)
    }

    /// Notes a reader if that takes only a bit; returns whether it is new, or `None` if the caller must use
    /// [`ReaderPlace::add`].
    #[inline(always)]
    pub fn note(&mut self, reader: Reader) -> Option<bool> {
        if reader >= BITS || self.rest & FORM != BITMAP {
            return None;
        }
        let bit = 1 << (reader + READERS_AT);
        let is_new = self.rest & bit == 0;
        self.rest |= bit;
        Some(is_new)
    }

    /// Notes a reader; returns whether it is new.
    pub fn add(&mut self, reader: Reader, crowds: &mut Crowds) -> bool {
        if let Some(is_new) = self.note(reader) {
            return is_new;
        }
        let readers = self.rest >> READERS_AT;
        if self.rest & FORM == CROWD {
            return crowds.get_mut(readers as u32).insert(reader);
        }
        let mut known = self.readers(crowds);
        if known.contains(&reader) {
            return false;
        }
        known.push(reader);
        self.set_readers(&known, crowds);
        true
    }

    /// Encodes the readers of the key, at least one, which are not in a crowd now.
    fn set_readers(&mut self, readers: &[Reader], crowds: &mut Crowds) {
        let payload = if readers.iter().all(|&reader| reader < BITS) {
            readers.iter().fold(BITMAP, |bits, reader| bits | 1 << (reader + READERS_AT))
        } else if readers.len() <= FEW as usize {
            readers.iter().enumerate().fold(LIST, |list, (at, &reader)| list | listed(at as u32, reader))
        } else {
            let number = crowds.insert(readers.iter().copied().collect());
            u64::from(number) << READERS_AT | CROWD
        };
        self.rest = payload | self.rest & CODE;
    }

    /// The readers of the key, in no order.
    pub fn readers(&self, crowds: &Crowds) -> Vec<Reader> {
        let payload = self.rest >> READERS_AT;
        match self.rest & FORM {
            BITMAP => (0..BITS).filter(|reader| payload >> reader & 1 != 0).collect(),
            LIST => {
                let fields = (0..FEW).map(|at| (payload >> (at * LIST_BITS)) as u32 & LIST_MASK);
                fields.filter_map(|field| field.checked_sub(1)).collect()
            }
            _ => crowds.get(payload as u32).iter().copied().collect(),
        }
    }

    /// Frees the crowd of its readers, before they are encoded anew or the key is removed.
    pub fn disband(&mut self, crowds: &mut Crowds) {
        if self.rest & FORM == CROWD {
            crowds.remove((self.rest >> READERS_AT) as u32);
            self.rest &= CODE;
        }
    }

    /// Forgets the readers in `gone`; returns their number, and whether any is left.
    pub fn retain(&mut self, gone: &HashSet<Reader>, crowds: &mut Crowds) -> (usize, bool) {
        let before = self.readers(crowds);
        let left: Vec<Reader> = before.iter().copied().filter(|reader| !gone.contains(reader)).collect();
        if left.len() < before.len() && !left.is_empty() {
            self.disband(crowds);
            self.set_readers(&left, crowds);
        }
        (before.len() - left.len(), !left.is_empty())
    }
}

const LIST_MASK: u32 = (1 << LIST_BITS) - 1;

fn listed(at: u32, reader: Reader) -> u64 {
    u64::from(reader.min(READER_MAX) + 1) << (READERS_AT + at * LIST_BITS)
}
