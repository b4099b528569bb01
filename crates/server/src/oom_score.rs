//! `oom-score-adj`: how willing the kernel is to kill this process first when memory runs out.

use std::sync::Mutex;

use crate::sync::lock;
use darter_config::{Live, OomScore};

const FILE: &str = "/proc/self/oom_score_adj";

/// What the score was when it was first changed; to be restored, and what relative scores are added to.
static BEFORE: Mutex<Option<i32>> = Mutex::new(None);

/// Makes the score what the settings say.
///
/// Errors: the kernel does not allow it; nothing changed.
pub fn apply(live: &Live) -> Result<(), String> {
    let mut before = lock(&BEFORE);
    let base = before.map_or_else(read, Ok)?;
    let score = match live.oom_score {
        OomScore::Untouched if before.is_none() => return Ok(()),
        OomScore::Untouched => base,
        OomScore::Relative(score) => base.saturating_add(score).clamp(LEAST, MOST),
        OomScore::Absolute(score) => score.clamp(LEAST, MOST),
    };
    std::fs::write(FILE, score.to_string()).map_err(|error| {
        tracing::warn!("cannot set {FILE} to {score}: {error}");
        "Failed to set oom_score_adj, check server logs.".to_owned()
    })?;
    *before = (live.oom_score != OomScore::Untouched).then_some(base);
    Ok(())
}

fn read() -> Result<i32, String> {
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("Failed to read {FILE}: {error}"))?;
    text.trim().parse().map_err(|_| format!("Failed to read {FILE}"))
}

/// What the kernel takes.
const LEAST: i32 = -1000;
const MOST: i32 = 1000;
