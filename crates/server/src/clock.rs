//! The wall clock: [`unix_ms`]. Called where a thread reads the time for all that it does next. It names no other module.

use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock, Unix milliseconds.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
