//! Letter case of ASCII: command names, options and units are compared without it.
//!
//! Bytes above 127 are left alone, as the C locale does.

/// `word` in upper case inside a fixed buffer, or `None` when it is longer than `N` bytes.
#[inline]
pub fn upper<const N: usize>(word: &[u8]) -> Option<Folded<N>> {
    let mut folded = Folded { bytes: [0; N], len: word.len() };
    let room = folded.bytes.get_mut(..word.len())?;
    room.copy_from_slice(word);
    room.make_ascii_uppercase();
    Some(folded)
}

/// A short word after case folding, on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Folded<const N: usize> {
    bytes: [u8; N],
    // len <= N
    len: usize,
}

impl<const N: usize> Folded<N> {
    /// The folded bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns true if C's `isspace` holds: space, tab, line feed, vertical tab, form feed, carriage return.
#[inline]
pub const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_refuses_what_does_not_fit() {
        assert_eq!(upper::<8>(b"zadd\xff").map(|w| w.as_bytes().to_vec()), Some(b"ZADD\xff".to_vec()));
        assert!(upper::<3>(b"zadd").is_none());
        assert_eq!(upper::<4>(b"zadd").map(|w| w.as_bytes().to_vec()), Some(b"ZADD".to_vec()));
    }

    #[test]
    fn spaces_are_those_of_the_c_locale() {
        let spaces: Vec<u8> = (0..=255).filter(|&b| is_space(b)).collect();
        assert_eq!(spaces, [9, 10, 11, 12, 13, 32]);
    }
}
