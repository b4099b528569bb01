//! The commit rule: output leaves when every member that the group requires has all changes below it, and while the
//! lease lasts.
//!
//! The thread of the group says who is required, replicas say what they have, `replication::feed` says what the stream has.
//! Threads ask for the bound at the end of their turns (`durability::log`). Nothing here sends or waits.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;

use darter_quorum::group::ServeWindow;
use darter_reactor::process::boot_ms;
use darter_replica::history::ReplId;
use darter_replica::records::StreamNumbers;

use crate::stats::histogram::Histogram;
use crate::sync::lock;

/// See above.
pub struct CommitRule {
    // output waits
    is_on: AtomicBool,
    // sequences of the journal below are committed
    bound: AtomicU64,
    // the same in the stream
    stream_bound: AtomicU64,
    // the lease, by `boot_ms`
    from_ms: AtomicU64,
    until_ms: AtomicU64,
    table: Mutex<CommitTable>,
    /// Times that changes have waited for members, added to with the table locked,
    pub waits: Histogram,
    /// and their sum in nanoseconds.
    pub waits_nanos: AtomicU64,
}

#[derive(Debug)]
struct CommitTable {
    numbers: StreamNumbers,
    // the stream has every record below
    fed: u64,
    // where acknowledgements are of disks: records of the journal below are on this server's
    synced: Option<u64>,
    // every record below is committed; never falls while this server leads
    committed: u64,
    is_frozen: bool,
    wanted: Vec<WantedMember>,
    // a change whose wait is measured: everything below this sequence, and since when
    measured: Option<(u64, Instant)>,
}

/// A start of a server whose acknowledgements are required, or soon are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WantedMember {
    /// Which start.
    pub boot: ReplId,
    /// The store cannot have it yet: it counts from the moment on at which it has almost everything.
    pub is_candidate: bool,
    // it has every record below
    acked: u64,
    // nothing beyond `acked` is committed
    holds_back: bool,
}

impl WantedMember {
    /// One that the store may have, of which nothing is known.
    pub fn member(boot: ReplId) -> WantedMember {
        WantedMember { boot, is_candidate: false, acked: 0, holds_back: false }
    }

    /// One that the store cannot have yet.
    pub fn candidate(boot: ReplId) -> WantedMember {
        WantedMember { is_candidate: true, ..WantedMember::member(boot) }
    }
}

/// A candidate that lacks no more records than this is waited for from then on.
const NEAR_RECORDS: u64 = 4096;

impl Default for CommitRule {
    fn default() -> CommitRule {
        CommitRule {
            is_on: AtomicBool::new(false),
            bound: AtomicU64::new(0),
            stream_bound: AtomicU64::new(0),
            from_ms: AtomicU64::new(u64::MAX),
            until_ms: AtomicU64::new(0),
            table: Mutex::new(CommitTable {
                numbers: StreamNumbers::new(1, 1),
                fed: 0,
                synced: None,
                committed: 0,
                is_frozen: false,
                wanted: Vec::new(),
                measured: None,
            }),
            waits: Histogram::default(),
            waits_nanos: AtomicU64::new(0),
        }
    }
}

impl CommitRule {
    /// The bound for output, in sequences of the journal: 0 while there is no lease; `None`: output does not wait.
    #[inline]
    pub fn committed_before(&self) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        // The bound first: it was reached while the lease lasted if that lasts now.
        let bound = self.bound.load(SeqCst);
        Some(if self.has_lease() { bound } else { 0 })
    }

    /// Returns true if output waits for others.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(SeqCst)
    }

    /// Returns true if the leader may answer now.
    pub fn has_lease(&self) -> bool {
        let now_ms = boot_ms();
        self.from_ms.load(SeqCst) <= now_ms && now_ms < self.until_ms.load(SeqCst)
    }

    /// The sequence of the stream below which all is committed.
    pub fn committed_stream(&self) -> u64 {
        self.stream_bound.load(SeqCst)
    }

    /// Records that are not committed yet.
    pub fn waiting(&self) -> u64 {
        let table = lock(&self.table);
        table.fed.saturating_sub(table.committed)
    }

    /// Milliseconds that the lease lasts; `None`: without end.
    pub fn lease_left_ms(&self) -> Option<u64> {
        let until_ms = self.until_ms.load(SeqCst);
        (until_ms != u64::MAX).then(|| until_ms.saturating_sub(boot_ms()))
    }

    /// A reign begins: the stream is at `next`, and everything so far counts as committed.
    pub fn begin(&self, next: u64, numbers: &StreamNumbers) {
        let mut table = lock(&self.table);
        *table = CommitTable {
            numbers: numbers.clone(),
            fed: next,
            synced: table.synced,
            committed: next,
            is_frozen: table.is_frozen,
            wanted: std::mem::take(&mut table.wanted),
            measured: None,
        };
        self.stream_bound.store(next, SeqCst);
        self.bound.store(table.numbers.journal_of(next), SeqCst);
    }

    /// Has output wait for members, unless their number is 0.
    pub fn wait_for(&self, acks: u32) {
        self.is_on.store(acks > 0, SeqCst);
    }

    /// Has output wait no longer: all that waits leaves.
    pub fn let_go(&self) {
        self.is_on.store(false, SeqCst);
    }

    /// Commits nothing more for now.
    pub fn freeze(&self) {
        lock(&self.table).is_frozen = true;
    }

    /// Returns true if nothing more is committed for now.
    pub fn is_frozen(&self) -> bool {
        lock(&self.table).is_frozen
    }

    /// Goes on; returns whether more is committed.
    pub fn thaw(&self) -> bool {
        let mut table = lock(&self.table);
        table.is_frozen = false;
        self.count(&mut table)
    }

    /// Takes the lease; returns whether it has come back after it was over.
    pub fn set_lease(&self, window: ServeWindow) -> bool {
        let had = self.has_lease();
        self.from_ms.store(window.from_ms, SeqCst);
        self.until_ms.store(window.until_ms, SeqCst);
        !had && self.has_lease()
    }

    /// Takes the members whose acknowledgements are required; returns whether more is committed.
    pub fn set_wanted(&self, wanted: &[WantedMember]) -> bool {
        let mut table = lock(&self.table);
        let old = std::mem::take(&mut table.wanted);
        // What is known of one that stays, stays: also that it holds back, when its connection is gone.
        let stays = |new: &WantedMember| {
            let known = old.iter().find(|known| known.boot == new.boot);
            known.map_or(*new, |known| WantedMember { is_candidate: new.is_candidate, ..*known })
        };
        table.wanted = wanted.iter().map(stays).collect();
        self.count(&mut table)
    }

    /// The stream has every record below `next`; returns whether more is committed.
    pub fn note_fed(&self, next: u64, numbers: &StreamNumbers) -> bool {
        let mut table = lock(&self.table);
        if table.numbers != *numbers {
            table.numbers = numbers.clone();
        }
        if next > table.fed {
            table.fed = next;
            // One at a time is measured: looking at the clock for each would cost more than it tells.
            if table.measured.is_none() && self.is_on() {
                table.measured = Some((next, Instant::now()));
            }
        }
        self.count(&mut table)
    }

    /// Records of the journal below `synced` are on this server's disk, which counts from then on; returns whether more is
    /// committed.
    pub fn note_synced(&self, synced: u64) -> bool {
        let mut table = lock(&self.table);
        table.synced = table.synced.max(Some(synced));
        self.count(&mut table)
    }

    /// A member has every record below `next`; returns whether more is committed.
    pub fn note_acked(&self, boot: &ReplId, next: u64) -> bool {
        let mut table = lock(&self.table);
        let Some(member) = table.wanted.iter_mut().find(|member| member.boot == *boot) else { return false };
        member.acked = member.acked.max(next);
        self.count(&mut table)
    }

    /// Returns true if nothing is answered without a member's acknowledgement, and it has everything that was.
    pub fn is_required(&self, boot: &ReplId) -> bool {
        let table = lock(&self.table);
        let has_all = |member: &WantedMember| member.holds_back && member.acked >= table.committed;
        table.wanted.iter().any(|member| member.boot == *boot && has_all(member))
    }

    /// The members that the store may have.
    pub fn members(&self) -> Vec<ReplId> {
        let table = lock(&self.table);
        table.wanted.iter().filter(|member| !member.is_candidate).map(|member| member.boot).collect()
    }

    fn count(&self, table: &mut CommitTable) -> bool {
        let fed = table.fed;
        // The stream knows the places of records that it has, no others.
        let mut low = table.synced.map_or(fed, |synced| fed.min(table.numbers.stream_of(synced)));
        for member in &mut table.wanted {
            let is_near = member.acked > 0 && member.acked.saturating_add(NEAR_RECORDS) >= fed;
            // One that the store has counts even while it has told nothing.
            member.holds_back |= is_near || !member.is_candidate;
            if member.holds_back {
                low = low.min(member.acked);
            }
        }
        if table.is_frozen || low <= table.committed {
            return false;
        }
        table.committed = low;
        if let Some((_, since)) = table.measured.take_if(|(next, _)| *next <= low) {
            let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.waits.add(nanos);
            self.waits_nanos.fetch_add(nanos, Relaxed);
        }
        self.stream_bound.store(low, SeqCst);
        self.bound.store(table.numbers.journal_of(low), SeqCst);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(digit: char) -> ReplId {
        ReplId::parse(digit.to_string().repeat(40).as_bytes()).expect("forty digits")
    }

    fn rule() -> CommitRule {
        let rule = CommitRule::default();
        // The stream is ten behind the journal.
        rule.begin(100, &StreamNumbers::new(110, 100));
        rule.wait_for(1);
        rule.set_lease(ServeWindow { from_ms: 0, until_ms: u64::MAX });
        rule
    }

    #[test]
    fn nothing_is_committed_that_a_required_member_lacks() {
        let (rule, numbers) = (rule(), StreamNumbers::new(110, 100));
        assert_eq!(rule.committed_before(), Some(110));
        assert!(rule.note_fed(105, &numbers), "nobody else is required");
        assert_eq!(rule.committed_before(), Some(115));
        rule.set_wanted(&[WantedMember::candidate(id('a'))]);
        rule.note_fed(107, &numbers);
        assert_eq!(rule.committed_before(), Some(117), "a candidate that has told nothing");
        assert!(!rule.note_acked(&id('a'), 104) && !rule.is_required(&id('a')), "it lacks what was answered");
        assert!(!rule.note_fed(110, &numbers), "it is waited for from then on");
        assert!(!rule.note_acked(&id('a'), 107) && rule.is_required(&id('a')));
        assert!(rule.note_acked(&id('a'), 109));
        assert_eq!((rule.committed_before(), rule.committed_stream()), (Some(119), 109));
        // It is in the store now, and its connection ends: what it has told stays.
        rule.set_wanted(&[WantedMember::member(id('a'))]);
        assert!(!rule.note_fed(120, &numbers) && !rule.note_acked(&id('b'), 120));
        assert_eq!(rule.committed_before(), Some(119));
        assert!(rule.set_wanted(&[]), "it has left");
        assert_eq!(rule.committed_before(), Some(130));
    }

    #[test]
    fn where_disks_count_the_own_one_does_too() {
        let (rule, numbers) = (rule(), StreamNumbers::new(110, 100));
        assert!(!rule.note_synced(110));
        rule.set_wanted(&[WantedMember::member(id('a'))]);
        assert!(!rule.note_fed(120, &numbers) && !rule.note_acked(&id('a'), 120));
        assert_eq!(rule.committed_before(), Some(110));
        assert!(rule.note_synced(117));
        assert_eq!((rule.committed_before(), rule.committed_stream()), (Some(117), 107));
        assert!(!rule.note_synced(112), "it never falls");
        // A sync of what the stream has not got yet commits no more than the stream has.
        assert!(rule.note_synced(200));
        assert_eq!(rule.committed_stream(), 120);
    }

    #[test]
    fn a_member_of_the_store_that_tells_nothing_holds_all_back() {
        let (rule, numbers) = (rule(), StreamNumbers::new(110, 100));
        rule.set_wanted(&[WantedMember::member(id('a'))]);
        assert!(!rule.note_fed(120, &numbers));
        assert_eq!(rule.committed_before(), Some(110));
        assert!(rule.note_acked(&id('a'), 115), "as one that was a member before this server led");
        assert_eq!(rule.committed_before(), Some(125));
    }

    #[test]
    fn the_wait_of_a_change_ends_with_the_last_acknowledgement() {
        let (rule, numbers) = (rule(), StreamNumbers::new(110, 100));
        rule.set_wanted(&[WantedMember::member(id('a')), WantedMember::member(id('b'))]);
        let measured = || {
            let mut sum = crate::stats::histogram::Sum::default();
            sum.add(&rule.waits);
            sum.count()
        };
        rule.note_fed(105, &numbers);
        rule.note_acked(&id('a'), 105);
        rule.note_acked(&id('b'), 104);
        assert_eq!(measured(), 0, "a member lacks a record of it");
        rule.note_fed(108, &numbers);
        rule.note_acked(&id('b'), 106);
        rule.note_acked(&id('a'), 106);
        assert_eq!(measured(), 1);
        assert!(rule.waits_nanos.load(Relaxed) > 0);
    }

    #[test]
    fn nothing_leaves_without_a_lease_or_while_it_is_frozen() {
        let (rule, numbers) = (rule(), StreamNumbers::new(110, 100));
        rule.freeze();
        assert!(!rule.note_fed(120, &numbers));
        assert!(rule.thaw());
        rule.set_lease(ServeWindow { from_ms: 0, until_ms: 1 });
        assert_eq!(rule.committed_before(), Some(0));
        assert!(rule.set_lease(ServeWindow { from_ms: 0, until_ms: u64::MAX }));
        assert_eq!(rule.committed_before(), Some(130));
        rule.let_go();
        assert_eq!(rule.committed_before(), None);
    }
}
