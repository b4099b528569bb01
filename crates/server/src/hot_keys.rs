//! Which keys take the most time and bytes, while somebody wants to know (HOTKEYS).
//!
//! `timing` and `large` note each call with keys; all calls take the timed way then. Each thread has tables of its own,
//! which GET adds up. A table holds the heaviest keys and forgets light ones: what it says of a key is at most what the key
//! took, and falls short of it by at most a part in `tracked` of all that was noted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use darter_base::crc::key_slot;
use darter_base::rng::Rng;
use darter_reactor::process::{self, CpuTimes};
use darter_wire::Args;

use crate::clock::unix_ms;
use crate::registry::CommandEntry;
use crate::sync::lock;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct HotKeysWish {
    /// Time on a core is measured.
    pub cpu: bool,
    /// Bytes of requests and replies are.
    pub net: bool,
    /// Keys to answer.
    pub count: usize,
    /// Milliseconds after which it ends by itself; 0 is never.
    pub duration_ms: u64,
    /// One call in so many is noted.
    pub ratio: u32,
    /// The only slots whose keys are noted, as sorted ranges.
    pub slots: Option<Vec<(u16, u16)>>,
}

/// What all threads know of it.
#[derive(Debug)]
pub struct HotKeys {
    is_on: AtomicBool,
    tracking: Mutex<Option<Arc<HotKeyTracking>>>,
    threads: Box<[Mutex<Notes>]>,
}

/// One time of tracking, from START to RESET.
#[derive(Debug)]
pub struct HotKeyTracking {
    /// What was asked for.
    pub wish: HotKeysWish,
    /// When it began, Unix milliseconds.
    pub began_ms: u64,
    began_cpu: CpuTimes,
    ended: Mutex<Option<u64>>,
}

/// What one thread has noted.
#[derive(Debug)]
struct Notes {
    tracking: Option<Arc<HotKeyTracking>>,
    rng: Rng,
    sums: Sums,
    time: HotKeyTable,
    bytes: HotKeyTable,
}

impl Default for Notes {
    fn default() -> Notes {
        let (sums, time, bytes) = Default::default();
        Notes { tracking: None, rng: Rng::new(0), sums, time, bytes }
    }
}

/// Nanoseconds and bytes of calls with keys.
#[derive(Clone, Copy, Default, Debug)]
pub struct Sums {
    /// All of them.
    pub all: Amount,
    /// Those with keys of the slots asked for.
    pub selected: Amount,
    /// Those of them that were noted.
    pub sampled: Amount,
}

/// What calls took.
#[derive(Clone, Copy, Default, Debug)]
pub struct Amount {
    /// Nanoseconds.
    pub time_ns: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, other: Amount) {
        self.time_ns += other.time_ns;
        self.bytes += other.bytes;
    }
}

/// The heaviest of many keys.
#[derive(Default, Debug)]
struct HotKeyTable {
    weights: HashMap<Box<[u8]>, u64>,
    total: u64,
}

impl HotKeyTable {
    /// Adds to the weight of a key. `tracked` keys are kept at least.  Cost: amortised O(1).
    fn add(&mut self, key: &[u8], weight: u64, tracked: usize) {
        self.total += weight;
        if let Some(sum) = self.weights.get_mut(key) {
            *sum += weight;
            return;
        }
        if key.len() > KEY_LEN_MAX {
            return;
        }
        if self.weights.len() >= 2 * tracked {
            self.forget_light_ones(tracked);
        }
        self.weights.insert(key.into(), weight);
    }

    /// Takes the weight of the heaviest key beyond `tracked` from all, and leaves out those with nothing left.
    fn forget_light_ones(&mut self, tracked: usize) {
        let mut sums: Vec<u64> = self.weights.values().copied().collect();
        let (_, &mut light, _) = sums.select_nth_unstable_by(tracked, |a, b| b.cmp(a));
        self.weights.retain(|_, sum| {
            *sum = sum.saturating_sub(light);
            *sum > 0
        });
    }
}

/// What GET answers.
pub struct FoundHotKeys {
    /// The time of tracking it is about.
    pub tracking: Arc<HotKeyTracking>,
    /// It goes on.
    pub is_active: bool,
    /// How long it went on, or has gone on so far.
    pub duration_ms: u64,
    /// Time of the process since it began, up to now.
    pub cpu: CpuTimes,
    /// What calls took.
    pub sums: Sums,
    /// Bytes of the calls noted.
    pub net_total: u64,
    /// Keys and their nanoseconds, the heaviest first.
    pub by_time: Vec<(Box<[u8]>, u64)>,
    /// Keys and their bytes.
    pub by_bytes: Vec<(Box<[u8]>, u64)>,
}

impl HotKeys {
    /// Nothing is tracked.
    pub fn new(threads: usize) -> HotKeys {
        HotKeys {
            is_on: AtomicBool::new(false),
            tracking: Mutex::default(),
            threads: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    /// Whether calls are noted. Ends tracking whose time is over.
    #[inline]
    pub fn is_on(&self, now_ms: u64) -> bool {
        self.is_on.load(Relaxed) && self.goes_on(now_ms)
    }

    #[cold]
    fn goes_on(&self, now_ms: u64) -> bool {
        let tracking = lock(&self.tracking);
        let Some(current) = tracking.as_ref() else { return false };
        let until_ms = match current.wish.duration_ms {
            0 => u64::MAX,
            duration_ms => current.began_ms.saturating_add(duration_ms),
        };
        if now_ms >= until_ms {
            self.end(current, until_ms);
        }
        self.is_on.load(Relaxed)
    }

    fn end(&self, tracking: &HotKeyTracking, at_ms: u64) {
        self.is_on.store(false, Relaxed);
        lock(&tracking.ended).get_or_insert(at_ms);
    }

    /// Begins anew; false: it goes on already.
    pub fn start(&self, wish: HotKeysWish) -> bool {
        if self.is_on(unix_ms()) {
            return false;
        }
        let (began_ms, began_cpu) = (unix_ms(), process::cpu_times());
        let tracking = Arc::new(HotKeyTracking { wish, began_ms, began_cpu, ended: Mutex::default() });
        for (nth, notes) in self.threads.iter().enumerate() {
            let rng = Rng::new(began_ms ^ ((nth as u64 + 1) << 48));
            *lock(notes) = Notes { tracking: Some(tracking.clone()), rng, ..Notes::default() };
        }
        *lock(&self.tracking) = Some(tracking);
        self.is_on.store(true, Relaxed);
        true
    }

    /// Ends it and keeps what was noted; false: nothing is tracked.
    pub fn stop(&self) -> bool {
        let now_ms = unix_ms();
        if !self.is_on(now_ms) {
            return false;
        }
        if let Some(tracking) = lock(&self.tracking).as_ref() {
            self.end(tracking, now_ms);
        }
        true
    }

    /// Forgets what was noted; false: it goes on.
    pub fn reset(&self) -> bool {
        if self.is_on(unix_ms()) {
            return false;
        }
        *lock(&self.tracking) = None;
        self.threads.iter().for_each(|notes| *lock(notes) = Notes::default());
        true
    }

    /// Notes how long a call took that `thread` has run.
    #[inline]
    pub fn note_time(&self, thread: u16, entry: &CommandEntry, args: Args<'_>, took: Duration) {
        if self.is_on.load(Relaxed) {
            let time_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.note(thread, entry, args, Amount { time_ns, bytes: 0 });
        }
    }

    /// Notes the bytes of a call, its reply being of `reply_bytes`.
    #[inline]
    pub fn note_bytes(&self, thread: u16, entry: &CommandEntry, args: Args<'_>, reply_bytes: usize) {
        if self.is_on.load(Relaxed) {
            let bytes = (request_bytes(args) + reply_bytes) as u64;
            self.note(thread, entry, args, Amount { time_ns: 0, bytes });
        }
    }

    #[cold]
    fn note(&self, thread: u16, entry: &CommandEntry, args: Args<'_>, amount: Amount) {
        let Some(notes) = self.threads.get(usize::from(thread)) else { return };
        let (mut keys, mut selected) = (0, false);
        let mut notes: MutexGuard<'_, Notes> = lock(notes);
        let Some(tracking) = notes.tracking.clone() else { return };
        let wish = &tracking.wish;
        entry.spec.each_key(args, &mut |at| {
            keys += 1;
            selected |= wish.wants(args.at(at));
        });
        if keys == 0 {
            return;
        }
        let is_sampled = wish.ratio <= 1 || notes.rng.below(u64::from(wish.ratio)) == 0;
        notes.sums.all.add(amount);
        if selected {
            notes.sums.selected.add(amount);
            if is_sampled {
                notes.sums.sampled.add(amount);
            }
        }
        if !selected || !is_sampled {
            return;
        }
        let tracked = wish.count * KEYS_PER_ASKED;
        let (time_ns, bytes) = (amount.time_ns / keys, amount.bytes / keys);
        entry.spec.each_key(args, &mut |at| {
            let key = args.at(at);
            if wish.cpu && time_ns > 0 && wish.wants(key) {
                notes.time.add(key, time_ns, tracked);
            }
            if wish.net && bytes > 0 && wish.wants(key) {
                notes.bytes.add(key, bytes, tracked);
            }
        });
    }

    /// What was found so far; `None`: nothing was tracked.
    pub fn found(&self) -> Option<FoundHotKeys> {
        let now_ms = unix_ms();
        let is_active = self.is_on(now_ms);
        let tracking = lock(&self.tracking).clone()?;
        let (mut sums, mut time, mut bytes) =
            (Sums::default(), HotKeyTable::default(), HotKeyTable::default());
        for notes in &self.threads {
            let notes = lock(notes);
            sums.all.add(notes.sums.all);
            sums.selected.add(notes.sums.selected);
            sums.sampled.add(notes.sums.sampled);
            for (all, one) in [(&mut time, &notes.time), (&mut bytes, &notes.bytes)] {
                one.weights.iter().for_each(|(key, weight)| all.add(key, *weight, usize::MAX / 2));
                all.total += one.total - one.weights.values().sum::<u64>();
            }
        }
        let count = tracking.wish.count;
        let end_ms = lock(&tracking.ended).unwrap_or(now_ms);
        let cpu = process::cpu_times();
        let since = |now: Duration, then: Duration| now.saturating_sub(then);
        let cpu = CpuTimes {
            user: since(cpu.user, tracking.began_cpu.user),
            system: since(cpu.system, tracking.began_cpu.system),
        };
        Some(FoundHotKeys {
            is_active,
            duration_ms: end_ms.saturating_sub(tracking.began_ms),
            cpu,
            sums,
            net_total: bytes.total,
            by_time: heaviest(time, count),
            by_bytes: heaviest(bytes, count),
            tracking,
        })
    }
}

impl HotKeysWish {
    fn wants(&self, key: &[u8]) -> bool {
        let Some(slots) = &self.slots else { return true };
        let slot = key_slot(key);
        slots.iter().any(|&(first, last)| (first..=last).contains(&slot))
    }
}

fn heaviest(table: HotKeyTable, count: usize) -> Vec<(Box<[u8]>, u64)> {
    let mut all: Vec<_> = table.weights.into_iter().collect();
    all.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all.truncate(count);
    all
}

/// Bytes of a request as clients send it.
pub(crate) fn request_bytes(args: Args<'_>) -> usize {
    let head = |n: usize| 3 + digits(n);
    head(args.len()) + args.iter().map(|arg| head(arg.len()) + arg.len() + 2).sum::<usize>()
}

fn digits(n: usize) -> usize {
    n.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Keys kept for each that is asked for.
const KEYS_PER_ASKED: usize = 10;
/// Longer keys count in sums only.
const KEY_LEN_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_keys_survive_many_light_ones() {
        let mut table = HotKeyTable::default();
        let mut rng = Rng::new(7);
        for _ in 0..100_000 {
            let nth = rng.below(10);
            if nth < 3 {
                table.add(format!("heavy{nth}").as_bytes(), 10, 10);
            } else {
                table.add(format!("light{}", rng.below(50_000)).as_bytes(), 1, 10);
            }
            assert!(table.weights.len() <= 20);
        }
        let total = table.total;
        let found = heaviest(table, 3);
        assert!(found.iter().all(|(key, _)| key.starts_with(b"heavy")), "{found:?}");
        // Each took some 100,000 of 370,000; a tenth of all is the most that is missing.
        assert!(
            found.iter().all(|(_, weight)| *weight > 90_000 - total / 10 && *weight < 110_000),
            "{found:?}"
        );
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut table = HotKeyTable::default();
        for nth in 0..20 {
            for _ in 0..=nth {
                table.add(format!("k{nth}").as_bytes(), 2, 10);
            }
        }
        let found = heaviest(table, 20);
        assert_eq!(found.first().map(|(key, n)| (&**key, *n)), Some((b"k19".as_slice(), 40)));
        assert_eq!(found.last().map(|(key, n)| (&**key, *n)), Some((b"k0".as_slice(), 2)));
    }

    #[test]
    fn a_request_has_the_length_it_has_on_the_wire() {
        let args = darter_wire::OwnedArgs::from_slices(&[b"SET", b"key", &[0; 100]]);
        let wire = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$100\r\n".len() + 102;
        assert_eq!(request_bytes(args.args()), wire);
    }
}
