//! Requests: made by formula, or read from a file in libCacheSim's binary format.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use darter_base::rng::Rng;
use ruzstd::decoding::StreamingDecoder;

/// A sequence of requests for objects that are numbered from 0.
pub struct Trace {
    /// What it is called in tables.
    pub name: String,
    /// The requests.
    pub requests: Vec<u32>,
    /// Bytes of each object; 1 when objects are only counted.
    pub sizes: Vec<u32>,
    /// The request from which on each object is never asked for again because it has expired; 0: it does not expire.
    pub deadlines: Vec<u32>,
    /// How objects are replaced, where that is known.
    pub replacing: Replacing,
}

/// How popular objects are replaced by new ones.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Replacing {
    /// They are not, or nobody knows.
    Unknown,
    /// Whatever their popularity: this part of them at each request, in the mean.
    Any(f64),
    /// When they are asked for: before this part of the requests.
    Asked(f64),
}

impl Trace {
    /// Whether objects differ in size.
    pub fn is_sized(&self) -> bool {
        self.sizes.iter().any(|&bytes| bytes != 1)
    }
}

/// What a made trace is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// What it is called.
    pub name: &'static str,
    /// The skew of popularity.
    pub alpha: f64,
    /// Of the popular objects, how many in a hundred are replaced by new ones every `CHURN_EVERY` requests.
    pub churn_percent: f64,
    /// Requests in a hundred before which their object is replaced by a new one: what is popular moves.
    pub moving_percent: u64,
    /// Requests in a hundred for an object that is asked for once.
    pub one_hit_percent: u64,
    /// Requests in a hundred that belong to scans: runs over objects that are asked for in order.
    pub scan_percent: u64,
    /// Sizes are log-normal, 32 B to 8 KiB.
    pub is_sized: bool,
    /// Half of the objects are replaced when their time is up.
    pub expires: bool,
}

const PLAIN: Shape = Shape {
    name: "",
    alpha: 1.0,
    churn_percent: 0.0,
    moving_percent: 0,
    one_hit_percent: 0,
    scan_percent: 0,
    is_sized: false,
    expires: false,
};

/// The grid of study.md, section 7.
pub const GRID: &[Shape] = &[
    Shape { name: "Zipf 0.6", alpha: 0.6, ..PLAIN },
    Shape { name: "Zipf 0.8", alpha: 0.8, ..PLAIN },
    Shape { name: "Zipf 1.0", ..PLAIN },
    Shape { name: "Zipf 1.2", alpha: 1.2, ..PLAIN },
    Shape { name: "Zipf 0.8, 25 % one-hit", alpha: 0.8, one_hit_percent: 25, ..PLAIN },
    Shape { name: "Zipf 1.0, 50 % one-hit", one_hit_percent: 50, ..PLAIN },
    Shape { name: "Zipf 1.0, churn 3 %", churn_percent: 3.0, ..PLAIN },
    Shape { name: "Zipf 1.0, churn 10 %", churn_percent: 10.0, ..PLAIN },
    Shape { name: "Zipf 1.0, moving 3 %", moving_percent: 3, ..PLAIN },
    Shape { name: "Zipf 1.0, moving 10 %", moving_percent: 10, ..PLAIN },
    Shape { name: "Zipf 0.9, scans", alpha: 0.9, scan_percent: 20, ..PLAIN },
    Shape { name: "Zipf 1.0, sizes", is_sized: true, ..PLAIN },
    Shape { name: "Zipf 0.8, sizes, 25 % one-hit", alpha: 0.8, one_hit_percent: 25, is_sized: true, ..PLAIN },
    Shape { name: "Zipf 1.0, half expires", expires: true, ..PLAIN },
];

/// Popular objects of a made trace.
pub const OBJECTS: usize = 1_000_000;
const CHURN_EVERY: usize = 100_000;
const SCAN_LEN: usize = 10_000;
/// Requests after which an object that expires is replaced.
const LIFE_REQUESTS: u32 = 500_000;

impl Trace {
    /// A trace of `len` requests.
    pub fn make(shape: &Shape, len: usize, objects: usize, seed: u64) -> Trace {
        let mut rng = Rng::new(seed);
        let cumulated = zipf(objects, shape.alpha);
        // The object at each rank, and when it is replaced.
        let mut ranks: Vec<u32> = (0..objects as u32).collect();
        let mut until: Vec<u32> = vec![0; objects];
        let mut deadlines = vec![0; objects];
        let mut fresh = objects as u32;
        if shape.expires {
            for rank in (0..objects).step_by(2) {
                until[rank] = rng.below(u64::from(LIFE_REQUESTS)) as u32 + 1;
                deadlines[rank] = until[rank];
            }
        }
        let mut requests = Vec::with_capacity(len);
        let mut scan_left = 0;
        let mut scan_at = 0;
        while requests.len() < len {
            let at = requests.len();
            if at.is_multiple_of(CHURN_EVERY) && at > 0 {
                let replaced = (objects as f64 * shape.churn_percent / 100.0) as usize;
                for _ in 0..replaced {
                    ranks[rng.below(objects as u64) as usize] = fresh;
                    fresh += 1;
                }
            }
            if scan_left > 0 {
                scan_left -= 1;
                requests.push(ranks[scan_at % objects]);
                scan_at += 1;
                continue;
            }
            if shape.scan_percent > 0
                && rng.below((SCAN_LEN as u64) * (100 - shape.scan_percent) / shape.scan_percent) == 0
            {
                (scan_left, scan_at) = (SCAN_LEN, rng.below(objects as u64) as usize);
            }
            if rng.below(100) < shape.one_hit_percent {
                requests.push(fresh);
                fresh += 1;
                continue;
            }
            let point = rng.next_u64() as f64 / u64::MAX as f64;
            let rank = cumulated.partition_point(|&sum| sum < point).min(objects - 1);
            if until[rank] != 0 && at as u32 >= until[rank] {
                ranks[rank] = fresh;
                fresh += 1;
                until[rank] = at as u32 + LIFE_REQUESTS;
                deadlines.resize(fresh as usize, 0);
                deadlines[fresh as usize - 1] = until[rank];
            }
            if shape.moving_percent > 0 && rng.below(100) < shape.moving_percent {
                ranks[rank] = fresh;
                fresh += 1;
            }
            requests.push(ranks[rank]);
        }
        deadlines.resize(fresh as usize, 0);
        let sizes = (0..fresh).map(|_| if shape.is_sized { log_normal(&mut rng) } else { 1 }).collect();
        let replacing = match (shape.churn_percent > 0.0, shape.moving_percent > 0) {
            (true, false) => Replacing::Any(shape.churn_percent / 100.0 / CHURN_EVERY as f64),
            (false, true) => Replacing::Asked(shape.moving_percent as f64 / 100.0),
            _ => Replacing::Unknown,
        };
        Trace { name: shape.name.to_owned(), requests, sizes, deadlines, replacing }
    }

    /// Reads a file of libCacheSim's `oracleGeneral` format: time u32, object u64, size u32, next access i64 each;
    /// compressed by zstd if its name ends so.
    ///
    /// Errors: the file cannot be read, or is no whole number of requests.
    pub fn read(path: &Path, ignore_sizes: bool) -> io::Result<Trace> {
        let mut bytes = fs::read(path)?;
        if path.extension().is_some_and(|extension| extension == "zst" || extension == "zstd") {
            let packed = std::mem::take(&mut bytes);
            let mut decoder = StreamingDecoder::new(packed.as_slice())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            decoder.read_to_end(&mut bytes)?;
        }
        if bytes.is_empty() || !bytes.len().is_multiple_of(24) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no whole number of 24-byte requests"));
        }
        let mut ids: HashMap<u64, u32> = HashMap::new();
        let (mut requests, mut sizes) = (Vec::with_capacity(bytes.len() / 24), Vec::new());
        for record in bytes.chunks_exact(24) {
            let (mut object, mut size) = ([0; 8], [0; 4]);
            object.copy_from_slice(&record[4..12]);
            size.copy_from_slice(&record[12..16]);
            let next = ids.len() as u32;
            let id = *ids.entry(u64::from_le_bytes(object)).or_insert(next);
            if id == next {
                sizes.push(if ignore_sizes { 1 } else { u32::from_le_bytes(size).max(1) });
            }
            requests.push(id);
        }
        let deadlines = vec![0; sizes.len()];
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Trace { name, requests, sizes, deadlines, replacing: Replacing::Unknown })
    }
}

/// The probability that a request is for one of the first n ranks, for every n.
fn zipf(objects: usize, alpha: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let mut cumulated: Vec<f64> = (1..=objects)
        .map(|rank| {
            sum += (rank as f64).powf(-alpha);
            sum
        })
        .collect();
    cumulated.iter_mut().for_each(|part| *part /= sum);
    cumulated
}

/// 32 B to 8 KiB around 300 B.
fn log_normal(rng: &mut Rng) -> u32 {
    // Twelve even numbers added up are nearly normal.
    let normal: f64 = (0..12).map(|_| rng.next_u64() as f64 / u64::MAX as f64).sum::<f64>() - 6.0;
    ((300f64.ln() + 1.2 * normal).exp() as u32).clamp(32, 8192)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_the_same_for_the_same_seed_and_skewed_as_asked() {
        let make = |seed| Trace::make(&GRID[2], 50_000, 10_000, seed);
        let trace = make(1);
        assert_eq!(trace.requests, make(1).requests);
        assert_ne!(trace.requests, make(2).requests);
        let first = trace.requests.iter().filter(|&&id| id == 0).count() as f64 / 50_000.0;
        // 1 / the 10,000th harmonic number
        assert!((first - 0.1022).abs() < 0.01, "{first}");
    }

    #[test]
    fn files_of_libcachesim_are_read_and_broken_ones_refused() {
        let path = std::env::temp_dir().join(format!("cachesim-{}", std::process::id()));
        let mut bytes = Vec::new();
        for (object, size) in [(70u64, 10u32), (9, 20), (70, 10)] {
            bytes.extend_from_slice(&1u32.to_le_bytes());
            bytes.extend_from_slice(&object.to_le_bytes());
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&(-1i64).to_le_bytes());
        }
        fs::write(&path, &bytes).expect("written");
        let trace = Trace::read(&path, false).expect("read");
        assert_eq!((trace.requests, trace.sizes), (vec![0, 1, 0], vec![10, 20]));
        // One block, not compressed: magic, one byte of length, header of the last block.
        let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, 72, 0x41, 0x02, 0x00];
        packed.extend_from_slice(&bytes);
        let packed_path = path.with_extension("zst");
        fs::write(&packed_path, &packed).expect("written");
        let unpacked = Trace::read(&packed_path, false).expect("read");
        assert_eq!((unpacked.requests, unpacked.sizes), (vec![0, 1, 0], vec![10, 20]));
        fs::write(&packed_path, &packed[..40]).expect("written");
        assert!(Trace::read(&packed_path, false).is_err());
        fs::remove_file(&packed_path).expect("removed");
        fs::write(&path, &bytes[1..]).expect("written");
        assert!(Trace::read(&path, false).is_err());
        fs::remove_file(&path).expect("removed");
    }
}
