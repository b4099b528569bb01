//! Expiry times of members of a sorted set. Few sets have them, so the times lie beside the set, on the heap.

use std::collections::{BTreeMap, BTreeSet};

use darter_base::hash::KeyHasher;
use darter_slab::Arena;

use super::Zset;
use super::member::{self, NewMember};
use crate::decimal::Digits;
use crate::entry::Item;

/// The expiry times of one set; 8 bytes until the first one is set.
#[derive(Debug, Default)]
pub(super) struct Expiries(Option<Box<MemberTimes>>);

#[derive(Debug, Default)]
struct MemberTimes {
    of: BTreeMap<Box<[u8]>, u64>,
    // The same, by time.
    order: BTreeSet<(u64, Box<[u8]>)>,
    // of the texts above, once
    text_bytes: usize,
    past: Option<PastDeadline>,
}

/// The former values of times that have changed since the set was frozen.
#[derive(Debug, Default)]
struct PastDeadline {
    of: BTreeMap<Box<[u8]>, Option<u64>>,
    text_bytes: usize,
}

impl MemberTimes {
    /// To be called before the time of a member is set, changed or removed.
    fn keep_first(&mut self, text: &[u8]) {
        let Some(past) = &mut self.past else { return };
        if !past.of.contains_key(text) {
            past.of.insert(text.into(), self.of.get(text).copied());
            past.text_bytes += text.len();
        }
    }
}

/// Approximate bytes that the two trees hold for a member beside its text, free places of their nodes included.
const ENTRY_BYTES: usize = 104;

impl Expiries {
    /// No member expires.
    pub(super) const NONE: Expiries = Expiries(None);

    /// Returns true if no member expires.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Forgets the time of a member.
    pub(super) fn remove(&mut self, text: &[u8]) {
        let Some(times) = &mut self.0 else { return };
        times.keep_first(text);
        if let Some((text, at_ms)) = times.of.remove_entry(text) {
            times.text_bytes -= text.len();
            times.order.remove(&(at_ms, text));
            if times.of.is_empty() && times.past.is_none() {
                self.0 = None;
            }
        }
    }

    /// From now on keeps the former times of members before they change, if there are any.
    pub(super) fn keep_past(&mut self) {
        if let Some(times) = &mut self.0 {
            times.past = Some(PastDeadline::default());
        }
    }

    /// Discards the former times.
    pub(super) fn forget_past(&mut self) {
        let Some(times) = &mut self.0 else { return };
        times.past = None;
        if times.of.is_empty() {
            self.0 = None;
        }
    }

    fn put(&mut self, text: &[u8], at_ms: u64) {
        self.remove(text);
        let times = self.0.get_or_insert_default();
        times.keep_first(text);
        times.text_bytes += text.len();
        times.of.insert(text.into(), at_ms);
        times.order.insert((at_ms, text.into()));
    }
}

impl Zset {
    /// Approximate bytes held outside the arena by the times of members.
    pub fn expiry_bytes(&self) -> usize {
        let of = |times: &MemberTimes| {
            size_of::<MemberTimes>() + times.of.len() * ENTRY_BYTES + 2 * times.text_bytes
        };
        self.expiries.0.as_deref().map_or(0, of)
    }

    /// Approximate bytes held because the set was frozen.
    pub fn past_bytes(&self) -> usize {
        let of = |past: &PastDeadline| past.of.len() * ENTRY_BYTES / 2 + past.text_bytes;
        self.expiries.0.as_ref().and_then(|times| times.past.as_ref()).map_or(0, of)
    }

    /// The expiry time of `member` at the time of the freeze, if it had one.
    pub fn past_expiry(&self, member: Item<'_>) -> Option<u64> {
        let times = self.expiries.0.as_ref()?;
        let mut digits = Digits::new();
        let text = member.text(&mut digits);
        let now = || times.of.get(text).copied();
        times.past.as_ref().and_then(|past| past.of.get(text).copied()).unwrap_or_else(now)
    }

    /// Lets `member` expire at a Unix time in milliseconds, or never; returns whether it is there. A new score keeps the time.
    ///
    /// Cost: O(log n), and heap memory of about 150 bytes for each member that expires.
    pub fn set_expiry(
        &mut self,
        arena: &Arena,
        hasher: &KeyHasher,
        member: Item<'_>,
        at_ms: Option<u64>,
    ) -> bool {
        if self.find(arena, &NewMember::of(member), || member::hash(hasher, member)).is_none() {
            return false;
        }
        let mut digits = Digits::new();
        let text = member.text(&mut digits);
        match at_ms {
            Some(at_ms) => self.expiries.put(text, at_ms),
            None => self.expiries.remove(text),
        }
        true
    }

    /// When `member` expires, in Unix milliseconds, if it does.
    pub fn expiry(&self, member: Item<'_>) -> Option<u64> {
        let times = self.expiries.0.as_ref()?;
        times.of.get(member.text(&mut Digits::new())).copied()
    }

    /// When the first member to expire does, in Unix milliseconds.
    #[inline]
    pub fn next_expiry(&self) -> Option<u64> {
        let (at_ms, _) = self.expiries.0.as_ref()?.order.first()?;
        Some(*at_ms)
    }

    /// Removes up to `count_max` expired members, each passed to `emit`; returns their number.
    pub fn expire_due(
        &mut self,
        arena: &mut Arena,
        hasher: &KeyHasher,
        now_ms: u64,
        count_max: usize,
        mut emit: impl FnMut(&[u8]),
    ) -> usize {
        for expired in 0..count_max {
            let due = self
                .expiries
                .0
                .as_ref()
                .and_then(|times| times.order.first())
                .filter(|(at_ms, _)| *at_ms <= now_ms);
            let Some((_, text)) = due else { return expired };
            let text = text.clone();
            let removed = self.remove(arena, hasher, Item::of(&text));
            debug_assert!(removed.is_some(), "only members have times");
            emit(&text);
        }
        count_max
    }
}
