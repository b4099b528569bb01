//! Bytes that several hold at once, whole or in part, without a copy: chunks of records and blocks on their way from who made
//! them to the kernel. Nothing here changes a byte.

use std::ops::{Deref, Range};
use std::sync::Arc;

/// A stretch of bytes. To hold a part keeps the whole in memory.
#[derive(Clone, Debug, Default)]
pub struct SharedBytes {
    whole: Arc<Vec<u8>>,
    // start <= end <= whole.len()
    start: usize,
    end: usize,
}

impl SharedBytes {
    /// A part of it; empty if `range` is not inside.
    pub fn part(&self, range: Range<usize>) -> SharedBytes {
        let is_inside = range.start <= range.end && range.end <= self.len();
        let range = if is_inside { range } else { 0..0 };
        SharedBytes {
            whole: self.whole.clone(),
            start: self.start + range.start,
            end: self.start + range.end,
        }
    }

    /// Returns true if both are the same stretch of the same memory.
    pub fn is_same(&self, other: &SharedBytes) -> bool {
        Arc::ptr_eq(&self.whole, &other.whole) && (self.start, self.end) == (other.start, other.end)
    }

    /// Makes it longer by the part `range` of `of` if that is of the same memory and begins where this one ends; false if not.
    pub fn join(&mut self, of: &SharedBytes, range: Range<usize>) -> bool {
        let is_next = Arc::ptr_eq(&self.whole, &of.whole) && self.end == of.start + range.start;
        let goes_on = is_next && range.start <= range.end && range.end <= of.len();
        if goes_on {
            self.end = of.start + range.end;
        }
        goes_on
    }
}

/// Where `part` stands in `whole`, if it is borrowed from it.
#[inline]
pub fn place_in(whole: &[u8], part: &[u8]) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (at.checked_add(part.len())? <= whole.len()).then_some(at)
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.whole.get(self.start..self.end).unwrap_or_default()
    }
}

impl From<Vec<u8>> for SharedBytes {
    /// Cost: a small allocation; no byte is copied unless most of the vector's room is unused.
    fn from(mut bytes: Vec<u8>) -> SharedBytes {
        if bytes.capacity() / 2 > bytes.len() {
            bytes.shrink_to_fit();
        }
        SharedBytes { start: 0, end: bytes.len(), whole: Arc::new(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_memory_and_know_their_neighbours() {
        let whole = SharedBytes::from(b"one two three".to_vec());
        let (mut one, two) = (whole.part(0..4), whole.part(4..8));
        assert_eq!(
            (&*one, &*two, &*two.part(1..3)),
            (b"one ".as_slice(), b"two ".as_slice(), b"wo".as_slice())
        );
        assert!(one.is_same(&whole.part(0..4)) && !one.is_same(&two) && !two.clone().join(&one, 0..4));
        assert_eq!(place_in(&whole, &two), Some(4));
        assert_eq!((place_in(&two, &whole), place_in(&two, b"elsewhere")), (None, None));
        assert!(one.join(&whole, 4..8) && !one.join(&SharedBytes::from(b"x".to_vec()), 0..1));
        assert!(!one.join(&whole, 8..99));
        assert_eq!((&*one, whole.part(9..99).len()), (b"one two ".as_slice(), 0));
    }
}
