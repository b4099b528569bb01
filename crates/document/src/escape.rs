//! The bytes of a text that JSON writes otherwise.
//!
//! Called where texts are printed, and for names that must be printed as they are.

/// Returns the place of the first byte that needs an escape: a control byte, a quote or a backslash. Cost: 2 instructions a byte.
pub(crate) fn escaped_at(text: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    // The top bit of each byte below `limit`; bytes behind the first such one may be wrong.
    let below = |word: u64, limit: u64| word.wrapping_sub(ONES * limit) & !word & (ONES << 7);
    let (words, rest) = text.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let is_equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        let found = below(word, 0x20) | is_equal(b'"') | is_equal(b'\\');
        if found != 0 {
            return Some(at * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    let found = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\');
    found.map(|at| words.len() * 8 + at)
}

#[cfg(test)]
mod tests {
    use darter_base::rng::Rng;

    use super::escaped_at;

    #[test]
    fn what_needs_an_escape_is_found_at_any_place() {
        let mut rng = Rng::new(3);
        for _ in 0..20_000 {
            let len = rng.below(40) as usize;
            let rare = rng.below(30) as u8 + 1;
            let text: Vec<u8> = (0..len)
                .map(|_| match rng.below(u64::from(rare) * 8) {
                    0 => rng.below(256) as u8,
                    1 => b'"',
                    2 => b'\\',
                    3 => rng.below(34) as u8,
                    _ => 0x20 + rng.below(0xe0) as u8,
                })
                .collect();
            let naive = text.iter().position(|byte| *byte < 0x20 || b"\"\\".contains(byte));
            assert_eq!(escaped_at(&text), naive, "{text:?}");
        }
    }
}
