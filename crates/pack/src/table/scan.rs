//! Walking a table: iteration, resumable scans, random entries.
//!
//! Called by commands such as SMEMBERS, HSCAN and SRANDMEMBER. Everything here follows hash space from place 0
//! upwards, pack by pack, so a scan cursor is a place and no change of the directory disturbs it.

use darter_slab::Arena;

use super::{BEND, DEPTH_MAX, EntryRef, Table, place_of};
use crate::decimal::Digits;
use crate::pack::Pack;

/// All entries of a table, a single pack in the order of insertion, larger ones in no particular order.
pub struct TableIter<'a> {
    table: &'a Table,
    arena: &'a Arena,
    pack: Option<Pack<'a>>,
    // Entries of `pack` still to come, and where the next one lies.
    left: usize,
    at: usize,
    // Place of the pack after `pack`.
    next: Option<u64>,
}

impl<'a> Iterator for TableIter<'a> {
    type Item = EntryRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<EntryRef<'a>> {
        while self.left == 0 {
            self.open(self.next?);
        }
        let (table, pack) = (self.table, self.pack?);
        let entry = pack.entry(self.at, table.kind, self.arena, &table.spill);
        self.at += pack.entry_len(self.at, table.kind);
        self.left -= 1;
        Some(entry)
    }
}

impl TableIter<'_> {
    fn open(&mut self, x: u64) {
        let pack = Pack::open(self.arena, self.table.directory.find(self.arena, x));
        self.next = place_after(x, pack.head().depth());
        self.left = pack.head().len();
        self.at = pack.first_at();
        self.pack = Some(pack);
    }
}

impl Table {
    /// All entries.
    pub fn iter<'a>(&'a self, arena: &'a Arena) -> TableIter<'a> {
        let next = (!self.is_empty()).then_some(0);
        TableIter { table: self, arena, pack: None, left: 0, at: 0, next }
    }

    /// Emits entries from `cursor` on until `count` were emitted; returns the next cursor, 0 at the end. `hasher`
    /// gives the hash of any key.
    ///
    /// Shape: a cursor is below 2^48; any other number is taken modulo that. An entry present from the first call
    /// (cursor 0) to the last is emitted at least once, whatever was inserted or removed in between. Others are
    /// emitted once, more often, or not at all. Cost: O(count), and the hash of each entry of the last pack.
    pub fn scan<'a>(
        &'a self,
        arena: &'a Arena,
        cursor: u64,
        count: usize,
        hasher: &impl Fn(&[u8]) -> u64,
        mut emit: impl FnMut(EntryRef<'a>),
    ) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let mut x = cursor << (64 - DEPTH_MAX);
        let mut given = 0;
        loop {
            let pack = Pack::open(arena, self.directory.find(arena, x));
            let depth = pack.head().depth();
            let is_at_start = x & u64::MAX.checked_shr(depth).unwrap_or(0) == 0;
            if is_at_start && given + pack.head().len() <= count {
                self.each_of(arena, pack, |_, entry| emit(entry));
                given += pack.head().len();
            } else {
                let (part, next) = self.part_of(arena, pack, x, count.saturating_sub(given).max(1), hasher);
                given += part.len();
                part.into_iter().for_each(|(_, at)| emit(pack.entry(at, self.kind, arena, &self.spill)));
                if let Some(next) = next {
                    return next;
                }
            }
            match place_after(x, depth) {
                None => return 0,
                Some(next) if given >= count => return next >> (64 - DEPTH_MAX),
                Some(next) => x = next,
            }
        }
    }

    /// Passes each entry of a pack and its offset to `see`.
    fn each_of<'a>(&'a self, arena: &'a Arena, pack: Pack<'a>, mut see: impl FnMut(usize, EntryRef<'a>)) {
        let mut at = pack.first_at();
        for _ in 0..pack.head().len() {
            see(at, pack.entry(at, self.kind, arena, &self.spill));
            at += pack.entry_len(at, self.kind);
        }
    }

    /// The first `count` entries of a pack in the order of their places from `x` on, as places that cursors can name,
    /// with their offsets. Also the cursor of the next entry, if any. Entries of one cursor stay together.
    fn part_of<'a>(
        &'a self,
        arena: &'a Arena,
        pack: Pack<'a>,
        x: u64,
        count: usize,
        hasher: &impl Fn(&[u8]) -> u64,
    ) -> (Vec<(u64, usize)>, Option<u64>) {
        let first = x >> (64 - DEPTH_MAX);
        let mut found = Vec::with_capacity(pack.head().len());
        self.each_of(arena, pack, |at, entry| {
            let place = place_of(hasher(entry.key().text(&mut Digits::new()))) >> (64 - DEPTH_MAX);
            if place >= first {
                found.push((place, at));
            }
        });
        found.sort_unstable();
        let Some(&(last, _)) = count.checked_sub(1).and_then(|at| found.get(at)) else {
            return (found, None);
        };
        let end = found.partition_point(|&(place, _)| place <= last);
        let next = found.get(end).map(|&(place, _)| place);
        found.truncate(end);
        (found, next)
    }

    /// An entry chosen by the random number `r`, each as likely as any other to within a few percent;
    /// `None` when the table is empty. Cost: about two packs.
    pub fn random<'a>(&'a self, arena: &'a Arena, r: u64) -> Option<EntryRef<'a>> {
        if self.is_empty() {
            return None;
        }
        let mut r = r;
        for attempt in 1.. {
            r = mix(r.wrapping_add(0x9E37_79B9_7F4A_7C15));
            let pack = Pack::open(arena, self.directory.find(arena, place_of(r)));
            let choice = mix(r ^ 0x5851_F42D_4C95_7F2D);
            if pack.head().len() != 0 && (attempt >= ATTEMPTS_MAX || self.is_fair(&pack, r, choice)) {
                let index = (((choice & 0xFFFF_FFFF) * pack.head().len() as u64) >> 32) as usize;
                let at = pack.offset(index, self.kind);
                return Some(pack.entry(at, self.kind, arena, &self.spill));
            }
        }
        None
    }

    /// Returns true if a pack found by hash `r` should be kept. The probability follows its number of entries,
    /// relative to those expected in its share of hash space. The slope of the bend turns its width in places into
    /// that share.
    fn is_fair(&self, pack: &Pack<'_>, r: u64, choice: u64) -> bool {
        if pack.head().depth() == 0 {
            return true;
        }
        let one = 2f64.powi(64);
        let slope = 1.0 + BEND as f64 / one * (1.0 - 2.0 * (r as f64 / one));
        let expected = self.len() as f64 / 2f64.powi(pack.head().depth() as i32) / slope;
        let wanted = pack.head().len() as f64 / (expected * CROWDED);
        ((choice >> 32) as f64) < wanted * 2f64.powi(32)
    }
}

/// The first place after the pack of `depth` that holds `x`; `None` past the end of hash space.
#[inline]
pub(super) fn place_after(x: u64, depth: u32) -> Option<u64> {
    let last = x | u64::MAX.checked_shr(depth).unwrap_or(0);
    last.checked_add(1)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// A pack is assumed to hold at most this many times the expected entries.
const CROWDED: f64 = 1.8;
/// Tries before a pack is kept regardless of fairness.
const ATTEMPTS_MAX: u32 = 64;
