//! Replication ids: which history of changes a node has, and where the one before it ended.

use std::collections::VecDeque;
use std::fmt;

/// Forty hexadecimal digits that name a history of changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplId([u8; ReplId::LEN]);

impl ReplId {
    /// Bytes of an id.
    pub const LEN: usize = 40;
    /// The id of no history.
    pub const NONE: ReplId = ReplId([b'0'; ReplId::LEN]);

    /// Reads an id; `None` unless it is forty letters and digits.
    pub fn parse(text: &[u8]) -> Option<ReplId> {
        let bytes: [u8; ReplId::LEN] = text.try_into().ok()?;
        bytes.iter().all(u8::is_ascii_alphanumeric).then_some(ReplId(bytes))
    }

    /// Makes an id of random numbers.
    pub fn from_random(mut next: impl FnMut() -> u64) -> ReplId {
        let mut bytes = [0; ReplId::LEN];
        for chunk in bytes.chunks_mut(8) {
            let mut word = next();
            for byte in chunk {
                *byte = b"0123456789abcdef".get((word & 15) as usize).copied().unwrap_or(b'0');
                word >>= 4;
            }
        }
        ReplId(bytes)
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ReplId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The histories that a node can continue: its own, and those before it, each up to some offset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct History {
    /// The current id.
    pub id: ReplId,
    /// The ids before it, the latest first, each with the first offset that is not part of it.
    earlier: VecDeque<(ReplId, u64)>,
}

/// Ids that are kept, the current one among them.
const IDS_MAX: usize = 16;

impl History {
    /// A history that nothing precedes.
    pub fn new(id: ReplId) -> History {
        History { id, earlier: VecDeque::new() }
    }

    /// A history that continues others: each with its first offset that is not part of it, the latest last, and then its own.
    pub fn continuing(id: ReplId, earlier: impl IntoIterator<Item = (ReplId, u64)>) -> History {
        let mut history = History::new(id);
        earlier.into_iter().for_each(|one| history.earlier.push_front(one));
        history.earlier.truncate(IDS_MAX - 1);
        history
    }

    /// The histories before the current one, the oldest first, each with the first offset that is not part of it.
    pub fn earlier(&self) -> impl Iterator<Item = (ReplId, u64)> + '_ {
        self.earlier.iter().rev().copied()
    }

    /// The id before the current one, and the first offset that is not part of it.
    pub fn before(&self) -> Option<(ReplId, u64)> {
        self.earlier.front().copied()
    }

    /// Whether an id is one of those that are known.
    pub fn names(&self, id: &ReplId) -> bool {
        self.id == *id || self.earlier.iter().any(|(before, _)| before == id)
    }

    /// Takes a new id at `offset`, the number of bytes so far; the current one stays known up to there, as the last 15 do.
    pub fn turn(&mut self, id: ReplId, offset: u64) {
        self.earlier.push_front((self.id, offset.saturating_add(1)));
        self.earlier.truncate(IDS_MAX - 1);
        self.id = id;
    }

    /// Whether a replica that has `id` and asks for byte number `next` (from 1) has only bytes of these histories.
    pub fn covers(&self, id: &[u8], next: u64) -> bool {
        let is = |own: &ReplId| own.as_str().as_bytes() == id;
        is(&self.id) || self.earlier.iter().any(|(before, end)| is(before) && next <= *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> ReplId {
        ReplId::parse(digit.to_string().repeat(40).as_bytes()).expect("forty digits")
    }

    #[test]
    fn an_id_is_forty_letters_and_digits() {
        assert!(
            ReplId::parse(b"").is_none()
                && ReplId::parse(&[b'a'; 39]).is_none()
                && ReplId::parse(&[b'a'; 41]).is_none()
        );
        assert!(ReplId::parse(&[b'-'; 40]).is_none());
        let mut n = 7_u64;
        let made = ReplId::from_random(|| {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            n
        });
        assert_eq!(ReplId::parse(made.as_str().as_bytes()), Some(made));
    }

    #[test]
    fn the_history_before_is_continued_up_to_its_end_only() {
        let mut history = History::new(id('a'));
        assert!(history.covers(id('a').as_str().as_bytes(), 1_000_000));
        history.turn(id('b'), 100);
        assert!(history.covers(id('b').as_str().as_bytes(), 500));
        assert!(history.covers(id('a').as_str().as_bytes(), 101));
        assert!(!history.covers(id('a').as_str().as_bytes(), 102));
        history.turn(id('c'), 200);
        assert!(history.covers(id('a').as_str().as_bytes(), 101), "one of the last");
        assert!(!history.covers(id('a').as_str().as_bytes(), 102));
        assert!(history.covers(id('b').as_str().as_bytes(), 201));
        assert_eq!(history.before(), Some((id('b'), 201)));
        (0..14).for_each(|n| history.turn(id('d'), 300 + n));
        assert!(!history.covers(id('a').as_str().as_bytes(), 1), "too long ago");
        assert!(!history.covers(b"?", 1));
    }
}
