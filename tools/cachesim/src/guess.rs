//! What can be known of churn: a cache that remembers every request, knows how popularity is distributed and how often
//! objects are replaced, and keeps those most likely to be asked for next.
//!
//! No policy that sees only the past can be expected to do better; how far it stays behind the optimum is what nobody
//! can know. It evicts the worst of a sample, so the last thousandth is not exact.

use darter_base::rng::Rng;

use crate::policy::Cache;
use crate::trace::{Replacing, Trace};

/// Steps of the table by requests counted, and by spans of time, three to a doubling.
const COUNTS: usize = 48;
const SPANS: usize = 72;
/// Objects of which the worst goes.
const SAMPLES: usize = 100;
const NOWHERE: u32 = u32::MAX;

/// The cache. All objects count as of one size.
pub struct Guess {
    // Expected requests by requests so far, the time they took and the time since.
    rates: Vec<f32>,
    first: Vec<u32>,
    last: Vec<u32>,
    count: Vec<u16>,
    place: Vec<u32>,
    held: Vec<u32>,
    capacity: u64,
    rng: Rng,
}

impl Guess {
    /// An empty one for a trace of Zipf's law with exponent 1 whose objects are replaced.
    pub fn new(trace: &Trace, capacity: u64) -> Guess {
        let objects = trace.sizes.len();
        Guess {
            rates: rates(crate::trace::OBJECTS, trace.replacing),
            first: vec![0; objects],
            last: vec![0; objects],
            count: vec![0; objects],
            place: vec![NOWHERE; objects],
            held: Vec::new(),
            capacity,
            rng: Rng::new(3),
        }
    }

    fn rate(&self, id: u32, at: u32) -> f32 {
        let n = id as usize;
        let count = usize::from(self.count[n] - 1).min(COUNTS - 1);
        self.rates[(count * SPANS + span(self.last[n] - self.first[n])) * SPANS + span(at - self.last[n])]
    }
}

impl Cache for Guess {
    fn request(&mut self, _: &Trace, at: usize, id: u32) -> bool {
        let (n, at) = (id as usize, at as u32);
        if self.count[n] == 0 {
            self.first[n] = at;
        }
        self.count[n] = self.count[n].saturating_add(1);
        self.last[n] = at;
        if self.place[n] != NOWHERE {
            return true;
        }
        self.place[n] = self.held.len() as u32;
        self.held.push(id);
        while self.held.len() as u64 > self.capacity {
            let sample = (0..SAMPLES).map(|_| self.rng.below(self.held.len() as u64) as usize);
            let worst = sample
                .collect::<Vec<_>>()
                .into_iter()
                .min_by(|&a, &b| self.rate(self.held[a], at).total_cmp(&self.rate(self.held[b], at)));
            let worst = worst.unwrap_or(0);
            let gone = self.held.swap_remove(worst);
            self.place[gone as usize] = NOWHERE;
            if let Some(&moved) = self.held.get(worst) {
                self.place[moved as usize] = worst as u32;
            }
        }
        false
    }
}

fn span(requests: u32) -> usize {
    ((f64::from(requests.max(1)).log2() * 3.0) as usize).min(SPANS - 1)
}

/// How likely it is that an object of this rate was not asked for in so many requests: because it was not its turn, and
/// because it is there no more.
fn unasked(replacing: Replacing, rate: f64, requests: f64) -> (f64, f64) {
    let (goes, by_going) = match replacing {
        Replacing::Unknown => (0.0, 0.0),
        Replacing::Any(part) => (part, part / (rate + part)),
        // The place is asked for, but by another one.
        Replacing::Asked(part) => (0.0, part),
    };
    let waits = (-(rate + goes) * requests).exp();
    (waits, by_going * (1.0 - waits))
}

/// The expected rate for every place of the table.
fn rates(objects: usize, replacing: Replacing) -> Vec<f32> {
    let sum: f64 = (1..=objects).map(|rank| 1.0 / rank as f64).sum();
    // Ranks in groups: the rate of one, and how many there are.
    let mut groups = Vec::new();
    let mut rank = 1.0f64;
    while rank < objects as f64 {
        let next = (rank * 1.3).max(rank + 1.0);
        groups.push((1.0 / ((rank * next).sqrt() * sum), next - rank));
        rank = next;
    }
    let mut table = Vec::with_capacity(COUNTS * SPANS * SPANS);
    let middle = |step: usize| ((step as f64 + 0.5) / 3.0).exp2();
    for count in 0..COUNTS {
        for active in 0..SPANS {
            // How likely each group is, by the requests that were seen. The greatest is taken out of the exponents.
            let logs = groups.iter().map(|&(rate, ranks): &(f64, f64)| {
                ranks.ln() + (count as f64 + 1.0) * rate.ln() - rate * middle(active)
            });
            let logs: Vec<f64> = logs.collect();
            let most = logs.iter().copied().fold(f64::MIN, f64::max);
            for idle in 0..SPANS {
                let (mut wanted, mut all) = (0.0, 0.0);
                for (&(rate, _), log) in groups.iter().zip(&logs) {
                    let weight = (log - most).exp();
                    let (is_alive, is_gone) = unasked(replacing, rate, middle(idle));
                    wanted += weight * rate * is_alive;
                    all += weight * (is_alive + is_gone);
                }
                table.push((wanted / all) as f32);
            }
        }
    }
    table
}
