//! Fingerprints of recently evicted entries, five for each home line. They lie beside the segments and exist only
//! while eviction is by use. The share of them that comes back decides how long probation should last.

use crate::hash;
use crate::segment::{HOMES, IndexSegment};
use crate::victim::{Queues, VictimMode};

/// Fingerprints kept for a home line.
const KEPT: usize = 5;
/// Segments whose fingerprints are allocated together: with as many the allocator's rounding is below one percent.
const TOGETHER: usize = 20;
/// Those of the first segments are allocated one by one, so that a small index stays small.
const ALONE: usize = 8;
/// A segment of fewer entries keeps none: the fingerprints would take as much as some of them.
const REMEMBERED_MIN: usize = 48;

/// The fingerprints of one segment: per home, the latest first; 0 is an empty place.
type Rings = [[u16; KEPT]; HOMES];

/// The fingerprints and counts of one segment.
#[derive(Clone, Copy)]
struct PastMemory {
    rings: Rings,
    queues: Queues,
}

impl PastMemory {
    const EMPTY: PastMemory = PastMemory { rings: [[0; KEPT]; HOMES], queues: Queues::UNKNOWN };
}

/// The fingerprints of all segments of an index.
pub(crate) struct PastIndex {
    // Those of the first `ALONE` numbers, then those of the others.
    first: Vec<PastMemory>,
    pieces: Vec<Box<[PastMemory; TOGETHER]>>,
    len: u32,
    // Numbers below `len` that no segment has.
    free: Vec<u32>,
    // Fates of the entries evicted from probation, and from the main part.
    fates: [Fate; 2],
    // Fates since `probation` was last looked at.
    news: u32,
    // In 1/1024 of the entries. PROBATION_MIN <= probation <= PROBATION_MAX
    probation: u32,
}

/// How many entries evicted from one part came back while their fingerprints were kept.
#[derive(Copy, Clone, Default)]
struct Fate {
    known: u32,
    back: u32,
}

/// Bit of a fingerprint: the entry was evicted from the main part.
const FROM_MAIN: u16 = 1 << 15;
/// A tenth of the entries, as in S3-FIFO: the size of probation unless many evicted entries come back.
const PROBATION_MIN: u32 = 102;
/// Half of the entries: the size of probation if popularity changes quickly.
const PROBATION_MAX: u32 = 512;
/// Probation grows if entries evicted from it come back at least this many tenths as often as those from the main
/// part. With 100,000 of a million objects the ratio is 2 to 7 tenths for stable popularity, 5 to 10 at churn of 3 %,
/// and 12 at churn of 10 % with a long probation. With 8, three traces of the grid missed 1 to 4 % more; with 12,
/// churn of 10 % missed more than LRU.
const BACK_TENTHS: u64 = 10;
/// Entries evicted from the main part are remembered for one home in this many. They serve only to set the size of
/// probation: an entry that comes back gains nothing.
const ASKED_HOMES: usize = 4;
/// Fates of either part below which nothing is concluded.
const KNOWN_MIN: u32 = 100;
/// Fates per segment after which the size of probation is reconsidered. They are those of a twentieth of its entries
/// if all homes were remembered.
const NEWS_OF_SEGMENT: u32 = 5;
const NEWS_MIN: u32 = 512;

impl Default for PastIndex {
    fn default() -> PastIndex {
        PastIndex {
            first: Vec::new(),
            pieces: Vec::new(),
            len: 0,
            free: Vec::new(),
            fates: [Fate::default(); 2],
            news: 0,
            probation: PROBATION_MIN,
        }
    }
}

impl PastIndex {
    pub(crate) fn bytes(&self) -> usize {
        self.first.capacity() * size_of::<PastMemory>()
            + self.pieces.len() * size_of::<[PastMemory; TOGETHER]>()
            + self.pieces.capacity() * size_of::<usize>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Returns the present parameters of eviction. If popularity changes quickly, old hits count less and new entries
    /// get more time.
    #[inline]
    pub(crate) fn way(&self) -> VictimMode {
        VictimMode { probation: self.probation as usize, is_fickle: self.probation > PROBATION_MIN }
    }

    /// The queues of a segment that has fingerprints.
    #[inline]
    pub(crate) fn queues(&mut self, segment: &IndexSegment) -> Option<&mut Queues> {
        segment.past_id().map(|id| &mut self.memory(id).queues)
    }

    /// An entry of `segment` came (1) or went (-1).
    #[inline]
    pub(crate) fn count(&mut self, segment: &IndexSegment, is_main: bool, by: i16) {
        if let Some(queues) = self.queues(segment) {
            queues.count(is_main, by);
        }
    }

    /// Discards the counts of the segment with this number, because its entries have changed. They are counted again
    /// before the next eviction.
    pub(crate) fn forget_queues(&mut self, id: Option<u32>) {
        if let Some(id) = id {
            self.memory(id).queues = Queues::UNKNOWN;
        }
    }

    /// Notes what became of an entry of `home` that was remembered.
    fn note(&mut self, home: usize, kept: u16, came_back: bool) {
        if !home.is_multiple_of(ASKED_HOMES) {
            return;
        }
        let fate = &mut self.fates[usize::from(kept & FROM_MAIN != 0)];
        fate.known += 1;
        fate.back += u32::from(came_back);
        self.news += 1;
        if self.news >= NEWS_MIN.max(self.len * NEWS_OF_SEGMENT) {
            self.settle();
        }
    }

    /// Lengthens or shortens probation by what came back.
    #[cold]
    fn settle(&mut self) {
        self.news = 0;
        let [small, main] = self.fates;
        let is_known = small.known >= KNOWN_MIN && main.known >= KNOWN_MIN;
        let small_rate = u64::from(small.back) * u64::from(main.known);
        let main_rate = u64::from(main.back) * u64::from(small.known);
        self.probation = if is_known && 10 * small_rate > BACK_TENTHS * main_rate {
            (self.probation * 2).min(PROBATION_MAX)
        } else {
            (self.probation * 9 / 10).max(PROBATION_MIN)
        };
        for fate in &mut self.fates {
            *fate = Fate { known: fate.known - fate.known / 8, back: fate.back - fate.back / 8 };
        }
    }

    /// Remembers an entry of `segment` that is evicted from probation or, for some homes, from its main part.
    pub(crate) fn put(&mut self, segment: &mut IndexSegment, hash: u64, from_main: bool) {
        let home = hash::home(hash);
        if from_main && !home.is_multiple_of(ASKED_HOMES) {
            return;
        }
        let id = match segment.past_id() {
            Some(id) => id,
            None if segment.count() < REMEMBERED_MIN => return,
            None => self.add(),
        };
        segment.set_past_id(Some(id));
        let ring = &mut self.memory(id).rings[home];
        let oldest = ring[KEPT - 1];
        ring.copy_within(0..KEPT - 1, 1);
        ring[0] = fingerprint(hash) | if from_main { FROM_MAIN } else { 0 };
        if oldest != 0 {
            self.note(home, oldest, false);
        }
    }

    /// Returns true if an entry that comes to `segment` was recently evicted from probation. Removes its fingerprint.
    pub(crate) fn take(&mut self, segment: &IndexSegment, hash: u64) -> bool {
        let Some(id) = segment.past_id() else { return false };
        let home = hash::home(hash);
        let ring = &mut self.memory(id).rings[home];
        let Some(at) = ring.iter().position(|&kept| kept & !FROM_MAIN == fingerprint(hash)) else {
            return false;
        };
        let kept = ring[at];
        ring.copy_within(at + 1.., at);
        ring[KEPT - 1] = 0;
        self.note(home, kept, true);
        kept & FROM_MAIN == 0
    }

    /// Fingerprints for another segment, the same as those under `id`.
    pub(crate) fn copy(&mut self, id: Option<u32>) -> Option<u32> {
        let rings = self.memory(id?).rings;
        let copy = self.add();
        self.memory(copy).rings = rings;
        Some(copy)
    }

    /// Gives up the fingerprints under `id`.
    pub(crate) fn drop(&mut self, id: Option<u32>) {
        if let Some(id) = id {
            *self.memory(id) = PastMemory::EMPTY;
            self.free.push(id);
        }
    }

    fn add(&mut self) -> u32 {
        if let Some(id) = self.free.pop() {
            return id;
        }
        if self.first.len() < ALONE {
            self.first.reserve_exact(1);
            self.first.push(PastMemory::EMPTY);
        } else if self.len as usize == ALONE + self.pieces.len() * TOGETHER {
            self.pieces.push(Box::new([PastMemory::EMPTY; TOGETHER]));
        }
        self.len += 1;
        self.len - 1
    }

    fn memory(&mut self, id: u32) -> &mut PastMemory {
        match (id as usize).checked_sub(ALONE) {
            None => &mut self.first[id as usize],
            Some(at) => &mut self.pieces[at / TOGETHER][at % TOGETHER],
        }
    }
}

/// Fifteen bits of a hash that neither name its home nor, before there are 32,768 segments, its segment.
fn fingerprint(hash: u64) -> u16 {
    let low = ((hash >> 32) as u16 ^ (hash as u16).rotate_left(8)) & !FROM_MAIN;
    low + u16::from(low == 0)
}
