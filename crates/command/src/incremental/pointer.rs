//! The meaning of a SORT pattern for an element: `#` is the element itself, `a*b` the string at the key with the
//! element in place of the star, `a*b->f` the field `f` of the hash there.
//!
//! Called by SORT, with the shards of all keys held, or of one after another.

use darter_pack::table::Table;
use darter_store::Keyed;

/// A pattern, read once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pointer {
    /// The element.
    Itself,
    /// Never anything.
    Nothing,
    /// The value at a key.
    Key {
        /// Before the element.
        prefix: Box<[u8]>,
        /// After it.
        suffix: Box<[u8]>,
        /// Of a hash; else the string.
        field: Option<Box<[u8]>>,
    },
}

/// The value found at a key, and its expiry.
pub struct Pointed {
    /// The string or value.
    pub value: Option<Vec<u8>>,
    /// Expiry of the key, or of the field.
    pub due_ms: u64,
}

impl Pointer {
    /// Reads a pattern.
    pub fn new(pattern: &[u8]) -> Pointer {
        if pattern == b"#" {
            return Pointer::Itself;
        }
        let mut parts = pattern.splitn(2, |&byte| byte == b'*');
        let (Some(prefix), Some(rest)) = (parts.next(), parts.next()) else { return Pointer::Nothing };
        let arrow = rest.windows(2).position(|pair| pair == b"->").filter(|&at| at + 2 < rest.len());
        let (suffix, field) = match arrow {
            Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 2..)),
            None => (rest, None),
        };
        Pointer::Key { prefix: prefix.into(), suffix: suffix.into(), field: field.map(Box::from) }
    }

    /// The key for `element`, if the pattern names one.
    pub fn key(&self, element: &[u8]) -> Option<Vec<u8>> {
        match self {
            Pointer::Key { prefix, suffix, .. } => Some([prefix, element, suffix].concat()),
            Pointer::Itself | Pointer::Nothing => None,
        }
    }

    /// The value of the pattern at that key.
    pub fn look(&self, place: &Keyed<'_>) -> Pointed {
        let mut due_ms = place.deadline_ms().unwrap_or(u64::MAX);
        let value = match self {
            Pointer::Key { field: Some(field), .. } => {
                place.view::<Table>().ok().flatten().and_then(|hash| {
                    let entry = hash.root.get(hash.arena, hash.hasher.hash(field), field)?;
                    let dies_ms = entry.expiry_ms().unwrap_or(u64::MAX);
                    if dies_ms <= place.now_ms() {
                        return None;
                    }
                    due_ms = due_ms.min(dies_ms);
                    Some(entry.value().to_vec())
                })
            }
            Pointer::Key { field: None, .. } => {
                place.text().ok().flatten().map(|text| text.bytes().into_owned())
            }
            Pointer::Itself | Pointer::Nothing => None,
        };
        Pointed { value, due_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_arrows_are_where_they_are_looked_for() {
        let key = |pattern: &[u8]| {
            let pointer = Pointer::new(pattern);
            let field = match &pointer {
                Pointer::Key { field, .. } => field.as_deref().map(<[u8]>::to_vec),
                _ => None,
            };
            (pointer.key(b"7").map(|key| String::from_utf8(key).expect("a text")), field)
        };
        assert_eq!(key(b"a*b"), (Some("a7b".to_owned()), None));
        assert_eq!(key(b"*"), (Some("7".to_owned()), None));
        assert_eq!(key(b"a*b*->f->g"), (Some("a7b*".to_owned()), Some(b"f->g".to_vec())));
        assert_eq!(key(b"a*->"), (Some("a7->".to_owned()), None));
        assert_eq!(key(b"a->f*"), (Some("a->f7".to_owned()), None));
        assert_eq!((Pointer::new(b"#"), Pointer::new(b"none")), (Pointer::Itself, Pointer::Nothing));
    }
}
