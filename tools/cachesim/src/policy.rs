//! The policies that Darter's is compared with, written for clearness of the rule, not for speed.

use darter_base::rng::Rng;

use crate::list::{Links, List};
use crate::trace::Trace;

/// A cache that is asked for one object after another and loads what it lacks.
pub trait Cache {
    /// The request number `at` of `trace`, for object `id`; returns whether it was there. It is there afterwards,
    /// unless the cache declines it.
    fn request(&mut self, trace: &Trace, at: usize, id: u32) -> bool;
}

/// First in, first out; with `moves`, least recently used.
pub struct Lru {
    links: Links,
    list: List,
    held: Vec<bool>,
    capacity: u64,
    moves: bool,
}

impl Lru {
    /// FIFO, or LRU if `moves`.
    pub fn new(trace: &Trace, capacity: u64, moves: bool) -> Lru {
        let objects = trace.sizes.len();
        Lru { links: Links::new(objects), list: List::EMPTY, held: vec![false; objects], capacity, moves }
    }
}

impl Cache for Lru {
    fn request(&mut self, trace: &Trace, _: usize, id: u32) -> bool {
        let size = trace.sizes[id as usize];
        if self.held[id as usize] {
            if self.moves {
                self.links.remove(&mut self.list, id, size);
                self.links.push(&mut self.list, id, size);
            }
            return true;
        }
        self.held[id as usize] = true;
        self.links.push(&mut self.list, id, size);
        while self.list.bytes > self.capacity {
            let Some(oldest) = self.list.oldest() else { break };
            self.links.remove(&mut self.list, oldest, trace.sizes[oldest as usize]);
            self.held[oldest as usize] = false;
        }
        false
    }
}

/// Redis' sampling: of five random objects and the best of earlier samples, the least recently or least often used.
pub struct Sampled {
    objects: Vec<u32>,
    place: Vec<u32>,
    // Request of the last use, and Redis' logarithmic counter with the request of its last decay.
    used_at: Vec<u32>,
    counter: Vec<u8>,
    decayed_at: Vec<u32>,
    pool: Vec<(u64, u32)>,
    held: u64,
    capacity: u64,
    by_count: bool,
    rng: Rng,
}

const NOWHERE: u32 = u32::MAX;
/// `maxmemory-samples` and the size of Redis' pool.
const SAMPLES: usize = 5;
const POOL_LEN: usize = 16;
/// A counter falls by one in a minute: so many requests at 10,000 a second.
const DECAY_REQUESTS: u32 = 600_000;

impl Sampled {
    /// LRU, or LFU if `by_count`.
    pub fn new(trace: &Trace, capacity: u64, by_count: bool) -> Sampled {
        let objects = trace.sizes.len();
        Sampled {
            objects: Vec::new(),
            place: vec![NOWHERE; objects],
            used_at: vec![0; objects],
            counter: vec![0; objects],
            decayed_at: vec![0; objects],
            pool: Vec::new(),
            held: 0,
            capacity,
            by_count,
            rng: Rng::new(7),
        }
    }

    fn count_of(&self, id: u32, at: u32) -> u8 {
        let minutes = (at - self.decayed_at[id as usize]) / DECAY_REQUESTS;
        self.counter[id as usize].saturating_sub(minutes.min(255) as u8)
    }

    /// Higher goes first.
    fn score(&self, id: u32, at: u32) -> u64 {
        if self.by_count {
            return 255 - u64::from(self.count_of(id, at));
        }
        u64::from(at - self.used_at[id as usize])
    }

    fn evict(&mut self, trace: &Trace, at: u32) {
        loop {
            for _ in 0..SAMPLES {
                let id = self.objects[self.rng.below(self.objects.len() as u64) as usize];
                let score = self.score(id, at);
                if self.pool.iter().any(|&(_, pooled)| pooled == id) {
                    continue;
                }
                let place = self.pool.partition_point(|&(pooled, _)| pooled < score);
                if self.pool.len() < POOL_LEN {
                    self.pool.insert(place, (score, id));
                } else if place > 0 {
                    self.pool.insert(place, (score, id));
                    self.pool.remove(0);
                }
            }
            while let Some((_, id)) = self.pool.pop() {
                let place = self.place[id as usize];
                if place == NOWHERE {
                    continue;
                }
                self.objects.swap_remove(place as usize);
                if let Some(&moved) = self.objects.get(place as usize) {
                    self.place[moved as usize] = place;
                }
                self.place[id as usize] = NOWHERE;
                self.held -= u64::from(trace.sizes[id as usize]);
                return;
            }
        }
    }
}

impl Cache for Sampled {
    fn request(&mut self, trace: &Trace, at: usize, id: u32) -> bool {
        let (n, at) = (id as usize, at as u32);
        let is_hit = self.place[n] != NOWHERE;
        if is_hit {
            let count = self.count_of(id, at);
            let base = f64::from(count.saturating_sub(5));
            let rises = (self.rng.next_u64() as f64 / u64::MAX as f64) < 1.0 / (base * 10.0 + 1.0);
            self.counter[n] = count.saturating_add(u8::from(rises));
        } else {
            while self.held + u64::from(trace.sizes[n]) > self.capacity && !self.objects.is_empty() {
                self.evict(trace, at);
            }
            self.place[n] = self.objects.len() as u32;
            self.objects.push(id);
            self.held += u64::from(trace.sizes[n]);
            self.counter[n] = 5;
        }
        (self.used_at[n], self.decayed_at[n]) = (at, at);
        is_hit
    }
}

/// 2Q: a quarter first in, first out; what comes back within as many again goes to an LRU part.
pub struct TwoQueues {
    links: Links,
    recent: List,
    gone: List,
    main: List,
    place: Vec<u8>,
    capacity: u64,
}

const RECENT: u8 = 1;
const GONE: u8 = 2;
const MAIN: u8 = 3;

impl TwoQueues {
    /// An empty one.
    pub fn new(trace: &Trace, capacity: u64) -> TwoQueues {
        let objects = trace.sizes.len();
        let (recent, gone, main) = (List::EMPTY, List::EMPTY, List::EMPTY);
        TwoQueues { links: Links::new(objects), recent, gone, main, place: vec![0; objects], capacity }
    }
}

impl Cache for TwoQueues {
    fn request(&mut self, trace: &Trace, _: usize, id: u32) -> bool {
        let size = |id: u32| trace.sizes[id as usize];
        match self.place[id as usize] {
            MAIN => {
                self.links.remove(&mut self.main, id, size(id));
                self.links.push(&mut self.main, id, size(id));
                return true;
            }
            RECENT => return true,
            GONE => {
                self.links.remove(&mut self.gone, id, size(id));
                self.links.push(&mut self.main, id, size(id));
                self.place[id as usize] = MAIN;
            }
            _ => {
                self.links.push(&mut self.recent, id, size(id));
                self.place[id as usize] = RECENT;
            }
        }
        while self.recent.bytes + self.main.bytes > self.capacity {
            let from_recent = self.recent.bytes > self.capacity / 4 || self.main.len == 0;
            let list = if from_recent { &mut self.recent } else { &mut self.main };
            let Some(oldest) = list.oldest() else { break };
            self.links.remove(list, oldest, size(oldest));
            self.place[oldest as usize] = 0;
            if from_recent {
                self.links.push(&mut self.gone, oldest, size(oldest));
                self.place[oldest as usize] = GONE;
                while self.gone.bytes > self.capacity / 2 {
                    let Some(oldest) = self.gone.oldest() else { break };
                    self.links.remove(&mut self.gone, oldest, size(oldest));
                    self.place[oldest as usize] = 0;
                }
            }
        }
        false
    }
}

/// SIEVE: first in, first out, where a hand passes over what was hit since it last came by.
pub struct Sieve {
    links: Links,
    list: List,
    held: Vec<bool>,
    was_hit: Vec<bool>,
    hand: Option<u32>,
    capacity: u64,
}

impl Sieve {
    /// An empty one.
    pub fn new(trace: &Trace, capacity: u64) -> Sieve {
        let objects = trace.sizes.len();
        Sieve {
            links: Links::new(objects),
            list: List::EMPTY,
            held: vec![false; objects],
            was_hit: vec![false; objects],
            hand: None,
            capacity,
        }
    }
}

impl Cache for Sieve {
    fn request(&mut self, trace: &Trace, _: usize, id: u32) -> bool {
        let size = trace.sizes[id as usize];
        if self.held[id as usize] {
            self.was_hit[id as usize] = true;
            return true;
        }
        while self.list.bytes + u64::from(size) > self.capacity {
            let Some(mut at) = self.hand.or(self.list.oldest()) else { break };
            while std::mem::take(&mut self.was_hit[at as usize]) {
                let Some(next) = self.links.newer(at).or(self.list.oldest()) else { break };
                at = next;
            }
            self.hand = self.links.newer(at);
            self.links.remove(&mut self.list, at, trace.sizes[at as usize]);
            self.held[at as usize] = false;
        }
        self.held[id as usize] = true;
        self.was_hit[id as usize] = false;
        self.links.push(&mut self.list, id, size);
        false
    }
}

/// What may be chosen of S3-FIFO.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// The small queue, in percent of the cache.
    pub small_percent: u64,
    /// What has gone and is remembered, in percent of the cache.
    pub gone_percent: u64,
    /// Hits in the small queue that lead to the main part.
    pub hits: u8,
}

impl Tuning {
    /// As published: a tenth small, ghosts as many as the main part has objects.
    pub const PUBLISHED: Tuning = Tuning { small_percent: 10, gone_percent: 90, hits: 2 };
}

/// S3-FIFO.
pub struct S3Fifo {
    tuning: Tuning,
    links: Links,
    small: List,
    main: List,
    gone: List,
    place: Vec<u8>,
    hits: Vec<u8>,
    capacity: u64,
}

impl S3Fifo {
    /// An empty one.
    pub fn new(trace: &Trace, capacity: u64, tuning: Tuning) -> S3Fifo {
        let objects = trace.sizes.len();
        let (small, main, gone) = (List::EMPTY, List::EMPTY, List::EMPTY);
        S3Fifo {
            tuning,
            links: Links::new(objects),
            small,
            main,
            gone,
            place: vec![0; objects],
            hits: vec![0; objects],
            capacity,
        }
    }

    fn evict(&mut self, trace: &Trace) {
        let size = |id: u32| trace.sizes[id as usize];
        if self.small.bytes > self.capacity * self.tuning.small_percent / 100 || self.main.len == 0 {
            let Some(oldest) = self.small.oldest() else { return };
            self.links.remove(&mut self.small, oldest, size(oldest));
            if self.hits[oldest as usize] >= self.tuning.hits {
                self.links.push(&mut self.main, oldest, size(oldest));
                (self.place[oldest as usize], self.hits[oldest as usize]) = (MAIN, 0);
                return;
            }
            self.links.push(&mut self.gone, oldest, size(oldest));
            self.place[oldest as usize] = GONE;
            while self.gone.bytes > self.capacity * self.tuning.gone_percent / 100 {
                let Some(oldest) = self.gone.oldest() else { break };
                self.links.remove(&mut self.gone, oldest, size(oldest));
                self.place[oldest as usize] = 0;
            }
            return;
        }
        let Some(oldest) = self.main.oldest() else { return };
        self.links.remove(&mut self.main, oldest, size(oldest));
        if self.hits[oldest as usize] > 0 {
            self.hits[oldest as usize] -= 1;
            self.links.push(&mut self.main, oldest, size(oldest));
        } else {
            self.place[oldest as usize] = 0;
        }
    }
}

impl Cache for S3Fifo {
    fn request(&mut self, trace: &Trace, _: usize, id: u32) -> bool {
        let size = trace.sizes[id as usize];
        let n = id as usize;
        if matches!(self.place[n], RECENT | MAIN) {
            self.hits[n] = (self.hits[n] + 1).min(3);
            return true;
        }
        let was_gone = self.place[n] == GONE;
        if was_gone {
            self.links.remove(&mut self.gone, id, size);
            self.place[n] = 0;
        }
        while self.small.bytes + self.main.bytes + u64::from(size) > self.capacity {
            let before = self.small.len + self.main.len;
            self.evict(trace);
            if before == 0 {
                break;
            }
        }
        self.hits[n] = 0;
        let (list, place) = if was_gone { (&mut self.main, MAIN) } else { (&mut self.small, RECENT) };
        self.links.push(list, id, size);
        self.place[n] = place;
        false
    }
}

/// The offline optimum for objects of one size: what is asked for last goes.
pub struct Belady {
    next: Vec<u32>,
    held: std::collections::BTreeSet<(u32, u32)>,
    due: Vec<u32>,
    bytes: u64,
    capacity: u64,
}

impl Belady {
    /// Looks at the whole trace ahead.
    pub fn new(trace: &Trace, capacity: u64) -> Belady {
        let mut next = vec![u32::MAX; trace.requests.len()];
        let mut last = vec![u32::MAX; trace.sizes.len()];
        for (at, &id) in trace.requests.iter().enumerate().rev() {
            next[at] = last[id as usize];
            last[id as usize] = at as u32;
        }
        Belady { next, held: Default::default(), due: vec![0; trace.sizes.len()], bytes: 0, capacity }
    }
}

impl Cache for Belady {
    fn request(&mut self, trace: &Trace, at: usize, id: u32) -> bool {
        let n = id as usize;
        let is_hit = self.held.remove(&(self.due[n], id));
        if !is_hit {
            self.bytes += u64::from(trace.sizes[n]);
        }
        self.due[n] = self.next[at];
        self.held.insert((self.due[n], id));
        while self.bytes > self.capacity {
            let Some((_, gone)) = self.held.pop_last() else { break };
            self.bytes -= u64::from(trace.sizes[gone as usize]);
        }
        is_hit
    }
}
