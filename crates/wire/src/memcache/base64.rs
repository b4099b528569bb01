//! Base64 with padding, in which meta commands carry keys of any bytes.

/// The bytes that `text` encodes; `None` if it is empty, of a wrong length, or has a wrong letter or padding.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|&&b| b == b'=').count();
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (letters, _) = text.split_at_checked(text.len() - padding)?;
    for group in letters.chunks(4) {
        let mut bits = 0u32;
        for &letter in group {
            bits = bits << 6 | u32::from(value(letter)?);
        }
        // Four letters make three bytes, three make two, two make one; the remaining bits must be zero.
        bits <<= 6 * (4 - group.len());
        let [_, whole @ ..] = bits.to_be_bytes();
        let (made, rest) = whole.split_at_checked(group.len() - 1)?;
        if rest.iter().any(|&b| b != 0) {
            return None;
        }
        bytes.extend_from_slice(made);
    }
    Some(bytes)
}

/// Appends `bytes` in base64.
pub fn encode(out: &mut Vec<u8>, bytes: &[u8]) {
    for group in bytes.chunks(3) {
        let byte = |at: usize| group.get(at).copied().unwrap_or(0);
        let bits = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        for at in 0..4 {
            let letter = LETTERS.get((bits >> (18 - 6 * at) & 0x3f) as usize);
            out.push(letter.copied().filter(|_| at <= group.len()).unwrap_or(b'='));
        }
    }
}

fn value(letter: u8) -> Option<u8> {
    match letter {
        b'A'..=b'Z' => Some(letter - b'A'),
        b'a'..=b'z' => Some(letter - b'a' + 26),
        b'0'..=b'9' => Some(letter - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts() {
        for (bytes, text) in
            [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("\u{fffd}?", "77+9Pw==")]
        {
            let mut out = Vec::new();
            encode(&mut out, bytes.as_bytes());
            assert_eq!(out, text.as_bytes());
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn wrong_texts() {
        for text in ["", "Zg", "Zg=", "Zg=a", "Z===", "====", "Zh==", "Zm9=", "!!!!", "Zg==Zg=="] {
            assert_eq!(decode(text.as_bytes()), None, "{text:?}");
        }
    }
}
