//! The rows of cache mode: what counting uses and keeping a limit cost, and how well the limit is kept.
//!
//! Darter alone, with the limit (`darter, on`) and without it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::bgsave::{time_anew, times_of};
use crate::keys::Distribution;
use crate::messages::{Contender, Contest, OFF_AND_ON, Row, row};
use crate::replies::Protocol;
use crate::server::Server;
use crate::speed;
use crate::template::{Filling, Pool, Template};
use crate::usage::{resident_bytes, resident_quickly};
use crate::workload::Workload;

/// All rows.
pub fn rows() -> Vec<Row> {
    const OP: &str = "µs of CPU/op";
    const LIMITED: &[Contender] = &[Contender::DarterOn];
    const PLAIN: &[Contender] = &[Contender::Darter];
    vec![
        row("GET in cache mode, pipeline 30", OP, "1.03 × off", OFF_AND_ON, |c| c.cached(3_000_000, 30)),
        row("GET in cache mode, one at a time", OP, "1.03 × off", OFF_AND_ON, |c| c.cached(200_000, 1)),
        row("SET of new keys at the limit, p99.9 in the server", "µs", "2 × off", OFF_AND_ON, |c| {
            Ok(c.written(1_000_000)?.p999_us)
        }),
        row("SET of new keys at the limit, pipeline 30", OP, "-", OFF_AND_ON, |c| {
            Ok(c.written(1_000_000)?.cpu_us)
        }),
        row("the most that is resident meanwhile", "of the limit", "1.05", LIMITED, |c| {
            Ok(c.written(3_000_000)?.peak_bytes as f64 / LIMIT_BYTES as f64)
        }),
        row("resident ten seconds after a half has gone", "of what is used", "1.10", PLAIN, |c| c.halved()),
    ]
}

/// The limit of the rows that write.
const LIMIT_BYTES: u64 = 128 << 20;
/// Writes before those rows begin, at any scale: with them the limit is reached.
const WRITES_BEFORE: u64 = 500_000;
/// Keys that are read, all there.
const READ_KEYS: u64 = 100_000;
/// Keys of which a half goes.
const HALVED_KEYS: u64 = 10_000_000;

/// What writes past the limit were like.
struct Written {
    cpu_us: f64,
    p999_us: f64,
    peak_bytes: u64,
}

/// SETs of new keys, small values more often than large ones.
fn writes(prefix: &'static str) -> Workload {
    let sizes = [(64, 64), (32, 256), (8, 1 << 10), (2, 4 << 10), (1, 16 << 10)];
    let templates = sizes.map(|(share, bytes)| (share, Template::set(Protocol::Resp, prefix, bytes)));
    Workload::new(Protocol::Resp, templates.to_vec(), u64::from(u32::MAX))
}

/// Runs `work`; also returns the most bytes of the server that were resident meanwhile.
pub fn peak_while<T>(server: &Server, work: impl FnOnce() -> T) -> (T, u64) {
    let (is_over, peak_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                peak_bytes.fetch_max(resident_quickly(server.pid()).unwrap_or(0), Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let done = work();
        is_over.store(true, Relaxed);
        done
    });
    (done, peak_bytes.into_inner())
}

impl Contest<'_> {
    fn limit(&self, bytes: u64) -> io::Result<()> {
        if self.is_on() {
            self.server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
            self.server.ask(&["CONFIG", "SET", "maxmemory", &bytes.to_string()])?;
        }
        Ok(())
    }

    /// Puts `keys` keys with values of `value_bytes` there, one after the other.
    pub fn fill(&self, keys: u64, value_bytes: usize) -> io::Result<()> {
        let sets = Workload::of(Template::set(Protocol::Resp, "key:", value_bytes), keys)
            .with_distribution(Distribution::Sequential);
        speed::fill(&self.server, &sets, &Pool::new(Filling::Binary), keys, &self.setting.client_cores)
    }

    /// Reads of keys that are all there, with room for all.
    fn cached(&self, ops: u64, pipeline: usize) -> io::Result<f64> {
        self.limit(1 << 30)?;
        self.fill(READ_KEYS, 256)?;
        let gets = Workload::of(Template::get(Protocol::Resp, "key:"), READ_KEYS);
        self.cpu_per_op(&gets, ops, pipeline, Vec::new())
    }

    /// Writes new keys with values of 64 bytes to 16 KiB where the limit is reached.
    fn written(&self, ops: u64) -> io::Result<Written> {
        self.limit(LIMIT_BYTES)?;
        let pool = Pool::new(Filling::Binary);
        speed::fill(&self.server, &writes("old:"), &pool, WRITES_BEFORE, &self.setting.client_cores)?;
        time_anew(&self.server)?;
        let (cpu_us, peak_bytes) =
            peak_while(&self.server, || self.cpu_per_op(&writes("key:"), ops, 30, Vec::new()));
        let [set, _] = times_of(&self.server)?;
        Ok(Written { cpu_us: cpu_us?, p999_us: set.p999, peak_bytes })
    }

    /// Resident over `used_memory` after a random half of the keys has gone.
    fn halved(&self) -> io::Result<f64> {
        let keys = (HALVED_KEYS as f64 * self.setting.scale) as u64;
        let (pool, cores) = (Pool::new(Filling::Binary), &self.setting.client_cores);
        // Records lie in the order they came in: with these the first half of the names is anywhere.
        let sets = Workload::of(Template::set(Protocol::Resp, "key:", 32), keys)
            .with_distribution(Distribution::Shuffled);
        speed::fill(&self.server, &sets, &pool, keys, cores)?;
        let dels =
            Workload::of(Template::unlink("key:"), keys / 2).with_distribution(Distribution::Sequential);
        speed::fill(&self.server, &dels, &pool, keys / 2, cores)?;
        thread::sleep(Duration::from_secs(10));
        let info = self.server.ask(&["INFO", "memory"])?;
        let used =
            info.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<f64>().ok());
        let used = used.ok_or_else(|| io::Error::other("no used_memory"))?;
        Ok(resident_bytes(self.server.pid())? as f64 / used)
    }
}
