//! W-TinyLFU: a small LRU window, a segmented LRU behind it, and a sketch of how often objects are asked for that
//! decides who may enter.

use crate::list::{Links, List};
use crate::policy::Cache;
use crate::trace::Trace;

const WINDOW: u8 = 1;
const PROBATION: u8 = 2;
const PROTECTED: u8 = 3;

/// Four rows of four-bit counters, halved after ten times as many requests as there are counters in a row.
struct Sketch {
    rows: [Vec<u8>; 4],
    mask: u64,
    seen: u64,
}

impl Sketch {
    fn new(objects: u64) -> Sketch {
        let len = objects.next_power_of_two().max(1024);
        Sketch { rows: std::array::from_fn(|_| vec![0; len as usize]), mask: len - 1, seen: 0 }
    }

    fn places(&self, id: u32) -> [usize; 4] {
        std::array::from_fn(|row| {
            let mut z =
                (u64::from(id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (row as u64 * 0x1234_5678_9abd));
            z = (z ^ z >> 31).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 29) & self.mask) as usize
        })
    }

    fn count(&self, id: u32) -> u8 {
        let places = self.places(id);
        self.rows.iter().zip(places).map(|(row, at)| row[at]).min().unwrap_or(0)
    }

    fn add(&mut self, id: u32) {
        let places = self.places(id);
        for (row, at) in self.rows.iter_mut().zip(places) {
            row[at] = (row[at] + 1).min(15);
        }
        self.seen += 1;
        if self.seen > 10 * (self.mask + 1) {
            self.rows.iter_mut().flatten().for_each(|count| *count /= 2);
            self.seen /= 2;
        }
    }
}

/// A window, and a main part behind it.
pub struct TinyLfu {
    window_percent: u64,
    links: Links,
    lists: [List; 4],
    place: Vec<u8>,
    sketch: Sketch,
    capacity: u64,
}

impl TinyLfu {
    /// For objects of `capacity` bytes, of which so much is the window: as published one percent.
    pub fn new(trace: &Trace, capacity: u64, window_percent: u64) -> TinyLfu {
        let objects = trace.sizes.len();
        let mean = trace.sizes.iter().map(|&bytes| u64::from(bytes)).sum::<u64>() / objects.max(1) as u64;
        TinyLfu {
            window_percent,
            links: Links::new(objects),
            lists: [List::EMPTY; 4],
            place: vec![0; objects],
            sketch: Sketch::new(capacity / mean.max(1)),
            capacity,
        }
    }

    fn shift(&mut self, id: u32, to: u8, size: u32) {
        let from = self.place[id as usize];
        if from != 0 {
            self.links.remove(&mut self.lists[usize::from(from)], id, size);
        }
        if to != 0 {
            self.links.push(&mut self.lists[usize::from(to)], id, size);
        }
        self.place[id as usize] = to;
    }

    fn main_bytes(&self) -> u64 {
        self.lists[usize::from(PROBATION)].bytes + self.lists[usize::from(PROTECTED)].bytes
    }
}

impl Cache for TinyLfu {
    fn request(&mut self, trace: &Trace, _: usize, id: u32) -> bool {
        let size = |id: u32| trace.sizes[id as usize];
        self.sketch.add(id);
        let place = self.place[id as usize];
        if place != 0 {
            self.shift(id, if place == WINDOW { WINDOW } else { PROTECTED }, size(id));
            let main = self.capacity / 100 * (100 - self.window_percent);
            while self.lists[usize::from(PROTECTED)].bytes > main / 10 * 8 {
                let Some(oldest) = self.lists[usize::from(PROTECTED)].oldest() else { break };
                self.shift(oldest, PROBATION, size(oldest));
            }
            return true;
        }
        self.shift(id, WINDOW, size(id));
        let window = (self.capacity * self.window_percent / 100).max(1);
        while self.lists[usize::from(WINDOW)].bytes > window {
            let Some(candidate) = self.lists[usize::from(WINDOW)].oldest() else { break };
            self.shift(candidate, 0, size(candidate));
            let mut is_in = true;
            while self.main_bytes() + u64::from(size(candidate)) > self.capacity - window {
                let victim = self.lists[usize::from(PROBATION)].oldest();
                let Some(victim) = victim.or(self.lists[usize::from(PROTECTED)].oldest()) else { break };
                if self.sketch.count(candidate) <= self.sketch.count(victim) {
                    is_in = false;
                    break;
                }
                self.shift(victim, 0, size(victim));
            }
            if is_in {
                self.shift(candidate, PROBATION, size(candidate));
            }
        }
        false
    }
}
