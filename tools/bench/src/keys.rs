//! Which key number an operation takes: uniform, Zipf or one after the other, from a seed.
//!
//! The encoder owns one `KeyPicker` per load thread. It never touches the network.

/// A small fast generator (splitmix64): the quality is ample for picking keys, and it costs a few instructions.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Same seed, same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Scatters a number over 64 bits, one to one.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How keys are chosen out of the key space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Every key equally often.
    Uniform,
    /// Rank `r` with weight `1 / r^theta`, ranks scattered over the key space; theta in `0.0..1.0`.
    Zipf(f64),
    /// 0, 1, 2 … and around again: used to fill.
    Sequential,
    /// Every key once per lap, in a scattered order.
    Shuffled,
}

/// Draws key numbers in `0..keys`.
#[derive(Clone, Debug)]
pub struct KeyPicker {
    keys: u64,
    distribution: Distribution,
    zipf: Option<Zipf>,
    next: u64,
}

impl KeyPicker {
    /// A picker over `keys` keys (at least one). Zipf costs O(keys) here, once.
    pub fn new(keys: u64, distribution: Distribution) -> Self {
        let keys = keys.max(1);
        let zipf = match distribution {
            Distribution::Zipf(theta) => Some(Zipf::new(keys, theta)),
            _ => None,
        };
        Self { keys, distribution, zipf, next: 0 }
    }

    /// The next key number.
    pub fn pick(&mut self, rng: &mut Rng) -> u64 {
        match (&self.distribution, &self.zipf) {
            (Distribution::Sequential, _) => self.step(),
            (Distribution::Shuffled, _) => {
                (u128::from(self.step()) * u128::from(SHUFFLE) % u128::from(self.keys)) as u64
            }
            (_, Some(zipf)) => mix(zipf.rank(rng)) % self.keys,
            (_, None) => rng.below(self.keys),
        }
    }

    fn step(&mut self) -> u64 {
        let key = self.next;
        self.next = (self.next + 1) % self.keys;
        key
    }
}

/// A prime, so that its multiples visit every key of any smaller key space.
const SHUFFLE: u64 = 2_654_435_761;

/// Zipf ranks by the closed form of Gray et al., "Quickly generating billion-record synthetic databases".
#[derive(Clone, Debug)]
struct Zipf {
    keys: f64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(keys: u64, theta: f64) -> Self {
        let theta = theta.clamp(0.01, 0.999);
        let zeta: f64 = (1..=keys).map(|rank| (rank as f64).powf(-theta)).sum();
        let zeta_two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta);
        Self { keys: keys as f64, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        let point = rng.unit();
        let scaled = point * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.theta) {
            return 1;
        }
        (self.keys * (self.eta * point - self.eta + 1.0).powf(self.alpha)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_visits_every_key_once_per_lap() {
        let mut picker = KeyPicker::new(3, Distribution::Sequential);
        let mut rng = Rng::new(1);
        let lap: Vec<u64> = (0..4).map(|_| picker.pick(&mut rng)).collect();
        assert_eq!(lap, [0, 1, 2, 0]);
    }

    #[test]
    fn shuffled_visits_every_key_once_per_lap() {
        let mut picker = KeyPicker::new(1000, Distribution::Shuffled);
        let mut rng = Rng::new(1);
        let mut lap: Vec<u64> = (0..1000).map(|_| picker.pick(&mut rng)).collect();
        assert_ne!(lap[..4], [0, 1, 2, 3]);
        lap.sort_unstable();
        assert!(lap.iter().enumerate().all(|(at, key)| at as u64 == *key));
    }

    #[test]
    fn zipf_is_skewed_and_in_range() {
        let mut picker = KeyPicker::new(1000, Distribution::Zipf(0.99));
        let mut rng = Rng::new(7);
        let mut counts = vec![0u32; 1000];
        for _ in 0..100_000 {
            counts[picker.pick(&mut rng) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        assert!(counts[0] > 8_000, "the hottest key got only {}", counts[0]);
        assert!(counts[900] < 300);
    }

    #[test]
    fn uniform_stays_in_range() {
        let mut picker = KeyPicker::new(10, Distribution::Uniform);
        let mut rng = Rng::new(3);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[picker.pick(&mut rng) as usize] = true;
        }
        assert!(seen.iter().all(|s| *s));
    }
}
