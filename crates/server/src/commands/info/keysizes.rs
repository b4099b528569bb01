//! INFO keysizes: the number of values by length, in ranges that double, as in Redis 8.
//!
//! Nothing is counted while values change. A request for this section makes a separate thread examine every key, a
//! slice of a shard at a time, and waits for it. So neither `all` nor `everything` shows it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use darter_command::Fault;
use darter_store::{ScanPosition, Shard, Type};
use darter_wire::Reply;

use super::InfoText;
use crate::clock::unix_ms;
use crate::commands::persistence::{asking, wait};
use crate::dispatch::Caller;
use crate::engine::lease;
use crate::shared::{Shared, ThreadMessage};

/// The name it is asked for by.
pub const NAME: &str = "keysizes";

/// Index lines examined while a shard is held: some tens of microseconds.
const LINES_PER_SLICE: usize = 192;
/// One range for length 0, and one for each highest bit.
const RANGES_LEN: usize = 65;
/// The types in order of output, with the names of their lines.
const LINES: [(Type, &str); 5] = [
    (Type::String, "strings_sizes"),
    (Type::List, "lists_items"),
    (Type::Set, "sets_items"),
    (Type::Zset, "zsets_items"),
    (Type::Hash, "hashes_items"),
];

/// Counts of one database.
type Counts = [[u64; RANGES_LEN]; LINES.len()];

/// The right to examine all keys: a thread for each request would be too many.
struct KeysizesClaim(&'static AtomicBool);

impl KeysizesClaim {
    fn lay(is_taken: &'static AtomicBool) -> Option<KeysizesClaim> {
        (!is_taken.swap(true, Relaxed)).then(|| KeysizesClaim(is_taken))
    }
}

impl Drop for KeysizesClaim {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// Answers with `text` and this section after it, once all keys have been examined.
pub fn answer_later(caller: &mut Caller<'_>, text: String) -> Result<(), Fault> {
    if !caller.may_wait {
        return Err(Fault::text(
            "ERR INFO keysizes looks at all keys and cannot run in a transaction or script",
        ));
    }
    let (shared, to, resp3) = (caller.local.shared, asking(caller), caller.session.resp3);
    let claim = KeysizesClaim::lay(&shared.is_sizing)
        .ok_or(Fault::text("ERR all keys are being looked at for another INFO keysizes, ask again"))?;
    let dbs_len = caller.local.live.dbnum as usize;
    let body = move || {
        let mut text = InfoText(text);
        if !text.0.is_empty() {
            text.0.push_str("\r\n");
        }
        text.0.push_str("# Keysizes\r\n");
        let counts = count(shared, dbs_len);
        drop(claim);
        write(&counts, &mut text);
        let mut reply = Vec::new();
        Reply::new(&mut reply, resp3).verbatim(*b"txt", text.0.as_bytes());
        shared.handle(to.thread).send(ThreadMessage::Served { token: to.token, client: to.client, reply });
    };
    let spawned = std::thread::Builder::new().name("darter-sizes".into()).spawn(body);
    spawned.map_err(|error| Fault::Text(format!("ERR cannot start a thread: {error}").into()))?;
    wait(caller);
    Ok(())
}

/// Examines all keys of `dbs_len` databases.
fn count(shared: &'static Shared, dbs_len: usize) -> Vec<Counts> {
    let mut counts = vec![[[0; RANGES_LEN]; LINES.len()]; dbs_len];
    let now_ms = unix_ms();
    for cell in shared.cells {
        for (db, counts) in counts.iter_mut().enumerate() {
            let mut at = Some(ScanPosition::START);
            while let Some(from) = at.filter(|_| !shared.is_stopping.load(Relaxed)) {
                let held = lease::take_asleep(cell);
                at = slice(&held.shard, db, from, now_ms, counts);
                lease::release_as_stranger(shared, held);
            }
        }
    }
    counts
}

/// Counts the values of some index lines from `at` on; returns the next position.
fn slice(
    shard: &Shard,
    db: usize,
    mut at: ScanPosition,
    now_ms: u64,
    counts: &mut Counts,
) -> Option<ScanPosition> {
    if shard.db(db).is_empty() {
        return None;
    }
    for _ in 0..LINES_PER_SLICE {
        at = shard.scan(db, at, |record| {
            let line = LINES.iter().position(|(kind, _)| *kind == record.value_type());
            if let Some(ranges) =
                line.filter(|_| !record.is_expired(now_ms)).and_then(|line| counts.get_mut(line))
            {
                ranges[range_of(shard.value_len(record))] += 1;
            }
        })?;
    }
    Some(at)
}

fn range_of(len: u64) -> usize {
    (u64::BITS - len.leading_zeros()) as usize
}

fn write(counts: &[Counts], out: &mut InfoText) {
    for (db, counts) in counts.iter().enumerate() {
        for ((_, name), ranges) in LINES.iter().zip(counts) {
            let told: Vec<String> = (0..)
                .zip(ranges)
                .filter(|(_, count)| **count > 0)
                .map(|(at, n)| format!("{}={n}", label(at)))
                .collect();
            if !told.is_empty() {
                out.field(&format!("db{db}_distrib_{name}"), told.join(","));
            }
        }
    }
}

/// The least length of a range, in units of 1,024.
fn label(range: u32) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let Some(bits) = range.checked_sub(1) else { return "0".to_owned() };
    let unit = UNITS.get(bits as usize / 10).copied().unwrap_or_default();
    format!("{}{unit}", 1u64 << (bits % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_double() {
        let labels = [0, 1, 2, 3, 4, 1023, 1024, 1536, 1 << 20, 3 << 30, u64::MAX]
            .map(|len| label(range_of(len) as u32));
        assert_eq!(labels, ["0", "1", "2", "2", "4", "512", "1K", "1K", "1M", "2G", "8E"]);
    }

    #[test]
    fn a_line_for_each_type_that_is_there() {
        let mut counts = vec![[[0; RANGES_LEN]; LINES.len()]; 3];
        counts[0][0][0] = 2;
        counts[0][0][5] = 1;
        counts[2][4][11] = 3;
        let mut text = InfoText(String::new());
        write(&counts, &mut text);
        assert_eq!(text.0, "db0_distrib_strings_sizes:0=2,16=1\r\ndb2_distrib_hashes_items:1K=3\r\n");
    }
}
