//! Makes a failing stream short: drops ops as long as the two servers still differ at the last one that is left.

use std::io;
use std::time::{Duration, Instant};

use crate::grammar::Family;
use crate::pair::{Difference, Pair};
use crate::stream::Op;

/// Shrinking ends after this.
const LIMIT: Duration = Duration::from_secs(30);

/// A short failing stream.
pub struct Shrunk {
    /// Its ops; the last one shows the difference.
    pub ops: Vec<Op>,
    /// The difference.
    pub difference: Difference,
}

/// Shrinks `ops`, which ended in a difference; `None` when the difference does not come back in three runs.
/// Errors: a server cannot be reached.
pub fn shrink(pair: &mut Pair, family: &Family, ops: &[Op], version: u8) -> io::Result<Option<Shrunk>> {
    let deadline = Instant::now() + LIMIT;
    let mut best: Option<Shrunk> = None;
    for _ in 0..3 {
        if let Some(found) = attempt(pair, family, ops.to_vec(), version)? {
            best = Some(found);
            break;
        }
    }
    let Some(mut best) = best else { return Ok(None) };
    // Most differences need no more than the last few ops.
    for tail in [1, 4, 16, 64, 256] {
        let from = best.ops.len().saturating_sub(tail);
        if let Some(found) = attempt(pair, family, best.ops[from..].to_vec(), version)? {
            best = found;
            break;
        }
    }
    let mut chunk = best.ops.len().div_ceil(2);
    while chunk > 0 && Instant::now() < deadline {
        let mut from = 0;
        let mut removed = false;
        // The last op shows the difference and stays.
        while from + 1 < best.ops.len() && Instant::now() < deadline {
            let to = (from + chunk).min(best.ops.len() - 1);
            let fewer: Vec<Op> = best.ops[..from].iter().chain(&best.ops[to..]).cloned().collect();
            match attempt(pair, family, fewer, version)? {
                Some(found) => {
                    best = found;
                    removed = true;
                }
                None => from = to,
            }
        }
        if !removed || chunk > 1 {
            chunk /= 2;
        }
    }
    Ok(Some(best))
}

/// Runs `ops` and cuts them after the difference.
fn attempt(pair: &mut Pair, family: &Family, mut ops: Vec<Op>, version: u8) -> io::Result<Option<Shrunk>> {
    // An op that lost the one it was joined to must not join another connection's.
    for at in 0..ops.len() {
        let joins = at > 0 && ops[at].joined && ops[at - 1].connection == ops[at].connection;
        ops[at].joined = joins;
    }
    let Some(difference) = pair.run(family, &ops, version)? else { return Ok(None) };
    ops.truncate(difference.at + 1);
    Ok(Some(Shrunk { ops, difference }))
}
