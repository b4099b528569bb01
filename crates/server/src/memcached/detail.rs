//! `stats detail`: how often keys were asked for, stored and deleted, by what stands before the first colon of their names.
//!
//! Off unless a client switches it on; then classic commands of all threads are noted under one lock, as memcached does
//! it, and leave the batch path where they must. Meta commands are not noted, there neither.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::sync::lock;

/// Ends the part of a name that counts.
const END_OF_PREFIX: u8 = b':';
/// Further prefixes are passed over: what strangers send must not grow without end.
const PREFIXES_MAX: usize = 10_000;

/// Kinds of calls that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DetailOperation {
    /// A key was asked for and found.
    Hit,
    /// A key was asked for.
    Miss,
    /// A value was sent.
    Set,
    /// A delete was asked for.
    Delete,
}

#[derive(Clone, Copy, Debug, Default)]
struct PrefixTally {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// The counts of all prefixes.
#[derive(Debug, Default)]
pub struct Detail {
    is_on: AtomicBool,
    tallies: Mutex<HashMap<Box<[u8]>, PrefixTally>>,
}

impl Detail {
    /// Whether commands are to be noted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    pub(super) fn switch(&self, on: bool) {
        self.is_on.store(on, Relaxed);
    }

    /// Notes what was done with a key; one without a colon has no prefix.
    #[cold]
    pub(super) fn note(&self, key: &[u8], deed: DetailOperation) {
        let Some(end) = key.iter().position(|&byte| byte == END_OF_PREFIX) else { return };
        let mut tallies = lock(&self.tallies);
        let is_full = tallies.len() >= PREFIXES_MAX;
        let tally = match tallies.entry(key[..end].into()) {
            Entry::Occupied(place) => place.into_mut(),
            Entry::Vacant(_) if is_full => return,
            Entry::Vacant(place) => place.insert(PrefixTally::default()),
        };
        let counts: &mut [&mut u64] = match deed {
            DetailOperation::Hit => &mut [&mut tally.gets, &mut tally.hits],
            DetailOperation::Miss => &mut [&mut tally.gets],
            DetailOperation::Set => &mut [&mut tally.sets],
            DetailOperation::Delete => &mut [&mut tally.deletes],
        };
        counts.iter_mut().for_each(|count| **count += 1);
    }

    pub(super) fn reset(&self) {
        lock(&self.tallies).clear();
    }

    /// The lines of `stats detail dump`, by name.
    pub(super) fn dump(&self, out: &mut Vec<u8>) {
        let tallies = lock(&self.tallies);
        let mut lines: Vec<_> = tallies.iter().collect();
        lines.sort_unstable_by_key(|(prefix, _)| *prefix);
        for (prefix, PrefixTally { gets, hits, sets, deletes }) in lines {
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            out.extend_from_slice(format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_end_at_the_first_colon_and_are_bounded() {
        let detail = Detail::default();
        let dump = |detail: &Detail| {
            let mut out = Vec::new();
            detail.dump(&mut out);
            String::from_utf8(out).unwrap()
        };
        detail.note(b"b:1:x", DetailOperation::Hit);
        detail.note(b"b:2", DetailOperation::Miss);
        detail.note(b":none", DetailOperation::Set);
        detail.note(b"plain", DetailOperation::Delete);
        assert_eq!(dump(&detail), "PREFIX  get 0 hit 0 set 1 del 0\r\nPREFIX b get 2 hit 1 set 0 del 0\r\n");
        (0..2 * PREFIXES_MAX).for_each(|n| detail.note(format!("{n}:").as_bytes(), DetailOperation::Delete));
        assert_eq!(dump(&detail).lines().count(), PREFIXES_MAX);
        detail.note(b"b:", DetailOperation::Set);
        assert!(dump(&detail).contains("PREFIX b get 2 hit 1 set 1 del 0\r\n"), "those that are there go on");
        detail.reset();
        assert_eq!(dump(&detail), "");
    }
}
