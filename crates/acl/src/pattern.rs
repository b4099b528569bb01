//! Patterns of keys and channels, sorted by how much work it is to match them. Selectors hold them; nothing here
//! knows users.

use darter_base::glob;

/// A glob pattern, ready to be matched often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclPattern {
    text: Box<[u8]>,
    shape: PatternShape,
    // Of a prefix: its first bytes as a word, and which bytes of it count.
    head: (u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternShape {
    /// `*`
    Anything,
    /// No special character.
    Literal,
    /// Literal but for one `*` at the end.
    Prefix,
    /// Whatever else.
    Glob,
}

impl AclPattern {
    /// The pattern `text`.
    pub fn new(text: &[u8]) -> AclPattern {
        let literal_len = glob::literal_prefix(text).len();
        let shape = match text {
            b"*" => PatternShape::Anything,
            _ if literal_len == text.len() => PatternShape::Literal,
            [head @ .., b'*'] if literal_len == head.len() => PatternShape::Prefix,
            _ => PatternShape::Glob,
        };
        let mut bytes = [0; 8];
        let head_len = literal_len.min(8);
        bytes[..head_len].copy_from_slice(&text[..head_len]);
        let mask = u64::MAX.checked_shr(64 - 8 * head_len as u32).unwrap_or(0);
        AclPattern { text: text.into(), shape, head: (u64::from_le_bytes(bytes), mask) }
    }

    /// How it was written.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether it is `*`.
    pub fn is_anything(&self) -> bool {
        self.shape == PatternShape::Anything
    }

    /// How many bytes decide alone whether a name that has them matches; `None`: more is looked at.
    #[inline]
    pub fn prefix_len(&self) -> Option<usize> {
        (self.shape == PatternShape::Prefix).then(|| self.text.len() - 1)
    }

    /// A word and its bits that decide alone whether a name of eight bytes or more matches; `None`: they do not.
    #[inline]
    pub fn head(&self) -> Option<(u64, u64)> {
        (self.shape == PatternShape::Prefix && self.text.len() <= 9).then_some(self.head)
    }

    /// Whether `name` matches. Cost: a comparison, or O(pattern x name) for patterns with stars inside.
    #[inline]
    pub fn matches(&self, name: &[u8]) -> bool {
        match self.shape {
            // As the glob has it.
            PatternShape::Anything => !name.is_empty(),
            PatternShape::Literal => *self.text == *name,
            PatternShape::Prefix => match name.first_chunk() {
                // Most prefixes differ from most keys in a word that is compared at once.
                Some(head) if (u64::from_le_bytes(*head) ^ self.head.0) & self.head.1 != 0 => false,
                Some(_) if self.text.len() <= 9 => true,
                _ => name.starts_with(&self.text[..self.text.len() - 1]),
            },
            PatternShape::Glob => glob::matches(&self.text, name, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_matches_what_the_glob_matches() {
        let patterns = [
            "*",
            "",
            "a",
            "a*",
            "a?",
            "a*b",
            "[ab]*",
            "a\\*",
            "a**",
            "\\a*",
            "abc",
            "abcdefgh*",
            "abcdefg*",
            "abcdefghij*",
        ];
        for pattern in patterns {
            for name in [
                "",
                "a",
                "ab",
                "abc",
                "b",
                "a*",
                "*",
                "xab",
                "\\a",
                "abcdefg",
                "abcdefgh",
                "abcdefghi",
                "abcdefghij",
                "abcdefgx1",
            ] {
                let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
                let wanted = glob::matches(pattern, name, false);
                let known = AclPattern::new(pattern);
                assert_eq!(known.matches(name), wanted, "{pattern:?} {name:?}");
                if let (Some((word, mask)), Some(head)) = (known.head(), name.first_chunk()) {
                    let is_alike = (u64::from_le_bytes(*head) ^ word) & mask == 0;
                    assert_eq!(is_alike, wanted, "{pattern:?} {name:?}");
                }
            }
        }
    }
}
